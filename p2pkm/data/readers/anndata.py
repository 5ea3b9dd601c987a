"""Reader of AnnData files, .h5ad: cells are points, and a column of the cell table contains their devices.

Sizes and indices are validated here. The file itself is read by the HDF5 library, which may not terminate on files that
were damaged on purpose. Read .h5ad files only from trusted sources.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import as_points
from p2pkm.data.readers.columns import (
    DEVICE_NAMES,
    LABEL_NAMES,
    Column,
    ColumnRoles,
    FileContents,
    LabelColumns,
    find_column,
    list_names,
    take_points,
)
from p2pkm.data.readers.intake import TIDY, ColumnOptions
from p2pkm.data.readers.npy import check_unpacked_size

# Largest size of a sparse matrix in bytes after conversion to a dense one.
DENSE = 4 * 2**30
_PART = re.compile(r"(.*\.(?:h5ad|npz))(:.+)", re.IGNORECASE | re.DOTALL)


def split_part(path: str) -> tuple[str, str]:
    """Split ``cells.h5ad:obsm:X_pca`` into the file and ``:obsm:X_pca``, or ``mine.npz:train_images`` likewise.

    The second part of other paths is empty.
    """
    match = _PART.fullmatch(path)
    return (match[1], match[2]) if match else (path, "")


def read_annotated(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read X, or the matrix named after the path, and the columns of labels and devices from `obs`.

    Raises
    ------
    DataError
        If anndata is not installed, the file is damaged, or the dense matrix is too large.
    """
    try:
        import h5py
        from anndata.io import read_elem
    except ImportError:
        raise DataError(f"{path} requires anndata, which is not installed. Run pip install 'p2pkm[anndata]'") from None
    name, part = split_part(str(path))
    try:
        with h5py.File(name, "r") as file:
            points, features = _matrix(Path(name), file, part.removeprefix(":") or "X")
            marks = _columns(name, file["obs"], label, device, read_elem)
            names = tuple(read_elem(file["var"]).index) if features else ()
    except (MemoryError, DataError):
        raise
    # A damaged file raises almost any exception.
    except Exception as error:
        raise DataError(
            f"{name} cannot be read as AnnData: {_first_line(error)}. Write it again with anndata.AnnData.write_h5ad"
        ) from None
    what = f"{name}, {part.removeprefix(':') or 'X'}"
    values = (
        as_points(points, what, dtype=_precision(points), missing=intake.missing != "refuse") if len(points) else points
    )
    return take_points(name, FileContents(values, names=names), marks, intake)


def _matrix(path: Path, file: Any, part: str) -> tuple[NDArray[Any], bool]:
    """Read a matrix as float[m, d]; return it and whether its columns are the variables of the file."""
    name = part.replace(":", "/", 1)
    if part != "X" and (name.partition("/")[0] not in ("obsm", "layers") or name not in file):
        raise DataError(f"{path}: matrix {part!r} does not exist; expected one of {_list_matrices(file)}")
    if name not in file:
        raise DataError(
            f"{path}: matrix 'X' does not exist; expected one of {_list_matrices(file)}. Name it after the path, such "
            f"as {path}:obsm:X_pca"
        )
    as_points = file[name]
    dense = not hasattr(as_points, "keys")
    shape = as_points.shape if dense else tuple(int(side) for side in as_points.attrs.get("shape", ()))
    if len(shape) != 2:
        raise DataError(f"{path}: {part} has {len(shape)} dimensions; expected a matrix, one of {_list_matrices(file)}")
    if dense:
        check_unpacked_size(path, as_points.dtype.itemsize * shape[0] * shape[1])
        if as_points.dtype.kind not in "biuf":
            raise DataError(f"{path}: {part} has dtype {as_points.dtype}; expected numbers")
        # Integers keep their type, so that `as_points` finds those that lose digits.
        return as_points[:], not part.startswith("obsm")
    return _densify(path, file, as_points, shape, part), not part.startswith("obsm")


def _densify(path: Path, file: Any, as_points: Any, shape: tuple[int, ...], part: str) -> NDArray[Any]:
    """Convert a sparse matrix to a dense one of limited size; repeated entries are added."""
    kind = str(as_points.attrs.get("encoding-type", ""))
    if kind not in ("csr_matrix", "csc_matrix"):
        raise DataError(f"{path}: {part} has encoding {kind!r}; expected a dense, CSR or CSC matrix")
    data, inner, starts = (as_points[name] for name in ("data", "indices", "indptr"))
    precision = _precision(data)
    size = shape[0] * shape[1] * np.dtype(precision).itemsize
    if size > DENSE:
        raise DataError(
            f"{path}: {part} is sparse, {shape[0]} x {shape[1]}, and its dense form has {size} bytes; expected at most "
            f"{DENSE}. Name a smaller matrix after the path, such as {path}:obsm:X_pca; the file has "
            f"{_list_matrices(file)}"
        )
    check_unpacked_size(path, sum(array.dtype.itemsize * array.size for array in (data, inner, starts)))
    entries = data[:]
    inner = inner[:]
    starts = starts[:]
    outer, across = shape if kind == "csr_matrix" else shape[::-1]
    counts = np.diff(starts)
    sound = len(starts) == outer + 1 and (counts >= 0).all() and starts[0] == 0 and starts[-1] == len(inner)
    if not sound or len(entries) != len(inner) or (len(inner) and not 0 <= inner.min() <= inner.max() < across):
        raise DataError(
            f"{path}: {part} is sparse and damaged: its indices do not fit the shape {shape}. Write the file again"
        )
    dense = np.zeros(shape, precision)
    position = np.repeat(np.arange(outer), counts), inner
    np.add.at(dense, position if kind == "csr_matrix" else position[::-1], entries)
    return dense


def _columns(name: str, obs: Any, label: Column, device: Column, read: Any) -> LabelColumns:
    """Read the columns of labels and devices from the cell table."""
    names = [str(name) for name in obs.attrs["column-order"]]
    where = f"{name}, obs"
    label_index = find_column(where, names, label, "label", LABEL_NAMES)
    device_index = find_column(where, names, device, "device", DEVICE_NAMES)
    if label_index is not None and label_index == device_index:
        raise DataError(
            f"{where}: column {names[label_index]!r} is both label and device; expected two columns. Change "
            "--label-column or --device-column"
        )
    columns = {index: read(obs[names[index]]) for index in (label_index, device_index) if index is not None}
    return LabelColumns.of(names, ColumnRoles([], label_index, device_index), columns, f"{where}, ")


def _precision(as_points: Any) -> str:
    return "float32" if as_points.dtype == np.float32 else "float64"


def _list_matrices(file: Any) -> str:
    """List the matrices of a file."""
    inside = [f"{group}:{name}" for group in ("layers", "obsm") if group in file for name in file[group]]
    return list_names(["X", *inside] if "X" in file else inside)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
