"""Formats of files whose points stay on disk: headers, and selected rows.

A format consists of four functions; `FORMATS` lists them by suffix. Rows are a slice or ascending row numbers. Labels
and devices are identifiers as returned by `p2pkm.data.identifiers.to_raw`.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_distinct
from p2pkm.data.identifiers import concatenate_identifiers, to_raw
from p2pkm.data.readers.columns import Column, ColumnRoles, list_names
from p2pkm.data.readers.folder import COMPANION
from p2pkm.data.readers.frame import assign_stored_roles, read_pandas_metadata
from p2pkm.data.readers.npy import check_regular_file, check_unpacked_size

Rows = slice | NDArray[np.int64]


class Header(NamedTuple):
    """Header of a data file.

    Attributes
    ----------
    path : str
    rows, features : int
        Number of points and of features.
    labeled : bool
        Whether the file has labels.
    owned : bool
        Whether the file has a column of devices.
    roles : ColumnRoles or None
        Columns of a Parquet file.
    device_name : str or None
        Name of the column of devices.
    names : tuple of str
        Names of the features of a Parquet file; empty for other files, and on other ranks.
    notes : tuple of str
        What is not read; empty on other ranks.
    """

    path: str
    rows: int
    features: int
    labeled: bool
    owned: bool = False
    roles: ColumnRoles | None = None
    device_name: str | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Format(NamedTuple):
    """Functions that read the files of one suffix."""

    measure: Callable[[str, Column, Column], Header]
    points: Callable[[Header, Rows], NDArray[Any]]
    labels: Callable[[Header, Rows], NDArray[Any]]
    devices: Callable[[Header], Iterator[NDArray[Any]]]


def _measure_npy(path: str, label: Column, device: Column) -> Header:
    """Read the header of a .npy file; its labels are in ``NAME.labels.npy``, next to it."""
    if label is not None or device is not None:
        raise DataError(
            f"{path}: --label-column and --device-column cannot be combined with .npy files that stay on disk: all "
            f"columns are features. Remove them, and write labels to NAME{COMPANION}"
        )
    array = _map(path)
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{path} has shape {array.shape}; expected (points, features)")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{path} has dtype {array.dtype}; expected real numbers")
    label_file = _companion(path)
    if labeled := label_file.exists():
        labels = _map(str(label_file))
        if labels.shape != array.shape[:1] or labels.dtype.kind not in "biu":
            raise DataError(
                f"{label_file} has shape {labels.shape} and dtype {labels.dtype}; expected ({array.shape[0]},) and "
                f"integers, one label per row of {path}"
            )
    return Header(path, array.shape[0], array.shape[1], labeled)


def _points_npy(header: Header, rows: Rows) -> NDArray[Any]:
    """Copy rows of a .npy file; the memory map is released."""
    return np.array(_map(header.path)[rows])


def _labels_npy(header: Header, rows: Rows) -> NDArray[Any]:
    label_file = str(_companion(header.path))
    return to_raw(np.array(_map(label_file)[rows]), f"{label_file}: the labels")


def _devices_npy(header: Header) -> Iterator[NDArray[Any]]:
    raise DataError(f"{header.path} is without a column of devices. Use --partition blocks")


def _companion(path: str) -> Path:
    return Path(path.removesuffix(".npy") + COMPANION)


def _map(path: str) -> NDArray[Any]:
    check_regular_file(Path(path), "a .npy file")
    try:
        with warnings.catch_warnings(action="ignore"):
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    # NumPy raises almost any exception on a broken header.
    except Exception as error:
        raise DataError(f"{path} cannot be read as a NumPy array without pickles: {error}") from None


def _measure_parquet(path: str, label: Column, device: Column) -> Header:
    """Read the schema of a Parquet file."""
    file = _parquet(path)
    check_unpacked_size(Path(path), 8 * file.metadata.num_rows * file.metadata.num_columns, most=math.inf)
    names = [str(name) for name in file.schema_arrow.names]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise DataError(
            f"{path} has several columns {duplicate!r}; expected distinct names in files that stay on disk. Rename the "
            "columns"
        )
    roles, notes = assign_stored_roles(path, file.schema_arrow, label, device)
    categories = read_pandas_metadata(file.schema_arrow).categories
    kinds = file.schema_arrow.types
    for j in roles.points:
        if not _numeric(kinds[j]) or names[j] in categories:
            kind = "categories" if names[j] in categories else f"type {kinds[j]}"
            raise DataError(
                f"{path}: column {names[j]!r} has {kind}; expected numbers. Use --drop {names[j]} or --encode "
                f"{names[j]}, with which the files are read into memory"
            )
    device_name = None if roles.device is None else names[roles.device]
    return Header(
        path, file.metadata.num_rows, len(roles.points), roles.label is not None, device_name is not None, roles,
        device_name, tuple(names[j] for j in roles.points), notes,
    )  # fmt: skip


def _points_parquet(header: Header, rows: Rows) -> NDArray[Any]:
    return _rows_parquet(header, rows, _roles(header).points)


def _labels_parquet(header: Header, rows: Rows) -> NDArray[Any]:
    label = _roles(header).label or 0
    parts = [
        identifiers[rows_in_group]
        for identifiers, rows_in_group in _groups(header, rows, lambda file, group: _identifiers(file, group, label))
    ]
    return concatenate_identifiers(parts or [np.empty(0, np.int64)])


def _devices_parquet(header: Header) -> Iterator[NDArray[Any]]:
    """Yield the devices of each row group; other columns are not read."""
    file = _parquet(header.path)
    for group in range(file.num_row_groups):
        yield _identifiers(file, group, _roles(header).device or 0)


def _roles(header: Header) -> ColumnRoles:
    return header.roles or ColumnRoles([], None, None)


def _rows_parquet(header: Header, rows: Rows, columns: list[int]) -> NDArray[Any]:
    """Read the given rows of the given columns."""
    groups = _groups(header, rows, lambda file, group: _columns(file, group, columns))
    parts = list[NDArray[Any]]()
    for content, rows_in_group in groups:
        values = [np.asarray(column.to_numpy())[rows_in_group] for column in content]
        for name, column in zip(header.names or map(str, columns), values, strict=True):
            # Beside columns of floating-point numbers, integers become such numbers.
            check_distinct(column[:, None], column[:, None].astype(np.float64), f"{header.path}, {name}")
        parts.append(np.column_stack(values))
    return np.concatenate(parts) if parts else np.empty((0, len(columns)))


def _groups(
    header: Header, rows: Rows, read: Callable[[Any, int], Any]
) -> Iterator[tuple[Any, NDArray[np.int64]]]:  # fmt: skip
    """Read each row group that contains any of the rows; yield its content and the rows, relative to the group."""
    file = _parquet(header.path)
    first = 0
    numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    for group in range(file.num_row_groups):
        last = first + int(file.metadata.row_group(group).num_rows)
        rows_in_group = numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, last)] - first
        if len(rows_in_group):
            yield read(file, group), rows_in_group
        first = last


def _identifiers(file: Any, group: int, column: int) -> NDArray[Any]:
    """Read a column of identifiers of a row group."""
    return to_raw(_columns(file, group, [column])[0], f"column {file.schema_arrow.names[column]!r}")


def _columns(file: Any, group: int, columns: list[int]) -> list[Any]:
    from pyarrow import ArrowException

    names = [file.schema_arrow.names[column] for column in columns]
    try:
        frame = file.read_row_group(group, columns=names)
        content = [frame.column(name) for name in names]
        if any(len(column) != file.metadata.row_group(group).num_rows for column in content):
            raise ValueError("number of rows is less than in the header")
    except (ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"row group {group} of a Parquet file, columns {list_names(names)}, cannot be read: {error}"
        ) from None
    return content


def _parquet(path: str) -> Any:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(f"{path} requires pyarrow, which is not installed. Run pip install 'p2pkm[parquet]'") from None
    check_regular_file(Path(path), "a Parquet file")
    try:
        return parquet.ParquetFile(path)
    # A column name that is not UTF-8 raises ValueError.
    except (ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None


def are_integers(header: Header) -> bool:
    """Return whether the columns of devices and of labels, if present, are stored as integers."""
    from pyarrow import types

    kinds = _parquet(header.path).schema_arrow.types
    return all(types.is_integer(kinds[column]) for column in (header.roles or ())[1:3] if column is not None)


def _numeric(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


FORMATS = {
    ".npy": Format(_measure_npy, _points_npy, _labels_npy, _devices_npy),
    ".parquet": Format(_measure_parquet, _points_parquet, _labels_parquet, _devices_parquet),
}
