"""Fuzzy c-means on every device."""

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, _squared, find_nearest


def _memberships(points, centroids):
    """Return the memberships of every point, exponent 2: 1 at the first centroid that it lies on."""
    distances = _squared(points, centroids)
    nearest, lowest = find_nearest(distances)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = lowest[:, None] / distances
        members = shares / np.cumsum(shares, axis=1)[:, -1:]
    on = lowest == 0.0
    members[on] = nearest[on, None] == np.arange(len(centroids))
    return members


def _fuzzy(points, weights, centroids, limit, tol):
    """Run fuzzy c-means on one device that has points; return centroids and supports."""
    members = _memberships(points, centroids)
    for _ in range(limit):
        before, masses = members, weights[:, None] * (members * members)
        divisors = np.cumsum(masses, axis=0)[-1]
        sums = np.stack([np.cumsum(masses * x[:, None], axis=0)[-1] for x in points.T], axis=1) + 0.0  # no -0.0
        filled = divisors > 0.0
        centroids = centroids.copy()
        centroids[filled] = sums[filled] / divisors[filled, None]
        members = _memberships(points, centroids)
        moves = members - before
        if np.cumsum(weights[:, None] * (moves * moves))[-1] < tol * tol:
            break
    return centroids, np.cumsum(weights[:, None] * members, axis=0)[-1]


def fuzzy(points, weights, offsets, start, rows, limit, tol):
    """Run fuzzy c-means (Bezdek 1981) with exponent 2 on every device from given centroids.

    Memberships ``u_rc = 1 / sum_b |x_r - c|^2 / |x_r - b|^2`` and centroids ``sum_r u_rc^2 x_r / sum_r u_rc^2`` in
    turn; a centroid without any membership stays where it is.

    Parameters
    ----------
    points, weights, offsets
        As in `kmeans`.
    start : float64[n, k, d]
    rows : int64[n]
        How many of them are real; the others stay absent.
    limit : int
        At most so many updates of the centroids.
    tol : float
        Stop when the memberships moved by less, in the Frobenius norm (a point counts by its weight).

    Returns
    -------
    centroids : float64[n, k, d]
    supports : float64[n, k]
        Weighted sum of the memberships in the returned centroids.
    """
    points, weights = _plain(points, weights)
    centroids, supports = np.full_like(start, np.inf), np.zeros(start.shape[:2])
    for i, r in enumerate(rows):
        own = slice(offsets[i], offsets[i + 1])
        centroids[i, :r] = start[i, :r]
        if r > 0 and offsets[i] < offsets[i + 1]:
            centroids[i, :r], supports[i, :r] = _fuzzy(points[own], weights[own], start[i, :r], limit, tol)
    return centroids, supports
