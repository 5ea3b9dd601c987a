"""Detection of column names in the first row of a text file.

A first row with text above numbers contains names. Numbers in the first row, such as wavelengths or years, are names if
they differ from the rows below in ways that are unlikely for a point; see `are_names`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from p2pkm.data.identifiers import is_missing
from p2pkm.data.readers.columns import DEVICE_NAMES, LABEL_NAMES, ROW_NUMBERS
from p2pkm.data.readers.intake import is_number

# Largest share of the rows below that may look like names, too.
_SHARE = 0.1
# Smallest number of columns with which equally spaced numbers are names regardless of their distance to the rows below.
_STEPS = 5
# The same for ascending or descending numbers.
_ASCENDING = 8
# Distance from the values below, in ranges of these values, at which numbers are names even if many rows are ascending.
_VERY_FAR = 10.0
# Integers in this range may be years.
_YEARS = (1900, 2100)
# Largest number of fields in a note.
_LISTED = 3


def find_header(top: Sequence[str], below: Sequence[Sequence[str]], named_columns: set[str]) -> tuple[bool, str]:
    """Decide whether the first row contains names; return this and a note if it is a guess.

    Parameters
    ----------
    top : sequence of str
        Fields of the first row.
    below : sequence of sequence of str
        Fields of the following rows.
    named_columns : set of str
        Columns that appear in options.
    """
    numbers = [j for j, field in enumerate(top) if is_number(field)]
    if len(numbers) < len(top) and _has_names(top, below[0] if below else (), named_columns):
        return True, ""
    if not below or any(len(row) != len(top) for row in below):
        return False, ""
    fields = ", ".join(top[:_LISTED]) + ", ..." * (len(top) > _LISTED)
    if are_names([top[j] for j in numbers], [[row[j] for j in numbers] for row in below]):
        return True, f"the first row ({fields}) is read as column names; use --header no to read it as a point"
    if _are_counted(top) and list(top) not in list(map(list, below)):
        return False, f"the first row ({fields}) is read as a point; use --header yes to read it as column names"
    return False, ""


def _are_counted(top: Sequence[str]) -> bool:
    """Return whether a row is 0, 1, 2, ... or 1, 2, 3, ..., as numbered columns are called."""
    return list(top) in ([str(j) for j in range(len(top))], [str(j + 1) for j in range(len(top))])


def name_columns(top: Sequence[str]) -> list[str]:
    """Name the columns by the first row; columns without a name get their number.

    A first column of row numbers, as written by pandas or R, gets the name that pandas gives to it in Arrow files, and
    is then ignored.
    """
    rest = list(top[1:])
    counted = rest == [str(j) for j in range(len(rest))] or not any(map(is_number, rest))
    index = counted and bool(rest) and not top[0]
    return [ROW_NUMBERS if index and j == 0 else name or str(j) for j, name in enumerate(top)]


def _has_names(top: Sequence[str], second: Sequence[str], named_columns: set[str]) -> bool:
    """Return whether a first row with text contains names: a first point such as 5.1,3.5,setosa has text below text."""
    texts = [j for j, field in enumerate(top) if not is_number(field)]
    if len(texts) == len(top) or not second:
        return True
    known = {*LABEL_NAMES, *DEVICE_NAMES, *named_columns}
    named = any(top[j] in known or top[j].lower() in known for j in texts)
    return named or any(j >= len(second) or is_number(second[j]) for j in texts)


def are_names(top: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether a first row of numbers contains column names, by comparison with the rows below.

    It does if there are at least two rows below and a column is text in all of them. It also does if its numbers are
    those that pandas gives to columns without names, 0 to d - 1, there are at least three, and at most one in ten rows
    below is equal. It also does if its numbers are ascending or descending and one of these
    conditions holds:

    * All are integers, at most one in ten values below is an integer, and all are far from the values below.
    * There are at least three, equally spaced (as at most one in ten rows below is), and they are integers above
      fractions, far from the values below, years, or at least five.
    * There are at least three, at most one in ten rows below is ascending or descending, and they are far from the
      values below, or at least eight.
    * There are at least three, and they are ten times as far from the values below.

    "Far" means: in every column, the distance to the values below is larger than the range of these values.
    """
    columns = [[row[j] for row in below] for j in range(len(top))]
    if len(below) > 1 and any(all(_is_word(field) for field in column) for column in columns):
        return True
    if len(top) < 2 or len(below) < 2 or any(_is_word(field) for column in columns for field in column):
        return False
    first = np.array(top, np.float64)
    rows = np.array([[np.nan if is_missing(field) else float(field) for field in row] for row in below])
    if len(top) > 2 and list(top) == [str(j) for j in range(len(top))]:
        return _are_rare(rows, lambda row: bool((row == first).all()))
    if not _ascend(first) or not np.isfinite(first).all() or np.isnan(rows).all(axis=0).any():
        return False
    are_integers = all(field.lstrip("+-").isdecimal() for field in top) and bool(_fractions(rows).all())
    far = _is_far(first, rows)
    if (are_integers and far) or (len(top) > 2 and _has_step(first) and _are_rare(rows, _has_step)
                           and (are_integers or far or len(top) >= _STEPS or _are_years(first))):  # fmt: skip
        return True
    rare = _are_rare(rows, _ascend) and (far or len(top) >= _ASCENDING)
    return len(top) > 2 and (rare or _is_far(first, rows, _VERY_FAR))


def _is_word(field: str) -> bool:
    return not is_missing(field) and not is_number(field)


def _ascend(row: NDArray[np.float64]) -> bool:
    steps = np.diff(row)
    return bool((steps > 0).all() or (steps < 0).all())


def _has_step(row: NDArray[np.float64]) -> bool:
    steps = np.diff(row)
    return bool(steps[0] != 0 and np.allclose(steps, steps[0], rtol=1e-6, atol=0.0))


def _are_rare(rows: NDArray[np.float64], kind: Callable[[NDArray[np.float64]], bool]) -> bool:
    """Return whether at most one in ten rows has a property."""
    return sum(map(kind, rows)) <= _SHARE * len(rows)


def _are_years(row: NDArray[np.float64]) -> bool:
    return bool((row == np.floor(row)).all() and _YEARS[0] <= row.min() <= row.max() <= _YEARS[1])


def _fractions(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the columns in which at most one in ten values is an integer, bool[d]."""
    integers = (rows == np.floor(rows)).sum(axis=0)
    mostly_fractions: NDArray[np.bool_] = integers <= _SHARE * (~np.isnan(rows)).sum(axis=0)
    return mostly_fractions


def _is_far(first: NDArray[np.float64], rows: NDArray[np.float64], times: float = 1.0) -> bool:
    low = np.nanmin(rows, axis=0)
    high = np.nanmax(rows, axis=0)
    return bool((np.maximum(low - first, first - high) > times * (high - low)).all())
