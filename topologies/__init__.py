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
families in `LIGHT`, `build` returns a `CSRGraph` instead, three arrays without an object for every device and link.

>>> topologies.build("torus", 200_000).number_of_edges()
400000

Importing this package imports neither networkx nor numpy.
"""

from topologies import measures
from topologies.checks import check
from topologies.csr_graph import CSRGraph
from topologies.display import show
from topologies.errors import GraphError
from topologies.families.datasets import davis, file, florentine, karate, les_miserables
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
from topologies.gallery_entries import GalleryEntry, read_recipe, recipes
from topologies.io import read
from topologies.io.attributes import FILE_SUMMARY as FILE_SUMMARY
from topologies.mixing import metropolis_weights
from topologies.plugins import PluginError
from topologies.registry import DETERMINISTIC as DETERMINISTIC
from topologies.registry import FAMILIES, FIXED, LARGE, LIGHT, TIME_VARYING, build, edge_markov, gallery
from topologies.registry import AnyGraph as AnyGraph
from topologies.time_varying.deterministic import (
    hyper_hypercube,
    inner_outer_exponential,
    inner_outer_ring,
    one_peer_exponential,
    simple_base,
)
from topologies.time_varying.graph import TimeVaryingGraph
from topologies.time_varying.random import peer_sampler, random_matchings, random_waypoint
from topologies.validation import are_names, name_nodes, sort_nodes

__all__ = [
    "FAMILIES",
    "FIXED",
    "LARGE",
    "LIGHT",
    "TIME_VARYING",
    "CSRGraph",
    "GalleryEntry",
    "GraphError",
    "PluginError",
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
    "metropolis_weights",
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
    "show",
    "simple_base",
    "small_world",
    "sort_nodes",
    "star",
    "stochastic_block_model",
    "torus",
    "tree",
    "wheel",
]
