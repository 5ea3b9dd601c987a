"""Summary rows of points: mean, weight and sum of squared distances to the mean (SSE), which can be merged exactly."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Kernels, Keys, Stream, trials
from p2pkm.core.messages import Tables, expand_ranges
from p2pkm.core.sorting import blocks
from p2pkm.methods.building_blocks.total_variation import squared_distances

# Seedings, and largest number of Lloyd steps, of the local k-means of a device.
_STARTS = 3
_LIMIT = 300
# Relative difference from an integer that counts as a rounding error of a weight.
_ROUNDING = 1e-12
# Width given to `blocks` per feature: blocks of rows that stay in the second-level cache.
_BLOCK_WIDTH = 64


class Rows(NamedTuple):
    """Summary rows.

    Attributes
    ----------
    means : float64[r, d]
    weights : float64[r]
    within : float64[r]
        SSE of the points of each row.
    """

    means: Floats
    weights: Floats
    within: Floats

    @classmethod
    def of(cls, table: Floats) -> "Rows":
        """Convert a table (mean, weight, SSE), float64[r, d + 2]."""
        return cls(np.ascontiguousarray(table[:, :-2]), table[:, -2].copy(), table[:, -1].copy())

    @property
    def table(self) -> Floats:
        """Table (mean, weight, SSE), float64[r, d + 2]."""
        return np.column_stack(self)

    def merge(self, group: Integers, origins: Floats) -> "Rows":
        """Merge the rows of each group into one row.

        Parameters
        ----------
        group : int64[r]
            Group of each row, from 0. Each group has rows.
        origins : float64[g, d]
            A point near the mean of each group.
        """
        means, weights, within = self
        count = len(origins)
        total = np.bincount(group, weights, count).astype(np.float64, copy=False)
        # Sums of offsets from a nearby point, so that large coordinates do not cancel. Columns are read from blocks
        # that stay in the cache: each of them lies in all lines of the array of rows.
        spans, offsets = list(blocks(len(means), _BLOCK_WIDTH * means.shape[1])), np.empty(means.shape[::-1])
        for span in spans:
            offsets[:, span] = weights[span] * (means[span] - origins[group[span]]).T
        sums = np.stack([np.bincount(group, column, count) for column in offsets], axis=1)
        merged = origins + sums / total[:, None]
        squares = within.copy()
        for span in spans:
            for column in (means[span] - merged[group[span]]).T:
                squares[span] += weights[span] * column * column
        return Rows(merged, total, np.bincount(group, squares, count).astype(np.float64, copy=False))


def to_point_units(weights: Floats, unit: float) -> Floats:
    """Convert weights to units of the mean point weight; rounding errors of integers are removed."""
    points = weights / unit
    integers = np.rint(points)
    return np.where(np.abs(points - integers) <= _ROUNDING * integers, integers, points)


def cost_upper_bound(rows: Rows, centroids: Floats) -> float:
    """Compute ``B(C) = sum_r n_r min_c |a_r - c|^2 + sum_r SSE_r``, an upper bound of the cost of C on the points.

    B is the cost of C if all points of a row are assigned to the centroid nearest to the mean of the row; see
    docs/explain/proofs.md.
    """
    nearest = squared_distances(rows.means, centroids).min(axis=1)
    return float(np.cumsum(rows.weights * nearest + rows.within)[-1])


def summarize(devices: Devices, limits: Integers, least: int = 1) -> Tables:
    """Summarize the points of every device as rows (origin, mean, weight, SSE): local k-means, best of 3.

    Parameters
    ----------
    limits : int64[n]
        Largest number of rows of each device.
    least : int, default=1
        A row of fewer points is merged with the nearest row of its device, or omitted if it is the only one.
    """
    tables: list[Floats] = [np.zeros((0, devices.d + 3))]
    owners: list[Integers] = [np.zeros(0, np.int64)]
    for limit in np.unique(limits[(limits > 0) & (devices.sizes > 0)]):
        members = np.flatnonzero((limits == limit) & (devices.sizes > 0))
        owner, rows = _cluster(devices, members, int(limit), least)
        owners.append(owner)
        rows = rows._replace(weights=rows.weights * devices.unit, within=rows.within * devices.unit)
        tables.append(np.column_stack((devices.ids[owner], rows.table)))
    owner = np.concatenate(owners)
    counts = np.bincount(owner, minlength=len(devices))
    values = np.concatenate(tables)[np.argsort(owner, kind="stable")]
    return Tables(values, np.cumsum(counts) - counts, counts)


def compress(
    kernels: Kernels, table: tuple[Floats, Floats, Integers], limit: int, stream: tuple[Keys, int, int]
) -> tuple[Integers, Rows]:
    """Summarize points as at most `limit` rows per device: the position of each row's device, and the rows.

    Parameters
    ----------
    table : tuple of (float64[m, d], float64[m], int64[n + 1])
        Points, their weights (empty: all 1) and offsets of the devices. Each device has points.
    limit : int
        Largest number of rows of each device.
    stream : tuple
        Keys, purpose and number of the random streams.
    """
    owner, rows, _ = _cluster_each(kernels, table, limit, stream)
    return owner, rows


def _cluster_each(
    kernels: Kernels, table: tuple[NDArray[Any], Floats, Integers], limit: int, stream: tuple[Keys, int, int]
) -> tuple[Integers, Rows, Integers]:
    """Compute the results of `compress`, and the number of points of each row."""
    (points, point_weights, firsts), n = table, len(table[2]) - 1
    options = point_weights, point_weights, firsts, limit, trials(limit), _STARTS, _LIMIT, np.zeros(n)
    centroids, _, _ = kernels.kmeans(points, *options, *stream)
    _, labels = kernels.losses(points, point_weights, firsts, centroids)
    cell = np.repeat(np.arange(n), firsts[1:] - firsts[:-1]) * limit + labels
    used, group, counts = np.unique(cell, return_inverse=True, return_counts=True)
    weights = point_weights if len(point_weights) else np.ones(len(points))
    single_points = Rows(points.astype(np.float64, copy=False), weights, np.zeros(len(points)))
    return used // limit, single_points.merge(group, centroids.reshape(-1, points.shape[1])[used]), counts


def _cluster(devices: Devices, members: Integers, limit: int, least: int) -> tuple[Integers, Rows]:
    """Summarize some devices as at most `limit` rows each: the position of each row's device, and the rows."""
    stored, weights, offsets = devices.kernel_inputs
    sizes = devices.sizes[members]
    indices = expand_ranges(offsets[members], sizes)
    points, firsts = stored[indices], np.concatenate(([0], np.cumsum(sizes)))
    point_weights = to_point_units(weights[indices], devices.unit) if len(weights) else weights
    stream = devices.keys[members], int(Stream.SUMMARY), 0
    position, rows, counts = _cluster_each(devices.kernels, (points, point_weights, firsts), limit, stream)
    owner = members[position]
    return (owner, rows) if least < 2 else _merge_small(owner, rows, counts, least)


