"""Roles of the columns of an edge list: ends of a link, weight, times, other attributes."""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from topologies.errors import GraphError
from topologies.io.reading import Reading
from topologies.validation import INTEGER, assemble

# Words in the names of the columns of both ends; a name with "node" may be either.
_SOURCES = {"source", "src", "from", "u", "node", "start", "tail", "origin", "sender"}
_TARGETS = {"target", "dst", "dest", "destination", "to", "v", "node", "end", "head", "receiver", "neighbor"}
_TIMES = {"time", "timestamp", "date", "datetime", "unixtime", "epoch", "year"}
_PLACES = {"lat", "latitude", "lon", "lng", "longitude"}
_HEADERS = {("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"), ("node1", "node2")}
WEIGHT = "weight"
# Seconds and milliseconds since 1970, from 1980 to 2100.
_EPOCHS = ((315_532_800, 4_102_444_800), (315_532_800_000, 4_102_444_800_000))


class Line(NamedTuple):
    """Number of a line, its fields, and whether weights may have decimal commas: spreadsheets write them with `;`."""

    number: int
    fields: list[str]
    comma: bool = False


class Roles(NamedTuple):
    """Columns of an edge list.

    Attributes
    ----------
    source, target : int
        Columns of the ends.
    attributes : dict[int, str]
        Name of every other column that is read.
    names : bool
        Whether the first line is a header.
    contacts : bool
        Whether a column contains times, so that a link may be listed more than once.
    """

    source: int
    target: int
    attributes: dict[int, str]
    names: bool = False
    contacts: bool = False


def assign_roles(lines: Sequence[Line], path: Path, reading: Reading) -> Roles:
    """Find the header and the role of each column; what was guessed is added to the remarks.

    Raises
    ------
    GraphError
        If lines have different numbers of columns, or columns without names have no known role.
    """
    head = lines[0].fields
    if _is_header(lines):
        return _read_header(head, lines[1:], path, reading)
    _check_doubtful(lines, path)
    width = max(len(line.fields) for line in lines)
    _check_matrix(lines, path)
    if width <= 2:
        return Roles(0, 1, {})
    texts = [[line.fields[i] for line in lines if len(line.fields) > i] for i in range(2, width)]
    if width <= 4 and _are_times(texts[-1], lines, reading):
        reading.ignored.append(f"times in column {width}")
        return Roles(0, 1, {2: WEIGHT} if width == 4 else {}, contacts=True)
    if width == 3:
        return Roles(0, 1, {2: WEIGHT})
    line = next(line for line in lines if len(line.fields) == width)
    raise GraphError(
        f"{path}, line {line.number}: got {line.fields}; expected two labels and, optionally, a weight. A label with a "
        "separator or a # requires double quotes; more columns require a first line with their names"
    )


def _read_header(head: list[str], lines: Sequence[Line], path: Path, reading: Reading) -> Roles:
    """Assign the columns of a header; unknown names are attributes."""
    names = [name.lower() for name in head]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise GraphError(f"{path}: the header has the column {repeated!r} more than once. Rename or remove one of them")
    source, target = _find_ends(head)
    if set().union(*map(_words, head)) & _PLACES:
        raise GraphError(
            f"{path} has the columns {', '.join(head)}, as a table of nodes with coordinates; expected one link per "
            "line. Write nodes and links to one file, such as .graphml or .gml"
        )
    attributes = {i: WEIGHT if names[i] == WEIGHT else head[i] for i in range(len(names)) if i not in {source, target}}
    columns = {i: [line.fields[i] for line in lines if len(line.fields) > i] for i in attributes}
    times = {
        i for i, name in attributes.items() if name != WEIGHT and (_words(name) & _TIMES or _are_epochs(columns[i]))
    }
    reading.ignored += [f"times in column {head[i]}" for i in sorted(times)]
    if not (_words(head[source]) & _SOURCES and _words(head[target]) & _TARGETS):
        reading.remarks.append(f"line 1 has names of columns, and links are from {head[source]} to {head[target]}")
    named = {i: name for i, name in attributes.items() if i not in times}
    return Roles(source, target, named, names=True, contacts=bool(times))


def _find_ends(names: list[str]) -> tuple[int, int]:
    """Return the columns of the ends: those with known names, else the first two."""
    split_names = list(map(_words, names))
    sources = [i for i, words in enumerate(split_names) if words & _SOURCES]
    targets = [i for i, words in enumerate(split_names) if words & _TARGETS and i not in sources[:1]]
    return (sources[0], targets[0]) if sources and targets else (0, 1)


