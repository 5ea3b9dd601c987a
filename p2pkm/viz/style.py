"""What all figures share: a fresh canvas without pyplot, colors that the color-blind can tell apart, axes."""

from collections import Counter
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.viz.looks import current
from p2pkm.viz.open_run import require_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

# Okabe and Ito, "Color Universal Design" (2008), without yellow, which is lost on white.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D31")
BLUE, ORANGE, GREEN, RED, GRAY, PALE, INK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#9A9A9A", "#EFEFEF", "#222222"
DPI = 120
BARS = 100  # devices; above, bars become a line
RASTER = 2_000  # marks; above, a vector file holds them as a picture
_LONGEST, _HEAD = 40, 25  # letters of a name that are written, and of its beginning if it is longer
_WRAPPED = 20  # letters of a line of a name beside the axes
_LETTERS, _ASLANT = 60, 16  # letters of names beside one another on an axis, and of one that is written aslant
_NUMBERED = 20  # devices or classes; above, not every one is numbered
_FEW_DECADES = 500.0  # largest over smallest value up to which 2 and 5 are numbered, too
_NARROW = 1e-3  # width of a linear axis over its largest number below which an offset is taken off
_WIDE = 20.0  # largest over smallest value from which an axis or a color scale is logarithmic


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
        from matplotlib.axes import Axes

        return require_type(ax, Axes, "the axes of a matplotlib figure as ax=, such as figure.subplots()")
    from p2pkm.viz.picture import Picture

    figure = Picture(figsize=(width, height), dpi=DPI)
    figure.look, figure.grows = current(), True
    edges = {"left": 0.1, "right": 0.97, "bottom": 0.13, "top": 0.9} | margins
    size = (edges["left"], edges["bottom"], edges["right"] - edges["left"], edges["top"] - edges["bottom"])
    return figure.add_axes(size)


def label_axes(ax: "Axes", title: str, x: str, y: str) -> None:
    """Write the title, the labels and the numbers of the axes, and take away the frame's upper and right side.

    Axes whose numbers have a format of their own keep it.
    """
    from matplotlib.ticker import ScalarFormatter

    ax.set_title(title, fontsize=11, loc="left")
    for axis, label in ((ax.xaxis, x), (ax.yaxis, y)):
        usual = type(axis.get_major_formatter()) is ScalarFormatter
        axis.set_label_text(label + (format_tick_labels(axis) if usual else ""))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)


def format_tick_labels(axis: Any) -> str:
    """Write an axis' numbers as 0.01, 1 and 1e+06, as six digits can tell them apart; its limits must be known.

    Returns
    -------
    str
        To be written after the label: where the numbers differ by less than a thousandth of their size, what has been
        subtracted from all of them, such as " - 1000"; else nothing.
    """
    from matplotlib.ticker import FuncFormatter, NullFormatter

    offset, least = _choose_offset(*axis.get_view_interval()) if axis.get_scale() == "linear" else (0.0, 0.0)

    def write(value: float, _: object) -> str:
        rest = value - offset
        return f"{rest if abs(rest) > least else 0.0:.6g}"

    axis.set_major_formatter(FuncFormatter(write))
    axis.set_minor_formatter(NullFormatter())
    return f" {'-' if offset > 0 else '+'} {abs(offset):.15g}" if offset else ""


def _choose_offset(low: float, high: float) -> tuple[float, float]:
    """Return what to subtract from the numbers of a linear axis, and what of them is but rounding."""
    width = abs(high - low)
    if not 0 < width < _NARROW * max(abs(low), abs(high)):
        return 0.0, 1e-9 * width
    places = -int(np.ceil(np.log10(width)))
    return round((low + high) / 2, places), 1e-6 * width


def write_number(value: float) -> str:
    """Write a number beside a mark: 1,234 or 0.0123."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.3g}"


def count_in_thousands(axis: Any, unit: str = "") -> None:
    """Write an axis' counts as 250, 4 k, 1.5 M, with a unit."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axis.set_major_formatter(EngFormatter(unit=unit, usetex=False))


