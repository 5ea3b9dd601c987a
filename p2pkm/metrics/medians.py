"""Medians of the clusters in units of the data, on each device and over all devices."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.sorting import find_distinct, narrow, offsets_of
from p2pkm.metrics.cost_ratio import count_points
from p2pkm.metrics.gathering import Gathering
from p2pkm.metrics.result import Result, scale_back
from p2pkm.network.transport import Network

# Largest number of coordinates of points, and of centroids, with which medians are computed: sorting takes 0.5 s.
_MAX_COORDINATES = 1_000_000
# Distance from 0 and 1 that scaling causes by rounding.
_ROUNDED = 1e-9
# Number of values from which selecting the middle two takes less time than sorting; measured with NumPy 2.4.
_MIN_SELECTED = 1_000
# Difference of sums of weights that is a rounding error.
_TIED = 1e-12


class LabeledPoints(NamedTuple):
    """Points of this rank with their labels, for the medians.

    Attributes
    ----------
    devices : Devices or None
        Batch with the points at the end of the run; None in large runs.
    labels : int64[m] or None
        None in large runs.
    k : int
        Number of clusters.
    sizes : int64[n]
        Number of points of every device of the system.
    """

    devices: Devices | None
    labels: Integers | None
    k: int
    sizes: Integers


def find_labeled(labels: Integers | None, k: int, devices: Devices, network: Network) -> LabeledPoints:
    """Keep points and labels if there are few enough points to compute medians; a collective call.

    Parameters
    ----------
    labels : int64[m] or None
        Labels of the points of this rank; None in large runs.
    k : int
        Number of clusters.
    devices : Devices
        Batch of this rank with the points at the end of the run.
    network : Network
    """
    if labels is None or max(count_points(devices.sizes, network), devices.clients * k) * devices.d > _MAX_COORDINATES:
        return LabeledPoints(None, None, k, np.zeros(0, np.int64))
    return LabeledPoints(devices, labels, k, network.allgather_by_device(devices.sizes))


def add_medians(result: Result | None, points: LabeledPoints, scaling: Any, gathering: Gathering) -> Result | None:
    """Add the medians of the clusters to a result, identical on all ranks that receive it; a collective call.

    Large results are returned with a note.

    Parameters
    ----------
    result : Result or None
        With names of features; None on ranks that do not receive it.
    points : LabeledPoints
    scaling : Scaling or None
        Scaling of the features.
    gathering : Gathering
    """
    network = gathering.network
    devices, labels, k, sizes = points
    if devices is None or labels is None:
        note = "clusters.csv is not written: points or centroids have more than 1 million coordinates"
        return None if result is None else replace(result, notes=[*result.notes, note])
    n, d = len(devices), devices.d
    owner = np.repeat(np.arange(n), devices.sizes)
    is_weighted = network.total(np.array([any(devices.point_weights.strides)], np.int64))[0] > 0
    columns = np.array(devices.stored.T, np.float64, order="C")
    if scaling is not None:
        units = [part[devices.ids[owner]].T for part in scaling]
        columns = np.stack([scale_back(values, *parts) for values, *parts in zip(columns, *units, strict=True)])
    kinds = np.array([_count_kinds(values) for values in columns])
    cells = np.where(labels < 0, -1, owner * k + labels)
    medians = find_medians(columns, devices.point_weights if is_weighted else None, cells, n * k)
    pooled_columns = network.gather_by_device(np.ascontiguousarray(columns.T), sizes)
    weights = network.gather_by_device(devices.point_weights, sizes) if is_weighted else None
    kinds = network.total(kinds)
    cluster_medians = gathering.gather(medians.T.reshape(n, k, d))
    if result is None:
        return None
    census, pooled = result.census, None
    if gathering.world.rank == 0 and census.device is not None and census.labels is not None:
        numbers = result.number_alike(census.device, census.labels)
        pooled = {"medians": find_medians(pooled_columns.T, weights, numbers, k).T}
    census = census._replace(
        cluster_medians=cluster_medians[: devices.clients], pooled_medians=gathering.share(pooled)["medians"],
        is_share=_find_shares(kinds, int(sizes.sum()), result.feature_names),
    )  # fmt: skip
    return replace(result, census=census)


def find_medians(columns: Floats, weights: Floats | None, cells: Integers, count: int) -> Floats:
    """Compute the weighted median of each feature in each cell, float64[d, count]; NaN for empty cells.

    If two values divide the weight in halves, the median is their mean, as without weights.

    Parameters
    ----------
    columns : float64[d, m]
        Values by feature.
    weights : float64[m] or None
        Positive weights; None: all 1.
    cells : int64[m]
        Cell of each point, -1: none.
    count : int
        Number of cells.
    """
    if weights is not None:
        return np.stack([_find_weighted_medians(values, weights, cells, count) for values in columns])
    columns, sizes = np.ascontiguousarray(columns), np.bincount(cells[cells >= 0], minlength=count)
    # Numbers of 16 bits are sorted by counting.
    order = np.argsort(cells.astype(narrow(count)), kind="stable")[len(cells) - sizes.sum() :]
    starts, medians = offsets_of(sizes)[:-1], np.full((len(columns), count), np.nan)
    has_negative_zeros = (columns.view(np.int64) == np.iinfo(np.int64).min).any()
    # Cells are arranged side by side, with as many -inf before as inf after the values, so that the medians are in the
    # middle of all of them. Sizes in a group differ by a factor of less than 2.
    magnitudes = np.frexp(sizes)[1]
    for magnitude in find_distinct(magnitudes[sizes > 0]):
        group = np.flatnonzero(magnitudes == magnitude)
        width = (int(sizes[group].max()) + 1) // 2 * 2
        places = np.arange(width) - (width - sizes[group, None]) // 2
        rows = order[np.clip(starts[group, None] + places, 0, len(order) - 1)]
        values = columns[:, rows]
        values[:, places < 0] = -np.inf
        values[:, places >= sizes[group, None]] = np.inf
        if width < _MIN_SELECTED or has_negative_zeros:
            # Other sorts and selections do not keep the order of -0 and 0.
            values.sort(axis=2, kind="stable" if has_negative_zeros else None)
        else:
            values.partition((width // 2 - 1, width // 2), axis=2)
        low, high = values[:, :, width // 2 - 1], values[:, :, width // 2]
        medians[:, group] = 0.5 * low + 0.5 * np.where(sizes[group] % 2, low, high)
    return medians


def _find_weighted_medians(values: Floats, weights: Floats, cells: Integers, count: int) -> Floats:
    """Compute the medians of one feature, float64[count], see `find_medians`."""
    order = np.lexsort((values, cells))
    order = order[np.count_nonzero(cells < 0) :]
    if not len(order):
        return np.full(count, np.nan)
    values, cells = values[order], cells[order]
    sums = np.cumsum(weights[order])
    sizes = np.bincount(cells, minlength=count)
    ends = sizes.cumsum()
    before = np.concatenate(([0.0], sums))[ends - sizes]
    totals = sums[ends - 1] - before
    # Share of the weight of a cell up to each value: it ascends, so the values below a limit are the first of the cell.
    shares = (sums - before[cells]) / totals[cells]
    first, last = (
        values[np.minimum(ends - sizes + np.bincount(cells[shares < limit], minlength=count), len(values) - 1)]
        for limit in (0.5 - _TIED, 0.5 + _TIED)
    )
    return np.where(sizes > 0, 0.5 * first + 0.5 * last, np.nan)


def _count_kinds(values: Floats) -> list[int]:
    """Count the values that are 1, those that are neither 0 nor 1, and those outside of the interval [0, 1]."""
    is_one = np.abs(values - 1.0) <= _ROUNDED
    is_other = ~is_one & (np.abs(values) > _ROUNDED)
    is_outside = (values < -_ROUNDED) | (values > 1.0 + _ROUNDED)
    return [int(np.count_nonzero(mask)) for mask in (is_one, is_other, is_outside)]


def _find_shares(kinds: Integers, m: int, names: Sequence[str]) -> Mask:
    """Find the features whose mean is a share, bool[d]: values 0 and 1, or an encoded category with filled-in values.

    Parameters
    ----------
    kinds : int64[d, 3]
        Counts of `_count_kinds` over all points.
    m : int
        Number of points.
    names : sequence of str
        Names of the features; those of encoded categories contain "=", such as ``ward=icu``.
    """
    true_counts, number_counts, outside_counts = kinds.T
    is_category = np.array(["=" in name for name in names], np.bool_)
    return ((number_counts == 0) & (true_counts > 0) & (true_counts < m)) | (is_category & (outside_counts == 0))
