"""Frames of a run for replay: centroids, costs, disagreement and traffic of a sample of devices and records."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.brief import short_repr
from p2pkm.core.messages import expand_ranges
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

# Largest number of frames.
MOST = 60
# Largest numbers of devices and links in a frame; of more, an evenly spaced sample.
_DEVICES = 2_000
_LINKS = 20_000
# Largest number of coordinates in all frames. With large models, devices are sampled so that at least 8 frames fit.
_NUMBERS = 1_500_000
_LEAST = 8
_HUGE = float(np.finfo(np.float32).max)
Singles = NDArray[np.float32]


class Frames(NamedTuple):
    """At most 60 frames of a run, evenly spaced over its records, with the first and the last one.

    Stages that scale the points are left out, because their values are in other units. Models with fewer rows than the
    largest one are padded with absent centroids.

    Attributes
    ----------
    record : int64[f]
        Number of the record of each frame, ascending.
    device : int64[v]
        Devices in the frames, ascending, without the server.
    centroids : float32[f, v, k, d]
        Models in the units of the result; absent centroids are +inf.
    cost : float32[f, v]
        Cost (6) of each device on its local points; NaN for devices with points but without centroids.
    disagreement : float32[f, v]
        Sum of (4) over all links of a device, including those outside the frames.
    edge_a, edge_b : int64[l]
        Links among these devices, and to the server of a star; a < b.
    gtv : float32[f, l]
        Disagreement (4) of the two ends of a link.
    bytes : int64[f, l]
        Bytes sent over the link in both directions up to this record.
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
    """Frame of one record, on rank 0; see `Frames`."""

    centroids: Singles
    cost: Singles
    disagreement: Singles
    gtv: Singles
    bytes: Integers


