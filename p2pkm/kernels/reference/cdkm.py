"""k-means by coordinate descent."""

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, _squared, _sums, find_nearest, measure_distances

_BLOCK = 64  # points that coordinate descent looks at together


def _best_moves(points, weights, labels, centroids, mass, members):
    """Return the cluster in which each point costs least; its own if none is better, or if it is alone there."""
    each, distances = np.arange(len(points)), _squared(points, centroids)
    prices = mass / (mass + weights[:, None]) * distances
    prices[each, labels] = np.inf
    best, free = np.argmin(prices, axis=1), (members[labels] > 1) & (mass[labels] > weights)
    rest = np.where(free, mass[labels] - weights, 1.0)
    return np.where(free & (prices[each, best] < mass[labels] / rest * distances[each, labels]), best, labels)


def cdkm(points, weights, start, limit):
    """Run coordinate descent on k-means (Nie et al. 2022) on one table of points from given centroids.

    From the nearest centroids and the means of what is nearest, the points in order, again and again: a point that is
    not alone in its cluster p goes to the cheapest q (lowest index on ties) if ``n_q / (n_q + u) |x - w_q|^2`` is less
    than ``n_p / (n_p - u) |x - w_p|^2``, u its weight, n and w weights and means of the clusters.

    Parameters
    ----------
    points : float64[m, d]
    weights : float64[m]
    start : float64[k, d]
        No row is absent.
    limit : int
        At most so many sweeps over the points; fewer when a sweep moves none. Means are computed anew before each.

    Returns
    -------
    centroids : float64[k, d]
        The means of the clusters.
    cost : float
        Of every point to the mean of its cluster.
    """
    centroids, k, (points, weights) = start.copy(), len(start), _plain(points, weights)
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
        while r < len(points):  # the points up to the first that moves see the same clusters
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
            moved, labels[r] = True, best[movers[0]]
            r += 1
    lowest = _squared(points, centroids)[np.arange(len(points)), labels]
    return centroids, np.cumsum(np.append(0.0, weights * lowest))[-1]
