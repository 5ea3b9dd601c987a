"""Breathing k-means on weighted rows: add centroids where the cost is large, remove those of least utility."""

import numpy as np

from p2pkm.core.batch import Stream
from p2pkm.kernels.reference.kmeans import refine
from p2pkm.kernels.reference.nearest import _squared
from p2pkm.kernels.reference.philox import uniforms

# The following numbers are part of the result; keep them equal to those of `p2pkm.kernels.numba.breathing`.
# Largest offset of a coordinate of an added centroid, in root mean square distances of rows to centroids.
_OFFSET = 0.05
# Smallest relative decrease of the cost for which a trial is accepted.
_MIN_DECREASE = 1e-6
# Largest number of Lloyd steps.
_LIMIT = 300
# Numbers of the random stream that are reserved for one search.
_TRIALS = 1 << 16


def breathe(points, weights, start, most, key, number):
    """Improve centroids by breathing k-means [1]_.

    A trial adds m centroids next to those of largest error, runs Lloyd's algorithm to convergence, removes m centroids
    of small utility and runs Lloyd's algorithm again. It is accepted if the cost decreases by more than 1e-6 of its
    value. Otherwise m decreases by 1, from `most` to 0. Each coordinate of an added centroid differs by up to 0.05 root
    mean square distances, uniformly at random.

    Parameters
    ----------
    points : float64[m, d]
    weights : float64[m]
    start : float64[k, d]
        Absent centroids are +inf, and remain absent.
    most : int
        Number of centroids that the first trial adds.
    key, number : int
        Key of the random stream, and number of the search in it.

    Returns
    -------
    centroids : float64[k, d]
        Converged centroids.
    cost : float
        At most the cost of `start`.

    References
    ----------
    .. [1] B. Fritzke, "The breathing k-means algorithm", 2020, arXiv:2006.15666.
    """
    real = np.isfinite(start[:, 0])
    best, cost = _run_lloyd(points, weights, start[real])
    k = len(best)
    m = min(most, k) if k > 1 else 0
    trial = 0
    while m > 0 and cost > 0.0:
        spread = np.sqrt(cost / np.cumsum(weights)[-1])
        draws = uniforms(key, Stream.BREATHE, [number * _TRIALS + trial], m * best.shape[1])[0].reshape(m, -1)
        offsets = _OFFSET * spread * (2.0 * draws - 1.0)
        added = add_centroids(best, centroid_errors(points, weights, best), offsets)
        larger, _ = _run_lloyd(points, weights, added)
        remaining = survivors(larger, utilities(points, weights, larger), len(larger) - k)
        candidate, candidate_cost = _run_lloyd(points, weights, larger[remaining])
        if candidate_cost < cost * (1.0 - _MIN_DECREASE):
            best, cost = candidate, candidate_cost
        else:
            m -= 1
        trial += 1
    centroids = np.full_like(start, np.inf)
    centroids[: len(best)] = best
    return centroids, cost


def centroid_errors(points, weights, centroids):
    """Compute the cost of each centroid's rows, ``phi_c = sum of weight x squared distance``, float64[k]."""
    labels, nearest, _ = _nearest_two(points, centroids)
    return _sum(labels, weights * nearest, len(centroids))


def utilities(points, weights, centroids):
    """Compute the increase of the cost if each centroid is removed and the others do not move, float64[k].

    ``U_c = sum over its rows of weight x (squared distance to the second nearest centroid - to the nearest)``.
    """
    labels, nearest, second = _nearest_two(points, centroids)
    return _sum(labels, weights * (second - nearest), len(centroids))


def add_centroids(centroids, phi, offsets):
    """Add a centroid next to each of those with the largest error, float64[k + m, d], in descending order of error.

    Parameters
    ----------
    phi : float64[k]
        See `centroid_errors`.
    offsets : float64[m, d]
        At most k offsets.
    """
    largest = np.argsort(-phi, kind="stable")[: len(offsets)]
    return np.concatenate((centroids, centroids[largest] + offsets[: len(largest)]))


def survivors(centroids, utility, m):
    """Select the centroids that remain if m are removed, int64[k - m] ascending.

    Centroids are removed in ascending order of utility. The nearest remaining neighbor of a removed centroid is
    protected, as long as enough others can be removed, so that no region loses two centroids in one trial.

    Parameters
    ----------
    utility : float64[k]
        See `utilities`.
    """
    k = len(centroids)
    distances = _squared(centroids, centroids)
    np.fill_diagonal(distances, np.inf)
    is_removed = np.zeros(k, np.bool_)
    is_protected = np.zeros(k, np.bool_)
    for c in np.argsort(utility, kind="stable"):
        if is_removed.sum() == m:
            break
        if is_protected[c]:
            continue
        is_removed[c] = True
        if is_protected.sum() + m < k:
            is_protected[np.argmin(np.where(is_removed, np.inf, distances[c]))] = True
    return np.flatnonzero(~is_removed)


def _nearest_two(points, centroids):
    """Find the nearest centroid of each row, and the squared distances to it and to the second nearest."""
    distances = _squared(points, centroids)
    labels = np.argmin(distances, axis=1)
    smallest = np.partition(distances, 1, axis=1)
    return labels, smallest[:, 0], smallest[:, 1]


def _sum(labels, values, k):
    """Add the values of each label, in order, float64[k]."""
    return np.bincount(labels, weights=values, minlength=k).astype(np.float64, copy=False)


def _run_lloyd(points, weights, start):
    """Run Lloyd's algorithm to convergence: centroids, float64[k, d], and their cost."""
    offsets, rows = np.array([0, len(points)]), np.array([len(start)])
    centroids, _, costs = refine(points, weights, offsets, start[None], rows, _LIMIT, np.zeros(1), True)
    return centroids[0], float(costs[0])
