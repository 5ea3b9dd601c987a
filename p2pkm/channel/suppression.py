"""What leaves a device: rows of small clusters, suppressed; raw points, counted; and whose tables others receive.

Methods and stages of this package suppress by themselves (`Devices.min_count`,
`p2pkm.methods.building_blocks.small_clusters`), because it is known there what a row is made of; where
`MethodTraits.suppresses_small_clusters` is set, points of small clusters take no part. `withhold` is for all others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.channel.transform import (
    Context,
    Messages,
    Order,
    PlacedOnGraph,
    ReshapesMethod,
    RunScope,
    Settings,
    Transform,
)
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, RaggedArray, SparseMessages, expand_ranges
from p2pkm.core.sorting import find_runs
from p2pkm.core.traits import MessageContent
from p2pkm.core.validation import check_integer
from p2pkm.methods.building_blocks.small_clusters import count_nearest
from p2pkm.methods.building_blocks.spanning_tree import source_devices
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.registry import suggest_methods
from p2pkm.methods.server.star import StarState
from p2pkm.network.transport import Network

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_POINTS = ("d2-sampling", "leader")  # initializations whose rows are points
_FORWARDED = (MessageContent.SUMMARIES, MessageContent.FORWARDED_CENTROIDS, MessageContent.KEYED_POINTS)
_BLOCK = 1 << 15  # rows looked at together
_SPARSE = 16  # places of a sieve for each point
_SMALL = 250_000  # points up to which it is counted how many leave as they are: more would take memory that counts


class Suppression(ReshapesMethod, Transform):
    """Leave out rows of centroids to which fewer than `least` own points are nearest, see `withhold`."""

    name: ClassVar[str] = "suppression"
    order: ClassVar[Order] = Order.SUPPRESS
    option: ClassVar[str] = "min_cluster_size"
    alters = False  # `Devices.min_count` decides what is claimed

    def __init__(self, *, least: int = 0) -> None:
        self._least, self._content = least, MessageContent.OTHER

    @classmethod
    def configure(cls, options: Settings) -> Settings:
        """Return the option `min_cluster_size`."""
        return {"least": check_integer(options.get("min_cluster_size", 0), 0, "min_cluster_size")}

    @classmethod
    def check(cls, settings: Settings, algorithm: Any) -> None:
        """Refuse methods that cannot leave out single rows."""
        if settings["least"] > 1:
            check_min_cluster_size(settings["least"], algorithm)

    def equip(self, devices: Devices) -> Devices:
        """Pass the bound to the methods, which suppress small clusters themselves where they can."""
        return replace(devices, min_count=self._least)

    def begin(self, stage: Stage, *, closing: bool) -> "Suppression | None":
        """Act where rows of centroids are sent from which the stage itself leaves nothing out."""
        traits = stage.algorithm.traits
        self._content = traits.message_content
        own = self._content in (MessageContent.CENTROIDS, MessageContent.OPENING_CENTROIDS)
        return self if self._least > 1 and own and not traits.suppresses_small_clusters else None

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Return what may be sent."""
        over = self._content is MessageContent.OPENING_CENTROIDS and context.devices.round > 0
        if isinstance(messages, SparseMessages) or over:
            return messages
        return withhold(messages, context.devices)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the least number of points of a row."""
        return {"min_cluster_size": self._least}


class Disclosure(PlacedOnGraph, Transform):
    """Watch what a batch sends in a run.

    A point has left its device if all its coordinates have stood side by side, bit for bit, in a row that its device
    sent over a link, in any exchange of any stage: as a row of its own, among the rows passed on, in the units in which
    the device sends (scaled ones, where a stage scales), whether or not the message was lost. Equal points of a device
    leave together. What can be worked out from several numbers is not seen.

    Parameters
    ----------
    devices : Devices
    total : int
        Points of all devices.

    Attributes
    ----------
    left : bool[m] or None
        Which own points have left their device; None: not counted for so many points.
    """

    name: ClassVar[str] = "disclosure"
    order: ClassVar[Order] = Order.OBSERVE
    alters = False  # it changes nothing

    def __init__(self, devices: Devices, total: int) -> None:
        self._sizes = devices.sizes
        self.left: Mask | None = np.zeros(len(devices.stored), np.bool_) if total <= _SMALL else None

    @classmethod
    def configure(cls, options: Settings) -> Settings:
        """Watch all runs."""
        return {}

    @classmethod
    def build(cls, settings: Settings, scope: RunScope) -> "Disclosure":
        """Return the observer of a batch."""
        return cls(scope.devices, scope.devices.total_points)

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Go on with the same points, in the units of these stages."""
        if self.left is not None:
            self._known = index_points(devices, devices.points)

    def snapshot(self) -> dict[str, Any]:
        """Return which points have left so far, as `p2pkm.engine.state_tree` takes it."""
        return {"left": None if self.left is None else RaggedArray(self.left.astype(np.uint8), self._sizes)}

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        if self.left is not None:
            self.left = kept["left"].values.astype(np.bool_)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return how many points have left their device."""
        return {
            "raw_points_disclosed": None if self.left is None else int(network.total(np.array([self.left.sum()]))[0])
        }

    def begin(self, stage: Stage, *, closing: bool) -> "Disclosure | None":
        """Watch all stages, unless there are too many points."""
        return None if self.left is None else self

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Note which own points are in what is sent."""
        self._note(messages, context.state, context.devices)
        return messages

    def _note(self, messages: Messages, state: Any, devices: Devices) -> None:
        known, left = self._known, self.left
        assert left is not None
        if isinstance(state, StarState) and (state.shift.any() or (state.span != 1.0).any()):
            owner = np.repeat(np.arange(len(devices)), devices.sizes)
            known = index_points(devices, (devices.stored - state.shift[owner]) / state.span[owner])
        for rows, name_owners in sent_rows(messages, devices):
            left[known.find(rows, name_owners)] = True


