"""Edge lists: one link per line, as text."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from topologies.errors import GraphError
from topologies.validation import INTEGER, Graph

HEADERS = {("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v")}


def read_edge_list(path: Path) -> Graph:
    """Read two columns of labels and, optionally, one of weights.

    Columns are parted by commas, tabs or blanks, whichever of them the first line has, in this order. A first line
    `source,target`, `src,dst`, `from,to` or `u,v` is a header; from `#` on a line is a comment. A third
    column ``{'weight': 2}``, as networkx writes it, is understood. Labels stay text.

    Raises
    ------
    GraphError
        With the number of the line that has the wrong number of columns, an unreadable weight or a known link.
    """
    import networkx

    graph = networkx.Graph()
    listed: dict[tuple[str, str], int] = {}
    for number, fields in _rows(path):
        where = f"{path}, line {number}"
        if len(fields) not in {2, 3} or not fields[0] or not fields[1]:
            raise GraphError(f"{where}: got {fields}; expected two labels and, optionally, a weight")
        u, v = fields[0], fields[1]
        earlier = listed.setdefault((min(u, v), max(u, v)), number)
        if earlier != number:
            raise GraphError(f"{where}: link {u!r} - {v!r} is in line {earlier} already; list every link once")
        graph.add_edge(u, v, **(_attributes(fields[2], where) if len(fields) == 3 else {}))
    return graph


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers, from 1, and fields; comments, blank lines and the header are left out."""
    separator = None
    first = True
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            text = line.partition("#")[0].strip("\r\n ")
            if not text.strip():
                continue
            if first:
                separator = next((mark for mark in ",\t" if mark in re.sub(r"\{.*\}", "", text)), None)
            fields = _split(text, separator)
            if not (first and _is_header(fields, path)):
                yield number, fields
            first = False


def _split(text: str, separator: str | None) -> list[str]:
    if separator is None:
        start = text.find("{")
        return text.split() if start < 0 else [*text[:start].split(), text[start:]]
    if '"' in text:
        import csv

        return [field.strip() for field in next(csv.reader([text], delimiter=separator, skipinitialspace=True))]
    return [field.strip() for field in text.split(separator)]


def _is_header(fields: list[str], path: Path) -> bool:
    words = [field.lower() for field in fields]
    if any(INTEGER.fullmatch(word) for word in words[:2]) or tuple(words[:2]) not in HEADERS:
        return False
    if words[2:] not in ([], ["weight"]):
        raise GraphError(f"{path}: the header is {fields}; expected two columns and, optionally, 'weight'")
    return True


def _attributes(text: str, where: str) -> dict[str, Any]:
    from ast import literal_eval

    try:
        found = literal_eval(text) if text.startswith("{") else {"weight": float(text)}
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise GraphError(f"{where}: the weight is {text!r}; expected a finite number above 0")
    return found
