"""What a run keeps for replay: centroids, costs, disagreement and traffic of some devices in some of its records."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.brief import short_repr
from p2pkm.core.messages import expand_ranges
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

MOST = 60  # frames
_DEVICES, _LINKS = 2_000, 20_000  # that are shown; of more a sample, spread evenly
_NUMBERS, _LEAST = 1_500_000, 8  # centroid coordinates in all frames; of large tables so few devices that 8 frames fit
_HUGE = float(np.finfo(np.float32).max)
Singles = NDArray[np.float32]


class Frames(NamedTuple):
    """A run in at most 60 pictures, evenly spread over its records; the first and the last record are among them.

    What is sent in a stage that scales the points is left out, for it is in other units. Tables with fewer
    rows than the largest one are filled up with absent ones.

    Attributes
    ----------
    record : int64[f]
        Number of each frame in the records, ascending.
    device : int64[v]
        Devices that are shown, ascending; a hub is not among them.
    centroids : float32[f, v, k, d]
        In the units of the result; absent rows are +inf.
    cost : float32[f, v]
        Cost (6) of each device on its own points; NaN where it has points and no centroid.
    disagreement : float32[f, v]
        Sum of (4) over all links of a device, also those that are not shown.
    edge_a, edge_b : int64[l]
        Links among the devices shown, and of a star those to its hub; a < b.
    gtv : float32[f, l]
        Disagreement (4) of the two ends.
    bytes : int64[f, l]
        Bytes sent over the link up to this record, both ways.
    """

    record: Integers
    device: Integers
    centroids: Singles
    cost: Singles
    disagreement: Singles
    edge_a: Integers
    edge_b: Integers
    gtv: Singles
    bytes: Integers

    def __repr__(self) -> str:
        return short_repr(self)


class Frame(NamedTuple):
    """One record on rank 0; see `Frames`."""

    centroids: Singles
    cost: Singles
    disagreement: Singles
    gtv: Singles
    bytes: Integers


class Recorder:
    """Keep every record until there are too many, then every second one, every fourth, and so on.

    Every rank calls the same methods in the same order; the frames are on rank 0. The size of the first table decides
    how many devices are shown.

    Parameters
    ----------
    topology : Topology
    network : Network
    """

    def __init__(self, topology: Topology, network: Network) -> None:
        self._topology, self._network = topology, network
        self._seen, self._skipped, self._stride, self._rows = 0, 0, 1, 0
        self._cast: _FrameRecorder | None = None
        self._kept: list[tuple[int, Frame | None]] = []
        self._last: tuple[int, Frame | None] | None = None
        self._features = 0

    def skip(self) -> None:
        """Leave out a record before the first one that is looked at."""
        self._seen, self._skipped = self._seen + 1, self._skipped + 1

    def record(self, own: Devices, centroids: Floats, gtv: Floats, losses: Floats, *, last: bool) -> None:
        """Take in a record.

        Parameters
        ----------
        own : Devices
        centroids : float64[n, r, d]
            Of the own devices.
        gtv : float64[e]
            (4) at the lower end of every own edge.
        losses : float64[clients]
            Cost (6) of all devices, on rank 0.
        last : bool
            Whether a stage ends with this record, and perhaps the run.
        """
        number, (_, rows, d) = self._seen, centroids.shape
        self._seen += 1
        self._rows, self._features = max(self._rows, rows), d
        if self._cast is None:
            most = max(_NUMBERS // (_LEAST * rows * d), 1)
            self._cast = _FrameRecorder(self._topology, self._network, min(self._topology.clients, _DEVICES, most))
        if self._most < 2:
            self._kept = []
            return
        self._thin()
        due = (number - self._skipped) % self._stride == 0
        if not (due or last):
            return
        self._last = number, self._cast.film(own, centroids, gtv, losses)
        if due:
            self._kept.append(self._last)
            self._thin()

    @property
    def _most(self) -> int:
        """Return how many frames fit, the last one included."""
        shown = 0 if self._cast is None else len(self._cast.devices)
        return int(min(MOST, _NUMBERS // max(shown * self._rows * self._features, 1)))

    def _thin(self, more: int = 0) -> None:
        """Drop every second frame until they, and so many more, are not too many."""
        while len(self._kept) + more > self._most and len(self._kept) > 1:
            self._kept, self._stride = self._kept[::2], 2 * self._stride

    def snapshot(self) -> dict[str, Any]:
        """Return what was kept so far, as `p2pkm.engine.state_tree` takes it."""
        held = dict(self._kept) | ({} if self._last is None else dict([self._last]))
        return {
            "seen": self._seen, "skipped": self._skipped, "stride": self._stride, "rows": self._rows,
            "features": self._features, "shown": None if self._cast is None else len(self._cast.devices),
            "kept": [number for number, _ in self._kept], "last": None if self._last is None else self._last[0],
            "frames": {str(number): {f"root_{name}": part for name, part in frame._asdict().items()}
                       for number, frame in held.items() if frame is not None},
        }  # fmt: skip

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._seen, self._skipped, self._stride = kept["seen"], kept["skipped"], kept["stride"]
        self._rows, self._features = kept["rows"], kept["features"]
        if kept["shown"] is not None:
            self._cast = _FrameRecorder(self._topology, self._network, kept["shown"])
        root = self._network.placement.rank == 0

        def take(number: int) -> tuple[int, Frame | None]:
            parts = kept["frames"][str(number)]
            return number, Frame(**{name: parts[f"root_{name}"] for name in Frame._fields}) if root else None

        self._kept = [take(number) for number in kept["kept"]]
        self._last = None if kept["last"] is None else take(kept["last"])

    @property
    def notes(self) -> list[str]:
        """Return what the frames leave out."""
        cast, clients = self._cast, self._topology.clients
        if cast is None or not self._kept:
            return []
        notes = []
        if len(cast.devices) < clients:
            notes.append(f"frames for replay are of a sample of {len(cast.devices):,} of {clients:,} devices")
        if len(cast.forward) < cast.links:
            notes.append(f"frames for replay are of a sample of {len(cast.forward):,} of {cast.links:,} links")
        return notes

    def develop(self) -> dict[str, Any]:
        """Return the arrays of `Frames` on rank 0; none if nothing was kept."""
        if self._cast is None or self._last is None or not self._kept:
            return {}
        if self._last[0] > self._kept[-1][0]:
            self._thin(1)
            self._kept.append(self._last)
        frames = [frame for _, frame in self._kept if frame is not None]
        parts: Any = {name: np.array([getattr(frame, name) for frame in frames]) for name in Frame._fields[1:]}
        shape = len(frames), len(self._cast.devices), self._rows, self._features
        parts["centroids"] = np.full(shape, np.inf, np.float32)
        for filled, frame in zip(parts["centroids"], frames, strict=True):
            filled[:, : frame.centroids.shape[1]] = frame.centroids
        ends: Any = {"edge_a": self._cast.low, "edge_b": self._cast.high}
        return Frames(
            record=np.array([number for number, _ in self._kept]), device=self._cast.devices, **ends, **parts
        )._asdict()


class _FrameRecorder:
    """Who is shown: some devices and the links among them, and where this rank has them.

    Attributes
    ----------
    devices : int64[v]
    forward : int64[l]
        Links as edges of the topology, at their lower ends.
    low, high : int64[l]
        Their ends.
    links : int
        Number of links among the devices, also of those that are not shown.
    """

    def __init__(self, topology: Topology, network: Network, count: int) -> None:
        self._network = network
        self.devices = np.arange(count) * topology.clients // count
        inside = np.zeros(topology.n, np.bool_)
        inside[self.devices] = True
        if topology.hub >= 0:
            inside[topology.hub] = True
        named = np.flatnonzero(inside)
        edges = expand_ranges(topology.indptr[named], topology.degrees[named])
        sources, targets = np.repeat(named, topology.degrees[named]), topology.indices[edges]
        up = np.flatnonzero(inside[targets] & (sources < targets))
        self.links = len(up)
        if self.links > _LINKS:
            up = up[np.arange(_LINKS) * self.links // _LINKS]
        self.forward, self.low, self.high = edges[up], sources[up], targets[up]
        down = np.searchsorted(sources * topology.n + targets, self.high * topology.n + self.low)
        both = np.sort(np.concatenate((up, down)))
        self._up, self._down = np.searchsorted(both, up), np.searchsorted(both, down)
        self._place(topology, inside, sources[both], edges[both])

    def _place(self, topology: Topology, inside: Any, sources: Integers, edges: Integers) -> None:
        """Find what this rank hosts of the devices, and of the edges in both directions."""
        placement = self._network.placement
        ids = placement.ids
        self._mine = np.flatnonzero(inside[ids] & (ids != topology.hub))
        self._counts = np.zeros(topology.n, np.int64)
        self._counts[self.devices] = 1
        self._edge_counts = np.bincount(sources, minlength=topology.n)
        here = np.minimum(np.searchsorted(ids, sources), max(len(ids) - 1, 0))
        own = ids[here] == sources if len(ids) else np.zeros(len(sources), np.bool_)
        self._edges = placement.indptr[here[own]] + edges[own] - topology.indptr[sources[own]]
        degrees = np.diff(placement.indptr)[self._mine]
        around = expand_ranges(placement.indptr[self._mine], degrees)  # all links of the devices that are shown
        self._owner = np.repeat(np.arange(len(self._mine)), degrees)
        upper = ids[self._mine][self._owner] > placement.indices[around]
        self._known = np.where(upper, placement.mirror[around], around)  # where (4) is known; -1: at another rank
        self._outside = around[self._known < 0]
        self._indptr = np.searchsorted(self._owner[self._known < 0], np.arange(len(self._mine) + 1))

    def film(self, own: Devices, centroids: Floats, gtv: Floats, losses: Floats) -> Frame | None:
        """Collect a frame on rank 0."""
        network, (_, rows, d) = self._network, centroids.shape
        tables = np.clip(centroids[self._mine], -_HUGE, np.where(centroids[self._mine] < np.inf, _HUGE, np.inf))
        with np.errstate(over="ignore"):
            shown = np.column_stack((tables.reshape(len(tables), rows * d), self._disagree(own, centroids, gtv)))
            devices = network.gather_by_device(shown.astype(np.float32), self._counts)
        volume = network.ledger.volume(self._edges)
        links = network.gather_by_device(
            np.column_stack((gtv[self._edges], volume.view(np.float64))), self._edge_counts
        )
        if devices is None:
            return None
        volume = np.ascontiguousarray(links[:, 1]).view(np.int64)
        with np.errstate(over="ignore"):
            cost = np.where(np.isfinite(losses), losses, np.nan)[self.devices].astype(np.float32)
            apart = links[self._up, 0].astype(np.float32)
        shape = len(devices), rows, d
        return Frame(devices[:, :-1].reshape(shape), cost, devices[:, -1], apart, volume[self._up] + volume[self._down])

    def _disagree(self, own: Devices, centroids: Floats, gtv: Floats) -> Floats:
        """Return the sum of (4) over all links of the own devices that are shown."""
        apart, placement, unknown = gtv[self._known], self._network.placement, self._known < 0
        received = self._network.halo_exchange_uncounted(centroids)  # on every rank
        if len(self._outside):
            needed, slots = np.unique(placement.senders[self._outside], return_inverse=True)
            tables, below = np.concatenate((centroids[self._mine], received[needed])), np.full(len(self._mine), -1)
            links = placement.indices[self._outside], len(self._mine) + slots
            apart[unknown] = own.kernels.gtv(tables, below, self._indptr, *links)
        sums: Floats = np.bincount(self._owner, apart, len(self._mine)).astype(np.float64, copy=False)
        return sums
