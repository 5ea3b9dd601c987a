"""HTML in pieces: what comes as text is always escaped, so that no name can become an element or a script."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

from p2pkm.core.units import format_number
from p2pkm.metrics.registry import find

_VOID = ("br", "img", "input")
_DASH = "–"  # for what is not known


class Html(NamedTuple):
    """A piece of a page that is HTML already."""

    text: str


Content = str | Html
Cell = str | int | float | Html | None


def tag(name: str, *inner: Content, **attributes: str | float | bool | None) -> Html:
    """Return an element; text inside and attributes are escaped, None and False leave an attribute out.

    Underscores in names of attributes become dashes, one at the end is dropped: ``class_``, ``aria_label``.
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
    """Return pieces one after the other; text is escaped."""
    return Html("".join(part.text if isinstance(part, Html) else escape(part) for part in parts))


def section(title: str, *inner: Content, id: str | None = None) -> Html:
    """Return a part of the page under a heading."""
    return tag("section", tag("h2", title), *inner, id=id)


def fold(title: str, *inner: Content) -> Html:
    """Return something that is shown on demand."""
    return tag("details", tag("summary", title), *inner)


def tabulate(caption: str, head: Sequence[Content], rows: Iterable[Sequence[Cell]], *, sortable: bool = False) -> Html:
    """Return a table that scrolls by itself where it is wider than the page; numbers stand to the right.

    In a sortable one the titles are buttons; see tables.js.
    """
    rows, titles = list(rows), list[Html]()
    for column, one in enumerate(head):
        numbers = column > 0 and any(isinstance(row[column], (int, float)) for row in rows)
        inner = tag("button", one, type="button") if sortable and one else one
        titles.append(tag("th", inner, scope="col", class_="n" if numbers else None))
    body = [tag("tr", *(_cell(cell, first=i == 0) for i, cell in enumerate(row))) for row in rows]
    table = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *titles)), tag("tbody", *body),
        class_="sortable" if sortable else None,
    )  # fmt: skip
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=caption)


def title_of(key: str, text: str = "") -> Html:
    """Return the title of a column, by default the label of its figure, with what it means as hover text."""
    metric = find(key)
    return tag("span", text or metric.label, title=metric.meaning or None)


def _cell(cell: Cell, *, first: bool) -> Html:
    name, scope = ("th", "row") if first else ("td", None)
    if isinstance(cell, (str, Html)):
        return tag(name, cell, scope=scope)
    return tag(name, write(cell), scope=scope, class_="n", data_value=None if cell is None else repr(float(cell)))


def write(value: float | None) -> str:
    """Return a number as a table shows it."""
    if value is None:
        return _DASH
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else format_number(value)


def embed_json(content: Any, id: str) -> Html:
    """Return data for a script; no text in it can end the element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return tag("script", Html(text), type="application/json", id=id)
