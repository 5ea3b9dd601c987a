"""Coordinate descent on k-means."""

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, _squared, _sums, find_nearest, measure_distances

# Points whose best moves are computed together.
_BLOCK = 64


def _best_moves(points, weights, labels, centroids, mass, members):
    """Find the cheapest cluster of each point; its present one if no other is better or if it is the only member."""
    rows = np.arange(len(points))
    distances = _squared(points, centroids)
    costs = mass / (mass + weights[:, None]) * distances
    costs[rows, labels] = np.inf
    best = np.argmin(costs, axis=1)
    is_free = (members[labels] > 1) & (mass[labels] > weights)
    rest = np.where(is_free, mass[labels] - weights, 1.0)
    return np.where(is_free & (costs[rows, best] < mass[labels] / rest * distances[rows, labels]), best, labels)


def cdkm(points, weights, start, limit):
    """Run coordinate descent on k-means (Nie et al. 2022) on one table of points from initial centroids.

    Points are first assigned to the nearest centroid. Then points move one at a time, in order and repeatedly: a point
    of weight u in cluster p with other members moves to the cheapest cluster q (lowest index on ties) if
    ``n_q / (n_q + u) |x - w_q|^2 < n_p / (n_p - u) |x - w_p|^2``, with weights n and means w of the clusters.

    Parameters
    ----------
    points : float64[m, d]
    weights : float64[m]
    start : float64[k, d]
        All rows are present.
    limit : int
        Largest number of passes over the points; ends after a pass without moves. Means are recomputed before each
        pass.

    Returns
    -------
    centroids : float64[k, d]
        Means of the clusters.
    cost : float
        Sum of weighted squared distances of points to the mean of their cluster.
    """
    points, weights = _plain(points, weights)
    centroids = start.copy()
    k = len(start)
    labels, _ = find_nearest(measure_distances(points, centroids))
    moved = True
    for sweep in range(limit + 1):
        sums, mass = _sums(points, weights, labels, k)
        members = np.bincount(labels, minlength=k)
        centroids[members > 0] = sums[members > 0] / mass[members > 0, None]
        if sweep == limit or not moved:
            break
        moved = False
        r = 0
        # All points up to the first one that moves see the same clusters, so a block is computed at once.
        while r < len(points):
            block = slice(r, r + _BLOCK)
            best = _best_moves(points[block], weights[block], labels[block], centroids, mass, members)
            movers = np.flatnonzero(best != labels[block])
            if len(movers) == 0:
                r += _BLOCK
                continue
            r += int(movers[0])
            for c, sign in ((labels[r], -1), (best[movers[0]], 1)):
                members[c] += sign
                mass[c] += sign * weights[r]
                sums[c] += sign * (weights[r] * points[r])
                centroids[c] = sums[c] / mass[c]
            moved = True
            labels[r] = best[movers[0]]
            r += 1
    lowest = _squared(points, centroids)[np.arange(len(points)), labels]
    return centroids, np.cumsum(np.append(0.0, weights * lowest))[-1]
