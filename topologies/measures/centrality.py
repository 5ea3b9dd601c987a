"""Who sits where in a graph: closeness and betweenness of every device."""

from topologies.measures.path_load import start
from topologies.measures.types import EXACT, AnyGraph, Floats, Integers, read, to_matrix

_SOURCES = 64  # searches of an estimate
_BLOCK = 32_000_000  # distances held at a time


def closeness(graph: AnyGraph, *, seed: int = 0) -> Floats:
    """Return the closeness of every device: the share of the others that it reaches over its mean distance to them.

    That is Wasserman and Faust's form, 0 for a device without links; distances count links. Above 1,000 devices the
    distances are those to 64 random devices (Eppstein and Wang, "Fast approximation of centrality", 2004).

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int
        Of the random devices of an estimate.

    Returns
    -------
    float64[n]
    """
    import numpy as np
    from scipy.sparse import csgraph

    links = read(graph)
    n = len(links)
    sources = _sample(n, seed)
    matrix, total, reached = to_matrix(links), np.zeros(n), np.zeros(n)
    step = max(1, _BLOCK // n)
    for first in range(0, len(sources), step):
        hops = csgraph.shortest_path(matrix, unweighted=True, indices=sources[first : first + step])
        there = np.isfinite(hops) & (hops > 0)
        total += np.where(there, hops, 0.0).sum(axis=0)
        reached += there.sum(axis=0)
    return reached**2 / np.where(total > 0, total, 1.0) / _others(n, sources)


def betweenness(graph: AnyGraph, *, seed: int = 0) -> Floats:
    """Return the betweenness of every device: the share of shortest paths between others that lead over it.

    By the sums of Brandes, see `path_load`; above 1,000 devices from the paths that begin at 64 random devices (Brandes
    and Pich, "Centrality estimation in large networks", 2007).

    Parameters
    ----------
    graph, seed
        As of `closeness`.

    Returns
    -------
    float64[n]
    """
    import numpy as np

    links = read(graph)
    n = len(links)
    sources = _sample(n, seed)
    passed = np.zeros(n)
    for found in start(links).go(sources):
        passed += found.sum(axis=0)
    return passed / (_others(n, sources) * max(n - 2, 1))


def count_within(graph: AnyGraph, hops: int) -> Integers:
    """Return how many other devices each device reaches over at most so many links, int64[n]."""
    import numpy as np
    from scipy.sparse import csgraph

    links = read(graph)
    n, matrix = len(links), to_matrix(links)
    found, step = np.zeros(n, np.int64), max(1, _BLOCK // n)
    for first in range(0, n, step):
        sources = np.arange(first, min(first + step, n))
        near = csgraph.dijkstra(matrix, unweighted=True, indices=sources, limit=float(hops))
        found[sources] = (near <= hops).sum(axis=1) - 1
    return found


def _sample(n: int, seed: int) -> Integers:
    """Return all devices, or of many so many random ones, ascending."""
    import numpy as np

    if n <= EXACT:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:_SOURCES])


def _others(n: int, sources: Integers) -> Floats:
    """Return how many of the sources are other devices than each device; 1 where there is none."""
    import numpy as np

    others = np.full(n, float(len(sources)))
    others[sources] -= 1.0
    return np.maximum(others, 1.0)
