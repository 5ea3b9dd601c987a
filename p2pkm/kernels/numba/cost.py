"""Compiled cost of centroid sets on the points of every device."""

import numpy as np

from p2pkm.kernels.numba.compiling import compiled_backend
from p2pkm.kernels.numba.nearest import (
    _label,
    _label_distances,
    _lowest_2d,
    _nearest,
    _prepare_labels,
    _transpose,
    _workspace,
)
from p2pkm.kernels.numba.threads import divide


@compiled_backend(3)
def _losses(points, weights, offsets, begin, end, centroids, costs, labels):
    """Compute costs and labels of the devices `begin` to `end` - 1."""
    rows = centroids.shape[1]
    block, distances, lowest, nearest, singles = _workspace(rows, points.shape[1])
    lanes = nearest.shape[0]
    for i in range(begin, end):
        # In a register: a sum in the array waits for the last store.
        total = 0.0
        is_absent = True
        for c in range(rows):
            is_absent &= centroids[i, c, 0] == np.inf
        if is_absent:
            labels[offsets[i] : offsets[i + 1]] = -1
            for r in range(offsets[i], offsets[i + 1]):
                total += (weights[r] if weights.shape[0] > 0 else 1.0) * np.inf
            costs[i] = total
            continue
        radius = _prepare_labels(centroids[i], rows, offsets[i + 1] - offsets[i], singles)
        for first in range(offsets[i], offsets[i + 1], lanes):
            count = min(lanes, offsets[i + 1] - first)
            _label(points, first, count, centroids[i], rows, radius, singles, block, distances, lowest, nearest)
            if radius < np.inf:
                _label_distances(points[first : first + count], centroids[i], nearest, lowest)
            for r in range(count):
                labels[first + r] = nearest[r]
                total += (weights[first + r] if weights.shape[0] > 0 else 1.0) * lowest[r]
        costs[i] = total


def losses(points, weights, offsets, centroids):
    """Compute the local loss (6) of every device and the labels; see `p2pkm.kernels.reference.losses`."""
    results = np.empty(len(offsets) - 1), np.empty(len(points), np.int64)
    sets = np.ascontiguousarray(centroids)
    divide(lambda begin, end: _losses(points, weights, offsets, begin, end, sets, *results), offsets)
    return results


@compiled_backend(1)
def _evaluate_costs(points, weights, offsets, classes, n_classes, sets):
    """Compute the cost of every centroid set on the points of every device."""
    n, q = offsets.shape[0] - 1, sets.shape[0]
    costs, tables = np.zeros((n, q)), np.zeros((q, n_classes, sets.shape[1]), np.int64)
    block, distances, lowest, nearest = _workspace(sets.shape[1], points.shape[1])[:4]
    lanes, begin = nearest.shape[0], 0
    # Labels are not needed without classes; then two features have a faster path.
    is_fast = n_classes == 0 and points.shape[1] == 2
    # A block of points may contain the points of several devices, from device `begin` on.
    for first in range(offsets[0], offsets[n], lanes):
        count = min(lanes, offsets[n] - first)
        while offsets[begin + 1] <= first:
            begin += 1
        if is_fast:
            _transpose(points, first, count, block)
        for s in range(q):
            if is_fast:
                _lowest_2d(block, count, sets[s], sets.shape[1], lowest)
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


def evaluate_costs(points, weights, offsets, classes, n_classes, sets):
    """Compute the cost of every centroid set on every device; see `p2pkm.kernels.reference.evaluate_costs`."""
    sets, parts = np.ascontiguousarray(sets), []
    costs = np.empty((len(offsets) - 1, len(sets)))

    def evaluate(begin, end):
        span = offsets[begin : end + 1]
        costs[begin:end], tables = _evaluate_costs(points, weights, span, classes, n_classes, sets)
        parts.append(tables)

    divide(evaluate, offsets)
    return costs, sum(parts, np.zeros((len(sets), n_classes, sets.shape[1]), np.int64))
