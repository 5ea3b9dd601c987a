"""Ranking of a benchmark as text, LaTeX and CSV, and its rules in words."""

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from p2pkm.analysis.bench_blocks import FAILED, FLOOR
from p2pkm.analysis.latex_table import enclose, escape
from p2pkm.analysis.paired_tests import EQUIVALENT, SEEDS
from p2pkm.core.text_table import align_columns
from p2pkm.core.units import count

if TYPE_CHECKING:
    from p2pkm.analysis.bench_statistics import BenchEntry, BenchSummary

HEAD = (
    "entry",
    "trust",
    "excess %",
    "95 % interval",
    "rank",
    "worst 10 %",
    "no result %",
    "encoded/raw bytes",
    "verdict",
)
# Letters of a name in the text table.
_LONGEST = 34
# Entries that a sentence names.
_NAMED = 6
_DASH = "-"
_RULES = (
    "Geometric mean of the excess over the best known cost, at least {floor} per run; a run without a result counts as "
    "{failed}. Intervals: bootstrap over tasks and their seeds. Rank: mean over blocks, failed runs last."
)


def write_percent(value: float | None) -> str:
    """Format a share in percent with two significant digits; a dash if it is None."""
    if value is None:
        return _DASH
    percent = 100 * value
    if abs(percent) >= 99.5:
        return f"{percent:,.0f}"
    text = f"{percent:.2g}"
    return f"{percent:.1e}" if "e" in text else text


def write_excess(value: float | None) -> str:
    """Format an excess in percent; "fails" without one, and "<" at the floor."""
    if value is None:
        return "fails"
    return f"<{write_percent(FLOOR)}" if value <= FLOOR * (1 + 1e-9) else write_percent(value)


def write_ratio(value: float | None) -> str:
    """Format a ratio with two significant digits; a dash if it is None."""
    if value is None:
        return _DASH
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}"


def describe_verdict(entry: "BenchEntry") -> str:
    """Describe the verdict of an entry; that of a variant with the name of its reference."""
    words = entry.verdict
    if entry.place is None and entry.reference is not None:
        joint = {EQUIVALENT: f"equivalent to {entry.reference}", "undecided": f"undecided against {entry.reference}"}
        words = joint.get(words, f"{words} than {entry.reference}")
    return f"{words}, returns its start" if entry.is_start else words


def list_cells(entry: "BenchEntry") -> list[str]:
    """List the cells of an entry under `HEAD`."""
    reach = f"{write_excess(entry.low)} to {write_excess(entry.high)}"
    return [
        entry.entry, entry.trust, write_excess(entry.excess), reach,
        _DASH if entry.rank is None else f"{entry.rank:.1f}", write_excess(entry.worst_decile),
        write_percent(entry.no_result), write_ratio(entry.bytes_over_raw), describe_verdict(entry),
    ]  # fmt: skip


def write_text(summary: "BenchSummary") -> str:
    """Format a ranking for a terminal: the table, the conclusion and the rules."""
    lines = [["", *HEAD]]
    for entry in summary.entries:
        cells = list_cells(entry)
        name = cells[0] if len(cells[0]) <= _LONGEST else f"{cells[0][: _LONGEST - 1]}…"
        lines.append(["" if entry.place is None else str(entry.place), name, *cells[1:]])
    table = align_columns(lines, left=(1, 2, 9))
    return "\n".join([*table, "", conclude(summary), describe_rules(summary)])


def conclude(summary: "BenchSummary") -> str:
    """Summarize a ranking in sentences to quote."""
    over = f"{count(summary.tasks, 'task')} and {count(summary.blocks, 'block')}"
    main = summary.main
    if not main:
        return f"No method was ranked over {over}."
    best, *remaining = main
    words = [
        f"Over {over}, {best.entry} has the lowest geometric mean of the excess of {_count_entries(len(main))}, "
        f"{write_excess(best.excess)} % (95 % interval {write_excess(best.low)} to {write_excess(best.high)} %)."
    ]
    titles = {EQUIVALENT: "Equivalent to it", "undecided": "Undecided against it", "worse": "Worse"}
    for verdict, title in titles.items():
        names = [entry.entry for entry in remaining if entry.verdict == verdict]
        if names:
            words.append(f"{title}: {list_names(names)}.")
    starts = [entry.entry for entry in summary.entries if entry.is_start]
    words += [f"Returned the initial centroids in every run: {list_names(starts)}."] if starts else []
    return " ".join(words)


def _count_entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number:,} entries"


def list_names(names: Sequence[str], most: int = _NAMED) -> str:
    """Join names; of many, the first ones and the number of the others."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} others"


def describe_rules(summary: "BenchSummary") -> str:
    """Describe the statistics of a ranking."""
    rules = _RULES.format(floor=f"{100 * FLOOR:g} %", failed=f"{100 * FAILED:g} %")
    scope = f"over {count(summary.units, 'independent task')}" if summary.unit == "task" else (
        f"over {count(summary.units, 'seed')}, for these tasks only"
    )  # fmt: skip
    if summary.units < SEEDS:
        return f"{rules} No verdicts: a test requires at least {SEEDS} tasks with separate data, or {SEEDS} seeds."
    ranks = ", signed-rank test where one dominates" * any(entry.test == "rank" for entry in summary.entries)
    within = f"90 % interval of the cost ratio within {100 * summary.margin:.3g} %" if summary.margin else "never"
    return (
        f"{rules} Verdicts against the best: paired t-test on log excess {scope}{ranks}, Holm's correction for all "
        f"pairs of entries not yet distinguished, level 0.05; equivalent: {within}."
    )


def write_latex(summary: "BenchSummary", caption: str | None, label: str | None) -> str:
    """Format a ranking in LaTeX with booktabs rules."""
    lines = [["", *(escape(name) for name in HEAD)]]
    for entry in summary.entries:
        place = "" if entry.place is None else str(entry.place)
        lines.append([place, *(escape(cell) for cell in list_cells(entry))])
    top, *rest = [f"  {' & '.join(line)} \\\\" for line in lines]
    note = f"% {conclude(summary)} {describe_rules(summary)} Requires booktabs."
    return "\n".join([note, *enclose("rllrrrrrrl", [top, r"  \midrule", *rest], caption, label)]) + "\n"


def write_csv(summary: "BenchSummary") -> str:
    """Format the table of a ranking as CSV, with full precision; unknown values are empty."""
    text = io.StringIO()
    rows = [entry._asdict() for entry in summary.entries]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
