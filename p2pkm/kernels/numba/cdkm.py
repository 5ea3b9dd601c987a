"""Compiled coordinate descent on k-means."""

import numpy as np

from p2pkm.kernels.numba.compiling import helper, kernel
from p2pkm.kernels.numba.kmeans import _assign, _collect, _squared
from p2pkm.kernels.numba.nearest import _workspace


@helper(inline="always")
def _average(points, weights, labels, centroids, sums, mass, members, workspace):
    """Recompute means, sums, weights and numbers of points of the clusters; empty clusters do not move."""
    _collect(points, weights, centroids.shape[0], labels, sums, mass, workspace)
    members[:] = 0
    for label in labels:
        members[label] += 1
    for c in range(centroids.shape[0]):
        if members[c] > 0:
            for f in range(points.shape[1]):
                centroids[c, f] = sums[c, f] / mass[c]


@helper(inline="always")
def _best_move(point, weight, p, centroids, mass):
    """Find the cheapest cluster of a point in cluster p; p if no other is better."""
    best, lowest = p, mass[p] / (mass[p] - weight) * _squared(point, centroids[p])
    for q in range(centroids.shape[0]):
        if q != p:
            cost = mass[q] / (mass[q] + weight) * _squared(point, centroids[q])
            if cost < lowest:
                best, lowest = q, cost
    return best


@kernel
def cdkm(points, weights, start, limit):
    """Run coordinate descent on one table of points; see `p2pkm.kernels.reference.cdkm`."""
    m, d = points.shape
    centroids, sums = start.copy(), np.empty_like(start)
    mass, members = np.empty(len(start)), np.empty(len(start), np.int64)
    labels, distances, workspace = np.full(m, -1), np.empty(m), _workspace(len(start), d)
    moved = _assign(points, weights, centroids, len(start), np.inf, labels, distances, sums, mass, workspace)
    for sweep in range(limit + 1):
        _average(points, weights, labels, centroids, sums, mass, members, workspace)
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
