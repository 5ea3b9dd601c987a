"""What figures are for: a column or a page of a paper, or a slide; they are fitted when they are complete."""

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from p2pkm.core.errors import ExperimentError
from p2pkm.viz.figure_parts import find_texts, shrink_panel_titles, thin_ticks, wrap_labels, wrap_legend, wrap_title
from p2pkm.viz.settings import FONTS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NARROW = 5.0  # inches; in narrower figures panels stand below one another, and legends below the axes
_LARGE = 1.3  # points of text per inch of width above which it is brief
_FLAT = 0.6  # least height over width of the axes in narrow figures
_PAD = 0.03  # inches around everything
_SMALL = 8.0  # points; smaller text stays in proportion to it
_SHARE = 0.8  # of the width of a figure that a legend may take before it is put below
_PASSES = 4  # shrinking the axes moves what stands beside them


class Look(NamedTuple):
    """Size of a figure in inches (height None: as its contents need), text in points, and whether there is a title."""

    width: float
    height: float | None
    points: float
    titled: bool


LOOKS = {
    "column": Look(3.3, None, 8.0, titled=False),
    "page": Look(7.0, None, 8.0, titled=False),
    "slide": Look(10.0, 5.6, 16.0, titled=True),
}
_current: list[Look | None] = [None]


class style:  # noqa: N801 - used as a function
    """Draw figures for a column or a page of a paper, or for a slide: at once, or until the end of a ``with`` block.

    Parameters
    ----------
    name : {"column", "page", "slide"} or None
        ``"column"``: 3.3 inches wide, ``"page"``: 7 inches, both with text of 8 points and without a title, which
        belongs in the caption; ``"slide"``: 10 x 5.6 inches with 16 points. None: as in reports.

    Raises
    ------
    ExperimentError
        If the name is not known.

    Notes
    -----
    Figures that are drawn into axes of your own keep their size; matplotlib's settings for fonts are those of the
    style, too, until it ends.

    Examples
    --------
    >>> import p2pkm
    >>> with p2pkm.style("column"):
    ...     figure = p2pkm.viz.plot_partition_of([3, 5, 4], None)
    >>> float(figure.get_figwidth())
    3.3
    """

    def __init__(self, name: str | None) -> None:
        if name is not None and name not in LOOKS:
            raise ExperimentError(f"style is {name!r}; expected {', '.join(LOOKS)}, or None")
        from matplotlib import rcParams

        settings: Any = rcParams
        rc: dict[str, Any] = {} if name is None else FONTS | {"font.size": LOOKS[name].points}
        self._before = _current[0], {key: settings[key] for key in rc}, dict(STYLE)
        _current[0] = None if name is None else LOOKS[name]
        settings.update(rc)
        _replace(STYLE, rc)

    def __enter__(self) -> None:
        """Do nothing: the style has begun."""

    def __exit__(self, *_: object) -> None:
        """Return to what was before."""
        from matplotlib import rcParams

        settings: Any = rcParams
        _current[0], rc, before = self._before
        settings.update(rc)
        _replace(STYLE, before)


def _replace(content: dict[str, Any], other: dict[str, Any]) -> None:
    """Give a dict the content of another one."""
    content.clear()
    content.update(other)


def current() -> Look | None:
    """Return what figures are drawn for now."""
    return _current[0]


def is_narrow() -> bool:
    """Return whether figures are so narrow now that panels should stand below one another."""
    look = current()
    return look is not None and look.width < _NARROW


def is_tight() -> bool:
    """Return whether text is so large against the figure now that it should be brief."""
    look = current()
    return look is not None and look.points > _LARGE * look.width


def finish_figure(ax: "Axes", *, in_rows: bool = False) -> "Figure":
    """Return the figure of axes in which all is drawn; one of p2pkm's own is fitted into the style.

    in_rows: what is drawn stands in rows of text, which need their height however narrow the figure is.
    """
    from p2pkm.viz.picture import Picture

    figure = ax.figure.figure  # of a subfigure, too
    if isinstance(figure, Picture):
        if figure.look is not None:
            look, figure.look = cast(Look, figure.look), None
            _fit(figure, ax, look, in_rows=in_rows)
        elif figure.grows:
            figure.grows = False
            _contain(figure)
        _allow_mathematics(figure)
    return figure


def _contain(figure: "Figure") -> None:
    """Make a figure as much larger as needs what stands beside its axes, such as long names; these keep their size."""
    box, (wide, tall) = figure.get_tightbbox(), figure.get_size_inches()
    left, below = (_PAD - low if low < 0 else 0.0 for low in (box.x0, box.y0))
    right, above = (high + _PAD - size if high > size else 0.0 for high, size in ((box.x1, wide), (box.y1, tall)))
    if not any((left, below, right, above)):
        return
    places = [ax.get_position(original=True).bounds for ax in figure.axes]
    width, height = wide + left + right, tall + below + above
    figure.set_size_inches(width, height)
    for ax, (x, y, across, up) in zip(figure.axes, places, strict=True):
        place = ((x * wide + left) / width, (y * tall + below) / height)
        ax.set_position((*place, across * wide / width, up * tall / height))


