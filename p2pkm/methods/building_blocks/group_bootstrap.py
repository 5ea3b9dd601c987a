"""Parametric bootstrap of the number of groups: the fall of the cost from G to G + 1 groups where there are G.

The null keeps the groups, and for each device the number of its points in each cluster of its group; the points are
drawn from Gaussians, so a cluster of which a device holds no points cannot speak for a further group.
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
from p2pkm.methods.building_blocks.total_variation import squared
from p2pkm.methods.building_blocks.weighted_rows import compress

_REPLICATES, _EARLY = 19, 7  # in all; after which a clear answer is taken
_NO, _YES = 2.0, 8.0  # standard deviations of a clear answer
_DEVICES, _POINTS = 32, 400  # that are drawn at most: devices, and points of each; bounds the time
_FULL = 10  # features up to which covariances are full, above they are diagonal
_APART, _LEAST = 4.0, 1e-3  # standard deviations by which a fall must exceed the mean of the null; the least of them
_TABLE = 1 << 16  # quantiles of the normal distribution that are drawn from
_FIRST = 1 << 24  # of the streams that the null draws from

Fall = Callable[[DeviceRows], float]


class Cells(NamedTuple):
    """The clusters of all groups.

    Attributes
    ----------
    means : float64[c, d]
    roots : float64[c, d, d] or float64[c, d]
        Lower triangular roots of the covariances of the points, or standard deviations.
    counts : int64[n, c]
        Points of each device in each cluster; 0 for clusters of other groups.
    """

    means: Floats
    roots: Floats
    counts: Integers


def is_beyond(devices: DeviceRows, tables: Floats, fall: Fall) -> bool:
    """Return whether the cost falls by more with one group more than by chance.

    Parameters
    ----------
    devices : DeviceRows
    tables : float64[G, k, d]
        Of the groups that are accepted.
    fall : function
        ``ln(J_(G+1) / J_G)`` of rows.

    Notes
    -----
    It does if it is below the mean of 19 replicates by more than 4 standard deviations (of at least 0.001); 7 are
    enough if that number is below 2 or above 8. Of more than 32 devices a sample of 32 is examined, drawn from the key.
    """
    devices = sample_devices(devices)
    own, found = fall(devices), list[float]()
    for replicate in draw_replicates(devices, describe_cells(devices, tables)):
        found.append(fall(replicate))
        if len(found) == _EARLY and not _NO <= _count_deviations(own, found) <= _YES:
            break
    return _count_deviations(own, found) > _APART


def _count_deviations(own: float, found: list[float]) -> float:
    """Return by how many standard deviations a value is below the mean of others."""
    mean = sum(found) / len(found)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in found) / (len(found) - 1))
    return (mean - own) / max(deviation, _LEAST)


def sample_devices(devices: DeviceRows) -> DeviceRows:
    """Draw a sample of at most 32 devices."""
    if devices.n <= _DEVICES:
        return devices
    draws = uniforms(devices.key, Stream.GROUP, [_FIRST], devices.n)[0]
    return devices.take(np.sort(np.argsort(draws, kind="stable")[:_DEVICES]))


def describe_cells(devices: DeviceRows, tables: Floats) -> Cells:
    """Describe the clusters of the groups; a row belongs to the nearest centroid of its device's cheapest table."""
    (rows, owner, k), d = (devices.rows, devices.owner, devices.k), tables.shape[2]
    label = np.argmin(devices.price(tables), axis=0)[owner]
    distances = np.stack([squared(rows.means, table) for table in tables])[label, np.arange(len(owner))]
    cell, many = label * k + np.argmin(distances, axis=1), len(tables) * k
    points = np.maximum(np.rint(rows.weights / devices.unit), 1.0)
    total = np.bincount(cell, points, many)
    whole = np.where(total > 0.0, total, 1.0)
    means = np.stack([np.bincount(cell, points * one, many) for one in rows.means.T], axis=1) / whole[:, None]
    away = rows.means - means[cell]
    inside = np.bincount(cell, rows.within / devices.unit, many) / d
    products = np.array([[np.bincount(cell, points * a * b, many) for a in away.T] for b in away.T]) if d <= _FULL \
        else np.stack([np.bincount(cell, points * one * one, many) for one in away.T])  # fmt: skip
    freedom = np.maximum(total - 1.0, 1.0)
    if d > _FULL:
        roots = np.sqrt((products + inside) / freedom).T
    else:
        products[np.arange(d), np.arange(d)] += inside
        roots = np.stack([_root(one) for one in np.moveaxis(products / freedom, 2, 0)])
    counts = np.bincount(owner * many + cell, points, devices.n * many).astype(np.int64).reshape(-1, many)
    return Cells(means, np.ascontiguousarray(roots), counts)


def _root(matrix: Floats) -> Floats:
    """Return the lower triangular root of a positive semidefinite matrix; a direction without variance has none."""
    left, root = matrix.copy(), np.zeros_like(matrix)
    for i in range(len(matrix)):
        if left[i, i] > 1e-12 * matrix[i, i]:
            root[i:, i] = left[i:, i] / math.sqrt(left[i, i])
            left[i:, i:] -= root[i:, i, None] * root[i:, i]
    return root


def draw_replicates(devices: DeviceRows, cells: Cells) -> Iterator[DeviceRows]:
    """Yield devices with rows of points that are drawn from the clusters of their groups, 2 k rows at most."""
    counts, weights = thin_counts(cells.counts)
    n, d = len(counts), cells.means.shape[1]
    sizes = counts.sum(axis=1)
    cell = np.repeat(np.tile(np.arange(counts.shape[1]), n), counts.ravel())
    firsts = np.concatenate(([0], np.cumsum(sizes)))
    mass = np.repeat(weights, sizes)
    for number in range(_REPLICATES):
        draws = uniforms(devices.key, Stream.GROUP, [_FIRST + 1 + number], len(cell) * d)[0].reshape(-1, d)
        normal, points = _quantiles()[(draws * _TABLE).astype(np.int64)], cells.means[cell]
        if cells.roots.ndim == 2:
            points = points + normal * cells.roots[cell]
        else:
            for f in range(d):
                points = points + cells.roots[:, :, f][cell] * normal[:, f, None]
        keys = np.full(n, devices.key, np.uint64)
        where, rows = compress(
            devices.kernels, (points, mass, firsts), 2 * devices.k, (keys, int(Stream.GROUP), 2 * _FIRST + 16 * number)
        )
        yield devices._replace(rows=rows, owner=where, unit=1.0)


def thin_counts(counts: Integers) -> tuple[Integers, Floats]:
    """Reduce counts int64[n, cells] to about 400 points per device; also returns the weight float64[n] of a point."""
    share = np.minimum(1.0, _POINTS / np.maximum(counts.sum(axis=1), 1))
    fewer = np.where(counts > 0, np.maximum(np.rint(counts * share[:, None]), 1.0), 0.0).astype(np.int64)
    return fewer, counts.sum(axis=1) / np.maximum(fewer.sum(axis=1), 1)


@cache
def _quantiles() -> Floats:
    """Return the quantiles of the normal distribution halfway between multiples of 2^-16, float64[65536]."""
    return as_normal((np.arange(_TABLE) + 0.5) / _TABLE)
