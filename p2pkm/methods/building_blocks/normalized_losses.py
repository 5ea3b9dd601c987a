"""Losses as means instead of sums: every device counts alike, however many points it has."""

from dataclasses import replace

import numpy as np

from p2pkm.core.batch import Devices, Floats


def inverse_weights(devices: Devices) -> Floats:
    """Return 1 / m_i, m_i the weight of the own points, float64[n]; 0 at a device without points."""
    owner = np.repeat(np.arange(len(devices)), devices.sizes)
    own = np.bincount(owner, devices.point_weights, len(devices))
    return np.where(own > 0.0, 1.0 / np.where(own > 0.0, own, 1.0), 0.0)


def weigh_equally(devices: Devices) -> Devices:
    """Return the batch with the weights of the points of every device divided by their sum."""
    shares = np.repeat(inverse_weights(devices), devices.sizes)
    return replace(devices, point_weights=devices.point_weights * shares)
