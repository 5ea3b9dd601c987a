"""Rows of few points: such points take no part, so that no row that leaves a device holds anything of them.

To withhold the row instead would reveal that there are few points, and would leave the neighbors' rows without their
counterpart, which pulls them to the nearest of the others. Rows that are not paired with others are withheld, see
`publish`. Where only one sum over all rows leaves a device, points of small clusters may count together, see
`find_grouped_points`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.kernels.reference import count_class_labels


def suppress_small_clusters(devices: Devices, centroids: Floats) -> tuple[NDArray[Any], Floats, Integers]:
    """Return the own points, weights and offsets as the kernels take them; those of rows of few points weigh nothing.

    Few is below `min_count`, but at least one: of the points nearest to a row, float64[n, k, d].
    """
    if devices.min_count < 2:
        return devices.kernel_inputs
    _, labels = devices.kernels.losses(*devices.kernel_inputs, centroids)
    few = count_nearest(devices, labels, centroids.shape[1]) < devices.min_count
    owner = np.repeat(np.arange(len(devices)), devices.sizes)
    return devices.stored, np.where(few[owner, labels], 0.0, devices.point_weights), devices.offsets


def publish(devices: Devices, rows: Floats) -> Floats:
    """Return rows as they may leave: each the mean of the own points nearest to it, absent if these are few.

    So what is sent is what was counted. Without a `min_count` they leave as they are, and where k-means has converged
    no mean moves.

    Parameters
    ----------
    rows : float64[n, k, d]
        The real ones stand before the absent ones (+inf).
    """
    if devices.min_count < 2:
        return rows
    _, labels = devices.kernels.losses(*devices.kernel_inputs, rows)
    enough = count_nearest(devices, labels, rows.shape[1]) >= devices.min_count
    return np.where(enough[:, :, None], devices.refine(rows, 1)[0], np.inf)


def find_grouped_points(offsets: Integers, labelings: list[Integers], rows: int, least: int) -> Mask:
    """Return which points are in groups of at least `least` points of their device under every labeling, bool[m].

    Points that are left out under one labeling (see `find_groups`) are left out under the others, which are counted
    again without them, until all groups are large enough. So a sum over the cells of any labeling is a sum over groups
    of at least `least` points.

    Parameters
    ----------
    offsets : int64[n + 1]
        Where the points of each device begin.
    labelings : list of int64[m]
        Labels below `rows`; -1: the point is left out.
    """
    counted, before = np.ones(offsets[-1] - offsets[0], np.bool_), np.zeros(0, np.bool_)
    while not np.array_equal(counted, before):
        before = counted
        for labels in labelings:
            counted = find_groups(offsets, np.where(counted, labels, -1), rows, least)
    return counted


def find_groups(offsets: Integers, labels: Integers, rows: int, least: int) -> Mask:
    """Return which points are in a group of at least `least` points of their device, bool[m].

    A group is a cell, all points of a device with one label, of at least `least` points; or the rest, all points in the
    smaller cells of a device together.
    """
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    sizes = count_class_labels(offsets, np.zeros(len(labels), np.int64), labels, 1, rows)[:, 0]
    small = (labels >= 0) & (sizes[owner, labels] < least)
    rest = np.bincount(owner[small], minlength=len(offsets) - 1)
    grouped: Mask = (labels >= 0) & ~(small & (rest < least)[owner])
    return grouped


def count_nearest(devices: Devices, labels: Integers, rows: int) -> Integers:
    """Return how many own points have each row as their label, int64[n, rows]; label -1: none."""
    counts: Integers = count_class_labels(devices.offsets, np.zeros(len(labels), np.int64), labels, 1, rows)[:, 0]
    return counts
