"""What a batch of devices knows: its own points and links, and the few facts that every device knows at the start."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, unique
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]


@unique
class Stream(IntEnum):
    """What a random stream is for: the second word of its key, so that no two uses share a draw."""

    KEYS = 1
    LOCAL = 2
    BOX = 3
    LEADER = 4
    SUMMARY = 5
    CLUSTER = 6
    LOCAL_ONLY = 7
    CENTRAL = 8
    ACTIVE = 9
    SAMPLE = 10
    D2_SAMPLING = 11
    CLIENT = 12
    SERVER = 13
    NOISE = 14
    MASK = 15
    BIN = 16
    CHOICE = 17
    MATCH = 18
    SWAP = 19
    REDUCE = 20
    NEIGHBOR = 30
    BREATHE = 31
    GROUP = 32
    INDEX = 36
    LOSS = 40
    LINK_FAILURE = 41
    DROPOUT = 42
    JOIN = 43
    STRAGGLE = 44
    BYZANTINE = 45
    PLACE = 46
    PUBLIC_KEY = 47
    PRIVACY = 48
    CELLS = 49
    DRIFT = 50
    WALK = 51
    SECRET = 52
    NETWORK = 60
    SHUFFLE = 61
    VIEW = 62
    HEAD = 63


class Kernels(Protocol):
    """The local computations, as functions on arrays; `p2pkm.kernels.reference` documents each."""

    def kmeans(self, points: Floats, weights: Floats, odds: Floats, *rest: Any) -> tuple[Floats, Floats, Floats]:
        """Run weighted k-means on every device."""

    def refine(self, points: Floats, weights: Floats, offsets: Integers, *rest: Any) -> tuple[Floats, Floats, Floats]:
        """Run Lloyd steps on every device from given centroids."""

    def cdkm(self, points: Floats, weights: Floats, start: Floats, limit: int) -> tuple[Floats, float]:
        """Run coordinate descent on k-means on one table of points."""

    def fuzzy_cmeans(self, points: Floats, weights: Floats, offsets: Integers, *rest: Any) -> tuple[Floats, Floats]:
        """Run fuzzy c-means on every device from given centroids."""

    def gtvmin(self, points: Floats, weights: Floats, offsets: Integers, *rest: Any) -> tuple[Floats, Floats]:
        """Update the centroids of the devices awake, and measure their moves."""

    def gtv(self, centroids: Floats, ids: Integers, *links: Any) -> Floats:
        """Return the variation of every link."""

    def losses(self, points: Floats, weights: Floats, offsets: Integers, sets: Floats) -> tuple[Floats, Integers]:
        """Return every device's cost on its own points, and the labels."""

    def evaluate_costs(self, points: Floats, weights: Floats, offsets: Integers, *rest: Any) -> tuple[Floats, Integers]:
        """Price centroid sets on the points of every device."""

    def moments(self, points: NDArray[Any], weights: Floats, offsets: Integers, center: Floats) -> Floats:
        """Add up weights, first and second moments on every device."""

    def count_class_labels(
        self, offsets: Integers, classes: Integers, labels: Integers, n_classes: int, k: int
    ) -> Integers:
        """Count the points of each class and label on every device."""

    def integer_bits(self, tables: Integers, rows: Integers | None = None, *, rice: bool = True) -> Integers:
        """Return the bits of each table of integers on the wire."""

    def merge_flooded(self, *arrays: Any) -> tuple[Any, Mask, Integers, bool]:
        """Take in flooded tables."""

    def concatenate_tables(self, news: Mask, *held: Any) -> tuple[Floats, Integers]:
        """Write flooded tables one after another."""


class Grid(NamedTuple):
    """Whole steps that centroids move by, so that what is sent are integers.

    Attributes
    ----------
    step : float64[n]
        0: nothing moves.
    threshold : int
        A row of which no coordinate moves by so many steps does not move.
    rice : bool
        Whether integers may be sent in other forms than the fixed one, see `p2pkm.core.wire_format`.
    """

    step: Floats
    threshold: int
    rice: bool = True

    @property
    def unit(self) -> Floats:
        """Return what to divide by, float64[n]: the step, 1 where nothing moves."""
        return np.where(self.step > 0.0, self.step, 1.0)


