"""Reader of text with separated fields: .csv, .tsv and .txt, also compressed, and sheets of spreadsheets.

NumPy reads files that contain only numbers; its correctly rounded conversion takes half the time of that of pandas.
pandas reads all other files, and all columns of identifiers, categories and dates, which must stay text. The csv module
of Python reads the first rows, and finds the line of a row for messages.
"""

import csv
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import EXACT
from p2pkm.data.readers.columns import (
    Column,
    ColumnRoles,
    FileContents,
    LabelColumns,
    assign_roles,
    note_names_of_rows,
    take_columns,
)
from p2pkm.data.readers.frame import convert_column
from p2pkm.data.readers.header import find_header, name_columns
from p2pkm.data.readers.intake import TIDY, ColumnOptions, RowLocations, is_number, plain_numbers
from p2pkm.data.readers.suspicions import may_have_thousands, note_thousands
from p2pkm.data.readers.text_source import UTF8, WINDOWS, TextSource, open_sheet, open_source

# Rows at the top of a file from which the types of its columns are guessed.
_SAMPLE = 1000
# Largest length of a text for missing values that pandas finds in every combination of lower and upper case.
_SHORT = 5
# Lines from which the separator is found.
_TOP = 20
# Smallest numbers of rows of a table, and of columns with a text above numbers, with which the first row may be units.
_MIN_ROWS, _MIN_UNITS = 2, 2
# Rows that are read as text at a time.
_ROWS = 100_000
# Separators of fields in the order in which they are tried.
_SEPARATORS = ";\t|, "
# First line that Excel reads as the separator.
_SEPARATOR_LINE = re.compile(r"\"?sep=(.)\"?\s*", re.IGNORECASE)


_Read = TypeVar("_Read", bound=Any)


class CsvHeader(NamedTuple):
    """Dialect, column names and first rows of a file.

    Attributes
    ----------
    delimiter : str
        Comma, tab, semicolon or another sign; a space stands for any white space.
    names : list of str
        Names of the columns; their indices without a header.
    skipped : int
        Number of lines up to and including the header.
    sample : list of (int, list of str)
        Line number and stripped fields of the first rows below the header.
    note : str
        Note on a guess whether there is a header; empty if none was needed.
    is_named : bool
        Whether the columns have names.
    """

    delimiter: str
    names: list[str]
    skipped: int
    sample: list[tuple[int, list[str]]]
    note: str = ""
    is_named: bool = True


class _Lines:
    """Line numbers of rows, determined only when a message needs them."""

    def __init__(self, source: TextSource, head: CsvHeader, rows: int) -> None:
        self._source = source
        self._head = head
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> int:
        return next(islice(_rows(self._source, self._head), row, None))[0]


def read_text(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read a text file with the same number of fields on each line.

    Raises
    ------
    DataError
        If a line has another number of fields, or columns cannot be features; the message names lines and columns.
    """
    return open_text(path, intake, lambda source: _read_source(source, label, device, intake))


def read_sheet(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read a sheet of a spreadsheet; errors as in `read_text`."""
    return open_cells(path, intake, lambda source: _read_source(source, label, device, intake))


def open_text(path: Path, intake: ColumnOptions, read: Callable[[TextSource], _Read]) -> _Read:
    """Read the text of a file in the given encoding, else in UTF-8 or, if that fails, in Windows-1252.

    Raises
    ------
    DataError
        If the text cannot be decoded, or is not a table.
    """
    source = open_source(path, intake.encoding)
    source = source._replace(blank=intake.skipped, is_plain=source.is_plain and not intake.skipped)
    try:
        return _read_table_text(source, read)
    except (UnicodeDecodeError, UnicodeError) as error:
        if intake.encoding or source.encoding != UTF8:
            raise DataError(
                f"{path} is not text in {source.encoding} ({_reason(error)}). Use another --encoding, or save the "
                "file as UTF-8"
            ) from None
    try:
        contents = _read_table_text(source._replace(encoding=WINDOWS, is_plain=False), read)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is neither UTF-8 nor Windows-1252 text ({_reason(error)}); expected UTF-8. Name the encoding "
            "with --encoding, or save the file as UTF-8"
        ) from None
    except DataError as error:
        raise DataError(
            f"{error}. The text is not UTF-8 and was read as Windows-1252; --encoding names another"
        ) from None
    note = "the text is not UTF-8 and read as Windows-1252 (cp1252); use --encoding to choose another encoding"
    return contents._replace(notes=(note, *contents.notes))


