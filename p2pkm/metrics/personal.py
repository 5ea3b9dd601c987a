"""Scores of the clustering of each device on its own test points, beside a common clustering and the device alone."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask, Stream
from p2pkm.core.brief import short_repr
from p2pkm.core.cache import memoize_in_study
from p2pkm.core.chunks import label
from p2pkm.core.digest import digest
from p2pkm.data.shards import Shards
from p2pkm.metrics.clustering import ari
from p2pkm.metrics.gathering import Gathering
from p2pkm.network.transport import Network

# Runs of local k-means with different initial centroids, of which the best one counts.
_STARTS_ALONE = 10
# Relative differences of costs up to which they are equal: the same centroids, summed in another order.
_ROUNDED = 2.0**-30
# Columns of `PersonalScores.cells`.
_DEVICE, _CLASS, _ROW, _COUNT = range(4)


class PersonalScores(NamedTuple):
    """Scores of each device on its test points, which no stage of the run has seen.

    A cost is the mean squared distance of the test points, weighted by their weights, to the nearest centroid. NaN
    without test points or centroids, and for Byzantine devices.

    Attributes
    ----------
    sizes : int64[n]
        Number of test points of each device.
    cost : float64[n]
        Cost of the centroids of the device.
    alone : float64[n]
        Cost of k-means on its other points, the best of ten; with fewer than k distinct points, of these points. NaN
        without baselines.
    common : float64[n]
        Cost of central k-means on the other points of all devices; NaN without baselines.
    centers : float64[n]
        Cost of the true centers; NaN if they are not known.
    ari : float64[n] or None
        Adjusted Rand index of the labels of the test points of the device; None without true classes.
    cells : int64[q, 4] or None
        Device, true class, row of its centroids, and number of test points; None without true classes.
    """

    sizes: Integers
    cost: Floats
    alone: Floats
    common: Floats
    centers: Floats
    ari: Floats | None
    cells: Integers | None

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def best_other(self) -> Floats:
        """Lower one of the costs of the common clustering and of the device alone, float64[n]."""
        return np.minimum(self.alone, self.common)

    def divide_by(self, reference: Floats) -> float | None:
        """Divide the sum of the costs by that of a reference, over the devices for which all costs are known.

        1 if both are 0; None without such devices, or if only the reference is 0.
        """
        # The same devices for each reference, so that ratios can be compared.
        is_known = np.isfinite(self.best_other)
        return _divide_sums(self.cost, reference, is_known if is_known.any() else None)

    @property
    def share_better(self) -> float | None:
        """Share of the devices whose cost is below both others, by more than rounding; None if none is known."""
        n_known = np.count_nonzero(np.isfinite(self.cost) & np.isfinite(self.best_other))
        is_better = self.cost < self.best_other * (1.0 - _ROUNDED)
        return np.count_nonzero(is_better) / n_known if n_known else None

    def compare(self) -> Floats:
        """Divide the cost of each device by the better one of the common clustering and the device alone, float64[n].

        1 if both are 0, NaN if only the latter is 0 or one is not known.
        """
        other = self.best_other
        return np.where((self.cost == 0.0) & (other == 0.0), 1.0, self.cost / np.where(other > 0.0, other, np.nan))

    def tabulate(self, numbers: Integers) -> Integers | None:
        """Count the test points of all devices by true class and cluster number, int64[classes, k]; None without.

        Parameters
        ----------
        numbers : int64[n, k]
            Cluster number of each row of centroids of each device.
        """
        if self.cells is None or not len(self.cells):
            return None
        table = np.zeros((int(self.cells[:, _CLASS].max()) + 1, numbers.shape[1]), np.int64)
        cells = self.cells[~np.isnan(self.cost)[self.cells[:, _DEVICE]]]
        np.add.at(table, (cells[:, _CLASS], numbers[cells[:, _DEVICE], cells[:, _ROW]]), cells[:, _COUNT])
        return table


class Rivals(NamedTuple):
    """Centroids with which those of the devices are compared.

    Attributes
    ----------
    common : float64[k, d] or None
        Centroids of central k-means; None: the run is without baselines.
    centers : float64[n, c, d] or None
        True centers of each device of this rank, if they are known.
    """

    common: Floats | None
    centers: Floats | None


class TestCosts:
    """Test cost of all devices over that of a common clustering, as records have it.

    Creation is a collective call.

    Parameters
    ----------
    devices : Devices
        Batch of this rank, without the test points.
    tests : Shards
        Test points, in the same units.
    common : float64[k, d]
        Centroids of central k-means.
    network : Network
    """

    def __init__(self, devices: Devices, tests: Shards, common: Floats, network: Network) -> None:
        self._batch = _make_batch(devices, tests)
        costs = _measure_costs(self._batch, np.broadcast_to(common, (len(devices), *common.shape)))
        # As in the result: devices without other points have no cost alone, and count in no ratio.
        self._common = network.gather_by_device(np.where(devices.sizes > 0, costs, np.nan))

    def measure(self, centroids: Floats) -> Floats:
        """Compute the cost of the centroids float64[n, k, d] of devices of this rank, float64[n]; NaN if unknown."""
        return _measure_costs(self._batch, centroids)

    def divide(self, costs: Floats, excluded: Integers) -> float | None:
        """Divide the summed costs of all devices, without those excluded, by those of the common clustering; on rank 0.

        None without known costs.
        """
        counted = np.ones(len(costs), bool)
        counted[excluded] = False
        return _divide_sums(costs, self._common[: len(costs)], counted)


def _divide_sums(cost: Floats, reference: Floats, counted: Mask | None) -> float | None:
    """Divide the sum of the costs by that of a reference, over counted devices for which both are known.

    1 if both are 0; None without such devices, or if only the reference is 0.
    """
    is_known = np.isfinite(cost) & np.isfinite(reference)
    if counted is not None:
        is_known &= counted
    if not is_known.any():
        return None
    total, of_reference = (float(np.cumsum(part[is_known])[-1]) for part in (cost, reference))
    if of_reference == 0.0:
        return 1.0 if total == 0.0 else None
    return total / of_reference


def score_test_points(
    devices: Devices, shards: Shards, gathering: Gathering, rows: tuple[Floats, Floats | None, Floats | None],
    rivals: Rivals, excluded: Integers,
) -> PersonalScores | None:  # fmt: skip
    """Score the devices on their test points; a collective call, in which only receivers of the result get scores.

    Parameters
    ----------
    devices : Devices
        Batch of this rank, without the test points.
    shards : Shards
        Points of this rank, with test points in the same units.
    gathering : Gathering
    rows : (float64[n, k, d], float64[n, q, d] or None, float64[n, k] or None)
        Centroids, intermediate rows by which points are labeled, and penalties of the labels, see
        `p2pkm.core.chunks.label`.
    rivals : Rivals
    excluded : int64 array
        Byzantine devices.

    Returns
    -------
    PersonalScores or None
        None without test points, and on ranks that do not receive the result.
    """
    tests = shards.tests
    if tests is None:
        return None
    batch = _make_batch(devices, tests)
    centroids, alone, n = rows[0], None, len(devices)
    if rivals.common is not None:
        k = len(rivals.common)
        alone = memoize_in_study(
            "alone on test points", lambda: (digest(*devices.kernel_inputs, devices.keys), k),
            lambda: devices.kmeans(k, Stream.LOCAL_ONLY, starts=_STARTS_ALONE)[0],
        )  # fmt: skip
    common = None if rivals.common is None else np.broadcast_to(rivals.common, (n, *rivals.common.shape))
    costs = np.column_stack([_measure_costs(batch, models) for models in (centroids, alone, common, rivals.centers)])
    tables = _count_classes(batch, tests, gathering, rows)
    scores = np.full(n, np.nan) if tables is None else ari(tables)
    gathered = gathering.gather(np.column_stack((batch.sizes, costs, scores)))
    cells = None if tables is None else _gather_cells(batch, tables, gathering)
    if gathered is None:
        return None
    gathered = gathered[: devices.clients]
    gathered[excluded, 1:] = np.nan
    sizes, cost, alone_cost, common_cost, centers_cost, score = np.ascontiguousarray(gathered.T)
    return PersonalScores(
        sizes.astype(np.int64), cost, alone_cost, common_cost, centers_cost, None if tables is None else score, cells
    )


def _make_batch(devices: Devices, tests: Shards) -> Devices:
    """Return the batch of this rank with the test points in place of all others."""
    points = np.require(tests.points, requirements=["C", "W"])
    return replace(devices, stored=points, offsets=tests.offsets, point_weights=tests.weights)


def _measure_costs(batch: Devices, models: Floats | None) -> Floats:
    """Compute the cost of the models of all devices on their points, float64[n]; NaN where it is not known."""
    if models is None:
        return np.full(len(batch), np.nan)
    masses = batch.masses
    losses, _ = batch.kernels.losses(*batch.kernel_inputs, np.ascontiguousarray(models))
    is_known = (masses > 0) & np.isfinite(losses)
    return np.where(is_known, losses, np.nan) / np.where(masses > 0, masses, 1.0)


def _count_classes(
    batch: Devices, tests: Shards, gathering: Gathering, rows: tuple[Floats, Floats | None, Floats | None]
) -> Integers | None:
    """Count the test points of each device by true class and row of its centroids, int64[n, classes, k].

    None without true classes. Points of devices without centroids are not counted.
    """
    if tests.labels is None:
        return None
    # Classes of test points may be missing among all other points.
    largest = gathering.network.allgather_by_device(np.full(tests.n, tests.labels.max(initial=-1)))
    n_classes, k = int(largest.max(initial=-1)) + 1, rows[0].shape[1]
    tables = np.zeros((len(batch), n_classes, k), np.int64)
    for piece in label(batch, *rows):
        truth = tests.labels[piece.rows].astype(np.int64)
        # The first column counts points without a label.
        counted = batch.kernels.count_class_labels(piece.offsets, truth, 1 + piece.labels, n_classes, 1 + k)
        tables[piece.span] = counted[:, :, 1:]
    return tables


def _gather_cells(batch: Devices, tables: Integers, gathering: Gathering) -> Integers | None:
    """Gather the cells of the tables that are not 0; in the order of the devices."""
    device, truth, row = np.nonzero(tables)
    counts = np.bincount(device, minlength=len(batch))
    cells = np.column_stack((batch.ids[device], truth, row, tables[device, truth, row]))
    gathered: Integers | None = gathering.gather(cells, gathering.network.allgather_by_device(counts))
    return gathered
