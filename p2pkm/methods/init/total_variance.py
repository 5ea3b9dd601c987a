"""Mean and total variance of all points, along a spanning tree: the scale of the step size of integer messages."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.sorting import blocks
from p2pkm.methods.init.tree_totals import TreeTotals, positive

# Width given to `blocks` per feature: blocks of points that stay in the second-level cache.
_BLOCK_WIDTH = 64


@dataclass(frozen=True)
class TotalVariance(TreeTotals):
    """Mean and total variance of all points, by one pass up and one down a spanning tree.

    Notes
    -----
    **Update.** Up: moments (weight W, mean u, sum M2 of squared deviations) are merged at every device by
    ``M2 = sum_j M2_j + W_j |u_j - u|^2`` with the merged mean u [1]_, which avoids the cancellation of a plain sum of
    squares. Down: the mean and ``M2 / W``. Both passes are one round; each takes as many turns as the tree has layers
    below the root.

    **Messages.** One row of d + 2 numbers up and one of d + 1 numbers down over each tree link.

    **Privacy.** No guarantee. The parent receives the moments of a device and its descendants; the moments of one point
    are that point. With a `min_cluster_size` p a device with at most p points does not contribute.

    References
    ----------
    .. [1] T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
       variances", 1979.
    """

    name: ClassVar[str] = "total-variance"

    def count_columns(self, d: int) -> tuple[int, int]:
        """Count weight, means and squared deviations up; means and total variance down."""
        return d + 2, d + 1

    def measure(self, devices: Devices) -> Floats:
        """Compute the moments of the local points."""
        n, d = len(devices), devices.d
        contributes = devices.sizes > (devices.min_count if devices.min_count > 1 else 0)
        weight, total, _ = np.split(devices.kernels.moments(*devices.kernel_inputs, np.zeros(d)), [1, 1 + d], axis=1)
        mean = total / positive(weight)
        owner = np.repeat(np.arange(n), devices.sizes)
        squares = np.empty(len(owner))
        for rows in blocks(len(owner), _BLOCK_WIDTH * d):
            squares[rows] = _squared_lengths(devices.stored[rows] - mean[owner[rows]])
        spread = np.bincount(owner, devices.point_weights * squares, n).astype(np.float64)
        moments = np.column_stack((weight, mean, spread))
        moments[~contributes] = 0.0
        return moments

    def merge(self, totals: Floats, receivers: Integers, rows: Floats) -> Floats:
        """Merge the moments of devices with all those that they received at once, around the merged mean."""
        n = len(totals)
        rows = np.concatenate((totals, rows))
        target = np.concatenate((np.arange(n), receivers))
        weight = np.zeros(n)
        np.add.at(weight, target, rows[:, 0])
        mean = np.zeros((n, rows.shape[1] - 2))
        np.add.at(mean, target, rows[:, :1] * rows[:, 1:-1])
        mean /= positive(weight)[:, None]
        squares = np.zeros(n)
        np.add.at(squares, target, rows[:, -1] + rows[:, 0] * _squared_lengths(rows[:, 1:-1] - mean[target]))
        merged = np.column_stack((weight, mean, squares))
        # Multiplying and dividing by the weight would change the last bit at devices that received nothing.
        is_unchanged = np.bincount(receivers, minlength=n) == 0
        merged[is_unchanged] = totals[is_unchanged]
        return merged

    def conclude(self, totals: Floats) -> Floats:
        """Compute mean and total variance."""
        return np.column_stack((totals[:, 1:-1], totals[:, -1] / positive(totals[:, 0])))


def _squared_lengths(rows: Floats) -> Floats:
    """Compute the squared lengths of rows, float64[r]; +inf if they overflow."""
    with np.errstate(over="ignore"):
        total = np.zeros(len(rows))
        # A loop, because np.cumsum along such a short axis takes several times as long.
        for column in rows.T:
            total += column * column
        return total
