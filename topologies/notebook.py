"""HTML cards of graphs in notebooks: a table and, for small graphs, a drawing."""

import math
from collections.abc import Mapping
from html import escape
from typing import Any

_DEVICES, _LINKS = 500, 3_000  # larger graphs are not drawn
_SIZE = 220
_INK = "#0072B2"
_PALE = "#9A9A9A"


def show_card(title: str, graph: Any, more: Mapping[str, Any]) -> str:
    """Return a table of a CSRGraph as HTML, followed by a drawing as SVG if the graph is small."""
    n = len(graph)
    links = graph.number_of_edges()
    degrees = [int(b - a) for a, b in zip(graph.indptr[:-1], graph.indptr[1:], strict=True)] if n <= _DEVICES else []
    entries = {"name": graph.name or "-", "devices": f"{n:,}", "links": f"{links:,}", **more}
    if degrees:
        entries["links per device"] = f"{min(degrees)} to {max(degrees)}"
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in entries.items()
    )
    table = f"<table><caption>{escape(title)}</caption>{rows}</table>"
    picture = _draw(graph) if n <= _DEVICES and links <= _LINKS else ""
    return f'<div style="display:flex;flex-wrap:wrap;gap:1em;align-items:center">{table}{picture}</div>'


def _draw(graph: Any) -> str:
    """Draw the devices clockwise on a circle from the top, with their links, as SVG."""
    n = len(graph)
    middle = _SIZE / 2
    radius = max(1.5, min(5.0, 160 / n))
    angles = [2 * math.pi * i / n for i in range(n)]
    places = [(middle + 100 * math.sin(angle), middle - 100 * math.cos(angle)) for angle in angles]
    spots = [f"{x:.1f},{y:.1f}" for x, y in places]
    ends = ((i, int(j)) for i in range(n) for j in graph.indices[graph.indptr[i] : graph.indptr[i + 1]])
    lines = "".join(f"M{spots[i]}L{spots[j]}" for i, j in ends if i < j)
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>' for x, y in places)
    return (
        f'<svg role="img" aria-label="the graph" width="{_SIZE}" height="{_SIZE}" viewBox="0 0 {_SIZE} {_SIZE}">'
        f'<path d="{lines}" fill="none" stroke="{_PALE}" stroke-width="0.8"/><g fill="{_INK}">{marks}</g></svg>'
    )
