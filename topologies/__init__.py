"""Graphs for devices: families by name, and readers for files.

>>> import topologies
>>> graph = topologies.small_world(64, degree=4, rewire=0.1, seed=1)
>>> graph.number_of_nodes(), graph.number_of_edges()
(64, 128)
>>> topologies.build("grid", 12, rows=3).number_of_edges()
17

A family is a function of the number of devices with keyword options; `FAMILIES` maps its name in a spec to it. Its
functions return a networkx.Graph. For more than `LARGE` devices of the families in `LIGHT`, `build` returns a
`LightGraph` instead, three arrays without an object for every device and link.

>>> topologies.build("torus", 1_000_000).number_of_edges()
2000000

Importing this package imports neither networkx nor numpy.
"""

from collections.abc import Callable
from typing import Any

from topologies import large
from topologies.deterministic import barbell, caveman, complete, exponential, grid, path, ring, star, torus, tree
from topologies.fixed import file, karate
from topologies.graph import Graph, GraphError, check, sort_nodes
from topologies.light import LightGraph
from topologies.randomized import (
    barabasi_albert,
    communities,
    erdos_renyi,
    random_geometric,
    random_regular,
    small_world,
)
from topologies.readers import read

FAMILIES: dict[str, Callable[..., Graph]] = {
    "ring": ring,
    "path": path,
    "star": star,
    "complete": complete,
    "tree": tree,
    "grid": grid,
    "torus": torus,
    "exponential": exponential,
    "small-world": small_world,
    "random-regular": random_regular,
    "erdos-renyi": erdos_renyi,
    "random-geometric": random_geometric,
    "barabasi-albert": barabasi_albert,
    "communities": communities,
    "barbell": barbell,
    "caveman": caveman,
    "karate": karate,
    "file": file,
}

LIGHT: dict[str, Callable[..., LightGraph]] = {
    "ring": large.ring,
    "grid": large.grid,
    "torus": large.torus,
    "exponential": large.exponential,
    "small-world": large.small_world,
    "random-regular": large.random_regular,
    "random-geometric": large.random_geometric,
    "barabasi-albert": large.barabasi_albert,
}

LARGE = 100_000  # devices; beyond, a graph of Python objects takes longer to build than to use

__all__ = [
    "FAMILIES",
    "LARGE",
    "LIGHT",
    "GraphError",
    "LightGraph",
    "barabasi_albert",
    "barbell",
    "build",
    "caveman",
    "check",
    "communities",
    "complete",
    "erdos_renyi",
    "exponential",
    "file",
    "grid",
    "karate",
    "path",
    "random_geometric",
    "random_regular",
    "read",
    "ring",
    "small_world",
    "sort_nodes",
    "star",
    "torus",
    "tree",
]


def build(name: str, n: int | None = None, *, light: bool | None = None, **options: Any) -> Graph | LightGraph:
    """Build a graph of a family by its name.

    Parameters
    ----------
    name : str
        A key of `FAMILIES`; `-` and `_` are equal.
    n : int, optional
        The number of devices; `karate` and `file` do without.
    light : bool, optional
        Whether to return a LightGraph. None: for more than `LARGE` devices of a family in `LIGHT`. The families of
        chance draw it by generators of their own: the same distribution, but another draw for the same seed. Other
        families are built by networkx and converted.
    **options
        The options of the family.

    Returns
    -------
    networkx.Graph or LightGraph

    Raises
    ------
    GraphError
        If the name or an option is unknown, or the family refuses a value.
    """
    key = name.replace("_", "-").lower()
    if key not in FAMILIES:
        raise GraphError(f"unknown graph {name!r}. {_nearest(key, FAMILIES)}")
    known = FAMILIES[key].__kwdefaults__ or {}
    required = {"path"} if key == "file" else set()
    for option in options.keys() - known.keys() - required:
        raise GraphError(f"unknown option {option!r} of graph {key!r}. {_nearest(option, known.keys() | required)}")
    if not required <= options.keys():
        raise GraphError("graph 'file' needs path=, the file to read")
    wanted = light if light is not None else isinstance(n, int) and n > LARGE and key in LIGHT
    if wanted and key in LIGHT:
        return LIGHT[key](n, **options)
    graph = FAMILIES[key](n, **options)
    return LightGraph.from_networkx(graph, key) if wanted else graph


def _nearest(given: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return f"{hint}Known: {', '.join(known) or 'none'}."
