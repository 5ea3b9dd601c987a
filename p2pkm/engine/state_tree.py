"""What the ranks hold as arrays in device order, which any number of ranks can take up, and back.

A tree of NamedTuples, dicts, arrays and plain values. The first axis of an array is that of the own devices; if the
last part of its name begins with `edge_`, that of the own edges; with `store_` or `arcs_`, that of all devices or of
all directed edges of the graph, each row of which its owner has; with `root_`, rank 0 alone has it. A `RaggedArray` has
some rows per device. The tables of `InternedTables` are kept once however many ranks hold them, and every rank gets all
of them back. Plain values are those of rank 0.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.chunks import iter_chunks
from p2pkm.core.errors import DataError
from p2pkm.core.messages import InternedTables, RaggedArray, expand_ranges
from p2pkm.core.states import find, name_of
from p2pkm.methods.init.registry import import_stages
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import RankPartition
from p2pkm.network.transport import Network

Outline = dict[str, Any]
_COUNTS, _INTERNED = "#counts", "interned"


def gather(tree: Any, network: Network, arrays: dict[str, Any], name: str = "") -> Outline:
    """Return the outline of a tree, and put its arrays in device order on rank 0; every rank calls it alike."""
    if isinstance(tree, RaggedArray):
        counts = network.allgather_by_device(tree.counts)
        arrays[name], arrays[name + _COUNTS] = network.gather_by_device(tree.values, counts), counts
        return {"array": name, "axis": "ragged"}
    if isinstance(tree, InternedTables):
        return _gather_interned(tree, network, arrays, name)
    if isinstance(tree, dict) or "_fields" in vars(type(tree)):
        kind = "" if isinstance(tree, dict) else name_of(type(tree))
        items = tree.items() if isinstance(tree, dict) else zip(tree._fields, tree, strict=True)
        return {"kind": kind, "parts": {key: gather(part, network, arrays, f"{name}.{key}") for key, part in items}}
    if isinstance(tree, np.ndarray):
        return _gather_array(tree, network, arrays, name)
    return {"value": tree.item() if isinstance(tree, np.generic) else tree}


def _gather_array(array: Any, network: Network, arrays: dict[str, Any], name: str) -> Outline:
    prefix = name.rpartition(".")[2].partition("_")[0]
    axis = prefix if prefix in {"edge", "store", "arcs", "root"} else "device"
    leaf = {"array": name, "axis": axis}
    if axis == "root":
        arrays[name] = array
        return leaf
    if axis == "store":
        array = array[network.placement.ids]
    elif axis == "arcs":
        array = array[network.placement.edges]
    if array.dtype == np.bool_ and array.ndim > 1:  # a bit per pair of devices, for example
        array, leaf["columns"] = np.packbits(array, axis=-1), array.shape[-1]
    counts = network.placement.edge_counts if axis in {"edge", "arcs"} else None
    arrays[name] = network.gather_by_device(_pad(array, network), counts)
    return leaf


def _gather_interned(tree: InternedTables, network: Network, arrays: dict[str, Any], name: str) -> Outline:
    """Return the outline of tables whose versions are numbered by digest, alike on all ranks, and kept once."""
    (n, total), origins, rows = tree.versions.shape, tree.store_origins, tree.store_rows
    digests = np.empty((len(rows), 5), np.uint64)
    digests[:, 0] = origins
    for table, (start, count) in enumerate(zip(tree.store_starts, rows, strict=True)):
        digest = hashlib.sha256(tree.store_values[start : start + count].tobytes()).digest()
        digests[table, 1:] = np.frombuffer(digest, np.uint64)
    first = np.zeros(n, np.int64)  # what a rank gives is, for the network, its first device's
    first[:1] = len(rows)
    counts = network.allgather_by_device(first)
    distinct, place, which = np.unique(
        network.allgather_by_device(digests, counts), axis=0, return_index=True, return_inverse=True
    )
    before = int(counts[: network.placement.ids[0]].sum()) if n else 0
    which = which.ravel()[before : before + len(rows)]
    numbers = (1 + which - np.searchsorted(distinct[:, 0], origins.astype(np.uint64))).astype(np.int64)
    versions = tree.versions
    if (numbers != 1 + np.arange(len(rows)) - tree.store_firsts[origins]).any():
        device, origin = np.nonzero(versions)
        versions = np.zeros((n, total), np.uint32)
        versions[device, origin] = numbers[tree.store_firsts[origin] + tree.versions[device, origin] - 1]
    own = np.flatnonzero(place[which] == before + np.arange(len(rows)))
    entries = np.column_stack((origins, numbers, rows))[own]
    bits = int(versions.max(initial=0)).bit_length()
    planes = np.stack([(versions >> np.uint8(bit)) & 1 for bit in range(max(bits, 1))], axis=1).astype(np.bool_)
    parts = {"versions": _gather_array(planes, network, arrays, f"{name}.versions")}
    values = tree.store_values[expand_ranges(tree.store_starts[own], rows[own])]
    for key, array in (("entries", entries), ("values", values)):
        first[:1] = len(array)
        arrays[f"{name}.{key}"] = network.gather_by_device(array, network.allgather_by_device(first))
        parts[key] = {"array": f"{name}.{key}", "axis": "whole"}
    return {"kind": _INTERNED, "parts": parts}


def _rebuild_interned(versions: Any, entries: Integers, values: Any) -> InternedTables:
    """Return the tables from planes of bits [n, bits, N], (origin, version, rows) of each table, and their rows."""
    order = np.lexsort((entries[:, 1], entries[:, 0]))
    bits, rows = versions.shape[1], entries[:, 2]
    held = np.zeros(
        (versions.shape[0], versions.shape[2]), np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
    )
    for bit in range(bits):
        held |= versions[:, bit].astype(held.dtype) << held.dtype.type(bit)
    firsts = np.searchsorted(entries[order, 0], np.arange(versions.shape[2] + 1))
    return InternedTables(held, firsts, (np.cumsum(rows) - rows)[order], rows[order], values)


def _pad(array: Any, network: Network) -> Any:
    """Return the array with room in every row for the largest row of any rank; what is beyond the own one is 0."""
    if array.ndim == 1:
        return array
    division, rank = network.placement.division, network.placement.rank
    shapes = np.zeros((division.size, array.ndim - 1), np.int64)
    shapes[rank] = array.shape[1:]
    room = network.total(shapes).max(axis=0) - array.shape[1:]
    return np.pad(array, [(0, 0), *((0, int(more)) for more in room)]) if room.any() else array


def split(
    outline: Outline, arrays: dict[str, Any], topology: Topology, division: RankPartition, rank: int
) -> dict[str, Any]:
    """Return a rank's part of the arrays, copies all of them."""
    ids = division.of(rank)
    edges = expand_ranges(topology.indptr[ids], topology.degrees[ids])
    part = {}
    for leaf in _leaves(outline):
        name = leaf["array"]
        array, axis = arrays[name], leaf["axis"]
        if axis == "ragged":
            counts = arrays[name + _COUNTS]
            ends = np.concatenate(([0], np.cumsum(counts)))
            part[name], part[name + _COUNTS] = array[expand_ranges(ends[ids], counts[ids])], counts[ids]
        elif axis == "root":
            part[name] = array.copy() if rank == 0 else array[:0]
        else:
            part[name] = array.copy() if axis in {"store", "arcs", "whole"} else array[edges if axis == "edge" else ids]
    return part


