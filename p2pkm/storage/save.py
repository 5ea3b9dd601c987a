"""A result on its way to disk: every file is written at once or not at all."""

import json
import os
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.network.graph import LARGE

_PROBED, _WORTH = 1 << 16, 0.8  # bytes of an array that are packed on trial; keep it packed if it shrinks to less
_LABEL_NAMES = {"labels": "labels", "device": "device", "row": "row"}


def write_bytes(folder: Path, name: str, write: Callable[[Any], Any]) -> None:
    """Write a file under another name beside it, then rename it; `write` gets the open file."""
    beside = folder / f".{name}.partial"
    try:
        with open(beside, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / name)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def write_json(folder: Path, name: str, content: Any) -> None:
    """Write a JSON file."""
    write_bytes(folder, name, lambda file: file.write((json.dumps(content, indent=1) + "\n").encode()))


def _pack(file: Any, arrays: dict[str, Any]) -> None:
    """Write arrays as .npz; what does not shrink, such as most real numbers, is not compressed."""
    with zipfile.ZipFile(file, "w", compresslevel=1) as archive:
        for name, array in arrays.items():
            middle = array.size // 2
            probe = array.reshape(-1)[middle : middle + _PROBED // array.itemsize].tobytes()
            shrinks = len(zlib.compress(probe, 1)) < _WORTH * len(probe)
            archive.compression = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def save_result(result: Any, folder: Path) -> None:
    """Write everything but config, manifest, rounds and figures: centroids, ledger, graph, frames, summary ..."""
    census, ledger = result.census, result.ledger
    archives: Any = {
        "centroids": {"centroids": result.centroids, "server_centroids": result.server_centroids,
                      "scaling": result.scaling, "central": result.central},
        "labels": {"labels": census.labels, "device": census.device, "row": census.row},
        "ledger": ledger._asdict(),
        "census": {
            **{name: value for name, value in census._asdict().items() if name not in _LABEL_NAMES},
            "losses": result.losses, "gtv": result.gtv, "best": result.best, "notes": np.array(result.notes, np.str_),
            "groups": result.groups, "ratios": result.ratios, "byzantine": result.byzantine,
        },
        "chain": result.chain._asdict(),
        "frames": {} if result.frames is None else result.frames._asdict(),
        "devices": result.devices,
        "exposure": {} if result.exposure is None else result.exposure._asdict(),
    }  # fmt: skip
    for name, arrays in archives.items():
        present: Any = {key: np.asarray(value) for key, value in arrays.items() if value is not None}
        if present:
            write_bytes(folder, f"{name}.npz", partial(_pack, arrays=present))
    if result.topology.n > LARGE:
        write_bytes(folder, "graph.npz", partial(_pack, arrays=result.topology.to_arrays()))
    else:
        import networkx as nx

        write_bytes(folder, "graph.graphml", lambda file: nx.write_graphml(_finite(result.to_networkx()), file))
    write_json(folder, "summary.json", result.summary)


def write_lines(records: list[dict[str, Any]], folder: Path) -> None:
    """Write the records of a run, one line each."""
    lines = "".join(json.dumps(record) + "\n" for record in records)
    write_bytes(folder, "rounds.jsonl", lambda file: file.write(lines.encode()))


def save(result: Any, path: str | Path) -> Path:
    """Write a result into a new or empty folder, which `load` reads.

    Raises
    ------
    DataError
        If the folder is not empty or cannot be written.
    """
    folder = Path(path)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DataError(f"{folder} is not an empty folder; choose another one")
        folder.mkdir(parents=True, exist_ok=True)
        write_lines(result.rounds, folder)
        save_result(result, folder)
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}") from None
    return folder


def _finite(graph: Any) -> Any:
    """Return the graph without figures that GraphML readers stumble over (inf)."""
    for _, data in graph.nodes(data=True):
        for name in [name for name, value in data.items() if value == np.inf]:
            del data[name]
    return graph
