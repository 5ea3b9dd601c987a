"""What centroid sets cost on the points of every device."""

from typing import Any

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, find_nearest, measure_distances


def losses(points: Any, weights: Any, offsets: Any, centroids: Any) -> Any:
    """Return (6) of every device on its own points, float64[n], and the label of each point, int64[m]."""
    n, (points, weights) = len(offsets) - 1, _plain(points, weights)
    costs, labels = np.zeros(n), np.empty(len(points), np.int64)
    for i in range(n):
        own = slice(offsets[i], offsets[i + 1])
        labels[own], lowest = find_nearest(measure_distances(points[own], centroids[i]))
        costs[i] = np.cumsum(np.append(0.0, weights[own] * lowest))[-1]
    return costs, labels


def price(points, weights, offsets, classes, n_classes, sets):
    """Price every set of centroids on the points of every device.

    Returns
    -------
    costs : float64[n, q]
        Cost (2) of set q on the points of device i.
    tables : int64[q, n_classes, k]
        How many points of a class each centroid of set q attracts, over this batch.
    """
    n, q, k, (points, weights) = len(offsets) - 1, len(sets), sets.shape[1], _plain(points, weights)
    costs, tables = np.zeros((n, q)), np.zeros((q, n_classes, k), np.int64)
    for i in range(n if q else 0):
        own = slice(offsets[i], offsets[i + 1])
        distances = measure_distances(points[own], sets.reshape(q * k, -1)).T.reshape(q, k, -1)
        if offsets[i] < offsets[i + 1]:
            costs[i] = np.cumsum(weights[own] * distances.min(axis=1), axis=1)[:, -1]
        for s in range(q if n_classes else 0):
            labels, _ = find_nearest(distances[s].T)
            real = labels >= 0
            np.add.at(tables[s], (classes[own][real], labels[real]), 1)
    return costs, tables
