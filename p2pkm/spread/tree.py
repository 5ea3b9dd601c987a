"""Spanning trees that everybody can compute from the topology, like the colours."""

import numpy as np

from p2pkm.devices import Integers
from p2pkm.topology import Topology


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
    layer = np.maximum.reduce([topology.layers(root) for root in roots])
    upward = layer[topology.indices] == layer[topology.sources] - 1
    parent = np.full(topology.n, topology.n)
    np.minimum.at(parent, topology.sources[upward], topology.indices[upward])
    parent[roots] = -1
    return parent
