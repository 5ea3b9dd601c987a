"""Rows that stand for points: mean, weight and sum of squared distances to the mean (SSE), which merge exactly."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Kernels, Keys, Stream, trials
from p2pkm.core.messages import Tables, expand_ranges
from p2pkm.methods.building_blocks.total_variation import squared

_STARTS, _LIMIT = 3, 300  # seedings and Lloyd steps of a device
_ROUNDING = 1e-12  # relative, of a weight


class Rows(NamedTuple):
    """means: float64[r, d]; weights, within: float64[r], the SSE of what each row stands for."""

    means: Floats
    weights: Floats
    within: Floats

    @classmethod
    def of(cls, table: Floats) -> "Rows":
        """Return the rows of a table (mean, weight, SSE), float64[r, d + 2]."""
        return cls(np.ascontiguousarray(table[:, :-2]), table[:, -2].copy(), table[:, -1].copy())

    @property
    def table(self) -> Floats:
        """Return the same side by side, float64[r, d + 2]."""
        return np.column_stack(self)

    def merge(self, group: Integers, near: Floats) -> "Rows":
        """Return one row for each group of rows, all of which have some.

        Parameters
        ----------
        group : int64[r]
            Of each row, from 0.
        near : float64[g, d]
            A point near the mean of each group; sums are taken from there.
        """
        means, weights, within = self
        count = len(near)
        mass = np.bincount(group, weights, count).astype(np.float64, copy=False)
        away = (means - near[group]).T
        merged = near + np.stack([np.bincount(group, weights * one, count) for one in away], axis=1) / mass[:, None]
        squares = within.copy()
        for one in (means - merged[group]).T:
            squares += weights * one * one
        return Rows(merged, mass, np.bincount(group, squares, count).astype(np.float64, copy=False))


def in_points(weights: Floats, unit: float) -> Floats:
    """Return weights in units of a point's mean weight, whole numbers where only rounding keeps them from it."""
    points = weights / unit
    near = np.rint(points)
    return np.where(np.abs(points - near) <= _ROUNDING * near, near, points)


def bound(rows: Rows, centroids: Floats) -> float:
    """Return ``B(C) = sum_r n_r min_c |a_r - c|^2 + sum_r SSE_r``, at least what C costs on the points themselves.

    It is what C costs if all points of a row choose the centroid nearest to the row's mean; see docs/proofs.md.
    """
    nearest = squared(rows.means, centroids).min(axis=1)
    return float(np.cumsum(rows.weights * nearest + rows.within)[-1])


def summarize(devices: Devices, limits: Integers, least: int = 1) -> Tables:
    """Return the rows (origin, mean, weight, SSE) of every device: its own k-means, best of 3.

    Parameters
    ----------
    limits : int64[n]
        How many rows each device has at most.
    least : int
        A row of fewer points is merged with the nearest row of its device, and left out if there is none.
    """
    found: list[Floats] = [np.zeros((0, devices.d + 3))]
    owners: list[Integers] = [np.zeros(0, np.int64)]
    for limit in np.unique(limits[(limits > 0) & (devices.sizes > 0)]):
        who = np.flatnonzero((limits == limit) & (devices.sizes > 0))
        owner, rows = _cluster(devices, who, int(limit), least)
        owners.append(owner)
        rows = rows._replace(weights=rows.weights * devices.unit, within=rows.within * devices.unit)
        found.append(np.column_stack((devices.ids[owner], rows.table)))
    owner = np.concatenate(owners)
    counts = np.bincount(owner, minlength=len(devices))
    values = np.concatenate(found)[np.argsort(owner, kind="stable")]
    return Tables(values, np.cumsum(counts) - counts, counts)


def compress(
    kernels: Kernels, table: tuple[Floats, Floats, Integers], limit: int, stream: tuple[Keys, int, int]
) -> tuple[Integers, Rows]:
    """Return the rows of all devices, at most `limit` each, and the position of each row's device.

    Parameters
    ----------
    table : tuple of (float64[m, d], float64[m], int64[n + 1])
        Points, their weights (none: all 1) and offsets of the devices, all of which have points.
    stream : tuple
        Keys, purpose and number of the random streams.
    """
    owner, rows, _ = _cluster_each(kernels, table, limit, stream)
    return owner, rows


def _cluster_each(
    kernels: Kernels, table: tuple[NDArray[Any], Floats, Integers], limit: int, stream: tuple[Keys, int, int]
) -> tuple[Integers, Rows, Integers]:
    """Return position of the device and rows as `compress` does, and the number of points of each row."""
    (points, mass, firsts), n = table, len(table[2]) - 1
    seeds = mass, mass, firsts, limit, trials(limit), _STARTS, _LIMIT, np.zeros(n)
    centroids, _, _ = kernels.kmeans(points, *seeds, *stream)
    _, labels = kernels.losses(points, mass, firsts, centroids)
    cell = np.repeat(np.arange(n), firsts[1:] - firsts[:-1]) * limit + labels
    used, group, members = np.unique(cell, return_inverse=True, return_counts=True)
    weights = mass if len(mass) else np.ones(len(points))
    each = Rows(points.astype(np.float64, copy=False), weights, np.zeros(len(points)))
    return used // limit, each.merge(group, centroids.reshape(-1, points.shape[1])[used]), members


def _cluster(devices: Devices, who: Integers, limit: int, least: int) -> tuple[Integers, Rows]:
    """Return the rows of some devices, at most `limit` each, and the position of each row's device."""
    stored, weights, offsets = devices.kernel_inputs
    sizes = devices.sizes[who]
    own = expand_ranges(offsets[who], sizes)
    points, firsts = stored[own], np.concatenate(([0], np.cumsum(sizes)))
    mass = in_points(weights[own], devices.unit) if len(weights) else weights
    stream = devices.keys[who], int(Stream.SUMMARY), 0
    position, rows, members = _cluster_each(devices.kernels, (points, mass, firsts), limit, stream)
    owner = who[position]
    return (owner, rows) if least < 2 else _merge_small(owner, rows, members, least)


def _merge_small(owner: Integers, rows: Rows, members: Integers, least: int) -> tuple[Integers, Rows]:
    """Merge rows of few points with the nearest row of the same device, the smallest first; leave out what remains."""
    into = np.arange(len(owner))
    for i in np.unique(owner[members < least]):
        into[owner == i] = _pair_up(np.flatnonzero(owner == i), rows, members, least)
    kept, group = np.unique(into, return_inverse=True)
    merged = rows.merge(group, rows.means[kept])
    enough = np.bincount(group, members) >= least
    return owner[kept][enough], Rows(*(part[enough] for part in merged))


def _pair_up(own: Integers, rows: Rows, members: Integers, least: int) -> Integers:
    """Return with which row of a device each of its rows is merged, itself if with none."""
    group, part = np.arange(len(own)), Rows(*(one[own] for one in rows))
    while True:
        kept, inside = np.unique(group, return_inverse=True)
        counts, merged = np.bincount(inside, members[own]), part.merge(inside, part.means[kept])
        small = int(np.argmin(counts))
        if counts[small] >= least or len(kept) == 1:
            return own[group]
        apart = np.zeros(len(kept))
        for one in (merged.means - merged.means[small]).T:
            apart += one * one
        apart[small] = np.inf
        group[group == kept[small]] = kept[int(np.argmin(apart))]
