"""What a source of data hands over, and how labels become numbers."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import blocks, narrow
from p2pkm.data.identifiers import identify, require, to_raw

Labels = NDArray[np.integer[Any]]


class Table(NamedTuple):
    """Hold pooled data before they are dealt to devices.

    Attributes
    ----------
    points : float64[m, d] or float32[m, d]
        One point per row, in C order; NaN: a missing value that is to be filled in.
    labels : int16[m], int32[m], int64[m] or None
        True class of each point, 0 to classes - 1, in the smallest type that holds them.
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
    names : tuple of str or None
        What the devices 0, 1, ... are called, where numbers in `device` stand for files.
    features : tuple of str, length d, or None
        What the features are called.
    rows : int64[m] or None
        Rows of the file that the points are, ascending; None: all of them.
    total : int or None
        Rows of the file, if `rows` says which are kept.
    image : tuple of int or None
        Height, width and perhaps channels of the images that the points are, pixels row by row; None: they are none, or
        nobody knows.
    owners : int64[n] or object[n], or None
        All devices in order, if some of them have no points; None: those in `device`.
    notes : tuple of str, or None
        What was guessed when a file was read, and what looks wrong in it.
    """

    points: NDArray[np.floating[Any]]
    labels: Labels | None = None
    classes: int | None = None
    device: NDArray[Any] | None = None
    box: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    clusters: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    names: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    rows: NDArray[np.int64] | None = None
    total: int | None = None
    image: tuple[int, ...] | None = None
    owners: NDArray[Any] | None = None
    notes: tuple[str, ...] | None = None

    def completed(self) -> "Table":
        """Return the table as a partition that looks at points sees it: means in the place of missing values."""
        if not np.isnan(self.points.max(initial=0.0)):
            return self
        lost = np.isnan(self.points)
        means = np.where(lost, 0.0, self.points).sum(axis=0) / np.maximum((~lost).sum(axis=0), 1)
        return self._replace(points=np.where(lost, means, self.points).astype(self.points.dtype))


def encode(values: ArrayLike, m: int, what: str) -> Labels:
    """Return labels as numbers 0 to c - 1, in the order of `p2pkm.data.identifiers`, in the smallest type that fits.

    Parameters
    ----------
    values : array_like of shape (m,)
        Integers or text.
    m : int
        Required number of labels.
    what : str
        Name of the labels in messages.

    Raises
    ------
    DataError
        If their number is wrong, or one is missing.
    """
    shape = np.shape(values)
    if shape != (m,):
        raise DataError(f"{what} have shape {shape}, expected ({m},): one for each point")
    raw = to_raw(values, what)
    if raw.dtype.kind == "i" and m and raw.min() >= 0 and raw.max() < 2 * m:
        return _renumber(raw)
    codes, kinds = identify(raw)
    require(raw, what)
    return codes.astype(narrow(len(kinds)))


def _renumber(values: NDArray[np.integer[Any]]) -> Labels:
    """Return small whole numbers as 0 to c - 1, without a sort; without gaps they are returned as they are."""
    seen = np.zeros(int(values.max()) + 1, np.bool_)
    for block in blocks(len(values)):
        seen[values[block]] = True
    kind = narrow(count := int(seen.sum()))
    if count == len(seen):
        return values.astype(kind, copy=False)
    numbers = (np.cumsum(seen) - 1).astype(kind)
    return numbers[values]