def rebuild(outline: Outline, part: dict[str, Any]) -> Any:
    """Return the tree from its outline and a rank's part of the arrays, which are taken out of it."""
    if "value" in outline:
        return outline["value"]
    if "parts" in outline:
        parts = {key: rebuild(one, part) for key, one in outline["parts"].items()}
        if outline["kind"] == _INTERNED:
            return _rebuild_interned(**parts)
        return _build(outline["kind"], parts) if outline["kind"] else parts
    array = part.pop(outline["array"])
    if outline["axis"] == "ragged":
        return RaggedArray(array, part.pop(outline["array"] + _COUNTS))
    if "columns" in outline:
        array = np.unpackbits(array, axis=-1, count=outline["columns"]).astype(np.bool_)
    return array


def _leaves(outline: Outline) -> Iterator[Outline]:
    if "array" in outline:
        yield outline
    for part in outline.get("parts", {}).values():
        yield from _leaves(part)


def _build(kind: str, parts: dict[str, Any]) -> Any:
    """Return the state of that name; nothing else can be asked for."""
    found = find(kind)
    if found is None:
        import_stages()  # a run has imported its own method alone
        found = find(kind)
    if found is None or set(found._fields) != set(parts):
        raise DataError(
            f"the checkpoint names {kind!r}, which is no state that this program or the plug-in of its method has "
            "registered, with these fields: install what the run was begun with, or begin a new one with --config"
        )
    return found(**parts)


def check_points(own: Any, marks: Any, kernels: Any) -> None:
    """Refuse points that are not those of the run that was kept with these marks; see `fingerprint`.

    Raises
    ------
    DataError
        If so.
    """
    found = fingerprint(own, kernels)
    if found.shape != marks.shape or not np.array_equal(found, marks, equal_nan=True):
        raise DataError(
            "the points are not those that the run was begun with, so its checkpoint is of no use: bring the old data "
            "back, or begin a new run"
        )


def fingerprint(own: Any, kernels: Any) -> Any:
    """Return a fingerprint of each device's points, float64[n, 1 + 2 d]: moments that feel their order."""
    marks = np.zeros((own.n, 1 + 2 * own.d))
    for devices, rows in iter_chunks(own.offsets):
        offsets = own.offsets[devices.start : devices.stop + 1] - rows.start
        first: Integers = np.repeat(offsets[:-1], np.diff(offsets))
        weights = own.weights[rows] * (1.0 + (np.arange(rows.stop - rows.start) - first) % 8191)
        marks[devices] = kernels.moments(own.points[rows], weights, offsets, np.zeros(own.d))
    return marks
