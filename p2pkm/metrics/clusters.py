"""What a run answers: the clusters of all devices under one numbering, in the units of the data."""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.brief import short_repr
from p2pkm.core.sorting import find_distinct
from p2pkm.metrics.clustering import pair_one_to_one

_COMPARED = 1 << 22  # squared distances that are held at once


class Clusters(NamedTuple):
    """The clusters of all devices, numbered alike: row c is cluster c on every device.

    Attributes
    ----------
    number : int64[n, k]
        Cluster of each row of `Result.centroids`.
    centroids : float64[n, k, d]
        In the units of the data; absent ones are +inf.
    points : int64[n, k] or None
        Points that each device assigns to the cluster; None of runs that are too large for it.
    means, deviations : float64[n, k, d] or None
        Mean and standard deviation of these points, in the units of the data; NaN where there are none.
    """

    number: Integers
    centroids: Floats
    points: Integers | None
    means: Floats | None
    deviations: Floats | None

    def __repr__(self) -> str:
        return short_repr(self)

    def pool(self) -> Floats:
        """Return one centroid per cluster, float64[k, d]: the mean over devices, weighted by their points.

        Where nobody has points, all devices that have the centroid weigh the same; +inf where nobody has one.
        """
        there: Mask = self.centroids[:, :, 0] < np.inf
        weights = np.where(there, 1.0 if self.points is None else self.points, 0.0)
        weights = np.where(weights.sum(axis=0) > 0, weights, there.astype(np.float64))
        total: Floats = weights.sum(axis=0)
        rows = np.where(np.expand_dims(there, 2), self.centroids, 0.0)
        pooled = (weights[:, :, None] * rows).sum(axis=0) / np.expand_dims(np.where(total > 0, total, 1.0), 1)
        return np.where(np.expand_dims(total > 0, 1), pooled, np.inf)


def number_clusters(centroids: Floats, reference: Floats) -> Integers:
    """Return the number of each row of every device: the row of a reference that it is matched with, int64[n, k].

    Rows are matched one to one with the least sum of squared distances; those without a partner, absent ones among
    them, get the numbers that are left, in ascending order.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Absent rows are +inf.
    reference : float64[k, d]
    """
    n, k, _ = centroids.shape
    numbers = np.tile(np.arange(k), (n, 1))
    goal = np.flatnonzero(reference[:, 0] < np.inf)
    if not len(goal):
        return numbers
    step = max(1, _COMPARED // (k * max(len(goal), 1)))
    for first in range(0, n, step):
        for i, costs in enumerate(_compare(centroids[first : first + step], reference[goal]), first):
            numbers[i] = _match(costs, goal, k)
    return numbers


def _compare(centroids: Floats, reference: Floats) -> Floats:
    """Return squared distances, float64[n, k, r]; inf of absent rows."""
    squared = np.zeros((*centroids.shape[:2], len(reference)))
    for feature in range(centroids.shape[2]):
        squared += (centroids[:, :, feature, None] - reference[:, feature]) ** 2
    return squared


def _match(costs: Floats, goal: Integers, k: int) -> Integers:
    """Return the numbers of the rows of one device."""
    real = np.flatnonzero(costs[:, 0] < np.inf)
    nearest = costs[real].argmin(axis=1)
    own = np.arange(len(real))
    if len(find_distinct(nearest)) < len(real):  # else nothing is cheaper
        own, nearest = pair_one_to_one(costs[real])
    numbers = np.full(k, -1)
    numbers[real[own]] = goal[nearest]
    numbers[numbers < 0] = np.delete(np.arange(k), numbers[numbers >= 0])
    return numbers


def arrange(values: Any, numbers: Integers) -> Any:
    """Return values[n, k, ...] of the rows of each device in the order of the clusters' numbers."""
    order = np.argsort(numbers, axis=1)
    return np.take_along_axis(values, order.reshape(order.shape + (1,) * (values.ndim - 2)), axis=1)
