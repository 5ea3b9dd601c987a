"""Checks of single values, order of nodes, and names of nodes."""

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
    Graph = Any  # networkx is imported only when a graph is built; the annotation must still resolve

NAMES = ("name", "label")  # node attributes that name devices, in order of preference
# Remedies, with the keys of a file and of `topologies.read`.
PARALLEL = (
    "Merge such links: parallel=sum adds their weights and bandwidths, parallel=first keeps the first one, as in "
    "file:PATH,parallel=sum or topologies.read(graph, parallel='sum')"
)
LOOPS = "Remove it, or all such links: file:PATH,loops=drop or topologies.read(graph, loops='drop')"
UNDIRECTED = "the penalty between neighbors is symmetric. Make it undirected"
# Range of weights, whose squares float64 holds, and largest ratio, at which a sum of both keeps four digits of each.
LEAST_WEIGHT, LARGEST_WEIGHT, WEIGHT_RATIO = 1e-100, 1e100, 1e12
INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,4000}(?:\.[0-9]{1,4000})?")
_DIGITS = re.compile(r"([0-9]+)")


def is_positive(value: object) -> bool:
    """Return whether a value is a finite number above 0; bool is not a number here."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value) and float(value) > 0
    except OverflowError:
        # An int that is too large for a float.
        return False


def check_weight(value: object, where: str) -> None:
    """Check that a value is a number whose sums and products neither overflow nor underflow."""
    if not isinstance(value, Real) or not is_positive(value):
        raise GraphError(f"the weight of {where} is {value!r}; expected a finite number above 0")
    if not LEAST_WEIGHT <= float(value) <= LARGEST_WEIGHT:
        raise GraphError(
            f"the weight of {where} is {value!r}; expected from {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}: multiply all "
            "weights by a constant, or remove the link"
        )


def check_weight_ratio(low: float, high: float) -> None:
    """Check that the smallest weight is not lost when it is added to the largest one."""
    if high > WEIGHT_RATIO * low:
        raise GraphError(
            f"the weights of the links reach from {low:g} to {high:g}; expected a ratio of at most {WEIGHT_RATIO:g}: "
            "above, sums of weights lose the digits of the smallest. Correct the weights, or remove the links whose "
            "weights are negligible"
        )


def sort_nodes(graph: Graph) -> list[Any]:
    """List the nodes in natural order, which is the order of devices: device i is the i-th node.

    The order in the graph or file does not matter. If every label is a decimal number, nodes are sorted by value (`10`,
    ``"10"`` and ``"10.0"`` are equal). Otherwise they are sorted as text in which each sequence of digits counts as one
    integer, so that ``n2`` comes before ``n10``. Labels that are equal by this rule are sorted as plain text.

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
    """Parse a decimal number exactly, for any number of digits."""
    from decimal import Decimal

    return int(label) if INTEGER.fullmatch(label) else Decimal(label)


def _order_text(label: str) -> list[Any]:
    """Split a label into texts and integers, each integer as number of digits and digits without leading zeros."""
    parts: list[Any] = _DIGITS.split(label)
    for i in range(1, len(parts), 2):
        digits = parts[i].lstrip("0")
        parts[i] = (len(digits), digits)
    return parts


def is_name(value: object) -> bool:
    """Return whether a value can name a node: a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def name_nodes(graph: Graph) -> dict[Any, str] | None:
    """Return the name of every node, or None if the nodes are only numbered.

    Names are the values of the node attribute `name` or else `label`, if they are texts that are not blank, and all
    different; else the nodes themselves, if they are texts or integers. Numbers 0 to n - 1 or 1 to n are not names.
    Letters and accents are composed (Unicode normalization form C), unless two names are equal then.

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
        names = dict(graph.nodes(data=key))
        if all(map(is_name, names.values())) and len(set(names.values())) == len(names):
            break
    else:
        if not all(isinstance(node, (str, int)) for node in graph):
            return None
        names = {node: str(node) for node in graph}
    composed = {node: compose(name) for node, name in names.items()}
    names = composed if len(set(composed.values())) == len(names) else names
    return names if are_names(list(names.values())) else None


def compose(name: str) -> str:
    """Compose letters and accents (Unicode normalization form C), as in the names of nodes."""
    if name.isascii():
        return name
    from unicodedata import normalize

    return normalize("NFC", name)


def are_names(names: list[str]) -> bool:
    """Return whether labels are names, and not the numbers 0 to n - 1 or 1 to n in any order.

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
    """Build the graph of nodes 0 to n - 1, in this order, with the given links."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(links)
    return graph


def require_integer(value: object, what: str, least: int) -> int:
    """Convert an integer of at least `least` to int, or raise GraphError."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise GraphError(f"{what} is {value!r}; expected a whole number, {least} or more")
    return number


def require_fraction(value: object, what: str) -> float:
    """Convert a number from 0 to 1 to float, or raise GraphError."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise GraphError(f"{what} is {value!r}; expected a number from 0 to 1")
    return float(value)
