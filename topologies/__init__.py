"""Graphs for devices: families by name, and readers for files and graph objects.

>>> import topologies
>>> graph = topologies.small_world(64, degree=4, rewire=0.1, seed=1)
>>> graph.number_of_nodes(), graph.number_of_edges()
(64, 128)
>>> topologies.build("grid", 12, rows=3).number_of_edges()
17

A family is a function of the number of devices with keyword options. `FAMILIES` maps names in specifications to
families that return a networkx.Graph, `TIME_VARYING` to families that return a `TimeVaryingGraph`, whose links change
from round to round. `gallery` builds recipes: a family with all its options under one name. For more than `LARGE`
devices of a family in `LIGHT`, `build` returns a `CSRGraph`: three arrays instead of an object for every device and
link.

>>> topologies.build("torus", 200_000).number_of_edges()
400000

Importing this package imports neither networkx nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topologies import measures as measures
    from topologies.checks import check as check
    from topologies.csr_graph import CSRGraph as CSRGraph
    from topologies.display import show as show
    from topologies.errors import GraphError as GraphError
    from topologies.families.datasets import davis as davis
    from topologies.families.datasets import file as file
    from topologies.families.datasets import florentine as florentine
    from topologies.families.datasets import karate as karate
    from topologies.families.datasets import les_miserables as les_miserables
    from topologies.families.random import barabasi_albert as barabasi_albert
    from topologies.families.random import communities as communities
    from topologies.families.random import erdos_renyi as erdos_renyi
    from topologies.families.random import random_geometric as random_geometric
    from topologies.families.random import random_regular as random_regular
    from topologies.families.random import small_world as small_world
    from topologies.families.random_clustered import powerlaw_cluster as powerlaw_cluster
    from topologies.families.random_clustered import stochastic_block_model as stochastic_block_model
    from topologies.families.regular import barbell as barbell
    from topologies.families.regular import caveman as caveman
    from topologies.families.regular import complete as complete
    from topologies.families.regular import exponential as exponential
    from topologies.families.regular import grid as grid
    from topologies.families.regular import path as path
    from topologies.families.regular import ring as ring
    from topologies.families.regular import star as star
    from topologies.families.regular import torus as torus
    from topologies.families.regular import tree as tree
    from topologies.families.textbook import bipartite as bipartite
    from topologies.families.textbook import circular_ladder as circular_ladder
    from topologies.families.textbook import d_cliques as d_cliques
    from topologies.families.textbook import hypercube as hypercube
    from topologies.families.textbook import ladder as ladder
    from topologies.families.textbook import lollipop as lollipop
    from topologies.families.textbook import margulis as margulis
    from topologies.families.textbook import wheel as wheel
    from topologies.gallery_entries import GalleryEntry as GalleryEntry
    from topologies.gallery_entries import read_recipe as read_recipe
    from topologies.gallery_entries import recipes as recipes
    from topologies.io import read as read
    from topologies.io.attributes import FILE_SUMMARY as FILE_SUMMARY
    from topologies.mixing import metropolis_weights as metropolis_weights
    from topologies.plugins import PluginError as PluginError
    from topologies.registry import DETERMINISTIC as DETERMINISTIC
    from topologies.registry import FAMILIES as FAMILIES
    from topologies.registry import FIXED as FIXED
    from topologies.registry import LARGE as LARGE
    from topologies.registry import LIGHT as LIGHT
    from topologies.registry import TIME_VARYING as TIME_VARYING
    from topologies.registry import AnyGraph as AnyGraph
    from topologies.registry import build as build
    from topologies.registry import edge_markov as edge_markov
    from topologies.registry import gallery as gallery
    from topologies.time_varying.deterministic import hyper_hypercube as hyper_hypercube
    from topologies.time_varying.deterministic import inner_outer_exponential as inner_outer_exponential
    from topologies.time_varying.deterministic import inner_outer_ring as inner_outer_ring
    from topologies.time_varying.deterministic import one_peer_exponential as one_peer_exponential
    from topologies.time_varying.deterministic import simple_base as simple_base
    from topologies.time_varying.graph import TimeVaryingGraph as TimeVaryingGraph
    from topologies.time_varying.random import peer_sampler as peer_sampler
    from topologies.time_varying.random import random_matchings as random_matchings
    from topologies.time_varying.random import random_waypoint as random_waypoint
    from topologies.validation import are_names as are_names
    from topologies.validation import name_nodes as name_nodes
    from topologies.validation import sort_nodes as sort_nodes

_HOMES = {
    "check": "topologies.checks",
    "CSRGraph": "topologies.csr_graph",
    "show": "topologies.display",
    "GraphError": "topologies.errors",
    **dict.fromkeys(("davis", "file", "florentine", "karate", "les_miserables"), "topologies.families.datasets"),
    **dict.fromkeys(
        ("barabasi_albert", "communities", "erdos_renyi", "random_geometric", "random_regular", "small_world"),
        "topologies.families.random",
    ),
    **dict.fromkeys(("powerlaw_cluster", "stochastic_block_model"), "topologies.families.random_clustered"),
    **dict.fromkeys(
        ("barbell", "caveman", "complete", "exponential", "grid", "path", "ring", "star", "torus", "tree"),
        "topologies.families.regular",
    ),
    **dict.fromkeys(
        ("bipartite", "circular_ladder", "d_cliques", "hypercube", "ladder", "lollipop", "margulis", "wheel"),
        "topologies.families.textbook",
    ),
    **dict.fromkeys(("GalleryEntry", "read_recipe", "recipes"), "topologies.gallery_entries"),
    "read": "topologies.io",
    "FILE_SUMMARY": "topologies.io.attributes",
    "metropolis_weights": "topologies.mixing",
    "PluginError": "topologies.plugins",
    **dict.fromkeys(
        (
            "DETERMINISTIC",
            "FAMILIES",
            "FIXED",
            "LARGE",
            "LIGHT",
            "TIME_VARYING",
            "build",
            "edge_markov",
            "gallery",
            "AnyGraph",
        ),
        "topologies.registry",
    ),
    **dict.fromkeys(
        ("hyper_hypercube", "inner_outer_exponential", "inner_outer_ring", "one_peer_exponential", "simple_base"),
        "topologies.time_varying.deterministic",
    ),
    "TimeVaryingGraph": "topologies.time_varying.graph",
    **dict.fromkeys(("peer_sampler", "random_matchings", "random_waypoint"), "topologies.time_varying.random"),
    **dict.fromkeys(("are_names", "name_nodes", "sort_nodes"), "topologies.validation"),
}
_HIDDEN = {"AnyGraph", "DETERMINISTIC", "FILE_SUMMARY"}  # used by p2pkm, not part of the public interface

__all__ = sorted({*_HOMES, "measures"} - _HIDDEN)


def __getattr__(name: str) -> Any:
    if name == "measures":
        return import_module("topologies.measures")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} does not have the attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    # Bound for the next access, which then does not call this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "measures"})
