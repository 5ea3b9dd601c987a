"""Saving of a result; every file is written atomically."""

import json
import math
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

from p2pkm.core.allocator import trim_heap
from p2pkm.core.errors import DataError
from p2pkm.network.graph import LARGE
from p2pkm.storage.lock import process_has_ended, process_identity

# Bytes in the middle of an array that are compressed on trial. The array is compressed if they shrink to this share.
_PROBED = 1 << 16
_WORTH = 0.8
# Arrays of more bytes, whose compression takes seconds, are compressed only if the trial shrinks to this share.
_LONG = 16_000_000
_WORTH_IF_LONG = 0.5
# Archives of arrays that are written at the same time.
_WRITERS = 2
# Largest number of points in labels.csv, and of coordinates in centroids.csv; larger runs have only the arrays.
_LINES = 1_000_000
# Temporary file of `write_bytes`: process id, start of the process, and host.
_PARTIAL = re.compile(r"\..+\.(\d{1,9})-(\d*)@(.+)\.partial")
# Types of attributes in GraphML.
_KINDS = {str: "string", bool: "boolean", int: "long", float: "double"}
_GRAPHML = (
    "<?xml version='1.0' encoding='utf-8'?>\n"
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns '
    'http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">\n'
)
_NO_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_LABEL_NAMES = {"labels": "labels", "device": "device", "row": "row"}


def write_bytes(folder: Path, name: str, write: Callable[[Any], Any]) -> None:
    """Write a file atomically: under a temporary name next to it, then renamed; `write` receives the open file.

    The temporary name is unique to this process, so that two processes can write the same file. Temporary files of
    processes that have ended are removed.
    """
    _remove_abandoned(folder)
    owner = process_identity()
    temporary = folder / f".{name}.{owner['process']}-{owner['process_began'] or ''}@{owner['host']}.partial"
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / name)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """Provide an empty temporary folder; at the end, each file in it is written to `folder` atomically.

    For libraries that write files by name. `folder` is created if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        yield Path(temporary)
        for file in sorted(Path(temporary).iterdir()):
            write_bytes(folder, file.name, methodcaller("write", file.read_bytes()))


@cache
def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of processes that have ended; once per folder and process, as folders may be large."""
    for path in folder.glob(".*.partial"):
        match = _PARTIAL.fullmatch(path.name)
        if match and process_has_ended(_read_owner(*match.groups())):
            # Another process removes it at the same time, or it belongs to another user.
            with suppress(OSError):
                path.unlink()


def _read_owner(process: str, began: str, host: str) -> dict[str, Any]:
    return {"host": host, "process": int(process), "process_began": began or None}


def write_json(folder: Path, name: str, content: Any) -> None:
    """Write a JSON file."""
    write_bytes(folder, name, lambda file: file.write((json.dumps(content, indent=1) + "\n").encode()))


def pack_arrays(file: Any, arrays: dict[str, Any]) -> None:
    """Write arrays as .npz; arrays that do not shrink, such as most floats, are not compressed."""
    with zipfile.ZipFile(file, "w", compresslevel=1) as archive:
        for name, array in arrays.items():
            middle = array.size // 2
            probe = array.reshape(-1)[middle : middle + _PROBED // array.itemsize].tobytes()
            worth = _WORTH if array.nbytes <= _LONG else _WORTH_IF_LONG
            shrinks = len(zlib.compress(probe, 1)) < worth * len(probe)
            archive.compression = zipfile.ZIP_DEFLATED if shrinks else zipfile.ZIP_STORED
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def turn_labels(derived: dict[str, Any]) -> dict[str, Any]:
    """Transpose the labels in the derived arrays of a method: learned.npz has one row per clustering."""
    turned = {"labels": np.ascontiguousarray(derived["labels"].T)} if "labels" in derived else {}
    return derived | turned


def save_result(result: Any, folder: Path) -> None:
    """Write all files of a result except config, manifest, rounds and figures."""
    census = result.census
    ledger = result.ledger
    new_links = {} if result.new_links is None else result.new_links._asdict()
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
            "link_weights": result.link_weights, "couplings": result.couplings,
            "label_penalties": result.label_penalties,
            **{f"new_links_{name}": value for name, value in new_links.items()},
        },
        "chain": result.chain._asdict(),
        "frames": {} if result.frames is None else result.frames._asdict(),
        "devices": result.devices,
        "learned": turn_labels(result.derived),
        "exposure": {} if result.exposure is None else result.exposure._asdict(),
        "disclosed": {} if result.disclosed is None else result.disclosed.to_arrays(),
        "copied": _pack_columns(result.copied or {}),
    }  # fmt: skip
    if result.topology.n > LARGE:
        archives["graph"] = result.topology.to_arrays()

    def write(name: str) -> None:
        present: Any = {key: np.asarray(value) for key, value in archives[name].items() if value is not None}
        if present:
            write_bytes(folder, f"{name}.npz", partial(pack_arrays, arrays=present))

    if result.topology.n > LARGE:
        from concurrent.futures import ThreadPoolExecutor

        # Threads do not reuse the free memory of the main thread.
        trim_heap()
        with ThreadPoolExecutor(_WRITERS) as pool:
            # Compression and writing release the interpreter lock.
            list(pool.map(write, archives))
    else:
        for name in archives:
            write(name)
        _write_text(folder, "graph.graphml", _GRAPHML, _list_graphml(*result.list_graph()))
    write_tables(result, folder)
    if result.schema is not None:
        write_json(folder, "schema.json", _describe_schema(result))
    write_json(folder, "summary.json", result.summary)


