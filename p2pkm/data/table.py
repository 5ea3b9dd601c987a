"""What a source of data hands over, and how labels become numbers."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.errors import DataError


class Table(NamedTuple):
    """Hold pooled data before they are dealt to devices.

    Attributes
    ----------
    points : float64[m, d]
        One point per row, in C order.
    labels : int64[m] or None
        True class of each point, 0 to classes - 1.
    classes : int or None
        The data's own number of classes; of several mixtures, that of one.
    device : array[m] or None
        Device of each point as the file has it, numbers or names; `partition.column` reads it.
    box : tuple of (float64[d], float64[d]) or None
        Low and high corner in which the partition `beta` places its clients; None: the points' bounding box.
    clusters : int64[m] or None
        Labels of a pooled k-means, which the partition `mufc` needs and somebody else computes.
    groups : int64[n] or None
        Known group of each device, for the score of the groups that a method finds.
    """

    points: NDArray[np.float64]
    labels: NDArray[np.int64] | None = None
    classes: int | None = None
    device: NDArray[Any] | None = None
    box: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    clusters: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None


def encode(values: ArrayLike, m: int, what: str) -> NDArray[np.int64]:
    """Return labels of any kind as numbers 0 to c - 1, in sorted order.

    Parameters
    ----------
    values : array_like of shape (m,)
        Numbers or names.
    m : int
        How many there must be.
    what : str
        How the message calls them.

    Raises
    ------
    DataError
        If their number is wrong, one is missing or they cannot be sorted.
    """
    array = np.asarray(values)
    if array.shape != (m,):
        raise DataError(f"{what} have shape {array.shape}, expected ({m},): one for each point")
    missing = np.flatnonzero(array != array)
    if missing.size:
        raise DataError(
            f"{what} are {array[missing[0]]} at row {missing[0]} (counted from 0); expected a value for each"
        )
    try:
        return np.unique(array, return_inverse=True)[1].astype(np.int64)
    except TypeError:
        raise DataError(f"{what} mix kinds that cannot be sorted (or None); expected all numbers or all text") from None
