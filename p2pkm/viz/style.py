"""Common parts of figures: new axes without pyplot, colors for color-blind readers, ticks, labels and color bars."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.viz.looks import current_style
from p2pkm.viz.names import break_name, keep_names, write_names
from p2pkm.viz.open_run import require_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

# Okabe and Ito, "Color Universal Design" (2008), without yellow, which has too little contrast on white.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D31")
BLUE, ORANGE, GREEN, PURPLE, RED = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00"
GRAY, PALE, INK = "#9A9A9A", "#EFEFEF", "#222222"
MARKERS = "osD^vP*Xd<>h"  # of series, which differ in print, too
NONE = "#C4C4C4"  # cells of a map without a value: a gray that is distinct from white and from all colors of viridis
DPI = 120
BARS = 100  # devices; above, bars are replaced by steps
RASTER = 2_000  # marks; above, vector files contain them as an image
_WRAPPED = 20  # letters per line of a name on a vertical axis
_LETTERS = 60  # letters of all names on a horizontal axis; above, names are rotated
_ASLANT = 16  # letters of the longest name up to which names are rotated by 35 degrees instead of 90
NUMBERED = 20  # devices or classes; above, not every tick has a number
_FEW_DECADES = 500.0  # largest over smallest value up to which ticks at 2 and 5 times a power of ten have numbers
_NARROW = 1e-3  # width of a linear axis over its largest number below which an offset is subtracted
_WIDE = 20.0  # largest over smallest value above which an axis or a color scale is logarithmic


def open_axes(ax: "Axes | None", width: float = 7.0, height: float = 4.5, **margins: float) -> "Axes":
    """Return the axes `ax` or, if None, those of a new figure outside pyplot's state.

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
    figure.figure_style = current_style()
    figure.grows = True
    edges = {"left": 0.1, "right": 0.97, "bottom": 0.13, "top": 0.9} | margins
    size = (edges["left"], edges["bottom"], edges["right"] - edges["left"], edges["top"] - edges["bottom"])
    return figure.add_axes(size)


def label_axes(ax: "Axes", title: str, x: str, y: str) -> None:
    """Set the title, labels and tick format of axes, and hide the upper and right spine.

    Custom tick formats are kept.
    """
    from matplotlib.ticker import ScalarFormatter

    ax.set_title(title, fontsize=11, loc="left")
    for axis, label in ((ax.xaxis, x), (ax.yaxis, y)):
        usual = type(axis.get_major_formatter()) is ScalarFormatter
        axis.set_label_text(label + (format_tick_labels(axis) if usual else ""))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)


def format_tick_labels(axis: Any) -> str:
    """Format the ticks of an axis with six digits, as 0.01, 1 and 1e+06; call this when its limits are final.

    Returns
    -------
    str
        Suffix of the axis label. If the ticks differ by less than a thousandth of their size, the offset that was
        subtracted from all of them, such as " - 1000"; else empty.
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
    """Return the offset of the ticks of a linear axis, and the size below which a tick is a rounding error of 0."""
    width = abs(high - low)
    if not 0 < width < _NARROW * max(abs(low), abs(high)):
        return 0.0, 1e-9 * width
    places = -int(np.ceil(np.log10(width)))
    return round((low + high) / 2, places), 1e-6 * width


def write_number(value: float) -> str:
    """Format a number next to a mark: 1,234 or 0.0123."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.3g}"


def format_counts(axis: Any, unit: str = "") -> None:
    """Format the ticks of an axis as counts: 250, 4 k, 1.5 M, with a unit."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axis.set_major_formatter(EngFormatter(unit=unit, usetex=False))


def set_integer_ticks(axis: Any, n: int, names: Sequence[str] | None = None, letters: int | None = None) -> None:
    """Set integer ticks, all of 0 to n - 1 up to 20, and label them with names if there are some.

    Parameters
    ----------
    axis : matplotlib axis
    n : int
    names : sequence of str, optional
    letters : int, optional
        Most letters of a name, which is then in one line; None: up to 40, in two lines on a vertical axis.
    """
    from matplotlib.ticker import FixedLocator, MaxNLocator

    few = n <= NUMBERED
    axis.set_major_locator(FixedLocator(range(n)) if few else MaxNLocator(nbins=12, integer=True))
    if few and names is not None:
        written = write_names(names[:n]) if letters is None else write_names(names[:n], letters)
        if axis.axis_name == "y" and letters is None:
            written = [break_name(name, _WRAPPED) for name in written]
        set_name_ticks(axis, names[:n], written)
        longest = max(map(len, written))
        if axis.axis_name == "x" and n * longest > _LETTERS:
            is_aslant = longest <= _ASLANT and letters is None
            axis.set_tick_params(rotation=35 if is_aslant else 90)
            for label in axis.get_ticklabels() if is_aslant else ():
                label.set(horizontalalignment="right", rotation_mode="anchor")


def set_name_ticks(axis: Any, names: Sequence[str], shown: Sequence[str] | None = None) -> None:
    """Set ticks at 0 to n - 1 with names, which fitting may shorten but not remove.

    Parameters
    ----------
    axis : matplotlib axis
    names : sequence of str
        Full names, for the table of the figure.
    shown : sequence of str, optional
        What the figure shows, such as broken names; None: `names`.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator

    axis.set_major_locator(FixedLocator(range(len(names))))
    axis.set_major_formatter(FixedFormatter(list(names if shown is None else shown)))
    keep_names(axis, dict(enumerate(names)))


