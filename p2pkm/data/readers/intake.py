"""Columns of text and Arrow files: selection of features, conversion to numbers, and missing values."""

import codecs
import io
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.validation import check_choice
from p2pkm.data.identifiers import ANSWERS, FILLING, MISSING

# Names of columns: a sequence, or a comma-separated text.
Names = str | Sequence[str]
# Whether the first row of a text file has names.
HEADERS = ("auto", "yes", "no")
# Separators of thousands, and names of separators of fields.
THOUSANDS = (",", ".", " ", "'", "_")
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "space": " ", "pipe": "|"}
# Number with a decimal comma, or without a fraction.
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,?\d+([eE][+-]?\d+)?")
_BOOLEANS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T]\d.*)?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d.*)?")
# Largest number of distinct texts with which a message suggests that a column contains categories.
_CATEGORIES = 30
# Largest number of texts among numbers that are suggested as missing values.
_MISSING_TEXTS = 3
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
    weight_column : str, int or None
        Column of the weight of each point.
    keep : tuple of str
        Columns that are copied to tables of labels, such as an identifier.
    na : str
        Comma-separated texts for missing values in addition to the usual ones; after "=", instead of them.
    decimal, thousands : str
        Decimal sign and separator of thousands in numbers of text files; thousands "": none.
    separator, encoding : str
        Separator of the fields and encoding of text files; "": detected.
    sheet : str
        Name or number of the sheet of a spreadsheet; "": the first.
    """

    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    encode: tuple[str, ...] = ()
    missing: str = "refuse"
    header: str = "auto"
    weight_column: str | int | None = None
    keep: tuple[str, ...] = ()
    na: str = ""
    decimal: str = "."
    thousands: str = ""
    separator: str = ""
    encoding: str = ""
    sheet: str = ""

    @classmethod
    def of(cls, **options: Any) -> "ColumnOptions":
        """Build the options from fields, where lists are sequences or comma-separated texts; None: the default.

        Raises
        ------
        ExperimentError
            If a value is not one of those that an option allows.
        """
        fields = {name: value for name, value in options.items() if value is not None}
        for name in ("columns", "drop", "encode", "keep"):
            fields[name] = split_list(fields.get(name, ()))
        na = fields.get("na", "")
        fields["na"] = na if isinstance(na, str) else ",".join(map(str, na))
        return cls(**fields)._check()

    def _check(self) -> "ColumnOptions":
        check_choice(self.missing, ANSWERS, "missing")
        check_choice(self.header, HEADERS, "header")
        check_choice(self.decimal, (".", ","), "decimal")
        check_choice(self.thousands, ("", *THOUSANDS), "thousands")
        if self.thousands == self.decimal:
            raise ExperimentError(
                f"thousands and decimal are both {self.decimal!r}; expected two signs. Use --thousands or --decimal "
                "with another sign"
            )
        separator = SEPARATORS.get(self.separator, self.separator)
        if len(separator) > 1 or separator == '"' or separator.isalnum():
            raise ExperimentError(
                f"separator is {self.separator!r}; expected one sign, such as ';' or '|', or one of "
                f"{', '.join(SEPARATORS)}"
            )
        if self.encoding:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ExperimentError(
                    f"encoding is {self.encoding!r}; expected the name of a text encoding, such as utf-8, cp1252 or "
                    "latin-1"
                ) from None
        return self._replace(separator=separator, sheet=str(self.sheet))

    @property
    def fills(self) -> bool:
        """Whether a run fills in missing values."""
        return self.missing in FILLING

    @property
    def named(self) -> set[str]:
        """All columns that the options name."""
        weight = () if self.weight_column is None else (str(self.weight_column),)
        return {*self.columns, *self.drop, *self.encode, *self.keep, *weight}

    @property
    def missing_texts(self) -> frozenset[str]:
        """Texts for missing values, in lower case; the empty text is always one."""
        texts = frozenset(text.lower() for text in split_list(self.na.removeprefix("=")))
        return texts | (frozenset([""]) if self.na.startswith("=") else MISSING)

    def mark_numbers(self, column: NDArray[np.float64]) -> NDArray[np.float64]:
        """Replace the numbers among the texts for missing values, such as -99, by NaN."""
        codes = [float(text) for text in self.missing_texts if is_number(text)] if self.na else []
        return np.where(np.isin(column, codes), np.nan, column) if codes else column


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


def split_list(names: str | int | Sequence[Any]) -> tuple[str, ...]:
    """Split a comma-separated text; sequences are returned as tuples of str.

    In text, a name with a comma is in quotes, as in a CSV file: ``age,"weight, kg"``.
    """
    if isinstance(names, str):
        import csv

        fields = next(csv.reader([names], skipinitialspace=True), [])
        return tuple(name.strip() for name in fields if name.strip())
    return tuple(map(str, names)) if isinstance(names, Iterable) else (str(names),)


def join_names(names: Sequence[str]) -> str:
    """Write names as a text from which `split_list` reads the same names."""
    import csv

    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def to_number(field: str) -> float:
    """Convert a field to a number as other programs do: unlike for `float`, 1_000 and non-ASCII digits are text."""
    if "_" in field or not field.isascii():
        raise ValueError(field)
    return float(field)


def plain_numbers(fields: list[str], intake: ColumnOptions) -> list[str]:
    """Write numbers with the decimal sign and the separators of thousands of a file as plain numbers.

    Other fields, such as 7.4 where points separate thousands, are returned unchanged or, if they would be read as
    another number, in brackets.
    """
    if intake.decimal == "." and not intake.thousands:
        return fields
    comma, mark = re.escape(intake.decimal), re.escape(intake.thousands)
    integer = rf"(?:\d{{1,3}}(?:{mark}\d{{3}})+|\d*)" if mark else r"\d*"
    number = re.compile(rf"[+-]?{integer}(?:{comma}\d*)?(?:[eE][+-]?\d+)?")

    def plain(field: str) -> str:
        if number.fullmatch(field):
            return (field.replace(intake.thousands, "") if mark else field).replace(intake.decimal, ".")
        return f"({field})" if intake.decimal != "." and "." in field and is_number(field) else field

    return [plain(field) for field in fields]


def is_number(field: str) -> bool:
    """Return whether a field is a number."""
    try:
        to_number(field)
    except ValueError:
        return False
    return True


def read_column(
    name: str, fields: Sequence[str], locations: RowLocations, encode: bool, missing: frozenset[str] = MISSING
) -> Any:  # fmt: skip
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
    missing : frozenset of str
        Texts for missing values, in lower case.

    Returns
    -------
    float64[m], Categories or Problem
    """
    known = [at for at, field in enumerate(fields) if field.lower() not in missing]
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
    place = f"{locations.describe(wrong[0])}, column {name!r} is {_unmark(fields[wrong[0]])!r}"
    return _explain_text(name, [fields[at] for at in known], place, locations.number_format, len(wrong))


