"""Readers of GraphML and GEXF, with checks for contents that networkx silently ignores, merges or adds.

networkx reads only the children of the first `<graph>` element. Here, nodes and links of nested elements become nodes
and links of one graph; several graphs, hyperedges, repeated or undeclared nodes, and times are rejected.
"""

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from topologies.errors import GraphError
from topologies.io.attributes import ACTING
from topologies.io.reading import Reading, find_suffix, read_bytes
from topologies.validation import Graph

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element
else:
    Element = Any  # imported only when a file is read

_TIMES = {"start", "end", "startopen", "endopen", "timestamp", "timestamps", "interval", "intervals"}
_PERIODS = {"spells", "slices"}
# XML attributes of nodes and links that are read.
_KNOWN = {
    "graphml": {"id", "source", "target", "directed"},
    "gexf": {"id", "source", "target", "type", "weight", "label", "pid"},
}
# Child elements of nodes and links that are not read, and their names in the summary.
_UNREAD = {
    "graphml": {"port": "ports"},
    "gexf": {"parents": "parents"},
}
# Types of GraphML attributes that networkx reads, and types for those of graph-tool; all others are text.
_XML_TYPES = {"boolean", "int", "integer", "long", "float", "double", "string", "yfiles"}
_OTHER_TYPES = {"short": "long", "int16_t": "long", "int32_t": "long", "int64_t": "long", "uint8_t": "long",
                "bool": "boolean", "long double": "double", "long_double": "double"}  # fmt: skip


class Contents(NamedTuple):
    """Elements of a file: `<graph>`, all nodes and all links."""

    graph: Element
    nodes: list[Element]
    links: list[Element]


def read_graphml(source: Path, reading: Reading) -> Graph:
    """Read a GraphML file with nested nodes and links; contents that are not read are added to `reading`."""
    from warnings import catch_warnings, simplefilter

    import networkx

    root = _parse(source)
    contents = _list_contents(root, source)
    changed = _flatten_graphml(contents) + _complete_defaults(root) + _convert_types(root, contents)
    _check_elements(contents, "graphml", source, reading.ignored)
    _check_data(root, contents, source)
    # networkx warns of ports, which the summary reports, and of keys without a type, which are read as text.
    with catch_warnings():
        simplefilter("ignore")
        graph = networkx.read_graphml(_stream(root) if changed else io.BytesIO(read_bytes(source)))
    return _check_counts(graph, contents, source)


def read_gexf(source: Path, reading: Reading) -> Graph:
    """Read a GEXF file with nested nodes and links; contents that are not read are added to `reading`."""
    import networkx

    root = _parse(source)
    contents = _list_contents(root, source)
    changed = _flatten_gexf(contents)
    _check_times(contents, source)
    _check_elements(contents, "gexf", source, reading.ignored)
    _check_values(contents, source)
    return _check_counts(
        networkx.read_gexf(_stream(root) if changed else io.BytesIO(read_bytes(source))), contents, source
    )


def _parse(source: Path) -> Element:
    from xml.etree.ElementTree import fromstring

    content = read_bytes(source)
    _check_doctype(content, source)
    return fromstring(content)


class _RootReached(Exception):  # noqa: N818 - not an error: stops the scan
    """Signal that the first element of an XML file begins, after which no declaration can follow."""


def _check_doctype(content: bytes, source: Path) -> None:
    """Reject a document type declaration in any encoding, without expanding entities."""
    from xml.parsers.expat import ParserCreate

    def refuse(*_: object) -> None:
        raise GraphError(f"{source} has a DOCTYPE declaration, which can hide an XML bomb. Remove it from the file")

    def stop(*_: object) -> None:
        raise _RootReached

    parser = ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = stop
    with suppress(_RootReached):
        parser.Parse(content, True)


