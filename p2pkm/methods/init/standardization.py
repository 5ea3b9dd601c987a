"""Mean and variance of all points, for scaling, without a server."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.expected_messages import Flooding, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks.flooding import Flood, begin, group, receive, send


@register("standardization")
class StandardizationState(NamedTuple):
    """centroids: float64[n, k, d], none yet; converged: bool[n]; mean, deviation: float64[n, d]; flood."""

    centroids: Floats
    converged: Mask
    mean: Floats
    deviation: Floats
    flood: Flood

    @property
    def scaling(self) -> tuple[Floats, Floats]:
        """Return shift and span of standard scaling, each float64[n, d]."""
        return self.mean, self.deviation


@dataclass(frozen=True)
class Standardization(MethodBase):
    """``(W, mean, M2)`` of all points from those of the devices, merged in ascending origin.

    Merging keeps the digits that a plain sum of squares loses: with weight w, mean u and sum of squared deviations q of
    one more device, ``M2 + q + (u - mean)^2 W w / (W + w)`` (Chan, Golub and LeVeque 1979).

    Message: one row (weight, mean, squared deviations) of 2 d + 1 columns per device with points, flooded; the id of
    the origin travels uncounted.

    Privacy: every device sees the moments of every device; those of one point are that point, and those of two points
    are both of them, coordinate by coordinate. With a `min_cluster_size` p a device of at most p points sends none.
    """

    name: ClassVar[str] = "standardization"
    traits: ClassVar[MethodTraits] = MethodTraits()
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> Flooding:
        """Return the moments of every device."""
        return Flooding(1, 2 * known.features + 1)

    def initial_state(self, devices: Devices, start: Any) -> StandardizationState:
        """Measure the own points."""
        n, d = len(devices), devices.d
        owner = np.repeat(np.arange(n), devices.sizes)
        weights, points = devices.point_weights, devices.stored
        weight = _sum(owner, weights, n)
        known = np.where(weight > 0, weight, 1.0)
        mean = np.stack([_sum(owner, weights * x, n) / known for x in points.T], axis=1)
        squares = np.stack([_sum(owner, weights * x * x, n) for x in (points - mean[owner]).T], axis=1)
        table = np.concatenate((weight[:, None], mean, squares), axis=1)[:, None, :]
        most = devices.min_count if devices.min_count > 1 else 0
        flood = begin(devices, table, (devices.sizes > most).astype(np.int64))
        nothing = np.full((n, self.k, d), np.inf)
        return StandardizationState(nothing, np.zeros(n, np.bool_), np.zeros((n, d)), np.ones((n, d)), flood)

    def message(self, state: StandardizationState, devices: Devices) -> DenseMessages:
        """Forward the moments that are news."""
        return send(state.flood, devices)

    def update(self, state: StandardizationState, inbox: Inbox, devices: Devices) -> StandardizationState:
        """Take in moments; merge them if there was nothing new."""
        flood = receive(state.flood, inbox, devices)
        ready = np.logical_not(flood.news.any(axis=1))
        members = np.flatnonzero(ready & ~state.converged)
        mean, deviation = state.mean.copy(), state.deviation.copy()
        if len(members):
            collections, which = group(flood, members)
            merged = np.array([_merge(rows, devices.d) for rows in collections])[which]
            mean[members], deviation[members] = merged[:, 0], merged[:, 1]
        return StandardizationState(state.centroids, ready, mean, deviation, flood)


def _sum(owner: Any, values: Floats, n: int) -> Floats:
    """Return the sums of values by owner, in their order, float64[n]."""
    return np.bincount(owner, weights=values, minlength=n).astype(np.float64)


def _merge(rows: Floats, d: int) -> tuple[Floats, Floats]:
    """Return mean and standard deviation from rows (weight, mean, squared deviations), each float64[d]."""
    total, mean, squares = 0.0, np.zeros(d), np.zeros(d)
    for row in rows:
        weight, difference = row[0], row[1 : 1 + d] - mean
        squares = squares + row[1 + d :] + difference * difference * (total * weight / (total + weight))
        mean = mean + difference * (weight / (total + weight))
        total += weight
    return mean, np.sqrt(squares / total) if total else np.ones(d)
