"""The communication graph as arrays: a frozen CSR of undirected links."""

import json
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.brief import short_repr
from p2pkm.core.errors import TopologyError
from p2pkm.core.late_binding import call
from p2pkm.core.sorting import find_runs

if TYPE_CHECKING:
    import networkx as nx

    from topologies import CSRGraph, TimeVaryingGraph

LARGE = 100_000  # devices; above, graphs stay arrays, and the ledger keeps totals alone
SERVER = "server"  # what a hub is called
_TOLD, _LISTED = 10, 20  # names in a message, and in a line about all
_EXACT = 32  # up to this many devices `hops` is the diameter itself
_MANY = 50_000  # devices and links above which compiled kernels walk over the graph


@dataclass(frozen=True)
class Topology:
    """An undirected graph of n devices; both directions of every link are stored.

    Attributes
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbors, ascending within a device.
    weights : float64[e]
        Edge attribute `weight`; multiplies alpha.
    colors : int64[n]
        Proper coloring: greedy in ascending id.
    hops : int
        Bound on the diameter (of the largest component); the diameter itself up to 32 devices.
    hub : int
        The server: a device without points; -1 if there is none.
    varying : TimeVaryingGraph or None
        Which of these links are in use in which round; None: all of them, always.
    names : tuple of str, length n, or None
        What the devices are called, a hub ``server``; None: by their numbers.
    file_summary : str
        One line about what was read of the graph's file, and how its nodes became devices; empty: nothing to tell.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> ring = p2pkm.Topology.from_graph(topologies.ring(4))
    >>> ring.n, ring.indices.tolist(), ring.degrees.tolist()
    (4, [1, 3, 0, 2, 1, 3, 0, 2], [2, 2, 2, 2])
    """

    indptr: Integers
    indices: Integers
    weights: Floats
    colors: Integers
    hops: int
    hub: int = -1
    varying: "TimeVaryingGraph | None" = None
    names: tuple[str, ...] | None = None
    file_summary: str = ""

    @classmethod
    def star(cls, clients: int) -> "Topology":
        """Return so many clients around a server, which is the last device."""
        links = np.column_stack((np.arange(clients), np.full(clients, clients), np.ones(clients)))
        return replace(cls.from_links(clients + 1, links), hub=clients)

    @classmethod
    def from_graph(cls, graph: "nx.Graph | CSRGraph | TimeVaryingGraph | Topology") -> "Topology":
        """Read a graph of any kind; a topology stays what it is, and of a graph that changes all links are taken.

        Raises
        ------
        TopologyError
            As `from_networkx` does; the arrays of a CSRGraph have to be a symmetric matrix, sorted, too; the mixing
            matrix of a graph that changes has to be symmetric and doubly stochastic.
        """
        import topologies

        if isinstance(graph, Topology):
            return graph
        if isinstance(graph, topologies.TimeVaryingGraph):
            try:
                topologies.check(graph)
            except topologies.GraphError as error:
                raise TopologyError(str(error)) from None
            return replace(cls.from_graph(graph.union), varying=graph, names=None)
        if not isinstance(graph, topologies.CSRGraph):
            return cls.from_networkx(graph)
        try:
            topologies.check(graph)
        except topologies.GraphError as error:
            raise TopologyError(str(error)) from None
        indptr, indices = (np.require(part, np.int64, ("C", "W")) for part in (graph.indptr, graph.indices))
        same: Floats = np.broadcast_to(1.0, len(indices))  # one number that stands for all
        return cls._complete(indptr, indices, same if graph.weights is None else np.require(graph.weights, np.float64))

    @classmethod
    def from_networkx(cls, graph: "nx.Graph") -> "Topology":
        """Read a networkx graph; device i is the i-th node in natural order, see `topologies.sort_nodes`.

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
        nodes, names = topologies.sort_nodes(graph), topologies.name_nodes(graph)
        number = {node: i for i, node in enumerate(nodes)}
        links = [(number[u], number[v], float(data.get("weight", 1.0))) for u, v, data in graph.edges(data=True)]
        built = cls.from_links(len(number), np.array(links).reshape(-1, 3))
        called = None if names is None else tuple(names[node] for node in nodes)
        return replace(built, names=called, file_summary=str(graph.graph.get(topologies.FILE_SUMMARY, "")))

    @classmethod
    def from_links(cls, n: int, links: Floats) -> "Topology":
        """Build the graph of n devices from undirected links (i, j, weight), float64[links, 3]."""
        ends = links[:, :2].astype(np.int64)
        source, target = np.concatenate((ends[:, 0], ends[:, 1])), np.concatenate((ends[:, 1], ends[:, 0]))
        order = np.argsort(source * n + target)
        indptr = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=n))))
        indices, weights = target[order], np.tile(links[:, 2], 2)[order]
        return cls._complete(indptr, indices, weights)

    @classmethod
    def _complete(cls, indptr: Integers, indices: Integers, weights: Floats) -> "Topology":
        """Add what follows from the links."""
        return cls(indptr, indices, weights, walk("color", indptr, indices), bound_diameter(indptr, indices))

    def call(self, names: "tuple[str, ...] | None") -> "Topology":
        """Return the same graph with its devices in the order of their names among the points, and called so.

        Parameters
        ----------
        names : tuple of str or None
            Of the devices in the order of their points, without a hub; None: they are numbered, and the graph stays.

        Raises
        ------
        TopologyError
            If the nodes have names, too, and these are others.
        """
        if names is None:
            return self
        if self.names is None or self.hub >= 0:
            full = names if self.hub < 0 else (*names, SERVER)
            return replace(self, names=full) if len(full) == self.n else self  # else other checks report it
        if set(names) != set(self.names):
            raise TopologyError(
                "the nodes of the graph and the devices of the points have different names: of the nodes "
                f"{_tell_missing(self.names, names)} no points, of the devices {_tell_missing(names, self.names)} no "
                "node; make the names equal, or number the nodes or the devices from 0"
            )
        place = {name: i for i, name in enumerate(names)}
        number = np.array([place[name] for name in self.names])
        once = self.sources < self.indices
        ends = (number[self.sources[once]], number[self.indices[once]], self.weights[once])
        return replace(self.from_links(self.n, np.column_stack(ends)), names=names, file_summary=self.file_summary)

    def tell_order(self) -> "Topology":
        """Return the same topology with a note, in `file_summary`, of which named node each numbered device is."""
        if self.names is None or not self.n:
            return self
        first = ", ".join(f"device {i} is {name!r}" for i, name in enumerate(self.names[:_TOLD]))
        note = (
            f"the points have numbered devices and the graph has named nodes, which are taken in sorted order: {first}"
            f"{', ...' * (self.n > _TOLD)}. Give the devices of the points by name to pair them by name"
        )
        return replace(self, file_summary="; ".join(filter(None, (self.file_summary, note))))

    def number(self, graph: "nx.Graph") -> dict[Any, int]:
        """Return the device of every node of the graph that this was read from."""
        import topologies

        names = topologies.name_nodes(graph)
        if names is None or self.names is None:
            return {node: i for i, node in enumerate(topologies.sort_nodes(graph))}
        place = {name: i for i, name in enumerate(self.names)}
        return {node: place[name] for node, name in names.items()}

    def label(self, i: int) -> str:
        """Return what a device is called: its name, else its number."""
        if i == self.hub:
            return SERVER
        return str(i) if self.names is None else self.names[i]

    def list_names(self) -> str | None:
        """Return the names of the devices in a line, of many the first; None if they have none."""
        if self.names is None:
            return None
        more = f", ... ({self.clients} in all)" if self.clients > _LISTED else ""
        return ", ".join(self.names[: min(self.clients, _LISTED)]) + more

    @property
    def n(self) -> int:
        """Return the number of devices, a hub included."""
        return len(self.indptr) - 1

    @property
    def links(self) -> "CSRGraph":
        """Return the same links as a graph of arrays."""
        import topologies

        return topologies.CSRGraph(self.indptr, self.indices, self.weights)

    @property
    def clients(self) -> int:
        """Return the number of devices without the hub."""
        return self.n - (self.hub >= 0)

    @property
    def degrees(self) -> Integers:
        """Return the number of neighbors of each device, int64[n]."""
        return np.diff(self.indptr)

    @cached_property
    def sources(self) -> Integers:
        """Return the device that each directed edge leads from, int64[e]."""
        return np.repeat(np.arange(self.n), self.degrees)

    @cached_property
    def components(self) -> Integers:
        """Return the component of each device, int64[n], numbered by their lowest device."""
        return walk("components", self.indptr, self.indices)

    @cached_property
    def spanning_tree(self) -> tuple[Integers, Integers]:
        """Return parents, -1 at roots, and layers of breadth-first trees, int64[n] each: a root per component.

        A root is the lowest device whose larger distance to the two ends of a long path is least; two breadth-first
        passes find the ends. In a tree it is a center, in other graphs near one: of 1,440 random graphs of 10 to 60
        devices its eccentricity is the least one in 1,111, larger by 1 in 306, and by 2 in 23.
        """
        lowest = find_first(self.components, np.zeros(self.n, np.int64))
        one = self.layers(find_first(self.components, self.layers(lowest)))
        other = self.layers(find_first(self.components, one))
        return self.grow(find_first(self.components, -np.maximum(one, other)))

    def grow(self, roots: Integers) -> tuple[Integers, Integers]:
        """Return the same of breadth-first trees from given roots, int64[components]."""
        layer = self.layers(roots)
        upward = np.flatnonzero(layer[self.indices] == (layer - 1).repeat(self.degrees))
        child = self.indptr.searchsorted(upward, side="right") - 1
        lowest = find_runs(child)  # edges lie by device and then by neighbor
        parent = np.full(self.n, -1)
        parent[child[lowest]] = self.indices[upward[lowest]]
        return parent, layer

    @cached_property
    def mirror(self) -> Integers:
        """Return the opposite (j, i) of every directed edge (i, j), int64[e]."""
        return walk("mirror", self.indptr, self.indices)

    def layers(self, roots: Integers | int) -> Integers:
        """Return the number of hops from each device to the nearest root, int64[n], -1 where there is no path."""
        return walk("layers", self.indptr, self.indices, np.atleast_1d(roots))

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str:
        return str(call("card", self))

    def to_arrays(self) -> dict[str, Any]:
        """Return what another rank needs to build the same topology, without `varying` and `file_summary`."""
        names = {} if self.names is None else {"names": np.frombuffer(json.dumps(self.names).encode(), np.uint8)}
        return {"indptr": self.indptr, "indices": self.indices, "weights": self.weights, "colors": self.colors,
                "hops": np.array(self.hops), "hub": np.array(self.hub), **names}  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> "Topology":
        """Build the topology from `to_arrays`."""
        hops, hub = (int(arrays[name]) for name in ("hops", "hub"))
        names = tuple(json.loads(arrays["names"].tobytes())) if "names" in arrays else None
        return cls(arrays["indptr"], arrays["indices"], arrays["weights"], arrays["colors"], hops, hub, names=names)


def _tell_missing(names: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Return in words which names are not among the others."""
    missing = sorted(set(names) - set(others))
    more = f" and {len(missing) - _TOLD} more" if len(missing) > _TOLD else ""
    return f"{', '.join(map(repr, missing[:_TOLD])) or 'none'}{more} {'has' if len(missing) == 1 else 'have'}"


