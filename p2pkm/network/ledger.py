"""What was sent: logical messages and bytes, as 8 per value and as encoded; the same on every placement."""

import hashlib
from array import array
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.brief import short_repr
from p2pkm.core.messages import Delivery, DenseMessages, SparseMessages
from p2pkm.core.sorting import blocks, sum_by
from p2pkm.network.graph import LARGE

_PENDING = 64  # exchanges that wait to be added up, at most, those that are alike being one
_TOGETHER = 64  # numbers of a device that are added up at a time, about
_FEW = 8  # where fewer than one of so many send, only they are kept
_HEAD = Struct("<q4q4s")  # of an exchange that is kept: bytes of a row, lengths and types of its arrays
_Sent = tuple[Integers, int, Mask | Integers | None, Integers | None, Integers | None]  # of a record, from rows on
_Key = tuple[int | bytes | None, ...]
PART = 2**40 - 1  # of a fingerprint: a part that can be added up over ranks


class Traffic(NamedTuple):
    """What was sent: totals of every directed edge, and every table that was sent.

    Attributes
    ----------
    src, dst, messages, bytes, edge_rows : int64[e]
        Logical messages, bytes (8 per value) and rows sent over the edge from src to dst, lost ones included; above
        100,000 devices int32[e] where that holds all of them.
    stage, turn, sender, rows : int64[x] or None
        Rows of every table that a device sent, by stage and exchange (turn 0 is the opening); silent devices are left
        out. None above 100,000 devices.
    devices : int
        Number of devices, isolated ones and a hub included.
    wire_bytes : int64[e]
        Bytes of the messages as encoded on the wire; equal to `bytes` where no method or transform encodes them.
    age_mean, age_max : float64[e] or None
        How old what dst used of src was, in seconds; nan without any use. None where no clocks were kept for that.
    refused : int64[n] or None
        How often a table of each device was rejected by a receiver, see `p2pkm.channel.rejection`.
    """

    src: Integers
    dst: Integers
    messages: Integers
    bytes: Integers
    edge_rows: Integers
    stage: Integers | None
    turn: Integers | None
    sender: Integers | None
    rows: Integers | None
    devices: int
    wire_bytes: Integers
    age_mean: Floats | None = None
    age_max: Floats | None = None
    refused: Integers | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def rows_per_device(self) -> Integers:
        """Return how many rows each device sent and received, int64[n]."""
        sent, received = (sum_by(end, self.edge_rows, self.devices) for end in (self.src, self.dst))
        return (sent + received).astype(np.int64)


class ExchangeRecord(NamedTuple):
    """Who sent how many rows in one exchange.

    Attributes
    ----------
    stage, turn : int
        Stage, and number of the exchange in it; 0 is the opening.
    rows : int64[n] or int64[s]
        -1 = silent.
    row_bytes : int
        Counted bytes of a row.
    edges : bool[e] or int64[f] or None
        The own directed edges that it went over, None: all.
    who : int64[s] or None
        Positions of those that `rows` is about, None: all.
    wire : int64[n] or None
        Bytes of each table on the wire, None: `row_bytes` per row; int32[...] where it is kept.
    """

    stage: int
    turn: int
    rows: Integers
    row_bytes: int
    edges: Mask | Integers | None
    who: Integers | None = None
    wire: Integers | None = None

    @property
    def sent_rows(self) -> tuple[Integers, Integers]:
        """Return the positions of those who sent, and how many rows each of them sent."""
        if self.who is not None:
            return self.who, self.rows
        who = np.flatnonzero(self.rows >= 0)
        return who, self.rows[who]

    @property
    def lengths(self) -> Integers:
        """Return the bytes on the wire of each of these tables."""
        who, rows = self.sent_rows
        if self.wire is None:
            return rows * self.row_bytes
        return np.asarray(self.wire if self.who is not None else self.wire[who], np.int64)

    @property
    def digest(self) -> tuple[int, int]:
        """Return a fingerprint of who sent what over which edges."""
        over = b"" if self.edges is None else self.edges.dtype.str.encode() + np.ascontiguousarray(self.edges).tobytes()
        word = hashlib.sha256(np.concatenate((*self.sent_rows, self.lengths)).tobytes() + over).digest()
        return int.from_bytes(word[:8], "big") & PART, int.from_bytes(word[8:16], "big") & PART


