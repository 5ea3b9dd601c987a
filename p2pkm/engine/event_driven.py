"""Event-driven execution of the asynchronous schedule on a link model.

Every device has a clock. Its next turn begins when

* the last byte that it sent has left its access line, and
* a table has arrived that it has not used yet (a device without links does not wait for one).

In the turn it takes the newest table that has arrived over each link, computes for counted operations / speed seconds,
and sends its table to all neighbors.

An access line transmits one byte after another, in both directions together. With ``free_i`` the time at which the line
of device i has transmitted everything that was sent before, sending b bytes at time t sets::

    free_i <- max(free_i, t) + (bytes that i sends and receives of the messages sent at time t) / access_i

A transfer over edge (i, j) ends at ``max(t + b / bandwidth, free_i, free_j)``, and j has the table one latency later.
So messages sent at the same time share the lines, as with a barrier, and later messages wait.

At most `BOUND` tables of a sender are in transit over a link: a device does not begin a turn before there is room for
the table it will send. The age of a used table is the time between its sending and the turn that uses it.

Exactly one device is active per turn. Ties are broken by the smaller number of turns, then by the lower id. Messages
that are sent at the time at which a turn begins are sent first. So with equal clocks and without latency, every device
uses the tables of the turn before, as with a barrier. A round consists of n turns; fast devices have more of them.

A run has converged when all devices have, all messages that were sent until then were used, and the devices are still
converged. The event queue depends only on sizes, row counts, operation counts and the link model. All ranks know them,
so all ranks simulate the same order of events.
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

# Tables of a sender in transit over a link, at most.
BOUND = 8
# Devices, at most: the work of each turn grows with their number, and a round has as many turns as devices.
MOST = 2000
# Attributes in a checkpoint, by the meaning of their last axis (devices, directed edges): `p2pkm.engine.state_tree`.
_CHECKPOINTED = {
    "store": ("turns", "_begin", "_next_send", "_ready", "_free", "_done", "_count", "_volume", "_rows", "_sent"),
    "arcs": ("_arrive", "_used", "_uses", "_sum", "_largest"),
}


def schedule_events(algorithm: Any, net: LinkParameters | None, topology: Topology) -> "Events | None":
    """Build the event queue of the method's stage; None if it is executed by rounds.

    Raises
    ------
    ExperimentError
        If there are more than `MOST` devices.
    """
    if net is None or algorithm.schedule != "async" or topology.varying is not None:
        return None
    if topology.n > MOST:
        raise ExperimentError(
            f"--schedule async with --link-model runs one turn per event; expected at most {MOST:,} devices, but there "
            f"are {topology.n:,}. Remove --link-model, so that many devices act in a turn, or use --schedule colored"
        )
    return Events(net, topology)


class Events:
    """Clocks of all devices and messages in transit during one stage; identical on all ranks.

    Parameters
    ----------
    net : LinkParameters
    topology : Topology
    bound : int, default=8
        Tables of a sender in transit over a link, at most.

    Attributes
    ----------
    bound : int
    ends : list of float
        For each round, the time in seconds since the start of the stage at which its last computation ended. The first
        entry is the initial exchange.
    turns : int64[N]
        Number of turns that each device has begun.
    """

    # The names of most attributes below are keys in checkpoints. Times are seconds since the start of the stage.

    def __init__(self, net: LinkParameters, topology: Topology, bound: int = BOUND) -> None:
        n, e = topology.n, len(topology.indices)
        self._net = net
        self._topology = topology
        self.bound = bound
        self.turns = np.zeros(n, np.int64)
        # Beginning of the next turn of each device, and time at which it sends its next table; inf: not known yet.
        self._begin = np.full(n, np.inf)
        self._next_send = np.full(n, np.inf)
        # Time at which the last byte sent by a device has left, and at which its line has transmitted all messages.
        self._ready = np.zeros(n)
        self._free = np.zeros(n)
        # End of the computation of the last turn of each device.
        self._done = np.zeros(n)
        # Number of tables that each device has sent, and bytes of the last one.
        self._count = np.zeros(n, np.int64)
        self._volume = np.zeros(n)
        # Rows and sending times of the last tables. Ring buffer: table c of a device is in row c modulo (bound + 1).
        # The newest table that has arrived may be older than all tables in transit, hence one row more than `bound`.
        self._rows, self._sent = np.zeros((2, bound + 1, n))
        # Arrival times of the last tables over each edge. Ring buffer: table c is in row c modulo bound.
        self._arrive = np.full((bound, e), -np.inf)
        # Number of the table that was last used over each edge.
        self._used = np.zeros(e, np.int64)
        # Number, sum of ages and largest age of the uses over each edge.
        self._uses = np.zeros(e, np.int64)
        self._sum = np.zeros(e)
        self._largest = np.full(e, np.nan)
        # Device whose turn is next, -1 in the initial exchange.
        self._next = -1
        # Number of tables of each device at the moment at which all had converged; empty before.
        self._mark = np.zeros(0, np.int64)
        self.ends: list[float] = []

    def open(self, algorithm: Any, devices: Devices, network: Network) -> Schedule:
        """Start the stage: all devices compute their initial exchange at time 0. Return its schedule."""
        self._algorithm = algorithm
        self._network = network
        self._d = devices.d
        placement, topology = network.placement, self._topology
        # The edges that lead to local devices, in the order of the edges that lead from them.
        self._incoming = topology.mirror[placement.edges]
        self._senders = topology.sources[self._incoming]
        self._ids = placement.ids
        self._indptr = placement.indptr
        self._local_active = devices.active_edges
        self._active = network.allgather_by_device(devices.active_edges, placement.edge_counts)
        active_edges = np.flatnonzero(self._active)
        self._out = np.split(active_edges, np.searchsorted(active_edges, topology.indptr[1:-1]))
        self._degrees = np.bincount(topology.sources[active_edges], minlength=topology.n)
        self._sizes = network.allgather_by_device(devices.sizes)
        all_devices = np.arange(topology.n)
        self._compute(all_devices, np.zeros(topology.n), np.zeros(topology.n, np.int64))
        self.ends = [float(self._done.max())]
        return Schedule(np.ones(len(devices), np.bool_), self._round, check_termination=self._check_termination)

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two rounds, or before the stage, in the form of `p2pkm.engine.state_tree`."""
        arrays = {f"{axis}_{name}": getattr(self, name).T for axis, names in _CHECKPOINTED.items() for name in names}
        return arrays | {"next": self._next, "ends": self.ends, "store_mark": self._mark if len(self._mark) else None}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._next, self.ends, mark = snapshot["next"], snapshot["ends"], snapshot["store_mark"]
        self._mark = np.zeros(0, np.int64) if mark is None else mark
        for axis, names in _CHECKPOINTED.items():
            for name in names:
                setattr(self, name, snapshot[f"{axis}_{name}"].T.copy())

    def _round(self, t: int) -> Iterator[Mask]:
        """Yield the active device of each of n turns, as a mask; fewer turns if no table is in transit or unused."""
        for _ in range(self._topology.n):
            if self._next < 0:
                break
            self._begin_turn()
            yield self._ids == self._next
        self.ends.append(float(self._done.max()))

    def _begin_turn(self) -> None:
        """Begin the next turn: use the tables that have arrived, and compute."""
        i, now = self._next, self._begin[self._next]
        edges = self._topology.mirror[self._out[i]]
        source = self._topology.sources[edges]
        number = self._count_arrived(edges, now)
        slot = number % (self.bound + 1)
        has_table = number > 0
        age = (now - self._sent[slot, source])[has_table]
        fresh = (number > self._used[edges])[has_table]
        edges = edges[has_table]
        self._used[edges] = number[has_table]
        self._uses[edges] += 1
        self._sum[edges] += age
        self._largest[edges] = np.fmax(self._largest[edges], age)
        self.turns[i] += 1
        self._begin[i] = np.inf
        rows = int(self._rows[slot, source][has_table][fresh].sum())
        self._compute(np.array([i]), np.array([now]), np.array([rows]))

    def _compute(self, ids: Integers, begin: Floats, rows: Integers) -> None:
        """Set the end of the computation of devices that begin a turn, after they received `rows` rows."""
        work = Work(self._sizes[ids], self._degrees[ids], rows, self._d)
        self._done[ids] = begin + operations.count_flops(self._algorithm, work) / self._net.speed[ids]

    def _count_arrived(self, edges: Integers, now: float) -> Integers:
        """Count the tables that have arrived over each edge, which is the number of the newest one; 0: none."""
        in_transit = np.count_nonzero(self._arrive[:, edges] > now, axis=0)
        return np.asarray(self._count[self._topology.sources[edges]] - in_transit)

    def receive(self, tables: SentTables) -> ReceivedTables:
        """Record the sent tables, find the next turn, and return the tables that have arrived when it begins.

        An inactive device keeps the table that it used last, as long as the ring buffer holds it.
        """
        self._record_sent(tables)
        self._advance()
        edges, count = self._incoming, self._count[self._senders]
        used = self._used[edges]
        number = np.maximum(used, (count - self.bound) * self._local_active)
        fresh = np.zeros(len(edges), np.bool_)
        i = np.searchsorted(self._ids, self._next)
        if i < len(self._ids) and self._ids[i] == self._next:
            incoming = slice(self._indptr[i], self._indptr[i + 1])
            arrived = self._count_arrived(edges[incoming], self._begin[self._next])
            number[incoming] = arrived * self._local_active[incoming]
            fresh[incoming] = number[incoming] > used[incoming]
        return ReceivedTables(np.where(number > 0, count - number, -1), fresh)

    def _record_sent(self, tables: SentTables) -> None:
        """Record the rows of the devices that have just computed, and schedule their sending."""
        local_rows = tables.rows[: len(self._ids)]
        # All devices compute in the initial exchange, then one in each turn, which one rank hosts: the others add 0.
        if self._next < 0:
            ids, rows = np.arange(self._topology.n), self._network.allgather_by_device(local_rows)
        else:
            ids = np.array([self._next])
            is_next = self._ids == self._next
            rows = self._network.total((local_rows[is_next] + 1).sum(keepdims=True)) - 1
        silent, sending, rows = ids[rows < 0], ids[rows >= 0], rows[rows >= 0]
        self._count[sending] += 1
        slot = self._count[sending] % (self.bound + 1)
        self._rows[slot, sending] = rows
        self._sent[slot, sending] = self._done[sending]
        self._volume[sending] = rows * tables.row_bytes
        self._next_send[sending] = self._done[sending]
        edges = np.concatenate([self._out[i] for i in sending] or [np.zeros(0, np.int64)])
        # The arrival time is unknown until the table is sent.
        self._arrive[self._count[self._topology.sources[edges]] % self.bound, edges] = np.inf
        for i in silent:
            self._ready[i] = self._done[i]
            self._schedule_next_turn(i)

    def _advance(self) -> None:
        """Advance the time to the beginning of the next turn, and find its device."""
        while (now := self._next_send.min()) <= self._begin.min() and now < np.inf:
            self._send(np.flatnonzero(self._next_send == now), now)
        first = np.flatnonzero(self._begin == self._begin.min())
        self._next = int(first[np.argmin(self.turns[first])]) if self._begin.min() < np.inf else -1

    def _send(self, ids: Integers, now: float) -> None:
        """Send the tables of devices that send at the same time, and schedule the turns that this changes."""
        net, topology, n = self._net, self._topology, self._topology.n
        edges = np.concatenate([self._out[i] for i in ids])
        source, target = topology.sources[edges], topology.indices[edges]
        volume = self._volume[source]
        load = np.bincount(source, volume, n) + np.bincount(target, volume, n)
        loaded = np.flatnonzero(load)
        self._free[loaded] = np.maximum(self._free[loaded], now) + load[loaded] / net.access[loaded]
        left = np.maximum(now + volume / net.bandwidth[edges], np.maximum(self._free[source], self._free[target]))
        arrival = left + net.latency[edges]
        self._arrive[self._count[source] % self.bound, edges] = arrival
        self._ready[ids] = now
        np.maximum.at(self._ready, source, left)
        self._next_send[ids] = np.inf
        # A receiver that still computes is scheduled when it has sent its table.
        sooner = (self._next_send[target] == np.inf) & (arrival < self._begin[target])
        for i in np.unique(np.concatenate((ids, target[sooner]))):
            self._schedule_next_turn(i)

    def _schedule_next_turn(self, i: int) -> None:
        """Compute the earliest beginning of the next turn of a device, given the tables in transit now."""
        edges, count = self._out[i], self._count[i]
        if not len(edges):
            self._begin[i] = self._ready[i]
            return
        incoming = self._topology.mirror[edges]
        # The oldest table over each edge that was not used yet.
        number = self._used[incoming] + 1
        sent = self._count[self._topology.indices[edges]]
        # A table that is no longer in the ring buffer arrived long ago; one that was not sent yet never arrives.
        arrival = np.where(number > sent - self.bound, self._arrive[number % self.bound, incoming], -np.inf)
        first_arrival = np.where(number <= sent, arrival, np.inf).min()
        # The next table takes the place of the oldest one in the ring buffer, which must have arrived everywhere.
        room = self._arrive[(count + 1) % self.bound, edges].max()
        self._begin[i] = max(self._ready[i], first_arrival, room)

    def _check_termination(self, stop: str) -> str:
        """Return the reason to stop, empty to continue: all tables sent until convergence must have been used."""
        if stop not in ("converged", "oscillating"):
            self._mark = np.zeros(0, np.int64)
            return stop
        if not len(self._mark):
            self._mark = self._count.copy()
        received = self._used >= self._mark[self._topology.sources]
        return stop if received[self._active].all() else ""

    @property
    def edge_ages(self) -> tuple[Floats, Floats]:
        """Mean and largest age of the tables used over each directed edge, float64[E] each; NaN without a use."""
        mean = np.where(self._uses > 0, self._sum / np.maximum(self._uses, 1), np.nan)
        return mean, self._largest

    @property
    def summary(self) -> dict[str, float | None]:
        """Mean and largest age of all uses, in seconds; None without a use."""
        uses = int(self._uses.sum())
        if not uses:
            return {"age_mean": None, "age_max": None}
        return {"age_mean": float(np.cumsum(self._sum)[-1]) / uses, "age_max": float(np.nanmax(self._largest))}
