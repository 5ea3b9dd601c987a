"""Figures of runs and studies, drawn with matplotlib, which is loaded when the first figure is drawn.

Examples
--------
>>> import p2pkm, topologies
>>> X, y = p2pkm.blobs(clusters=3, points=12, seed=0)
>>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 4, seed=0), devices=4, labels=y)
>>> result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), shards, rounds=3)
>>> figure = p2pkm.viz.plot_convergence(result)
>>> len(figure.axes)
1
"""

from collections.abc import Callable
from typing import Any

from p2pkm.core.late_binding import provide
from p2pkm.viz.all_figures import draw_all, overview
from p2pkm.viz.animation import animate
from p2pkm.viz.bench import draw_bench
from p2pkm.viz.figures.attack import plot_attack
from p2pkm.viz.figures.bench_fronts import plot_bench_fronts
from p2pkm.viz.figures.bench_map import plot_bench_map
from p2pkm.viz.figures.bench_profiles import plot_bench_profiles
from p2pkm.viz.figures.bytes_per_device import plot_bytes
from p2pkm.viz.figures.columns import plot_columns
from p2pkm.viz.figures.comparison import plot_quality
from p2pkm.viz.figures.convergence import plot_convergence
from p2pkm.viz.figures.coupling_path import plot_coupling_path
from p2pkm.viz.figures.devices import plot_devices
from p2pkm.viz.figures.drift import plot_drift
from p2pkm.viz.figures.explained import plot_explained
from p2pkm.viz.figures.graph import plot_graph, plot_topology
from p2pkm.viz.figures.graph_comparison import plot_graphs
from p2pkm.viz.figures.leaks import plot_leaks
from p2pkm.viz.figures.number_of_clusters import plot_k
from p2pkm.viz.figures.overlay import overlay
from p2pkm.viz.figures.partition import plot_partition, plot_partition_of
from p2pkm.viz.figures.points import plot_points
from p2pkm.viz.figures.profile import plot_profile
from p2pkm.viz.figures.progress import plot_progress
from p2pkm.viz.figures.seeds import plot_differences, plot_seeds
from p2pkm.viz.figures.study import plot_heatmap, plot_measures, plot_study_quality
from p2pkm.viz.study_figures import draw_comparison, draw_study

# Figures of deep clustering. `p2pkm.deep` imports this package, so they are bound when they are first used.
_DEEP_FIGURES = ("plot_accuracy", "plot_features", "plot_nearest")

__all__ = [
    *_DEEP_FIGURES,
    "animate",
    "draw_all",
    "draw_bench",
    "draw_comparison",
    "draw_study",
    "overlay",
    "overview",
    "plot_attack",
    "plot_bench_fronts",
    "plot_bench_map",
    "plot_bench_profiles",
    "plot_bytes",
    "plot_columns",
    "plot_convergence",
    "plot_coupling_path",
    "plot_devices",
    "plot_differences",
    "plot_drift",
    "plot_explained",
    "plot_graph",
    "plot_graphs",
    "plot_heatmap",
    "plot_k",
    "plot_leaks",
    "plot_measures",
    "plot_partition",
    "plot_partition_of",
    "plot_points",
    "plot_profile",
    "plot_progress",
    "plot_quality",
    "plot_seeds",
    "plot_study_quality",
    "plot_topology",
]


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _DEEP_FIGURES:
        raise AttributeError(f"module {__name__!r} does not have the attribute {name!r}")
    return provide(name)
