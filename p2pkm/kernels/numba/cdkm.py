"""Compiled coordinate descent on k-means: one point moves at a time."""

import numpy as np

from p2pkm.kernels.numba.compiling import helper, kernel
from p2pkm.kernels.numba.kmeans import _assign, _collect, _squared
from p2pkm.kernels.numba.nearest import _room


@helper(inline="always")
def _average(points, weights, labels, centroids, sums, mass, members, room):
    """Write down means, sums, weights and numbers of points of the clusters; an empty cluster stays where it is."""
    _collect(points, weights, centroids.shape[0], labels, sums, mass, room)
    members[:] = 0
    for label in labels:
        members[label] += 1
    for c in range(centroids.shape[0]):
        if members[c] > 0:
            for f in range(points.shape[1]):
                centroids[c, f] = sums[c, f] / mass[c]


@helper(inline="always")
def _best_move(point, weight, p, centroids, mass):
    """Return the cluster in which the point costs least, p itself if none is better."""
    best, lowest = p, mass[p] / (mass[p] - weight) * _squared(point, centroids[p])
    for q in range(centroids.shape[0]):
        if q != p:
            price = mass[q] / (mass[q] + weight) * _squared(point, centroids[q])
            if price < lowest:
                best, lowest = q, price
    return best


@kernel
def cdkm(points, weights, start, limit):
    """Run coordinate descent on one table of points; see `p2pkm.kernels.reference.cdkm`."""
    m, d = points.shape
    centroids, sums = start.copy(), np.empty_like(start)
    mass, members = np.empty(len(start)), np.empty(len(start), np.int64)
    labels, distances, room = np.full(m, -1), np.empty(m), _room(len(start), d)
    moved = _assign(points, weights, centroids, len(start), np.inf, labels, distances, sums, mass, room)
    for sweep in range(limit + 1):
        _average(points, weights, labels, centroids, sums, mass, members, room)
        if sweep == limit or not moved:
            break
        moved = False
        for r in range(m):
            p = labels[r]
            if members[p] == 1 or not mass[p] > weights[r]:
                continue
            q = _best_move(points[r], weights[r], p, centroids, mass)
            if q != p:
                moved = True
                labels[r] = q
                members[p] -= 1
                members[q] += 1
                mass[p] -= weights[r]
                mass[q] += weights[r]
                for f in range(d):
                    sums[p, f] -= weights[r] * points[r, f]
                    sums[q, f] += weights[r] * points[r, f]
                    centroids[p, f] = sums[p, f] / mass[p]
                    centroids[q, f] = sums[q, f] / mass[q]
    cost = 0.0
    for r in range(m):
        cost += weights[r] * _squared(points[r], centroids[labels[r]])
    return centroids, cost