def open_cells(path: Path, intake: ColumnOptions, read: Callable[[TextSource], _Read]) -> _Read:
    """Read the text of a sheet of a spreadsheet; errors as in `open_text`."""
    source, note, lost = open_sheet(path, intake.sheet, intake.decimal, intake.skipped)
    causes = "".join(f". {text[0].upper()}{text[1:]}" for text in (lost, note) if text)
    try:
        contents = _read_table_text(source, read)
    except DataError as error:
        raise DataError(f"{error}{causes}") from None
    if isinstance(contents, FileContents):
        contents = contents._replace(why_empty=contents.why_empty + causes)
    return contents._replace(notes=(*filter(None, (note, lost)), *contents.notes))


def _read_table_text(source: TextSource, read: Callable[[TextSource], _Read]) -> _Read:
    try:
        return read(source)
    except csv.Error as error:
        raise DataError(
            f"{source.path} cannot be read as a text table: {error}; expected fields separated by comma, tab or "
            "semicolon"
        ) from None


def _reason(error: UnicodeError) -> str:
    return f"{error.reason} at byte {error.start}" if isinstance(error, UnicodeDecodeError) else str(error)


def _read_source(source: TextSource, label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    named_columns = {str(column) for column in (label, device) if column is not None} | intake.named
    head = read_head(source, named_columns, intake)
    roles = assign_roles(str(source.path), head.names, label, device, intake)
    check_units(source, head, [j for j in roles.points if j not in roles.encode], intake)
    notes = [head.note] if head.note else []
    notes += check_long_numbers(source, head.names, {roles.label, roles.device, *roles.keep} - {None})
    parts = _read_numbers(source, head, roles, intake) or _read_mixed(source, head, roles, intake)
    notes += note_names_of_rows(
        head.names, roles, intake.drop, lambda j: all(is_number(fields[j]) for _, fields in head.sample if fields[j])
    )
    notes += [] if intake.thousands or intake.decimal != "." else _note_thousands(source, head, roles, parts)
    return parts._replace(notes=tuple(notes))


def check_long_numbers(source: TextSource, names: Sequence[str], identifiers: Container[Any] = ()) -> list[str]:
    """List columns with numbers of a spreadsheet that have lost digits in notes, and refuse them as identifiers.

    Raises
    ------
    DataError
        If a column of identifiers has a number above 2^53, so that different identifiers become equal.
    """
    notes = []
    for j, (row, largest) in source.long_numbers.items():
        where = f"row {row}, column {names[j]!r} is the number {largest:.0f}"
        if j in identifiers and largest > EXACT:
            raise DataError(
                f"{source.path}, {where}; expected at most 15 digits, because cells of numbers lose the others, and "
                "different identifiers become equal. Store identifiers in cells of text"
            )
        notes.append(
            f"{where}, of which spreadsheets keep 15 digits: check that different values have not become equal, and "
            "store identifiers in cells of text"
        )
    return notes


def _features(head: CsvHeader, roles: ColumnRoles) -> tuple[str, ...]:
    """Return the names of the features; empty without a header."""
    return tuple(head.names[j] for j in roles.points) if head.is_named else ()


def _fields(file: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of every line that is not blank."""
    reader = csv.reader(_strip(file) if delimiter == " " else file, delimiter=delimiter,
                        skipinitialspace=delimiter == " ")  # fmt: skip
    for fields in reader:
        # A line '""' is a missing value in a file of one column, not a blank line.
        if len(fields) > 1 or (fields and (fields[0].strip() or not fields[0])):
            yield reader.line_num, [field.strip() for field in fields]


def _strip(file: Iterable[str]) -> Iterator[str]:
    """Yield lines with single spaces between fields, and none at the ends."""
    return (line.strip().replace("\t", " ") + "\n" for line in file)


def _rows(source: TextSource, head: CsvHeader) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of every row below the header."""
    with source.open(head.skipped) as file:
        for line, fields in _fields(file, head.delimiter):
            yield line + head.skipped, fields


def read_head(source: TextSource, named_columns: set[str], intake: ColumnOptions) -> CsvHeader:
    """Read the column names and the first rows of a text, and find the separator of its fields.

    Raises
    ------
    DataError
        If the text is empty, or a line has another number of fields.
    """
    with source.open() as file:
        match = _SEPARATOR_LINE.fullmatch(file.readline())
    skipped = 1 if match else 0
    delimiter = intake.separator or (match[1] if match else _find_separator(source))
    with source.open(skipped) as file:
        rows = [(line + skipped, fields) for line, fields in islice(_fields(file, delimiter), _SAMPLE + 1)]
    while rows and not any(rows[0][1]) and len(rows[0][1]) == 1:
        del rows[0]
    if not rows:
        raise DataError(f"{source.path} is empty; expected one point per line, with fields separated by commas")
    if intake.header == "auto":
        _check_title(source, rows)
    top = rows[0][1]
    is_header, note = intake.header == "yes", ""
    if delimiter in " \t" and intake.header != "no" and _lacks_name(top, [fields for _, fields in rows[1:]]):
        # write.table of R writes row names without a name of their column.
        top, is_header = ["", *top], True
    elif intake.header == "auto":
        below = [plain_numbers(fields, intake) for _, fields in rows[1:]]
        is_header, note = find_header(plain_numbers(top, intake), below, named_columns)
    if is_header:
        head = CsvHeader(delimiter, name_columns(top), rows[0][0], rows[1:], note)
    else:
        head = CsvHeader(delimiter, [str(j) for j in range(len(top))], skipped, rows, note, is_named=False)
    try:
        _check_lengths(source, head, head.sample)
    except DataError as error:
        title = _count_title(source)
        if not title:
            raise
        above = f"{source.unit} 1 is" if title == 1 else f"{source.unit}s 1 to {title} are"
        raise DataError(f"{error}. If {above} a title above the table, use --skip-rows {title}") from None
    return head


def _check_title(source: TextSource, rows: list[tuple[int, list[str]]]) -> None:
    """Validate that the first row is not a title: few fields above a full row of names with numbers below it.

    Raises
    ------
    DataError
        If it seems to be one.
    """
    filled = [sum(map(bool, fields)) for _, fields in rows[:_TOP]]
    for at in range(1, len(filled) - 1):
        below, fields = rows[at + 1][1], rows[at][1]
        if filled[at] < 2 * max(filled[:at]) or 3 * filled[at] < 2 * len(fields) or any(map(is_number, fields)):
            continue
        title = next(filter(None, rows[0][1]), "")
        if not any(map(is_number, below)) or is_number(title) or len(rows[0][1]) != len(fields):
            return
        raise DataError(
            f"{source.path}, {source.unit} {rows[0][0]} has only {title!r}, and {source.unit} {rows[at][0]} has "
            f"{filled[at]} names; expected names or a point in the first {source.unit}. Use --skip-rows "
            f"{rows[at][0] - 1}, or remove the title"
        )


def _count_title(source: TextSource) -> int:
    """Count the lines at the top that cannot be rows of a table: all below have equally many fields; 0 if none."""
    with source.open() as file:
        lines = [(at, line) for at, line in enumerate(islice(file, _TOP), 1) if line.strip()]
    counts = list[int]()
    for delimiter in _SEPARATORS if ".txt" in source.path.suffixes else _SEPARATORS[:-1]:
        sizes = [len(next(iter(_fields([line], delimiter)), (0, []))[1]) for _, line in lines]
        begin = len(sizes)
        while begin and sizes[begin - 1] == sizes[-1]:
            begin -= 1
        if sizes[-1] > 1 and 0 < begin < len(sizes) - 1:
            counts.append(begin)
    return lines[min(counts)][0] - 1 if counts else 0


def check_units(source: TextSource, head: CsvHeader, columns: Sequence[int], intake: ColumnOptions) -> None:
    """Validate that the first row below the names is not a second row of names or units.

    Parameters
    ----------
    source : TextSource
    head : CsvHeader
    columns : sequence of int
        Columns that may have numbers.
    intake : ColumnOptions

    Raises
    ------
    DataError
        If it has text in several columns that are numbers in all other rows of the sample.
    """
    if not head.is_named or len(head.sample) <= _MIN_ROWS:
        return
    (line, first), *rest = head.sample
    if any(map(is_number, plain_numbers(first, intake))):
        return
    odd = [
        j
        for j in columns
        if _is_text(first[j], intake)
        and not any(_is_text(fields[j], intake) for _, fields in rest)
        and any(fields[j].lower() not in intake.missing_texts for _, fields in rest)
    ]
    if len(odd) >= _MIN_UNITS:
        raise DataError(
            f"{source.path}, {source.unit} {line} has texts such as {first[odd[0]]!r} in column "
            f"{head.names[odd[0]]!r}, and all rows below have numbers there; expected one row of names. If it has "
            f"units or other names, use --skip-rows {line}-{line}"
        )


def _lacks_name(top: list[str], below: list[list[str]]) -> bool:
    """Return whether the first row has one field fewer than all others, and only names."""
    return bool(below) and {len(row) - len(top) for row in below} == {1} and not any(map(is_number, top))


def _find_separator(source: TextSource) -> str:
    """Find the separator: the first sign that divides all of the first lines into the same number of fields."""
    with source.open() as file:
        lines = list(islice((line for line in file if line.strip()), _TOP))
    counts = {}
    # White space separates fields in .txt files only: elsewhere it is more often part of the fields.
    for delimiter in _SEPARATORS if ".txt" in source.path.suffixes else _SEPARATORS[:-1]:
        counts[delimiter] = [len(fields) for _, fields in _fields(lines, delimiter)]
        top, *rest = counts[delimiter] or [0]
        # With one name less than fields, the rows have names; see `_lacks_name`.
        if min([top, *rest]) > 1 and (set(rest) <= {top} or (delimiter in " \t" and set(rest) == {top + 1})):
            return delimiter
    return next((sign for sign in _SEPARATORS[:-1] if counts[sign][:1] > [1]), ",")


def _check_lengths(source: TextSource, head: CsvHeader, rows: Iterable[tuple[int, list[str]]]) -> None:
    """Validate that each line has one field per column.

    Raises
    ------
    DataError
        If a line has another number of fields; the message names the first one.
    """
    for line, fields in rows:
        if len(fields) != len(head.names):
            lines = "\n".join(fields).removesuffix("\n").count("\n") - len(fields) + 1
            if lines > 0:
                raise DataError(
                    f"{source.path}, {source.unit} {line - lines}: a quotation mark is not closed before {source.unit} "
                    f"{line}; expected {len(head.names)} fields in each {source.unit}. Close or remove it"
                )
            raise DataError(
                f"{source.path}, {source.unit} {line}: {len(fields)} fields; expected {len(head.names)}, as in the "
                "first line. Correct or remove the line"
            )


def _read_numbers(
    source: TextSource, head: CsvHeader, roles: ColumnRoles, intake: ColumnOptions
) -> FileContents | None:  # fmt: skip
    """Read a file in which every field is a finite number; return None for other files."""
    unusual = intake._replace(columns=(), drop=(), missing="refuse", header="auto", separator="")
    if unusual != TIDY or not head.sample or not source.is_plain or head.delimiter == " ":
        return None
    try:
        numbers = np.loadtxt(source.path, delimiter=head.delimiter, skiprows=head.skipped, comments=None, quotechar='"',
                             ndmin=2, encoding=UTF8)  # fmt: skip
    except UnicodeDecodeError:
        raise
    except ValueError:
        return None
    if numbers.shape[1] != len(head.names) or not (np.abs(numbers) < EXACT).all():
        # Infinite numbers, and those of which float64 may lose digits, which only the text shows.
        return None
    marked = [index for index in (roles.label, roles.device) if index is not None]
    texts = _read_columns(source, head, set(marked), only=marked) if marked else {}
    if any(len(column) != len(numbers) for column in texts.values()):
        # The two readers disagree on blank lines.
        return None
    points = numbers if len(roles.points) == numbers.shape[1] else numbers[:, roles.points]
    marks = LabelColumns.of(head.names, roles, texts)
    return FileContents(points, marks.label, marks.device, _features(head, roles), device_name=marks.device_name,
                        positions=tuple(map(str, roles.points)))  # fmt: skip


def _note_thousands(source: TextSource, head: CsvHeader, roles: ColumnRoles, parts: FileContents) -> list[str]:
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
    texts = _read_columns(source, head, set(mixed), only=mixed)
    fields = {j: [field.strip() for field in texts[j].tolist()] for j in mixed}
    return [note for j in mixed if (note := note_thousands(head.names[j], fields[j]))]


def _read_mixed(source: TextSource, head: CsvHeader, roles: ColumnRoles, intake: ColumnOptions) -> FileContents:
    """Read columns of numbers, text and missing values."""
    _check_zero_bytes(source, head)
    needed = {*roles.points} if roles.weight is None else {*roles.points, roles.weight}
    content = read_fields(source, head, needed - roles.texts, intake)
    locations = locate_rows(source, head, len(content[0]))
    columns = {
        j: convert_column(head.names[j], content[j], locations, intake, encode=j in roles.encode) for j in needed
    }
    weight = None if roles.weight is None else columns[roles.weight]
    marks = LabelColumns.of(head.names, roles, content, intake=intake)._replace(weight=weight)
    points = [columns[j] for j in roles.points]
    parts = take_columns(str(source.path), [head.names[j] for j in roles.points], points, marks, locations, intake)
    empty = "" if head.sample else "has a header and no points; expected one point per line below the header"
    parts = parts._replace(positions=() if head.is_named else parts.names, why_empty=empty or parts.why_empty)
    return parts._replace(names=parts.names if head.is_named else ())


def locate_rows(source: TextSource, head: CsvHeader, rows: int) -> RowLocations:
    """Return the line numbers of the rows of a text, which are determined when a message needs them."""
    return RowLocations(source.unit, _Lines(source, head, rows))


def read_fields(
    source: TextSource, head: CsvHeader, numeric: set[int], intake: ColumnOptions
) -> dict[int, NDArray[Any]]:  # fmt: skip
    """Read all columns: those of `numeric` with finite numbers as float64[m], all other columns as text.

    Raises
    ------
    DataError
        If a line has another number of fields.
    """
    content = _read_table(source, head, numeric, intake)
    last = content[len(head.names) - 1]
    if len(last) and (np.isnan(last).any() if last.dtype.kind == "f" else "" in last.tolist()):
        # pandas pads lines that are too short with missing values, so the last column has one.
        _check_lengths(source, head, _rows(source, head))
    return content


def _read_table(
    source: TextSource, head: CsvHeader, numeric: set[int], intake: ColumnOptions
) -> dict[int, NDArray[Any]]:  # fmt: skip
    if not head.sample:
        return {j: np.empty(0) if j in numeric else np.empty(0, object) for j in range(len(head.names))}
    # pandas ignores separators of thousands at any position, as in 7.4; here numbers with them must be well-formed.
    texts = set(range(len(head.names))) - (set() if intake.thousands else numeric)
    texts |= {j for j in numeric if any(_is_text(fields[j], intake) for _, fields in head.sample)}
    while True:
        try:
            content = _read_columns(source, head, texts, intake)
        except (DataError, UnicodeDecodeError):
            raise
        except ValueError:
            texts |= _find_texts(source, head, numeric - texts, intake) or numeric
            continue
        # Infinite numbers, and those of which float64 may lose digits.
        large = {j for j in numeric - texts if (np.abs(content[j]) >= EXACT).any()}
        if not large:
            return content
        texts |= large


def _is_text(field: str, intake: ColumnOptions) -> bool:
    return field.lower() not in intake.missing_texts and not is_number(plain_numbers([field], intake)[0])


def _find_texts(source: TextSource, head: CsvHeader, columns: set[int], intake: ColumnOptions) -> set[int]:
    """Find the columns with a field that is neither a number nor missing."""
    import pandas

    text_columns: set[int] = set()
    with source.open(head.skipped) as file, _explain_errors(source, head):
        for chunk in _parse(file, head, None, intake, chunksize=_ROWS):
            for j in columns - text_columns:
                odd = chunk[j][pandas.to_numeric(chunk[j], errors="coerce").isna()]
                is_text = any(_is_text(field.strip(), intake) for field in set(odd.tolist()))
                text_columns |= {j} if is_text else set()
    return text_columns


def _read_columns(
    source: TextSource,
    head: CsvHeader,
    texts: set[int],
    intake: ColumnOptions = TIDY,
    only: Sequence[int] | None = None,
) -> dict[int, NDArray[Any]]:
    """Read columns as text, object[m], or as numbers, float64[m] with NaN where a value is missing.

    Raises
    ------
    ValueError
        If a column that is not in `texts` has a field that is not a number.
    """
    with source.open(head.skipped) as file, _explain_errors(source, head):
        frame = _parse(file, head, texts, intake, usecols=only)
    return {j: frame[j].to_numpy(object if j in texts else np.float64) for j in frame.columns}


def _parse(file: IO[str], head: CsvHeader, texts: set[int] | None, intake: ColumnOptions, **options: Any) -> Any:
    """Read the columns by pandas, named by index; `texts` are read as text (None: all)."""
    import pandas

    count = range(len(head.names))
    numbers = () if texts is None else set(count) - texts
    spellings = sorted({form for text in intake.missing_texts for form in _vary(text)})
    return pandas.read_csv(
        file, sep=r"\s+" if head.delimiter == " " else head.delimiter, decimal=intake.decimal, header=None,
        names=list(count), index_col=False, engine="c",
        dtype={j: np.float64 if j in numbers else str for j in count}, float_precision="round_trip",
        na_values={j: spellings for j in numbers}, keep_default_na=False, **options,
    )  # fmt: skip


@contextmanager
def _explain_errors(source: TextSource, head: CsvHeader) -> Iterator[None]:
    """Convert errors of the parser of pandas to errors that name the line."""
    from pandas.errors import ParserError

    try:
        yield
    except ParserError as error:
        _check_lengths(source, head, _rows(source, head))
        raise DataError(
            f"{source.path} cannot be read as a text table: {error}; expected fields separated by comma, tab or "
            "semicolon"
        ) from None


def _check_zero_bytes(source: TextSource, head: CsvHeader) -> None:
    """Validate that a file does not contain zero bytes, at which pandas would end a field."""
    if not any("\0" in part for part in source.read_blocks()):
        return
    for line, fields in _rows(source, head):
        for name, field in zip(head.names, fields, strict=False):
            if "\0" in field:
                raise DataError(
                    f"{source.path}, {source.unit} {line}, column {name!r} is {field!r}; expected text without "
                    "zero bytes. Save the file as UTF-8"
                )
    raise DataError(f"{source.path} has zero bytes; expected text. Save the file as UTF-8")


def _vary(text: str) -> set[str]:
    """Return a text in usual combinations of lower and upper case; other ones are found when a column is text."""
    forms = product(*((c.lower(), c.upper()) for c in text)) if len(text) <= _SHORT else ()
    return {text, text.upper(), text.title(), text.capitalize(), *map("".join, forms)}
