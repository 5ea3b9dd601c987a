"""Figures of a study: graph measures against rounds, quality against cost, and maps of two options."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.analysis.graph_measures import MEASURES
from p2pkm.analysis.paired_tests import estimate_mean
from p2pkm.analysis.study_table import read_ended
from p2pkm.core.batch import Floats
from p2pkm.core.units import format_number
from p2pkm.core.validation import check_choice
from p2pkm.metrics.milestones import is_personal, never_reached
from p2pkm.metrics.registry import find
from p2pkm.storage.study_rows import Row
from p2pkm.viz.figures.comparison import plot_quality
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (  # fmt: skip
    CATEGORIES,
    GRAY,
    INK,
    MARKERS,
    add_color_bar,
    choose_text_color,
    label_axes,
    open_axes,
    scale_axis,
    scale_colors,
    set_name_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEAST_DISTANCE = 0.052  # of two names, as a share of a panel's width
_WRITTEN = 26  # most columns or rows of a map with numbers in its cells
_ROUNDS_TO_CENTRAL = "rounds_to_1pct_of_central"
# Options that a study may vary, in the order in which maps prefer them.
_OPTIONS = (
    "coupling", "alpha", "relaxation", "local_steps", "schedule", "init", "groups", "devices", "clusters", "data",
    "partition", "rounds_asked", "tol", "scale", "link_model", "graph", "algorithm",
)  # fmt: skip


@with_own_settings
def plot_measures(
    study: Any, ax: "Axes | None" = None, *, measures: Sequence[str] = ("spectral_gap", "effective_neighbors"),
    value: str = "rounds_to_1pct",
) -> "Figure":  # fmt: skip
    """Draw measured values of a study against measures of its graphs, one panel per measure.

    A mark is the mean over seeds of a method on a graph; bars are 95 % t intervals. Each method has a color;
    names of graphs are above the panel. A mark is hollow, and the legend notes it, if no run came within 1 % of
    central k-means.

    Parameters
    ----------
    study : path, pandas.DataFrame, list of dict or Study
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    measures : sequence of str, default=("spectral_gap", "effective_neighbors")
        Columns with measures of the graph, for the horizontal axes.
    value : str, default="rounds_to_1pct"
        Column for the vertical axes.

    Returns
    -------
    matplotlib.figure.Figure
        The panels are its ``child_axes``.
    """
    listed = [
        row for row in read_ended(study, *measures, value) if row.get(value) is not None or never_reached(row, value)
    ]
    rows = [row for row in listed if row.get(value) is not None]
    longest = max(map(len, shorten_names(_list(rows, "graph")).values()), default=0)
    above = 0.45 + 0.07 * longest  # inches for the names of graphs
    methods = _list(listed, "algorithm")
    names = [name + _describe_never(listed, name) for name in methods]
    # Inches below the panels for labels and legend.
    below = 0.85 + 0.19 * ((len(names) - 1) // 4) if names == methods else 0.75 + 0.19 * len(names)
    width, height = 5.4 * len(measures), 3.75 + above + below
    # Narrow figures stack their panels.
    if narrow := is_narrow():
        width, height = 4.8, (3.2 + above) * len(measures)
    ax = open_axes(ax, width, height, left=0.75 / width, right=1 - 0.5 / width, bottom=below / height,
                   top=1 - (above + 0.3) / height)  # fmt: skip
    ax.set_axis_off()
    title = "Measures of graphs and results: mean over seeds, 95 % intervals"
    ax.set_title(title, fontsize=11, loc="left", pad=72 * above - 6)
    between = 0.7 if narrow else 0.2
    room = 1 / (len(measures) + between * (len(measures) - 1))
    for number, measure in enumerate(measures):
        start = (1 + between) * room * number
        panel = ax.inset_axes((0, 1 - start - room, 1, room) if narrow else (start, 0, room, 1))
        _draw_panel(panel, [row for row in rows if row.get(measure) is not None], (measure, value), methods)
    if len(methods) > 1 or names != methods:
        from matplotlib.lines import Line2D

        marks = [Line2D([], [], color=_color(i), marker=MARKERS[i % len(MARKERS)], linestyle="none", label=name)
                 for i, name in enumerate(names)]  # fmt: skip
        ax.legend(handles=marks, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4 if names == methods else 1,
                  fontsize=9, frameon=False)  # fmt: skip
    return finish_figure(ax)


def _describe_never(rows: Sequence[Row], method: str) -> str:
    """Describe on how many graphs no run of a method came within 1 % of central k-means; empty if on none."""
    groups = _split([row for row in rows if row["algorithm"] == method], ["graph"])
    never = sum(_is_far(group) for group in groups)
    return f" (never within 1 % of central on {never} of {len(groups)} graphs: hollow)" if never else ""


def _is_far(group: Sequence[Row]) -> bool:
    """Return whether no run of a group came within 1 % of central k-means."""
    return all(never_reached(row, _ROUNDS_TO_CENTRAL) for row in group)


@with_own_settings
def plot_study_quality(study: Any, ax: "Axes | None" = None, *, against: str = "bytes") -> "Figure":
    """Draw the excess over central k-means against bytes or time: one color per method, one marker per graph.

    A mark is the mean over seeds; its bar is the 95 % interval by Student's t.

    Parameters
    ----------
    study : path, pandas.DataFrame, list of dict or Study
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    against : {"bytes", "bytes_busiest", "virtual_seconds"}, default="bytes"
        Horizontal axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    check_choice(against, ("bytes", "bytes_busiest", "virtual_seconds"), "against")
    rows = [row for row in read_ended(study) if row.get("ratio_mean") is not None and row.get(against) is not None]
    table = []
    for group in _split(rows, [*find_swept(rows), "algorithm", "graph"]):
        ratios = [row["ratio_mean"] for row in group]
        # A run has no lowest ratio where the ratio does not measure quality, for example with groups.
        best = [
            row["ratio_mean"] if is_personal(row) or row.get("ratio_best") is None else row["ratio_best"]
            for row in group
        ]
        mean, low, high = estimate_mean(ratios, "ratio_mean")
        table.append({
            "algorithm": group[0]["algorithm"], "graph": shorten_names(_list(rows, "graph"))[group[0]["graph"]],
            "ratio_best": float(np.mean(best)),
            "ratio_mean": mean, "ratio_low": low, "ratio_high": high,
            against: float(np.mean([row[against] for row in group])),
        })  # fmt: skip
    return plot_quality(table, ax, against=against)


