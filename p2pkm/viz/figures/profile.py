"""What the clusters are like: the features of each, on each device."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import DataError
from p2pkm.core.units import count
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.open_run import open_run
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import CATEGORIES, GRAY, open_axes, write_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.viz.open_run import Run

MANY_FEATURES = 3  # from which a run has this figure: with fewer, the figure of points shows all
_CLUSTERS, _COLUMNS, _FEATURES = 12, 4, 15
_WIDE, _LINE, _LABELS, _HEAD = 1.9, 0.3, 1.25, 0.95  # inches: a panel, a feature, their names, title and legend
_LETTERS = 120  # of a line of the legend
_GAP, _BETWEEN = 0.12, 0.62  # inches between panels, and between rows of them


class Profile(NamedTuple):
    """Standardized features of the clusters.

    Attributes
    ----------
    means, deviations : float64[n, k, d]
        Of each cluster on each device, in standard deviations of all points; NaN where there are no points.
    pooled, widths : float64[k, d]
        The same over all devices.
    points : int64[n, k]
    """

    means: Floats
    deviations: Floats
    pooled: Floats
    widths: Floats
    points: Integers


def standardize(result: Any) -> Profile:
    """Return the profile of the clusters of a result.

    Every feature is taken from its mean over all points and divided by its standard deviation; one without any is 0.

    Raises
    ------
    DataError
        If the run was too large to keep the means of clusters.
    """
    clusters = result.clusters
    if clusters.points is None:
        raise DataError("the result has no means of clusters: runs of more than 20 million numbers keep none")
    points, means = clusters.points[:, :, None], np.nan_to_num(clusters.means)
    squares = np.nan_to_num(clusters.deviations) ** 2
    middle, variance = _pool(points, means, squares, (0, 1))
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)
    pooled, within = _pool(points, means, squares, (0,))
    return Profile(
        (clusters.means - middle) / scale, clusters.deviations / scale, (pooled - middle) / scale,
        np.sqrt(within) / scale, clusters.points,
    )  # fmt: skip


def _pool(points: Integers, means: Floats, squares: Floats, axes: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return mean and variance of groups of points together, of which these are numbers, means and variances."""
    total = points.sum(axis=axes)
    known = np.where(total > 0, total, np.nan)
    mean = (points * means).sum(axis=axes) / known
    apart = np.where(points > 0, squares + (means - mean) ** 2, 0.0)
    return mean, (points * apart).sum(axis=axes) / known


