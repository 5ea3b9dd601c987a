"""Mixing matrices: the weights with which devices average what they receive from their neighbors.

By default these are the weights of Metropolis and Hastings. Device i proposes link (i, j), of weight w_ij, with
probability ``q_ij = w_ij / (deg_i + 1) / mean_i``, where mean_i is the mean weight of its deg_i links, so that it stays
where it is with probability 1 / (deg_i + 1). Then ``P_ij = min(q_ij, q_ji)`` and P_ii is what is missing to 1: P is
symmetric and doubly stochastic, with P_ii >= 1 / (deg_i + 1). Weights count relative to each other alone; where all are
equal, ``P_ij = 1 / (1 + max(deg_i, deg_j))``.

W. K. Hastings, "Monte Carlo sampling methods using Markov chains and their applications", Biometrika 57, 1970, with the
uniform distribution as target; S. Boyd, P. Diaconis, L. Xiao, "Fastest mixing Markov chain on a graph", SIAM Review 46,
2004, section 1.2.
"""

from typing import TYPE_CHECKING, Any

from topologies.csr_graph import CSRGraph, Floats, sources

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray

    Bools = NDArray[bool_]
else:
    Bools = Any  # numpy is imported when a matrix is built, not before


def is_weighted(graph: CSRGraph) -> bool:
    """Return whether links have different weights."""
    return graph.weights is not None and bool((graph.weights != graph.weights[:1]).any())


def mean_link_weights(graph: CSRGraph, active: Bools | None = None) -> Floats:
    """Return the mean weight of the (active) links of each device, float64[n]; 1 of a device without links."""
    import numpy as np

    source, count = sources(graph), len(graph)
    used = np.ones(len(source), np.bool_) if active is None else active
    degrees = np.bincount(source[used], minlength=count)
    weights = np.ones(len(source)) if graph.weights is None else graph.weights
    # divided before they are added up, so that no sum overflows
    parts = np.where(used, weights / np.maximum(degrees, 1)[source], 0.0)
    return np.where(degrees > 0, np.bincount(source, parts, count), 1.0)


def metropolis_weights(graph: CSRGraph, active: Bools | None = None) -> Floats:
    """Return the weights of Metropolis and Hastings at each entry of `indices`; 0 where a link is not active.

    Parameters
    ----------
    graph : CSRGraph
    active : bool[2 * links], optional
        Which links are in use, the same at both ends; None: all.

    Returns
    -------
    float64[2 * links]

    Examples
    --------
    >>> import topologies
    >>> path = topologies.CSRGraph.from_networkx(topologies.path(3))
    >>> topologies.metropolis_weights(path).round(3).tolist()  # 0 - 1, 1 - 0, 1 - 2, 2 - 1
    [0.333, 0.333, 0.333, 0.333]
    """
    import numpy as np

    source, target = sources(graph), graph.indices
    degrees = np.diff(graph.indptr) if active is None else np.bincount(source[active], minlength=len(graph))
    if is_weighted(graph):
        means, weights = mean_link_weights(graph, active), np.asarray(graph.weights)
        proposed = [weights / means[end] / (1.0 + degrees[end]) for end in (source, target)]
        shares = np.minimum(*proposed)
    else:
        shares = 1.0 / (1.0 + np.maximum(degrees[source], degrees[target]))
    return shares if active is None else np.where(active, shares, 0.0)
