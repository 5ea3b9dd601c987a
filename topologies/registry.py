"""The graph families by name, and the two that are built from others: `gallery` and `edge_markov`."""

from collections.abc import Callable
from typing import Any, TypeAlias

from topologies.csr_graph import CSRGraph
from topologies.errors import GraphError
from topologies.families import csr as large
from topologies.families.datasets import agree, davis, file, florentine, karate, les_miserables
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
from topologies.gallery_entries import read_recipe
from topologies.plugins import GRAPHS, extend
from topologies.time_varying.deterministic import (
    hyper_hypercube,
    inner_outer_exponential,
    inner_outer_ring,
    one_peer_exponential,
    simple_base,
)
from topologies.time_varying.graph import TimeVaryingGraph
from topologies.time_varying.random import peer_sampler, random_matchings, random_waypoint, switch_links
from topologies.validation import Graph, fraction, whole

AnyGraph: TypeAlias = "Graph | CSRGraph | TimeVaryingGraph"


def gallery(n: int | None = None, *, recipe: str) -> AnyGraph:
    """Build a graph of the gallery, as `build` does with its entry; `recipes` lists the names.

    Parameters
    ----------
    n : int, optional
        That of the recipe or nothing.
    recipe : str
        Its name.

    Raises
    ------
    GraphError
        If there is no such recipe, or n is another number.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.gallery(recipe="karate")
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (34, 78)
    """
    found = read_recipe(recipe)
    agree(n, found.n, f"gallery:{recipe}")
    return build(found.family, found.n, **found.options)


def edge_markov(
    n: int, *, over: str = "complete", on: float = 0.1, off: float = 0.3, seed: int = 0
) -> TimeVaryingGraph:
    """Switch every link on and off by a Markov chain of its own, which starts in its steady state.

    A link that is off comes on with probability `on` from one round to the next, one that is on goes off with
    probability `off`; so it is on for the fraction on / (on + off) of the time, for 1 / off rounds at a stretch.
    Cost: the links of the graph `over`, those of the complete graph without it; never repeats.

    Parameters
    ----------
    n : int
    over : str
        The family, with its default options, whose links are switched.
    on, off : float
        Probabilities above 0, at most 1.
    seed : int
        Of the chain, and of the graph `over` if that is drawn.

    References
    ----------
    Clementi, Macci, Monti, Pasquale and Silvestri (2010), Flooding time of edge-Markovian evolving graphs, SIAM
    Journal on Discrete Mathematics 24.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.edge_markov(8, seed=1)
    >>> graph.period, [int(graph.active(r).sum()) // 2 for r in range(3)]  # links in use
    (None, [4, 6, 6])
    """
    chances = [fraction(chance, f"edge-markov: {name}") for chance, name in ((on, "on"), (off, "off"))]
    if not all(chances):
        raise GraphError(f"edge-markov: on is {on} and off is {off}; expected numbers above 0, at most 1")
    root = whole(seed, "edge-markov: seed", 0)
    known = getattr(FAMILIES.get(str(over).replace("_", "-").lower()), "__kwdefaults__", None) or {}
    options: dict[str, Any] = {"seed": root} if "seed" in known else {}
    built = build(over, n, **options)
    if isinstance(built, TimeVaryingGraph):
        raise GraphError(f"edge-markov: over is {over!r}, whose links change by themselves; take another graph")
    graph = built if isinstance(built, CSRGraph) else CSRGraph.from_networkx(built)
    return switch_links(graph, chances[0], chances[1], root)


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

LIGHT: dict[str, Callable[..., CSRGraph]] = {
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

DETERMINISTIC = frozenset({
    "ring",
    "grid",
    "torus",
    "exponential",
    "hypercube",
})  # of `LIGHT`: the same graph, light or not

LARGE = 100_000  # devices; beyond, a graph of Python objects takes longer to build than to use


def build(name: str, n: int | None = None, *, light: bool | None = None, **options: Any) -> AnyGraph:
    """Build a graph of a family by its name.

    Parameters
    ----------
    name : str
        A key of `FAMILIES` or `TIME_VARYING`, or what another package adds to them; `-` and `_` are equal.
    n : int, optional
        The number of devices; those in `FIXED` do without.
    light : bool, optional
        Whether to return a CSRGraph. None: for more than `LARGE` devices of a family in `LIGHT`. The families of
        chance draw it by generators of their own: the same distribution, but another draw for the same seed. Other
        families are built by networkx and converted. Time-varying ones are light anyway.
    **options
        The options of the family.

    Returns
    -------
    networkx.Graph, CSRGraph or TimeVaryingGraph

    Raises
    ------
    GraphError
        If the name or an option is unknown, or the family refuses a value.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.build("small-world", 20, degree=4, seed=1)
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (20, 40)
    """
    key = str(name).replace("_", "-").lower()
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
    done = not wanted or isinstance(graph, (CSRGraph, TimeVaryingGraph))
    return graph if done else CSRGraph.from_networkx(graph, key)


def _nearest(given: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return f"{hint}Known: {', '.join(known) or 'none'}."
