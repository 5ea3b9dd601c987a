"""What a figure draws, as a table: a row for every mark, bar, cell and link, read from the figure itself."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.viz.figure_parts import list_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Row(NamedTuple):
    """A mark: where it is, where it ends if it is a bar or a link, and what its color stands for; None: nothing."""

    x: Any = None
    y: Any = None
    x_end: Any = None
    y_end: Any = None
    value: Any = None


class Series(NamedTuple):
    """Marks that belong together."""

    kind: str
    label: str
    rows: list[Row]
    means: str = ""  # what the color stands for


COLUMNS = ("panel", "series", "kind", "number", *Row._fields, "x_label", "y_label", "value_label", "x_name", "y_name")


def write_table(figure: "Figure") -> str:
    """Return all that a figure draws from data, as CSV.

    Columns: title of the panel, label of the series, kind of mark (line, point, bar, step, interval, link, cell, area),
    its number in the series, x and y, x_end and y_end of bars, intervals and links, the value of its color, the labels
    of the axes and of the color bar, and the names that stand at x and y where axes have names. Empty: there is none.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    every = list_axes(figure)
    bars = {id(bar.ax) for ax in every for bar in _find_bars(ax)}
    for ax in every:
        if id(ax) not in bars:
            writer.writerows(_list_rows(ax))
    return text.getvalue()


def _find_bars(ax: "Axes") -> Iterator[Any]:
    for marks in (*ax.collections, *ax.images):
        if marks.colorbar is not None:
            yield marks.colorbar


def _list_rows(ax: "Axes") -> Iterator[list[str]]:
    title = " ".join(ax.get_title(loc="left").split()) or " ".join(ax.get_title().split())
    labels = [" ".join(label.split()) for label in (ax.get_xlabel(), ax.get_ylabel())]
    names = _read_names(ax.xaxis), _read_names(ax.yaxis)
    for series in (*_read_containers(ax), *_read_lines(ax), *_read_collections(ax), *_read_images(ax)):
        for number, row in enumerate(series.rows):
            called = [known.get(at, "") for known, at in zip(names, row[:2], strict=True)]
            yield [title, series.label, series.kind, str(number), *map(_write, row), *labels, series.means, *called]


def _write(value: Any) -> str:
    if value is None or value is np.ma.masked or not np.isfinite(value):
        return ""
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _read_names(axis: Any) -> dict[float, str]:
    """Return what stands at the places of an axis that numbers things with names."""
    from matplotlib.ticker import FixedFormatter, FixedLocator

    if not isinstance(axis.get_major_formatter(), FixedFormatter) or not isinstance(
        axis.get_major_locator(), FixedLocator
    ):
        return {}
    return {float(at): text for at, text in zip(axis.get_majorticklocs(), axis.get_major_formatter().seq, strict=False)}


def _name(artist: Any) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _mean(marks: Any) -> str:
    bar = marks.colorbar
    return "" if bar is None else " ".join((bar.ax.get_ylabel() or bar.ax.get_xlabel()).split())


def _read_containers(ax: "Axes") -> Iterator[Series]:
    """Return bars, and the intervals of error bars."""
    from matplotlib.container import BarContainer, ErrorbarContainer
    from matplotlib.patches import StepPatch

    for found in ax.containers:
        if isinstance(found, BarContainer):
            upright = found.orientation != "horizontal"
            yield Series("bar", _name(found), [_read_bar(bar, upright=upright) for bar in found.patches])
        elif isinstance(found, ErrorbarContainer):
            for marks in found.lines[2]:
                yield Series("interval", _name(found), list(_read_segments(marks)))
    for patch in ax.patches:
        if isinstance(patch, StepPatch):
            values, edges, base = patch.get_data()
            below = np.broadcast_to(0.0 if base is None else base, np.shape(values))
            rows = [Row(*row) for row in zip(edges[:-1], below, edges[1:], values, strict=True)]
            yield Series("step", _name(patch), rows)


def _read_bar(bar: Any, *, upright: bool) -> Row:
    x, y, width, height = bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()
    return Row(x + width / 2, y, None, y + height) if upright else Row(x, y + height / 2, x + width)


def _read_lines(ax: "Axes") -> Iterator[Series]:
    """Return lines; of one across all axes only the place that is in the units of the data."""
    from matplotlib.container import ErrorbarContainer

    bars = [one for one in ax.containers if isinstance(one, ErrorbarContainer)]
    caps = {id(cap) for one in bars for cap in one.lines[1]}
    owner = {id(one.lines[0]): one for one in bars}
    for line in ax.lines:
        data: Any = line.get_data(orig=False)
        if id(line) in caps:
            continue
        along = line.get_transform().contains_branch_seperately(ax.transData)
        x, y = (part if known else [None] * len(part) for part, known in zip(data, along, strict=True))
        rows = [Row(*row) for row in zip(x, y, strict=True)]
        yield Series("line", _name(owner.get(id(line), line)), rows if all(along) else rows[:1])


def _read_collections(ax: "Axes") -> Iterator[Series]:
    """Return points, links and areas; intervals of error bars are read elsewhere."""
    from matplotlib.collections import LineCollection, PathCollection, PolyCollection
    from matplotlib.container import ErrorbarContainer

    known = {id(part) for one in ax.containers if isinstance(one, ErrorbarContainer) for part in one.lines[2]}
    for marks in ax.collections:
        if id(marks) in known:
            continue
        if isinstance(marks, LineCollection):
            yield Series("link", _name(marks), list(_read_segments(marks)), _mean(marks))
        elif isinstance(marks, PathCollection):
            places = np.ma.filled(np.ma.asarray(marks.get_offsets(), np.float64), np.nan)
            values = _values(marks, len(places))
            rows = [Row(x, y, value=value) for (x, y), value in zip(places, values, strict=True)]
            yield Series("point", _name(marks), rows, _mean(marks))
        elif isinstance(marks, PolyCollection):
            corners = [corner for path in marks.get_paths() for corner in np.asarray(path.vertices)]
            yield Series("area", _name(marks), [Row(x, y) for x, y in corners])


def _read_segments(marks: Any) -> Iterator[Row]:
    segments = marks.get_segments()
    for segment, value in zip(segments, _values(marks, len(segments)), strict=True):
        if len(segment):
            yield Row(segment[0][0], segment[0][1], segment[-1][0], segment[-1][1], value)


def _values(marks: Any, count: int) -> Iterable[Any]:
    values = marks.get_array()
    return [None] * count if values is None else np.ma.filled(np.ma.asarray(values, np.float64), np.nan)


def _read_images(ax: "Axes") -> Iterator[Series]:
    """Return the cells of maps; colored pictures have no values."""
    for image in ax.images:
        table = np.ma.filled(np.ma.asarray(image.get_array(), np.float64), np.nan)
        if table.ndim != 2:
            continue
        left, right, bottom, top = image.get_extent()
        if image.origin == "upper":
            bottom, top = top, bottom
        rows, columns = table.shape
        xs = left + (np.arange(columns) + 0.5) * (right - left) / columns
        ys = bottom + (np.arange(rows) + 0.5) * (top - bottom) / rows
        cells = [Row(x, y, value=table[i, j]) for i, y in enumerate(ys) for j, x in enumerate(xs)]
        yield Series("cell", _name(image), [cell for cell in cells if np.isfinite(cell.value)], _mean(image))
