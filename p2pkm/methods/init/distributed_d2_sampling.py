"""Exact D^2 sampling without a server: the device with the smallest exponential key provides the next centroid."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask, Stream
from p2pkm.core.expected_messages import Known, UntilUnchanged
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.kernels.reference import uniforms


@register("d2-sampling")
class DistributedD2SamplingState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Centroids drawn so far, with the best point of the first draw.
    converged : bool[n]
    candidates : float64[n, q, k, d]
        Centroids drawn so far, with the best point of each draw.
    best : float64[n, q, 1 + d]
        Smallest key received in each draw, and its point; +inf if none.
    has_new : bool[n]
        Devices that received a smaller key in this turn and will send it.
    """

    centroids: Floats
    converged: Mask
    candidates: Floats
    best: Floats
    has_new: Mask


@dataclass(frozen=True)
class DistributedD2Sampling(MethodBase):
    """Draw of centroid `number` of k with D^2 weighting from the points of all devices.

    k of these stages make up k-means++ seeding on the pooled points, for any partition.

    Attributes
    ----------
    k : int
        Number of clusters.
    number : int
        Number of the centroid that is drawn, from 0.
    draws : int
        Independent draws in parallel. If there are several, `SelectCandidate` chooses the one of least cost, as greedy
        k-means++ does.
    local : bool, default=False
        Draw from the centroids of each device's local k-means, weighted by their counts, instead of its points.
    uniform : bool, default=False
        Draw with equal probability among the points that differ from the centroids so far: D is 1 for each of them.

    Notes
    -----
    **Update.**

    1. With phi_i the sum of ``w D^2(x)`` over the points x of device i (D = 1 for the first centroid), device i draws a
       point with probability ``w D^2(x) / phi_i``, and the key ``Exp(1) / phi_i``.
    2. Min-gossip finds the smallest key of all devices. That of device i is the smallest with probability
       ``phi_i / sum phi``, so its point is a draw with weight ``w D^2`` from all points.

    **Messages.** (key, point) of every draw, d + 1 columns, whenever a smaller key was received.

    **Privacy.** No guarantee. Points are sent unchanged to all devices, k of them in total. With ``local=True`` these
    are local centroids.
    """

    name: ClassVar[str] = "d2-sampling"
    traits: ClassVar[MethodTraits] = MethodTraits(message_content=MessageContent.KEYED_POINTS, common_centroids=True)
    k: int
    number: int
    draws: int
    local: bool = False
    uniform: bool = False
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilUnchanged:
        """Count the draws with their keys."""
        return UntilUnchanged(self.draws, known.features + 1, exact=known.least >= 1 and self.number == 0)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Check whether every device is certain to end with k centroids."""
        return known.pools(self.k)

    def initial_state(self, devices: Devices, start: Any) -> DistributedD2SamplingState:
        """Draw local points and their keys."""
        n, d = len(devices), devices.d
        centroids = np.full((n, self.k, d), np.inf) if start is None else start.centroids
        best = np.full((n, self.draws, 1 + d), np.inf)
        points, weights, offsets = self._pool(devices)
        squared = _squared_distances(devices, points, weights, offsets, centroids)
        if self.uniform:
            squared = np.where(squared > 0.0, weights if len(weights) else 1.0, 0.0)
        for i in range(n):
            rows = slice(offsets[i], offsets[i + 1])
            cumulative = np.cumsum(squared[rows])
            if len(cumulative) and cumulative[-1] > 0.0:
                best[i] = self._draw_keyed_points(points[rows], cumulative, int(devices.keys[i]))
        return self._state(centroids, best, np.ones(n, np.bool_))

    def message(self, state: DistributedD2SamplingState, devices: Devices) -> DenseMessages:
        """Send the best points if they changed; a device without any sends an empty table in the initial exchange."""
        rows = np.where(state.best[:, 0, 0] < np.inf, self.draws, 0)
        return DenseMessages(state.best, np.where(state.has_new & devices.active_devices, rows, -1))

    def update(self, state: DistributedD2SamplingState, inbox: Inbox, devices: Devices) -> DistributedD2SamplingState:
        """Keep the smallest key of each draw."""
        best = state.best.copy()
        owner = devices.sources
        for e in np.flatnonzero(inbox.fresh & (inbox.rows_of(slice(None)) > 0)):
            received = inbox.tables_of(e, self.draws, best.shape[2])
            smaller = received[:, 0] < best[owner[e], :, 0]
            best[owner[e]][smaller] = received[smaller]
        return self._state(state.centroids, best, (best != state.best).any(axis=(1, 2)))

    def _pool(self, devices: Devices) -> tuple[Floats, Floats, Integers]:
        """Compute the rows to draw from: the local points, or the local centroids with their counts."""
        if not self.local:
            return devices.kernel_inputs
        centroids, counts, _ = devices.kmeans(self.k, Stream.SUMMARY, starts=3)
        real = counts > 0.0
        return centroids[real], counts[real], np.concatenate(([0], np.cumsum(real.sum(axis=1))))

    def _draw_keyed_points(self, points: Floats, cumulative: Floats, key: int) -> Floats:
        """Draw a key and a point for each draw of one device, float64[draws, 1 + d]."""
        draws = uniforms(key, Stream.D2_SAMPLING, [self.number], 2 * self.draws)[0]
        chosen = np.searchsorted(cumulative, draws[: self.draws] * cumulative[-1], side="right")
        # The product may round up to the total. Then the last point of positive weight is chosen.
        chosen = np.minimum(chosen, np.searchsorted(cumulative, cumulative[-1]))
        keys = [-math.log(1.0 - draw) / cumulative[-1] for draw in draws[self.draws :]]
        return np.column_stack((keys, points[chosen]))

    def _state(self, centroids: Floats, best: Floats, changed: Mask) -> DistributedD2SamplingState:
        """Create the state whose next centroid is the best point of each draw."""
        candidates = np.repeat(centroids[:, None], self.draws, axis=1)
        candidates[:, :, self.number] = best[:, :, 1:]
        return DistributedD2SamplingState(candidates[:, 0].copy(), ~changed, candidates, best, changed)


def _squared_distances(
    devices: Devices, points: Floats, weights: Floats, offsets: Integers, centroids: Floats
) -> Floats:
    """Compute each point's weighted squared distance to its device's nearest centroid; its weight if there is none."""
    _, labels = devices.kernels.losses(points, weights, offsets, centroids)
    owner = np.repeat(np.arange(len(devices)), np.diff(offsets))
    labeled = labels >= 0
    squared = np.where(labeled, 0.0, 1.0)
    for f in range(points.shape[1]):
        difference = points[labeled, f] - centroids[owner[labeled], labels[labeled], f]
        squared[labeled] += difference * difference
    return weights * squared if len(weights) else squared
