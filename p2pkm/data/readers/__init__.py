"""Files of points, one or several: text, NumPy, Arrow, LEAF and AnnData."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import matrix
from p2pkm.data.readers.anndata import read_annotated, split_part
from p2pkm.data.readers.arrow import read_arrow, read_parquet
from p2pkm.data.readers.columns import Column, Parts, as_index, assign, listed, table_of
from p2pkm.data.readers.concatenate import join
from p2pkm.data.readers.csv import read_text
from p2pkm.data.readers.folder import name_files, several
from p2pkm.data.readers.leaf import read_leaf
from p2pkm.data.readers.npy import LARGEST, load_array, load_arrays, refuse_endless
from p2pkm.data.table import Table


def read_table(path: str | Path, label_column: Column = None, device_column: Column = None) -> Table:
    """Read points, and labels and devices if there are any.

    Parameters
    ----------
    path : str or Path
        A file, whose suffix says how it is written; or a folder or a pattern of files. Then each file is a device,
        numbered in the order in which people count, unless the files say themselves which device a point is of.
        ``cells.h5ad:obsm:X_pca`` and ``cells.h5ad:layers:NAME`` are other matrices of an AnnData file than its X.
    label_column, device_column : str or int, optional
        Name or index of a column; None: the one named label, client or device, if there is one.

    Raises
    ------
    DataError
        If a file cannot be used; the message names the place.

    Examples
    --------
    >>> table = p2pkm.read_table("cells.h5ad:obsm:X_pca", label_column="cell_type", device_column="site")
    >>> shards = p2pkm.Shards.deal(table.points, p2pkm.partition.column(table.device), labels=table.labels)
    """
    place, _ = split_part(str(path))
    found = several(place, SUFFIXES)
    if found is None:
        return table_of(place, _read(Path(path).expanduser(), label_column, device_column))
    parts = _gather(str(path), found, label_column, device_column)
    if parts.device is not None:
        return table_of(str(path), parts)
    device = np.repeat(np.arange(len(found)), parts.lengths)
    return table_of(str(path), parts._replace(device=device))._replace(names=name_files(found))


def _gather(path: str, files: list[str], label: Column, device: Column) -> Parts:
    """Read several files, end to end."""
    place, part = split_part(path)
    found: list[tuple[str, Parts]] = []
    size = 0
    for one in files:
        parts = _read(Path(one + part), label, device)
        table_of(one, parts)  # now, while it is known which file it is
        size += parts.points.nbytes
        if size > LARGEST:
            raise DataError(
                f"the files of {place} up to {one} hold {size} bytes, expected at most {LARGEST}; take fewer files, or "
                ".npy and .parquet, which stay on disk"
            )
        found.append((one, parts))
    return join(found)._replace(lengths=tuple(len(one.points) for _, one in found))


def _read(file: Path, label: Column, device: Column) -> Parts:
    """Read one file as its suffix says."""
    path = Path(split_part(str(file))[0])
    if not os.path.exists(path):  # also if the name is too long to be one
        raise DataError(f"there is no file {path} (looked in {Path.cwd()}); check the path")
    refuse_endless(path, f"a file of points: {', '.join(SUFFIXES)}")
    reader = SUFFIXES.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path} has the suffix {path.suffix!r}; expected one of {', '.join(SUFFIXES)}")
    try:
        return reader(file, label, device)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except MemoryError:
        raise DataError(f"{path} does not fit into memory; take fewer points") from None


def _read_npy(path: Path, label: Column, device: Column) -> Parts:
    return _split(path, load_array(path), label, device)


def _read_npz(path: Path, label: Column, device: Column) -> Parts:
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
    parts = _split(path, arrays[name], label, device)
    return parts._replace(
        label=parts.label if classes is None else classes, device=parts.device if owner is None else owner
    )


def _beside(arrays: dict[str, NDArray[Any]], given: Column, usual: tuple[str, ...]) -> tuple[Any, Column]:
    """Return the array of labels or devices, or else the column of the points that is to be taken."""
    if given is None:
        return next((arrays[name] for name in usual if name in arrays), None), None
    return (arrays[given], None) if isinstance(given, str) and given in arrays else (None, given)


def _split(path: Path, array: Any, label: Column, device: Column) -> Parts:
    """Part one 2-D array into points, labels and devices by column index."""
    numbers = matrix(array, str(path), dtype="float32" if array.dtype == np.float32 else "float64")
    roles = assign(str(path), [str(j) for j in range(numbers.shape[1])], label, device)
    label_at, device_at = (None if at is None else numbers[:, at] for at in (roles.label, roles.device))
    return Parts(numbers[:, roles.points], label_at, device_at)


SUFFIXES: dict[str, Callable[[Path, Column, Column], Parts]] = {
    ".csv": read_text,
    ".tsv": read_text,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": read_parquet,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), read_arrow),
    ".json": read_leaf,
    ".h5ad": read_annotated,
}
