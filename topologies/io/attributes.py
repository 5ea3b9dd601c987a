"""Attributes of nodes and links: their defaults, and one line about what was read of a file."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from topologies.validation import NAMES, Graph, is_name, name_nodes

ACTING = {"node": {*NAMES, "access", "speed"}, "edge": {"weight", "latency", "bandwidth"}}
FILE_SUMMARY = "file_summary"  # graph attribute with the line about the file that it was read from
_LINK_MODEL = ("latency", "bandwidth", "access", "speed")
_SILENT = {"node": set(), "edge": {"id"}}  # identifies, and need not be reported as ignored
_LISTED = 8  # ignored attributes in the line
_WORDS = {"node": "nodes", "edge": "links"}


def apply_defaults(graph: Graph) -> None:
    """Give nodes and links the default attributes that networkx keeps for the whole graph."""
    for elements, name in ((graph.nodes, "node_default"), (graph.edges, "edge_default")):
        found = graph.graph.pop(name, {})
        if not isinstance(found, Mapping):
            continue
        for *_, data in elements(data=True):
            for key, value in found.items():
                data.setdefault(key, value)


def summarize(graph: Graph, source: Path, ignored: Iterable[str]) -> str:
    """Return one line about what was read of a file: nodes, links, names, weights, other attributes, what is ignored.

    Parameters
    ----------
    graph : networkx.Graph
    source : Path
    ignored : iterable of str
        Parts of the file that are not attributes and were not read.
    """
    nodes = [data for _, data in graph.nodes(data=True)]
    links = [data for *_, data in graph.edges(data=True)]
    parts = [f"{_count(len(nodes), 'node')} and {_count(len(links), 'link')}", _tell_names(graph), _tell_weights(links)]
    for name in _LINK_MODEL:
        kind, elements = ("node", nodes) if name in ACTING["node"] else ("edge", links)
        having = sum(data.get(name) is not None for data in elements)
        if having:
            parts.append(f"{name} on {having} of {len(elements)} {_WORDS[kind]} (used with a link model)")
    left = [*_list_ignored("node", nodes), *_list_ignored("edge", links), *ignored]
    if left:
        more = f" and {len(left) - _LISTED} more" if len(left) > _LISTED else ""
        parts.append(f"ignored: {', '.join(left[:_LISTED])}{more}")
    return f"{source.name}: {'; '.join(parts)}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _tell_names(graph: Graph) -> str:
    """Return what the devices are called, and why an attribute is not used for it."""
    names = name_nodes(graph)
    reasons: list[str] = []
    for key in NAMES:
        found = dict(graph.nodes(data=key))
        if names is not None and names == found:
            return "; ".join([*reasons, f"names from {key}"])
        if any(value is not None for value in found.values()):
            reasons.append(_explain_unused(key, list(found.values())))
    told = "no names, the nodes are numbered" if names is None else "names are the ids"
    return "; ".join([*reasons, told])


def _explain_unused(key: str, values: list[Any]) -> str:
    """Return why a node attribute does not name the devices."""
    unnamed = sum(not is_name(value) for value in values)
    if unnamed:
        return f"{key} does not name the devices: {unnamed} of {len(values)} nodes have no text in it"
    repeated = [(value, count) for value, count in Counter(values).items() if count > 1]
    if repeated:
        more = f", and {len(repeated) - 1} more" if len(repeated) > 1 else ""
        return f"{key} does not name the devices: {repeated[0][1]} nodes have {repeated[0][0]!r}{more}"
    return f"{key} only numbers the nodes"


def _tell_weights(links: list[Mapping[str, Any]]) -> str:
    """Return the range of the weights."""
    weights = [float(data["weight"]) for data in links if "weight" in data]
    if not weights:
        return "no weights"
    low, high = min(weights), max(weights)
    told = f"weight {low:g}" if low == high else f"weights {low:g} to {high:g}"
    return told if len(weights) == len(links) else f"{told} on {len(weights)} of {len(links)} links, 1 on the others"


def _list_ignored(kind: str, elements: list[Mapping[str, Any]]) -> list[str]:
    """Return the attributes of nodes or links that nothing uses, each with the nearest one that is used."""
    from difflib import get_close_matches

    found = dict.fromkeys(name for data in elements for name, value in data.items() if value is not None)
    told = []
    for name in found.keys() - ACTING[kind] - _SILENT[kind]:
        other = "edge" if kind == "node" else "node"
        near = get_close_matches(str(name).lower(), sorted(ACTING[kind]), n=1, cutoff=0.75)
        hint = f" (did you mean {near[0]}?)" if near else ""
        hint = hint or f" (used on {_WORDS[other]} only)" * (name in ACTING[other] - set(NAMES))
        told.append(f"{name} on {_WORDS[kind]}{hint}")
    return sorted(told)
