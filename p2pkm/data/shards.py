"""Shards: all points of all devices, end to end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from p2pkm.core.brief import short_repr
from p2pkm.core.errors import DataError
from p2pkm.core.late_binding import call
from p2pkm.core.sorting import blocks, offsets_of, sort_by
from p2pkm.core.validation import as_points, check_dtype, check_scalar, match_features, name_features
from p2pkm.data.table import Labels, encode


@dataclass(frozen=True, eq=False)
class Shards:
    """Hold the points of all devices end to end; made by `deal` or `from_list`, which check them once.

    Attributes
    ----------
    points : float64[m, d] or float32[m, d]
        Device i has the rows ``offsets[i]`` to ``offsets[i + 1]``; C order. What is computed from them is float64.
    offsets : int64[n + 1]
        Where each device's points begin, and m.
    weights : float64[m]
        Positive weight of each point; if none was given, a read-only view of a single 1.
    labels : int16[m], int32[m], int64[m] or None
        True class of each point, 0 to c - 1 in the sorted order of what was given, in the smallest type that holds
        them.
    order : int32[m], int64[m] or int
        Row of each point in the user's array, ascending inside a device; or that of the first point, if the others
        follow it. `rows` is the same as int64[m].
    names : tuple of str, length n, or None
        What the devices are called: a graph whose nodes have names is matched with them by `p2pkm.simulate`.
    features : tuple of str, length d, or None
        What the features are called.

    Examples
    --------
    >>> import p2pkm
    >>> shards = p2pkm.Shards.deal([[0.0, 0.0], [5.0, 5.0], [0.1, 0.0]], device=[0, 1, 0])
    >>> shards.n, shards.offsets.tolist(), shards.rows.tolist()
    (2, [0, 2, 3], [0, 2, 1])
    """

    points: NDArray[np.floating[Any]]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float64]
    labels: Labels | None
    order: NDArray[np.integer[Any]] | int
    names: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None

    in_memory: ClassVar[bool] = True  # unlike those of `p2pkm.data.out_of_core.shards.DiskShards`

    @classmethod
    def deal(  # noqa: PLR0913 - the public signature
        cls,
        X: ArrayLike,  # noqa: N803 - the name that scripts know from scikit-learn
        device: Any,
        *,
        devices: int | Sequence[Any] | None = None,
        labels: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        dtype: DTypeLike = "float64",
        missing: bool = False,
    ) -> Self:
        """Deal points to devices; the rows of a device keep their order.

        Points that lie device by device already, in C order and the right type, are not copied.

        Parameters
        ----------
        X : array_like of shape (m, d)
            One point per row; data frames will do.
        device : array_like of int or str, shape (m,)
            Device of each point: numbers from 0, or names, which are numbered in sorted order. Numbers that cannot be
            those of devices, such as the site codes 101, 205 and 309, are names.
        devices : int or sequence of str, optional
            Number of devices, if some have no points, or the names of all of them in order. None: as many as `device`
            names; numbers from 0 up to the largest, if at least half of them occur, else each is a name.
        labels : array_like of shape (m,), optional
            True class of each point, of any kind.
        weights : array_like of float, shape (m,), optional
            Weight of each point, above 0.
        dtype : {"float64", "float32"}
            How to store the points; float32 halves the memory.
        missing : bool
            Whether NaN may stand for missing values, which ``p2pkm.simulate(..., missing="mean")``, or
            ``"median"``, fills in.

        Raises
        ------
        DataError
            If an array has the wrong shape or kind; the message names the first wrong entry.
        """
        from p2pkm.data.partition.by_column import read_owners  # where points are dealt, not on every rank

        points, features = (
            as_points(X, dtype=check_dtype(dtype), missing=check_scalar(missing, "missing")),
            name_features(X),
        )
        owner, n, names = read_owners(device, len(points), _count(devices))
        mass = _weights(weights, len(points))
        classes = None if labels is None else encode(labels, len(points), "labels")
        if (owner[1:] >= owner[:-1]).all():
            return cls(points, offsets_of(np.bincount(owner, minlength=n)), mass, classes, 0, names, features)
        rows, offsets = sort_by(owner, n)
        del device, owner, X  # of many points each of them counts
        mass = mass if weights is None else mass[rows]
        known = None if classes is None else classes[rows]
        return cls(_gather(points, rows), offsets, mass, known, rows, names, features)

    @classmethod
    def from_list(
        cls,
        arrays: Sequence[ArrayLike],
        labels: Sequence[ArrayLike] | ArrayLike | None = None,
        weights: Sequence[ArrayLike] | ArrayLike | None = None,
        dtype: DTypeLike = "float64",
    ) -> Self:
        """Take one array of points per device; empty ones are devices without points.

        Parameters
        ----------
        arrays : sequence of array_like of shape (m_i, d)
            The points of device 0, 1, ...; columns of data frames are found by the names of the first one's.
        labels, weights : sequence of array_like of shape (m_i,), or array_like of shape (m,), optional
            As in `deal`, device by device or end to end.
        dtype : {"float64", "float32"}
            As in `deal`.

        Raises
        ------
        DataError
            If there is no point at all, or an array is not like the others; the message names the device.
        """
        kind, features = check_dtype(dtype), next(filter(None, map(name_features, arrays)), None)
        own = [
            as_points(match_features(part, features, what), what, empty=True, dtype=kind)
            for part, what in ((part, f"the array of device {i}") for i, part in enumerate(arrays))
        ]
        filled = [i for i, part in enumerate(own) if len(part)]
        if not filled:
            raise DataError(f"the list of {len(own)} arrays has no point; expected at least one array with points")
        for i, j in pairwise(filled):
            if own[i].shape[1] != own[j].shape[1]:
                raise DataError(
                    f"device {i} has {own[i].shape[1]} features, device {j} has {own[j].shape[1]}; "
                    "expected the same features everywhere"
                )
        sizes = np.array([len(part) for part in own], dtype=np.int64)
        points = np.concatenate([own[i] for i in filled])
        classes = None if labels is None else encode(_end_to_end(labels, sizes, "labels"), len(points), "labels")
        mass = _weights(None if weights is None else _end_to_end(weights, sizes, "weights"), len(points))
        return cls(points, offsets_of(sizes), mass, classes, 0, features=features)

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

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the row of each point in the user's array, ascending inside a device, int64[m]."""
        if isinstance(self.order, int):
            return np.arange(self.order, self.order + self.m)
        return self.order.astype(np.int64, copy=False)

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str:
        return str(call("card", self))

    def to_arrays(self) -> dict[str, Any]:
        """Return what `from_arrays` needs on another rank; weights that are all 1 stay here."""
        parts = {"points": self.points, "offsets": self.offsets, "order": np.asarray(self.order)}
        parts |= {} if self.labels is None else {"labels": self.labels}
        return parts if self.weights.strides == (0,) else parts | {"weights": self.weights}

    @classmethod
    def from_arrays(cls, parts: dict[str, Any]) -> Self:
        """Return what `to_arrays` was called on."""
        order = parts["order"]
        mass = parts.get("weights", unweighted(len(parts["points"])))
        row = order if order.ndim else int(order)
        return cls(parts["points"], parts["offsets"], mass, parts.get("labels"), row)

    def with_hub(self) -> Self:
        """Return the same points with one more device, the last, that has none: the server of a star."""
        return replace(self, offsets=np.append(self.offsets, self.offsets[-1]))

    def part(self, first: int, last: int) -> Self:
        """Return the devices `first` to `last` - 1; nothing is copied."""
        return self.take(np.arange(first, last))

    def take(self, ids: ArrayLike) -> Self:
        """Return the devices `ids`, in that order, numbered anew from 0; neighboring ids are not copied.

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
        offsets = offsets_of(sizes)
        where: slice | NDArray[np.int64]
        order: NDArray[np.integer[Any]] | int
        if chosen.size and (np.diff(chosen) == 1).all():
            where = slice(int(self.offsets[chosen[0]]), int(self.offsets[chosen[-1] + 1]))
            order = self.order + where.start if isinstance(self.order, int) else self.order[where]
        else:
            where = np.repeat(self.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
            order = where + self.order if isinstance(self.order, int) else self.order[where]
        labels = None if self.labels is None else self.labels[where]
        mass = unweighted(int(offsets[-1])) if self.weights.strides == (0,) else self.weights[where]
        return type(self)(self.points[where], offsets, mass, labels, order, features=self.features)


def _gather(points: NDArray[np.floating[Any]], rows: NDArray[np.integer[Any]]) -> NDArray[np.floating[Any]]:
    """Return rows of points in a new array, a block at a time: whole arrays would be checked and copied once more."""
    gathered = np.empty((len(rows), points.shape[1]), points.dtype)
    for block in blocks(len(rows)):
        np.take(points, rows[block], axis=0, out=gathered[block], mode="clip")
    return gathered


def _count(devices: Any) -> Any:
    """Return the number of devices, or their names, as they were given.

    Raises
    ------
    DataError
        If it is neither.
    """
    if isinstance(devices, bool | float | str | np.bool_ | np.floating):
        raise DataError(f"devices is {devices!r}; expected a whole number, the names of all devices, or None")
    return devices


def unweighted(m: int) -> NDArray[np.float64]:
    """Return weights that are all 1, in the memory of one: a read-only view."""
    return np.broadcast_to(1.0, (m,))


def _weights(weights: ArrayLike | None, m: int) -> NDArray[np.float64]:
    if weights is None:
        return unweighted(m)
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
