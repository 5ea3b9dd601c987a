"""What a finished figure consists of, and how its text is made to fit: labels in lines, fewer numbers on an axis."""

import re
from collections.abc import Iterator
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHORTEST = 12  # letters of a line
_LINES = 3  # of a label
_SMALLEST = 3.5  # points of a name
_CLOSE = 2.0  # points between two numbers of an axis, at least


def list_axes(figure: "Figure") -> "list[Axes]":
    """Return all axes, panels and color bars included."""
    found: list[Axes] = []
    todo: list[Any] = list(figure.axes)
    while todo:
        found.append(todo.pop(0))
        todo = [*found[-1].child_axes, *todo]
    return found


def find_texts(figure: "Figure") -> list[Any]:
    """Return every text, those of ticks included."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    for ax in list_axes(figure):  # a tick that comes later has the size of those before
        for axis in (ax.xaxis, ax.yaxis):
            labels = axis.get_ticklabels()
            if labels:
                axis.set_tick_params(labelsize=labels[0].get_fontsize())
    return list(figure.findobj(Text))


def _list_shown(figure: "Figure") -> Iterator[tuple["Axes", Any, bool]]:
    """Return every axis that is drawn, and whether it goes across."""
    for ax in list_axes(figure):
        for axis in (ax.xaxis, ax.yaxis):
            if ax.axison and ax.get_visible() and axis.get_visible():
                yield ax, axis, axis is ax.xaxis


def wrap_labels(figure: "Figure") -> None:
    """Break labels of axes that are longer than these into one line more, three at most."""
    for ax, axis, across in _list_shown(figure):
        box, label = ax.get_window_extent(), axis.label
        drawn = label.get_window_extent()
        lines = label.get_text().split("\n")
        if len(lines) == _LINES or not any(" " in line for line in lines):
            continue
        if (drawn.width > box.width) if across else (drawn.height > box.height):
            longest = max((line for line in lines if " " in line), key=len)
            gaps = [i for i, letter in enumerate(longest) if letter == " "]
            at = min(gaps, key=lambda i: abs(i - len(longest) / 2))
            label.set_text("\n".join(f"{line[:at]}\n{line[at + 1 :]}" if line is longest else line for line in lines))


def wrap_title(ax: "Axes") -> None:
    """Break lines of a title that leave the figure on the right."""
    from matplotlib.text import Text

    title, figure = ax.get_title(loc="left"), ax.figure.figure
    for text in (one for one in ax.get_children() if isinstance(one, Text) and title and one.get_text() == title):
        _wrap_text(text, figure.get_figwidth() * figure.dpi - text.get_window_extent().x0)


def shrink_panel_titles(ax: "Axes") -> None:
    """Write titles of panels smaller that are wider than their panel or reach into the one above."""
    from matplotlib.text import Text

    panels: list[Any] = list(ax.child_axes)
    boxes = [panel.get_window_extent() for panel in panels]
    for panel, box in zip(panels, boxes, strict=True):
        above = [other.y0 for other in boxes if other.y0 >= box.y1 and other.x0 < box.x1 and box.x0 < other.x1]
        title = panel.get_title(loc="left")
        for text in (one for one in panel.get_children() if isinstance(one, Text) and title == one.get_text() != ""):
            drawn = text.get_window_extent()
            share = min(box.width / max(drawn.width, 1.0), (min(above) - box.y1) / drawn.height if above else 1.0)
            if share < 1.0:
                text.set_fontsize(max(0.95 * share * text.get_fontsize(), _SMALLEST))


def wrap_legend(legend: Any, room: float) -> None:
    """Break labels of a legend that is wider than so many pixels."""
    for text in legend.get_texts():
        drawn = legend.get_window_extent()
        if drawn.width > room:
            _wrap_text(text, text.get_window_extent().width + room - drawn.width)


def _wrap_text(text: Any, room: float) -> None:
    """Break every line of a text that is wider than so many pixels, at spaces."""
    lines: list[str] = []
    drawn, longest = text.get_window_extent().width, max(map(len, text.get_text().split("\n")))
    for line in text.get_text().split("\n"):
        letters = int(room / max(drawn, 1.0) * longest)
        lines += wrap(line, max(letters, _SHORTEST)) if drawn > room and len(line) > letters else [line]
    text.set_text("\n".join(lines))


def thin_ticks(figure: "Figure") -> None:
    """Leave out every other number of an axis on which they touch, until they do not; no name is left out."""
    figure.draw_without_rendering()
    for _, axis, across in _list_shown(figure):
        if _has_names(axis) and _touch(axis, across):
            _narrow(axis, across)
        while not _has_names(axis) and _touch(axis, across):
            _halve(axis)


def _has_names(axis: Any) -> bool:
    """Return whether an axis has words, each of which stands for something."""
    from matplotlib.ticker import FixedFormatter

    formatter = axis.get_major_formatter()
    return type(formatter) is FixedFormatter and any(re.search(r"[^\W\d]", text) for text in formatter.seq)


def _narrow(axis: Any, across: bool) -> None:
    """Turn names that touch upright, or write those below one another smaller."""
    if across:
        axis.set_tick_params(rotation=90)
        return
    while _touch(axis, across) and axis.get_ticklabels()[0].get_fontsize() > _SMALLEST:
        axis.set_tick_params(labelsize=0.9 * axis.get_ticklabels()[0].get_fontsize())


def _touch(axis: Any, across: bool) -> bool:
    labels = [label for label in axis.get_ticklabels() if label.get_text() and label.get_visible()]
    if len(labels) < 3 or labels[0].get_rotation():
        return False
    boxes = [label.get_window_extent() for label in labels]
    ends = sorted((box.x0, box.x1) if across else (box.y0, box.y1) for box in boxes)
    room = _CLOSE * axis.axes.figure.figure.dpi / 72
    return any(b[0] - a[1] < room * across - 1 for a, b in pairwise(ends))


def _halve(axis: Any) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator

    low, high = sorted(axis.get_view_interval())
    places = [float(place) for place in axis.get_majorticklocs()]
    formatter = axis.get_major_formatter()
    fixed = type(formatter) is FixedFormatter
    kept = [i for i, place in enumerate(places) if low <= place <= high][::2]
    texts = [formatter.seq[i] if i < len(formatter.seq) else "" for i in kept] if fixed else []
    axis.set_major_locator(FixedLocator([places[i] for i in kept]))
    if fixed:
        axis.set_major_formatter(FixedFormatter(texts))
