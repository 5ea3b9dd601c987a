"""Quality of one run against simulated time or bytes."""

from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.metrics.milestones import is_personal
from p2pkm.metrics.registry import find
from p2pkm.viz.figures.convergence import place_rounds, read_records
from p2pkm.viz.looks import finish_figure
from p2pkm.viz.names import name_run
from p2pkm.viz.open_run import open_run
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (
    BLUE,
    CATEGORIES,
    GRAY,
    format_counts,
    format_tick_labels,
    is_wide,
    label_axes,
    open_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.viz.open_run import Run

_AXES = ("virtual_seconds", "bytes")
_LINEAR = 0.1  # excess in percent below which the axis is linear


@with_own_settings
def plot_progress(result: "Run", ax: "Axes | None" = None, *, against: str = "virtual_seconds") -> "Figure":
    """Draw the excess over central k-means against simulated time or bytes, one color per stage.

    Where the devices have better centroids of their own for their test points, the cost of these over that of a common
    clustering takes its place.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    against : {"virtual_seconds", "bytes"}, default="virtual_seconds"
        Horizontal axis. Simulated time requires a run with a link model (``--link-model``, ``link_model=``).

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ExperimentError
        If `against` is unknown.
    DataError
        If the run has not recorded simulated time, or was not compared with central k-means.
    """
    result = open_run(result)
    if against not in _AXES:
        raise ExperimentError(f"against is {against!r}; expected {', '.join(_AXES)}")
    places = read_records(result.rounds, against)
    if not np.isfinite(places).any():
        raise DataError(
            "the run does not contain simulated time. Run it with a link model, such as --link-model wan (in Python "
            "link_model='wan'), or use against='bytes'"
        )
    tests = read_records(result.rounds, "test_ratio_common")
    # The ratio to central k-means does not measure the quality of centroids of each device.
    percent = not (is_personal(result.summary) and np.isfinite(tests).any())
    cost = 100 * (read_records(result.rounds, "ratio_mean") - 1) if percent else tests
    known = np.isfinite(cost) & np.isfinite(places)
    if not known.any():
        raise DataError("the run was not compared with central k-means. Remove --no-baselines, or record more rounds")
    ax = open_axes(ax, 7.0, 4.5, left=0.12, right=0.96)
    _, spans = place_rounds(result.rounds)
    numbers = np.cumsum([record["round"] == 0 for record in result.rounds]) - 1
    ax.plot(places[known], cost[known], color=GRAY, linewidth=1.0, zorder=1)
    for number in np.unique(numbers[known]):
        stage = known & (numbers == number)
        color = CATEGORIES[number % len(CATEGORIES)] if len(spans) > 1 else BLUE
        ax.plot(places[stage], cost[stage], color=color, marker="o", markersize=4, linewidth=1.4,
                label=spans[number].name if number < len(spans) else "")  # fmt: skip
    summary = result.summary
    link_model = f" over {summary['link_model']}" if against == "virtual_seconds" and summary.get("link_model") else ""
    y = "cost above central k-means (%)" if percent else f"{find('test_ratio_common').axis} (common clustering = 1)"
    label_axes(ax, f"Quality of {name_run(summary)}{link_model}", find(against).axis, y)
    low, high = float(cost[known].min()), float(cost[known].max())
    if percent and (is_wide(cost[known]) or low < 0):
        ax.set_yscale("symlog", linthresh=_LINEAR)
        ax.set_ylim(min(2 * low, -0.3 * _LINEAR), max(2 * high, _LINEAR))
        ax.axhline(0, color=GRAY, linewidth=0.6, zorder=0)
        format_tick_labels(ax.yaxis)
    if against == "bytes":
        format_counts(ax.xaxis, "B")
    if len(spans) > 1:
        ax.legend(title="stage", title_fontsize=8.5, fontsize=8.5, frameon=False)
    return finish_figure(ax)
