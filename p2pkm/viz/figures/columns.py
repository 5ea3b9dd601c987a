"""Any column of a study against another one, colored by a third."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.analysis.graph_measures import MEASURES
from p2pkm.analysis.paired_tests import choose_figure, estimate_mean
from p2pkm.analysis.study_table import find_axes, list_options, read_ended
from p2pkm.core.batch import Floats
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.units import count
from p2pkm.metrics.registry import find
from p2pkm.storage.study_rows import Row
from p2pkm.viz.figures.study import shorten_names
from p2pkm.viz.looks import finish_figure
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (
    CATEGORIES,
    INK,
    MARKERS,
    RASTER,
    add_color_bar,
    label_axes,
    open_axes,
    scale_axis,
    scale_colors,
    set_name_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_MOST_COLORS = 12  # values of a column of numbers up to which each is a series of its own
_MOST_NAMES = 40  # texts on an axis or in a legend
_LETTERS = 44  # letters of all names on a horizontal axis above which they are aslant
_APART = 0.7  # width over which the series at a name are spread; names are 1 apart


class _Column(NamedTuple):
    """Column of the rows that are drawn.

    Attributes
    ----------
    name : str
    places : list of float
        Number of each row; of text, the place of its name.
    names : list of str
        Names of a column that does not contain numbers only; empty for numbers.
    is_option : bool
        Whether the runs were asked for its values, which several runs share.
    """

    name: str
    places: list[float]
    names: list[str]
    is_option: bool

    @property
    def label(self) -> str:
        """Label of an axis, with the unit."""
        return MEASURES.get(self.name, find(self.name).axis)


@with_own_settings
def plot_columns(
    study: Any, x: str, y: str | None = None, color: str | None = None, ax: "Axes | None" = None
) -> "Figure":
    """Draw a column of a study against another one: a dot per run, a mark at each mean, and its 95 % interval.

    Runs that share the color and the value of `x` have a common mean if `x` is an option or text; lines join the means
    along numbers. If `x` was measured, such as bytes, the seeds of each configuration have one. Runs of one seed are
    averaged first, so that the interval (Student's t) is over seeds. Axes are logarithmic where positive values differ
    by a factor of more than 20.

    Parameters
    ----------
    study : path, pandas.DataFrame, list of dict or Study
        Runs without a result, or without a value in one of the columns, are left out.
    x : str
        Column of the horizontal axis.
    y : str, optional
        Column of the vertical axis; None: the test cost relative to a common clustering if devices have test points,
        else the cost ratio.
    color : str, optional
        Column of the color; more than 12 different numbers are a color scale, without means. None: the first other
        option that varies.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ExperimentError
        If a column does not exist, or has more than 40 different texts.
    DataError
        If no run has a value in all columns.
    """
    ended = read_ended(study, *(name for name in (x, y, color) if name is not None))
    y = y or choose_figure(ended)
    color = color or next((name for name in find_axes(ended) if name not in (x, y)), None)
    names = [x, y] if color is None else [x, y, color]
    rows = [row for row in ended if all(row.get(name) is not None for name in names)]
    if not rows:
        raise DataError(
            f"no run has a value in the columns {', '.join(names)}; expected at least one. Use other columns"
        )
    across, up, *colors = (_read_column(rows, name) for name in names)
    series, scale = _split_by_color(rows, colors)
    ax = open_axes(ax, 7.4, 4.6, left=0.11, right=0.72 if colors else 0.97)
    spread = _spread_series(len(series)) if across.names else np.zeros(len(series))
    dots = None
    for number, (label, members, shade) in enumerate(series):
        places = np.array([across.places[i] for i in members]) + spread[number]
        heights = np.array([up.places[i] for i in members])
        if scale is not None:
            values = np.array([colors[0].places[i] for i in members])
            dots = ax.scatter(places, heights, c=values, norm=scale, cmap="cividis", s=18, linewidths=0.0,
                              rasterized=len(members) > RASTER)  # fmt: skip
            continue
        marker = MARKERS[number % len(MARKERS)]
        if across.names and up.names:
            _draw_counts(ax, places, heights, marker, shade)
            continue
        ax.plot(places, heights, marker=marker, linestyle="none", color=shade, markersize=4, alpha=0.35,
                markeredgewidth=0.0, rasterized=len(members) > RASTER)  # fmt: skip
        if not up.names:
            means = _average([rows[i] for i in members], places, across, y)
            ax.errorbar(*means, color=shade, marker=marker, markersize=7, markeredgecolor="white", capsize=3,
                        markeredgewidth=0.8, elinewidth=1.2, linewidth=1.2, label=label,
                        linestyle="-" if across.is_option and not across.names else "none")  # fmt: skip
    _finish_axes(ax, across, up)
    seeds = len({row["seed"] for row in rows})
    parts = ["number of runs" if across.names and up.names else "a dot per run"]
    if not up.names and scale is None:
        what = f"mean and 95 % interval of {count(seeds, 'seed')}" if seeds > 1 else "mean of one seed"
        averaged = [name.replace("_", " ") for name in find_axes(rows) if name not in names]
        if averaged and across.is_option:
            what += f" over {', '.join(averaged)}"
        parts = [what, *parts]
    if len(rows) < len(ended):
        parts.append(f"{count(len(ended) - len(rows), 'run')} without a value")
    title = ", ".join(parts)
    ax.set_title(title[0].upper() + title[1:], fontsize=11, loc="left")
    if dots is not None:
        add_color_bar(ax, dots, colors[0].label, (1.02, 0.0, 0.03, 1.0))
    elif colors:
        _draw_legend(ax, series, colors[0].label)
    return finish_figure(ax)


def _read_column(rows: Sequence[Row], name: str) -> _Column:
    """Read the values of a column, none of which is missing.

    Raises
    ------
    ExperimentError
        If it has too many different texts.
    """
    values = [row[name] for row in rows]
    is_option = name in list_options(rows)
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return _Column(name, [float(value) for value in values], [], is_option)
    # Numbers, such as a coupling of 3, come before text, such as auto.
    numbers = sorted({value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)})
    names = list(dict.fromkeys(str(value) for value in [*numbers, *values]))
    if len(names) > _MOST_NAMES:
        raise ExperimentError(
            f"column {name!r} has {len(names):,} different texts, such as {names[0]!r}; expected numbers, or at most "
            f"{_MOST_NAMES} texts. Use another column"
        )
    place = {text: float(number) for number, text in enumerate(names)}
    return _Column(name, [place[str(value)] for value in values], names, is_option=True)


def _split_by_color(
    rows: Sequence[Row], colors: Sequence[_Column]
) -> tuple[list[tuple[str, list[int], str]], "Normalize | None"]:
    """Split the rows into series, each with its label, the numbers of its rows and its color.

    Many different numbers are one series with a color scale.
    """
    everything = list(range(len(rows)))
    if not colors:
        return [("", everything, CATEGORIES[0])], None
    (column,) = colors
    values = sorted(set(column.places))
    if not column.names and len(values) > _MOST_COLORS:
        return [("", everything, "")], scale_colors(np.array(column.places))
    labels = shorten_names(column.names or values)
    members: dict[float, list[int]] = {value: [] for value in values}
    for number, value in enumerate(column.places):
        members[value].append(number)
    return [
        (label, members[value], CATEGORIES[number % len(CATEGORIES)])
        for number, (value, label) in enumerate(zip(values, labels.values(), strict=True))
    ], None


def _spread_series(number: int) -> Floats:
    """Return the distances of the series from their name, float64[number]."""
    return _APART * ((np.arange(number) + 0.5) / number - 0.5)


def _average(rows: Sequence[Row], places: Floats, across: _Column, y: str) -> tuple[Floats, Floats, Floats]:
    """Return places and heights of the means, and the lengths of the intervals below and above them, float64[2, n]."""
    groups: dict[Any, list[int]] = {}
    axes = ["algorithm", "graph", *find_axes(rows)]
    for number, row in enumerate(rows):
        key = float(places[number]) if across.is_option else tuple(str(row.get(name)) for name in axes)
        groups.setdefault(key, []).append(number)
    marks = []
    for members in groups.values():
        by_seed: dict[int, list[float]] = {}
        for number in members:
            by_seed.setdefault(rows[number]["seed"], []).append(float(rows[number][y]))
        mean, low, high = estimate_mean([float(np.mean(values)) for values in by_seed.values()], y)
        marks.append((float(np.mean(places[members])), mean, mean - low, high - mean))
    x, heights, below, above = np.array(sorted(marks)).T
    return x, heights, np.array([below, above])


def _draw_counts(ax: "Axes", places: Floats, heights: Floats, marker: str, shade: str) -> None:
    """Draw a mark wherever there are runs, and write their number, because equal names cover each other."""
    found, counts = np.unique(np.array([places, heights]), axis=1, return_counts=True)
    ax.plot(*found, marker=marker, linestyle="none", color=shade, markersize=7)
    for (place, height), number in zip(found.T, counts, strict=True):
        ax.annotate(f"{number:,}", (place, height), (0, 7), textcoords="offset points", ha="center", va="bottom",
                    fontsize=8, color=INK)  # fmt: skip


def _finish_axes(ax: "Axes", across: _Column, up: _Column) -> None:
    """Set scales, ticks and labels."""
    from matplotlib.ticker import EngFormatter

    for axis, column in ((ax.xaxis, across), (ax.yaxis, up)):
        if column.names:
            set_name_ticks(axis, column.names, list(shorten_names(column.names).values()))
            getattr(ax, f"set_{axis.axis_name}lim")(-0.5, len(column.names) - 0.5)
        else:
            scale_axis(axis, np.array(column.places))
            if find(column.name).unit == "bytes":
                axis.set_major_formatter(EngFormatter(unit="B", usetex=False))
    if len(across.names) * max(map(len, shorten_names(across.names).values()), default=0) > _LETTERS:
        ax.tick_params("x", rotation=40)
        for label in ax.get_xticklabels():
            label.set_horizontalalignment("right")
    label_axes(ax, "", across.label, up.label)
    ax.grid(color="#E6E6E6", linewidth=0.6)
    ax.set_axisbelow(True)


def _draw_legend(ax: "Axes", series: Sequence[tuple[str, list[int], str]], title: str) -> None:
    """Draw the legend of the series."""
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=shade, marker=MARKERS[number % len(MARKERS)], linestyle="none", label=label)
        for number, (label, _, shade) in enumerate(series)
    ]
    ax.legend(handles=marks, title=title, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8.5,
              title_fontsize=8.5, frameon=False)  # fmt: skip
