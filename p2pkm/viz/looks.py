"""Figure styles for a column or a page of a paper, or a slide, and the fitting of finished figures to them."""

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from p2pkm.core.errors import ExperimentError
from p2pkm.viz.figure_parts import (
    find_texts,
    fit_panel_titles,
    list_axes,
    shorten_tick_names,
    thin_ticks,
    wrap_labels,
    wrap_legend,
    wrap_title,
)
from p2pkm.viz.names import list_device_names, place_names
from p2pkm.viz.settings import FONTS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NARROW = 5.0  # inches; narrower figures stack their panels and have the legend below the axes
_LARGE = 1.3  # font size in points over figure width in inches above which texts are shortened
_FLAT = 0.6  # least height over width of the axes in narrow figures
_PAD = 0.03  # inches around the contents
_SMALL = 8.0  # points; text below this size keeps its proportion to the font size of a style
_SHARE = 0.8  # largest share of the width that a legend may take next to the axes
# Passes of the fitting: resizing the axes moves labels and legends, which changes the room for the axes.
_PASSES = 4
_SHRINK = 0.88  # factor of the font size while texts overlap
_SMALLEST = 3.5  # points; text is not made smaller


class FigureStyle(NamedTuple):
    """Preset of figure size and fonts.

    Attributes
    ----------
    width : float
        Inches.
    height : float or None
        Inches; None: as large as the contents require.
    points : float
        Font size.
    titled : bool
        Whether figures have a title.
    """

    width: float
    height: float | None
    points: float
    titled: bool


FIGURE_STYLES = {
    "column": FigureStyle(3.3, None, 8.0, titled=False),
    "page": FigureStyle(7.0, None, 8.0, titled=False),
    "slide": FigureStyle(10.0, 5.6, 16.0, titled=True),
}
_current: list[FigureStyle | None] = [None]


class style:  # noqa: N801 - used as a function
    """Select the size and fonts of new figures: from now on, or until the end of a ``with`` block.

    Parameters
    ----------
    name : {"column", "page", "slide"} or None
        * "column": 3.3 inches wide, text of 8 points, no title, which belongs in the caption.
        * "page": the same, 7 inches wide.
        * "slide": 10 x 5.6 inches, text of 16 points.
        * None: as in reports.

    Raises
    ------
    ExperimentError
        If the name is unknown.

    Notes
    -----
    Figures drawn into axes that you pass as ``ax`` keep their size. Matplotlib's font settings are those of the style
    until it ends, also for your figures.

    Examples
    --------
    >>> import p2pkm
    >>> with p2pkm.style("column"):
    ...     figure = p2pkm.viz.plot_partition_of([3, 5, 4], None)
    >>> float(figure.get_figwidth())
    3.3
    """

    def __init__(self, name: str | None) -> None:
        if name is not None and name not in FIGURE_STYLES:
            raise ExperimentError(f"style is {name!r}; expected {', '.join(FIGURE_STYLES)}, or None")
        from matplotlib import rcParams

        settings: Any = rcParams
        rc: dict[str, Any] = {} if name is None else FONTS | {"font.size": FIGURE_STYLES[name].points}
        self._before = _current[0], {key: settings[key] for key in rc}, dict(STYLE)
        _current[0] = None if name is None else FIGURE_STYLES[name]
        settings.update(rc)
        _replace(STYLE, rc)

    def __enter__(self) -> None:
        """Enter the block; the style is active since its construction."""

    def __exit__(self, *_: object) -> None:
        """Restore the previous style."""
        from matplotlib import rcParams

        settings: Any = rcParams
        _current[0], rc, before = self._before
        settings.update(rc)
        _replace(STYLE, before)


def _replace(content: dict[str, Any], other: dict[str, Any]) -> None:
    """Replace the entries of a dict in place, because other modules refer to it."""
    content.clear()
    content.update(other)


def current_style() -> FigureStyle | None:
    """Return the style of new figures, None outside of any style."""
    return _current[0]


def is_narrow() -> bool:
    """Return whether the current style is too narrow for panels side by side."""
    preset = current_style()
    return preset is not None and preset.width < _NARROW


