"""Quality of several methods against bytes or time."""

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from p2pkm.analysis.study_table import SERVED
from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_choice
from p2pkm.metrics.milestones import loses_quality
from p2pkm.metrics.registry import find
from p2pkm.viz.looks import finish_figure
from p2pkm.viz.open_run import read_table
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import CATEGORIES, GRAY, MARKERS, choose_steps, format_tick_labels, label_axes, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINEAR = 0.1  # excess in percent below which the axis is linear
_LOW = 1.0  # excess in percent; an axis that ends below also has ticks between the powers of ten
_AGAINST = ("bytes", "bytes_busiest", "virtual_seconds")


@with_own_settings
def plot_quality(
    table: Sequence[Mapping[str, Any]],
    ax: "Axes | None" = None,
    *,
    against: str = "bytes",
) -> "Figure":
    """Draw the excess over central k-means against bytes: one color per method, one marker per graph.

    A method that sends nothing is a dotted line. A thin line leads to the best mean of a method whose quality then got
    worse.

    Parameters
    ----------
    table : sequence of dict
        Means over seeds of every method and graph, with the keys ``algorithm graph ratio_mean ratio_low ratio_high
        bytes bytes_busiest`` and optionally ``ratio_best``. Rows without a ratio are skipped.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    against : {"bytes", "bytes_busiest", "virtual_seconds"}, default="bytes"
        Horizontal axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.ticker import EngFormatter, LogLocator, SymmetricalLogLocator

    check_choice(against, _AGAINST, "against")
    columns = ("algorithm", "graph", "ratio_mean", "ratio_low", "ratio_high", against)
    rows = [row for row in read_table(table, columns, "means over seeds") if row["ratio_mean"] is not None]
    if not rows:
        raise DataError("no configuration has a cost ratio to draw: central k-means was not run. Remove --no-baselines")
    ax = open_axes(ax, 7.4, 4.6, left=0.11, right=0.72)
    methods, graphs = (list(dict.fromkeys(row[name] for row in rows)) for name in ("algorithm", "graph"))
    for row in rows:
        color = CATEGORIES[methods.index(row["algorithm"]) % len(CATEGORIES)]
        marker = MARKERS[graphs.index(row["graph"]) % len(MARKERS)]
        mean, low, high = (100 * (row[name] - 1) for name in ("ratio_mean", "ratio_low", "ratio_high"))
        if not row[against]:
            ax.axhline(mean, color=color, linestyle=":", linewidth=1.5, zorder=1)
            continue
        if loses_quality(row):
            ax.plot([row[against]] * 2, [mean, 100 * (row["ratio_best"] - 1)], color=color, linewidth=0.8, marker="_",
                    markersize=6)  # fmt: skip
        hollow = methods.index(row["algorithm"]) >= len(CATEGORIES)
        ax.errorbar(row[against], mean, [[max(mean - low, 0.0)], [max(high - mean, 0.0)]], color=color,
                    marker=marker, capsize=3, linestyle="none", markersize=8,
                    markerfacecolor="white" if hollow else color)  # fmt: skip
    ax.set_xscale("log")
    costs = [row[against] for row in rows if row[against]]
    if costs:
        ax.xaxis.set_major_locator(LogLocator(subs=choose_steps(min(costs), max(costs))))
        format_tick_labels(ax.xaxis)
    if "bytes" in against:
        ax.xaxis.set_major_formatter(EngFormatter(unit="B", usetex=False))
    ax.set_yscale("symlog", linthresh=_LINEAR)
    ax.axhline(0.0, color=GRAY, linewidth=0.8, zorder=0)
    drawn = ("ratio_mean", "ratio_low", "ratio_high", "ratio_best")
    ends = [100 * (row[name] - 1) for row in rows for name in drawn if row.get(name) is not None]
    ax.set_ylim(min(-0.3 * _LINEAR, 2 * min(ends)), max(2 * max(ends), _LINEAR))
    if max(ends) < _LOW:
        ax.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=_LINEAR, subs=[1.0, 2.0, 5.0]))
    format_tick_labels(ax.yaxis)
    title = f"Quality against {'time' if 'seconds' in against else 'plain bytes'}"
    if any(row["ratio_high"] > row["ratio_low"] for row in rows):
        title += ": mean over seeds, 95 % t intervals"
    label_axes(ax, title, find(against).axis, "cost above central k-means (%)")
    worse = any(loses_quality(row) and row[against] for row in rows)
    has_server_methods = any(row["graph"] == SERVED and row[against] for row in rows)
    senders = {row["algorithm"] for row in rows if row[against]}
    _draw_legend(ax, methods, graphs, senders, worse=worse, has_server_methods=has_server_methods)
    return finish_figure(ax)


def _draw_legend(
    ax: "Axes",
    methods: Sequence[str],
    graphs: Sequence[str],
    senders: Set[str],
    *,
    worse: bool,
    has_server_methods: bool,
) -> None:
    """Draw the legend of colors (methods) and markers (graphs)."""
    from matplotlib.lines import Line2D

    marks = []
    for number, name in enumerate(methods):
        color = CATEGORIES[number % len(CATEGORIES)]
        fill = "white" if number >= len(CATEGORIES) else color
        label = name if name in senders else f"{name} (sends nothing)"
        marks.append(Line2D([], [], color=color, marker="s", markerfacecolor=fill, linestyle="none", label=label))
    for number, name in enumerate(graphs):
        if name == SERVED and not has_server_methods:
            continue
        marker = MARKERS[number % len(MARKERS)]
        marks.append(Line2D([], [], color="#555555", marker=marker, linestyle="none",
                            label="with a server" if name == SERVED else f"on {name}"))  # fmt: skip
    if worse:
        marks.append(Line2D([], [], color="#555555", linewidth=0.8, marker="_", label="distance to the best round"))
    ax.legend(handles=marks, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8.5, frameon=False)
