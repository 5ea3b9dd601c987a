"""Moves on a grid: a device that sends integers moves its centroids by whole steps, so that its state is what it sent.

The proofs stand in docs/proofs.md ("Messages of integers"): none of these moves raises the objective, and where all
devices move one after another, only so many coordinates are ever sent.
"""

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers

FINEST = 52  # of a step, 2^-bits of the spread; finer ones are below the digits of a number
_MARGIN = 6  # bits: 64 steps in a standard deviation, times 1 + 2 c where neighbors hold a centroid back


def count_bits(coupling: float) -> int:
    """Return b of the step ``2^-b sqrt(total variance)`` at a coupling c: b = ceil(log2(64 (1 + 2 c))).

    The mean of all devices' centroids moves by about 1 / (1 + 2 c) of its distance in a sweep; a coarser grid would
    stop it there.
    """
    return min(FINEST, _MARGIN + int(np.ceil(np.log2(1.0 + 2.0 * coupling))))


def count_steps(distance: Floats, relaxation: float, *, within: bool) -> Integers:
    """Return how many steps to go, int64[...], for distances to the minimizer in steps.

    Parameters
    ----------
    distance : float64[...]
        e = (minimizer - now) / step.
    relaxation : float
        theta, below 2; at most 1 with `within`.
    within : bool
        Round towards zero, so that neighbors may move at the same time (theorem 1q). Otherwise the nearest integer to
        theta e, but at most ``floor(2 |e| - 1/4)``: less than twice the way (theorem 2q).
    """
    size = np.abs(distance)
    if within:
        steps = np.floor(relaxation * size)
    else:
        steps = np.maximum(np.minimum(np.floor(relaxation * size + 0.5), np.floor(2.0 * size - 0.25)), 0.0)
    return np.copysign(steps, distance).astype(np.int64)


def move_on_grid(
    devices: Devices, before: Floats, minimizer: Floats, relaxation: float, *, within: bool
) -> tuple[Floats, Floats]:
    """Move the centroids towards the minimizer by whole steps of `Devices.grid`.

    Parameters
    ----------
    before, minimizer : float64[n, k, d]
        Absent rows are +inf in both.

    Returns
    -------
    centroids : float64[n, k, d]
    moved : float64[n]
        Largest move of any coordinate of each device.
    """
    grid = devices.grid
    assert grid is not None
    step = grid.step[:, None, None]
    apart = np.where(np.isfinite(minimizer), minimizer, 0.0) - np.where(np.isfinite(before), before, 0.0)
    steps = count_steps(np.divide(apart, step, out=np.zeros_like(apart), where=step > 0.0), relaxation, within=within)
    steps[np.abs(steps).max(axis=2, initial=0) < grid.threshold] = 0
    moves = step * steps
    return before + moves, np.abs(moves).max(axis=(1, 2), initial=0.0)
