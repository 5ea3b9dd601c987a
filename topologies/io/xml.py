"""GraphML and GEXF: checks of what networkx's readers leave out, merge or add, before they read a file.

networkx reads the children of the first `<graph>` element alone. Here, nodes and links of nested elements become nodes
and links of the one graph; several graphs, hyperedges, repeated or undeclared nodes, and times are refused.
"""

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from topologies.errors import GraphError
from topologies.io.attributes import ACTING
from topologies.validation import Graph

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element
else:
    Element = Any  # imported when a file is read, not before

_TIMES = {"start", "end", "startopen", "endopen", "timestamp", "timestamps", "interval", "intervals"}
_PERIODS = {"spells", "slices"}
_KNOWN = {  # XML attributes of nodes and links; any other one is not read
    "graphml": {"id", "source", "target", "directed"},
    "gexf": {"id", "source", "target", "type", "weight", "label", "pid"},
}
_UNREAD = {  # elements of nodes and links that are not read; a GEXF file may also place nodes below others
    "graphml": {"port": "ports"},
    "gexf": {"parents": "parents"},
}


class Contents(NamedTuple):
    """The `<graph>` element of a file, its nodes and its links."""

    graph: Element
    nodes: list[Element]
    links: list[Element]


def read_graphml(source: Path, ignored: list[str]) -> Graph:
    """Read a GraphML file, with nested nodes and links; what is not read is added to `ignored`."""
    from warnings import catch_warnings, simplefilter

    import networkx

    root = _parse(source)
    found = _take_apart(root, source)
    changed = _flatten_graphml(found) + _complete_defaults(root)
    _check_elements(found, "graphml", source, ignored)
    _check_data(root, found, source)
    with catch_warnings():
        simplefilter("ignore")  # ports are reported, and keys without a type are text, as networkx warns
        graph = networkx.read_graphml(_stream(root) if changed else source)
    return _finish(graph, found, source)


def read_gexf(source: Path, ignored: list[str]) -> Graph:
    """Read a GEXF file, with nested nodes and links; what is not read is added to `ignored`."""
    import networkx

    root = _parse(source)
    found = _take_apart(root, source)
    changed = _flatten_gexf(found)
    _check_times(found, source)
    _check_elements(found, "gexf", source, ignored)
    _check_values(found, source)
    return _finish(networkx.read_gexf(_stream(root) if changed else source), found, source)


def _parse(source: Path) -> Element:
    from xml.etree.ElementTree import parse

    _refuse_doctype(source)
    return parse(source).getroot()


class _RootReached(Exception):  # noqa: N818  no error: stops the scan
    """The first element of an XML file has begun, so no declaration can follow."""


def _refuse_doctype(source: Path) -> None:
    """Look for a document type declaration, in any encoding, without expanding anything."""
    from xml.parsers.expat import ParserCreate

    def refuse(*_: object) -> None:
        raise GraphError(f"{source} has a DOCTYPE declaration, which can hide an XML bomb; remove it from the file")

    def stop(*_: object) -> None:
        raise _RootReached

    parser = ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = stop
    with source.open("rb") as stream:
        try:
            parser.ParseFile(stream)
        except _RootReached:
            return


def _name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _take_apart(root: Element, source: Path) -> Contents:
    """Return the only graph of a file with all of its nodes and links, at any depth."""
    graphs = [child for child in root if _name(child) == "graph"]
    if not graphs:
        raise GraphError(f"{source} cannot be read as {source.suffix}: it has no <graph> element; check the suffix")
    if len(graphs) > 1:
        raise GraphError(f"{source} has {len(graphs)} <graph> elements; expected one: write each graph to its own file")
    space = graphs[0].tag.removesuffix("graph")
    nodes, links = (list(graphs[0].iter(space + name)) for name in ("node", "edge"))
    if graphs[0].find(f".//{space}hyperedge") is not None:
        raise GraphError(f"{source} has a <hyperedge>, which links any number of nodes; list each link as an <edge>")
    if graphs[0].find(f".//{space}locator") is not None:
        raise GraphError(f"{source} has a <locator>, which names another file; write the graph to one file")
    return Contents(graphs[0], nodes, links)


def _flatten_graphml(found: Contents) -> bool:
    """Make all nodes and links children of the graph; return whether any was nested."""
    graph, nodes, links = found
    others = [child for child in graph if _name(child) not in ("node", "edge")]
    if len(graph) - len(others) == len(nodes) + len(links):
        return False
    for holder in (*nodes, *links):
        for nested in [child for child in holder if _name(child) == "graph"]:
            if nested.get("edgedefault") != graph.get("edgedefault"):
                raise GraphError(
                    f"the graph inside {_describe(holder)} has edgedefault {nested.get('edgedefault')!r}, the one "
                    f"around it {graph.get('edgedefault')!r}; make them equal"
                )
            holder.remove(nested)
        holder.attrib.pop("yfiles.foldertype", None)  # networkx would look for the nested graph
    graph[:] = [*others, *nodes, *links]
    return True


def _flatten_gexf(found: Contents) -> bool:
    """Make all nodes children of one `<nodes>` element and all links of one `<edges>`; return whether any was not."""
    graph, nodes, links = found
    held = [[child for child in graph if _name(child) == name] for name in ("nodes", "edges")]
    if sum(len(holders[0]) for holders in held if len(holders) == 1) == len(nodes) + len(links):
        return False
    for node in nodes:
        node[:] = [child for child in node if _name(child) not in ("nodes", "edges")]
    graph[:] = [child for child in graph if _name(child) not in ("nodes", "edges")]
    for name, elements in (("nodes", nodes), ("edges", links)):
        holder = graph.makeelement(graph.tag.removesuffix("graph") + name, {})
        holder[:] = elements
        graph.append(holder)
    return True


