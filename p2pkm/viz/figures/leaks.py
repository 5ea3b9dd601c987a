"""Pairwise leaks: a matrix of receivers and devices, and their decrease with distance."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import DataError
from p2pkm.core.validation import as_floats
from p2pkm.viz.looks import finish_figure, is_narrow, is_tight
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import BLUE, INK, NONE, NUMBERED, add_color_bar, label_axes, open_axes, set_integer_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LONG, _SHORT = 24, 14  # most letters of a name next to the matrix, and of one in a style with little room


@with_own_settings
def plot_leaks(
    leak: Floats, receivers: Integers, distances: Integers, title: str, ax: "Axes | None" = None, *,
    names: Sequence[str] | None = None,
) -> "Figure":  # fmt: skip
    """Draw the leak of every device to every receiver as a matrix, and against the hops between them.

    Parameters
    ----------
    leak : float64[r, n]
        Values in [0, 1], one row per receiver, see `p2pkm.pair_leaks`.
    receivers : int64[r]
        Numbers of the receiving devices.
    distances : int64[r, n]
        Hops; -1 without a path.
    title : str
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    names : sequence of str, length n, optional
        Names of the devices; None: their numbers.

    Returns
    -------
    matplotlib.figure.Figure
        Matrix and distances are the ``child_axes`` of its axes.
    """
    leak = as_floats(leak, "leak")
    if leak.ndim != 2 or leak.shape != np.shape(distances) or len(leak) != np.size(receivers) or not leak.size:
        raise DataError(f"leak has shape {leak.shape}, receivers {np.shape(receivers)}, distances "
                        f"{np.shape(distances)}; expected (r, n), (r,) and (r, n)")  # fmt: skip
    wide, tall = 10.0, 4.6
    matrix, lines = (0.0, 0.0, 0.38, 1.0), (0.57, 0.0, 0.43, 1.0)
    if is_narrow():
        # The distances are below the matrix and the names of the devices.
        wide, tall = 4.6, 7.6
        matrix, lines = (0.0, 0.62, 0.84, 0.38), (0.0, 0.0, 1.0, 0.36)
        if names is not None and leak.shape[1] <= NUMBERED:
            tall = 10.0
            matrix, lines = (0.0, 0.6, 0.84, 0.4), (0.0, 0.0, 1.0, 0.27)
    ax = open_axes(ax, wide, tall, left=0.07, right=0.98, bottom=0.13, top=0.85)
    ax.set_axis_off()
    ax.set_title(title, fontsize=11, loc="left", pad=26)
    _draw_matrix(ax.inset_axes(matrix), leak, receivers, names)
    _draw_distances(ax.inset_axes(lines), leak, distances)
    return finish_figure(ax)


def _draw_matrix(ax: "Axes", leak: Floats, receivers: Integers, names: Sequence[str] | None) -> None:
    r, n = leak.shape
    ax.set_facecolor(NONE)
    image = ax.imshow(
        np.ma.masked_equal(leak, 0.0), cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest"
    )
    label_axes(ax, "Leak of each device to each receiver", "device", "receiver")
    letters = _SHORT if is_narrow() or is_tight() else _LONG
    set_integer_ticks(ax.xaxis, n, names, letters)
    set_integer_ticks(ax.yaxis, r, [str(v) if names is None else names[v] for v in receivers], letters)
    add_color_bar(ax, image, "leak" + " (gray: none)" * bool((leak == 0).any()), (1.03, 0.0, 0.035, 1.0))


def _draw_distances(ax: "Axes", leak: Floats, distances: Integers) -> None:
    hops = np.unique(distances[distances > 0])
    mu = [np.sqrt(leak[distances == step]) for step in hops]
    means = np.array([part.mean() for part in mu])
    ends = np.array([[part.min(), part.max()] for part in mu]).reshape(-1, 2)
    ax.vlines(hops, ends[:, 0], ends[:, 1], color=BLUE, linewidth=5, alpha=0.25, label="smallest to largest")
    ax.plot(hops, means, color=BLUE, marker="o", markersize=5, linewidth=1.2, label="mean over pairs")
    ax.axhline(1.0, color=INK, linewidth=0.8, linestyle="--")
    ax.set_ylim(-0.04, 1.12)
    ax.set_xlim(0.5, max(hops, default=1) + 0.5)
    label_axes(
        ax, "Leak against distance", "hops between receiver and device", "mu in units of D/s, square root of the leak"
    )
    set_integer_ticks(ax.xaxis, int(max(hops, default=1)) + 1)
    ax.legend(loc="best", fontsize=8.5, frameon=False)
