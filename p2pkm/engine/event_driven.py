"""Asynchrony in virtual time, event by event: a device goes on with what has arrived.

Every device has a clock of its own. Its turn begins when its line is free, that is, when the last byte of what it sent
has left, and when a table has arrived that it has not used yet (a device without links just goes on). It takes the
newest table that has arrived over each link, computes for counted operations / speed, and then sends its table to all
of its neighbors.

A line carries one byte after another, both ways. What b bytes that are sent at time t have to wait for is what was
sent before: with `free` the time at which a line has carried all of that,

    free_i <- max(free_i, t) + (all that i sends and receives of what is sent at time t) / access_i

and a transfer over edge (i, j) ends at ``max(t + b / bandwidth, free_i, free_j)``; j has it a latency later. So what is
sent at one time shares the lines, as under a barrier, and what is sent later waits its turn.

At most `BOUND` tables are on their way over a link: a device does not begin a turn before there is room for what it
will say. The age of a use is the time between a table being sent and a turn that goes by it.

A turn wakes exactly one device; of several that begin at the same time the one comes first that has had fewer turns,
then the one with the lower id. What is sent at a time is sent before a turn begins at that time. So with equal clocks
and no latency all devices go by what all have sent in the turn before, as under a barrier. A round is n turns, of
which fast devices take more.

A run is at rest when all have converged, all messages sent by then were used, and all still are. The
queue is the same on every rank: all that it needs to know are the rows that each device sends.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.protocols import Work
from p2pkm.engine import flop_count as operations
from p2pkm.methods.schedules import Schedule
from p2pkm.network.delay_model import ReceivedTables, SentTables
from p2pkm.network.graph import Topology
from p2pkm.network.link_model import LinkParameters
from p2pkm.network.transport import Network

BOUND = 8  # tables of a sender on their way over a link
MOST = 2000  # devices; each turn takes a look at all of them
_KEPT = {
    "store": ("turns", "_begin", "_next_send", "_ready", "_free", "_done", "_count", "_volume", "_rows", "_sent"),
    "arcs": ("_arrive", "_used", "_uses", "_sum", "_largest"),
}


def schedule_events(algorithm: Any, net: LinkParameters | None, topology: Topology) -> "Events | None":
    """Return the clocks by which the last stage of a run is played; None if it goes by rounds.

    Raises
    ------
    ExperimentError
        If there are too many devices for a turn per event, or the method overshoots.
    """
    if net is None or algorithm.schedule != "async" or topology.varying is not None:
        return None
    if topology.n > MOST:
        raise ExperimentError(
            f"schedule async with a link model runs one turn per event, for up to {MOST:,} devices; there are "
            f"{topology.n:,}. Leave --link-model out, which wakes many devices in a turn, or take --schedule colored"
        )
    relaxation = algorithm.traits.relaxation
    if relaxation is not None and relaxation > 1.0:
        raise ExperimentError(
            f"relaxation is {relaxation:g} with schedule async and a net: devices go on with what has arrived, and "
            "overshooting on old tables diverges. Take up to 1, leave --link-model out, or take --schedule colored"
        )
    return Events(net, topology)


class Events:
    """The clocks of all devices, and what is on its way; one stage, played on every rank alike.

    Attributes
    ----------
    bound : int
        Tables of a sender on their way over a link, at most.
    ends : list of float
        When all that was done up to the end of a round had been computed, since the stage began; 0: the opening.
    turns : int64[n]
        How many each device has begun.
    """

    def __init__(self, net: LinkParameters, topology: Topology, bound: int = BOUND) -> None:
        n, e = topology.n, len(topology.indices)
        self._net, self._topology, self.bound = net, topology, bound
        self.turns = np.zeros(n, np.int64)
        self._begin, self._next_send = np.full(n, np.inf), np.full(n, np.inf)  # when each does so next
        self._ready, self._free = np.zeros(n), np.zeros(n)  # has sent all it sent; line has carried all that was sent
        self._done = np.zeros(n)  # when each has computed its last turn
        self._count, self._volume = np.zeros(n, np.int64), np.zeros(n)  # tables that each sent, bytes of the last one
        self._rows, self._sent = np.zeros((2, bound + 1, n))  # of the last tables: their rows, and when they were sent
        self._arrive = np.full((bound, e), -np.inf)  # when the last tables are there; table c is in row c modulo bound
        self._used = np.zeros(e, np.int64)  # number of the table that was last used over each edge
        self._uses, self._sum, self._largest = np.zeros(e, np.int64), np.zeros(e), np.full(e, np.nan)
        self._next, self._mark = -1, np.zeros(0, np.int64)
        self.ends: list[float] = []

    def open(self, algorithm: Any, devices: Devices, network: Network) -> Schedule:
        """Let all begin their opening; return who is awake when, and when that may end."""
        self._algorithm, self._network, self._d = algorithm, network, devices.d
        placement, topology = network.placement, self._topology
        self._own, self._ids = topology.mirror[placement.edges], placement.ids
        self._active = network.allgather_by_device(devices.active_edges, placement.edge_counts)
        self._indptr, self._senders, self._in_use = placement.indptr, topology.sources[self._own], devices.active_edges
        used = np.flatnonzero(self._active)
        self._out = np.split(used, np.searchsorted(used, topology.indptr[1:-1]))
        self._degrees = np.bincount(topology.sources[used], minlength=topology.n)
        self._sizes = network.allgather_by_device(devices.sizes)
        everybody = np.arange(topology.n)
        self._compute(everybody, np.zeros(topology.n), np.zeros(topology.n, np.int64))
        self.ends = [float(self._done.max())]
        return Schedule(np.ones(len(devices), np.bool_), self._round, check_termination=self._check_termination)

    def snapshot(self) -> dict[str, Any]:
        """Return how things stand between two rounds, or before the stage, as `p2pkm.engine.state_tree` takes it."""
        arrays = {f"{axis}_{name}": getattr(self, name).T for axis, names in _KEPT.items() for name in names}
        return arrays | {"next": self._next, "ends": self.ends, "store_mark": self._mark if len(self._mark) else None}

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._next, self.ends, mark = kept["next"], kept["ends"], kept["store_mark"]
        self._mark = np.zeros(0, np.int64) if mark is None else mark
        for axis, names in _KEPT.items():
            for name in names:
                setattr(self, name, kept[f"{axis}_{name}"].T.copy())

    def _round(self, t: int) -> Iterator[Mask]:
        """Yield who is awake in each of n turns, fewer if no device has anything to go on with."""
        for _ in range(self._topology.n):
            if self._next < 0:
                break
            self._take()
            yield self._ids == self._next
        self.ends.append(float(self._done.max()))

    def _take(self) -> None:
        """Begin the next turn: use what has arrived, and compute."""
        i, now = self._next, self._begin[self._next]
        edges = self._topology.mirror[self._out[i]]
        source, number = self._topology.sources[edges], self._arrived(edges, now)
        kept = number % (self.bound + 1)
        there = number > 0
        edges, age, fresh = edges[there], (now - self._sent[kept, source])[there], (number > self._used[edges])[there]
        self._used[edges] = number[there]
        self._uses[edges] += 1
        self._sum[edges] += age
        self._largest[edges] = np.fmax(self._largest[edges], age)
        self.turns[i] += 1
        self._begin[i] = np.inf
        rows = int(self._rows[kept, source][there][fresh].sum())
        self._compute(np.array([i]), np.array([now]), np.array([rows]))

    def _compute(self, who: Integers, begin: Floats, rows: Integers) -> None:
        """Let some devices compute from a time on, having received so many rows."""
        work = Work(self._sizes[who], self._degrees[who], rows, self._d)
        self._done[who] = begin + operations.count_flops(self._algorithm, work) / self._net.speed[who]

    def _arrived(self, edges: Integers, now: float) -> Integers:
        """Return the number of the newest table that has arrived over each of some edges, 0: none."""
        late = np.count_nonzero(self._arrive[:, edges] > now, axis=0)
        return np.asarray(self._count[self._topology.sources[edges]] - late)

    def receive(self, tables: SentTables) -> ReceivedTables:
        """Take in what was sent, find who is next, and return what has arrived when that turn begins.

        Who sleeps holds on to what it used last, as long as that is kept.
        """
        self._take_in(tables)
        self._advance()
        edges, count = self._own, self._count[self._senders]
        used = self._used[edges]
        number = np.maximum(used, (count - self.bound) * self._in_use)
        fresh = np.zeros(len(edges), np.bool_)
        i = np.searchsorted(self._ids, self._next)
        if i < len(self._ids) and self._ids[i] == self._next:
            mine = slice(self._indptr[i], self._indptr[i + 1])
            number[mine] = self._arrived(edges[mine], self._begin[self._next]) * self._in_use[mine]
            fresh[mine] = number[mine] > used[mine]
        return ReceivedTables(np.where(number > 0, count - number, -1), fresh)

    def _take_in(self, tables: SentTables) -> None:
        """Note how many rows those sent that have just computed, and when they will have done so."""
        own = tables.rows[: len(self._ids)]
        if self._next < 0:
            who, rows = np.arange(self._topology.n), self._network.allgather_by_device(own)
        else:
            who = np.array([self._next])
            here = self._ids == self._next
            rows = self._network.total((own[here] + 1).sum(keepdims=True)) - 1
        silent, sending, rows = who[rows < 0], who[rows >= 0], rows[rows >= 0]
        self._count[sending] += 1
        kept = self._count[sending] % (self.bound + 1)
        self._rows[kept, sending], self._sent[kept, sending] = rows, self._done[sending]
        self._volume[sending] = rows * tables.row_bytes
        self._next_send[sending] = self._done[sending]
        over = np.concatenate([self._out[i] for i in sending] or [np.zeros(0, np.int64)])
        self._arrive[self._count[self._topology.sources[over]] % self.bound, over] = np.inf
        for i in silent:
            self._ready[i] = self._done[i]
            self._await(i)

    def _advance(self) -> None:
        """Pass the time up to the beginning of the next turn, and note whose it is."""
        while (now := self._next_send.min()) <= self._begin.min() and now < np.inf:
            self._send(np.flatnonzero(self._next_send == now), now)
        first = np.flatnonzero(self._begin == self._begin.min())
        self._next = int(first[np.argmin(self.turns[first])]) if self._begin.min() < np.inf else -1

    def _send(self, who: Integers, now: float) -> None:
        """Let some devices send their tables at the same time."""
        net, topology, n = self._net, self._topology, self._topology.n
        edges = np.concatenate([self._out[i] for i in who])
        source, target = topology.sources[edges], topology.indices[edges]
        volume = self._volume[source]
        load = np.bincount(source, volume, n) + np.bincount(target, volume, n)
        carried = np.flatnonzero(load)
        self._free[carried] = np.maximum(self._free[carried], now) + load[carried] / net.access[carried]
        left = np.maximum(now + volume / net.bandwidth[edges], np.maximum(self._free[source], self._free[target]))
        there = left + net.latency[edges]
        self._arrive[self._count[source] % self.bound, edges] = there
        self._ready[who] = now
        np.maximum.at(self._ready, source, left)
        self._next_send[who] = np.inf
        sooner = (self._next_send[target] == np.inf) & (there < self._begin[target])
        for i in np.unique(np.concatenate((who, target[sooner]))):
            self._await(i)

    def _await(self, i: int) -> None:
        """Work out when the next turn of a device can begin, by what is on its way now."""
        edges, count = self._out[i], self._count[i]
        if not len(edges):
            self._begin[i] = self._ready[i]
            return
        inward, number = self._topology.mirror[edges], self._used[self._topology.mirror[edges]] + 1
        sent = self._count[self._topology.indices[edges]]
        there = np.where(number > sent - self.bound, self._arrive[number % self.bound, inward], -np.inf)
        first = np.where(number <= sent, there, np.inf).min()
        room = self._arrive[(count + 1) % self.bound, edges].max()
        self._begin[i] = max(self._ready[i], first, room)

    def _check_termination(self, stop: str) -> str:
        """Return why to stop: that all have converged counts once all has been used that had been sent by then."""
        if stop not in ("converged", "oscillating"):
            self._mark = np.zeros(0, np.int64)
            return stop
        if not len(self._mark):
            self._mark = self._count.copy()
        received = self._used >= self._mark[self._topology.sources]
        return stop if received[self._active].all() else ""

    @property
    def ages(self) -> tuple[Floats, Floats]:
        """Return the mean and the largest age of what was used over each directed edge, float64[e] each; nan: none."""
        mean = np.where(self._uses > 0, self._sum / np.maximum(self._uses, 1), np.nan)
        return mean, self._largest

    @property
    def summary(self) -> dict[str, float | None]:
        """Return the mean and the largest age of all uses, None if there is none."""
        uses = int(self._uses.sum())
        if not uses:
            return {"age_mean": None, "age_max": None}
        return {"age_mean": float(np.cumsum(self._sum)[-1]) / uses, "age_max": float(np.nanmax(self._largest))}
