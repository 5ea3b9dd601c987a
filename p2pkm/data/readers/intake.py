"""Untidy tables: which columns are features, what their fields mean, and what keeps a column from being one."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.identifiers import MISSING

FILLING = ("mean", "median")  # what a run finds by messages, to fill in missing values
ANSWERS = ("refuse", "drop", *FILLING)  # to missing values
_BOOLEANS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T]\d.*)?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d.*)?")
_CATEGORIES = 30  # different texts up to which a column is taken for one of categories
_ZONE = re.compile(r"\s*(?:(?:UTC|GMT|Z)|([+-]\d\d(?::?\d\d)?))$")  # 2026-01-31 ends like a zone, but is a date
_EPOCH, _DAY = datetime(1970, 1, 1), timedelta(days=1)


class ColumnOptions(NamedTuple):
    """Which columns of a table are features, and what becomes of those that are no numbers.

    Attributes
    ----------
    columns : tuple of str
        The features, by name or index; empty: all but label and device.
    drop, encode : tuple of str
        Columns to leave out; columns of categories, which become a feature of 0 and 1 for each, or of dates, which
        become days since 1970-01-01.
    missing : {"refuse", "drop", "mean", "median"}
        What becomes of missing values: they are refused, their rows are left out, or they are NaN, which a run fills in
        by messages.
    header : {"auto", "yes", "no"}
        Whether the first row of a text file holds names of columns.
    """

    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    encode: tuple[str, ...] = ()
    missing: str = "refuse"
    header: str = "auto"

    @classmethod
    def of(cls, columns: str | None, drop: str | None, encode: str | None, **options: str) -> "Intake":
        """Read lists of names, parted by commas; options: the other fields."""
        return cls(_split(columns), _split(drop), _split(encode), **options)

    @property
    def fills(self) -> bool:
        """Return whether missing values are to be filled in by a run."""
        return self.missing in FILLING

    @property
    def named(self) -> set[str]:
        """Return all columns that are named."""
        return {*self.columns, *self.drop, *self.encode}


class Places(NamedTuple):
    """Where the rows of a table stand, for messages: lines of a text, or rows.

    Attributes
    ----------
    word : str
    numbers : sequence of int, or an object with a length and items
    """

    word: str
    numbers: Any

    def tell(self, at: int) -> str:
        """Return where a row stands."""
        return f"{self.word} {self.numbers[at]}"

    @property
    def form(self) -> str:
        """Return how a number is written there."""
        point = "a number with a decimal point, fields parted by comma, tab or semicolon"
        return point if self.word == "line" else "a number"


class Problem(NamedTuple):
    """What keeps a column from being a feature.

    Attributes
    ----------
    text : str
        What is wrong, and where.
    remedy : str
    """

    text: str
    remedy: str


TIDY = ColumnOptions()  # all columns are features, and no value is missing


class Categories(NamedTuple):
    """A column that becomes a feature for each of its values.

    Attributes
    ----------
    name : str
    values : array[m] of str
        Empty: missing.
    """

    name: str
    values: NDArray[Any]


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def to_number(field: str) -> float:
    """Read a number as other programs would: 1_000 and the digits of other scripts are text."""
    if "_" in field or not field.isascii():
        raise ValueError(field)
    return float(field)


def is_number(field: str) -> bool:
    """Return whether a field is a number."""
    try:
        to_number(field)
    except ValueError:
        return False
    return True


def read_column(name: str, fields: Sequence[str], places: Places, encode: bool) -> Any:
    """Return the numbers of a column, float64[m] with NaN for what is missing; else its categories or its problem.

    Parameters
    ----------
    fields : sequence of str
    places : Places
    encode : bool
        Whether it has been named as one of categories or dates.
    """
    known = [at for at, field in enumerate(fields) if field.lower() not in MISSING]
    if encode:
        if not _are_dates([fields[at] for at in known]):
            present = set(known)
            return Categories(name, np.array([field if at in present else "" for at, field in enumerate(fields)]))
        days = _read_days(name, fields, known, places)
        return days if isinstance(days, Problem) else _fill(len(fields), known, days)
    wrong = [at for at in known if not is_number(fields[at])]
    if not wrong:
        numbers = [to_number(fields[at]) for at in known]
        endless = next((at for at, number in zip(known, numbers, strict=True) if not math.isfinite(number)), None)
        if endless is None:
            return _fill(len(fields), known, numbers)
        place = f"{places.tell(endless)}, column {name!r} is {fields[endless]!r}"
        return Problem(f"{place}; expected a finite number", f"drop such lines, or --drop {name}")
    if len(wrong) == len(known) and all(fields[at].lower() in _BOOLEANS for at in known):
        return _fill(len(fields), known, [_BOOLEANS[fields[at].lower()] for at in known])
    place = f"{places.tell(wrong[0])}, column {name!r} is {fields[wrong[0]]!r}"
    return _explain(name, [fields[at] for at in known], place, places.form, len(wrong))


def _fill(m: int, known: list[int], numbers: list[float]) -> NDArray[np.float64]:
    column = np.full(m, np.nan)
    column[known] = numbers
    return column


def _are_dates(fields: list[str]) -> bool:
    """Return whether all fields begin with a date such as 2026-01-31, and a time follows if anything does."""
    if not fields or not all(_ISO.fullmatch(field) for field in fields):
        return False  # such as 2026-01-31B, or codes of eight digits
    try:
        return all(date.fromisoformat(day) for day in {field[:10] for field in fields})
    except ValueError:
        return False


def _read_days(name: str, fields: Sequence[str], known: list[int], places: Places) -> list[float] | Problem:
    """Return the days of dates and times since 1970-01-01, of times with a time zone those in UTC."""
    memo: dict[str, tuple[float, bool] | None] = {}
    found: list[float] = []
    for at in known:
        if fields[at] not in memo:
            memo[fields[at]] = _read_moment(fields[at])
        moment = memo[fields[at]]
        if moment is None or moment[1] != (memo[fields[known[0]]] or moment)[1]:
            what = "a time that cannot be read" if moment is None else (
                f"a time {'with' if moment[1] else 'without'} a time zone, unlike {fields[known[0]]!r}")  # fmt: skip
            text = f"{places.tell(at)}, column {name!r} is {fields[at]!r}, {what}"
            return Problem(
                f"{text}; expected times such as 2026-01-31 18:00:00, all with or all without a zone such as +01:00",
                f"mend the fields, or --drop {name}",
            )
        found.append(moment[0])
    return found


def _read_moment(field: str) -> tuple[float, bool] | None:
    """Return the days since 1970-01-01, and whether they are those of UTC by a time zone; None: not a time."""
    try:
        moment = datetime.fromisoformat(_ZONE.sub(lambda zone: zone[1] or "+00:00", field))
    except ValueError:
        return None
    zoned = moment.tzinfo is not None
    return (moment - (_EPOCH.replace(tzinfo=UTC) if zoned else _EPOCH)) / _DAY, zoned


def _explain(name: str, known: list[str], place: str, form: str, wrong: int) -> Problem:
    """Return what is wrong with a column of which some fields are no numbers."""
    number = f"{place}; expected {form}"
    if all(_DATE.fullmatch(field) for field in known):
        way = (
            f"--encode {name} for days since 1970-01-01"
            if _are_dates(known)
            else "write dates as 2026-01-31 and --encode them"
        )
        return Problem(f"{place}, a date; expected a number", f"{way}, or --drop {name}")
    if any(is_number(field.replace(",", ".")) for field in known):
        return Problem(number, f"mend the fields ({wrong:,} are no numbers), or --drop {name}")
    found = len(set(known))
    role = "or name it as --label-column or --device-column"
    if found <= _CATEGORIES and 2 * found <= len(known):
        return Problem(
            f"{place}, one of {found} categories; expected a number", f"--encode {name} or --drop {name}, {role}"
        )
    return Problem(number, f"encode or drop the column (--drop {name}), {role}")


def refuse(where: str, problems: Sequence[Problem], total: int) -> None:
    """Refuse a table for all that is wrong with its columns at once.

    Raises
    ------
    DataError
        If there is any problem.
    """
    if len(problems) == 1:
        raise DataError(f"{where}, {problems[0].text}: {problems[0].remedy}")
    if problems:
        listed = "".join(f"\n  {one.text}: {one.remedy}" for one in problems)
        raise DataError(f"{where}: {len(problems)} of its {total} columns are no features as they are:{listed}")


def mark_missing(
    names: Sequence[str], columns: Sequence[NDArray[np.float64] | Categories], places: Places, *, fill: bool
) -> tuple[NDArray[np.bool_], list[Problem]]:
    """Return which rows have all values, bool[m], and what to do about the others, column by column.

    fill: whether values are to be filled in, so that only columns without any value are in the way.
    """
    complete, problems = np.ones(len(places.numbers), np.bool_), list[Problem]()
    for name, column in zip(names, columns, strict=True):
        lost = column.values == "" if isinstance(column, Categories) else np.isnan(column)
        complete &= ~lost
        if lost.all() if fill else lost.any():
            count = f"{int(lost.sum()):,} of {len(lost):,} rows"
            text = f"{places.tell(int(lost.argmax()))}, column {name!r} has no value, in {count}"
            some = "" if lost.all() else "--missing drop leaves such rows out, --missing mean or median fills in, or "
            problems.append(Problem(text, f"{some}--drop {name}"))
    return complete, problems


def one_hot(categories: Sequence[Categories]) -> tuple[list[NDArray[np.float64]], tuple[str, ...]]:
    """Return a column of 0 and 1 for each category of each, in sorted order, and their names, ``ward=icu``.

    NaN where the category is missing.
    """
    columns, names = list[NDArray[np.float64]](), list[str]()
    for one in categories:
        for value in np.unique(one.values[one.values != ""]):
            columns.append(np.where(one.values == "", np.nan, one.values == value))
            names.append(f"{one.name}={value}")
    return columns, tuple(names)
