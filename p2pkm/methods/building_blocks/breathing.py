"""Breathing k-means on weighted rows: rows are added where the cost is large and removed where they are missed least.

All that it needs of the rows are sums per centroid, `errors` and `utilities`, so that devices can add these up, too.
"""

import numpy as np

from p2pkm.core.batch import Floats, Integers, Kernels, Search, Stream, cluster
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.total_variation import squared

_OFFSET = 0.05  # of an added centroid, in root mean square distances
_LEAST = 1e-6  # relative fall of the cost that counts
_LIMIT = 300  # Lloyd steps
_TRIALS = 1 << 16  # numbers of draws that belong to one search


def search(  # noqa: PLR0913 - what a search is made of
    kernels: Kernels, key: int, points: Floats, weights: Floats, k: int, *, most: int, seedings: int, first: int = 0
) -> tuple[Floats, float]:
    """Return the best of some greedy k-means++ seedings, after breathing, and its cost.

    Parameters
    ----------
    key : int
        Of the random stream.
    points : float64[m, d]
    weights : float64[m]
    k, most, seedings : int
        Clusters; centroids that are added at a time, at first; seedings.
    first : int
        Number of the first seeding in the stream.

    Returns
    -------
    centroids : float64[k, d]
        Those beyond the number of distinct rows are +inf.
    cost : float
    """
    points, weights = np.ascontiguousarray(points), np.ascontiguousarray(weights)
    found, _, _ = cluster(kernels, key, points, weights, Search(k, Stream.CLUSTER, seedings, _LIMIT, first=first))
    return breathe(kernels, key, points, weights, found, most=most, number=first)


def breathe(  # noqa: PLR0913 - what a search is made of
    kernels: Kernels, key: int, points: Floats, weights: Floats, start: Floats, *, most: int, number: int = 0
) -> tuple[Floats, float]:
    """Improve centroids by breathing (Fritzke 2020, "The breathing k-means algorithm", arXiv:2006.15666).

    A trial adds m centroids beside those of largest error, runs Lloyd to its end, removes m of small utility and runs
    Lloyd again. It is kept if the cost has fallen by more than 1e-6 relative; otherwise m falls by one, from `most` to
    0. A centroid that is added is off by 0.05 root mean square distances, in a direction drawn from the key.

    Parameters
    ----------
    points : float64[m, d]
    weights : float64[m]
    start : float64[k, d]
        Absent ones are +inf, and stay so.
    number : int
        Of the search in the random stream.

    Returns
    -------
    centroids : float64[k, d]
        Where Lloyd ends.
    cost : float
        At most that of `start`.
    """
    real = np.isfinite(start[:, 0])
    best, cost = _descend(kernels, points, weights, start[real])
    k, m, trial = len(best), min(most, len(best)) if len(best) > 1 else 0, 0
    while m > 0 and cost > 0.0:
        spread = np.sqrt(cost / np.cumsum(weights)[-1])
        draws = uniforms(key, Stream.BREATHE, [number * _TRIALS + trial], m * best.shape[1])[0].reshape(m, -1)
        offsets = _OFFSET * spread * (2.0 * draws - 1.0)
        more, _ = _descend(kernels, points, weights, insert(best, errors(points, weights, best), offsets))
        left = survivors(more, utilities(points, weights, more), len(more) - k)
        tried, now = _descend(kernels, points, weights, more[left])
        if now < cost * (1.0 - _LEAST):
            best, cost = tried, now
        else:
            m -= 1
        trial += 1
    found = np.full_like(start, np.inf)
    found[: len(best)] = best
    return found, cost


def errors(points: Floats, weights: Floats, centroids: Floats) -> Floats:
    """Return what each centroid's rows cost, ``phi_c = sum of weight x squared distance``, float64[k]."""
    labels, nearest, _ = _rank(points, centroids)
    return _sum(labels, weights * nearest, len(centroids))


def utilities(points: Floats, weights: Floats, centroids: Floats) -> Floats:
    """Return by how much the cost rises without each centroid, the others staying where they are, float64[k].

    ``U_c = sum over its rows of weight x (squared distance to the second nearest centroid - to the nearest)``.
    """
    labels, nearest, second = _rank(points, centroids)
    return _sum(labels, weights * (second - nearest), len(centroids))


def insert(centroids: Floats, phi: Floats, offsets: Floats) -> Floats:
    """Add a centroid beside each of those of largest error, float64[k + m, d], the largest first.

    Parameters
    ----------
    phi : float64[k]
        See `errors`.
    offsets : float64[m, d]
        At most k.
    """
    largest = np.argsort(-phi, kind="stable")[: len(offsets)]
    return np.concatenate((centroids, centroids[largest] + offsets[: len(largest)]))


def survivors(centroids: Floats, utility: Floats, m: int) -> Integers:
    """Return which centroids stay when m are removed, int64[k - m] ascending.

    The least useful go first, one by one; the nearest of those that are left of each is safe from then on, as long as
    enough others are left, so that no region loses two at once.

    Parameters
    ----------
    utility : float64[k]
        See `utilities`.
    """
    k = len(centroids)
    apart = squared(centroids, centroids)
    np.fill_diagonal(apart, np.inf)
    removed, safe = np.zeros(k, np.bool_), np.zeros(k, np.bool_)
    for c in np.argsort(utility, kind="stable"):
        if removed.sum() == m:
            break
        if safe[c]:
            continue
        removed[c] = True
        if safe.sum() + m < k:
            safe[np.argmin(np.where(removed, np.inf, apart[c]))] = True
    return np.flatnonzero(~removed)


def _rank(points: Floats, centroids: Floats) -> tuple[Integers, Floats, Floats]:
    """Return the nearest centroid of each row, and the squared distances to it and to the second nearest."""
    distances = squared(points, centroids)
    labels = np.argmin(distances, axis=1)
    two = np.partition(distances, 1, axis=1)
    return labels, two[:, 0], two[:, 1]


def _sum(labels: Integers, values: Floats, k: int) -> Floats:
    """Return the sum of the values of each label, one after the other, float64[k]."""
    return np.bincount(labels, weights=values, minlength=k).astype(np.float64, copy=False)


def _descend(kernels: Kernels, points: Floats, weights: Floats, start: Floats) -> tuple[Floats, float]:
    """Return where Lloyd ends, float64[k, d], and the cost there."""
    whole, rows = np.array([0, len(points)]), np.array([len(start)])
    found, _, costs = kernels.refine(points, weights, whole, start[None], rows, _LIMIT, np.zeros(1), True)
    return found[0], float(costs[0])
