"""All figures of a run, as files in a folder or as panels of one figure."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from p2pkm.viz.figures.bytes_per_device import plot_bytes
from p2pkm.viz.figures.convergence import plot_convergence
from p2pkm.viz.figures.drift import plot_drift
from p2pkm.viz.figures.graph import plot_graph
from p2pkm.viz.figures.number_of_clusters import plot_k
from p2pkm.viz.figures.partition import plot_partition
from p2pkm.viz.figures.points import plot_points
from p2pkm.viz.figures.profile import MANY_FEATURES, plot_profile
from p2pkm.viz.looks import style
from p2pkm.viz.open_run import open_run
from p2pkm.viz.save_figure import USUAL, read_kinds, save_figure
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import DPI

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from p2pkm.metrics.result import Result
    from p2pkm.viz.open_run import Run

FIGURES: dict[str, Callable[..., "Figure"]] = {
    "convergence": plot_convergence,
    "graph": plot_graph,
    "points": plot_points,
    "partition": plot_partition,
    "bytes": plot_bytes,
}


_PANELS = 6  # panels in three rows of two; a run with more figures gets a fourth row


def list_figures(result: "Result") -> dict[str, Callable[..., "Figure"]]:
    """List the figures that a run has, by name."""
    summary = result.summary
    more: dict[str, Callable[..., Figure]] = {"k": plot_k} if summary["k_chosen"] else {}
    more |= {"drift": plot_drift} if summary["stream"] else {}
    if result.centroids.shape[2] >= MANY_FEATURES and result.census.cluster_means is not None:
        more["profile"] = plot_profile
    if result.groups is not None and result.groups.max() > result.topology.components.max():
        more["groups"] = partial(plot_graph, nodes="group")
    return FIGURES | more


@with_own_settings
def overview(result: "Run") -> "Figure":
    """Draw all figures of a run as panels of one figure, for notebooks; the current style is ignored."""
    from p2pkm.viz.picture import Picture

    result = open_run(result)
    figure = Picture(figsize=(15, 15), dpi=DPI)
    rows = 4 if len(list_figures(result)) > _PANELS else 3
    panels = figure.subplots(rows, 2, gridspec_kw={"hspace": 0.35, "wspace": 0.3}).ravel()
    with style(None):
        for ax, draw in zip_longest(panels, list_figures(result).values()):
            draw(result, ax) if draw else ax.axis("off")
    return figure


def draw_all(result: "Run", folder: str | os.PathLike[str], kinds: Sequence[str] = USUAL) -> list[Path]:
    """Write every figure of a run, and its data as a table; equal results give equal bytes.

    Parameters
    ----------
    result : Result, or path of a run folder
    folder : path
        Created if it does not exist. A file appears under its name only when it is complete.
    kinds : sequence of {"png", "svg", "pdf", "pgf"}, default=("png", "svg")
        File formats.

    Returns
    -------
    list of pathlib.Path
        One file per figure and kind, and one ``.data.csv`` per figure. Always: convergence, graph, points, partition
        and bytes. In addition: k if the run chose the number of clusters, drift if points changed, profile from three
        features on, groups if there are several.
    """
    target = Path(folder)
    result = open_run(result)
    checked_kinds = read_kinds(kinds)
    return [
        path
        for name, draw in list_figures(result).items()
        for path in save_figure(partial(draw, result), target, name, checked_kinds)
    ]
