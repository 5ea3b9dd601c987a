"""Columns of a file or data frame before they have roles, for descriptions and for new rows."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.readers.anndata import split_part
from p2pkm.data.readers.any_format import (
    FRAME,
    SUFFIXES,
    check_file,
    check_intake,
    explain_system_errors,
    read_table,
)
from p2pkm.data.readers.arff import load_arff
from p2pkm.data.readers.arrow import use_arrow, use_parquet
from p2pkm.data.readers.columns import USER, list_names
from p2pkm.data.readers.content import SPREADSHEETS
from p2pkm.data.readers.csv import (
    check_long_numbers,
    check_units,
    locate_rows,
    open_cells,
    open_text,
    read_fields,
    read_head,
)
from p2pkm.data.readers.folder import TEXTS, expand_path, format_of, name_files, note_ignored
from p2pkm.data.readers.frame import (
    NamedColumns,
    convert_column,
    has_columns,
    is_category,
    list_columns,
    list_notes,
    take_table,
    to_categories,
    to_texts,
)
from p2pkm.data.readers.intake import ColumnOptions, RowLocations
from p2pkm.data.readers.npy import load_array
from p2pkm.data.readers.text_source import TextSource


class RawTable(NamedTuple):
    """Columns of a table.

    Attributes
    ----------
    where : str
        Name of the table in messages.
    names : list of str
    columns : list
        Columns of any library; columns of numbers in text files are float64[m].
    locations : RowLocations
    notes : tuple of str
    files : tuple of str
        Names of the devices, if each of several files is one.
    file : int64[m] or None
        File of each row.
    """

    where: str
    names: list[str]
    columns: list[Any]
    locations: RowLocations
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    file: NDArray[np.int64] | None = None

    def find(self, name: str) -> Any:
        """Return the column with a name."""
        return self.columns[self.names.index(name)]

    def convert(self, name: str, intake: ColumnOptions, *, encode: bool = False) -> Any:
        """Convert a column to numbers or categories; else describe the problem."""
        return convert_column(name, self.find(name), self.locations, intake, encode=encode)

    def list_texts(self, name: str) -> list[str]:
        """Return a column as text; "" for missing values."""
        return to_texts(self.find(name), name)


def read_raw(
    source: Any, intake: ColumnOptions, texts: Collection[str] = (), *, named: Collection[str] = ()
) -> RawTable:  # fmt: skip
    """Read all columns of a file, of several files, or of a data frame.

    Parameters
    ----------
    source : path or table
    intake : ColumnOptions
        Options that read numbers and missing values.
    texts : collection of str
        Columns that are read as text even if they contain numbers.
    named : collection of str
        Columns that are read even if they are the index of a pandas data frame.

    Raises
    ------
    DataError
        If the file cannot be read, or its columns have no names.
    """
    source = take_table(source)
    if has_columns(source):
        check_intake("the data frame", FRAME, intake)
        return _wrap("the data frame", list_columns(source, tuple(named)))
    files = expand_path(str(source), SUFFIXES)
    if files is None:
        return _read_file(Path(source).expanduser(), intake, texts, named)
    return _join(str(source), files, [_read_file(Path(path), intake, texts, named) for path in files])


def _read_file(path: Path, intake: ColumnOptions, texts: Collection[str], named: Collection[str]) -> RawTable:
    kind = format_of(check_file(path))
    check_intake(str(path), kind, intake)
    with explain_system_errors(path):
        if kind in (*TEXTS, *SPREADSHEETS):
            read = open_text if kind in TEXTS else open_cells
            return read(path, intake, lambda text: _read_text(text, intake, texts))
        if kind == ".parquet":
            return use_parquet(path, lambda frame: _wrap(str(path), frame), tuple(named))
        if kind in (".arrow", ".feather", ".ipc"):
            return use_arrow(path, lambda frame: _wrap(str(path), frame), tuple(named))
        if kind == ".arff":
            return _wrap(str(path), load_arff(path))
        array = load_array(path) if kind == ".npy" else None
    if array is None or array.ndim != 2:
        raise DataError(f"{path} has no named columns; expected a table, such as .csv, .xlsx or .parquet")
    return _wrap(str(path), NamedColumns([str(j) for j in range(array.shape[1])], list(array.T), len(array)))


def is_matrix(source: Any) -> bool:
    """Return whether a path names a file of a format that stores points, labels and devices apart from each other."""
    return not has_columns(source) and format_of(split_part(str(source))[0]) in (".npz", ".json", ".h5ad")


def read_matrix(source: Any, device: str | None) -> RawTable:
    """Read points and devices of a file for which `is_matrix` is true, as columns.

    Parameters
    ----------
    source : path
    device : str or None
        Column of the devices, if the file has it.

    Raises
    ------
    DataError
        If the file cannot be read.
    """
    missing = "refuse" if format_of(str(source)) == ".json" else "mean"
    try:
        # Arrays of devices and users of LEAF are found without a name.
        table = read_table(source, None, None if device == USER else device, missing=missing)
    except DataError:
        # A file without this column; any other error occurs again.
        table = read_table(source, missing=missing)
    names = [column.name for column in table.schema.columns]
    columns: list[Any] = list(table.points.T)
    if table.device is not None and device is not None:
        names, columns = [*names, device], [*columns, table.device]
    return _wrap(str(source), NamedColumns(names, columns, len(table.points)))._replace(notes=table.notes or ())


def _wrap(where: str, frame: NamedColumns) -> RawTable:
    return RawTable(where, frame.names, frame.columns, RowLocations("row", range(frame.rows)), list_notes(frame))


def _read_text(source: TextSource, intake: ColumnOptions, texts: Collection[str]) -> RawTable:
    head = read_head(source, set(texts), intake)
    check_units(source, head, [j for j, name in enumerate(head.names) if name not in intake.named], intake)
    numeric = {j for j, name in enumerate(head.names) if name not in texts}
    content = read_fields(source, head, numeric, intake)
    columns = [content[j] for j in range(len(head.names))]
    notes = [head.note] if head.note else []
    notes += check_long_numbers(source, head.names)
    return RawTable(str(source.path), head.names, columns, locate_rows(source, head, len(columns[0])), tuple(notes))


def _join(where: str, files: list[str], tables: list[RawTable]) -> RawTable:
    """Concatenate the columns of several files."""
    first = tables[0]
    for path, table in zip(files, tables, strict=True):
        if table.names != first.names:
            raise DataError(
                f"{path} has the columns {list_names(table.names)}, but {files[0]} has {list_names(first.names)}; "
                "expected the same columns in all files"
            )
    columns = list[Any]()
    for j, name in enumerate(first.names):
        parts = [table.columns[j] for table in tables]
        are_numbers = all(isinstance(part, np.ndarray) and part.dtype.kind == "f" for part in parts)
        joined = np.concatenate(parts if are_numbers else [np.array(to_texts(p, name), object) for p in parts])
        columns.append(to_categories(joined) if any(map(is_category, parts)) else joined)
    sizes = [len(table.locations.numbers) for table in tables]
    names = name_files(files) or tuple(map(str, range(len(files))))
    notes = tuple(dict.fromkeys(note for table in tables for note in table.notes)) + note_ignored(where, files)
    locations = RowLocations("row", range(sum(sizes)))
    return RawTable(where, first.names, columns, locations, notes, names, np.repeat(np.arange(len(files)), sizes))
