"""Compiled prices: the k-means cost of centroid sets on the points of every device."""

import numpy as np

from p2pkm.kernels.numba.compiling import behind
from p2pkm.kernels.numba.nearest import _least_in_the_plane, _nearest, _room, _turn
from p2pkm.kernels.numba.threads import divide


@behind(3)
def _losses(points, weights, offsets, begin, end, centroids, costs, labels):
    """Price and label the points of the devices `begin` to `end` - 1."""
    rows = centroids.shape[1]
    block, distances, lowest, nearest = _room(rows, points.shape[1])[:4]
    lanes = nearest.shape[0]
    for i in range(begin, end):
        costs[i] = 0.0
        for first in range(offsets[i], offsets[i + 1], lanes):
            count = min(lanes, offsets[i + 1] - first)
            _nearest(points, first, count, centroids[i], rows, block, distances, lowest, nearest)
            for r in range(count):
                labels[first + r] = nearest[r]
                costs[i] += (weights[first + r] if weights.shape[0] > 0 else 1.0) * lowest[r]


def losses(points, weights, offsets, centroids):
    """Return the cost (6) of every device on its own points and the labels; see `p2pkm.kernels.reference.losses`."""
    found = np.empty(len(offsets) - 1), np.empty(len(points), np.int64)
    sets = np.ascontiguousarray(centroids)
    divide(lambda begin, end: _losses(points, weights, offsets, begin, end, sets, *found), offsets)
    return found


@behind(1)
def _price(points, weights, offsets, classes, n_classes, sets):
    """Price every centroid set on every device's points."""
    n, q = offsets.shape[0] - 1, sets.shape[0]
    costs, tables = np.zeros((n, q)), np.zeros((q, n_classes, sets.shape[1]), np.int64)
    block, distances, lowest, nearest = _room(sets.shape[1], points.shape[1])[:4]
    lanes, begin, bare = nearest.shape[0], 0, n_classes == 0 and points.shape[1] == 2
    for first in range(offsets[0], offsets[n], lanes):  # a block of points is of as many devices as it may be
        count = min(lanes, offsets[n] - first)
        while offsets[begin + 1] <= first:
            begin += 1
        if bare:
            _turn(points, first, count, block)
        for s in range(q):
            if bare:
                _least_in_the_plane(block, count, sets[s], sets.shape[1], lowest)
            else:
                _nearest(points, first, count, sets[s], sets.shape[1], block, distances, lowest, nearest)
            i, r = begin, 0
            while r < count:
                end, total = min(offsets[i + 1] - first, count), costs[i, s]
                for t in range(r, end):
                    total += (weights[first + t] if weights.shape[0] > 0 else 1.0) * lowest[t]
                costs[i, s] = total
                i, r = i + 1, max(r, end)
            if n_classes > 0:
                for t in range(count):
                    if nearest[t] >= 0:
                        tables[s, classes[first + t], nearest[t]] += 1
    return costs, tables


def price(points, weights, offsets, classes, n_classes, sets):
    """Price every centroid set on every device's points; see `p2pkm.kernels.reference.cost`."""
    return _price(points, weights, offsets, classes, n_classes, np.ascontiguousarray(sets))
