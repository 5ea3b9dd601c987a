"""Exact D^2 sampling without a server: a race in which the smallest exponential key wins."""

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
class RaceState(NamedTuple):
    """The state of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        The seeds so far, with the winner of the first draw of this race.
    converged : bool[n]
    candidates : float64[n, q, k, d]
        The seeds so far, with the winner of each draw.
    best : float64[n, q, 1 + d]
        Smallest key received in each draw, and its point; +inf: none.
    news : bool[n]
    """

    centroids: Floats
    converged: Mask
    candidates: Floats
    best: Floats
    news: Mask


@dataclass(frozen=True)
class DistributedD2Sampling(MethodBase):
    """``min over devices of Exp(1) / phi_i``: seed `number` of k, drawn with D^2 weighting from all points.

    Device i draws one of its points x with probability ``w D^2(x) / phi_i``, phi_i their sum (D^2 = 1 for the first
    seed), and the key ``Exp(1) / phi_i``. The device of the smallest key wins with probability ``phi_i / sum phi``, so
    the winning point is drawn with ``w D^2`` over all points, whatever the partition. The smallest key is found by
    min-gossip, for `draws` draws at once; with several, `SelectCandidate` takes that of least cost: greedy k-means++.

    Message: (key, point) of every draw whenever a smaller key was received, d + 1 columns. It ships raw points to
    every device, k of them in the end; with ``local=True`` the devices draw from the centroids of their own k-means.

    Attributes
    ----------
    k, number, draws : int
    local : bool
    """

    name: ClassVar[str] = "d2-sampling"
    traits: ClassVar[MethodTraits] = MethodTraits(message_content=MessageContent.KEYED_POINTS, common_centroids=True)
    k: int
    number: int
    draws: int
    local: bool = False
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilUnchanged:
        """Return the draws with their keys."""
        return UntilUnchanged(self.draws, known.features + 1, exact=known.least >= 1 and self.number == 0)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device has k centroids in the end, for sure."""
        return known.pools(self.k)

    def initial_state(self, devices: Devices, start: Any) -> RaceState:
        """Draw the own contenders."""
        n, d = len(devices), devices.d
        centroids = np.full((n, self.k, d), np.inf) if start is None else start.centroids
        best = np.full((n, self.draws, 1 + d), np.inf)
        points, weights, offsets = self._pool(devices)
        squared = _squared_distances(devices, points, weights, offsets, centroids)
        for i in range(n):
            own = slice(offsets[i], offsets[i + 1])
            cumulative = np.cumsum(squared[own])
            if len(cumulative) and cumulative[-1] > 0.0:
                best[i] = self._contend(points[own], cumulative, int(devices.keys[i]))
        return self._state(centroids, best, np.ones(n, np.bool_))

    def message(self, state: RaceState, devices: Devices) -> DenseMessages:
        """Send the best contenders if there are new ones; a device that knows of none sends an empty table first."""
        rows = np.where(state.best[:, 0, 0] < np.inf, self.draws, 0)
        return DenseMessages(state.best, np.where(state.news & devices.active_devices, rows, -1))

    def update(self, state: RaceState, inbox: Inbox, devices: Devices) -> RaceState:
        """Keep the smallest key of each draw."""
        best = state.best.copy()
        owner = devices.sources
        for e in np.flatnonzero(inbox.fresh & (inbox.rows_of(slice(None)) > 0)):
            received = inbox.tables_of(e, self.draws, best.shape[2])
            smaller = received[:, 0] < best[owner[e], :, 0]
            best[owner[e]][smaller] = received[smaller]
        return self._state(state.centroids, best, (best != state.best).any(axis=(1, 2)))

    def _pool(self, devices: Devices) -> tuple[Floats, Floats, Integers]:
        """Return what is drawn from: the own points, or the centroids of the own k-means with their counts."""
        if not self.local:
            return devices.kernel_inputs
        centroids, counts, _ = devices.kmeans(self.k, Stream.SUMMARY, starts=3)
        real = counts > 0.0
        return centroids[real], counts[real], np.concatenate(([0], np.cumsum(real.sum(axis=1))))

    def _contend(self, points: Floats, cumulative: Floats, key: int) -> Floats:
        """Return key and point of each draw of one device, float64[draws, 1 + d]."""
        draws = uniforms(key, Stream.D2_SAMPLING, [self.number], 2 * self.draws)[0]
        chosen = np.searchsorted(cumulative, draws[: self.draws] * cumulative[-1], side="right")
        chosen = np.minimum(chosen, np.searchsorted(cumulative, cumulative[-1]))
        keys = [-math.log(1.0 - draw) / cumulative[-1] for draw in draws[self.draws :]]
        return np.column_stack((keys, points[chosen]))

    def _state(self, centroids: Floats, best: Floats, news: Mask) -> RaceState:
        """Return the state in which the best contenders are the next seed."""
        candidates = np.repeat(centroids[:, None], self.draws, axis=1)
        candidates[:, :, self.number] = best[:, :, 1:]
        return RaceState(candidates[:, 0].copy(), ~news, candidates, best, news)


def _squared_distances(
    devices: Devices, points: Floats, weights: Floats, offsets: Integers, centroids: Floats
) -> Floats:
    """Return the weighted squared distance of each point to its device's nearest seed, its weight without any seed."""
    _, labels = devices.kernels.losses(points, weights, offsets, centroids)
    owner = np.repeat(np.arange(len(devices)), np.diff(offsets))
    seeded = labels >= 0
    squared = np.where(seeded, 0.0, 1.0)
    for f in range(points.shape[1]):
        difference = points[seeded, f] - centroids[owner[seeded], labels[seeded], f]
        squared[seeded] += difference * difference
    return weights * squared if len(weights) else squared