def _name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _list_contents(root: Element, source: Path) -> Contents:
    """List the nodes and links of the only graph of a file, at any depth."""
    graphs = [child for child in root if _name(child) == "graph"]
    if not graphs:
        raise GraphError(
            f"{source} cannot be read as {find_suffix(source)}: it has no <graph> element. Check the suffix"
        )
    if len(graphs) > 1:
        raise GraphError(
            f"{source} has {len(graphs)} <graph> elements; expected one. Write each graph to a separate file"
        )
    space = graphs[0].tag.removesuffix("graph")
    nodes, links = (list(graphs[0].iter(space + name)) for name in ("node", "edge"))
    if graphs[0].find(f".//{space}hyperedge") is not None:
        raise GraphError(f"{source} has a <hyperedge>, which links any number of nodes. List each link as an <edge>")
    if graphs[0].find(f".//{space}locator") is not None:
        raise GraphError(f"{source} has a <locator>, which refers to another file. Write the graph to one file")
    return Contents(graphs[0], nodes, links)


def _flatten_graphml(contents: Contents) -> bool:
    """Move nested nodes and links to the graph element; return whether there were any."""
    graph, nodes, links = contents
    other_children = [child for child in graph if _name(child) not in ("node", "edge")]
    if len(graph) - len(other_children) == len(nodes) + len(links):
        return False
    for holder in (*nodes, *links):
        for nested in [child for child in holder if _name(child) == "graph"]:
            if nested.get("edgedefault") != graph.get("edgedefault"):
                raise GraphError(
                    f"the graph inside {_describe(holder)} has edgedefault {nested.get('edgedefault')!r}, the outer "
                    f"graph {graph.get('edgedefault')!r}. Make them equal"
                )
            holder.remove(nested)
        # With this attribute, networkx would search for the nested graph, which was removed.
        holder.attrib.pop("yfiles.foldertype", None)
    graph[:] = [*other_children, *nodes, *links]
    return True


def _flatten_gexf(contents: Contents) -> bool:
    """Move all nodes to one `<nodes>` element and all links to one `<edges>`; return whether any was elsewhere."""
    graph, nodes, links = contents
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
    """Replace GraphML keys for all elements, whose defaults networkx ignores, by one key for nodes and one for edges.

    Empty defaults are removed. Return whether anything changed.
    """
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


def _convert_types(root: Element, contents: Contents) -> bool:
    """Convert types and numbers of graph-tool, which networkx does not know; return whether there were any.

    Short and long integers become `long`, numbers with more digits `double`, vectors and Python objects text. Numbers
    in hexadecimal notation, which graph-tool writes, become decimal.
    """
    numbers: set[str | None] = set()
    changed = False
    for key in [child for child in root if _name(child) == "key"]:
        kind = key.get("attr.type")
        if kind is not None and kind not in _XML_TYPES:
            key.set("attr.type", _OTHER_TYPES.get(kind, "string"))
            changed = True
        if key.get("attr.type") in {"float", "double"}:
            numbers.add(key.get("id"))
            changed |= sum(_convert_number(child) for child in key) > 0
    for element in (*contents.nodes, *contents.links):
        for child in element:
            if _name(child) == "data" and child.get("key") in numbers:
                changed |= _convert_number(child)
    return changed


def _convert_number(element: Element) -> bool:
    """Convert a hexadecimal number such as 0x1.8p+1; return whether it was one."""
    text = (element.text or "").strip()
    if not text.lower().lstrip("+-").startswith("0x"):
        return False
    element.text = repr(float.fromhex(text))
    return True


def _stream(root: Element) -> io.BytesIO:
    """Write an XML tree to a file in memory."""
    from xml.etree.ElementTree import tostring

    return io.BytesIO(tostring(root, encoding="utf-8", xml_declaration=True))


def _check_elements(contents: Contents, form: str, source: Path, ignored: list[str]) -> None:
    """Reject nodes without an id or listed twice, and links to nodes that are not listed."""
    names = [node.get("id") for node in contents.nodes]
    if None in names:
        raise GraphError(f"{source}: a node lacks an id. Add a unique id to every node")
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise GraphError(f"{source}: node {repeated!r} is listed more than once. List every node once")
    known = set(names)
    for link in contents.links:
        for end in ("source", "target"):
            if link.get(end) not in known:
                raise GraphError(f"{source}: {_describe(link)} leads to a node that is not listed. List every node")
    ignored += _list_unread(contents, form, source)


