"""Local measures of graphs: degrees, clustering, and the load of the busiest device."""

from typing import NamedTuple

from topologies.csr_graph import CSRGraph
from topologies.measures.types import EXACT, AnyGraph, Measure, count_links, read, to_matrix

_PAIRS = 200_000  # pairs of neighbors that an estimate draws


class Degrees(NamedTuple):
    """Smallest, mean and largest number of links per device."""

    min: Measure
    mean: Measure
    max: Measure


def degrees(graph: AnyGraph) -> Degrees:
    """Compute the smallest, mean and largest number of links per device."""
    counts = count_links(read(graph))
    return Degrees(Measure(int(counts.min())), Measure(float(counts.mean())), Measure(int(counts.max())))


def hub_load(graph: AnyGraph) -> Measure:
    """Compute the share of all messages of an exchange that begin or end at the busiest device.

    If every device sends to all neighbors, device i sends and receives 2 deg_i of the 2 links messages. So this is the
    largest degree over the number of links: 1 at the hub of a star, 2 / n if all degrees are equal.
    """
    links = read(graph)
    if not len(links.indices):
        return Measure(None, how="no links")
    return Measure(int(count_links(links).max()) / links.number_of_edges())


def clustering(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute the mean share of linked pairs among the neighbors of a device; 0 for fewer than two neighbors.

    Watts and Strogatz, "Collective dynamics of 'small-world' networks", 1998. Above 1,000 devices, it is estimated from
    200,000 random devices and a random pair of neighbors of each.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int, default=0
        Seed of the random devices and pairs of an estimate.
    """
    links = read(graph)
    return _count_triangles(links) if len(links) <= EXACT else _sample_triangles(links, seed)


def _count_triangles(links: CSRGraph) -> Measure:
    import numpy as np

    matrix = to_matrix(links).toarray()
    degrees = count_links(links)
    closed = np.einsum("ij,ij->i", matrix @ matrix, matrix)
    pairs = degrees * (degrees - 1)
    return Measure(float(np.mean(np.where(pairs > 0, closed / np.maximum(pairs, 1), 0.0))))


def _sample_triangles(links: CSRGraph, seed: int) -> Measure:
    import numpy as np

    n = len(links)
    degrees = count_links(links)
    rng = np.random.default_rng(seed)
    if not (degrees > 1).any():
        return Measure(0.0)
    devices = rng.integers(n, size=_PAIRS)
    # Devices with fewer than two neighbors contribute 0.
    devices = devices[degrees[devices] > 1]
    first = rng.integers(degrees[devices])
    second = (first + rng.integers(1, degrees[devices])) % degrees[devices]
    u, v = (links.indices[links.indptr[devices] + place] for place in (first, second))
    # Bisection among the neighbors of u: the first one that is at least v.
    low, high = links.indptr[u], links.indptr[u + 1]
    for _ in range(int(degrees.max()).bit_length()):
        middle = (low + high) // 2
        is_lower = (low < high) & (links.indices[np.minimum(middle, len(links.indices) - 1)] < v)
        low, high = np.where(is_lower, middle + 1, low), np.where(is_lower, high, middle)
    linked = (low < links.indptr[u + 1]) & (links.indices[np.minimum(low, len(links.indices) - 1)] == v)
    share = int(linked.sum()) / _PAIRS
    # Laplace's rule of succession: a share of 0 or 1 would give a standard error of 0.
    smoothed = (int(linked.sum()) + 1) / (_PAIRS + 2)
    spread = float(np.sqrt(smoothed * (1 - smoothed) / _PAIRS))
    return Measure(share, False, f"{_PAIRS:,} random pairs of neighbors; standard error {spread:.2g}")
