"""Load of devices if messages take shortest paths: betweenness of the busiest device."""

import math
from typing import Any, NamedTuple

from topologies.csr_graph import CSRGraph
from topologies.measures.types import AnyGraph, Floats, Integers, Measure, count_links, read

_WORK = 16_000_000  # links that all searches of an estimate may visit
_LARGE = 100_000  # devices; above, the few possible searches would not identify the busiest device
_LAYER = 500  # fixed cost of a layer of a search, in visited links
_CELLS, _LINKS = 2_000_000, 2_000_000  # devices and links of all simultaneous searches


def path_load(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute the share of shortest paths between two other devices that contain the busiest device.

    It is the largest betweenness (Freeman, "A set of measures of centrality based on betweenness", 1977), computed by
    the sums of Brandes ("A faster algorithm for betweenness centrality", 2001): 1 at the hub of a star, 0 in a complete
    graph. Several shortest paths between two devices count equally, with sum 1. If searches from all devices would take
    too long, some random searches identify the busiest device, and others estimate its load. Above 100,000 devices,
    the value is None.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int, default=0
        Seed of the random devices of an estimate.
    """
    import numpy as np

    links = read(graph)
    n = len(links)
    if n < 3:
        return Measure(None, how="fewer than three devices")
    if n > _LARGE:
        return Measure(None, how=f"not computed above {_LARGE:,} devices")
    order = np.random.default_rng(seed).permutation(n)
    search = build_search(links)
    through = np.zeros(n)
    done = 0
    for loads in search.run(order, _WORK):
        through += loads.sum(axis=0)
        done += len(loads)
    # If the last device is the busiest one, no source would remain for the estimate of its load.
    if done == n - 1:
        through += next(search.run(order[done:])).sum(axis=0)
        done = n
    pairs = float((n - 1) * (n - 2))
    hub = int(through.argmax())
    if done == n:
        return Measure(float(through[hub]) / pairs)
    # New sources, because the device was selected by the largest load of the previous ones.
    remaining = order[done:]
    # Messages of the busiest device itself do not pass through it.
    remaining = remaining[remaining != hub]
    hub_loads = np.concatenate([loads[:, hub] for loads in search.run(remaining, _WORK)]) * ((n - 1) / pairs)
    spread = float(hub_loads.std(ddof=1)) / math.sqrt(len(hub_loads)) if len(hub_loads) > 1 else math.inf
    how = f"busiest of {done:,} random sources, load from {len(hub_loads):,} others; standard error {spread:.2g}"
    return Measure(float(hub_loads.mean()), False, how)


def build_search(links: CSRGraph) -> "BreadthFirstSearch":
    """Build the searches of a graph."""
    return BreadthFirstSearch(len(links), links.indptr, links.indices, count_links(links))


class BreadthFirstSearch(NamedTuple):
    """Simultaneous breadth-first searches in a graph from several sources."""

    n: int
    indptr: Integers
    indices: Integers
    degrees: Integers

    def run(self, sources: Integers, most: float = math.inf) -> Any:
        """Yield, for blocks of sources, the share of their messages that passes through each device, float64[s, n].

        Stops after all sources, or after more than `most` visited links.
        """
        step = max(1, min(_CELLS // self.n, _LINKS // max(len(self.indices), 1)))
        work = 0
        for first in range(0, len(sources), step):
            loads, visited = self._search(sources[first : first + step])
            yield loads
            work += visited
            if work > most:
                return

    def _search(self, sources: Integers) -> tuple[Floats, int]:
        """Compute the load of each device by each source, float64[s, n], and count the visited links."""
        import numpy as np

        # A cell is a device in the search of a source.
        cells = len(sources) * self.n
        depth = np.full(cells, -1, np.int32)
        n_paths = np.zeros(cells)
        front = np.arange(len(sources)) * self.n + sources
        depth[front] = 0
        n_paths[front] = 1.0
        fronts = [front]
        mark = np.zeros(cells, np.int64)
        visited = 0
        remaining = cells - len(sources)
        # The last layer is not expanded.
        while len(front) and remaining:
            origin, target = self._expand(front)
            visited += len(target)
            fresh = depth[target] < 0
            origin, target = origin[fresh], target[fresh]
            np.add.at(n_paths, target, n_paths[front][origin])
            # Keep one of several occurrences of a cell: the last one written.
            places = np.arange(len(target))
            mark[target] = places
            front = target[mark[target] == places]
            depth[front] = len(fronts)
            fronts.append(front)
            remaining -= len(front)
        passed = np.zeros(cells)
        for level in range(len(fronts) - 2, -1, -1):
            front = fronts[level]
            origin, target = self._expand(front)
            onward = depth[target] == level + 1
            origin, target = origin[onward], target[onward]
            share = np.bincount(origin, (1 + passed[target]) / n_paths[target], len(front))
            passed[front] = n_paths[front] * share
        # Messages that a source sends do not count as its load.
        passed[fronts[0]] = 0.0
        return passed.reshape(len(sources), self.n), visited + _LAYER * len(fronts)

    def _expand(self, front: Integers) -> tuple[Integers, Integers]:
        """List the cells of all neighbors of a front, with the place of their origin in the front."""
        import numpy as np

        node = front % self.n
        counts = self.degrees[node]
        origin = np.repeat(np.arange(len(front)), counts)
        before = np.cumsum(counts) - counts
        entry = np.arange(len(origin)) + np.repeat(self.indptr[:-1][node] - before, counts)
        return origin, self.indices[entry] + (front - node)[origin]
