"""Registry of graph families by name, and the two families that are built from others: `gallery` and `edge_markov`."""

from collections.abc import Callable
from typing import Any, TypeAlias

from topologies.csr_graph import CSRGraph
from topologies.errors import GraphError
from topologies.families import csr as large
from topologies.families.datasets import check_size, davis, file, florentine, karate, les_miserables
from topologies.families.limits import check_density
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
from topologies.plugins import GRAPHS, OF_GRAPHS, extend
from topologies.time_varying.deterministic import (
    hyper_hypercube,
    inner_outer_exponential,
    inner_outer_ring,
    one_peer_exponential,
    simple_base,
)
from topologies.time_varying.graph import TimeVaryingGraph
from topologies.time_varying.random import peer_sampler, random_matchings, random_waypoint, switch_links
from topologies.validation import Graph, require_fraction, require_integer

AnyGraph: TypeAlias = "Graph | CSRGraph | TimeVaryingGraph"


def gallery(n: int | None = None, *, recipe: str) -> AnyGraph:
    """Build a graph from a recipe of the gallery; `recipes` lists the names.

    Parameters
    ----------
    n : int, optional
        The number of devices of the recipe, or None.
    recipe : str
        Name of the recipe.

    Raises
    ------
    GraphError
        If the recipe is unknown, or `n` is another number.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.gallery(recipe="karate")
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (34, 78)
    """
    entry = read_recipe(recipe)
    check_size(n, entry.n, f"gallery:{recipe}")
    return build(entry.family, entry.n, **entry.options)


def edge_markov(
    n: int, *, over: str = "complete", on: float = 0.1, off: float = 0.3, seed: int = 0
) -> TimeVaryingGraph:
    """Switch every link on and off by an independent Markov chain, which starts in its stationary distribution.

    From one round to the next, an inactive link becomes active with probability `on`, an active link inactive with
    probability `off`. So a link is active for the fraction on / (on + off) of the time, for 1 / off rounds on average.
    Cost: the links of the graph `over`; not periodic.

    Parameters
    ----------
    n : int
    over : str, default="complete"
        Family whose links are switched, with its default options.
    on, off : float, default=0.1 and 0.3
        Probabilities above 0, at most 1.
    seed : int, default=0
        Seed of the chains, and of the graph `over` if it is random.

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
    chances = [require_fraction(chance, f"edge-markov: {name}") for chance, name in ((on, "on"), (off, "off"))]
    if not all(chances):
        raise GraphError(f"edge-markov: on is {on} and off is {off}; expected numbers above 0, at most 1")
    root = require_integer(seed, "edge-markov: seed", 0)
    known = getattr(FAMILIES.get(str(over).replace("_", "-").lower()), "__kwdefaults__", None) or {}
    options: dict[str, Any] = {"seed": root} if "seed" in known else {}
    built = build(over, n, **options)
    if isinstance(built, TimeVaryingGraph):
        raise GraphError(f"edge-markov: over is {over!r}, a time-varying graph; expected a static one, such as 'ring'")
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

# Families with a fixed number of devices.
FIXED = frozenset({"karate", "davis", "les-miserables", "florentine", "file", "gallery"})

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

# Families in `LIGHT` that give the same graph, light or not.
DETERMINISTIC = frozenset({"ring", "grid", "torus", "exponential", "hypercube"})

# Devices above which a graph of Python objects takes longer to build than to use.
LARGE = 100_000


def build(name: str, n: int | None = None, *, light: bool | None = None, **options: Any) -> AnyGraph:
    """Build a graph of a family by its name.

    Parameters
    ----------
    name : str
        A key of `FAMILIES` or `TIME_VARYING`, or the name of a plug-in; `-` and `_` are equivalent.
    n : int, optional
        Number of devices; not required for families in `FIXED`.
    light : bool, optional
        Whether to return a CSRGraph. None: if a family in `LIGHT` has more than `LARGE` devices. Light random graphs
        are drawn by separate generators: they have the same distribution, but the same seed gives another graph. Graphs
        of other families are built with networkx and converted. Time-varying graphs are always light.
    **options
        Options of the family.

    Returns
    -------
    networkx.Graph, CSRGraph or TimeVaryingGraph

    Raises
    ------
    GraphError
        If the name or an option is unknown, or a value is invalid.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.build("small-world", 20, degree=4, seed=1)
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (20, 40)
    """
    key = str(name).replace("_", "-").lower()
    families = extend({**FAMILIES, **TIME_VARYING}, GRAPHS, key, OF_GRAPHS)
    if key not in families:
        raise GraphError(f"unknown graph {name!r}. {_nearest(key, families)}")
    known = families[key].__kwdefaults__ or {}
    required = {"file": {"path"}, "gallery": {"recipe"}}.get(key, set())
    for option in options.keys() - known.keys() - required:
        raise GraphError(f"unknown option {option!r} of graph {key!r}. {_nearest(option, known.keys() | required)}")
    if not required <= options.keys():
        raise GraphError(f"graph {key!r} requires the option {min(required)}=")
    check_density(key, n, options)
    is_light = light if light is not None else isinstance(n, int) and n > LARGE and key in LIGHT
    if is_light and key in LIGHT:
        return LIGHT[key](n, **options)
    graph = families[key](n, **options)
    done = not is_light or isinstance(graph, (CSRGraph, TimeVaryingGraph))
    return graph if done else CSRGraph.from_networkx(graph, key)


def _nearest(name: str, known: Any) -> str:
    """Suggest the most similar known name, and list all."""
    from difflib import get_close_matches

    similar = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {similar[0]!r}? " if similar else ""
    return f"{hint}Known: {', '.join(known) or 'none'}."
