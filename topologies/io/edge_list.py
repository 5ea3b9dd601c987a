"""Reader of edge lists: text files with one link per line."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from topologies.errors import GraphError
from topologies.io.columns import WEIGHT, Line, Roles, assign_roles
from topologies.io.directions import add_parallel, tell_merged
from topologies.io.reading import Reading, read_text
from topologies.validation import PARALLEL, UNDIRECTED, Graph

# A quoted field; inside it, two quotes stand for one.
_QUOTED = re.compile(r'(?<![^\s,;|])"(?:[^"]|"")*"')
_FIELD = re.compile(r'"((?:[^"]|"")*)"(?!\S)|(\S+)')
_WEIGHT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"\S+\s+\S+\s+[0-9]+")
_EXCEL = re.compile(r'"?sep=(.)"?')  # first line with the separator
_COMMENT = re.compile(r"\s*#\s*(\S*)\s*")  # with at most one word
_KINDS = {"directed", "undirected"}  # values of the column type of Gephi


class _Link(NamedTuple):
    """Link of a file: number of its first line, attributes, and kind in a file of Gephi."""

    number: int
    data: dict[str, Any]
    kind: str


def read_edge_list(path: Path, reading: Reading) -> Graph:
    """Read one link per line: two labels and, optionally, a weight or named columns.

    Columns are separated by tabs, commas, semicolons, vertical bars or blanks, as in the first line. A first line with
    names of columns is a header: its names are known, or it cannot be a link (`topologies.io.columns`). Named columns
    are attributes of links. A last column of times is ignored; links may then be repeated. Labels in double quotes may
    contain any character. A line that begins with `#` or `%` is a comment, and so is the rest of a line after a ``#``
    between blanks; a `#` inside a label is part of it. A third column ``{'weight': 2}``, as written by networkx, is
    accepted. Labels are not converted to numbers.

    The nodes `reading.names`, which have no links, are added. With directed="refuse", links are undirected, and both
    directions of a link are merged if their attributes are equal.

    Raises
    ------
    GraphError
        If a line has a wrong number of columns, an invalid weight, a repeated link, or a `#` that may begin a comment
        or belong to a label; the message contains the number of the line.
    """
    import networkx

    text = read_text(path, reading)
    _check_other_formats(text, path)
    lines = list(_lines(text, path))
    graph = networkx.Graph() if reading.directed == "refuse" else networkx.DiGraph()
    if lines:
        roles = assign_roles(lines, path, reading)
        _add_links(graph, lines[roles.names :], roles, path, reading)
    graph.add_nodes_from(name for name in reading.names if name not in graph)
    return graph


def _check_other_formats(text: str, path: Path) -> None:
    """Reject formats of other programs whose lines could be read as links: LGL, TGF and METIS.

    LGL has a line ``# NODE`` before the neighbors of each node, TGF a line ``#`` between nodes and links, and METIS a
    first line with the numbers of nodes and links, then a line with the neighbors of each node.
    """
    heads: list[str] = []
    places: list[int] = []
    rows: list[list[str]] = []
    for line in text.splitlines():
        if match := _COMMENT.fullmatch(line):
            heads.append(match[1])
            places.append(len(rows))
        elif line.strip() and line.lstrip()[0] not in "#%":
            rows.append(line.split())
    kind = ""
    if "" in heads and _is_tgf(rows, places[heads.index("")]):
        kind = "TGF: a line # separates nodes and links"
    elif "" not in heads and _is_lgl(heads, places, rows):
        kind = f"LGL: the line # {heads[0]} names a node, and the lines below are its neighbors"
    elif _is_metis(rows):
        kind = f"METIS: {rows[0][0]} nodes, {rows[0][1]} links, and a line with the neighbors of each node"
    if kind:
        raise GraphError(
            f"{path} looks like {kind}; expected one link per line. Write it as an edge list, or as .graphml or .gml; "
            "if it is an edge list, remove its comments and its first line if that is not a link"
        )


def _is_lgl(heads: list[str], places: list[int], rows: list[list[str]]) -> bool:
    """Return whether lines with a single word after a # are nodes, and the lines below their neighbors."""
    if not heads or places[0] or not rows or max(map(len, rows)) > 2:
        return False
    if any(len(row) == 1 for row in rows):
        return True
    neighbors = {row[0] for row in rows}
    are_weighted = all(map(_WEIGHT.fullmatch, (row[1] for row in rows)))
    are_numbers = any(map(_WEIGHT.fullmatch, neighbors))
    # A comment in the middle, and a node that is also a neighbor: numbers may be nodes, too.
    return are_weighted and (not are_numbers or (len(set(places)) > 1 and not neighbors.isdisjoint(heads)))


