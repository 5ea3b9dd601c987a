"""The order of rows by device, and long arrays a block at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_BLOCK = 1 << 22  # numbers at a time
_SORTED = 1 << 17  # rows; from here on counting pays for the import of scipy


def blocks(rows: int, width: int = 1) -> Iterator[slice]:
    """Cut rows of `width` numbers each into blocks that are small beside the whole."""
    step = max(_BLOCK // max(width, 1), 1)
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


def narrow(count: int) -> type[np.signedinteger[Any]]:
    """Return the smallest of int16, int32 and int64 that holds 0 to count - 1."""
    kinds: tuple[type[np.signedinteger[Any]], ...] = (np.int16, np.int32, np.int64)
    return next(kind for kind in kinds if count - 1 <= np.iinfo(kind).max)


def sort_by(owner: NDArray[np.integer[Any]], n: int) -> tuple[NDArray[np.integer[Any]], Ints]:
    """Sort rows by device, those of a device ascending.

    Parameters
    ----------
    owner : int[m]
        Device of each row, 0 to n - 1.
    n : int

    Returns
    -------
    rows : int32[m] or int64[m]
    offsets : int64[n + 1]
        Where the rows of each device begin, and m.
    """
    m = len(owner)
    if m < _SORTED:
        return np.argsort(owner, kind="stable"), offsets_of(np.bincount(owner, minlength=n))
    from scipy.sparse import csc_array

    kind = np.int32 if max(m, n) < np.iinfo(np.int32).max else np.int64
    marks = np.ones(m, np.int8), owner.astype(kind, copy=False), np.arange(m + 1, dtype=kind)
    by_device = csc_array(marks, shape=(n, m)).tocsr()  # a counting sort: in each of its rows the columns ascend
    return by_device.indices, by_device.indptr.astype(np.int64)


def find_runs(ascending: Ints) -> Ints:
    """Return where each run of equal numbers begins, int64[runs]."""
    new = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    return new.nonzero()[0]


def find_distinct(numbers: Ints) -> Ints:
    """Return every number once, ascending; as np.unique does, which imports masked arrays and takes twice as long."""
    ascending = np.sort(numbers)
    return ascending[find_runs(ascending)]


def offsets_of(sizes: Ints) -> Ints:
    """Return where blocks of these sizes begin, and the sum of all, int64[n + 1]."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def sum_by(owner: NDArray[np.integer[Any]], values: NDArray[Any], n: int) -> NDArray[np.float64]:
    """Return the sum of the values of each device, float64[n]; owner: int[m], the device of each value."""
    total = np.zeros(n)
    for some in blocks(len(owner)):
        total += np.bincount(owner[some], values[some], n)
    return total
