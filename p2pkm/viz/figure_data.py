"""Data of a figure as a table: one row per mark, bar, cell and link, read from its matplotlib artists."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.viz.figure_parts import list_axes
from p2pkm.viz.names import full_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Row(NamedTuple):
    """Position of a mark, end of a bar or link, and value of the color; None: does not apply."""

    x: Any = None
    y: Any = None
    x_end: Any = None
    y_end: Any = None
    value: Any = None


class Series(NamedTuple):
    """Marks with one legend entry; `means` is the label of their color bar, `names` those of the marks."""

    kind: str
    label: str
    rows: list[Row]
    means: str = ""
    names: Sequence[str] = ()


COLUMNS = (
    "panel",
    "series",
    "kind",
    "number",
    *Row._fields,
    "x_label",
    "y_label",
    "value_label",
    "x_name",
    "y_name",
    "name",
)


def write_table(figure: "Figure") -> str:
    """Write the data of a figure as CSV.

    Each row is a mark. Cells that do not apply are empty. The columns, see `COLUMNS`:

    * title of the panel, and label of the series;
    * kind of the mark: line, point, bar, step, interval, link, cell or area; its number in the series;
    * x and y; x_end and y_end of bars, intervals and links; value of the color;
    * labels of the axes and of the color bar;
    * names at x and y, if an axis has names; name of the mark, such as that of a device. All names are complete, also
      those that the figure shortens.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    axes = list_axes(figure)
    bars = {id(bar.ax) for ax in axes for bar in _find_bars(ax)}
    for ax in axes:
        if id(ax) not in bars:
            writer.writerows(_list_rows(ax))
    return text.getvalue()


def _find_bars(ax: "Axes") -> Iterator[Any]:
    for marks in (*ax.collections, *ax.images):
        if marks.colorbar is not None:
            yield marks.colorbar


def _list_rows(ax: "Axes") -> Iterator[list[str]]:
    shown = " ".join(ax.get_title(loc="left").split()) or " ".join(ax.get_title().split())
    title = full_names(ax, "") or shown
    labels = [" ".join(label.split()) for label in (ax.get_xlabel(), ax.get_ylabel())]
    names = _read_names(ax.xaxis), _read_names(ax.yaxis)
    for series in (*_read_containers(ax), *_read_lines(ax), *_read_collections(ax), *_read_images(ax)):
        for number, row in enumerate(series.rows):
            ticks = [known.get(at, "") for known, at in zip(names, row[:2], strict=True)]
            name = series.names[number] if number < len(series.names) else ""
            yield [
                title,
                series.label,
                series.kind,
                str(number),
                *map(_write, row),
                *labels,
                series.means,
                *ticks,
                name,
            ]


def _write(value: Any) -> str:
    if value is None or value is np.ma.masked or not np.isfinite(value):
        return ""
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _read_names(axis: Any) -> dict[float, str]:
    """Return the tick labels of an axis by position, if they are names."""
    from matplotlib.ticker import FixedFormatter, FixedLocator

    if not isinstance(axis.get_major_formatter(), FixedFormatter) or not isinstance(
        axis.get_major_locator(), FixedLocator
    ):
        return {}
    shown = {
        float(at): text for at, text in zip(axis.get_majorticklocs(), axis.get_major_formatter().seq, strict=False)
    }
    return {**shown, **full_names(axis, {})}


def _name(artist: Any) -> str:
    # matplotlib gives artists without a label one that begins with an underscore.
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _read_bar_label(marks: Any) -> str:
    bar = marks.colorbar
    return "" if bar is None else " ".join((bar.ax.get_ylabel() or bar.ax.get_xlabel()).split())


def _read_containers(ax: "Axes") -> Iterator[Series]:
    """Yield bars, and the intervals of error bars."""
    from matplotlib.container import BarContainer, ErrorbarContainer
    from matplotlib.patches import StepPatch

    for container in ax.containers:
        if isinstance(container, BarContainer):
            upright = container.orientation != "horizontal"
            yield Series("bar", _name(container), [_read_bar(bar, upright=upright) for bar in container.patches])
        elif isinstance(container, ErrorbarContainer):
            for marks in container.lines[2]:
                yield Series("interval", _name(container), list(_read_segments(marks)))
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
    """Yield lines; of a line across the whole panel, only the coordinate that has the units of the data."""
    from matplotlib.container import ErrorbarContainer

    bars = [container for container in ax.containers if isinstance(container, ErrorbarContainer)]
    caps = {id(cap) for bar in bars for cap in bar.lines[1]}
    # Error bars carry the label of their data line.
    owner = {id(bar.lines[0]): bar for bar in bars}
    for line in ax.lines:
        data: Any = line.get_data(orig=False)
        if id(line) in caps:
            continue
        in_data_units = line.get_transform().contains_branch_seperately(ax.transData)
        x, y = (part if known else [None] * len(part) for part, known in zip(data, in_data_units, strict=True))
        rows = [Row(*row) for row in zip(x, y, strict=True)]
        yield Series("line", _name(owner.get(id(line), line)), rows if all(in_data_units) else rows[:1])


def _read_collections(ax: "Axes") -> Iterator[Series]:
    """Yield points, links and areas; `_read_containers` yields the intervals of error bars."""
    from matplotlib.collections import LineCollection, PathCollection, PolyCollection
    from matplotlib.container import ErrorbarContainer

    bars = [container for container in ax.containers if isinstance(container, ErrorbarContainer)]
    interval_parts = {id(part) for bar in bars for part in bar.lines[2]}
    for marks in ax.collections:
        if id(marks) in interval_parts:
            continue
        if isinstance(marks, LineCollection):
            yield Series("link", _name(marks), list(_read_segments(marks)), _read_bar_label(marks))
        elif isinstance(marks, PathCollection):
            places = np.ma.filled(np.ma.asarray(marks.get_offsets(), np.float64), np.nan)
            values = _values(marks, len(places))
            rows = [Row(x, y, value=value) for (x, y), value in zip(places, values, strict=True)]
            yield Series("point", _name(marks), rows, _read_bar_label(marks), full_names(marks, ()))
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
    """Yield the cells of maps; images in RGB do not have values."""
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
        yield Series("cell", _name(image), [cell for cell in cells if np.isfinite(cell.value)], _read_bar_label(image))