def _pack_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns of integers or of text with missing values as arrays; `unpack_columns` reads them.

    The bytes of all texts of a column are joined, so that one long text does not lengthen all others.
    """
    arrays: dict[str, Any] = {}
    for j, column in enumerate(columns.values()):
        if column.dtype.kind == "i":
            arrays[f"integers_{j}"] = column
            continue
        encoded = [None if text is None else str(text).encode(errors="surrogatepass") for text in column.tolist()]
        arrays[f"bytes_{j}"] = np.frombuffer(b"".join(filter(None, encoded)), np.uint8)
        arrays[f"lengths_{j}"] = np.array([-1 if text is None else len(text) for text in encoded], np.int64)
    return arrays | ({"names": np.array(list(columns), np.str_)} if columns else {})


def unpack_columns(arrays: dict[str, Any]) -> dict[str, Any] | None:
    """Return the columns in copied.npz; None if there are none."""
    columns: dict[str, Any] = {}
    for j, name in enumerate(arrays["names"].tolist() if arrays else ()):
        if f"integers_{j}" in arrays:
            columns[name] = arrays[f"integers_{j}"]
            continue
        lengths, content = arrays[f"lengths_{j}"], arrays[f"bytes_{j}"].tobytes()
        ends = np.cumsum(np.maximum(lengths, 0)).tolist()
        columns[name] = np.array([
            None if length < 0 else content[end - length : end].decode(errors="surrogatepass")
            for length, end in zip(lengths.tolist(), ends, strict=True)
        ], object)  # fmt: skip
    return columns or None


def _describe_schema(result: Any) -> dict[str, Any]:
    """Return the content of schema.json: columns of the table, and scaling and names of the devices."""
    scaling = result.scaling and [part[result.best].tolist() for part in result.scaling]
    names = result.topology.names
    return result.schema.to_mapping() | {
        "features": list(result.feature_names),
        "devices": None if names is None else list(names[: result.topology.clients]),
        "scaling": scaling and {"shift": scaling[0], "span": scaling[1]},
    }


def write_tables(result: Any, folder: Path) -> None:
    """Write labels.csv, centroids.csv, clusters.csv, clusters.tex and disclosed.csv, unless they are too large."""
    census = result.census
    topology = result.topology
    if census.labels is not None and len(census.labels) <= _LINES:
        order = np.argsort(census.row, kind="stable")
        device = census.device[order]
        cluster = result.number_alike(census.device, census.labels)[order]
        names = [_field(topology.label(i)) for i in range(topology.clients)]
        # Folders of earlier versions have the columns of test points, too, which are without labels.
        copied = {name: column for name, column in (result.copied or {}).items() if len(column) == len(order)}
        # The columns are in the order of the rows, as the lines are.
        texts = [["" if text is None else _field(str(text)) for text in column] for column in copied.values()]
        prefixes = ["".join(f"{text}," for text in row) for row in zip(*texts, strict=True)] or [""] * len(order)
        lines = [
            f"{row},{prefix}{names[i]},{c if c >= 0 else ''}\n"
            for row, prefix, i, c in zip(
                census.row[order].tolist(), prefixes, device.tolist(), cluster.tolist(), strict=True
            )
        ]
        head = ",".join(["row", *map(_field, copied), "device", "cluster"])
        _write_text(folder, "labels.csv", f"{head}\n", lines)
    if result.centroids.size <= _LINES:
        head = ",".join(map(_field, ("cluster", "device", "points", *result.feature_names)))
        _write_text(folder, "centroids.csv", f"{head}\n", _list_centroids(result))
    if result.census.cluster_medians is not None:
        _write_columns(folder, "clusters.csv", result.clusters.to_columns())
        _write_text(folder, "clusters.tex", result.clusters.to_latex(), [])
    if result.disclosed is not None:
        _write_columns(folder, "disclosed.csv", result.disclosed.to_columns())


def _write_columns(folder: Path, name: str, columns: dict[str, list[Any]]) -> None:
    """Write a table as CSV, with empty fields for None and NaN."""
    lines = [",".join(map(_format_field, row)) + "\n" for row in zip(*columns.values(), strict=True)]
    _write_text(folder, name, ",".join(map(_field, columns)) + "\n", lines)


def _format_field(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.12g}"
    return "" if value is None else _field(str(value))


def _list_centroids(result: Any) -> list[str]:
    """Return the lines of centroids.csv: for each cluster, one over all devices, one per device, one of the server."""
    clusters = result.clusters
    lines = list[str]()
    sizes = clusters.points
    pooled = clusters.pool()
    server = result.server_rows()
    for c in range(len(pooled)):
        rows: list[Any] = [("all", None if sizes is None else int(sizes[:, c].sum()), pooled[c])]
        rows += [
            (result.topology.label(i), None if sizes is None else int(sizes[i, c]), centroids[c])
            for i, centroids in enumerate(clusters.centroids)
        ]
        rows += [] if server is None else [(result.topology.label(result.topology.hub), None, server[c])]
        for name, points, row in rows:
            if np.isfinite(row).all():
                values = ",".join(f"{value:.12g}" for value in row.tolist())
                lines.append(f"{c},{_field(name)},{'' if points is None else points},{values}\n")
    return lines


def _field(text: str) -> str:
    """Quote a field of a CSV line if necessary."""
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text


def _write_text(folder: Path, name: str, head: str, lines: list[str]) -> None:
    text = head + "".join(lines)
    write_bytes(folder, name, lambda file: file.write(text.encode(errors="backslashreplace")))


def write_lines(records: list[dict[str, Any]], folder: Path) -> None:
    """Write the records of a run to rounds.jsonl, one line each."""
    lines = "".join(json.dumps(record) + "\n" for record in records)
    write_bytes(folder, "rounds.jsonl", lambda file: file.write(lines.encode()))


def save(result: Any, path: str | Path) -> Path:
    """Write a result to a new or empty folder, from which `load` reads it.

    Raises
    ------
    DataError
        If the folder is not empty or cannot be written.
    """
    folder = Path(path)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DataError(f"{folder} is not empty; expected a new or empty folder. Choose another one")
        folder.mkdir(parents=True, exist_ok=True)
        write_lines(result.rounds, folder)
        save_result(result, folder)
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}. Choose another folder") from None
    return folder


def _list_graphml(nodes: list[dict[str, Any]], edges: dict[tuple[int, int], dict[str, Any]]) -> list[str]:
    """Return the lines of a GraphML file; infinite values are omitted, because readers reject them."""
    # Type of each attribute, for its declaration.
    keys: dict[tuple[str, str], str] = {}
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
    declarations = [f'  <key id="{kind}-{name}" for="{kind}" attr.name="{name}" attr.type="{known}"/>\n'
            for (kind, name), known in keys.items()]  # fmt: skip
    return [*declarations, '  <graph edgedefault="undirected">\n', *lines, "  </graph>\n</graphml>\n"]


def _to_xml(text: str) -> str:
    """Escape a text for XML; characters that XML does not allow are escaped as in Python."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    return re.sub(_NO_XML, lambda sign: ascii(sign[0])[1:-1], text)
