"""Files of points that stay on disk: what their headers say, and some of their rows at a time.

A format is four functions; `FORMATS` holds them by suffix. Rows are a slice or ascending numbers. Labels and devices
are identifiers as `p2pkm.data.identifiers.to_raw` returns them.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.identifiers import concatenate, to_raw
from p2pkm.data.readers.columns import Column, Roles, assign, listed
from p2pkm.data.readers.folder import COMPANION
from p2pkm.data.readers.npy import refuse_bomb, refuse_endless

Rows = slice | NDArray[np.int64]


class Header(NamedTuple):
    """What is known of a file before its points are read.

    Attributes
    ----------
    path : str
    rows, features : int
    labeled : bool
    owned : bool
        Whether it has a column of devices.
    roles : Roles or None
        Columns of a Parquet file.
    """

    path: str
    rows: int
    features: int
    labeled: bool
    owned: bool = False
    roles: Roles | None = None


class Format(NamedTuple):
    """How files of one suffix are read."""

    measure: Callable[[str, Column, Column], Header]
    points: Callable[[Header, Rows], NDArray[Any]]
    labels: Callable[[Header, Rows], NDArray[Any]]
    devices: Callable[[Header], Iterator[NDArray[Any]]]


def _measure_npy(path: str, label: Column, device: Column) -> Header:
    """Read the header of a .npy file; its labels stand beside it, in ``NAME.labels.npy``."""
    if label is not None or device is not None:
        raise DataError(f"{path}: points that stay on disk have no columns to name; write labels to NAME{COMPANION}")
    array = _map(path)
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{path} has shape {array.shape}, expected (points, features)")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{path} has dtype {array.dtype}; expected real numbers")
    beside = _companion(path)
    if labeled := beside.exists():
        labels = _map(str(beside))
        if labels.shape != array.shape[:1] or labels.dtype.kind not in "biu":
            raise DataError(
                f"{beside} has shape {labels.shape} and dtype {labels.dtype}; expected a whole number for each of the "
                f"{array.shape[0]} rows of {path}"
            )
    return Header(path, array.shape[0], array.shape[1], labeled)


def _points_npy(header: Header, rows: Rows) -> NDArray[Any]:
    """Copy rows of a .npy file; nothing of it stays mapped."""
    return np.array(_map(header.path)[rows])


def _labels_npy(header: Header, rows: Rows) -> NDArray[Any]:
    beside = str(_companion(header.path))
    return to_raw(np.array(_map(beside)[rows]), f"{beside}: the labels")


def _devices_npy(header: Header) -> Iterator[NDArray[Any]]:
    raise DataError(f"{header.path} has no column of devices")


def _companion(path: str) -> Path:
    return Path(path.removesuffix(".npy") + COMPANION)


def _map(path: str) -> NDArray[Any]:
    refuse_endless(Path(path), "a .npy file")
    try:
        with warnings.catch_warnings(action="ignore"):
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a broken header raises nearly anything
        raise DataError(f"{path} cannot be read as a NumPy array without pickles: {error}") from None


def _measure_parquet(path: str, label: Column, device: Column) -> Header:
    """Read the schema of a Parquet file."""
    file = _parquet(path)
    refuse_bomb(Path(path), 8 * file.metadata.num_rows * file.metadata.num_columns, most=math.inf)
    names = [str(name) for name in file.schema_arrow.names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path} has several columns {twice!r}; of points that stay on disk every column needs a name")
    roles = assign(path, names, label, device)
    kinds = file.schema_arrow.types
    for j in roles.points:
        if not _numeric(kinds[j]):
            raise DataError(f"{path}, column {names[j]!r} has the type {kinds[j]}; expected numbers")
    return Header(
        path, file.metadata.num_rows, len(roles.points), roles.label is not None, roles.device is not None, roles
    )


def _points_parquet(header: Header, rows: Rows) -> NDArray[Any]:
    return _rows_parquet(header, rows, _roles(header).points)


def _labels_parquet(header: Header, rows: Rows) -> NDArray[Any]:
    label = _roles(header).label or 0
    parts = [found[own] for found, own in _groups(header, rows, lambda file, group: _identifiers(file, group, label))]
    return concatenate(parts or [np.empty(0, np.int64)])


def _devices_parquet(header: Header) -> Iterator[NDArray[Any]]:
    """Yield the devices of each row group; of other columns nothing is read."""
    file = _parquet(header.path)
    for group in range(file.num_row_groups):
        yield _identifiers(file, group, _roles(header).device or 0)


def _roles(header: Header) -> Roles:
    return header.roles or Roles([], None, None)


def _rows_parquet(header: Header, rows: Rows, columns: list[int]) -> NDArray[Any]:
    """Read rows of some columns."""
    groups = _groups(header, rows, lambda file, group: _columns(file, group, columns))
    parts = [np.column_stack([np.asarray(column.to_numpy())[own] for column in found]) for found, own in groups]
    return np.concatenate(parts) if parts else np.empty((0, len(columns)))


def _groups(
    header: Header, rows: Rows, read: Callable[[Any, int], Any]
) -> Iterator[tuple[Any, NDArray[np.int64]]]:  # fmt: skip
    """Yield what is read of one row group after the other, of those that have any of the rows, and its rows of them."""
    file, first = _parquet(header.path), 0
    wanted = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    for group in range(file.num_row_groups):
        last = first + int(file.metadata.row_group(group).num_rows)
        own = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, last)] - first
        if len(own):
            yield read(file, group), own
        first = last


def _identifiers(file: Any, group: int, column: int) -> NDArray[Any]:
    """Read a column of identifiers of a row group."""
    return to_raw(_columns(file, group, [column])[0], f"column {file.schema_arrow.names[column]!r}")


def _columns(file: Any, group: int, columns: list[int]) -> list[Any]:
    from pyarrow import ArrowException

    names = [file.schema_arrow.names[column] for column in columns]
    try:
        frame = file.read_row_group(group, columns=names)
        found = [frame.column(name) for name in names]
        if any(len(one) != file.metadata.row_group(group).num_rows for one in found):
            raise ValueError("it has fewer rows than its header states")
    except (ArrowException, OSError, ValueError) as error:
        raise DataError(f"row group {group} of a Parquet file, columns {listed(names)}: {error}") from None
    return found


def _parquet(path: str) -> Any:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(f"{path} needs pyarrow, which is not installed; pip install 'p2pkm[parquet]'") from None
    refuse_endless(Path(path), "a Parquet file")
    try:
        return parquet.ParquetFile(path)
    except (ArrowException, OSError, ValueError) as error:  # ValueError: a name that is no UTF-8
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None


def are_integers(header: Header) -> bool:
    """Return whether the devices, and the labels if there are any, are stored as integers."""
    from pyarrow import types

    kinds = _parquet(header.path).schema_arrow.types
    return all(types.is_integer(kinds[at]) for at in (header.roles or ())[1:3] if at is not None)


def _numeric(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


FORMATS = {
    ".npy": Format(_measure_npy, _points_npy, _labels_npy, _devices_npy),
    ".parquet": Format(_measure_parquet, _points_parquet, _labels_parquet, _devices_parquet),
}
