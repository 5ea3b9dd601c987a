"""Files of points, one or several, whatever their format: `read_table`."""

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
from p2pkm.data.readers.columns import Column, FileContents, Marks, as_index, assign, listed, table_of, take_points
from p2pkm.data.readers.concatenate import join
from p2pkm.data.readers.csv import read_text
from p2pkm.data.readers.folder import name_files, several
from p2pkm.data.readers.header import HEADERS
from p2pkm.data.readers.intake import ANSWERS, TIDY, ColumnOptions
from p2pkm.data.readers.leaf import read_leaf
from p2pkm.data.readers.npy import LABELS, LARGEST, find_image, find_points, load_array, load_arrays, refuse_endless
from p2pkm.data.readers.suspicions import find_suspicions
from p2pkm.data.table import Table


def read_table(  # noqa: PLR0913 - the public signature
    path: str | Path, label_column: Column = None, device_column: Column = None, *, columns: Sequence[str] = (),
    drop: Sequence[str] = (), encode: Sequence[str] = (), missing: str = "refuse", header: str = "auto",
) -> Table:  # fmt: skip
    r"""Read points, and labels and devices if there are any.

    Parameters
    ----------
    path : str or Path
        A file, whose suffix says how it is written; or a folder or a pattern of files. Then each file is a device,
        numbered in the order in which people count, unless the files say themselves which device a point is of.
        ``cells.h5ad:obsm:X_pca`` and ``cells.h5ad:layers:NAME`` are other matrices of an AnnData file than its X.
    label_column, device_column : str or int, optional
        Name or index of a column; None: the one named label, client or device, if there is one.
    columns, drop, encode : sequence of str
        Of text and Arrow files: the features (none named: all other columns), columns to leave out, and columns of
        categories, which become a feature of 0 and 1 for each, or of dates and times, which become days since
        1970-01-01.
    missing : {"refuse", "drop", "mean", "median"}
        What becomes of missing values. "drop": their rows are left out, `Table.rows` says which are kept.
        "mean", "median": they are NaN; give the same to `Shards.deal` (``missing=True``) and `simulate`, which fills
        them in by messages.
    header : {"auto", "yes", "no"}
        Whether the first row of a text file holds the names of the columns. "auto": if it has text above numbers, or
        numbers that a point hardly has, such as wavelengths or years; then `Table.notes` says so.

    Raises
    ------
    DataError
        If a file cannot be used; the message names the place.

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
    intake = ColumnOptions(tuple(columns), tuple(drop), tuple(encode), check_choice(missing, ANSWERS, "missing"),
                    check_choice(header, HEADERS, "header"))  # fmt: skip
    place, _ = split_part(str(path))
    found = several(place, SUFFIXES)
    if found is None:
        parts = _read(Path(path).expanduser(), label_column, device_column, intake)
        return table_of(place, _look_through(place, parts, intake))
    parts = _look_through(found[0], _gather(str(path), found, label_column, device_column, intake), intake)
    if parts.device is not None:
        return table_of(str(path), parts)
    files = np.arange(len(found))
    parts = parts._replace(device=np.repeat(files, parts.lengths), owners=files)
    return table_of(str(path), parts)._replace(names=name_files(found))


def _look_through(path: str, parts: FileContents, intake: ColumnOptions) -> FileContents:
    """Add notes of what looks wrong in a table with columns of its own."""
    if Path(path).suffix.lower() not in _NAMED:
        return parts
    return parts._replace(notes=(*parts.notes, *find_suspicions(parts, intake.encode)))


def _gather(path: str, files: list[str], label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    """Read several files, end to end."""
    place, part = split_part(path)
    found: list[tuple[str, FileContents]] = []
    size = 0
    for one in files:
        parts = _read(Path(one + part), label, device, intake)
        if len(parts.points):
            table_of(one, parts)  # now, while it is known which file it is
        size += parts.points.nbytes
        if size > LARGEST:
            raise DataError(
                f"the files of {place} up to {one} hold {size} bytes, expected at most {LARGEST}; take fewer files, or "
                ".npy and .parquet, which stay on disk"
            )
        found.append((one, parts))
    return join(found)._replace(lengths=tuple(len(one.points) for _, one in found))


def _read(file: Path, label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    """Read one file as its suffix says."""
    path = Path(split_part(str(file))[0])
    if not os.path.exists(path):  # also if the name is too long to be one
        remote = ": addresses are not read, download the file" if re.match(r"\w{2,}:/", str(path)) else ""
        raise DataError(f"there is no file {path} (looked in {Path.cwd()}); check the path{remote}")
    refuse_endless(path, f"a file of points: {', '.join(SUFFIXES)}")
    reader = SUFFIXES.get(path.suffix.lower())
    if reader is None:
        if path.suffix.lower() in SPREADSHEETS:
            raise DataError(
                f"{path} is a spreadsheet; export the sheet with the points as CSV (UTF-8), one row per point and one "
                "line of column names, and give that file"
            )
        raise DataError(f"{path} has the suffix {path.suffix!r}; expected one of {', '.join(SUFFIXES)}")
    full = _FULL.get(path.suffix.lower())
    _check_intake(path, intake)
    try:
        return reader(file, label, device) if full is None else full(file, label, device, intake)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except MemoryError:
        raise DataError(f"{path} does not fit into memory; take fewer points") from None


def _check_intake(path: Path, intake: ColumnOptions) -> None:
    """Raise an error if a file of this format has nothing that an option is about."""
    kind = path.suffix.lower()
    if kind not in _NAMED and intake.named:
        raise DataError(f"{path} has no named columns; --columns, --drop and --encode are for {', '.join(_NAMED)}")
    if kind not in _TEXTS and intake.header != TIDY.header:
        raise DataError(f"{path} has no row of column names; --header is for {', '.join(_TEXTS)}")
    if kind not in _FULL and intake != TIDY:
        raise DataError(f"{path} cannot have missing values; --missing is for {', '.join(_FULL)}")


def _read_npy(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    points, marks = _split(path, load_array(path), label, device, intake)
    return take_points(str(path), points, marks, intake)


def _read_npz(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read points, or images that become points, with labels and devices in arrays of their own."""
    arrays = load_arrays(path)
    name = find_points({key: array.shape for key, array in arrays.items()})
    if name is None:
        raise DataError(
            f"{path} holds the arrays {listed(list(arrays))}; expected 'X', 'points', 'images' or a single one of two "
            "dimensions, or of three or four: images of one size, [n, height, width] or [n, height, width, channels]"
        )
    beside = {"labels": _beside(arrays, label, LABELS), "devices": _beside(arrays, device, ("client", "device"))}
    label, device = (column for _, column in beside.values())
    wrong = next((column for column in (label, device) if column is not None and as_index(column) is None), None)
    if wrong is not None:
        raise DataError(f"{path} has no array {wrong!r}; its arrays are {listed(list(arrays))}")
    parts, marks = _split(path, _flatten(path, arrays[name]), label, device, intake)
    for role, (array, _) in beside.items():
        if array is not None:
            what = f"{path}: the {role}"
            if array.shape != (m := len(parts.points),):
                raise DataError(f"{what} have shape {array.shape}, expected ({m},): one for each point")
            found = to_raw(array, what)
            marks = marks._replace(label=found) if role == "labels" else marks._replace(device=found)
    parts = take_points(str(path), parts, marks, intake)
    return parts._replace(image=find_image(arrays[name].shape, parts.points.shape[1]))


