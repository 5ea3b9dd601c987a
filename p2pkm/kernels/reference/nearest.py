"""Nearest centroids of points, and sums of the points of each cluster."""

import numpy as np

# The order of summation is part of the result; keep these numbers equal to those of `p2pkm.kernels.numba.nearest`.
# Number of features from which distances are summed in eight lanes.
_LONG = 64
# For two features: largest number of labels with sums in eight lanes, and points of a block.
_FEW, _LANES = 8, 128


def _squared(a, b):
    """Compute squared distances of the rows of a to the rows of b, float64[a, b], summed in feature order.

    Distances to one row of b are contiguous: several times faster with many points and few centroids.
    """
    total = None
    for x, y in zip(np.ascontiguousarray(a.T), b.T, strict=True):
        square = x - y[:, None]
        square *= square
        total = square if total is None else np.add(total, square, out=total)
    return np.zeros((len(a), len(b))) if total is None else total.T


def measure_distances(points, centroids):
    """Compute squared distances [m, k] of points to centroids; from 64 features on, sums are in eight lanes."""
    d = points.shape[1]
    if d < _LONG:
        return _squared(points, centroids)
    lanes = np.zeros((points.shape[0], centroids.shape[0], 8))
    for first in range(0, d, 8):
        part = slice(first, first + 8)
        difference = points[:, None, part] - centroids[None, :, part]
        lanes[:, :, : difference.shape[2]] += difference * difference
    for half in (4, 2, 1):
        lanes = lanes[:, :, :half] + lanes[:, :, half:]
    return lanes[:, :, 0]


def find_nearest(distances):
    """Find the smallest distance of each row and its index, lowest index on ties; -1 and inf if none is finite."""
    if distances.shape[1] == 0:
        return np.full(len(distances), -1), np.full(len(distances), np.inf)
    labels = np.argmin(distances, axis=1)
    lowest = np.min(distances, axis=1)
    return np.where(lowest < np.inf, labels, -1), lowest


def _plain(points, weights):
    """Convert points to float64[m, d], and empty weights to ones, float64[m]."""
    return np.asarray(points, np.float64), weights if len(weights) == len(points) else np.ones(len(points))


def _sums(points, weights, labels, rows):
    """Sum weighted points and weights by label (-1: none), in the order of the points.

    With two features and few labels: eight partial sums per block of points, see `simd.sum_where`.
    """
    if points.shape[1] == 2 and rows <= _FEW:
        values = np.column_stack((weights[:, None] * points, weights))
        total = np.zeros((rows, 3))
        for first in range(0, len(points), _LANES):
            block = values[first : first + _LANES]
            is_member = labels[first : first + _LANES, None] == np.arange(rows)
            lanes = np.zeros((-(-len(block) // 8), 8, rows, 3))
            lanes.reshape(-1, rows, 3)[: len(block)] = np.where(is_member[:, :, None], block[:, None], 0.0)
            partial = np.cumsum(lanes, axis=0)[-1]
            for half in (4, 2, 1):
                partial = partial[:half] + partial[half:]
            total += partial[0]
        return total[:, :2], total[:, 2]
    if labels.min(initial=0) < 0:
        has_label = labels >= 0
        points, weights, labels = points[has_label], weights[has_label], labels[has_label]
    sums = np.empty((rows, points.shape[1] + 1))
    for f, x in enumerate((*points.T, 1.0)):
        sums[:, f] = np.bincount(labels, weights=weights * x, minlength=rows)
    return sums[:, :-1], sums[:, -1]
