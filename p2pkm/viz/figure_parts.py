"""Artists of a finished figure, and the fitting of its text: wrapped labels and thinned ticks."""

import re
from collections.abc import Iterator
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from p2pkm.viz.names import break_name, full_names, keep_names, write_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHORTEST = 12  # least width of a wrapped line in letters
_LINES = 3  # most lines of a label
_SMALLEST = 3.5  # least font size of a name in points
_SHARE = 0.45  # largest share of the width that names on a vertical axis may take
_CLOSE = 2.0  # least distance of two tick labels in points


def list_axes(figure: "Figure") -> "list[Axes]":
    """List all axes, panels and color bars included, parents before their children."""
    listed: list[Axes] = []
    remaining: list[Any] = list(figure.axes)
    while remaining:
        listed.append(remaining.pop(0))
        remaining = [*listed[-1].child_axes, *remaining]
    return listed


def find_texts(figure: "Figure") -> list[Any]:
    """List all texts, tick labels included."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    # Ticks that matplotlib creates later take their font size from these parameters.
    for ax in list_axes(figure):
        for axis in (ax.xaxis, ax.yaxis):
            labels = axis.get_ticklabels()
            if labels:
                axis.set_tick_params(labelsize=labels[0].get_fontsize())
    return list(figure.findobj(Text))


def _list_shown(figure: "Figure") -> Iterator[tuple["Axes", Any, bool]]:
    """Yield every visible axis with its axes, and whether it is horizontal."""
    for ax in list_axes(figure):
        for axis in (ax.xaxis, ax.yaxis):
            if ax.axison and ax.get_visible() and axis.get_visible():
                yield ax, axis, axis is ax.xaxis


def wrap_labels(figure: "Figure") -> None:
    """Break each label that is longer than its axis into one more line, up to three."""
    for ax, axis, horizontal in _list_shown(figure):
        box = ax.get_window_extent()
        label = axis.label
        drawn = label.get_window_extent()
        lines = label.get_text().split("\n")
        if len(lines) == _LINES or not any(" " in line for line in lines):
            continue
        if (drawn.width > box.width) if horizontal else (drawn.height > box.height):
            longest = max((line for line in lines if " " in line), key=len)
            spaces = [i for i, letter in enumerate(longest) if letter == " "]
            cut = min(spaces, key=lambda i: abs(i - len(longest) / 2))
            halves = f"{longest[:cut]}\n{longest[cut + 1 :]}"
            label.set_text("\n".join(halves if line is longest else line for line in lines))


def wrap_title(ax: "Axes") -> None:
    """Break lines of a title that extend beyond the right edge of the figure, and notes that are wider than it."""
    figure = ax.figure.figure
    wide = figure.get_figwidth() * figure.dpi
    for text in ax.texts if len(ax.child_axes) else ():
        if not text.get_rotation() and text.get_window_extent().width > 0.95 * wide:
            _wrap_text(text, 0.95 * wide)
    for text in _find_titles(ax):
        _wrap_text(text, figure.get_figwidth() * figure.dpi - text.get_window_extent().x0)


def _find_titles(ax: "Axes") -> list[Any]:
    """Find the text artists of the left title of axes; matplotlib offers only its string."""
    from matplotlib.text import Text

    title = ax.get_title(loc="left")
    texts = [child for child in ax.get_children() if isinstance(child, Text)]
    return [text for text in texts if title and text.get_text() == title]


def fit_panel_titles(ax: "Axes") -> None:
    """Break titles that are wider than their panel, and reduce the font size of those that do not fit then.

    A title fits if it is as wide as its panel and does not overlap the panel above.
    """
    panels: list[Any] = list(ax.child_axes)
    boxes = [panel.get_window_extent() for panel in panels]
    for panel, box in zip(panels, boxes, strict=True):
        above = [other.y0 for other in boxes if other.y0 >= box.y1 and other.x0 < box.x1 and box.x0 < other.x1]
        for text in _find_titles(panel):
            if text.get_window_extent().width > box.width and not text.get_rotation():
                keep_names(panel, full_names(panel, text.get_text()))
                text.set_text(_break_anywhere(text, box.width))
            drawn = text.get_window_extent()
            share = min(box.width / max(drawn.width, 1.0), (min(above) - box.y1) / drawn.height if above else 1.0)
            if share < 1.0:
                text.set_fontsize(max(0.95 * share * text.get_fontsize(), _SMALLEST))


def _break_anywhere(text: Any, room: float) -> str:
    """Break a text into lines of at most `room` pixels, if possible at spaces and hyphens."""
    text_line = " ".join(text.get_text().split())
    text.set_text(text_line)
    letters = max(int(room / max(text.get_window_extent().width, 1.0) * len(text_line)), _SHORTEST)
    return break_name(text_line, letters)


def shorten_tick_names(figure: "Figure") -> None:
    """Shorten names on vertical axes that are wider than `_SHARE` of the figure; the table has them in full."""
    room = _SHARE * figure.get_figwidth() * figure.dpi
    for _, axis, horizontal in _list_shown(figure):
        if horizontal or not _has_names(axis):
            continue
        formatter: Any = axis.get_major_formatter()
        widest = max((label.get_window_extent().width for label in axis.get_ticklabels()), default=0.0)
        names = [" ".join(text.split()) for text in formatter.seq]
        letters = max((len(line) for text in formatter.seq for line in text.split("\n")), default=0)
        if widest > room:
            keep_names(axis, full_names(axis, dict(zip(map(float, axis.get_majorticklocs()), names, strict=False))))
            axis.set_major_formatter(type(formatter)(write_names(names, max(int(letters * room / widest), _SHORTEST))))


def wrap_legend(legend: Any, room: float) -> None:
    """Break labels of a legend that is wider than `room` pixels."""
    for text in legend.get_texts():
        drawn = legend.get_window_extent()
        if drawn.width > room:
            _wrap_text(text, text.get_window_extent().width + room - drawn.width)


def _wrap_text(text: Any, room: float) -> None:
    """Break every line of a text that is wider than `room` pixels, at spaces."""
    lines: list[str] = []
    drawn = text.get_window_extent().width
    longest = max(map(len, text.get_text().split("\n")))
    for line in text.get_text().split("\n"):
        letters = int(room / max(drawn, 1.0) * longest)
        lines += wrap(line, max(letters, _SHORTEST)) if drawn > room and len(line) > letters else [line]
    text.set_text("\n".join(lines))


def thin_ticks(figure: "Figure") -> None:
    """Remove every other number of an axis until the remaining ones do not touch; names are never removed."""
    figure.draw_without_rendering()
    for _, axis, horizontal in _list_shown(figure):
        if _has_names(axis) and _touch(axis, horizontal):
            _narrow(axis, horizontal)
        while not _has_names(axis) and _touch(axis, horizontal):
            _halve(axis)


def _has_names(axis: Any) -> bool:
    """Return whether the tick labels of an axis are names rather than numbers."""
    from matplotlib.ticker import FixedFormatter

    formatter = axis.get_major_formatter()
    return type(formatter) is FixedFormatter and any(re.search(r"[^\W\d]", text) for text in formatter.seq)


def _narrow(axis: Any, horizontal: bool) -> None:
    """Rotate names on a horizontal axis, and reduce their font size on a vertical one."""
    if horizontal:
        axis.set_tick_params(rotation=90)
        return
    while _touch(axis, horizontal) and axis.get_ticklabels()[0].get_fontsize() > _SMALLEST:
        axis.set_tick_params(labelsize=0.9 * axis.get_ticklabels()[0].get_fontsize())


def _touch(axis: Any, horizontal: bool) -> bool:
    """Return whether tick labels overlap, or come closer than `_CLOSE` on a horizontal axis."""
    labels = [label for label in axis.get_ticklabels() if label.get_text() and label.get_visible()]
    if len(labels) < 3 or labels[0].get_rotation():
        return False
    boxes = [label.get_window_extent() for label in labels]
    ends = sorted((box.x0, box.x1) if horizontal else (box.y0, box.y1) for box in boxes)
    gap = _CLOSE * axis.axes.figure.figure.dpi / 72
    return any(b[0] - a[1] < gap * horizontal - 1 for a, b in pairwise(ends))


def _halve(axis: Any) -> None:
    """Remove every other tick within the limits of an axis."""
    from matplotlib.ticker import FixedFormatter, FixedLocator

    low, high = sorted(axis.get_view_interval())
    places = [float(place) for place in axis.get_majorticklocs()]
    formatter = axis.get_major_formatter()
    fixed = type(formatter) is FixedFormatter
    remaining = [i for i, place in enumerate(places) if low <= place <= high][::2]
    axis.set_major_locator(FixedLocator([places[i] for i in remaining]))
    if fixed:
        texts = [formatter.seq[i] if i < len(formatter.seq) else "" for i in remaining]
        axis.set_major_formatter(FixedFormatter(texts))
