"""Points of all devices, concatenated in device order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from p2pkm.core.allocator import trim_heap
from p2pkm.core.brief import short_repr
from p2pkm.core.digest import digest
from p2pkm.core.errors import DataError
from p2pkm.core.late_binding import call
from p2pkm.core.sorting import blocks, offsets_of, sort_by
from p2pkm.core.validation import (
    as_points,
    check_dtype,
    check_masks,
    check_scalar,
    check_values,
    match_features,
    name_features,
)
from p2pkm.data.table import Labels, Table, encode

# Significant bits of a value in a checksum, and hexadecimal digits of the checksum.
_BITS, _DIGITS = 40, 32

# Points from which on the holes that freed arrays leave in the heap are returned before the points are copied.
_TRIMMED = 1_000_000
# Prefix of the arrays of test points among those of `Shards.to_arrays`.
_TESTS = "tests_"
# Threads that copy rows, and width given to `blocks` for them: 262,144 rows.
_THREADS, _BLOCK_WIDTH = 2, 16


@dataclass(frozen=True, eq=False)
class Shards:
    """Points of all devices, concatenated in device order; built by `deal` or `from_list`, which validate them once.

    Attributes
    ----------
    points : float64[m, d] or float32[m, d]
        Device i has the rows ``offsets[i]`` to ``offsets[i + 1]``; C order. Computations with them use float64.
    offsets : int64[n + 1]
        Index of the first point of each device, then m.
    weights : float64[m]
        Positive weight of each point; a read-only view of a single 1 if no weights were given.
    labels : int16[m], int32[m], int64[m] or None
        True class of each point, 0 to c - 1 in the sorted order of the given classes, in the smallest integer type
        that fits.
    order : int32[m], int64[m], int or None
        Row of each point in the input array, ascending within a device; an int if the rows are consecutive: the row
        of the first point. `rows` is the same as int64[m]. None in large runs, which do not write labels of points.
    names : tuple of str, length n, or None
        Names of the devices; `p2pkm.simulate` matches them with the names of the nodes of a graph.
    features : tuple of str, length d, or None
        Names of the features.
    schema : Schema or None
        Columns of the table of the points, with which `Result.predict` reads new rows.
    copied : dict of str to array, or None
        Columns of the table that are copied to labels.csv, in the order of its rows.
    tests : Shards or None
        Test points of the same devices, which no stage of a run sees; see `with_tests`.
    centers : float64[n, c, d] or None
        True centers of each device, +inf for absent ones, if the data source knows them.

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
    order: NDArray[np.integer[Any]] | int | None
    names: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    schema: Any = None
    copied: dict[str, NDArray[Any]] | None = None
    tests: "Shards | None" = None
    centers: NDArray[np.float64] | None = None

    # False for `p2pkm.data.out_of_core.shards.DiskShards`.
    in_memory: ClassVar[bool] = True

    @classmethod
    def deal(
        cls,
        X: Any,  # noqa: N803 - the name that scripts know from scikit-learn
        device: Any = None,
        *,
        devices: int | Sequence[Any] | None = None,
        labels: ArrayLike | str | None = None,
        weights: ArrayLike | str | None = None,
        dtype: DTypeLike = "float64",
        missing: bool = False,
    ) -> Self:
        """Partition points over devices; the rows of a device keep their order.

        Points that are already sorted by device, in C order and of the requested type, are not copied.

        Parameters
        ----------
        X : array_like of shape (m, d), DataFrame of pandas or polars, pyarrow.Table, or Table
            One point per row. A table in memory is read as by `p2pkm.read_table`, whose `Table` is accepted, too.
        device : array_like of int or str, shape (m,), or str, optional
            Device of each point: numbers from 0, or names, which are numbered in sorted order. Numbers that cannot be
            device numbers, such as the site codes 101, 205 and 309, are names. Of a table, also the name of a column;
            None: the column device or client.
        devices : int or sequence of str, optional
            Number of devices, if some are without points, or the names of all devices in order. None: the devices in
            `device`. Numbers are device numbers if at least half of those from 0 to the largest occur, else names.
        labels : array_like of shape (m,), or str, optional
            True class of each point, of any kind. Of a table, also the name of a column; None: the column label, if
            any.
        weights : array_like of float, shape (m,), or str, optional
            Weight of each point, above 0. Of a table, also the name of a column.
        dtype : {"float64", "float32"}
            Type in which points are stored; float32 halves the memory.
        missing : bool
            Whether NaN is accepted as a missing value; ``p2pkm.simulate(..., missing="mean")`` or ``"median"`` fills
            it in.

        Raises
        ------
        DataError
            If an array has a wrong shape or type; the message names the first wrong entry.
        """
        # Imported here because only the rank that partitions the points needs them.
        from p2pkm.data.partition.by_column import read_owners
        from p2pkm.data.readers.in_memory import read_for_deal

        table = read_for_deal(X, device, labels, weights, missing=check_scalar(missing, "missing"))
        if table is not None:
            shards = cls.deal(table.points, table.device, devices=table.devices if devices is None else devices,
                              labels=table.labels, weights=table.weights, dtype=dtype, missing=missing)  # fmt: skip
            order = shards.order if table.rows is None else table.rows[shards.rows]
            shards = shards.with_tests_of(X) if isinstance(X, Table) and device is None else shards
            return replace(shards, features=table.features, order=order, names=table.names or shards.names,
                           schema=table.schema, copied=table.copied)  # fmt: skip
        if device is None:
            raise DataError("device is None; expected the device of each row of X, or a table with a column device")
        points = as_points(X, dtype=check_dtype(dtype), missing=check_scalar(missing, "missing"))
        features = name_features(X)
        owner, n, names = read_owners(device, len(points), _count(devices))
        # The type in which `sort_by` sorts. Freed early, because the peak of memory is here.
        del device
        if max(len(points), n) < np.iinfo(np.int32).max:
            owner = owner.astype(np.int32, copy=False)
        mass = _weights(weights, len(points))
        classes = None if labels is None else encode(labels, len(points), "labels")
        if (owner[1:] >= owner[:-1]).all():
            return cls(points, offsets_of(np.bincount(owner, minlength=n)), mass, classes, 0, names, features)
        rows, offsets = sort_by(owner, n)
        # Frees arrays of m entries before the points are copied.
        del owner, X
        if len(rows) > _TRIMMED:
            trim_heap()
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
        """Concatenate one array of points per device; an empty array is a device without points.

        Parameters
        ----------
        arrays : sequence of array_like of shape (m_i, d)
            Points of device 0, 1, ...; columns of data frames are matched by name with those of the first frame.
        labels, weights : sequence of array_like of shape (m_i,), or array_like of shape (m,), optional
            As in `deal`, one array per device or one for all points.
        dtype : {"float64", "float32"}
            As in `deal`.

        Raises
        ------
        DataError
            If all arrays are empty, or an array does not match the others; the message names the device.
        """
        kind = check_dtype(dtype)
        features = next(filter(None, map(name_features, arrays)), None)
        parts = [
            as_points(match_features(part, features, what), what, empty=True, dtype=kind)
            for part, what in ((part, f"the array of device {i}") for i, part in enumerate(arrays))
        ]
        filled = [i for i, part in enumerate(parts) if len(part)]
        if not filled:
            raise DataError(f"all {len(parts)} arrays are empty; expected at least one array with points")
        for i, j in pairwise(filled):
            if parts[i].shape[1] != parts[j].shape[1]:
                raise DataError(
                    f"device {i} has {parts[i].shape[1]} features, but device {j} has {parts[j].shape[1]}; "
                    "expected the same features on all devices"
                )
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        points = np.concatenate([parts[i] for i in filled])
        classes = (
            None if labels is None else encode(_concatenate_devices(labels, sizes, "labels"), len(points), "labels")
        )
        mass = _weights(None if weights is None else _concatenate_devices(weights, sizes, "weights"), len(points))
        return cls(points, offsets_of(sizes), mass, classes, 0, features=features)

    @property
    def n(self) -> int:
        """Number of devices."""
        return len(self.offsets) - 1

    @property
    def m(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.points.shape[1])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of points of each device, int64[n]."""
        return np.diff(self.offsets)

    @property
    def devices(self) -> NDArray[np.int64]:
        """Device of each point, int64[m]."""
        return np.repeat(np.arange(self.n, dtype=np.int64), self.sizes)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row of each point in the input array, ascending within a device, int64[m]."""
        if isinstance(self.order, int):
            return np.arange(self.order, self.order + self.m)
        if self.order is None:
            raise DataError("rows of the points are not stored; expected a run that writes labels. Use fewer points")
        return self.order.astype(np.int64, copy=False)

    def checksum(self) -> str:
        """Return a hash of points and weights that does not depend on their order and on the devices.

        Values are rounded to 40 significant bits, so that the last bits of a mathematical library do not matter.

        Examples
        --------
        >>> import p2pkm
        >>> first, second = p2pkm.Shards.from_list([[[1.0], [2.0]]]), p2pkm.Shards.from_list([[[2.0]], [[1.0]]])
        >>> first.checksum() == second.checksum()
        True
        """
        table = np.column_stack((self.points.astype(np.float64), self.weights))
        mantissa, exponent = np.frexp(table)
        # Adding 0 removes the sign of -0.
        rounded = np.ldexp(np.rint(np.ldexp(mantissa, _BITS)), exponent - _BITS) + 0.0
        return digest(rounded[np.lexsort(rounded.T[::-1])]).hex()[:_DIGITS]

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str:
        return str(call("card", self))

    def to_arrays(self) -> dict[str, Any]:
        """Return the arrays from which `from_arrays` rebuilds the shards on another rank; unit weights are omitted."""
        parts: dict[str, Any] = {"points": self.points, "offsets": self.offsets}
        parts |= {} if self.order is None else {"order": np.asarray(self.order)}
        parts |= {} if self.labels is None else {"labels": self.labels}
        parts |= {} if self.centers is None else {"centers": self.centers}
        if self.tests is not None:
            parts |= {_TESTS + name: part for name, part in self.tests.to_arrays().items()}
        return parts if self.weights.strides == (0,) else parts | {"weights": self.weights}

    @classmethod
    def from_arrays(cls, parts: dict[str, Any]) -> Self:
        """Rebuild shards from the arrays of `to_arrays`."""
        order = parts.get("order")
        mass = parts.get("weights", unweighted(len(parts["points"])))
        row = order if order is None or order.ndim else int(order)
        of_tests = {name.removeprefix(_TESTS): part for name, part in parts.items() if name.startswith(_TESTS)}
        tests = cls.from_arrays(of_tests) if of_tests else None
        labels, centers = parts.get("labels"), parts.get("centers")
        return cls(parts["points"], parts["offsets"], mass, labels, row, tests=tests, centers=centers)

    def with_tests(self, tests: "Shards") -> Self:
        """Return a copy with test points: points of the same devices that no stage of a run sees.

        `p2pkm.simulate` measures the centroids of each device on its test points; see docs/howto/test-points.md.

        Parameters
        ----------
        tests : Shards
            As many devices in the same order, with the same features. A device may be without test points.

        Raises
        ------
        DataError
            If the devices or the features differ.

        Examples
        --------
        >>> import p2pkm
        >>> X, device = [[0.0], [0.2], [5.0], [5.2], [0.1], [5.1]], [0, 0, 1, 1, 0, 1]
        >>> tests = p2pkm.Shards.deal(X[4:], device[4:])
        >>> shards = p2pkm.Shards.deal(X[:4], device[:4]).with_tests(tests)
        >>> result = p2pkm.simulate("gtvmin", "path", shards, clusters=1)
        >>> result.devices["test_cost_alone"].round(6).tolist()
        [0.0, 0.0]
        """
        for what, of_tests, expected in (("devices", tests.n, self.n), ("features", tests.d, self.d)):
            if of_tests != expected:
                raise DataError(
                    f"the test points have {of_tests} {what}; expected {expected}, as the points. Deal both with the "
                    "same devices and columns"
                )
        return replace(self, tests=tests)

    def with_tests_of(self, table: Table) -> Self:
        """Return a copy with the test points and true centers of a table, whose devices are those of these points."""
        tests = table.tests
        if tests is None:
            return self
        kind = self.points.dtype.name
        dealt = Shards.deal(tests.points, tests.device, devices=self.n, labels=tests.labels, dtype=kind)
        return replace(self.with_tests(dealt), centers=table.centers)

    def select(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the chosen points of the same devices, without test points.

        Parameters
        ----------
        chosen : bool[m]
        """
        offsets = offsets_of(np.bincount(self.devices[chosen], minlength=self.n))
        mass = unweighted(int(offsets[-1])) if self.weights.strides == (0,) else self.weights[chosen]
        labels = None if self.labels is None else self.labels[chosen]
        order = None if self.order is None else self.rows[chosen]
        copied = None
        if self.copied is not None and self.order is not None:
            # In the order of the rows of the table, as the columns are, not in that of the points.
            in_order = chosen[np.argsort(self.rows)]
            copied = {name: column[in_order] for name, column in self.copied.items()}
        return replace(self, points=self.points[chosen], offsets=offsets, weights=mass, labels=labels, order=order,
                       copied=copied, tests=None)  # fmt: skip

    def with_hub(self) -> Self:
        """Return a copy with one more device without points at the end: the server of a star."""
        return self._with_empty(1)

    def _with_empty(self, count: int) -> Self:
        """Return a copy with more devices at the end, which are without points, test points and known centers."""
        tests, centers = self.tests, self.centers
        if centers is not None:
            centers = np.concatenate((centers, np.full((count, *centers.shape[1:]), np.inf)))
        return replace(
            self,
            offsets=np.concatenate((self.offsets, np.full(count, self.offsets[-1]))),
            tests=None if tests is None else tests._with_empty(count),
            centers=centers,
        )

    def place(self, topology: Any, names: tuple[str, ...] | None) -> Self:
        """Return a copy with the nodes of a topology that have no points: the server of a star, or named nodes.

        Parameters
        ----------
        topology : Topology
        names : tuple of str or None
            Names of the devices, as given to `Topology.call`; None: all nodes except a server have points.
        """
        if topology.hub >= 0:
            return self.with_hub()
        if names is None or topology.names is None:
            return self
        known = None if self.names is None else topology.names
        return replace(self._with_empty(max(0, topology.n - self.n)), names=known)

    def part(self, first: int, last: int) -> Self:
        """Return devices `first` to `last` - 1 as a view."""
        return self.take(np.arange(first, last))

    def take(self, ids: ArrayLike) -> Self:
        """Return the devices `ids` in that order, renumbered from 0; consecutive ids give a view.

        Raises
        ------
        DataError
            If an id is outside 0 to n - 1.
        """
        chosen = np.asarray(ids)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise DataError(f"ids have shape {chosen.shape} and dtype {chosen.dtype}; expected a list of device ids")
        chosen = chosen.astype(np.int64)
        invalid = chosen[(chosen < 0) | (chosen >= self.n)]
        if invalid.size:
            raise DataError(f"device id is {invalid[0]}; expected 0 to {self.n - 1}")
        selection: slice | NDArray[np.int64]
        order: NDArray[np.integer[Any]] | int | None
        if chosen.size and (np.diff(chosen) == 1).all():
            offsets = self.offsets[chosen[0] : chosen[-1] + 2]
            selection = slice(int(offsets[0]), int(offsets[-1]))
            offsets = offsets - selection.start if selection.start else offsets
        else:
            sizes = self.sizes[chosen]
            offsets = offsets_of(sizes)
            selection = np.repeat(self.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
        if isinstance(self.order, int):
            order = self.order + (selection.start if isinstance(selection, slice) else selection)
        else:
            order = None if self.order is None else self.order[selection]
        labels = None if self.labels is None else self.labels[selection]
        mass = unweighted(int(offsets[-1])) if self.weights.strides == (0,) else self.weights[selection]
        tests = None if self.tests is None else self.tests.take(chosen)
        centers = None if self.centers is None else self.centers[chosen]
        return type(self)(self.points[selection], offsets, mass, labels, order, features=self.features, tests=tests,
                          centers=centers)  # fmt: skip


def _gather(points: NDArray[np.floating[Any]], rows: NDArray[np.integer[Any]]) -> NDArray[np.floating[Any]]:
    """Copy rows of points to a new array, a block at a time, several blocks at the same time."""
    gathered = np.empty((len(rows), points.shape[1]), points.dtype)

    def gather(block: slice) -> None:
        # In one piece, the arrays would be checked and copied once more.
        np.take(points, rows[block], axis=0, out=gathered[block], mode="clip")

    spans = list(blocks(len(rows), _BLOCK_WIDTH))
    if len(spans) == 1:
        # To start a thread takes longer than to copy a thousand rows.
        gather(spans[0])
        return gathered
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as pool:
        # Copies wait for memory, and release the interpreter lock.
        list(pool.map(gather, spans))
    return gathered


def _count(devices: Any) -> Any:
    """Validate `devices`, a number or names, and return it unchanged.

    Raises
    ------
    DataError
        If it is neither a number nor a sequence of names.
    """
    if isinstance(devices, bool | float | str | np.bool_ | np.floating):
        raise DataError(f"devices is {devices!r}; expected a whole number, the names of all devices, or None")
    return devices


def unweighted(m: int) -> NDArray[np.float64]:
    """Return unit weights as a read-only view of a single 1."""
    return np.broadcast_to(1.0, (m,))


def _weights(weights: ArrayLike | None, m: int) -> NDArray[np.float64]:
    if weights is None:
        return unweighted(m)
    check_values(weights, "weights")
    array = np.asarray(weights)
    if array.shape != (m,) or array.dtype.kind not in "biuf":
        raise DataError(
            f"weights have shape {array.shape} and dtype {array.dtype}; expected ({m},) numbers, one per point"
        )
    mass = array.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(mass) & (mass > 0)))
    if wrong.size:
        raise DataError(
            f"the weight at row {wrong[0]} (counted from 0) is {mass[wrong[0]]}; expected a finite number above 0. "
            "Remove points that must not count"
        )
    return mass


def _concatenate_devices(values: Any, sizes: NDArray[np.int64], what: str) -> ArrayLike:
    """Concatenate one array per device; an array for all points is returned unchanged."""
    per_device = isinstance(values, list | tuple) and len(values) > 0 and all(np.ndim(part) == 1 for part in values)
    if not per_device:
        return values
    for i, part in enumerate(values):
        check_masks(part, f"{what} of device {i}")
    if len(values) != len(sizes):
        raise DataError(
            f"{what} contains arrays for {len(values)} devices; expected {len(sizes)}, one array per device"
        )
    for i, part in enumerate(values):
        if len(part) != sizes[i]:
            raise DataError(f"device {i} has {sizes[i]} points and {len(part)} {what}; expected one per point")
    return np.concatenate([np.asarray(part) for part in values if len(part)])
