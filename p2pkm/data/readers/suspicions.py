"""Notes of what looks wrong in a table: nothing is changed, the user decides.

Constant columns, numeric identifiers, values that may mean missing, equal rows, equal names, columns with many
categories, and points that may separate thousands.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from p2pkm.data.identifiers import is_missing
from p2pkm.data.readers.columns import FileContents

Floats = NDArray[np.float64]

_BLOCK = 1 << 17  # numbers at a time, which a processor keeps at hand
_TOLD = 5  # columns in a note, or notes of a kind
_ROWS, _FEW = 20, 5  # from which on different whole numbers in every row are suspicious, and by their name
_BIRTHDAYS = 14.0  # m draws of n numbers with m^2 > 14 n all differ in less than one of 1,000 cases
_NUMBERED = re.compile(r"(?i:(?:^|[^a-z])(?:id|nr|no|number|nummer|key|index|idx)(?:$|[^a-z]))|[a-z]I[Dd]$")
_CATEGORIES = 100  # of a column, from which on they are suspicious
_CHANCE = 5  # times as many equal rows as chance gives
_SAMPLE = 10_000  # rows
_CODE = re.compile(r"-?(9{2,}|8{3,}|7{3,}|9{2,}\.9+)|-[189]")  # usual codes of missing values
_FAR = {"code": 4.0, "zero": 3.0, "other": 6.0}  # standard deviations from the mean of the rest
_OFTEN = {"code": 1, "zero": 2, "other": 3}  # rows
_DISTINCT = 20  # values of a column whose largest or least is not by itself a grade
_ROUNDS = 3  # codes of a column that are looked for
_DOTTED, _SHORT = re.compile(r"-?[1-9][0-9]{0,2}\.[0-9]{3}"), re.compile(r"-?[0-9]{1,3}")


def find_suspicions(parts: FileContents, encoded: Iterable[str] = ()) -> tuple[str, ...]:
    """Return notes of what looks wrong in the columns and rows of a table.

    Parameters
    ----------
    parts : Parts
    encoded : iterable of str
        Columns of dates, in which every row may have its own value.
    """
    points, names = parts.points, parts.names or tuple(map(str, range(parts.points.shape[1])))
    if not len(points):
        return ()
    low, high = _find_range(points)
    whole = _find_whole(points)
    constant = [names[j] for j in np.flatnonzero(low == high)] if len(points) > 1 else []
    own = [names[j] for j in np.flatnonzero(whole & (high - low >= len(points) - 1))
           if names[j] not in set(encoded) and _are_numbered(names[j], points[:, j])]  # fmt: skip
    notes = [*_tell_names((*names, *(one.name for one in parts.categories))), *_tell_categories(parts)]
    if constant:
        notes.append(f"{_list_columns(constant, 'is', 'are')} the same in all rows: --drop {constant[0]}?")
    if own:
        notes.append(f"{_list_columns(own, 'has', 'have')} as many values as rows: leave out with --drop {own[0]}?")
    return (*notes, *_tell_codes(points, names, low, high), *_tell_equal_rows(parts))


def may_have_thousands(fields: Sequence[str]) -> bool:
    """Return whether all points in the fields of a column may separate thousands: other numbers have up to 3 digits."""
    return all(_DOTTED.fullmatch(field) or _SHORT.fullmatch(field) for field in fields if not is_missing(field))


def tell_thousands(name: str, fields: Sequence[str]) -> str:
    """Return a note of a column that mixes numbers such as 7.400 and 980; empty: it does not."""
    dotted = next((field for field in fields if _DOTTED.fullmatch(field)), None)
    short = next((field for field in reversed(fields) if field.isdecimal()), None)
    if dotted is None or short is None or not may_have_thousands(fields):
        return ""
    return f"column {name!r} mixes {dotted} and {short}: are the points thousands? Then remove them from the file"


def _blocks(points: Floats) -> Iterator[slice]:
    step = max(_BLOCK // max(points.shape[1], 1), 1)
    return (slice(first, first + step) for first in range(0, len(points), step))


def _list_columns(names: Sequence[str], one: str, several: str) -> str:
    """Return columns and the verb that follows."""
    told = ", ".join(map(repr, names[:_TOLD])) + (f" and {len(names) - _TOLD} more" if len(names) > _TOLD else "")
    return f"column {told} {one}" if len(names) == 1 else f"columns {told} {several}"


def _find_range(points: Floats) -> tuple[Floats, Floats]:
    """Return minimum and maximum of each feature, float64[d], without missing values."""
    parts = [(np.fmin.reduce(points[rows]), np.fmax.reduce(points[rows])) for rows in _blocks(points)]
    low, high = (np.array(ends, np.float64) for ends in zip(*parts, strict=True))
    return np.fmin.reduce(low), np.fmax.reduce(high)


def _find_whole(points: Floats) -> NDArray[np.bool_]:
    """Return which features are whole numbers, bool[d]; of the others some rows are looked at."""
    whole = np.ones(points.shape[1], np.bool_)
    for rows in _blocks(points):
        left = np.flatnonzero(whole)
        if not len(left):
            break
        some = points[rows] if len(left) == len(whole) else points[rows][:, left]
        whole[left] = (some == np.floor(some)).all(axis=0)
    return whole


def _are_numbered(name: str, column: Floats) -> bool:
    """Return whether whole numbers look like those that number the rows: all differ, as measured ones hardly do."""
    m, steps = len(column), np.diff(np.sort(column))
    if m < _FEW or not steps.all():
        return False
    span, order = float(steps.sum()) + 1, np.diff(column)
    ordered = m >= _ROWS and bool((order > 0).all() or (order < 0).all())
    dense = m >= _ROWS and m * m > _BIRTHDAYS * span
    return ordered or dense or _NUMBERED.search(name) is not None


def _tell_names(names: Sequence[str]) -> list[str]:
    twice = [f"{count} columns are called {name!r}" for name, count in Counter(names).items() if count > 1]
    return [f"{note}: options name them by their numbers, from 0" for note in twice[:_TOLD]]


def _tell_categories(parts: FileContents) -> list[str]:
    counts = [(one.name, len(set(one.values.tolist()))) for one in parts.categories]
    many = [(name, count) for name, count in counts if count > _CATEGORIES]
    return [f"column {name!r} becomes {count:,} features: is it one of categories?" for name, count in many[:_TOLD]]


def _tell_codes(points: Floats, names: Sequence[str], low: Floats, high: Floats) -> list[str]:
    """Return notes of values at an end of a feature that may mean missing."""
    often = np.zeros((2, len(names)), np.int64)
    for rows in _blocks(points):
        often += [(points[rows] == end).sum(axis=0) for end in (low, high)]
    found = []
    for j, name in enumerate(names):
        ends = zip((low[j], high[j]), often[:, j], strict=True)
        if low[j] < high[j] and any(count >= _OFTEN[_kind(value)] for value, count in ends):
            found += _find_codes(name, points[:, j][~np.isnan(points[:, j])])
    more = [f"{len(found) - _TOLD} more columns have values that may be missing"] if len(found) > _TOLD else []
    return found[:_TOLD] + more


def _kind(value: float) -> str:
    return "zero" if value == 0 else "code" if _CODE.fullmatch(f"{value:g}") else "other"


def _find_codes(name: str, column: Floats) -> list[str]:
    """Return notes of one column; what was found is left out before the next is looked for."""
    notes = list[str]()
    for _ in range(_ROUNDS):
        told = next(filter(None, (_tell_code(name, column, end) for end in (column.max(), column.min()))), None)
        if told is None:
            break
        note, column = told
        notes.append(note)
    return notes


def _tell_code(name: str, column: Floats, value: float) -> tuple[str, Floats] | None:
    """Return a note of a value and the rest of the column, None if the value is not suspicious."""
    rest, kind = column[column != value], _kind(value)
    count = len(column) - len(rest)
    if count < _OFTEN[kind] or count > len(rest) or len(rest) < 2:
        return None
    if kind == "other" and len(np.unique(rest)) < _DISTINCT:
        return None
    spread = float(rest.std())
    distance = abs(value - float(rest.mean())) / spread if spread else np.inf
    gap = float(np.abs(rest - value).min())
    rows = f"in {count:,} row{'s' * (count != 1)}: missing? Then leave such fields empty"
    if kind == "code" and -10 < value < 0 <= rest.min():
        return f"column {name!r}: {value:g} is the only value below 0, {rows}", rest
    if distance >= _FAR[kind] and gap >= spread * (1 if kind != "other" else 3) and np.isfinite(distance):
        return f"column {name!r}: {value:g} is {distance:.0f} standard deviations from the rest, {rows}", rest
    return None


def _tell_equal_rows(parts: FileContents) -> list[str]:
    """Return a note of rows that are equal in all features, label and device, unless chance explains them."""
    points = parts.points
    marks = np.zeros(len(points), np.uint64)
    odd = 2 * np.random.default_rng(0).integers(2**62, size=points.shape[1] + 1, dtype=np.uint64) + 1
    for rows in _blocks(points):
        bits = (points[rows] + 0.0).astype(np.float64).view(np.uint64)
        bits ^= bits >> np.uint64(29)
        marks[rows] = (bits * odd[1:]).sum(axis=1, dtype=np.uint64)
    for raw in (parts.label, parts.device):
        if raw is not None:
            marks = marks * odd[0] + np.fromiter(map(hash, raw.tolist()), np.int64, len(raw)).view(np.uint64)
    marks.sort()
    count = int((marks[1:] == marks[:-1]).sum())
    if not count or points.shape[1] < 2 or parts.categories:
        return []
    sample = points[:: max(len(points) // _SAMPLE, 1)]
    combinations = np.prod([float(len(np.unique(column))) for column in sample.T])
    if count <= _CHANCE * len(points) ** 2 / 2 / combinations:
        return []
    return [f"{count:,} of {len(points):,} rows are equal to another one: were they copied?"]