def contrast(color: Any, other: Any) -> float:
    """Compute the contrast ratio of two colors, 1 to 21, as defined by WCAG 2.2; text requires 4.5."""
    from matplotlib.colors import to_rgb

    parts = np.array([to_rgb(color), to_rgb(other)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    low, high = np.sort(linear @ (0.2126, 0.7152, 0.0722))
    return float((high + 0.05) / (low + 0.05))


def choose_text_color(ground: Any) -> str:
    """Return black or white, the one with more contrast to a color."""
    return max(("black", "white"), key=lambda ink: contrast(ink, ground))


def add_color_bar(
    ax: "Axes", marks: Any, label: str, box: tuple[float, float, float, float], *, counts: bool = False, unit: str = ""
) -> Any:
    """Add a color bar and return it.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    marks : matplotlib artist with a color map
    label : str
    box : tuple of float
        Left, bottom, width and height in coordinates of the axes.
    counts : bool, default=False
        Whether to set ticks at integers only.
    unit : str, default=""
        If not empty, ticks are written as 4 k, with this unit.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator, MaxNLocator

    bar = ax.figure.colorbar(marks, cax=ax.inset_axes(box))
    if isinstance(marks.norm, LogNorm):
        bar.set_ticks(LogLocator(subs=choose_steps(*marks.get_clim())))
    elif counts:
        bar.set_ticks(MaxNLocator(nbins=8, integer=True))
    bar.ax.tick_params(labelsize=8)
    if unit:
        format_counts(bar.ax.yaxis, unit)
    else:
        label += format_tick_labels(bar.ax.yaxis)
    bar.set_label(label, fontsize=8.5)
    return bar


def choose_steps(low: float, high: float) -> tuple[float, ...]:
    """Choose the multiples of powers of ten with a number on a logarithmic scale: more of them on a short scale."""
    return (1.0, 2.0, 5.0) if high < _FEW_DECADES * low else (1.0,)


def is_wide(values: Floats, factor: float = _WIDE) -> bool:
    """Return whether the largest of the positive values is more than `factor` times the smallest."""
    positive = values[np.isfinite(values) & (values > 0)]
    return len(positive) > 0 and float(positive.max()) > factor * float(positive.min())


def scale_axis(axis: Any, values: Floats, factor: float = _WIDE) -> None:
    """Make an axis logarithmic if positive values span more than `factor`; one with zeros is linear below the others.

    An axis with negative values remains linear.
    """
    from matplotlib.ticker import LogLocator

    if len(values) == 0 or values.min() < 0 or not is_wide(values, factor):
        return
    least = float(values[values > 0].min())
    if values.min() == 0:
        getattr(axis.axes, f"set_{axis.axis_name}scale")("symlog", linthresh=least, linscale=0.5)
    else:
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
        axis.set_major_locator(LogLocator(subs=choose_steps(least, float(values.max()))))
    format_tick_labels(axis)


def scale_colors(values: Floats, factor: float = _WIDE) -> "Normalize":
    """Return a color scale for the finite values: logarithmic if all are positive and span more than `factor`."""
    from matplotlib.colors import LogNorm, Normalize

    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if low > 0 and is_wide(known, factor):
        return LogNorm(low, high)
    # Equal values: a scale must have a positive width.
    if high - low <= 1e-12 * abs(high):
        low, high = (0.0, high) if high > 0 else (0.0, 1.0)
    return Normalize(low, high)


def draw_sample(count: int, limit: int) -> Integers:
    """Draw at most `limit` of the numbers 0 to count - 1, ascending; every call gives the same numbers."""
    if count <= limit:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, limit, replace=False))


def average_steps(values: Floats | Integers) -> tuple[Floats, Integers]:
    """Average successive values in at most 2,000 blocks; return the means and the bounds of the blocks."""
    bounds = np.unique(np.linspace(0, len(values), min(len(values), RASTER) + 1).astype(np.int64))
    return np.add.reduceat(values, bounds[:-1]) / np.diff(bounds), bounds