class _Known(NamedTuple):
    """The own points, float64[m, d], with their names in ascending order, and a sieve for first coordinates of none."""

    points: Floats
    names: Any
    order: Integers
    sieve: Mask

    def find(self, rows: Floats, name_owners: Callable[[], Integers]) -> Integers:
        """Return which points stand in rows, float64[r, w], of their own devices, int64[r], asked for if need be."""
        d = self.points.shape[1]
        firsts = rows[:, : max(rows.shape[1] - d + 1, 0)]
        likely, begins = self.sieve[_place(firsts, len(self.sieve))].nonzero()
        if not len(likely):
            return likely
        rows = rows[likely[:, None], begins[:, None] + np.arange(d)]
        names = _name(rows, name_owners()[likely])
        begin, end = (self.names.searchsorted(names, side) for side in ("left", "right"))
        points = self.order[expand_ranges(begin, end - begin)]
        return points[(self.points[points] == np.repeat(rows, end - begin, axis=0)).all(axis=1)]


def index_points(devices: Devices, points: Floats) -> _Known:
    """Index the points of a batch float64[m, d], in the units in which they are given."""
    names = _name(points, np.repeat(np.arange(len(devices)), devices.sizes))
    order = np.argsort(names, kind="stable")
    sieve = np.zeros(2 << (_SPARSE * len(names)).bit_length(), np.bool_)
    sieve[_place(points[:, 0], len(sieve))] = True
    return _Known(points, names[order], order, sieve)


def _place(coordinates: Floats, places: int) -> Any:
    """Return a place below a power of two, at least 2, for each number, the same for the same bits but for the sign."""
    bits = coordinates.view(np.uint64) << 1  # -0 is 0
    bits *= _MULTIPLIER
    bits >>= 65 - places.bit_length()
    return bits.view(np.int64)


def sent_rows(
    messages: DenseMessages | SparseMessages, devices: Devices
) -> Iterator[tuple[Floats, Callable[[], Integers]]]:
    """Yield rows float64[r, w] that go over links, some at a time, without ids of origins, and their owners."""
    if isinstance(messages, SparseMessages):
        if len(messages.edges):
            senders = source_devices(devices, messages.edges)  # edges lie by device
            senders = senders[find_runs(senders)]
            tables = messages.tables.take(messages.senders.searchsorted(senders))
            yield tables.flat()[:, messages.header :], lambda: senders.repeat(tables.rows)
        return
    over = None if messages.edges is None else np.bincount(devices.sources[messages.edges], minlength=len(devices))
    leaves = (devices.degrees if over is None else over) > 0
    who, (_, most, width) = np.flatnonzero(leaves & (messages.rows > 0)), messages.values.shape
    for one in np.split(who, range(block := max(1, _BLOCK // max(most, 1)), len(who), block)):
        table = messages.values[one].reshape(-1, width)
        real = (np.arange(most) < messages.rows[one, None]).ravel()
        table = table if real.all() else table[real]
        # a malformed table may claim more rows than it has
        yield table[:, messages.header :], partial(one.repeat, np.minimum(messages.rows[one], most))


def withhold(messages: DenseMessages, devices: Devices) -> DenseMessages:
    """Return the messages without the rows of fewer than `min_count` own points: nearest to it of all in the table.

    The hub has no points, and what it sends is no device's.
    """
    d, most = devices.d, messages.values.shape[1]
    sets = np.ascontiguousarray(messages.values[:, :, :d], np.float64)
    sets = np.where((np.arange(most) < messages.rows[:, None])[:, :, None], sets, np.inf)
    _, labels = devices.kernels.losses(*devices.kernel_inputs, sets)
    few = (count_nearest(devices, labels, most) < devices.min_count) & (devices.ids != devices.server)[:, None]
    keep = ~few & (np.arange(most) < messages.rows[:, None])
    order = np.argsort(~keep, axis=1, kind="stable")
    values = np.take_along_axis(messages.values, order[:, :, None], axis=1)
    return messages._replace(values=values, rows=np.where(messages.rows < 0, messages.rows, keep.sum(axis=1)))


def check_min_cluster_size(least: int, algorithm: Any) -> None:
    """Refuse methods that cannot leave out single rows."""
    why = _explain_refusal(algorithm)
    if why:
        others = suggest_methods(lambda other: not _explain_refusal(other))
        raise ExperimentError(
            f"min_cluster_size is {least}, but {algorithm.name} {why}. Remove --min-cluster-size, or use {others}, "
            "without --init"
        )


def _explain_refusal(algorithm: Any) -> str:
    """Return why a method cannot leave out single rows, nothing if it can."""
    traits = algorithm.traits
    if traits.init is not None and traits.init.name in _POINTS:
        return f"starts from {traits.init.name} centroids, which are raw points"
    return str(traits.no_suppression)


def reach(algorithms: Iterable[Any]) -> int | None:
    """Return over how many links tables travel as they are in some stages, None: everywhere; at most all of a tree."""
    traits = [one.traits for one in algorithms]
    hops = [one.hops for one in traits if one.message_content in _FORWARDED or one.floods]
    return None if None in hops else max([1, *(hop for hop in hops if hop is not None)])


def _name(rows: Any, owner: Integers) -> Any:
    """Return 64 bits for every row float64[r, d] of a device int64[r], the same for the same bits but for signs."""
    names = owner.astype(np.uint64)
    for column in rows.view(np.uint64).T:
        names = (names ^ (column << 1)) * _MULTIPLIER
        names ^= names >> 29
    return names
