"""Figures of a run: what a result shows, drawn with matplotlib, which is loaded when the first one is drawn."""

from p2pkm.plots.animation import animate
from p2pkm.plots.comparison import draw_comparison, plot_quality
from p2pkm.plots.convergence import plot_convergence
from p2pkm.plots.devices import plot_devices
from p2pkm.plots.gallery import draw_all, overview
from p2pkm.plots.graph import plot_graph, plot_topology
from p2pkm.plots.graphs import plot_graphs
from p2pkm.plots.partition import plot_partition, plot_partition_of
from p2pkm.plots.path import plot_coupling_path
from p2pkm.plots.points import plot_points
from p2pkm.plots.progress import plot_progress
from p2pkm.plots.study import draw_study, plot_heatmap, plot_measures, plot_study_quality
from p2pkm.plots.traffic import plot_bytes

__all__ = [
    "animate",
    "draw_all",
    "draw_comparison",
    "draw_study",
    "overview",
    "plot_bytes",
    "plot_convergence",
    "plot_coupling_path",
    "plot_devices",
    "plot_graph",
    "plot_graphs",
    "plot_heatmap",
    "plot_measures",
    "plot_partition",
    "plot_partition_of",
    "plot_points",
    "plot_progress",
    "plot_quality",
    "plot_study_quality",
    "plot_topology",
]
