"""Sums over the local points of every device."""

from typing import Any

import numpy as np


def moments(points: Any, weights: Any, offsets: Any, center: Any) -> Any:
    """Sum weights, first and second moments of the points of every device, in the order of the points.

    Parameters
    ----------
    points : float64[m, d]
    weights : float64[m] or float64[0]
        Weights of points; empty: all 1.
    offsets : int64[n + 1]
    center : float64[d]
        Point that is subtracted before the moments are computed.

    Returns
    -------
    float64[n, 1 + 2 d]
        Sums of the weights, of weight x (point - center), and of weight x (point - center)^2.
    """
    n = len(offsets) - 1
    owner = np.repeat(np.arange(n), np.diff(offsets))
    mass = weights if len(weights) else np.ones(len(points))
    difference = points - center
    with np.errstate(over="ignore"):
        columns = np.concatenate((mass[None], mass * difference.T, mass * (difference * difference).T))
    sums = np.stack([np.bincount(owner, column, n) for column in columns], axis=1)
    # Without points, bincount returns integers.
    return sums.astype(np.float64)


def cluster_moments(points: Any, weights: Any, offsets: Any, labels: Any, centroids: Any) -> Any:
    """Sum the points of each cluster of every device, as deviations from its centroid, in the order of the points.

    Parameters
    ----------
    points, weights, offsets
        As in `moments`.
    labels : int64[m]
        Cluster of each point, -1: none.
    centroids : float64[n, k, d]

    Returns
    -------
    sizes : int64[n, k]
        Number of points.
    weight_sums : float64[n, k]
        Sum of the weights.
    first, second : float64[n, k, d]
        Sums of weight x deviation, and of (weight x deviation) x deviation.
    """
    n, k, d = centroids.shape
    has_label = labels >= 0
    owner = np.repeat(np.arange(n), np.diff(offsets))[has_label]
    cells = owner * k + labels[has_label]
    mass = weights[has_label] if len(weights) else np.ones(len(cells))
    rows, origins = points[has_label], centroids.reshape(n * k, d)[cells]
    first, second = np.zeros((2, n * k, d))
    for f in range(d):
        deviation = rows[:, f] - origins[:, f]
        with np.errstate(over="ignore"):
            share = mass * deviation
            first[:, f] = np.bincount(cells, share, n * k)
            second[:, f] = np.bincount(cells, share * deviation, n * k)
    sizes = np.bincount(cells, minlength=n * k).reshape(n, k)
    weight_sums = np.bincount(cells, mass, n * k).astype(np.float64).reshape(n, k)
    return sizes, weight_sums, first.reshape(n, k, d), second.reshape(n, k, d)


def count_class_labels(offsets: Any, classes: Any, labels: Any, n_classes: int, k: int) -> Any:
    """Count the points of each class and label on every device, int64[n, n_classes, k]; label -1: none."""
    tables = np.zeros((len(offsets) - 1, n_classes, k), np.int64)
    owner = np.repeat(np.arange(len(tables)), np.diff(offsets))
    has_label = labels >= 0
    np.add.at(tables, (owner[has_label], classes[has_label], labels[has_label]), 1)
    return tables
