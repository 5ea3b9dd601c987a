"""Reader of data files of all formats: `read_table`."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.keywords import suggest_keywords
from p2pkm.core.validation import as_points
from p2pkm.data.identifiers import to_raw
from p2pkm.data.readers.anndata import read_annotated, split_part
from p2pkm.data.readers.arff import load_arff
from p2pkm.data.readers.arrow import read_arrow, read_parquet
from p2pkm.data.readers.columns import (
    DEVICE_NAMES,
    LABEL_NAMES,
    USER,
    Column,
    FileContents,
    LabelColumns,
    as_index,
    assign_roles,
    build_table,
    check_categories,
    check_identifiers,
    list_named,
    list_names,
    rename_values,
    take_points,
)
from p2pkm.data.readers.concatenate import join_contents
from p2pkm.data.readers.content import SPREADSHEETS, check_content, find_content, suggest_name
from p2pkm.data.readers.csv import read_sheet, read_text
from p2pkm.data.readers.folder import COMPRESSED, expand_path, format_of, list_keys, name_files, note_ignored
from p2pkm.data.readers.frame import has_columns, list_columns, read_frame, take_table
from p2pkm.data.readers.intake import TIDY, ColumnOptions, Names
from p2pkm.data.readers.leaf import read_leaf
from p2pkm.data.readers.npy import (
    LARGEST,
    check_regular_file,
    find_image,
    find_partner,
    find_points,
    load_array,
    load_arrays,
    to_column,
)
from p2pkm.data.readers.suspicions import find_suspicions
from p2pkm.data.schema import learn_schema
from p2pkm.data.table import Table


@suggest_keywords
def read_table(
    path: Any, label_column: Column = None, device_column: Column = None, *, columns: Names = (), drop: Names = (),
    encode: Names = (), missing: str = "refuse", header: str = "auto", weight_column: Column = None, keep: Names = (),
    na: Names = "", decimal: str = ".", thousands: str = "", separator: str = "", encoding: str = "",
    sheet: str | int = "", dates: str = "iso", rename: Any = (), skip_rows: Any = "",
) -> Table:  # fmt: skip
    r"""Read points, and labels and devices if there are any.

    Parameters
    ----------
    path : str, Path or table
        A file, whose suffix determines the format, or a folder or pattern of files. Each of several files is a device,
        in natural order of their names (2 before 10), unless the files have a column of devices. Folders such as
        ``site=A`` name the device of the files in them. Or a data frame of pandas or polars, an Arrow table or a
        mapping of columns.
        ``cells.h5ad:obsm:X_pca`` and ``cells.h5ad:layers:NAME`` are matrices of an AnnData file other than X, and
        ``mine.npz:train_images`` is an array of an archive.
    label_column, device_column : str or int, optional
        Name or index of a column; None: the column named label, client or device, if any.
    columns : sequence of str, or comma-separated str
        Features in tables with named columns; empty: all other columns.
    drop : sequence of str, or comma-separated str
        Columns to ignore.
    encode : sequence of str, or comma-separated str
        Columns that contain categories, which become one feature of 0 and 1 each (two categories are one feature), or
        dates and times, which become days since 1970-01-01.
    missing : {"refuse", "drop", "mean", "median"}
        Treatment of missing values.

        * "refuse": raise an error.
        * "drop": remove their rows; `Table.rows` contains the remaining ones.
        * "mean", "median": read them as NaN. Pass ``missing=True`` to `Shards.deal` and the same value to `simulate`,
          which fills them in by messages.
    header : {"auto", "yes", "no"}
        Whether the first row of a text file contains the column names. "auto": if it contains text above numbers, or
        numbers that are unlikely for a point, such as wavelengths or years; `Table.notes` then reports the guess.
    weight_column : str or int, optional
        Column of the weight of each point.
    keep : sequence of str, or comma-separated str
        Columns copied to `Table.copied`, such as an identifier. They are features only if `columns` names them.
    na : sequence of str, or comma-separated str
        Texts and numbers for missing values, such as "-99", in addition to the usual ones. After "=", as in
        ``"=unknown"``, instead of them, so that a class "none" or a region "NA" is kept.
    decimal, thousands : str
        Decimal separator, "." or ",", and separator of thousands in numbers of text files.
    separator, encoding : str
        Separator of fields and encoding of text files; "": detected. `Table.notes` reports text that is not UTF-8.
    sheet : str or int
        Name or number of the sheet of a spreadsheet; "": the first.
    dates : {"iso", "ymd", "dmy", "mdy", "none"}
        Order of year, month and day in dates of the columns of `encode`. "iso": only dates that begin with a year of
        four digits, such as 2026-01-31, which "ymd", "dmy" and "mdy" read, too. Years of two digits are 1969 to 2068.
        "none": no text is a date, and each is a category.
    rename : mapping of str to str, sequence of str, or comma-separated str
        New values of devices, labels and categories, such as ``{"Koeln": "Köln"}`` or ``"Koeln=Köln"`` for two
        spellings of a site.
    skip_rows : int, sequence of int, or str
        Lines at the top of a text file, or rows of a sheet, to skip, such as a title; or the numbers of rows, from 1:
        ``[2]`` or ``"2-2"`` is a row of units below the names. Messages keep the row numbers of the file.

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
    (('age', 'sex=m'), [[61.0, 0.0], [48.0, 1.0]])
    >>> p2pkm.Shards.deal(table.points, table.device).names
    ('Oulu', 'Turku')
    """
    intake = ColumnOptions.of(
        columns=columns, drop=drop, encode=encode, missing=missing, header=header, weight_column=weight_column,
        keep=keep, na=na, decimal=decimal, thousands=thousands, separator=separator, encoding=encoding, sheet=sheet,
        dates=dates, rename=rename, skip_rows=skip_rows,
    )  # fmt: skip
    path = take_table(path)
    if has_columns(path):
        check_intake("the data frame", FRAME, intake)
        frame = list_columns(path, list_named(label_column, device_column, intake))
        parts = read_frame("the data frame", frame, label_column, device_column, intake)
        notes = (*parts.notes, *find_suspicions(parts, intake))
        return _finish("the data frame", parts._replace(notes=notes), intake)
    if not isinstance(path, (str, os.PathLike)):
        return _read_array(path, label_column, device_column, intake)
    place, _ = split_part(str(path))
    files = expand_path(place, SUFFIXES)
    if files is None:
        parts = _read_file(Path(path).expanduser(), label_column, device_column, intake)
        return _finish(place, _add_suspicions(place, parts, intake), intake)
    contents = _read_files(str(path), files, label_column, device_column, intake)
    parts = _add_suspicions(files[0], contents, intake)
    parts = parts._replace(notes=(*parts.notes, *note_ignored(place, files)))
    if parts.device is not None:
        return _finish(str(path), parts, intake)
    names = name_files(files)
    numbers = np.arange(len(files)) if names is None or not intake.rename else np.array(names, object)
    parts = parts._replace(device=np.repeat(numbers, parts.lengths), owners=numbers)
    table = _finish(str(path), parts, intake)
    return table if intake.rename else table._replace(names=names)


def _finish(where: str, parts: FileContents, intake: ColumnOptions) -> Table:
    """Build the table of a file and the schema with which new rows are read."""
    parts = rename_values(where, parts, intake)
    check_categories(where, parts.categories)
    table = build_table(where, check_identifiers(where, parts))
    return table._replace(schema=learn_schema(parts, table, intake, parts.device_name))


def _read_array(array: Any, label: Column, device: Column, intake: ColumnOptions) -> Table:
    """Read an array as a file with the same content would be read."""
    if not isinstance(array, np.ndarray):
        raise DataError(
            f"path is of type {type(array).__name__}; expected a path, a DataFrame of pandas or polars, a "
            "pyarrow.Table, or an array of shape (points, features)"
        )
    where = f"the {type(array).__name__}"
    if intake.header != TIDY.header:
        raise DataError(f"{where} has no row of column names; header is for {', '.join(_TEXTS)}")
    if intake.named:
        raise DataError(f"{where} has no named columns; columns, drop and encode are for a DataFrame")
    points, marks = _split(Path(where), array, label, device, intake)
    return _finish(where, take_points(where, points, marks, intake), intake)


def _add_suspicions(path: str, parts: FileContents, intake: ColumnOptions) -> FileContents:
    """Add notes on suspicious contents to a table with named columns."""
    if format_of(path) not in _NAMED:
        return parts
    return parts._replace(notes=(*parts.notes, *find_suspicions(parts, intake)))


def _read_files(path: str, files: list[str], label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    """Read several files and concatenate their rows."""
    place, part = split_part(path)
    contents: list[tuple[str, FileContents]] = []
    size = 0
    for file_path in files:
        parts = _read_part(place, Path(file_path + part), label, device, intake)
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


def _read_part(place: str, file: Path, label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    """Read one of several files; folders such as ``site=A`` give all of its points a label or a device."""
    keys = list_keys(place, file)
    requested = {"label": label, "device": device}
    roles: dict[str, str] = {}
    for role, usual in (("label", LABEL_NAMES), ("device", DEVICE_NAMES)):
        names = [key for key in keys if key == requested[role] or (requested[role] is None and key.lower() in usual)]
        roles |= {role: names[0]} if names else {}
    rest = [key for key in keys if key not in (*roles.values(), *intake.drop)]
    if "device" not in roles and device is None and len(rest) == 1:
        roles["device"] = rest.pop()
    columns = [None if role in roles else requested[role] for role in ("label", "device")]
    dropped = tuple(name for name in intake.drop if name not in keys)
    parts = _read_file(file, columns[0], columns[1], intake._replace(drop=dropped))
    for role, key in roles.items():
        values = to_raw([keys[key]] * len(parts.points), f"folder {key}={keys[key]}")
        if role == "label":
            parts = parts._replace(label=values)
        else:
            parts = parts._replace(device=values, owners=to_raw([keys[key]], f"folder {key}={keys[key]}"))
    note = f"the values of {', '.join(map(repr, rest))} in the names of folders are not used"
    return parts._replace(notes=(*parts.notes, note)) if rest else parts


def _read_file(file: Path, label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    """Read one file by the format of its suffix."""
    path = check_file(Path(split_part(str(file))[0]))
    full = _FULL.get(format_of(path))
    check_intake(str(path), format_of(path), intake)
    with explain_system_errors(path):
        return SUFFIXES[format_of(path)](file, label, device) if full is None else full(file, label, device, intake)


def check_file(path: Path) -> Path:
    """Validate that a path is a regular file in a known format, and return it.

    Raises
    ------
    DataError
        If it is not.
    """
    # os.path.exists returns False for names that are too long, for which Path.exists raises an error.
    if not os.path.exists(path):
        remote = ". URLs are not supported: download the file first" if re.match(r"\w{2,}:/", str(path)) else ""
        raise DataError(f"data file {path} does not exist (searched in {Path.cwd()}). Check the path{remote}")
    check_regular_file(path, f"a data file with one of the suffixes {', '.join(SUFFIXES)}")
    if format_of(path) not in SUFFIXES:
        found = None if path.suffix else find_content(path)
        packed = path.suffix.lower() in COMPRESSED
        way = (
            f". Only text is read compressed: rename it to {path.stem}.csv{path.suffix}, or unpack it" if packed else ""
        )
        way += "" if found is None else f". It contains {found[0]}. {suggest_name(path, found)}"
        raise DataError(f"{path} has the suffix {path.suffix!r}; expected one of {', '.join(SUFFIXES)}{way}")
    with explain_system_errors(path):
        check_content(path)
    return path


@contextmanager
def explain_system_errors(path: Path) -> Iterator[None]:
    """Convert errors of the operating system and of memory to a `DataError`."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except MemoryError:
        raise DataError(
            f"{path} does not fit into memory. Use fewer points, or a .npy or .parquet file, which can stay on disk"
        ) from None


