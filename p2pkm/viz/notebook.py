"""What a notebook shows of an object: a small table, and beside it a picture where one can be drawn."""

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from html import escape
from io import BytesIO
from typing import Any

_DPI = 55


def show_card(title: str, figures: Mapping[str, Any], draw: Callable[[], Any]) -> str:
    """Return a table as HTML, and the picture that `draw` returns the axes of; without it if drawing fails."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name.replace("_", " "))}</th>'
        f'<td style="text-align:left">{escape(_write(value))}</td></tr>'
        for name, value in figures.items()
    )
    table = f"<table><caption>{escape(title)}</caption>{rows}</table>"
    picture = ""
    with suppress(Exception):  # whatever is wrong with matplotlib, the table is there
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
