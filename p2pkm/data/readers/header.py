"""Names of the columns of a text file: whether the first row holds them.

A first row with text above numbers is names. Numbers, such as wavelengths or years, are names if they differ from
what is below in ways in which a point hardly does; see `are_names`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from p2pkm.data.identifiers import is_missing
from p2pkm.data.readers.columns import DEVICE_NAMES, INDEX, LABEL_NAMES
from p2pkm.data.readers.intake import is_number

HEADERS = ("auto", "yes", "no")
_SHARE = 0.1  # of the rows below may look like names, too
_STEPS = 5  # columns from which on numbers with one step between them are names whatever is below
_ASCENDING = 8  # columns from which on ascending or descending numbers are
_VERY = 10.0  # ranges of the values below
_YEARS = (1900, 2100)
_TOLD = 3  # fields in a note


def find_header(top: Sequence[str], below: Sequence[Sequence[str]], wanted: set[str]) -> tuple[bool, str]:
    """Return whether the first row holds names, and a note where this is a guess.

    Parameters
    ----------
    top : sequence of str
        Fields of the first row.
    below : sequence of sequence of str
        Fields of the following rows.
    wanted : set of str
        Columns that the user names.
    """
    numbers = [j for j, field in enumerate(top) if is_number(field)]
    if len(numbers) < len(top) and _has_names(top, below[0] if below else (), wanted):
        return True, ""
    if not below or any(len(row) != len(top) for row in below):
        return False, ""
    if not are_names([top[j] for j in numbers], [[row[j] for j in numbers] for row in below]):
        return False, ""
    fields = ", ".join(top[:_TOLD]) + ", ..." * (len(top) > _TOLD)
    return True, f"the first row ({fields}) is read as the names of the columns; --header no reads it as a point"


def name_columns(top: Sequence[str]) -> list[str]:
    """Return names of columns: row numbers that pandas or R wrote in front get that which pandas gives them elsewhere.

    A column without a name is called by its number.
    """
    rest = list(top[1:])
    counted = rest == [str(j) for j in range(len(rest))] or not any(map(is_number, rest))
    index = counted and bool(rest) and top[0] in ("", "Unnamed: 0")
    return [INDEX if index and j == 0 else name or str(j) for j, name in enumerate(top)]


def _has_names(top: Sequence[str], second: Sequence[str], wanted: set[str]) -> bool:
    """Tell names from a first point with text in it, like 5.1,3.5,setosa: text stands below the text, too."""
    texts = [j for j, field in enumerate(top) if not is_number(field)]
    if len(texts) == len(top) or not second:
        return True
    known = {*LABEL_NAMES, *DEVICE_NAMES, *wanted}
    named = any(top[j] in known or top[j].lower() in known for j in texts)
    return named or any(j >= len(second) or is_number(second[j]) for j in texts)


def are_names(top: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether a first row of numbers is names of columns, by the rows below.

    It is if a column below is text in every row (of two or more), or if its numbers ascend or descend, and

    * all are whole, at most one in ten below is, and all are far from what is below; or
    * they have one step between them, which at most one in ten rows below has, and are whole above fractions, far from
      what is below, years, or five or more; or
    * at most one in ten rows below ascends or descends, and they are far from what is below, or eight or more; or
    * they are three or more, and ten times as far from what is below.

    Far is: further from the values below than these from each other, in every column.
    """
    columns = [[row[j] for row in below] for j in range(len(top))]
    if len(below) > 1 and any(all(_is_word(field) for field in column) for column in columns):
        return True
    if len(top) < 2 or len(below) < 2 or any(_is_word(field) for column in columns for field in column):
        return False
    first = np.array(top, np.float64)
    rows = np.array([[np.nan if is_missing(field) else float(field) for field in row] for row in below])
    if not _ascend(first) or not np.isfinite(first).all() or np.isnan(rows).all(axis=0).any():
        return False
    whole = all(field.lstrip("+-").isdecimal() for field in top) and bool(_fractions(rows).all())
    far = _is_far(first, rows)
    if (whole and far) or (len(top) > 2 and _has_step(first) and _are_rare(rows, _has_step)
                           and (whole or far or len(top) >= _STEPS or _are_years(first))):  # fmt: skip
        return True
    rare = _are_rare(rows, _ascend) and (far or len(top) >= _ASCENDING)
    return len(top) > 2 and (rare or _is_far(first, rows, _VERY))


def _is_word(field: str) -> bool:
    return not is_missing(field) and not is_number(field)


def _ascend(row: NDArray[np.float64]) -> bool:
    steps = np.diff(row)
    return bool((steps > 0).all() or (steps < 0).all())


def _has_step(row: NDArray[np.float64]) -> bool:
    steps = np.diff(row)
    return bool(steps[0] != 0 and np.allclose(steps, steps[0], rtol=1e-6, atol=0.0))


def _are_rare(rows: NDArray[np.float64], kind: Callable[[NDArray[np.float64]], bool]) -> bool:
    """Return whether at most one in ten rows is of a kind."""
    return sum(map(kind, rows)) <= _SHARE * len(rows)


def _are_years(row: NDArray[np.float64]) -> bool:
    return bool((row == np.floor(row)).all() and _YEARS[0] <= row.min() <= row.max() <= _YEARS[1])


def _fractions(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which columns have hardly any whole number, bool[d]."""
    whole = (rows == np.floor(rows)).sum(axis=0)
    found: NDArray[np.bool_] = whole <= _SHARE * (~np.isnan(rows)).sum(axis=0)
    return found


def _is_far(first: NDArray[np.float64], rows: NDArray[np.float64], times: float = 1.0) -> bool:
    low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
    return bool((np.maximum(low - first, first - high) > times * (high - low)).all())
