"""Checks of graphs: directed links, self-loops, parallel links, bad weights, bad mixing matrices."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from topologies.csr_graph import CSRGraph, sources
from topologies.errors import GraphError
from topologies.validation import UNDIRECTED, Graph, is_weight, whole

if TYPE_CHECKING:
    from topologies.csr_graph import Floats, Integers
else:
    Integers = Floats = Any  # numpy is imported when a graph is checked, not before


CHECKED = 32  # rounds of a graph that changes which are looked at before a run
_ROUNDING = 1e-9  # by which shares may differ at the ends of a link, or add up to more than 1
_MATRIX = (
    "The mixing matrix has to be symmetric and doubly stochastic: shares of at least 0, those of a device up to 1 in "
    "all; its own share is the rest"
)
_FEW = 1 << 17  # links below which sorting takes less time than the import of scipy


def check(graph: Graph) -> None:
    """Refuse a graph that peers cannot use: directed, with parallel links, self-loops or bad weights.

    Parameters
    ----------
    graph : networkx.Graph, CSRGraph or TimeVaryingGraph
        Edge attribute `weight` (default 1, no unit) has to be a finite number above 0. Of a graph that changes, the
        links in use and the mixing matrix of up to 32 rounds are checked, too: symmetric and doubly stochastic. The
        families in `TIME_VARYING` are so by construction.

    Raises
    ------
    GraphError
        At the first offence found; the message names the link and the remedy.

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
        raise GraphError(f"got {type(graph).__name__}; expected a networkx.Graph or a graph of this package, "
                         "such as topologies.build('ring', 8)")  # fmt: skip
    if graph.is_directed():
        raise GraphError(f"the graph is directed, but {UNDIRECTED}, e.g. graph.to_undirected()")
    seen: set[tuple[object, object]] = set()  # networkx lists parallel links from the same end
    for u, v, weight in graph.edges(data="weight", default=1):
        if u == v:
            raise GraphError(f"node {u!r} has a link to itself; remove it, e.g. graph.remove_edge(u, u)")
        if (u, v) in seen:
            raise GraphError(f"{u!r} and {v!r} are linked more than once; keep one link, e.g. networkx.Graph(graph)")
        if graph.is_multigraph():
            seen.add((u, v))
        if not is_weight(weight):
            raise GraphError(f"the weight of link {u!r} - {v!r} is {weight!r}; expected a finite number above 0")


def _check_csr(graph: CSRGraph) -> None:
    """Refuse arrays that are no undirected graph without self-links; see `topologies.check`."""
    import numpy as np

    n, indptr, indices = len(graph), np.asarray(graph.indptr), np.asarray(graph.indices)
    if n < 1 or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise GraphError(
            f"indptr does not cut the {len(indices)} indices into devices; expected 0, ..., {len(indices)}"
        )
    if len(indices) and (indices.min() < 0 or indices.max() >= n):
        raise GraphError(f"indices reach from {indices.min()} to {indices.max()}; expected devices 0 to {n - 1}")
    source = sources(graph)
    own = np.flatnonzero(source == indices)
    if len(own):
        raise GraphError(f"device {source[own[0]]} has a link to itself; remove it")
    rises = np.diff(indices) > 0
    rises[indptr[(indptr > 0) & (indptr < len(indices))] - 1] = True  # from one device to the next
    if not rises.all():
        raise GraphError("the neighbors of a device are not ascending, each once; sort them, and keep one of each")
    _check_symmetry(n, indptr, indices, graph.weights)


def _check_symmetry(n: int, indptr: Integers, indices: Integers, given: Floats | None) -> None:
    """Refuse bad weights, and links or weights that are not the same at both ends."""
    import numpy as np

    weights = np.ones(len(indices), np.int8) if given is None else np.asarray(given)
    if weights.shape != indices.shape:
        raise GraphError(f"there are {weights.size} weights of {indices.size} indices; give every index its own")
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise GraphError("a weight is not a finite number above 0; correct it, or leave its link out")
    begins, others, turned = _transpose(n, indptr, indices, weights)
    if (begins != indptr).any() or (others != indices).any():
        raise GraphError(f"a link stands at one of its ends only, but {UNDIRECTED}: list it at both")
    if (turned != weights).any():
        raise GraphError(f"the ends of a link have different weights, but {UNDIRECTED}")


