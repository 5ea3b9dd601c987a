"""Ledger: messages and bytes over every edge, at 8 bytes per value and as encoded.

The result does not depend on the rank partition. Exchanges repeat, so each distinct exchange (pattern) is stored once,
and repetitions are counted; above `LARGE` devices only totals are stored.
"""

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
from p2pkm.core.sorting import blocks, narrow, sum_by
from p2pkm.network.graph import LARGE

# Largest number of distinct exchanges that wait to be added up; with `LARGE`, a bound on the memory of their arrays.
_MAX_PENDING = 64
# Width given to `blocks` when totals of devices are added to edges.
_BLOCK_WIDTH = 64
# If fewer than one in this many devices sends, only the senders are stored.
_SPARSE_RATIO = 8
# Header of a packed exchange: bytes of a row, lengths and types of the arrays.
_HEADER = Struct("<q4q4s")
# Largest signed integer by the number of its bytes.
_LARGEST = {size: 2 ** (8 * size - 1) - 1 for size in (2, 4, 8)}
# Rows, bytes of a row, edges and encoded bytes of a dense exchange, as in `ExchangeRecord`.
_Sent = tuple[Integers, int, Mask | None, Integers | None]
_Key = tuple[int | bytes | None, ...]
# Mask of a part of a fingerprint: 40 bits, so that sums over ranks do not overflow int64.
PART = 2**40 - 1


