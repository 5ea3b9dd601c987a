"""Reader of edge lists: text files with one link per line."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from topologies.errors import GraphError
from topologies.validation import INTEGER, Graph

HEADERS = {("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"), ("node1", "node2")}
_HEADS = {"source", "target", "src", "dst", "from", "to", "node", "nodes", "neighbor", "start", "end", "head", "tail"}
# A quoted field; inside it, two quotes stand for one.
_QUOTED = re.compile(r'(?<![^\s,])"(?:[^"]|"")*"')
_FIELD = re.compile(r'"((?:[^"]|"")*)"(?!\S)|(\S+)')
_WEIGHT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"\S+\s+\S+\s+[0-9]+")


class Line(NamedTuple):
    """Number of a line, and its fields: two labels and optionally a weight."""

    number: int
    fields: list[str]


def read_edge_list(path: Path, ignored: list[str] | None = None) -> Graph:
    """Read two columns of labels and, optionally, one of weights.

    Columns are separated by commas, tabs or blanks, as in the first line. A first line `source,target`, `src,dst`,
    `from,to`, `u,v` or `node1,node2` is a header. Labels in double quotes may contain any character. A line that begins
    with `#` or `%` is a comment, and so is the rest of a line after a ``#`` between blanks; a `#` inside a label is
    part of it. A third column ``{'weight': 2}``, as written by networkx, is accepted. Labels are not converted to
    numbers.

    Raises
    ------
    GraphError
        If a line has a wrong number of columns, an invalid weight, a repeated link, or a `#` that may begin a comment
        or belong to a label; the message contains the number of the line.
    """
    import networkx

    graph = networkx.Graph()
    listed: dict[tuple[str, str], int] = {}
    for number, fields in _rows(path):
        where = f"{path}, line {number}"
        if len(fields) not in {2, 3} or not fields[0] or not fields[1]:
            raise GraphError(
                f"{where}: got {fields}; expected two labels and, optionally, a weight. A label with a blank, a comma "
                "or a # requires double quotes"
            )
        u, v = fields[0], fields[1]
        earlier = listed.setdefault((min(u, v), max(u, v)), number)
        if earlier != number:
            raise GraphError(f"{where}: link {u!r} - {v!r} is in line {earlier} already. List every link once")
        graph.add_edge(u, v, **(_attributes(fields[2], where) if len(fields) == 3 else {}))
    return graph


def _rows(path: Path) -> Iterator[Line]:
    """Yield the lines with links, numbered from 1, without comments, blank lines and the header."""
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        return
    if _is_header(first.fields, path):
        yield from lines
        return
    rest = list(lines)
    _check_unknown_header(first, rest, path)
    yield from chain([first], rest)


def _lines(path: Path) -> Iterator[Line]:
    """Yield the fields of all lines except comments and blank ones."""
    separator = None
    first = True
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            text = line.strip("\r\n ")
            if not text.strip() or text.lstrip()[0] in "#%":
                continue
            where = f"{path}, line {number}"
            if first:
                separator = _find_separator(text, where)
            text = _cut_comment(text, separator, where)
            yield Line(number, _split(text, separator))
            first = False


def _mask(text: str) -> str:
    """Replace the characters of quoted fields, so that they are not read as separators or comments."""
    return _QUOTED.sub(lambda match: "x" * len(match[0]), text)


def _find_separator(text: str, where: str) -> str | None:
    """Detect the separator of a line; None: blanks."""
    masked = re.sub(r"\{.*\}", "", re.split(r"\s#", _mask(text))[0])
    if "\t" in re.sub(r"\s*,\s*", ",", masked).strip():
        return "\t"
    if "," not in masked:
        return None
    if _DECIMAL_COMMA.fullmatch(masked.partition(",")[0]) and masked.partition(",")[2].isdecimal():
        raise GraphError(f"{where}: got {text!r}, with a decimal comma. Use a decimal point in weights")
    return ","


def _cut_comment(text: str, separator: str | None, where: str) -> str:
    """Remove a comment, which begins with a # between blanks or, if blanks separate columns, after a blank.

    Raises
    ------
    GraphError
        If a # follows a blank or a separator, or precedes a blank, so that it may also belong to a label.
    """
    masked = _mask(text)
    for match in re.finditer("#", masked):
        before = masked[match.start() - 1]
        after = masked[match.end() : match.end() + 1]
        if before.isspace() and before != separator and (separator is None or not after.strip()):
            return text[: match.start()].rstrip()
        if before.isspace() or before == separator or after.isspace():
            raise GraphError(
                f"{where}: in {text!r}, # may begin a comment or belong to a label. Put blanks around the #, or put "
                "the label in double quotes"
            )
    return text


def _split(text: str, separator: str | None) -> list[str]:
    """Split a line into fields; attributes in braces are the last field."""
    start = _mask(text).find("{")
    if start > 0 and text.endswith("}"):
        return [*_split(text[:start].rstrip(" " if separator is None else f" {separator}"), separator), text[start:]]
    if separator is None:
        return [quoted.replace('""', '"') or plain for quoted, plain in _FIELD.findall(text)]
    if '"' in text:
        import csv

        return [field.strip() for field in next(csv.reader([text], delimiter=separator, skipinitialspace=True))]
    return [field.strip() for field in text.split(separator)]


def _is_header(fields: list[str], path: Path) -> bool:
    names = [field.lower() for field in fields]
    if any(INTEGER.fullmatch(name) for name in names[:2]) or tuple(names[:2]) not in HEADERS:
        return False
    if names[2:] not in ([], ["weight"]):
        raise GraphError(f"{path}: the header is {fields}; expected two columns and, optionally, 'weight'")
    return True


def _check_unknown_header(first: Line, rest: list[Line], path: Path) -> None:
    """Reject a first line that looks like column names: no other line contains its labels."""
    labels = set(first.fields[:2])
    other_labels = {field for line in rest for field in line.fields[:2]}
    if not other_labels or labels & other_labels:
        return
    stems = {re.sub(r"[\W_0-9]|id$", "", label.lower()) for label in labels}
    numbered = all(map(INTEGER.fullmatch, other_labels)) and not any(map(INTEGER.fullmatch, labels))
    if numbered or stems <= _HEADS:
        raise GraphError(
            f"{path}, line {first.number}: {first.fields} look like names of columns, because no other line has these "
            "labels. Use the names source and target, or remove the line"
        )


def _attributes(text: str, where: str) -> dict[str, Any]:
    from ast import literal_eval

    attributes: Any = None
    try:
        if text.startswith("{"):
            attributes = literal_eval(text)
        # The pattern excludes numbers such as 1_000, which float accepts.
        elif _WEIGHT.fullmatch(text):
            attributes = {"weight": float(text)}
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    if not isinstance(attributes, dict) or not all(isinstance(key, str) for key in attributes):
        raise GraphError(f"{where}: the weight is {text!r}; expected a finite number above 0")
    return attributes
