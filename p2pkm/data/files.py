"""Files of points: .csv, .tsv, .npy, .npz and .parquet."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.data.arrays import load_array, load_arrays, refuse_bomb, refuse_endless
from p2pkm.data.checks import finite, matrix
from p2pkm.data.columns import Column, as_index, assign, listed, plain, table_of
from p2pkm.data.table import Table
from p2pkm.data.text import read_text
from p2pkm.errors import DataError


def read_table(path: str | Path, label_column: Column = None, device_column: Column = None) -> Table:
    """Read points, and labels and devices if there are any.

    Parameters
    ----------
    path : str or Path
        A file; its suffix says how it is written.
    label_column, device_column : str or int, optional
        Name or index of a column; None: the one named label, client or device, if there is one.

    Raises
    ------
    DataError
        If the file cannot be used; the message names the place.
    """
    file = Path(path).expanduser()
    if os.path.isdir(file):
        raise DataError(f"{file} is a folder; expected a file: {', '.join(SUFFIXES)}")
    if not os.path.exists(file):  # also if the name is too long to be one
        raise DataError(f"there is no file {file} (looked in {Path.cwd()}); check the path")
    refuse_endless(file, f"a file of points: {', '.join(SUFFIXES)}")
    reader = SUFFIXES.get(file.suffix.lower())
    if reader is None:
        raise DataError(f"{file} has the suffix {file.suffix!r}; expected one of {', '.join(SUFFIXES)}")
    try:
        return reader(file, label_column, device_column)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}") from error
    except MemoryError:
        raise DataError(f"{file} does not fit into memory; take fewer points") from None


def _read_npy(path: Path, label: Column, device: Column) -> Table:
    return _split(path, load_array(path), label, device)


def _read_npz(path: Path, label: Column, device: Column) -> Table:
    """Read `X`, `points` or the only 2-D array, with `y`, `labels` or `label`, and `client` or `device`, beside it."""
    arrays = load_arrays(path)
    if "X" in arrays or "points" in arrays:
        name = "X" if "X" in arrays else "points"
    else:
        flat = [key for key, array in arrays.items() if array.ndim == 2]
        if len(flat) != 1:
            raise DataError(
                f"{path} holds the arrays {listed(list(arrays))}; expected 'X', 'points' or a single 2-D one"
            )
        name = flat[0]
    classes, label = _beside(arrays, label, ("y", "labels", "label"))
    owner, device = _beside(arrays, device, ("client", "device"))
    wrong = next((column for column in (label, device) if column is not None and as_index(column) is None), None)
    if wrong is not None:
        raise DataError(f"{path} has no array {wrong!r}; its arrays are {listed(list(arrays))}")
    table = _split(path, arrays[name], label, device)
    beside = table_of(str(path), table.points, classes, owner)
    return table._replace(
        labels=table.labels if classes is None else beside.labels,
        classes=table.classes if classes is None else beside.classes,
        device=table.device if owner is None else beside.device,
    )


def _beside(arrays: dict[str, NDArray[Any]], given: Column, usual: tuple[str, ...]) -> tuple[Any, Column]:
    """Return the array of labels or devices, or else the column of the points that is to be taken."""
    if given is None:
        return next((arrays[name] for name in usual if name in arrays), None), None
    return (arrays[given], None) if isinstance(given, str) and given in arrays else (None, given)


def _split(path: Path, array: Any, label: Column, device: Column) -> Table:
    """Part one 2-D array into points, labels and devices by column index."""
    numbers = matrix(array, str(path), dtype="float32" if array.dtype == np.float32 else "float64")
    roles = assign(str(path), [str(j) for j in range(numbers.shape[1])], label, device)
    columns = (None if at is None else numbers[:, at] for at in (roles.label, roles.device))
    return table_of(str(path), numbers[:, roles.points], *columns)


def _read_parquet(path: Path, label: Column, device: Column) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(f"{path} needs pyarrow, which is not installed; pip install 'p2pkm[parquet]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            refuse_bomb(path, 8 * file.metadata.num_rows * file.metadata.num_columns)
            frame = file.read()
    except (ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None
    names = [str(name) for name in frame.column_names]
    if not len(frame):
        raise DataError(f"{path} has no rows; expected one point per row")
    roles = assign(str(path), names, label, device)
    points = np.empty((len(frame), len(roles.points)))
    for at, j in enumerate(roles.points):
        values = _values(frame, j)
        if values.dtype.kind not in "biuf":
            raise DataError(
                f"{path}, column {names[j]!r} has the type {frame.column(j).type}; expected numbers: encode "
                "or drop it, or name it as --label-column or --device-column"
            )
        points[:, at] = values
    columns = (None if at is None else plain(_values(frame, at)) for at in (roles.label, roles.device))
    return table_of(str(path), finite(points, str(path)), *columns)


def _values(frame: Any, column: int) -> NDArray[Any]:
    return np.asarray(frame.column(column).to_numpy())


SUFFIXES: dict[str, Callable[[Path, Column, Column], Table]] = {
    ".csv": read_text,
    ".tsv": read_text,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