def is_tight() -> bool:
    """Return whether the font of the current style is so large that texts should be short."""
    preset = current_style()
    return preset is not None and preset.points > _LARGE * preset.width


def finish_figure(ax: "Axes", *, in_rows: bool = False) -> "Figure":
    """Return the figure of the axes, fitted to its style if p2pkm created it; call this after the last artist.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    in_rows : bool, default=False
        Whether the axes consist of rows of text: these keep their height in a narrow figure.
    """
    from p2pkm.viz.picture import Picture

    # The first `figure` may be a subfigure, whose `figure` is the whole one.
    figure = ax.figure.figure
    if isinstance(figure, Picture):
        if figure.figure_style is not None:
            preset = cast(FigureStyle, figure.figure_style)
            # A figure is fitted only once, also if it is drawn into again.
            figure.figure_style = None
            _fit(figure, ax, preset, in_rows=in_rows)
        elif figure.grows:
            figure.grows = False
            fit_panel_titles(ax)
            _contain(figure)
            _name_devices(figure)
        _allow_mathematics(figure)
    return figure


def _name_devices(figure: "Figure") -> None:
    """Place the names of devices where they do not overlap other texts of the figure."""
    from p2pkm.viz.drawn_text import list_lines

    for ax in list_axes(figure):
        texts = list_device_names(ax)
        if texts:
            for text in texts:
                text.set_visible(False)
            boxes = [line.box for line in list_lines(figure)]
            for text in texts:
                text.set_visible(True)
            place_names(ax, boxes)


def _contain(figure: "Figure") -> None:
    """Enlarge a figure so that it contains labels and legends next to its axes; the axes keep their size."""
    box = figure.get_tightbbox()
    wide, tall = figure.get_size_inches()
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
    """Enable formulas in texts that do not contain a dollar sign, so that users can replace them by formulas."""
    from matplotlib.text import Text

    for text in cast(list[Text], figure.findobj(Text)):
        text.set_parse_math("$" not in text.get_text())


def _fit(figure: "Figure", ax: "Axes", preset: FigureStyle, *, in_rows: bool) -> None:
    """Set the width and fonts of a figure, then resize the axes so that labels and legends fit next to them."""
    from p2pkm.viz.drawn_text import has_conflicts

    wide, tall = figure.get_size_inches()
    box = ax.get_position(original=True)
    high = box.height * tall
    shape = high / (box.width * wide)
    if preset.width < _NARROW:
        shape = max(shape, _FLAT)
    if not preset.titled:
        for place in ("left", "center", "right"):
            ax.set_title("", loc=cast(Any, place))
    _scale_text(figure, ax, preset)
    _scale_marks(figure, preset.points / _SMALL * min(preset.width / wide, 1.0))
    figure.set_size_inches(preset.width, preset.height or preset.width * tall / wide)
    size = preset.points
    while True:
        _arrange(figure, ax, preset, high if in_rows else None, shape)
        size *= _SHRINK
        if size < _SMALLEST or not has_conflicts(figure):
            return
        for text in find_texts(figure):
            text.set_fontsize(max(_SHRINK * text.get_fontsize(), _SMALLEST))


def _arrange(figure: "Figure", ax: "Axes", preset: FigureStyle, high: float | None, shape: float) -> None:
    """Fit texts at their present size to the figure, and the axes to the remaining room, see `_place`."""
    for number in range(_PASSES):
        # Texts are wrapped in the first passes only; later ones settle the positions.
        if number < 2:
            shorten_tick_names(figure)
            wrap_labels(figure)
            wrap_title(ax)
            thin_ticks(figure)
            _lower_legend(ax, preset)
        _place(figure, ax, preset, high, shape)
    fit_panel_titles(ax)
    _name_devices(figure)


