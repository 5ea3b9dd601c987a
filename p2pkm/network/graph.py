"""Communication graph: undirected links in compressed sparse rows (CSR), immutable."""

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
from p2pkm.core.sorting import blocks, find_runs, narrow, offsets_of

if TYPE_CHECKING:
    import networkx as nx

    from topologies import CSRGraph, TimeVaryingGraph

# Number of devices above which graphs are not converted to networkx, and the ledger stores totals only.
LARGE = 100_000
# Name of a server.
SERVER = "server"
# Cached properties with a number for each device.
_DERIVED = ("degrees", "components")
# Names listed in a message, and in a line about all devices.
_MAX_NAMES, _LISTED = 10, 20
# Number of devices up to which `hops` is the exact diameter.
_EXACT = 32
# Number of devices plus edges above which compiled kernels are used; below, their import takes longer.
_MANY = 50_000
# Estimated numbers per device in a block of edges.
_EDGES = 64


@dataclass(frozen=True)
class Topology:
    """Undirected communication graph of n devices; both directions of every link are stored.

    Attributes
    ----------
    indptr : int64[n + 1]
        Offsets of the directed edges of each device.
    indices : int64[e]
        Neighbor at each edge, ascending within a device.
    weights : float64[e]
        Edge attribute `weight`; a factor of alpha.
    colors : int64[n]
        Proper coloring, greedy in ascending id. Above 100,000 devices in the smallest type.
    hops : int
        Upper bound on the diameter (of the largest component); exact up to 32 devices.
    hub : int
        Server (a device without points), -1 without a server.
    varying : TimeVaryingGraph or None
        Active links of every round; None: all links are always active.
    names : tuple of str, length n, or None
        Names of the devices, ``server`` for a server; None: devices are numbered.
    file_summary : str
        One line about the file of the graph and the mapping of its nodes to devices; empty without a file.
    places : float64[n, 2] or None
        Position of every node in drawings, from its coordinates; None: computed from the links.

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
    places: Floats | None = None

    @classmethod
    def star(cls, clients: int) -> "Topology":
        """Create a star of clients around a server, which is the last device."""
        links = np.column_stack((np.arange(clients), np.full(clients, clients), np.ones(clients)))
        return replace(cls.from_links(clients + 1, links), hub=clients)

    @classmethod
    def from_graph(cls, graph: "nx.Graph | CSRGraph | TimeVaryingGraph | Topology | Any") -> "Topology":
        """Convert a graph of any type; of a time-varying graph, all links are included. Topologies are unchanged.

        Graphs of igraph and adjacency matrices are read by `topologies.read`.

        Raises
        ------
        TopologyError
            As in `from_networkx`. If the arrays of a CSRGraph are not a sorted, symmetric matrix, or if the mixing
            matrix of a time-varying graph is not symmetric and doubly stochastic.
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
            return cls.from_networkx(convert_foreign(graph))
        try:
            topologies.check(graph)
        except topologies.GraphError as error:
            raise TopologyError(str(error)) from None
        indptr, indices = (np.require(part, np.int64, ("C", "W")) for part in (graph.indptr, graph.indices))
        # A view of a single 1, with stride 0: no memory for unweighted graphs.
        unit_weights: Floats = np.broadcast_to(1.0, len(indices))
        weights = unit_weights if graph.weights is None else np.require(graph.weights, np.float64)
        return cls._complete(indptr, indices, weights)

    @classmethod
    def from_networkx(cls, graph: "nx.Graph") -> "Topology":
        """Convert a networkx graph; device i is the i-th node in natural order, see `topologies.sort_nodes`.

        Raises
        ------
        TopologyError
            If the graph is directed or empty, or has self-loops, parallel edges or weights that are not positive.
        """
        import topologies
        from topologies.coordinates import find_coordinates

        try:
            topologies.check(graph)
        except topologies.GraphError as error:
            raise TopologyError(str(error)) from None
        nodes, names = topologies.sort_nodes(graph), topologies.name_nodes(graph)
        number = {node: i for i, node in enumerate(nodes)}
        links = [(number[u], number[v], float(data.get("weight", 1.0))) for u, v, data in graph.edges(data=True)]
        built = cls.from_links(len(number), np.array(links).reshape(-1, 3))
        ordered = None if names is None else tuple(names[node] for node in nodes)
        summary = str(graph.graph.get(topologies.FILE_SUMMARY, ""))
        coordinates = find_coordinates(graph)
        known = None if coordinates is None else coordinates.places
        places = None if known is None else np.array([known[node] for node in nodes])
        return replace(built, names=ordered, file_summary=summary, places=places)

    @classmethod
    def from_links(cls, n: int, links: Floats) -> "Topology":
        """Create the graph of n devices from undirected links (i, j, weight), float64[links, 3]."""
        ends = links[:, :2].astype(np.int64)
        source, target = np.concatenate((ends[:, 0], ends[:, 1])), np.concatenate((ends[:, 1], ends[:, 0]))
        order = np.argsort(source * n + target)
        indptr = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=n))))
        indices, weights = target[order], np.tile(links[:, 2], 2)[order]
        return cls._complete(indptr, indices, weights)

    @classmethod
    def _complete(cls, indptr: Integers, indices: Integers, weights: Floats) -> "Topology":
        """Create the topology with colors and diameter bound of the links."""
        colors = walk("color", indptr, indices)
        if len(colors) > LARGE:
            # Every rank keeps the colors of all devices.
            colors = colors.astype(narrow(int(colors.max()) + 1))
        return cls(indptr, indices, weights, colors, bound_diameter(indptr, indices))

    def call(self, names: "tuple[str, ...] | None") -> "Topology":
        """Name the devices, and reorder named nodes to the order of the points.

        Nodes without points are the last devices.

        Parameters
        ----------
        names : tuple of str or None
            Names of the devices in the order of their points, without a server; None: numbered devices, the graph is
            unchanged.

        Raises
        ------
        TopologyError
            If a device is not among the named nodes.
        """
        if names is None:
            return self
        if self.names is None or self.hub >= 0:
            full = names if self.hub < 0 else (*names, SERVER)
            # A wrong number of names is reported by other checks.
            return replace(self, names=full) if len(full) == self.n else self
        matched = names
        if not set(names) <= set(self.names):
            from topologies.validation import compose

            # Names of nodes are composed; those of devices that a program gives may not be, such as names of folders.
            matched = tuple(map(compose, names))
        known = set(matched)
        if len(known) < len(names) or not known <= set(self.names):
            raise TopologyError(
                "names of the nodes of the graph and of the devices of the points differ. Nodes without points: "
                f"{_list_missing(self.names, names)}; devices without a node: {_list_missing(names, self.names)}. "
                "Make the names equal, or number the nodes or the devices from 0"
            )
        others = tuple(name for name in self.names if name not in known)
        place = {name: i for i, name in enumerate(matched + others)}
        number = np.array([place[name] for name in self.names])
        # One of the two edges of each link.
        is_first = self.sources < self.indices
        links = (number[self.sources[is_first]], number[self.indices[is_first]], self.weights[is_first])
        places = None if self.places is None else self.places[np.argsort(number)]
        built = self.from_links(self.n, np.column_stack(links))
        return replace(built, names=names + others, file_summary=self.file_summary, places=places)

    def tell_order(self) -> "Topology":
        """Add a note to `file_summary` that maps numbered devices to named nodes."""
        if self.names is None or not self.n:
            return self
        first = ", ".join(f"device {i} is {name!r}" for i, name in enumerate(self.names[:_MAX_NAMES]))
        note = (
            f"devices of the points are numbered, nodes of the graph have names, in sorted order: {first}"
            f"{', ...' * (self.n > _MAX_NAMES)}. Name the devices of the points to match them by name"
        )
        return replace(self, file_summary="; ".join(filter(None, (self.file_summary, note))))

    def tell_empty(self, count: int) -> "Topology":
        """Add a note to `file_summary` that lists the nodes after the first `count`, which are without points."""
        if self.names is None or self.hub >= 0 or self.n <= count:
            return self
        note = f"nodes without points: {_list_missing(self.names, self.names[:count])}"
        return replace(self, file_summary="; ".join(filter(None, (self.file_summary, note))))

    def number(self, graph: "nx.Graph") -> dict[Any, int]:
        """Return the device of every node of the original graph."""
        import topologies

        names = topologies.name_nodes(graph)
        if names is None or self.names is None:
            return {node: i for i, node in enumerate(topologies.sort_nodes(graph))}
        place = {name: i for i, name in enumerate(self.names)}
        return {node: place[name] for node, name in names.items()}

    def label(self, i: int) -> str:
        """Return the name of a device, or its number without a name."""
        if i == self.hub:
            return SERVER
        return str(i) if self.names is None else self.names[i]

    def list_attributes(self) -> list[dict[str, Any]]:
        """List the name and the position in drawings of every node, as far as they are known."""
        names: list[dict[str, Any]] = [{"name": name} for name in self.names or ()] or [{} for _ in range(self.n)]
        if self.places is None:
            return names
        return [node | {"x": x, "y": y} for node, (x, y) in zip(names, self.places.tolist(), strict=True)]

    def list_names(self) -> str | None:
        """List the names of the devices, at most the first 20; None without names."""
        if self.names is None:
            return None
        more = f", ... ({self.clients} in all)" if self.clients > _LISTED else ""
        return ", ".join(self.names[: min(self.clients, _LISTED)]) + more

    @property
    def n(self) -> int:
        """Number of devices, server included."""
        return len(self.indptr) - 1

    @property
    def links(self) -> "CSRGraph":
        """Links as a CSRGraph."""
        import topologies

        return topologies.CSRGraph(self.indptr, self.indices, self.weights)

    @property
    def clients(self) -> int:
        """Number of devices without the server."""
        return self.n - (self.hub >= 0)

    @cached_property
    def degrees(self) -> Integers:
        """Number of neighbors of each device, int64[n]."""
        return self.indptr[1:] - self.indptr[:-1]

    @cached_property
    def sources(self) -> Integers:
        """Source device of each directed edge, int64[e]."""
        return np.repeat(np.arange(self.n), self.degrees)

    @cached_property
    def components(self) -> Integers:
        """Connected component of each device, int64[n], numbered in the order of their lowest devices."""
        numbers = walk("components", self.indptr, self.indices)
        # Of a connected graph, a view of a single 0, with stride 0: no memory.
        return numbers if numbers.max(initial=0) else np.broadcast_to(np.int64(0), self.n)

    @property
    def first_devices(self) -> Integers:
        """Lowest device of each connected component, int64[components]."""
        return find_first(self.components, np.zeros(self.n, np.int64))

    @cached_property
    def spanning_tree(self) -> tuple[Integers, Integers]:
        """Parents (-1 at roots) and layers of breadth-first trees, int[n] each, with one root per component.

        The root minimizes the larger of its distances to the two ends of a long path, which are found by two
        breadth-first searches; ties go to the lowest id. In a tree, it is a center. In other graphs it is near one: in
        1,440 random graphs of 10 to 60 devices, its eccentricity is minimal in 1,111, larger by 1 in 306, and by 2 in
        23. The root of a star around a server is the server.
        """
        if self.hub >= 0:
            return self.grow(np.array([self.hub]))
        from_first_end = self.layers(find_first(self.components, self.layers(self.first_devices)))
        from_second_end = self.layers(find_first(self.components, from_first_end))
        return self.grow(find_first(self.components, -np.maximum(from_first_end, from_second_end)))

    def grow(self, roots: Integers) -> tuple[Integers, Integers]:
        """Grow breadth-first trees from roots, int64[components]; return parents and layers as in `spanning_tree`."""
        # A small type for many devices, because every rank keeps both numbers of all of them.
        kind = narrow(self.n) if self.n > LARGE else np.int64
        layer = self.layers(roots).astype(kind)
        parent = np.full(self.n, -1, kind)
        # In blocks of devices: each array with one number per edge may take gigabytes.
        for block in blocks(self.n, _EDGES):
            counts = self.degrees[block]
            neighbors = self.indices[int(self.indptr[block.start]) : int(self.indptr[block.stop])]
            upward = np.flatnonzero(layer[neighbors] == (layer[block] - 1).repeat(counts))
            child = np.arange(len(counts)).repeat(counts)[upward]
            # Edges are sorted by device and then by neighbor, so the first edge leads to the lowest possible parent.
            lowest = find_runs(child)
            parent[block.start + child[lowest]] = neighbors[upward[lowest]]
        return parent, layer

    @cached_property
    def mirror(self) -> Integers:
        """Index of the reverse edge (j, i) of every directed edge (i, j), int64[e]."""
        return walk("mirror", self.indptr, self.indices)

    def select(self, devices: Integers) -> "Topology":
        """Select devices, int64[s], ascending, without links to others: the graph of these devices alone."""
        if len(devices) == self.n:
            return self
        degrees = self.degrees[devices]
        offsets = offsets_of(degrees)
        edges = np.repeat(self.indptr[devices] - offsets[:-1], degrees) + np.arange(offsets[-1])
        indices = devices.searchsorted(self.indices[edges])
        colors = self.colors[devices]
        return Topology(offsets, indices, self.weights[edges], colors, bound_diameter(offsets, indices))

    def layers(self, roots: Integers | int) -> Integers:
        """Compute the distance of each device from the nearest root in links, int64[n], -1 without a path."""
        return walk("layers", self.indptr, self.indices, np.atleast_1d(roots))

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str:
        return str(call("card", self))

    def to_arrays(self) -> dict[str, Any]:
        """Convert the topology to arrays, for `from_arrays` on another rank; without `varying` and `file_summary`."""
        names: dict[str, Any] = (
            {} if self.names is None else {"names": np.frombuffer(json.dumps(self.names).encode(), np.uint8)}
        )
        names |= {} if self.places is None else {"places": self.places}
        return {"indptr": self.indptr, "indices": self.indices, "weights": self.weights, "colors": self.colors,
                "hops": np.array(self.hops), "hub": np.array(self.hub), **names}  # fmt: skip

    def derive(self) -> dict[str, Any]:
        """Return arrays that follow from those of `to_arrays`, so that the ranks of a machine hold these once, too."""
        return {name: getattr(self, name) for name in _DERIVED}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> "Topology":
        """Create the topology from the result of `to_arrays`, with or without that of `derive`."""
        hops, hub = (int(arrays[name]) for name in ("hops", "hub"))
        names = tuple(json.loads(arrays["names"].tobytes())) if "names" in arrays else None
        topology = cls(arrays["indptr"], arrays["indices"], arrays["weights"], arrays["colors"], hops, hub, names=names,
                       places=arrays.get("places"))  # fmt: skip
        vars(topology).update({name: arrays[name] for name in _DERIVED if name in arrays})
        return topology

    def move(self, arrays: dict[str, Any]) -> "Topology":
        """Return the same topology with the arrays of `to_arrays` and `derive` in another place of the memory."""
        moved = replace(self, **{name: arrays[name] for name in ("indptr", "indices", "weights", "colors")})
        vars(moved).update({name: arrays[name] for name in _DERIVED})
        return moved

    def keep_spanning_tree(self, tree: tuple[Integers, Integers]) -> None:
        """Keep `spanning_tree` as another rank has grown it."""
        vars(self)["spanning_tree"] = tree


