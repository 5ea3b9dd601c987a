"""Reader of Pajek networks (.net, .paj).

networkx merges nodes with equal labels, and requires a line for every node; this reader does neither.
"""

import re
from pathlib import Path
from typing import Any

from topologies.errors import GraphError
from topologies.io.reading import Reading, find_suffix, read_text
from topologies.validation import Graph

_FIELD = re.compile(r'"([^"]*)"|(\S+)')
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LINKS = {"arcs": True, "edges": False, "arcslist": True, "edgeslist": False}  # section: whether its links are directed
_FEW = 100_000  # nodes that are created without regard to the size of the file


class _Network:
    """Nodes and links that have been read so far."""

    def __init__(self, source: Path, reading: Reading) -> None:
        self.source, self.reading = source, reading
        self.size = -1
        self.nodes: dict[int, dict[str, Any]] = {}
        self.links: list[tuple[bool, int, int, dict[str, Any]]] = []
        self.rows = 0  # of the matrix
        self.ignored: set[str] = set()

    def find(self, text: str, where: str) -> int:
        """Return the number of a node."""
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
        if not 1 <= number <= self.size:
            raise GraphError(f"{where}: the node is {text!r}; expected a whole number from 1 to {self.size}")
        return number


def read_pajek(source: Path, reading: Reading) -> Graph:
    """Read the only network of a Pajek file: nodes, arcs, edges, lists of them, or a matrix."""
    network, section = _Network(source, reading), ""
    text = read_text(source, reading)
    for number, line in enumerate(text.splitlines(), start=1):
        fields = [quoted or plain for quoted, plain in _FIELD.findall(line)]
        if not fields or line.lstrip().startswith("%"):
            continue
        where = f"{source}, line {number}"
        if fields[0].startswith("*"):
            section = fields[0][1:].partition(":")[0].lower()
            _open_section(network, section, fields[1:], len(text), where)
        else:
            _read_line(network, section, line, fields, where)
    if network.size < 0:
        raise GraphError(f"{source} cannot be read as {find_suffix(source)}: it has no *Vertices. Check the suffix")
    reading.ignored += sorted(network.ignored)
    return _build(network)


def _read_line(network: _Network, section: str, line: str, fields: list[str], where: str) -> None:
    if section == "vertices":
        _add_node(network, line, where)
    elif section in _LINKS:
        _add_links(network, section, fields, where)
    elif section == "matrix":
        _add_row(network, fields, where)
    else:
        raise GraphError(f"{where}: got {line.strip()!r}; expected *Vertices and the number of nodes")


def _open_section(network: _Network, section: str, fields: list[str], length: int, where: str) -> None:
    """Start a section: check that there is one network, and create its nodes."""
    if section == "vertices":
        if network.size >= 0:
            # Partitions and vectors of a project list their values below another *Vertices.
            raise GraphError(
                f"{where}: a second *Vertices; expected one network. Write each network to a separate file"
            )
        count = fields[0] if fields else ""
        if not (count.isascii() and count.isdecimal() and int(count[:18]) <= max(_FEW, length)):
            raise GraphError(f"{where}: the number of nodes is {count!r}; expected a whole number")
        if len(fields) > 1:
            network.reading.remarks.append(f"the first {fields[1]} nodes are one of two modes")
        network.size = int(count)
    elif section in {*_LINKS, "matrix"} and network.size < 0:
        raise GraphError(f"{where}: *{section} before *Vertices. Write *Vertices and the number of nodes first")
    elif section not in {*_LINKS, "matrix", "network"}:
        raise GraphError(
            f"{where}: *{section}; expected Vertices, Arcs, Edges, Arcslist, Edgeslist or Matrix. Remove it"
        )


def _add_node(network: _Network, line: str, where: str) -> None:
    """Read number, label and coordinates of a node."""
    parts = [(match[1], match[2]) for match in _FIELD.finditer(line)]
    node = network.find(parts[0][1] or "", where)
    if node in network.nodes:
        raise GraphError(f"{where}: node {node} is listed more than once. List every node once")
    _check_times(line, where)
    data: dict[str, Any] = {}
    if len(parts) > 1:
        quoted, plain = parts[1]
        data["label"] = quoted if plain is None else plain
    rest = [plain or quoted for quoted, plain in parts[2:]]
    numbers = [float(text) for text in rest[:3] if _NUMBER.fullmatch(text)]
    if len(numbers) >= 2:
        # Pajek draws the origin at the top left.
        data |= {"x": numbers[0], "y": 1.0 - numbers[1]}
    network.ignored |= {"shapes and colors of nodes"} if len(rest) > len(numbers) else set()
    network.nodes[node] = data


def _add_links(network: _Network, section: str, fields: list[str], where: str) -> None:
    """Read a link and its weight, or a node and the list of its neighbors."""
    directed = _LINKS[section]
    if len(fields) < 2:
        raise GraphError(f"{where}: got {fields}; expected two nodes")
    ends, data = fields[1:], dict[str, Any]()
    if not section.endswith("list"):
        ends = fields[1:2]
        if len(fields) > 2 and _NUMBER.fullmatch(fields[2]):
            data = {"weight": float(fields[2])}
        _check_times(" ".join(fields[2:]), where)
        network.ignored |= {"shapes and colors of links"} if len(fields) > 2 + len(data) else set()
    node = network.find(fields[0], where)
    network.links += [(directed, node, network.find(end, where), dict(data)) for end in ends]


def _add_row(network: _Network, fields: list[str], where: str) -> None:
    """Read a row of the adjacency matrix."""
    network.rows += 1
    if len(fields) != network.size or network.rows > network.size:
        raise GraphError(
            f"{where}: row {network.rows} of the matrix has {len(fields)} values; expected "
            f"{network.size} rows and columns"
        )
    for column, text in enumerate(fields, start=1):
        if not _NUMBER.fullmatch(text):
            raise GraphError(f"{where}: the value is {text!r}; expected a number")
        if float(text):
            network.links.append((True, network.rows, column, {"weight": float(text)}))


def _check_times(text: str, where: str) -> None:
    if re.search(r"(^|\s)\[[-0-9,*\s]+\]\s*$", text):
        raise GraphError(f"{where}: the time is {text.strip()!r}, but graphs in files must be static. Remove the times")


def _build(network: _Network) -> Graph:
    """Build the graph, directed if it has arcs; a symmetric matrix is undirected."""
    import networkx

    entries = {(u, v): data for _, u, v, data in network.links} if network.rows else {}
    is_symmetric = bool(entries) and all(entries.get((v, u)) == data for (u, v), data in entries.items())
    links = [link for link in network.links if not is_symmetric or link[1] <= link[2]]
    is_directed = any(directed for directed, *_ in links) and not is_symmetric
    graph = networkx.MultiDiGraph() if is_directed else networkx.MultiGraph()
    graph.add_nodes_from((node, network.nodes.get(node, {})) for node in range(1, network.size + 1))
    for directed, u, v, data in links:
        graph.add_edge(u, v, **data)
        if is_directed and not directed:
            graph.add_edge(v, u, **data)
    return graph
