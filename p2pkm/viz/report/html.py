"""Construction of HTML. Text is always escaped, so that names from data cannot become elements or scripts."""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape, unescape
from typing import Any, NamedTuple

from p2pkm.core.units import format_number
from p2pkm.metrics.registry import find

_VOID = ("br", "img", "input")
_DASH = "–"  # cell of an unknown value


class Html(NamedTuple):
    """Part of a page that is already HTML and not escaped again."""

    text: str


class Number(NamedTuple):
    """Number in a table with its own text; tables sort by the value."""

    value: float
    text: str


Content = str | Html
Cell = str | int | float | Number | Html | None


def tag(name: str, *inner: Content, **attributes: str | float | bool | None) -> Html:
    """Build an element; inner text and attributes are escaped, attributes with the value None or False are omitted.

    Underscores in attribute names become dashes, except a trailing one, which is removed: ``class_``, ``aria_label``.
    """
    written = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.removesuffix("_").replace("_", "-")
        written += f" {key}" if value is True else f' {key}="{escape(str(value))}"'
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(inner).text}</{name}>")


def join(parts: Iterable[Content]) -> Html:
    """Concatenate parts of a page; text is escaped."""
    return Html("".join(part.text if isinstance(part, Html) else escape(part) for part in parts))


def section(title: str, *inner: Content, id: str | None = None) -> Html:
    """Build a section with a heading."""
    return tag("section", tag("h2", title), *inner, id=id)


def fold(title: str, *inner: Content) -> Html:
    """Build a collapsed element that opens on click."""
    return tag("details", tag("summary", title), *inner)


def tabulate(caption: str, head: Sequence[Content], rows: Iterable[Sequence[Cell]], *, sortable: bool = False) -> Html:
    """Build a table with right-aligned numbers, which scrolls if it is wider than the page.

    The titles of a sortable table are buttons, see tables.js.
    """
    rows = list(rows)
    titles = list[Html]()
    for column, title in enumerate(head):
        numbers = column > 0 and any(isinstance(row[column], (int, float, Number)) for row in rows)
        inner = tag("button", title, type="button") if sortable and title else title
        titles.append(tag("th", inner, scope="col", class_="n" if numbers else None))
    labels = [_read_text(title) for title in head]
    body = [
        tag("tr", *(_cell(cell, label if i else None) for i, (cell, label) in enumerate(zip(row, labels, strict=True))))
        for row in rows
    ]
    table = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *titles)), tag("tbody", *body),
        class_="sortable" if sortable else None,
    )  # fmt: skip
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=caption)


def label_column(key: str, text: str = "") -> Html:
    """Build the title of a column, by default the label of its metric, with the meaning as hover text."""
    metric = find(key)
    return tag("span", text or metric.label, title=metric.meaning or None)


def _read_text(part: Content) -> str:
    """Return the text of a part of a page, without its tags."""
    return unescape(re.sub(r"<[^>]*>", "", part.text)) if isinstance(part, Html) else part


def _cell(cell: Cell, label: str | None) -> Html:
    """Build a cell with the title of its column for narrow pages; None: the first cell of its row."""
    name, scope = ("th", "row") if label is None else ("td", None)
    if isinstance(cell, (str, Html)):
        return tag(name, cell, scope=scope, data_label=label)
    if isinstance(cell, Number):
        return tag(name, cell.text, scope=scope, class_="n", data_value=repr(cell.value), data_label=label)
    value = None if cell is None else repr(float(cell))
    return tag(name, write(cell), scope=scope, class_="n", data_value=value, data_label=label)


def write(value: float | None) -> str:
    """Format a number for a table."""
    if value is None:
        return _DASH
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else format_number(value)


def embed_json(content: Any, id: str) -> Html:
    """Build a script element with data as JSON; `<`, `>` and `&` are escaped, so that no text can end the element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return tag("script", Html(text), type="application/json", id=id)
