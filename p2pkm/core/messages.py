"""Messages between an algorithm and the network: message tables that are sent, and those that were received."""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.sorting import blocks
from p2pkm.core.states import register

# Width given to `blocks` when tables are copied: about 16,000 tables at a time, so that temporary arrays stay small.
_BLOCK_WIDTH = 256
# Tables up to which slices take less time than the indices of their rows, as in most turns of a tree pass.
_FEW_TABLES = 4
# Devices per sender up to which checking all tables takes less time than selecting those of the senders.
_SCATTERED = 16


class DenseMessages(NamedTuple):
    """Message tables of all devices of a batch in one exchange: one table per device.

    Attributes
    ----------
    values : float64[n, r, w]
        Tables; rows beyond ``rows[i]`` are ignored.
    rows : int64[n]
        Number of rows. -1: the device sends no message; neighbors keep its last table, and nothing is counted. 0: an
        empty table, which replaces the last one and counts as a message of 0 bytes.
    edges : bool[e] or None
        Directed edges over which the table is sent, if they are active; None: all active edges. Only for stages whose
        receivers use the tables of `Inbox.fresh` alone: there is one slot per sender, so a table sent to some neighbors
        replaces the last table at all others, too.
    header : int
        Number of leading columns that are sent but not counted (ids of origins).
    ragged : bool
        Whether r may differ between ranks; the network then computes the largest r before the exchange.
    malformed : bool[n] or None
        Tables that are sent and counted, but rejected by their receivers, see `p2pkm.channel.rejection`; None: none.
    wire : int64[n] or None
        Encoded bytes of each table, see `p2pkm.core.wire_format`; undefined for devices that send no message. None:
        8 bytes for every counted value.
    is_stable : bool
        Whether `values` still holds the last sent table of every silent device, and is later written to only at devices
        that send their table in the same turn. A network may then read the array without a copy. Only without
        transforms.
    senders : int64[a] or None
        Positions of the devices with at least 0 rows, ascending, if they are known; None: found in `rows`. Turns of few
        devices then take time in proportion to these. Set to None where transforms act.
    """

    values: Floats
    rows: Integers
    edges: Mask | None = None
    header: int = 0
    ragged: bool = False
    malformed: Mask | None = None
    wire: Integers | None = None
    is_stable: bool = False
    senders: Integers | None = None

    @property
    def accepted(self) -> Integers:
        """Rows of every table as accepted by its receivers, int64[n]: -1 if rejected, as if it had not been sent."""
        return self.rows if self.malformed is None else np.where(self.malformed, -1, self.rows)


class Inbox(NamedTuple):
    """Tables that a batch of devices has received. Valid until the next exchange; read-only.

    Attributes
    ----------
    tables : float64[s, r, w]
        Last table of every device of the batch, then of every neighbor on another rank; with delays, older tables
        follow. Entries beyond the rows and columns of a table are leftovers of other tables; do not read them.
    rows : int64[s]
        Rows of each table, -1 before the first table.
    slots : int64[e]
        Slot of the last table received over each edge, -1: none since the edge became active.
    senders : int64[e]
        Slot of the last table sent by the neighbor at each edge.
    sent : bool[s] or None
        Slots whose devices sent a table in this exchange; None: all, or `open_edges` alone determines `fresh`.
    open_edges : bool[e] or None
        Edges over which a table could arrive in this exchange; None: all.
    """

    tables: Floats
    rows: Integers
    slots: Integers
    senders: Integers
    sent: Mask | None = None
    open_edges: Mask | None = None

    @property
    def fresh(self) -> Mask:
        """Edges over which a table arrived in this exchange, bool[e]; computed on demand."""
        is_sent = np.ones(len(self.senders), np.bool_) if self.sent is None else self.sent[self.senders]
        return is_sent if self.open_edges is None else is_sent & self.open_edges

    @property
    def received(self) -> Mask:
        """Edges over which a table was received since they became active, bool[e]."""
        return self.slots >= 0

    def rows_of(self, edges: Any) -> Any:
        """Return the number of rows of the last tables received over edges, int64[b]; -1: none was received.

        Parameters
        ----------
        edges : int, int64[b], bool[e] or slice
            For a single edge, axis b is dropped.
        """
        slots = self.slots[edges]
        return np.where(slots < 0, -1, self.rows[slots])

    def tables_of(self, edges: Any, rows: int, width: int) -> Floats:
        """Return the last tables received over edges, float64[b, rows, width].

        Undefined beyond the rows of a table, see `rows_of`, and at edges without a received table.

        Parameters
        ----------
        edges : int, int64[b], bool[e] or slice
            For a single edge, the result is a read-only view without axis b.
        rows, width : int
            At most those of the largest table.
        """
        return self.tables[self.slots[edges], :rows, :width]

    def with_tables(self, edges: Integers, tables: Floats, rows: Integers) -> "Inbox":
        """Replace all received tables: ``tables[i]``, float64[t, r, w], over ``edges[i]``, int64[b] with b <= t."""
        slots = np.full(len(self.slots), -1)
        slots[edges] = np.arange(len(edges))
        return self._replace(tables=tables, rows=rows, slots=slots)


