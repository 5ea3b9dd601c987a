"""Spanning trees that everybody can compute from the topology, like the colours."""

from typing import NamedTuple

import numpy as np

from p2pkm.devices import Devices, Integers, Mask
from p2pkm.topology import Topology


class Tree(NamedTuple):
    """Spanning trees, one per component: parent int64[n], -1 at the roots; layer int64[n], links to the root."""

    parent: Integers
    layer: Integers


def grow(topology: Topology) -> Tree:
    """Return breadth-first trees whose roots lie in the middle of their components."""
    roots = np.array([_middle(topology, number) for number in range(topology.components.max() + 1)])
    return Tree(parents(topology, roots), _layers(topology, roots))


def _middle(topology: Topology, number: int) -> int:
    """Return the device of a component that is least far from both ends of a long path, the lowest on ties."""
    layer = topology.layers(int(np.argmax(topology.components == number)))
    one = topology.layers(int(np.argmax(layer)))
    other = topology.layers(int(np.argmax(one)))
    return int(np.argmin(np.where(one < 0, topology.n, np.maximum(one, other))))


def _layers(topology: Topology, roots: Integers) -> Integers:
    """Return the number of links from each device to the root of its component, int64[n]."""
    return np.asarray(np.maximum.reduce([topology.layers(root) for root in roots]))


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
    layer = _layers(topology, roots)
    upward = layer[topology.indices] == layer[topology.sources] - 1
    parent = np.full(topology.n, topology.n)
    np.minimum.at(parent, topology.sources[upward], topology.indices[upward])
    parent[roots] = -1
    return parent


def ways(tree: Tree, devices: Devices, speaks: Mask) -> tuple[Mask, Mask]:
    """Return the own edges, bool[e] each, that lead from those who speak, bool[n], to parents and to children."""
    source = devices.sources
    up, down = tree.parent[devices.ids][source] == devices.indices, tree.parent[devices.indices] == devices.ids[source]
    return up & speaks[source], down & speaks[source]