def _list_unread(contents: Contents, form: str, source: Path) -> list[str]:
    """List contents of nodes and links that are not read, and reject XML attributes that should be data elements."""
    extra: set[str] = set()
    for element in (*contents.nodes, *contents.links):
        for name in element.attrib.keys() - _KNOWN[form]:
            if name in ACTING[_name(element)]:
                place = "<data>" if form == "graphml" else "<attvalue>"
                raise GraphError(
                    f"{source}: {_describe(element)} has {name} as an XML attribute, which is not read. Write it as "
                    f"{place}"
                )
            extra.add(f"XML attribute {name.rpartition('}')[2]}")
        extra |= {_UNREAD[form][_name(child)] for child in element if _name(child) in _UNREAD[form]}
    return sorted(extra)


def _check_data(root: Element, contents: Contents, source: Path) -> None:
    """Reject GraphML elements with two values of one attribute."""
    names = {key.get("id"): key.get("attr.name") or key.get("id") for key in root if _name(key) == "key"}
    for element in (*contents.nodes, *contents.links):
        _check_repeated((names.get(key) for key in _list(element, "data", "key")), element, source)


def _check_values(contents: Contents, source: Path) -> None:
    """Reject GEXF elements with two values of one attribute, such as two different weights of a link."""
    attributes = [element for element in contents.graph.iter() if _name(element) == "attribute"]
    names = {attribute.get("id"): attribute.get("title") for attribute in attributes}
    weights = {"weight"} | {key for key, title in names.items() if title == "weight"}
    for element in (*contents.nodes, *contents.links):
        holders = [child for child in element if _name(child) == "attvalues"]
        values = [value for holder in holders for value in holder if _name(value) == "attvalue"]
        _check_repeated((names.get(value.get("for"), value.get("for")) for value in values), element, source)
        weight = element.get("weight")
        for value in values:
            if weight is not None and value.get("for") in weights and float(value.get("value", "nan")) != float(weight):
                raise GraphError(
                    f"{source}: {_describe(element)} has the weights {weight} and {value.get('value')}. Keep one"
                )


def _list(element: Element, name: str, attribute: str) -> Iterator[str | None]:
    return (child.get(attribute) for child in element if _name(child) == name)


def _check_repeated(names: Iterable[str | None], element: Element, source: Path) -> None:
    repeated = next((name for name, count in Counter(names).items() if name is not None and count > 1), None)
    if repeated is not None:
        raise GraphError(f"{source}: {_describe(element)} has {repeated!r} more than once. Keep one of them")


def _check_times(contents: Contents, source: Path) -> None:
    """Reject GEXF nodes, links and values that are limited in time."""
    for element in (*contents.nodes, *contents.links):
        for part in element.iter():
            times = sorted(part.attrib.keys() & _TIMES) or [_name(part)] * (_name(part) in _PERIODS)
            if times:
                raise GraphError(
                    f"{source}: {_describe(element)} has times ({', '.join(times)}), but graphs in files must be "
                    "static. Remove the times, or build a topologies.TimeVaryingGraph in Python (docs/ref/graphs.md)"
                )


def _describe(element: Element) -> str:
    if _name(element) == "node":
        return f"node {element.get('id')!r}"
    return f"link {element.get('source')!r} - {element.get('target')!r}"


def _check_counts(graph: Graph, contents: Contents, source: Path) -> Graph:
    """Check that the graph has all nodes and links of the file, and return it."""
    if (len(graph), graph.number_of_edges()) != (len(contents.nodes), len(contents.links)):
        raise GraphError(
            f"{source} lists {len(contents.nodes)} nodes and {len(contents.links)} links, but {len(graph)} different "
            f"nodes and {graph.number_of_edges()} different links were read. Give every link its own id"
        )
    return graph
