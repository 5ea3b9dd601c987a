"""Graphs with at most one link between two nodes: self-loops, parallel links and directions are merged."""

from numbers import Real
from typing import Any

from topologies.errors import GraphError
from topologies.io.reading import Reading
from topologies.validation import LOOPS, PARALLEL, UNDIRECTED, Graph, check_weight

_MEASURED = ("weight", "latency", "bandwidth")  # link attributes with numbers that methods or link models use


def drop_loops(graph: Graph, reading: Reading) -> None:
    """Remove the links of nodes to themselves, unless `reading.loops` refuses them."""
    import networkx

    loops = [] if reading.loops == "refuse" else list(networkx.selfloop_edges(graph, keys=graph.is_multigraph()))
    if loops:
        graph.remove_edges_from(loops)
        reading.remarks.append(f"links of a node to itself left out: {len(loops)}")


def merge_parallel(graph: Graph, reading: Reading) -> Graph:
    """Merge links between the same two nodes, in one direction, as `reading.parallel` says.

    Graphs without parallel links are returned unchanged, and refused ones are reported by later checks.
    """
    import networkx

    if reading.parallel == "refuse" or not graph.is_multigraph():
        return graph
    merged = networkx.DiGraph(**graph.graph) if graph.is_directed() else networkx.Graph(**graph.graph)
    merged.add_nodes_from(graph.nodes(data=True))
    for u, v, data in graph.edges(data=True):
        if merged.has_edge(u, v):
            add_parallel(merged[u][v], data, reading, f"{u!r} - {v!r}")
        else:
            merged.add_edge(u, v, **data)
    tell_merged(graph.number_of_edges(), merged.number_of_edges(), reading)
    return merged


def add_parallel(link: dict[str, Any], other: dict[str, Any], reading: Reading, where: str) -> None:
    """Merge a parallel link into another: the first stays, or weights and bandwidths are added.

    With sums, a link without a weight counts as 1, the latency is the lowest one, and a link without a bandwidth leaves
    the merged one without. Other attributes are those that are listed first.
    """
    if reading.parallel == "first":
        return
    numbers = {name: (link.get(name), other.get(name)) for name in _MEASURED}
    for name, values in numbers.items():
        for value in values:
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise GraphError(f"a link {where} has the {name} {value!r}; expected a number, to merge parallel links")
    weights = [1.0 if weight is None else float(weight) for weight in numbers["weight"]]
    for weight in weights:
        check_weight(weight, f"a link {where}")
    first, second = numbers["bandwidth"]
    bandwidth = None if first is None or second is None else float(first) + float(second)
    latencies = [float(latency) for latency in numbers["latency"] if latency is not None]
    merged = {"weight": sum(weights), "bandwidth": bandwidth, "latency": min(latencies, default=None)}
    for name in _MEASURED:
        link.pop(name, None)
    link |= {name: value for name, value in merged.items() if value is not None}
    for name in other.keys() - {*_MEASURED}:
        link.setdefault(name, other[name])


def tell_merged(listed: int, left: int, reading: Reading) -> None:
    """Add a remark on parallel links that were merged."""
    if listed == left:
        return
    how = "the first of each is kept"
    if reading.parallel == "sum":
        how = "their weights (1 without one) and bandwidths are added, and the lowest latency is kept"
    reading.remarks.append(f"parallel={reading.parallel}: {listed} links are merged into {left}; {how}")


def merge_directions(graph: Graph, reading: Reading) -> Graph:
    """Convert a directed graph to an undirected one, as `reading.directed` says.

    A link of the result is listed in one direction or both (union), or in both (mutual). If the directions have
    different weights, latencies or bandwidths, the link has their mean; of other attributes, it has those that are
    listed first. Undirected graphs are returned unchanged.

    Raises
    ------
    GraphError
        If directed graphs are refused, or a link is listed more than once in one direction.
    """
    import networkx

    if not graph.is_directed():
        return graph
    if reading.directed == "refuse":
        raise GraphError(
            f"the graph is directed; {UNDIRECTED}: directed=union keeps links in any direction, directed=mutual those "
            "in both"
        )
    merged = networkx.Graph(**graph.graph)
    merged.add_nodes_from(graph.nodes(data=True))
    mutual: set[frozenset[Any]] = set()
    listed: set[tuple[Any, Any]] = set()
    unequal = 0
    for u, v, data in graph.edges(data=True):
        _check_link(u, v, data, listed)
        listed.add((u, v))
        if (v, u) in listed:
            mutual.add(frozenset((u, v)))
            unequal += _average(merged[u][v], data, f"{u!r} - {v!r}")
        else:
            merged.add_edge(u, v, **data)
    single = [link for link in merged.edges if frozenset(link) not in mutual] if reading.directed == "mutual" else []
    merged.remove_edges_from(single)
    means = f", {unequal} of them with means of different values" if unequal else ""
    left = f"; {len(single)} in one direction are left out" if single else ""
    reading.remarks.append(
        f"directed={reading.directed}: {len(listed)} directed, {len(mutual)} in both directions{means}{left}"
    )
    return merged


def _check_link(u: Any, v: Any, data: dict[str, Any], listed: set[tuple[Any, Any]]) -> None:
    """Check that a directed link is listed once, leads to another node, and has a valid weight."""
    if (u, v) in listed:
        raise GraphError(f"link {u!r} -> {v!r} is listed more than once. {PARALLEL}")
    if u == v:
        raise GraphError(f"node {u!r} has a link to itself. {LOOPS}")
    check_weight(data.get("weight", 1), f"link {u!r} -> {v!r}")


def _average(link: dict[str, Any], other: dict[str, Any], where: str) -> bool:
    """Set the numbers of a link to the means of both directions; return whether any differed."""
    changed = False
    for name in _MEASURED:
        first, second = (data.get(name, 1.0 if name == "weight" else None) for data in (link, other))
        if first is None or second is None or first == second:
            continue
        if not (isinstance(first, Real) and isinstance(second, Real)):
            raise GraphError(
                f"the directions of link {where} have the {name} {first!r} and {second!r}; expected numbers"
            )
        link[name] = (float(first) + float(second)) / 2
        changed = True
    for name, value in other.items():
        link.setdefault(name, value)
    return changed
