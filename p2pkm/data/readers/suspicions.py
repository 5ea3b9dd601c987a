"""Notes on suspicious contents of a table; the data are not changed.

Detected are constant columns, numeric identifiers, codes of missing values, duplicate rows, duplicate column names,
columns with many categories, and points that may separate thousands.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from p2pkm.data.identifiers import is_missing
from p2pkm.data.readers.columns import FileContents
from p2pkm.data.readers.intake import TIDY, ColumnOptions

Floats = NDArray[np.float64]

# Day of the value 0 in a column of dates, and the first and last day of Python.
_EPOCH = date(1970, 1, 1)
_DAYS = ((date.min - _EPOCH).days, (date.max - _EPOCH).days)
# Numbers per block: 1 MB, which fits in the cache of a processor.
_BLOCK = 1 << 17
# Largest number of columns in a note, and of notes of a kind.
_LISTED = 5
# Smallest number of rows with which a column of distinct integers is suspicious, and with which it is if its name is
# that of an identifier.
_ROWS = 20
_FEW = 5
# m draws from n numbers with m^2 > 14 n are all distinct with a probability of less than 0.001 (birthday problem).
_BIRTHDAYS = 14.0
_NUMBERED = re.compile(r"(?i:(?:^|[^a-z])(?:id|nr|no|number|nummer|key|index|idx)(?:$|[^a-z]))|[a-z]I[Dd]$")
# Number of categories of a column above which it is suspicious.
_CATEGORIES = 100
# Duplicate rows are suspicious if they are more than this multiple of the number expected by chance.
_CHANCE = 5
# Rows from which the number of distinct values of a feature is estimated.
_SAMPLE = 10_000
# Usual codes of missing values, such as 99, -999, 8888 and -1.
_CODE = re.compile(r"-?(9{2,}|8{3,}|7{3,}|9{2,}\.9+)|-[189]")
# Smallest distance of a code from the mean of the other values, in their standard deviations, by kind of value.
_FAR = {"code": 4.0, "zero": 3.0, "other": 6.0}
# Smallest number of rows with a code, by kind of value.
_OFTEN = {"code": 1, "zero": 2, "other": 3}
# Smallest number of distinct other values: with fewer, an extreme value may be a grade on a scale.
_DISTINCT = 20
# Largest number of codes that are searched for in a column.
_ROUNDS = 3
# Number with a point before three digits, and number of up to three digits.
_DOTTED = re.compile(r"-?[1-9][0-9]{0,2}\.[0-9]{3}")
_SHORT = re.compile(r"-?[0-9]{1,3}")


def find_suspicions(parts: FileContents, intake: ColumnOptions = TIDY) -> tuple[str, ...]:
    """List notes on suspicious columns and rows of a table.

    Parameters
    ----------
    parts : FileContents
        Table to examine.
    intake : ColumnOptions
        Options with which it was read.
    """
    points = parts.points
    names = parts.names or tuple(map(str, range(parts.points.shape[1])))
    if not len(points):
        return ()
    low, high = _find_range(points)
    is_integer = _find_integers(points)
    constant = [names[j] for j in np.flatnonzero(low == high)] if len(points) > 1 else []
    candidates = np.flatnonzero(is_integer & (high - low >= len(points) - 1)).tolist()
    without_dates = [j for j in candidates if names[j] not in set(intake.encode)]
    numbering = [names[j] for j in without_dates if are_numbered(names[j], points[:, j])]
    notes = [*_note_names((*names, *(column.name for column in parts.categories))), *_note_categories(parts)]
    notes += _note_dates(names, low, high, intake)
    if constant:
        notes.append(f"{_list_columns(constant, 'is', 'are')} constant: consider --drop {constant[0]}")
    if numbering:
        notes.append(
            f"{_list_columns(numbering, 'has', 'have')} a different value in every row, as an identifier: consider "
            f"--drop {numbering[0]}"
        )
    suspicious, na = find_codes(points, names)
    notes += [write_code(*code, na) for code in suspicious[:_LISTED]]
    more = len({code[0] for code in suspicious[_LISTED:]})
    notes += [f"{more} more columns have values that may be missing"] if more else []
    return (*notes, *_note_equal_rows(parts))


def find_codes(points: Floats, names: Sequence[str]) -> tuple[list[tuple[str, float, str]], list[float]]:
    """Find extreme values of features that may be codes of missing values.

    Parameters
    ----------
    points : float64[m, d]
    names : sequence of str, length d

    Returns
    -------
    suspicious : list of (str, float, str)
        Name of the feature, value, and why it is suspicious.
    na : list of float
        Usual codes, such as -99, that are suspicious in every feature with this value: ``--na`` applies to all columns.
    """
    low, high = _find_range(points)
    often = np.zeros((2, len(names)), np.int64)
    for rows in _blocks(points):
        often += [(points[rows] == end).sum(axis=0) for end in (low, high)]
    suspicious = list[tuple[int, float, str]]()
    for j in range(len(names)):
        ends = zip((low[j], high[j]), often[:, j], strict=True)
        if low[j] < high[j] and any(count >= _OFTEN[_kind(value)] for value, count in ends):
            suspicious += [(j, *code) for code in _find_codes(points[:, j][~np.isnan(points[:, j])])]
    columns_of: dict[float, set[int]] = {}
    for j, value, _ in suspicious:
        columns_of.setdefault(value, set()).add(j)
    na = [value for value, columns in columns_of.items() if _kind(value) == "code" and
          columns.issuperset(np.flatnonzero((points == value).any(axis=0)).tolist())]  # fmt: skip
    return [(names[j], value, why) for j, value, why in suspicious], na


def write_code(name: str, value: float, why: str, na: Sequence[float]) -> str:
    """Write the note on a value that may mean missing; the arguments are from `find_codes`."""
    way = f"use --na {value:g}" if value in na else "leave such fields empty"
    return f"column {name!r}: {value:g} is {why}: if it means missing, {way}"


def may_have_thousands(fields: Sequence[str]) -> bool:
    """Return whether all points in a column may separate thousands: numbers without a point have at most 3 digits."""
    return all(_DOTTED.fullmatch(field) or _SHORT.fullmatch(field) for field in fields if not is_missing(field))


def note_thousands(name: str, fields: Sequence[str]) -> str:
    """Return a note on a column that mixes numbers such as 7.400 and 980; empty for other columns."""
    dotted = next((field for field in fields if _DOTTED.fullmatch(field)), None)
    short = next((field for field in reversed(fields) if field.isdecimal()), None)
    if dotted is None or short is None or not may_have_thousands(fields):
        return ""
    return f"column {name!r} mixes {dotted} and {short}: if the points separate thousands, remove them from the file"


def _blocks(points: Floats) -> Iterator[slice]:
    step = max(_BLOCK // max(points.shape[1], 1), 1)
    return (slice(first, first + step) for first in range(0, len(points), step))


def _list_columns(names: Sequence[str], singular: str, plural: str) -> str:
    """List columns for a note, followed by the singular or plural form of a verb."""
    listed = ", ".join(map(repr, names[:_LISTED])) + (
        f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    )
    return f"column {listed} {singular}" if len(names) == 1 else f"columns {listed} {plural}"


def _find_range(points: Floats) -> tuple[Floats, Floats]:
    """Compute minimum and maximum of each feature, float64[d], ignoring missing values."""
    parts = [(np.fmin.reduce(points[rows]), np.fmax.reduce(points[rows])) for rows in _blocks(points)]
    low, high = (np.array(ends, np.float64) for ends in zip(*parts, strict=True))
    return np.fmin.reduce(low), np.fmax.reduce(high)


def _find_integers(points: Floats) -> NDArray[np.bool_]:
    """Mark the features of integers, bool[d]; reading of a feature ends with the first block that has a fraction."""
    is_integer = np.ones(points.shape[1], np.bool_)
    for rows in _blocks(points):
        left = np.flatnonzero(is_integer)
        if not len(left):
            break
        block = points[rows] if len(left) == len(is_integer) else points[rows][:, left]
        is_integer[left] = (block == np.floor(block)).all(axis=0)
    return is_integer


def are_numbered(name: str, column: Floats) -> bool:
    """Return whether integers look like row identifiers: all distinct, which is unlikely for measurements."""
    m = len(column)
    steps = np.diff(np.sort(column))
    if m < _FEW or not steps.all():
        return False
    span = float(steps.sum()) + 1
    order = np.diff(column)
    ordered = m >= _ROWS and bool((order > 0).all() or (order < 0).all())
    dense = m >= _ROWS and m * m > _BIRTHDAYS * span
    return ordered or dense or _NUMBERED.search(name) is not None


def _note_names(names: Sequence[str]) -> list[str]:
    repeated = [f"{count} columns have the name {name!r}" for name, count in Counter(names).items() if count > 1]
    return [f"{note}: use their numbers in options, counted from 0" for note in repeated[:_LISTED]]


def _note_categories(parts: FileContents) -> list[str]:
    """List notes on columns with many categories, or with few rows per category, such as names."""
    notes = list[str]()
    for column in parts.categories:
        known = [value for value in column.values.tolist() if value]
        count = len(set(known))
        if count > _CATEGORIES or (len(known) >= _FEW and 2 * count > len(known)):
            notes.append(
                f"column {column.name!r} becomes {count:,} features of {len(known):,} rows: check that it contains "
                f"categories; --drop {column.name} removes it, and --keep {column.name} copies it to labels.csv instead"
            )
    return notes[:_LISTED]


def _note_dates(names: Sequence[str], low: Floats, high: Floats, intake: ColumnOptions) -> list[str]:
    """List a note per column of dates whose order was given: its first and last day show a wrong order or century."""
    if intake.dates in ("iso", "none"):
        return []
    notes = list[str]()
    for name, first, last in zip(names, low.tolist(), high.tolist(), strict=True):
        if name in intake.encode and _DAYS[0] <= first <= last <= _DAYS[1]:
            days = f"{_EPOCH + timedelta(first)} to {_EPOCH + timedelta(last)}"
            notes.append(f"dates of column {name!r} are from {days}, read with --dates {intake.dates}")
    return notes[:_LISTED]


def _kind(value: float) -> str:
    if value == 0:
        return "zero"
    return "code" if _CODE.fullmatch(f"{value:g}") else "other"


def _find_codes(column: Floats) -> list[tuple[float, str]]:
    """List suspicious values of one column and why they are; each is removed before the next search."""
    codes = list[tuple[float, str]]()
    for _ in range(_ROUNDS):
        ends = (float(column.max()), float(column.min()))
        found = next(((end, why) for end in ends if (why := _explain_code(column, end))), None)
        if found is None:
            break
        codes.append(found)
        column = column[column != found[0]]
    return codes


def _explain_code(column: Floats, value: float) -> str:
    """Return why a value of a column is suspicious; empty if it is not."""
    rest = column[column != value]
    kind = _kind(value)
    count = len(column) - len(rest)
    if count < _OFTEN[kind] or count > len(rest) or len(rest) < 2:
        return ""
    if kind == "other" and len(np.unique(rest)) < _DISTINCT:
        return ""
    spread = float(rest.std())
    distance = abs(value - float(rest.mean())) / spread if spread else np.inf
    gap = float(np.abs(rest - value).min())
    rows = f"in {count:,} row{'s' * (count != 1)}"
    if kind == "code" and -10 < value < 0 <= rest.min():
        return f"the only value below 0, {rows}"
    if distance >= _FAR[kind] and gap >= spread * (1 if kind != "other" else 3) and np.isfinite(distance):
        return f"{distance:.0f} standard deviations from the rest, {rows}"
    return ""


def _note_equal_rows(parts: FileContents) -> list[str]:
    """Return a note on rows that are equal in all features, label and device, unless chance explains their number."""
    points = parts.points
    # Rows are compared by 64-bit hashes: a sum of mixed bits times odd random factors, one per column.
    hashes = np.zeros(len(points), np.uint64)
    odd = 2 * np.random.default_rng(0).integers(2**62, size=points.shape[1] + 1, dtype=np.uint64) + 1
    for rows in _blocks(points):
        bits = (points[rows] + 0.0).astype(np.float64).view(np.uint64)
        bits ^= bits >> np.uint64(29)
        hashes[rows] = (bits * odd[1:]).sum(axis=1, dtype=np.uint64)
    for raw in (parts.label, parts.device):
        if raw is not None:
            hashes = hashes * odd[0] + np.fromiter(map(hash, raw.tolist()), np.int64, len(raw)).view(np.uint64)
    hashes.sort()
    count = int((hashes[1:] == hashes[:-1]).sum())
    if not count or points.shape[1] < 2 or parts.categories:
        return []
    sample = points[:: max(len(points) // _SAMPLE, 1)]
    combinations = np.prod([float(len(np.unique(column))) for column in sample.T])
    if count <= _CHANCE * len(points) ** 2 / 2 / combinations:
        return []
    return [f"{count:,} of {len(points):,} rows repeat an earlier row: check for copies"]
