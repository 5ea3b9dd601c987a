"""Graphs as arrays, for very many devices: compressed sparse rows instead of an object for every device and link."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from topologies.validation import Graph, assemble, sort_nodes

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

    Integers = NDArray[int64]
    Floats = NDArray[float64]
else:
    Integers = Floats = Any  # numpy is imported when a graph is built, not before

# Links from which on the import of scipy takes less time than it saves.
_MANY = 1_000_000


@dataclass(frozen=True, eq=False)
class CSRGraph:
    """Undirected graph of devices 0 to n - 1 as arrays, which are never modified.

    Attributes
    ----------
    indptr : int64[n + 1]
        The neighbors of device i are ``indices[indptr[i]:indptr[i + 1]]``.
    indices : int64[2 * links]
        Neighbors, ascending for each device; every link is listed at both of its ends.
    weights : float64[2 * links] or None
        Weights of the links, equal at both ends; None: all 1.
    name : str
        Name for display.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.build("ring", 5, light=True)
    >>> graph.indptr.tolist(), graph.indices.tolist()
    ([0, 2, 4, 6, 8, 10], [1, 4, 0, 2, 1, 3, 2, 4, 0, 3])
    """

    indptr: Integers
    indices: Integers
    weights: Floats | None = None
    name: str = ""

    @classmethod
    def from_networkx(cls, graph: Graph, name: str = "") -> "CSRGraph":
        """Convert a networkx graph that `check` accepts; device i is the i-th node in the order of `sort_nodes`."""
        import numpy as np

        number = {node: i for i, node in enumerate(sort_nodes(graph))}
        links = np.array([(number[u], number[v]) for u, v in graph.edges], np.int64).reshape(-1, 2)
        weights = [weight for _, _, weight in graph.edges(data="weight")]
        unweighted = all(weight is None for weight in weights)
        values = None if unweighted else np.array([1.0 if weight is None else float(weight) for weight in weights])
        return pack(len(number), links[:, 0], links[:, 1], weights=values, name=name)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<CSRGraph{name}: {len(self):,} devices, {self.number_of_edges():,} links>"

    def _repr_html_(self) -> str:
        from topologies.notebook import show_card

        return show_card("graph", self, {})

    @cached_property
    def connected(self) -> bool:
        """Whether there is a path between any two devices."""
        import numpy as np
        from scipy.sparse import csgraph, csr_array

        kind = np.int32 if len(self.indices) < 2**31 else np.int64
        n = len(self)
        links = np.ones(len(self.indices)), self.indices.astype(kind), self.indptr.astype(kind)
        return len(csgraph.breadth_first_order(csr_array(links, (n, n)), 0, return_predecessors=False)) == n

    def number_of_nodes(self) -> int:
        """Return the number of devices."""
        return len(self)

    def number_of_edges(self) -> int:
        """Return the number of links, each counted once."""
        return len(self.indices) // 2

    def to_networkx(self) -> Graph:
        """Convert to a networkx.Graph; beyond 100,000 devices, this takes seconds and gigabytes."""
        source = sources(self)
        is_lower = source < self.indices
        links = list(zip(source[is_lower].tolist(), self.indices[is_lower].tolist(), strict=True))
        graph = assemble(len(self), links)
        if self.weights is not None:
            for (u, v), weight in zip(links, self.weights[is_lower].tolist(), strict=True):
                graph[u][v]["weight"] = weight
        return graph


def pack(n: int, u: Integers, v: Integers, *, weights: Floats | None = None, name: str = "") -> CSRGraph:
    """Build the graph of n devices from links u[i] - v[i]; without weights, repetitions and self-loops are removed."""
    import numpy as np

    if weights is None and len(u) > _MANY:
        return _pack_many(n, u, v, name)
    keys = np.concatenate((u * n + v, v * n + u))
    if weights is None:
        keys.sort()
        keep = keys // n != keys % n if (u == v).any() else np.ones(len(keys), bool)
        keep[1:] &= keys[1:] != keys[:-1]
        keys = keys if keep.all() else keys[keep]
    else:
        order = np.argsort(keys)
        keys, weights = keys[order], np.tile(weights, 2)[order]
    indptr = np.searchsorted(keys, np.arange(n + 1) * n)
    keys -= np.repeat(np.arange(n) * n, np.diff(indptr))
    return CSRGraph(indptr, keys, weights, name)


def _pack_many(n: int, u: Integers, v: Integers, name: str) -> CSRGraph:
    """Build a graph without weights like `pack`; a fourth of the time of sorting, without the import of scipy."""
    import numpy as np
    from scipy.sparse import coo_array

    is_link = u != v
    ends = [end.astype(np.int32 if n < 2**31 else np.int64) for end in (u[is_link], v[is_link])]
    places = np.concatenate(ends), np.concatenate(ends[::-1])
    matrix = coo_array((np.ones(len(places[0]), bool), places), (n, n)).tocsr()
    return CSRGraph(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), None, name)


def sources(graph: CSRGraph) -> Integers:
    """Return the source device of each entry of `indices`, int64[2 * links]."""
    import numpy as np

    return np.repeat(np.arange(len(graph)), np.diff(graph.indptr))
