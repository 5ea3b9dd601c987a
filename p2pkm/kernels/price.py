"""Compiled prices: the k-means cost of centroid sets on the points of every device."""

import numpy as np
from numba import njit

from p2pkm.kernels.kmeans import _squared


@njit(cache=True, nogil=True)
def _nearest(point, centroids):
    """Return the nearest real centroid of one point (-1 if there is none) and its squared distance."""
    nearest, lowest = -1, np.inf
    for c in range(centroids.shape[0]):
        distance = _squared(point, centroids[c])
        if distance < lowest:
            nearest, lowest = c, distance
    return nearest, lowest


@njit(cache=True, nogil=True)
def losses(points, weights, offsets, centroids):
    """Return the cost (6) of every device on its own points and the labels; see `p2pkm.kernels.plain.losses`."""
    n = offsets.shape[0] - 1
    costs, labels = np.zeros(n), np.empty(points.shape[0], np.int64)
    for i in range(n):
        for r in range(offsets[i], offsets[i + 1]):
            labels[r], lowest = _nearest(points[r], centroids[i])
            costs[i] += weights[r] * lowest
    return costs, labels


@njit(cache=True, nogil=True)
def price(points, weights, offsets, classes, n_classes, sets):
    """Price every centroid set on every device's points; see `p2pkm.kernels.plain.price`."""
    n, q = offsets.shape[0] - 1, sets.shape[0]
    costs, tables = np.zeros((n, q)), np.zeros((q, n_classes, sets.shape[1]), np.int64)
    for i in range(n):
        for s in range(q):
            for r in range(offsets[i], offsets[i + 1]):
                label, lowest = _nearest(points[r], sets[s])
                costs[i, s] += weights[r] * lowest
                if n_classes > 0 and label >= 0:
                    tables[s, classes[r], label] += 1
    return costs, tables
