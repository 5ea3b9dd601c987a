"""Rows of the summary table of a run, from the registry of metrics: the command line and reports print them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from p2pkm.core.units import NOT_KEPT
from p2pkm.metrics.closing_rows import list_warnings
from p2pkm.metrics.registry import ShownIn, metrics_shown_in

GROUPS = {"setup": "Setup", "quality": "Quality", "communication": "Communication", "checks": "Checks"}


class SummaryRow(NamedTuple):
    """Row of the summary table.

    Attributes
    ----------
    group : str
        Key of `GROUPS`.
    is_verbose : bool
        Whether the row is shown with ``--verbose`` only.
    label, value, meaning : str
    """

    group: str
    is_verbose: bool
    label: str
    value: str
    meaning: str


def group_summary_rows(summary: Mapping[str, Any], notes: list[str]) -> list[SummaryRow]:
    """List the rows of all metrics that the run has, of warnings and notes, ordered by group."""
    rows = []
    for metric in metrics_shown_in(ShownIn.CLOSING):
        label, value, meaning = metric.write_row(summary)
        if value != "-":
            rows.append(SummaryRow(metric.group, metric.level == "verbose", label, value, meaning))
    # One line for all warnings: the table stays short, and no option hides them.
    if warnings := list_warnings(summary):
        rows.append(SummaryRow("checks", False, "warning", "", "; ".join(warnings)))
    rows += [SummaryRow("checks", False, "note", "", note) for note in notes]
    order = list(GROUPS)
    return sorted(rows, key=lambda row: order.index(row.group))


def list_summary_rows(summary: dict[str, Any], notes: list[str]) -> list[tuple[str, str, str]]:
    """List all rows (label, value, meaning) of a run, with notes and the run folder."""
    rows = [(row.label, row.value, row.meaning) for row in group_summary_rows(summary, notes)]
    return [*rows, ("run folder", "", summary["out"] or NOT_KEPT)]
