"""The monitor measures from outside: nothing that it measures stops a run or reaches a device."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.allocator import trim_heap
from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.chunks import label
from p2pkm.core.sorting import blocks
from p2pkm.core.states import optional
from p2pkm.kernels.compile_time import count_compilation
from p2pkm.metrics.clustering import ari
from p2pkm.metrics.cost_ratio import CostEvaluator, CostRatios
from p2pkm.metrics.replay_frames import Recorder
from p2pkm.metrics.result import HashChain
from p2pkm.network.graph import LARGE, Topology
from p2pkm.network.transport import Network

Record = dict[str, Any]
_REMEMBERED = 64_000_000  # bytes of digests
_SELDOM = 1000  # rounds between two looks at very many devices
_ROUNDOFF = 2.0**-53  # relative error of one operation
_ROUNDED = 8  # tables of a device that stand at a time while rounding is bounded
_SLACK = 1e-9  # relative to (7): a certified run may rise by rounding


class Monitor:
    """Keep the trace and the hash chain of a run; rank 0 alone has the results.

    Parameters
    ----------
    network : Network
    every : int
        Record every N rounds, and the last one of each stage.
    sink : callable
        Gets every record as it is made, on rank 0.
    topology : Topology
        Of all devices.

    Attributes
    ----------
    trace : list of dict
        The records; see the run folder's rounds.jsonl.
    fingerprint, chain : bytes
        SHA-256 over the devices' digests in device order, and that chained over the recorded rounds.
    heads : uint64[n]
        The first 8 bytes of SHA-256 of each device's centroids in the last record.
    losses : float64[n]
        Cost (6) of each device in the last record.
    gtv : float64[e]
        Variation (4) of each link of this rank's devices at its lower end in the last record, on every rank; of no
        link once a record that no stage ends with is made.
    priced : CostRatios or None
        Cost ratios of the last record, if any.
    seconds : float
        Time spent on measuring, compilation excluded.
    objective_known : bool
        Whether the method of the last record has the objective (7).
    recorder : Recorder
        What is kept for replay.
    left_out : int64
        Ids of the Byzantine devices: no score is about them.
    """

    def __init__(self, network: Network, every: int, sink: Callable[[Record], None], topology: Topology) -> None:
        self.network, self.every, self._sink = network, every, sink
        self._root = network.placement.rank == 0
        self._first = self._before = 0.0  # (7) at the start of the stage and in the last record
        self._rounding = 0.0
        self._violated = False
        self.trace: list[Record] = []
        self.chain = self.fingerprint = b""
        self._heads: list[bytes] = []
        self._remembered: list[Any] | None = []
        self.heads = np.zeros(0, np.uint64)
        self.losses = self.gtv = np.zeros(0)
        self.seconds = 0.0
        self.objective_known = False
        self.priced: CostRatios | None = None
        self.recorder = Recorder(topology, network)
        self.left_out = np.zeros(0, np.int64)
        self.altered = False
        self._price: Callable[[Devices, bool], CostEvaluator] | None = None
        self._changed = self._unpriced = False  # the points, since the last record; since the last look at their cost

    def attach(self, devices: Devices, prices: CostEvaluator | None) -> None:
        """Watch this batch from now on; without an evaluator costs are not evaluated."""
        self.cost_evaluator = prices
        self._watch(devices)

    def follow(self, price: Callable[[Devices, bool], CostEvaluator]) -> None:
        """Expect points that change; price: returns an evaluator of new points, in full for the last record."""
        self._price = price

    def change_points(self, devices: Devices, *, resumed: bool = False) -> None:
        """Watch other points of the same devices; resumed: they had changed before the last checkpoint already."""
        self._watch(devices)
        self._changed, self._unpriced = self._changed or not resumed, True

    def _reprice(self, closing: bool) -> None:
        """Compare with what a central server would make of the points as they are now."""
        if self._price is None or self.cost_evaluator is None or not (self._unpriced or closing):
            return
        notes, self.cost_evaluator = self.cost_evaluator.notes, self._price(self._devices, closing)
        self.cost_evaluator.notes = notes + [note for note in self.cost_evaluator.notes if note not in notes]
        self.cost_evaluator.leave_out(self.left_out)
        self._unpriced = False

    def _watch(self, devices: Devices) -> None:
        self._devices = devices
        self._masses = devices.kernels.moments(*devices.kernel_inputs, np.zeros(devices.d))[:, 0].copy()
        filled, self._extent = devices.sizes > 0, np.zeros((len(devices), devices.d))
        if filled.any():
            begins = devices.offsets[:-1][filled]
            low, high = (extreme.reduceat(devices.stored, begins) for extreme in (np.minimum, np.maximum))
            self._extent[filled] = np.maximum(-low, high)

    def exclude(self, byzantine: Integers, *, altered: bool) -> None:
        """Leave these devices out of all scores; altered: messages may be changed, so no descent is claimed."""
        self.left_out, self.altered = byzantine, altered
        if self.cost_evaluator is not None:
            self.cost_evaluator.leave_out(byzantine)

    @property
    def honest(self) -> Integers:
        """Return the ids of the devices that scores are about."""
        return np.asarray(self.keep(np.arange(self._devices.clients)))

    def keep(self, rows: Any) -> Any:
        """Return the rows, one a device, of the clients that scores are about; if these are all, nothing is copied."""
        clients = rows[: self._devices.clients]
        return np.delete(clients, self.left_out, axis=0) if len(self.left_out) else clients

    def record(self, now: Record, state: Any, algorithm: Any, *, last: bool, closing: bool) -> None:
        """Record a round if it is due.

        Parameters
        ----------
        now : dict
            ``stage``, ``round`` and ``turn_count`` of the record.
        last, closing : bool
            Whether the stage, or the whole run, ends with it.
        """
        if now["round"] % self.every and not last:
            return
        began, compiled = time.perf_counter(), count_compilation()
        state = state._replace(centroids=np.ascontiguousarray(state.centroids))  # one number may stand for all
        if (derived := optional(state, "derived")) is not None:
            self._watch(replace(self._devices, stored=derived.features.values))
        self._record(now, state, algorithm, closing)
        self._changed = False
        if self.cost_evaluator is None:  # the points are not scaled yet
            self.recorder.skip()
        else:
            self.recorder.record(self._devices, state.centroids, self.gtv, self.losses, last=last)
        if not last:
            self.gtv = np.zeros(0)
        self.seconds += time.perf_counter() - began - (count_compilation() - compiled)

    def _record(self, now: Record, state: Any, algorithm: Any, closing: bool) -> None:
        self._reprice(closing)
        self.objective_known = algorithm.objective is not None
        own = self._devices
        if len(own) > LARGE:
            trim_heap()
        rows: Any = np.empty((len(own), 6))  # in two parts, each filled bit by bit: of many devices every array counts
        rows[:, :3] = self._measure_links(state, algorithm)
        rows[:, 3] = 1.0 if algorithm.objective is None else algorithm.objective.loss_weights(own)
        rows[:, 4:] = self._measure_rounding(state.centroids, rows[:, 2], rows[:, 3])
        rows = self.network.gather_by_device(rows)
        if self._root:
            variation, penalties = add(rows[:, 0]), add(rows[:, 1])
            self._rounding = self.every * add(rows[:, 4]) * float(rows[:, 5].max(initial=0.0))
            weights = rows[: own.clients, 3].copy()
        rows = np.empty((len(own), 7))
        rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3:] = self._measure_devices(state.centroids)
        rows = self.network.gather_by_device(rows)
        self.priced = self.cost_evaluator.of(state.centroids, closing=closing) if self.cost_evaluator else None
        ledger = self.network.ledger
        counts = *ledger.totals, ledger.wire_total, np.count_nonzero(state.converged & (own.ids != own.server))
        messages, volume, wire, converged = self.network.total(np.array(counts, np.int64))
        if not self._root:
            return
        losses = self.losses = rows[: own.clients, 0].copy()
        self._chain_up(np.ascontiguousarray(rows[:, 3:]).view(np.uint8))
        filled = np.isfinite(losses) & (rows[: own.clients, 2] > 0)
        gtv = variation if filled.any() else None
        known = self.objective_known and filled.any()
        weighted = losses * weights
        objective = add(weighted[filled]) + penalties if known else None
        record = {
            **now, "objective": objective, "gtv": gtv,
            "ratio_mean": None if self.priced is None else mean(self.priced.ratios),
            "messages": int(messages), "bytes": int(volume), "wire_bytes": int(wire), "converged": int(converged),
            "descent": self._certify(algorithm, objective, now["round"]),
        }  # fmt: skip
        if self._price is not None and not algorithm.traits.derives_features:
            record["break"] = self._changed
        if own.server >= 0:
            record["ari_clients"] = mean(*np.delete(rows[: own.clients, 1:3], self.left_out, axis=0).T)
        self.trace.append(record)
        self._sink(record)

    def _chain_up(self, digests: Any) -> None:
        """Take in the digests of a record, uint8[n, 32]; those of all records are kept while they are few."""
        self.heads = digests[:, :8].copy().view(np.uint64).ravel()
        self.fingerprint = hashlib.sha256(digests.data).digest()
        self.chain = hashlib.sha256(self.chain + self.fingerprint).digest()
        self._heads.append(self.chain)
        if self._remembered is not None:
            self._remembered.append(digests)
            if len(self._remembered) * digests.size > _REMEMBERED:
                self._remembered = None

    def snapshot(self) -> dict[str, Any]:
        """Return what rank 0 has seen, as `p2pkm.engine.state_tree` takes it."""
        kept = None if self._remembered is None else np.array(self._remembered, np.uint8)
        return {
            "trace": self.trace, "heads": [head.hex() for head in self._heads], "root_digests": kept,
            "first": self._first, "before": self._before, "violated": bool(self._violated),
            "changed": bool(self._changed), "recorder": self.recorder.snapshot(),
        }  # fmt: skip

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._first, self._before, self._violated = kept["first"], kept["before"], kept["violated"]
        self._changed = kept["changed"]
        self.recorder.restore(kept["recorder"])
        if self._root:
            self.trace, self._heads = kept["trace"], [bytes.fromhex(head) for head in kept["heads"]]
            self.chain = self._heads[-1] if self._heads else b""
            self._remembered = None if kept["root_digests"] is None else list(kept["root_digests"])

    def hash_chain(self) -> HashChain:
        """Return the fingerprints of all records."""
        heads = np.frombuffer(b"".join(self._heads), np.uint8).reshape(-1, 32)
        return HashChain(heads, None if self._remembered is None else np.array(self._remembered))

    @property
    def best(self) -> int:
        """Return the device whose centroids cost least on all points (device 0 if none was priced)."""
        return 0 if self.priced is None else int(np.argmin(self.priced.costs))

    def _measure_devices(self, centroids: Floats) -> tuple[Floats, ...]:
        """Return each device's own loss (6), ARI, size, float64[n] each, and SHA-256 of its centroids, float64[n, 4].

        The ARI is that of the device's own points, nan if it is not known; it is looked at in stars only.
        """
        own, prices = self._devices, self.cost_evaluator
        losses, scores = np.zeros(len(own)), np.full(len(own), np.nan)
        for piece in label(own, centroids):
            losses[piece.span] = piece.losses
            if prices is not None and prices.n_classes and own.server >= 0:
                known = piece.offsets, prices.classes[piece.rows].astype(np.int64), piece.labels
                tables = own.kernels.count_class_labels(*known, prices.n_classes, centroids.shape[1])
                scores[piece.span] = ari(tables)
        return losses, scores, own.sizes.astype(np.float64), hash_tables(centroids).view(np.float64)

    def _measure_links(self, state: Any, algorithm: Any) -> Floats:
        """Return sums over each device's links, float64[n, 3]: (4), what they add to the objective, and alpha.

        The first two are summed at the lower end of a link; alpha is 1 where the method has none.
        """
        own, senders = self._devices, self.network.placement.senders
        tables = self.network.halo_exchange_uncounted(state.centroids)
        self.gtv = np.zeros(0)  # of many devices the last record's takes memory
        self.gtv = own.kernels.gtv(tables, own.ids, own.indptr, own.indices, senders)
        sums = np.empty((len(own), 3))
        sums[:, 0] = sums[:, 1] = self._add_up(self.gtv)
        sums[:, 2] = np.diff(own.indptr)
        objective = algorithm.objective
        if objective is not None:
            apart = objective.variation(own, tables, senders)
            sums[:, 1] = self._add_up(objective.penalties(state, own, self.gtv if apart is None else apart))
            sums[:, 2] = self._add_up(objective.link_alpha(own, state))
        return sums

    def _measure_rounding(self, centroids: Floats, alpha: Floats, weights: Floats) -> Floats:
        """Return two factors of a bound on how much (7) may rise by rounding in a round, float64[n, 2].

        A centroid divides a sum of q numbers of at most M: points, and two rows per neighbor and centroid. So a
        coordinate is off by at most e = (q + 3) u M, u the relative error of an operation, and where all that it is
        the mean of weighs m, (7) is off by m e^2. The first factor is m ((q + 3) u)^2 of all centroids of a device, the
        second the sum of M^2 over the coordinates. It takes M, not the spread: far from the origin rounding is coarser.
        """
        own, k = self._devices, centroids.shape[1]
        factors: Floats = np.empty((len(own), 2))
        for some in blocks(len(own), _ROUNDED * k * own.d):
            links = 2 * k * np.diff(own.indptr[some.start : some.stop + 1])
            masses = weights[some] * self._masses[some] + 2 * k * alpha[some]
            factors[some, 0] = masses * np.square((own.sizes[some] + links + 3) * _ROUNDOFF)
            sizes = np.where(np.isfinite(centroids[some]), np.abs(centroids[some]), 0.0)
            extent = self._extent[some].copy()
            for c in range(k):  # the largest along so short an axis would take several times as long
                np.maximum(extent, sizes[:, c], out=extent)
            factors[some, 1] = np.cumsum(np.square(extent), axis=1)[:, -1]
        return factors

    def _add_up(self, values: Floats) -> Floats:
        """Return the sum over each device's links, one after the other, float64[n]."""
        own = self._devices
        sums: Floats = own.kernels.moments(values[:, None], np.zeros(0), own.indptr, np.zeros(1))[:, 1]
        return sums

    def _certify(self, algorithm: Any, objective: float | None, t: int) -> str:
        """Return whether descent of (7) is certified up to this record."""
        promised = algorithm.traits.guarantees_descent and not (self.altered or self._devices.min_count)
        if not promised or self._devices.has_stale_or_varying_links or objective is None:
            return "not claimed"
        if t == 0:
            self._first = self._before = objective
            self._violated = False
        if self._changed:  # (7) is of other points than before: descent is claimed between two breaks
            self._before = objective
            return "violated" if self._violated else "not claimed"
        self._violated |= objective - self._before > _SLACK * max(self._before, _SLACK * self._first) + self._rounding
        self._before = objective
        return "violated" if self._violated else "certified"


def hash_tables(tables: Floats) -> NDArray[np.uint8]:
    """Hash each table by SHA-256.

    Parameters
    ----------
    tables : float64[n, k, d]

    Returns
    -------
    uint8[n, 32]
        Hash of the bytes of each table.
    """
    contents, size = np.ascontiguousarray(tables).reshape(-1).view(np.uint8).data, tables[:1].nbytes
    hashes = [
        hashlib.sha256(contents[first : first + size]).digest() for first in range(0, len(contents), max(size, 1))
    ]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 32)


def usual_every(n: int) -> int:
    """Return every how many rounds n devices are looked at unless configured otherwise."""
    return _SELDOM if n > LARGE else 1


def add(values: Floats | Integers) -> float:
    """Return the sum, one after the other: the same bits on every placement."""
    return float(values.cumsum()[-1]) if len(values) else 0.0


def mean(values: Floats, weights: Floats | Integers | None = None) -> float | None:
    """Return the mean, perhaps weighted, of what is known, None if nothing is."""
    known = np.isfinite(values)
    if weights is None:
        return add(values[known]) / np.count_nonzero(known) if known.any() else None
    total = add(weights[known])
    return add(values[known] * weights[known]) / total if total > 0 else None
