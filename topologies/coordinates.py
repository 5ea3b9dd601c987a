"""Coordinates of nodes from their attributes, for drawings."""

import math
from typing import Any, NamedTuple

from topologies.validation import Graph

_GEOGRAPHIC = (("longitude", "latitude"), ("lon", "lat"), ("lng", "lat"), ("long", "lat"))
_PLANE = (("x", "y"),)


class Coordinates(NamedTuple):
    """Coordinates of the nodes of a graph.

    Attributes
    ----------
    attributes : tuple of str
        Names of the two node attributes.
    places : dict or None
        Position (x, y) of each node, y upward; geographic coordinates are projected. None: they cannot be used.
    reason : str
        Why they cannot be used; empty if they can.
    """

    attributes: tuple[str, str]
    places: dict[Any, tuple[float, float]] | None
    reason: str

    def describe(self) -> str:
        """Describe the coordinates, for the line about a file."""
        names = " and ".join(self.attributes)
        return f"{names} do not place the nodes: {self.reason}" if self.reason else f"drawn by {names}"


def find_coordinates(graph: Graph) -> Coordinates | None:
    """Find the coordinates of the nodes; None if no node has any.

    Node attributes are longitude and latitude (also lon, lng, long and lat) in degrees, or x and y, in any case.
    Geographic coordinates are projected so that distances are equal in both directions at the mean latitude.

    Parameters
    ----------
    graph : networkx.Graph

    Examples
    --------
    >>> import networkx as nx
    >>> from topologies.coordinates import find_coordinates
    >>> graph = nx.Graph([("Turku", "Oulu")])
    >>> nx.set_node_attributes(graph, {"Turku": {"x": 0, "y": 1}, "Oulu": {"x": 2, "y": 5}})
    >>> find_coordinates(graph).places
    {'Turku': (0.0, 1.0), 'Oulu': (2.0, 5.0)}
    """
    names = dict.fromkeys(name for _, data in graph.nodes(data=True) for name in data if isinstance(name, str))
    spelling = {name.lower(): name for name in names}
    for pair in (*_GEOGRAPHIC, *_PLANE):
        if all(name in spelling for name in pair):
            attributes = spelling[pair[0]], spelling[pair[1]]
            places, reason = _read_places(graph, attributes, pair in _GEOGRAPHIC)
            return Coordinates(attributes, places, reason)
    return None


def _read_places(
    graph: Graph, attributes: tuple[str, str], geographic: bool
) -> tuple[dict[Any, tuple[float, float]] | None, str]:
    """Return the positions, or the reason why there are none."""
    places = {node: (_read_number(data, attributes[0]), _read_number(data, attributes[1]))
              for node, data in graph.nodes(data=True)}  # fmt: skip
    unknown = sum(not all(map(math.isfinite, place)) for place in places.values())
    if unknown:
        return None, f"{unknown} of {len(places)} nodes have none"
    if geographic and any(abs(x) > 360 or abs(y) > 90 for x, y in places.values()):
        return None, "they are not degrees"
    if len(set(places.values())) < min(len(places), 2):
        return None, "they are equal"
    if geographic:
        wide = math.cos(math.radians(math.fsum(y for _, y in places.values()) / len(places)))
        places = {node: (x * wide, y) for node, (x, y) in places.items()}
    return places, ""


def _read_number(data: dict[str, Any], name: str) -> float:
    """Return the value of an attribute, NaN if it is not a number."""
    try:
        return float(data.get(name, math.nan))
    except (TypeError, ValueError):
        return math.nan