class Secrets(NamedTuple):
    """Keys of the random streams that must not be predictable: noise and masks of a differential privacy guarantee.

    Attributes
    ----------
    keys : uint64[n]
        Of each device.
    shared : int
        Common to all devices; the key of each link is derived from it.
    """

    keys: Keys
    shared: int

    def __repr__(self) -> str:
        return "Secrets(...)"


@dataclass(frozen=True)
class Devices:
    """A batch of devices: what an `Algorithm` may know of them, and nothing else.

    Attributes
    ----------
    ids : int64[n]
        Global ids, ascending.
    stored : float64[m, d] or float32[m, d]
        All points end to end, as they are kept; device i owns ``points[offsets[i]:offsets[i + 1]]``.
    offsets : int64[n + 1]
    point_weights : float64[m]
        Where every point weighs 1, a view of a single number.
    indptr : int64[n + 1]
        Directed edges ``indptr[i]:indptr[i + 1]`` lead from device i to its neighbors.
    indices : int64[e]
        Global id of the neighbor at each edge, ascending within a device.
    mirror : int16[e], int32[e] or int64[e]
        The same link at its other end, -1 where that is not in the batch.
    link_weights : float64[e]
    active_edges : bool[e]
        Edges in use; both ends of a link agree.
    degrees : int64[n]
        Number of edges in use.
    neighbor_degrees : int32[e] or int64[e]
        The same of the neighbor at each edge; undefined where the edge is not in use.
    varying : bool
        Whether the edges in use change from round to round of the last stage.
    shares : float64[e] or None
        A neighbor's share in an average at each edge, as the graph gives it, alike at both ends and 0 where the
        edge is not in use; None: it gives none.
    keys : uint64[n]
        Key of each device's random streams, a function of the seed and the id.
    shared_key : int
        Key of the random streams that all devices share.
    total : int
        Number of devices in the system, a hub included.
    server : int
        Id of the device without points that is the server, -1 if there is none.
    hops : int
        Bound on the diameter of the graph.
    total_points : int
        Number of points of all devices.
    total_weight : float
        Weight of all points of all devices (their number, if unweighted).
    data_std : float
        Square root of the total variance of all points.
    kernels : Kernels
        What computes on this batch: the compiled or the plain form, with the same bits.
    round : int
        Round of the stage, 0 at the opening.
    turn : int
    active_devices : bool[n]
        Who acts in this turn.
    late : bool
        Whether what is received may be older than what was sent last.
    min_count : int
        Suppression: rows that stand for fewer own points are not sent.
    grid : Grid or None
        Centroids move by whole steps, where the method can; None: as they like.
    secrets : Secrets or None
        Keys of unpredictable draws, for methods with the trait `draws_secrets`; None for all other methods.
    neighbor_mean_weights : float64[e] or None
        Mean weight of the links in use of the neighbor at each edge; None: all links weigh the same.
    """

    ids: Integers
    stored: NDArray[Any]
    offsets: Integers
    point_weights: Floats
    indptr: Integers
    indices: Integers
    mirror: NDArray[np.integer[Any]]
    link_weights: Floats
    active_edges: Mask
    degrees: Integers
    neighbor_degrees: NDArray[np.integer[Any]]
    varying: bool
    averaging_weights: Floats | None
    keys: Keys
    shared_key: int
    total: int
    server: int
    hops: int
    total_points: int
    total_weight: float
    data_std: float
    kernels: Kernels
    round: int
    turn: int
    active_devices: Mask
    has_stale_links: bool = False
    min_count: int = 0
    grid: Grid | None = None
    secrets: Secrets | None = field(default=None, repr=False)
    neighbor_mean_weights: Floats | None = None

    def __len__(self) -> int:
        """Return the number of devices in this batch."""
        return len(self.ids)

    @property
    def clients(self) -> int:
        """Return the number of devices in the system without the hub."""
        return self.total - (self.server >= 0)

    @property
    def d(self) -> int:
        """Return the number of features."""
        return self.stored.shape[1]

    @property
    def has_stale_or_varying_links(self) -> bool:
        """Return whether devices may act on other links, or on older tables, than their neighbors do."""
        return self.varying or self.has_stale_links

    @cached_property
    def points(self) -> Floats:
        """Return all points to compute with, float64[m, d]."""
        return self.stored.astype(np.float64, copy=False)

    @cached_property
    def kernel_inputs(self) -> tuple[NDArray[Any], Floats, Integers]:
        """Return points, weights (none, where every point weighs 1) and offsets as the kernels take them."""
        same = not any(self.point_weights.strides) and (not len(self.point_weights) or self.point_weights[0] == 1.0)
        return self.stored, np.zeros(0) if same else self.point_weights, self.offsets

    def part(self, own: slice) -> "Devices":
        """Return some devices in a row with their points and keys alone, to compute with; nothing is copied."""
        rows = slice(self.offsets[own.start], self.offsets[own.stop])
        return replace(
            self, ids=self.ids[own], keys=self.keys[own], stored=self.stored[rows],
            point_weights=self.point_weights[rows], offsets=self.offsets[own.start : own.stop + 1] - rows.start,
        )  # fmt: skip

    def table(self, i: int | np.integer[Any]) -> tuple[Floats, Floats]:
        """Return the points of one device to compute with, float64[m, d], and their weights, float64[m]."""
        rows = slice(self.offsets[i], self.offsets[i + 1])
        return self.stored[rows].astype(np.float64, copy=False), self.point_weights[rows]

    @property
    def unit(self) -> float:
        """Return the mean weight of a point: what a constant that is a number of points is worth as a weight."""
        return self.total_weight / self.total_points if self.total_points else 1.0

    @property
    def sizes(self) -> Integers:
        """Return the number of points of each device, int64[n]."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def sources(self) -> Integers:
        """Return the position of the device that each own edge leads from, int64[e]."""
        return np.arange(len(self)).repeat(self.indptr[1:] - self.indptr[:-1])

    @cached_property
    def mean_link_weights(self) -> Floats:
        """Return the mean weight of each device's links in use, float64[n]; 1 of a device without links."""
        parts = np.where(self.active_edges, self.link_weights / np.maximum(self.degrees, 1)[self.sources], 0.0)
        return np.where(self.degrees > 0, np.bincount(self.sources, parts, len(self)), 1.0)

    def with_active_edges(
        self,
        active_edges: Mask,
        neighbor_degrees: NDArray[np.integer[Any]],
        shares: Floats | None = None,
        neighbor_mean_weights: Floats | None = None,
    ) -> "Devices":
        """Return the batch with other edges in use; see the attributes of the same names."""
        degrees = np.bincount(self.sources[active_edges], minlength=len(self))
        return replace(
            self, active_edges=active_edges, degrees=degrees, neighbor_degrees=neighbor_degrees, averaging_weights=shares,
            neighbor_mean_weights=neighbor_mean_weights,
        )  # fmt: skip

    def at_stage_start(self, active_devices: Mask) -> "Devices":
        """Return the batch at the opening of a stage."""
        return self.at_turn(0, 0, active_devices)

    def at_turn(self, round: int, turn: int, active_devices: Mask) -> "Devices":
        """Return the batch in a turn of a round; what was worked out of points and links stays with it."""
        return self._with(round=round, turn=turn, active_devices=active_devices)

    def on_grid(self, grid: Grid) -> "Devices":
        """Return the batch whose devices know the grid, in the same way."""
        return self._with(grid=grid)

    def _with(self, **others: Any) -> "Devices":
        now = object.__new__(Devices)  # `replace` would look at every field in every turn
        vars(now).update(vars(self), **others)
        return now

    def kmeans(self, k: int, purpose: int, *, starts: int, limit: int = 300, greedy: bool = True) -> tuple[
        Floats, Floats, Floats
    ]:  # fmt: skip
        """Run weighted k-means on every device's own points; returns what `p2pkm.kernels.reference.kmeans` does."""
        (points, weights, offsets), tols = self.kernel_inputs, np.zeros(len(self))
        return self.kernels.kmeans(
            points, weights, weights, offsets, k, trials(k, greedy), starts, limit, tols, self.keys, int(purpose), 0
        )

    def refine(self, start: Floats, limit: int, *, fill: bool = False) -> tuple[Floats, Floats, Floats]:
        """Run at most `limit` Lloyd steps on every device's own points; see `p2pkm.kernels.reference.refine`.

        The real rows of `start`, float64[n, k, d], stand before the absent ones.
        """
        rows, tols = (start[:, :, 0] < np.inf).sum(axis=1), np.zeros(len(self))
        return self.kernels.refine(*self.kernel_inputs, start, rows, limit, tols, fill)

    def count_members(self, centroids: Floats, counts: Floats) -> Integers:
        """Return the number of own points nearest to each row, int64[n, k], given rows and weight of these points."""
        _, weights, offsets = self.kernel_inputs
        if not len(weights):
            return counts.astype(np.int64)
        _, labels = self.kernels.losses(*self.kernel_inputs, centroids)
        rows: Integers = self.kernels.count_class_labels(offsets, np.zeros_like(labels), labels, 1, centroids.shape[1])
        return rows[:, 0]

    def pooled_kmeans(
        self, tables: Sequence[Floats], k: int, purpose: int, *, starts: int, limit: int, first: int
    ) -> Floats:
        """Run weighted k-means on tables of (row, weight) pairs with the shared key; return float64[tables, k, d]."""
        offsets = np.cumsum([0, *map(len, tables)])
        pairs = np.concatenate(tables)
        points, weights = np.ascontiguousarray(pairs[:, :-1]), np.ascontiguousarray(pairs[:, -1])
        pooled, tols = (points, weights, weights, offsets), np.zeros(len(tables))
        keys = np.full(len(tables), self.shared_key, np.uint64)
        return self.kernels.kmeans(*pooled, k, trials(k, True), starts, limit, tols, keys, int(purpose), first)[0]


