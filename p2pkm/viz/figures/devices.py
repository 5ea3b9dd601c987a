"""Devices side by side: what each has, and what it makes of it."""

from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.units import count
from p2pkm.core.validation import as_list, check_integer
from p2pkm.viz.color_by import read_points
from p2pkm.viz.looks import finish_figure, is_narrow, is_tight
from p2pkm.viz.open_run import open_run
from p2pkm.viz.projection import choose_projection
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import CATEGORIES, GRAY, INK, break_name, format_tick_labels, open_axes, write_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.viz.open_run import Run

_PANELS, _COLUMNS = 25, 5
_LEGEND = 6.0  # inches that title and legend take
_BEHIND = 1_000  # points of all devices behind those of one
_WRAPPED = 30  # letters of a line above a panel
_GAP = 0.12  # between panels, of a panel


@with_own_settings
def plot_devices(result: "Run", ax: "Axes | None" = None, *, devices: "Integers | list[int] | None" = None) -> "Figure":
    """Draw a panel for each device: its points, its centroids, and behind them the points of all in gray.

    Of more than 25 devices some are drawn, evenly spread, and the title notes it. With more than two features the
    points are shown on the two principal components of all. The points are those of the result's sample.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Where to draw; None: a new figure.
    devices : int64 or list of int, optional
        Which ones to draw, at most 25.

    Returns
    -------
    matplotlib.figure.Figure
        The panels are its ``child_axes``.
    """
    result = open_run(result)
    n = len(result.centroids)
    chosen = np.arange(min(n, _PANELS)) * n // min(n, _PANELS) if devices is None else _read_devices(devices, n)
    columns = min(3 if is_narrow() else _COLUMNS, int(np.ceil(np.sqrt(len(chosen)))))
    rows = -(-len(chosen) // columns)
    width, height = max(1.2 + 1.75 * columns, _LEGEND), 1.75 + 1.75 * rows
    ax = open_axes(
        ax, width, height, left=0.8 / width, right=1 - 0.15 / width, bottom=0.55 / height,
        top=1 - 1.05 / height,
    )  # fmt: skip
    ax.set_axis_off()
    colored, flat = read_points(result), choose_projection(result)
    points, centroids = flat.place(result.census.sample), flat.place(result.centroids[chosen])
    limits = _choose_limits(points, centroids)
    names = None if result.topology.names is None else write_names(result.topology.names)
    for place, device in enumerate(chosen):
        panel = _place_panel(ax, place, columns, rows)
        panel.set(xlim=limits[0], ylim=limits[1])
        panel.locator_params(nbins=4)
        labels = [
            name + format_tick_labels(axis) for name, axis in zip(flat.names, (panel.xaxis, panel.yaxis), strict=True)
        ]
        own = result.census.sample_device == device
        _draw_device(panel, points, colored.kinds, own)
        panel.scatter(*centroids[place].T, s=26, marker="x", color=INK, linewidths=1.2, zorder=3)
        size = int(result.census.sizes[device])
        who = f"device {device}" if names is None else names[device]
        title = break_name(who if is_tight() else f"{who}: {count(size, 'point')}", _WRAPPED)
        panel.set_title(title, fontsize=7.5, loc="left", pad=3)
        panel.tick_params(labelsize=6.5, length=2, labelbottom=place + columns >= len(chosen))
        panel.tick_params(labelleft=place % columns == 0 and bool(flat.names[1]), left=bool(flat.names[1]))
    _explain(ax, colored.label, len(result.census.sample) < int(result.census.sizes.sum()))
    some = "" if len(chosen) == n else f" ({len(chosen)} of them)"
    title = f"Points and centroids of {count(n, 'device')}{some}"
    ax.set_title("\n".join([title, flat.note]).rstrip(), fontsize=11, loc="left", pad=38)
    ax.text(0.5, -0.36 / (1.75 * rows), labels[0], transform=ax.transAxes, ha="center", va="top", fontsize=9)
    if flat.names[1]:
        ax.text(-0.5 / (1.75 * columns), 0.5, labels[1], transform=ax.transAxes, rotation=90, ha="right", va="center",
                fontsize=9)  # fmt: skip
    return finish_figure(ax)


def _read_devices(devices: Any, n: int) -> Integers:
    """Return the numbers of the devices to draw, at most 25."""
    given = as_list(devices, "devices")
    if not given:
        raise ExperimentError(f"devices is {devices!r}; expected at least one number from 0 to {n - 1}")
    return np.array([check_integer(one, 0, "devices", n - 1) for one in given[:_PANELS]])


def _place_panel(ax: "Axes", place: int, columns: int, rows: int) -> Any:
    """Return the axes of a panel; they are filled row by row."""
    across, down = place % columns, place // columns
    width, height = 1 / (columns + _GAP * (columns - 1)), 1 / (rows + 2 * _GAP * (rows - 1))
    left, top = across * (1 + _GAP) * width, 1 - down * (1 + 2 * _GAP) * height
    panel = ax.inset_axes((left, top - height, width, height))
    panel.spines[:].set_color("#BBBBBB")
    return panel


def _draw_device(panel: Any, points: Floats, classes: Integers, own: Any) -> None:
    """Draw the points of one device in the colors of their classes or clusters, before those of all."""
    from matplotlib.colors import to_rgba_array

    behind = points[:: max(1, -(-len(points) // _BEHIND))]
    panel.scatter(behind[:, 0], behind[:, 1], s=2, color="#E2E2E2", linewidths=0, zorder=1, rasterized=True)
    colors = to_rgba_array([*CATEGORIES, GRAY])
    kind = np.where(classes[own] >= 0, classes[own] % len(CATEGORIES), len(CATEGORIES))
    size = float(np.clip(900 / max(own.sum(), 1), 3, 14))
    panel.scatter(points[own, 0], points[own, 1], s=size, c=colors[kind], linewidths=0, zorder=2)


def _choose_limits(points: Floats, centroids: Floats) -> list[tuple[float, float]]:
    """Return the limits of both axes, which take in all points and centroids."""
    shown = np.concatenate((points, centroids.reshape(-1, 2)))
    shown = shown[np.isfinite(shown).all(axis=1)]
    if not len(shown):
        return [(-1.0, 1.0)] * 2
    low, high = shown.min(axis=0), shown.max(axis=0)
    room = np.where(high > low, 0.06 * (high - low), 1.0)
    return [(float(a), float(b)) for a, b in zip(low - room, high + room, strict=True)]


def _explain(ax: "Axes", kind: str, sampled: bool) -> None:
    """State what the marks are."""
    own = "own point" + (f", by {kind}" if kind else "") + (" (a sample)" if sampled else "")
    marks: dict[str, dict[str, Any]] = {
        own: {"marker": "o", "color": CATEGORIES[0] if kind else GRAY},
        "point of any device": {"marker": "o", "color": "#D5D5D5"},
        "own centroid": {"marker": "x", "color": INK},
    }
    handles = [ax.scatter([], [], s=28, label=label, **look) for label, look in marks.items()]
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1), borderaxespad=1.6, ncols=3, fontsize=8,
              frameon=False, columnspacing=1.2, handletextpad=0.2)  # fmt: skip