@dataclass(slots=True)
class _Alike:
    """Exchanges that wait to be added up: the first of them, the number of their pattern, and how many they are."""

    first: ExchangeRecord
    number: int
    times: int = 0


class Ledger:
    """Count what devices send: one message per directed edge and exchange, rows x counted columns x 8 bytes.

    Beside these, the bytes of the message as encoded (`DenseMessages.wire`), which are the same where none are given.
    """

    def __init__(self, indptr: Integers) -> None:
        self._indptr, self._degrees = indptr, np.diff(indptr)
        self._senders = np.zeros((4, len(self._degrees)), np.int64)  # of each, over all of its edges, see `edges`
        # the same for what went over some edges only, once there are any; int32 while it holds `_most`, a bound
        self._edges: NDArray[np.integer[Any]] = np.zeros((4, 0), np.int32)
        self._most = 0
        self.refused = np.zeros(len(self._degrees), np.int64)  # tables of each device that their receivers refused
        self._many = len(self._degrees) > LARGE  # exchanges are then added up at once, and not kept
        self._waiting: dict[_Key, _Alike] = {}  # to be added up
        self._over: list[tuple[Integers, ...]] = []  # edges of sparse messages: place, rows, bytes, wire
        self._forget()

    def _forget(self) -> None:
        """Keep no exchange; those that are alike but for their place share what was sent."""
        self._said = array("B")  # number of the pattern, one exchange after the other; a byte while it holds all
        self._runs: list[tuple[int, int, int]] = []  # exchanges in following turns: place, stage, turn of the first
        self._next = -1, 0  # stage and turn that go on with the last run
        self._numbers: dict[bytes, int] = {}  # of the patterns, packed, in their order
        self._digests: list[tuple[int, int]] = []  # of the first patterns, each worked out once

    def count_dense(self, messages: DenseMessages, edges: Mask | None, stage: int, turn: int) -> None:
        """Write down one exchange over the own edges, bool[e], or all; it is added up on demand."""
        if messages.malformed is not None:
            self.refused += messages.malformed * _count_receivers(self._indptr, edges)
        row_bytes = 8 * (messages.values.shape[2] - messages.header)
        self._note((stage, turn), (messages.rows, row_bytes, edges, None, messages.wire))

    def count_sparse(self, sparse: SparseMessages, delivery: Delivery, at: tuple[int, int]) -> None:
        """Write down one exchange of sparse messages; delivery: which table goes over which own edge."""
        rows, row_bytes = delivery.tables.rows, 8 * (delivery.tables.values.shape[1] - sparse.header)
        volume = wire = rows * row_bytes
        if sparse.wire is not None:
            senders = np.searchsorted(self._indptr, delivery.edges, side="right") - 1
            wire = sparse.wire[np.searchsorted(sparse.who, senders)]
        self._over.append((delivery.edges, rows, volume, wire))
        if len(self._over) >= _PENDING or len(self._over) * len(self._degrees) > LARGE:
            self._add_up_sparse()
        self._note(at, (sparse.tables.rows, row_bytes, delivery.edges, sparse.who, sparse.wire))

    def _note(self, at: tuple[int, int], sent: _Sent) -> None:
        """Keep an exchange; it waits to be added up with those that are alike."""
        rows, row_bytes, edges, who, wire = sent
        if self._many:
            self._add_up(ExchangeRecord(*at, rows, row_bytes, edges, who, wire), 1)
            self._add_up_sparse()
            return
        key = (row_bytes, rows.tobytes(), edges if edges is None else edges.tobytes(),
               who if who is None else who.tobytes(), wire if wire is None else wire.tobytes())  # fmt: skip
        alike = self._waiting.get(key)
        if alike is None:
            alike = self._wait(key, ExchangeRecord(*at, rows, row_bytes, edges, who, wire))
        alike.times += 1
        self._keep(at, alike.number)

    def _wait(self, key: _Key, exchange: ExchangeRecord) -> _Alike:
        """Let an exchange that is like none before it wait, unless so many numbers wait already."""
        waiting = len(self._waiting) + 1
        if waiting > _PENDING or waiting * len(self._degrees) > LARGE:
            self._count()
        alike = self._waiting[key] = _Alike(exchange, self._number(exchange))
        return alike

    @property
    def exchanges(self) -> list[ExchangeRecord]:
        """Return all exchanges so far; none if the batch is large."""
        self._count()
        ends = [*(place for place, _, _ in self._runs[1:]), len(self._said)]
        patterns = [_unpack(packed)[2:] for packed in self._numbers]
        return [ExchangeRecord(stage, turn + at - first, *patterns[self._said[at]])
                for (first, stage, turn), end in zip(self._runs, ends, strict=False)  # no runs: one end
                for at in range(first, end)]  # fmt: skip

    @property
    def digests(self) -> list[tuple[int, int]]:
        """Return the fingerprint of each of the exchanges."""
        self._count()
        self._digests += [_unpack(packed).digest for packed in islice(self._numbers, len(self._digests), None)]
        return [self._digests[number] for number in self._said]

    @property
    def totals(self) -> tuple[int, int]:
        """Return messages and bytes that the batch has sent so far."""
        self._count()
        messages, _, volume, _ = self._senders @ self._degrees + self._edges.sum(axis=1, dtype=np.int64)
        return int(messages), int(volume)

    @property
    def wire_total(self) -> int:
        """Return the bytes on the wire that the batch has sent so far."""
        self._count()
        return int(self._senders[3] @ self._degrees + self._edges[3].sum(dtype=np.int64))

    @property
    def edges(self) -> NDArray[np.integer[Any]]:
        """Return messages, rows, bytes and bytes on the wire over each own directed edge, int32[e, 4] or int64[e, 4].

        What devices sent over all of their edges is counted by edges from then on, so that all stands once.
        """
        self._count()
        totals = self._over_some(int(self._senders.max(initial=0)))
        for some in blocks(len(self._degrees), _TOGETHER):
            edges = slice(self._indptr[some.start], self._indptr[some.stop])
            totals[:, edges] += self._senders[:, some].repeat(self._degrees[some], axis=1).astype(totals.dtype)
        self._senders[:] = 0
        return totals.T

    def volume(self, edges: Integers) -> Integers:
        """Return the bytes that went over each of these own directed edges so far, int64[e]."""
        self._count()
        sent = self._senders[2, np.searchsorted(self._indptr, edges, side="right") - 1]
        return sent + self._edges[2, edges] if self._edges.size else sent

    def restore(self, senders: Integers, edges: NDArray[np.integer[Any]], exchanges: list[ExchangeRecord]) -> None:
        """Take over what was counted before: the figures int64[n, 4] and int64[e, 4], and the exchanges."""
        self._senders, self._edges = senders.T.copy(), edges.T.copy()
        self._most = int(edges.max(initial=0))
        self._waiting, self._over = {}, []
        self._forget()
        for exchange in exchanges:
            self._keep((exchange.stage, exchange.turn), self._number(exchange))

    @property
    def counted(self) -> tuple[Integers, NDArray[np.integer[Any]]]:
        """Return the figures for messages over all edges of a device, int64[n, 4], and over some only, int[e, 4]."""
        self._count()
        return self._senders.T, self._edges.T

    def _count(self) -> None:
        """Add up the exchanges since the last time."""
        self._add_up_sparse()
        for alike in self._waiting.values():
            self._add_up(alike.first, alike.times)
        self._waiting.clear()

    def _add_up_sparse(self) -> None:
        """Add up the sparse messages since the last time."""
        if not self._over:
            return
        where, *more = (np.concatenate(part) for part in zip(*self._over, strict=True))
        most = sum(max(1, int(volume.max(initial=0)), int(wire.max(initial=0))) for *_, volume, wire in self._over)
        for total, each in zip(self._over_some(most), (np.ones_like(where), *more), strict=True):
            np.add.at(total, where, each.astype(total.dtype))
        self._over.clear()

    def _shorten(self, exchange: ExchangeRecord) -> ExchangeRecord:
        """Return an exchange in which few devices sent as one of these only."""
        sending, lengths = exchange.sent_rows[0], exchange.wire
        if exchange.who is not None or _FEW * len(sending) >= len(self._degrees):
            return exchange
        wire = None if lengths is None else lengths[sending]
        return exchange._replace(rows=exchange.rows[sending], who=sending, wire=wire)

    def _number(self, exchange: ExchangeRecord) -> int:
        """Return the number of a pattern."""
        return self._numbers.setdefault(_pack(self._shorten(exchange)), len(self._numbers))

    def _keep(self, at: tuple[int, int], number: int) -> None:
        """Keep an exchange, of which the pattern has this number."""
        if at != self._next:
            self._runs.append((len(self._said), *at))
        self._next = at[0], at[1] + 1
        if number > 255 and self._said.typecode == "B":
            self._said = array("i", self._said)
        self._said.append(number)

    def _add_up(self, exchange: ExchangeRecord, times: int) -> None:
        """Add up so many exchanges like this one."""
        if exchange.who is not None:
            return  # sparse messages are added up from what was delivered
        if exchange.edges is not None:
            self._count_some(exchange, np.asarray(exchange.edges), times)
            return
        sending, rows = exchange.sent_rows
        wire = None if exchange.wire is None else exchange.wire[sending]
        _add(self._senders, sending, (rows, exchange.row_bytes, wire), times)

    def _count_some(self, exchange: ExchangeRecord, edges: Mask, times: int) -> None:
        """Add up exchanges over some of the own edges."""
        where = np.flatnonzero(edges)
        senders = np.searchsorted(self._indptr, where, side="right") - 1
        sending = exchange.rows[senders] >= 0
        where, senders = where[sending], senders[sending]
        wire = None if exchange.wire is None else exchange.wire[senders]
        rows = exchange.rows[senders]
        most = max(1, int(rows.max(initial=0)) * exchange.row_bytes, 0 if wire is None else int(wire.max(initial=0)))
        _add(self._over_some(times * most), where, (rows, exchange.row_bytes, wire), times)

    def _over_some(self, more: int) -> NDArray[np.integer[Any]]:
        """Return the counts of what goes over some edges only, with room for so much more over each."""
        self._most += more
        kind = np.int32 if self._most <= np.iinfo(np.int32).max else np.int64
        if not self._edges.size:
            self._edges = np.zeros((4, int(self._indptr[-1])), kind)
        elif self._edges.dtype != kind:
            self._edges = self._edges.astype(kind)
        return self._edges