class Search(NamedTuple):
    """How one k-means looks for its clusters.

    Attributes
    ----------
    k, purpose : int
        Number of clusters; what the random stream is for.
    starts, limit : int
        The best of so many seedings; at most so many Lloyd steps.
    greedy : bool
        Whether a k-means++ draw is the best of several.
    tol : float
        Stop when the squared moves of a step add up to less.
    first : int
        Number of the first start in the stream.
    """

    k: int
    purpose: int
    starts: int = 1
    limit: int = 300
    greedy: bool = True
    tol: float = 0.0
    first: int = 0


def cluster(
    kernels: Kernels, key: int, points: Floats, weights: Floats, search: Search, odds: Floats | None = None
) -> tuple[Floats, Floats, float]:
    """Run weighted k-means on one table of rows.

    Parameters
    ----------
    key : int
        Of the random stream.
    points : float64[m, d]
    weights : float64[m]
    odds : float64[m], optional
        What a row weighs in the draw of the seeds; default: its weight.

    Returns
    -------
    centroids : float64[k, d]
        Rows beyond the number of distinct points are +inf.
    counts : float64[k]
    cost : float
    """
    points, weights = np.ascontiguousarray(points), np.ascontiguousarray(weights)
    pooled = points, weights, weights if odds is None else odds, np.array([0, len(points)])
    k, purpose, starts, limit, greedy, tol, first = search
    found = kernels.kmeans(
        *pooled, k, trials(k, greedy), starts, limit, np.array([tol]), np.array([key], np.uint64), int(purpose), first
    )
    return found[0][0], found[1][0], float(found[2][0])


def trials(k: int, greedy: bool = True) -> int:
    """Return how many candidates a k-means++ draw tries: 2 + floor(ln k) if greedy, else 1."""
    return 2 + int(math.log(k)) if greedy else 1
