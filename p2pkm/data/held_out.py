"""Test points: a share of the points of each device that no stage of a run sees."""

from fractions import Fraction
from typing import Any

import numpy as np

from p2pkm.data.random import generator


def hold_out(shards: Any, share: float, seed: int) -> tuple[Any, tuple[str, ...]]:
    """Turn floor(share m_i) points of each device i, drawn by the seed, into its test points.

    Points, weights and labels keep their order. Points that have test points already keep these.

    Parameters
    ----------
    shards : Shards or DiskShards
        Points of all devices, so that the draw does not depend on the number of ranks.
    share : float
        From 0 to below 1, hence a device with points keeps at least one of them.
    seed : int

    Returns
    -------
    shards : Shards or DiskShards
    notes : tuple of str
        Notes for the user.
    """
    # Points on disk are refused when the run is built.
    if share == 0.0 or not shards.in_memory:
        return shards, ()
    if shards.tests is not None:
        return shards, (f"the data have test points of their own, so test_share {share:g} holds out nothing",)
    # Decimal digits as typed: the product of 0.29 and 100 in float64 is below 29.
    exact = Fraction(repr(float(share)))
    sizes, place = np.unique(shards.sizes, return_inverse=True)
    counts = np.array([int(exact * size) for size in sizes.tolist()], np.int64)[place]
    device = shards.devices
    # Sorted by device, and at random within a device: the first of each device are its test points.
    order = np.lexsort((generator(seed, "test points").random(shards.m), device))
    is_test = np.zeros(shards.m, np.bool_)
    is_test[order] = np.arange(shards.m) - shards.offsets[device] < counts[device]
    return shards.select(~is_test).with_tests(shards.select(is_test)), ()
