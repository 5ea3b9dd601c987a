"""Measures of the devices' own links: degrees, triangles, the busiest device."""

from typing import NamedTuple

from topologies.csr_graph import CSRGraph
from topologies.measures.types import EXACT, AnyGraph, Measure, count_links, find_sources, read, to_matrix

_PAIRS = 200_000  # of neighbors that an estimate draws


class Degrees(NamedTuple):
    """The numbers of links of the devices."""

    min: Measure
    mean: Measure
    max: Measure


def degrees(graph: AnyGraph) -> Degrees:
    """Return the smallest, the mean and the largest number of links of a device."""
    found = count_links(read(graph))
    return Degrees(Measure(int(found.min())), Measure(float(found.mean())), Measure(int(found.max())))


def hub_load(graph: AnyGraph) -> Measure:
    """Return which share of all messages of an exchange begins or ends at the busiest device.

    When every device sends to all neighbors a device sends and receives 2 deg_i of 2 links messages: so this is the
    largest degree over the number of links, 1 at the hub of a star and 2 / n where all degrees are equal.
    """
    links = read(graph)
    if not len(links.indices):
        return Measure(None, how="there are no links")
    return Measure(int(count_links(links).max()) / links.number_of_edges())


def clustering(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return the mean over devices of the share of pairs of neighbors that are linked; 0 with fewer than two.

    Watts and Strogatz, "Collective dynamics of 'small-world' networks", 1998. Above 1,000 devices from 200,000 random
    devices and a random pair of neighbors of each.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int
        Of the random devices and pairs of an estimate.
    """
    links = read(graph)
    return _count_triangles(links) if len(links) <= EXACT else _sample_triangles(links, seed)


def _count_triangles(links: CSRGraph) -> Measure:
    import numpy as np

    matrix, found = to_matrix(links).toarray(), count_links(links)
    closed = np.einsum("ij,ij->i", matrix @ matrix, matrix)
    pairs = found * (found - 1)
    return Measure(float(np.mean(np.where(pairs > 0, closed / np.maximum(pairs, 1), 0.0))))


def _sample_triangles(links: CSRGraph, seed: int) -> Measure:
    import numpy as np

    n, found, draw = len(links), count_links(links), np.random.default_rng(seed)
    if not (found > 1).any():
        return Measure(0.0)
    devices = draw.integers(n, size=_PAIRS)
    devices = devices[found[devices] > 1]  # the others add 0
    one = draw.integers(found[devices])
    other = (one + draw.integers(1, found[devices])) % found[devices]
    one, other = (links.indices[links.indptr[devices] + place] for place in (one, other))
    keys, wanted = find_sources(links) * n + links.indices, one * n + other
    linked = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
    share = int(linked.sum()) / _PAIRS
    likely = (int(linked.sum()) + 1) / (_PAIRS + 2)  # never 0 or 1: what was not seen may still be there
    spread = float(np.sqrt(likely * (1 - likely) / _PAIRS))
    return Measure(share, False, f"{_PAIRS:,} random pairs of neighbors; standard error {spread:.2g}")
