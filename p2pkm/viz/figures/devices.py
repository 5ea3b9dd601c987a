"""Points and centroids of single devices, one panel each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.units import count
from p2pkm.core.validation import as_list, check_integer
from p2pkm.viz.color_by import read_points
from p2pkm.viz.looks import finish_figure, is_narrow, is_tight
from p2pkm.viz.names import break_name, keep_names, write_names
from p2pkm.viz.open_run import open_run
from p2pkm.viz.projection import choose_projection
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import CATEGORIES, GRAY, INK, format_tick_labels, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.viz.open_run import Run

_PANELS, _COLUMNS = 25, 5
_LEGEND = 6.0  # least width in inches, for the title and the legend
_BACKGROUND = 1_000  # most points of all devices in the background of a panel
_WRAPPED = 30  # letters per line of a panel's title
_GAP = 0.12  # between panels, relative to their size


@with_own_settings
def plot_devices(result: "Run", ax: "Axes | None" = None, *, devices: "Integers | list[int] | None" = None) -> "Figure":
    """Draw one panel per device with its points and centroids, and the points of all devices in gray.

    Of more than 25 devices, 25 are drawn, evenly spaced in their order, and the title notes it. More than two features
    are projected to the two principal components of all points. Points are those of the result's sample.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    devices : int64 or list of int, optional
        Devices to draw; only the first 25 are. None: all, up to 25.

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
    colored = read_points(result)
    projection = choose_projection(result)
    points = projection.place(result.census.sample)
    centroids = projection.place(result.centroids[chosen])
    limits = _choose_limits(points, centroids)
    names = None if result.topology.names is None else write_names(result.topology.names)
    # Names in narrow panels have several lines.
    between = (5 if names and (is_narrow() or is_tight()) else 2) * _GAP
    for place, device in enumerate(chosen):
        panel = _place_panel(ax, place, columns, rows, between=between)
        panel.set(xlim=limits[0], ylim=limits[1])
        panel.locator_params(nbins=4)
        labels = [
            name + format_tick_labels(axis)
            for name, axis in zip(projection.names, (panel.xaxis, panel.yaxis), strict=True)
        ]
        is_local = result.census.sample_device == device
        _draw_device(panel, points, colored.kinds, is_local)
        panel.scatter(*centroids[place].T, s=26, marker="x", color=INK, linewidths=1.2, zorder=3)
        size = int(result.census.sizes[device])
        name = f"device {device}" if names is None else names[device]
        title = break_name(name if is_tight() else f"{name}: {count(size, 'point')}", _WRAPPED)
        # With y, matplotlib does not look for texts above each panel whenever the figure is drawn: there are none.
        panel.set_title(title, fontsize=7.5, loc="left", pad=3, y=1.0)
        keep_names(panel, f"{result.topology.label(device)}: {count(size, 'point')}" if names else "")
        panel.tick_params(labelsize=6.5, length=2, labelbottom=place + columns >= len(chosen))
        panel.tick_params(labelleft=place % columns == 0 and bool(projection.names[1]), left=bool(projection.names[1]))
    # Points above the panels for titles of several lines, below the legend.
    panels: list[Any] = list(ax.child_axes)
    above = 9.0 * max(panel.get_title(loc="left").count("\n") for panel in panels[:columns])
    _draw_legend(ax, colored.label, len(result.census.sample) < int(result.census.sizes.sum()), above)
    part = "" if len(chosen) == n else f" ({len(chosen)} shown)"
    title = f"Points and centroids of {count(n, 'device')}{part}"
    ax.set_title("\n".join([title, projection.note]).rstrip(), fontsize=11, loc="left", pad=38 + above)
    _label_sides(ax, labels if projection.names[1] else labels[:1])
    return finish_figure(ax)


def _label_sides(ax: "Axes", labels: Sequence[str]) -> None:
    """Write the labels of all panels below and, if there are two, left of them, at a distance in points."""
    ax.annotate(labels[0], (0.5, 0), (0, -18), "axes fraction", "offset points", ha="center", va="top", fontsize=9)
    if len(labels) > 1:
        ax.annotate(labels[1], (0, 0.5), (-28, 0), "axes fraction", "offset points", ha="right", va="center",
                    rotation=90, fontsize=9)  # fmt: skip


def _read_devices(devices: Any, n: int) -> Integers:
    """Check the numbers of the devices to draw, and return at most 25."""
    numbers = as_list(devices, "devices")
    if not numbers:
        raise ExperimentError(f"devices is {devices!r}; expected at least one number from 0 to {n - 1}")
    return np.array([check_integer(number, 0, "devices", n - 1) for number in numbers[:_PANELS]])


def _place_panel(ax: "Axes", place: int, columns: int, rows: int, *, between: float) -> Any:
    """Create the axes of a panel; panels are numbered row by row, `between` is the distance of rows."""
    row, column = divmod(place, columns)
    width = 1 / (columns + _GAP * (columns - 1))
    height = 1 / (rows + between * (rows - 1))
    left = column * (1 + _GAP) * width
    top = 1 - row * (1 + between) * height
    panel = ax.inset_axes((left, top - height, width, height))
    panel.spines[:].set_color("#BBBBBB")
    return panel


def _draw_device(panel: Any, points: Floats, classes: Integers, is_local: Any) -> None:
    """Draw the points of one device in the colors of their classes or clusters, over those of all devices in gray."""
    from matplotlib.colors import to_rgba_array

    background = points[:: max(1, -(-len(points) // _BACKGROUND))]
    panel.scatter(background[:, 0], background[:, 1], s=2, color="#E2E2E2", linewidths=0, zorder=1, rasterized=True)
    colors = to_rgba_array([*CATEGORIES, GRAY])
    kind = np.where(classes[is_local] >= 0, classes[is_local] % len(CATEGORIES), len(CATEGORIES))
    size = float(np.clip(900 / max(is_local.sum(), 1), 3, 14))
    panel.scatter(points[is_local, 0], points[is_local, 1], s=size, c=colors[kind], linewidths=0, zorder=2)


def _choose_limits(points: Floats, centroids: Floats) -> list[tuple[float, float]]:
    """Return the limits of both axes, which contain all points and centroids."""
    shown = np.concatenate((points, centroids.reshape(-1, 2)))
    shown = shown[np.isfinite(shown).all(axis=1)]
    if not len(shown):
        return [(-1.0, 1.0)] * 2
    low, high = shown.min(axis=0), shown.max(axis=0)
    room = np.where(high > low, 0.06 * (high - low), 1.0)
    return [(float(a), float(b)) for a, b in zip(low - room, high + room, strict=True)]


def _draw_legend(ax: "Axes", kind: str, sampled: bool, above: float) -> None:
    """Draw the legend of points and centroids, `above` points higher than above titles of one line."""
    local = "local point" + (f", by {kind}" if kind else "") + (" (a sample)" if sampled else "")
    marks: dict[str, dict[str, Any]] = {
        local: {"marker": "o", "color": CATEGORIES[0] if kind else GRAY},
        "point of any device": {"marker": "o", "color": "#D5D5D5"},
        "local centroid": {"marker": "x", "color": INK},
    }
    handles = [ax.scatter([], [], s=28, label=label, **look) for label, look in marks.items()]
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1), borderaxespad=1.6 + above / 8, ncols=3,
              fontsize=8, frameon=False, columnspacing=1.2, handletextpad=0.2)  # fmt: skip
