"""What measures read and return: a graph as arrays, and figures with a mark whether they are exact."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from topologies.checks import check
from topologies.csr_graph import CSRGraph
from topologies.validation import Graph

if TYPE_CHECKING:
    from numpy import bool_, float64, int64
    from numpy.typing import NDArray

    Integers = NDArray[int64]
    Floats = NDArray[float64]
    Mask = NDArray[bool_]
else:
    Integers = Floats = Mask = Any  # numpy is imported when something is measured, not before

EXACT = 1_000  # devices; up to here nothing is estimated but what flows in dense graphs cost


class Measure(NamedTuple):
    """A figure, and what it is worth.

    Attributes
    ----------
    value : int, float or None
        math.inf where there is no path; None where the figure has no meaning, such as a mean over no pairs.
    exact : bool
        Whether it is the value itself, up to rounding.
    how : str
        In which way it was found, if not exactly, or why there is none.
    """

    value: float | None
    exact: bool = True
    how: str = ""


class Changing(Protocol):
    """A graph that changes from round to round: all links that are ever active, and a mask for each round.

    Attributes
    ----------
    indptr : int64[n + 1]
    indices : int64[2 * links]
        Neighbors over all links, ascending within a device.
    period : int or None
        After so many rounds everything begins again; None: never.
    """

    @property
    def indptr(self) -> Any: ...  # noqa: D102 - see above

    @property
    def indices(self) -> Any: ...  # noqa: D102

    @property
    def period(self) -> int | None: ...  # noqa: D102

    def active(self, t: int, /) -> Any:
        """Return which directed edges are in use in round t, bool[2 * links], the same at both ends of a link."""


AnyGraph: TypeAlias = "Graph | CSRGraph | Changing"


def read(graph: AnyGraph) -> CSRGraph:
    """Return a graph of any kind as arrays; of one that changes, all links that are ever active.

    Raises
    ------
    GraphError
        If it is a networkx graph that `topologies.check` refuses.
    """
    if isinstance(graph, CSRGraph):
        return graph
    if hasattr(graph, "indptr"):
        return CSRGraph(graph.indptr, graph.indices, getattr(graph, "weights", None))
    check(graph)
    return CSRGraph.from_networkx(graph)


def count_links(links: CSRGraph) -> Integers:
    """Return the degree of each device, int64[n]."""
    import numpy as np

    return np.diff(links.indptr)


def count_active(links: CSRGraph, active: Mask | None) -> Integers:
    """Return how many links of each device are active, int64[n]; None: all."""
    import numpy as np

    return count_links(links) if active is None else np.bincount(find_sources(links)[active], minlength=len(links))


def find_sources(links: CSRGraph) -> Integers:
    """Return the device that each directed edge leads from, int64[2 * links]."""
    import numpy as np

    return np.repeat(np.arange(len(links)), np.diff(links.indptr))


def to_matrix(links: CSRGraph, values: Any = None) -> Any:
    """Return the adjacency matrix with these values of the directed edges (1 if None), csr_array[n, n]."""
    import numpy as np
    from scipy.sparse import csr_array

    kind = np.int32 if len(links.indices) < 2**31 else np.int64
    data = np.ones(len(links.indices)) if values is None else values
    return csr_array((data, links.indices.astype(kind), links.indptr.astype(kind)), (len(links), len(links)))
