"""Runs of a study: a dot per run in small multiples, and paired differences to the best configuration."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.analysis.conclusion import format_verdict
from p2pkm.analysis.paired_tests import EQUIVALENT, UNDECIDED, PairedTest, choose_figure, judge_blocks, list_standings
from p2pkm.analysis.study_table import SERVED, find_axes, group_runs, is_local_only, read_ended, read_margin
from p2pkm.metrics.registry import find
from p2pkm.storage.study_rows import Row
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.names import break_name, keep_names
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (
    CATEGORIES,
    GRAY,
    INK,
    format_tick_labels,
    is_wide,
    label_axes,
    open_axes,
    set_name_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 4  # panels in a row
_MOST = 40  # configurations whose differences are drawn
_LETTER = 0.075  # inches; width of a letter
_LINE = 0.27  # inches; height of a line
_VERDICT = 2.6  # inches to the right of the axes for a verdict with the number of seeds
_SHORT = 0.8  # inches for a verdict alone, in narrow figures
_TITLE = 26  # letters in a line of the title of a panel
_MARGIN = "#ECECEC"  # color of the margin of equivalence
_BEYOND = 1e9  # outside of all axes of differences
_PERCENT = "cost above central k-means (%)"


@with_own_settings
def plot_seeds(study: Any, ax: "Axes | None" = None, *, figure: str | None = None) -> "Figure":
    """Draw every run of a study: one panel per graph, one line per method, one dot per seed, and a bar at the mean.

    Methods with a server or without messages do not depend on the graph and are drawn in every panel.

    Parameters
    ----------
    study : path, pandas.DataFrame, list of dict or Study
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    figure : str, optional
        Column to draw; the cost ratio is drawn as excess over central k-means in percent. None: the test cost relative
        to a common clustering if devices have test points, else the cost ratio.

    Returns
    -------
    matplotlib.figure.Figure
        The panels are its ``child_axes``.
    """
    figure = figure or choose_figure(read_ended(study))
    rows = [row for row in read_ended(study, figure) if row.get(figure) is not None]
    axes = find_axes(rows) or ["algorithm"]
    split = "graph" in axes and len(axes) > 1
    inner = [name for name in axes if name != "graph"] if split else axes
    graphs = list(dict.fromkeys(row["graph"] for row in rows if not _is_everywhere(row))) if split else []
    panels = {graph: [row for row in rows if row["graph"] == graph or _is_everywhere(row)] for graph in graphs}
    panels = panels or {"": rows}
    lines = list(dict.fromkeys(_name_line(row, inner) for row in rows))
    colors = {line: CATEGORIES[i % len(CATEGORIES)] for i, line in enumerate(lines)}
    across = 1 if is_narrow() else min(_COLUMNS, len(panels))
    down = -(-len(panels) // across)
    left = 0.3 + _LETTER * max(map(len, lines), default=0)
    high = 0.25 + _LINE * len(lines)
    width, height = left + across * (2.3 if across > 1 else 4.6) + 0.2, 0.75 + down * (high + 0.35) + 0.3
    ax = open_axes(ax, width, height, left=left / width, right=1 - 0.2 / width, bottom=0.55 / height,
                   top=1 - 0.7 / height)  # fmt: skip
    ax.set_axis_off()
    seeds = len({row["seed"] for row in rows})
    title = f"Every run: a dot per seed ({seeds}), a bar at the mean" if seeds > 1 else "Every run: one seed"
    above = max(break_name(graph, _TITLE).count("\n") for graph in panels)
    ax.set_title(title, fontsize=11, loc="left", pad=20 + 13 * above)
    limits = _find_limits([_scale(row, figure) for row in rows])
    share = (high + 0.35) * down - 0.35
    for number, (graph, part) in enumerate(panels.items()):
        row, column = divmod(number, across)
        place = (column * 1.06 / (1.06 * across - 0.06), 1 - (row * (high + 0.35) + high) / share,
                 1 / (1.06 * across - 0.06), high / share)  # fmt: skip
        panel = ax.inset_axes(place)
        _draw_runs(panel, part, [(line, colors[line]) for line in lines], inner, figure)
        lowest = number + across >= len(panels)
        _finish_panel(panel, graph, limits, lines if column == 0 else [], figure if lowest else "")
    return finish_figure(ax, in_rows=True)


@with_own_settings
def plot_differences(study: Any, ax: "Axes | None" = None, *, figure: str | None = None) -> "Figure":
    """Draw the effect of every configuration relative to the best, with intervals and verdicts.

    Verdicts are those of `p2pkm.Study.conclusion`. Each interval is the one on which the verdict is based: at the
    corrected level, it excludes equality exactly if the test rejects it; of equivalent configurations, the 90 %
    interval is within the margin, which is shaded. Intervals of effects that are not limited end at the axes.

    Parameters
    ----------
    study : path, pandas.DataFrame, list of dict or Study
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    figure : str, optional
        Column to compare; None: as in `plot_seeds`. Costs, bytes and other positive metrics are compared in percent,
        scores in their unit.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = figure or choose_figure(read_ended(study))
    rows = read_ended(study, figure)
    verdicts = judge_blocks(group_runs(rows, find_axes(rows)), figure, read_margin(study)).values()
    standings = [standing for of_block in verdicts for standing in list_standings(of_block)]
    best = {name for of_block in verdicts for name in of_block.names[:1]}
    shown = standings[:_MOST]
    left = 0.4 + _LETTER * max((len(standing.name) for standing in shown), default=0)
    right = _SHORT if is_narrow() else _VERDICT
    width, height = left + 4.6 + right, 1.15 + _LINE * max(len(shown), 2)
    ax = open_axes(ax, width, height, left=left / width, right=1 - right / width, bottom=0.6 / height,
                   top=1 - 0.4 / height)  # fmt: skip
    in_percent = any(of_block.scale == "ratio" for of_block in verdicts)
    ends = [0.0]
    for y, standing in enumerate(shown):
        if standing.name in best:
            ax.plot(0.0, y, marker="D", color=INK, markersize=6, zorder=3)
            _note(ax, y, "best" if len(shown) > 1 else "")
            continue
        _note(ax, y, standing.verdict if is_narrow() else format_verdict(standing.gap))
        if standing.gap is not None:
            ends += _draw_gap(ax, y, standing.gap)
    ax.axvline(0.0, color=GRAY, linewidth=0.8, zorder=0.5)
    set_name_ticks(ax.yaxis, [standing.name for standing in shown])
    ax.set_ylim(max(len(shown), 2) - 0.5, -0.5)
    _stretch(ax, ends)
    left_out = f", the first {_MOST} of {len(standings)}" if len(standings) > _MOST else ""
    has_tests = any(standing.gap is not None and standing.gap.test for standing in shown)
    intervals = "intervals of the verdicts, margin shaded" if has_tests else "too few for a test"
    what = "cost" if figure == "ratio_mean" else find(figure).label
    label = f"{what}, difference from the best (%)" if in_percent else f"difference of {find(figure).axis}"
    label_axes(ax, f"Relative to the best, same seeds: {intervals}{left_out}", label, "")
    return finish_figure(ax, in_rows=True)


