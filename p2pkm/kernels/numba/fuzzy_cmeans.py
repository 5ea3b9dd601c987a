"""Compiled fuzzy c-means."""

import numpy as np

from p2pkm.kernels.numba.compiling import helper, kernel
from p2pkm.kernels.numba.kmeans import _copy, _squared


@helper(inline="always")
def _update_memberships(point, centroids, member, halvings):
    """Compute the memberships of one point; 1 for the first centroid that coincides with it."""
    rows = centroids.shape[0]
    nearest, lowest = 0, np.inf
    for c in range(rows):
        member[c] = _squared(point, centroids[c])
        if member[c] < lowest:
            nearest, lowest = c, member[c]
    if lowest == 0.0:
        member[:] = 0.0
        member[nearest] = 1.0
        return
    total = 0.0
    for c in range(rows):
        ratio = lowest / member[c]
        for _ in range(halvings):
            ratio = ratio * ratio
        member[c] = ratio
        total += member[c]
    for c in range(rows):
        member[c] = member[c] / total


@helper()
def _sweep(points, weights, centroids, members, sums, supports, halvings):
    """Update memberships, sums for the next centroids, and supports; return the squared change of memberships."""
    d, rows = points.shape[1], centroids.shape[0]
    member = np.empty(rows)
    sums[:] = 0.0
    supports[:] = 0.0
    change = 0.0
    for r in range(points.shape[0]):
        _update_memberships(points[r], centroids, member, halvings)
        for c in range(rows):
            move = member[c] - members[r, c]
            change += weights[r] * (move * move)
            members[r, c] = member[c]
            supports[c] += weights[r] * member[c]
            root = member[c]
            for _ in range(halvings):
                root = np.sqrt(root)
            mass = weights[r] * (member[c] * root)
            sums[c, d] += mass
            for f in range(d):
                sums[c, f] += mass * points[r, f]
    return change


@kernel
def fuzzy_cmeans(points, weights, offsets, start, rows, limit, tol, halvings):
    """Run fuzzy c-means on every device from initial centroids; see `p2pkm.kernels.reference.fuzzy_cmeans`."""
    d, least = points.shape[1], tol * tol
    centroids, supports = np.full_like(start, np.inf), np.zeros(start.shape[:2])
    most = 0
    for i in range(len(rows)):
        most = max(most, offsets[i + 1] - offsets[i])
    unit_weights = np.ones(most)
    for i in range(len(rows)):
        span = slice(offsets[i], offsets[i + 1])
        mass = weights[span] if weights.shape[0] > 0 else unit_weights[: offsets[i + 1] - offsets[i]]
        now, support = centroids[i, : rows[i]], supports[i, : rows[i]]
        for c in range(rows[i]):
            _copy(start[i, c], now[c])
        members = np.zeros((offsets[i + 1] - offsets[i], rows[i]))
        sums = np.empty((rows[i], d + 1))
        _sweep(points[span], mass, now, members, sums, support, halvings)
        for _ in range(limit):
            for c in range(rows[i]):
                if sums[c, d] > 0.0:
                    for f in range(d):
                        now[c, f] = sums[c, f] / sums[c, d]
            if _sweep(points[span], mass, now, members, sums, support, halvings) < least:
                break
    return centroids, supports
