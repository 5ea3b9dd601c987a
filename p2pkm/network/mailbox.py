"""Mailbox: the latest table received from every sender, on one rank.

One array holds the tables of all slots: local devices first, then halo devices. An `Inbox` is a view of it and is valid
until the next exchange. In one process, the array can be the sender's own array, without a copy; see `write`.

With delays of up to A tables per sender, the array has A + 2 blocks of s slots: block 0 takes the tables of the current
exchange, blocks 1 to A + 1 form a ring buffer of the last A + 1 tables of each sender. Received tables are read from
the ring buffer only.

Most turns repeat the row counts of a recent turn. With few slots, row counts are therefore compared as bytes, and the
masks derived from them are cached.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.network.delay_model import DelayModel, SentTables
from p2pkm.network.halo import LocalSubgraph

# Number of slots up to which row counts are compared as bytes.
_MAX_COMPARED_SLOTS = 1024
# Largest number of cached patterns of row counts: turns repeat with the period of the schedule, at most a few colors.
_MAX_PATTERNS = 16


class Mailbox:
    """Tables of local devices and halo devices; the same on every kind of network.

    Parameters
    ----------
    subgraph : LocalSubgraph
    header_rows : int
        Additional rows of every table, 0 or 1. The first value of such a row carries the row count of the table to
        other ranks.
    delays : DelayModel, optional
        Delays of messages; None: no delays.

    Attributes
    ----------
    tables : float64[s, r + header_rows, w]
        Tables of all slots; grows to the largest table of the stage. With delays, the ring buffer follows.
    row_counts : int64[s]
        Rows sent by every slot in this exchange, -1: silent.
    """

    def __init__(self, subgraph: LocalSubgraph, header_rows: int = 0, delays: DelayModel | None = None) -> None:
        self._senders = subgraph.senders
        self._header_rows = header_rows
        self._n = len(subgraph.ids)
        slots = subgraph.slots
        self.row_counts = np.full(slots, -1)
        self._delays = delays
        self._blocks = 1 if delays is None else delays.bound + 2
        # With delays: number of tables that each slot has sent in this stage; without, a view of a single 0.
        self._sent_counts = np.broadcast_to(np.int64(0), slots) if delays is None else np.zeros(slots, np.int64)
        # With delays: sequence number of the last table that is discarded, at each edge.
        self._discarded = np.zeros(0 if delays is None else len(self._senders), np.int64)
        self._rows = np.full(self._blocks * slots, -1)
        # Number of rows if all entries of `_rows` are known to be equal, otherwise -1.
        self._common_rows = -1
        # A read-only view of -1 with stride 0: needs no memory until the first table arrives.
        self._slots = np.broadcast_to(np.int64(-1), len(self._senders))
        # Edges over which a table could arrive in the last exchange; None: all.
        self._open_edges: Mask | None = None
        # Whether every edge has delivered a table; then `_slots` is `_senders` itself.
        self._is_complete = False
        # Inbox of the last exchange, while that of the next one may be equal.
        self._inbox: Inbox | None = None
        self._set_tables(np.zeros((self._blocks * slots, header_rows, 0)), is_adopted=False)
        self._clear_patterns()

    def _clear_patterns(self) -> None:
        """Empty the caches of row-count patterns."""
        # Row counts of local and of halo devices as bytes; None: too many slots to compare.
        self._local_pattern: bytes | None
        self._halo_pattern: bytes | None
        self._local_pattern = self._halo_pattern = None if len(self.row_counts) > _MAX_COMPARED_SLOTS else b""
        # Local devices that sent in this exchange; None: all.
        self._local_senders: Integers | None = None
        # Slots that sent (None: all) by pattern; only patterns whose row counts are already in `_rows`.
        self._sent_slots: dict[bytes, Mask | None] = {}

    def write(self, messages: DenseMessages, r: int) -> None:
        """Store the tables of the local devices; r: least number of rows of a stored table.

        The array of `messages` itself is used, without a copy, in two cases. If all devices send and all slots are
        local, it is adopted until the next exchange (`_adopt`). If messages are marked `is_stable`, an adopted array
        may also be replaced by one that not all devices have sent in this exchange (`_is_current`).
        """
        self._row_bytes = 8 * (messages.values.shape[2] - messages.header)
        self._update_local_rows(messages)
        all_sent = self._local_senders is None
        has_same_shape = self._local.shape == messages.values.shape and r == messages.values.shape[1]
        # Reading a partly sent array in place is safe only if the array is stable, the last array was adopted, too, and
        # every slot holds a full table.
        if messages.is_stable and self._is_adopted and self._is_current(messages, r):
            self._set_tables(messages.values, is_adopted=True)
            return
        if not (all_sent and has_same_shape and not self._is_adopted):
            if self._adopt(messages, all_sent=all_sent):
                return
            self._ensure_capacity(messages, r)
        self._copy_tables(messages.values, has_same_shape=has_same_shape)

    def _copy_tables(self, values: Floats, *, has_same_shape: bool) -> None:
        """Copy the tables of the sending local devices."""
        sending = self._local_senders
        if sending is None:
            local = self._local if has_same_shape else self._local[:, : values.shape[1], : values.shape[2]]
            local[...] = values
        elif len(sending):
            if self._local.shape != values.shape or not values.size:
                self._local[sending, : values.shape[1], : values.shape[2]] = values[sending]
            else:
                # One item per table: fancy indexing by elements took 18 ms instead of 8 ms for 143,000 tables.
                _as_items(self._local)[sending] = _as_items(values)[sending]

    def _update_local_rows(self, messages: DenseMessages) -> None:
        """Set the row counts of the local devices."""
        accepted = messages.accepted
        pattern = accepted.tobytes() if self._local_pattern is not None else None
        if pattern is None or pattern != self._local_pattern:
            self._local_pattern = pattern
            self._inbox = None
            if self._header_rows:
                self.row_counts[: self._n] = accepted
            else:
                # Without halo devices nothing is written to the array, so it is not copied.
                self.row_counts = np.asarray(accepted, np.int64)
            senders = np.flatnonzero(accepted >= 0) if messages.senders is None else messages.senders
            self._local_senders = None if len(senders) == self._n else senders
            self._write_headers()

    def _write_headers(self) -> None:
        """Write the row counts of the local devices to the header rows."""
        if self._header_rows:
            self._local_headers[:] = self.row_counts[: self._n, None]

    def receive(self) -> None:
        """Read the row counts of the halo devices from the received header rows."""
        pattern = self._halo_headers.tobytes() if self._halo_pattern is not None else None
        if pattern is None or pattern != self._halo_pattern:
            self._halo_pattern = pattern
            self._inbox = None
            self.row_counts[self._n :] = self._halo_headers[:, 0]

    def inbox(self, open_edges: Mask | None) -> Inbox:
        """Return the received tables, once all row counts are known.

        Parameters
        ----------
        open_edges : bool[e] or None
            Edges over which a table could arrive in this exchange; None: all.
        """
        if self._delays is not None:
            return self._delayed_inbox(self._delays, open_edges)
        # `_inbox` is kept only while row counts are unchanged and every edge has delivered a table.
        if self._inbox is not None and open_edges is None:
            return self._inbox
        is_compared = self._local_pattern is not None and self._halo_pattern is not None
        sending = self._cached_row_counts() if is_compared else self._update_row_counts()
        self._open_edges = open_edges
        if not self._is_complete and sending is None and open_edges is None:
            self._is_complete = True
            self._slots = self._senders
        elif not (self._is_complete or self._slots.flags.writeable):
            self._slots = self._slots.copy()
        inbox = Inbox(self._readable, self._rows, self._slots, self._senders, sending, open_edges)
        if not self._is_complete:
            np.copyto(self._slots, self._senders, where=inbox.fresh)
        self._inbox = inbox if self._is_complete and open_edges is None else None
        return inbox

    def _update_row_counts(self) -> Mask | None:
        """Store the row counts of the tables that were sent; return the sending slots, bool[s], None: all."""
        halo = self.row_counts[self._n :]
        if self._local_senders is None and halo.min(initial=0) >= 0:
            self._rows[:] = self.row_counts
            self._common_rows = _find_common(self._rows)
            return None
        slots = np.arange(self._n) if self._local_senders is None else self._local_senders
        if len(halo):
            slots = np.concatenate((slots, self._n + np.flatnonzero(halo >= 0)))
        rows = self.row_counts[slots]
        if (rows != self._common_rows).any():
            self._rows[slots], self._common_rows = rows, -1
        sending = np.zeros(len(self.row_counts), np.bool_)
        sending[slots] = True
        return sending

    def _cached_row_counts(self) -> Mask | None:
        """Do the work of `_update_row_counts`, with a cache by pattern."""
        pattern = (self._local_pattern or b"") + (self._halo_pattern or b"")
        if pattern not in self._sent_slots:
            rows_before = self._rows.tobytes()
            sending = self._update_row_counts()
            # A cached pattern implies that its row counts are in `_rows`, so any change of `_rows` empties the cache.
            if self._rows.tobytes() != rows_before or len(self._sent_slots) >= _MAX_PATTERNS:
                self._sent_slots.clear()
            self._sent_slots[pattern] = sending
        return self._sent_slots[pattern]

    def _delayed_inbox(self, delays: DelayModel, open_edges: Mask | None) -> Inbox:
        """Store the sent tables in the ring buffer, and return the stored tables that have arrived by now."""
        sending = np.flatnonzero(self.row_counts >= 0)
        self._sent_counts[sending] += 1
        stored = self._ring_index(self._sent_counts[sending], sending)
        self.tables[stored] = self.tables[sending]
        self._rows[stored] = self.row_counts[sending]
        ages, fresh = delays.receive(SentTables(self.row_counts, self._row_bytes, open_edges))
        # The age counts tables of the sender, so the sequence number selects the block of the ring buffer. Tables up to
        # the last call of `discard` count as never received.
        sequence_numbers = self._sent_counts[self._senders] - ages
        has_arrived = (ages >= 0) & (sequence_numbers > self._discarded)
        self._slots = np.where(has_arrived, self._ring_index(sequence_numbers, self._senders), -1)
        self._open_edges = fresh & has_arrived
        return Inbox(self._readable, self._rows, self._slots, self._senders, None, self._open_edges)

    def _ring_index(self, sequence_numbers: Integers, slots: Integers) -> Integers:
        """Return the positions in `tables` of the tables of these slots with these sequence numbers."""
        # Block 0 holds the current exchange, so a ring of `_blocks` - 1 blocks starts at block 1.
        index: Integers = (1 + sequence_numbers % (self._blocks - 1)) * len(self.row_counts) + slots
        return index

    def discard(self, edges: Mask) -> None:
        """Treat all tables received over these edges, bool[e], as never received."""
        self._inbox = None
        # Copy on write: while complete, `_slots` is `_senders` of the subgraph.
        if self._is_complete and edges.any():
            self._is_complete = False
            self._slots = self._slots.copy()
        if self._slots.flags.writeable and not self._is_complete:
            self._slots[edges] = -1
        if self._delays is not None:
            self._discarded[edges] = self._sent_counts[self._senders[edges]]

    def snapshot(self) -> dict[str, Any]:
        """Return the received tables by local device and edge, for `p2pkm.engine.state_tree`."""
        # Only tables of local devices are stored; `restore` fetches halo tables, so a checkpoint fits any rank count.
        n = self._n
        open_edges = self._open_edges
        slots = len(self.row_counts)
        _, rows, width = self.tables.shape
        block_type = np.min_scalar_type(-self._blocks)
        tables = self.tables.reshape(self._blocks, slots, rows, width)[:, :n, : rows - self._header_rows]
        return {
            "tables": tables.swapaxes(0, 1),
            "rows": self._rows.reshape(self._blocks, slots)[:, :n].T,
            "heads": self.row_counts[:n],
            "count": self._sent_counts[:n],
            "edge_block": (self._slots // max(slots, 1)).astype(block_type),
            "edge_forgotten": None if self._delays is None else self._discarded,
            "edge_over": np.ones(len(self._slots), np.bool_) if open_edges is None else open_edges,
        }

    def restore(self, state: dict[str, Any], halo_exchange: Callable[[Floats], Floats]) -> Inbox:
        """Restore a snapshot on any rank partition; return the inbox of the last exchange.

        Parameters
        ----------
        state : dict
            Result of `snapshot`.
        halo_exchange : callable
            Returns the values of local and halo devices, given those of local devices.
        """
        tables = np.concatenate(halo_exchange(state["tables"]).swapaxes(0, 1))
        tables = np.pad(tables, ((0, 0), (0, self._header_rows), (0, 0)))
        # Without header rows the next exchange may adopt an array again, as before the checkpoint.
        self._set_tables(tables, is_adopted=not self._header_rows)
        counts = np.column_stack((state["rows"], state["heads"], state["count"]))
        counts = halo_exchange(counts.astype(np.float64)).astype(np.int64)
        *rows, self.row_counts, self._sent_counts = np.ascontiguousarray(counts.T)
        self._clear_patterns()
        self._rows = np.concatenate(rows)
        self._common_rows = _find_common(self._rows)
        block = state["edge_block"].astype(np.int64)
        has_delays = self._delays is not None
        self._discarded = state["edge_forgotten"] if has_delays else self._discarded
        self._is_complete = not has_delays and bool((block >= 0).all())
        slots = np.where(block >= 0, block * len(self.row_counts) + self._senders, -1)
        self._slots = self._senders if self._is_complete else slots
        self._open_edges = None if state["edge_over"].all() else state["edge_over"]
        all_sent = self.row_counts.min(initial=0) >= 0
        sending = None if has_delays or all_sent else self.row_counts >= 0
        return Inbox(self._readable, self._rows, self._slots, self._senders, sending, self._open_edges)

    def _adopt(self, messages: DenseMessages, *, all_sent: bool) -> bool:
        """Use the sender's array as the tables, if possible; it is then not written to.

        All devices must send, all slots must be local and without header rows (single process), and the array must be
        at least as large as the present one.
        """
        _, rows, width = messages.values.shape
        is_large_enough = rows >= self.tables.shape[1] and width >= self.tables.shape[2]
        if all_sent and is_large_enough and not self._header_rows and self._n == len(self.tables):
            self._set_tables(messages.values, is_adopted=True)
            return True
        return False

    def _is_current(self, messages: DenseMessages, r: int) -> bool:
        """Return whether an array of this shape holds the full last table of every slot."""
        return messages.values.shape == self.tables.shape and self._common_rows == r

    def _ensure_capacity(self, messages: DenseMessages, r: int) -> None:
        """Allocate an array that is not shared with the sender and is large enough."""
        slots, rows, columns = self.tables.shape
        height = max(r + self._header_rows, rows)
        width = max(messages.values.shape[2], columns)
        if self._is_adopted or (height, width) != (rows, columns):
            tables = np.zeros((slots, height, width))
            tables[:, : rows - self._header_rows, :columns] = self.tables[:, : rows - self._header_rows]
            self._set_tables(tables, is_adopted=False)
            self._write_headers()

    def _set_tables(self, tables: Floats, *, is_adopted: bool) -> None:
        """Replace the array of tables and its views."""
        self.tables = tables
        self._is_adopted = is_adopted
        self._inbox = None
        self._local = tables[: self._n, : tables.shape[1] - self._header_rows]
        if self._header_rows:
            self._local_headers = tables[: self._n, -1, :1]
            self._halo_headers = tables[self._n : len(self.row_counts), -1, :1]
        self._readable = tables.view()
        self._readable.flags.writeable = False


def _find_common(numbers: Integers) -> int:
    """Return the number to which all entries are equal, at least 0; otherwise -1."""
    least = int(numbers.min(initial=np.iinfo(np.int64).max))
    return least if least == numbers.max(initial=-1) else -1


def _as_items(tables: Floats) -> Any:
    """View each table as a single item, which is copied faster than its elements."""
    n, rows, width = tables.shape
    return tables.reshape(n, rows * width).view(np.dtype((np.void, 8 * rows * width)))[:, 0]


def restrict_edges(edges: Mask | None, active: Mask | None) -> Mask | None:
    """Intersect the edges of a message with the active edges, bool[e] each; None: all."""
    if edges is None or active is None:
        return active if edges is None else edges
    return edges & active
