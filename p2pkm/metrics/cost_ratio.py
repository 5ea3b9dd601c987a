"""What centroids cost on the pooled points, next to a central server and to every device alone."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Search, Stream, cluster
from p2pkm.core.cache import digest, memoize_in_study
from p2pkm.core.messages import expand_ranges
from p2pkm.core.sorting import find_runs, offsets_of
from p2pkm.data.shards import Shards
from p2pkm.data.table import Labels
from p2pkm.kernels.reference import uniforms
from p2pkm.network.transport import Network

_EVERY_ROUND = 1e8  # distances; more: the pooled cost is looked at in the last record only
_IN_THE_END, _UNCOMPARED = 2e10, 1e9  # distances in the last record, without baseline; more: a sample of the devices
_PRICED, _RUN = 4_000_000, 64  # points that centroids are priced on; more: a sample of about so many, in runs
_VISIT = 64  # distances that take as long as going from one device to the next
_ROWS = 1024  # of a sum at a time
_POOLED = 2_000_000  # values that central k-means works on; more: a sample of the points
_STARTS_CENTRAL, _STARTS_ALONE = 20, 5
_REMEMBERED = 64_000_000  # bytes of centroid sets whose cost is remembered


class PooledPoints(NamedTuple):
    """Points of all devices, or a sample of them: float64[m, d], weights float64[m], in ascending (device, row)."""

    points: Floats
    weights: Floats


class CostRatios(NamedTuple):
    """What the devices' centroids are worth, on rank 0.

    Attributes
    ----------
    ratios : float64[n]
        Pooled cost over central cost; nan where a device has no centroid, was not sampled, or without baseline.
    costs : float64[n]
        Cost on all points; inf where a device has no centroid or was not sampled.
    tables : int64[n, classes, k]
        How many points of a class each centroid of a priced device attracts; without labels of 0 classes.
    """

    ratios: Floats
    costs: Floats
    tables: Integers


class CostEvaluator:
    """Price centroid sets: every rank on its own points, each distinct set once, added up in device order.

    Parameters
    ----------
    devices : Devices
    classes : int16[m], int32[m] or int64[m]
        True class of each own point; empty without labels.
    n_classes : int
        Number of classes over all ranks, 0 without labels.
    network : Network
    central : float64[k, d] or None
        Centroids of `cluster_centrally`; None: no baseline.
    alone : bool
        Whether every device is compared with its own k-means, too.

    Attributes
    ----------
    alone : float64[n]
        Ratio of each device's own k-means (best of 5), on rank 0.
    central : float
        Cost of central k-means on all points, on rank 0; nan without baseline.
    baseline : float64[k, d] or None
        Its centroids.
    notes : list of str
        Where a sample stands for the whole.
    """

    def __init__(
        self, devices: Devices, classes: Labels, n_classes: int, network: Network, central: Floats | None,
        *, alone: bool = True,
    ) -> None:  # fmt: skip
        self._devices, self.classes, self.n_classes, self._network = devices, classes, n_classes, network
        self._compared, self.central, self.baseline = central is not None, np.nan, central
        self.alone = np.full(1, np.nan)
        self._scored = self._alone = np.arange(devices.clients)
        self.notes: list[str] = []
        self._pool = self._draw_pool(network.allgather_by_device(devices.sizes))
        self._known: dict[bytes, float] = memoize_in_study("costs", self._name_points, dict)
        if central is not None:
            self._set_baselines(central, alone)

    def leave_out(self, ids: Integers) -> None:
        """Price these devices no more, and take back what they would reach alone."""
        self.alone[np.isin(self._alone, ids)[: len(self.alone)]] = np.nan
        self._scored = np.setdiff1d(self._scored, ids) if len(ids) else self._scored

    def _draw_pool(self, sizes: Integers) -> tuple[Floats, Floats, Integers, Integers]:
        """Return points, weights, offsets and classes of this rank that stand for all; all of them if they are few."""
        own, total = self._devices, int(sizes.sum())
        self._points, self._each = min(total, _PRICED), max(total / _PRICED, 1.0)
        self._drawn: Integers | None = None  # which devices of the system have points in the pool; None: all
        if total <= _PRICED:
            return *own.kernel_inputs, self.classes.astype(np.int64)
        self.notes.append(f"cost and scores of all points are over a sample of {_PRICED} of {total} points")
        runs = spread(total // _RUN, _PRICED // _RUN, own.shared_key, 3)
        rows, counts = locate((_RUN * runs[:, None] + np.arange(_RUN)).ravel(), sizes, own.ids)
        points, weights, _ = own.kernel_inputs
        classes = (self.classes[rows] if self.n_classes else self.classes).astype(np.int64)
        self._drawn = (counts > 0).astype(np.int64)
        here = counts[own.ids]
        return points[rows], weights[rows] if len(weights) else weights, offsets_of(here[here > 0]), classes

    def _name_points(self) -> tuple[bytes, float]:
        """Return what the cost of a centroid set depends on besides."""
        return digest(*self._pool[:3]), self._each

    def _set_baselines(self, central: Floats, alone_too: bool) -> None:
        """Price central k-means, and k-means (best of 5) at every device alone, or at a sample of the devices."""
        if not alone_too:
            self.central = float(self._price(central[None], 0)[0][0])
            return
        own, chosen = self._devices, self._choose(central.size, _IN_THE_END)
        few = len(chosen) < own.clients
        mine = np.flatnonzero(np.isin(own.ids, chosen)) if few else np.arange(len(own))
        alone = np.full((len(own), *central.shape), np.inf)
        asked = _take(own, mine) if few else own
        alone[mine] = memoize_in_study(
            "alone", lambda: (digest(*asked.kernel_inputs, asked.keys), len(central)),
            lambda: asked.kmeans(len(central), Stream.LOCAL_ONLY, starts=_STARTS_ALONE)[0],
        )  # fmt: skip
        costs, which, _ = self._price(
            np.concatenate((central[None], self._network.allgather_by_device(alone)[chosen])), 0
        )
        self.central = float(costs[0])
        self.alone, self._alone = self._ratios(costs[which[1:]]), chosen

    def _choose(self, numbers: int, most: float) -> Integers:
        """Return the devices whose sets of so many numbers are priced: all, or a sample that bounds the work."""
        n = len(self._scored)
        count = max(int(most / max(self._points * numbers + _VISIT * n, 1)), 16)
        if n <= count:
            return self._scored
        note = f"ratio and scores are over a sample of {count} of {n} devices"
        self.notes += [note] * (note not in self.notes)
        return self._scored[spread(n, count, self._devices.shared_key, 1)]

    def of(self, centroids: Floats, *, closing: bool) -> CostRatios | None:
        """Price the devices' centroids, float64[n, k, d]; None if they are too many to look at in every round."""
        n, k, d = self._devices.clients, *centroids.shape[1:]
        if not closing and (n * self._points * k * d > _EVERY_ROUND or not self._compared):
            return None
        chosen = self._choose(k * d, _IN_THE_END if self._compared else _UNCOMPARED)
        sets = self._network.allgather_by_device(centroids)[chosen]
        costs, which, tables = self._price(sets, self.n_classes if closing else 0)
        ratios, every = np.full(n, np.nan), np.full(n, np.inf)
        ratios[chosen], every[chosen] = self._ratios(costs[which]), costs[which]
        return CostRatios(ratios, every, tables[which[np.isfinite(costs[which])]])

    def _price(self, sets: Floats, n_classes: int) -> tuple[Floats, Integers, Integers]:
        """Return the pooled cost of each distinct set, which of them each set is, and their contingency tables."""
        numbers: dict[bytes, int] = {}
        which = np.array([numbers.setdefault(one.tobytes(), len(numbers)) for one in sets])
        first = find_runs(np.maximum.accumulate(which))  # they are numbered as they come
        known = self._known if n_classes == 0 else {}  # the tables of remembered results are unknown
        fresh = np.array([name not in known for name in numbers])
        points, weights, offsets, classes = self._pool
        costs, tables = self._devices.kernels.evaluate_costs(
            points, weights, offsets, classes, n_classes, np.ascontiguousarray(sets[first[fresh]])
        )
        gathered = self._network.gather_by_device(costs, self._drawn)
        total = np.array([known.get(name, np.nan) for name in numbers])
        if gathered is not None:
            total[fresh] = self._each * _add_rows(gathered)
        if (len(self._known) + len(numbers)) * sets[0].nbytes > _REMEMBERED:
            self._known.clear()
        self._known.update(zip(numbers, total.tolist(), strict=True))
        counted = self._network.total(tables) if n_classes else np.zeros((len(numbers), 0, sets.shape[1]), np.int64)
        return total, which, counted

    def _ratios(self, costs: Floats) -> Floats:
        """Return pooled costs over the central cost; 1 if both are 0, nan if there is nothing to compare."""
        if self.central == 0.0:
            return np.where(costs == 0.0, 1.0, np.nan)
        return np.where(np.isfinite(costs), costs, np.nan) / self.central


