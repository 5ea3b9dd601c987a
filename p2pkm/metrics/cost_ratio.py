"""Cost of models on the pooled points, in comparison with central k-means and the local-only baseline."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Search, Stream, cluster
from p2pkm.core.cache import memoize_in_study
from p2pkm.core.digest import digest
from p2pkm.core.messages import expand_ranges
from p2pkm.core.sorting import find_runs, offsets_of
from p2pkm.data.shards import Shards
from p2pkm.data.table import Labels
from p2pkm.kernels.reference import uniforms
from p2pkm.metrics.personal import TestCosts
from p2pkm.network.transport import Network

# Limits on the work of an evaluation, in distances between a point and a centroid. _EVERY_ROUND, _IN_THE_END,
# _UNCOMPARED, _PRICED and _POOLED change printed metrics: they decide whether and on which sample costs are computed.
# Above this number, the pooled cost is evaluated only in the last record.
_EVERY_ROUND = 1e8
# Above these numbers, costs in the last record are over a sample of the devices: with and without baseline.
_IN_THE_END = 2e10
_UNCOMPARED = 1e9
# Above this number of points, costs are over a sample of about this size, drawn in runs of consecutive points.
_PRICED = 4_000_000
_RUN = 64
# Overhead per device in an evaluation, in distances that take the same time.
_VISIT = 64
# Rows that are added at a time.
_ROWS = 1024
# Above this number of coordinates, central k-means runs on a sample of the points.
_POOLED = 2_000_000
# Runs of k-means with different initial centroids, of which the best one counts: central, local-only.
_STARTS_CENTRAL = 20
_STARTS_LOCAL = 5
# Bytes of models whose costs are cached.
_REMEMBERED = 64_000_000


class PooledPoints(NamedTuple):
    """Points of all devices, or a sample of them, in ascending (device, row).

    Attributes
    ----------
    points : float64[m, d]
    weights : float64[m]
    """

    points: Floats
    weights: Floats


class CostRatios(NamedTuple):
    """Costs of the devices' models on the pooled points, on rank 0.

    Attributes
    ----------
    devices : int64[n]
        Evaluated devices, ascending: all clients or a sample.
    ratios : float64[n]
        Cost ratio of each of these; nan without centroids, and for all devices without baseline.
    costs : float64[n]
        Cost on the pooled points; inf without centroids.
    tables : int64[n, classes, k]
        Contingency table of each evaluated device: number of points of each class nearest to each centroid; 0 classes
        without labels.
    """

    devices: Integers
    ratios: Floats
    costs: Floats
    tables: Integers


class CostEvaluator:
    """Evaluator of the pooled cost of models.

    Every rank evaluates each distinct model once on its local points; the sums are added in device order, so results
    are bit-identical for any number of ranks.

    Parameters
    ----------
    devices : Devices
        Batch of this rank.
    classes : int16[m], int32[m] or int64[m]
        True class of each local point; empty without labels.
    n_classes : int
        Number of classes over all ranks, 0 without labels.
    network : Network
        Collective operations; nothing is counted as a message.
    central : float64[k, d] or None
        Centroids of `cluster_centrally`; None: no baseline.
    alone : bool
        Whether to evaluate the local-only baseline, too.
    tests : Shards or None
        Test points, whose costs are compared with the baseline.

    Attributes
    ----------
    alone : float64[n]
        Cost ratio of the local-only baseline of each device (best of 5 runs of k-means), on rank 0.
    central : float
        Cost of central k-means on the pooled points, on rank 0; nan without baseline.
    baseline : float64[k, d] or None
        Centroids of central k-means.
    test_costs : TestCosts or None
        Costs of the test points; None without them or without a baseline.
    notes : list of str
        Notes on the use of samples.
    """

    def __init__(
        self, devices: Devices, classes: Labels, n_classes: int, network: Network, central: Floats | None,
        *, alone: bool = True, tests: Shards | None = None,
    ) -> None:  # fmt: skip
        self._devices = devices
        self.classes = classes
        self.n_classes = n_classes
        self._network = network
        self._has_baseline = central is not None
        self.central = np.nan
        self.baseline = central
        self.alone = np.full(1, np.nan)
        # Devices that are evaluated, None: all clients; of the local-only baseline.
        self._scored: Integers | None = None
        self._alone = np.zeros(0, np.int64)
        self.notes: list[str] = []
        self._sample = self._draw_pool()
        self._cached_costs: dict[bytes, float] = memoize_in_study("costs", self._name_points, dict)
        self.test_costs = None if tests is None or central is None else TestCosts(devices, tests, central, network)
        if central is not None:
            self._set_baselines(central, alone)

    def exclude_devices(self, ids: Integers) -> None:
        """Exclude devices from further evaluations and from the local-only baseline."""
        self.alone[: len(self._alone)][np.isin(self._alone, ids)] = np.nan
        if len(ids):
            scored = np.arange(self._devices.clients) if self._scored is None else self._scored
            self._scored = np.setdiff1d(scored, ids)

    def release(self) -> None:
        """Free points and devices, when nothing more is evaluated."""
        del self._devices, self._sample, self.classes
        self.test_costs = None

    def _draw_pool(self) -> tuple[Floats, Floats, Integers, Integers]:
        """Return points, weights, offsets and classes for evaluations: the local part of a sample, or all if few."""
        devices, network = self._devices, self._network
        total = count_points(devices.sizes, network)
        self._points = min(total, _PRICED)
        # Number of points that each point of the sample represents.
        self._points_per_sample = max(total / _PRICED, 1.0)
        # On rank 0: 1 for each device of the system that has points in the sample; None: all devices.
        self._sampled_devices: Integers | None = None
        if total <= _PRICED:
            return *devices.kernel_inputs, self.classes.astype(np.int64)
        self.notes.append(f"cost and scores of all points are over a sample of {_PRICED} of {total} points")
        runs = draw_stratified(total // _RUN, _PRICED // _RUN, devices.shared_key, 3)
        drawn = (_RUN * runs[:, None] + np.arange(_RUN)).ravel()
        rows, counts = find_local_rows(drawn, network.find_first_rows(devices.sizes), devices.sizes)
        points, weights, _ = devices.kernel_inputs
        classes = (self.classes[rows] if self.n_classes else self.classes).astype(np.int64)
        self._sampled_devices = network.gather_by_device((counts > 0).astype(np.int8))
        offsets = offsets_of(counts[counts > 0])
        return points[rows], weights[rows] if len(weights) else weights, offsets, classes

    def _name_points(self) -> tuple[bytes, float]:
        """Return a cache key of the points on which costs depend."""
        return digest(*self._sample[:3]), self._points_per_sample

    def _set_baselines(self, central: Floats, alone_too: bool) -> None:
        """Evaluate central k-means and, if requested, the local-only baseline of all devices or a sample of them."""
        if not alone_too:
            self.central = float(self._evaluate(central[None], 0)[0][0])
            return
        devices = self._devices
        chosen = self._choose(central.size, _IN_THE_END)
        is_sample = len(chosen) < devices.clients
        local = np.flatnonzero(np.isin(devices.ids, chosen)) if is_sample else np.arange(len(devices))
        alone = np.full((len(devices), *central.shape), np.inf)
        sampled = _take(devices, local) if is_sample else devices
        alone[local] = memoize_in_study(
            "alone", lambda: (digest(*sampled.kernel_inputs, sampled.keys), len(central)),
            lambda: sampled.kmeans(len(central), Stream.LOCAL_ONLY, starts=_STARTS_LOCAL)[0],
        )  # fmt: skip
        costs, numbers, _ = self._evaluate(np.concatenate((central[None], self._gather_models(alone, chosen))), 0)
        self.central = float(costs[0])
        self.alone = self._ratios(costs[numbers[1:]])
        self._alone = chosen

    def _choose(self, coordinates: int, most: float) -> Integers:
        """Choose the devices to evaluate, given the coordinates of a model: all, or a sample within `most`."""
        n = self._devices.clients if self._scored is None else len(self._scored)
        count = max(int(most / max(self._points * coordinates + _VISIT * n, 1)), 16)
        if n <= count:
            return np.arange(n) if self._scored is None else self._scored
        note = f"ratio and scores are over a sample of {count} of {n} devices"
        if note not in self.notes:
            self.notes.append(note)
        drawn = draw_stratified(n, count, self._devices.shared_key, 1)
        return drawn if self._scored is None else self._scored[drawn]

    def _gather_models(self, models: Floats, chosen: Integers) -> Floats:
        """Gather the models of the chosen devices, ascending, from the models of the local devices, float64[n, k, d].

        Only these are sent: with millions of devices, all models are more than a rank may hold.
        """
        # A small type, because there is one number for each device of the system.
        counts: Any = np.zeros(self._devices.total, np.int8)
        counts[chosen] = 1
        gathered: Floats = self._network.allgather_by_device(models[counts[self._devices.ids] > 0], counts)
        return gathered

    def evaluate(self, centroids: Floats, *, closing: bool, final: bool) -> CostRatios | None:
        """Evaluate the models float64[n, k, d] of the devices; None if the record does without.

        Parameters
        ----------
        centroids : float64[n, k, d]
        closing : bool
            Whether the method's stage, or one after it, ends with this record: it is evaluated if there is a baseline,
            also if that takes long.
        final : bool
            Whether the run ends with this record. Other records lack contingency tables, and costs without a baseline.
        """
        k, d = centroids.shape[1:]
        is_due = closing or self._devices.clients * self._points * k * d <= _EVERY_ROUND
        if not final and not (self._has_baseline and is_due):
            return None
        chosen = self._choose(k * d, _IN_THE_END if self._has_baseline else _UNCOMPARED)
        models = self._gather_models(centroids, chosen)
        costs, numbers, tables = self._evaluate(models, self.n_classes if final else 0)
        costs = costs[numbers]
        return CostRatios(chosen, self._ratios(costs), costs, tables[numbers[np.isfinite(costs)]])

    def _evaluate(self, models: Floats, n_classes: int) -> tuple[Floats, Integers, Integers]:
        """Evaluate models: return costs of the distinct ones, the number of each model among them, and their tables."""
        distinct: dict[bytes, int] = {}
        contents, size = models.tobytes(), max(models[0].nbytes, 1)
        numbers = np.array([
            distinct.setdefault(contents[first : first + size], len(distinct))
            for first in range(0, len(contents), size)
        ])  # fmt: skip
        # Distinct models are numbered by first appearance, so a new number begins where the maximum increases.
        first = find_runs(np.maximum.accumulate(numbers))
        # The cache contains costs only: with contingency tables, all models are evaluated.
        known = self._cached_costs if n_classes == 0 else {}
        fresh = np.array([content not in known for content in distinct] if known else [True] * len(distinct))
        points, weights, offsets, classes = self._sample
        costs, tables = self._devices.kernels.evaluate_costs(
            points, weights, offsets, classes, n_classes, np.ascontiguousarray(models[first[fresh]])
        )
        gathered = self._network.gather_by_device(costs, self._sampled_devices)
        total = np.full(len(distinct), np.nan)
        if not fresh.all():
            total[~fresh] = [known[content] for content in distinct if content in known]
        if gathered is not None:
            total[fresh] = self._points_per_sample * _add_rows(gathered)
        if (len(self._cached_costs) + len(distinct)) * size > _REMEMBERED:
            self._cached_costs.clear()
        # Ranks other than 0 cache the same models, with nan, so that all ranks evaluate the same ones.
        self._cached_costs.update(zip(distinct, total.tolist(), strict=True))
        counted = self._network.total(tables) if n_classes else np.zeros((len(distinct), 0, models.shape[1]), np.int64)
        return total, numbers, counted

    def _ratios(self, costs: Floats) -> Floats:
        """Divide pooled costs by the central cost; 1 if both are 0, nan without baseline or centroids."""
        if self.central == 0.0:
            return np.where(costs == 0.0, 1.0, np.nan)
        return np.where(np.isfinite(costs), costs, np.nan) / self.central


def _add_rows(values: Floats) -> Floats:
    """Add the rows one after the other, in blocks to save memory."""
    total = np.zeros(values.shape[1])
    for first in range(0, len(values), _ROWS):
        block = np.concatenate((total[None], values[first : first + _ROWS]))
        total = block.cumsum(axis=0)[-1]
    return total


def gather_points(shards: Shards, key: int, network: Network) -> tuple[PooledPoints | None, str | None]:
    """Gather the points of all ranks, or a sample, on rank 0 (else None); return them and a note on a sample."""
    m = count_points(shards.sizes, network)
    most = max(_POOLED // shards.d, 1)
    chosen = np.arange(m) if m <= most else draw_stratified(m, most, key, 0)
    note = None if m <= most else f"central k-means ran on a sample of {most} of {m} points"
    rows, local_counts = find_local_rows(chosen, network.find_first_rows(shards.sizes), shards.sizes)
    counts = network.gather_by_device(local_counts)
    points = network.gather_by_device(shards.points[rows].astype(np.float64), counts)
    weights = network.gather_by_device(shards.weights[rows], counts)
    return None if points is None else PooledPoints(points, weights), note


def cluster_centrally(devices: Devices, k: int, pooled: PooledPoints) -> Floats:
    """Run k-means on the pooled points, best of 20 initializations; return float64[k, d]."""
    search = Search(k, Stream.CENTRAL, starts=_STARTS_CENTRAL)
    key = devices.shared_key
    centroids: Floats = memoize_in_study(
        "central", lambda: (digest(*pooled), search, key), lambda: cluster(devices.kernels, key, *pooled, search)[0]
    )
    return centroids


def count_points(sizes: Integers, network: Network) -> int:
    """Count the points of all devices of the system, given the sizes of the local ones; a collective call."""
    return int(network.total(np.array([sizes.sum()], np.int64))[0])


def find_local_rows(chosen: Integers, first: Integers, sizes: Integers) -> tuple[Integers, Integers]:
    """Find the local rows of chosen points of the system, and count the chosen points of each local device, int64[n].

    Parameters
    ----------
    chosen : int64 array
        Numbers of points of the system, concatenated in device order; ascending.
    first : int64[n]
        Number of the first point of each local device, see `Network.find_first_rows`.
    sizes : int64[n]
        Number of points of each local device, whose points are concatenated in this order.
    """
    start, stop = np.searchsorted(chosen, (first, first + sizes))
    counts = stop - start
    shift = offsets_of(sizes)[:-1] - first
    return chosen[expand_ranges(start, counts)] + np.repeat(shift, counts), counts


def draw_stratified(n: int, most: int, key: int, step: int) -> Integers:
    """Draw a stratified sample: one number from each of `most` equal parts of 0 to n - 1, distinct and ascending.

    `most` must be at most n.
    """
    draw = uniforms(key, Stream.SAMPLE, [step], most)[0]
    parts = np.arange(most)
    sample = ((parts + draw) * (n / most)).astype(np.int64)
    # Two parts share the number at their border. If both draw it, the second one moves to the next number.
    return np.minimum(np.maximum.accumulate(sample - parts), n - most) + parts


def _take(devices: Devices, rows_of_batch: Integers) -> Devices:
    """Return some devices of a batch, with only their points and keys."""
    sizes = devices.sizes[rows_of_batch]
    rows = expand_ranges(devices.offsets[rows_of_batch], sizes)
    points = devices.stored[rows]
    weights = devices.point_weights[rows]
    ids = devices.ids[rows_of_batch]
    keys = devices.keys[rows_of_batch]
    return replace(devices, ids=ids, keys=keys, stored=points, point_weights=weights, offsets=offsets_of(sizes))
