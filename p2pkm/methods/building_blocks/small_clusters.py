"""Suppression of small clusters: their points are ignored, so that no message depends on them.

Omitting the row instead would reveal that the cluster is small, and the matching rows of neighbors would be attracted
by the nearest other row. Rows that are not matched are omitted, see `suppressed_means`. If only one sum over all rows
leaves a device, the points of small clusters may be counted together, see `find_grouped_points`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
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


def find_grouped_points(offsets: Integers, labelings: list[Integers], rows: int, least: int) -> Mask:
    """Find the points that are in groups of at least `least` points of their device under every labeling, bool[m].

    A point that one labeling omits (see `find_groups`) is omitted from all, and the others are counted again without
    it, until all groups are large enough. So a sum over the cells of any labeling is a sum over groups of at least
    `least` points.

    Parameters
    ----------
    offsets : int64[n + 1]
        First point of each device.
    labelings : list of int64[m]
        Labels below `rows`; -1 omits a point.
    """
    counted, before = np.ones(offsets[-1] - offsets[0], np.bool_), np.zeros(0, np.bool_)
    while not np.array_equal(counted, before):
        before = counted
        for labels in labelings:
            counted = find_groups(offsets, np.where(counted, labels, -1), rows, least)
    return counted


def find_groups(offsets: Integers, labels: Integers, rows: int, least: int) -> Mask:
    """Find the points that are in a group of at least `least` points of their device, bool[m].

    A cell consists of all points of a device with the same label. Groups are the cells of at least `least` points, and
    all points in the smaller cells of a device together.
    """
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    sizes = count_class_labels(offsets, np.zeros(len(labels), np.int64), labels, 1, rows)[:, 0]
    in_small_cell = (labels >= 0) & (sizes[owner, labels] < least)
    remaining = np.bincount(owner[in_small_cell], minlength=len(offsets) - 1)
    grouped: Mask = (labels >= 0) & ~(in_small_cell & (remaining < least)[owner])
    return grouped


def count_nearest(devices: Devices, labels: Integers, rows: int) -> Integers:
    """Count the local points with each label, int64[n, rows]; points with label -1 are not counted."""
    counts: Integers = count_class_labels(devices.offsets, np.zeros(len(labels), np.int64), labels, 1, rows)[:, 0]
    return counts