def _scale_text(figure: "Figure", ax: "Axes", preset: FigureStyle) -> None:
    """Set the font size of all texts to that of the style, and scale offsets in points in proportion."""
    from matplotlib.legend import Legend
    from matplotlib.text import Annotation

    factor = preset.points / _SMALL
    for legend in figure.findobj(Legend):
        cast(Any, legend).borderaxespad *= factor
    for text in find_texts(figure):
        text.set_fontsize(preset.points if text.get_fontsize() >= _SMALL else text.get_fontsize() * factor)
        if isinstance(text, Annotation) and factor != 1:
            text.xyann = (factor * text.xyann[0], factor * text.xyann[1])
    if preset.titled:
        pad = float(cast(Any, ax).titleOffsetTrans.get_matrix()[1, 2]) * 72 / figure.dpi
        ax.set_title(ax.get_title(loc="left"), loc="left", pad=factor * pad)


def _scale_marks(figure: "Figure", factor: float) -> None:
    """Multiply the areas of all scatter marks by a factor."""
    from matplotlib.collections import PathCollection

    for marks in figure.findobj(PathCollection):
        cast(Any, marks).set_sizes(cast(Any, marks).get_sizes() * factor)


def _lower_legend(ax: "Axes", preset: FigureStyle) -> None:
    """Move a legend below the axes, in up to three columns, if the figure is narrow or the legend is too wide."""
    from matplotlib.transforms import ScaledTranslation

    legend = ax.get_legend()
    figure = ax.figure.figure
    if legend is None:
        return
    figure.draw_without_rendering()
    drawn = legend.get_window_extent()
    figure_width = preset.width * figure.dpi
    if preset.width >= _NARROW and drawn.width < _SHARE * figure_width and drawn.x1 <= figure_width:
        return
    # Otherwise the bounding box below would contain the legend at its old position.
    legend.set_in_layout(False)
    box = figure.get_tightbbox()
    axes_box = ax.get_position(original=True)
    wide, tall = figure.get_size_inches()
    handles, labels = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
    size = legend.get_texts()[0].get_fontsize() if labels else None
    title = legend.get_title().get_text() or None
    for columns in (3, 2, 1):
        legend = ax.legend(
            cast(Any, handles), labels, loc="upper left", ncols=columns, fontsize=size, frameon=False,
            bbox_to_anchor=(box.x0 / wide, (box.y0 - 0.02) / tall), bbox_transform=figure.transFigure,
            borderaxespad=0.0, borderpad=0.0, columnspacing=1.0, handletextpad=0.4, handlelength=1.4, title=title,
            title_fontsize=size, alignment="left",
        )  # fmt: skip
        if legend.get_window_extent().width <= (wide - 2 * _PAD) * figure.dpi:
            break
    wrap_legend(legend, (wide - 2 * _PAD) * figure.dpi)
    # In inches from a corner of the axes, so that the legend keeps its distance when the axes move or change size.
    offset = ScaledTranslation(_PAD - axes_box.x0 * wide, box.y0 - 0.06 - axes_box.y0 * tall, figure.dpi_scale_trans)
    legend.set_bbox_to_anchor((0.0, 0.0), transform=ax.transAxes + offset)


def _place(figure: "Figure", ax: "Axes", preset: FigureStyle, high: float | None, shape: float) -> None:
    """Resize the axes so that they, their labels and legends fill the figure.

    Parameters
    ----------
    figure, ax, preset
    high : float or None
        Height of the axes in inches; None: `shape` times their width. A style with a height overrides both.
    shape : float
    """
    wide, tall = figure.get_size_inches()
    contents = figure.get_tightbbox()
    axes_box = ax.get_position(original=True)
    left = axes_box.x0 * wide - contents.x0
    right = contents.x1 - axes_box.x1 * wide
    below = axes_box.y0 * tall - contents.y0
    above = contents.y1 - axes_box.y1 * tall
    across = max(preset.width - left - right - 2 * _PAD, 0.25 * preset.width)
    up = high or across * shape
    if preset.height is not None:
        up = max(preset.height - below - above - 2 * _PAD, 0.25 * preset.height)
    height = up + below + above + 2 * _PAD
    figure.set_size_inches(preset.width, height)
    size = ((left + _PAD) / preset.width, (below + _PAD) / height, across / preset.width, up / height)
    # Twin axes share the position of their axes.
    for axes in figure.axes:
        if axes.get_position(original=True).bounds == axes_box.bounds:
            axes.set_position(size)
