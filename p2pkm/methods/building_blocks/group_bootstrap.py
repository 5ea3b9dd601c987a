"""Parametric bootstrap of the number of groups: decrease of the cost from G to G + 1 groups if there are G groups.

The null model keeps the groups, and for each device its number of points in each cluster of its group. Points are drawn
from Gaussians. A cluster without points of a device has none in the model, so label skew is not evidence for a group.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Stream
from p2pkm.kernels.reference import uniforms
from p2pkm.kernels.streams import as_normal
from p2pkm.methods.building_blocks.device_rows import DeviceRows
from p2pkm.methods.building_blocks.total_variation import squared_distances
from p2pkm.methods.building_blocks.weighted_rows import compress

# Number of replicates, and number after which a clear answer ends the test.
_REPLICATES = 19
_EARLY = 7
# An answer is clear below or above these standard deviations.
_CLEARLY_BELOW = 2.0
_CLEARLY_ABOVE = 8.0
# Largest numbers of devices, and of points per device, that are drawn; they bound the time.
_DEVICES = 32
_POINTS = 400
# Largest number of features with full covariances; above, covariances are diagonal.
_MAX_FULL_FEATURES = 10
# Standard deviations by which the decrease must exceed the mean of the replicates.
_THRESHOLD = 4.0
# Lower bound of this standard deviation of ln(J_(G+1) / J_G).
_MIN_DEVIATION = 1e-3
# Size of the table of normal quantiles from which values are drawn.
_TABLE_SIZE = 1 << 16
# First number of the random streams of the null model.
_FIRST_STREAM = 1 << 24

LogCostRatio = Callable[[DeviceRows], float]


class Cells(NamedTuple):
    """Clusters of all groups.

    Attributes
    ----------
    means : float64[c, d]
    roots : float64[c, d, d] or float64[c, d]
        Lower triangular roots of the covariances of the points, or standard deviations.
    counts : int64[n, c]
        Number of points of each device in each cluster; 0 for clusters of other groups.
    """

    means: Floats
    roots: Floats
    counts: Integers


def is_beyond(devices: DeviceRows, tables: Floats, log_ratio: LogCostRatio) -> bool:
    """Check whether an additional group decreases the cost by more than chance.

    Parameters
    ----------
    devices : DeviceRows
    tables : float64[G, k, d]
        Centroids of the accepted groups.
    log_ratio : callable
        Computes ``ln(J_(G+1) / J_G)`` of `DeviceRows`.

    Notes
    -----
    The log ratio must be below the mean of 19 replicates by more than 4 standard deviations (of at least 0.001). 7
    replicates suffice if it is below by less than 2 or more than 8. Of more than 32 devices a random sample of 32 is
    used.
    """
    devices = sample_devices(devices)
    value = log_ratio(devices)
    replicates = list[float]()
    for replicate in draw_replicates(devices, describe_cells(devices, tables)):
        replicates.append(log_ratio(replicate))
        if len(replicates) == _EARLY:
            deviations = _count_deviations(value, replicates)
            if not _CLEARLY_BELOW <= deviations <= _CLEARLY_ABOVE:
                break
    return _count_deviations(value, replicates) > _THRESHOLD


def _count_deviations(value: float, replicates: list[float]) -> float:
    """Compute by how many standard deviations a value is below the mean of the replicates."""
    mean = sum(replicates) / len(replicates)
    deviation = math.sqrt(sum((replicate - mean) ** 2 for replicate in replicates) / (len(replicates) - 1))
    return (mean - value) / max(deviation, _MIN_DEVIATION)


def sample_devices(devices: DeviceRows) -> DeviceRows:
    """Draw a sample of at most 32 devices."""
    if devices.n <= _DEVICES:
        return devices
    draws = uniforms(devices.key, Stream.GROUP, [_FIRST_STREAM], devices.n)[0]
    return devices.take(np.sort(np.argsort(draws, kind="stable")[:_DEVICES]))


def describe_cells(devices: DeviceRows, tables: Floats) -> Cells:
    """Estimate the clusters of the groups; a row belongs to the nearest centroid of its device's cheapest table."""
    rows, owner, k, d = devices.rows, devices.owner, devices.k, tables.shape[2]
    label = np.argmin(devices.costs(tables), axis=0)[owner]
    distances = np.stack([squared_distances(rows.means, table) for table in tables])[label, np.arange(len(owner))]
    cell = label * k + np.argmin(distances, axis=1)
    n_cells = len(tables) * k
    points = np.maximum(np.rint(rows.weights / devices.unit), 1.0)
    total = np.bincount(cell, points, n_cells)
    divisors = np.where(total > 0.0, total, 1.0)
    sums = np.stack([np.bincount(cell, points * column, n_cells) for column in rows.means.T], axis=1)
    means = sums / divisors[:, None]
    residuals = rows.means - means[cell]
    # The SSE within rows counts as the same variance in each direction.
    inside = np.bincount(cell, rows.within / devices.unit, n_cells) / d
    freedom = np.maximum(total - 1.0, 1.0)
    if d > _MAX_FULL_FEATURES:
        squares = np.stack([np.bincount(cell, points * column * column, n_cells) for column in residuals.T])
        roots = np.sqrt((squares + inside) / freedom).T
    else:
        products = np.array([[np.bincount(cell, points * a * b, n_cells) for a in residuals.T] for b in residuals.T])
        products[np.arange(d), np.arange(d)] += inside
        roots = np.stack([_root(matrix) for matrix in np.moveaxis(products / freedom, 2, 0)])
    counts = np.bincount(owner * n_cells + cell, points, devices.n * n_cells).astype(np.int64).reshape(-1, n_cells)
    return Cells(means, np.ascontiguousarray(roots), counts)