def _is_tgf(rows: list[list[str]], place: int) -> bool:
    """Return whether the first lines have the ends of the other lines as their first words, each once."""
    nodes = [row[0] for row in rows[:place]]
    ends = {word for row in rows[place:] for word in row[:2]}
    return 0 < place < len(rows) and len(set(nodes)) == len(nodes) and ends <= set(nodes)


def _is_metis(rows: list[list[str]]) -> bool:
    """Return whether the first line counts the other lines and half of their words, which are numbers of lines."""
    if len(rows) < 3 or len(rows[0]) != 2 or not all(word.isdecimal() for row in rows for word in row):
        return False
    nodes, links = map(int, rows[0])
    ends = [int(word) for row in rows[1:] for word in row]
    return nodes == len(rows) - 1 and len(ends) == 2 * links and all(1 <= end <= nodes for end in ends)


def _add_links(graph: Graph, lines: list[Line], roles: Roles, path: Path, reading: Reading) -> None:
    """Add the links of all lines; both directions of an undirected link are merged."""
    listed: dict[tuple[str, str], _Link] = {}
    for number, fields, comma in lines:
        where = f"{path}, line {number}"
        u, v = _find_labels(fields, roles, where)
        data = _read_attributes(fields, roles, where, comma)
        kind = _find_kind(data, graph, where)
        first = listed.setdefault((u, v), _Link(number, data, kind))
        if first.number == number or roles.contacts:
            continue
        if reading.parallel == "refuse":
            raise GraphError(f"{where}: link {u!r} - {v!r} is in line {first.number} already. {PARALLEL}")
        add_parallel(first.data, data, reading, f"{u!r} - {v!r}")
    mutual = 0
    for (u, v), (number, data, kind) in listed.items():
        if not graph.is_directed() and graph.has_edge(u, v):
            mutual += 1
            where = f"{path}, line {number}: link {u!r} - {v!r}"
            _check_equal(data, graph[u][v], roles, where, listed[v, u].number)
            continue
        graph.add_edge(u, v, **data)
        if kind == "undirected" and graph.is_directed():
            graph.add_edge(v, u, **data)
    if mutual:
        reading.remarks.append(f"both directions of {mutual} of {len(listed) - mutual} links are listed, and merged")
    if len(listed) < len(lines) and roles.contacts:
        reading.remarks.append(f"{len(lines) - len(listed)} of {len(lines)} lines repeat a link, and are left out")
    elif len(listed) < len(lines):
        tell_merged(len(lines), len(listed), reading)


def _check_equal(data: dict[str, Any], link: dict[str, Any], roles: Roles, where: str, line: int) -> None:
    """Check that both directions of an undirected link have equal attributes; those of contacts may differ."""
    if data != link and not roles.contacts:
        raise GraphError(
            f"{where} has {data}, but {link} in line {line}. Make both directions equal, or use directed=union for the "
            "mean weight"
        )


