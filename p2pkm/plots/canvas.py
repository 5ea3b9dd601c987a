"""What all figures share: a fresh canvas without pyplot, colours that the colour-blind can tell apart, axes."""

from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.devices import Floats, Integers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

# Okabe and Ito, "Color Universal Design" (2008), without yellow, which is lost on white.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D31")
BLUE, ORANGE, GREEN, RED, GREY, PALE, INK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#9A9A9A", "#EFEFEF", "#222222"
DPI = 120
BARS = 100  # devices; above, bars become a line
RASTER = 2_000  # marks; above, a vector file holds them as a picture
_DECADES = 20.0  # largest over smallest value from which an axis or a colour scale is logarithmic


def open_axes(ax: "Axes | None", width: float = 7.0, height: float = 4.5, **margins: float) -> "Axes":
    """Return the given axes, or those of a new figure that no pyplot state knows.

    Parameters
    ----------
    ax : matplotlib.axes.Axes or None
    width, height : float
        Size of a new figure in inches.
    **margins : float
        ``left``, ``right``, ``bottom`` and ``top`` of the axes in a new figure, as fractions of it.
    """
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI)
    edges = {"left": 0.1, "right": 0.97, "bottom": 0.13, "top": 0.9} | margins
    size = (edges["left"], edges["bottom"], edges["right"] - edges["left"], edges["top"] - edges["bottom"])
    return figure.add_axes(size)


def dress(ax: "Axes", title: str, x: str, y: str) -> None:
    """Write the title and the labels of the axes, and take away the frame's upper and right side."""
    ax.set_title(title, fontsize=11, loc="left")
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)


def write_plainly(axis: Any, *, logarithmic: bool = False) -> None:
    """Write an axis' numbers as 0.01, 1 and 1e+06, not as powers with an offset, which hide what they say."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    if logarithmic:
        axis.set_minor_formatter(NullFormatter())


def count_in_thousands(axis: Any, unit: str = "") -> None:
    """Write an axis' counts as 250, 4 k, 1.5 M, with a unit."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.set_major_formatter(EngFormatter(unit=unit, usetex=False))


def count_one_by_one(axis: Any) -> None:
    """Put an axis' numbers at whole numbers only: devices and classes are counted."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=12, integer=True))


def is_wide(values: Floats) -> bool:
    """Return whether the positive values among these span more than a linear scale can show."""
    positive = values[np.isfinite(values) & (values > 0)]
    return len(positive) > 0 and float(positive.max()) > _DECADES * float(positive.min())


def scale_colors(values: Floats) -> "Normalize":
    """Return a colour scale for the finite values: logarithmic if they are positive and span far enough."""
    from matplotlib.colors import LogNorm, Normalize

    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if low > 0 and is_wide(known):
        return LogNorm(low, high)
    if high - low <= 1e-12 * abs(high):  # all alike: a scale needs some width
        low, high = (0.0, high) if high > 0 else (0.0, 1.0)
    return Normalize(low, high)


def draw_sample(count: int, limit: int) -> Integers:
    """Return at most `limit` of the numbers 0 to count - 1, ascending; the same at every call."""
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, limit, replace=False))


def count(number: int, noun: str, plural: str = "s") -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"
