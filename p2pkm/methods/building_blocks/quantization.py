"""Centroid updates on a grid: with integer messages, centroids move by whole steps, so that messages equal the state.

Proofs are in docs/explain/proofs.md ("Messages of integers"): these updates never increase the objective, and if
devices move one after another, the total number of sent coordinates is bounded.
"""

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers

# Largest b of a step 2^-b of the spread: finer steps are below the precision of a float64.
FINEST = 52
# 64 steps per standard deviation at coupling 0. A coarser grid stops centroids early: at c = 30 the cost ratio is
# 1.0049 with b = 10, and 1.0022 with the b = 12 of this rule (docs/howto/add-a-transform.md).
_BASE_BITS = 6


def count_bits(coupling: float, d: int = 1) -> int:
    """Compute b of the step ``2^-b sqrt(total variance)`` at a coupling c: b = ceil(log2(64 (1 + 2 c) sqrt(d))).

    In a round the mean of the centroids of all devices moves by about 1 / (1 + 2 c) of its distance to the minimizer,
    so a stronger coupling requires a finer grid. The total variance adds up d features, so the spread of one of them is
    smaller by sqrt(d).
    """
    return min(FINEST, _BASE_BITS + int(np.ceil(np.log2((1.0 + 2.0 * coupling) * np.sqrt(d)))))


def count_steps(distance: Floats, relaxation: float | Floats, *, within: bool) -> Integers:
    """Compute the number of steps of each coordinate, int64[...].

    Parameters
    ----------
    distance : float64[...]
        Distance to the minimizer in steps, e = (minimizer - centroid) / step.
    relaxation : float or float64[...]
        theta, below 2; at most 1 with `within`.
    within : bool
        Round towards zero, so that neighbors may move at the same time (theorem 5). Otherwise round theta e to the
        nearest integer, but at most ``floor(2 |e| - 1/4)``, which is less than twice the distance (theorem 4).
    """
    size = np.abs(distance)
    if within:
        steps = np.floor(relaxation * size)
    else:
        steps = np.maximum(np.minimum(np.floor(relaxation * size + 0.5), np.floor(2.0 * size - 0.25)), 0.0)
    return np.copysign(steps, distance).astype(np.int64)


def move_on_grid(
    devices: Devices, before: Floats, minimizer: Floats, relaxation: Floats, *, within: bool
) -> tuple[Floats, Floats]:
    """Move the centroids towards the minimizer by whole steps of `Devices.grid`.

    Parameters
    ----------
    before, minimizer : float64[n, k, d]
        Absent rows are +inf in both.
    relaxation : float64[n]
    within : bool
        See `count_steps`.

    Returns
    -------
    centroids : float64[n, k, d]
    moved : float64[n]
        Largest coordinate change of each device.
    """
    grid = devices.grid
    assert grid is not None
    step = grid.step[:, None, None]
    offsets = np.where(np.isfinite(minimizer), minimizer, 0.0) - np.where(np.isfinite(before), before, 0.0)
    distance = np.divide(offsets, step, out=np.zeros_like(offsets), where=step > 0.0)
    steps = count_steps(distance, relaxation[:, None, None], within=within)
    # Rows that would move by less than the threshold are neither moved nor sent.
    steps[np.abs(steps).max(axis=2, initial=0) < grid.threshold] = 0
    moves = step * steps
    return before + moves, np.abs(moves).max(axis=(1, 2), initial=0.0)
