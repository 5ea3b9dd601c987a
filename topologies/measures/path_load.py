"""How much goes through whom, if messages take the shortest way."""

import math
from typing import Any, NamedTuple

from topologies.csr_graph import CSRGraph
from topologies.measures.types import AnyGraph, Floats, Integers, Measure, count_links, read

_WORK = 16_000_000  # links that all searches of an estimate may look at
_LARGE = 100_000  # devices; above, few searches would be possible, and they send little about the busiest device
_LAYER = 500  # links that could be looked at in the time that a layer of a search takes by itself
_CELLS, _LINKS = 2_000_000, 2_000_000  # of the searches that are made side by side


def path_load(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return which share of the shortest paths between two others passes through the busiest device.

    The largest betweenness (Freeman, "A set of measures of centrality based on betweenness", 1977), by the sums of
    Brandes ("A faster algorithm for betweenness centrality", 2001): 1 at the hub of a star, 0 where all are linked.
    Of several shortest paths each counts its part. Where searches from all devices would take long, some random ones
    identify the busiest, and others how busy it is; none above 100,000 devices.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int
        Of the random devices of an estimate.
    """
    import numpy as np

    links = read(graph)
    n = len(links)
    if n < 3:
        return Measure(None, how="fewer than three devices")
    if n > _LARGE:
        return Measure(None, how=f"not looked for above {_LARGE:,} devices")
    order = np.random.default_rng(seed).permutation(n)
    walk = start(links)
    through, done = np.zeros(n), 0
    for found in walk.go(order, _WORK):
        through += found.sum(axis=0)
        done += len(found)
    if done == n - 1:  # the last may be the busiest, and then no other is left
        through += next(walk.go(order[done:])).sum(axis=0)
        done = n
    pairs = float((n - 1) * (n - 2))
    hub = int(through.argmax())
    if done == n:
        return Measure(float(through[hub]) / pairs)
    rest = order[done:]
    rest = rest[rest != hub]  # what the busiest sends does not pass through itself
    others = np.concatenate([found[:, hub] for found in walk.go(rest, _WORK)]) * ((n - 1) / pairs)
    spread = float(others.std(ddof=1)) / math.sqrt(len(others)) if len(others) > 1 else math.inf
    told = f"of the busiest by {done:,} random sources, by {len(others):,} others; standard error {spread:.2g}"
    return Measure(float(others.mean()), False, told)


def start(links: CSRGraph) -> "BreadthFirstSearch":
    """Return what searches a graph."""
    return BreadthFirstSearch(len(links), links.indptr, links.indices, count_links(links))


class BreadthFirstSearch(NamedTuple):
    """Searches breadth first over a graph, with its degrees."""

    n: int
    indptr: Integers
    indices: Integers
    degrees: Integers

    def go(self, sources: Integers, most: float = math.inf) -> Any:
        """Yield for some sources at a time how much of what they send passes through each device, float64[s, n].

        It ends when there are no more, or when more than so many links have been looked at.
        """
        step = max(1, min(_CELLS // self.n, _LINKS // max(len(self.indices), 1)))
        work = 0
        for first in range(0, len(sources), step):
            found, looked = self._search(sources[first : first + step])
            yield found
            work += looked
            if work > most:
                return

    def _search(self, sources: Integers) -> tuple[Floats, int]:
        """Return what passes through each device, float64[s, n], and how many links were looked at for it."""
        import numpy as np

        cells = len(sources) * self.n
        depth, ways = np.full(cells, -1, np.int32), np.zeros(cells)
        front = np.arange(len(sources)) * self.n + sources
        fronts, mark, looked, left = [front], np.zeros(cells, np.int64), 0, cells - len(sources)
        depth[front], ways[front] = 0, 1.0
        while len(front) and left:  # the last devices need not look for others
            origin, target = self._spread(front)
            looked += len(target)
            fresh = depth[target] < 0
            origin, target = origin[fresh], target[fresh]
            np.add.at(ways, target, ways[front][origin])
            places = np.arange(len(target))
            mark[target] = places
            front = target[mark[target] == places]  # each once
            depth[front] = len(fronts)
            fronts.append(front)
            left -= len(front)
        passed = np.zeros(cells)
        for level in range(len(fronts) - 2, -1, -1):
            front = fronts[level]
            origin, target = self._spread(front)
            onward = depth[target] == level + 1
            origin, target = origin[onward], target[onward]
            share = np.bincount(origin, (1 + passed[target]) / ways[target], len(front))
            passed[front] = ways[front] * share
        passed[fronts[0]] = 0.0  # a source does not pass on what it sends itself
        return passed.reshape(len(sources), self.n), looked + _LAYER * len(fronts)

    def _spread(self, front: Integers) -> tuple[Integers, Integers]:
        """Return the cells of all neighbors, and the place in the front of the cell that each is a neighbor of."""
        import numpy as np

        node = front % self.n
        counts = self.degrees[node]
        origin = np.repeat(np.arange(len(front)), counts)
        before = np.cumsum(counts) - counts
        entry = np.arange(len(origin)) + np.repeat(self.indptr[:-1][node] - before, counts)
        return origin, self.indices[entry] + (front - node)[origin]