def walk(name: str, *arrays: Integers) -> Integers:
    """Call a kernel on a graph: the compiled one, which takes a while to import, where there is much to do."""
    from p2pkm.kernels import load
    from p2pkm.kernels import reference as plain

    kernels: Any = load() if sum(map(len, arrays)) > _MANY else plain
    return getattr(kernels, name)(*arrays)


def sort_stably(numbers: Integers) -> Integers:
    """Return the order that sorts whole numbers of at least 0, equal ones as they stand.

    It goes by 16 bits at a time, for which NumPy has a radix sort: a third of the time that its sort of 64 bits takes.
    """
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    for shift in range(16, int(numbers.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((numbers >> shift).astype(np.uint16)[order], kind="stable")]
    return order


def find_first(group: Integers, figure: Integers) -> Integers:
    """Return of each group 0, 1, ... the lowest device that has its largest figure, int64[groups]."""
    count, n = int(group.max()) + 1, len(group)
    largest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(largest, group, figure)
    found = np.flatnonzero(figure == largest[group])
    first = np.full(count, n)
    np.minimum.at(first, group[found], found)
    return first


def bound_diameter(indptr: Integers, indices: Integers) -> int:
    """Bound the diameter: exact for small graphs, else twice the eccentricity of the first device of each component."""
    n = len(indptr) - 1
    if n <= _EXACT:
        return _measure_diameter(indptr.tolist(), indices.tolist())
    layer = walk("layers", indptr, indices, np.zeros(1, np.int64))
    if layer.min() < 0:  # of several components each has a lowest device
        component = walk("components", indptr, indices)
        layer = walk("layers", indptr, indices, find_first(component, np.zeros(n, np.int64)))
    return min(2 * int(layer.max()), n - 1)


def _measure_diameter(indptr: list[int], indices: list[int]) -> int:
    """Return after how many steps no ball around a device, a set of bits, grows any more when it takes in the next."""
    neighbors = [indices[first:last] for first, last in pairwise(indptr)]
    balls, steps = [1 << i for i in range(len(neighbors))], 0
    while True:
        wider = [reduce(or_, map(balls.__getitem__, own), ball) for own, ball in zip(neighbors, balls, strict=True)]
        if wider == balls:
            return steps
        balls, steps = wider, steps + 1
