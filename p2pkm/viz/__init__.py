"""Figures of a run: what a result shows, drawn with matplotlib, which is loaded when the first one is drawn."""

from p2pkm.viz.all_figures import draw_all, overview
from p2pkm.viz.animation import animate
from p2pkm.viz.figures.attack import plot_attack
from p2pkm.viz.figures.bytes_per_device import plot_bytes
from p2pkm.viz.figures.comparison import draw_comparison, plot_quality
from p2pkm.viz.figures.convergence import plot_convergence
from p2pkm.viz.figures.coupling_path import plot_coupling_path
from p2pkm.viz.figures.devices import plot_devices
from p2pkm.viz.figures.drift import plot_drift
from p2pkm.viz.figures.graph import plot_graph, plot_topology
from p2pkm.viz.figures.graph_comparison import plot_graphs
from p2pkm.viz.figures.leaks import plot_leaks
from p2pkm.viz.figures.number_of_clusters import plot_k
from p2pkm.viz.figures.partition import plot_partition, plot_partition_of
from p2pkm.viz.figures.points import plot_points
from p2pkm.viz.figures.progress import plot_progress
from p2pkm.viz.figures.study import draw_study, plot_heatmap, plot_measures, plot_study_quality

__all__ = [
    "animate",
    "draw_all",
    "draw_comparison",
    "draw_study",
    "overview",
    "plot_attack",
    "plot_bytes",
    "plot_convergence",
    "plot_coupling_path",
    "plot_devices",
    "plot_drift",
    "plot_graph",
    "plot_graphs",
    "plot_heatmap",
    "plot_k",
    "plot_leaks",
    "plot_measures",
    "plot_partition",
    "plot_partition_of",
    "plot_points",
    "plot_progress",
    "plot_quality",
    "plot_study_quality",
    "plot_topology",
]
