"""Partition of points and classes over devices."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import DataError
from p2pkm.core.units import count
from p2pkm.core.validation import as_floats
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.open_run import open_run
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (
    BARS,
    BLUE,
    INK,
    NONE,
    add_color_bar,
    average_steps,
    choose_text_color,
    format_counts,
    label_axes,
    open_axes,
    scale_colors,
    set_integer_ticks,
    write_number,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.viz.open_run import Run

_WRITTEN = (24, 16)  # devices and classes up to which counts are written into the cells
_WIDE = 8.0  # largest over smallest count above which colors are logarithmic
_COLUMNS = 2_000  # most columns of the map; more devices share columns


@with_own_settings
def plot_partition(result: "Run", ax: "Axes | None" = None) -> "Figure":
    """Draw the number of points of each class on each device, see `plot_partition_of`.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    result = open_run(result)
    return plot_partition_of(result.census.sizes, result.census.classes, ax, names=result.topology.names)


@with_own_settings
def plot_partition_of(
    sizes: Integers, classes: Integers | None, ax: "Axes | None" = None, *, names: Sequence[str] | None = None
) -> "Figure":
    """Draw a map of devices and classes or, without labels, the points of each device.

    Parameters
    ----------
    sizes : int64[n]
        Points of each device.
    classes : int64[n, c] or None
        Points of each class on each device; None without labels.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    names : sequence of str, optional
        Names of the devices; None: their numbers.

    Returns
    -------
    matplotlib.figure.Figure
    """
    numbers = as_floats(sizes, "sizes")
    if numbers.ndim != 1 or not len(numbers) or not (numbers >= 0).all():
        raise DataError(
            f"sizes has the shape {numbers.shape}; expected the number of points of each device, 0 or more. Use "
            "p2pkm.partition_report(shards).plot() for shards"
        )
    sizes = numbers.astype(np.int64)
    if classes is None or not np.size(classes):
        return finish_figure(_draw_sizes(sizes, open_axes(ax, 7.0, 4.2), names))
    table = np.asarray(classes)
    ax = open_axes(ax, 7.4, float(np.clip(1.3 + 0.27 * table.shape[1], 3.4, 6)), left=0.09, right=0.88, bottom=0.15)
    _draw_map(table, ax, names)
    ax.set_title(
        f"Partition: {_sum_up(sizes)}, {count(table.shape[1], 'class', 'es')}",
        fontsize=11,
        loc="left",
    )
    return finish_figure(ax)


def _sum_up(sizes: Integers) -> str:
    return f"{count(int(sizes.sum()), 'point')} on {count(len(sizes), 'device')}"


def _draw_sizes(sizes: Integers, ax: "Axes", names: Sequence[str] | None) -> "Axes":
    """Draw a bar per device or, above 100 devices, their sorted sizes."""
    n = len(sizes)
    if n <= BARS:
        ax.bar(np.arange(n), sizes, color=BLUE, width=0.8)
        ax.set_xlim(-0.6, n - 0.4)
        set_integer_ticks(ax.xaxis, n, names)
    else:
        heights, bounds = average_steps(np.sort(sizes)[::-1])
        ax.fill_between((bounds[:-1] + bounds[1:] - 1) / 2, heights, color=BLUE, step="mid", linewidth=0)
        ax.set_xlim(0, n - 1)
    ax.set_ylim(0, max(1, int(sizes.max(initial=0))) * 1.2)
    format_counts(ax.yaxis)
    empty = int((sizes == 0).sum())
    note = f", {empty:,} without points" if empty else ""
    label_axes(
        ax, f"Partition: {_sum_up(sizes)}{note}", "device" if n <= BARS else "devices, most points first", "points"
    )
    ax.axhline(
        float(sizes.mean()), color=INK, linewidth=1, linestyle="--", label=f"mean: {write_number(float(sizes.mean()))}"
    )
    ax.legend(loc="upper right", fontsize=8.5, frameon=False)
    return ax


def _draw_map(table: Integers, ax: "Axes", names: Sequence[str] | None) -> None:
    """Draw counts as colors, with a column per device and a row per class, and write them if there are few."""
    n, n_classes = table.shape
    step = -(-n // _COLUMNS)
    starts = np.arange(0, n, step)
    columns: Floats = np.add.reduceat(table, starts, axis=0) / np.diff(np.append(starts, n))[:, None]
    shown = np.ma.masked_equal(columns.T, 0)
    norm = scale_colors(columns[columns > 0], _WIDE)
    extent = (-0.5, n - 0.5, -0.5, n_classes - 0.5)
    ax.set_facecolor(NONE)
    image = ax.imshow(
        shown, cmap="viridis", norm=norm, aspect="auto", origin="lower", extent=extent, interpolation="nearest"
    )
    for axis, label, size, tick_names in ((ax.xaxis, "device", n, names), (ax.yaxis, "true class", n_classes, None)):
        axis.set_label_text(label)
        set_integer_ticks(axis, size, tick_names)
    ax.tick_params(labelsize=9)
    if n <= _WRITTEN[0] // (2 if is_narrow() else 1) and n_classes <= _WRITTEN[1]:
        for (i, j), number in np.ndenumerate(table):
            if number:
                ink = choose_text_color(image.cmap(norm(number)))
                ax.text(i, j, f"{number}", ha="center", va="center", fontsize=7, color=ink)
    label = "points" if step == 1 else f"points, mean of {step} devices"
    label += " (gray: none)" * bool((columns == 0).any())
    add_color_bar(ax, image, label, (1.02, 0, 0.025, 1), counts=step == 1)
