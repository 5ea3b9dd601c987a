"""LaTeX tables: of a study, means over seeds with their spread; of the clusters of a run, their features."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from p2pkm.analysis.conclusion import describe_test
from p2pkm.analysis.paired_tests import (
    EQUIVALENT,
    MARGIN,
    UNDECIDED,
    Verdicts,
    estimate_mean,
    is_unique_best,
    judge_blocks,
    list_standings,
    split_points,
)
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.spec import suggest
from p2pkm.core.units import count
from p2pkm.core.validation import check_choice
from p2pkm.metrics.clusters import Clusters
from p2pkm.metrics.registry import Metric, find

Groups = Mapping[str, Mapping[int, Mapping[str, Any]]]
_USUAL = ("test_ratio_common", "test_ari_all", "ratio_mean", "ari", "bytes")
_SPREADS = {"sd": "Mean ± standard deviation", "interval": "Mean and 95 % interval (Student's t)", "none": "Mean"}
_SIGNS = str.maketrans({
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "\n": " ",
})  # fmt: skip
# Missing value, and marks of a mean: significantly best, equivalent to the best, not distinguished from it.
_DASH = "--"
_BOLD = r"\mathbf"
_EQUIVALENT_MARK = r"\approx"
_UNDECIDED_MARK = "?"
# Largest number of decimals of a mean.
_MOST_PLACES = 4


def escape(text: str) -> str:
    """Escape the special characters of LaTeX in a text."""
    return text.translate(_SIGNS)


class Layout(NamedTuple):
    """Layout of a LaTeX table, see `p2pkm.Study.to_latex`."""

    spread: str = "sd"
    caption: str | None = None
    label: str | None = None
    margin: float = MARGIN


def write_latex(groups: Groups, axes: Sequence[str], figures: Sequence[str] | None, layout: Layout) -> str:
    """Return the LaTeX table of a study; see `p2pkm.Study.to_latex`.

    Parameters
    ----------
    groups : mapping of str to mapping of int to dict
        Runs of each configuration by seed.
    axes : sequence of str
        Options that differ between configurations, one column each.
    figures : sequence of str or None
        Keys of metrics, one column each; None: defaults.
    layout : Layout
    """
    spread, caption, label, margin = layout
    check_choice(spread, _SPREADS, "spread")
    rows = [row for group in groups.values() for row in group.values()]
    metrics = [find(name) for name in _choose(rows, figures)]
    sides = axes or ["algorithm"]
    head = [*(escape(name.replace("_", " ")) for name in sides), *(escape(metric.column) for metric in metrics)]
    blocks = list(split_points(groups).values())
    verdicts = {metric.key: list(judge_blocks(groups, metric.key, margin).values()) for metric in metrics}
    marks: dict[str, dict[str, str]] = {metric.key: {} for metric in metrics}
    for metric in metrics:
        for block, of_block in zip(blocks, verdicts[metric.key], strict=True):
            marks[metric.key] |= _find_marks(of_block, block) if metric.better else {}
    lines = [head]
    for name, group in groups.items():
        first = next(iter(group.values()))
        cells = [_write(group, metric, spread, marks[metric.key].get(name, "")) for metric in metrics]
        lines.append([*(_DASH if first.get(side) is None else escape(str(first[side])) for side in sides), *cells])
    top, *rest = [f"  {' & '.join(line)} \\\\" for line in lines]
    seeds = sorted({len(group) for group in groups.values()}) or [0]
    over = count(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    notes = [
        f"% {_SPREADS[spread]} over {over}. Bold: all others are worse. {_EQUIVALENT_MARK}: equivalent to the best. "
        f"{_UNDECIDED_MARK}: not distinguished from it. Requires booktabs."
    ]
    notes += [
        f"% {metric.column}: {test}"
        for metric in metrics
        if metric.better
        for test in dict.fromkeys(describe_test(of_block, margin) for of_block in verdicts[metric.key])
    ]
    columns = "l" * len(sides) + "r" * len(metrics)
    return "\n".join([*notes, *enclose(columns, [top, r"  \midrule", *rest], caption, label)]) + "\n"


def enclose(columns: str, rows: list[str], caption: str | None, label: str | None) -> list[str]:
    """Enclose the rows in the environment ``tabular`` and, with a caption or a label, in ``table``."""
    body = [rf"\begin{{tabular}}{{{columns}}}", r"  \toprule", *rows, r"  \bottomrule", r"\end{tabular}"]
    if caption is None and label is None:
        return body
    named = [] if caption is None else [rf"\caption{{{caption}}}"]
    named += [] if label is None else [rf"\label{{{label}}}"]
    return [r"\begin{table}", r"\centering", *named, *body, r"\end{table}"]


def write_clusters(clusters: Clusters, device: str | None, caption: str | None, label: str | None) -> str:
    """Return the LaTeX table of the clusters; see `p2pkm.metrics.clusters.Clusters.to_latex`."""
    columns = clusters.to_columns()
    if device is not None and str(device) not in clusters.devices:
        raise DataError(f"device is {device!r}; expected one of them. {suggest(str(device), clusters.devices)}")
    # The first row of a device named "all" follows that of all devices.
    place = 0 if device is None else 1 + clusters.devices.index(str(device))
    step = 1 + len(clusters.devices)
    cells = {name: values[place::step] for name, values in columns.items()}
    counts = [f"{points:,}" + ("" if math.isnan(share) else rf" ({100 * share:.0f}\,\%)")
              for points, share in zip(cells["points"], cells["share"], strict=True)]  # fmt: skip
    lines = [["", *(f"Cluster {c}" for c in cells["cluster"])], ["Points", *counts]]
    if "silhouette" in cells:
        lines.append(["Silhouette", *(_DASH if math.isnan(mean) else f"${mean:.2f}$" for mean in cells["silhouette"])])
    for j, name in enumerate(clusters.distinct_names):
        if clusters.is_share is not None and clusters.is_share[j]:
            shares = cells[f"{name} share"]
            values = [_DASH if math.isnan(share) else rf"{100 * share:.0f}\,\%" for share in shares]
        else:
            values = _format_moments(*(cells[f"{name} {kind}"] for kind in ("mean", "sd", "median")))
        lines.append([escape(name), *values])
    top, *rest = [f"  {' & '.join(line)} \\\\" for line in lines]
    where = "all devices" if device is None else f"device {' '.join(str(device).split())}"
    note = f"% Points of {where}: mean ± standard deviation [median], or share. Requires booktabs."
    rows = [top, r"  \midrule", *rest]
    return "\n".join([note, *enclose("l" + "r" * clusters.number.shape[1], rows, caption, label)]) + "\n"


def _format_moments(means: list[float], deviations: list[float], medians: list[float]) -> list[str]:
    """Format mean ± standard deviation [median] of every cluster, with two digits of the smallest deviation above 0."""
    spread = min((deviation for deviation in deviations if deviation > 0), default=1.0)
    places = int(np.clip(1 - math.floor(math.log10(spread)), 0, _MOST_PLACES))
    return [
        _DASH if math.isnan(mean) else rf"${mean:.{places}f} \pm {deviation:.{places}f}$ [${median:.{places}f}$]"
        for mean, deviation, median in zip(means, deviations, medians, strict=True)
    ]


def _choose(rows: Sequence[Mapping[str, Any]], figures: Sequence[str] | None) -> list[str]:
    """Return the keys of the metrics to show; raise an error for keys without numbers in any run."""
    known = {name for row in rows for name, value in row.items()
             if isinstance(value, Real) and not isinstance(value, bool)} - {"seed"}  # fmt: skip
    if figures is None:
        return [name for name in _USUAL if name in known]
    if isinstance(figures, str):
        figures = [figures]
    for name in figures:
        if name not in known:
            raise ExperimentError(
                f"figures contains {name!r}, which is not a number in any run. {suggest(str(name), known)}"
            )
    return list(figures)


def _find_marks(verdicts: Verdicts, groups: Groups) -> dict[str, str]:
    """Return the mark of the mean of each configuration: bold, equivalent to the best, or not distinguished."""
    standings = list_standings(verdicts)
    if is_unique_best(standings) and len(standings) == len(groups):
        return {standings[0].name: _BOLD}
    return {
        standing.name: {EQUIVALENT: _EQUIVALENT_MARK, UNDECIDED: _UNDECIDED_MARK}.get(standing.verdict, "")
        for standing in standings[1:]
    }


def _write(group: Mapping[int, Mapping[str, Any]], metric: Metric, spread: str, mark: str) -> str:
    """Format a cell: mean over the seeds with the spread, or a dash if a run lacks the metric."""
    values = [row.get(metric.key) for row in group.values()]
    if None in values:
        return _DASH
    known = np.asarray(values, float) / metric.scale
    mean, low, high = (format(value, metric.form) for value in estimate_mean(known, metric.key))
    if mark == _BOLD:
        mean = rf"{_BOLD}{{{mean}}}"
    elif mark:
        mean = f"{mean}^{{{mark}}}"
    if spread == "none" or len(known) < 2:
        return f"${mean}$"
    if spread == "sd":
        return rf"${mean} \pm {format(known.std(ddof=1), metric.form)}$"
    return f"${mean}$ [${low}$, ${high}$]"
