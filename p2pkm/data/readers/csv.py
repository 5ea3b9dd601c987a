"""Reader of text files with separated fields, .csv and .tsv.

NumPy reads files that contain only numbers; its correctly rounded conversion takes half the time of that of pandas.
pandas reads all other files, and all columns of identifiers, categories and dates, which must stay text. The csv module
of Python reads the first rows, and finds the line of a row for messages.
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
from p2pkm.data.readers.columns import Column, ColumnRoles, FileContents, LabelColumns, assign_roles, take_columns
from p2pkm.data.readers.header import find_header, name_columns
from p2pkm.data.readers.intake import TIDY, ColumnOptions, RowLocations, is_number, read_column
from p2pkm.data.readers.suspicions import may_have_thousands, note_thousands

# Rows at the top of a file from which the types of its columns are guessed.
_SAMPLE = 1000
# Rows that are read as text at a time.
_ROWS = 100_000
# Bytes that are searched for zero bytes at a time.
_BYTES = 1 << 24
# Removes the byte order mark that spreadsheets write at the start of a file.
_CODEC = "utf-8-sig"
# Each text for a missing value in all combinations of lower and upper case, as pandas compares exactly.
_SPELLINGS = sorted({"".join(cs) for text in MISSING for cs in product(*((c.lower(), c.upper()) for c in text))})


class CsvHeader(NamedTuple):
    """Dialect, column names and first rows of a file.

    Attributes
    ----------
    delimiter : str
        Comma, tab or semicolon.
    names : list of str
        Names of the columns; their indices without a header.
    skipped : int
        Number of lines up to and including the header.
    sample : list of (int, list of str)
        Line number and stripped fields of the first rows below the header.
    note : str
        Note on a guess whether there is a header; empty if none was needed.
    """

    delimiter: str
    names: list[str]
    skipped: int
    sample: list[tuple[int, list[str]]]
    note: str = ""


class _Lines:
    """Line numbers of rows, determined only when a message needs them."""

    def __init__(self, path: Path, head: CsvHeader, rows: int) -> None:
        self._path = path
        self._head = head
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> int:
        return next(islice(_rows(self._path, self._head), row, None))[0]


def read_text(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read a text file with the same number of fields on each line.

    Raises
    ------
    DataError
        If a line has another number of fields, or columns cannot be features; the message names lines and columns.
    """
    try:
        named_columns = {str(column) for column in (label, device) if column is not None} | intake.named
        head = _read_head(path, named_columns, intake.header)
        roles = assign_roles(str(path), head.names, label, device, intake)
        parts = _read_numbers(path, head, roles) or _read_mixed(path, head, roles, intake)
        notes = [head.note] * bool(head.note) + _note_thousands(path, head, roles, parts)
        return parts._replace(notes=tuple(notes))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); expected UTF-8. Save the file as UTF-8"
        ) from None
    except csv.Error as error:
        raise DataError(
            f"{path} cannot be read as a text table: {error}; expected fields separated by comma, tab or semicolon"
        ) from None


def _features(head: CsvHeader, roles: ColumnRoles) -> tuple[str, ...]:
    """Return the names of the features; empty without a header."""
    return tuple(head.names[j] for j in roles.points) if head.skipped else ()


def _open(path: Path, skipped: int = 0) -> IO[str]:
    """Open a file after its first `skipped` lines."""
    file = path.open(encoding=_CODEC, newline="")
    for _ in range(skipped):
        file.readline()
    return file


