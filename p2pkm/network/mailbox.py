"""What a rank has received: the last table of each sender, who sent in this exchange, and over which edges.

Where messages may be late by A tables of a sender, the last A + 1 of each are kept: behind the s tables that the
network moves lie A + 1 blocks of s, and number c of a slot is copied into block c modulo A + 1. What is read over an
edge is a place in there; the first s have no rows, so that no kernel takes them for received tables. Without delays
there are no such blocks, and nothing is copied.

Turns repeat: mostly the same devices send the same number of rows as in the last turn, or, of few colors, in one of the
last turns. Where there are few slots, heads are compared as bytes, and what follows from them is worked out once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.network.delay_model import DelayModel, SentTables
from p2pkm.network.halo import LocalSubgraph

_FEW, _PATTERNS = 1024, 16  # slots whose heads are compared as bytes; patterns of heads that are remembered, at most


class Mailbox:
    """The tables of own devices and ghosts; the same on every kind of network.

    Parameters
    ----------
    placement : LocalSubgraph
    spare : int
        Rows that every table has beyond the largest one sent, 0 or 1; where there is one, the table's head travels in
        its first number.
    delays : DelayModel, optional
        How late messages are; None: never.

    Attributes
    ----------
    tables : float64[s, r + spare, w]
        Grows to the largest table of the stage; where messages may be late, the tables that are kept follow.
    heads : int64[s]
        Rows sent in this exchange by every slot, -1 = silent.
    """

    def __init__(self, placement: LocalSubgraph, spare: int = 0, delays: DelayModel | None = None) -> None:
        self._senders, self._spare = placement.senders, spare
        self._n, slots = len(placement.ids), placement.slots
        self.heads = np.full(slots, -1)
        self._delays, self._blocks = delays, 1 if delays is None else delays.bound + 2
        self._count = np.zeros(slots, np.int64)  # tables that each has sent, where messages may be late
        # how many of them an own edge is not to receive any more, where messages may be late
        self._forgotten = np.zeros(0 if delays is None else len(self._senders), np.int64)
        self._rows = np.full(self._blocks * slots, -1)
        self._slots = np.broadcast_to(np.int64(-1), len(self._senders))  # until something comes one number for all
        self._over: Mask | None = None  # edges over which something could come in the last exchange
        self._complete = False  # whether something has come over every edge
        self._inbox: Inbox | None = None  # of the last exchange, if that of the next may be the same
        self._hold(np.zeros((self._blocks * slots, spare, 0)), borrowed=False)
        self._forget_heads()

    def _forget_heads(self) -> None:
        """Remember no pattern of heads."""
        self._own_heads: bytes | None  # heads of own devices and of ghosts, None where there are many
        self._ghost_heads: bytes | None
        self._own_heads = self._ghost_heads = None if len(self.heads) > _FEW else b""
        self._own_senders: Integers | None = None  # own devices that sent; None: all
        self._sending: dict[bytes, Mask | None] = {}  # slots that sent, None: all, by heads that `_rows` has already

    def write(self, messages: DenseMessages, r: int) -> None:
        """Write down what the own devices send, in tables of at least r rows."""
        self._row_bytes = 8 * (messages.values.shape[2] - messages.header)
        self._note_own_heads(messages.accepted)
        whole = self._own_senders is None
        steady = self._own.shape == messages.values.shape and r == messages.values.shape[1]
        if messages.is_stable and self._borrowed and self._stands(messages, r):
            self._hold(messages.values, borrowed=True)
            return
        if not (whole and steady and not self._borrowed):
            if self._borrow(messages, whole):
                return
            self._fit(messages, r)
        sending = self._own_senders
        if sending is None:
            own = self._own if steady else self._own[:, : messages.values.shape[1], : messages.values.shape[2]]
            own[...] = messages.values
        elif len(sending):
            if self._own.shape != messages.values.shape or not messages.values.size:
                self._own[sending, : messages.values.shape[1], : messages.values.shape[2]] = messages.values[sending]
            else:  # a table is one item: much faster than number by number
                own, values = (_as_items(tables) for tables in (self._own, messages.values))
                own[sending] = values[sending]

    def _note_own_heads(self, accepted: Integers) -> None:
        """Note the heads of the own devices, int64[n]."""
        own_heads = accepted.tobytes() if self._own_heads is not None else None
        if own_heads is None or own_heads != self._own_heads:
            self._own_heads, self._inbox = own_heads, None
            self.heads[: self._n] = accepted
            whole = self.heads[: self._n].min(initial=0) >= 0
            self._own_senders = None if whole else np.flatnonzero(accepted >= 0)
            self._show_heads()

    def _show_heads(self) -> None:
        """Let the heads of the own devices travel, in the spare row."""
        if self._spare:
            self._sent[:] = self.heads[: self._n, None]

    def receive(self) -> None:
        """Note the heads of the ghosts, which came in the spare row."""
        ghost_heads = self._came.tobytes() if self._ghost_heads is not None else None
        if ghost_heads is None or ghost_heads != self._ghost_heads:
            self._ghost_heads, self._inbox = ghost_heads, None
            self.heads[self._n :] = self._came[:, 0]

    def inbox(self, flags: Mask | None) -> Inbox:
        """Return what was received once all heads are known; flags: bool[e], edges over which something came."""
        if self._delays is not None:
            return self._late_inbox(self._delays, flags)
        if self._inbox is not None and flags is None:
            return self._inbox
        heads = None if self._own_heads is None or self._ghost_heads is None else self._own_heads + self._ghost_heads
        sending = self._note_rows() if heads is None else self._known_rows(heads)
        self._over = flags
        if not self._complete and sending is None and flags is None:
            self._complete, self._slots = True, self._senders
        elif not (self._complete or self._slots.flags.writeable):
            self._slots = self._slots.copy()
        inbox = Inbox(self._readable, self._rows, self._slots, self._senders, sending, flags)
        if not self._complete:
            np.copyto(self._slots, self._senders, where=inbox.fresh)
        self._inbox = inbox if self._complete and flags is None else None
        return inbox

    def _note_rows(self) -> Mask | None:
        """Note how many rows the tables that were sent have; return who sent, bool[s], None: all."""
        if self.heads.min(initial=0) >= 0:
            self._rows[:] = self.heads
            return None
        sending = self.heads >= 0
        np.copyto(self._rows, self.heads, where=sending)
        return sending

    def _known_rows(self, heads: bytes) -> Mask | None:
        """Do the same, at once if the rows are those of these heads already."""
        if heads not in self._sending:
            before, sending = self._rows.tobytes(), self._note_rows()
            if self._rows.tobytes() != before or len(self._sending) >= _PATTERNS:
                self._sending.clear()
            self._sending[heads] = sending
        return self._sending[heads]

    def _late_inbox(self, delays: DelayModel, flags: Mask | None) -> Inbox:
        """Keep what was sent, and return those of the tables kept that have come by now."""
        who = np.flatnonzero(self.heads >= 0)
        self._count[who] += 1
        places = self._place(self._count[who], who)
        self.tables[places], self._rows[places] = self.tables[who], self.heads[who]
        ages, fresh = delays.receive(SentTables(self.heads, self._row_bytes, flags))
        number = self._count[self._senders] - ages
        known = (ages >= 0) & (number > self._forgotten)
        self._slots = np.where(known, self._place(number, self._senders), -1)
        self._over = fresh & known
        return Inbox(self._readable, self._rows, self._slots, self._senders, None, self._over)

    def _place(self, number: Integers, slots: Integers) -> Integers:
        """Return where the tables of these slots with these numbers are kept."""
        kept: Integers = (1 + number % (self._blocks - 1)) * len(self.heads) + slots
        return kept

    def forget(self, edges: Mask) -> None:
        """Take what came over these own edges, bool[e], as never received."""
        self._inbox = None
        if self._complete and edges.any():
            self._complete, self._slots = False, self._slots.copy()
        if self._slots.flags.writeable and not self._complete:
            self._slots[edges] = -1
        if self._delays is not None:
            self._forgotten[edges] = self._count[self._senders[edges]]

    def snapshot(self) -> dict[str, Any]:
        """Return what was received by own devices and over own edges, as `p2pkm.engine.state_tree` takes it."""
        n, over, slots, (_, rows, width) = self._n, self._over, len(self.heads), self.tables.shape
        small = np.min_scalar_type(-self._blocks)
        tables = self.tables.reshape(self._blocks, slots, rows, width)[:, :n, : rows - self._spare]
        return {
            "tables": tables.swapaxes(0, 1), "rows": self._rows.reshape(self._blocks, slots)[:, :n].T,
            "heads": self.heads[:n], "count": self._count[:n],
            "edge_block": (self._slots // max(slots, 1)).astype(small),
            "edge_forgotten": None if self._delays is None else self._forgotten,
            "edge_over": np.ones(len(self._slots), np.bool_) if over is None else over,
        }  # fmt: skip

    def restore(self, kept: dict[str, Any], halo_exchange: Callable[[Floats], Floats]) -> Inbox:
        """Take over what was received, on any placement, and return the inbox of the last exchange.

        halo_exchange: returns the values of own devices and ghosts.
        """
        tables = np.concatenate(halo_exchange(kept["tables"]).swapaxes(0, 1))
        self._hold(np.pad(tables, ((0, 0), (0, self._spare), (0, 0))), borrowed=not self._spare)
        counts = np.column_stack((kept["rows"], kept["heads"], kept["count"]))
        counts = halo_exchange(counts.astype(np.float64)).astype(np.int64)
        *rows, self.heads, self._count = np.ascontiguousarray(counts.T)
        self._forget_heads()
        self._rows, block, late = np.concatenate(rows), kept["edge_block"].astype(np.int64), self._delays is not None
        self._forgotten = kept["edge_forgotten"] if late else self._forgotten
        self._complete = not late and bool((block >= 0).all())
        slots = np.where(block >= 0, block * len(self.heads) + self._senders, -1)
        self._slots = self._senders if self._complete else slots
        self._over = None if kept["edge_over"].all() else kept["edge_over"]
        sending = None if late or self.heads.min(initial=0) >= 0 else self.heads >= 0
        return Inbox(self._readable, self._rows, self._slots, self._senders, sending, self._over)

    def _borrow(self, messages: DenseMessages, whole: bool) -> bool:
        """Take what all devices send as the tables themselves, if possible: it is not written to from then on."""
        _, rows, width = messages.values.shape
        fits = rows >= self.tables.shape[1] and width >= self.tables.shape[2]
        if whole and fits and not self._spare and self._n == len(self.tables):
            self._hold(messages.values, borrowed=True)
            return True
        return False

    def _stands(self, messages: DenseMessages, r: int) -> bool:
        """Return whether tables in the place of the borrowed ones hold what every device sent last, in full."""
        return messages.values.shape == self.tables.shape and bool((self._rows == r).all())

    def _fit(self, messages: DenseMessages, r: int) -> None:
        """Make tables of one's own that are large enough."""
        slots, rows, columns = self.tables.shape
        height, width = max(r + self._spare, rows), max(messages.values.shape[2], columns)
        if self._borrowed or (height, width) != (rows, columns):
            tables = np.zeros((slots, height, width))
            tables[:, : rows - self._spare, :columns] = self.tables[:, : rows - self._spare]
            self._hold(tables, borrowed=False)
            self._show_heads()

    def _hold(self, tables: Floats, *, borrowed: bool) -> None:
        self.tables, self._borrowed = tables, borrowed
        self._inbox = None
        self._own = tables[: self._n, : tables.shape[1] - self._spare]
        if self._spare:  # the heads of own devices and of ghosts that travel
            self._sent, self._came = tables[: self._n, -1, :1], tables[self._n : len(self.heads), -1, :1]
        self._readable = tables.view()
        self._readable.flags.writeable = False


def _as_items(tables: Floats) -> Any:
    """Return tables as one item each, a view; they are copied faster so."""
    n, rows, width = tables.shape
    return tables.reshape(n, rows * width).view(np.dtype((np.void, 8 * rows * width)))[:, 0]


def restrict_edges(edges: Mask | None, active: Mask | None) -> Mask | None:
    """Return the own edges that a table goes over, bool[e], or None for all, given those in use."""
    if edges is None or active is None:
        return active if edges is None else edges
    return edges & active
