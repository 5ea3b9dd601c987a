"""The rows of the closing table of a run: figure and meaning, in words that a newcomer understands."""

from typing import Any

from p2pkm.core.units import NOT_KEPT
from p2pkm.metrics.registry import ShownIn, metrics_shown_in


def list_summary_rows(summary: dict[str, Any], notes: list[str]) -> list[tuple[str, str, str]]:
    """Return rows (what, figure, what it means) of what is known."""
    rows = [metric.write_row(summary) for metric in metrics_shown_in(ShownIn.CLOSING)]
    kept = [row for row in rows if row[1] != "-"]
    return [*kept, *(("note", "", note) for note in notes), ("run folder", "", summary["out"] or NOT_KEPT)]
