"""Coordinates of nodes from their attributes, for drawings."""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from topologies.validation import Graph

_GEOGRAPHIC = (("longitude", "latitude"), ("lon", "lat"), ("lng", "lat"), ("long", "lat"))
_PLANE = (("x", "y"),)
_PAIRS = ("pos", "viz")  # attributes that contain both coordinates; networkx reads viz:position of GEXF as viz
_SHOWN = {"viz": "viz:position"}


class Coordinates(NamedTuple):
    """Coordinates of the nodes of a graph.

    Attributes
    ----------
    attributes : tuple of str
        Names of the two node attributes, or of the one with both coordinates.
    places : dict or None
        Position (x, y) of each node, y upward; geographic coordinates are projected. None: they cannot be used.
    reason : str
        Why they cannot be used; empty if they can.
    """

    attributes: tuple[str, ...]
    places: dict[Any, tuple[float, float]] | None
    reason: str

    def describe(self) -> str:
        """Describe the coordinates, for the line about a file."""
        names = " and ".join(_SHOWN.get(name, name) for name in self.attributes)
        verb = "does" if len(self.attributes) == 1 else "do"
        return f"{names} {verb} not place the nodes: {self.reason}" if self.reason else f"drawn by {names}"


def find_coordinates(graph: Graph) -> Coordinates | None:
    """Find the coordinates of the nodes; None if no node has any.

    Node attributes are longitude and latitude (also lon, lng, long and lat) in degrees, x and y, or `pos` with two or
    three numbers as list or text, in any case, or the viz:position of GEXF. The third number is not used. Geographic
    coordinates are projected so that distances are equal in both directions at the mean latitude.

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
    for name in (spelling[name] for name in _PAIRS if name in spelling):
        places, reason = _read_places(graph, (name,), False)
        # Other programs use these names for other contents, too.
        if any(math.isfinite(x) for x, _ in _list_places(graph, (name,)).values()):
            return Coordinates((name,), places, reason)
    return None


def _read_places(
    graph: Graph, attributes: tuple[str, ...], geographic: bool
) -> tuple[dict[Any, tuple[float, float]] | None, str]:
    """Return the positions, or the reason why there are none."""
    places = _list_places(graph, attributes)
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


def _list_places(graph: Graph, attributes: tuple[str, ...]) -> dict[Any, tuple[float, float]]:
    """List the coordinates of each node, NaN where there are none."""
    if len(attributes) == 1:
        return {node: _read_pair(data.get(attributes[0])) for node, data in graph.nodes(data=True)}
    return {node: _read_pair([data.get(name) for name in attributes]) for node, data in graph.nodes(data=True)}


def _read_pair(value: Any) -> tuple[float, float]:
    """Return the first two of two or three numbers in a list, a text or a mapping with x and y; else NaN."""
    if isinstance(value, Mapping):
        inner = value.get("position", value)
        value = [inner.get("x"), inner.get("y")] if isinstance(inner, Mapping) else None
    if isinstance(value, str):
        value = re.split(r"[\s,;]+", value.strip("()[]! \n\t"))
    try:
        # graph-tool writes numbers in hexadecimal notation.
        numbers = [float.fromhex(part) if "0x" in str(part) else float(part) for part in value]
    except (TypeError, ValueError):
        return math.nan, math.nan
    return (numbers[0], numbers[1]) if 2 <= len(numbers) <= 3 else (math.nan, math.nan)