def _allow_mathematics(figure: "Figure") -> None:
    """Let the user replace a text by a formula later; text that has a dollar sign now stays plain."""
    from matplotlib.text import Text

    for text in cast(list[Text], figure.findobj(Text)):
        text.set_parse_math("$" not in text.get_text())


def _fit(figure: "Figure", ax: "Axes", look: Look, *, in_rows: bool) -> None:
    """Give a figure its width and its text, then move the axes so that all that stands beside them is inside."""
    wide, tall = figure.get_size_inches()
    box = ax.get_position(original=True)
    high = box.height * tall
    shape = high / (box.width * wide)
    if look.width < _NARROW:
        shape = max(shape, _FLAT)
    if not look.titled:
        for place in ("left", "center", "right"):
            ax.set_title("", loc=cast(Any, place))
    _scale_text(figure, ax, look)
    _scale_marks(figure, look.points / _SMALL * min(look.width / wide, 1.0))
    figure.set_size_inches(look.width, look.height or look.width * tall / wide)
    for number in range(_PASSES):
        if number < 2:
            wrap_labels(figure)
            wrap_title(ax)
            thin_ticks(figure)
            _lower_legend(ax, look)
        _place(figure, ax, look, high if in_rows else None, shape)
    shrink_panel_titles(ax)


def _scale_text(figure: "Figure", ax: "Axes", look: Look) -> None:
    """Write all text in the size of the look, and keep what is set off from it by points in proportion."""
    from matplotlib.legend import Legend
    from matplotlib.text import Annotation

    factor = look.points / _SMALL
    for legend in figure.findobj(Legend):
        cast(Any, legend).borderaxespad *= factor
    for text in find_texts(figure):
        text.set_fontsize(look.points if text.get_fontsize() >= _SMALL else text.get_fontsize() * factor)
        if isinstance(text, Annotation) and factor != 1:
            text.xyann = (factor * text.xyann[0], factor * text.xyann[1])
    if look.titled:
        pad = float(cast(Any, ax).titleOffsetTrans.get_matrix()[1, 2]) * 72 / figure.dpi
        ax.set_title(ax.get_title(loc="left"), loc="left", pad=factor * pad)


def _scale_marks(figure: "Figure", factor: float) -> None:
    """Draw marks smaller in a smaller figure, and larger beside larger text."""
    from matplotlib.collections import PathCollection

    for marks in figure.findobj(PathCollection):
        cast(Any, marks).set_sizes(cast(Any, marks).get_sizes() * factor)


def _lower_legend(ax: "Axes", look: Look) -> None:
    """Put a legend below all else, in as many columns as there is room for, if the figure is narrow or too narrow."""
    from matplotlib.transforms import ScaledTranslation

    legend, figure = ax.get_legend(), ax.figure.figure
    if legend is None:
        return
    figure.draw_without_rendering()
    drawn, whole = legend.get_window_extent(), look.width * figure.dpi
    if look.width >= _NARROW and drawn.width < _SHARE * whole and drawn.x1 <= whole:
        return
    legend.set_in_layout(False)
    box, own = figure.get_tightbbox(), ax.get_position(original=True)
    wide, tall = figure.get_size_inches()
    handles, labels = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
    size = legend.get_texts()[0].get_fontsize() if labels else None
    for columns in (3, 2, 1):
        legend = ax.legend(
            cast(Any, handles), labels, loc="upper left", ncols=columns, fontsize=size, frameon=False,
            bbox_to_anchor=(box.x0 / wide, (box.y0 - 0.02) / tall), bbox_transform=figure.transFigure,
            borderaxespad=0.0, borderpad=0.0, columnspacing=1.0, handletextpad=0.4, handlelength=1.4,
        )  # fmt: skip
        if legend.get_window_extent().width <= (wide - 2 * _PAD) * figure.dpi:
            break
    wrap_legend(legend, (wide - 2 * _PAD) * figure.dpi)
    # In inches from a corner of the axes, so that it goes with them and keeps its distance when they change their size.
    offset = ScaledTranslation(_PAD - own.x0 * wide, box.y0 - 0.06 - own.y0 * tall, figure.dpi_scale_trans)
    legend.set_bbox_to_anchor((0.0, 0.0), transform=ax.transAxes + offset)


def _place(figure: "Figure", ax: "Axes", look: Look, high: float | None, shape: float) -> None:
    """Move the axes so that they and all that stands beside them fill the figure.

    high: height of the axes in inches, None: `shape` times their width; a look with a height has the last word.
    """
    wide, tall = figure.get_size_inches()
    whole, own = figure.get_tightbbox(), ax.get_position(original=True)
    left, right = own.x0 * wide - whole.x0, whole.x1 - own.x1 * wide
    below, above = own.y0 * tall - whole.y0, whole.y1 - own.y1 * tall
    across = max(look.width - left - right - 2 * _PAD, 0.25 * look.width)
    up = high or across * shape
    if look.height is not None:
        up = max(look.height - below - above - 2 * _PAD, 0.25 * look.height)
    height = up + below + above + 2 * _PAD
    figure.set_size_inches(look.width, height)
    size = ((left + _PAD) / look.width, (below + _PAD) / height, across / look.width, up / height)
    for one in figure.axes:  # twins share their place
        if one.get_position(original=True).bounds == own.bounds:
            one.set_position(size)
