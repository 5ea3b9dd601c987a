"""Fuzzy c-means on every device."""

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, _squared, find_nearest


def _memberships(points, centroids, halvings):
    """Compute the memberships of every point; 1 for the first centroid that coincides with the point."""
    distances = _squared(points, centroids)
    nearest, lowest = find_nearest(distances)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = lowest[:, None] / distances
        for _ in range(halvings):
            ratios = ratios * ratios
        members = ratios / np.cumsum(ratios, axis=1)[:, -1:]
    coincides = lowest == 0.0
    members[coincides] = nearest[coincides, None] == np.arange(len(centroids))
    return members


def _fuzzy(points, weights, centroids, limit, tol, halvings):
    """Run fuzzy c-means on a device with points; return centroids and supports."""
    members = _memberships(points, centroids, halvings)
    for _ in range(limit):
        before = members
        roots = members
        for _ in range(halvings):
            roots = np.sqrt(roots)
        masses = weights[:, None] * (members * roots)
        divisors = np.cumsum(masses, axis=0)[-1]
        # + 0.0 turns -0.0 into 0.0, as in the compiled kernel, whose sums start at 0.0.
        sums = np.stack([np.cumsum(masses * x[:, None], axis=0)[-1] for x in points.T], axis=1) + 0.0
        filled = divisors > 0.0
        centroids = centroids.copy()
        centroids[filled] = sums[filled] / divisors[filled, None]
        members = _memberships(points, centroids, halvings)
        moves = members - before
        if np.cumsum(weights[:, None] * (moves * moves))[-1] < tol * tol:
            break
    return centroids, np.cumsum(weights[:, None] * members, axis=0)[-1]


def fuzzy_cmeans(points, weights, offsets, start, rows, limit, tol, halvings):
    """Run fuzzy c-means (Bezdek 1981) with exponent ``m = 1 + 2^-halvings`` on every device from initial centroids.

    Alternates memberships ``u_rc = 1 / sum_b (|x_r - c|^2 / |x_r - b|^2)^(1 / (m - 1))`` and centroids
    ``sum_r u_rc^m x_r / sum_r u_rc^m``. A centroid without memberships does not move. Such an exponent needs products
    and square roots only, which are equal on all processors, unlike powers.

    Parameters
    ----------
    points, weights, offsets
        As in `kmeans`.
    start : float64[n, k, d]
    rows : int64[n]
        Number of present rows of each device; the others stay absent.
    limit : int
        Largest number of updates of the centroids.
    tol : float
        Stop when the change of the memberships is below this (Frobenius norm, weighted by points).
    halvings : int
        0: exponent 2.

    Returns
    -------
    centroids : float64[n, k, d]
    supports : float64[n, k]
        Weighted sum of the memberships of each returned centroid.
    """
    points, weights = _plain(points, weights)
    centroids, supports = np.full_like(start, np.inf), np.zeros(start.shape[:2])
    for i, r in enumerate(rows):
        span = slice(offsets[i], offsets[i + 1])
        centroids[i, :r] = start[i, :r]
        if r > 0 and offsets[i] < offsets[i + 1]:
            device = points[span], weights[span], start[i, :r]
            centroids[i, :r], supports[i, :r] = _fuzzy(*device, limit, tol, halvings)
    return centroids, supports
