"""Partitioned points on disk: every rank reads only the points of its devices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError, TopologyError
from p2pkm.core.sorting import blocks, narrow, offsets_of, sort_by
from p2pkm.core.spec import Spec
from p2pkm.core.validation import cast_points, check_finite, check_magnitude
from p2pkm.data.identifiers import locate, to_raw
from p2pkm.data.out_of_core.formats import Header, Rows
from p2pkm.data.out_of_core.index import FileIndex, get_format, read_labels
from p2pkm.data.partition import known
from p2pkm.data.readers.columns import ColumnRoles
from p2pkm.data.schema import Schema
from p2pkm.data.shards import Shards, unweighted
from p2pkm.data.table import Table

# Partitions that read the coordinates of all points.
_NEED_POINTS = ("beta", "mufc")
# Bytes of a label.
_CLASS = 2
# Bytes of the program and of the block of points that it processes at a time.
_PROGRAM = 300_000_000
# Centroid tables per device, and numbers per edge, that a rank holds at a time.
_TABLES = 8
_ARRAYS = 16


@dataclass(frozen=True)
class DiskShards:
    """Partitioned points on disk, with the interface of `Shards` except for the points themselves.

    Attributes
    ----------
    stored : FileIndex
        Files of the points.
    partition : Spec
        Partition of the rows.
    clients : int
        Number of devices with points.
    dtype : str
        Type in which points are stored in memory.
    hub : bool
        Whether there is one more device without points, the server of a star.
    """

    stored: FileIndex
    partition: Spec
    clients: int
    dtype: str
    hub: bool = False

    in_memory: ClassVar[bool] = False
    # Columns are copied from tables in memory only.
    copied: ClassVar[None] = None

    @classmethod
    def deal(cls, stored: FileIndex, partition: Spec, n: int, dtype: str) -> Self:
        """Partition the points over n devices without reading them.

        Raises
        ------
        DataError
            If the partition needs the coordinates of all points, or the files contain another number of devices.
        """
        if partition.name in _NEED_POINTS:
            raise DataError(
                f"--partition {partition.name} cannot be combined with points that stay on disk: it needs the "
                "coordinates of all points. Use --partition blocks, column or iid"
            )
        if partition.name == "column":
            stored = _include_empty_devices(stored, n)
        if partition.name == "column" and stored.device != n:
            count = 0 if stored.device is None else stored.device
            raise DataError(
                f"the files name {count} devices; expected {n}. Use --devices {count}, or --partition blocks"
            )
        if partition.options.get("minimum") and stored.files[0].owned:
            raise DataError(
                "minimum cannot be combined with a column of devices in files that stay on disk: it would move points "
                "between these devices. Remove minimum"
            )
        return cls(stored, partition, n, dtype)

    @property
    def n(self) -> int:
        """Number of devices."""
        return self.clients + self.hub

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the features; None without names, and on other ranks than the first."""
        return self.stored.features

    @property
    def schema(self) -> Schema:
        """Columns of the files."""
        return self.stored.schema

    @property
    def m(self) -> int:
        """Number of points."""
        return sum(header.rows for header in self.stored.files)

    @property
    def d(self) -> int:
        """Number of features."""
        return self.stored.files[0].features

    def with_hub(self) -> Self:
        """Return a copy with one more device without points at the end: the server of a star."""
        return replace(self, hub=True)

    def place(self, topology: Any, names: tuple[str, ...] | None) -> Self:
        """Return a copy with the server of a star, if any.

        Raises
        ------
        TopologyError
            If a named node is without a file.
        """
        if topology.hub >= 0:
            return self.with_hub()
        if names and topology.names and topology.n > self.clients:
            raise TopologyError(
                f"the graph has {topology.n} nodes, but the files on disk name {self.clients} devices; expected equal "
                "numbers. Remove the nodes without points, or add a file without rows for each"
            )
        return self

    def to_mapping(self) -> dict[str, Any]:
        """Return a mapping for JSON from which `from_mapping` rebuilds the shards on another rank."""
        stored = self.stored
        labels = self.stored.labels
        owners = None if stored.owners is None else stored.owners.tolist()
        files = [header._replace(names=(), notes=()) for header in stored.files]
        return {"files": files, "labels": None if labels is None else labels.tolist(), "device": stored.device,
                "owners": owners, "partition": [self.partition.name, self.partition.options], "clients": self.clients,
                "dtype": self.dtype, "hub": self.hub}  # fmt: skip

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild shards from the mapping of `to_mapping`."""
        headers = [Header(*fields) for fields in mapping["files"]]
        files = tuple(
            header._replace(roles=header.roles and ColumnRoles(*header.roles), names=()) for header in headers
        )
        labels, owners = (
            None if mapping[name] is None else to_raw(mapping[name], name) for name in ("labels", "owners")
        )
        stored = FileIndex(files, labels, mapping["device"], owners)
        return cls(stored, Spec(*mapping["partition"]), mapping["clients"], mapping["dtype"], mapping["hub"])

    def describe(self, ranks: int, k: int, links: int) -> str:
        """Describe the memory that a rank needs at most, for devices with about equal numbers of points.

        Parameters
        ----------
        ranks, k : int
            Number of ranks and of clusters.
        links : int
            Number of directed edges of the graph.
        """
        point_size = np.dtype(self.dtype).itemsize
        float_size = np.dtype(float).itemsize
        rows = -(-self.m // ranks)
        devices = -(-self.n // ranks)
        points = rows * (self.d * point_size + _CLASS)
        processing = _PROGRAM
        if needs_complete_partition(self.partition):
            processing += float_size * (2 * self.m + rows)
        tables = (_TABLES * devices + 2 * self.n) * k * self.d * float_size
        graph = _ARRAYS * float_size * (links + self.n)
        giga = [part / 1e9 for part in (points + processing + tables + graph, points, processing, tables, graph)]
        return (
            f"{self.m:,} points stay on disk; each of {ranks} rank{'s' * (ranks != 1)} needs at most about "
            f"{giga[0]:.2f} GB: points {giga[1]:.2f}, work on them {giga[2]:.2f}, tables {giga[3]:.2f}, "
            f"graph {giga[4]:.2f}"
        )

    def part(self, first: int, last: int) -> Shards:
        """Read only the points of devices `first` to `last` - 1.

        Raises
        ------
        DataError
            If a file has changed, cannot be read, or contains an entry that is not a finite number; the message names
            file and row.
        """
        rows, offsets = self._find(first, min(last, self.clients))
        points = np.empty((int(offsets[-1]), self.d), self.dtype)
        known = self.stored.labels
        labels = None if known is None else np.empty(len(points), narrow(len(known)))
        for header, rows_in_file, place in self._pieces(rows):
            block = get_format(header).points(header, rows_in_file)
            if block.shape != points[place].shape:
                raise DataError(
                    f"{header.path} was changed during the run; expected {header.rows} rows and {header.features} "
                    "features as at the start. Start the run again"
                )
            points[place] = check_magnitude(
                cast_points(check_finite(block, header.path, rows_in_file), header.path, self.dtype, rows_in_file),
                header.path,
            )
            if labels is not None and known is not None:
                labels[place] = locate(read_labels(header, rows_in_file), known)
        order = rows.start if isinstance(rows, slice) else rows
        extra = np.full(max(last - self.clients, 0), offsets[-1])
        return Shards(points, np.concatenate((offsets, extra)), unweighted(len(points)), labels, order)

    def _find(self, first: int, last: int) -> tuple[Rows, NDArray[np.int64]]:
        """Find the rows of devices `first` to `last` - 1, sorted by device, and the offset of each device in them."""
        name = self.partition.name
        sizes = None
        if name == "column" and not self.stored.files[0].owned:
            sizes = np.array([header.rows for header in self.stored.files])
        elif name == "blocks":
            sizes = self.m // self.clients + (np.arange(self.clients) < self.m % self.clients)
        if sizes is not None and not needs_complete_partition(self.partition):
            bounds = offsets_of(sizes)[first : last + 1]
            return slice(int(bounds[0]), int(bounds[-1])), bounds - bounds[0]
        rows, owner = self._owned(first, last) if name == "column" and sizes is None else self._drawn(first, last)
        order, offsets = sort_by(owner - first, last - first)
        return rows[order], offsets

    def _owned(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the rows of devices `first` to `last` - 1 in the column of devices, ascending, and their devices."""
        base = 0
        kinds = self.stored.owners
        rows = [np.empty(0, np.int64)]
        owners = [np.empty(0, np.int64)]
        for header in self.stored.files:
            for raw in get_format(header).devices(header):
                owner = locate(raw, np.empty(0, np.int64) if kinds is None else kinds)
                local = np.flatnonzero((owner >= first) & (owner < last))
                rows.append(local + base)
                owners.append(owner[local])
                base += len(raw)
        return np.concatenate(rows), np.concatenate(owners)

    def _drawn(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the same by the partition function; every rank computes the complete partition."""
        files = self.stored.files
        labels = None
        if self.stored.labels is not None:
            labels = np.concatenate([
                locate(read_labels(header, slice(0, header.rows)), self.stored.labels) for header in files
            ])
        device = np.repeat(np.arange(len(files)), [header.rows for header in files])
        # The points are a stand-in of the right length: partitions that read coordinates are rejected in `deal`.
        table = Table(np.broadcast_to(0.0, (self.m, 1)), labels, None, device)
        owner = known(self.partition.name)[self.partition.name](table, self.clients, **self.partition.options)
        rows = np.flatnonzero((owner >= first) & (owner < last))
        return rows, owner[rows]

    def _pieces(self, rows: Rows) -> Iterator[tuple[Header, Rows, Rows]]:
        """Split rows into pieces of one file; yield header, rows in the file, and positions in the output."""
        base = 0
        order = np.empty(0, np.int64) if isinstance(rows, slice) else np.argsort(rows, kind="stable")
        for header in self.stored.files:
            ends = base, base + header.rows
            if isinstance(rows, slice):
                first, last = (min(max(end, rows.start), rows.stop) for end in ends)
            else:
                first, last = (int(end) for end in np.searchsorted(rows, ends, sorter=order))
            for block in blocks(last - first, header.features):
                if isinstance(rows, slice):
                    yield header, _shift(block, first - base), _shift(block, first - rows.start)
                else:
                    positions = order[_shift(block, first)]
                    yield header, rows[positions] - base, positions
            base += header.rows


def _include_empty_devices(stored: FileIndex, n: int) -> FileIndex:
    """Set the devices to 0 to n - 1 if those in the files are such numbers, the largest among them."""
    owners = stored.owners
    if owners is None or owners.dtype.kind != "i" or owners[0] < 0 or owners[-1] != n - 1:
        return stored
    return stored._replace(device=n, owners=np.arange(n))


def needs_complete_partition(partition: Spec) -> bool:
    """Return whether every rank must compute the complete partition to know the rows of its devices."""
    return partition.name not in ("blocks", "column") or bool(partition.options.get("minimum"))


def _shift(block: slice, by: int) -> slice:
    return slice(block.start + by, block.stop + by)
