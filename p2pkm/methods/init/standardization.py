"""Mean and variance of all points for standard scaling, without a server."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.expected_messages import Flooding, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks.flooding import Flood, begin, distinct_collections, receive, send


@register("standardization")
class StandardizationState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Always +inf: the stage finds no centroids.
    converged : bool[n]
    mean, deviation : float64[n, d]
        Mean and standard deviation of each feature; 0 and 1 until the device has merged all rows.
    flood : Flood
    """

    centroids: Floats
    converged: Mask
    mean: Floats
    deviation: Floats
    flood: Flood

    @property
    def scaling(self) -> tuple[Floats, Floats]:
        """Shift and span of standard scaling, each float64[n, d]."""
        return self.mean, self.deviation


@dataclass(frozen=True)
class Standardization(MethodBase):
    """Mean and standard deviation of each feature over all devices, by flooding.

    Attributes
    ----------
    k : int
        Number of clusters.

    Notes
    -----
    **Update.** Every device merges the moments of all devices in ascending id of their origin [1]_. A device with
    weight w, mean u and sum of squared deviations q changes ``M2`` to ``M2 + q + (u - mean)^2 W w / (W + w)``. This
    avoids the cancellation of a plain sum of squares.

    **Messages.** One row (weight, mean, squared deviations) of 2 d + 1 columns per device with points, flooded. The id
    of the origin is not counted.

    **Privacy.** No guarantee. Every device receives the moments of every device. Those of one point are that point;
    those of two points reveal both, coordinate by coordinate. With a `min_cluster_size` p a device with at most p
    points sends none.

    References
    ----------
    .. [1] T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
       variances", 1979.
    """

    name: ClassVar[str] = "standardization"
    traits: ClassVar[MethodTraits] = MethodTraits()
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> Flooding:
        """Count the moments of every device."""
        return Flooding(1, 2 * known.features + 1)

    def initial_state(self, devices: Devices, start: Any) -> StandardizationState:
        """Compute the moments of the local points."""
        n, d = len(devices), devices.d
        owner = np.repeat(np.arange(n), devices.sizes)
        weights, points = devices.point_weights, devices.stored
        weight = _sum(owner, weights, n)
        divisors = np.where(weight > 0, weight, 1.0)
        mean = np.stack([_sum(owner, weights * x, n) / divisors for x in points.T], axis=1)
        squares = np.stack([_sum(owner, weights * x * x, n) for x in (points - mean[owner]).T], axis=1)
        table = np.concatenate((weight[:, None], mean, squares), axis=1)[:, None, :]
        threshold = devices.min_count if devices.min_count > 1 else 0
        flood = begin(devices, table, (devices.sizes > threshold).astype(np.int64))
        absent = np.full((n, self.k, d), np.inf)
        return StandardizationState(absent, np.zeros(n, np.bool_), np.zeros((n, d)), np.ones((n, d)), flood)

    def message(self, state: StandardizationState, devices: Devices) -> DenseMessages:
        """Forward the moments received in the last turn."""
        return send(state.flood, devices)

    def update(self, state: StandardizationState, inbox: Inbox, devices: Devices) -> StandardizationState:
        """Store received moments; merge all of them if none was new."""
        flood = receive(state.flood, inbox, devices)
        ready = np.logical_not(flood.new_origins.any(axis=1))
        members = np.flatnonzero(ready & ~state.converged)
        mean, deviation = state.mean.copy(), state.deviation.copy()
        if len(members):
            collections, numbers = distinct_collections(flood, members)
            merged = np.array([_merge(rows, devices.d) for rows in collections])[numbers]
            mean[members], deviation[members] = merged[:, 0], merged[:, 1]
        return StandardizationState(state.centroids, ready, mean, deviation, flood)


def _sum(owner: Any, values: Floats, n: int) -> Floats:
    """Add values by owner, in their order, float64[n]."""
    return np.bincount(owner, weights=values, minlength=n).astype(np.float64)


def _merge(rows: Floats, d: int) -> tuple[Floats, Floats]:
    """Merge rows (weight, mean, squared deviations) into mean and standard deviation, each float64[d]."""
    total, mean, squares = 0.0, np.zeros(d), np.zeros(d)
    for row in rows:
        weight, difference = row[0], row[1 : 1 + d] - mean
        squares = squares + row[1 + d :] + difference * difference * (total * weight / (total + weight))
        mean = mean + difference * (weight / (total + weight))
        total += weight
    return mean, np.sqrt(squares / total) if total else np.ones(d)
