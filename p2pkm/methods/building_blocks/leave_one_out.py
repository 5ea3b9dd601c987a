"""Leave-one-out likelihood of the centroids of each device: how well they predict a point that they do not contain."""

import math
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.chunks import label

# Rows that are computed at a time.
_ROWS = 65_536


class Mixture(NamedTuple):
    """Gaussian mixture of each device in which points are predicted, equal for all centroids that are compared.

    Attributes
    ----------
    noise : float64[n]
        s2, the variance of a coordinate; above 0.
    prior : float64[n]
        m0, strength of the prior of the shares, in points per cluster.
    """

    noise: Floats
    prior: Floats


def leave_one_out(
    devices: Devices,
    centroids: Floats,
    mixture: Mixture,
    *,
    pull: Floats | None = None,
    pooled: Floats | None = None,
    penalties: Floats | None = None,
) -> Floats:
    """Compute the log-likelihood of the points of each device, each without itself, float64[n].

    With its neighbors fixed, centroid w of GTVMin is a weighted mean of n points and of neighbors with the weight
    `pull`. Without one of its points x, the residual is exactly ``(x - w) (n + pull) / (n + pull - 1)``. The shares are
    ``(n_c + m0) / (m + k m0)``, without the point, too. A constant term, equal for all centroids, is left out.

    Parameters
    ----------
    centroids : float64[n, k, d]
    mixture : Mixture
    pull : float64[n], optional
        Weight of all neighbors of a device, in points: the sum of 2 alpha over its links.
    pooled : float64[n, k], optional
        For means of the points of all devices: their number in each cluster. Replaces n + pull.
    penalties : float64[n, k], optional
        Penalties of the clusters in the assignment.

    Returns
    -------
    float64[n]
        0 for devices without points, -inf if no centroid remains without the point.
    """
    n, k, d = centroids.shape
    points, weights, _ = devices.kernel_inputs
    result = np.zeros(n)
    for span, rows, offsets, _, labels in label(devices, centroids, penalties=penalties):
        sizes = np.diff(offsets)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        mass = weights[rows] / devices.unit if len(weights) else np.ones(len(owner))
        counts = np.zeros((len(sizes), k))
        np.add.at(counts, (owner, labels), mass)
        support = counts
        if pull is not None:
            support = counts + pull[span, None]
        elif pooled is not None:
            support = pooled[span]
        totals = np.cumsum(counts, axis=1)[:, -1]
        logs = np.zeros(len(owner))
        # In blocks of rows, whose arrays of a number per cluster would take several times the memory of the points.
        for first in range(0, len(owner), _ROWS):
            block = slice(first, first + _ROWS)
            of, own, weight = owner[block], labels[block], mass[block]
            point = np.arange(len(of))
            # Squared residuals in units of twice the noise.
            squares = np.zeros((len(of), k))
            for f in range(d):
                squares += (points[rows, f][block, None] - centroids[span][of, :, f]) ** 2
            squares /= 2.0 * mixture.noise[span][of, None]
            remaining = support[of, own] - weight
            is_last = remaining <= 1e-9 * weight
            factor = support[of, own] / np.where(is_last, 1.0, remaining)
            squares[point, own] = np.where(is_last, np.inf, squares[point, own] * factor * factor)
            prior = mixture.prior[span][of]
            shares = counts[of] + prior[:, None]
            shares[point, own] -= weight
            shares /= (totals[of] - weight + k * prior)[:, None]
            least = squares.min(axis=1)
            exponents = squares - np.where(least < np.inf, least, 0.0)[:, None]
            logs[block] = _log_of_sums(shares, exponents) - least
        result[span] = np.bincount(owner, mass * logs, len(sizes))
    return result


def _log_of_sums(shares: Floats, exponents: Floats) -> Floats:
    """Compute ``log sum_c shares_c exp(-exponents_c)`` of each row.

    By the functions of the module math: the last bits of vectorized ones depend on the position in the array.
    """
    m, k = shares.shape
    powers = np.fromiter(map(math.exp, (-exponents).ravel().tolist()), np.float64, m * k).reshape(m, k)
    sums = np.cumsum(shares * powers, axis=1)[:, -1].tolist()
    return np.fromiter((math.log(total) if total > 0.0 else -math.inf for total in sums), np.float64, m)