def _find_labels(fields: list[str], roles: Roles, where: str) -> tuple[str, str]:
    """Return the labels of both ends, and check the number of columns."""
    ends = [fields[i] for i in (roles.source, roles.target) if i < len(fields) and fields[i]]
    known = max((roles.source, roles.target, *roles.attributes)) + 1
    if len(ends) < 2 or (not roles.names and not roles.contacts and len(fields) > known):
        raise GraphError(
            f"{where}: got {fields}; expected two labels and, optionally, a weight. A label with a blank, a comma or a "
            "# requires double quotes"
        )
    return ends[0], ends[1]


def _read_attributes(fields: list[str], roles: Roles, where: str, comma: bool) -> dict[str, Any]:
    """Return the attributes of a link: its weight, and named columns that are not empty."""
    data: dict[str, Any] = {}
    for i, name in roles.attributes.items():
        if i < len(fields):
            if name == WEIGHT:
                text = re.sub(r"^([+-]?[0-9]+),([0-9]+)$", r"\1.\2", fields[i]) if comma else fields[i]
                data |= _parse_weight(text, where)
            elif fields[i]:
                data[name] = fields[i]
    return data


def _find_kind(data: dict[str, Any], graph: Graph, where: str) -> str:
    """Remove and return the kind of a link in a file of Gephi, empty without one; check that it fits the graph."""
    key = next((key for key, value in data.items() if key.lower() == "type" and str(value).lower() in _KINDS), None)
    kind = "" if key is None else str(data.pop(key)).lower()
    if kind == "directed" and not graph.is_directed():
        raise GraphError(f"{where}: the graph is directed; {UNDIRECTED}, for example by directed=union")
    return kind


def _lines(content: str, path: Path) -> Iterator[Line]:
    """Yield the fields of all lines except comments and blank ones."""
    separator = None
    first = True
    for number, line in enumerate(io.StringIO(content, newline=None), start=1):
        text = line.strip("\r\n ")
        if not text.strip() or text.lstrip()[0] in "#%":
            continue
        where = f"{path}, line {number}"
        if first and (match := _EXCEL.fullmatch(text)):
            separator, first = match[1], False
            continue
        if first:
            separator = _find_separator(text, where)
        text = _cut_comment(text, separator, where)
        fields = _split(text, separator)
        yield Line(number, fields, comma=separator == ";")
        first = False


def _mask(text: str) -> str:
    """Replace the characters of quoted fields, so that they are not read as separators or comments."""
    return _QUOTED.sub(lambda match: "x" * len(match[0]), text)


def _find_separator(text: str, where: str) -> str | None:
    """Detect the separator of a line; None: blanks."""
    masked = re.sub(r"\{.*\}", "", re.split(r"\s#", _mask(text))[0])
    if "\t" in re.sub(r"\s*,\s*", ",", masked).strip():
        return "\t"
    marks = [mark for mark in ";|," if len([field for field in masked.split(mark) if field.strip()]) > 1]
    if marks == [";", ","] and all(re.search(r"(^|;)\s*[0-9]+$", part) for part in masked.split(",")[:-1]):
        # Decimal commas.
        return ";"
    # Two or three labels with the same number of marks, such as `a|1 b|2`.
    counts = [token.strip(marks[0]).count(marks[0]) for token in masked.split()] if marks and marks != [","] else []
    if len(counts) in {2, 3} and min(counts) == max(counts) > 0:
        marks.append(" ")
    if len(marks) > 1:
        raise GraphError(
            f"{where}: in {text!r}, {' or '.join(map(repr, marks))} may separate columns. Put labels that contain one "
            "of them in double quotes"
        )
    if marks == [","] and _DECIMAL_COMMA.fullmatch(masked.partition(",")[0]) and masked.partition(",")[2].isdecimal():
        raise GraphError(f"{where}: got {text!r}, with a decimal comma. Use a decimal point in weights")
    return marks[0] if marks else None


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


def _parse_weight(text: str, where: str) -> dict[str, Any]:
    """Parse a weight, or a dictionary of attributes."""
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