def _check_varying(graph: Any) -> None:
    """Reject a period that is not one, and rounds whose links or mixing matrix cannot be used."""
    if graph.period is not None:
        whole(graph.period, "the period of the graph", 1)
    check(graph.union)
    if graph.checked:
        return
    opposite = find_opposite(graph.union)
    for turn in range(min(graph.period or CHECKED, CHECKED)):
        check_round(graph, turn, opposite)


def find_opposite(graph: CSRGraph) -> Integers:
    """Return the entry (j, i) of each entry (i, j) of a symmetric graph, int64[2 * links]."""
    import numpy as np

    return np.argsort(graph.indices, kind="stable")


def check_round(graph: Any, turn: int, opposite: Integers) -> None:
    """Reject a round of a graph that changes: which links are in use, and the mixing matrix if it has its own.

    Raises
    ------
    GraphError
        If the arrays have another shape than the links, differ at the ends of a link, or are no shares.
    """
    import numpy as np

    mask, size = np.asarray(graph.active(turn)), len(graph.indices)
    if mask.shape != (size,) or mask.dtype != np.bool_:
        raise GraphError(f"active({turn}) is of type {mask.dtype} and shape {mask.shape}; expected bool and ({size},)")
    if (mask[opposite] != mask).any():
        raise GraphError(f"active({turn}) differs at the ends of {_tell_link(graph, mask[opposite] != mask)}")
    if graph.own_mixing is None:
        return
    shares = np.asarray(graph.own_mixing(turn))
    if shares.shape != (size,) or shares.dtype.kind not in "fiu":
        raise GraphError(
            f"own_mixing({turn}) is of type {shares.dtype} and shape {shares.shape}; expected real numbers and "
            f"({size},), one for each entry of the indices"
        )
    for reason, where in _list_wrong(shares, mask, opposite):
        if where.any():
            value = shares[np.argmax(where)]
            raise GraphError(f"own_mixing({turn}): the share {value} of {_tell_link(graph, where)} {reason}. {_MATRIX}")
    sums = np.bincount(sources(graph.union), shares, len(graph.union))
    if (sums > 1 + _ROUNDING).any():
        device = int(np.argmax(sums))
        raise GraphError(f"own_mixing({turn}): the shares of device {device} add up to {sums[device]:g}. {_MATRIX}")


def _list_wrong(shares: Any, mask: Any, opposite: Integers) -> Iterator[tuple[str, Any]]:
    """Yield what may be wrong with shares, and where it is; what comes later needs what comes before to be right."""
    import numpy as np

    yield "is not a finite number of at least 0", ~(np.isfinite(shares) & (shares >= 0))
    yield "is above 0, but the link is not in use", (shares > 0) & ~mask
    yield "differs from that at the other end", np.abs(shares - shares[opposite]) > _ROUNDING


def _tell_link(graph: Any, where: Any) -> str:
    """Return which link the first marked entry belongs to."""
    import numpy as np

    entry = int(np.argmax(where))
    return f"link {int(sources(graph.union)[entry])} - {int(graph.indices[entry])}"


def _transpose(n: int, indptr: Integers, indices: Integers, weights: Any) -> tuple[Integers, Integers, Any]:
    """Return the arrays of the graph whose links all point the other way."""
    import numpy as np

    if len(indices) < _FEW:
        order = np.argsort(indices, kind="stable")
        ends = np.cumsum(np.bincount(indices, minlength=n))
        return np.concatenate(([0], ends)), np.arange(n).repeat(np.diff(indptr))[order], weights[order]
    from scipy.sparse import csr_array

    turned = csr_array((weights, indices, indptr), (n, n)).tocsc()
    return turned.indptr, turned.indices, turned.data
