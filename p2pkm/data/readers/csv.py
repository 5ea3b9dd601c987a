"""Text files with separated fields, .csv and .tsv.

A file of numbers alone is read by NumPy, whose correctly rounded conversion takes half the time of pandas' one. All
other files, and all columns of identifiers, categories and dates, which must stay text, are read by pandas. The csv
module of Python reads the first rows, and finds the line of a row for messages.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.identifiers import MISSING
from p2pkm.data.readers.columns import Column, FileContents, Marks, Roles, assign, take_columns
from p2pkm.data.readers.header import find_header, name_columns
from p2pkm.data.readers.intake import TIDY, ColumnOptions, Places, is_number, read_column
from p2pkm.data.readers.suspicions import may_have_thousands, tell_thousands

_SAMPLE = 1000  # rows that decide how the columns are read
_ROWS = 100_000  # read as text at a time
_BYTES = 1 << 24  # looked through at a time
_CODEC = "utf-8-sig"
_SPELLINGS = sorted({"".join(word) for one in MISSING for word in product(*((c.lower(), c.upper()) for c in one))})


class Head(NamedTuple):
    """Dialect and first rows of a file.

    Attributes
    ----------
    delimiter : str
        Comma, tab or semicolon.
    names : list of str
        Names of the columns; their indices if there is no header.
    skipped : int
        Lines up to and with the header.
    sample : list of (int, list of str)
        Line and stripped fields of the first rows below.
    note : str
        Guess that was made of the header; empty: none.
    """

    delimiter: str
    names: list[str]
    skipped: int
    sample: list[tuple[int, list[str]]]
    note: str = ""


class _Lines:
    """Line of each row, found when a message needs it."""

    def __init__(self, path: Path, head: Head, rows: int) -> None:
        self._path, self._head, self._rows = path, head, rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, at: int) -> int:
        return next(islice(_rows(self._path, self._head), at, None))[0]


def read_text(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read a file of lines with the same number of fields.

    Raises
    ------
    DataError
        If a line is ragged, or columns are no features; the message names lines and columns, and what to do.
    """
    try:
        wanted = {str(column) for column in (label, device) if column is not None} | intake.named
        head = _read_head(path, wanted, intake.header)
        roles = assign(str(path), head.names, label, device, intake)
        parts = _read_numbers(path, head, roles) or _read_mixed(path, head, roles, intake)
        notes = [head.note] * bool(head.note) + _tell_thousands(path, head, roles, parts)
        return parts._replace(notes=tuple(notes))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as a table of text: {error}") from None


def _features(head: Head, roles: Roles) -> tuple[str, ...]:
    """Return the names of the features; without a header they have none."""
    return tuple(head.names[j] for j in roles.points) if head.skipped else ()


def _open(path: Path, skipped: int = 0) -> IO[str]:
    """Open a file behind its first lines."""
    file = path.open(encoding=_CODEC, newline="")
    for _ in range(skipped):
        file.readline()
    return file


