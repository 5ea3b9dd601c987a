"""Input and output of measures: graphs as arrays, and values that state whether they are exact."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from topologies.checks import check, check_arrays
from topologies.csr_graph import CSRGraph
from topologies.validation import Graph

if TYPE_CHECKING:
    from numpy import bool_, float64, int64
    from numpy.typing import NDArray

    Integers = NDArray[int64]
    Floats = NDArray[float64]
    Mask = NDArray[bool_]
else:
    Integers = Floats = Mask = Any  # numpy is imported only when a graph is measured

# Devices up to which all measures are exact, except the connectivities of dense graphs.
EXACT = 1_000


class Measure(NamedTuple):
    """Value of a measure and its reliability.

    Attributes
    ----------
    value : int, float or None
        math.inf without a path; None if the measure is undefined, such as a mean over an empty set.
    exact : bool
        Whether the value is exact up to rounding.
    how : str
        Method and error of an estimate, or the reason why the value is undefined.
    """

    value: float | None
    exact: bool = True
    how: str = ""


class Changing(Protocol):
    """Protocol of time-varying graphs: all links that are ever active, and a mask for each round.

    Attributes
    ----------
    indptr : int64[n + 1]
    indices : int64[2 * links]
        Neighbors over all links, ascending for each device.
    period : int or None
        Number of rounds after which the graph repeats; None: never.
    """

    @property
    def indptr(self) -> Any: ...  # noqa: D102 - see above

    @property
    def indices(self) -> Any: ...  # noqa: D102

    @property
    def period(self) -> int | None: ...  # noqa: D102

    def active(self, t: int, /) -> Any:
        """Return the mask of active directed edges in round t, bool[2 * links], equal at both ends of a link."""


AnyGraph: TypeAlias = "Graph | CSRGraph | Changing"


def read(graph: AnyGraph) -> CSRGraph:
    """Convert any graph to arrays; for a time-varying graph, with all links that are ever active.

    Raises
    ------
    GraphError
        If `topologies.check` rejects a networkx graph, or if arrays have no devices or invalid weights.
    """
    if isinstance(graph, CSRGraph):
        check_arrays(graph)
        return graph
    # Matrices of SciPy have indptr, too.
    if hasattr(graph, "indptr") and type(graph).__module__.partition(".")[0] != "scipy":
        return CSRGraph(graph.indptr, graph.indices, getattr(graph, "weights", None))
    check(graph)
    return CSRGraph.from_networkx(graph)


def count_links(links: CSRGraph) -> Integers:
    """Return the degree of each device, int64[n]."""
    import numpy as np

    return np.diff(links.indptr)


def count_active(links: CSRGraph, active: Mask | None) -> Integers:
    """Count the active links of each device, int64[n]; None: all are active."""
    import numpy as np

    return count_links(links) if active is None else np.bincount(find_sources(links)[active], minlength=len(links))


def find_sources(links: CSRGraph) -> Integers:
    """Return the source device of each directed edge, int64[2 * links]."""
    import numpy as np

    return np.repeat(np.arange(len(links)), np.diff(links.indptr))


def to_matrix(links: CSRGraph, values: Any = None) -> Any:
    """Build the adjacency matrix with values of the directed edges (None: 1), csr_array[n, n]."""
    import numpy as np
    from scipy.sparse import csr_array

    kind = np.int32 if len(links.indices) < 2**31 else np.int64
    data = np.ones(len(links.indices)) if values is None else values
    return csr_array((data, links.indices.astype(kind), links.indptr.astype(kind)), (len(links), len(links)))