@with_own_settings
def plot_profile(result: "Run", ax: "Axes | None" = None) -> "Figure":
    """Draw a panel for each cluster: its mean in every feature on every device, and one standard deviation about it.

    Features are standardized over all points, so 0 is their mean and 1 their standard deviation. Up to seven devices
    each have a color and a bar; of more there is a gray dot per device, and mean and bar of all in color. Of more than
    12 clusters the largest are drawn, of more than 15 features those in which the clusters differ most.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The panels are its ``child_axes``.

    Raises
    ------
    DataError
        If the run was too large to keep the means of clusters.
    """
    result = open_run(result)
    profile = standardize(result)
    n, k, d = profile.means.shape
    sizes = profile.points.sum(axis=0)
    shown = np.sort(np.argsort(-sizes, kind="stable")[: min(_CLUSTERS, max(1, int((sizes > 0).sum())))])
    spread = np.nan_to_num((sizes[:, None] * profile.pooled**2)[sizes > 0]).sum(axis=0)
    features = np.sort(np.argsort(-spread, kind="stable")[:_FEATURES])
    columns = min(2 if is_narrow() else _COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    tall = _LINE * len(features)
    width = _LABELS + columns * (_WIDE + _GAP) + 0.1
    height = _HEAD + rows * tall + (rows - 1) * _BETWEEN + 0.55
    ax = open_axes(
        ax, max(width, 5.2), height, left=_LABELS / max(width, 5.2), right=1 - 0.1 / max(width, 5.2),
        bottom=0.55 / height, top=1 - _HEAD / height,
    )  # fmt: skip
    ax.set_axis_off()
    names = write_names([result.feature_names[j] for j in features])
    limit = _reach(profile, shown, features)
    for place, c in enumerate(shown):
        panel = _place_panel(ax, place, columns, rows, tall)
        _draw_cluster(panel, profile, c, features)
        panel.set(xlim=(-limit, limit), ylim=(len(features) - 0.5, -0.5), yticks=range(len(features)))
        panel.set_yticklabels(names if place % columns == 0 else [])
        panel.set_title(f"cluster {c}: {count(int(sizes[c]), 'point')}", fontsize=8.5, loc="left", pad=3)
        panel.tick_params(labelsize=8, length=2, labelbottom=place + columns >= len(shown))
    lines = _explain(ax, result, n)
    told = "" if len(shown) == np.count_nonzero(sizes) else f", the largest {len(shown)} of {k} clusters"
    told += "" if len(features) == d else f", {len(features)} of {d} features"
    ax.set_title(f"Profile of the clusters{told}", fontsize=11, loc="left", pad=max(44.0, 22.0 + 13.0 * lines))
    bars = "\nbars: mean ± 1 standard deviation of the points" * (n <= len(CATEGORIES))
    ax.annotate(
        f"standard deviations of all points from their mean{bars}", (0.5, 0), (0, -26), "axes fraction",
        "offset points", ha="center", va="top", fontsize=9,
    )  # fmt: skip
    return finish_figure(ax)


def _reach(profile: Profile, shown: Integers, features: Integers) -> float:
    """Return how far from 0 the panels reach: all means, and the bars where they are drawn."""
    several = len(profile.means) > len(CATEGORIES)
    ends = [profile.means[:, shown][:, :, features]]
    bars = (profile.pooled[None], profile.widths[None]) if several else (profile.means, profile.deviations)
    middle, width = (part[:, shown][:, :, features] for part in bars)
    ends += [middle - width, middle + width]
    known = np.concatenate([one[np.isfinite(one)] for one in ends])
    return 1.08 * float(np.abs(known).max(initial=1.0))


def _place_panel(ax: "Axes", place: int, columns: int, rows: int, tall: float) -> Any:
    """Return the axes of a panel; they are filled row by row."""
    across, down = place % columns, place // columns
    width, height = columns * (_WIDE + _GAP) - _GAP, rows * tall + (rows - 1) * _BETWEEN
    left, top = across * (_WIDE + _GAP) / width, 1 - down * (tall + _BETWEEN) / height
    panel = ax.inset_axes((left, top - tall / height, _WIDE / width, tall / height))
    panel.spines[["top", "right"]].set_visible(False)
    panel.axvline(0, color="#BBBBBB", linewidth=0.8, zorder=0)
    return panel


def _draw_cluster(panel: Any, profile: Profile, c: int, features: Integers) -> None:
    """Draw the devices that have points of a cluster, one below another at each feature."""
    n = len(profile.means)
    if n > len(CATEGORIES):
        for at, j in enumerate(features):
            panel.scatter(
                profile.means[:, c, j], np.full(n, at - 0.25), s=9, color=GRAY, alpha=0.5, linewidths=0, zorder=2
            )
        panel.errorbar(
            profile.pooled[c, features], np.arange(len(features)), xerr=profile.widths[c, features], fmt="o",
            color=CATEGORIES[0], markersize=4.5, elinewidth=1.2, zorder=3,
        )  # fmt: skip
        return
    for i in range(n):
        y = np.arange(len(features)) + (i - (n - 1) / 2) * 0.7 / n
        panel.errorbar(
            profile.means[i, c, features], y, xerr=profile.deviations[i, c, features], fmt="o", color=CATEGORIES[i],
            markersize=3.5, elinewidth=1, zorder=3,
        )  # fmt: skip


def _explain(ax: "Axes", result: Any, n: int) -> int:
    """State what the marks are, and return in how many lines."""
    if n > len(CATEGORIES):
        looks = {"mean on a device": GRAY, "mean of all devices, ± 1 standard deviation of the points": CATEGORIES[0]}
    else:
        word = "" if result.topology.names else "device "
        names = write_names([result.topology.label(i) for i in range(n)])
        looks = {f"{word}{name}": CATEGORIES[i] for i, name in enumerate(names)}
    handles = [ax.scatter([], [], s=24, color=color, label=label) for label, color in looks.items()]
    columns = int(np.clip(_LETTERS // (max(map(len, looks)) + 4), 1, 4))
    legend = ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1), borderaxespad=1.9, ncols=columns,
                       fontsize=8, frameon=False, columnspacing=1.2, handletextpad=0.2)  # fmt: skip
    legend.set_zorder(4)
    return -(-len(looks) // columns)