@with_own_settings
def plot_heatmap(study: Any, x: str, y: str, value: str = "ratio_mean", ax: "Axes | None" = None) -> "Figure":
    """Draw a metric over two options of a study as a map of means over all other options.

    For rounds, bytes or seconds to 1 % of central k-means, a cell is "never" if no run came that close; 12 (3/5) is the
    mean of the 3 of 5 runs that did.

    Parameters
    ----------
    study : path, pandas.DataFrame, list of dict or Study
    x, y : str
        Columns with options, such as "coupling" and "graph".
    value : str, default="ratio_mean"
        Column to average.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    rows = [row for row in read_ended(study, x, y, value) if None not in (row.get(x), row.get(y))]
    x_values = _sort(_list(rows, x))
    y_values = _sort(_list(rows, y))
    cells = np.full((len(y_values), len(x_values)), np.nan)
    remarks: dict[tuple[int, int], str] = {}
    for group in _split(rows, [x, y]):
        place = y_values.index(group[0][y]), x_values.index(group[0][x])
        known = [row[value] for row in group if row.get(value) is not None]
        if known:
            cells[place] = np.mean(known)
        if any(never_reached(row, value) for row in group):
            remarks[place] = f" ({len(known)}/{len(group)})" if known else "never"
    names = [list(shorten_names(part).values()) for part in (x_values, y_values)]
    left, below = (0.25 + 0.085 * max(map(len, part), default=1) for part in reversed(names))
    aslant = len(x_values) * max(map(len, names[0]), default=1) > 44
    below = 0.75 + (0.75 * below if aslant else 0.0)
    width, height = 1.3 + left + max(0.62 * len(x_values), 3.0), 0.6 + below + 0.36 * max(len(y_values), 4)
    ax = open_axes(ax, width, height, left=(0.3 + left) / width, right=1 - 1.0 / width, bottom=below / height,
                   top=1 - 0.45 / height)  # fmt: skip
    norm = scale_colors(cells, 10.0)
    image = ax.imshow(cells, cmap="cividis", norm=norm, aspect="auto")
    ax.set_facecolor("#E4E4E4")
    label_axes(ax, find(value).axis, x, y)
    for axis, values, shown in zip((ax.xaxis, ax.yaxis), (x_values, y_values), names, strict=True):
        set_name_ticks(axis, [str(part) for part in values], shown)
    ax.tick_params("x", rotation=40 if aslant else 0)
    for label in ax.get_xticklabels():
        label.set_horizontalalignment("right" if aslant else "center")
    if max(cells.shape) <= _WRITTEN:
        _write_cells(ax, cells, norm, remarks, has_unit=bool(find(value).unit))
    add_color_bar(ax, image, find(value).axis, (1.02, 0.0, 0.03, 1.0))
    return finish_figure(ax)


def find_swept(rows: Sequence[Row]) -> list[str]:
    """Return the options that differ between rows."""
    return [name for name in _OPTIONS if len({row.get(name) for row in rows} - {None}) > 1]


def _draw_panel(panel: "Axes", rows: Sequence[Row], names: tuple[str, str], methods: Sequence[str]) -> None:
    """Draw the panel of one measure, with the names of the graphs above."""
    measure, value = names
    for group in _split(rows, [*find_swept(rows), "algorithm", "graph"]):
        x_values, y_values = (np.array([row[name] for row in group], float) for name in names)
        number = methods.index(group[0]["algorithm"])
        # Later methods are smaller and on top, so that marks at the same place are all visible.
        panel.errorbar(
            x_values.mean(), y_values.mean(), error_bars(y_values, value), error_bars(x_values), color=_color(number),
            capsize=2, elinewidth=0.9, marker=MARKERS[number % len(MARKERS)], markersize=max(8 - number, 4),
            markeredgewidth=0.6, markerfacecolor="white" if _is_far(group) else _color(number),
            markeredgecolor=_color(number) if _is_far(group) else "white",
            zorder=3 + number,
        )  # fmt: skip
    for axis, name in ((panel.xaxis, measure), (panel.yaxis, value)):
        scale_axis(axis, np.array([row[name] for row in rows], float), 8.0)
    label_axes(panel, "", MEASURES.get(measure, measure), find(value).axis)
    panel.grid(color="#E6E6E6", linewidth=0.6)
    panel.set_axisbelow(True)
    _name_graphs(panel, rows, measure)


def _name_graphs(panel: "Axes", rows: Sequence[Row], measure: str) -> None:
    """Write the names of graphs above the panel without overlap, each joined to its place by a line."""
    names = shorten_names(_list(rows, "graph"))
    places = {graph: float(np.mean([row[measure] for row in rows if row["graph"] == graph])) for graph in names}
    order = sorted(names, key=lambda graph: places[graph])
    to_axes = panel.transData + panel.transAxes.inverted()
    panel.autoscale_view()
    true = np.array([to_axes.transform((places[graph], panel.get_ylim()[0]))[0] for graph in order])
    for graph, place, shifted in zip(order, true, separate_places(true, _LEAST_DISTANCE), strict=True):
        panel.plot([place, place, shifted], [0.0, 1.0, 1.1], color=GRAY, linewidth=0.5, transform=panel.transAxes,
                   clip_on=False, zorder=0)  # fmt: skip
        panel.text(shifted, 1.11, names[graph], rotation=60, rotation_mode="anchor", ha="left", va="center",
                   fontsize=8.5, color=INK, transform=panel.transAxes)  # fmt: skip


def separate_places(places: Floats, distance: float) -> Floats:
    """Move ascending places, float64[n], as little as possible so that successive ones have at least a distance.

    Least squares by isotonic regression (pool adjacent violators) of the places minus their number times the distance.
    """
    # Each block has the sum of its places and their number; blocks are merged while their means do not ascend.
    blocks: list[list[float]] = []
    for number, place in enumerate(places):
        blocks.append([place - number * distance, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            last = blocks.pop()
            blocks[-1] = [blocks[-1][0] + last[0], blocks[-1][1] + last[1]]
    starts = [total / size for total, size in blocks for _ in range(int(size))]
    return np.array(starts) + distance * np.arange(len(places))


def error_bars(values: Floats, figure: str | None = None) -> Floats:
    """Compute the lengths of the 95 % interval of a mean below and above it, float64[2, 1]."""
    mean, low, high = estimate_mean(values, figure)
    return np.array([[mean - low], [high - mean]])


def _write_cells(
    ax: "Axes", cells: Floats, norm: Any, remarks: Mapping[tuple[int, int], str], *, has_unit: bool
) -> None:
    for (i, j), cell in np.ndenumerate(cells):
        if cell >= 1000:
            digits = f"{cell:.3g}"
        else:
            digits = f"{cell:.4g}" if has_unit else format_number(cell)
        text = digits if np.isfinite(cell) else ""
        ink = choose_text_color(ax.images[0].cmap(norm(cell))) if text else INK
        text += remarks.get((i, j), "")
        if text:
            ax.text(j, i, text, ha="center", va="center", fontsize=8, color=ink)


def shorten_names(names: Sequence[Any]) -> dict[Any, str]:
    """Shorten specifications by the options that all of one family share; numbers lose trailing zeros."""
    texts = {name: f"{name:g}" if isinstance(name, float) else str(name) for name in names}
    families: dict[str, list[set[str]]] = {}
    for text in texts.values():
        family, _, options = text.partition(":")
        families.setdefault(family, []).append(set(options.split(",")))
    short = {}
    for name, text in texts.items():
        family, _, options = text.partition(":")
        shared = set.intersection(*families[family])
        varied = ",".join(option for option in options.split(",") if option not in shared)
        short[name] = f"{family}:{varied}" if varied else family
    return short


def _list(rows: Sequence[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def _sort(values: list[Any]) -> list[Any]:
    return sorted(values) if all(isinstance(value, (int, float)) for value in values) else values


def _split(rows: Sequence[Row], names: Sequence[str]) -> list[list[Row]]:
    """Group the rows that are equal in some columns."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in names), []).append(row)
    return list(groups.values())


def _color(number: int) -> str:
    return CATEGORIES[number % len(CATEGORIES)]
