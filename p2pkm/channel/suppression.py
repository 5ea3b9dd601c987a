"""Suppression of rows of small clusters, and counting of disclosed points.

Methods and stages of this package suppress rows themselves (`Devices.min_count`,
`p2pkm.methods.building_blocks.small_clusters`), because only they know the points that a row represents. With
`MethodTraits.suppresses_small_clusters`, points of small clusters do not contribute at all. `suppress_rows` serves all
other methods.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.channel.transform import (
    Context,
    Messages,
    Order,
    PlacedOnGraph,
    ReshapesMethod,
    RunScope,
    SavesItself,
    Settings,
    Transform,
)
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import DenseMessages, RaggedArray, SparseMessages, expand_ranges
from p2pkm.core.sorting import find_runs, offsets_of
from p2pkm.core.traits import MessageContent
from p2pkm.core.validation import check_integer
from p2pkm.data.shards import Shards
from p2pkm.methods.building_blocks.small_clusters import count_nearest
from p2pkm.methods.building_blocks.spanning_tree import source_devices
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.server.star import StarState
from p2pkm.network.transport import Network

# Odd integer close to 2^64 divided by the golden ratio: multiplicative hashing.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
# Contents of messages whose rows other devices forward unchanged.
_FORWARDED = (MessageContent.SUMMARIES, MessageContent.FORWARDED_CENTROIDS, MessageContent.KEYED_POINTS)
# Rows that are compared with the points at a time.
_BLOCK = 1 << 15
# Slots of the first-coordinate filter per point. It has at least 32 slots per point, so that at most about 1 of 32
# numbers that are not coordinates passes.
_SLOTS_PER_POINT = 16
# Points up to which disclosed points are counted: for 4 million, the index took 120 MB that `plan` does not predict.
_MAX_COUNTED_POINTS = 250_000
# Pairs of a point and a neighbor of its device up to which receivers are recorded: at most 12 MB.
_MAX_RECORDED_PAIRS = 1_000_000


class Suppression(ReshapesMethod, Transform):
    """Transform that removes rows of centroids with fewer than `least` nearest local points, see `suppress_rows`."""

    name: ClassVar[str] = "suppression"
    order: ClassVar[Order] = Order.SUPPRESS
    option: ClassVar[str] = "min_cluster_size"
    prepared: ClassVar[tuple[str, ...]] = ("_content",)
    # Claims of descent depend on `Devices.min_count` instead.
    alters = False

    def __init__(self, *, least: int = 0) -> None:
        self._least = least
        self._content = MessageContent.OTHER

    @classmethod
    def configure(cls, options: Settings) -> Settings:
        """Read the option `min_cluster_size`; acts in all runs."""
        return {"least": check_integer(options.get("min_cluster_size", 0), 0, "min_cluster_size")}

    def equip(self, devices: Devices) -> Devices:
        """Return the batch with the minimum cluster size, for methods that suppress small clusters themselves."""
        return replace(devices, min_count=self._least)

    def begin(self, stage: Stage, *, closing: bool) -> "Suppression | None":
        """Return the transform for stages that send rows of centroids and do not suppress any themselves, else None."""
        traits = stage.algorithm.traits
        self._content = traits.message_content
        has_local_rows = self._content in (MessageContent.CENTROIDS, MessageContent.OPENING_CENTROIDS)
        return self if self._least > 1 and has_local_rows and not traits.suppresses_small_clusters else None

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Remove the rows of small clusters."""
        # Later rows of such a stage are forwarded ones, which their origin has suppressed.
        only_forwards = self._content is MessageContent.OPENING_CENTROIDS and context.devices.round > 0
        if isinstance(messages, SparseMessages) or only_forwards:
            return messages
        return suppress_rows(messages, context.devices)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the minimum cluster size for the summary."""
        return {"min_cluster_size": self._least}


class Disclosure(PlacedOnGraph, SavesItself, Transform):
    """Observer that counts disclosed points, local points that a device sent unchanged, and records their receivers.

    A point is disclosed if all its coordinates appear next to each other, bit for bit, in a row that its device sent
    over a link, in any exchange of any stage. The row may be a local or a forwarded one, and the message may be lost.
    Units are those of the messages (scaled if a stage scales). Equal points of a device are disclosed together. Points
    that can be computed from several numbers are not counted.

    Parameters
    ----------
    devices : Devices
    total : int
        Points of all devices.
    records : bool
        Whether to record receivers.

    Attributes
    ----------
    left : bool[m] or None
        Marks the disclosed local points; None above 250,000 points, where they are not counted. Some rows are compared
        later than they are sent, see `search`.
    receivers : Receivers or None
        First exchange in which each point was sent to each neighbor; None if it is not recorded.
    """

    name: ClassVar[str] = "disclosure"
    order: ClassVar[Order] = Order.OBSERVE
    # It only observes.
    alters = False

    def __init__(self, devices: Devices, total: int, *, records: bool = True) -> None:
        self._offsets = devices.offsets
        self.left: Mask | None = np.zeros(len(devices.stored), np.bool_) if total <= _MAX_COUNTED_POINTS else None
        self.receivers = Receivers(devices) if records and self.left is not None else None
        # Sent rows that are not compared with the points yet.
        self._pending = list[_SentRows]()
        self._pending_rows = 0
        # Names of all stages so far, and the number of those before the stages of `start`.
        self._stages = list[str]()
        self._before = 0

    @classmethod
    def configure(cls, options: Settings) -> Settings:
        """Return empty settings: the observer acts in all runs."""
        return {}

    @classmethod
    def build(cls, settings: Settings, scope: RunScope) -> "Disclosure":
        """Build the observer of a batch."""
        devices, network = scope.devices, scope.network
        pairs = network.total(np.array([(devices.sizes * np.diff(devices.indptr)).sum()], np.int64))[0]
        return cls(devices, devices.total_points, records=bool(pairs <= _MAX_RECORDED_PAIRS))

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Index the points in the units of these stages."""
        self.search()
        self._before = len(self._stages)
        self._stages += [stage.name for stage in stages]
        if self.left is not None:
            self._index = index_points(devices, devices.points)

    def snapshot(self) -> dict[str, Any]:
        """Return marks and receivers of the disclosed points, in the form of `p2pkm.engine.state_tree`."""
        self.search()
        return {
            "left": None if self.left is None else RaggedArray(self.left.astype(np.uint8), np.diff(self._offsets)),
            "receivers": None if self.receivers is None else self.receivers.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        if self.left is not None:
            self.left = snapshot["left"].values.astype(np.bool_)
        if self.receivers is not None:
            self.receivers.first = snapshot["receivers"].values

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the number of disclosed points for the summary."""
        self.search()
        return {
            "raw_points_disclosed": None if self.left is None else int(network.total(np.array([self.left.sum()]))[0])
        }

    def results(self, shards: Shards, network: Network) -> dict[str, Any]:
        """Return sender, row, receiver and first exchange of every disclosed point: arrays of `Result.disclosed`."""
        self.search()
        if self.receivers is None:
            return {}
        device, row, receiver, stage, number, turn = self.receivers.gather(shards.rows, network).T.copy()
        names = np.array(self._stages or [""], np.str_)
        arrays = {"device": device, "row": row, "receiver": receiver, "stage": names[stage]}
        return {"disclosed": arrays | {"round": number, "turn": turn}}

    def begin(self, stage: Stage, *, closing: bool) -> "Disclosure | None":
        """Return the observer for all stages, None if there are too many points."""
        return None if self.left is None else self

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Note the rows of the messages, which are not changed, to compare them with the local points."""
        state, devices = context.state, context.devices
        values = messages.tables.values if isinstance(messages, SparseMessages) else messages.values
        if values.shape[-1] - messages.header < self._index.points.shape[1]:
            # A row is shorter than a point.
            return messages
        # Clients of a server method send in normalized units.
        is_scaled = isinstance(state, StarState) and bool(state.shift.any() or (state.span != 1.0).any())
        index = self._index
        if is_scaled:
            owner = np.repeat(np.arange(len(devices)), devices.sizes)
            index = index_points(devices, (devices.stored - state.shift[owner]) / state.span[owner])
        # Preliminary stages have negative numbers, and each of them is started alone.
        exchange = self._before + max(context.stage, 0), devices.round, devices.turn + (devices.round > 0)
        edges = messages.edges, devices.active_edges
        for rows, get_owners in sent_rows(messages, devices):
            self._pending.append(_SentRows(index, rows, get_owners, edges, exchange))
            self._pending_rows += len(rows)
            if is_scaled or self._pending_rows >= _BLOCK:
                self.search()
        return messages

    def search(self) -> None:
        """Compare the noted rows with the local points, and mark those that the rows contain."""
        pending, self._pending, self._pending_rows = self._pending, [], 0
        # One search for many exchanges: most of them have few rows.
        groups = dict[tuple[int, int], list[int]]()
        for number, sent in enumerate(pending):
            groups.setdefault((id(sent.point_index), sent.rows.shape[1]), []).append(number)
        disclosed = list[tuple[int, Integers]]()
        for numbers in groups.values():
            parts = [pending[number] for number in numbers]
            rows = np.concatenate([part.rows for part in parts])
            points, sources = parts[0].point_index.find(rows, partial(_concatenate_owners, parts))
            if not len(points):
                continue
            part_of = offsets_of(np.array([len(part.rows) for part in parts]))[1:].searchsorted(sources, side="right")
            first = find_runs(part_of)
            disclosed += zip(np.array(numbers)[part_of[first]].tolist(), np.split(points, first[1:]), strict=True)
        # In the order of the exchanges, because the first one of every pair is recorded.
        for number, points in sorted(disclosed, key=itemgetter(0)):
            assert self.left is not None
            self.left[points] = True
            if self.receivers is not None:
                self.receivers.add(points, pending[number])


class Receivers:
    """First exchange in which each local point was sent to each neighbor of its device; the message may be lost.

    Attributes
    ----------
    first : int32[p, 3]
        Number of the stage plus 1, round and turn of this exchange for every pair of a point and an edge of its device,
        by device, point and edge; 0 for pairs without one.
    """

    def __init__(self, devices: Devices) -> None:
        self._ids, self._offsets, self._indptr, self._indices = (
            devices.ids, devices.offsets, devices.indptr, devices.indices
        )  # fmt: skip
        self._degrees = np.diff(devices.indptr)
        self._counts = devices.sizes * self._degrees
        self.first = np.zeros((self._counts.sum(), 3), np.int32)

    def snapshot(self) -> RaggedArray:
        """Return the exchanges, in the form of `p2pkm.engine.state_tree`."""
        return RaggedArray(self.first, self._counts)

    def add(self, points: Integers, sent: "_SentRows") -> None:
        """Record that points, int64[p], are sent over the edges of an exchange."""
        edges, active = sent.edges
        is_open = active if edges is None else np.zeros(len(self._indices), np.bool_)
        if edges is not None:
            is_open[edges] = True
            is_open &= active
        owners = self._find_owners(points)
        degrees = self._degrees[owners]
        starts = self._starts[owners] + (points - self._offsets[owners]) * degrees
        pairs = expand_ranges(starts, degrees)
        is_new = is_open[expand_ranges(self._indptr[owners], degrees)] & (self.first[pairs, 0] == 0)
        stage, number, turn = sent.exchange
        self.first[pairs[is_new]] = stage + 1, number, turn

    def gather(self, rows: Integers, network: Network) -> Integers:
        """Gather device, row, receiver, stage, round and turn of every pair, int64[q, 6], the same on all ranks.

        rows: row of each local point in the input, int64[m].
        """
        pairs = np.flatnonzero(self.first[:, 0])
        owners = self._starts.searchsorted(pairs, side="right") - 1
        # Devices without pairs start where the next device starts.
        point, edge = np.divmod(pairs - self._starts[owners], self._degrees[owners])
        receivers = self._indices[self._indptr[owners] + edge]
        table = np.column_stack((
            self._ids[owners],
            rows[self._offsets[owners] + point],
            receivers,
            self.first[pairs] - [1, 0, 0],
        ))
        counts = network.allgather_by_device(np.bincount(owners, minlength=len(self._ids)))
        entries: Integers = network.allgather_by_device(table.astype(np.int64), counts)
        return entries

    @property
    def _starts(self) -> Integers:
        """First pair of each device."""
        return self._counts.cumsum() - self._counts

    def _find_owners(self, points: Integers) -> Integers:
        return self._offsets.searchsorted(points, side="right") - 1


class _PointIndex(NamedTuple):
    """Index of the local points, to find them in messages.

    Attributes
    ----------
    points : float64[m, d]
    hashes : uint64[m]
        Hashes of (point, device), ascending.
    order : int64[m]
        Point of each hash.
    filter : bool[p]
        First-coordinate filter: True at the slots of the first coordinates of all points. Almost all numbers in
        messages are not coordinates, and are excluded by one look-up.
    """

    points: Floats
    hashes: Any
    order: Integers
    filter: Mask

    def find(self, rows: Floats, get_owners: Callable[[], Integers]) -> tuple[Integers, Integers]:
        """Find the local points that rows of their device contain.

        Parameters
        ----------
        rows : float64[r, w]
        get_owners : callable
            Returns the position of the sender of each row, int64[r]; called only if the filter finds candidates.

        Returns
        -------
        points : int64[p]
            Positions of the points.
        sources : int64[p]
            Row that contains each point, ascending.
        """
        d = self.points.shape[1]
        first_coordinates = rows[:, : max(rows.shape[1] - d + 1, 0)]
        candidate, column = self.filter[_slot(first_coordinates, len(self.filter))].nonzero()
        if not len(candidate):
            return candidate, candidate
        rows = rows[candidate[:, None], column[:, None] + np.arange(d)]
        hashes = _hash_rows(rows, get_owners()[candidate])
        begin, end = (self.hashes.searchsorted(hashes, side) for side in ("left", "right"))
        counts = end - begin
        points = self.order[expand_ranges(begin, counts)]
        # Different rows may have equal hashes.
        is_equal = (self.points[points] == np.repeat(rows, counts, axis=0)).all(axis=1)
        return points[is_equal], candidate.repeat(counts)[is_equal]


class _SentRows(NamedTuple):
    """Rows that a batch sent in one exchange.

    Attributes
    ----------
    point_index : _PointIndex
        Points in the units of the rows.
    rows : float64[r, w]
    get_owners : callable
        Returns the position of the sender of each row, int64[r].
    edges : (bool[e], int64[f] or None, bool[e])
        Edges of the messages, as in `DenseMessages` or `SparseMessages`, and active edges.
    exchange : (int, int, int)
        Number of the stage, round and turn.
    """

    point_index: _PointIndex
    rows: Floats
    get_owners: Callable[[], Integers]
    edges: tuple[Any, Mask]
    exchange: tuple[int, int, int]


def _concatenate_owners(parts: Sequence[_SentRows]) -> Integers:
    """Return the position of the sender of each row of several exchanges, int64[r]."""
    return np.concatenate([part.get_owners() for part in parts])


def index_points(devices: Devices, points: Floats) -> _PointIndex:
    """Index the points of a batch, float64[m, d], in the units of the messages."""
    hashes = _hash_rows(points, np.repeat(np.arange(len(devices)), devices.sizes))
    order = np.argsort(hashes, kind="stable")
    first_coordinate_filter = np.zeros(2 << (_SLOTS_PER_POINT * len(hashes)).bit_length(), np.bool_)
    first_coordinate_filter[_slot(points[:, 0], len(first_coordinate_filter))] = True
    return _PointIndex(points, hashes[order], order, first_coordinate_filter)


def _slot(coordinates: Floats, slots: int) -> Any:
    """Hash numbers to slots; slots: a power of two, at least 2. Numbers that differ only in the sign share a slot."""
    # The shift removes the sign bit: -0 and 0 are equal numbers, and must have the same slot.
    bits = coordinates.view(np.uint64) << 1
    bits *= _MULTIPLIER
    bits >>= 65 - slots.bit_length()
    return bits.view(np.int64)


def sent_rows(
    messages: DenseMessages | SparseMessages, devices: Devices
) -> Iterator[tuple[Floats, Callable[[], Integers]]]:
    """Yield the rows that are sent over links, in blocks.

    Yields
    ------
    rows : float64[r, w]
        Without the columns of the header.
    get_owners : callable
        Returns the position of the sender of each row, int64[r].
    """
    if isinstance(messages, SparseMessages):
        if len(messages.edges):
            # Edges are sorted by sender. Most exchanges have an edge of every sender.
            senders, tables = messages.senders, messages.tables
            if len(senders) > 1:
                senders = source_devices(devices, messages.edges)
                senders = senders[find_runs(senders)]
            if len(senders) < len(messages.senders):
                tables = tables.take(messages.senders.searchsorted(senders))
            yield tables.flat()[:, messages.header :], lambda: senders.repeat(tables.rows)
        return
    edge_counts = devices.degrees
    if messages.edges is not None:
        edge_counts = np.bincount(devices.sources[messages.edges], minlength=len(devices))
    senders, (_, most, width) = ((edge_counts > 0) & (messages.rows > 0)).nonzero()[0], messages.values.shape
    size = max(1, _BLOCK // max(most, 1))
    for first in range(0, len(senders), size):
        block = senders[first : first + size]
        # A malformed table of the wrong shape counts one row more than the array contains.
        rows = np.minimum(messages.rows[block], most)
        table = messages.values[block].reshape(-1, width)
        if rows.min() < most:
            table = table[(np.arange(most) < rows[:, None]).ravel()]
        yield table[:, messages.header :], partial(block.repeat, rows)


def suppress_rows(messages: DenseMessages, devices: Devices) -> DenseMessages:
    """Remove the rows that are nearest, of all rows in the table, to fewer than `Devices.min_count` local points.

    A server is without points and sends rows about all devices, so none of its rows is removed.
    """
    d, most = devices.d, messages.values.shape[1]
    centroid_sets = np.ascontiguousarray(messages.values[:, :, :d], np.float64)
    is_row = np.arange(most) < messages.rows[:, None]
    centroid_sets = np.where(is_row[:, :, None], centroid_sets, np.inf)
    _, labels = devices.kernels.losses(*devices.kernel_inputs, centroid_sets)
    is_small = (count_nearest(devices, labels, most) < devices.min_count) & (devices.ids != devices.server)[:, None]
    stays = ~is_small & is_row
    order = np.argsort(~stays, axis=1, kind="stable")
    values = np.take_along_axis(messages.values, order[:, :, None], axis=1)
    return messages._replace(values=values, rows=np.where(messages.rows < 0, messages.rows, stays.sum(axis=1)))


def reach(algorithms: Iterable[Any]) -> int | None:
    """Compute the largest number of links that a row crosses unchanged in some stages; None: everywhere."""
    traits = [algorithm.traits for algorithm in algorithms]
    hops = [trait.hops for trait in traits if trait.message_content in _FORWARDED or trait.floods]
    return None if None in hops else max([1, *(hop for hop in hops if hop is not None)])


def _hash_rows(rows: Any, owner: Integers) -> Any:
    """Hash each row, float64[r, d], with its device, int64[r], to 64 bits; the signs of the numbers are ignored."""
    hashes = owner.astype(np.uint64)
    for column in rows.view(np.uint64).T:
        hashes = (hashes ^ (column << 1)) * _MULTIPLIER
        hashes ^= hashes >> 29
    return hashes
