"""Table of points with labels and devices, as data sources return it, and encoding of labels as numbers."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.brief import short_repr
from p2pkm.core.errors import DataError
from p2pkm.core.sorting import blocks, narrow
from p2pkm.data.identifiers import identify, require_complete, to_raw

Labels = NDArray[np.integer[Any]]


class Table(NamedTuple):
    """Pooled data before they are partitioned.

    Attributes
    ----------
    points : float64[m, d] or float32[m, d]
        One point per row, in C order; NaN is a missing value that the run fills in.
    labels : int16[m], int32[m], int64[m] or None
        True class of each point, 0 to classes - 1, in the smallest integer type that fits.
    classes : int or None
        Number of classes of the data; with several mixtures, of one mixture.
    device : array[m] or None
        Device of each point as stored in the file, numbers or names; read by `partition.column`.
    box : tuple of (float64[d], float64[d]) or None
        Lower and upper corner of the box in which the partition `beta` places the devices; None: bounding box of the
        points.
    clusters : int64[m] or None
        Labels of a pooled k-means, for the partition `mufc`; added by the caller.
    groups : int64[n] or None
        True group of each device, to score the groups that a method finds.
    names : tuple of str or None
        Names of the devices, if the numbers in `device` are those of files.
    features : tuple of str, length d, or None
        Names of the features.
    rows : int64[m] or None
        Row of the file of each point, ascending; None: all rows.
    total : int or None
        Number of rows of the file, if `rows` is given.
    image : tuple of int or None
        Height, width and, if present, channels of the images whose pixels are the features, row by row; None if the
        points are not known to be images.
    owners : int64[n] or object[n], or None
        All devices in order, if some are without points; None: the devices in `device`.
    notes : tuple of str, or None
        Guesses of the reader and suspicious contents of the file.
    weights : float64[m] or None
        Weight of each point.
    copied : dict of str to int64[m] or object[m], or None
        Columns that are copied to tables of labels, by name.
    schema : Schema or None
        Columns of the file and what was learned from them, to read new rows in the same way.
    tests : Table or None
        Test points of the devices in `device`, which no stage of a run sees.
    centers : float64[n, k, d] or None
        True centers of each device.
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
    weights: NDArray[np.float64] | None = None
    copied: dict[str, NDArray[Any]] | None = None
    schema: Any = None
    tests: "Table | None" = None
    centers: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    def completed(self) -> "Table":
        """Return the table with missing values replaced by column means, for partitions that read the points."""
        if not np.isnan(self.points.max(initial=0.0)):
            return self
        lost = np.isnan(self.points)
        means = np.where(lost, 0.0, self.points).sum(axis=0) / np.maximum((~lost).sum(axis=0), 1)
        return self._replace(points=np.where(lost, means, self.points).astype(self.points.dtype))


def encode(values: ArrayLike, m: int, what: str) -> Labels:
    """Encode labels as numbers 0 to c - 1, in the order of `p2pkm.data.identifiers`, in the smallest type that fits.

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
        If the number of labels is wrong, or a label is missing.
    """
    shape = np.shape(values)
    if shape != (m,):
        raise DataError(f"{what} have shape {shape}; expected ({m},), one per point")
    # Integers of any size, without the copy of `to_raw`.
    raw = values if type(values) is np.ndarray and values.dtype.kind == "i" else to_raw(values, what)
    if raw.dtype.kind == "i" and m and raw.min() >= 0 and raw.max() < 2 * m:
        return _renumber(raw)
    raw = to_raw(raw, what)
    codes, kinds = identify(raw)
    require_complete(raw, what)
    return codes.astype(narrow(len(kinds)))


def _renumber(values: NDArray[np.integer[Any]]) -> Labels:
    """Renumber small integers as 0 to c - 1 without sorting."""
    seen = np.zeros(int(values.max()) + 1, np.bool_)
    for block in blocks(len(values)):
        seen[values[block]] = True
    kind = narrow(count := int(seen.sum()))
    if count == len(seen):
        return values.astype(kind)
    numbers = (np.cumsum(seen) - 1).astype(kind)
    return numbers[values]