def _pack(exchange: ExchangeRecord) -> bytes:
    """Return who sent what, without when, as one object: under faults there are thousands of patterns."""
    wire = None if exchange.wire is None else exchange.wire.astype(np.int32)
    arrays = exchange.rows, exchange.edges, exchange.who, wire
    given = [one for one in arrays if one is not None]
    kinds = "".join("-" if one is None else one.dtype.char for one in arrays)
    lengths = (0 if one is None else len(one) for one in arrays)
    return _HEAD.pack(exchange.row_bytes, *lengths, kinds.encode()) + b"".join(one.tobytes() for one in given)


def _unpack(packed: bytes) -> ExchangeRecord:
    """Return what `_pack` was given, at stage and turn 0."""
    row_bytes, *lengths, kinds = _HEAD.unpack_from(packed)
    found, at = list[Any](), _HEAD.size
    for kind, length in zip(kinds.decode(), lengths, strict=True):
        found.append(None if kind == "-" else np.frombuffer(packed, kind, length, at))
        at += 0 if kind == "-" else found[-1].nbytes
    rows, edges, who, wire = found
    return ExchangeRecord(0, 0, rows, row_bytes, edges, who, wire)


def _count_receivers(indptr: Integers, edges: Mask | None) -> Integers:
    """Return over how many of its edges, bool[e] or all, each device sends, int64[n]."""
    return np.diff(indptr if edges is None else np.concatenate(([0], np.cumsum(edges)))[indptr])


def _add(
    sums: NDArray[np.integer[Any]], places: Integers, sent: tuple[Integers, int, Integers | None], times: int
) -> None:
    """Add so many messages of these rows, bytes of a row and bytes on the wire at each place."""
    rows, row_bytes, wire = sent
    everywhere, volume = len(places) == sums.shape[1], rows * row_bytes
    counted: tuple[Any, ...] = (1, rows, volume, volume if wire is None else wire)
    for total, more in zip(sums, counted, strict=True):
        if everywhere:
            total += times * more
        else:
            total[places] += times * more
