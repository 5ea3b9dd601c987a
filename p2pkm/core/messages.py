"""What passes between an algorithm and the network: what is sent, and what was received."""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.sorting import blocks
from p2pkm.core.states import register

_TOGETHER = 256  # numbers of a table, about, where they are copied some at a time


class DenseMessages(NamedTuple):
    """One table of rows per device, sent in one exchange.

    Attributes
    ----------
    values : float64[n, r, w]
        The tables; rows beyond ``rows[i]`` are ignored.
    rows : int64[n]
        -1: silent, what was received before stays valid and nothing is counted; 0: an empty table, which replaces what
        was received and counts as a message of 0 bytes; more: that many rows.
    edges : bool[e] or None
        The own directed edges over which the table goes, if they are in use; None: all that are. Only for stages whose
        receivers read nothing but `Inbox.fresh`, because a table that is sent to some replaces the table that others
        hold a slot of.
    header : int
        Leading columns that travel but are not counted (ids of origins).
    ragged : bool
        Whether r may differ from rank to rank; the network then agrees on the largest first.
    malformed : bool[n] or None
        Tables that travel and are counted, but that their receivers reject, see `p2pkm.channel.rejection`; None: none.
    wire : int64[n] or None
        Bytes of each table as it is encoded on the wire, see `p2pkm.core.wire_format`; of no meaning for devices that
        are silent. None: 8 for every counted value.
    standing : bool
        Whether the table of every silent device is the one that it sent last, and this array is written to only at
        devices that send it right after; a network may then read it in place of a copy. No transform acts on it.
    """

    values: Floats
    rows: Integers
    edges: Mask | None = None
    header: int = 0
    ragged: bool = False
    malformed: Mask | None = None
    wire: Integers | None = None
    is_stable: bool = False

    @property
    def accepted(self) -> Integers:
        """Return the rows of every table as its receivers take it, int64[n]: a rejected table counts as silence."""
        return self.rows if self.malformed is None else np.where(self.malformed, -1, self.rows)


class Inbox(NamedTuple):
    """What a batch of devices has received; valid until the next exchange, and never to be written to.

    Attributes
    ----------
    tables : float64[s, r, w]
        The last table sent by every own device, then by every neighbor on another rank; with delays, those sent before
        follow. What lies beyond a table's own rows and columns is left over from others and must not be read.
    rows : int64[s]
        Rows of each table, -1 where nothing was sent.
    slots : int64[e]
        Index of the table last received over each own edge, -1 = never since the edge came into use.
    senders : int64[e]
        Index of the last table sent by each own edge's neighbor.
    sent : bool[s] or None
        Who sent a table in this exchange; None: every device, or `open_edges` decides alone.
    over : bool[e] or None
        The own edges over which something could come in this exchange; None: all.
    """

    tables: Floats
    rows: Integers
    slots: Integers
    senders: Integers
    sent: Mask | None = None
    open_edges: Mask | None = None

    @property
    def fresh(self) -> Mask:
        """Return over which own edges a table came in this exchange, bool[e]; computed on demand."""
        came = np.ones(len(self.senders), np.bool_) if self.sent is None else self.sent[self.senders]
        return came if self.open_edges is None else came & self.open_edges

    @property
    def received(self) -> Mask:
        """Own edges over which a table was received since they came into use, bool[e]."""
        return self.slots >= 0

    def rows_of(self, edges: Any) -> Any:
        """Count the rows of the tables last received over own edges, int64[b]; -1: none was received.

        Parameters
        ----------
        edges : int, int64[b], bool[e] or slice
            Of one edge the result has no axis b.
        """
        slots = self.slots[edges]
        return np.where(slots < 0, -1, self.rows[slots])

    def tables_of(self, edges: Any, rows: int, width: int) -> Floats:
        """Read the tables last received over own edges, float64[b, rows, width].

        They are undefined beyond the rows of a table, see `rows_of`, and where none was received.

        Parameters
        ----------
        edges : int, int64[b], bool[e] or slice
            Of one edge the result is a view without axis b, never to be written to.
        rows, width : int
            At most as many as the largest table has.
        """
        return self.tables[self.slots[edges], :rows, :width]

    def with_tables(self, edges: Integers, tables: Floats, rows: Integers) -> "Inbox":
        """Replace everything received: table i, float64[t, r, w], came over edge i of `edges`, int64[b] with b <= t."""
        slots = np.full(len(self.slots), -1)
        slots[edges] = np.arange(len(edges))
        return self._replace(tables=tables, rows=rows, slots=slots)


class Tables(NamedTuple):
    """Tables of rows in one array, which several of them may share.

    Attributes
    ----------
    values : float64[m, w]
    starts, rows : int64[t]
        Table i is ``values[starts[i]:starts[i] + rows[i]]``.
    """

    values: Floats
    starts: Integers
    rows: Integers

    def take(self, which: Integers) -> "Tables":
        """Return some of the tables, int64[...]; the rows stay where they are."""
        return Tables(self.values, self.starts[which], self.rows[which])

    def flat(self) -> Floats:
        """Return the rows of all tables one after another, float64[rows.sum(), w]."""
        return self.values[expand_ranges(self.starts, self.rows)]

    def copy_to(self, values: Floats, starts: Integers) -> None:
        """Write the rows of every table into other values, from `starts`, int64[t], on; some tables at a time."""
        for some in blocks(len(self.rows), _TOGETHER):
            rows = self.rows[some]
            values[expand_ranges(starts[some], rows)] = self.values[expand_ranges(self.starts[some], rows)]


