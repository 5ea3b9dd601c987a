"""All figures of a study or a comparison, as files in a folder."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pkm.analysis.explanation import explain
from p2pkm.analysis.study_table import find_axes, read_rows
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.viz.figures.columns import plot_columns
from p2pkm.viz.figures.explained import plot_explained
from p2pkm.viz.figures.study import find_swept, plot_heatmap, plot_measures, plot_study_quality
from p2pkm.viz.save_figure import USUAL, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from p2pkm.storage.study_rows import Row

_PAIRS = 3  # most options that are mapped pair by pair
_ROUNDS_TO_CENTRAL = "rounds_to_1pct_of_central"
_TEST_COST = "test_ratio_common"
Draws = dict[str, Callable[..., "Figure"]]


def draw_study(study: Any, folder: Path, kinds: Sequence[str] = USUAL) -> list[Path]:
    """Write all figures for which a study has values, by default as PNG and SVG."""
    rows = read_rows(study)
    draws: Draws = {}
    compared = [row for row in rows if row.get("rounds_to_1pct") is not None]
    if len({row["graph"] for row in compared if row.get("spectral_gap") is not None}) > 1:
        draws["measures"] = partial(plot_measures, compared)
        if _has(compared, _ROUNDS_TO_CENTRAL):
            draws["measures_of_central"] = partial(plot_measures, compared, value=_ROUNDS_TO_CENTRAL)
    draws |= _list_quality(rows, ("bytes", "virtual_seconds"))
    for y, x in combinations(sorted(find_swept(compared)[:_PAIRS], key=("algorithm", "graph").count, reverse=True), 2):
        for value in (name for name in keys(ShownIn.MAP) if any(name in row for row in compared)):
            draws[f"heatmap_{x}_{y}_{value}"] = partial(plot_heatmap, compared, x, y, value)
    if explain(rows, find_axes(rows)).correlations:
        draws["explained"] = partial(plot_explained, rows)
    return _save(draws, folder, kinds)


def draw_comparison(study: Any, folder: Path, kinds: Sequence[str] = USUAL) -> list[Path]:
    """Write quality against all bytes and against those of the busiest device, by default as PNG and SVG."""
    return _save(_list_quality(read_rows(study), ("bytes", "bytes_busiest")), folder, kinds)


def _list_quality(rows: "Sequence[Row]", costs: Sequence[str]) -> Draws:
    """List the figures of both questions: one clustering for all devices, and one for each, on its test points."""
    draws: Draws = {}
    for against in costs:
        if _has(rows, "ratio_mean", against):
            draws[f"quality_{against}"] = partial(plot_study_quality, rows, against=against)
        if _has(rows, _TEST_COST, against):
            draws[f"test_cost_{against}"] = partial(plot_columns, rows, against, _TEST_COST, "algorithm")
    return draws


def _has(rows: "Sequence[Mapping[str, Any]]", *names: str) -> bool:
    return any(all(row.get(name) is not None for name in names) for row in rows)


def _save(draws: Draws, folder: Path, kinds: Sequence[str]) -> list[Path]:
    return [path for name, draw in draws.items() for path in save_figure(draw, folder, name, kinds)]
