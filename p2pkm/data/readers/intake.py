"""Columns of text and Arrow files: selection of features, conversion to numbers, and missing values."""

import csv
import io
import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.identifiers import MISSING

# Statistics that a run computes by messages to fill in missing values.
FILLING = ("mean", "median")
# Treatments of missing values.
ANSWERS = ("refuse", "drop", *FILLING)
_BOOLEANS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T]\d.*)?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d.*)?")
# Largest number of distinct texts with which a message suggests that a column contains categories.
_CATEGORIES = 30
# Also matches -31 at the end of the date 2026-01-31, which the substitution leaves unchanged.
_ZONE = re.compile(r"\s*(?:(?:UTC|GMT|Z)|([+-]\d\d(?::?\d\d)?))$")
_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)


class ColumnOptions(NamedTuple):
    """Options for the columns of a file.

    Attributes
    ----------
    columns : tuple of str
        Features, by name or index; empty: all columns except label and device.
    drop : tuple of str
        Columns to ignore.
    encode : tuple of str
        Columns of categories, which become one feature of 0 and 1 each, or of dates, which become days since
        1970-01-01.
    missing : {"refuse", "drop", "mean", "median"}
        Treatment of missing values: an error, removal of their rows, or NaN, which a run fills in by messages.
    header : {"auto", "yes", "no"}
        Whether the first row of a text file contains the column names.
    """

    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    encode: tuple[str, ...] = ()
    missing: str = "refuse"
    header: str = "auto"

    @classmethod
    def of(cls, columns: str | None, drop: str | None, encode: str | None, **options: str) -> "ColumnOptions":
        """Build the options from comma-separated lists of names, and the other fields as keyword arguments."""
        return cls(split_names(columns), split_names(drop), split_names(encode), **options)

    @property
    def fills(self) -> bool:
        """Whether a run fills in missing values."""
        return self.missing in FILLING

    @property
    def named(self) -> set[str]:
        """All columns that the options name."""
        return {*self.columns, *self.drop, *self.encode}


class RowLocations(NamedTuple):
    """Locations of the rows of a table in messages: line numbers of a text file, or row numbers.

    Attributes
    ----------
    unit : {"line", "row"}
        Unit of the numbers.
    numbers : sequence of int, or an object with a length and items
        Number of each row.
    """

    unit: str
    numbers: Any

    def describe(self, row: int) -> str:
        """Return the location of a row, such as "line 3"."""
        return f"{self.unit} {self.numbers[row]}"

    @property
    def number_format(self) -> str:
        """Description of the expected format of numbers."""
        text_format = "a number with a decimal point, and fields separated by comma, tab or semicolon"
        return text_format if self.unit == "line" else "a number"


class Problem(NamedTuple):
    """Reason why a column cannot be a feature.

    Attributes
    ----------
    text : str
        Problem with its location and the expected content.
    remedy : str
        Ways to fix it.
    """

    text: str
    remedy: str


# Default options, for tables whose columns other than label and device are complete features.
TIDY = ColumnOptions()


class Categories(NamedTuple):
    """Column of categories, which becomes one feature per category.

    Attributes
    ----------
    name : str
        Name of the column.
    values : array[m] of str
        Category of each row; empty if missing.
    """

    name: str
    values: NDArray[Any]


def split_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return names of columns, given as a list, or as text in which commas separate them.

    In text, a name with a comma is in quotes, as in a CSV file: ``age,"weight, kg"``.
    """
    if names is None or isinstance(names, str):
        fields = next(csv.reader([names or ""], skipinitialspace=True), [])
        return tuple(name.strip() for name in fields if name.strip())
    return tuple(names)


def join_names(names: Sequence[str]) -> str:
    """Return text from which `split_names` reads the same names."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def to_number(field: str) -> float:
    """Convert a field to a number as other programs do: unlike for `float`, 1_000 and non-ASCII digits are text."""
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


def read_column(name: str, fields: Sequence[str], locations: RowLocations, encode: bool) -> Any:
    """Convert the fields of a column to numbers, float64[m] with NaN for missing values, or to categories.

    Parameters
    ----------
    name : str
        Name of the column.
    fields : sequence of str
        Field of each row.
    places : RowLocations
        Locations of the rows in messages.
    encode : bool
        Whether the column contains categories or dates.

    Returns
    -------
    float64[m], Categories or Problem
    """
    known = [at for at, field in enumerate(fields) if field.lower() not in MISSING]
    if encode:
        if not _are_dates([fields[at] for at in known]):
            present = set(known)
            return Categories(name, np.array([field if at in present else "" for at, field in enumerate(fields)]))
        days = _read_days(name, fields, known, locations)
        return days if isinstance(days, Problem) else _fill(len(fields), known, days)
    wrong = [at for at in known if not is_number(fields[at])]
    if not wrong:
        numbers = [to_number(fields[at]) for at in known]
        endless = next((at for at, number in zip(known, numbers, strict=True) if not math.isfinite(number)), None)
        if endless is None:
            return _fill(len(fields), known, numbers)
        place = f"{locations.describe(endless)}, column {name!r} is {fields[endless]!r}"
        return Problem(f"{place}; expected a finite number", f"Remove such lines, or use --drop {name}")
    if len(wrong) == len(known) and all(fields[at].lower() in _BOOLEANS for at in known):
        return _fill(len(fields), known, [_BOOLEANS[fields[at].lower()] for at in known])
    place = f"{locations.describe(wrong[0])}, column {name!r} is {fields[wrong[0]]!r}"
    return _explain_text(name, [fields[at] for at in known], place, locations.number_format, len(wrong))


