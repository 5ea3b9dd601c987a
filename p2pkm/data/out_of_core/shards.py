"""Sharded input: points on disk, of which every rank reads those of its own devices and nobody all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import blocks, narrow, offsets_of, sort_by
from p2pkm.core.spec import Spec
from p2pkm.core.validation import cast_points, check_finite, check_magnitude
from p2pkm.data.identifiers import locate, to_raw
from p2pkm.data.out_of_core.formats import Header, Rows
from p2pkm.data.out_of_core.index import FileIndex, format_of, labels_of
from p2pkm.data.partition import known
from p2pkm.data.readers.columns import Roles
from p2pkm.data.shards import Shards, unweighted
from p2pkm.data.table import Table

_WHOLE = ("beta", "mufc")  # partitions that look at all points
_CLASS, _PROGRAM = 2, 300_000_000  # bytes of a label; of the program and of the points that it looks at together
_TABLES, _ARRAYS = 8, 16  # centroid tables per device, and numbers per directed edge, that a rank holds at a time


@dataclass(frozen=True)
class DiskShards:
    """Points on disk that are dealt to devices; has what `Shards` has before its points are looked at.

    Attributes
    ----------
    stored : Stored
    partition : Spec
    clients : int
    dtype : str
    hub : bool
        Whether there is one more device, without points.
    """

    stored: FileIndex
    partition: Spec
    clients: int
    dtype: str
    hub: bool = False

    in_memory: ClassVar[bool] = False

    @classmethod
    def deal(cls, stored: FileIndex, partition: Spec, n: int, dtype: str) -> Self:
        """Deal the points to n devices; nothing is read.

        Raises
        ------
        DataError
            If the partition would have to look at all points, or the files name another number of devices.
        """
        if partition.name in _WHOLE:
            raise DataError(
                f"partition {partition.name} needs all points, but these stay on disk; take blocks, column or iid"
            )
        if partition.name == "column":
            stored = _number(stored, n)
        if partition.name == "column" and stored.device != n:
            found = "no devices" if stored.device is None else f"{stored.device} devices"
            raise DataError(f"the files name {found}, expected {n}; take --partition blocks, or other --devices")
        if partition.options.get("minimum") and stored.files[0].owned:
            raise DataError("a minimum would move points between the devices of a column; leave it out")
        return cls(stored, partition, n, dtype)

    @property
    def n(self) -> int:
        """Return the number of devices."""
        return self.clients + self.hub

    @property
    def m(self) -> int:
        """Return the number of points."""
        return sum(one.rows for one in self.stored.files)

    @property
    def d(self) -> int:
        """Return the number of features."""
        return self.stored.files[0].features

    def with_hub(self) -> Self:
        """Return the same points with one more device, the last, that has none."""
        return replace(self, hub=True)

    def to_mapping(self) -> dict[str, Any]:
        """Return what `from_mapping` needs on another rank, as JSON holds it."""
        stored, labels = self.stored, self.stored.labels
        owners = None if stored.owners is None else stored.owners.tolist()
        return {"files": stored.files, "labels": None if labels is None else labels.tolist(), "device": stored.device,
                "owners": owners, "partition": [self.partition.name, self.partition.options], "clients": self.clients,
                "dtype": self.dtype, "hub": self.hub}  # fmt: skip

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """Return what `to_mapping` was called on."""
        files = tuple(Header(*one)._replace(roles=one[-1] and Roles(*one[-1])) for one in given["files"])
        labels, owners = (None if given[name] is None else to_raw(given[name], name) for name in ("labels", "owners"))
        stored = FileIndex(files, labels, given["device"], owners)
        return cls(stored, Spec(*given["partition"]), given["clients"], given["dtype"], given["hub"])

    def describe(self, ranks: int, k: int, links: int) -> str:
        """Return in words how much memory a rank needs at most, if the devices have about equally many points.

        Parameters
        ----------
        ranks, k : int
            Number of ranks and of clusters.
        links : int
            Number of directed edges of the graph.
        """
        size, number = np.dtype(self.dtype).itemsize, np.dtype(float).itemsize
        rows, devices = -(-self.m // ranks), -(-self.n // ranks)
        points = rows * (self.d * size + _CLASS)
        passing = _PROGRAM
        if needs_complete_partition(self.partition):
            passing += number * (2 * self.m + rows)
        tables = (_TABLES * devices + 2 * self.n) * k * self.d * number
        graph = _ARRAYS * number * (links + self.n)
        giga = [part / 1e9 for part in (points + passing + tables + graph, points, passing, tables, graph)]
        return (
            f"{self.m:,} points stay on disk; of {ranks} rank{'s' * (ranks != 1)} each needs at most about "
            f"{giga[0]:.2f} GB: points {giga[1]:.2f}, work on them {giga[2]:.2f}, tables {giga[3]:.2f}, "
            f"graph {giga[4]:.2f}"
        )

    def part(self, first: int, last: int) -> Shards:
        """Read the points of devices `first` to `last` - 1, and no others.

        Raises
        ------
        DataError
            If a file has changed, cannot be read, or has an entry that is no finite number: file and row are named.
        """
        rows, offsets = self._find(first, min(last, self.clients))
        points, known = np.empty((int(offsets[-1]), self.d), self.dtype), self.stored.labels
        labels = None if known is None else np.empty(len(points), narrow(len(known)))
        for header, own, place in self._pieces(rows):
            found = format_of(header).points(header, own)
            if found.shape != points[place].shape:
                raise DataError(f"{header.path} has changed while it was read; expected {header.rows} rows")
            points[place] = check_magnitude(
                cast_points(check_finite(found, header.path, own), header.path, self.dtype, own), header.path
            )
            if labels is not None and known is not None:
                labels[place] = locate(labels_of(header, own), known)
        order = rows.start if isinstance(rows, slice) else rows
        extra = np.full(max(last - self.clients, 0), offsets[-1])
        return Shards(points, np.concatenate((offsets, extra)), unweighted(len(points)), labels, order)

    def _find(self, first: int, last: int) -> tuple[Rows, NDArray[np.int64]]:
        """Return the rows of devices `first` to `last` - 1, device by device, and where each device's begin."""
        name, sizes = self.partition.name, None
        if name == "column" and not self.stored.files[0].owned:
            sizes = np.array([one.rows for one in self.stored.files])
        elif name == "blocks":
            sizes = self.m // self.clients + (np.arange(self.clients) < self.m % self.clients)
        if sizes is not None and not needs_complete_partition(self.partition):
            bounds = offsets_of(sizes)[first : last + 1]
            return slice(int(bounds[0]), int(bounds[-1])), bounds - bounds[0]
        rows, owner = self._owned(first, last) if name == "column" and sizes is None else self._drawn(first, last)
        order, offsets = sort_by(owner - first, last - first)
        return rows[order], offsets

    def _owned(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of some devices, ascending, and whose they are, as the files' column says."""
        base, kinds = 0, self.stored.owners
        rows, owners = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for header in self.stored.files:
            for raw in format_of(header).devices(header):
                owner = locate(raw, np.empty(0, np.int64) if kinds is None else kinds)
                own = np.flatnonzero((owner >= first) & (owner < last))
                rows.append(own + base)
                owners.append(owner[own])
                base += len(raw)
        return np.concatenate(rows), np.concatenate(owners)

    def _drawn(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the same by the partition, which every rank draws for itself."""
        files, labels = self.stored.files, None
        if self.stored.labels is not None:
            labels = np.concatenate([locate(labels_of(one, slice(0, one.rows)), self.stored.labels) for one in files])
        device = np.repeat(np.arange(len(files)), [one.rows for one in files])
        table = Table(np.broadcast_to(0.0, (self.m, 1)), labels, None, device)
        owner = known(self.partition.name)[self.partition.name](table, self.clients, **self.partition.options)
        rows = np.flatnonzero((owner >= first) & (owner < last))
        return rows, owner[rows]

    def _pieces(self, rows: Rows) -> Iterator[tuple[Header, Rows, Rows]]:
        """Cut rows into pieces of one file each: the file, the rows in it, and where they go."""
        base = 0
        place = np.empty(0, np.int64) if isinstance(rows, slice) else np.argsort(rows, kind="stable")
        for header in self.stored.files:
            ends = base, base + header.rows
            if isinstance(rows, slice):
                first, last = (min(max(end, rows.start), rows.stop) for end in ends)
            else:
                first, last = (int(end) for end in np.searchsorted(rows, ends, sorter=place))
            for block in blocks(last - first, header.features):
                if isinstance(rows, slice):
                    yield header, _shift(block, first - base), _shift(block, first - rows.start)
                else:
                    here = place[_shift(block, first)]
                    yield header, rows[here] - base, here
            base += header.rows


def _number(stored: FileIndex, n: int) -> FileIndex:
    """Return files whose devices are numbers below n, some of them without points, with all n devices."""
    owners = stored.owners
    if owners is None or owners.dtype.kind != "i" or owners[0] < 0 or owners[-1] != n - 1:
        return stored
    return stored._replace(device=n, owners=np.arange(n))


def needs_complete_partition(partition: Spec) -> bool:
    """Return whether every rank draws the whole partition: it cannot tell its own rows from sizes or a column alone."""
    return partition.name not in ("blocks", "column") or bool(partition.options.get("minimum"))


def _shift(block: slice, by: int) -> slice:
    return slice(block.start + by, block.stop + by)