def list_unsupported(kind: str, intake: ColumnOptions) -> list[str]:
    """List the options with another value than the default that do not apply to a format."""
    return [name for known, options in _OPTIONS for name in options
            if kind not in known and getattr(intake, name) != getattr(TIDY, name)]  # fmt: skip


def check_intake(path: str, kind: str, intake: ColumnOptions) -> None:
    """Validate that the options for columns apply to the format of a file."""
    for known, options in _OPTIONS:
        unsupported = [name for name in options if name in list_unsupported(kind, intake)]
        if unsupported:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in unsupported)
            raise DataError(
                f"{path}: {flags} cannot be combined with {kind.removeprefix('a ')} files; expected a file of type "
                f"{', '.join(name for name in known if name != FRAME)}. Remove {flags}"
            )


def _read_npy(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    points, marks = _split(path, load_array(path), label, device, intake)
    return take_points(str(path), points, marks, intake)


def _read_npz(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read an archive with points or images, and labels and devices in separate arrays or in columns of the points."""
    place, part = split_part(str(path))
    arrays = load_arrays(Path(place))
    shapes = {key: array.shape for key, array in arrays.items()}
    name = part.removeprefix(":") or find_points(shapes)
    if name is None or name not in arrays:
        listed = ", ".join(f"{key!r} {list(shape)}" for key, shape in list(shapes.items())[:_LISTED]) or "none"
        tables = [key for key, shape in shapes.items() if len(shape) >= 2]
        what = f"contains the arrays {listed}" if name is None else f"has no array {name!r}, but {listed}"
        raise DataError(
            f"{place} {what}; expected 'X', 'points', 'images' or a single array of two dimensions, or of three or "
            "four for images of one size, [n, height, width, channels]. Name the array after the path, as in "
            f"{place}:{tables[0] if tables else 'X'}, or rename it to 'X'"
        )
    names = {
        "labels": _name_array(arrays, name, label, "labels"),
        "devices": _name_array(arrays, name, device, "devices"),
    }
    label, device = (
        None if named is not None else column for named, column in zip(names.values(), (label, device), strict=True)
    )
    unknown = next((column for column in (label, device) if column is not None and as_index(column) is None), None)
    if unknown is not None:
        raise DataError(f"{place}: array {unknown!r} does not exist; expected one of {list_names(list(arrays))}")
    parts, marks = _split(Path(place), _flatten(Path(place), arrays[name]), label, device, intake)
    for role, key in names.items():
        if key is not None:
            what = f"{place}: the {role}"
            array = to_column(arrays[key])
            if array.shape != (m := len(parts.points),):
                raise DataError(f"{what} have shape {array.shape}; expected ({m},), one per point")
            identifiers = to_raw(array, what)
            if role == "labels":
                marks = marks._replace(label=identifiers)
            else:
                marks = marks._replace(device=identifiers, device_name=USER)
    parts = take_points(place, parts, marks, intake)
    unused = [key for key, shape in shapes.items() if shape and key not in (name, *names.values())]
    if unused:
        parts = parts._replace(notes=(f"the points are the array {name!r}; not read: {list_names(unused)}",))
    return parts._replace(image=find_image(shapes[name], parts.points.shape[1]))


def _name_array(arrays: dict[str, NDArray[Any]], points: str, column: Column, role: str) -> str | None:
    """Return the name of the array of labels or devices; None if there is none, or if it is a column of the points."""
    if column is not None:
        return column if isinstance(column, str) and column in arrays else None
    name = find_partner(points, {key: array.shape for key, array in arrays.items()}, role)
    # Masks of images and several classes per point are not labels.
    return None if name is None or to_column(arrays[name]).ndim != 1 else name


def _flatten(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    """Convert images to points: pixels row by row, uint8 scaled to [0, 1]; other arrays are returned unchanged."""
    if array.ndim not in (3, 4):
        return array
    if 0 in array.shape:
        raise DataError(f"{path} contains images of shape {array.shape}; expected at least one image and one pixel")
    flat = array.reshape(len(array), -1)
    return flat / np.float32(255) if array.dtype == np.uint8 else flat


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
    positions = tuple(map(str, roles.points))
    return FileContents(points, positions=positions, why_empty=why), marks._replace(called=called)


def _read_arff(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    return read_frame(str(path), load_arff(path), label, device, intake)


# Largest number of arrays in a message.
_LISTED = 20
_TEXTS = (".csv", ".tsv", ".txt")
# Format of tables in memory, in place of a suffix.
FRAME = "data frame"
# Formats whose columns have names and may contain text.
_NAMED = (*_TEXTS, *SPREADSHEETS, ".parquet", ".arrow", ".feather", ".ipc", ".arff", FRAME)
# Formats whose missing values can be dropped or filled in.
_FULL: dict[str, Callable[[Path, Column, Column, ColumnOptions], FileContents]] = {
    **dict.fromkeys(_TEXTS, read_text),
    **dict.fromkeys(SPREADSHEETS, read_sheet),
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": read_parquet,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), read_arrow),
    ".arff": _read_arff,
    ".h5ad": read_annotated,
}
SUFFIXES: dict[str, Callable[[Path, Column, Column], FileContents]] = {
    **dict.fromkeys(_TEXTS, read_text),
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": read_parquet,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), read_arrow),
    **dict.fromkeys(SPREADSHEETS, read_sheet),
    ".arff": _read_arff,
    ".json": read_leaf,
    ".h5ad": read_annotated,
}
# Formats and the options that apply to them only.
_OPTIONS = (
    (_NAMED, ("columns", "drop", "encode", "keep", "weight_column", "na", "decimal", "thousands", "dates")),
    ((*_TEXTS, *SPREADSHEETS), ("header", "skip_rows")),
    (_TEXTS, ("separator", "encoding")),
    (SPREADSHEETS, ("sheet",)),
    ((*_FULL, FRAME), ("missing",)),
)
