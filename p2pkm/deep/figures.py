"""Figures of deep clustering: accuracy against bytes, images nearest to each centroid, features in a plane."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from p2pkm.analysis.paired_tests import estimate_mean
from p2pkm.core.batch import Floats
from p2pkm.core.errors import DataError
from p2pkm.core.validation import as_floats, check_choice
from p2pkm.deep.deep_table import DeepTable
from p2pkm.deep.training import find_shape
from p2pkm.metrics.registry import find
from p2pkm.viz.looks import finish_figure
from p2pkm.viz.open_run import require_type
from p2pkm.viz.projection import find_components
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import CATEGORIES, GRAY, INK, choose_steps, format_tick_labels, label_axes, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = "osD^vP*X"
# Pixels between two images of a sheet.
_GAP = 1
# Points that are drawn, at most.
_MAX_POINTS = 5_000


@with_own_settings
def plot_accuracy(
    table: DeepTable, ax: "Axes | None" = None, *, against: str = "bytes", figure: str = "accuracy"
) -> "Figure":
    """Plot the accuracy of the linear probe against the bytes of each system; systems without messages: dotted lines.

    Parameters
    ----------
    table : DeepTable
        From `p2pkm.deep_table`: means over its seeds, with 95 % intervals by Student's t.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; default: a new figure.
    against : {"bytes", "bytes_busiest"}
    figure : {"accuracy", "accuracy_few"}

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.ticker import EngFormatter, LogLocator

    table = require_type(table, DeepTable, "a DeepTable, such as p2pkm.deep_table returns")
    check_choice(against, ("bytes", "bytes_busiest"), "against")
    check_choice(figure, ("accuracy", "accuracy_few"), "figure")
    ax = open_axes(ax, 8.0, 4.6, left=0.1, right=0.66)
    spent, sending = [], 0
    for number, name in enumerate(table.names):
        values = [row[figure] for row in table.rows if row["name"] == name]
        mean, low, high = estimate_mean(values)
        bytes_ = table.mean(name, against)
        if not bytes_:
            color = (GRAY, INK, *CATEGORIES[::-1])[(number - sending) % (2 + len(CATEGORIES))]
            ax.axhline(mean, color=color, linestyle=":", linewidth=1.4, zorder=1, label=f"{name} (sends nothing)")
            continue
        color, marker = CATEGORIES[sending % len(CATEGORIES)], _MARKERS[sending % len(_MARKERS)]
        ax.errorbar(bytes_, mean, [[mean - low], [min(high, 1.0) - mean]], color=color, marker=marker,
                    capsize=3, markersize=8, linestyle="none", label=name)  # fmt: skip
        spent.append(bytes_)
        sending += 1
    if spent:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=choose_steps(min(spent), max(spent))))
        format_tick_labels(ax.xaxis)
        ax.set_xlim(min(spent) / 1.5, max(spent) * 1.5)
        ax.xaxis.set_major_formatter(EngFormatter(unit="B", usetex=False))
    count = len({row["seed"] for row in table.rows})
    title = f"Linear probe: mean over {count} seeds, 95 % intervals" if count > 1 else "Linear probe: one seed"
    labels = "all labels" if figure == "accuracy" else "few labels"
    label_axes(ax, title, find(against).axis, f"accuracy with {labels}")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8.5, frameon=False)
    return finish_figure(ax)


