"""Suppression of small clusters: their points are ignored, so that no message depends on them.

Omitting the row instead would reveal that the cluster is small, and the matching rows of neighbors would be attracted
by the nearest other row. Rows that are not matched are omitted, see `suppressed_means`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.kernels.reference import count_class_labels


def suppress_small_clusters(devices: Devices, centroids: Floats) -> tuple[NDArray[Any], Floats, Integers]:
    """Prepare the inputs of the kernels: points, weights and offsets, with weight 0 for points of small clusters.

    A cluster is small if fewer than `min_count` local points are nearest to its centroid.

    Parameters
    ----------
    centroids : float64[n, k, d]
    """
    if devices.min_count < 2:
        return devices.kernel_inputs
    _, labels = devices.kernels.losses(*devices.kernel_inputs, centroids)
    few = count_nearest(devices, labels, centroids.shape[1]) < devices.min_count
    owner = np.repeat(np.arange(len(devices)), devices.sizes)
    return devices.stored, np.where(few[owner, labels], 0.0, devices.point_weights), devices.offsets


def suppressed_means(devices: Devices, rows: Floats) -> Floats:
    """Compute rows that may be sent: the mean of the local points nearest to each row, absent if these are few.

    So each sent mean is the mean of the points that were counted. Without a `min_count` rows are returned unchanged.
    After converged k-means the means equal the rows.

    Parameters
    ----------
    rows : float64[n, k, d]
        Absent rows (+inf) are last.
    """
    if devices.min_count < 2:
        return rows
    _, labels = devices.kernels.losses(*devices.kernel_inputs, rows)
    enough = count_nearest(devices, labels, rows.shape[1]) >= devices.min_count
    return np.where(enough[:, :, None], devices.refine(rows, 1)[0], np.inf)


def count_nearest(devices: Devices, labels: Integers, rows: int) -> Integers:
    """Count the local points with each label, int64[n, rows]; points with label -1 are not counted."""
    counts: Integers = count_class_labels(devices.offsets, np.zeros(len(labels), np.int64), labels, 1, rows)[:, 0]
    return counts
