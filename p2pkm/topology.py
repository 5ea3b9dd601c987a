"""The communication graph as arrays: a frozen CSR of undirected links."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.devices import Floats, Integers
from p2pkm.errors import TopologyError

if TYPE_CHECKING:
    import networkx as nx

_EXACT = 32  # up to this many devices `hops` is the diameter itself


@dataclass(frozen=True)
class Topology:
    """An undirected graph of n devices; both directions of every link are stored.

    Attributes
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbours, ascending within a device.
    weights : float64[e]
        Edge attribute `weight`; multiplies alpha.
    colors : int64[n]
        Proper colouring: greedy in ascending id.
    hops : int
        Bound on the diameter (of the largest component); the diameter itself up to 32 devices.
    hub : int
        The server: a device without points; -1 if there is none.
    """

    indptr: Integers
    indices: Integers
    weights: Floats
    colors: Integers
    hops: int
    hub: int = -1

    @classmethod
    def star(cls, clients: int) -> "Topology":
        """Return so many clients around a server, which is the last device."""
        links = np.column_stack((np.arange(clients), np.full(clients, clients), np.ones(clients)))
        return replace(cls.from_links(clients + 1, links), hub=clients)

    @classmethod
    def from_networkx(cls, graph: "nx.Graph") -> "Topology":
        """Read a networkx graph; device i is the i-th node in sorted order (numerically if all labels are integers).

        Raises
        ------
        TopologyError
            If the graph is directed, has self-loops, parallel edges, no nodes, or weights that are not positive.
        """
        import topologies

        try:
            topologies.check(graph)
        except topologies.GraphError as error:
            raise TopologyError(str(error)) from None
        number = {node: i for i, node in enumerate(topologies.sort_nodes(graph))}
        links = [(number[u], number[v], float(data.get("weight", 1.0))) for u, v, data in graph.edges(data=True)]
        return cls.from_links(len(number), np.array(links).reshape(-1, 3))

    @classmethod
    def from_links(cls, n: int, links: Floats) -> "Topology":
        """Build the graph of n devices from undirected links (i, j, weight), float64[links, 3]."""
        ends = links[:, :2].astype(np.int64)
        source, target = np.concatenate((ends[:, 0], ends[:, 1])), np.concatenate((ends[:, 1], ends[:, 0]))
        order = np.lexsort((target, source))
        indptr = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=n))))
        indices, weights = target[order], np.tile(links[:, 2], 2)[order]
        return cls(indptr, indices, weights, _color(indptr, indices), _bound_diameter(indptr, indices))

    @property
    def n(self) -> int:
        """Return the number of devices, a hub included."""
        return len(self.indptr) - 1

    @property
    def clients(self) -> int:
        """Return the number of devices without the hub."""
        return self.n - (self.hub >= 0)

    @property
    def degrees(self) -> Integers:
        """Return the number of neighbours of each device, int64[n]."""
        return np.diff(self.indptr)

    @cached_property
    def sources(self) -> Integers:
        """Return the device that each directed edge leads from, int64[e]."""
        return np.repeat(np.arange(self.n), self.degrees)

    @cached_property
    def components(self) -> Integers:
        """Return the component of each device, int64[n], numbered by their lowest device."""
        component = np.full(self.n, -1)
        for device in range(self.n):
            if component[device] < 0:
                component[_layers(self.indptr, self.indices, device) >= 0] = component.max() + 1
        return component

    def layers(self, root: int) -> Integers:
        """Return the number of hops from root to each device, int64[n], -1 where there is no path."""
        return _layers(self.indptr, self.indices, root)

    def to_arrays(self) -> dict[str, Any]:
        """Return what another rank needs to build the same topology."""
        return {"indptr": self.indptr, "indices": self.indices, "weights": self.weights, "colors": self.colors,
                "hops": np.array(self.hops), "hub": np.array(self.hub)}  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> "Topology":
        """Build the topology from `to_arrays`."""
        numbers = {name: int(arrays[name]) for name in ("hops", "hub")}
        return cls(arrays["indptr"], arrays["indices"], arrays["weights"], arrays["colors"], **numbers)


def _color(indptr: Integers, indices: Integers) -> Integers:
    """Give every device the smallest colour that no lower neighbour has, in ascending id."""
    colors = [0] * (len(indptr) - 1)
    neighbors = indices.tolist()
    for i, (first, last) in enumerate(zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)):
        taken = {colors[j] for j in neighbors[first:last] if j < i}
        color = 0
        while color in taken:
            color += 1
        colors[i] = color
    return np.array(colors, np.int64)


def _layers(indptr: Integers, indices: Integers, root: int) -> Integers:
    """Search breadth first from root; return each device's layer, -1 where it is not reached."""
    layer = np.full(len(indptr) - 1, -1)
    layer[root] = depth = 0
    front = np.array([root])
    while len(front):
        depth += 1
        counts = indptr[front + 1] - indptr[front]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        reached = indices[np.repeat(indptr[front], counts) + within]
        front = np.unique(reached[layer[reached] < 0])
        layer[front] = depth
    return layer


def _bound_diameter(indptr: Integers, indices: Integers) -> int:
    """Return the largest eccentricity of small graphs, else twice that of one device of every component."""
    n = len(indptr) - 1
    if n <= _EXACT:
        return max(int(_layers(indptr, indices, i).max()) for i in range(n))
    bound, seen = 0, np.zeros(n, bool)
    for root in range(n):
        if not seen[root]:
            layer = _layers(indptr, indices, root)
            seen |= layer >= 0
            bound = max(bound, 2 * int(layer.max()))
    return min(bound, n - 1)
