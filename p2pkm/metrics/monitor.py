"""Monitor: evaluation of a run by the simulator, without influence on devices, messages or the end of the run."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.allocator import trim_if_large
from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.chunks import label
from p2pkm.core.sorting import blocks, find_distinct
from p2pkm.core.states import optional
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.kernels.compile_time import count_compilation
from p2pkm.metrics.averaging_bound import AveragingBound
from p2pkm.metrics.clustering import ari
from p2pkm.metrics.cost_ratio import CostEvaluator, CostRatios
from p2pkm.metrics.replay_frames import Recorder
from p2pkm.metrics.result import HashChain
from p2pkm.network.graph import LARGE, Topology
from p2pkm.network.transport import Network

Record = dict[str, Any]
# Largest size of the digests of all records in bytes.
_REMEMBERED = 64_000_000
# Bytes of a SHA-256 digest.
_DIGEST = 32
# Default number of rounds between two records above LARGE devices.
_SELDOM = 1000
# Relative rounding error of one float64 operation.
_ROUNDOFF = 2.0**-53
# Width given to `blocks` per feature: blocks of points that stay in the second-level cache.
_BLOCK_WIDTH = 64
# Temporary models per device in the bound on rounding errors; determines the size of its blocks.
_ROUNDED = 8
# Relative increase of the objective (7) that is attributed to rounding in a certified run.
_SLACK = 1e-9


class Monitor:
    """Recorder of the metrics and the hash chain of a run; the results are on rank 0.

    All ranks must call the same methods in the same order, because measurements are collective operations.

    Parameters
    ----------
    network : Network
        Collective operations; nothing is counted as a message.
    every : int
        Number of rounds between two records; the last round of each stage is always recorded.
    sink : callable
        Receives every record on rank 0.
    topology : Topology
        Graph of all devices.

    Attributes
    ----------
    trace : list of dict
        Records, as in rounds.jsonl of the run folder.
    fingerprint, chain : bytes
        SHA-256 of the devices' digests in device order, and its hash chain over the records.
    heads : uint64[n]
        First 8 bytes of the SHA-256 of each device's centroids in the last record.
    losses : float64[n]
        Cost (6) of each device in the last record.
    gtv : float64[e]
        Total variation (4) of each link of this rank's devices at its lower end in the last record, on every rank;
        empty after a record that does not end a stage.
    cost_ratios : CostRatios or None
        Cost ratios of the last record, if evaluated.
    seconds : float
        Time of measurements, without compilation.
    objective_known : bool
        Whether the method of the last record has the objective (7).
    recorder : Recorder
        Recorder of the frames for replay.
    excluded : int64 array
        Ids of the Byzantine devices, which are excluded from scores.
    averaging : AveragingBound or None
        Measurement of the speed of averaging, beside its bound.
    tree_error : int or None
        Largest difference between the sums at the roots of a tree and those that all devices have sent, at the end of
        the method; None without a tree.
    """

    def __init__(self, network: Network, every: int, sink: Callable[[Record], None], topology: Topology) -> None:
        self.network = network
        self.every = every
        self._sink = sink
        self._root = network.placement.rank == 0
        # Objective (7) at the start of the stage and in the last record.
        self._first = self._before = 0.0
        # Bound on the increase of (7) by rounding between two records.
        self._rounding = 0.0
        self._violated = False
        self.trace: list[Record] = []
        self.chain = self.fingerprint = b""
        self._heads: list[bytes] = []
        # Hash of all tables of the last record together, and that of each table.
        self._hashed: tuple[bytes, NDArray[np.uint8]] = b"", np.empty((0, _DIGEST), np.uint8)
        self._remembered: list[Any] | None = []
        self.heads = np.zeros(0, np.uint64)
        self.losses = self.gtv = np.zeros(0)
        self.seconds = 0.0
        self.objective_known = False
        self.cost_ratios: CostRatios | None = None
        self.recorder = Recorder(topology, network)
        self.excluded = np.zeros(0, np.int64)
        self.altered = False
        self.averaging: AveragingBound | None = None
        self.tree_error: int | None = None
        # Largest factor that the checkpoint of a resumed run has.
        self._restored_factor: float | None = None
        self._build_evaluator: Callable[[Devices, bool], CostEvaluator] | None = None
        # Arrays of the points in the batch; digests, and losses and scores of the last record, if with these points.
        self._points: tuple[Any, ...] | None = None
        self._measured: tuple[NDArray[np.uint8], Floats] | None = None
        # Method of the last record, and its traits.
        self._algorithm: Any = None
        self._traits = MethodTraits(message_content=MessageContent.OTHER)
        # Whether points have changed since the last record, and since the baselines were computed.
        self._changed = self._unpriced = False

    def attach(self, devices: Devices, prices: CostEvaluator | None) -> None:
        """Measure this batch from now on; without an evaluator, costs are not evaluated."""
        self.cost_evaluator, self._measured = prices, None
        self._watch(devices)

    def follow(self, build_evaluator: Callable[[Devices, bool], CostEvaluator]) -> None:
        """Prepare for points that change during the run.

        Parameters
        ----------
        build_evaluator : callable
            Returns an evaluator for a batch with new points; the flag is True for the last record, which is evaluated
            in full.
        """
        self._build_evaluator = build_evaluator

    def change_points(self, devices: Devices, *, resumed: bool = False) -> None:
        """Measure the same devices with new points; resumed: the change was before the checkpoint."""
        self._watch(devices)
        self._changed = self._changed or not resumed
        self._unpriced = True

    def watch_averaging(self, bound: AveragingBound | None) -> None:
        """Measure the speed of averaging from now on; None: not in this run."""
        self.averaging = bound
        if bound is not None:
            bound.largest = self._restored_factor

    def _update_baselines(self, closing: bool) -> None:
        """Compute the baselines again if points have changed."""
        if self._build_evaluator is None or self.cost_evaluator is None or not (self._unpriced or closing):
            return
        notes = self.cost_evaluator.notes
        self.cost_evaluator = self._build_evaluator(self._devices, closing)
        self.cost_evaluator.notes = notes + [note for note in self.cost_evaluator.notes if note not in notes]
        self.cost_evaluator.exclude_devices(self.excluded)
        self._unpriced = False

    def _watch(self, devices: Devices) -> None:
        """Set the batch; compute the weight of its points and the largest magnitude of each feature on each device."""
        self._devices, self._clients = devices, devices.clients
        points = devices.stored, devices.point_weights, devices.offsets
        # Stages change the links of the batch, but rarely the points.
        if self._points is not None and all(old is new for old, new in zip(self._points, points, strict=True)):
            return
        self._points, self._measured = points, None
        # None: all weights are 1, so the weight of a device is its number of points.
        self._masses: Floats | None = devices.masses if len(devices.kernel_inputs[1]) else None
        self._extent = find_extent(devices.stored, devices.offsets)

    def exclude(self, byzantine: Integers, *, altered: bool) -> None:
        """Exclude devices from all scores; altered: messages may be changed, so descent is not claimed."""
        self.excluded = byzantine
        self.altered = altered
        if self.cost_evaluator is not None:
            self.cost_evaluator.exclude_devices(byzantine)

    @property
    def scored_devices(self) -> Integers:
        """Ids of the devices that are scored."""
        return np.asarray(self.keep(np.arange(self._clients)))

    def keep(self, rows: Any) -> Any:
        """Select the rows of the scored clients from rows with one per device; a view if all clients are scored."""
        clients = rows[: self._clients]
        return np.delete(clients, self.excluded, axis=0) if len(self.excluded) else clients

    def record(self, now: Record, state: Any, algorithm: Any, *, last: bool, closing: bool, final: bool) -> None:
        """Record a round if it is due.

        Parameters
        ----------
        now : dict
            ``stage``, ``round`` and ``turn_count`` of the record.
        state : NamedTuple
            State of the method.
        algorithm : Algorithm
            The method.
        last, closing, final : bool
            Whether a stage, the method's stage or one after it, or the run ends with this round.
        """
        if now["round"] % self.every and not last:
            return
        began = time.perf_counter()
        compiled = count_compilation()
        # Contiguous, because the centroids may be a broadcast view of a single value.
        state = state._replace(centroids=np.ascontiguousarray(state.centroids))
        if (derived := optional(state, "derived")) is not None:
            self._watch(replace(self._devices, stored=derived.features.values))
        self._record(now, state, algorithm, closing, final)
        self._changed = False
        # Without an evaluator, the points are not scaled yet and frames would be in other units.
        if self.cost_evaluator is None:
            self.recorder.skip()
        else:
            self.recorder.record(self._devices, state.centroids, self.gtv, self.losses, last=last)
        if not last:
            self.gtv = np.zeros(0)
        self.seconds += time.perf_counter() - began - (count_compilation() - compiled)

    def _record(self, now: Record, state: Any, algorithm: Any, closing: bool, final: bool) -> None:
        self._update_baselines(closing)
        if closing:
            self._measure_tree(algorithm, state)
        self.objective_known = algorithm.objective is not None
        devices = self._devices
        # Arrays of the last record: with millions of devices, not together with those of this one.
        self.losses, self.heads = np.zeros(0), np.zeros(0, np.uint64)
        trim_if_large(len(devices))
        columns = self._gather_columns(self._measure_sums(state, algorithm))
        variation, penalties, factor = (add(column) for column in islice(columns, 3))
        self._rounding = self.every * factor * float(next(columns).max(initial=0.0))
        weights = next(columns)[: devices.clients]
        # Usually all are 1: then a view of one number takes no memory beside the digests.
        weights = np.broadcast_to(1.0, weights.shape) if (weights == 1.0).all() else weights.copy()
        del columns
        evaluator = self.cost_evaluator
        test_costs = None if evaluator is None else evaluator.test_costs
        columns = self._gather_columns(self._measure_devices(state.centroids))
        digests = np.ascontiguousarray(next(columns)).view(np.uint8)
        if self._root:
            self._chain_up(digests)
        del digests
        losses, sizes = (next(columns)[: devices.clients].copy() for _ in range(2))
        scores = next(columns)[: devices.clients] if devices.server >= 0 else None
        costs = None if test_costs is None else next(columns)[: devices.clients]
        del columns
        self.cost_ratios = evaluator.evaluate(state.centroids, closing=closing, final=final) if evaluator else None
        ledger = self.network.ledger
        counts = *ledger.sums, np.count_nonzero(state.converged & (devices.ids != devices.server))
        messages, volume, wire, converged = self.network.total(np.array(counts, np.int64))
        if not self._root:
            return
        # Equal in all records of a stage; some methods compute them from their parameters.
        if self._algorithm is not algorithm:
            self._algorithm, self._traits = algorithm, algorithm.traits
        self.losses = losses
        filled = np.isfinite(losses) & (sizes > 0)
        gtv = variation if filled.any() else None
        known = self.objective_known and filled.any()
        weighted = losses * weights
        objective = add(weighted[filled]) + penalties if known else None
        record = {
            **now, "objective": objective, "gtv": gtv,
            "ratio_mean": None if self.cost_ratios is None else mean(self.cost_ratios.ratios),
            "messages": int(messages), "bytes": int(volume), "wire_bytes": int(wire), "converged": int(converged),
            "descent": self._certify(objective, now["round"]),
        }  # fmt: skip
        if self._build_evaluator is not None and not self._traits.derives_features:
            record["break"] = self._changed
        if test_costs is not None and costs is not None:
            record["test_ratio_common"] = test_costs.divide(costs, self.excluded)
        if scores is not None:
            record["ari_clients"] = mean(*(np.delete(part, self.excluded) for part in (scores, sizes)))
        self.trace.append(record)
        self._sink(record)

    def _gather_columns(self, parts: Iterator[Any]) -> Iterator[Any]:
        """Yield the rows of all devices in device order on rank 0, and no rows on other ranks; a collective call.

        Up to `LARGE` devices, several ranks gather all parts in one operation. Of more devices, each is computed and
        gathered when it is asked for, since rank 0 reads them one after the other: all of them would take gigabytes.

        Parameters
        ----------
        parts : iterator of float64[n] or float64[n, w]
            Values of the devices of this rank.
        """
        if self._devices.total > LARGE or self.network.placement.division.size == 1:
            for part in parts:
                gathered = self.network.gather_by_device(part)
                rows = np.empty((0, *part.shape[1:])) if gathered is None else gathered
                del part, gathered
                yield rows
                # Freed before the next part is computed.
                del rows
            return
        local = list(parts)
        rows = np.column_stack(local)
        gathered = self.network.gather_by_device(rows)
        rows = rows[:0] if gathered is None else gathered
        first = 0
        for part in local:
            width = math.prod(part.shape[1:])
            yield rows[:, first : first + width] if part.ndim > 1 else rows[:, first]
            first += width

    def _chain_up(self, digests: Any) -> None:
        """Extend the hash chain by the digests of a record, uint8[n, 32]; store all digests while they are few."""
        self.heads = digests[:, :8].copy().view(np.uint64).ravel()
        self.fingerprint = hashlib.sha256(digests.data).digest()
        self.chain = hashlib.sha256(self.chain + self.fingerprint).digest()
        self._heads.append(self.chain)
        if self._remembered is not None:
            self._remembered.append(digests)
            if len(self._remembered) * digests.size > _REMEMBERED:
                self._remembered = None

    def _measure_tree(self, algorithm: Any, state: Any) -> None:
        """Compare the sums of a tree with those of all devices: integers, which must be equal."""
        sums = None if self.altered else algorithm.tree_sums(state, self._devices)
        if sums is not None:
            sent, held = (part.sum(axis=0).astype(np.int64) for part in sums)
            self.tree_error = int(np.abs(self.network.total(held - sent)).max(initial=0))

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the monitor for a checkpoint, see `p2pkm.engine.state_tree`."""
        digests = None if self._remembered is None else np.array(self._remembered, np.uint8)
        return {
            "trace": self.trace, "heads": [head.hex() for head in self._heads], "root_digests": digests,
            "first": self._first, "before": self._before, "violated": bool(self._violated),
            "changed": bool(self._changed), "recorder": self.recorder.snapshot(),
            "averaging": None if self.averaging is None else self.averaging.largest,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self._first = state["first"]
        self._before = state["before"]
        self._violated = state["violated"]
        self._changed = state["changed"]
        self.recorder.restore(state["recorder"])
        # Absent in checkpoints of earlier versions.
        self._restored_factor = state.get("averaging")
        if self._root:
            self.trace = state["trace"]
            self._heads = [bytes.fromhex(head) for head in state["heads"]]
            self.chain = self._heads[-1] if self._heads else b""
            self._remembered = None if state["root_digests"] is None else list(state["root_digests"])

    def release(self) -> None:
        """Free points and links of the devices, which no record needs after the last one."""
        del self._devices, self._extent, self._masses
        self._points = self._measured = None
        if self.cost_evaluator is not None:
            self.cost_evaluator.release()

    def hash_chain(self) -> HashChain:
        """Return the hash chain of all records."""
        heads = np.frombuffer(b"".join(self._heads), np.uint8).reshape(-1, 32)
        return HashChain(heads, None if self._remembered is None else np.array(self._remembered))

    @property
    def best(self) -> int:
        """Device whose centroids have the lowest pooled cost; device 0 if costs were not evaluated."""
        if self.cost_ratios is None:
            return 0
        return int(self.cost_ratios.devices[np.argmin(self.cost_ratios.costs)])

    def _measure_devices(self, centroids: Floats) -> Iterator[Any]:
        """Yield SHA-256 of the centroids of each device, loss (6), size and, if known, ARI and cost of test points.

        The ARI is that of the local points, of methods with a server. Hashes are viewed as float64[n, 4], so that one
        collective operation can gather all values.
        """
        devices, digests = self._devices, self._hash(centroids)
        # With very many devices, memory counts more than time, and this frame must not hold what was gathered.
        view = [digests.view(np.float64)]
        if digests.nbytes > _REMEMBERED:
            digests = np.empty((0, _DIGEST), np.uint8)
        yield view.pop()
        evaluator, measured = self.cost_evaluator, self._measured
        has_tests = evaluator is not None and evaluator.test_costs is not None
        # Records at the end of a stage and at the start of the next one have the same centroids.
        if measured is None or measured[0] is not digests:
            rows = np.empty((len(devices), 3 if has_tests else 2))
            self._label(centroids, rows)
            measured = digests, rows
        if digests.size:
            self._measured = measured
        losses, scores, *tests = measured[1].T
        yield losses
        yield devices.sizes.astype(np.float64)
        if devices.server >= 0:
            yield scores
        yield from tests

    def _label(self, centroids: Floats, rows: Floats) -> None:
        """Write loss (6), ARI and cost of the test points of each device to rows, see `_measure_devices`."""
        devices, evaluator = self._devices, self.cost_evaluator
        if evaluator is not None and evaluator.test_costs is not None:
            rows[:, 2] = evaluator.test_costs.measure(centroids)
        losses, scores = rows[:, 0], rows[:, 1]
        losses[:] = 0.0
        scores[:] = np.nan
        for piece in label(devices, centroids):
            losses[piece.span] = piece.losses
            if evaluator is not None and evaluator.n_classes and devices.server >= 0:
                known = piece.offsets, evaluator.classes[piece.rows].astype(np.int64), piece.labels
                tables = devices.kernels.count_class_labels(*known, evaluator.n_classes, centroids.shape[1])
                scores[piece.span] = ari(tables)

    def _hash(self, centroids: Floats) -> NDArray[np.uint8]:
        """Hash the table of each device, uint8[n, 32], or return the last hashes if no table has changed since.

        A stage begins with the tables that the one before ended with, and a hash of all tables together takes a
        twentieth of the time.
        """
        if len(centroids) * _DIGEST > _REMEMBERED:
            return hash_tables(centroids)
        contents = hashlib.sha256(np.ascontiguousarray(centroids).data).digest()
        if contents != self._hashed[0]:
            self._hashed = contents, hash_tables(centroids)
        return self._hashed[1]

    def _measure_sums(self, state: Any, algorithm: Any) -> Iterator[Any]:
        """Yield the first two sums of `_measure_links`, both factors of `_measure_rounding`, and the loss weights."""
        sums = self._measure_links(state, algorithm)
        yield sums[:, 0]
        yield sums[:, 1]
        objective = algorithm.objective
        weights = np.ones(len(sums)) if objective is None else objective.loss_weights(self._devices)
        factors = self._measure_rounding(state.centroids, sums[:, 2], weights)
        del sums
        yield from factors.T
        yield weights

    def _measure_links(self, state: Any, algorithm: Any) -> Floats:
        """Add over the links of each device, float64[n, 3]: total variation (4), terms of the objective, and alpha.

        The first two are added at the lower end of a link. Alpha is 1 for methods without an objective.
        """
        devices = self._devices
        senders = self.network.placement.senders
        tables = self.network.halo_exchange_uncounted(state.centroids)
        # Frees the array of the last record before the next one is computed.
        self.gtv = np.zeros(0)
        self.gtv = devices.kernels.gtv(tables, devices.ids, devices.indptr, devices.indices, senders)
        objective = algorithm.objective
        variation = None if objective is None else objective.variation(devices, tables, senders, state)
        # Freed early, here and below: with millions of devices each array takes gigabytes.
        del tables
        sums = np.empty((len(devices), 3))
        self._add_up(self.gtv, sums[:, 0])
        sums[:, 1] = sums[:, 0]
        sums[:, 2] = devices.indptr[1:] - devices.indptr[:-1]
        if objective is not None:
            gtv = self.gtv if variation is None else variation
            self._add_up(objective.penalties(state, devices, gtv), sums[:, 1])
            del variation, gtv
            self._add_up(objective.link_alpha(devices, state), sums[:, 2])
            terms = objective.add_terms(state, devices)
            if terms is not None:
                sums[:, 1] += terms
        return sums

    def _measure_rounding(self, centroids: Floats, alpha: Floats, weights: Floats) -> Floats:
        """Compute two factors of a bound on the increase of (7) by rounding in a round, float64[n, 2].

        A centroid is a sum of q numbers of magnitude at most M (points, and two rows per neighbor and centroid),
        divided by their weight m. So the error of a coordinate is at most e = (q + 3) u M with the relative error u of
        an operation, and that of (7) is m e^2. The first factor is m ((q + 3) u)^2 for all centroids of a device, the
        second the sum of M^2 over the coordinates. M is the magnitude and not the spread, because rounding is coarser
        far from the origin.
        """
        devices = self._devices
        k = centroids.shape[1]
        factors: Floats = np.empty((len(devices), 2))
        for block in blocks(len(devices), _ROUNDED * k * devices.d):
            ends = devices.indptr[block.start : block.stop + 1]
            links = 2 * k * (ends[1:] - ends[:-1])
            sizes = np.diff(devices.offsets[block.start : block.stop + 1])
            local = sizes if self._masses is None else self._masses[block]
            masses = weights[block] * local + 2 * k * alpha[block]
            factors[block, 0] = masses * np.square((sizes + links + 3) * _ROUNDOFF)
            magnitudes = np.where(np.isfinite(centroids[block]), np.abs(centroids[block]), 0.0)
            # Halves, because np.max along such a short axis takes several times as long.
            while (rows := magnitudes.shape[1]) > 1:
                magnitudes = np.maximum(magnitudes[:, : (rows + 1) // 2], magnitudes[:, rows // 2 :])
            extent = np.maximum(self._extent[block], magnitudes[:, 0])
            factors[block, 1] = np.square(extent).cumsum(axis=1)[:, -1]
        return factors

    def _add_up(self, values: Floats, sums: Floats) -> None:
        """Add values over the links of each device one after the other, and write them to sums, float64[n]."""
        devices = self._devices
        # In blocks, because the kernel returns three numbers per device.
        for block in blocks(len(devices)):
            offsets = devices.indptr[block.start : block.stop + 1]
            links = slice(int(offsets[0]), int(offsets[-1]))
            moments = devices.kernels.moments(values[links, None], np.zeros(0), offsets - links.start, np.zeros(1))
            sums[block] = moments[:, 1]

    def _certify(self, objective: float | None, t: int) -> str:
        """Return the certificate of descent of (7) up to this record: "certified", "violated" or "not claimed"."""
        promised = self._traits.guarantees_descent and not (self.altered or self._devices.min_count)
        if not promised or self._devices.has_stale_or_varying_links or objective is None:
            return "not claimed"
        if t == 0:
            self._first = self._before = objective
            self._violated = False
        # With new points, (7) is another function: descent is certified between two changes of the points.
        if self._changed:
            self._before = objective
            return "violated" if self._violated else "not claimed"
        self._violated |= objective - self._before > _SLACK * max(self._before, _SLACK * self._first) + self._rounding
        self._before = objective
        return "violated" if self._violated else "certified"


def find_extent(points: Floats, offsets: Integers) -> Floats:
    """Find the largest magnitude of each feature on each device, [n, d], typed as the points; 0 without points."""
    is_filled = offsets[1:] > offsets[:-1]
    begins = offsets[:-1][is_filled]
    # Blocks that stay in the second-level cache, because NumPy reads them once for each feature.
    spans = list(blocks(len(points), _BLOCK_WIDTH * points.shape[1]))
    # First rows of devices and of blocks.
    cuts = find_distinct(np.append(begins, [span.start for span in spans]))
    places = cuts.searchsorted([span.start for span in spans] + [len(points)])
    parts = np.empty((len(cuts), points.shape[1]), points.dtype)
    for span, (first, last) in zip(spans, pairwise(places), strict=True):
        rows = cuts[first:last] - span.start
        low, high = (extreme.reduceat(points[span], rows) for extreme in (np.minimum, np.maximum))
        np.maximum(-low, high, out=parts[first:last])
    extent = np.zeros((len(is_filled), points.shape[1]), points.dtype)
    if len(begins):
        extent[is_filled] = np.maximum.reduceat(parts, cuts.searchsorted(begins))
    return extent


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
    n, k, d = tables.shape
    contents = np.ascontiguousarray(tables).reshape(n, k * d).view(np.int64)
    size = contents[:1].nbytes
    hashes = np.empty((n, _DIGEST), np.uint8)
    # Blocks of devices, because an object of Python takes 80 bytes.
    for block in blocks(n, size):
        rows = contents[block]
        # Of consecutive devices with the same table, the first one is hashed: all, after a broadcast along a tree.
        is_new = np.ones(len(rows), np.bool_)
        (rows[1:] != rows[:-1]).any(axis=1, out=is_new[1:])
        distinct = rows[is_new].reshape(-1).view(np.uint8).data
        places = range(0, len(distinct), size)
        digests = b"".join([hashlib.sha256(distinct[first : first + size]).digest() for first in places])
        hashes[block] = np.frombuffer(digests, np.uint8).reshape(-1, _DIGEST)[np.cumsum(is_new) - 1]
    return hashes


def usual_every(n: int) -> int:
    """Return the default number of rounds between two records for n devices."""
    return _SELDOM if n > LARGE else 1


def add(values: Floats | Integers) -> float:
    """Add values one after the other, so that the sum is bit-identical for any number of ranks."""
    return float(values.cumsum()[-1]) if len(values) else 0.0


def mean(values: Floats, weights: Floats | Integers | None = None) -> float | None:
    """Compute the mean of the finite values, optionally weighted; None without finite values."""
    known = np.isfinite(values)
    if weights is None:
        return add(values[known]) / np.count_nonzero(known) if known.any() else None
    total = add(weights[known])
    return add(values[known] * weights[known]) / total if total > 0 else None
