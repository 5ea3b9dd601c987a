"""Checks of graphs: directed links, self-loops, parallel links, invalid weights, invalid mixing matrices."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from topologies.csr_graph import CSRGraph, sources
from topologies.errors import GraphError
from topologies.validation import (
    LARGEST_WEIGHT,
    LEAST_WEIGHT,
    LOOPS,
    PARALLEL,
    UNDIRECTED,
    Graph,
    check_weight,
    check_weight_ratio,
    require_integer,
)

if TYPE_CHECKING:
    from topologies.csr_graph import Floats, Integers
else:
    Integers = Floats = Any  # numpy is imported when a graph is checked, not before


CHECKED = 32  # rounds of a time-varying graph that are checked before a run
_ROUNDING = 1e-9  # tolerance for the symmetry of shares and for their sum
_MATRIX = (
    "The mixing matrix must be symmetric and doubly stochastic: shares are at least 0, and those of a device's "
    "neighbors add up to at most 1"
)
_FEW = 1 << 17  # links below which sorting takes less time than the import of scipy


def check(graph: Graph) -> None:
    """Check that a graph is undirected, without parallel links and self-loops, and has valid weights.

    Parameters
    ----------
    graph : networkx.Graph, CSRGraph or TimeVaryingGraph
        The edge attribute `weight` (default 1, dimensionless) must be a finite number above 0. For time-varying graphs,
        the active links and the mixing matrix of up to 32 rounds are checked too: they must be symmetric, and the
        matrix doubly stochastic. The families in `TIME_VARYING` are valid by construction.

    Raises
    ------
    GraphError
        If a check fails; the message names the first link that is invalid, and a remedy.

    Examples
    --------
    >>> import topologies
    >>> topologies.check(topologies.ring(5))
    """
    if hasattr(graph, "union"):
        return _check_varying(graph)
    return (_check_csr if isinstance(graph, CSRGraph) else _check_networkx)(graph)


def _check_networkx(graph: Graph) -> None:
    if not hasattr(graph, "is_directed") or not hasattr(graph, "edges"):
        raise GraphError(
            f"graph has the type {type(graph).__name__}; expected a networkx.Graph or a graph of this package, "
            "such as topologies.build('ring', 8), or for a run a graph of igraph or an adjacency matrix"
        )
    if graph.is_directed():
        raise GraphError(f"the graph is directed; {UNDIRECTED}, for example graph.to_undirected()")
    if not len(graph):
        raise GraphError("the graph has no nodes; expected at least one, as in topologies.build('ring', 8)")
    # networkx lists parallel links from the same end, so (u, v) alone identifies them.
    seen: set[tuple[object, object]] = set()
    low, high = LARGEST_WEIGHT, LEAST_WEIGHT
    for u, v, weight in graph.edges(data="weight", default=1):
        if u == v:
            raise GraphError(f"node {u!r} has a link to itself. {LOOPS}")
        if (u, v) in seen:
            raise GraphError(f"nodes {u!r} and {v!r} are linked more than once. {PARALLEL}")
        if graph.is_multigraph():
            seen.add((u, v))
        check_weight(weight, f"link {u!r} - {v!r}")
        low, high = min(low, float(weight)), max(high, float(weight))
    check_weight_ratio(low, high)


def _check_csr(graph: CSRGraph) -> None:
    """Check that the arrays describe an undirected graph without self-loops, see `topologies.check`."""
    import numpy as np

    n = len(graph)
    check_arrays(graph)
    indptr = np.asarray(graph.indptr)
    indices = np.asarray(graph.indices)
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise GraphError(
            f"indptr does not divide the {len(indices)} indices into devices; expected ascending numbers from 0 to "
            f"{len(indices)}"
        )
    if len(indices) and (indices.min() < 0 or indices.max() >= n):
        raise GraphError(f"indices reach from {indices.min()} to {indices.max()}; expected devices 0 to {n - 1}")
    source = sources(graph)
    loops = np.flatnonzero(source == indices)
    if len(loops):
        raise GraphError(f"device {source[loops[0]]} has a link to itself. Remove it")
    ascends = np.diff(indices) > 0
    # Between the last neighbor of a device and the first one of the next, any order is valid.
    ascends[indptr[(indptr > 0) & (indptr < len(indices))] - 1] = True
    if not ascends.all():
        raise GraphError("the neighbors of a device must be strictly ascending. Sort them, and remove repeated ones")
    _check_symmetry(n, indptr, indices, graph.weights)


def check_arrays(graph: CSRGraph) -> None:
    """Check that a graph has devices, and that all weights are valid; the links are not checked.

    Raises
    ------
    GraphError
        If a check fails.
    """
    import numpy as np

    if not len(graph):
        raise GraphError("the graph has no devices; expected at least one, as in topologies.build('ring', 8)")
    if graph.weights is None:
        return
    values = np.asarray(graph.weights)
    if not (np.isfinite(values) & (values > 0)).all():
        raise GraphError("a weight is not a finite number above 0. Correct it, or remove its link")
    if values.size:
        low, high = float(values.min()), float(values.max())
        check_weight(low, "a link")
        check_weight(high, "a link")
        check_weight_ratio(low, high)


def _check_symmetry(n: int, indptr: Integers, indices: Integers, weights: Floats | None) -> None:
    """Check the weights, and that links and weights are the same at both ends."""
    import numpy as np

    values = np.ones(len(indices), np.int8) if weights is None else np.asarray(weights)
    if values.shape != indices.shape:
        raise GraphError(f"the number of weights is {values.size}; expected {indices.size}, one for each index")
    transposed_indptr, transposed_indices, transposed_values = _transpose(n, indptr, indices, values)
    if (transposed_indptr != indptr).any() or (transposed_indices != indices).any():
        raise GraphError(f"a link is listed at one of its ends only; {UNDIRECTED}: list it at both")
    if (transposed_values != values).any():
        raise GraphError(f"the ends of a link have different weights; {UNDIRECTED}")


def _check_varying(graph: Any) -> None:
    """Check the period, and the active links and mixing matrices of the first rounds."""
    if graph.period is not None:
        require_integer(graph.period, "the period of the graph", 1)
    check(graph.union)
    if graph.checked:
        return
    opposite = find_opposite(graph.union)
    for turn in range(min(graph.period or CHECKED, CHECKED)):
        check_round(graph, turn, opposite)


def find_opposite(graph: CSRGraph) -> Integers:
    """Find the entry (j, i) of each entry (i, j) of a symmetric graph, int64[2 * links]."""
    import numpy as np

    return np.argsort(graph.indices, kind="stable")


def check_round(graph: Any, turn: int, opposite: Integers) -> None:
    """Check the active links of a round of a time-varying graph, and its custom mixing matrix if it has one.

    Raises
    ------
    GraphError
        If the shape of an array differs from that of the links, values differ at the ends of a link, or shares are
        invalid.
    """
    import numpy as np

    mask = np.asarray(graph.active(turn))
    size = len(graph.indices)
    if mask.shape != (size,) or mask.dtype != np.bool_:
        raise GraphError(f"active({turn}) is of type {mask.dtype} and shape {mask.shape}; expected bool and ({size},)")
    if (mask[opposite] != mask).any():
        raise GraphError(f"active({turn}) differs at the ends of {_name_link(graph, mask[opposite] != mask)}")
    if graph.own_mixing is None:
        return
    shares = np.asarray(graph.own_mixing(turn))
    if shares.shape != (size,) or shares.dtype.kind not in "fiu":
        raise GraphError(
            f"own_mixing({turn}) is of type {shares.dtype} and shape {shares.shape}; expected real numbers and "
            f"({size},), one for each entry of the indices"
        )
    for problem, invalid in _check_shares(shares, mask, opposite):
        if invalid.any():
            value = shares[np.argmax(invalid)]
            link = _name_link(graph, invalid)
            raise GraphError(f"own_mixing({turn}): the share {value} of {link} {problem}. {_MATRIX}")
    sums = np.bincount(sources(graph.union), shares, len(graph.union))
    if (sums > 1 + _ROUNDING).any():
        device = int(np.argmax(sums))
        raise GraphError(f"own_mixing({turn}): the shares of device {device} add up to {sums[device]:g}. {_MATRIX}")


def _check_shares(shares: Any, mask: Any, opposite: Integers) -> Iterator[tuple[str, Any]]:
    """Yield possible problems of shares and the entries that have them."""
    import numpy as np

    # In this order: each check assumes that the previous ones found nothing.
    yield "is not a finite number of at least 0", ~(np.isfinite(shares) & (shares >= 0))
    yield "is above 0, but the link is not active", (shares > 0) & ~mask
    yield "differs from that at the other end", np.abs(shares - shares[opposite]) > _ROUNDING


def _name_link(graph: Any, marked: Any) -> str:
    """Name the link of the first marked entry."""
    import numpy as np

    entry = int(np.argmax(marked))
    return f"link {int(sources(graph.union)[entry])} - {int(graph.indices[entry])}"


def _transpose(n: int, indptr: Integers, indices: Integers, weights: Any) -> tuple[Integers, Integers, Any]:
    """Return the arrays of the graph with all links reversed."""
    import numpy as np

    if len(indices) < _FEW:
        order = np.argsort(indices, kind="stable")
        ends = np.cumsum(np.bincount(indices, minlength=n))
        return np.concatenate(([0], ends)), np.arange(n).repeat(np.diff(indptr))[order], weights[order]
    from scipy.sparse import csr_array

    transposed = csr_array((weights, indices, indptr), (n, n)).tocsc()
    return transposed.indptr, transposed.indices, transposed.data