class Traffic(NamedTuple):
    """Message traffic of a run: totals of every directed edge, and every table that was sent.

    Attributes
    ----------
    src, dst, messages, bytes, edge_rows : int64[e]
        Messages, bytes (8 per value) and rows sent over the edge from src to dst, lost ones included. Above 100,000
        devices: int32[e], if the numbers fit.
    stage, turn, sender, rows : int64[x] or None
        Rows of every table that a device sent, by stage and exchange (turn 0: initial exchange), without silent
        devices. None above 100,000 devices.
    devices : int
        Number of devices, isolated devices and server included.
    wire_bytes : int64[e]
        Encoded bytes of the messages; equal to `bytes` if neither method nor transform encodes them.
    age_mean, age_max : float64[e] or None
        Age of the tables of src when dst used them, in seconds of simulated time; NaN if never used. None without
        ages.
    refused : int64[n] or None
        Number of times that a table of each device was rejected by a receiver, see `p2pkm.channel.rejection`.
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
        """Number of rows that each device sent and received, int64[n]."""
        sent, received = (sum_by(end, self.edge_rows, self.devices) for end in (self.src, self.dst))
        return (sent + received).astype(np.int64)


class ExchangeRecord(NamedTuple):
    """Senders and rows of one exchange.

    Attributes
    ----------
    stage, turn : int
        Stage, and number of the exchange in the stage; 0: initial exchange.
    rows : int64[n] or int64[s]
        Rows of the devices or, with `senders`, of these; -1: silent.
    row_bytes : int
        Counted bytes of a row.
    edges : bool[e] or int64[f] or None
        Edges of the exchange; None: all.
    senders : int64[s] or None
        Positions of the devices of `rows`; None: all devices.
    wire : int64[n] or int64[s] or None
        Encoded bytes of each table, None: `row_bytes` per row; int32 in stored exchanges.
    """

    stage: int
    turn: int
    rows: Integers
    row_bytes: int
    edges: Mask | Integers | None
    senders: Integers | None = None
    wire: Integers | None = None

    @property
    def sent_rows(self) -> tuple[Integers, Integers]:
        """Positions of the sending devices, and the number of rows of each."""
        if self.senders is not None:
            return self.senders, self.rows
        senders = np.flatnonzero(self.rows >= 0)
        return senders, self.rows[senders]

    @property
    def lengths(self) -> Integers:
        """Encoded bytes of each of these tables."""
        senders, rows = self.sent_rows
        if self.wire is None:
            return rows * self.row_bytes
        return np.asarray(self.wire if self.senders is not None else self.wire[senders], np.int64)

    @property
    def digest(self) -> tuple[int, int]:
        """Fingerprint of senders, rows, lengths and edges, in two parts that can be summed over ranks."""
        edges = self.edges
        edge_bytes = b"" if edges is None else edges.dtype.str.encode() + np.ascontiguousarray(edges).tobytes()
        sha256 = hashlib.sha256(np.concatenate((*self.sent_rows, self.lengths)).tobytes() + edge_bytes).digest()
        return int.from_bytes(sha256[:8], "big") & PART, int.from_bytes(sha256[8:16], "big") & PART


@dataclass(slots=True)
class _PendingExchange:
    """Repeated exchange that is not added up yet: its first record, the number of its pattern, and the repetitions."""

    first: ExchangeRecord
    pattern: int
    times: int = 0


class _Totals:
    """Messages, rows, bytes and encoded bytes of devices or edges, in the smallest type of integers that holds them.

    Parameters
    ----------
    size : int
        Number of devices or edges. No memory is needed until the first count.
    counts : int[4, size] or int[4, 0], optional
        Totals at the start, which are copied.

    Attributes
    ----------
    counts : int16[4, size], int32[4, size] or int64[4, size]
        int16[4, 0] before the first count.
    """

    def __init__(self, size: int, counts: NDArray[np.integer[Any]] | None = None) -> None:
        self._size = size
        self.counts: NDArray[np.integer[Any]] = np.zeros((4, 0), np.int16) if counts is None else counts.copy()
        # Upper bound of all entries.
        self._bound = int(self.counts.max(initial=0))

    def reserve(self, increase: int, least: type[np.signedinteger[Any]] = np.int16) -> NDArray[np.integer[Any]]:
        """Return the totals, to be counted in place, in a type in which every entry can increase by `increase`."""
        self._bound += increase
        if self._bound > _LARGEST[self.counts.dtype.itemsize]:
            # The bound adds up exchanges over different edges, so first compute the largest entry. Larger types are
            # chosen from half of the limit on, as otherwise every exchange near the limit would compute it.
            largest = int(self.counts.max(initial=0)) + increase
            self._bound = largest if 2 * largest <= _LARGEST[self.counts.dtype.itemsize] else self._bound
        held = self.counts.dtype
        # In most exchanges the type stays.
        if self.counts.size and held.itemsize >= np.dtype(least).itemsize and self._bound <= _LARGEST[held.itemsize]:
            return self.counts
        kind = np.promote_types(np.promote_types(narrow(self._bound + 1), held), least)
        if not self.counts.size:
            self.counts = np.zeros((4, self._size), kind)
        elif self.counts.dtype != kind:
            self.counts = self.counts.astype(kind)
        return self.counts


class Ledger:
    """Counter of messages: one per directed edge and exchange, with rows x counted columns x 8 bytes.

    In addition, encoded bytes are counted (`DenseMessages.wire`); without an encoding they are equal.

    Attributes
    ----------
    last : ExchangeRecord
        The last dense exchange, once there is one; not kept with many devices.
    """

    last: ExchangeRecord

    def __init__(self, indptr: Integers) -> None:
        self._indptr = indptr
        self._n = len(indptr) - 1
        # Counts of each device over each of its edges, and of messages over some edges only, by edge.
        self._senders, self._edges = _Totals(self._n), _Totals(int(indptr[-1]))
        # Number of tables of each device that receivers rejected; at first a view of a single 0, without memory.
        self.refused: Integers = np.broadcast_to(np.int64(0), self._n)
        # Above `LARGE` devices, exchanges are added up at once and not stored.
        self._is_large = self._n > LARGE
        self._pending: dict[_Key, _PendingExchange] = {}
        # Sparse messages that are not added up yet: edges, rows, bytes, encoded bytes.
        self._pending_sparse: list[tuple[Integers, ...]] = []
        self._clear_exchanges()

    def _clear_exchanges(self) -> None:
        """Remove all stored exchanges."""
        # Pattern of every exchange; bytes as long as there are at most 256 patterns.
        self._sequence = array("B")
        # Runs of exchanges in consecutive turns of a stage: position in `_sequence`, stage and turn of the first one.
        self._runs: list[tuple[int, int, int]] = []
        # Stage and turn that would continue the last run.
        self._next = -1, 0
        # Numbers of the packed patterns, in their order of appearance.
        self._patterns: dict[bytes, int] = {}
        # Fingerprints of the first patterns, computed on demand.
        self._digests: list[tuple[int, int]] = []

    def count_dense(self, messages: DenseMessages, edges: Mask | None, stage: int, turn: int) -> None:
        """Record an exchange of dense messages over edges, bool[e], None: all; it is added up on demand."""
        if messages.malformed is not None:
            self.refused = self.refused + messages.malformed * _count_receivers(self._indptr, edges)
        row_bytes = 8 * (messages.values.shape[2] - messages.header)
        self._note((stage, turn), (messages.rows, row_bytes, edges, messages.wire), messages.senders)

    def count_sparse(self, sparse: SparseMessages, delivery: Delivery, at: tuple[int, int]) -> None:
        """Record an exchange of sparse messages; delivery: table of each edge of the senders."""
        rows, row_bytes = delivery.tables.rows, 8 * (delivery.tables.values.shape[1] - sparse.header)
        volume = wire = rows * row_bytes
        if sparse.wire is not None:
            senders = np.searchsorted(self._indptr, delivery.edges, side="right") - 1
            wire = sparse.wire[np.searchsorted(sparse.senders, senders)]
        self._pending_sparse.append((delivery.edges, rows, volume, wire))
        pending = len(self._pending_sparse)
        if self._is_large or pending >= _MAX_PENDING or pending * self._n > LARGE:
            self._add_up_sparse()
        if not self._is_large:
            rows, senders = sparse.tables.rows, sparse.senders
            exchange = ExchangeRecord(*at, rows, row_bytes, delivery.edges, senders, sparse.wire)
            self._append(at, self._pattern_number(exchange))

    def _note(self, at: tuple[int, int], sent: _Sent, known: Integers | None) -> None:
        """Store a dense exchange; repetitions of a pending one only increase its count; known: see `_add_up`."""
        rows, row_bytes, edges, wire = sent
        exchange = ExchangeRecord(*at, rows, row_bytes, edges, wire=wire)
        if self._is_large:
            self._add_up(exchange, 1, known)
            return
        self.last = exchange
        # Equal keys mean equal exchanges: all arrays of one field have the same type, so equal bytes are equal arrays.
        key = (
            row_bytes,
            rows.tobytes(),
            None if edges is None else edges.tobytes(),
            None if wire is None else wire.tobytes(),
        )
        pending = self._pending.get(key)
        if pending is None:
            pending = self._enqueue(key, exchange)
        pending.times += 1
        self._append(at, pending.pattern)

    def _enqueue(self, key: _Key, exchange: ExchangeRecord) -> _PendingExchange:
        """Add a new pending exchange; add up the others first if there are too many."""
        # Pending arrays are bounded by 64 exchanges and by about `LARGE` numbers in total.
        count = len(self._pending) + 1
        if count > _MAX_PENDING or count * self._n > LARGE:
            self._count()
        pending = self._pending[key] = _PendingExchange(exchange, self._pattern_number(exchange))
        return pending

    @property
    def exchanges(self) -> list[ExchangeRecord]:
        """All exchanges so far; empty above `LARGE` devices."""
        self._count()
        ends = [*(first for first, _, _ in self._runs[1:]), len(self._sequence)]
        patterns = [_unpack(packed)[2:] for packed in self._patterns]
        # Not strict: without runs there is nevertheless one end.
        return [
            ExchangeRecord(stage, turn + at - first, *patterns[self._sequence[at]])
            for (first, stage, turn), end in zip(self._runs, ends, strict=False)
            for at in range(first, end)
        ]

    @property
    def digests(self) -> list[tuple[int, int]]:
        """Fingerprint of every exchange."""
        self._count()
        self._digests += [_unpack(packed).digest for packed in islice(self._patterns, len(self._digests), None)]
        return [self._digests[pattern] for pattern in self._sequence]

    @property
    def totals(self) -> tuple[int, int]:
        """Messages and bytes that the batch has sent so far."""
        return self.sums[:2]

    @property
    def wire_total(self) -> int:
        """Encoded bytes that the batch has sent so far."""
        return self.sums[2]

    @property
    def sums(self) -> tuple[int, int, int]:
        """Messages, bytes and encoded bytes that the batch has sent so far."""
        self._count()
        totals = self._edges.counts.sum(axis=1, dtype=np.int64)
        if self._senders.counts.size:
            # Unlike a matrix product, it does not convert the counts of all devices at once.
            totals += np.einsum("ij,j->i", self._senders.counts, np.diff(self._indptr), dtype=np.int64)
        messages, _, volume, wire = totals.tolist()
        return messages, volume, wire

    @property
    def edges(self) -> NDArray[np.integer[Any]]:
        """Messages, rows, bytes and encoded bytes over each directed edge, int32[e, 4] or int64[e, 4].

        Moves the totals of devices to their edges, so that there is only one array.
        """
        self._count()
        sent = self._senders.counts
        totals = self._edges.reserve(int(sent.max(initial=0)), np.int32)
        for block in blocks(sent.shape[1], _BLOCK_WIDTH):
            edges = slice(self._indptr[block.start], self._indptr[block.stop])
            degrees = np.diff(self._indptr[block.start : block.stop + 1])
            totals[:, edges] += sent[:, block].repeat(degrees, axis=1).astype(totals.dtype)
        self._senders = _Totals(self._n)
        return totals.T

    def clear(self) -> None:
        """Remove all counts and exchanges, at the end of a run."""
        self.restore(np.zeros((0, 4), np.int64), np.zeros((0, 4), np.int64), [])

    def volume(self, edges: Integers) -> Integers:
        """Return the bytes sent over each of these edges so far, int64[e]."""
        self._count()
        volume = np.zeros(len(edges), np.int64)
        if self._senders.counts.size:
            volume += self._senders.counts[2, np.searchsorted(self._indptr, edges, side="right") - 1]
        if self._edges.counts.size:
            volume += self._edges.counts[2, edges]
        return volume

    def restore(self, senders: Integers, edges: NDArray[np.integer[Any]], exchanges: list[ExchangeRecord]) -> None:
        """Restore the totals by device, int64[n, 4], and by edge, int64[e, 4], and the exchanges."""
        self._senders, self._edges = _Totals(self._n, senders.T), _Totals(int(self._indptr[-1]), edges.T)
        self._pending = {}
        self._pending_sparse = []
        self._clear_exchanges()
        for exchange in exchanges:
            self._append((exchange.stage, exchange.turn), self._pattern_number(exchange))

    @property
    def counted(self) -> tuple[Integers, NDArray[np.integer[Any]]]:
        """Totals of messages over all edges of a device, int64[n, 4], and of others by edge, int[e, 4]; see `edges`."""
        self._count()
        return self._senders.reserve(0).T.astype(np.int64), self._edges.counts.T

    def _count(self) -> None:
        """Add up all pending exchanges."""
        self._add_up_sparse()
        for pending in self._pending.values():
            self._add_up(pending.first, pending.times)
        self._pending.clear()

    def _add_up_sparse(self) -> None:
        """Add up all pending sparse messages."""
        if not self._pending_sparse:
            return
        # With millions of devices, each array is large, and a single exchange is pending: it is not copied.
        parts = zip(*self._pending_sparse, strict=True)
        edges, *counts = (part[0] if len(part) == 1 else np.concatenate(part) for part in parts)
        # Sum of the largest number of each exchange, which is at least 1.
        ends = np.array([len(part) for part, *_ in self._pending_sparse]).cumsum()
        starts = np.concatenate(([0], ends[:-1]))[np.diff(ends, prepend=0) > 0]
        largest = np.maximum.reduceat(np.maximum(counts[1], counts[2]), starts) if len(edges) else starts
        bound = int(np.maximum(largest, 1).sum()) + len(ends) - len(starts)
        for total, count in zip(self._edges.reserve(bound), (1, *counts), strict=True):
            np.add.at(total, edges, np.asarray(count).astype(total.dtype))
        self._pending_sparse.clear()

    def _shorten(self, exchange: ExchangeRecord) -> ExchangeRecord:
        """Reduce an exchange with few senders to these."""
        if exchange.senders is not None:
            return exchange
        sending, _ = exchange.sent_rows
        if _SPARSE_RATIO * len(sending) >= self._n:
            return exchange
        wire = None if exchange.wire is None else exchange.wire[sending]
        return exchange._replace(rows=exchange.rows[sending], senders=sending, wire=wire)

    def _pattern_number(self, exchange: ExchangeRecord) -> int:
        """Return the number of the pattern of an exchange."""
        return self._patterns.setdefault(_pack(self._shorten(exchange)), len(self._patterns))

    def _append(self, at: tuple[int, int], pattern: int) -> None:
        """Append an exchange, given its stage and turn and the number of its pattern."""
        if at != self._next:
            self._runs.append((len(self._sequence), *at))
        self._next = at[0], at[1] + 1
        if pattern > 255 and self._sequence.typecode == "B":
            self._sequence = array("i", self._sequence)
        self._sequence.append(pattern)

    def _add_up(self, exchange: ExchangeRecord, times: int, known: Integers | None = None) -> None:
        """Add an exchange to the totals, `times` times; known: positions of the senders, None: found in the rows."""
        if exchange.edges is not None:
            self._add_up_edges(exchange, np.asarray(exchange.edges), times)
            return
        sending, rows = exchange.sent_rows if known is None else (known, exchange.rows[known])
        wire = None if exchange.wire is None else exchange.wire[sending]
        sent = rows, exchange.row_bytes, wire
        _add(self._senders.reserve(times * _largest(sent)), sending, sent, times)

    def _add_up_edges(self, exchange: ExchangeRecord, edges: Mask, times: int) -> None:
        """Add an exchange over some edges to the totals, `times` times."""
        indices = np.flatnonzero(edges)
        senders = np.searchsorted(self._indptr, indices, side="right") - 1
        sending = exchange.rows[senders] >= 0
        indices = indices[sending]
        senders = senders[sending]
        wire = None if exchange.wire is None else exchange.wire[senders]
        sent = exchange.rows[senders], exchange.row_bytes, wire
        _add(self._edges.reserve(times * _largest(sent)), indices, sent, times)


def _pack(exchange: ExchangeRecord) -> bytes:
    """Pack an exchange without stage and turn into bytes; compact, since faults cause thousands of patterns."""
    wire = None if exchange.wire is None else exchange.wire.astype(np.int32)
    arrays = exchange.rows, exchange.edges, exchange.senders, wire
    types = "".join(["-" if item is None else item.dtype.char for item in arrays])
    lengths = [0 if item is None else len(item) for item in arrays]
    contents = [item.tobytes() for item in arrays if item is not None]
    return b"".join((_HEADER.pack(exchange.row_bytes, *lengths, types.encode()), *contents))


def _unpack(packed: bytes) -> ExchangeRecord:
    """Unpack the result of `_pack`, with stage and turn 0."""
    row_bytes, *lengths, types = _HEADER.unpack_from(packed)
    arrays = list[Any]()
    at = _HEADER.size
    for kind, length in zip(types.decode(), lengths, strict=True):
        arrays.append(None if kind == "-" else np.frombuffer(packed, kind, length, at))
        at += 0 if kind == "-" else arrays[-1].nbytes
    rows, edges, senders, wire = arrays
    return ExchangeRecord(0, 0, rows, row_bytes, edges, senders, wire)


def _count_receivers(indptr: Integers, edges: Mask | None) -> Integers:
    """Count the edges, bool[e] or None for all, of each device, int64[n]."""
    return np.diff(indptr if edges is None else np.concatenate(([0], np.cumsum(edges)))[indptr])


def _largest(sent: tuple[Integers, int, Integers | None]) -> int:
    """Bound the counts of an exchange: messages, rows, bytes and encoded bytes of a table; sent: see `_Sent`."""
    rows, row_bytes, wire = sent
    return max(1, int(rows.max(initial=0)) * max(row_bytes, 1), 0 if wire is None else int(wire.max(initial=0)))


def _add(
    sums: NDArray[np.integer[Any]], places: Integers, sent: tuple[Integers, int, Integers | None], times: int
) -> None:
    """Add messages, rows, bytes and encoded bytes to `sums` at distinct places, `times` times; sent: see `_Sent`."""
    rows, row_bytes, wire = sent
    is_everywhere = len(places) == sums.shape[1]
    volume = rows * row_bytes
    counts: tuple[Any, ...] = (1, rows, volume, volume if wire is None else wire)
    increase = np.zeros(0 if is_everywhere else sums.shape[1], sums.dtype)
    # Sums fit the type of `sums`, see `_Totals.reserve`.
    for total, count in zip(sums, counts, strict=True):
        if is_everywhere:
            np.add(total, times * count, out=total, casting="unsafe")
        else:
            # Half of the time of an addition at the places alone.
            increase[places] = times * count
            total += increase
