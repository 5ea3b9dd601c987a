"""Reader of data files of all formats: `read_table`."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import as_points, check_choice
from p2pkm.data.identifiers import to_raw
from p2pkm.data.readers.anndata import read_annotated, split_part
from p2pkm.data.readers.arrow import read_arrow, read_parquet
from p2pkm.data.readers.columns import (
    Column,
    FileContents,
    LabelColumns,
    as_index,
    assign_roles,
    build_table,
    list_names,
    take_points,
)
from p2pkm.data.readers.concatenate import join_contents
from p2pkm.data.readers.csv import read_text
from p2pkm.data.readers.folder import expand_path, name_files
from p2pkm.data.readers.frames import is_frame, read_frame
from p2pkm.data.readers.header import HEADERS
from p2pkm.data.readers.intake import ANSWERS, TIDY, ColumnOptions, split_names
from p2pkm.data.readers.leaf import read_leaf
from p2pkm.data.readers.npy import LABELS, LARGEST, check_regular_file, find_image, find_points, load_array, load_arrays
from p2pkm.data.readers.suspicions import find_suspicions
from p2pkm.data.table import Table


def read_table(  # noqa: PLR0913 - the public signature
    path: Any, label_column: Column = None, device_column: Column = None, *, columns: str | Sequence[str] = (),
    drop: str | Sequence[str] = (), encode: str | Sequence[str] = (), missing: str = "refuse", header: str = "auto",
) -> Table:  # fmt: skip
    r"""Read points, and labels and devices if there are any.

    Parameters
    ----------
    path : str, Path, DataFrame of pandas or polars, pyarrow.Table or array
        A table in memory is read like a file with the same columns. Of files: a file, whose suffix determines the
        format, or a folder or pattern of files. Each of several files is a device, in natural order of their names (2
        before 10), unless the files have a column of devices. ``cells.h5ad:obsm:X_pca`` and
        ``cells.h5ad:layers:NAME`` are matrices of an AnnData file other than X.
    label_column, device_column : str or int, optional
        Name or index of a column; None: the column named label, client or device, if any.
    columns : sequence of str, or str
        Features in text files, Arrow files and tables in memory, as a list or as text such as ``"age,bmi"``; empty: all
        other columns.
    drop : sequence of str, or str
        Columns to ignore, in the same forms.
    encode : sequence of str, or str
        Columns that contain categories, which become one feature of 0 and 1 each, or dates and times, which become days
        since 1970-01-01, in the same forms.
    missing : {"refuse", "drop", "mean", "median"}
        Treatment of missing values.

        * "refuse": raise an error.
        * "drop": remove their rows; `Table.rows` contains the remaining ones.
        * "mean", "median": read them as NaN. Pass ``missing=True`` to `Shards.deal` and the same value to `simulate`,
          which fills them in by messages.
    header : {"auto", "yes", "no"}
        Whether the first row of a text file contains the column names. "auto": if it contains text above numbers, or
        numbers that are unlikely for a point, such as wavelengths or years; `Table.notes` then reports the guess.

    Raises
    ------
    DataError
        If a file cannot be used; the message names the location.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import p2pkm
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "sites.csv")
    ...     _ = path.write_text("age,sex,hospital\n61,f,Turku\n48,m,Oulu\n,f,Oulu\n")
    ...     table = p2pkm.read_table(path, device_column="hospital", encode=["sex"], missing="drop")
    >>> table.features, table.points.tolist()
    (('age', 'sex=f', 'sex=m'), [[61.0, 1.0, 0.0], [48.0, 0.0, 1.0]])
    >>> p2pkm.Shards.deal(table.points, table.device).names
    ('Oulu', 'Turku')
    """
    intake = ColumnOptions(
        split_names(columns),
        split_names(drop),
        split_names(encode),
        check_choice(missing, ANSWERS, "missing"),
        check_choice(header, HEADERS, "header"),
    )
    if not isinstance(path, (str, os.PathLike)):
        return _read_from_memory(path, label_column, device_column, intake)
    place, _ = split_part(str(path))
    files = expand_path(place, SUFFIXES)
    if files is None:
        parts = _read_file(Path(path).expanduser(), label_column, device_column, intake)
        return build_table(place, _add_suspicions(place, parts, intake))
    parts = _add_suspicions(files[0], _read_files(str(path), files, label_column, device_column, intake), intake)
    if parts.device is not None:
        return build_table(str(path), parts)
    numbers = np.arange(len(files))
    parts = parts._replace(device=np.repeat(numbers, parts.lengths), owners=numbers)
    return build_table(str(path), parts)._replace(names=name_files(files))


def _read_from_memory(table: Any, label: Column, device: Column, intake: ColumnOptions) -> Table:
    """Read a frame or an array as a file with the same content would be read."""
    where = f"the {type(table).__name__}"
    if intake.header != TIDY.header:
        raise DataError(f"{where} has no row of column names; header is for {', '.join(_TEXTS)}")
    if is_frame(table):
        parts = read_frame(where, table, label, device, intake)
        return build_table(where, parts._replace(notes=(*parts.notes, *find_suspicions(parts, intake.encode))))
    if not isinstance(table, np.ndarray):
        raise DataError(
            f"path is of type {type(table).__name__}; expected a path, a DataFrame of pandas or polars, a "
            "pyarrow.Table, or an array of shape (points, features)"
        )
    if intake.named:
        raise DataError(f"{where} has no named columns; columns, drop and encode are for a DataFrame")
    points, marks = _split(Path(where), table, label, device, intake)
    return build_table(where, take_points(where, points, marks, intake))


def _add_suspicions(path: str, parts: FileContents, intake: ColumnOptions) -> FileContents:
    """Add notes on suspicious contents to a table with named columns."""
    if Path(path).suffix.lower() not in _NAMED:
        return parts
    return parts._replace(notes=(*parts.notes, *find_suspicions(parts, intake.encode)))


def _read_files(path: str, files: list[str], label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    """Read several files and concatenate their rows."""
    place, part = split_part(path)
    contents: list[tuple[str, FileContents]] = []
    size = 0
    for file_path in files:
        parts = _read_file(Path(file_path + part), label, device, intake)
        if len(parts.points):
            # Validates labels and devices while the name of the file is known for messages.
            build_table(file_path, parts)
        size += parts.points.nbytes
        if size > LARGEST:
            raise DataError(
                f"the files of {place} up to {file_path} contain {size} bytes; expected at most {LARGEST}. Use fewer "
                "files, or files of type .npy or .parquet, which stay on disk"
            )
        contents.append((file_path, parts))
    return join_contents(contents)._replace(lengths=tuple(len(parts.points) for _, parts in contents))


def _read_file(file: Path, label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    """Read one file by the format of its suffix."""
    path = Path(split_part(str(file))[0])
    # os.path.exists returns False for names that are too long, for which Path.exists raises an error.
    if not os.path.exists(path):
        remote = ". URLs are not supported: download the file first" if re.match(r"\w{2,}:/", str(path)) else ""
        raise DataError(f"data file {path} does not exist (searched in {Path.cwd()}). Check the path{remote}")
    check_regular_file(path, f"a data file with one of the suffixes {', '.join(SUFFIXES)}")
    reader = SUFFIXES.get(path.suffix.lower())
    if reader is None:
        if path.suffix.lower() in SPREADSHEETS:
            raise DataError(
                f"{path} is a spreadsheet; expected one of {', '.join(SUFFIXES)}. Export the sheet with the points as "
                "CSV (UTF-8), one row per point below a row of column names, and use that file"
            )
        raise DataError(f"{path} has the suffix {path.suffix!r}; expected one of {', '.join(SUFFIXES)}")
    full = _FULL.get(path.suffix.lower())
    _check_intake(path, intake)
    try:
        return reader(file, label, device) if full is None else full(file, label, device, intake)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except MemoryError:
        raise DataError(
            f"{path} does not fit into memory. Use fewer points, or a .npy or .parquet file, which can stay on disk"
        ) from None


def _check_intake(path: Path, intake: ColumnOptions) -> None:
    """Validate that the options for columns apply to the format of a file."""
    kind = path.suffix.lower()
    if kind not in _NAMED and intake.named:
        raise DataError(
            f"{path}: --columns, --drop and --encode require named columns; expected a file of type "
            f"{', '.join(_NAMED)}. Remove these options"
        )
    if kind not in _TEXTS and intake.header != TIDY.header:
        raise DataError(
            f"{path}: --header requires a text file; expected a file of type {', '.join(_TEXTS)}. Remove --header"
        )
    if kind not in _FULL and intake != TIDY:
        raise DataError(
            f"{path}: --missing is not supported for {kind} files; expected a file of type {', '.join(_FULL)}. Remove "
            "--missing"
        )


def _read_npy(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    points, marks = _split(path, load_array(path), label, device, intake)
    return take_points(str(path), points, marks, intake)


def _read_npz(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read an archive with points or images, and labels and devices in separate arrays or in columns of the points."""
    arrays = load_arrays(path)
    name = find_points({key: array.shape for key, array in arrays.items()})
    if name is None:
        raise DataError(
            f"{path} contains the arrays {list_names(list(arrays))}; expected 'X', 'points', 'images' or a single "
            "array of two dimensions, or of three or four: images of one size, [n, height, width] or [n, height, "
            "width, channels]. Rename the array of the points to 'X'"
        )
    roles = {"labels": _find_role(arrays, label, LABELS), "devices": _find_role(arrays, device, ("client", "device"))}
    label, device = (column for _, column in roles.values())
    unknown = next((column for column in (label, device) if column is not None and as_index(column) is None), None)
    if unknown is not None:
        raise DataError(f"{path}: array {unknown!r} does not exist; expected one of {list_names(list(arrays))}")
    parts, marks = _split(path, _flatten(path, arrays[name]), label, device, intake)
    for role, (array, _) in roles.items():
        if array is not None:
            what = f"{path}: the {role}"
            if array.shape != (m := len(parts.points),):
                raise DataError(f"{what} have shape {array.shape}; expected ({m},), one per point")
            identifiers = to_raw(array, what)
            marks = marks._replace(label=identifiers) if role == "labels" else marks._replace(device=identifiers)
    parts = take_points(str(path), parts, marks, intake)
    return parts._replace(image=find_image(arrays[name].shape, parts.points.shape[1]))


