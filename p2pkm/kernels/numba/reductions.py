"""Compiled sums over the local points of every device."""

import numpy as np

from p2pkm.kernels.numba.compiling import compiled_backend, kernel
from p2pkm.kernels.numba.threads import divide


@compiled_backend(1)
def _moments(points, weights, offsets, center, begin, end, sums):
    """Sum the points of the devices `begin` to `end` - 1."""
    d, weighted = points.shape[1], weights.shape[0] > 0
    for i in range(begin, end):
        for column in range(1 + 2 * d):
            sums[i, column] = 0.0
        for r in range(offsets[i], offsets[i + 1]):
            weight = weights[r] if weighted else 1.0
            sums[i, 0] += weight
            for f in range(d):
                difference = points[r, f] - center[f]
                sums[i, 1 + f] += weight * difference
                sums[i, 1 + d + f] += weight * (difference * difference)


def moments(points, weights, offsets, center):
    """Sum weights, first and second moments on every device; see `p2pkm.kernels.reference.moments`."""
    sums = np.empty((len(offsets) - 1, 1 + 2 * points.shape[1]))
    divide(lambda begin, end: _moments(points, weights, offsets, center, begin, end, sums), offsets)
    return sums


@kernel
def count_class_labels(offsets, classes, labels, n_classes, k):
    """Count the points of each class and label on every device; see `p2pkm.kernels.reference.count_class_labels`."""
    n = offsets.shape[0] - 1
    tables = np.zeros((n, n_classes, k), np.int64)
    for i in range(n):
        for r in range(offsets[i], offsets[i + 1]):
            if labels[r] >= 0:
                tables[i, classes[r], labels[r]] += 1
    return tables
