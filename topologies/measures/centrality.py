"""Centrality of devices: closeness, betweenness, and devices within a number of hops."""

from topologies.measures.path_load import build_search
from topologies.measures.types import EXACT, AnyGraph, Floats, Integers, read, to_matrix

_SOURCES = 64  # searches of an estimate
_BLOCK = 32_000_000  # distances in memory at a time


def closeness(graph: AnyGraph, *, seed: int = 0) -> Floats:
    """Compute the closeness of every device: the share of reachable devices, divided by their mean distance in hops.

    This is the form of Wasserman and Faust, 0 for a device without links. Above 1,000 devices, distances to 64 random
    devices are used (Eppstein and Wang, "Fast approximation of centrality", 2004).

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int, default=0
        Seed of the random devices of an estimate.

    Returns
    -------
    float64[n]
    """
    import numpy as np
    from scipy.sparse import csgraph

    links = read(graph)
    n = len(links)
    sources = _sample(n, seed)
    matrix = to_matrix(links)
    total, reached = np.zeros(n), np.zeros(n)
    step = max(1, _BLOCK // n)
    for first in range(0, len(sources), step):
        hops = csgraph.shortest_path(matrix, unweighted=True, indices=sources[first : first + step])
        is_reached = np.isfinite(hops) & (hops > 0)
        total += np.where(is_reached, hops, 0.0).sum(axis=0)
        reached += is_reached.sum(axis=0)
    return reached**2 / np.where(total > 0, total, 1.0) / _count_other_sources(n, sources)


def betweenness(graph: AnyGraph, *, seed: int = 0) -> Floats:
    """Compute the betweenness of every device: the share of shortest paths between other devices that contain it.

    Computed by the sums of Brandes, see `path_load`. Above 1,000 devices, only paths from 64 random devices are used
    (Brandes and Pich, "Centrality estimation in large networks", 2007).

    Parameters
    ----------
    graph, seed
        As in `closeness`.

    Returns
    -------
    float64[n]
    """
    import numpy as np

    links = read(graph)
    n = len(links)
    sources = _sample(n, seed)
    passed = np.zeros(n)
    for loads in build_search(links).run(sources):
        passed += loads.sum(axis=0)
    return passed / (_count_other_sources(n, sources) * max(n - 2, 1))


def count_within(graph: AnyGraph, hops: int) -> Integers:
    """Count the other devices that each device reaches over at most `hops` links, int64[n]."""
    import numpy as np
    from scipy.sparse import csgraph

    links = read(graph)
    n = len(links)
    matrix = to_matrix(links)
    counts = np.zeros(n, np.int64)
    step = max(1, _BLOCK // n)
    for first in range(0, n, step):
        sources = np.arange(first, min(first + step, n))
        distances = csgraph.dijkstra(matrix, unweighted=True, indices=sources, limit=float(hops))
        counts[sources] = (distances <= hops).sum(axis=1) - 1
    return counts


def _sample(n: int, seed: int) -> Integers:
    """Return all devices or, above 1,000 devices, 64 random ones, ascending."""
    import numpy as np

    if n <= EXACT:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:_SOURCES])


def _count_other_sources(n: int, sources: Integers) -> Floats:
    """Count for each device the sources that are other devices; at least 1, because it is a divisor."""
    import numpy as np

    counts = np.full(n, float(len(sources)))
    counts[sources] -= 1.0
    return np.maximum(counts, 1.0)
