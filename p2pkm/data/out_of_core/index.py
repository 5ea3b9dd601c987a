"""Index of data files on disk: sizes, classes and devices, read before the points."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import blocks
from p2pkm.core.spec import Spec
from p2pkm.data.identifiers import UNASSIGNED, concatenate_identifiers, find_missing, identify, require_assigned
from p2pkm.data.out_of_core.formats import FORMATS, Format, Header, Rows, are_integers
from p2pkm.data.readers.any_format import SUFFIXES
from p2pkm.data.readers.columns import Column, list_names
from p2pkm.data.readers.folder import expand_path, list_keys, note_ignored
from p2pkm.data.readers.intake import TIDY, ColumnOptions
from p2pkm.data.schema import Schema


class FileIndex(NamedTuple):
    """Index of the files that hold the points, in file order; the counterpart of `Table` for points on disk.

    Attributes
    ----------
    files : tuple of Header
    labels : int64[classes], object[classes] or None
        Distinct classes in the order of `p2pkm.data.identifiers`.
    device : int or None
        Number of devices: number of files, or of identifiers in the column of devices.
    owners : int64[device], object[device] or None
        Devices in the column of devices, in order; None: each file is a device.
    notes : tuple of str
        What is not read; empty on other ranks.
    groups, names : None
        Always None, as attributes of `Table`.
    """

    files: tuple[Header, ...]
    labels: NDArray[Any] | None
    device: int | None
    owners: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()
    groups: None = None
    names: None = None

    @property
    def classes(self) -> int | None:
        """Number of classes; None without labels."""
        return None if self.labels is None else len(self.labels)

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the features; None without names."""
        return self.files[0].names or None

    def list_empty(self, devices: int) -> list[int]:
        """List the devices without points, if each file is a device or a column names the devices."""
        if self.owners is None:
            return [i for i, header in enumerate(self.files) if not header.rows]
        return sorted(set(range(devices)).difference(self.owners.tolist())) if len(self.owners) < devices else []

    @property
    def schema(self) -> Schema:
        """Columns of the files, without ranges, which only all points show; those of .npy files are numbered."""
        names = self.features or tuple(map(str, range(self.files[0].features)))
        return Schema.of_features(names)._replace(device_column=self.files[0].device_name)


def index_files(
    path: str,
    partition: Spec | None,
    label_column: Column,
    device_column: Column,
    *,
    intake: ColumnOptions = TIDY,
    classes: bool = True,
) -> FileIndex | None:
    """Index the files of a folder or pattern, or a single file that can stay on disk; return None for other files.

    A single .npy file stays on disk with partition `blocks`, a single .parquet file with an integer column of devices.
    Files are read into memory if `intake` differs from the default. Without `classes`, labels are not read and the
    classes are unknown.

    Raises
    ------
    DataError
        If a file cannot be used, or differs from the first one in its columns.
    """
    paths = expand_path(path, SUFFIXES)
    suffix = Path(paths[0] if paths else path).suffix.lower()
    if intake != TIDY or suffix not in FORMATS or (not paths and not Path(path).expanduser().is_file()):
        return None
    # The names of folders such as site=A are read with the points.
    if paths and any(list_keys(path, Path(file_path)) for file_path in paths):
        return None
    if paths:
        files = tuple(FORMATS[suffix].measure(file_path, label_column, device_column) for file_path in paths)
        _check_alike(path, files)
        stored = _open(files, classes, len(files))
        return stored._replace(notes=(*stored.notes, *note_ignored(path, paths)))
    partition_name = "column" if partition is None and suffix == ".parquet" else partition and partition.name
    if partition_name != {".npy": "blocks", ".parquet": "column"}[suffix]:
        return None
    try:
        file = FORMATS[suffix].measure(path, label_column, device_column)
        usable = file.rows and (partition_name != "column" or (file.owned and are_integers(file)))
        return _open((file,), classes, None) if usable else None
    except DataError:
        # The reader of complete files accepts more kinds of columns and describes the problem.
        return None


def _open(files: tuple[Header, ...], classes: bool, devices: int | None) -> FileIndex:
    """Build the index of files with equal columns: find the classes, and the devices unless each file is a device."""
    labels = _classes(files) if classes and files[0].labeled else None
    notes = tuple(dict.fromkeys(note for header in files for note in header.notes))
    if not files[0].owned:
        return FileIndex(files, labels, devices, notes=notes)
    owners = _distinct((header, raw, "device") for header in files for raw in get_format(header).devices(header))
    return FileIndex(files, labels, len(owners), owners, notes)


def _check_alike(path: str, files: tuple[Header, ...]) -> None:
    first = files[0]
    for header in files:
        if (header.features, header.labeled, header.owned) != (first.features, first.labeled, first.owned):
            raise DataError(
                f"{header.path} has {_describe(header)}, but {first.path} has {_describe(first)}; expected the same "
                "columns in all files"
            )
        if header.names != first.names:
            raise DataError(
                f"{header.path} has the features {list_names(header.names)}, but {first.path} has "
                f"{list_names(first.names)}; expected the same features in the same order"
            )
    if not any(header.rows for header in files):
        raise DataError(f"{path} has 0 rows; expected one point per row")


def _describe(header: Header) -> str:
    labels = "labels" if header.labeled else "no labels"
    return f"{header.features} features, {labels} and {'no ' * (not header.owned)}column of devices"


def _classes(files: tuple[Header, ...]) -> NDArray[Any]:
    """Find the distinct classes in order, reading a block of labels at a time."""
    return _distinct((header, read_labels(header, rows), "label") for header in files for rows in blocks(header.rows))


def _distinct(parts: Iterable[tuple[Header, NDArray[Any], str]]) -> NDArray[Any]:
    """Find the distinct identifiers in columns of labels or devices, in order.

    Raises
    ------
    DataError
        If an identifier is missing.
    """
    distinct: NDArray[Any] = np.empty(0, np.int64)
    for header, raw, role in parts:
        if find_missing(raw).any():
            raise DataError(f"{header.path} has a row without {role}; expected a {role} in every row")
        if role == "device":
            require_assigned(raw, f"{header.path}: the devices", UNASSIGNED)
        distinct = identify(concatenate_identifiers([distinct, identify(raw).kinds])).kinds
    return distinct


def read_labels(header: Header, rows: Rows) -> NDArray[Any]:
    """Read the labels of some rows."""
    return get_format(header).labels(header, rows)


def get_format(header: Header) -> Format:
    """Return the format of a file, by its suffix."""
    return FORMATS[Path(header.path).suffix.lower()]
