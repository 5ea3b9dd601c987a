"""Texts with separated fields: plain and compressed files, and sheets of spreadsheets."""

import bz2
import csv
import gzip
import io
import lzma
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

from p2pkm.core.errors import DataError
from p2pkm.data.readers.lost_cells import describe_lost_cells, find_lost_cells
from p2pkm.data.readers.npy import check_unpacked_size

# Byte order marks that name the encoding of a file.
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
# Encodings that are tried in this order; the first also removes the byte order mark that spreadsheets write.
UTF8, WINDOWS = "utf-8-sig", "cp1252"
# Characters that are read at a time.
_BLOCK = 1 << 24


class TextSource(NamedTuple):
    """Text of a table.

    Attributes
    ----------
    path : Path
    encoding : str
    content : str or None
        Text of a sheet; None: the text of the file.
    is_plain : bool
        Whether other libraries can open the file by its path.
    unit : {"line", "row"}
        Unit of positions in messages.
    blank : sequence of range
        Numbers of lines, from 1, that are read as blank.
    long_numbers : dict of int to (int, float)
        Columns of a sheet with a number of more than 15 digits, and row and value of the largest one.
    """

    path: Path
    encoding: str = UTF8
    content: str | None = None
    is_plain: bool = True
    unit: str = "line"
    blank: Sequence[range] = ()
    long_numbers: dict[int, tuple[int, float]] = {}  # noqa: RUF012 - never changed

    def open(self, skipped: int = 0) -> IO[str]:
        """Open the text after its first `skipped` lines."""
        file: Any = io.StringIO(self.content, newline="") if self.content is not None else self._open_file()
        if self.blank:
            file = _Blanked(file, self.blank)
        for _ in range(skipped):
            file.readline()
        return file

    def read_blocks(self) -> Iterator[str]:
        """Yield the text in blocks."""
        with self.open() as file:
            yield from iter(lambda: file.read(_BLOCK), "")

    def _open_file(self) -> IO[str]:
        unpack = OPENERS.get(self.path.suffix.lower())
        file: Any = self.path.open("rb") if unpack is None else unpack(self.path)
        return io.TextIOWrapper(file, self.encoding, newline="")


class _Blanked(io.TextIOBase):
    """Text of which some lines are read as blank, so that all others keep their numbers."""

    def __init__(self, file: IO[str], blank: Sequence[range]) -> None:
        self._file = file
        last = max(numbers[-1] for numbers in blank)
        lines = (file.readline() for _ in range(last))
        texts = ["\n" if any(at in numbers for numbers in blank) else line for at, line in enumerate(lines, 1) if line]
        self._top = io.StringIO("".join(texts), newline="")

    def read(self, size: int | None = -1, /) -> str:
        if size is None or size < 0:
            return self._top.read() + self._file.read()
        return self._top.read(size) or self._file.read(size)

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        return self._top.readline(size) or self._file.readline(size)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_source(path: Path, encoding: str) -> TextSource:
    """Return the text of a file; with encoding "", that of the byte order mark, or UTF-8.

    Raises
    ------
    DataError
        If a compressed file is damaged or decompresses to too many bytes.
    """
    unpack = OPENERS.get(path.suffix.lower())
    try:
        with path.open("rb") if unpack is None else unpack(path) as file:
            start = file.read(2)
            size = len(start)
            while unpack is not None and (part := file.read(_BLOCK)):
                size += len(part)
                check_unpacked_size(path, size)
    except (DataError, MemoryError):
        raise
    # Damaged files raise errors of many libraries; those of the operating system have a number.
    except Exception as error:
        if unpack is None or getattr(error, "errno", None):
            raise
        raise DataError(f"{path} cannot be decompressed: {error}. Compress the file again") from None
    codec = encoding or _MARKS.get(start, UTF8)
    codec = UTF8 if codec.lower().replace("_", "-") in ("utf-8", "utf8") else codec
    return TextSource(path, codec, is_plain=unpack is None and codec == UTF8)


