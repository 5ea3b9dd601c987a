"""Normalized losses: means instead of sums, so that every device has the same weight for any number of points."""

from dataclasses import replace

import numpy as np

from p2pkm.core.batch import Devices, Floats


def inverse_weights(devices: Devices) -> Floats:
    """Compute 1 / m_i with the weight m_i of the local points, float64[n]; 0 at a device without points."""
    owner = np.repeat(np.arange(len(devices)), devices.sizes)
    weights = np.bincount(owner, devices.point_weights, len(devices))
    return np.where(weights > 0.0, 1.0 / np.where(weights > 0.0, weights, 1.0), 0.0)


def weigh_equally(devices: Devices) -> Devices:
    """Divide the point weights of every device by their sum."""
    shares = np.repeat(inverse_weights(devices), devices.sizes)
    return replace(devices, point_weights=devices.point_weights * shares)
