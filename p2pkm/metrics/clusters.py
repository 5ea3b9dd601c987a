"""Clusters of a run: the centroids of all devices with a common numbering, in units of the data."""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.brief import short_repr
from p2pkm.core.sorting import find_distinct
from p2pkm.metrics.clustering import pair_one_to_one

# Squared distances in memory at a time.
_COMPARED = 1 << 22


class Clusters(NamedTuple):
    """Clusters of all devices with a common numbering: row c is cluster c on every device.

    Attributes
    ----------
    number : int64[n, k]
        Cluster of each row of `Result.centroids`.
    centroids : float64[n, k, d]
        Centroids in units of the data; absent ones are +inf.
    points : int64[n, k] or None
        Number of points that each device assigns to the cluster; None for large runs.
    means, deviations : float64[n, k, d] or None
        Mean and standard deviation of these points, in units of the data; NaN without points.
    """

    number: Integers
    centroids: Floats
    points: Integers | None
    means: Floats | None
    deviations: Floats | None

    def __repr__(self) -> str:
        return short_repr(self)

    def pool(self) -> Floats:
        """Compute one centroid per cluster, float64[k, d]: the mean over devices, weighted by their numbers of points.

        For a cluster without points, all devices with this centroid have equal weight. A cluster that is absent on all
        devices is +inf.
        """
        is_present: Mask = self.centroids[:, :, 0] < np.inf
        weights = np.where(is_present, 1.0 if self.points is None else self.points, 0.0)
        weights = np.where(weights.sum(axis=0) > 0, weights, is_present.astype(np.float64))
        total: Floats = weights.sum(axis=0)
        rows = np.where(np.expand_dims(is_present, 2), self.centroids, 0.0)
        pooled = (weights[:, :, None] * rows).sum(axis=0) / np.expand_dims(np.where(total > 0, total, 1.0), 1)
        return np.where(np.expand_dims(total > 0, 1), pooled, np.inf)


def number_clusters(centroids: Floats, reference: Floats) -> Integers:
    """Assign cluster numbers to the centroids of every device by one-to-one matching with a reference, int64[n, k].

    The matching has the smallest sum of squared distances. Centroids without a partner, such as absent ones, get the
    remaining numbers in ascending order.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Models of the devices; absent centroids are +inf.
    reference : float64[k, d]
        Model that defines the numbers.
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
    """Compute squared distances float64[n, k, r]; inf for absent centroids."""
    squared = np.zeros((*centroids.shape[:2], len(reference)))
    for feature in range(centroids.shape[2]):
        squared += (centroids[:, :, feature, None] - reference[:, feature]) ** 2
    return squared


def _match(costs: Floats, goal: Integers, k: int) -> Integers:
    """Assign cluster numbers to the centroids of a device, given their costs for the reference rows `goal`."""
    real = np.flatnonzero(costs[:, 0] < np.inf)
    nearest = costs[real].argmin(axis=1)
    rows = np.arange(len(real))
    # If the nearest reference rows are distinct, they are the optimal matching.
    if len(find_distinct(nearest)) < len(real):
        rows, nearest = pair_one_to_one(costs[real])
    numbers = np.full(k, -1)
    numbers[real[rows]] = goal[nearest]
    numbers[numbers < 0] = np.delete(np.arange(k), numbers[numbers >= 0])
    return numbers


def arrange(values: Any, numbers: Integers) -> Any:
    """Sort values[n, k, ...] of the centroids of each device by cluster number."""
    order = np.argsort(numbers, axis=1)
    return np.take_along_axis(values, order.reshape(order.shape + (1,) * (values.ndim - 2)), axis=1)