def _flatten(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    """Return images as points, pixels row by row and 0 to 255 as 0 to 1; points as they are."""
    if array.ndim not in (3, 4):
        return array
    if 0 in array.shape:
        raise DataError(f"{path} holds images of shape {array.shape}; expected at least one, of at least one pixel")
    flat = array.reshape(len(array), -1)
    return flat / np.float32(255) if array.dtype == np.uint8 else flat


def _beside(arrays: dict[str, NDArray[Any]], given: Column, usual: tuple[str, ...]) -> tuple[Any, Column]:
    """Return the array of labels or devices, or else the column of the points that is to be taken."""
    if given is None:
        found = next((arrays[name] for name in usual if name in arrays), None)
        return (found.ravel() if found is not None and found.shape[1:] == (1,) else found), None
    return (arrays[given], None) if isinstance(given, str) and given in arrays else (None, given)


def _split(path: Path, array: Any, label: Column, device: Column, intake: ColumnOptions) -> tuple[FileContents, Marks]:
    """Part one 2-D array into points, labels and devices by column index."""
    if array.ndim == 2 and not len(array) and array.shape[1]:
        numbers = array.astype(np.float64)
    else:
        precision = "float32" if array.dtype == np.float32 else "float64"
        numbers = as_points(array, str(path), dtype=precision, missing=intake.missing != "refuse")
    names = [str(j) for j in range(numbers.shape[1])]
    roles = assign(str(path), names, label, device)
    marks = Marks.of(names, roles, array.T, f"{path}, ")
    called = (marks.called[0] or "the label", marks.called[1] or "the device")
    points = numbers if len(roles.points) == len(names) else numbers[:, roles.points]
    why = f"has shape {array.shape}, expected at least one point"
    return FileContents(points, why_empty=why), marks._replace(called=called)


SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
_TEXTS = (".csv", ".tsv")
_NAMED = (*_TEXTS, ".parquet", ".arrow", ".feather", ".ipc")  # columns with names, of any kind
_FULL: dict[
    str, Callable[[Path, Column, Column, ColumnOptions], FileContents]
] = {  # missing values can be dropped or filled in
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