def _fields(file: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of every line that is not blank."""
    reader = csv.reader(file, delimiter=delimiter)
    for fields in reader:
        # A line '""' is a missing value in a file of one column, not a blank line.
        if len(fields) > 1 or (fields and (fields[0].strip() or not fields[0])):
            yield reader.line_num, [field.strip() for field in fields]


def _rows(path: Path, head: CsvHeader) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of every row below the header."""
    with _open(path, head.skipped) as file:
        for line, fields in _fields(file, head.delimiter):
            yield line + head.skipped, fields


def _read_head(path: Path, named_columns: set[str], header: str) -> CsvHeader:
    with _open(path) as file:
        first = next((line for line in file if line.strip()), None)
    delimiter = next((mark for mark in ";\t" if first and mark in first), ",")
    with _open(path) as file:
        rows = list(islice(_fields(file, delimiter), _SAMPLE + 1))
    while rows and not any(rows[0][1]) and len(rows[0][1]) == 1:
        del rows[0]
    if not rows:
        raise DataError(f"{path} is empty; expected one point per line, with fields separated by commas")
    top = rows[0][1]
    is_header, note = header == "yes", ""
    if header == "auto":
        is_header, note = find_header(top, [fields for _, fields in rows[1:]], named_columns)
    if is_header:
        head = CsvHeader(delimiter, name_columns(top), rows[0][0], rows[1:], note)
    else:
        head = CsvHeader(delimiter, [str(j) for j in range(len(top))], 0, rows)
    _check_lengths(path, head, head.sample)
    return head


def _check_lengths(path: Path, head: CsvHeader, rows: Iterable[tuple[int, list[str]]]) -> None:
    """Validate that each line has one field per column.

    Raises
    ------
    DataError
        If a line has another number of fields; the message names the first one.
    """
    for line, fields in rows:
        if len(fields) != len(head.names):
            raise DataError(
                f"{path}, line {line}: {len(fields)} fields; expected {len(head.names)}, as in the first line. "
                "Correct or remove the line"
            )


def _read_numbers(path: Path, head: CsvHeader, roles: ColumnRoles) -> FileContents | None:
    """Read a file in which every field is a finite number; return None for other files."""
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
    marked = [index for index in (roles.label, roles.device) if index is not None]
    texts = _read_columns(path, head, set(marked), only=marked) if marked else {}
    if any(len(column) != len(numbers) for column in texts.values()):
        # The two readers disagree on blank lines.
        return None
    points = numbers if len(roles.points) == numbers.shape[1] else numbers[:, roles.points]
    marks = LabelColumns.of(head.names, roles, texts)
    return FileContents(points, marks.label, marks.device, _features(head, roles))


def _note_thousands(path: Path, head: CsvHeader, roles: ColumnRoles, parts: FileContents) -> list[str]:
    """List notes on columns in which points may separate thousands, which only the text shows."""
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
    return [note for j in mixed if (note := note_thousands(head.names[j], fields[j]))]


def _read_mixed(path: Path, head: CsvHeader, roles: ColumnRoles, intake: ColumnOptions) -> FileContents:
    """Read columns of numbers, text and missing values."""
    _check_zero_bytes(path, head)
    numeric = [j for j in roles.points if j not in roles.encode]
    content = _read_table(path, head, set(numeric))
    m = len(content[0])
    last = content[len(head.names) - 1]
    if m and (np.isnan(last).any() if last.dtype.kind == "f" else "" in last.tolist()):
        # pandas pads lines that are too short with missing values, so the last column has one.
        _check_lengths(path, head, _rows(path, head))
    locations = RowLocations("line", _Lines(path, head, m))
    columns = list[Any]()
    for j in roles.points:
        column = content[j]
        if column.dtype.kind != "f":
            fields = [field.strip() for field in column.tolist()]
            column = read_column(head.names[j], fields, locations, encode=j in roles.encode)
        columns.append(column)
    marks = LabelColumns.of(head.names, roles, content)
    parts = take_columns(str(path), [head.names[j] for j in roles.points], columns, marks, locations, intake)
    empty = "" if head.sample else "has a header and no points; expected one point per line below the header"
    return parts._replace(names=parts.names if head.skipped else (), why_empty=empty or parts.why_empty)


def _read_table(path: Path, head: CsvHeader, numeric: set[int]) -> dict[int, NDArray[Any]]:
    """Read all columns: columns of finite numbers as float64[m], all other columns as text."""
    if not head.sample:
        return {j: np.empty(0) if j in numeric else np.empty(0, object) for j in range(len(head.names))}
    texts = set(range(len(head.names))) - numeric
    texts |= {j for j in numeric if any(_is_text(fields[j]) for _, fields in head.sample)}
    while True:
        try:
            content = _read_columns(path, head, texts)
        except (DataError, UnicodeDecodeError):
            raise
        except ValueError:
            texts |= _find_texts(path, head, numeric - texts) or numeric
            continue
        endless = {j for j in numeric - texts if np.isinf(content[j]).any()}
        if not endless:
            return content
        texts |= endless


def _is_text(field: str) -> bool:
    return field.lower() not in MISSING and not is_number(field)


def _find_texts(path: Path, head: CsvHeader, columns: set[int]) -> set[int]:
    """Find the columns with a field that is neither a number nor missing."""
    import pandas

    text_columns: set[int] = set()
    with _open(path, head.skipped) as file, _explain_errors(path, head):
        for chunk in _parse(file, head, texts=None, chunksize=_ROWS):
            for j in columns - text_columns:
                odd = chunk[j][pandas.to_numeric(chunk[j], errors="coerce").isna()]
                text_columns |= {j} if any(_is_text(field.strip()) for field in set(odd.tolist())) else set()
    return text_columns


def _read_columns(
    path: Path, head: CsvHeader, texts: set[int], only: Sequence[int] | None = None
) -> dict[int, NDArray[Any]]:
    """Read columns as text, object[m], or as numbers, float64[m] with NaN where a value is missing.

    Raises
    ------
    ValueError
        If a column that is not in `texts` has a field that is not a number.
    """
    with _open(path, head.skipped) as file, _explain_errors(path, head):
        frame = _parse(file, head, texts, usecols=only)
    return {j: frame[j].to_numpy(object if j in texts else np.float64) for j in frame.columns}


def _parse(file: IO[str], head: CsvHeader, texts: set[int] | None, **options: Any) -> Any:
    """Read the columns by pandas, named by index; `texts` are read as text (None: all)."""
    import pandas

    count = range(len(head.names))
    numbers = () if texts is None else set(count) - texts
    return pandas.read_csv(
        file, sep=head.delimiter, header=None, names=list(count), index_col=False, engine="c",
        dtype={j: np.float64 if j in numbers else str for j in count}, float_precision="round_trip",
        na_values={j: _SPELLINGS for j in numbers}, keep_default_na=False, **options,
    )  # fmt: skip


@contextmanager
def _explain_errors(path: Path, head: CsvHeader) -> Iterator[None]:
    """Convert errors of the parser of pandas to errors that name the line."""
    from pandas.errors import ParserError

    try:
        yield
    except ParserError as error:
        _check_lengths(path, head, _rows(path, head))
        raise DataError(
            f"{path} cannot be read as a text table: {error}; expected fields separated by comma, tab or semicolon"
        ) from None


def _check_zero_bytes(path: Path, head: CsvHeader) -> None:
    """Validate that a file does not contain zero bytes, at which pandas would end a field."""
    with path.open("rb") as file:
        if not any(b"\0" in part for part in iter(lambda: file.read(_BYTES), b"")):
            return
    for line, fields in _rows(path, head):
        for name, field in zip(head.names, fields, strict=False):
            if "\0" in field:
                raise DataError(
                    f"{path}, line {line}, column {name!r} is {field!r}; expected text without zero bytes. Save the "
                    "file as UTF-8"
                )
    raise DataError(f"{path} has zero bytes; expected text. Save the file as UTF-8")
