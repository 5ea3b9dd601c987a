"""Map of a benchmark: the excess of every method on every task."""

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.analysis.bench_blocks import BASELINE, FLOOR, Blocks, check_rows, read_blocks
from p2pkm.analysis.bench_statistics import BenchSummary, multiply, summarize
from p2pkm.analysis.bench_text import write_excess
from p2pkm.core.batch import Floats
from p2pkm.viz.looks import current_style, finish_figure
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import INK, add_color_bar, choose_text_color, label_axes, open_axes, set_name_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Largest excess of the color scale in percent.
_TOP = 100.0
_ALL = "all tasks"
_LETTER = 0.075  # inches; width of a letter of a name
_LETTER_OF_TITLE = 0.1  # inches
_CELL = (0.42, 0.25)  # inches; width and height of a cell
_EMPTY = "#DDDDDD"
_SIZE = 7.5  # points; largest font size of a number
_INNER = 0.65  # share of the width of a figure with a style that the cells take
_ROOM = 0.15  # inches; width of a cell below which it has no number


def open_bench(bench: Any) -> BenchSummary:
    """Return the ranking of a benchmark, given the ranking or its rows."""
    return bench if isinstance(bench, BenchSummary) else summarize(bench)


@with_own_settings
def plot_bench_map(bench: Any, ax: "Axes | None" = None, *, tasks: Sequence[str] | None = None) -> "Figure":
    """Draw the excess of every method on every task as a map with numbers in its cells.

    A cell is the geometric mean over graphs and seeds in percent. Methods are in the order of the ranking, tasks in the
    order of their difficulty; the first column is the mean over all tasks. A star marks cells in which some runs have
    no result and count as 100 %, a dash those in which all runs have none. Figures with many tasks in a narrow style
    have no numbers.

    Parameters
    ----------
    bench : BenchSummary or list of dict
        Ranking or rows of a benchmark.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    tasks : sequence of str, optional
        Tasks to draw; None: all.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.colors import LogNorm

    summary = open_bench(bench)
    baselines = [entry for entry in summary.entries if entry.trust == BASELINE and entry.entry == entry.method]
    shown = [*summary.main, *baselines]
    blocks = read_blocks(check_rows(summary.rows), ())
    names, cells, failed = average_tasks(blocks, [entry.entry for entry in shown])
    selected = [number for number, name in enumerate(names) if tasks is None or name in tasks]
    columns = [_ALL, *(names[number] for number in selected)]
    cells = np.where(failed == 1.0, np.nan, cells)[:, selected]
    values = 100 * np.column_stack([[entry.excess for entry in shown], cells])
    shares = np.column_stack([[entry.no_result for entry in shown], failed[:, selected]])
    left = 0.4 + _LETTER * max(len(entry.entry) for entry in shown)
    below = 0.2 + _LETTER * max(map(len, columns))
    width, height = left + _CELL[0] * len(columns) + 1.0, 0.55 + _CELL[1] * max(len(shown), 4) + below
    ax = open_axes(ax, width, height, left=left / width, right=1 - 0.9 / width, bottom=below / height,
                   top=1 - 0.45 / height)  # fmt: skip
    norm = LogNorm(100 * FLOOR, _TOP, clip=True)
    image = ax.imshow(np.ma.masked_invalid(values), cmap="YlGnBu", norm=norm, aspect="auto")
    ax.set_facecolor(_EMPTY)
    _write_cells(ax, values, shares, _choose_size(len(columns)))
    ax.axvline(0.5, color="white", linewidth=2.5)
    ax.axhline(len(summary.main) - 0.5, color="white", linewidth=2.5)
    starred = "; *: some runs without a result, –: all" * bool((shares > 0).any())
    title = f"Excess over the best known cost (%), geometric mean over graphs and seeds{starred}"
    label_axes(ax, "\n".join(wrap(title, int((width - left) / _LETTER_OF_TITLE))), "", "")
    set_name_ticks(ax.yaxis, [entry.entry for entry in shown])
    set_name_ticks(ax.xaxis, columns)
    ax.tick_params("x", rotation=90)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    add_color_bar(ax, image, "excess (%)", (1.0 + 0.12 / (_CELL[0] * len(columns)), 0.0, 0.015, 1.0))
    return finish_figure(ax)


def _choose_size(columns: int) -> float:
    """Choose the font size of numbers with five letters in the cells of the current style; 0 if they do not fit."""
    preset = current_style()
    if preset is None:
        return _SIZE
    room = _INNER * preset.width / columns
    # The fitting multiplies small sizes by that of the style over 8 points; a letter is 0.6 times as wide as high.
    return 0.0 if room < _ROOM else min(_SIZE, 72 * room / (5 * 0.6) * 8 / preset.points)


def _write_cells(ax: "Axes", values: Floats, shares: Floats, size: float) -> None:
    """Write the numbers of a map, with a star if some runs have no result."""
    image: Any = ax.images[0]
    scale = image.norm
    for (row, column), value in np.ndenumerate(values) if size else ():
        text = "–" if np.isnan(value) else write_excess(value / 100) + "*" * bool(shares[row, column] > 0)
        ink = INK if np.isnan(value) else choose_text_color(image.cmap(scale(value)))
        ax.text(column, row, text, ha="center", va="center", fontsize=size, color=ink)


def average_tasks(blocks: Blocks, entries: Sequence[str]) -> tuple[list[str], Floats, Floats]:
    """Average the excess of entries on each task.

    Returns
    -------
    tasks : list of str
        Tasks in the order of their difficulty, the mean of the log excess over the entries.
    excess : float64[entries, tasks]
        Geometric mean over graphs and seeds.
    failed : float64[entries, tasks]
        Share of runs without a result.
    """
    numbers = [blocks.entries.index(name) for name in entries]
    names = np.array([task for task, _, _ in blocks.keys])
    tasks = sorted(set(names.tolist()))
    averages = blocks.weights[:, None] * (names[:, None] == np.array(tasks))
    averages /= averages.sum(axis=0)
    logs = multiply(np.log(blocks.excess[numbers]), averages)
    failed = multiply(blocks.is_missing[numbers].astype(np.float64), averages)
    order = np.argsort(logs.mean(axis=0), kind="stable")
    excess: Floats = np.exp(logs[:, order])
    return [tasks[i] for i in order], excess, np.asarray(np.round(failed[:, order], 9), np.float64)