def _draw_gap(ax: "Axes", y: int, gap: PairedTest) -> list[float]:
    """Draw an effect, the interval of its verdict and the margin; return the ends that the axis must contain."""
    effect, *reach = (_show(value, gap.scale) for value in (gap.effect, *gap.interval))
    known = [end for end in reach if math.isfinite(end)]
    if gap.near_margin and gap.test:
        margin = gap.near_margin
        low, high = (100 * (1 / (1 + margin) - 1), 100 * margin) if gap.scale == "ratio" else (-margin, margin)
        ax.fill_betweenx([y - 0.4, y + 0.4], low, high, color=_MARGIN, linewidth=0, zorder=0)
        known += [low, high]
    color = GRAY if gap.verdict in (EQUIVALENT, UNDECIDED) else CATEGORIES[0]
    ax.plot(effect, y, color=color, marker="o", markersize=6, linestyle="none")
    if gap.test:
        # An end that is not limited is drawn beyond the axes.
        low, high = (
            end if math.isfinite(end) else sign * _BEYOND for end, sign in zip(reach, (-1, 1), strict=True)
        )  # fmt: skip
        ax.errorbar((low + high) / 2, y, xerr=(high - low) / 2, color=color, capsize=3, linestyle="none")
    return [effect, *known]


def _show(value: float | None, scale: str) -> float:
    """Return an effect as drawn: a ratio as a difference in percent; NaN for an end that is not limited."""
    if value is None:
        return math.nan
    return 100 * (value - 1) if scale == "ratio" else value