def _add_rows(values: Floats) -> Floats:
    """Return the sum of the rows, one after the other, in little memory."""
    total = np.zeros(values.shape[1])
    for first in range(0, len(values), _ROWS):
        total = np.cumsum(np.vstack((total, values[first : first + _ROWS])), axis=0)[-1]
    return total


def gather_points(own: Shards, key: int, network: Network) -> tuple[PooledPoints | None, str | None]:
    """Collect the points of all ranks, of very many a sample, with a note; on rank 0, else None."""
    sizes = network.allgather_by_device(own.sizes)
    m, most = int(sizes.sum()), max(_POOLED // own.d, 1)
    chosen = np.arange(m) if m <= most else spread(m, most, key, 0)
    note = None if m <= most else f"central k-means ran on a sample of {most} of {m} points"
    mine, counts = locate(chosen, sizes, network.placement.ids)
    points = network.gather_by_device(own.points[mine].astype(np.float64), counts)
    weights = network.gather_by_device(own.weights[mine], counts)
    return None if points is None else PooledPoints(points, weights), note


def cluster_centrally(devices: Devices, k: int, pooled: PooledPoints) -> Floats:
    """Run k-means on the pooled points, best of 20 starts; return float64[k, d]."""
    search, key = Search(k, Stream.CENTRAL, starts=_STARTS_CENTRAL), devices.shared_key
    found: Floats = memoize_in_study(
        "central", lambda: (digest(*pooled), search, key), lambda: cluster(devices.kernels, key, *pooled, search)[0]
    )
    return found


def locate(chosen: Integers, sizes: Integers, ids: Integers) -> tuple[Integers, Integers]:
    """Return which of the own points are among those chosen, and how many points of every device are, int64[n].

    Parameters
    ----------
    chosen : int64
        Numbers of points of the whole system, device after device, ascending.
    sizes : int64[n]
        Of all devices.
    ids : int64
        The own devices, whose points stand end to end.
    """
    first = offsets_of(sizes)
    runs = np.searchsorted(chosen, first)
    counts = np.diff(runs)
    shift = offsets_of(sizes[ids])[:-1] - first[ids]
    return chosen[expand_ranges(runs[ids], counts[ids])] + np.repeat(shift, counts[ids]), counts


def spread(n: int, most: int, key: int, step: int) -> Integers:
    """Draw one of every n / most numbers below n, int64[most], ascending and none twice; most is at most n."""
    draw, parts = uniforms(key, Stream.SAMPLE, [step], most)[0], np.arange(most)
    found = ((parts + draw) * (n / most)).astype(np.int64)
    # two parts share the number that their border is in: where both draw it, the second takes the next one
    return np.minimum(np.maximum.accumulate(found - parts), n - most) + parts


def _take(devices: Devices, mine: Integers) -> Devices:
    """Return some devices of the batch, with their points and keys alone."""
    sizes = devices.sizes[mine]
    rows = expand_ranges(devices.offsets[mine], sizes)
    points, weights = devices.stored[rows], devices.point_weights[rows]
    ids, keys = devices.ids[mine], devices.keys[mine]
    return replace(devices, ids=ids, keys=keys, stored=points, point_weights=weights, offsets=offsets_of(sizes))
