"""Connectivity: the fewest links or devices whose removal disconnects a graph, from maximum flows."""

from typing import Any

from topologies.csr_graph import CSRGraph
from topologies.errors import GraphError
from topologies.measures.types import AnyGraph, Integers, Measure, count_links, find_sources, read

_WORK = 100_000_000  # nodes and arcs of all flows together; beyond, only a sample of the flows is computed
_LARGE = 100_000  # devices; above, only the smallest degree is returned, an upper bound
_DISCONNECTED = "no path between some devices"


def edge_connectivity(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute the fewest links whose removal disconnects the graph.

    It is the smallest degree or the smallest flow from one device of a dominating set to the others: a cut of fewer
    links than the smallest degree has devices of the set on both sides (Esfahanian and Hakimi, "On computing the
    connectivities of graphs and digraphs", 1984). If all flows would take too long, a random sample gives an upper
    bound.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int, default=0
        Seed of the sample of flows.
    """
    import numpy as np

    links = read(graph)
    limit = _limit(links)
    if limit.exact or len(links) > _LARGE:
        return limit
    ends = dominating_set(links)
    pairs = np.column_stack((np.full(len(ends) - 1, ends[0]), ends[1:]))
    return _lower(limit, pairs, _arcs(len(links), find_sources(links), links.indices), seed)


def vertex_connectivity(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute the fewest devices whose removal disconnects the others; n - 1 for a complete graph.

    It is the smallest flow through devices of capacity 1, from a device of smallest degree to the devices that are not
    its neighbors, and between its neighbors (Esfahanian and Hakimi, 1984). If all flows would take too long, a random
    sample gives an upper bound.

    Parameters
    ----------
    graph, seed
        As in `edge_connectivity`.
    """
    import numpy as np

    links = read(graph)
    n = len(links)
    limit = _limit(links)
    if limit.exact or limit.value == n - 1:
        return limit if limit.exact else Measure(limit.value)
    if n > _LARGE:
        return limit
    return _lower(limit, _far_pairs(links) + np.array([n, 0]), _split_devices(links, 1), seed)


def find_cut(graph: AnyGraph, most: int) -> list[int] | None:
    """Find at most `most` devices of a connected graph whose removal disconnects the others.

    Single devices are found in linear time, larger cuts by the flows of `vertex_connectivity`.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    most : int

    Returns
    -------
    list of int or None
        None without such a cut.

    Raises
    ------
    GraphError
        If the flows would take too long.
    """
    import networkx as nx

    links = read(graph)
    n = len(links)
    single = min(nx.articulation_points(links.to_networkx()), default=None)
    if single is not None or most < 2:
        return None if single is None or most < 1 else [int(single)]
    arcs = _split_devices(links, n)
    pairs = _far_pairs(links)
    if len(pairs) * (arcs.shape[0] + 4 * arcs.nnz) > _WORK:
        raise GraphError(f"most is {most}, which would take too long for a graph of {n:,} devices; expected 1")
    for source, sink in pairs.tolist():
        cut = _cut_between(arcs, source, sink, most)
        if cut is not None:
            return cut
    return None


def _cut_between(arcs: Any, source: int, sink: int, most: int) -> list[int] | None:
    """Find at most `most` devices that separate two others, or None; `arcs` are those of `_split_devices`."""
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    n = arcs.shape[0] // 2
    result = maximum_flow(arcs, source + n, sink)
    if result.flow_value > most:
        return None
    residual = csr_array(arcs - result.flow)
    residual.eliminate_zeros()
    reached = np.zeros(2 * n, bool)
    reached[breadth_first_order(residual, source + n, return_predecessors=False)] = True
    # A device is in the cut if its entry is reachable and its exit is not.
    cut: list[int] = np.flatnonzero(reached[:n] & ~reached[n:]).tolist()
    return cut


def _split_devices(links: CSRGraph, capacity: int) -> Any:
    """Build arcs from the entry i to the exit i + n of each device, of capacity 1, and from exits to neighbors."""
    import numpy as np

    n = len(links)
    source = np.concatenate((np.arange(n), find_sources(links) + n))
    target = np.concatenate((np.arange(n) + n, links.indices))
    arcs = _arcs(2 * n, source, target)
    arcs.data[arcs.indices < n] = capacity
    return arcs


def _far_pairs(links: CSRGraph) -> Integers:
    """List pairs without a link, int64[p, 2]; every smallest set that separates any devices separates one of them."""
    import numpy as np

    n = len(links)
    start = int(count_links(links).argmin())
    neighbors = links.indices[links.indptr[start] : links.indptr[start + 1]]
    far = np.setdiff1d(np.arange(n), np.append(neighbors, start))
    first, second = (neighbors[places] for places in np.triu_indices(len(neighbors), 1))
    is_unlinked = ~np.isin(first * n + second, find_sources(links) * n + links.indices)
    from_start = np.column_stack((np.full(len(far), start), far))
    return np.concatenate((from_start, np.column_stack((first, second))[is_unlinked]))


def _limit(links: CSRGraph) -> Measure:
    """Return the smallest degree, an upper bound of both connectivities; exact if it is at most 1."""
    least = int(count_links(links).min())
    if len(links) > 1 and not links.connected:
        return Measure(0, how=_DISCONNECTED)
    how = "an upper bound: the smallest degree"
    return Measure(least, least <= 1, "" if least <= 1 else how)


def _lower(limit: Measure, pairs: Integers, arcs: Any, seed: int) -> Measure:
    """Return the minimum of the limit and the flows between pairs, or between a sample if there are too many."""
    import numpy as np
    from scipy.sparse.csgraph import maximum_flow

    total = len(pairs)
    count = min(len(pairs), _WORK // (arcs.shape[0] + 4 * arcs.nnz))
    if count < total:
        pairs = pairs[np.random.default_rng(seed).permutation(total)[:count]]
    least = int(limit.value or 0)
    for source, sink in pairs.tolist():
        least = min(least, int(maximum_flow(arcs, source, sink).flow_value))
        # The minimum for a connected graph.
        if least == 1:
            return Measure(1)
    if count == total:
        return Measure(least)
    return Measure(least, False, f"an upper bound: the smallest degree and {count:,} of {total:,} flows")


def _arcs(n: int, source: Integers, target: Integers) -> Any:
    """Build arcs of capacity 1 in the format of scipy.sparse.csgraph.maximum_flow."""
    import numpy as np
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(source), np.int32), (source, target)), (n, n))


def dominating_set(links: CSRGraph) -> list[int]:
    """Find a dominating set, in ascending order: every device is in the set or has a neighbor in it."""
    import numpy as np

    covered = np.zeros(len(links), bool)
    chosen = []
    for i in range(len(links)):
        if not covered[i]:
            chosen.append(i)
            covered[i] = True
            covered[links.indices[links.indptr[i] : links.indptr[i + 1]]] = True
    return chosen