class Tables(NamedTuple):
    """Message tables with different numbers of rows in one array; tables may share rows.

    Attributes
    ----------
    values : float64[m, w]
    starts, rows : int64[t]
        Table i is ``values[starts[i]:starts[i] + rows[i]]``.
    """

    values: Floats
    starts: Integers
    rows: Integers

    def take(self, indices: Integers | slice) -> "Tables":
        """Select tables, int64[...] or a range; the array of rows is shared."""
        return Tables(self.values, self.starts[indices], self.rows[indices])

    def flat(self) -> Floats:
        """Concatenate the rows of all tables, float64[rows.sum(), w]."""
        if 0 < len(self.rows) <= _FEW_TABLES:
            ranges = zip(self.starts.tolist(), self.rows.tolist(), strict=True)
            return np.concatenate([self.values[first : first + count] for first, count in ranges])
        return self.values[expand_ranges(self.starts, self.rows)]

    def compact(self) -> "Tables":
        """Copy the tables into an array of their own if most rows of the present one belong to other tables."""
        if 2 * self.rows.sum() > len(self.values):
            return self
        return Tables(self.flat(), np.cumsum(self.rows) - self.rows, self.rows)

    def copy_to(self, values: Floats, starts: Integers) -> None:
        """Copy the rows of table i to ``values[starts[i]:]``, for all tables, in blocks."""
        if len(self.rows) <= _FEW_TABLES:
            for target, first, count in zip(starts.tolist(), self.starts.tolist(), self.rows.tolist(), strict=True):
                values[target : target + count] = self.values[first : first + count]
            return
        for block in blocks(len(self.rows), _BLOCK_WIDTH):
            rows = self.rows[block]
            values[expand_ranges(starts[block], rows)] = self.values[expand_ranges(self.starts[block], rows)]


class SparseMessages(NamedTuple):
    """Messages of a few devices in one exchange; all other devices are silent. Cost is proportional to the messages.

    They are received in their exchange only, as a `Delivery`; the tables of the last `DenseMessages` stay valid.

    Attributes
    ----------
    senders : int64[s]
        Positions of the sending devices in the batch, ascending.
    tables : Tables
        Table of each sender.
    edges : int64[f]
        Directed edges over which the tables are sent, ascending; the source of each is in `senders`.
    header : int
        As in `DenseMessages`.
    wire : int64[s] or None
        Encoded bytes of each table, as in `DenseMessages`.
    """

    senders: Integers
    tables: Tables
    edges: Integers
    header: int = 0
    wire: Integers | None = None

    @classmethod
    def empty(cls) -> "SparseMessages":
        """Create an exchange without messages."""
        no_indices = np.zeros(0, np.int64)
        return cls(no_indices, Tables(np.zeros((0, 1)), no_indices, no_indices), no_indices)