def _fill(m: int, known: list[int], numbers: list[float]) -> NDArray[np.float64]:
    column = np.full(m, np.nan)
    column[known] = numbers
    return column


def _are_dates(fields: list[str]) -> bool:
    """Return whether all fields are dates such as 2026-01-31, possibly followed by a time."""
    # Rejects other texts that begin with a date, such as 2026-01-31B, and codes of eight digits.
    if not fields or not all(_ISO.fullmatch(field) for field in fields):
        return False
    try:
        return all(date.fromisoformat(day) for day in {field[:10] for field in fields})
    except ValueError:
        return False


def _read_days(name: str, fields: Sequence[str], known: list[int], locations: RowLocations) -> list[float] | Problem:
    """Convert dates and times to days since 1970-01-01; times with a time zone are converted to UTC."""
    memo: dict[str, tuple[float, bool] | None] = {}
    days: list[float] = []
    for at in known:
        if fields[at] not in memo:
            memo[fields[at]] = _read_moment(fields[at])
        moment = memo[fields[at]]
        if moment is None or moment[1] != (memo[fields[known[0]]] or moment)[1]:
            what = "a time that cannot be read" if moment is None else (
                f"a time {'with' if moment[1] else 'without'} a time zone, unlike {fields[known[0]]!r}")  # fmt: skip
            text = f"{locations.describe(at)}, column {name!r} is {fields[at]!r}, {what}"
            return Problem(
                f"{text}; expected times such as 2026-01-31 18:00:00, all with or all without a zone such as +01:00",
                f"Correct the fields, or use --drop {name}",
            )
        days.append(moment[0])
    return days


def _read_moment(field: str) -> tuple[float, bool] | None:
    """Convert a time to days since 1970-01-01; return them and whether the time has a zone, or None if not a time."""
    try:
        moment = datetime.fromisoformat(_ZONE.sub(lambda zone: zone[1] or "+00:00", field))
    except ValueError:
        return None
    zoned = moment.tzinfo is not None
    return (moment - (_EPOCH.replace(tzinfo=UTC) if zoned else _EPOCH)) / _DAY, zoned


def _explain_text(name: str, known: list[str], place: str, number_format: str, wrong: int) -> Problem:
    """Describe the problem of a column in which `wrong` of the known fields are not numbers."""
    number = f"{place}; expected {number_format}"
    if all(_DATE.fullmatch(field) for field in known):
        way = (
            f"Use --encode {name} for days since 1970-01-01"
            if _are_dates(known)
            else f"Write dates as 2026-01-31 and use --encode {name}"
        )
        return Problem(f"{place}, a date; expected a number", f"{way}, or use --drop {name}")
    if any(is_number(field.replace(",", ".")) for field in known):
        return Problem(number, f"Correct the fields that are not numbers ({wrong:,}), or use --drop {name}")
    count = len(set(known))
    role = f"--label-column {name} or --device-column {name}"
    if count <= _CATEGORIES and 2 * count <= len(known):
        return Problem(
            f"{place}, one of {count} categories; expected a number", f"Use --encode {name}, --drop {name}, {role}"
        )
    return Problem(number, f"Use --encode {name}, --drop {name}, {role}")


def raise_problems(where: str, problems: Sequence[Problem], total: int) -> None:
    """Raise an error that lists the problems of all columns.

    Raises
    ------
    DataError
        If there is a problem.
    """
    if len(problems) == 1:
        raise DataError(f"{where}, {problems[0].text}. {problems[0].remedy}")
    if problems:
        lines = "".join(f"\n  {problem.text}. {problem.remedy}" for problem in problems)
        raise DataError(f"{where}: {len(problems)} of {total} columns cannot be features:{lines}")


def mark_missing(
    names: Sequence[str], columns: Sequence[NDArray[np.float64] | Categories], locations: RowLocations, *, fill: bool
) -> tuple[NDArray[np.bool_], list[Problem]]:
    """Mark the complete rows, bool[m], and list the columns with missing values as problems.

    If values are filled in (`fill`), only columns without any value are problems.
    """
    complete = np.ones(len(locations.numbers), np.bool_)
    problems = list[Problem]()
    for name, column in zip(names, columns, strict=True):
        lost = column.values == "" if isinstance(column, Categories) else np.isnan(column)
        complete &= ~lost
        if lost.all() if fill else lost.any():
            count = f"{int(lost.sum()):,} of {len(lost):,} rows"
            text = f"{locations.describe(int(lost.argmax()))}, column {name!r} is empty, in {count}; expected a value"
            remedy = (
                ""
                if lost.all()
                else "--missing drop to remove such rows, --missing mean or median to fill them in, or "
            )
            problems.append(Problem(text, f"Use {remedy}--drop {name} to remove the column"))
    return complete, problems


def one_hot(categories: Sequence[Categories]) -> tuple[list[NDArray[np.float64]], tuple[str, ...]]:
    """Encode categories as columns of 0 and 1, sorted by category; return them and their names, such as ``ward=icu``.

    Missing categories are NaN in all columns.
    """
    columns = list[NDArray[np.float64]]()
    names = list[str]()
    for column in categories:
        for value in np.unique(column.values[column.values != ""]):
            columns.append(np.where(column.values == "", np.nan, column.values == value))
            names.append(f"{column.name}={value}")
    return columns, tuple(names)
