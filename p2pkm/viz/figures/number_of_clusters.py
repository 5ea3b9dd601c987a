"""Choice of the number of clusters: all indices over k."""

from typing import TYPE_CHECKING

import numpy as np

from p2pkm.methods.building_blocks.number_of_clusters import INDICES
from p2pkm.viz.looks import finish_figure
from p2pkm.viz.open_run import open_run
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import CATEGORIES, GRAY, INK, label_axes, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.viz.open_run import Run


@with_own_settings
def plot_k(result: "Run", ax: "Axes | None" = None) -> "Figure":
    """Draw every index over the number of clusters, scaled from 0 (worst) to 1 (best).

    A dot marks the number that an index prefers, a vertical line the chosen number.

    Parameters
    ----------
    result : Result, or path of a run folder
        A run with a given number of clusters gives a figure with a note only.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    summary = open_run(result).summary
    ax = open_axes(ax, 8.4, 4.2, left=0.1, right=0.76)
    label_axes(ax, "Number of clusters", "k", "index, scaled (1: best)")
    if not summary["k_chosen"]:
        ax.text(0.5, 0.5, "the number of clusters was given", transform=ax.transAxes, ha="center", color=INK)
        return finish_figure(ax)
    for number, (name, index) in enumerate(INDICES.items()):
        color, line = CATEGORIES[number % len(CATEGORIES)], ("-", ":")[number // len(CATEGORIES)]
        values = np.array(summary["k_indices"][name], float) * (1 if index.largest else -1)
        known = np.flatnonzero(np.isfinite(values))
        if not len(known):
            continue
        low, high = values[known].min(), values[known].max()
        heights = (values[known] - low) / (high - low) if high > low else np.ones(len(known))
        preferred = summary["k_preferred"][name]
        ax.plot(known + 1, heights, line, color=color, lw=1.4, label=f"{index.label}: {preferred}")
        # Empty if the index is undefined at the number that it prefers.
        best = known + 1 == preferred
        ax.plot(known[best] + 1, heights[best], "o", color=color, ms=5)
    ax.axvline(summary["k_chosen"], color=GRAY, lw=1.0, ls="--", label=f"chosen: {summary['k_chosen']}")
    ax.set_ylim(-0.05, 1.05)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False)
    return finish_figure(ax)