class Recorder:
    """Recorder of frames: of every record until there are too many, then of every second one, every fourth, and so on.

    All ranks must call the same methods in the same order. The frames are on rank 0. The size of the first models
    determines the number of devices in the frames.

    Parameters
    ----------
    topology : Topology
        Graph of all devices.
    network : Network
        Collective operations; nothing is counted as a message.
    """

    def __init__(self, topology: Topology, network: Network) -> None:
        self._topology = topology
        self._network = network
        # Numbers of records, of those that were skipped at the start, and of records from one frame to the next.
        self._seen = 0
        self._skipped = 0
        self._stride = 1
        # Largest number of rows of a model.
        self._rows = 0
        self._selection: _FrameSelection | None = None
        self._frames: list[tuple[int, Frame | None]] = []
        self._last: tuple[int, Frame | None] | None = None
        self._features = 0

    def skip(self) -> None:
        """Skip a record before the first frame."""
        self._seen = self._seen + 1
        self._skipped = self._skipped + 1

    def record(self, devices: Devices, centroids: Floats, gtv: Floats, losses: Floats, *, last: bool) -> None:
        """Record a frame if it is due, or if it may be the last one.

        Parameters
        ----------
        devices : Devices
            Batch of this rank.
        centroids : float64[n, r, d]
            Models of the local devices.
        gtv : float64[e]
            (4) at the lower end of every local edge.
        losses : float64[clients]
            Cost (6) of all devices, on rank 0.
        last : bool
            Whether a stage, and perhaps the run, ends with this record.
        """
        number, (_, rows, d) = self._seen, centroids.shape
        self._seen += 1
        self._rows = max(self._rows, rows)
        self._features = d
        if self._selection is None:
            most = max(_NUMBERS // (_LEAST * rows * d), 1)
            self._selection = _FrameSelection(
                self._topology, self._network, min(self._topology.clients, _DEVICES, most)
            )
        if self._capacity < 2:
            self._frames = []
            return
        self._thin()
        due = (number - self._skipped) % self._stride == 0
        if not (due or last):
            return
        self._last = number, self._selection.capture(devices, centroids, gtv, losses)
        if due:
            self._frames.append(self._last)
            self._thin()

    @property
    def _capacity(self) -> int:
        """Largest number of frames, with the last one."""
        shown = 0 if self._selection is None else len(self._selection.devices)
        return int(min(MOST, _NUMBERS // max(shown * self._rows * self._features, 1)))

    def _thin(self, more: int = 0) -> None:
        """Remove every second frame until the frames, and `more` additional ones, are not too many."""
        while len(self._frames) + more > self._capacity and len(self._frames) > 1:
            self._frames = self._frames[::2]
            self._stride = 2 * self._stride

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the recorder for a checkpoint, see `p2pkm.engine.state_tree`."""
        frames = dict(self._frames) | ({} if self._last is None else dict([self._last]))
        return {
            "seen": self._seen, "skipped": self._skipped, "stride": self._stride, "rows": self._rows,
            "features": self._features, "shown": None if self._selection is None else len(self._selection.devices),
            "kept": [number for number, _ in self._frames], "last": None if self._last is None else self._last[0],
            "frames": {str(number): {f"root_{name}": part for name, part in frame._asdict().items()}
                       for number, frame in frames.items() if frame is not None},
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self._seen = state["seen"]
        self._skipped = state["skipped"]
        self._stride = state["stride"]
        self._rows = state["rows"]
        self._features = state["features"]
        if state["shown"] is not None:
            self._selection = _FrameSelection(self._topology, self._network, state["shown"])
        root = self._network.placement.rank == 0

        def take(number: int) -> tuple[int, Frame | None]:
            parts = state["frames"][str(number)]
            return number, Frame(**{name: parts[f"root_{name}"] for name in Frame._fields}) if root else None

        self._frames = [take(number) for number in state["kept"]]
        self._last = None if state["last"] is None else take(state["last"])

    @property
    def notes(self) -> list[str]:
        """Notes on devices and links that are missing in the frames."""
        selection = self._selection
        clients = self._topology.clients
        if selection is None or not self._frames:
            return []
        notes = []
        if len(selection.devices) < clients:
            notes.append(f"frames for replay are of a sample of {len(selection.devices):,} of {clients:,} devices")
        if len(selection.forward) < selection.links:
            notes.append(
                f"frames for replay are of a sample of {len(selection.forward):,} of {selection.links:,} links"
            )
        return notes

    def build_frames(self) -> dict[str, Any]:
        """Build the arrays of `Frames` on rank 0; empty without frames."""
        if self._selection is None or self._last is None or not self._frames:
            return {}
        if self._last[0] > self._frames[-1][0]:
            self._thin(1)
            self._frames.append(self._last)
        frames = [frame for _, frame in self._frames if frame is not None]
        parts: Any = {name: np.array([getattr(frame, name) for frame in frames]) for name in Frame._fields[1:]}
        shape = len(frames), len(self._selection.devices), self._rows, self._features
        parts["centroids"] = np.full(shape, np.inf, np.float32)
        for filled, frame in zip(parts["centroids"], frames, strict=True):
            filled[:, : frame.centroids.shape[1]] = frame.centroids
        ends: Any = {"edge_a": self._selection.low, "edge_b": self._selection.high}
        return Frames(
            record=np.array([number for number, _ in self._frames]), device=self._selection.devices, **ends, **parts
        )._asdict()


class _FrameSelection:
    """Devices and links in the frames, and their positions on this rank.

    Attributes
    ----------
    devices : int64[v]
        Devices in the frames.
    forward : int64[l]
        Links in the frames, as edges of the topology at their lower ends.
    low, high : int64[l]
        Lower and upper end of each link.
    links : int
        Number of links among the devices, including those outside the frames.
    """

    def __init__(self, topology: Topology, network: Network, count: int) -> None:
        self._network = network
        self.devices = np.arange(count) * topology.clients // count
        inside = np.zeros(topology.n, np.bool_)
        inside[self.devices] = True
        if topology.hub >= 0:
            inside[topology.hub] = True
        members = np.flatnonzero(inside)
        edges = expand_ranges(topology.indptr[members], topology.degrees[members])
        sources = np.repeat(members, topology.degrees[members])
        targets = topology.indices[edges]
        up = np.flatnonzero(inside[targets] & (sources < targets))
        self.links = len(up)
        if self.links > _LINKS:
            up = up[np.arange(_LINKS) * self.links // _LINKS]
        self.forward = edges[up]
        self.low = sources[up]
        self.high = targets[up]
        down = np.searchsorted(sources * topology.n + targets, self.high * topology.n + self.low)
        edge_pairs = np.sort(np.concatenate((up, down)))
        self._up = np.searchsorted(edge_pairs, up)
        self._down = np.searchsorted(edge_pairs, down)
        self._place(topology, inside, sources[edge_pairs], edges[edge_pairs])

    def _place(self, topology: Topology, inside: Any, sources: Integers, edges: Integers) -> None:
        """Find the devices on this rank, and the edges of the links in both directions."""
        placement = self._network.placement
        ids = placement.ids
        self._local = np.flatnonzero(inside[ids] & (ids != topology.hub))
        # Numbers of rows of each device of the system, on the rank that gathers them; small types, because there are
        # many devices.
        self._counts: Any = None
        self._edge_counts: Any = None
        if placement.rank == 0:
            self._counts = np.zeros(topology.n, np.int8)
            self._counts[self.devices] = 1
            self._edge_counts = np.bincount(sources, minlength=topology.n).astype(np.int32)
        local_rows = np.minimum(np.searchsorted(ids, sources), max(len(ids) - 1, 0))
        is_local = ids[local_rows] == sources if len(ids) else np.zeros(len(sources), np.bool_)
        self._edges = placement.indptr[local_rows[is_local]] + edges[is_local] - topology.indptr[sources[is_local]]
        degrees = np.diff(placement.indptr)[self._local]
        # All edges of the local devices in the frames.
        local_edges = expand_ranges(placement.indptr[self._local], degrees)
        self._owner = np.repeat(np.arange(len(self._local)), degrees)
        upper = ids[self._local][self._owner] > placement.indices[local_edges]
        # Edge at which (4) is stored, the one at the lower end; -1: on another rank.
        self._known = np.where(upper, placement.mirror[local_edges], local_edges)
        self._outside = local_edges[self._known < 0]
        self._indptr = np.searchsorted(self._owner[self._known < 0], np.arange(len(self._local) + 1))

    def capture(self, devices_of_rank: Devices, centroids: Floats, gtv: Floats, losses: Floats) -> Frame | None:
        """Gather a frame on rank 0."""
        network, (_, rows, d) = self._network, centroids.shape
        tables = centroids[self._local].reshape(-1, rows * d)
        shown = np.empty((len(tables), rows * d + 1), np.float32)
        links = np.empty((len(self._edges), 2))
        links[:, 0] = gtv[self._edges]
        links[:, 1] = network.ledger.volume(self._edges).view(np.float64)
        with np.errstate(over="ignore"):
            # Absent centroids stay +inf.
            shown[:, :-1] = np.where(tables < np.inf, tables.clip(-_HUGE, _HUGE), np.inf)
            shown[:, -1] = self._sum_gtv(devices_of_rank, centroids, gtv)
            devices = network.gather_by_device(shown, self._counts)
            links = network.gather_by_device(links, self._edge_counts)
            if devices is None:
                return None
            cost = np.where(np.isfinite(losses), losses, np.nan)[self.devices].astype(np.float32)
            link_gtv = links[self._up, 0].astype(np.float32)
        volume = np.ascontiguousarray(links[:, 1]).view(np.int64)
        shape = len(devices), rows, d
        return Frame(
            devices[:, :-1].reshape(shape), cost, devices[:, -1], link_gtv, volume[self._up] + volume[self._down]
        )

    def _sum_gtv(self, devices: Devices, centroids: Floats, gtv: Floats) -> Floats:
        """Add (4) over all links of the local devices in the frames."""
        edge_gtv = gtv[self._known]
        placement = self._network.placement
        unknown = self._known < 0
        # A collective operation: all ranks take part, even without links to other ranks.
        received = self._network.halo_exchange_uncounted(centroids)
        if len(self._outside):
            needed, slots = np.unique(placement.senders[self._outside], return_inverse=True)
            tables = np.concatenate((centroids[self._local], received[needed]))
            below = np.full(len(self._local), -1)
            links = placement.indices[self._outside], len(self._local) + slots
            edge_gtv[unknown] = devices.kernels.gtv(tables, below, self._indptr, *links)
        sums: Floats = np.bincount(self._owner, edge_gtv, len(self._local)).astype(np.float64, copy=False)
        return sums
