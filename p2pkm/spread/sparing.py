"""Rows of few points: such points take no part, so that no row that leaves a device holds anything of them.

To withhold the row instead would say that there are few points, and would leave the neighbours' rows without their
counterpart, which pulls them to the nearest of the others.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.devices import Devices, Floats, Integers
from p2pkm.kernels.plain import tabulate


def spare(devices: Devices, centroids: Floats) -> tuple[NDArray[Any], Floats, Integers]:
    """Return the own points, weights and offsets as the kernels take them; those of rows of few points weigh nothing.

    Few is below `min_count`, but at least one: of the points nearest to a row, float64[n, k, d].
    """
    if devices.min_count < 2:
        return devices.own
    _, labels = devices.kernels.losses(*devices.own, centroids)
    few = count_nearest(devices, labels, centroids.shape[1]) < devices.min_count
    owner = np.repeat(np.arange(len(devices)), devices.sizes)
    return devices.stored, np.where(few[owner, labels], 0.0, devices.point_weights), devices.offsets


def count_nearest(devices: Devices, labels: Integers, rows: int) -> Integers:
    """Return how many own points have each row as their label, int64[n, rows]; label -1: none."""
    counts: Integers = tabulate(devices.offsets, np.zeros(len(labels), np.int64), labels, 1, rows)[:, 0]
    return counts
