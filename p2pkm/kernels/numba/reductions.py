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


@compiled_backend(4)
def _cluster_moments(points, weights, offsets, labels, centroids, begin, end, sizes, weight_sums, first, second):
    """Sum the points of the clusters of the devices `begin` to `end` - 1."""
    d, weighted = points.shape[1], weights.shape[0] > 0
    for i in range(begin, end):
        for r in range(offsets[i], offsets[i + 1]):
            cluster = labels[r]
            if cluster < 0:
                continue
            weight = weights[r] if weighted else 1.0
            sizes[i, cluster] += 1
            weight_sums[i, cluster] += weight
            for f in range(d):
                deviation = points[r, f] - centroids[i, cluster, f]
                share = weight * deviation
                first[i, cluster, f] += share
                second[i, cluster, f] += share * deviation


def cluster_moments(points, weights, offsets, labels, centroids):
    """Sum the points of each cluster of every device; see `p2pkm.kernels.reference.cluster_moments`."""
    n, k, d = centroids.shape
    sums = np.zeros((n, k), np.int64), np.zeros((n, k)), np.zeros((n, k, d)), np.zeros((n, k, d))
    inputs = points, weights, offsets, labels, np.ascontiguousarray(centroids)
    divide(lambda begin, end: _cluster_moments(*inputs, begin, end, *sums), offsets)
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
