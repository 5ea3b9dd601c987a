"""Figures, tables and report of a benchmark, as files in a folder."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pkm.storage.save import write_bytes
from p2pkm.viz.figures.bench_fronts import plot_bench_fronts
from p2pkm.viz.figures.bench_map import open_bench, plot_bench_map
from p2pkm.viz.figures.bench_profiles import plot_bench_profiles
from p2pkm.viz.save_figure import USUAL, read_kinds, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[..., "Figure"]] = {
    "bench_map": plot_bench_map,
    "bench_profiles": plot_bench_profiles,
    "bench_fronts": plot_bench_fronts,
}


def draw_bench(rows: Any, folder: str | os.PathLike[str], kinds: Sequence[str] = USUAL) -> list[Path]:
    """Write the figures, the table and the report of a benchmark.

    Parameters
    ----------
    rows : BenchSummary or list of dict
        Ranking of a benchmark, or its rows.
    folder : path
        Created if it does not exist. A file appears under its name only when it is complete.
    kinds : sequence of {"png", "svg", "pdf", "pgf"}, default=("png", "svg")
        File formats of the figures.

    Returns
    -------
    list of pathlib.Path
        One file per figure and kind and one ``.data.csv`` per figure, then ``ranking.csv``, ``ranking.tex``,
        ``ranking.txt`` and ``report.html``.
    """
    from p2pkm.viz.report.bench_page import draw_page

    target = Path(folder)
    checked_kinds = read_kinds(kinds)
    summary = open_bench(rows)
    paths = [
        path
        for name, draw in FIGURES.items()
        for path in save_figure(partial(draw, summary), target, name, checked_kinds)
    ]
    texts = {
        "ranking.csv": summary.to_csv(), "ranking.tex": summary.to_latex(), "ranking.txt": summary.text() + "\n",
        "report.html": draw_page(summary),
    }  # fmt: skip
    for name, text in texts.items():
        write_bytes(target, name, partial(_write, text))
    return [*paths, *(target / name for name in texts)]


def _write(text: str, file: Any) -> None:
    file.write(text.encode("utf-8", "replace"))
