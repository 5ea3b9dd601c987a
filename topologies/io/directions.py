"""Undirected graph of a directed one."""

from numbers import Real
from typing import Any

from topologies.errors import GraphError
from topologies.io.reading import Reading
from topologies.validation import UNDIRECTED, Graph, is_weight

_MEASURED = ("weight", "latency", "bandwidth")  # link attributes with numbers that methods or link models use


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
        raise GraphError(f"link {u!r} -> {v!r} is listed more than once. List every link once in each direction")
    if u == v:
        raise GraphError(f"node {u!r} has a link to itself. Remove it")
    if not is_weight(data.get("weight", 1)):
        raise GraphError(f"the weight of link {u!r} -> {v!r} is {data['weight']!r}; expected a finite number above 0")


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
