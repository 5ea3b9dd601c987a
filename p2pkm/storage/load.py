"""Loading of a result from disk, without pickle."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.data.readers.npy import load_arrays
from p2pkm.data.schema import Schema
from p2pkm.metrics.disclosure import UNRECORDED, name_devices
from p2pkm.metrics.replay_frames import Frames
from p2pkm.metrics.result import Census, Disclosed, Exposure, HashChain, NewLinks, Result
from p2pkm.network.graph import Topology
from p2pkm.network.ledger import Traffic
from p2pkm.storage.run_status import describe_missing_results, require_single_run
from p2pkm.storage.save import turn_labels, unpack_columns

# Arrays of every run by file, with their number of axes.
_REQUIRED: dict[str, dict[str, int]] = {
    "centroids": {"centroids": 3},
    "labels": {},
    "ledger": dict.fromkeys(("src", "dst", "messages", "bytes", "edge_rows", "wire_bytes"), 1),
    "census": {"sizes": 1, "sample": 2, "sample_device": 1, "sample_class": 1, "sample_cluster": 1, "losses": 1,
               "gtv": 1, "best": 0, "notes": 1},
    "chain": {"heads": 2},
    "frames": {},
    "exposure": {},
    "devices": {},
    "learned": {},
    "disclosed": {},
    "copied": {},
}  # fmt: skip


def load(path: str | Path) -> Result:
    """Load the result from a run folder, or from a folder written by `Result.save`.

    Raises
    ------
    DataError
        If the folder does not exist, the run has not ended, or a file cannot be read; the message names the file.

    Examples
    --------
    >>> import tempfile
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(3), shards, rounds=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = p2pkm.load(result.save(folder))
    >>> bool((again.centroids == result.centroids).all())
    True
    """
    folder = Path(path)
    require_single_run(folder)
    if not (folder / "summary.json").is_file():
        raise DataError(f"{folder} {describe_missing_results(folder)}")
    summary = read_summary(folder)
    rounds = _read_safely(folder / "rounds.jsonl", _read_rounds)
    arrays = {name: _read_safely(folder / f"{name}.npz", _read_arrays) for name in _REQUIRED}
    large = (folder / "graph.npz").is_file()
    topology = _read_safely(folder / ("graph.npz" if large else "graph.graphml"), _read_topology)
    result = _read_safely(folder, lambda _: _assemble(summary, rounds, arrays, topology))
    stored = folder / "schema.json"
    schema = _read_safely(stored, lambda path: Schema.from_mapping(_read_object(path))) if stored.is_file() else None
    return replace(result, schema=schema)


def read_summary(folder: Path) -> dict[str, Any]:
    """Read the summary of a run folder alone.

    Raises
    ------
    DataError
        If the file cannot be read.
    """
    return dict(_read_safely(folder / "summary.json", _read_object))


def _read_safely(path: Path, read: Callable[[Path], Any]) -> Any:
    """Read one file; convert all errors to a `DataError` that names it."""
    try:
        return read(path)
    except (DataError, MemoryError):
        raise
    # Damaged files raise almost any exception.
    except Exception as error:
        raise DataError(
            f"{path} cannot be read: {type(error).__name__}: {error}. It is damaged or from another version. Restore a "
            "copy, or repeat the run from config.toml"
        ) from None


def _read_object(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise ValueError("expected a JSON object")
    return content


def _read_rounds(path: Path) -> list[dict[str, Any]]:
    rounds = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    if not all(isinstance(record, dict) for record in rounds):
        raise ValueError("expected a JSON object on every line")
    return rounds


def _read_arrays(path: Path) -> dict[str, Any]:
    required = _REQUIRED[path.stem]
    arrays = load_arrays(path) if required or path.is_file() else {}
    for name, axes in required.items():
        if name not in arrays or arrays[name].ndim != axes:
            actual = f"it has shape {arrays[name].shape}" if name in arrays else "there is none"
            raise ValueError(f"expected an array {name!r} with {axes} axes, but {actual}")
    return arrays


def _read_topology(path: Path) -> Topology:
    if path.suffix == ".npz":
        return Topology.from_arrays(load_arrays(path))
    import topologies

    graph = topologies.read(path, isolated=True)
    names = [graph.nodes[node].get("name") for node in topologies.sort_nodes(graph)]
    topology = replace(Topology.from_networkx(graph), file_summary="")
    # Names may be numbers, such as 1 to n.
    return topology if None in names else replace(topology, names=tuple(map(str, names)))


def _assemble(
    summary: dict[str, Any], rounds: list[dict[str, Any]], arrays: dict[str, dict[str, Any]], topology: Topology
) -> Result:
    centroids, labels, ledger, census, chain, frames, exposure, devices, learned, disclosed, copied = (
        arrays[name] for name in _REQUIRED
    )
    n = len(centroids["centroids"])
    topology = replace(topology, hub=n if topology.n > n else -1)
    extra = {name: census.pop(name) for name in ("losses", "gtv", "best", "notes")}
    notes = [str(note) for note in extra["notes"]]
    if not disclosed and summary.get("raw_points_disclosed") and UNRECORDED not in notes:
        notes.append("disclosed.npz is missing: the run only counted the disclosed points; repeat it from config.toml")
    groups, ratios, byzantine, *coupled = (
        census.pop(name, None)
        for name in ("groups", "ratios", "byzantine", "link_weights", "couplings", "label_penalties")
    )
    link_weights, couplings, label_penalties = coupled
    fields = {name: census.pop(f"new_links_{name}") for name in NewLinks._fields if f"new_links_{name}" in census}
    new_links = None
    if fields:
        # Earlier folders have one value for all devices.
        by_degree = np.broadcast_to(fields.pop("by_degree"), fields["strength"].shape)
        new_links = NewLinks(by_degree=by_degree, unit=float(fields.pop("unit")), **fields)
    return Result(
        centroids["centroids"], centroids.get("server_centroids"), rounds, summary,
        _build_tuple(Traffic, ledger | {"devices": topology.n}), topology, extra["losses"], extra["gtv"],
        _build_tuple(Census, labels | census), HashChain(chain["heads"], chain.get("digests")),
        int(extra["best"]), notes,
        None if "scaling" not in centroids else (centroids["scaling"][0], centroids["scaling"][1]), groups,
        Frames(**frames) if frames else None, ratios, byzantine, Exposure(**exposure) if exposure else None,
        centroids.get("central"), devices,
        tuple(centroids["features"].tolist()) if "features" in centroids else None,
        turn_labels(learned), Disclosed(**disclosed, names=name_devices(topology)) if disclosed else None,
        copied=unpack_columns(copied), link_weights=link_weights, couplings=couplings,
        label_penalties=label_penalties, new_links=new_links,
    )  # fmt: skip


def _build_tuple(kind: Any, parts: dict[str, Any]) -> Any:
    """Build a NamedTuple; fields that were not stored are None."""
    return kind(**(dict.fromkeys(kind._fields) | parts))
