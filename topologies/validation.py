"""Checks of single values of a graph, the order of its nodes, and their names."""

import math
import operator
import re
from collections.abc import Iterable
from numbers import Real
from typing import TYPE_CHECKING, Any

from topologies.errors import GraphError

if TYPE_CHECKING:
    from networkx import Graph as Graph
else:
    Graph = Any  # networkx is imported when a graph is built, not before; the annotation must still resolve

NAMES = ("name", "label")  # node attributes that name devices, in this order
UNDIRECTED = "the penalty between neighbors is symmetric; make it undirected"
INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,4000}(?:\.[0-9]{1,4000})?")
_DIGITS = re.compile(r"([0-9]+)")


def is_weight(value: object) -> bool:
    """Return whether a value is a finite number above 0; True and False are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value) and float(value) > 0
    except OverflowError:  # an int too large for a float
        return False


def sort_nodes(graph: Graph) -> list[Any]:
    """List the nodes in natural order, which is the order of devices: device i is the i-th.

    The order in which a graph or a file lists them does not matter. If every label is a decimal number, they are sorted
    by value (`10`, ``"10"`` and ``"10.0"`` alike). Otherwise they are sorted as text in which each run of digits counts
    as one whole number, so that ``n2`` comes before ``n10``. Labels that are equal so far are sorted as plain text.

    Parameters
    ----------
    graph : networkx.Graph

    Returns
    -------
    list of node, length n

    Examples
    --------
    >>> import networkx as nx
    >>> import topologies
    >>> topologies.sort_nodes(nx.Graph([("site-10", "site-2")]))
    ['site-2', 'site-10']
    """
    labels = {node: str(node) for node in graph}
    key = _order_numbers if all(map(_NUMBER.fullmatch, labels.values())) else _order_text
    return sorted(graph, key=lambda node: (key(labels[node]), labels[node], type(node).__name__))


def _order_numbers(label: str) -> Any:
    """Return the value of a decimal number, exact for any number of digits."""
    from decimal import Decimal

    return int(label) if INTEGER.fullmatch(label) else Decimal(label)


def _order_text(label: str) -> list[Any]:
    """Return text and whole numbers in turn, each number as its count of digits and its digits without zeros ahead."""
    parts: list[Any] = _DIGITS.split(label)
    for i in range(1, len(parts), 2):
        digits = parts[i].lstrip("0")
        parts[i] = (len(digits), digits)
    return parts


def is_name(value: object) -> bool:
    """Return whether a value can name a node: text that is not empty."""
    return isinstance(value, str) and bool(value.strip())


def name_nodes(graph: Graph) -> dict[Any, str] | None:
    """Return the name of every node, or None if the nodes are merely numbered.

    The names are the node attribute `name` or else `label`, if all nodes have one that is text and not empty, and no
    two the same; else the nodes themselves, if they are text or whole numbers. Numbers 0 to n-1 or 1 to n do not count
    as names.

    Parameters
    ----------
    graph : networkx.Graph

    Examples
    --------
    >>> import networkx as nx
    >>> import topologies
    >>> topologies.name_nodes(nx.Graph([("Turku", "Oulu")]))
    {'Turku': 'Turku', 'Oulu': 'Oulu'}
    """
    for key in NAMES:
        found = dict(graph.nodes(data=key))
        if all(map(is_name, found.values())) and len(set(found.values())) == len(found):
            break
    else:
        if not all(isinstance(node, (str, int)) for node in graph):
            return None
        found = {node: str(node) for node in graph}
    return found if are_names(list(found.values())) else None


def are_names(names: list[str]) -> bool:
    """Return whether these are names, and not the numbers 0 to n-1 or 1 to n in any order.

    Examples
    --------
    >>> import topologies
    >>> topologies.are_names(["Turku", "Oulu"]), topologies.are_names(["0", "1"])
    (True, False)
    """
    if not all(INTEGER.fullmatch(name) for name in names):
        return True
    numbers = sorted(map(int, names))
    return numbers not in (list(range(len(names))), list(range(1, len(names) + 1)))


def assemble(n: int, links: Iterable[tuple[int, int]]) -> Graph:
    """Build the graph of nodes 0 to n-1, in this order, and the given links."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(links)
    return graph


def whole(value: object, what: str, least: int) -> int:
    """Return a whole number of at least `least`, as a plain int, or raise GraphError."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise GraphError(f"{what} is {value!r}; expected a whole number, {least} or more")
    return number


def fraction(value: object, what: str) -> float:
    """Return a number from 0 to 1 as a float, or raise GraphError."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise GraphError(f"{what} is {value!r}; expected a number from 0 to 1")
    return float(value)