def _flatten(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    """Convert images to points: pixels row by row, uint8 scaled to [0, 1]; other arrays are returned unchanged."""
    if array.ndim not in (3, 4):
        return array
    if 0 in array.shape:
        raise DataError(f"{path} contains images of shape {array.shape}; expected at least one image and one pixel")
    flat = array.reshape(len(array), -1)
    return flat / np.float32(255) if array.dtype == np.uint8 else flat


def _find_role(arrays: dict[str, NDArray[Any]], column: Column, usual: tuple[str, ...]) -> tuple[Any, Column]:
    """Find the array of labels or devices; return it and None, or else None and the column of the points to use."""
    if column is None:
        array = next((arrays[name] for name in usual if name in arrays), None)
        return (array.ravel() if array is not None and array.shape[1:] == (1,) else array), None
    return (arrays[column], None) if isinstance(column, str) and column in arrays else (None, column)


def _split(
    path: Path, array: Any, label: Column, device: Column, intake: ColumnOptions
) -> tuple[FileContents, LabelColumns]:
    """Split a 2-D array into points, labels and devices by column index."""
    if array.ndim == 2 and not len(array) and array.shape[1]:
        numbers = array.astype(np.float64)
    else:
        precision = "float32" if array.dtype == np.float32 else "float64"
        numbers = as_points(array, str(path), dtype=precision, missing=intake.missing != "refuse")
    names = [str(j) for j in range(numbers.shape[1])]
    roles = assign_roles(str(path), names, label, device)
    marks = LabelColumns.of(names, roles, array.T, f"{path}, ")
    called = (marks.called[0] or "the label", marks.called[1] or "the device")
    points = numbers if len(roles.points) == len(names) else numbers[:, roles.points]
    why = f"has shape {array.shape}, expected at least one point"
    return FileContents(points, why_empty=why), marks._replace(called=called)


SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
_TEXTS = (".csv", ".tsv")
# Formats whose columns have names and may contain text.
_NAMED = (*_TEXTS, ".parquet", ".arrow", ".feather", ".ipc")
# Formats whose missing values can be dropped or filled in.
_FULL: dict[str, Callable[[Path, Column, Column, ColumnOptions], FileContents]] = {
    **dict.fromkeys(_TEXTS, read_text),
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": read_parquet,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), read_arrow),
    ".h5ad": read_annotated,
}
SUFFIXES: dict[str, Callable[[Path, Column, Column], FileContents]] = {
    ".csv": read_text,
    ".tsv": read_text,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": read_parquet,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), read_arrow),
    ".json": read_leaf,
    ".h5ad": read_annotated,
}
