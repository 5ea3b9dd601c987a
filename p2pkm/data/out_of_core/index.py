"""What is known of files of points before the points are read: how many there are, of which classes and devices."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import blocks
from p2pkm.core.spec import Spec
from p2pkm.data.out_of_core.formats import FORMATS, Format, Header, Rows
from p2pkm.data.readers import SUFFIXES
from p2pkm.data.readers.columns import Column
from p2pkm.data.readers.folder import several
from p2pkm.data.readers.intake import TIDY, Intake


class Stored(NamedTuple):
    """Files whose rows, end to end, are the points; what `Table` is for points in memory.

    Attributes
    ----------
    files : tuple of Header
    labels : int[classes] or None
        The classes that there are, ascending.
    device : int or None
        How many devices the files name: the number of files, or what their column says.
    """

    files: tuple[Header, ...]
    labels: NDArray[np.int64] | None
    device: int | None
    groups: None = None

    @property
    def classes(self) -> int | None:
        """Return the number of classes, None without labels."""
        return None if self.labels is None else len(self.labels)


def open_stored(
    path: str,
    partition: Spec | None,
    label_column: Column,
    device_column: Column,
    *,
    intake: Intake = TIDY,
    classes: bool = True,
) -> Stored | None:
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
        counts = [one.devices for one in files if one.devices is not None]
        return Stored(files, _classes(files) if classes else None, max(counts, default=len(files)))
    wanted = "column" if partition is None and suffix == ".parquet" else partition and partition.name
    if wanted != {".npy": "blocks", ".parquet": "column"}[suffix]:
        return None
    try:
        file = FORMATS[suffix].measure(path, label_column, device_column)
    except DataError:
        return None  # the reader of whole files takes more kinds, and says what is wrong
    if not file.rows or (wanted == "column" and file.devices is None):
        return None
    return Stored((file,), _classes((file,)) if classes else None, file.devices)


def _check_alike(path: str, files: tuple[Header, ...]) -> None:
    first = files[0]
    for one in files:
        if (one.features, one.labeled, one.devices is None) != (first.features, first.labeled, first.devices is None):
            raise DataError(
                f"{one.path} has {_describe(one)}, but {first.path} has {_describe(first)}; expected the same in all"
            )
    if not any(one.rows for one in files):
        raise DataError(f"{path} has no rows; expected one point per row")


def _describe(header: Header) -> str:
    labels = "labels" if header.labeled else "no labels"
    return f"{header.features} features, {labels} and {'no ' * (header.devices is None)}column of devices"


def _classes(files: tuple[Header, ...]) -> NDArray[np.int64] | None:
    """Return the classes that there are, ascending; of the labels a block at a time is read."""
    if not files[0].labeled:
        return None
    parts = (labels_of(header, rows) for header in files for rows in blocks(header.rows))
    found = np.empty(0, np.int64)
    for labels in parts:
        found = np.union1d(found, labels)
    return found


def labels_of(header: Header, rows: Rows) -> NDArray[np.int64]:
    """Read the labels of some rows."""
    labels = format_of(header).labels(header, rows)
    if labels.dtype.kind == "f":  # whole numbers with holes
        raise DataError(f"{header.path} has a row without label; expected a label for each")
    return labels.astype(np.int64)


def format_of(header: Header) -> Format:
    """Return how a file is read."""
    return FORMATS[Path(header.path).suffix.lower()]
