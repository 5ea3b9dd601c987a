"""Sorting of rows by device, and iteration over long arrays in blocks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Numbers in a block: 32 MiB of float64.
_BLOCK = 1 << 22
# Number of rows from which a counting sort repays the import of scipy.
_MIN_COUNTING_ROWS = 1 << 17


def blocks(rows: int, width: int = 1) -> Iterator[slice]:
    """Split rows of `width` numbers each into blocks, which limits the size of temporary arrays."""
    step = max(_BLOCK // max(width, 1), 1)
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


def narrow(count: int) -> type[np.signedinteger[Any]]:
    """Return the smallest type of int16, int32 and int64 that holds 0 to count - 1."""
    kinds: tuple[type[np.signedinteger[Any]], ...] = (np.int16, np.int32, np.int64)
    return next(kind for kind in kinds if count - 1 <= np.iinfo(kind).max)


def sort_by(owner: NDArray[np.integer[Any]], n: int) -> tuple[NDArray[np.integer[Any]], Ints]:
    """Sort rows by device, and by row number within a device.

    Parameters
    ----------
    owner : int[m]
        Device of each row, 0 to n - 1.
    n : int
        Number of devices.

    Returns
    -------
    rows : int32[m] or int64[m]
        Row numbers, sorted by device.
    offsets : int64[n + 1]
        First entry of each device in `rows`, and m.
    """
    m = len(owner)
    if m < _MIN_COUNTING_ROWS:
        return np.argsort(owner, kind="stable"), offsets_of(np.bincount(owner, minlength=n))
    from scipy.sparse import csc_array

    kind = np.int32 if max(m, n) < np.iinfo(np.int32).max else np.int64
    marks = np.ones(m, np.int8), owner.astype(kind, copy=False), np.arange(m + 1, dtype=kind)
    # The conversion from CSC to CSR is a counting sort, in which the columns of each row ascend.
    by_device = csc_array(marks, shape=(n, m)).tocsr()
    return by_device.indices, by_device.indptr.astype(np.int64)


def find_runs(numbers: NDArray[Any]) -> Ints:
    """Find the first index of each run of equal numbers, int64[runs]."""
    new = np.empty(len(numbers), np.bool_)
    new[:1] = True
    np.not_equal(numbers[1:], numbers[:-1], out=new[1:])
    return new.nonzero()[0]


def number_runs(first: NDArray[Any], second: NDArray[Any]) -> Ints:
    """Return the run of equal pairs that each pair belongs to, numbered from 0, int64[pairs]."""
    is_new = np.zeros(len(first), np.int64)
    is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return np.cumsum(is_new)


def find_distinct(numbers: Ints) -> Ints:
    """Return the distinct numbers, ascending.

    Twice as fast as np.unique, which also imports masked arrays.
    """
    ascending = np.sort(numbers)
    return ascending[find_runs(ascending)]


def offsets_of(sizes: Ints) -> Ints:
    """Return the first index of each of consecutive groups of these sizes, and the total, int64[n + 1]."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def sum_by(owner: NDArray[np.integer[Any]], values: NDArray[Any], n: int) -> NDArray[np.float64]:
    """Sum the values of each device, float64[n]; owner: int[m], the device of each value."""
    total = np.zeros(n)
    for block in blocks(len(owner)):
        total += np.bincount(owner[block], values[block], n)
    return total