def _complete_defaults(root: Element) -> bool:
    """Give GraphML keys for all elements, of which networkx reads no default, a key per kind; drop empty defaults."""
    changed = False
    for key in [child for child in root if _name(child) == "key"]:
        for default in [child for child in key if _name(child) == "default"]:
            if not default.text:
                key.remove(default)
                changed = True
            elif key.get("for", "all") == "all":
                other = key.makeelement(key.tag, {**key.attrib, "id": f"{key.get('id')} ", "for": "edge"})
                other.append(default)
                root.insert(0, other)
                key.set("for", "node")
                changed = True
    return changed


def _stream(root: Element) -> io.BytesIO:
    """Return an XML tree as a file in memory."""
    from xml.etree.ElementTree import tostring

    return io.BytesIO(tostring(root, encoding="utf-8", xml_declaration=True))


def _check_elements(found: Contents, form: str, source: Path, ignored: list[str]) -> None:
    """Reject nodes without an id or listed twice, and links to nodes that are not listed."""
    names = [node.get("id") for node in found.nodes]
    if None in names:
        raise GraphError(f"{source}: a node has no id; give every node its own")
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise GraphError(f"{source}: node {repeated!r} is listed more than once; list every node once")
    known = set(names)
    for link in found.links:
        for end in ("source", "target"):
            if link.get(end) not in known:
                raise GraphError(f"{source}: {_describe(link)} leads to a node that is not listed; list every node")
    ignored += _list_unread(found, form, source)


def _list_unread(found: Contents, form: str, source: Path) -> list[str]:
    """Return what is not read of nodes and links; refuse attributes that act, but are in a place that is not read."""
    extra: set[str] = set()
    for element in (*found.nodes, *found.links):
        for name in element.attrib.keys() - _KNOWN[form]:
            if name in ACTING[_name(element)]:
                place = "<data>" if form == "graphml" else "<attvalue>"
                raise GraphError(
                    f"{source}: {_describe(element)} has {name} as an XML attribute, which is not read; write it as "
                    f"{place}"
                )
            extra.add(f"XML attribute {name.rpartition('}')[2]}")
        extra |= {_UNREAD[form][_name(child)] for child in element if _name(child) in _UNREAD[form]}
    return sorted(extra)


def _check_data(root: Element, found: Contents, source: Path) -> None:
    """Reject GraphML elements with two values of one attribute."""
    names = {key.get("id"): key.get("attr.name") or key.get("id") for key in root if _name(key) == "key"}
    for element in (*found.nodes, *found.links):
        _refuse_repeated((names.get(key) for key in _list(element, "data", "key")), element, source)


def _check_values(found: Contents, source: Path) -> None:
    """Reject GEXF elements with two values of one attribute, such as two different weights of a link."""
    names = {one.get("id"): one.get("title") for one in found.graph.iter() if _name(one) == "attribute"}
    weights = {"weight"} | {key for key, title in names.items() if title == "weight"}
    for element in (*found.nodes, *found.links):
        holders = [child for child in element if _name(child) == "attvalues"]
        values = [value for holder in holders for value in holder if _name(value) == "attvalue"]
        _refuse_repeated((names.get(value.get("for"), value.get("for")) for value in values), element, source)
        own = element.get("weight")
        for value in values:
            if own is not None and value.get("for") in weights and float(value.get("value", "nan")) != float(own):
                raise GraphError(
                    f"{source}: {_describe(element)} has the weights {own} and {value.get('value')}; give it one"
                )


def _list(element: Element, name: str, attribute: str) -> Iterator[str | None]:
    return (child.get(attribute) for child in element if _name(child) == name)


def _refuse_repeated(names: Iterable[str | None], element: Element, source: Path) -> None:
    repeated = next((name for name, count in Counter(names).items() if name is not None and count > 1), None)
    if repeated is not None:
        raise GraphError(f"{source}: {_describe(element)} has {repeated!r} more than once; give it one value")


def _check_times(found: Contents, source: Path) -> None:
    """Reject GEXF nodes, links and values that hold for some time only."""
    for element in (*found.nodes, *found.links):
        for part in element.iter():
            times = sorted(part.attrib.keys() & _TIMES) or [_name(part)] * (_name(part) in _PERIODS)
            if times:
                raise GraphError(
                    f"{source}: {_describe(element)} has times ({', '.join(times)}), but of a graph in a file all "
                    "nodes and links are in use all the time. Remove the times, or build a "
                    "topologies.TimeVaryingGraph in Python (docs/graphs.md)"
                )


def _describe(element: Element) -> str:
    if _name(element) == "node":
        return f"node {element.get('id')!r}"
    return f"link {element.get('source')!r} - {element.get('target')!r}"


def _finish(graph: Graph, found: Contents, source: Path) -> Graph:
    """Check that the graph has all nodes and links of the file."""
    if (len(graph), graph.number_of_edges()) != (len(found.nodes), len(found.links)):
        raise GraphError(
            f"{source} lists {len(found.nodes)} nodes and {len(found.links)} links, but {len(graph)} different nodes "
            f"and {graph.number_of_edges()} different links were read; list every link once"
        )
    return graph
