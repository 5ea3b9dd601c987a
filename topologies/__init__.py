"""Graphs for devices: families by name, and readers for files.

>>> import topologies
>>> graph = topologies.small_world(64, degree=4, rewire=0.1, seed=1)
>>> graph.number_of_nodes(), graph.number_of_edges()
(64, 128)
>>> topologies.build("grid", 12, rows=3).number_of_edges()
17

A family is a function of the number of devices with keyword options; `FAMILIES` maps its name in a spec to it. Its
functions return a networkx.Graph. Those in `TIME_VARYING` return a `TimeVaryingGraph`, whose links change from round to
round; `gallery` holds recipes, each a family with all its options under one name. For more than `LARGE` devices of the
families in `LIGHT`, `build` returns a `LightGraph` instead, three arrays without an object for every device and link.

>>> topologies.build("torus", 1_000_000).number_of_edges()
2000000

Importing this package imports neither networkx nor numpy.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from topologies import measures
from topologies.csr_graph import LightGraph
from topologies.families import csr as large
from topologies.families.datasets import davis, file, florentine, karate, les_miserables
from topologies.families.limits import refuse_dense
from topologies.families.random import (
    barabasi_albert,
    communities,
    erdos_renyi,
    random_geometric,
    random_regular,
    small_world,
)
from topologies.families.random_clustered import powerlaw_cluster, stochastic_block_model
from topologies.families.regular import barbell, caveman, complete, exponential, grid, path, ring, star, torus, tree
from topologies.families.textbook import (
    bipartite,
    circular_ladder,
    d_cliques,
    hypercube,
    ladder,
    lollipop,
    margulis,
    wheel,
)
from topologies.gallery_entries import Recipe, gallery, read_recipe, recipes
from topologies.io import read
from topologies.plugins import GRAPHS, PluginError, extend
from topologies.time_varying.deterministic import (
    hyper_hypercube,
    inner_outer_exponential,
    inner_outer_ring,
    one_peer_exponential,
    simple_base,
)
from topologies.time_varying.graph import TimeVaryingGraph
from topologies.time_varying.random import edge_markov, peer_sampler, random_matchings, random_waypoint
from topologies.validation import Graph, GraphError, are_names, check, name_nodes, sort_nodes

AnyGraph: TypeAlias = "Graph | LightGraph | TimeVaryingGraph"

FAMILIES: dict[str, Callable[..., AnyGraph]] = {
    "ring": ring,
    "path": path,
    "star": star,
    "complete": complete,
    "tree": tree,
    "grid": grid,
    "torus": torus,
    "exponential": exponential,
    "hypercube": hypercube,
    "ladder": ladder,
    "circular-ladder": circular_ladder,
    "wheel": wheel,
    "bipartite": bipartite,
    "lollipop": lollipop,
    "margulis": margulis,
    "d-cliques": d_cliques,
    "small-world": small_world,
    "random-regular": random_regular,
    "erdos-renyi": erdos_renyi,
    "random-geometric": random_geometric,
    "barabasi-albert": barabasi_albert,
    "powerlaw-cluster": powerlaw_cluster,
    "stochastic-block-model": stochastic_block_model,
    "communities": communities,
    "barbell": barbell,
    "caveman": caveman,
    "karate": karate,
    "davis": davis,
    "les-miserables": les_miserables,
    "florentine": florentine,
    "file": file,
    "gallery": gallery,
}

TIME_VARYING: dict[str, Callable[..., TimeVaryingGraph]] = {
    "one-peer-exponential": one_peer_exponential,
    "inner-outer-exponential": inner_outer_exponential,
    "inner-outer-ring": inner_outer_ring,
    "hyper-hypercube": hyper_hypercube,
    "simple-base": simple_base,
    "peer-sampler": peer_sampler,
    "random-matchings": random_matchings,
    "edge-markov": edge_markov,
    "random-waypoint": random_waypoint,
}

FIXED = frozenset({"karate", "davis", "les-miserables", "florentine", "file", "gallery"})  # have their own size

LIGHT: dict[str, Callable[..., LightGraph]] = {
    "ring": large.ring,
    "grid": large.grid,
    "torus": large.torus,
    "exponential": large.exponential,
    "hypercube": large.hypercube,
    "small-world": large.small_world,
    "random-regular": large.random_regular,
    "random-geometric": large.random_geometric,
    "barabasi-albert": large.barabasi_albert,
}

LARGE = 100_000  # devices; beyond, a graph of Python objects takes longer to build than to use

__all__ = [
    "FAMILIES",
    "FIXED",
    "LARGE",
    "LIGHT",
    "TIME_VARYING",
    "GraphError",
    "LightGraph",
    "PluginError",
    "Recipe",
    "TimeVaryingGraph",
    "are_names",
    "barabasi_albert",
    "barbell",
    "bipartite",
    "build",
    "caveman",
    "check",
    "circular_ladder",
    "communities",
    "complete",
    "d_cliques",
    "davis",
    "edge_markov",
    "erdos_renyi",
    "exponential",
    "file",
    "florentine",
    "gallery",
    "grid",
    "hyper_hypercube",
    "hypercube",
    "inner_outer_exponential",
    "inner_outer_ring",
    "karate",
    "ladder",
    "les_miserables",
    "lollipop",
    "margulis",
    "measures",
    "name_nodes",
    "one_peer_exponential",
    "path",
    "peer_sampler",
    "powerlaw_cluster",
    "random_geometric",
    "random_matchings",
    "random_regular",
    "random_waypoint",
    "read",
    "read_recipe",
    "recipes",
    "ring",
    "simple_base",
    "small_world",
    "sort_nodes",
    "star",
    "stochastic_block_model",
    "torus",
    "tree",
    "wheel",
]


def build(name: str, n: int | None = None, *, light: bool | None = None, **options: Any) -> AnyGraph:
    """Build a graph of a family by its name.

    Parameters
    ----------
    name : str
        A key of `FAMILIES` or `TIME_VARYING`, or what another package adds to them; `-` and `_` are equal.
    n : int, optional
        The number of devices; those in `FIXED` do without.
    light : bool, optional
        Whether to return a LightGraph. None: for more than `LARGE` devices of a family in `LIGHT`. The families of
        chance draw it by generators of their own: the same distribution, but another draw for the same seed. Other
        families are built by networkx and converted. Time-varying ones are light anyway.
    **options
        The options of the family.

    Returns
    -------
    networkx.Graph, LightGraph or TimeVaryingGraph

    Raises
    ------
    GraphError
        If the name or an option is unknown, or the family refuses a value.
    """
    key = name.replace("_", "-").lower()
    families = extend({**FAMILIES, **TIME_VARYING}, GRAPHS, key)
    if key not in families:
        raise GraphError(f"unknown graph {name!r}. {_nearest(key, families)}")
    known = families[key].__kwdefaults__ or {}
    required = {"file": {"path"}, "gallery": {"recipe"}}.get(key, set())
    for option in options.keys() - known.keys() - required:
        raise GraphError(f"unknown option {option!r} of graph {key!r}. {_nearest(option, known.keys() | required)}")
    if not required <= options.keys():
        raise GraphError(f"graph {key!r} needs {min(required)}=, what to read")
    refuse_dense(key, n, options)
    wanted = light if light is not None else isinstance(n, int) and n > LARGE and key in LIGHT
    if wanted and key in LIGHT:
        return LIGHT[key](n, **options)
    graph = families[key](n, **options)
    done = not wanted or isinstance(graph, (LightGraph, TimeVaryingGraph))
    return graph if done else LightGraph.from_networkx(graph, key)


def _nearest(given: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return f"{hint}Known: {', '.join(known) or 'none'}."
