"""Profile of the clusters: mean and deviation of each feature, on each device, and means in units of the data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.units import count
from p2pkm.viz.looks import current_style, finish_figure, is_narrow, is_tight
from p2pkm.viz.names import write_names
from p2pkm.viz.open_run import open_run
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import CATEGORIES, GRAY, open_axes, set_name_ticks, write_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.viz.open_run import Run

# Features from which a run has this figure; the figure of points shows fewer features completely.
MANY_FEATURES = 3
_CLUSTERS = 12  # most panels
_COLUMNS = 4  # panels in a row
_FEATURES = 15  # most features
_WIDE = 1.9  # inches; width of a panel
_LINE, _HIGH_LINE = 0.3, 0.55  # inches; height of a feature, also in a narrow figure, which is made smaller
_LABELS = 1.25  # inches; width of the names of features
_HEAD = 0.95  # inches; height of title and legend
_GAP, _WIDE_GAP = 0.62, 1.6  # inches right of a panel for numbers, also in a style, whose text is larger in proportion
_BETWEEN = 0.62  # inches between rows of panels
_LETTERS = 120  # letters per line of the legend
_LONG = 1e6  # numbers from here on have an exponent


class Profile(NamedTuple):
    """Standardized features of the clusters.

    Attributes
    ----------
    means, deviations : float64[n, k, d]
        Mean and standard deviation of each cluster on each device, in standard deviations of the pooled points; NaN
        without points.
    pooled, widths : float64[k, d]
        Mean and standard deviation of each cluster over all devices, in the same unit.
    values : float64[k, d]
        Mean of each cluster over all devices in units of the data.
    points : int64[n, k]
        Points of each cluster on each device.
    """

    means: Floats
    deviations: Floats
    pooled: Floats
    widths: Floats
    values: Floats
    points: Integers


def standardize(result: Any) -> Profile:
    """Compute the profile of the clusters of a result.

    Every feature is centered at its mean over the pooled points and divided by their standard deviation; constant
    features become 0.

    Raises
    ------
    DataError
        If the result does not contain means of clusters, because the run was too large.
    """
    clusters = result.clusters
    middle, spread = clusters.pool_moments(over_clusters=True)
    pooled, within = clusters.pool_moments()
    scale = np.where(spread > 0, spread, 1.0)
    return Profile(
        (clusters.means - middle) / scale, clusters.deviations / scale, (pooled - middle) / scale, within / scale,
        pooled, clusters.points,
    )  # fmt: skip


@with_own_settings
def plot_profile(result: "Run", ax: "Axes | None" = None) -> "Figure":
    """Draw one panel per cluster: mean and standard deviation of every feature on every device.

    Features are standardized: the pooled points have mean 0 and standard deviation 1. Numbers on the right are means of
    all devices in units of the data, or shares of categories. Up to seven devices have one color and one bar each. More
    devices are gray dots, with the mean and bar of all devices in color. Of more than 12 clusters the largest are
    drawn, of more than 15 features those in which the clusters differ most.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The panels are its ``child_axes``.

    Raises
    ------
    DataError
        If the result does not contain means of clusters, because the run was too large.
    """
    result = open_run(result)
    profile = standardize(result)
    n, k, d = profile.means.shape
    sizes = profile.points.sum(axis=0)
    shown = np.sort(np.argsort(-sizes, kind="stable")[: min(_CLUSTERS, max(1, int((sizes > 0).sum())))])
    spread = np.nan_to_num((sizes[:, None] * profile.pooled**2)[sizes > 0]).sum(axis=0)
    features = np.sort(np.argsort(-spread, kind="stable")[:_FEATURES])
    if is_narrow():
        columns = 2
    else:
        columns = _COLUMNS - 1 if is_tight() else _COLUMNS
    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    tall = (_HIGH_LINE if is_narrow() else _LINE) * len(features)
    gap = _GAP if current_style() is None else _WIDE_GAP
    width = _LABELS + columns * (_WIDE + gap)
    height = _HEAD + rows * tall + (rows - 1) * _BETWEEN + 0.55
    ax = open_axes(
        ax, max(width, 5.2), height, left=_LABELS / max(width, 5.2), right=1 - gap / max(width, 5.2),
        bottom=0.55 / height, top=1 - _HEAD / height,
    )  # fmt: skip
    ax.set_axis_off()
    names = write_names([result.feature_names[j] for j in features])
    devices = [result.topology.label(i) for i in range(n)]
    shares = np.zeros(d, np.bool_) if result.clusters.is_share is None else result.clusters.is_share
    limit = _find_limit(profile, shown, features)
    for place, c in enumerate(shown):
        panel = _place_panel(ax, place, columns, rows, tall, gap)
        _draw_cluster(panel, profile, c, features, devices)
        panel.set(xlim=(-limit, limit), ylim=(len(features) - 0.5, -0.5))
        set_name_ticks(panel.yaxis, [result.feature_names[j] for j in features], names)
        panel.tick_params(labelleft=place % columns == 0)
        panel.set_title(f"cluster {c}: {count(int(sizes[c]), 'point')}", fontsize=8.5, loc="left", pad=3)
        panel.tick_params(labelsize=8, length=2, labelbottom=place + columns >= len(shown))
        _write_values(panel, profile.values[c, features], shares[features])
    lines = _draw_legend(ax, result, n)
    left_out = "" if len(shown) == np.count_nonzero(sizes) else f", the largest {len(shown)} of {k} clusters"
    left_out += "" if len(features) == d else f", {len(features)} of {d} features"
    pad = max(44.0, 22.0 + 13.0 * (lines + is_tight()))
    ax.set_title(f"Profile of the clusters{left_out}", fontsize=11, loc="left", pad=pad)
    bars = "bars: mean ± 1 standard deviation of the points; " * (n <= len(CATEGORIES))
    ax.annotate(
        "distance from the pooled mean, in pooled standard deviations\n"
        f"{bars}numbers: means in units of the data, or shares", (0.5, 0), (0, -26), "axes fraction",
        "offset points", ha="center", va="top", fontsize=9,
    )  # fmt: skip
    return finish_figure(ax)


def _find_limit(profile: Profile, shown: Integers, features: Integers) -> float:
    """Compute the limit of all panels, which contain all means and the bars that are drawn."""
    several = len(profile.means) > len(CATEGORIES)
    ends = [profile.means[:, shown][:, :, features]]
    bars = (profile.pooled[None], profile.widths[None]) if several else (profile.means, profile.deviations)
    middle, width = (part[:, shown][:, :, features] for part in bars)
    ends += [middle - width, middle + width]
    known = np.concatenate([values[np.isfinite(values)] for values in ends])
    return 1.08 * float(np.abs(known).max(initial=1.0))


def _place_panel(ax: "Axes", place: int, columns: int, rows: int, tall: float, gap: float) -> Any:
    """Create the axes of a panel; panels are numbered row by row."""
    row, column = divmod(place, columns)
    width = columns * (_WIDE + gap) - gap
    height = rows * tall + (rows - 1) * _BETWEEN
    left = column * (_WIDE + gap) / width
    top = 1 - row * (tall + _BETWEEN) / height
    panel = ax.inset_axes((left, top - tall / height, _WIDE / width, tall / height))
    panel.spines[["top", "right"]].set_visible(False)
    # Numbers of the panel to the left may extend to this one.
    panel.patch.set_visible(False)
    panel.axvline(0, color="#BBBBBB", linewidth=0.8, zorder=0)
    return panel


def _draw_cluster(panel: Any, profile: Profile, c: int, features: Integers, names: Sequence[str]) -> None:
    """Draw the means and deviations of a cluster, with the devices next to each other at each feature."""
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
            markersize=3.5, elinewidth=1, zorder=3, label=names[i],
        )  # fmt: skip


def _write_mean(value: float) -> str:
    return write_number(value) if abs(value) < _LONG else f"{value:.2e}".replace("e+0", "e").replace("e+", "e")


def _write_values(panel: Any, values: Floats, shares: Mask) -> None:
    """Write the mean of each feature in units of the data, or its share, to the right of a panel."""
    for at, (value, is_share) in enumerate(zip(values, shares, strict=True)):
        text = f"{100 * value:.0f} %" if is_share else _write_mean(value)
        panel.annotate(
            text, (1.0, at), (3, 0), panel.get_yaxis_transform(), "offset points", ha="left", va="center", fontsize=7,
            annotation_clip=False,
        )  # fmt: skip


def _draw_legend(ax: "Axes", result: Any, n: int) -> int:
    """Draw the legend, and return its number of lines."""
    if n > len(CATEGORIES):
        colors = {"mean on a device": GRAY, "mean of all devices, ± 1 standard deviation of the points": CATEGORIES[0]}
    else:
        prefix = "" if result.topology.names else "device "
        names = write_names([result.topology.label(i) for i in range(n)])
        colors = {f"{prefix}{name}": CATEGORIES[i] for i, name in enumerate(names)}
    handles = [ax.scatter([], [], s=24, color=color, label=label) for label, color in colors.items()]
    columns = int(np.clip(_LETTERS // (max(map(len, colors)) + 4), 1, 4))
    # Titles of panels have two lines where the text is large.
    pad = 3.6 if is_tight() else 1.9
    legend = ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1), borderaxespad=pad, ncols=columns,
                       fontsize=8, frameon=False, columnspacing=1.2, handletextpad=0.2)  # fmt: skip
    legend.set_zorder(4)
    return -(-len(colors) // columns)
