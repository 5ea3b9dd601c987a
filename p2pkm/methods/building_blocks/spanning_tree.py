"""Spanning trees, which every device can compute from the public graph, and messages along them.

A pass up (convergecast) starts at the deepest layer, a pass down (broadcast) at the roots. One layer sends per turn.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.core.sorting import blocks, find_distinct, find_runs, offsets_of
from p2pkm.core.states import register
from p2pkm.network.graph import Topology

# Estimate of the temporary numbers per device in `local_tree`; sets the block size, see there.
_NUMBERS_PER_DEVICE = 64


@register("tree")
class Tree(NamedTuple):
    """Spanning trees of a graph, one per component.

    Attributes
    ----------
    parent : int[n]
        -1 at the roots.
    layer : int[n]
        Number of links to the root.
    """

    parent: Integers
    layer: Integers


def build_spanning_tree(topology: Topology) -> Tree:
    """Build breadth-first trees with roots near the middle of their components, see `Topology.spanning_tree`."""
    return Tree(*topology.spanning_tree)


def sum_below(tree: Tree, values: Integers) -> Integers:
    """Add the values of all devices in the subtree of each device, including itself, int64[n]."""
    parent, layer = tree
    total = values.copy()
    for device in np.argsort(-layer, kind="stable"):
        if parent[device] >= 0:
            total[parent[device]] += total[device]
    return total


def tree_edges(tree: Tree, devices: Devices, sending: Mask) -> tuple[Mask, Mask]:
    """Find the edges, bool[e] each, from the sending devices, bool[n], to their parents and to their children."""
    source = devices.sources
    up, down = tree.parent[devices.ids][source] == devices.indices, tree.parent[devices.indices] == devices.ids[source]
    return up & sending[source], down & sending[source]


@register("tree:routes")
class LocalTree(NamedTuple):
    """Devices and edges of a tree in a batch, sorted by layer.

    Attributes
    ----------
    order : int64[n]
        Positions in the batch by layer, ascending within a layer.
    firsts : int64[layers + 1]
        Layer l is ``order[firsts[l]:firsts[l + 1]]``.
    up : int64[n]
        Edge to the parent; -1 at the roots.
    down : int64[c]
        Edges to children, by the layer of the parent, ascending within a layer.
    lasts : int64[layers + 1]
        Layer l sends to its children over ``down[lasts[l]:lasts[l + 1]]``.
    """

    order: Integers
    firsts: Integers
    up: Integers
    down: Integers
    lasts: Integers

    @property
    def depth(self) -> int:
        """Number of turns of a pass, at least 1."""
        return len(self.firsts) - 2

    def layer(self, number: int) -> Integers:
        """Select the positions of the devices in a layer, ascending."""
        return self.order[self.firsts[number] : self.firsts[number + 1]]


@register("tree:front")
class PendingTables(NamedTuple):
    """Tables that devices send next.

    Attributes
    ----------
    senders : int64[s]
        Positions of the sending devices, ascending.
    tables : Tables
        Table of each of these devices.
    """

    senders: Integers
    tables: Tables


def single_rows(senders: Integers, rows: Floats) -> PendingTables:
    """Create pending tables of one row for each sender: int64[s] and float64[s, w]."""
    return PendingTables(senders, Tables(rows, np.arange(len(senders)), np.ones(len(senders), np.int64)))


def local_tree(tree: Tree, devices: Devices) -> LocalTree:
    """Find the devices and edges of the tree in a batch."""
    layers = np.arange(max(1, int(tree.layer.max())) + 2)
    layer = tree.layer[devices.ids]
    order = np.argsort(layer, kind="stable")
    up = np.full(len(devices), -1)
    down_blocks = [np.zeros(0, np.int64)]
    # In blocks of devices: temporary arrays with one number per edge would take gigabytes at 10 million devices.
    for block in blocks(len(devices), _NUMBERS_PER_DEVICE):
        first, last = devices.indptr[block.start], devices.indptr[block.stop]
        source = np.arange(block.start, block.stop).repeat(np.diff(devices.indptr[block.start : block.stop + 1]))
        ids, neighbors = devices.ids[source], devices.indices[first:last]
        edges = np.flatnonzero(tree.parent[ids] == neighbors)
        up[source[edges]] = first + edges
        down_blocks.append(first + np.flatnonzero(tree.parent[neighbors] == ids))
    down = np.concatenate(down_blocks)
    parent_layer = layer[source_devices(devices, down)]
    down = down[np.argsort(parent_layer, kind="stable")]
    lasts = offsets_of(np.bincount(parent_layer, minlength=len(layers) - 1))
    return LocalTree(order, np.searchsorted(layer[order], layers), up, down, lasts)


def limit_tree(routes: LocalTree, devices: Devices, members: Mask) -> LocalTree:
    """Keep the devices of some components, bool[n]; those of others send and receive nothing along the tree."""
    layer = np.arange(len(routes.firsts) - 1)
    keeps = members[routes.order]
    layers = np.repeat(layer, np.diff(routes.firsts))[keeps]
    keeps_edge = members[source_devices(devices, routes.down)]
    parent_layers = np.repeat(layer, np.diff(routes.lasts))[keeps_edge]
    return LocalTree(
        routes.order[keeps],
        np.searchsorted(layers, np.arange(len(routes.firsts))),
        routes.up,
        routes.down[keeps_edge],
        np.searchsorted(parent_layers, np.arange(len(routes.lasts))),
    )


def first_senders(routes: LocalTree, devices: Devices) -> Integers:
    """Find the devices that send first in a pass up: the deepest layer, and devices without links.

    The latter send over no edge, which shows that they are not converged.
    """
    return find_distinct(np.concatenate((routes.layer(routes.depth), np.flatnonzero(devices.degrees == 0))))


def send_to_parents(routes: LocalTree, front: PendingTables, header: int = 0) -> SparseMessages:
    """Send the pending tables to the parents; roots send to none."""
    edges = routes.up[front.senders]
    return SparseMessages(front.senders, front.tables, edges[edges >= 0], header)


def send_to_children(routes: LocalTree, front: PendingTables, number: int, devices: Devices) -> SparseMessages:
    """Send the pending tables of all devices of layer `number` to their children."""
    edges = routes.down[routes.lasts[number] : routes.lasts[number + 1]]
    sources = source_devices(devices, edges)
    parents = sources[find_runs(sources)]
    return SparseMessages(parents, front.tables.take(front.senders.searchsorted(parents)), edges)


def source_devices(devices: Devices, edges: Integers) -> Integers:
    """Find the device, as a position in the batch, to which each local edge belongs."""
    return devices.indptr.searchsorted(edges, side="right") - 1


def append_received(pending: PendingTables, received: Delivery, devices: Devices) -> PendingTables:
    """Append received rows, in the order of neighbors, to the rows of each device in `pending`."""
    # Position in `pending` of the receiver of each table; received tables are sorted by it.
    receiver = np.searchsorted(pending.senders, source_devices(devices, received.edges))
    local_rows, received_rows = pending.tables.rows, received.tables.rows
    ends = offsets_of(received_rows)
    firsts = np.searchsorted(receiver, np.arange(len(local_rows) + 1))
    rows = local_rows + np.diff(ends[firsts])
    starts = np.cumsum(rows) - rows
    values = np.empty((rows.sum(), pending.tables.values.shape[1]))
    pending.tables.copy_to(values, starts)
    received.tables.copy_to(values, (starts + local_rows - ends[firsts[:-1]])[receiver] + ends[:-1])
    return PendingTables(pending.senders, Tables(values, starts, rows))


def share_equal_tables(received: Tables, held: Tables) -> Tables:
    """Store received tables in one array with the tables of `held`, equal tables once.

    The array starts with the values of `held`, so tables that refer to these remain valid. In a broadcast all devices
    receive equal tables, which thus need memory once.
    """
    if _are_same(received.values, held.values):
        # In one process a received table is the sent one.
        return Tables(held.values, received.starts, received.rows)
    locations, first, numbers = _distinct_locations(received)
    known_starts = {table.tobytes(): start for table, start in _iter_tables(held.take(_distinct_locations(held)[1]))}
    starts = np.empty(len(locations), np.int64)
    added = []
    end = len(held.values)
    for number, (table, _) in enumerate(_iter_tables(received.take(first))):
        key = table.tobytes()
        if key not in known_starts:
            known_starts[key] = end
            added.append(table)
            end += len(table)
        starts[number] = known_starts[key]
    values = np.concatenate((held.values, *added)) if added else held.values
    return Tables(values, starts[numbers], received.rows)


def _are_same(values: Floats, others: Floats) -> bool:
    """Test whether two arrays are the same place in memory."""
    one, other = values.__array_interface__, others.__array_interface__
    return all(one[key] == other[key] for key in ("data", "shape", "strides", "typestr"))


def _distinct_locations(tables: Tables) -> tuple[Integers, Integers, Integers]:
    """Find the distinct locations of tables, the index of a table at each, and the location number of every table."""
    # A location is a start and a number of rows, encoded as one integer.
    locations = tables.starts * (len(tables.values) + 1) + tables.rows
    if len(locations) and (locations == locations[0]).all():
        # A broadcast in one component.
        return locations[:1], np.zeros(1, np.int64), np.zeros(len(locations), np.int64)
    return np.unique(locations, return_index=True, return_inverse=True)


def _iter_tables(tables: Tables) -> Iterator[tuple[Floats, int]]:
    """Yield the rows of every table and the index of its first row."""
    for start, rows in zip(tables.starts.tolist(), tables.rows.tolist(), strict=True):
        yield tables.values[start : start + rows], start


def walk_tree(routes: LocalTree | None, devices: Devices, *, up: Floats, down: Floats) -> SparseMessages:
    """Send a row of each device of the layer whose turn it is, in passes up and down the tree in turn.

    Parameters
    ----------
    routes : LocalTree or None
        None after the last turn: nothing is sent.
    devices : Devices
    up, down : float64[n, w]
        Row of each device for its parent, and for its children.
    """
    if routes is None:
        return SparseMessages.empty()
    tree_pass, step = divmod(devices.turn + 1 if devices.round else 0, routes.depth)
    if tree_pass % 2:
        layer = routes.layer(step)
        return send_to_children(routes, single_rows(layer, down[layer]), step, devices)
    layer = routes.layer(routes.depth - step)
    return send_to_parents(routes, single_rows(layer, up[layer]))
