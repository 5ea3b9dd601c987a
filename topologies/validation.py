"""What counts as a graph here: what is refused, and in which order nodes become devices."""

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

UNDIRECTED = "the penalty between neighbors is symmetric; make it undirected"
INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")


def is_weight(value: object) -> bool:
    """Return whether a value is a finite number above 0; True and False are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value) and float(value) > 0
    except OverflowError:  # an int too large for a float
        return False


def sort_nodes(graph: Graph) -> list[Any]:
    """List the nodes in the order of devices: device i is the i-th.

    Numerically if every label parses as an integer (`10` and ``"10"`` alike), else by the label as text.

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
    ['site-10', 'site-2']
    """
    nodes = list(graph)
    if all(INTEGER.fullmatch(str(node)) for node in nodes):
        return sorted(nodes, key=lambda node: (int(str(node)), str(node), type(node).__name__))
    return sorted(nodes, key=lambda node: (str(node), type(node).__name__))


def name_nodes(graph: Graph) -> dict[Any, str] | None:
    """Return the name of every node, or None if the nodes are merely numbered.

    The names are the node attribute `name` or else `label`, if all nodes have one and no two the same; else the nodes
    themselves, if they are text or whole numbers. Numbers 0 to n-1 or 1 to n are no names.

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
    for key in ("name", "label"):
        found = dict(graph.nodes(data=key))
        if all(isinstance(name, str) for name in found.values()) and len(set(found.values())) == len(found):
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
