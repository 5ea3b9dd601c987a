"""Shards: all points of all devices, end to end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.data.checks import matrix
from p2pkm.data.table import encode
from p2pkm.errors import DataError


@dataclass(frozen=True, eq=False)
class Shards:
    """Hold the points of all devices end to end; made by `deal` or `from_list`, which check them once.

    Attributes
    ----------
    points : float64[m, d]
        Device i has the rows ``offsets[i]`` to ``offsets[i + 1]``; C order.
    offsets : int64[n + 1]
        Where each device's points begin, and m.
    weights : float64[m]
        Positive weight of each point, 1 if none was given.
    labels : int64[m] or None
        True class of each point, 0 to c - 1 in the sorted order of what was given.
    rows : int64[m]
        Row of each point in the user's array, ascending inside a device.
    """

    points: NDArray[np.float64]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float64]
    labels: NDArray[np.int64] | None
    rows: NDArray[np.int64]

    @classmethod
    def deal(
        cls,
        X: ArrayLike,  # noqa: N803 - the name that scripts know from scikit-learn
        device: ArrayLike,
        *,
        devices: int | None = None,
        labels: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Deal points to devices; the rows of a device keep their order.

        Parameters
        ----------
        X : array_like of shape (m, d)
            One point per row; data frames will do.
        device : array_like of int, shape (m,)
            Device of each point, from 0.
        devices : int, optional
            Number of devices; None: the largest of `device` + 1.
        labels : array_like of shape (m,), optional
            True class of each point, of any kind.
        weights : array_like of float, shape (m,), optional
            Weight of each point, above 0.

        Raises
        ------
        DataError
            If an array has the wrong shape or kind; the message names the first wrong entry.
        """
        points = matrix(X)
        owner = _owners(device, len(points))
        n = _count(devices, int(owner.max()) + 1)
        rows = np.argsort(owner, kind="stable")
        offsets = _offsets(np.bincount(owner, minlength=n))
        mass = _weights(weights, len(points))[rows]
        classes = None if labels is None else encode(labels, len(points), "labels")[rows]
        return cls(points[rows], offsets, mass, classes, rows.astype(np.int64))

    @classmethod
    def from_list(
        cls,
        arrays: Sequence[ArrayLike],
        labels: Sequence[ArrayLike] | ArrayLike | None = None,
        weights: Sequence[ArrayLike] | ArrayLike | None = None,
    ) -> Self:
        """Take one array of points per device; empty ones are devices without points.

        Parameters
        ----------
        arrays : sequence of array_like of shape (m_i, d)
            The points of device 0, 1, ....
        labels, weights : sequence of array_like of shape (m_i,), or array_like of shape (m,), optional
            As in `deal`, device by device or end to end.

        Raises
        ------
        DataError
            If there is no point at all, or an array is not like the others; the message names the device.
        """
        blocks = [matrix(block, f"the array of device {i}", empty=True) for i, block in enumerate(arrays)]
        filled = [i for i, block in enumerate(blocks) if len(block)]
        if not filled:
            raise DataError(f"the list of {len(blocks)} arrays has no point; expected at least one array with points")
        for i, j in pairwise(filled):
            if blocks[i].shape[1] != blocks[j].shape[1]:
                raise DataError(
                    f"device {i} has {blocks[i].shape[1]} features, device {j} has {blocks[j].shape[1]}; "
                    "expected the same features everywhere"
                )
        sizes = np.array([len(block) for block in blocks], dtype=np.int64)
        points = np.concatenate([blocks[i] for i in filled])
        classes = None if labels is None else encode(_end_to_end(labels, sizes, "labels"), len(points), "labels")
        mass = _weights(None if weights is None else _end_to_end(weights, sizes, "weights"), len(points))
        return cls(points, _offsets(sizes), mass, classes, np.arange(len(points), dtype=np.int64))

    @property
    def n(self) -> int:
        """Return the number of devices."""
        return len(self.offsets) - 1

    @property
    def m(self) -> int:
        """Return the number of points."""
        return int(self.points.shape[0])

    @property
    def d(self) -> int:
        """Return the number of features."""
        return int(self.points.shape[1])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Return how many points each device has, int64[n]."""
        return np.diff(self.offsets)

    @property
    def devices(self) -> NDArray[np.int64]:
        """Return the device of each point, int64[m]."""
        return np.repeat(np.arange(self.n, dtype=np.int64), self.sizes)

    def with_hub(self) -> Self:
        """Return the same points with one more device, the last, that has none: the server of a star."""
        return replace(self, offsets=np.append(self.offsets, self.offsets[-1]))

    def take(self, ids: ArrayLike) -> Self:
        """Return the devices `ids`, in that order, numbered anew from 0; neighbouring ids are not copied.

        Raises
        ------
        DataError
            If an id is not one of 0 to n - 1.
        """
        chosen = np.asarray(ids)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise DataError(f"ids have shape {chosen.shape} and dtype {chosen.dtype}; expected a list of device ids")
        chosen = chosen.astype(np.int64)
        wrong = chosen[(chosen < 0) | (chosen >= self.n)]
        if wrong.size:
            raise DataError(f"device {wrong[0]} is not one of 0 to {self.n - 1}")
        sizes = self.sizes[chosen]
        offsets = _offsets(sizes)
        where: slice | NDArray[np.int64]
        if chosen.size and (np.diff(chosen) == 1).all():
            where = slice(int(self.offsets[chosen[0]]), int(self.offsets[chosen[-1] + 1]))
        else:
            where = np.repeat(self.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
        labels = None if self.labels is None else self.labels[where]
        return type(self)(self.points[where], offsets, self.weights[where], labels, self.rows[where])


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _owners(device: ArrayLike, m: int) -> NDArray[np.int64]:
    owner = np.asarray(device)
    if owner.shape != (m,):
        raise DataError(f"device has shape {owner.shape}, expected ({m},): one device for each row of X")
    if owner.dtype.kind not in "iu":
        raise DataError(
            f"device has dtype {owner.dtype}, expected whole numbers from 0; "
            "p2pkm.partition.column(device) numbers names"
        )
    if owner.min() < 0:
        row = int(np.argmax(owner < 0))
        raise DataError(f"device is {owner[row]} at row {row} (counted from 0); expected whole numbers from 0")
    return owner.astype(np.int64)


def _count(devices: object, needed: int) -> int:
    if devices is None:
        return needed
    if isinstance(devices, bool) or not isinstance(devices, int | np.integer) or devices < needed:
        raise DataError(
            f"devices is {devices!r}, but device names {needed - 1}; expected at least {needed}, "
            "or None for just as many"
        )
    return int(devices)


def _weights(weights: ArrayLike | None, m: int) -> NDArray[np.float64]:
    if weights is None:
        return np.ones(m)
    given = np.asarray(weights)
    if given.shape != (m,) or given.dtype.kind not in "biuf":
        raise DataError(
            f"weights have shape {given.shape} and dtype {given.dtype}; expected ({m},) numbers, one per point"
        )
    mass = given.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(mass) & (mass > 0)))
    if wrong.size:
        raise DataError(
            f"the weight at row {wrong[0]} (counted from 0) is {mass[wrong[0]]}; expected a finite number above 0: "
            "drop points that shall not count"
        )
    return mass


def _end_to_end(values: Any, sizes: NDArray[np.int64], what: str) -> ArrayLike:
    """Join one array per device into one array; an array of all points passes as it is."""
    per_device = isinstance(values, list | tuple) and len(values) > 0 and all(np.ndim(part) == 1 for part in values)
    if not per_device:
        return np.asarray(values)
    if len(values) != len(sizes):
        raise DataError(f"{what} were given for {len(values)} devices, expected {len(sizes)}: one array for each")
    for i, part in enumerate(values):
        if len(part) != sizes[i]:
            raise DataError(f"device {i} has {sizes[i]} points and {len(part)} {what}; expected one for each point")
    return np.concatenate([np.asarray(part) for part in values if len(part)])
