"""Batch of devices: local points and edges, and the constants that are assumed to be public.

Symbols in shapes of internal modules: n devices of the batch, m points, d features, e directed edges, k clusters, r
rows of a message table, w columns of a row, s slots (tables that a rank holds: local devices, then the halo).
"""

import math
from collections.abc import Callable, Sequence
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
    """Purpose of a random stream: the second word of its key, so that two uses never share a draw.

    The numbers are part of every result; never change or reuse one.
    """

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
    BURST = 64
    ASKED = 65


class Kernels(Protocol):
    """Local computations as functions on arrays; `p2pkm.kernels.reference` documents each."""

    def kmeans(self, points: Floats, weights: Floats, odds: Floats, *rest: Any) -> tuple[Floats, Floats, Floats]:
        """Run weighted k-means on every device."""

    def refine(self, points: Floats, weights: Floats, offsets: Integers, *rest: Any) -> tuple[Floats, Floats, Floats]:
        """Run Lloyd steps on every device from given centroids."""

    def breathe(self, points: Floats, weights: Floats, start: Floats, *rest: Any) -> tuple[Floats, float]:
        """Run breathing k-means on one table of points from given centroids."""

    def cdkm(self, points: Floats, weights: Floats, start: Floats, limit: int) -> tuple[Floats, float]:
        """Run coordinate descent on k-means on one table of points."""

    def fuzzy_cmeans(self, points: Floats, weights: Floats, offsets: Integers, *rest: Any) -> tuple[Floats, Floats]:
        """Run fuzzy c-means on every device from given centroids."""

    def gtvmin(self, points: Floats, weights: Floats, offsets: Integers, *rest: Any) -> tuple[Floats, Floats]:
        """Update the centroids of the active devices and measure their moves."""

    def gtv(self, centroids: Floats, ids: Integers, *links: Any) -> Floats:
        """Compute the total variation of every link."""

    def add_differences(self, start: Floats, local: Floats, tables: Floats, *links: Any) -> tuple[Floats, Integers]:
        """Add the weighted differences of received tables to those of every device."""

    def losses(self, points: Floats, weights: Floats, offsets: Integers, sets: Floats) -> tuple[Floats, Integers]:
        """Compute the cost of every device on its local points, and the labels."""

    def evaluate_costs(self, points: Floats, weights: Floats, offsets: Integers, *rest: Any) -> tuple[Floats, Integers]:
        """Compute the cost of centroid sets on the local points of every device."""

    def moments(self, points: NDArray[Any], weights: Floats, offsets: Integers, center: Floats) -> Floats:
        """Add up weights, first and second moments on every device."""

    def cluster_moments(
        self, points: NDArray[Any], weights: Floats, offsets: Integers, labels: Integers, centroids: Floats
    ) -> tuple[Integers, Floats, Floats, Floats]:
        """Add up points, weights, first and second moments of each cluster on every device."""

    def count_class_labels(
        self, offsets: Integers, classes: Integers, labels: Integers, n_classes: int, k: int
    ) -> Integers:
        """Count the points of each class and label on every device."""

    def integer_bits(self, tables: Integers, rows: Integers | None = None, *, rice: bool = True) -> Integers:
        """Compute the encoded bits of each table of integers."""

    def merge_flooded(self, *arrays: Any) -> tuple[Any, Mask, Integers, bool]:
        """Merge received flooded tables into the stored ones."""

    def concatenate_tables(self, selected: Mask, *stored: Any) -> tuple[Floats, Integers]:
        """Concatenate the selected flooded tables of every device into one message table."""


class Grid(NamedTuple):
    """Grid of the centroid moves: every move is a multiple of `step`, so that messages are integers.

    Attributes
    ----------
    step : float64[n]
        Step size; 0: the centroids of the device do not move.
    threshold : int
        A row does not move if every coordinate would move by fewer steps than this.
    rice : bool
        Whether integers may be encoded in other forms than fixed width, see `p2pkm.core.wire_format`.
    """

    step: Floats
    threshold: int
    rice: bool = True

    @property
    def unit(self) -> Floats:
        """Divisor that turns moves into steps, float64[n]: the step, or 1 where it is 0."""
        return np.where(self.step > 0.0, self.step, 1.0)


