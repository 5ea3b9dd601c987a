"""Sums over the points of every device."""

from typing import Any

import numpy as np


def moments(points: Any, weights: Any, offsets: Any, center: Any) -> Any:
    """Add up the points of every device in their order.

    Parameters
    ----------
    points : float64[m, d]
    weights : float64[m] or float64[0]
        Empty: all 1.
    offsets : int64[n + 1]
    center : float64[d]

    Returns
    -------
    float64[n, 1 + 2 d]
        Sums of the weights, of weight x (point - center), and of weight x (point - center)^2.
    """
    n = len(offsets) - 1
    owner, mass = np.repeat(np.arange(n), np.diff(offsets)), weights if len(weights) else np.ones(len(points))
    apart = points - center
    with np.errstate(over="ignore"):
        columns = np.concatenate((mass[None], mass * apart.T, mass * (apart * apart).T))
    sums = np.stack([np.bincount(owner, column, n) for column in columns], axis=1)
    return sums.astype(np.float64)  # bincount of nothing is whole numbers


def tabulate(offsets: Any, classes: Any, labels: Any, n_classes: int, k: int) -> Any:
    """Count the points of each class that every device gave each of k labels, int64[n, n_classes, k]; -1 = no label."""
    tables = np.zeros((len(offsets) - 1, n_classes, k), np.int64)
    owner, real = np.repeat(np.arange(len(tables)), np.diff(offsets)), labels >= 0
    np.add.at(tables, (owner[real], classes[real], labels[real]), 1)
    return tables
