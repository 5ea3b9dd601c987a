"""Names in figures: the one way to shorten them, the full names for the table of a figure, and the titles of runs."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from p2pkm.core.units import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST = 40  # letters of a name; longer ones are abbreviated
_HEAD = 5 / 8  # share of an abbreviated name that is its beginning
# Most letters of a name next to a device, and of its lines; the first pair whose names do not overlap is used.
_SIZES = ((40, 20), (30, 15), (24, 12), (20, 10), (16, 16), (12, 12), (9, 9), (6, 6))
_GAP = 1.5  # points between the mark of a device and its name
_DISTANCE = 1.0  # pixels between two names
_INK = "#222222"
# Background of names, which are written over links.
_BOX = {"boxstyle": "square,pad=0.05", "color": "white", "alpha": 0.75, "linewidth": 0}


# Names that artists stand for, and the texts and names of devices by axes; both as long as the figure exists.
_FULL: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_DEVICES: WeakKeyDictionary[Any, tuple[Sequence[Any], Sequence[str]]] = WeakKeyDictionary()


class Box(NamedTuple):
    """Rectangle in pixels."""

    left: float
    low: float
    right: float
    high: float

    @property
    def middle(self) -> tuple[float, float]:
        """Center of the rectangle."""
        return (self.left + self.right) / 2, (self.low + self.high) / 2

    def touches(self, other: "Box") -> bool:
        """Return whether two rectangles overlap, or are closer than the least distance of names."""
        across = min(self.right, other.right) - max(self.left, other.left)
        up = min(self.high, other.high) - max(self.low, other.low)
        return across > -_DISTANCE and up > -_DISTANCE

    def contains(self, dot: tuple[float, float], room: float) -> bool:
        """Return whether a mark with the radius `room` is partly inside."""
        x, y = dot
        return self.left - room < x < self.right + room and self.low - room < y < self.high + room


def write_names(names: Sequence[str], longest: int = _LONGEST) -> list[str]:
    """Format names for a figure: names of more than `longest` letters are abbreviated in the middle.

    Names that would be equal then get their number in the list. A space is put before a leading underscore, because
    matplotlib leaves labels with one out of legends.
    """
    plain = [" ".join(name.split()) for name in names]
    cut = [_cut(name, longest) for name in plain]
    counts = Counter(cut)
    numbered = [name if counts[name] == 1 else f"{name} ({i})" for i, name in enumerate(cut)]
    return [f" {name}" if name.startswith("_") else name for name in numbered]


def _cut(name: str, longest: int) -> str:
    head = max(1, round(_HEAD * longest))
    return name if len(name) <= longest else f"{name[:head]}…{name[head + 1 - longest :]}"


def break_name(name: str, width: int) -> str:
    """Break a name into lines of at most `width` letters, if possible after spaces and punctuation."""
    if len(name) <= width:
        return name
    lines = [""]
    for part in re.findall(r"[^\s,:/_-]*[\s,:/_-]|[^\s,:/_-]+", name):
        for piece in (part[i : i + width] for i in range(0, len(part), width)):
            if len(lines[-1] + piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.strip() for line in lines)


def keep_names(artist: Any, names: Any) -> None:
    """Attach the full names that an artist stands for, which the figure may show shortened.

    Parameters
    ----------
    artist : matplotlib artist or axis
    names : str, sequence of str, or mapping of float to str
        Name of a panel; of the points of a collection, in order; of the ticks of an axis, by position.
    """
    _FULL[artist] = names


def full_names(artist: Any, default: Any) -> Any:
    """Return the names attached by `keep_names`, or `default`."""
    return _FULL.get(artist, default)


def name_graph(spec: str | None) -> str:
    """Return the name of a graph for titles: that of its family or gallery graph, or the name of its file."""
    family, _, rest = str(spec or "").partition(":")
    if family == "file":
        return re.split(r",\w+=", re.split(r"[/\\]", rest)[-1])[0]
    return rest or family if family == "gallery" else family


def name_run(summary: Mapping[str, Any]) -> str:
    """Return the title of a run: "gtvmin on abilene.gml", or the method alone if the graph has no name."""
    method = str(summary.get("algorithm") or "run").split(":")[0]
    graph = name_graph(summary.get("graph"))
    return f"{method} on {graph}" if graph and graph != "server" else method


def describe_run(summary: Mapping[str, Any]) -> str:
    """Return the title of a run with its number of devices and the reason why it ended."""
    devices, ended = summary.get("devices"), summary.get("termination")
    return ", ".join([name_run(summary), *([] if devices is None else [count(devices, "device")]),
                      *([str(ended)] if ended else [])])  # fmt: skip


def write_device_names(ax: "Axes", places: Any, names: Sequence[str]) -> None:
    """Write the name of each device next to its mark; `place_names` decides where, and how short.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    places : float64[n, 2]
    names : sequence of str
    """
    texts = [
        ax.annotate(name, place, (0, 0), textcoords="offset points", ha="center", va="top", fontsize=8,
                    color=_INK, zorder=3, bbox=_BOX)
        for place, name in zip(places, write_names(names), strict=True)
    ]  # fmt: skip
    for text in texts:
        # Names find room inside the axes, so nothing needs to make room for them.
        text.set_in_layout(False)
    _DEVICES[ax] = texts, list(names)
    place_names(ax)


def list_device_names(ax: "Axes") -> Sequence[Any]:
    """Return the texts of the names of devices in axes; empty if there are none."""
    return _DEVICES.get(ax, ((), ()))[0]


def place_names(ax: "Axes", obstacles: Sequence[Box] = ()) -> None:
    """Move the names of devices next to their marks, as long as they fit without overlap; call this after resizing.

    Names are inside the axes: below, above, left or right of the marks, shortened if there is too little room. If even
    short names overlap, each device has its number.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    obstacles : sequence of Box
        Boxes of other texts in pixels.
    """
    texts, names = _DEVICES.get(ax, ((), ()))
    if not texts:
        return
    ax.apply_aspect()
    inch = ax.figure.figure.dpi
    gap = (_find_radius(ax) + _GAP) * inch / 72
    frame = ax.get_window_extent()
    room = Box(frame.x0, frame.y0, frame.x1, frame.y1)
    dots = [(float(x), float(y)) for x, y in ax.transData.transform([text.xy for text in texts])]
    boxes = None
    for letters, width in _SIZES:
        for text, name in zip(texts, write_names(names, letters), strict=True):
            text.set_text(break_name(name, width))
        boxes = _arrange(dots, [_measure(text) for text in texts], gap, room, obstacles)
        if boxes is not None:
            break
    for number, (text, dot) in enumerate(zip(texts, dots, strict=True)):
        if boxes is None:
            text.set_text(str(number))
        x, y = dot if boxes is None else boxes[number].middle
        text.set(horizontalalignment="center", verticalalignment="center")
        text.xyann = ((x - dot[0]) * 72 / inch, (y - dot[1]) * 72 / inch)


def _find_radius(ax: "Axes") -> float:
    """Return the radius of the largest marks in points."""
    from matplotlib.collections import PathCollection

    marks = [part for part in ax.collections if isinstance(part, PathCollection) and np.size(part.get_offsets())]
    return max((float(max(part.get_sizes(), default=0.0)) ** 0.5 / 2 for part in marks), default=0.0)


def _measure(text: Any) -> tuple[float, float]:
    box = text.get_window_extent()
    return float(box.width), float(box.height)


def _arrange(
    dots: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], gap: float, room: Box,
    obstacles: Sequence[Box],
) -> list[Box] | None:  # fmt: skip
    """Find places without overlap, name by name; a name that finds none is placed first in the next attempt."""
    order = list(range(len(dots)))
    for _ in order:
        boxes: dict[int, Box] = {}
        for i in order:
            free = [
                box for box in _list_places(dots[i], sizes[i], gap, room)
                if not any(box.touches(other) for other in (*boxes.values(), *obstacles))
            ]  # fmt: skip
            if not free:
                break
            # Of the free places, one that covers few marks; earlier ones are preferred.
            boxes[i] = min(free, key=lambda box: sum(box.contains(dot, gap / 2) for dot in dots))
        else:
            return [boxes[i] for i in range(len(dots))]
        if i == order[0]:
            return None
        order.remove(i)
        order.insert(0, i)
    return None


def _list_places(dot: tuple[float, float], size: tuple[float, float], gap: float, room: Box) -> list[Box]:
    """List the boxes around a mark that are inside the axes: below, above, right, left, and at its corners."""
    x, y = dot
    width, height = size
    places = []
    for across, up in ((0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1)):
        middle = x + across * (gap + width / 2) * (0.7 if up else 1.0)
        left = min(max(middle - width / 2, room.left), room.right - width)
        if across and not up and left != middle - width / 2:
            continue
        low = y + up * (gap + height / 2) - height / 2
        if room.low <= low and low + height <= room.high and room.left <= left:
            places.append(Box(left, low, left + width, low + height))
    return places
