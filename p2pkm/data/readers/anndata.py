"""AnnData files, .h5ad: cells are points, a column of their table says whose they are.

Sizes and indices are checked here; the file itself is read by the HDF5 library, which may not end on a file that was
damaged on purpose. So take .h5ad only from those you trust.
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
    FileContents,
    Marks,
    Roles,
    find,
    listed,
    take_points,
)
from p2pkm.data.readers.intake import TIDY, ColumnOptions
from p2pkm.data.readers.npy import refuse_bomb

DENSE = 4 * 2**30  # bytes that a sparse matrix may take when it is dense
_PART = re.compile(r"(.*\.h5ad)(:.+)", re.IGNORECASE | re.DOTALL)


def split_part(path: str) -> tuple[str, str]:
    """Part ``cells.h5ad:obsm:X_pca`` into the file and ``:obsm:X_pca``, which is empty for all other paths."""
    found = _PART.fullmatch(path)
    return (found[1], found[2]) if found else (path, "")


def read_annotated(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read X, or the matrix that follows the path, and the columns of `obs` for labels and devices.

    Raises
    ------
    DataError
        If anndata is missing, the file is damaged, or a matrix is too large when it is dense.
    """
    try:
        import h5py
        from anndata.io import read_elem
    except ImportError:
        raise DataError(f"{path} needs anndata, which is not installed; pip install 'p2pkm[anndata]'") from None
    name, part = split_part(str(path))
    try:
        with h5py.File(name, "r") as file:
            points, features = _matrix(Path(name), file, part.removeprefix(":") or "X")
            marks = _columns(name, file["obs"], label, device, read_elem)
            names = tuple(read_elem(file["var"]).index) if features else ()
    except (MemoryError, DataError):
        raise
    except Exception as error:  # a broken file raises nearly anything
        raise DataError(f"{name} cannot be read as AnnData: {_first(error)}") from None
    what = f"{name}, {part.removeprefix(':') or 'X'}"
    found = as_points(points, what, dtype=points.dtype, missing=intake.missing != "refuse") if len(points) else points
    return take_points(name, FileContents(found, names=names), marks, intake)


def _matrix(path: Path, file: Any, part: str) -> tuple[NDArray[Any], bool]:
    """Return a matrix as float[m, d], and whether its columns are the variables of the file."""
    place = part.replace(":", "/", 1)
    if part != "X" and (place.partition("/")[0] not in ("obsm", "layers") or place not in file):
        raise DataError(f"{path} has no {part!r}; it has {_listed(file)}")
    if place not in file:
        raise DataError(f"{path} has no X; name another matrix after the path: {_listed(file)}")
    found = file[place]
    dense = not hasattr(found, "keys")
    shape = found.shape if dense else tuple(int(side) for side in found.attrs.get("shape", ()))
    if len(shape) != 2:
        raise DataError(f"{path}: {part} is no matrix; it has {_listed(file)}")
    if dense:
        refuse_bomb(path, found.dtype.itemsize * shape[0] * shape[1])
        if found.dtype.kind not in "biuf":
            raise DataError(f"{path}: {part} holds {found.dtype}; expected numbers")
        return found[:].astype(_precision(found), copy=False), not part.startswith("obsm")
    return _densify(path, file, found, shape, part), not part.startswith("obsm")


def _densify(path: Path, file: Any, found: Any, shape: tuple[int, ...], part: str) -> NDArray[Any]:
    """Return a sparse matrix as a dense one, if that is not too large; what is said twice is added up."""
    kind = str(found.attrs.get("encoding-type", ""))
    if kind not in ("csr_matrix", "csc_matrix"):
        raise DataError(f"{path}: {part} is written as {kind!r}; expected a dense, a CSR or a CSC matrix")
    data, inner, starts = (found[name] for name in ("data", "indices", "indptr"))
    precision = _precision(data)
    size = shape[0] * shape[1] * np.dtype(precision).itemsize
    if size > DENSE:
        raise DataError(
            f"{path}: {part} is sparse, {shape[0]} x {shape[1]}, and takes {size} bytes when it is dense, expected at "
            f"most {DENSE}; give a smaller matrix after the path, such as :obsm:X_pca: it has {_listed(file)}"
        )
    refuse_bomb(path, sum(one.dtype.itemsize * one.size for one in (data, inner, starts)))
    entries, inner, starts = data[:], inner[:], starts[:]
    outer, across = shape if kind == "csr_matrix" else shape[::-1]
    counts = np.diff(starts)
    sound = len(starts) == outer + 1 and (counts >= 0).all() and starts[0] == 0 and starts[-1] == len(inner)
    if not sound or len(entries) != len(inner) or (len(inner) and not 0 <= inner.min() <= inner.max() < across):
        raise DataError(f"{path}: {part} is sparse and damaged: its indices do not fit its shape {shape}")
    dense = np.zeros(shape, precision)
    place = np.repeat(np.arange(outer), counts), inner
    np.add.at(dense, place if kind == "csr_matrix" else place[::-1], entries)
    return dense


def _columns(name: str, obs: Any, label: Column, device: Column, read: Any) -> Marks:
    """Return the columns of labels and devices of the table of cells."""
    names = [str(one) for one in obs.attrs["column-order"]]
    where = f"{name}, obs"
    at = (find(where, names, label, "label", LABEL_NAMES), find(where, names, device, "device", DEVICE_NAMES))
    if at[0] is not None and at[0] == at[1]:
        raise DataError(f"{where}: column {names[at[0]]!r} is both label and device; name two different columns")
    columns = {one: read(obs[names[one]]) for one in at if one is not None}
    return Marks.of(names, Roles([], *at), columns, f"{where}, ")


def _precision(found: Any) -> str:
    return "float32" if found.dtype == np.float32 else "float64"


def _listed(file: Any) -> str:
    """List the matrices of a file."""
    inside = [f"{group}:{name}" for group in ("layers", "obsm") if group in file for name in file[group]]
    return listed(["X", *inside] if "X" in file else inside)


def _first(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
