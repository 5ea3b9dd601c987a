"""Compiled sums over the points or links of every device, one after the other."""

import numpy as np

from p2pkm.kernels.numba.compiling import behind, kernel
from p2pkm.kernels.numba.threads import divide


@behind(1)
def _moments(points, weights, offsets, center, begin, end, sums):
    """Add up the points of the devices `begin` to `end` - 1."""
    d, weighted = points.shape[1], weights.shape[0] > 0
    for i in range(begin, end):
        for column in range(1 + 2 * d):
            sums[i, column] = 0.0
        for r in range(offsets[i], offsets[i + 1]):
            weight = weights[r] if weighted else 1.0
            sums[i, 0] += weight
            for f in range(d):
                apart = points[r, f] - center[f]
                sums[i, 1 + f] += weight * apart
                sums[i, 1 + d + f] += weight * (apart * apart)


def moments(points, weights, offsets, center):
    """Add up weights, first and second moments on every device; see `p2pkm.kernels.reference.moments`."""
    sums = np.empty((len(offsets) - 1, 1 + 2 * points.shape[1]))
    divide(lambda begin, end: _moments(points, weights, offsets, center, begin, end, sums), offsets)
    return sums


@kernel
def tabulate(offsets, classes, labels, n_classes, k):
    """Count the points of each class and label on every device; see `p2pkm.kernels.reference.tabulate`."""
    n = offsets.shape[0] - 1
    tables = np.zeros((n, n_classes, k), np.int64)
    for i in range(n):
        for r in range(offsets[i], offsets[i + 1]):
            if labels[r] >= 0:
                tables[i, classes[r], labels[r]] += 1
    return tables
