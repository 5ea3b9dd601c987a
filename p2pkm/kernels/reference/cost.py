"""Cost of centroid sets on the points of every device."""

from typing import Any

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, find_nearest, measure_distances


def losses(points: Any, weights: Any, offsets: Any, centroids: Any) -> Any:
    """Compute the local loss (6) of every device, float64[n], and the label of each point, int64[m], -1: none."""
    points, weights = _plain(points, weights)
    n = len(offsets) - 1
    costs = np.zeros(n)
    labels = np.empty(len(points), np.int64)
    for i in range(n):
        rows = slice(offsets[i], offsets[i + 1])
        labels[rows], lowest = find_nearest(measure_distances(points[rows], centroids[i]))
        costs[i] = np.cumsum(np.append(0.0, weights[rows] * lowest))[-1]
    return costs, labels


def evaluate_costs(points, weights, offsets, classes, n_classes, sets):
    """Compute the cost of every centroid set on the points of every device.

    Parameters
    ----------
    points, weights, offsets
        As in `p2pkm.kernels.reference.kmeans`.
    classes : int64[m]
        Class of each point; not used if `n_classes` is 0.
    n_classes : int
        Number of classes; 0: tables are not computed.
    sets : float64[q, k, d]

    Returns
    -------
    costs : float64[n, q]
        Cost (2) of set q on the points of device i.
    tables : int64[q, n_classes, k]
        Number of points of each class nearest to each centroid of set q, over the batch.
    """
    points, weights = _plain(points, weights)
    n = len(offsets) - 1
    q, k = sets.shape[:2]
    costs = np.zeros((n, q))
    tables = np.zeros((q, n_classes, k), np.int64)
    for i in range(n if q else 0):
        rows = slice(offsets[i], offsets[i + 1])
        distances = measure_distances(points[rows], sets.reshape(q * k, -1)).T.reshape(q, k, -1)
        if offsets[i] < offsets[i + 1]:
            costs[i] = np.cumsum(weights[rows] * distances.min(axis=1), axis=1)[:, -1]
        for s in range(q if n_classes else 0):
            labels, _ = find_nearest(distances[s].T)
            has_label = labels >= 0
            np.add.at(tables[s], (classes[rows][has_label], labels[has_label]), 1)
    return costs, tables
