"""HTML cards of objects in notebooks: a small table and a figure."""

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from html import escape
from io import BytesIO
from typing import Any

from p2pkm.metrics.registry import ShownIn, metrics_shown_in
from p2pkm.metrics.result import Result
from p2pkm.network.graph import Topology
from p2pkm.viz.figures.graph import plot_graph, plot_topology
from p2pkm.viz.partition_report import PartitionReport, partition_report

_DPI = 55


def card(thing: Any) -> str:
    """Return the HTML card of a Result, a Topology, Shards or a PartitionReport."""
    if isinstance(thing, Result):
        metrics = {metric.label: thing.summary.get(metric.key) for metric in metrics_shown_in(ShownIn.CARD)}
        return show_card("p2pkm result", _known(metrics), lambda: plot_graph(thing))
    if isinstance(thing, Topology):
        degrees = thing.degrees
        rows = {
            "devices": thing.clients,
            "links": len(thing.indices) // 2,
            "server": "yes" if thing.hub >= 0 else None,
            "links_per_device": f"{degrees.min()} to {degrees.max()}",
            "components": int(thing.components.max()) + 1,
        }
        return show_card("p2pkm topology", _known(rows), lambda: plot_topology(thing, "topology"))
    report = thing if isinstance(thing, PartitionReport) else partition_report(thing)
    return show_card("partition", report.figures, report.plot)


def _known(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if value is not None}


def show_card(title: str, entries: Mapping[str, Any], draw: Callable[[], Any]) -> str:
    """Return a table as HTML, followed by the figure that `draw` returns unless drawing fails."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name.replace("_", " "))}</th>'
        f'<td style="text-align:left">{escape(_write(value))}</td></tr>'
        for name, value in entries.items()
    )
    table = f"<table><caption>{escape(title)}</caption>{rows}</table>"
    picture = ""
    # A broken matplotlib must not hide the table, so every error is ignored.
    with suppress(Exception):
        file = BytesIO()
        draw().figure.savefig(file, format="png", dpi=_DPI)
        data = base64.b64encode(file.getvalue()).decode()
        picture = f'<img alt="{escape(title)}" style="max-width:420px" src="data:image/png;base64,{data}">'
    return f'<div style="display:flex;flex-wrap:wrap;gap:1em;align-items:center">{table}{picture}</div>'


def _write(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