def _fields(file: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of every line that is not blank."""
    reader = csv.reader(file, delimiter=delimiter)
    for fields in reader:
        if len(fields) > 1 or (fields and (fields[0].strip() or not fields[0])):  # '""' is a value that is missing
            yield reader.line_num, [field.strip() for field in fields]


def _rows(path: Path, head: Head) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of every row below the header."""
    with _open(path, head.skipped) as file:
        for line, fields in _fields(file, head.delimiter):
            yield line + head.skipped, fields


def _read_head(path: Path, wanted: set[str], header: str) -> Head:
    with _open(path) as file:
        first = next((line for line in file if line.strip()), None)
    delimiter = next((mark for mark in ";\t" if first and mark in first), ",")
    with _open(path) as file:
        rows = list(islice(_fields(file, delimiter), _SAMPLE + 1))
    while rows and not any(rows[0][1]) and len(rows[0][1]) == 1:
        del rows[0]
    if not rows:
        raise DataError(f"{path} is empty; expected one point per line")
    top = rows[0][1]
    named, note = (
        find_header(top, [fields for _, fields in rows[1:]], wanted) if header == "auto" else (header == "yes", "")
    )
    if named:
        head = Head(delimiter, name_columns(top), rows[0][0], rows[1:], note)
    else:
        head = Head(delimiter, [str(j) for j in range(len(top))], 0, rows)
    _check_lengths(path, head, head.sample)
    return head


def _check_lengths(path: Path, head: Head, rows: Iterable[tuple[int, list[str]]]) -> None:
    """Raise an error at the first line with another number of fields than columns."""
    for line, fields in rows:
        if len(fields) != len(head.names):
            raise DataError(
                f"{path}, line {line}: {len(fields)} fields, expected {len(head.names)} as in the first line; "
                "mend or drop the line"
            )


def _read_numbers(path: Path, head: Head, roles: Roles) -> FileContents | None:
    """Read a file in which every field is a finite number, or return None."""
    if roles.encode or not head.sample:
        return None
    try:
        numbers = np.loadtxt(path, delimiter=head.delimiter, skiprows=head.skipped, comments=None, quotechar='"',
                             ndmin=2, encoding=_CODEC)  # fmt: skip
    except UnicodeDecodeError:
        raise
    except ValueError:
        return None
    if numbers.shape[1] != len(head.names) or not np.isfinite(numbers).all():
        return None
    marked = [at for at in (roles.label, roles.device) if at is not None]
    texts = _read_columns(path, head, set(marked), only=marked) if marked else {}
    if any(len(one) != len(numbers) for one in texts.values()):
        return None  # lines that one of the two readers takes for blank
    points = numbers if len(roles.points) == numbers.shape[1] else numbers[:, roles.points]
    marks = Marks.of(head.names, roles, texts)
    return FileContents(points, marks.label, marks.device, _features(head, roles))


def _tell_thousands(path: Path, head: Head, roles: Roles, parts: FileContents) -> list[str]:
    """Return notes of columns whose points may separate thousands; only text shows it: 7.400 is 7.4 as a number."""
    numeric = [j for j in roles.points if j not in roles.encode]
    if len(numeric) != parts.points.shape[1]:
        return []
    able = [
        (at, j) for at, j in enumerate(numeric) if may_have_thousands([fields[j] for _, fields in head.sample])
    ]  # fmt: skip
    mixed = [j for at, j in able if (column := parts.points[:, at] % 1).any() and not column.all()]
    if not mixed:
        return []
    texts = _read_columns(path, head, set(mixed), only=mixed)
    fields = {j: [field.strip() for field in texts[j].tolist()] for j in mixed}
    return [note for j in mixed if (note := tell_thousands(head.names[j], fields[j]))]


def _read_mixed(path: Path, head: Head, roles: Roles, intake: ColumnOptions) -> FileContents:
    """Read columns of numbers, text and missing values."""
    _refuse_zero_bytes(path, head)
    numeric = [j for j in roles.points if j not in roles.encode]
    found = _read_table(path, head, set(numeric))
    m = len(found[0])
    last = found[len(head.names) - 1]
    if m and (np.isnan(last).any() if last.dtype.kind == "f" else "" in last.tolist()):
        _check_lengths(path, head, _rows(path, head))  # pandas fills a line up that is too short
    places = Places("line", _Lines(path, head, m))
    columns = [
        found[j] if found[j].dtype.kind == "f" else
        read_column(head.names[j], [field.strip() for field in found[j].tolist()], places, encode=j in roles.encode)
        for j in roles.points
    ]  # fmt: skip
    marks = Marks.of(head.names, roles, found)
    parts = take_columns(str(path), [head.names[j] for j in roles.points], columns, marks, places, intake)
    empty = "" if head.sample else "has a header and no points; expected one point per line below it"
    return parts._replace(names=parts.names if head.skipped else (), why_empty=empty or parts.why_empty)


def _read_table(path: Path, head: Head, numeric: set[int]) -> dict[int, NDArray[Any]]:
    """Read all columns: those of numbers as float64[m], all others, also where a field is no finite number, as text."""
    if not head.sample:
        return {j: np.empty(0) if j in numeric else np.empty(0, object) for j in range(len(head.names))}
    texts = set(range(len(head.names))) - numeric
    texts |= {j for j in numeric if any(_is_text(fields[j]) for _, fields in head.sample)}
    while True:
        try:
            found = _read_columns(path, head, texts)
        except (DataError, UnicodeDecodeError):
            raise
        except ValueError:
            texts |= _find_texts(path, head, numeric - texts) or numeric
            continue
        endless = {j for j in numeric - texts if np.isinf(found[j]).any()}
        if not endless:
            return found
        texts |= endless


def _is_text(field: str) -> bool:
    return field.lower() not in MISSING and not is_number(field)


def _find_texts(path: Path, head: Head, columns: set[int]) -> set[int]:
    """Return which of the columns have a field that is neither a number nor missing."""
    import pandas

    found: set[int] = set()
    with _open(path, head.skipped) as file, _explain_errors(path, head):
        for chunk in _parse(file, head, texts=None, chunksize=_ROWS):
            for j in columns - found:
                odd = chunk[j][pandas.to_numeric(chunk[j], errors="coerce").isna()]
                found |= {j} if any(_is_text(field.strip()) for field in set(odd.tolist())) else set()
    return found


def _read_columns(
    path: Path, head: Head, texts: set[int], only: Sequence[int] | None = None
) -> dict[int, NDArray[Any]]:
    """Read columns as text, object[m], or as numbers, float64[m] with NaN where a value is missing.

    Raises
    ------
    ValueError
        If a field of another column than `texts` is no number.
    """
    with _open(path, head.skipped) as file, _explain_errors(path, head):
        frame = _parse(file, head, texts, usecols=only)
    return {j: frame[j].to_numpy(object if j in texts else np.float64) for j in frame.columns}


def _parse(file: IO[str], head: Head, texts: set[int] | None, **options: Any) -> Any:
    """Let pandas read the columns by index; texts: those that are text, None: all."""
    import pandas

    count = range(len(head.names))
    numbers = () if texts is None else set(count) - texts
    return pandas.read_csv(
        file, sep=head.delimiter, header=None, names=list(count), index_col=False, engine="c",
        dtype={j: np.float64 if j in numbers else str for j in count}, float_precision="round_trip",
        na_values={j: _SPELLINGS for j in numbers}, keep_default_na=False, **options,
    )  # fmt: skip


@contextmanager
def _explain_errors(path: Path, head: Head) -> Iterator[None]:
    """Name the line at which pandas cannot read a file on."""
    from pandas.errors import ParserError

    try:
        yield
    except ParserError as error:
        _check_lengths(path, head, _rows(path, head))
        raise DataError(f"{path} cannot be read as a table of text: {error}") from None


def _refuse_zero_bytes(path: Path, head: Head) -> None:
    """Reject a file with zero bytes, at which pandas ends a field."""
    with path.open("rb") as file:
        if not any(b"\0" in part for part in iter(lambda: file.read(_BYTES), b"")):
            return
    for line, fields in _rows(path, head):
        for name, field in zip(head.names, fields, strict=False):
            if "\0" in field:
                raise DataError(f"{path}, line {line}, column {name!r} is {field!r}; expected text without zero bytes")
    raise DataError(f"{path} has zero bytes; expected text")
