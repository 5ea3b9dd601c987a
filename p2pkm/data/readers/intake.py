"""Columns of text and Arrow files: selection of features, conversion to numbers, and missing values."""

import codecs
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.validation import EXACT, check_choice
from p2pkm.data.identifiers import ANSWERS, FILLING, MISSING, compose, join_names
from p2pkm.data.readers.dates import (
    EXAMPLES,
    ORDERS,
    are_times,
    explain_time,
    find_orders,
    read_moment,
    write_orders,
)

# Names of columns: a sequence, or a comma-separated text.
Names = str | Sequence[str]
# Whether the first row of a text file has names.
HEADERS = ("auto", "yes", "no")
# Separators of thousands, and names of separators of fields.
THOUSANDS = (",", ".", " ", "'", "_")
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "space": " ", "pipe": "|"}
# Mark of a number with another decimal separator; files with this character are not read.
_OTHER_DECIMAL = "\0"
# Negative numbers of accounting and of other programs: (5), 5-, and with a minus sign other than the hyphen.
_NEGATIVE = re.compile(r"\([^\d()]?\s?\d[\d.,' ]*\)|\d[\d.,' ]*[-\u2212]|[\u2012\u2013\u2212]\s?\d[\d.,' ]*")
# Errors of formulas in spreadsheets.
_ERRORS = ("#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!")
# Number with a decimal comma, or without a fraction.
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,?\d+([eE][+-]?\d+)?")
_BOOLEANS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
# Largest number of distinct texts that are categories even if they rarely repeat.
CATEGORIES = 30
# Values of `rename` and `skip_rows`.
_RENAMED = re.compile(r"\s*[^=\s][^=]*=.*\S.*")
_SKIPPED = re.compile(r"[0-9]{1,9}|[0-9]{1,9}-[0-9]{1,9}(,[0-9]{1,9}-[0-9]{1,9})*")
# Largest number of texts among numbers that are suggested as missing values.
_MISSING_TEXTS = 3


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
        Decimal separator and separator of thousands in numbers of text files; thousands "": none.
    separator, encoding : str
        Separator of the fields and encoding of text files; "": detected.
    sheet : str
        Name or number of the sheet of a spreadsheet; "": the first.
    dates : {"iso", "ymd", "dmy", "mdy", "none"}
        Order of year, month and day in dates of the columns of `encode`. "iso": only dates that begin with a year of
        four digits, which all orders but "none" read; "none": such texts are categories.
    rename : tuple of str
        Values ``old=new`` of the device, the label and the categories that are replaced, such as two spellings of
        a site.
    skip_rows : str
        Lines of a text file, or rows of a sheet, that are skipped: "3" are the first three, "2-2,5-6" these numbers.
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
    dates: str = "iso"
    rename: tuple[str, ...] = ()
    skip_rows: str = ""

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
        rename = fields.get("rename", ())
        named = [f"{old}={new}" for old, new in rename.items()] if isinstance(rename, Mapping) else rename
        fields["rename"] = split_list(named)
        skip = fields.get("skip_rows", "")
        is_list = isinstance(skip, Iterable) and not isinstance(skip, str)
        fields["skip_rows"] = ",".join(f"{row}-{row}" for row in skip) if is_list else str(skip).replace(" ", "")
        na = fields.get("na", "")
        fields["na"] = na if isinstance(na, str) else ",".join(map(str, na))
        return cls(**fields)._check()

    def _check(self) -> "ColumnOptions":
        check_choice(self.missing, ANSWERS, "missing")
        check_choice(self.header, HEADERS, "header")
        check_choice(self.decimal, (".", ","), "decimal")
        check_choice(self.dates, ORDERS, "dates")
        check_choice(self.thousands, ("", *THOUSANDS), "thousands")
        if self.thousands == self.decimal:
            raise ExperimentError(
                f"thousands and decimal are both {self.decimal!r}; expected two different characters. Use another "
                "--thousands or --decimal"
            )
        separator = SEPARATORS.get(self.separator, self.separator)
        if len(separator) > 1 or separator == '"' or separator.isalnum():
            raise ExperimentError(
                f"separator is {self.separator!r}; expected one character, such as ';' or '|', or one of "
                f"{', '.join(SEPARATORS)}"
            )
        if wrong := [part for part in self.rename if not _RENAMED.fullmatch(part)]:
            raise ExperimentError(f"rename is {wrong[0]!r}; expected OLD=NEW, such as Koeln=Köln")
        if self.skip_rows and not _SKIPPED.fullmatch(self.skip_rows):
            raise ExperimentError(
                f"skip_rows is {self.skip_rows!r}; expected a number of rows at the top, such as 3, or ranges of row "
                "numbers from 1, such as 2-2 or 1-3,5-5"
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

    @property
    def skipped(self) -> list[range]:
        """Line or row numbers to skip, from 1."""
        ends = [part.split("-") for part in self.skip_rows.split(",") if part]
        ranges = [range(int(end[0]) if end[1:] else 1, int(end[-1]) + 1) for end in ends]
        return [numbers for numbers in ranges if numbers]

    @property
    def new_names(self) -> dict[str, str]:
        """New value of each value to rename."""
        pairs = (part.partition("=") for part in self.rename)
        return {compose(old.strip()): compose(new.strip()) for old, _, new in pairs}

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


def to_number(field: str) -> float:
    """Convert a field to a number as other programs do: unlike for `float`, 1_000 and non-ASCII digits are text."""
    if "_" in field or not field.isascii():
        raise ValueError(field)
    return float(field)


def plain_numbers(fields: list[str], intake: ColumnOptions) -> list[str]:
    """Write numbers with the decimal separator and the separators of thousands of a file as plain numbers.

    Other fields, such as 7.4 where points separate thousands, are returned unchanged or, if they would be read as
    another number, after `_OTHER_DECIMAL`.
    """
    if intake.decimal == "." and not intake.thousands:
        return fields
    comma, mark = re.escape(intake.decimal), re.escape(intake.thousands)
    integer = rf"(?:\d{{1,3}}(?:{mark}\d{{3}})+|\d*)" if mark else r"\d*"
    number = re.compile(rf"[+-]?{integer}(?:{comma}\d*)?(?:[eE][+-]?\d+)?")

    def plain(field: str) -> str:
        if number.fullmatch(field):
            return (field.replace(intake.thousands, "") if mark else field).replace(intake.decimal, ".")
        return f"{_OTHER_DECIMAL}{field}" if intake.decimal != "." and "." in field and is_number(field) else field

    return [plain(field) for field in fields]


def is_number(field: str) -> bool:
    """Return whether a field is a number."""
    try:
        to_number(field)
    except ValueError:
        return False
    return True


def read_column(
    name: str,
    fields: Sequence[str],
    locations: RowLocations,
    encode: bool,
    missing: frozenset[str] = MISSING,
    dates: str = "iso",
) -> Any:
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
    dates : {"iso", "ymd", "dmy", "mdy", "none"}
        Order of year, month and day in dates.

    Returns
    -------
    float64[m], Categories or Problem
    """
    known = [at for at, field in enumerate(fields) if field.lower() not in missing]
    if encode:
        if dates == "none" or not are_times(fields[at] for at in known):
            present = set(known)
            return Categories(name, np.array([field if at in present else "" for at, field in enumerate(fields)]))
        days = _read_days(name, fields, known, locations, dates)
        return days if isinstance(days, Problem) else _fill(len(fields), known, days)
    wrong = [at for at in known if not is_number(fields[at])]
    if not wrong:
        numbers = [to_number(fields[at]) for at in known]
        endless = next((at for at, number in zip(known, numbers, strict=True) if not math.isfinite(number)), None)
        if endless is None:
            merged = _find_merged([fields[at] for at in known], numbers)
            if merged is not None:
                return explain_merged(name, *merged)
            return _fill(len(fields), known, numbers)
        place = f"{locations.describe(endless)}, column {name!r} is {fields[endless]!r}"
        return Problem(f"{place}; expected a finite number", f"Remove such lines, or use --drop {name}")
    if len(wrong) == len(known) and all(fields[at].lower() in _BOOLEANS for at in known):
        return _fill(len(fields), known, [_BOOLEANS[fields[at].lower()] for at in known])
    place = f"{locations.describe(wrong[0])}, column {name!r} is {_unmark(fields[wrong[0]])!r}"
    return _explain_text(
        name, [fields[at] for at in known], fields[wrong[0]], place, locations.number_format, len(wrong)
    )


def _find_merged(fields: list[str], numbers: list[float]) -> tuple[str, str] | None:
    """Find two different large numbers that are equal as float64; None if there are none."""
    from decimal import Decimal

    exact: dict[float, Decimal] = {}
    for field, number in zip(fields, numbers, strict=True):
        if abs(number) >= EXACT and exact.setdefault(number, value := Decimal(field)) != value:
            return f"{exact[number]:f}", f"{value:f}"
    return None


def explain_merged(name: str, first: object, second: object) -> Problem:
    """Describe the problem of a column with large numbers that are equal as float64."""
    return Problem(
        f"column {name!r} has {first} and {second}, which are equal as floating-point numbers; expected numbers that "
        "differ in 15 digits",
        f"Use --keep {name} or --drop {name} if it contains identifiers, else subtract a constant",
    )


def explain_categories(
    name: str, fields: Sequence[str], locations: RowLocations, missing: frozenset[str]
) -> NDArray[np.float64] | Problem:  # fmt: skip
    """Describe why a column of declared categories cannot be a feature, also if their names are numbers.

    A column without values is returned as missing numbers, as from `read_column`.
    """
    known = [at for at, field in enumerate(fields) if field.lower() not in missing]
    if not known:
        return np.full(len(fields), np.nan)
    texts = [fields[at] for at in known]
    place = f"{locations.describe(known[0])}, column {name!r} is {texts[0]!r}"
    if are_times(texts):
        return _explain_text(name, texts, texts[0], place, locations.number_format, len(texts))
    return Problem(
        f"{place}, a declared category; expected a number",
        f"Use --encode {name}, --drop {name}, --label-column {name} or --device-column {name}",
    )


def _unmark(field: str) -> str:
    """Return a number without the mark that `plain_numbers` sets before one with another decimal separator."""
    return field.removeprefix(_OTHER_DECIMAL)


def _fill(m: int, known: list[int], numbers: list[float]) -> NDArray[np.float64]:
    column = np.full(m, np.nan)
    column[known] = numbers
    return column


def _read_days(
    name: str, fields: Sequence[str], known: list[int], locations: RowLocations, order: str
) -> list[float] | Problem:
    """Convert dates and times to days since 1970-01-01; times with a time zone are converted to UTC."""
    moments = {field: read_moment(field, order) for field in {fields[at] for at in known}}
    wrong = next((at for at in known if moments[fields[at]] is None), None)
    if wrong is not None:
        return _explain_date(name, [fields[at] for at in known], f"{locations.describe(wrong)}, column {name!r}", order)
    days: list[float] = []
    for at in known:
        moment = moments[fields[at]]
        assert moment is not None
        if moment[1] != (moments[fields[known[0]]] or moment)[1]:
            with_zone = "with" if moment[1] else "without"
            return Problem(
                f"{locations.describe(at)}, column {name!r} is {fields[at]!r}, a time {with_zone} a time zone, unlike "
                f"{fields[known[0]]!r}; expected times such as 2026-01-31 18:00:00, all with or all without a zone "
                "such as +01:00",
                f"Correct the fields, or use --drop {name}",
            )
        days.append(moment[0])
    return days


def _explain_date(name: str, known: list[str], place: str, order: str) -> Problem:
    """Describe the problem of a column of times, of which at least one cannot be read as a date in an order."""
    wrong = [field for field in known if read_moment(field, order) is None]
    what, remedy = explain_time(wrong[0], order)
    orders = find_orders(known)
    kinds = list(dict.fromkeys(wrong))
    drop = f"or use --drop {name}"
    if orders and order not in orders:
        what, remedy = f"not a date of --dates {order}", f"Use {write_orders(orders)}, {drop}"
    elif remedy and not orders:
        remedy = f"{remedy}, use --dates none for one category per text, or --drop {name}"
    elif len(kinds) <= _MISSING_TEXTS:
        meaning = "it means" if len(kinds) == 1 else "they mean"
        correct = f"correct the fields ({len(wrong):,} of {len(known):,})"
        remedy = f"Use --na {shlex.quote(join_names(kinds))} if {meaning} missing, {correct}, {drop}"
    else:
        remedy = f"Correct the fields ({len(wrong):,} of {len(known):,} are not dates), {drop}"
    return Problem(f"{place} is {wrong[0]!r}, {what}; expected {EXAMPLES[order]}", remedy)


def _explain_text(name: str, known: list[str], first: str, place: str, number_format: str, wrong: int) -> Problem:
    """Describe the problem of a column in which `wrong` of the known fields, `first` among them, are not numbers."""
    number = f"{place}; expected {number_format}"
    if are_times(known):
        orders = find_orders(known)
        if not orders:
            what, remedy = explain_time(first, "iso")
            return Problem(
                f"{place}, {what}; expected a number", f"{remedy or 'Correct the fields'}, or use --drop {name}"
            )
        order = "" if "iso" in orders else f" with {write_orders(orders)}"
        return Problem(
            f"{place}, a date; expected a number",
            f"Use --encode {name}{order} for days since 1970-01-01, or use --drop {name}",
        )
    if sum(_unmark(field) != field for field in known) == wrong:
        # Of a file with decimal points only, no other field has a fraction.
        are_points = not any("." in field and _unmark(field) == field for field in known)
        fix = "Use --decimal ." if are_points else f"Correct the fields ({wrong:,} have another decimal separator)"
        return Problem(
            f"{place}; expected a number with the decimal separator of --decimal", f"{fix}, or use --drop {name}"
        )
    if _NEGATIVE.fullmatch(first):
        value = "-" + first.strip("()-\u2012\u2013\u2212 ")
        text = f"{place}, a negative number of another format; expected {value}"
        return Problem(text, f"Write such fields as {value}, or use --drop {name}")
    if first in _ERRORS:
        errors = shlex.quote(",".join(sorted({field for field in known if field in _ERRORS})))
        return Problem(
            f"{place}, the error of a formula in a spreadsheet; expected a number",
            f"Correct the formula, use --na {errors} if it means missing, or use --drop {name}",
        )
    if any(is_number(field.replace(",", ".")) for field in known):
        commas = all(_DECIMAL_COMMA.fullmatch(field) for field in known)
        fix = "Use --decimal ','" if commas else f"{_suggest_na(known)}Correct the fields ({wrong:,} are not numbers)"
        return Problem(number, f"{fix}, or use --drop {name}")
    count = len(set(known))
    role = f"--label-column {name} or --device-column {name}"
    if count <= CATEGORIES and 2 * count <= len(known):
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


def name_indicators(name: str, values: Sequence[str]) -> list[tuple[str, str]]:
    """List category and name, such as ``ward=icu``, of each 0/1 feature of a column with these categories.

    Two categories are one feature, as two would count their difference twice.
    """
    counted = values[1:] if len(values) == 2 else values
    return [(value, f"{name}={value}") for value in counted]


def one_hot(categories: Sequence[Categories]) -> tuple[list[NDArray[np.float64]], tuple[str, ...]]:
    """Encode categories as columns of 0 and 1, sorted by category; return them and their names.

    Missing categories are NaN in all columns.
    """
    columns = list[NDArray[np.float64]]()
    names = list[str]()
    for column in categories:
        for value, name in name_indicators(column.name, np.unique(column.values[column.values != ""]).tolist()):
            columns.append(np.where(column.values == "", np.nan, column.values == value))
            names.append(name)
    return columns, tuple(names)
