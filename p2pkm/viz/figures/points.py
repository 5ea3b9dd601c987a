"""Points and centroids in one, two or more features."""

from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.units import count
from p2pkm.viz.color_by import read_points
from p2pkm.viz.looks import finish_figure
from p2pkm.viz.open_run import open_run
from p2pkm.viz.projection import choose_projection
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (
    CATEGORIES,
    GRAY,
    INK,
    ORANGE,
    RASTER,
    draw_sample,
    label_axes,
    open_axes,
    set_integer_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.viz.color_by import PointColors
    from p2pkm.viz.open_run import Run

_CROSSES = 600  # centroids; above, they are dots
_CENTROIDS = 20_000  # centroids; above, those of a sample of devices are drawn
_ELONGATED = 4.0  # longer over shorter side above which the axes do not share a scale


@with_own_settings
def plot_points(result: "Run", ax: "Axes | None" = None) -> "Figure":
    """Draw the sample of points and the centroids of all devices.

    More than two features are projected to the two principal components of the sample, and the title gives their share
    of the variance. With one feature, each device has a line. Points are colored by true class or, without labels, by
    the cluster that their device assigned; unassigned points are gray.

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
    ax = open_axes(ax, 6.4, 5.9, left=0.15, right=0.97, bottom=0.09, top=0.85)
    n, _, d = result.centroids.shape
    devices = draw_sample(n, max(1, _CENTROIDS // result.centroids.shape[1]))
    owner, centroids = list_centroids(result.centroids, devices)
    sample = result.census.sample
    server = result.server_centroids
    hub = np.zeros((0, d)) if server is None else server[np.isfinite(server).all(axis=1)]
    if d == 1:
        names, note = (choose_projection(result).names[0], "device"), ""
        views = [
            np.column_stack((rows[:, 0], lines))
            for rows, lines in ((sample, result.census.sample_device), (centroids, owner), (hub, np.full(len(hub), -1)))
        ]
    else:
        projection = choose_projection(result)
        names = projection.names
        note = f"\n{projection.note}".rstrip()
        views = [projection.place(rows) for rows in (sample, centroids, hub)]
    draw_points(ax, views[0], read_points(result), upright=d == 1)
    _draw_centroids(ax, views[1], views[2])
    part = "" if len(devices) == n else f" (of {len(devices):,} devices, a sample)"
    label_axes(ax, f"Points and the centroids of {count(n, 'device')}{part}{note}", *names)
    if d == 1:
        set_integer_ticks(ax.yaxis, n, result.topology.names)
        ax.set_ylim(-0.6 if not len(hub) else -1.6, n - 0.4)
    else:
        _share_scale(ax, np.concatenate(views))
    legend = ax.legend(loc="lower left", bbox_to_anchor=(-0.01, 1), ncols=3, fontsize=8.5, frameon=False)
    handles: list[Any] = list(legend.legend_handles)
    # Marks in the figure may be small and translucent; those of the legend must be readable.
    for handle in handles:
        handle.set_alpha(1)
        handle.set_sizes([35])
    ax.set_title(ax.get_title(loc="left"), fontsize=11, loc="left", pad=24)
    return finish_figure(ax)


def list_centroids(centroids: Floats, devices: Integers) -> tuple[Integers, Floats]:
    """Return devices and rows of all present centroids of some devices, int64[c] and float64[c, d]."""
    present = np.isfinite(centroids[devices]).all(axis=2)
    return devices[np.nonzero(present)[0]], centroids[devices][present]


def draw_points(ax: "Axes", points: Floats, colored: "PointColors", *, upright: bool) -> None:
    """Draw points in light colors, one per class or cluster; the colors repeat after seven."""
    from matplotlib.colors import to_rgba_array

    if not len(points):
        return
    colors = to_rgba_array([*CATEGORIES, GRAY])
    kinds = colored.kinds
    shown = colors[np.where(kinds >= 0, kinds % len(CATEGORIES), len(CATEGORIES))]
    shown[:, :3] = 0.45 + 0.55 * shown[:, :3]
    size = float(np.clip(9_000 / len(points), 4, 16))
    ax.scatter(
        points[:, 0], points[:, 1], s=4 * size if upright else size, c=shown, marker="|" if upright else "o",
        linewidths=0.8 if upright else 0, zorder=1, rasterized=len(points) > RASTER,
        label=f"point, colored by {colored.label}" if colored.label else "point",
    )  # fmt: skip


def _draw_centroids(ax: "Axes", centroids: Floats, hub: Floats) -> None:
    """Draw the centroids of devices, more translucent the more there are, and those of a server."""
    if len(centroids):
        many = len(centroids)
        crosses = many <= _CROSSES
        ax.scatter(
            centroids[:, 0], centroids[:, 1], s=36 if crosses else 7, marker="x" if crosses else "o", color=INK,
            linewidths=1.3 if crosses else 0, alpha=float(np.clip(600 / many, 0.25, 0.85)), zorder=3,
            label="centroid of a device", rasterized=many > RASTER,
        )  # fmt: skip
    if len(hub):
        ax.scatter(
            hub[:, 0], hub[:, 1], s=110, marker="*", color=ORANGE, edgecolors=INK, linewidths=0.7, zorder=4,
            label="centroid of the server",
        )  # fmt: skip


def _share_scale(ax: "Axes", shown: Floats) -> None:
    """Set equal scales, because clusters are round in Euclidean distance, unless the figure would be a strip."""
    sides = np.ptp(shown, axis=0) if len(shown) else np.ones(2)
    if sides.min() > 0 and sides.max() <= _ELONGATED * sides.min():
        ax.set_aspect("equal", adjustable="datalim")