def open_sheet(
    path: Path, sheet: str, decimal: str, skipped: Sequence[range] = ()
) -> tuple[TextSource, str, str]:  # fmt: skip
    """Convert a sheet of a spreadsheet, without the skipped rows, to text; return it and two notes, which may be empty.

    The first note says that one of several sheets was chosen, the second that cells have an error, or a formula that
    was never computed. Numbers are written with a decimal separator, as texts in other cells may be.

    Raises
    ------
    DataError
        If no library for spreadsheets is installed, the file is damaged, or the sheet does not exist.
    """
    import pandas

    try:
        engine: Any = "calamine" if find_spec("python_calamine") else None
        with pandas.ExcelFile(path, engine=engine) as book:
            names = [str(name) for name in book.sheet_names]
            chosen = _choose_sheet(path, names, sheet)
            cells = book.parse(chosen, header=None, dtype=object, na_filter=False)
    except ImportError:
        raise DataError(
            f"{path} requires python-calamine, which is not installed. Run pip install 'p2pkm[excel]'"
        ) from None
    except (DataError, MemoryError):
        raise
    # A damaged spreadsheet raises almost any exception.
    except Exception as error:
        raise DataError(f"{path} cannot be read as a spreadsheet: {error}. Save it again, or export CSV") from None
    content = cells.to_numpy(object).tolist()
    numbers = [number for part in skipped for number in range(part.start, min(part.stop, len(content) + 1)) if number]
    lost = [cell for cell in find_lost_cells(path, chosen) if cell.row + 1 not in set(numbers)]
    for cell in lost:
        if cell.row < len(content) and cell.column < cells.shape[1]:
            content[cell.row][cell.column] = None
    for number in numbers:
        content[number - 1] = [None] * cells.shape[1]
    rows = [[_to_field(cell, decimal) for cell in row] for row in content]
    used = [j for j in range(cells.shape[1]) if any(row[j] for row in rows)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        if any(row):
            writer.writerow([row[j] for j in used])
        else:
            text.write("\n")
    names_of_rest = ", ".join(repr(name) for name in names if name != chosen)
    note = f"sheet {chosen!r} is read, the first of {len(names)}; use --sheet to choose another ({names_of_rest})"
    long_numbers = {}
    for number, j in enumerate(used):
        found = [(row, abs(cells[j])) for row, cells in enumerate(content, 1) if _is_long(cells[j])]
        if found:
            long_numbers[number] = max(found, key=lambda entry: entry[1])
    source = TextSource(path, content=text.getvalue(), is_plain=False, unit="row", long_numbers=long_numbers)
    return source, note if not sheet and len(names) > 1 else "", describe_lost_cells(lost)


def _choose_sheet(path: Path, names: list[str], sheet: str) -> str:
    if not sheet or sheet in names:
        return sheet or names[0]
    if sheet.isdecimal() and int(sheet) < len(names):
        return names[int(sheet)]
    listed = ", ".join(map(repr, names))
    raise DataError(f"{path} has no sheet {sheet!r}; expected one of {listed}, or a number from 0. Change --sheet")


def _is_long(cell: Any) -> bool:
    """Return whether a cell is a number of more than 15 digits, the most that spreadsheets keep."""
    return isinstance(cell, int | float) and not isinstance(cell, bool) and 1e15 <= abs(cell) < float("inf")


def _to_field(cell: Any, decimal: str) -> str:
    """Convert a cell to text: whole numbers without a fraction, others with decimals, dates as 2026-01-31."""
    if cell is None or (isinstance(cell, float) and cell != cell) or type(cell).__name__ == "NaTType":
        return ""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, float):
        return str(cell).replace(".", decimal)
    text = str(cell).removesuffix(" 00:00:00") if hasattr(cell, "hour") and hasattr(cell, "year") else str(cell)
    return " ".join(text.split())


def _open_zst(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise DataError(f"{path} requires zstandard, which is not installed. Run pip install 'p2pkm[zstd]'") from None
    return zstandard.open(path, "rb")


# Functions that open a compressed file, by suffix.
OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}