def _words(name: str) -> set[str]:
    """Split a name such as ``FromNodeId`` or ``from_node`` into words."""
    return set(map(str.lower, re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)))


def _is_header(lines: Sequence[Line]) -> bool:
    """Return whether the first line has names of columns: no other line has its labels, and it is not a link.

    It is one if its names are known, if all other labels are numbers, if its third field is text where other
    lines have numbers, or if the other links are connected without it.
    """
    head, rest = lines[0].fields, lines[1:]
    if tuple(name.lower() for name in head[:2]) in _HEADERS:
        return True
    ends = _find_ends(head)
    labels = {head[end] for end in ends if end < len(head)}
    other_labels = {line.fields[end] for line in rest for end in ends if end < len(line.fields)}
    if len(labels) < 2 or any(map(INTEGER.fullmatch, head)) or labels & other_labels or not other_labels:
        return False
    if all(map(INTEGER.fullmatch, other_labels)) or all(
        _words(head[end]) & known for end, known in zip(ends, (_SOURCES, _TARGETS), strict=True)
    ):
        return True
    if len(head) > 2 and not _is_number(head[2]) and any(len(x.fields) > 2 and _is_number(x.fields[2]) for x in rest):
        return True
    shapes = {_shape(label) for label in other_labels}
    return len(rest) > 1 and not shapes & set(map(_shape, labels)) and _are_connected(rest)


def _check_doubtful(lines: Sequence[Line], path: Path) -> None:
    """Reject a first line whose labels are texts and its weight a number, if all other labels are numbers."""
    labels = lines[0].fields[:2]
    other_labels = {field for line in lines[1:] for field in line.fields[:2]}
    if other_labels and all(map(INTEGER.fullmatch, other_labels)) and not any(map(_is_number, labels)):
        raise GraphError(
            f"{path}, line {lines[0].number}: {lines[0].fields} look like names of columns, because all other labels "
            "are numbers. Use the names source, target and weight, or remove the line"
        )


def _shape(label: str) -> str:
    """Replace numbers in a label: labels of nodes often differ only in them."""
    return re.sub(r"[0-9]+", "0", label)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _are_connected(lines: Sequence[Line]) -> bool:
    import networkx

    number: dict[str, int] = {}
    links = [
        (number.setdefault(line.fields[0], len(number)), number.setdefault(line.fields[1], len(number)))
        for line in lines
        if len(line.fields) > 1
    ]
    return bool(links) and bool(networkx.is_connected(assemble(len(number), links)))


def _are_times(texts: list[str], lines: Sequence[Line], reading: Reading) -> bool:
    """Return whether the values of a column without a name are times, not weights.

    Times are dates, or whole numbers that are seconds or milliseconds since 1970, or that are sorted where links are
    listed more than once or a number is 0, which no weight is. Sorted numbers are weights if parallel links are merged.
    """
    if _are_epochs(texts) or all(map(_is_date, texts)):
        return True
    if reading.parallel != "refuse":
        return False
    if not all(map(INTEGER.fullmatch, texts)) or len(texts) < len(lines):
        return False
    numbers = list(map(int, texts))
    pairs = [tuple(line.fields[:2]) for line in lines]
    is_sorted = numbers in (sorted(numbers), sorted(numbers, reverse=True)) and numbers[0] != numbers[-1]
    return is_sorted and min(numbers) >= 0 and (min(numbers) == 0 or len(set(pairs)) < len(pairs))


def _are_epochs(texts: list[str]) -> bool:
    if not texts or not all(len(text) < 16 and INTEGER.fullmatch(text) for text in texts):
        return False
    numbers = list(map(int, texts))
    return any(low <= min(numbers) and max(numbers) <= high for low, high in _EPOCHS)


def _is_date(text: str) -> bool:
    if text.isdecimal():
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_matrix(lines: Sequence[Line], path: Path) -> None:
    """Reject a square table of numbers, which is an adjacency matrix."""
    n = len(lines)
    if n > 2 and all(len(line.fields) == n and all(map(_is_number, line.fields)) for line in lines):
        values = [[float(text.replace(",", ".")) for text in line.fields] for line in lines]
        if not any(values[i][i] for i in range(n)):
            raise GraphError(
                f"{path} has {n} lines with {n} numbers, as an adjacency matrix; expected one link per line. Write the "
                "matrix as .npy, .npz or .mtx, for example by numpy.save"
            )
