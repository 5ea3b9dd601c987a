"""Text files of numbers, .csv and .tsv: read by NumPy; looked through line by line where that fails or names occur."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.readers.columns import DEVICE_NAMES, INDEX, LABEL_NAMES, Column, Parts, Roles, assign, take_columns
from p2pkm.data.readers.intake import TIDY, Intake, Places, is_number, read_column, to_number


class Head(NamedTuple):
    """Describe how a file is written.

    Attributes
    ----------
    delimiter : str
        Comma, tab or semicolon.
    names : list of str
        Names of the columns; their indices if there is no header.
    skipped : int
        Lines up to and with the header.
    """

    delimiter: str
    names: list[str]
    skipped: int


def read_text(path: Path, label: Column, device: Column, intake: Intake = TIDY) -> Parts:
    """Read a file of lines with the same number of fields.

    Raises
    ------
    DataError
        If a line is ragged, or columns are no features; the message names lines and columns, and what to do.
    """
    try:
        head = _read_head(path, {str(column) for column in (label, device) if column is not None} | intake.named)
        roles = assign(str(path), head.names, label, device, intake)
        numbers = _load(path, head)
        if numbers is None or not np.isfinite(numbers).all() or roles.encode:
            return _scan(path, head, roles, intake)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as a table of text: {error}") from None
    label_at, device_at = (None if at is None else numbers[:, at] for at in (roles.label, roles.device))
    return Parts(numbers[:, roles.points], label_at, device_at, _features(head, roles))


def _features(head: Head, roles: Roles) -> tuple[str, ...]:
    """Return the names of the features; without a header they have none."""
    return tuple(head.names[j] for j in roles.points) if head.skipped else ()


def _rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of every line that is not blank."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        for fields in reader:
            if any(field.strip() for field in fields) or len(fields) > 1:
                yield reader.line_num, [field.strip() for field in fields]


def _read_head(path: Path, wanted: set[str]) -> Head:
    with path.open(encoding="utf-8-sig") as file:
        first = next((line for line in file if line.strip()), None)
    delimiter = next((mark for mark in ";\t" if first and mark in first), ",")
    rows = _rows(path, delimiter)
    (line, top), (_, second) = next(rows, (0, [])), next(rows, (0, []))
    if not top:
        raise DataError(f"{path} is empty; expected one point per line")
    if not _is_header(top, second, wanted):
        return Head(delimiter, [str(j) for j in range(len(top))], 0)
    if not second:
        raise DataError(f"{path} has a header and no points; expected one point per line below it")
    return Head(delimiter, _name(top), line)


def _name(top: list[str]) -> list[str]:
    """Return names of columns: row numbers that pandas or R wrote in front get that which pandas gives them elsewhere.

    A column without a name is called by its number.
    """
    rest = top[1:]
    counted = rest == [str(j) for j in range(len(rest))] or not any(map(is_number, rest))
    index = counted and bool(rest) and top[0] in ("", "Unnamed: 0")
    return [INDEX if index and j == 0 else name or str(j) for j, name in enumerate(top)]


def _is_header(top: list[str], second: list[str], wanted: set[str]) -> bool:
    """Tell a header from a first point with a name in it, like 5.1,3.5,setosa: names stand below the name, too."""
    texts = [j for j, field in enumerate(top) if not is_number(field)]
    if len(texts) in (0, len(top)) or not second:
        return bool(texts)
    known = {*LABEL_NAMES, *DEVICE_NAMES, *wanted}
    named = any(top[j] in known or top[j].lower() in known for j in texts)
    return named or any(j >= len(second) or is_number(second[j]) for j in texts)


def _load(path: Path, head: Head) -> NDArray[np.float64] | None:
    """Read a file of numbers only, or return None."""
    try:
        numbers = np.loadtxt(
            path,
            delimiter=head.delimiter,
            skiprows=head.skipped,
            comments=None,
            quotechar='"',
            ndmin=2,
            encoding="utf-8-sig",
        )
    except UnicodeDecodeError:
        raise
    except ValueError:
        return None
    return numbers if numbers.shape[1] == len(head.names) else None


def _scan(path: Path, head: Head, roles: Roles, intake: Intake) -> Parts:
    """Read line by line; labels and devices may be names, and features need not be numbers yet."""
    named = [j for j in (roles.label, roles.device) if j is not None]
    fields: dict[int, list[str]] = {j: [] for j in (*roles.points, *named)}
    lines: list[int] = []
    for line, found in _rows(path, head.delimiter):
        if line <= head.skipped:
            continue
        if len(found) != len(head.names):
            raise DataError(
                f"{path}, line {line}: {len(found)} fields, expected {len(head.names)} as in the first line; "
                "mend or drop the line"
            )
        lines.append(line)
        for j, column in fields.items():
            column.append(found[j])
    for j in () if intake.missing == "drop" else named:
        if "" in fields[j]:
            line = lines[fields[j].index("")]
            raise DataError(
                f"{path}, line {line}, column {head.names[j]!r} is empty; expected a value on each line, or --missing "
                "drop, which leaves such lines out"
            )
    places = Places("line", lines)
    columns = [read_column(head.names[j], fields[j], places, encode=j in roles.encode) for j in roles.points]
    kept = np.array([all(fields[j][at] for j in named) for at in range(len(lines))], np.bool_)
    label_at, device_at = (None if at is None else np.array(fields[at]) for at in (roles.label, roles.device))
    parts = take_columns(str(path), [head.names[j] for j in roles.points], columns, places, kept, intake)
    rows = slice(None) if parts.rows is None else parts.rows
    return parts._replace(
        label=None if label_at is None else _typed(label_at[rows].tolist()),
        device=None if device_at is None else _typed(device_at[rows].tolist()),
        names=parts.names if head.skipped else (),
    )


def _typed(fields: list[str]) -> NDArray[Any]:
    """Return numbers if all fields are numbers, else text."""
    try:
        return np.array([to_number(field) for field in fields])
    except ValueError:
        return np.array(fields)