class Delivery(NamedTuple):
    """Tables that a batch of devices has received from `SparseMessages`; read-only.

    Attributes
    ----------
    edges : int64[f]
        Edges over which a table arrived, ascending: by device, then by neighbor.
    tables : Tables
        Table of each edge. `values` begins with the rows that the batch itself sent, so that row numbers of the sent
        tables stay valid.
    """

    edges: Integers
    tables: Tables


@register("ragged-array")
class RaggedArray(NamedTuple):
    """Rows of all devices, concatenated: ``values[counts.sum(), ...]``, and the number of each device, int64[n]."""

    values: Any
    counts: Integers


@register("interned")
class InternedTables(NamedTuple):
    """Flooded tables by origin; every device holds at most one table of each origin, and equal tables are stored once.

    Devices that received equal tables of an origin hold the same version, others different versions. Versions are
    numbered from 1 in the order in which this batch received them, so they differ between ranks;
    `p2pkm.engine.state_tree` maps them to common numbers.

    Attributes
    ----------
    versions : uint8[n, N]
        Version that each device holds of the table of each of the N origins, 0: none; uint16 or uint32 if one byte is
        too small.
    store_firsts : int64[N + 1]
        Version v of origin j is table ``store_firsts[j] + v - 1``; the last entry is the number of tables.
    store_starts, store_rows : int64[t]
        First row and number of rows of each table.
    store_values : float64[m, w]
        Rows of all tables; append-only.
    """

    versions: Any
    store_firsts: Integers
    store_starts: Integers
    store_rows: Integers
    store_values: Floats

    @property
    def store_origins(self) -> Integers:
        """Origin of each table, int64[t]."""
        return np.repeat(np.arange(len(self.store_firsts) - 1), np.diff(self.store_firsts))

    def find(self, device: int | np.integer[Any]) -> Integers:
        """Return the numbers of the tables that a device holds, in ascending origin, int64[...]."""
        origins = np.flatnonzero(self.versions[device])
        return self.store_firsts[origins] + self.versions[device, origins] - 1


def expand_ranges(starts: Integers, lengths: Integers) -> Integers:
    """Concatenate the ranges ``starts[i], ..., starts[i] + lengths[i] - 1``, int64[lengths.sum()]."""
    ends = lengths.cumsum()
    indices: Integers = (starts - ends + lengths).repeat(lengths)
    indices += np.arange(len(indices))
    return indices


def pack(centroids: Floats) -> tuple[Floats, Integers]:
    """Move the present rows of every device to the front, in their order.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Absent rows are +inf.

    Returns
    -------
    values : float64[n, k, d]
        The same array if all rows are present.
    rows : int64[n]
        Number of present rows.
    """
    if centroids[:, :, 0].max(initial=0.0) < np.inf:
        return centroids, np.full(len(centroids), centroids.shape[1])
    is_present = centroids[:, :, 0] < np.inf
    rows = is_present.sum(axis=1)
    order = np.argsort(~is_present, axis=1, kind="stable")
    return np.take_along_axis(centroids, order[:, :, None], axis=1), rows


def pack_some(centroids: Floats, senders: Integers) -> tuple[Floats, Integers]:
    """Pack the tables of `senders`, int64[s], see `pack`; tables of other devices are undefined, their rows -1."""
    rows = np.full(len(centroids), -1)
    is_complete = len(senders) * _SCATTERED > len(centroids) and centroids[:, :, 0].max(initial=0.0) < np.inf
    if is_complete or centroids[senders, :, 0].max(initial=0.0) < np.inf:
        rows[senders] = centroids.shape[1]
        return centroids, rows
    values = centroids.copy()
    values[senders], rows[senders] = pack(centroids[senders])
    return values, rows


def no_messages(n: int, rows: int, width: int) -> DenseMessages:
    """Create messages of n devices that are all silent."""
    return DenseMessages(np.zeros((n, rows, width)), np.full(n, -1))
