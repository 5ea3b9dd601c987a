"""A result on its way to disk: every file is written at once or not at all."""

import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.network.graph import LARGE
from p2pkm.storage.lock import died, sign

_PROBED, _WORTH = 1 << 16, 0.8  # bytes of an array that are packed on trial; keep it packed if it shrinks to less
_LONG, _HALF = 16_000_000, 0.5  # the same of arrays of more bytes, which takes seconds
_LINES = 1_000_000  # points, and coordinates of centroids; above, there are the arrays alone
_PARTIAL = re.compile(r"\..+\.(\d{1,9})-(\d*)@(.+)\.partial")
_KINDS = {str: "string", bool: "boolean", int: "long", float: "double"}  # of GraphML
_GRAPHML = (
    "<?xml version='1.0' encoding='utf-8'?>\n"
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns '
    'http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">\n'
)
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LABEL_NAMES = {"labels": "labels", "device": "device", "row": "row"}


def write_bytes(folder: Path, name: str, write: Callable[[Any], Any]) -> None:
    """Write a file under another name beside it, then rename it; `write` gets the open file.

    The other name is of this process alone, so that two may write the same file; what dead ones left over is removed.
    """
    _tidy(folder)
    owner = sign()
    beside = folder / f".{name}.{owner['process']}-{owner['process_began'] or ''}@{owner['host']}.partial"
    try:
        with open(beside, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / name)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder of this process alone; the files that are written there then go into `folder`, one by one.

    For libraries that write files by their names; a folder that does not exist is made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place:
        yield Path(place)
        for draft in sorted(Path(place).iterdir()):
            write_bytes(folder, draft.name, methodcaller("write", draft.read_bytes()))


@cache
def _tidy(folder: Path) -> None:
    """Remove the unfinished files of processes that have died; once per folder and process, for it may hold many."""
    for path in folder.glob(".*.partial"):
        found = _PARTIAL.fullmatch(path.name)
        if found and died(_name_owner(*found.groups())):
            with suppress(OSError):  # another process removes it, or it is another user's
                path.unlink()


def _name_owner(process: str, began: str, host: str) -> dict[str, Any]:
    return {"host": host, "process": int(process), "process_began": began or None}


def write_json(folder: Path, name: str, content: Any) -> None:
    """Write a JSON file."""
    write_bytes(folder, name, lambda file: file.write((json.dumps(content, indent=1) + "\n").encode()))


