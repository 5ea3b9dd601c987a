"""Spanning trees that everybody can compute from the topology, like the colours."""

from typing import NamedTuple

import numpy as np

from p2pkm.devices import Devices, Integers, Mask
from p2pkm.topology import Topology, find_first


class Tree(NamedTuple):
    """Spanning trees, one per component: parent int64[n], -1 at the roots; layer int64[n], links to the root."""

    parent: Integers
    layer: Integers


def grow(topology: Topology) -> Tree:
    """Return breadth-first trees whose roots lie in the middle of their components."""
    roots = _middles(topology)
    return Tree(parents(topology, roots), topology.layers(roots))


def _middles(topology: Topology) -> Integers:
    """Return of each component the device that is least far from both ends of a long path, the lowest on ties."""
    component = topology.components
    lowest = find_first(component, np.zeros(topology.n, np.int64))
    one = topology.layers(find_first(component, topology.layers(lowest)))
    other = topology.layers(find_first(component, one))
    return find_first(component, -np.maximum(one, other))


def parents(topology: Topology, roots: Integers) -> Integers:
    """Return the parent of every device in breadth-first trees: the lowest neighbour of the previous layer.

    Parameters
    ----------
    roots : int64[components]
        One device of each component.

    Returns
    -------
    int64[n]
        -1 at the roots.
    """
    layer = topology.layers(roots)
    upward = np.flatnonzero(layer[topology.indices] == layer[topology.sources] - 1)
    child = topology.sources[upward]
    lowest = np.diff(child, prepend=-1) > 0  # edges lie by device and then by neighbour
    parent = np.full(topology.n, -1)
    parent[child[lowest]] = topology.indices[upward[lowest]]
    return parent


def ways(tree: Tree, devices: Devices, speaks: Mask) -> tuple[Mask, Mask]:
    """Return the own edges, bool[e] each, that lead from those who speak, bool[n], to parents and to children."""
    source = devices.sources
    up, down = tree.parent[devices.ids][source] == devices.indices, tree.parent[devices.indices] == devices.ids[source]
    return up & speaks[source], down & speaks[source]