def count_one_by_one(axis: Any, n: int, names: Sequence[str] | None = None) -> None:
    """Put the numbers of an axis at whole ones only, all of 0 to n - 1 if they are few; then with names, if any."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

    few = n <= _NUMBERED
    axis.set_major_locator(FixedLocator(range(n)) if few else MaxNLocator(nbins=12, integer=True))
    if few and names is not None:
        written = write_names(names[:n])
        if axis.axis_name == "y":
            written = [break_name(name, _WRAPPED) for name in written]
        axis.set_major_formatter(FixedFormatter(written))
        longest = max(map(len, written))
        if axis.axis_name == "x" and n * longest > _LETTERS:
            axis.set_tick_params(rotation=35 if longest <= _ASLANT else 90)
            for label in axis.get_ticklabels() if longest <= _ASLANT else ():
                label.set(horizontalalignment="right", rotation_mode="anchor")


def contrast(one: Any, other: Any) -> float:
    """Return the contrast ratio of two colors, 1 to 21, as WCAG 2.2 defines it; text needs 4.5."""
    from matplotlib.colors import to_rgb

    parts = np.array([to_rgb(one), to_rgb(other)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    low, high = np.sort(linear @ (0.2126, 0.7152, 0.0722))
    return float((high + 0.05) / (low + 0.05))


def choose_ink(ground: Any) -> str:
    """Return black or white, which can be read better on this color."""
    return max(("black", "white"), key=lambda ink: contrast(ink, ground))


def write_names(names: Sequence[str]) -> list[str]:
    """Return names as a figure writes them: in full, very long ones with their beginning and their end.

    No two are written alike: where they would be, their number in the list follows. A name that begins with an
    underscore has a space before it, as matplotlib leaves such names out of legends.
    """
    plain = [" ".join(name.split()) for name in names]
    cut = [name if len(name) <= _LONGEST else f"{name[:_HEAD]}…{name[_HEAD + 1 - _LONGEST :]}" for name in plain]
    alike = Counter(cut)
    numbered = [name if alike[name] == 1 else f"{name} ({i})" for i, name in enumerate(cut)]
    return [f" {name}" if name.startswith("_") else name for name in numbered]


def break_name(name: str, width: int) -> str:
    """Return a name in lines of about so many letters, broken at spaces and hyphens."""
    return "\n".join(wrap(name, width)) if len(name) > width else name


def add_bar(
    ax: "Axes", marks: Any, label: str, box: tuple[float, float, float, float], *, whole: bool = False, unit: str = ""
) -> Any:
    """Add a color bar in a box given in the coordinates of the axes, and return it.

    whole: with whole numbers only, if these are counts; unit: counts as 4 k, with that unit.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator, MaxNLocator

    bar = ax.figure.colorbar(marks, cax=ax.inset_axes(box))
    if isinstance(marks.norm, LogNorm):
        bar.set_ticks(LogLocator(subs=choose_steps(*marks.get_clim())))
    elif whole:
        bar.set_ticks(MaxNLocator(nbins=8, integer=True))
    bar.ax.tick_params(labelsize=8)
    if unit:
        count_in_thousands(bar.ax.yaxis, unit)
    else:
        label += format_tick_labels(bar.ax.yaxis)
    bar.set_label(label, fontsize=8.5)
    return bar


def choose_steps(low: float, high: float) -> tuple[float, ...]:
    """Return which multiples of the powers of ten a logarithmic scale should number, so that there are some."""
    return (1.0, 2.0, 5.0) if high < _FEW_DECADES * low else (1.0,)


def is_wide(values: Floats, factor: float = _WIDE) -> bool:
    """Return whether the largest of the positive values is more than `factor` times the smallest."""
    positive = values[np.isfinite(values) & (values > 0)]
    return len(positive) > 0 and float(positive.max()) > factor * float(positive.min())


def scale_colors(values: Floats, factor: float = _WIDE) -> "Normalize":
    """Return a color scale for the finite values: logarithmic if they are positive and span that factor."""
    from matplotlib.colors import LogNorm, Normalize

    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if low > 0 and is_wide(known, factor):
        return LogNorm(low, high)
    if high - low <= 1e-12 * abs(high):  # all alike: a scale needs some width
        low, high = (0.0, high) if high > 0 else (0.0, 1.0)
    return Normalize(low, high)


def draw_sample(count: int, limit: int) -> Integers:
    """Return at most `limit` of the numbers 0 to count - 1, ascending; the same at every call."""
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, limit, replace=False))


def average_steps(values: Floats | Integers) -> tuple[Floats, Integers]:
    """Return means over at most 2,000 runs of values that follow one another, and the bounds of the runs."""
    bounds = np.unique(np.linspace(0, len(values), min(len(values), RASTER) + 1).astype(np.int64))
    return np.add.reduceat(values, bounds[:-1]) / np.diff(bounds), bounds
