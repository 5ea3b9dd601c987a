"""Path of couplings: cost on local points against total variation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.open_run import read_table
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import BLUE, GREEN, format_tick_labels, is_wide, label_axes, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMED = 8  # most marks with a label of their coupling


@with_own_settings
def plot_coupling_path(rows: Sequence[Mapping[str, Any]], ax: "Axes | None" = None) -> "Figure":
    """Draw the cost on local points against total variation along a path of couplings, and the number of clusterings.

    Parameters
    ----------
    rows : sequence of dict
        In the order of the path, with the keys ``coupling local_fit gtv clusterings``; values may be None.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The two panels are its ``child_axes``.
    """
    from matplotlib.ticker import MaxNLocator

    rows = read_table(rows, ("coupling", "local_fit", "gtv", "clusterings"), "the rows of a path of couplings")
    narrow = is_narrow()
    ax = open_axes(ax, 4.8 if narrow else 9.6, 7.6 if narrow else 4.4, left=0.09, right=0.97, bottom=0.14, top=0.88)
    ax.set_axis_off()
    left = ax.inset_axes((0, 0.6, 1, 0.4) if narrow else (0, 0, 0.55, 1))
    right = ax.inset_axes((0, 0, 1, 0.36) if narrow else (0.66, 0, 0.34, 1))
    couplings, fits, gtvs, counts = (_read(rows, name) for name in ("coupling", "local_fit", "gtv", "clusterings"))
    left.plot(gtvs, fits, color=BLUE, marker="o", markersize=4.5, linewidth=1.4)
    known = np.flatnonzero(np.isfinite(gtvs) & np.isfinite(fits))
    for i in known[np.unique(np.linspace(0, len(known) - 1, min(_NAMED, len(known))).astype(int))]:
        left.annotate(f"{couplings[i]:.3g}", (gtvs[i], fits[i]), xytext=(5, 5), textcoords="offset points", fontsize=8)
    left.margins(0.12)
    label_axes(left, "Local fit, by coupling", "total variation (GTV)", "local fit: cost on local points")
    right.plot(couplings, counts, color=GREEN, marker="s", markersize=4.5, linewidth=1.4)
    right.set_ylim(0, max(np.nanmax(counts, initial=1.0) * 1.08, 1.5))
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    label_axes(right, "Distinct clusterings", "coupling", "number of clusterings")
    _scale(left.xaxis, gtvs)
    _scale(right.xaxis, couplings)
    return finish_figure(ax)


def _read(rows: Sequence[Mapping[str, Any]], name: str) -> Floats:
    """Return a column of the rows, float64[rows]; NaN where it is unknown."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)


def _scale(axis: Any, values: Floats) -> None:
    """Set a logarithmic scale if values span several magnitudes, linear around zero if zero is among them."""
    axes, name = axis.axes, axis.axis_name
    if not is_wide(values):
        return
    if (values[np.isfinite(values)] > 0).all():
        axes.set(**{f"{name}scale": "log"})
    else:
        least = float(values[values > 0].min())
        getattr(axes, f"set_{name}scale")("symlog", linthresh=least)
        axes.set(**{f"{name}lim": (-0.5 * least, 2 * np.nanmax(values))})
    format_tick_labels(axis)
