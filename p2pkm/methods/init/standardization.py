"""Mean and variance of all points for standard scaling, along a spanning tree."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.methods.init.tree_totals import PairwiseTotals, positive


@dataclass(frozen=True)
class Standardization(PairwiseTotals):
    """Mean and standard deviation of each feature over all devices, by one pass up and one down a spanning tree.

    Notes
    -----
    **Update.** Up: every device merges its moments with those of its children, in ascending id [1]_. Moments (weight W,
    mean u, sum of squared deviations q) become ``W + w``, ``u + (v - u) w / (W + w)`` and
    ``q + p + (v - u)^2 W w / (W + w)`` with those of a child (w, v, p). This avoids the cancellation of a plain sum of
    squares. Down: mean and standard deviation ``sqrt(q / W)``; 0 and 1 without points.

    **Messages.** One row of 2 d + 1 numbers up and one of 2 d numbers down over each tree link. Around a server: from
    and to each client.

    **Privacy.** No guarantee. The parent, or the server, receives the moments of a device and its descendants; those of
    one point are that point, and those of two points reveal both, coordinate by coordinate. All devices receive mean
    and deviation of all points. With a `min_cluster_size` p a device with at most p points does not contribute.

    References
    ----------
    .. [1] T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
       variances", 1979.
    """

    name: ClassVar[str] = "standardization"

    def count_columns(self, d: int) -> tuple[int, int]:
        """Count weight, means and squared deviations up; means and deviations down."""
        return 2 * d + 1, 2 * d

    def measure(self, devices: Devices) -> Floats:
        """Compute weight, mean and sum of squared deviations of the local points."""
        n = len(devices)
        owner = np.repeat(np.arange(n), devices.sizes)
        weights, points = devices.point_weights, devices.stored
        weight = _sum(owner, weights, n)
        mean = np.stack([_sum(owner, weights * x, n) / positive(weight) for x in points.T], axis=1)
        squares = np.stack([_sum(owner, weights * x * x, n) for x in (points - mean[owner]).T], axis=1)
        moments = np.concatenate((weight[:, None], mean, squares), axis=1)
        moments[devices.sizes <= (devices.min_count if devices.min_count > 1 else 0)] = 0.0
        return moments

    def combine(self, first: Floats, second: Floats) -> Floats:
        """Merge moments."""
        d = first.shape[1] // 2
        total, weight = first[:, :1], second[:, :1]
        divisor = positive(total + weight)
        difference = second[:, 1 : 1 + d] - first[:, 1 : 1 + d]
        mean = first[:, 1 : 1 + d] + difference * (weight / divisor)
        common = total * weight / divisor
        with np.errstate(over="ignore", invalid="ignore"):
            # The square of a large mean is +inf, which times 0 would be NaN.
            between = np.where(common > 0.0, difference * difference * common, 0.0)
        squares = first[:, 1 + d :] + second[:, 1 + d :] + between
        return np.concatenate((total + weight, mean, squares), axis=1)

    def conclude(self, totals: Floats) -> Floats:
        """Compute mean and standard deviation."""
        d = totals.shape[1] // 2
        weight = totals[:, :1]
        deviation = np.where(weight > 0.0, np.sqrt(totals[:, 1 + d :] / positive(weight)), 1.0)
        return np.concatenate((totals[:, 1 : 1 + d], deviation), axis=1)


def _sum(owner: Integers, values: Floats, n: int) -> Floats:
    """Add values by owner, in their order, float64[n]."""
    return np.bincount(owner, weights=values, minlength=n).astype(np.float64)