def convert_foreign(graph: Any) -> Any:
    """Convert a graph of igraph or an adjacency matrix to a networkx graph; other objects are returned unchanged.

    Raises
    ------
    TopologyError
        If the graph is directed, or the matrix is not an adjacency matrix.
    """
    import topologies
    from topologies.io.objects import is_foreign

    if not is_foreign(graph):
        return graph
    try:
        return topologies.read(graph, isolated=True)
    except ValueError as error:
        # A GraphError, or one of SciPy about a damaged matrix.
        raise TopologyError(str(error)) from None


def _list_missing(names: tuple[str, ...], known: tuple[str, ...]) -> str:
    """List the names that are not in `known`, for a message."""
    missing = sorted(set(names) - set(known))
    more = f" and {len(missing) - _MAX_NAMES} more" if len(missing) > _MAX_NAMES else ""
    return f"{', '.join(map(repr, missing[:_MAX_NAMES])) or 'none'}{more}"


def walk(name: str, *arrays: Integers) -> Integers:
    """Call a graph kernel: the compiled one for large graphs, otherwise the reference, without the import of numba."""
    from p2pkm.kernels import load
    from p2pkm.kernels import reference as plain

    kernels: Any = load() if sum(map(len, arrays)) > _MANY else plain
    return getattr(kernels, name)(*arrays)