class Secrets(NamedTuple):
    """Keys of unpredictable random streams: noise and masks of a differential privacy guarantee.

    Attributes
    ----------
    keys : uint64[n]
        Key of each device.
    shared : int
        Key common to all devices; the key of each link is derived from it.
    """

    keys: Keys
    shared: int

    def __repr__(self) -> str:
        return "Secrets(...)"


@dataclass(frozen=True)
class Devices:
    """Batch of devices: all information that an `Algorithm` may use.

    Attributes
    ----------
    ids : int64[n]
        Global ids, ascending.
    stored : float64[m, d] or float32[m, d]
        Concatenated points in storage precision; device i holds ``points[offsets[i]:offsets[i + 1]]``.
    offsets : int64[n + 1]
        First point of each device, and m.
    point_weights : float64[m]
        Weight of each point. If all weights are 1: a view of a single number, with strides 0.
    indptr : int64[n + 1]
        Directed edges ``indptr[i]:indptr[i + 1]`` lead from device i to its neighbors.
    indices : int64[e]
        Global id of the neighbor at each edge, ascending within a device.
    mirror : int16[e], int32[e] or int64[e]
        Reverse of each edge (same link, other end), -1 if it is not in the batch.
    link_weights : float64[e]
        Weight of the link of each edge.
    active_edges : bool[e]
        Edges of active links; equal at both ends of a link.
    degrees : int64[n]
        Number of active edges of each device.
    neighbor_degrees : int32[e] or int64[e]
        Number of active edges of the neighbor at each edge; undefined at inactive edges.
    varying : bool
        Whether the active edges change from round to round in the last stage.
    averaging_weights : float64[e] or None
        Weight of the neighbor in an averaging step, at each edge, if the graph prescribes it: equal at both ends of
        a link, 0 at inactive edges. None: not prescribed.
    keys : uint64[n]
        Key of the random streams of each device, a function of the seed and the id.
    shared_key : int
        Key of the random streams that are common to all devices.
    total : int
        Number of devices in the system, server included.
    server : int
        Id of the server (a device without points), -1 without a server.
    hops : int
        Bound on the diameter of the graph.
    total_points : int
        Number of points of all devices together.
    total_weight : float
        Total weight of these points (their number, if unweighted).
    weighted : bool
        Whether any point of the system has a weight other than 1.
    data_std : float
        Square root of the total variance of the pooled points.
    kernels : Kernels
        Implementation of the local computations, compiled or reference; their results are bit-identical.
    round : int
        Round of the stage, 0 at the initial exchange.
    turn : int
        Turn of the round.
    active_devices : bool[n]
        Devices that act in this turn.
    has_stale_links : bool
        Whether a received table may be older than the last one that its sender sent.
    min_count : int
        Suppression threshold (`min_cluster_size`): rows that represent fewer local points are not sent.
    grid : Grid or None
        Grid of the centroid moves, for methods that support it; None: moves are not rounded.
    secrets : Secrets or None
        Keys of unpredictable draws, for methods with the trait `guarantee`; None for all other methods.
    neighbor_mean_weights : float64[e] or None
        Mean weight of the active links of the neighbor, at each edge; None: all links have the same weight.
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
    weighted: bool
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
        """Number of devices in the system without the server."""
        return self.total - (self.server >= 0)

    @property
    def d(self) -> int:
        """Number of features."""
        return self.stored.shape[1]

    @property
    def has_stale_or_varying_links(self) -> bool:
        """Whether neighbors may use different links or tables of different age in the same turn."""
        return self.varying or self.has_stale_links

    @cached_property
    def points(self) -> Floats:
        """All points in float64[m, d], the precision of all computations."""
        return self.stored.astype(np.float64, copy=False)

    @cached_property
    def kernel_inputs(self) -> tuple[NDArray[Any], Floats, Integers]:
        """Points, weights (an empty array if all weights are 1) and offsets: the first arguments of most kernels."""
        weights = self.point_weights
        is_unweighted = not any(weights.strides) and (not len(weights) or weights[0] == 1.0)
        return self.stored, np.zeros(0) if is_unweighted else weights, self.offsets

    def part(self, span: slice) -> "Devices":
        """Select consecutive devices with their points and keys, without copying; fields of edges stay unchanged."""
        rows = slice(self.offsets[span.start], self.offsets[span.stop])
        return replace(
            self,
            ids=self.ids[span],
            keys=self.keys[span],
            stored=self.stored[rows],
            point_weights=self.point_weights[rows],
            offsets=self.offsets[span.start : span.stop + 1] - rows.start,
        )

    def table(self, i: int | np.integer[Any]) -> tuple[Floats, Floats]:
        """Return the points of device i in float64[m, d], and their weights, float64[m]."""
        rows = slice(self.offsets[i], self.offsets[i + 1])
        return self.stored[rows].astype(np.float64, copy=False), self.point_weights[rows]

    @property
    def unit(self) -> float:
        """Mean weight of a point: factor that turns a number of points into a weight. 1 without points."""
        return self.total_weight / self.total_points if self.total_points else 1.0

    @property
    def sizes(self) -> Integers:
        """Number of points of each device, int64[n]."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def masses(self) -> Floats:
        """Weight of the points of each device, added in their order, float64[n]."""
        _, weights, offsets = self.kernel_inputs
        if not len(weights):
            return self.sizes.astype(np.float64)
        return self.kernels.moments(weights[:, None], np.zeros(0), offsets, np.zeros(1))[:, 1].copy()

    @property
    def sources(self) -> Integers:
        """Position in the batch of the source device of each edge, int64[e]."""
        return np.arange(len(self)).repeat(self.indptr[1:] - self.indptr[:-1])

    @cached_property
    def mean_link_weights(self) -> Floats:
        """Mean weight of the active links of each device, float64[n]; 1 for a device without active links."""
        parts = np.where(self.active_edges, self.link_weights / np.maximum(self.degrees, 1)[self.sources], 0.0)
        return np.where(self.degrees > 0, np.bincount(self.sources, parts, len(self)), 1.0)

    def with_active_edges(
        self,
        active_edges: Mask,
        neighbor_degrees: NDArray[np.integer[Any]],
        averaging_weights: Floats | None = None,
        neighbor_mean_weights: Floats | None = None,
    ) -> "Devices":
        """Return the batch with other active edges; parameters are the attributes of the same names."""
        degrees = np.bincount(self.sources[active_edges], minlength=len(self))
        return replace(
            self,
            active_edges=active_edges,
            degrees=degrees,
            neighbor_degrees=neighbor_degrees,
            averaging_weights=averaging_weights,
            neighbor_mean_weights=neighbor_mean_weights,
        )

    def at_stage_start(self, active_devices: Mask) -> "Devices":
        """Return the batch at the initial exchange of a stage."""
        return self.at_turn(0, 0, active_devices)

    @cached_property
    def active(self) -> Integers:
        """Positions of the active devices, int64[a], ascending."""
        return np.flatnonzero(self.active_devices)

    def at_turn(self, round: int, turn: int, active_devices: Mask) -> "Devices":
        """Return the batch in a turn of a round; cached properties of points and links stay valid and are kept."""
        batch = self._with(round=round, turn=turn, active_devices=active_devices)
        vars(batch).pop("active", None)
        return batch

    def on_grid(self, grid: Grid) -> "Devices":
        """Return the batch with a grid; cached properties are kept."""
        return self._with(grid=grid)

    def _with(self, **changes: Any) -> "Devices":
        """Copy the batch with changed fields, cached properties included."""
        # `replace` would assign all fields and drop the cached properties, in every turn. Change only fields on which
        # no cached property depends, except `active`: round, turn, active_devices, grid.
        changed = object.__new__(Devices)
        object.__setattr__(changed, "__dict__", vars(self) | changes)
        return changed

    def kmeans(self, k: int, purpose: int, *, starts: int, limit: int = 300, greedy: bool = True) -> tuple[
        Floats, Floats, Floats
    ]:  # fmt: skip
        """Run weighted k-means on the local points of every device, see `p2pkm.kernels.reference.kmeans`."""
        points, weights, offsets = self.kernel_inputs
        tols = np.zeros(len(self))
        return self.kernels.kmeans(
            points, weights, weights, offsets, k, trials(k, greedy), starts, limit, tols, self.keys, int(purpose), 0
        )

    def refine(self, start: Floats, limit: int, *, fill: bool = False) -> tuple[Floats, Floats, Floats]:
        """Run at most `limit` Lloyd steps on the local points of every device, see `p2pkm.kernels.reference.refine`.

        In `start`, float64[n, k, d], present rows must precede absent ones.
        """
        rows = (start[:, :, 0] < np.inf).sum(axis=1)
        tols = np.zeros(len(self))
        return self.kernels.refine(*self.kernel_inputs, start, rows, limit, tols, fill)

    def count_members(self, centroids: Floats, counts: Floats) -> Integers:
        """Count the local points nearest to each centroid, int64[n, k]; `counts` is their weight, float64[n, k]."""
        _, weights, offsets = self.kernel_inputs
        if not len(weights):
            return counts.astype(np.int64)
        _, labels = self.kernels.losses(*self.kernel_inputs, centroids)
        rows: Integers = self.kernels.count_class_labels(offsets, np.zeros_like(labels), labels, 1, centroids.shape[1])
        return rows[:, 0]

    def pooled_kmeans(
        self, tables: Sequence[Floats], k: int, purpose: int, *, starts: int, limit: int, first: int
    ) -> Floats:
        """Run weighted k-means on each table of weighted rows, with the shared key.

        Parameters
        ----------
        tables : sequence of float64[r, d + 1]
            Rows; the last column is the weight.
        k, purpose, starts, limit, first
            As in `Search`.

        Returns
        -------
        float64[t, k, d]
        """
        return self.prepare_kmeans(tables, k, purpose, limit)(starts, first)

    def prepare_kmeans(
        self, tables: Sequence[Floats], k: int, purpose: int, limit: int
    ) -> Callable[[int, int], Floats]:
        """Return `pooled_kmeans` as a function of `starts` and `first`, for many searches in the same tables."""
        offsets = np.cumsum([0, *map(len, tables)])
        weighted_rows = np.concatenate(tables)
        points = np.ascontiguousarray(weighted_rows[:, :-1])
        weights = np.ascontiguousarray(weighted_rows[:, -1])
        tols = np.zeros(len(tables))
        keys = np.full(len(tables), self.shared_key, np.uint64)
        attempts = trials(k, True)

        def search(starts: int, first: int) -> Floats:
            centroids, _, _ = self.kernels.kmeans(
                points, weights, weights, offsets, k, attempts, starts, limit, tols, keys, int(purpose), first
            )
            return centroids

        return search


