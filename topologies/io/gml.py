"""Reader of GML files."""

import re
from pathlib import Path
from typing import Any

from topologies.errors import GraphError
from topologies.io.reading import Reading, read_text
from topologies.validation import Graph

# A string, which is not changed, or a number with an exponent but without a point, which networkx cannot read.
_TOKEN = re.compile(r'"[^"]*"|(?<=\s)([+-]?[0-9]+)([eE][+-]?[0-9]+)(?=\s)')

# The beginning of a graph, which is not in a string or a comment.
_GRAPH = re.compile(r'"[^"]*"|^[ \t]*#.*$|\b(graph)\s*\[', re.MULTILINE)


def read_gml(source: Path, reading: Reading) -> Graph:
    """Read a GML file; nodes are the numbers `id`, and names the attributes `name` or `label`."""
    import networkx

    text = _TOKEN.sub(lambda match: f"{match[1]}.0{match[2]}" if match[1] else match[0], read_text(source, reading))
    # networkx reads ASCII only; entities are part of the format.
    plain = text.encode("ascii", "xmlcharrefreplace").decode("ascii")
    # Without this key, networkx rejects parallel links, whose treatment is an option.
    plain = _GRAPH.sub(lambda match: match[0] if match[1] is None else f"{match[0]} multigraph 1 ", plain)
    graph = networkx.parse_gml(plain.splitlines(), label="id")
    for kind, elements in (("node", graph.nodes(data=True)), ("link", graph.edges(data=True))):
        for *ends, data in elements:
            _check_repeated(data, f"{source}: {kind} {' - '.join(map(repr, ends))}")
    return graph


def _check_repeated(data: dict[str, Any], where: str) -> None:
    """Check that name and numbers are single values: networkx collects repeated keys in a list."""
    for key in ("name", "label", "weight", "latency", "bandwidth", "access", "speed"):
        if isinstance(data.get(key), list):
            raise GraphError(f"{where} has {key!r} more than once. Keep one of them")