def _merge_small(owner: Integers, rows: Rows, counts: Integers, least: int) -> tuple[Integers, Rows]:
    """Merge rows of few points with the nearest row of the same device, the smallest first; omit those that remain."""
    target = np.arange(len(owner))
    for i in np.unique(owner[counts < least]):
        target[owner == i] = _merge_targets(np.flatnonzero(owner == i), rows, counts, least)
    remaining, group = np.unique(target, return_inverse=True)
    merged = rows.merge(group, rows.means[remaining])
    enough = np.bincount(group, counts) >= least
    return owner[remaining][enough], Rows(*(column[enough] for column in merged))


def _merge_targets(indices: Integers, rows: Rows, counts: Integers, least: int) -> Integers:
    """Find the row of a device with which each of its rows is merged; a row that is not merged is its own target."""
    group = np.arange(len(indices))
    device_rows = Rows(*(column[indices] for column in rows))
    while True:
        remaining, numbers = np.unique(group, return_inverse=True)
        sizes = np.bincount(numbers, counts[indices])
        merged = device_rows.merge(numbers, device_rows.means[remaining])
        smallest = int(np.argmin(sizes))
        if sizes[smallest] >= least or len(remaining) == 1:
            return indices[group]
        distances = np.zeros(len(remaining))
        for column in (merged.means - merged.means[smallest]).T:
            distances += column * column
        distances[smallest] = np.inf
        group[group == remaining[smallest]] = remaining[int(np.argmin(distances))]
