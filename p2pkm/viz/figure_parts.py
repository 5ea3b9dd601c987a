"""What a finished figure consists of, and how its text is made to fit: labels in lines, fewer numbers on an axis."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES = 3  # of a label
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


def thin_ticks(figure: "Figure") -> None:
    """Leave out every other number of an axis on which they touch, until they do not."""
    figure.draw_without_rendering()
    for _, axis, across in _list_shown(figure):
        while _touch(axis, across):
            _halve(axis)


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