def sort_stably(numbers: Integers) -> Integers:
    """Return the stable order of integers of at least 0.

    Sorts by 16 bits at a time, for which NumPy has a radix sort: a third of the time of its sort of 64-bit integers.
    """
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    for shift in range(16, int(numbers.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((numbers >> shift).astype(np.uint16)[order], kind="stable")]
    return order


def find_first(group: Integers, values: Integers) -> Integers:
    """Find the lowest device with the largest value in each group 0, 1, ..., int64[groups]."""
    count, n = int(group.max()) + 1, len(group)
    largest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(largest, group, values)
    candidates = np.flatnonzero(values == largest[group])
    first = np.full(count, n)
    np.minimum.at(first, group[candidates], candidates)
    return first


def bound_diameter(indptr: Integers, indices: Integers) -> int:
    """Bound the diameter: exact up to 32 devices, otherwise twice the eccentricity of the lowest devices."""
    n = len(indptr) - 1
    if n <= _EXACT:
        return _measure_diameter(indptr.tolist(), indices.tolist())
    layer = walk("layers", indptr, indices, np.zeros(1, np.int64))
    # -1: not reached from device 0, so there are several components.
    if layer.min() < 0:
        component = walk("components", indptr, indices)
        layer = walk("layers", indptr, indices, find_first(component, np.zeros(n, np.int64)))
    return min(2 * int(layer.max()), n - 1)


def _measure_diameter(indptr: list[int], indices: list[int]) -> int:
    """Compute the exact diameter: number of steps until the balls around all devices, as bit sets, stop growing."""
    neighbors = [indices[first:last] for first, last in pairwise(indptr)]
    balls = [1 << i for i in range(len(neighbors))]
    steps = 0
    while True:
        wider = [
            reduce(or_, map(balls.__getitem__, adjacent), ball) for adjacent, ball in zip(neighbors, balls, strict=True)
        ]
        if wider == balls:
            return steps
        balls = wider
        steps += 1
