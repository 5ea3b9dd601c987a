"""Attributes of nodes and links: default values, and a summary of the contents of a file."""

from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from topologies.coordinates import find_coordinates
from topologies.errors import GraphError
from topologies.io.reading import Reading
from topologies.units import parse_quantity
from topologies.validation import NAMES, Graph, is_name, name_nodes

ACTING = {"node": {*NAMES, "access", "speed"}, "edge": {"weight", "latency", "bandwidth"}}
FILE_SUMMARY = "file_summary"  # graph attribute with the summary of its file
_LINK_MODEL = ("latency", "bandwidth", "access", "speed")
_SHADOW = ("host_bandwidth_up", "host_bandwidth_down")  # node attributes
_LOSS = "packet_loss"
_SILENT = {"node": set(), "edge": {"id"}}  # identifiers, which are not reported as ignored
_LISTED = 8  # most ignored attributes in the summary
_WORDS = {"node": "nodes", "edge": "links"}


def apply_defaults(graph: Graph) -> None:
    """Set the default attributes of nodes and links, which networkx stores as attributes of the graph."""
    for elements, name in ((graph.nodes, "node_default"), (graph.edges, "edge_default")):
        defaults = graph.graph.pop(name, {})
        if not isinstance(defaults, Mapping):
            continue
        for *_, data in elements(data=True):
            for key, value in defaults.items():
                data.setdefault(key, value)


def read_shadow(graph: Graph, reading: Reading) -> None:
    """Read the node attributes of a network map of the simulator Shadow, whose self-loops are left out.

    The access line of a node is the smaller of its bandwidths up and down. The loss of links is not used.
    """
    maps = [data for _, data in graph.nodes(data=True) if any(name in data for name in _SHADOW)]
    if not maps:
        return
    reading.loops = "drop"
    for data in maps:
        texts = [data.pop(name) for name in _SHADOW if name in data]
        rates = [parse_quantity(str(text), "access") for text in texts]
        if None in rates:
            raise GraphError(f"the bandwidths of a host are {texts}; expected numbers with a unit, such as 10 Mbit")
        data.setdefault("access", min(rate for rate in rates if rate is not None))
    reading.remarks.append(f"network map of Shadow: access is the smaller of {' and '.join(_SHADOW)}")


def convert_units(graph: Graph) -> None:
    """Convert texts such as 5ms to numbers; other texts remain, and are errors with a link model."""
    for elements, names in ((graph.nodes, {"access", "speed"}), (graph.edges, {"latency", "bandwidth"})):
        for *_, data in elements(data=True):
            # Most elements have none of these.
            texts = {name: data[name] for name in data.keys() & names if isinstance(data[name], str)}
            numbers = {name: parse_quantity(text, name) for name, text in texts.items()}
            data.update({name: number for name, number in numbers.items() if number is not None})


def summarize(graph: Graph, name: str, reading: Reading) -> str:
    """Summarize the contents of a file in one line: nodes, links, names, weights, other and ignored attributes.

    Parameters
    ----------
    graph : networkx.Graph
    name : str
        Name of the file, or type of the object.
    reading : Reading
        Remarks, and parts that were not read.
    """
    nodes = [data for _, data in graph.nodes(data=True)]
    links = [data for *_, data in graph.edges(data=True)]
    parts = [
        f"{_count(len(nodes), 'node')} and {_count(len(links), 'link')}",
        _describe_names(graph),
        _describe_weights(links),
    ]
    for attribute in _LINK_MODEL:
        kind, elements = ("node", nodes) if attribute in ACTING["node"] else ("edge", links)
        having = sum(data.get(attribute) is not None for data in elements)
        if having:
            parts.append(f"{attribute} on {having} of {len(elements)} {_WORDS[kind]} (used with a link model)")
    coordinates = find_coordinates(graph)
    placed = set(coordinates.attributes) if coordinates else set()
    parts += [coordinates.describe()] if coordinates else []
    parts += reading.remarks
    left = [*_list_ignored("node", nodes, placed), *_list_ignored("edge", links), *reading.ignored]
    if left:
        more = f" and {len(left) - _LISTED} more" if len(left) > _LISTED else ""
        parts.append(f"ignored: {', '.join(left[:_LISTED])}{more}")
    return f"{name}: {'; '.join(parts)}"


def _count(number: int, noun: str) -> str:
    """Format a number with its noun, in the plural if it is not 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _describe_names(graph: Graph) -> str:
    """Describe the source of device names, and the reasons for unused attributes."""
    names = name_nodes(graph)
    reasons: list[str] = []
    for key in NAMES:
        values = dict(graph.nodes(data=key))
        if names is not None and names == values:
            return "; ".join([*reasons, f"names from {key}"])
        if any(value is not None for value in values.values()):
            reasons.append(_explain_unused(key, list(values.values())))
    source = "no names, the nodes are numbered" if names is None else "names are the ids"
    return "; ".join([*reasons, source])


def _explain_unused(key: str, values: list[Any]) -> str:
    """Explain why a node attribute does not name the devices."""
    unnamed = sum(not is_name(value) for value in values)
    if unnamed:
        return f"{key} does not name the devices: it is not a text at {unnamed} of {len(values)} nodes"
    repeated = [(value, count) for value, count in Counter(values).items() if count > 1]
    if repeated:
        more = f", and {len(repeated) - 1} more" if len(repeated) > 1 else ""
        return f"{key} does not name the devices: {repeated[0][1]} nodes have {repeated[0][0]!r}{more}"
    return f"{key} only numbers the nodes"


def _describe_weights(links: list[Mapping[str, Any]]) -> str:
    """Describe the range of the weights."""
    weights = [float(data["weight"]) for data in links if "weight" in data]
    if not weights:
        return "no weights"
    low, high = min(weights), max(weights)
    text = f"weight {low:g}" if low == high else f"weights {low:g} to {high:g}"
    return text if len(weights) == len(links) else f"{text} on {len(weights)} of {len(links)} links, 1 on the others"


def _list_ignored(kind: str, elements: list[Mapping[str, Any]], used: Iterable[str] = ()) -> list[str]:
    """List the unused attributes of nodes or links, each with the most similar attribute that is used."""
    from difflib import get_close_matches

    names = {name for data in elements for name, value in data.items() if value is not None}
    unused = []
    for name in names - ACTING[kind] - _SILENT[kind] - set(used):
        other = "edge" if kind == "node" else "node"
        similar = get_close_matches(str(name).lower(), sorted(ACTING[kind]), n=1, cutoff=0.75)
        hint = f" (did you mean {similar[0]}?)" if similar else ""
        if name in ACTING[other] - set(NAMES):
            hint = f" (used on {_WORDS[other]} only)"
        if name == _LOSS:
            losses = [float(data[name]) for data in elements if isinstance(data.get(name), Real)]
            if losses:
                hint = f" ({min(losses):g} to {max(losses):g}; a run loses messages by faults, such as loss=0.01)"
        unused.append(f"{name} on {_WORDS[kind]}{hint}")
    return sorted(unused)
