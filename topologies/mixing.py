"""Mixing matrices: the weights with which devices average what they receive from their neighbors.

By default these are Metropolis-Hastings weights. Device i proposes link (i, j) of weight w_ij with probability
``q_ij = w_ij / (deg_i + 1) / mean_i``, where mean_i is the mean weight of its deg_i links. With the remaining
probability ``1 / (deg_i + 1)``, it proposes itself. Then ``P_ij = min(q_ij, q_ji)``, and P_ii is 1 minus the other
entries of the row. P is symmetric and doubly stochastic, with ``P_ii >= 1 / (deg_i + 1)``. Only ratios of weights
matter; if all are equal, ``P_ij = 1 / (1 + max(deg_i, deg_j))``.

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
    Bools = Any  # numpy is imported only when a matrix is built


def is_weighted(graph: CSRGraph) -> bool:
    """Return whether links have different weights."""
    return graph.weights is not None and bool((graph.weights != graph.weights[:1]).any())


def mean_link_weights(graph: CSRGraph, active: Bools | None = None) -> Floats:
    """Compute the mean weight of the (active) links of each device, float64[n]; 1 for a device without links."""
    import numpy as np

    source = sources(graph)
    count = len(graph)
    used = np.ones(len(source), np.bool_) if active is None else active
    degrees = np.bincount(source[used], minlength=count)
    weights = np.ones(len(source)) if graph.weights is None else graph.weights
    # Weights are divided before they are added, so that no sum overflows.
    parts = np.where(used, weights / np.maximum(degrees, 1)[source], 0.0)
    return np.where(degrees > 0, np.bincount(source, parts, count), 1.0)


def metropolis_weights(graph: CSRGraph, active: Bools | None = None) -> Floats:
    """Compute the Metropolis-Hastings weight of each entry of `indices`; 0 for inactive links.

    Parameters
    ----------
    graph : CSRGraph
    active : bool[2 * links], optional
        Mask of active links, equal at both ends; None: all.

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

    source = sources(graph)
    target = graph.indices
    degrees = np.diff(graph.indptr) if active is None else np.bincount(source[active], minlength=len(graph))
    if is_weighted(graph):
        means = mean_link_weights(graph, active)
        weights = np.asarray(graph.weights)
        proposed = [weights / means[end] / (1.0 + degrees[end]) for end in (source, target)]
        shares = np.minimum(*proposed)
    else:
        shares = np.maximum(degrees[source], degrees[target]).astype(np.float64)
        shares += 1.0
        np.divide(1.0, shares, out=shares)
    return shares if active is None else np.where(active, shares, 0.0)