def _unmark(field: str) -> str:
    """Return a number without the brackets in which `plain_numbers` writes one with another decimal sign."""
    return field[1:-1] if field[:1] == "(" and field[-1:] == ")" and is_number(field[1:-1]) else field


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
    if sum(_unmark(field) != field for field in known) == wrong:
        # Of a file with decimal points only, no other field has a fraction.
        are_points = not any("." in field and _unmark(field) == field for field in known)
        fix = "Use --decimal ." if are_points else f"Correct the fields ({wrong:,} have another decimal sign)"
        return Problem(f"{place}; expected a number with the decimal sign of --decimal", f"{fix}, or use --drop {name}")
    if any(is_number(field.replace(",", ".")) for field in known):
        commas = all(_DECIMAL_COMMA.fullmatch(field) for field in known)
        fix = "Use --decimal ','" if commas else f"{_suggest_na(known)}Correct the fields ({wrong:,} are not numbers)"
        return Problem(number, f"{fix}, or use --drop {name}")
    count = len(set(known))
    role = f"--label-column {name} or --device-column {name}"
    if count <= _CATEGORIES and 2 * count <= len(known):
        return Problem(
            f"{place}, one of {count} categories; expected a number", f"Use --encode {name}, --drop {name}, {role}"
        )
    if count == len(known):
        return Problem(number, f"Use --keep {name} to copy it to labels.csv, --drop {name}, {role}")
    return Problem(number, f"Use --encode {name}, --drop {name}, {role}")


def _suggest_na(known: list[str]) -> str:
    """Suggest to read the texts among numbers as missing values; empty if they are many or contain digits."""
    texts = sorted({field for field in known if not is_number(field.replace(",", "."))})
    if len(texts) > _MISSING_TEXTS or any("," in text or any(map(str.isdigit, text)) for text in texts):
        return ""
    return f"Use --na {shlex.quote(','.join(texts))} if they mean missing. "


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
