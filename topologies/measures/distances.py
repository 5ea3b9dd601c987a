"""How far it is: numbers of hops, from searches breadth first."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from topologies.csr_graph import CSRGraph
from topologies.measures.types import EXACT, AnyGraph, Integers, Measure, read, to_matrix

Layers: TypeAlias = Callable[[Integers, Integers, Integers], Integers]

_WORK = 80_000_000  # devices and links that the searches of an estimate may look at
_FEWEST, _MOST = 16, 256  # searches of an estimate, half of them from random devices
_PAIRS = "a single device has no pairs"


class Distances(NamedTuple):
    """What searches from some devices found, or from all.

    Attributes
    ----------
    diameter, mean_path : Measure
    """

    diameter: Measure
    mean_path: Measure


def diameter(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return the largest number of hops between two devices.

    Above 1,000 devices from at most 256 searches, random ones first, then those that the bounds on what is known of
    every device point to (Takes and Kosters, "Determining the diameter of small world networks", 2011): exact if the
    bounds meet, else the largest distance seen, which is at least half of the diameter.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int
        Of the random devices of an estimate.
    """
    return find_distances(read(graph), seed).diameter


def mean_path(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return the mean number of hops between two devices; above 1,000 devices from a sample of sources.

    Parameters
    ----------
    graph, seed
        As of `diameter`.
    """
    return find_distances(read(graph), seed).mean_path


def find_distances(links: CSRGraph, seed: int, layers: Layers | None = None) -> Distances:
    """Search from every device, or from a sample of them and those that bound the diameter best.

    Parameters
    ----------
    links : CSRGraph
    seed : int
    layers : callable, optional
        Searches breadth first, as `p2pkm.kernels.reference.layers` does.
    """
    import numpy as np

    n = len(links)
    if not links.connected:
        nowhere = Measure(math.inf, how="no path between some devices")
        return Distances(nowhere, nowhere)
    searches = n if n <= EXACT else int(np.clip(_WORK // (n + len(links.indices)), _FEWEST, _MOST))
    sample = n if n <= EXACT else searches // 2
    first = np.random.default_rng(seed).permutation(n)[:sample] if sample < n else np.arange(n)
    matrix = None if layers else to_matrix(links)
    means, low, high = np.zeros(sample), np.zeros(n, np.int32), np.full(n, np.iinfo(np.int32).max, np.int32)
    for number in range(searches):
        if number >= sample and (number % 2 or low.max() >= high.max()):
            source = int(high.argmax())
        else:
            source = int(first[number]) if number < sample else int(np.where(high > low, low, n).argmin())
        if layers:
            hops = layers(links.indptr, links.indices, np.array([source])).astype(np.int32)
            last = int(hops.max())
        else:
            hops, last = _search(matrix, source)
        if number < sample:
            means[number] = hops.sum(dtype=np.int64) / max(n - 1, 1)
        np.maximum(low, np.maximum(hops, last - hops), out=low)
        np.minimum(high, last + hops, out=high)
        low[source] = high[source] = last
        if number >= sample and low.max() >= high.max():
            break
    return Distances(_bound(int(low.max()), int(high.max()), number + 1), estimate_mean_path(n, means))


def _bound(seen: int, most: int, searches: int) -> Measure:
    """Return the diameter, or the largest distance seen."""
    if most <= seen:
        return Measure(seen)
    return Measure(seen, False, f"a lower bound from {searches} searches; at most {most}")


def estimate_mean_path(n: int, means: Any) -> Measure:
    """Estimate the mean path length of n devices from the mean distances float64[s] of the sampled sources."""
    import numpy as np

    if n == 1:
        return Measure(None, how=_PAIRS)
    if len(means) == n:
        return Measure(float(means.mean()))
    spread = float(means.std(ddof=1)) * np.sqrt((1 - len(means) / n) / len(means))
    return Measure(float(means.mean()), False, f"{len(means)} random sources; standard error {spread:.2g}")


def _search(matrix: Any, source: int) -> tuple[Any, int]:
    """Return the number of hops to each device, int32[n], and the largest; the graph is connected.

    The order of a search is known with each device's place of its predecessor, which only rises: so a layer ends where
    the predecessors of the next one do.
    """
    import numpy as np
    from scipy.sparse import csgraph

    order, before = csgraph.breadth_first_order(matrix, source)
    n = len(order)
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    children = np.bincount(place[before[order[1:]]], minlength=n)
    found = np.cumsum(children, out=children)
    found += 1  # so many devices are known once this place was looked at
    bounds = [0, 1]
    while bounds[-1] < n:
        bounds.append(int(found[bounds[-1] - 1]))
    hops = np.empty(n, np.int32)
    hops[order] = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    return hops, len(bounds) - 2
