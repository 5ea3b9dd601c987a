"""Performance profiles of a benchmark: share of runs within each excess, by class of trust."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.analysis.bench_blocks import FLOOR, check_rows, read_blocks
from p2pkm.core.batch import Floats
from p2pkm.viz.figures.bench_map import open_bench
from p2pkm.viz.figures.study import separate_places
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import CATEGORIES, label_axes, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Panels: classes of trust and their titles.
PANELS = {
    ("no server",): "No server",
    ("server",): "With a server",
    ("private", "raw points leave"): "Private, or raw points leave",
}
_GUIDES = (0.1, 1.0, 5.0, 20.0)  # percent
_TICKS = (0.01, 0.1, 1.0, 5.0, 20.0, 100.0)
_TOP = 100.0  # percent; right end of the axis
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)))
_LABEL = 0.052  # least distance of two labels as a share of a panel's height
_HIGH = 3.6  # inches; height of a panel
_OTHERS = "#D0D0D0"
_COARSE = 60  # points of a gray curve


@with_own_settings
def plot_bench_profiles(bench: Any, ax: "Axes | None" = None) -> "Figure":
    """Draw performance profiles: the share of runs of a method with at most a given excess, one panel per class.

    Methods of other classes are gray. A curve that ends below 1 belongs to a method with runs that have no result or
    an excess above 100 %.

    Parameters
    ----------
    bench : BenchSummary or list of dict
        Ranking or rows of a benchmark.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The panels are its ``child_axes``.
    """
    summary = open_bench(bench)
    blocks = read_blocks(check_rows(summary.rows), ())
    curves = {}
    for entry in summary.main:
        excess = blocks.values["excess"][blocks.entries.index(entry.entry)]
        curves[entry.entry] = _accumulate(excess, blocks.weights)
    panels = {
        title: [entry.entry for entry in summary.main if entry.trust in trusts] for trusts, title in PANELS.items()
    }
    panels = {title: names for title, names in panels.items() if names}
    longest = max(len(name) for names in panels.values() for name in names)
    margin = 0.35 + 0.075 * longest  # inches for the names right of a panel
    narrow = is_narrow()
    columns = 1 if narrow else len(panels)
    wide, between = 2.7, 0.35  # inches; width of a panel, and the space left of it
    width = 0.6 + columns * (wide + margin) + (columns - 1) * between
    rows = len(panels) if narrow else 1
    height = 0.95 + rows * _HIGH + (rows - 1) * 0.75
    ax = open_axes(ax, width, height, left=0.6 / width, right=1 - margin / width, bottom=0.5 / height,
                   top=1 - 0.45 / height)  # fmt: skip
    ax.set_axis_off()
    inner = width - 0.6 - margin, height - 0.95
    for number, (title, names) in enumerate(panels.items()):
        column, row = (0, number) if narrow else (number, 0)
        place = (column * (wide + margin + between) / inner[0], 1 - (row * (_HIGH + 0.75) + _HIGH) / inner[1],
                 wide / inner[0], _HIGH / inner[1])  # fmt: skip
        panel = ax.inset_axes(place)
        _draw_panel(panel, curves, names)
        lowest = number == len(panels) - 1 or not narrow
        label_axes(panel, "", "excess over the best known cost (%)" if lowest else "",
                   "share of runs" if column == 0 else "")  # fmt: skip
        panel.set_title(title, fontsize=10, loc="left")
    return finish_figure(ax)


def _accumulate(excess: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the steps of a profile: excess in percent, at least the floor, and the share of runs up to it."""
    known = ~np.isnan(excess)
    values = 100 * np.maximum(excess[known], FLOOR)
    order = np.argsort(values, kind="stable")
    shares = np.cumsum(weights[known][order])
    inside = values[order] <= _TOP
    x = np.concatenate([[100 * FLOOR], values[order][inside], [_TOP]])
    y = np.concatenate([[0.0], shares[inside], [shares[inside][-1] if inside.any() else 0.0]])
    # Of equal values, only the last step is drawn; the first point is kept.
    is_last = np.append(x[:-1] != x[1:], True)
    is_last[0] = True
    return x[is_last], y[is_last]


def _draw_panel(panel: "Axes", curves: dict[str, tuple[Floats, Floats]], names: Sequence[str]) -> None:
    """Draw the profiles of a class in color with their names, and all others in gray."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    for guide in _GUIDES:
        panel.axvline(guide, color="#E6E6E6", linewidth=0.8, zorder=0)
    for name, (x, y) in curves.items():
        if name not in names:
            grid = np.geomspace(100 * FLOOR, _TOP, _COARSE)
            shares = y[np.searchsorted(x, grid, side="right") - 1]
            panel.step(grid, shares, where="post", color=_OTHERS, linewidth=0.7, zorder=1,
                       label=f"{name} (other class)")  # fmt: skip
    looks = {
        name: (CATEGORIES[i % len(CATEGORIES)], _DASHES[i // len(CATEGORIES) % len(_DASHES)])
        for i, name in enumerate(names)
    }
    for name in reversed(names):
        color, dashes = looks[name]
        panel.step(*curves[name], where="post", color=color, linestyle=dashes, linewidth=1.5, zorder=3, label=name)
    _name_curves(panel, {name: float(curves[name][1][-1]) for name in names}, looks)
    panel.set_xscale("log")
    panel.set_xlim(100 * FLOOR, _TOP)
    panel.set_ylim(0.0, 1.02)
    panel.xaxis.set_major_locator(FixedLocator(_TICKS))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in _TICKS]))


def _name_curves(panel: "Axes", ends: dict[str, float], looks: dict[str, tuple[str, Any]]) -> None:
    """Write names right of a panel in the order of the ends of their curves, each joined to its end by a line."""
    # Of curves with the same end, those with a better rank are higher.
    order = sorted(reversed(list(ends)), key=lambda name: round(ends[name], 6))
    places = separate_places(np.array([ends[name] / 1.02 for name in order]), _LABEL)
    places -= max(places[-1] - 1.0, 0.0)
    for name, place in zip(order, places, strict=True):
        color, dashes = looks[name]
        panel.plot([1.0, 1.04, 1.1], [ends[name] / 1.02, place, place], color=color, linestyle=dashes, linewidth=0.8,
                   transform=panel.transAxes, clip_on=False)  # fmt: skip
        panel.text(1.12, place, name, color=color, ha="left", va="center", fontsize=8,
                   transform=panel.transAxes)  # fmt: skip