@with_own_settings
def plot_nearest(
    images: ArrayLike, features: ArrayLike, centroids: ArrayLike, ax: "Axes | None" = None, *, per_centroid: int = 8,
    shape: str | None = None, labels: ArrayLike | None = None,
) -> "Figure":  # fmt: skip
    """Draw the images nearest to each centroid in one row per centroid, nearest first; absent centroids are omitted.

    Parameters
    ----------
    images : array_like of float64[m, d]
    features : array_like of float64[m, D]
        Features of the images, such as `Result.learned.features`.
    centroids : array_like of float64[k, D]
        Absent rows are +inf.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; default: a new figure.
    per_centroid : int
        Images in a row.
    shape : str, optional
        Shape of an image, such as 28x28; default: a square.
    labels : array_like of int64[m], optional
        Cluster of each image, such as the last row of `Result.learned.labels`: a row then shows images of its cluster
        only. Default: each row shows the nearest of all images.

    Returns
    -------
    matplotlib.figure.Figure
    """
    points = _read_rows(images, "images")
    values = _read_rows(features, "features")
    rows = _read_rows(centroids, "centroids")
    owner = None if labels is None else np.asarray(labels)
    height, width, channels = find_shape(shape, points.shape[1])
    present = np.flatnonzero(np.isfinite(rows).all(axis=1))
    ax = open_axes(ax, max(4.0, 0.5 * per_centroid), max(2.0, 0.45 * len(present)), left=0.12, bottom=0.03, right=0.98)
    low, high = float(points.min(initial=0.0)), float(points.max(initial=1.0))
    sheet = np.ones((len(present) * (height + _GAP), per_centroid * (width + _GAP), channels))
    for i, j in enumerate(present):
        members = np.arange(len(points)) if owner is None else np.flatnonzero(owner == j)
        order = members[np.argsort(((values[members] - rows[j]) ** 2).sum(axis=1), kind="stable")][:per_centroid]
        for column, index in enumerate(order):
            y, x = i * (height + _GAP), column * (width + _GAP)
            pixels = points[index].reshape(height, width, channels)
            sheet[y : y + height, x : x + width] = (pixels - low) / (high - low)
    picture = sheet if channels == 3 else sheet.mean(axis=2)
    ax.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="equal")
    ax.set_xticks([])
    ax.set_yticks((np.arange(len(present)) + 0.5) * (height + _GAP) - 0.5, [str(j) for j in present], fontsize=8)
    ax.set_ylabel("centroid")
    ax.set_title("Images nearest to each centroid", fontsize=11, loc="left")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return finish_figure(ax)


@with_own_settings
def plot_features(
    features: ArrayLike, labels: ArrayLike | None = None, ax: "Axes | None" = None, *,
    centroids: ArrayLike | None = None, names: Sequence[str] | None = None,
) -> "Figure":  # fmt: skip
    """Plot features on their two principal components, colored by class; at most 5,000 points.

    Parameters
    ----------
    features : array_like of float64[m, D]
    labels : array_like of int64[m], optional
        Class of each point.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; default: a new figure.
    centroids : array_like of float64[k, D], optional
        Drawn as crosses.
    names : sequence of str, optional
        Names of the classes.

    Returns
    -------
    matplotlib.figure.Figure
    """
    values = _read_rows(features, "features")
    flat = find_components(values)
    ax = open_axes(ax, 6.5, 5.0, right=0.8)
    step = max(1, -(-len(values) // _MAX_POINTS))
    positions: Floats = flat.place(values)[::step]
    classes = np.zeros(len(positions), np.int64) if labels is None else np.asarray(labels)[::step]
    for number, index in enumerate(np.unique(classes)):
        members = classes == index
        label = None
        if labels is not None:
            label = str(index) if names is None else names[int(index)]
        color, marker = CATEGORIES[number % len(CATEGORIES)], _MARKERS[number // len(CATEGORIES) % len(_MARKERS)]
        x, y = positions[members, 0], positions[members, 1]
        ax.scatter(x, y, s=9, color=color, linewidths=0, alpha=0.7, marker=marker, label=label, rasterized=True)
    if centroids is not None:
        crosses = flat.place(_read_rows(centroids, "centroids"))
        ax.scatter(crosses[:, 0], crosses[:, 1], s=50, marker="x", color=INK, label="centroids")
    label_axes(ax, "Features on two principal components", *flat.names)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8.5, frameon=False, markerscale=1.5)
    return finish_figure(ax)


def _read_rows(values: ArrayLike, name: str) -> Floats:
    """Convert an argument to rows of numbers, float64[m, d]."""
    rows = as_floats(values, name)
    if rows.ndim != 2 or not rows.size:
        raise DataError(f"{name} has shape {rows.shape}; expected rows of numbers, (number of rows, numbers in a row)")
    return rows
