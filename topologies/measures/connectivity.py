"""How many links or devices have to fail before some devices cannot reach each other: largest flows."""

from typing import Any

from topologies.csr_graph import CSRGraph
from topologies.errors import GraphError
from topologies.measures.types import AnyGraph, Integers, Measure, count_links, find_sources, read

_WORK = 100_000_000  # nodes and arcs that all flows together may look at once
_LARGE = 100_000  # devices; above, only the smallest degree is given
_APART = "no path between some devices"


def edge_connectivity(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return the fewest links whose loss separates some devices.

    The smallest degree, or the smallest flow from one device of a dominating set to the others, which no smaller cut
    can leave on one side (Esfahanian and Hakimi, "On computing the connectivities of graphs and digraphs", 1984). Where
    the flows would take long, a random part of them: then an upper bound.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int
        Of the flows that are drawn for an estimate.
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
    """Return the fewest devices whose loss separates others; n - 1 of a complete graph.

    The smallest flow through devices of capacity 1 from a device of smallest degree to those that it is not linked
    with, and between its neighbors (Esfahanian and Hakimi, 1984). Where the flows would take long, a random part of
    them: then an upper bound.

    Parameters
    ----------
    graph, seed
        As of `edge_connectivity`.
    """
    import numpy as np

    links = read(graph)
    n, limit = len(links), _limit(links)
    if limit.exact or limit.value == n - 1:
        return limit if limit.exact else Measure(limit.value)
    if n > _LARGE:
        return limit
    return _lower(limit, _far_pairs(links) + np.array([n, 0]), _through(links, 1), seed)


def find_cut(graph: AnyGraph, most: int) -> list[int] | None:
    """Return at most so many devices of a connected graph whose loss separates others, None if there are none.

    Single devices are found in linear time; larger cuts by the flows of `vertex_connectivity`.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    most : int

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
    arcs, pairs = _through(links, n), _far_pairs(links)
    if len(pairs) * (arcs.shape[0] + 4 * arcs.nnz) > _WORK:
        raise GraphError(
            f"whether {most} devices cut a graph of {n:,} devices would take too long to find out; ask for 1"
        )
    for source, sink in pairs.tolist():
        cut = _cut_between(arcs, source, sink, most)
        if cut is not None:
            return cut
    return None


def _cut_between(arcs: Any, source: int, sink: int, most: int) -> list[int] | None:
    """Return at most so many devices that separate two others, None if it takes more; arcs: through and between."""
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    n = arcs.shape[0] // 2
    found = maximum_flow(arcs, source + n, sink)
    if found.flow_value > most:
        return None
    left = csr_array(arcs - found.flow)
    left.eliminate_zeros()
    reached = np.zeros(2 * n, bool)
    reached[breadth_first_order(left, source + n, return_predecessors=False)] = True
    cut: list[int] = np.flatnonzero(reached[:n] & ~reached[n:]).tolist()
    return cut


def _through(links: CSRGraph, capacity: int) -> Any:
    """Return arcs from i through it to i + n, of capacity 1, and from there to its neighbors."""
    import numpy as np

    n = len(links)
    source = np.concatenate((np.arange(n), find_sources(links) + n))
    target = np.concatenate((np.arange(n) + n, links.indices))
    arcs = _arcs(2 * n, source, target)
    arcs.data[arcs.indices < n] = capacity
    return arcs


def _far_pairs(links: CSRGraph) -> Integers:
    """Return pairs without a link of which every smallest set that separates devices separates one, int64[p, 2]."""
    import numpy as np

    n = len(links)
    start = int(count_links(links).argmin())
    near = links.indices[links.indptr[start] : links.indptr[start + 1]]
    far = np.setdiff1d(np.arange(n), np.append(near, start))
    one, other = (near[places] for places in np.triu_indices(len(near), 1))
    apart = ~np.isin(one * n + other, find_sources(links) * n + links.indices)
    return np.concatenate((np.column_stack((np.full(len(far), start), far)), np.column_stack((one, other))[apart]))


def _limit(links: CSRGraph) -> Measure:
    """Return the smallest degree, which is at least either connectivity; exact where it has to be equal."""
    least = int(count_links(links).min())
    if len(links) > 1 and not links.connected:
        return Measure(0, how=_APART)
    how = "an upper bound: the smallest degree"
    return Measure(least, least <= 1, "" if least <= 1 else how)


def _lower(limit: Measure, pairs: Integers, arcs: Any, seed: int) -> Measure:
    """Return the smallest of the limit and the flows between pairs, as many as the work allows."""
    import numpy as np
    from scipy.sparse.csgraph import maximum_flow

    total, count = len(pairs), min(len(pairs), _WORK // (arcs.shape[0] + 4 * arcs.nnz))
    if count < total:
        pairs = pairs[np.random.default_rng(seed).permutation(total)[:count]]
    least = int(limit.value or 0)
    for source, sink in pairs.tolist():
        least = min(least, int(maximum_flow(arcs, source, sink).flow_value))
        if least == 1:  # a connected graph cannot have less
            return Measure(1)
    if count == total:
        return Measure(least)
    return Measure(least, False, f"an upper bound: the smallest degree and {count:,} of {total:,} flows")


def _arcs(n: int, source: Integers, target: Integers) -> Any:
    """Return arcs of capacity 1 as scipy's flows want them."""
    import numpy as np
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(source), np.int32), (source, target)), (n, n))


def dominating_set(links: CSRGraph) -> list[int]:
    """Find a dominating set, in ascending order: every device is in the set or has a neighbor in it."""
    import numpy as np

    covered, chosen = np.zeros(len(links), bool), []
    for i in range(len(links)):
        if not covered[i]:
            chosen.append(i)
            covered[i] = True
            covered[links.indices[links.indptr[i] : links.indptr[i + 1]]] = True
    return chosen