def _is_everywhere(row: Mapping[str, Any]) -> bool:
    """Return whether a run does not depend on a graph."""
    return row["graph"] == SERVED or is_local_only(row["algorithm"])


def _name_line(row: Mapping[str, Any], axes: Sequence[str]) -> str:
    """Name a line of a panel by the options that vary."""
    words = [str(row.get(name)) if name in {"algorithm", "graph"} else f"{name.replace('_', ' ')} {row.get(name)}"
             for name in axes]  # fmt: skip
    return ", ".join(words) or str(row["algorithm"])


def _scale(row: Mapping[str, Any], figure: str) -> float:
    return 100 * (float(row[figure]) - 1) if figure == "ratio_mean" else float(row[figure])


def _draw_runs(
    panel: "Axes", rows: Sequence[Row], lines: Sequence[tuple[str, str]], axes: Sequence[str], figure: str
) -> None:
    """Draw a dot per run, and a bar at the mean of a line."""
    for y, (line, color) in enumerate(lines):
        values = [_scale(row, figure) for row in rows if _name_line(row, axes) == line]
        if values:
            panel.plot(values, [y] * len(values), marker="o", linestyle="none", color=color, markersize=5, alpha=0.55,
                       markeredgewidth=0)  # fmt: skip
            panel.plot([float(np.mean(values))] * 2, [y - 0.35, y + 0.35], color=color, linewidth=2.2)
    panel.set_ylim(max(len(lines), 1) - 0.5, -0.5)


def _finish_panel(
    panel: "Axes", title: str, limits: tuple[bool, float, float], lines: Sequence[str], figure: str
) -> None:
    """Set the common scale of a panel, and its labels if it is at the edge of the figure."""
    wide, low, high = limits
    if wide:
        _make_symmetric(panel, high)
    panel.set_xlim(low, high)
    label = find(figure).axis if figure else ""
    if figure == "ratio_mean":
        label = _PERCENT
    label_axes(panel, "", label, "")
    panel.set_title(break_name(title, _TITLE), fontsize=9.5, loc="left")
    keep_names(panel, title)
    panel.xaxis.label.set_fontsize(9)
    panel.tick_params(labelsize=8)
    set_name_ticks(panel.yaxis, lines)
    panel.grid(axis="x", color="#E6E6E6", linewidth=0.6)
    panel.set_axisbelow(True)
    if not figure:
        panel.set_xticklabels([])


def _find_limits(values: Sequence[float]) -> tuple[bool, float, float]:
    """Return whether values require a symmetric logarithmic scale, and its limits."""
    known = np.array(values or [0.0, 1.0], float)
    low, high = float(known.min()), float(known.max())
    if is_wide(np.abs(known), 30.0):
        return True, low * (1.6 if low < 0 else 0.6), high * (1.6 if high > 0 else 0.6)
    room = 0.08 * (high - low) or 0.1 * (abs(high) or 1.0)
    return False, low - room, high + room


def _stretch(ax: "Axes", ends: Sequence[float]) -> None:
    """Set the scale and limits of the axis of differences, which contains the best configuration."""
    wide, low, high = _find_limits(ends)
    if wide:
        _make_symmetric(ax, max(abs(low), abs(high)))
    ax.set_xlim(min(low, -0.02 * (high - low)), max(high, 0.02 * (high - low)))


def _make_symmetric(ax: "Axes", high: float) -> None:
    """Set a horizontal axis that is linear up to a thousandth of `high` and logarithmic beyond."""
    from matplotlib.ticker import SymmetricalLogLocator

    threshold = 10.0 ** np.floor(np.log10(abs(high) or 1.0) - 3)
    ax.set_xscale("symlog", linthresh=threshold)
    ax.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=threshold))
    format_tick_labels(ax.xaxis)


def _note(ax: "Axes", y: int, text: str) -> None:
    ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), va="center", ha="left", fontsize=8.5, color=INK)
