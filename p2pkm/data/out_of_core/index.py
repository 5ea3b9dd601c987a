"""What is known of files of points before the points are read: how many there are, of which classes and devices."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import blocks
from p2pkm.core.spec import Spec
from p2pkm.data.identifiers import concatenate, find_missing, identify
from p2pkm.data.out_of_core.formats import FORMATS, Format, Header, Rows, are_integers
from p2pkm.data.readers.any_format import SUFFIXES
from p2pkm.data.readers.columns import Column
from p2pkm.data.readers.folder import several
from p2pkm.data.readers.intake import TIDY, ColumnOptions


class FileIndex(NamedTuple):
    """Files whose rows, end to end, are the points; what `Table` is for points in memory.

    Attributes
    ----------
    files : tuple of Header
    labels : int64[classes], object[classes] or None
        Distinct classes in the order of `p2pkm.data.identifiers`.
    device : int or None
        Number of devices: of the files, or of the identifiers in their column.
    owners : int64[device], object[device] or None
        Devices in the files' column, in order; None: each file is one.
    """

    files: tuple[Header, ...]
    labels: NDArray[Any] | None
    device: int | None
    owners: NDArray[Any] | None = None
    groups: None = None
    names: None = None

    @property
    def classes(self) -> int | None:
        """Return the number of classes, None without labels."""
        return None if self.labels is None else len(self.labels)


def index_files(
    path: str,
    partition: Spec | None,
    label_column: Column,
    device_column: Column,
    *,
    intake: ColumnOptions = TIDY,
    classes: bool = True,
) -> FileIndex | None:
    """Return the files of a folder or pattern, or the one file whose points need not be read as a whole, else None.

    One .npy file stays on disk with partition `blocks`, one .parquet file with whole numbers as column of devices.
    An `intake` of its own has a file read into memory. Without `classes` no label is read, and none is known.

    Raises
    ------
    DataError
        If a file cannot be used, or is not like the first one.
    """
    found = several(path, SUFFIXES)
    suffix = Path(found[0] if found else path).suffix.lower()
    if intake != TIDY or suffix not in FORMATS or (not found and not Path(path).expanduser().is_file()):
        return None
    if found:
        files = tuple(FORMATS[suffix].measure(one, label_column, device_column) for one in found)
        _check_alike(path, files)
        return _open(files, classes, len(files))
    wanted = "column" if partition is None and suffix == ".parquet" else partition and partition.name
    if wanted != {".npy": "blocks", ".parquet": "column"}[suffix]:
        return None
    try:
        file = FORMATS[suffix].measure(path, label_column, device_column)
        usable = file.rows and (wanted != "column" or (file.owned and are_integers(file)))
        return _open((file,), classes, None) if usable else None
    except DataError:
        return None  # the reader of whole files takes more kinds, and says what is wrong


def _open(files: tuple[Header, ...], classes: bool, devices: int | None) -> FileIndex:
    """Find the classes, and the devices unless each of several files is one, of files that are alike."""
    labels = _classes(files) if classes and files[0].labeled else None
    if not files[0].owned:
        return FileIndex(files, labels, devices)
    owners = _distinct((header, raw, "device") for header in files for raw in format_of(header).devices(header))
    return FileIndex(files, labels, len(owners), owners)


def _check_alike(path: str, files: tuple[Header, ...]) -> None:
    first = files[0]
    for one in files:
        if (one.features, one.labeled, one.owned) != (first.features, first.labeled, first.owned):
            raise DataError(
                f"{one.path} has {_describe(one)}, but {first.path} has {_describe(first)}; expected the same in all"
            )
    if not any(one.rows for one in files):
        raise DataError(f"{path} has no rows; expected one point per row")


def _describe(header: Header) -> str:
    labels = "labels" if header.labeled else "no labels"
    return f"{header.features} features, {labels} and {'no ' * (not header.owned)}column of devices"


def _classes(files: tuple[Header, ...]) -> NDArray[Any]:
    """Return the distinct classes in order; of the labels a block at a time is read."""
    return _distinct((header, labels_of(header, rows), "label") for header in files for rows in blocks(header.rows))


def _distinct(parts: Iterable[tuple[Header, NDArray[Any], str]]) -> NDArray[Any]:
    """Return the distinct identifiers in columns of labels or devices, in order.

    Raises
    ------
    DataError
        If one is missing.
    """
    found: NDArray[Any] = np.empty(0, np.int64)
    for header, raw, role in parts:
        if find_missing(raw).any():
            raise DataError(f"{header.path} has a row without {role}; expected a {role} in each")
        found = identify(concatenate([found, identify(raw).kinds])).kinds
    return found


def labels_of(header: Header, rows: Rows) -> NDArray[Any]:
    """Read the labels of some rows."""
    return format_of(header).labels(header, rows)


def format_of(header: Header) -> Format:
    """Return how a file is read."""
    return FORMATS[Path(header.path).suffix.lower()]
