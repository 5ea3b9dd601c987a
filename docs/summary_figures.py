"""The table of all figures of a summary, from the list that they are registered in."""

from p2pkm.metrics.registry import METRICS


def list_figures() -> str:
    """Return a table in Markdown: a row for each figure."""
    lines = ["| key | figure | meaning | unit | better | needs | per device |", "|---|---|---|---|---|---|---|"]
    for one in METRICS:
        cells = (f"`{one.key}`", one.label, one.meaning, one.unit, one.better, one.needs, "yes" * one.per_device)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