class SparseMessages(NamedTuple):
    """What few devices of a batch send in one exchange, all others being silent; the cost grows with what is sent.

    Unlike `DenseMessages` they are not remembered: they are received in their own exchange only, and the last
    `DenseMessages` stay valid.

    Attributes
    ----------
    who : int64[s]
        Positions of those who send, ascending.
    tables : Tables
        One for each of them.
    edges : int64[f]
        The own directed edges over which the tables go, ascending; each leads from one of `senders`.
    header : int
        As in `DenseMessages`.
    wire : int64[s] or None
        Bytes of each table on the wire, as in `DenseMessages`.
    """

    senders: Integers
    tables: Tables
    edges: Integers
    header: int = 0
    wire: Integers | None = None

    @classmethod
    def empty(cls) -> "SparseMessages":
        """Return messages of nobody."""
        nobody = np.zeros(0, np.int64)
        return cls(nobody, Tables(np.zeros((0, 1)), nobody, nobody), nobody)


class Delivery(NamedTuple):
    """What a batch of devices has received from `SparseMessages`; never to be written to.

    Attributes
    ----------
    edges : int64[f]
        Own edges over which something came, ascending: by device, and then by neighbor.
    tables : Tables
        What came over each of them. Its values begin with those that the batch itself sent, so that what points to
        rows among these points to the same rows here.
    """

    edges: Integers
    tables: Tables


@register("ragged-array")
class RaggedArray(NamedTuple):
    """Rows of which every device has some, one device after the other: values [counts.sum(), ...], counts int64[n]."""

    values: Any
    counts: Integers


@register("interned")
class InternedTables(NamedTuple):
    """Tables by origin, of which every device holds at most one of each origin; equal ones are stored once.

    Devices that received the same table of an origin have the same version of it, and devices that received different
    ones have different versions. Versions count from 1 in the order in which this batch met them, so their numbers mean
    nothing on another rank; `p2pkm.engine.state_tree` numbers them alike.

    Attributes
    ----------
    versions : uint8[n, N]
        Version of the table of each of the N origins that each device holds, 0: none; uint16 or uint32 where one byte
        is too small.
    store_firsts : int64[N + 1]
        Version v of origin j is table number ``store_firsts[j] + v - 1``; one after the last of j begins j + 1.
    store_starts, store_rows : int64[t]
        Where the rows of each table begin, and how many they are.
    store_values : float64[m, w]
        The rows of all tables; only ever added to.
    """

    versions: Any
    store_firsts: Integers
    store_starts: Integers
    store_rows: Integers
    store_values: Floats

    @property
    def store_origins(self) -> Integers:
        """Return the origin of each table, int64[t]."""
        return np.repeat(np.arange(len(self.store_firsts) - 1), np.diff(self.store_firsts))

    def find(self, device: int | np.integer[Any]) -> Integers:
        """Return the numbers of the tables that a device holds, by origin, int64[...]."""
        origins = np.flatnonzero(self.versions[device])
        return self.store_firsts[origins] + self.versions[device, origins] - 1


def expand_ranges(starts: Integers, lengths: Integers) -> Integers:
    """Return ``starts[i], ..., starts[i] + lengths[i] - 1`` for one i after another, int64[lengths.sum()]."""
    ends = lengths.cumsum()
    found: Integers = (starts - ends + lengths).repeat(lengths)
    found += np.arange(len(found))
    return found


def pack(centroids: Floats) -> tuple[Floats, Integers]:
    """Move the real rows of every device to the front, in their order.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Absent rows are +inf.

    Returns
    -------
    values : float64[n, k, d]
        The same array if no row is absent.
    rows : int64[n]
        Number of real rows.
    """
    if centroids[:, :, 0].max(initial=0.0) < np.inf:
        return centroids, np.full(len(centroids), centroids.shape[1])
    real = centroids[:, :, 0] < np.inf
    rows = real.sum(axis=1)
    order = np.argsort(~real, axis=1, kind="stable")
    return np.take_along_axis(centroids, order[:, :, None], axis=1), rows


def pack_some(centroids: Floats, who: Integers) -> tuple[Floats, Integers]:
    """Return the same where only the devices `senders` send: the tables of the others are of no meaning, their rows -1."""
    rows = np.full(len(centroids), -1)
    if centroids[who, :, 0].max(initial=0.0) < np.inf:
        rows[who] = centroids.shape[1]
        return centroids, rows
    values = centroids.copy()
    values[who], rows[who] = pack(centroids[who])
    return values, rows


def no_messages(n: int, rows: int, width: int) -> DenseMessages:
    """Return the messages of n devices that send nothing."""
    return DenseMessages(np.zeros((n, rows, width)), np.full(n, -1))
