"""Spanning trees that every device can compute from the topology, like the colors."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.core.sorting import blocks, find_distinct, find_runs, offsets_of
from p2pkm.core.states import register
from p2pkm.network.graph import Topology

_EDGES = 64  # numbers that are looked at for each device, about


@register("tree")
class Tree(NamedTuple):
    """Spanning trees, one per component: parent int64[n], -1 at the roots; layer int64[n], links to the root."""

    parent: Integers
    layer: Integers


def grow(topology: Topology) -> Tree:
    """Return breadth-first trees whose roots lie near the middle of their components, see `Topology.spanning_tree`."""
    return Tree(*topology.spanning_tree)


def sum_below(tree: Tree, values: Integers) -> Integers:
    """Return of every device its own value plus those of all devices below it, int64[n]."""
    parent, layer = tree
    total = values.copy()
    for one in np.argsort(-layer, kind="stable"):
        if parent[one] >= 0:
            total[parent[one]] += total[one]
    return total


def ways(tree: Tree, devices: Devices, sending: Mask) -> tuple[Mask, Mask]:
    """Return the own edges, bool[e] each, that lead from those who send, bool[n], to parents and to children."""
    source = devices.sources
    up, down = tree.parent[devices.ids][source] == devices.indices, tree.parent[devices.indices] == devices.ids[source]
    return up & sending[source], down & sending[source]


@register("tree:routes")
class Routes(NamedTuple):
    """What a batch has to do with a tree, layer after layer.

    Attributes
    ----------
    order : int64[n]
        Positions in the batch by layer, ascending within one.
    firsts : int64[layers + 1]
        Layer l is ``order[firsts[l]:firsts[l + 1]]``.
    up : int64[n]
        The own edge to the parent, -1 at the roots.
    down : int64[c]
        The own edges to children, by the layer that they lead from, ascending within one.
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
        """Return how many turns it takes from the deepest layer to the root; at least one."""
        return len(self.firsts) - 2

    def layer(self, number: int) -> Integers:
        """Return the positions of those in a layer, ascending."""
        return self.order[self.firsts[number] : self.firsts[number + 1]]


@register("tree:front")
class Front(NamedTuple):
    """Who is about to send, int64[s] ascending, and the table of each."""

    who: Integers
    tables: Tables


def single_rows(who: Integers, rows: Floats) -> Front:
    """Return a front in which every device sends one row: float64[s, w], in the order of `who`, int64[s]."""
    return Front(who, Tables(rows, np.arange(len(who)), np.ones(len(who), np.int64)))


def route(tree: Tree, devices: Devices) -> Routes:
    """Return what the batch has to do with the tree."""
    layers = np.arange(max(1, int(tree.layer.max())) + 2)
    layer = tree.layer[devices.ids]
    order = np.argsort(layer, kind="stable")
    up, down = np.full(len(devices), -1), [np.zeros(0, np.int64)]
    for some in blocks(len(devices), _EDGES):
        first, last = devices.indptr[some.start], devices.indptr[some.stop]
        source = np.arange(some.start, some.stop).repeat(np.diff(devices.indptr[some.start : some.stop + 1]))
        ids, others = devices.ids[source], devices.indices[first:last]
        edges = np.flatnonzero(tree.parent[ids] == others)
        up[source[edges]] = first + edges
        down.append(first + np.flatnonzero(tree.parent[others] == ids))
    below = np.concatenate(down)
    heights = layer[source_of(devices, below)]
    below = below[np.argsort(heights, kind="stable")]
    lasts = offsets_of(np.bincount(heights, minlength=len(layers) - 1))
    return Routes(order, np.searchsorted(layer[order], layers), up, below, lasts)


def begin(routes: Routes, devices: Devices) -> Integers:
    """Return who sends first on the way up: the deepest layer, and those without a neighbor, who send to nobody."""
    return find_distinct(np.concatenate((routes.layer(routes.depth), np.flatnonzero(devices.degrees == 0))))


def climb(routes: Routes, front: Front, header: int = 0) -> SparseMessages:
    """Let every device in the front send to the parent; a device without a parent sends to none."""
    edges = routes.up[front.who]
    return SparseMessages(front.who, front.tables, edges[edges >= 0], header)


def descend(routes: Routes, front: Front, number: int, devices: Devices) -> SparseMessages:
    """Let every device in the front, who are all of a layer, send to the children."""
    edges = routes.down[routes.lasts[number] : routes.lasts[number + 1]]
    sources = source_of(devices, edges)
    parents = sources[find_runs(sources)]
    return SparseMessages(parents, front.tables.take(front.who.searchsorted(parents)), edges)


def source_of(devices: Devices, edges: Integers) -> Integers:
    """Return the position of the device that each of the own edges leads from."""
    return devices.indptr.searchsorted(edges, side="right") - 1


def join(own: Front, received: Delivery, devices: Devices) -> Front:
    """Return the rows of each device in `own` followed by those that it received, by neighbor."""
    place = np.searchsorted(own.who, source_of(devices, received.edges))
    mine, more = own.tables.rows, received.tables.rows
    ends = offsets_of(more)
    firsts = np.searchsorted(place, np.arange(len(mine) + 1))  # of those that each received: they lie by device
    rows = mine + np.diff(ends[firsts])
    starts = np.cumsum(rows) - rows
    values = np.empty((rows.sum(), own.tables.values.shape[1]))
    own.tables.copy_to(values, starts)
    received.tables.copy_to(values, (starts + mine - ends[firsts[:-1]])[place] + ends[:-1])
    return Front(own.who, Tables(values, starts, rows))


def keep(received: Tables, held: Tables) -> Tables:
    """Return the tables that were received as parts of an array that begins with the values of `held`.

    What equals a table that is held is that one again; anything else is added. So what is passed on unchanged is stored
    once for all that received it, and what pointed into the values of `held` points to the same rows in the new ones.
    """
    places, one, which = _distinct(received)
    known = {table.tobytes(): start for table, start in _each(held.take(_distinct(held)[1]))}
    starts, added, end = np.empty(len(places), np.int64), [], len(held.values)
    for number, (table, _) in enumerate(_each(received.take(one))):
        name = table.tobytes()
        if name not in known:
            known[name] = end
            added.append(table)
            end += len(table)
        starts[number] = known[name]
    values = np.concatenate((held.values, *added)) if added else held.values
    return Tables(values, starts[which], received.rows)


def _distinct(tables: Tables) -> tuple[Integers, Integers, Integers]:
    """Return the distinct places of tables, the number of a table at each of them, and the place of every table."""
    return np.unique(tables.starts * (len(tables.values) + 1) + tables.rows, return_index=True, return_inverse=True)


def _each(tables: Tables) -> Iterator[tuple[Floats, int]]:
    """Yield the rows of every table, and where they begin."""
    for start, rows in zip(tables.starts.tolist(), tables.rows.tolist(), strict=True):
        yield tables.values[start : start + rows], start
