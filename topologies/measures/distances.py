"""Distances in hops: diameter and mean path length, from breadth-first searches."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from topologies.csr_graph import CSRGraph
from topologies.measures.types import EXACT, AnyGraph, Integers, Measure, read, to_matrix

Layers: TypeAlias = Callable[[Integers, Integers, Integers], Integers]

_WORK = 80_000_000  # devices and links that all searches of an estimate may visit
_FEWEST, _MOST = 16, 256  # searches of an estimate, half of them from random devices
_PAIRS = "a single device"


class Distances(NamedTuple):
    """Distances between devices, exact or estimated from some searches.

    Attributes
    ----------
    diameter, mean_path : Measure
    """

    diameter: Measure
    mean_path: Measure


def diameter(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute the largest number of hops between two devices.

    Above 1,000 devices, at most 256 searches are made: half from random devices, then from those whose eccentricity
    bounds are most informative (Takes and Kosters, "Determining the diameter of small world networks", 2011). The
    diameter is exact if the bounds meet. Otherwise it is the largest distance seen, at least half of the diameter.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int, default=0
        Seed of the random devices of an estimate.
    """
    return find_distances(read(graph), seed).diameter


def mean_path(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute the mean number of hops between two devices; above 1,000 devices, from a sample of sources.

    Parameters
    ----------
    graph, seed
        As in `diameter`.
    """
    return find_distances(read(graph), seed).mean_path


def find_distances(links: CSRGraph, seed: int, layers: Layers | None = None) -> Distances:
    """Search from every device or, above 1,000 devices, from a sample and from those that bound the diameter best.

    Parameters
    ----------
    links : CSRGraph
    seed : int
    layers : callable, optional
        Breadth-first search with the interface of `p2pkm.kernels.reference.layers`.
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
    means = np.zeros(sample)
    # Bounds of the eccentricity of every device. A search of eccentricity e at distance h gives max(h, e - h) and e +
    # h.
    low = np.zeros(n, np.int32)
    high = np.full(n, np.iinfo(np.int32).max, np.int32)
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
    """Return the diameter if the bounds meet, else a lower bound."""
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
    """Count the hops to each device of a connected graph, int32[n], and return them with the largest.

    Devices are numbered in the order of the search; then predecessors ascend. A layer ends where the children of the
    previous layer end, so its bounds follow from the cumulative number of children.
    """
    import numpy as np
    from scipy.sparse import csgraph

    order, predecessors = csgraph.breadth_first_order(matrix, source)
    n = len(order)
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    children = np.bincount(place[predecessors[order[1:]]], minlength=n)
    # Devices that are known after the search has visited a place: the source and all children so far.
    known = np.cumsum(children, out=children)
    known += 1
    bounds = [0, 1]
    while bounds[-1] < n:
        bounds.append(int(known[bounds[-1] - 1]))
    hops = np.empty(n, np.int32)
    hops[order] = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    return hops, len(bounds) - 2
