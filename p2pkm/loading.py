"""A result read back from disk, without pickle."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from p2pkm.errors import DataError
from p2pkm.frames import Frames
from p2pkm.result import Census, Chain, Result, Traffic
from p2pkm.topology import Topology


def load(path: str | Path) -> Result:
    """Read a run folder, or what `Result.save` wrote.

    Raises
    ------
    DataError
        If the folder is missing, the run has not ended, or a file of it cannot be read.
    """
    folder = Path(path)
    if not (folder / "summary.json").is_file():
        state = "holds a run that has not ended" if (folder / "rounds.jsonl").is_file() else "is not a run folder"
        raise DataError(f"{folder} {state}: it has no summary.json")
    try:
        summary = json.loads((folder / "summary.json").read_text())
        rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
        return _assemble(folder, summary, rounds)
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise DataError(f"{folder} cannot be read: {type(error).__name__}: {error}") from None


def _assemble(folder: Path, summary: dict[str, Any], rounds: list[dict[str, Any]]) -> Result:
    centroids, labels, ledger, census, chain, frames = (
        _read(folder / f"{name}.npz") for name in ("centroids", "labels", "ledger", "census", "chain", "frames")
    )
    topology, n = _read_topology(folder), len(centroids["centroids"])
    topology = replace(topology, hub=n if topology.n > n else -1)
    extra = {name: census.pop(name) for name in ("losses", "gtv", "best", "notes")}
    groups, ratios = census.pop("groups", None), census.pop("ratios", None)
    return Result(
        centroids["centroids"], centroids.get("server_centroids"), rounds, summary,
        _fill(Traffic, ledger | {"devices": topology.n}), topology, extra["losses"], extra["gtv"],
        _fill(Census, labels | census), Chain(chain["heads"], chain.get("digests")),
        int(extra["best"]), [str(note) for note in extra["notes"]],
        None if "scaling" not in centroids else (centroids["scaling"][0], centroids["scaling"][1]), groups,
        Frames(**frames) if frames else None, ratios,
    )  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _read_topology(folder: Path) -> Topology:
    if (folder / "graph.npz").is_file():
        return Topology.from_arrays(_read(folder / "graph.npz"))
    import topologies

    graph = topologies.read(folder / "graph.graphml")
    return Topology.from_networkx(graph)


def _fill(kind: Any, parts: dict[str, Any]) -> Any:
    """Build a NamedTuple; parts that were not stored are None."""
    return kind(**(dict.fromkeys(kind._fields) | parts))
