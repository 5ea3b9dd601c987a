"""The referee looks in from outside: it measures, and nothing that it sees stops a run or reaches a device."""

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from p2pkm.devices import Devices, Floats
from p2pkm.network import Network
from p2pkm.prices import Priced, Prices
from p2pkm.result import Chain
from p2pkm.scores import ari, tabulate

Record = dict[str, Any]
_REMEMBERED = 64_000_000  # bytes of digests
_TINY = 1e-24  # relative to (7) with everything one standard deviation apart: squares of rounding
_SLACK = 1e-9  # relative to (7): a certified run may rise by rounding


class Referee:
    """Keep the trace and the hash chain of a run; rank 0 alone has the results.

    Parameters
    ----------
    network : Network
    every : int
        Record every so many rounds, and the last one of each stage.
    sink : callable
        Gets every record as it is made, on rank 0.

    Attributes
    ----------
    trace : list of dict
        The records; see the run folder's rounds.jsonl.
    fingerprint, chain : bytes
        SHA-256 over the devices' digests in device order, and that chained over the recorded rounds.
    digests : uint8[n, 32]
        SHA-256 of each device's centroids in the last record.
    losses : float64[n]
        Cost (6) of each device in the last record.
    gtv : float64[e]
        Variation (4) of each link at its lower end in the last record.
    priced : Priced or None
        Prices of the last record, if any.
    seconds : float
        Time spent on looking.
    objective_known : bool
        Whether the method of the last record has the objective (7).
    """

    def __init__(self, network: Network, every: int, sink: Callable[[Record], None]) -> None:
        self.network, self._every, self._sink = network, every, sink
        self._root = network.placement.rank == 0
        self._first = self._before = 0.0  # (7) at the start of the stage and in the last record
        self._rounding = 0.0
        self._violated = False
        self.trace: list[Record] = []
        self.chain = self.fingerprint = b""
        self._links: list[tuple[bytes, Any]] = []
        self.digests = np.zeros((0, 32), np.uint8)
        self.losses = self.gtv = np.zeros(0)
        self.seconds = 0.0
        self.objective_known = False
        self.priced: Priced | None = None

    def meet(self, devices: Devices, prices: Prices | None) -> None:
        """Watch this batch from now on; without prices nobody asks what centroids cost."""
        self._devices, self.prices = devices, prices

    def look(self, now: Record, state: Any, algorithm: Any, *, last: bool, closing: bool) -> None:
        """Record a round if it is due.

        Parameters
        ----------
        now : dict
            ``stage``, ``round`` and ``turn_count`` of the record.
        last, closing : bool
            Whether the stage, or the whole run, ends with it.
        """
        if now["round"] % self._every and not last:
            return
        began = time.perf_counter()
        self._look(now, state, algorithm, closing)
        self.seconds += time.perf_counter() - began

    def _look(self, now: Record, state: Any, algorithm: Any, closing: bool) -> None:
        self.objective_known = hasattr(algorithm, "penalties")
        rows = self.network.collect(self._measure_devices(state.centroids))
        edges = self.network.collect(self._measure_links(state, algorithm), self.network.placement.edge_counts)
        settled = self.network.collect(state.settled)
        self.priced = self.prices.of(state.centroids, closing=closing) if self.prices else None
        messages, volume = self.network.total(np.array(self.network.ledger.totals))
        if not self._root:
            return
        clients = self._devices.clients
        losses = rows[:clients, 0]
        self.losses, self.gtv = losses, edges[:, 0]
        self.digests = np.ascontiguousarray(rows[:, 3:]).view(np.uint8)
        self.fingerprint = hashlib.sha256(self.digests.tobytes()).digest()
        self.chain = hashlib.sha256(self.chain + self.fingerprint).digest()
        self._links.append((self.chain, self.digests))
        filled = np.isfinite(losses)
        self._rounding = _TINY * self._devices.scale**2 * (self._devices.total_weight + add(edges[:, 2]))
        gtv = add(edges[:, 0]) if filled.any() else None
        known = self.objective_known and filled.any()
        objective = add(losses[filled]) + add(edges[:, 1]) if known else None
        record = {
            **now, "objective": objective, "gtv": gtv,
            "ratio_mean": None if self.priced is None else mean(self.priced.ratios),
            "messages": int(messages), "bytes": int(volume), "settled": int(settled[:clients].sum()),
            "descent": self._certify(algorithm, objective, now["round"]),
        }  # fmt: skip
        if self._devices.hub >= 0:
            scores, sizes = rows[:clients, 1], rows[:clients, 2]
            record["ari_clients"] = add(scores * sizes) / add(sizes) if np.isfinite(scores).all() else None
        self.trace.append(record)
        self._sink(record)

    def links(self) -> Chain:
        """Return the fingerprints of all records."""
        heads = np.frombuffer(b"".join(head for head, _ in self._links), np.uint8).reshape(-1, 32)
        if sum(digests.size for _, digests in self._links) > _REMEMBERED:
            return Chain(heads, None)
        return Chain(heads, np.array([digests for _, digests in self._links]))

    @property
    def best(self) -> int:
        """Return the device whose centroids cost least on all points (device 0 if none was priced)."""
        return 0 if self.priced is None else int(np.argmin(self.priced.costs))

    def _measure_devices(self, centroids: Floats) -> Floats:
        """Return each device's own loss (6), ARI, size and SHA-256 of its centroids (as four numbers), float64[n, 7].

        The ARI is that of the device's own points, nan if it is not known; it is looked at in stars only.
        """
        own = self._devices
        losses, labels = own.kernels.losses(*own.own, centroids)
        scores = np.full(len(own), np.nan)
        if self.prices is not None and self.prices.n_classes and own.hub >= 0:
            tables = tabulate(own.offsets, self.prices.classes, labels, (self.prices.n_classes, centroids.shape[1]))
            scores = np.where(np.isfinite(losses), ari(tables), np.nan)
        rows = memoryview(centroids.tobytes())
        size = 8 * centroids[0].size if len(centroids) else 0
        digests = b"".join(hashlib.sha256(rows[i * size : (i + 1) * size]).digest() for i in range(len(centroids)))
        return np.column_stack((losses, scores, own.sizes, np.frombuffer(digests, np.float64).reshape(-1, 4)))

    def _measure_links(self, state: Any, algorithm: Any) -> Floats:
        """Return (4) of each link at its lower end, what it adds to the objective, and alpha, float64[e, 3]."""
        own = self._devices
        senders = self.network.placement.senders
        gtv = own.kernels.gtv(self.network.peek(state.centroids), own.ids, own.indptr, own.indices, senders)
        if not self.objective_known:
            return np.column_stack((gtv, gtv, np.ones(len(gtv))))
        return np.column_stack((gtv, algorithm.penalties(state, own, gtv), algorithm.link_alpha(own)))

    def _certify(self, algorithm: Any, objective: float | None, t: int) -> str:
        """Return what can be said of the descent of (7) up to this record."""
        if not getattr(algorithm, "certified", False) or objective is None:
            return "not claimed"
        if t == 0:
            self._first = self._before = objective
            self._violated = False
        self._violated |= objective - self._before > _SLACK * max(self._before, _SLACK * self._first) + self._rounding
        self._before = objective
        return "violated" if self._violated else "certified"


def add(values: Floats) -> float:
    """Return the sum, one after the other: the same bits on every placement."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def mean(values: Floats) -> float | None:
    """Return the mean of what is known, None if nothing is."""
    known = values[np.isfinite(values)]
    return add(known) / len(known) if len(known) else None