def pack_arrays(file: Any, arrays: dict[str, Any]) -> None:
    """Write arrays as .npz; arrays that do not shrink, such as most real numbers, are not compressed."""
    with zipfile.ZipFile(file, "w", compresslevel=1) as archive:
        for name, array in arrays.items():
            middle = array.size // 2
            probe = array.reshape(-1)[middle : middle + _PROBED // array.itemsize].tobytes()
            worth = _WORTH if array.nbytes <= _LONG else _HALF
            shrinks = len(zlib.compress(probe, 1)) < worth * len(probe)
            archive.compression = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def turn_labels(derived: dict[str, Any]) -> dict[str, Any]:
    """Return what a method derived from points with its labels turned: learned.npz has a row for each clustering."""
    turned = {"labels": np.ascontiguousarray(derived["labels"].T)} if "labels" in derived else {}
    return derived | turned


def save_result(result: Any, folder: Path) -> None:
    """Write everything but config, manifest, rounds and figures: centroids, ledger, graph, frames, summary ..."""
    census, ledger = result.census, result.ledger
    archives: Any = {
        "centroids": {"centroids": result.centroids, "server_centroids": result.server_centroids,
                      "scaling": result.scaling, "central": result.central,
                      "features": None if result.features is None else np.array(result.features, np.str_)},
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
        "learned": turn_labels(result.derived),
        "exposure": {} if result.exposure is None else result.exposure._asdict(),
    }  # fmt: skip
    for name, arrays in archives.items():
        present: Any = {key: np.asarray(value) for key, value in arrays.items() if value is not None}
        if present:
            write_bytes(folder, f"{name}.npz", partial(pack_arrays, arrays=present))
    if result.topology.n > LARGE:
        write_bytes(folder, "graph.npz", partial(pack_arrays, arrays=result.topology.to_arrays()))
    else:
        _write_text(folder, "graph.graphml", _GRAPHML, _list_graphml(*result.list_graph()))
    write_tables(result, folder)
    write_json(folder, "summary.json", result.summary)


def write_tables(result: Any, folder: Path) -> None:
    """Write labels.csv and centroids.csv, as spreadsheets read them; of large runs what is not too large."""
    census, topology = result.census, result.topology
    if census.labels is not None and len(census.labels) <= _LINES:
        order = np.argsort(census.row, kind="stable")
        device, cluster = census.device[order], result.number_alike(census.device, census.labels)[order]
        names = [_field(topology.label(i)) for i in range(topology.clients)]
        lines = [
            f"{row},{names[i]},{c if c >= 0 else ''}\n"
            for row, i, c in zip(census.row[order].tolist(), device.tolist(), cluster.tolist(), strict=True)
        ]
        _write_text(folder, "labels.csv", "row,device,cluster\n", lines)
    if result.centroids.size <= _LINES:
        head = ",".join(map(_field, ("cluster", "device", "points", *result.feature_names)))
        _write_text(folder, "centroids.csv", f"{head}\n", _list_centroids(result))


def _list_centroids(result: Any) -> list[str]:
    """Return the lines of centroids.csv: a cluster over all devices, on each of them, on the server."""
    clusters, lines = result.clusters, list[str]()
    sizes = clusters.points
    pooled = clusters.pool()
    server = result.server_rows()
    for c in range(len(pooled)):
        rows: list[Any] = [("all", None if sizes is None else int(sizes[:, c].sum()), pooled[c])]
        rows += [
            (result.topology.label(i), None if sizes is None else int(sizes[i, c]), one[c])
            for i, one in enumerate(clusters.centroids)
        ]
        rows += [] if server is None else [(result.topology.label(result.topology.hub), None, server[c])]
        for who, points, row in rows:
            if np.isfinite(row).all():
                values = ",".join(f"{value:.12g}" for value in row.tolist())
                lines.append(f"{c},{_field(who)},{'' if points is None else points},{values}\n")
    return lines


def _field(text: str) -> str:
    """Return a field of a line, in quotes where it needs them."""
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text


def _write_text(folder: Path, name: str, head: str, lines: list[str]) -> None:
    text = head + "".join(lines)
    write_bytes(folder, name, lambda file: file.write(text.encode(errors="backslashreplace")))


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


def _list_graphml(nodes: list[dict[str, Any]], edges: dict[tuple[int, int], dict[str, Any]]) -> list[str]:
    """Return the lines of a GraphML file, without figures that its readers stumble over (inf)."""
    keys: dict[tuple[str, str], str] = {}  # of figures, each with the type that it is declared with
    lines = []
    for kind, head, figures in (
        *(("node", f'<node id="{i}">', figures) for i, figures in enumerate(nodes)),
        *(("edge", f'<edge source="{i}" target="{j}">', figures) for (i, j), figures in edges.items()),
    ):
        lines.append(f"    {head}\n")
        for name, value in figures.items():
            if value != np.inf:
                keys.setdefault((kind, name), _KINDS[type(value)])
                text = _to_xml(value) if isinstance(value, str) else str(value)
                lines.append(f'      <data key="{kind}-{name}">{text}</data>\n')
        lines.append(f"    </{kind}>\n")
    told = [f'  <key id="{kind}-{name}" for="{kind}" attr.name="{name}" attr.type="{known}"/>\n'
            for (kind, name), known in keys.items()]  # fmt: skip
    return [*told, '  <graph edgedefault="undirected">\n', *lines, "  </graph>\n</graphml>\n"]


def _to_xml(text: str) -> str:
    """Return a text as it stands in XML; signs that there is no way to write are escaped as in Python."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    return _NO_XML.sub(lambda sign: ascii(sign[0])[1:-1], text)
