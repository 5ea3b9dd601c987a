"""Compiled breathing k-means on weighted rows."""

import numpy as np

from p2pkm.core.batch import Stream
from p2pkm.kernels.numba.compiling import helper, kernel
from p2pkm.kernels.numba.kmeans import _allocate, _copy, _lloyd, _squared
from p2pkm.kernels.numba.philox import _uniforms

# The following numbers are part of the result; keep them equal to those of `p2pkm.kernels.reference.breathing`.
_OFFSET = 0.05
_MIN_DECREASE = 1e-6
_LIMIT = 300
_TRIALS = 1 << 16
_PURPOSE = int(Stream.BREATHE)


@helper()
def _measure(points, weights, centroids, k, errors, utilities):
    """Add up the cost of the rows of each of k centroids, and the increase of the cost if the centroid is removed."""
    errors[:k] = 0.0
    utilities[:k] = 0.0
    for r in range(points.shape[0]):
        label, nearest, second = 0, np.inf, np.inf
        for c in range(k):
            distance = _squared(points[r], centroids[c])
            if distance < nearest:
                label, nearest, second = c, distance, nearest
            elif distance < second:
                second = distance
        errors[label] += weights[r] * nearest
        utilities[label] += weights[r] * (second - nearest)


@helper()
def _sort(values, order, sign):
    """Write the order of ``sign * values`` to `order`, equal ones in their order."""
    for c in range(order.shape[0]):
        place = c
        while place > 0 and sign * values[order[place - 1]] > sign * values[c]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = c


@helper()
def _remove(centroids, order, m, is_removed, is_protected):
    """Mark the m centroids that `survivors` in the reference removes; order: of ascending utility."""
    is_removed[:] = False
    is_protected[:] = False
    k, removed, protected = order.shape[0], 0, 0
    for c in order:
        if removed == m:
            break
        if is_protected[c]:
            continue
        is_removed[c] = True
        removed += 1
        if protected + m < k:
            neighbor, lowest = 0, np.inf
            for other in range(k):
                if other != c and not is_removed[other]:
                    distance = _squared(centroids[c], centroids[other])
                    if distance < lowest:
                        neighbor, lowest = other, distance
            if not is_protected[neighbor]:
                protected += 1
                is_protected[neighbor] = True


@kernel
def _breathe(points, weights, start, most, keys, number):
    """Improve centroids by breathing k-means; keys: uint64[1]."""
    (m, d), k, total = points.shape, 0, 0.0
    best = np.full_like(start, np.inf)
    for c in range(start.shape[0]):
        if np.isfinite(start[c, 0]):
            _copy(start[c], best[k])
            k += 1
    for r in range(m):
        total += weights[r]
    added = min(most, k) if k > 1 else 0
    scratch, labels, _, larger, counts, sums, _, workspace = _allocate(m, k + added, d, 1)
    arrays = counts, sums, labels, scratch[0], workspace
    candidate, draws = np.empty((k, d)), np.empty((added * d + 3) // 4 * 4)
    errors, utilities, order = np.empty(k + added), np.empty(k + added), np.empty(k + added, np.int64)
    is_removed, is_protected = np.empty(k + added, np.bool_), np.empty(k + added, np.bool_)
    cost, trial = 0.0, 0
    if k > 0 and m > 0:
        cost = _lloyd(points, weights, _LIMIT, 0.0, np.bool_(True), best, k, *arrays)
    while added > 0 and cost > 0.0:
        rows, spread = k + added, _OFFSET * np.sqrt(cost / total)
        _uniforms(keys[0], _PURPOSE, number * _TRIALS + trial, draws[: (added * d + 3) // 4 * 4])
        _measure(points, weights, best, k, errors, utilities)
        _sort(errors, order[:k], -1.0)
        for c in range(k):
            _copy(best[c], larger[c])
        for c in range(added):
            for f in range(d):
                larger[k + c, f] = best[order[c], f] + spread * (2.0 * draws[c * d + f] - 1.0)
        _lloyd(points, weights, _LIMIT, 0.0, np.bool_(True), larger, rows, *arrays)
        _measure(points, weights, larger, rows, errors, utilities)
        _sort(utilities, order[:rows], 1.0)
        _remove(larger, order[:rows], added, is_removed, is_protected)
        remaining = 0
        for c in range(rows):
            if not is_removed[c]:
                _copy(larger[c], candidate[remaining])
                remaining += 1
        candidate_cost = _lloyd(points, weights, _LIMIT, 0.0, np.bool_(True), candidate, k, *arrays)
        if candidate_cost < cost * (1.0 - _MIN_DECREASE):
            cost = candidate_cost
            for c in range(k):
                _copy(candidate[c], best[c])
        else:
            added -= 1
        trial += 1
    return best, cost


def breathe(points, weights, start, most, key, number):
    """Improve centroids by breathing k-means; see `p2pkm.kernels.reference.breathe`."""
    return _breathe(points, weights, start, most, np.array([key], np.uint64), number)
