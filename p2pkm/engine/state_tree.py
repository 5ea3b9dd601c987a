"""State trees: gather the state of all ranks into arrays in device order, and split it over any number of ranks.

A state tree consists of NamedTuples, dicts, arrays and plain values. The first part of an array's name, up to the
underscore, tells the meaning of its first axis:

* ``edge_``: local edges,
* ``store_``: all devices of the system, where the row of a device is valid on its rank only,
* ``arcs_``: all directed edges of the graph, where the row of an edge is valid on the rank of the device it starts at,
* ``root_``: valid on rank 0 only,
* otherwise: local devices.

A `RaggedArray` has several rows per device. The tables of an `InternedTables` are saved once, however many ranks hold
them, and are restored on every rank. Plain values are those of rank 0.
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
# Suffix of the name of the row counts of a ragged array.
_COUNTS = "#counts"
# Kind of the outline of an `InternedTables`.
_INTERNED = "interned"


def gather(tree: Any, network: Network, arrays: dict[str, Any], name: str = "") -> Outline:
    """Gather a state tree on rank 0; a collective call with the same tree on all ranks.

    Parameters
    ----------
    tree : NamedTuple, dict, array or plain value
    network : Network
    arrays : dict
        Receives the arrays by name: in device order on rank 0, undefined on other ranks.
    name : str
        Name of the tree, a path from the root with dots.

    Returns
    -------
    dict
        Outline: the structure of the tree, with the names of the arrays in their places.
    """
    if isinstance(tree, RaggedArray):
        counts = network.gather_by_device(tree.counts)
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
    # Tables of truth values, such as one per pair of devices, are the largest arrays of some states: pack the bits.
    if array.dtype == np.bool_ and array.ndim > 1:
        array, leaf["columns"] = np.packbits(array, axis=-1), array.shape[-1]
    counts = network.placement.edge_counts if axis in {"edge", "arcs"} else None
    arrays[name] = network.gather_by_device(_pad(array, network), counts)
    return leaf


def _gather_interned(tree: InternedTables, network: Network, arrays: dict[str, Any], name: str) -> Outline:
    """Gather interned tables: number their versions by digest, identically on all ranks, and save each one once."""
    (n, total), origins, rows = tree.versions.shape, tree.store_origins, tree.store_rows
    digests = np.empty((len(rows), 5), np.uint64)
    digests[:, 0] = origins
    for table, (start, count) in enumerate(zip(tree.store_starts, rows, strict=True)):
        digest = hashlib.sha256(tree.store_values[start : start + count].tobytes()).digest()
        digests[table, 1:] = np.frombuffer(digest, np.uint64)
    # The network gathers rows by device: all tables of a rank are attributed to its first device.
    row_counts = np.zeros(n, np.int64)
    row_counts[:1] = len(rows)
    counts = network.allgather_by_device(row_counts)
    distinct, first_position, index = np.unique(
        network.allgather_by_device(digests, counts), axis=0, return_index=True, return_inverse=True
    )
    before = int(counts[: network.placement.ids[0]].sum()) if n else 0
    index = index.ravel()[before : before + len(rows)]
    # Rows of `distinct` are sorted by origin, then by digest: versions of an origin are numbered from 1 in this order.
    numbers = (1 + index - np.searchsorted(distinct[:, 0], origins.astype(np.uint64))).astype(np.int64)
    versions = tree.versions
    # The local numbers differ from the global ones if this rank lacks a version or saw them in another order.
    if (numbers != 1 + np.arange(len(rows)) - tree.store_firsts[origins]).any():
        device, origin = np.nonzero(versions)
        versions = np.zeros((n, total), np.uint32)
        versions[device, origin] = numbers[tree.store_firsts[origin] + tree.versions[device, origin] - 1]
    # Of equal tables on several ranks, the first rank saves its copy.
    saved = np.flatnonzero(first_position[index] == before + np.arange(len(rows)))
    entries = np.column_stack((origins, numbers, rows))[saved]
    # Version numbers are small: one plane of bits for each binary digit that occurs.
    bits = int(versions.max(initial=0)).bit_length()
    planes = np.stack([(versions >> np.uint8(bit)) & 1 for bit in range(max(bits, 1))], axis=1).astype(np.bool_)
    parts = {"versions": _gather_array(planes, network, arrays, f"{name}.versions")}
    values = tree.store_values[expand_ranges(tree.store_starts[saved], rows[saved])]
    for key, array in (("entries", entries), ("values", values)):
        row_counts[:1] = len(array)
        arrays[f"{name}.{key}"] = network.gather_by_device(array, network.gather_by_device(row_counts))
        parts[key] = {"array": f"{name}.{key}", "axis": "whole"}
    return {"kind": _INTERNED, "parts": parts}


def _rebuild_interned(versions: Any, entries: Integers, values: Any) -> InternedTables:
    """Rebuild interned tables.

    Parameters
    ----------
    versions : bool[n, bits, N]
        Binary digits of the version that each local device holds of each origin.
    entries : int64[t, 3]
        Origin, version and number of rows of each table.
    values : float64[sum of rows, columns]
        Rows of all tables.
    """
    order = np.lexsort((entries[:, 1], entries[:, 0]))
    bits, rows = versions.shape[1], entries[:, 2]
    width = next(width for width in (8, 16, 32) if bits <= width)
    held = np.zeros((versions.shape[0], versions.shape[2]), f"u{width // 8}")
    for bit in range(bits):
        held |= versions[:, bit].astype(held.dtype) << held.dtype.type(bit)
    firsts = np.searchsorted(entries[order, 0], np.arange(versions.shape[2] + 1))
    return InternedTables(held, firsts, (np.cumsum(rows) - rows)[order], rows[order], values)


def _pad(array: Any, network: Network) -> Any:
    """Pad the rows of an array with zeros to the largest shape of a row on any rank; a collective call."""
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
    """Copy one rank's part of gathered arrays.

    Parameters
    ----------
    outline : dict
        Result of `gather`.
    arrays : dict
        Arrays in device order.
    topology : Topology
    division : RankPartition
    rank : int

    Returns
    -------
    dict
        Arrays by name, for `rebuild`.
    """
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
        elif axis in {"store", "arcs", "whole"}:
            part[name] = array.copy()
        else:
            part[name] = array[edges if axis == "edge" else ids]
    return part


def rebuild(outline: Outline, part: dict[str, Any]) -> Any:
    """Rebuild a state tree from its outline and a rank's part of the arrays, which are removed from `part`."""
    if "value" in outline:
        return outline["value"]
    if "parts" in outline:
        parts = {key: rebuild(child, part) for key, child in outline["parts"].items()}
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
    """Build a state of a registered class; a checkpoint cannot name anything else, so it cannot execute code."""
    state_class = find(kind)
    if state_class is None:
        # A run imports only its method. States of other stages are registered when their modules are imported.
        import_stages()
        state_class = find(kind)
    if state_class is None or set(state_class._fields) != set(parts):
        raise DataError(
            f"the checkpoint contains a state {kind!r} with fields {', '.join(sorted(parts))}; expected a state class "
            "registered by p2pkm or by the plug-in of the method. Install the versions of the original run, or start a "
            "new run with --config"
        )
    return state_class(**parts)


def check_points(shards: Any, expected: Any, kernels: Any) -> None:
    """Validate that the points are those of a checkpoint; expected: their `fingerprint` in it.

    Raises
    ------
    DataError
        If the fingerprints differ.
    """
    actual = fingerprint(shards, kernels)
    if actual.shape != expected.shape or not np.array_equal(actual, expected, equal_nan=True):
        raise DataError(
            "the points differ from those of the original run, so the checkpoint cannot be used. Restore the original "
            "data, or start a new run"
        )


def fingerprint(shards: Any, kernels: Any) -> Any:
    """Compute a fingerprint of each device's points, float64[n, 1 + 2 d]: moments that depend on their order."""
    moments = np.zeros((shards.n, 1 + 2 * shards.d))
    for devices, rows in iter_chunks(shards.offsets):
        offsets = shards.offsets[devices.start : devices.stop + 1] - rows.start
        first: Integers = np.repeat(offsets[:-1], np.diff(offsets))
        # Weights that grow with the position of a point on its device, so that exchanged points are noticed.
        weights = shards.weights[rows] * (1.0 + (np.arange(rows.stop - rows.start) - first) % 8191)
        moments[devices] = kernels.moments(shards.points[rows], weights, offsets, np.zeros(shards.d))
    return moments