def _root(matrix: Floats) -> Floats:
    """Compute the lower triangular root of a positive semidefinite matrix; directions without variance are omitted."""
    remaining, root = matrix.copy(), np.zeros_like(matrix)
    for i in range(len(matrix)):
        if remaining[i, i] > 1e-12 * matrix[i, i]:
            root[i:, i] = remaining[i:, i] / math.sqrt(remaining[i, i])
            remaining[i:, i:] -= root[i:, i, None] * root[i:, i]
    return root


def draw_replicates(devices: DeviceRows, cells: Cells) -> Iterator[DeviceRows]:
    """Yield replicates: devices with at most 2 k rows of points drawn from the clusters of their groups."""
    counts, weights = thin_counts(cells.counts)
    n, d = len(counts), cells.means.shape[1]
    sizes = counts.sum(axis=1)
    cell = np.repeat(np.tile(np.arange(counts.shape[1]), n), counts.ravel())
    firsts = np.concatenate(([0], np.cumsum(sizes)))
    point_weights = np.repeat(weights, sizes)
    for number in range(_REPLICATES):
        draws = uniforms(devices.key, Stream.GROUP, [_FIRST_STREAM + 1 + number], len(cell) * d)[0].reshape(-1, d)
        normal = _quantiles()[(draws * _TABLE_SIZE).astype(np.int64)]
        points = cells.means[cell]
        if cells.roots.ndim == 2:
            points = points + normal * cells.roots[cell]
        else:
            for f in range(d):
                points = points + cells.roots[:, :, f][cell] * normal[:, f, None]
        keys = np.full(n, devices.key, np.uint64)
        stream = keys, int(Stream.GROUP), 2 * _FIRST_STREAM + 16 * number
        owner, rows = compress(devices.kernels, (points, point_weights, firsts), 2 * devices.k, stream)
        yield devices._replace(rows=rows, owner=owner, unit=1.0)


def thin_counts(counts: Integers) -> tuple[Integers, Floats]:
    """Reduce counts, int64[n, cells], to about 400 points per device; the second result is the weight of a point."""
    share = np.minimum(1.0, _POINTS / np.maximum(counts.sum(axis=1), 1))
    # A cluster with points keeps at least one.
    reduced = np.where(counts > 0, np.maximum(np.rint(counts * share[:, None]), 1.0), 0.0).astype(np.int64)
    return reduced, counts.sum(axis=1) / np.maximum(reduced.sum(axis=1), 1)


@cache
def _quantiles() -> Floats:
    """Compute the quantiles of the normal distribution halfway between multiples of 2^-16, float64[65536]."""
    return as_normal((np.arange(_TABLE_SIZE) + 0.5) / _TABLE_SIZE)
