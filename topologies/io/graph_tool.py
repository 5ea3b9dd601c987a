"""Reader of the binary format of graph-tool (.gt).

In a property map, the name comes before the type of the values, as in the example of the specification.
"""

from pathlib import Path
from typing import Any

import numpy as np

from topologies.errors import GraphError
from topologies.io.reading import Reading, read_bytes
from topologies.validation import Graph

_MAGIC = b"\xe2\x9b\xbe gt"
_VERSION = 1
_WIDTHS = ((2**8, "u1"), (2**16, "u2"), (2**32, "u4"))  # types of node numbers in graphs with fewer nodes
_NUMBERS = ("u1", "i2", "i4", "i8", "f8")  # types of values with the indices 0 to 4
_TRUTH, _LONG_DOUBLE, _TEXT, _VECTORS, _OBJECT = 0, 5, 6, 7, 14  # indices of other types; 7 to 13 are vectors of 0 to 6
_KEYS = ("of the graph", "on nodes", "on links")


class _Content:
    """Bytes of a file, and the position up to which they have been read."""

    def __init__(self, source: Path) -> None:
        self.source, self.content, self.position = source, read_bytes(source), 0
        self.order = "<"  # byte order of NumPy types

    def count_left(self) -> int:
        return len(self.content) - self.position

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        part = self.content[self.position : self.position + size]
        if len(part) < size:
            least = self.position + size
            raise GraphError(
                f"{self.source} ends after {len(self.content)} bytes; expected at least {least}. Write the file again"
            )
        self.position += size
        return part

    def read_numbers(self, kind: str, count: int) -> Any:
        """Read an array of a NumPy type."""
        dtype = np.dtype(self.order + kind)
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)

    def read_count(self) -> int:
        return int(self.read_numbers("u8", 1)[0])

    def read_text(self) -> str:
        return self.take(self.read_count()).decode()

    def read_values(self, kind: int, count: int) -> list[Any]:
        """Read values of a type by its index; Python objects are None, because they are pickled."""
        if kind < _LONG_DOUBLE:
            numbers = self.read_numbers(_NUMBERS[kind], count)
            return list((numbers != 0 if kind == _TRUTH else numbers).tolist())
        if kind == _LONG_DOUBLE:
            return _convert_long_doubles(self.read_numbers("u1", 16 * count).reshape(-1, 16)[:, :: _step(self.order)])
        if kind == _TEXT:
            return [self.read_text() for _ in range(count)]
        if kind == _OBJECT:
            return [self.take(self.read_count()) and None for _ in range(count)]
        if kind > _OBJECT:
            raise GraphError(f"{self.source} has a property of type {kind}; expected 0 to {_OBJECT}. {_advise()}")
        return [self.read_values(kind - _VECTORS, self.read_count()) for _ in range(count)]


def read_graph_tool(source: Path, reading: Reading) -> Graph:
    """Read a binary file of graph-tool; nodes are numbers, and their names the property `name` or `label`."""
    import networkx

    content = _Content(source)
    if content.content[: len(_MAGIC)] != _MAGIC:
        raise GraphError(f"{source} cannot be read as .gt: it does not begin with the mark of graph-tool. {_advise()}")
    version, is_big = content.take(len(_MAGIC) + 2)[-2:]
    if version != _VERSION or is_big > 1:
        raise GraphError(f"{source} is in version {version} of the format; expected {_VERSION}. {_advise()}")
    content.order = "<>"[is_big]
    content.read_text()  # a comment
    graph = networkx.MultiDiGraph() if content.take(1)[0] else networkx.MultiGraph()
    ends = _read_links(content)
    graph.add_nodes_from(range(len(ends)))
    links = [graph.edges[u, v, graph.add_edge(u, v)] for u, neighbors in enumerate(ends) for v in neighbors]
    _read_properties(content, [[{}], list(graph.nodes.values()), links], reading)
    return graph


def _read_links(content: _Content) -> list[list[int]]:
    """Read the neighbors of each node."""
    n = content.read_count()
    # Each node has a length of eight bytes.
    if 8 * n > content.count_left():
        raise GraphError(f"{content.source} declares {n} nodes, more than its size allows. Write the file again")
    kind = next((kind for limit, kind in _WIDTHS if n < limit), "u8")
    ends = [content.read_numbers(kind, content.read_count()).tolist() for _ in range(n)]
    largest = max((max(neighbors) for neighbors in ends if neighbors), default=-1)
    if largest >= n:
        raise GraphError(f"{content.source} has a link to node {largest}; expected 0 to {n - 1}. Write the file again")
    return ends


def _read_properties(content: _Content, elements: list[list[Any]], reading: Reading) -> None:
    """Read the property maps, and set those of nodes and links as attributes."""
    # Files of NetworKit end after the links.
    for _ in range(content.read_count() if content.count_left() else 0):
        key, name = content.take(1)[0], content.read_text()
        if key >= len(_KEYS):
            raise GraphError(f"{content.source}: property {name!r} belongs to key {key}; expected 0 to 2. {_advise()}")
        kind = content.take(1)[0]
        values = content.read_values(kind, len(elements[key]))
        if not key or kind == _OBJECT:
            reading.ignored.append(f"{name} {_KEYS[key]}" + " (Python objects)" * (kind == _OBJECT))
            continue
        for attributes, value in zip(elements[key], values, strict=True):
            attributes[name] = value
    if content.count_left():
        raise GraphError(
            f"{content.source} has {content.count_left()} bytes after its last property. Write the file again"
        )


def _step(order: str) -> int:
    """Return the step through the bytes of a number, from the least to the most significant."""
    return 1 if order == "<" else -1


def _convert_long_doubles(parts: Any) -> list[float]:
    """Convert numbers of 16 bytes, least significant first: 64 bits of mantissa, then 16 of exponent and sign."""
    mantissa = np.ascontiguousarray(parts[:, :8]).view("<u8")[:, 0].astype(np.float64)
    top = np.ascontiguousarray(parts[:, 8:10]).view("<u2")[:, 0].astype(np.int64)
    with np.errstate(over="ignore"):
        sizes = np.ldexp(mantissa, (top & 0x7FFF) - 16383 - 63)
    return list(np.where(top & 0x8000, -sizes, sizes).tolist())


def _advise() -> str:
    return 'Write it in graph-tool as GraphML: graph.save("graph.graphml")'