class Search(NamedTuple):
    """Search options of one k-means run.

    Attributes
    ----------
    k, purpose : int
        Number of clusters; purpose of the random stream, see `Stream`.
    starts, limit : int
        Number of k-means++ seedings, of which the one with the lowest cost is returned; largest number of Lloyd steps.
    greedy : bool
        Whether each k-means++ draw takes the best of several candidates.
    tol : float
        Stop when the sum of the squared moves of a step is below this.
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
    """Run weighted k-means on one table of weighted rows.

    Parameters
    ----------
    key : int
        Key of the random stream.
    points : float64[m, d]
    weights : float64[m]
    search : Search
    odds : float64[m], optional
        Weight of each row in the k-means++ draws; default: `weights`.

    Returns
    -------
    centroids : float64[k, d]
        Rows beyond the number of distinct points are +inf.
    counts : float64[k]
    cost : float
    """
    points = np.ascontiguousarray(points)
    weights = np.ascontiguousarray(weights)
    table = points, weights, weights if odds is None else odds, np.array([0, len(points)])
    k, purpose, starts, limit, greedy, tol, first = search
    centroids, counts, costs = kernels.kmeans(
        *table, k, trials(k, greedy), starts, limit, np.array([tol]), np.array([key], np.uint64), int(purpose), first
    )
    return centroids[0], counts[0], float(costs[0])


def trials(k: int, greedy: bool = True) -> int:
    """Return the number of candidates of a k-means++ draw: 2 + floor(ln k) if greedy, else 1."""
    return 2 + int(math.log(k)) if greedy else 1
