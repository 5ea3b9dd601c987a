"""Simulated time of a run on a link model, computed after the run from the ledger.

Every device has a clock. In a turn

* an active device computes for counted operations / speed seconds;
* it then sends its table over its active edges. The transfer from i to j takes
  ``max(bytes / bandwidth of the edge, load_i / access_i, load_j / access_j)``, where the load of a device is the number
  of bytes that it sends and receives in this exchange: its access line is shared by all transfers in both directions;
* j has the table one latency after the last byte left. Device i is busy until its last byte has left;
* an active device without a new table sends a message of 0 bytes, which takes a latency: without it, its neighbors
  could not know that they need not wait.

``jacobi`` and ``star`` have a barrier: a turn begins when all devices have computed, sent and received. With c seconds
of computation, b bytes per table, latency l, bandwidth w and access a, equal everywhere, a turn takes

* on a ring ``c + l + max(b / w, 4 b / a)``: two tables out, two in;
* from n clients to the server ``c + l + max(b / w, n b / a_server)``;
* for a token that moves one hop along a path ``c + l + max(b / w, load / a)`` per hop, with load 2 b for a device that
  sends it to both neighbors.

``colored`` and ``async`` are free of barriers: a device computes as soon as it has received all tables that its
neighbors sent in earlier turns. Neighbors never act in the same turn, so this suffices. A slow device delays its
neighbors first, and devices r hops away r turns later. With ``async``, `p2pkm.engine.event_driven` models more: there
devices do not wait for all neighbors.

With faults, which last whole rounds,

* a device that is unavailable or a straggler neither computes nor sends. When it acts again, it begins at the earliest
  when all devices have ended the round before;
* a message that is lost, delayed or sent to an unavailable device takes the time of its sender only: its bytes pass the
  link and the access line of the sender, but not that of the receiver, and nobody waits for it;
* a delayed table is used with those of a later round, and at the earliest when it would have arrived without the delay.

With a deadline the barrier is at the start of a round, and a round of the method ends after this time at the latest.
Messages that would arrive later count as delayed by one round, and their receivers wait until the deadline. A
device that is not ready by then begins the next round with the others.

With a trace in seconds, too, the barrier is at the start of a round: it begins when all devices have ended the one
before, and has the values of the trace at that time, which counts from the start of the method.

A stage begins when all devices have ended the one before, which takes no time. Work of the simulator takes no time
either: the decision that all devices have converged, and the monitor.

Operations are counted by the method, or estimated as 3 m k d + 2 m d for a turn with m points, see
`p2pkm.engine.flop_count`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, groupby
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.timed_faults import TimedFaults
from p2pkm.channel.transform import Settings
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.protocols import Work
from p2pkm.data.stream import PointStream
from p2pkm.engine import flop_count as operations
from p2pkm.engine.event_driven import Events
from p2pkm.engine.replayed_faults import Arrivals, ReplayedFaults
from p2pkm.methods.init.pipelines import Stage, find_method_stage, number_stages
from p2pkm.methods.schedules import Schedule, make
from p2pkm.network.graph import Topology
from p2pkm.network.ledger import ExchangeRecord
from p2pkm.network.link_model import LinkParameters
from p2pkm.network.transport import Network

# Schedules without a barrier.
FREE = ("colored", "async")


class Timing(NamedTuple):
    """Input of the simulated time, in addition to the ledger.

    Attributes
    ----------
    net : LinkParameters or None
        None: only the times of `further` are computed.
    stages : tuple of Stage
        All stages of the run.
    events : Events or None
        Event queue of the method's stage; None if it was executed by rounds.
    stream : PointStream or None
        Changes of the points in the method's stage.
    further : dict of str to LinkParameters
        Further link models by name, for the time of the same messages.
    faults : mapping or None
        Settings of the faults on the graph, see `p2pkm.channel.faults.FaultInjector.place`.
    deadline : float or None
        Longest time of a round of the method in seconds.
    """

    net: LinkParameters | None
    stages: tuple[Stage, ...]
    events: Events | None = None
    stream: PointStream | None = None
    further: Mapping[str, LinkParameters] = {}
    faults: Settings | None = None
    deadline: float | None = None


class Turn(NamedTuple):
    """Actions of all devices in one turn.

    Attributes
    ----------
    active : bool[N]
    rows : int64[N]
        Rows that each device sent; -1 without a message.
    lengths : int64[N]
        Encoded bytes of the table that each device sent.
    edges : bool[E]
        Active directed edges.
    flops : int64[N]
        Operations of each device; undefined for inactive devices.
    arrivals : Arrivals or None
        Messages that arrive; None: all of them, in this turn.
    postpone : callable
        From the edges whose message misses the deadline, bool[E], to the messages that arrive.
    """

    active: Mask
    rows: Integers
    lengths: Integers
    edges: Mask
    flops: Integers
    arrivals: Arrivals | None = None
    postpone: Callable[[Mask], Any] = lambda overdue: None


class Clock:
    """Clocks of all devices.

    Parameters
    ----------
    net : LinkParameters
    topology : Topology

    Attributes
    ----------
    ready : float64[N]
        Time in seconds at which each device has computed and sent its last table.
    received : float64[N]
        Time in seconds at which each device has received all tables that were sent to it. With a deadline both count
        from the start of the round, so that they do not depend on what was before.
    deadline : float or None
        Longest time of a round in seconds; None: no limit.
    overdue : bool[E]
        Edges whose message of the last turn misses the deadline.
    """

    deadline: float | None = None
    overdue: Mask = np.zeros(0, np.bool_)

    def __init__(self, net: LinkParameters, topology: Topology) -> None:
        self._net = self._usual = net
        self._followers: Sequence[Clock] = ()
        self._topology = topology
        self.ready = np.zeros(topology.n)
        self.received = np.zeros(topology.n)
        # Start of the round from which times count.
        self._start = 0.0
        # Times at which the delayed tables in `Arrivals.target` would have arrived without the delay.
        self._late: Floats = np.zeros(0)

    def leading(self, followers: Sequence["Clock"]) -> "Clock":
        """Return this clock, which from now on advances clocks of further link models by the same turns."""
        self._followers = followers
        return self

    @property
    def now(self) -> float:
        """Time in seconds at which the last device has finished."""
        return self._start + self._latest

    @property
    def _latest(self) -> float:
        return float(max(self.ready.max(), self.received.max()))

    def start_stage(self) -> None:
        """Start a stage: all clocks are set to that of the last device, and delayed tables are discarded."""
        self.barrier()
        for clock in (self, *self._followers):
            clock._late = np.zeros(0)

    def start_round(self) -> None:
        """Set all clocks to that of the last device, from which times now count."""
        self.barrier()
        self._count_from(self._start + self._latest, self._latest)

    def start_timed_stage(self) -> None:
        """Start the first round of a trace in seconds."""
        for clock in (self, *self._followers):
            clock.start_round()

    def start_round_after(self, elapsed: float, start: float, pause: tuple[float, float]) -> None:
        """Start a round of a trace in seconds, a number of seconds after the one before; times now count from `start`.

        pause: for clocks of further link models, whose rounds have other lengths: the least length of a round, and the
        seconds for which nobody was online.
        """
        self._count_from(start, elapsed)
        for clock in self._followers:
            own = max(clock._latest, pause[0]) + pause[1]
            clock._count_from(clock._start + own, own)

    def _count_from(self, start: float, elapsed: float) -> None:
        """Move the origin of all times to `start`, which is `elapsed` seconds after the former origin."""
        self._start = start
        self._late = self._late - elapsed
        self.ready[:] = self.received[:] = 0.0

    def use(self, timed: TimedFaults, second: float) -> None:
        """Use the speeds and the values of links that a trace has at a second, at which a round begins."""
        timed.move_to(second)
        for clock in (self, *self._followers):
            clock._net = timed.set_values(clock._usual)

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the round from which times count."""
        return self._latest

    def barrier(self) -> None:
        """Set all clocks to that of the last device."""
        self.ready[:] = self.received[:] = self._latest
        for clock in self._followers:
            clock.barrier()

    def advance_turn(self, turn: Turn) -> Arrivals | None:
        """Advance the clocks by one turn: active devices wait for their messages, compute and send.

        Returns the messages that arrive, after the deadline has been applied.
        """
        net, active, n = self._net, turn.active, self._topology.n
        arrivals = turn.arrivals
        if arrivals is not None:
            # A device that missed rounds returns when they are over.
            self.ready[arrivals.returning] = self._latest
        begin = np.maximum(self.ready, self.received)[active]
        self.ready[active] = begin + turn.flops[active] / net.speed[active]
        is_sending = active | (turn.rows >= 0)
        edges = np.flatnonzero(turn.edges & is_sending[self._topology.sources])
        source, target = self._topology.sources[edges], self._topology.indices[edges]
        volume = turn.lengths[source]
        arrives = np.ones(len(edges), np.bool_) if arrivals is None else arrivals.now[edges]
        line_seconds = (np.bincount(source, volume, n) + np.bincount(target, volume * arrives, n)) / net.access
        receiving = np.where(arrives, line_seconds[target], 0.0)
        slower_line = np.maximum(line_seconds[source], receiving)
        sent = self.ready[source] + np.maximum(volume / net.bandwidth[edges], slower_line)
        np.maximum.at(self.ready, source, sent)
        arrival = sent + net.latency[edges]
        if self.deadline is not None:
            self.overdue = np.zeros(len(turn.edges), np.bool_)
            self.overdue[edges] = arrives & (arrival > self.deadline)
            arrivals = turn.postpone(self.overdue)
            arrives = arrivals.now[edges]
            turn = turn._replace(arrivals=arrivals)
            self.ready = np.minimum(self.ready, self.deadline)
            # Who waits for a message that misses the deadline does so until then.
            self.received[target[self.overdue[edges]]] = self.deadline
        np.maximum.at(self.received, target[arrives], arrival[arrives])
        if arrivals is not None:
            late = np.concatenate((self._late, arrival[arrivals.late[edges]]))
            np.maximum.at(self.received, arrivals.target[arrivals.used], late[arrivals.used])
            self._late = late[~arrivals.due]
        if self.deadline is not None:
            self.received = np.minimum(self.received, self.deadline)
        for clock in self._followers:
            clock.advance_turn(turn)
        return arrivals


def compute_virtual_time(
    timing: Timing, devices: Devices, topology: Topology, network: Network, trace: list[dict[str, Any]]
) -> tuple[dict[str, float | None], dict[str, float]]:
    """Add ``virtual_seconds`` to every record; a collective call, for rank 0.

    Returns
    -------
    summary : dict
        Metrics of the summary.
    times : dict of str to float
        Seconds on the further link models.
    """
    further = {name: Clock(net, topology) for name, net in timing.further.items()}
    # The first clock advances all of them.
    clocks = [*([] if timing.net is None else [Clock(timing.net, topology)]), *further.values()]
    clock = clocks[0].leading(clocks[1:])
    ends = _advance_stages(clock, timing, devices, topology, network)
    times = {name: model_clock.now for name, model_clock in further.items()}
    if timing.net is None:
        return {}, times
    for record, number in zip(trace, number_stages(trace, timing.stages), strict=True):
        record["virtual_seconds"] = ends[number, record["round"]]
    summary = {"virtual_seconds": clock.now, **({} if timing.events is None else timing.events.summary)}
    return summary, times


def _advance_stages(
    clock: Clock, timing: Timing, devices: Devices, topology: Topology, network: Network
) -> dict[tuple[int, int], float]:
    """Advance the clocks by all stages; return the end of each round, by (stage, round), on rank 0."""
    ends: dict[tuple[int, int], float] = {}
    flops = Flops(topology, network.gather_by_device(devices.sizes), devices.d)
    faults = None if timing.faults is None else ReplayedFaults(timing.faults, topology)
    if faults is not None and faults.timed is not None:
        # Stages before the method have the values of second 0.
        clock.use(faults.timed, 0.0)
    for number, exchanges in groupby(network.ledger.exchanges, key=lambda exchange: exchange.stage):
        stage, stage_exchanges = timing.stages[number], list(exchanges)
        if timing.events is not None and stage is find_method_stage(timing.stages):
            ends |= {(number, t): clock.now + computed for t, computed in enumerate(timing.events.ends)}
            clock.ready[:] = clock.received[:] = clock.now + timing.events.ends[-1]
            continue
        # The same batch as in the loop: on a static graph, a stage uses the links of its initial exchange throughout.
        linked = devices if topology.varying is not None else _with_stage_links(devices, stage_exchanges[0])
        schedule = make(stage.algorithm.schedule, linked, topology.colors)
        is_method_stage = stage is find_method_stage(timing.stages)
        clock.start_stage()
        clock.deadline = timing.deadline if is_method_stage else None
        stage_faults = faults if is_method_stage or stage.faults_apply else None
        if stage_faults is not None:
            stage_faults.start_stage()
        timer = StageTimer(clock, flops, stage.algorithm, stage_faults, timing.stream if is_method_stage else None)
        for exchange, (t, turn, active) in zip(stage_exchanges, turns_of(schedule), strict=False):
            local_sent, local_edges = gather_exchange(exchange, active, len(devices.indices))
            sent = network.gather_by_device(local_sent)
            edges = network.gather_by_device(local_edges, network.placement.edge_counts)
            # Only rank 0 computes times; the others have taken part in the collective calls.
            if sent is not None:
                timer.advance(t, turn, sent, edges)
                ends[number, t] = clock.now
    return ends


class StageTimer:
    """Advances the clocks by the exchanges of one stage, in their order.

    Parameters
    ----------
    clock : Clock
        At the start of the stage.
    flops : Flops
    algorithm : Algorithm
    faults : ReplayedFaults or None
        At the start of the stage; None: faults do not affect it.
    stream : PointStream or None
        Changes of the points in this stage.
    """

    def __init__(
        self, clock: Clock, flops: "Flops", algorithm: Any, faults: ReplayedFaults | None, stream: PointStream | None
    ) -> None:
        self._clock, self._flops, self._algorithm, self._faults = clock, flops, algorithm, faults
        self._stream = stream
        self._round = -1
        self._timed = None if faults is None else faults.timed
        # Seconds from the start of the stage to that of the current round, for a trace in seconds.
        self._second = 0.0

    def find_start(self) -> float:
        """Return the second, since the start of the stage, at which the next round of a trace in seconds begins."""
        assert self._timed is not None
        return self._timed.find_start(self._second, self._clock.elapsed)

    def _start_timed_round(self, timed: TimedFaults, t: int) -> None:
        """Start round t of a trace in seconds."""
        clock, start = self._clock, 0.0
        if t == 0:
            self._begin = clock.now
            clock.start_timed_stage()
        else:
            start = self.find_start()
            # Bits do not depend on what was before the stage: all times count from its start, or that of a round.
            idle = 0.0 if timed.every else start - (self._second + clock.elapsed)
            clock.start_round_after(start - self._second, self._begin + start, (timed.every, idle))
        self._second = start
        clock.use(timed, start)

    def advance(self, t: int, turn: int, sent: Integers, edges: Mask) -> Arrivals | None:
        """Advance the clocks by an exchange in this turn, from 0, of round t; return the messages that arrive.

        Parameters
        ----------
        t, turn : int
        sent : int64[N, 3]
            Rows (-1 without a message) and encoded bytes that each device sends, and whether it is active.
        edges : bool[E]
            Active directed edges.
        """
        clock, topology = self._clock, self._flops.topology
        is_new_round, self._round = t > self._round, t
        if self._stream is not None and is_new_round and t:
            self._flops.sizes = self._flops.sizes + self._stream.growth(t, topology.n)
        if self._timed is not None and is_new_round:
            self._start_timed_round(self._timed, t)
        if clock.deadline is not None:
            # Within a round a client computes as soon as it has the centroids, without waiting for other clients.
            if is_new_round and self._timed is None:
                clock.start_round()
        elif self._algorithm.schedule not in FREE:
            clock.barrier()
        rows, lengths, is_active = sent[:, 0], sent[:, 1], sent[:, 2] > 0
        if self._algorithm.schedule == "star":
            # A client without an active link is not asked, so it does not compute.
            is_active &= np.bincount(topology.sources[edges], minlength=topology.n) > 0
        made = Turn(is_active, rows, lengths, edges, np.zeros(0, np.int64))
        if self._faults is not None:
            returning = self._faults.start_round(t)
            is_active &= ~self._faults.inactive
            exchange = partial(self._faults.exchange, turn, returning, rows, edges)
            known = exchange() if clock.deadline is None else self._faults.foresee(turn, returning)
            made = made._replace(arrivals=known, postpone=exchange)
        arrivals = clock.advance_turn(made._replace(flops=self._flops.count(self._algorithm, is_active, edges)))
        self._flops.deliver(rows, edges, arrivals)
        return arrivals


def gather_exchange(exchange: ExchangeRecord, active: Mask, edge_count: int) -> tuple[Integers, Mask]:
    """Return rows, bytes and activity of the local devices, int64[n, 3], and their active edges, bool[e]."""
    return np.column_stack((*_sent_tables(exchange, len(active)), active)), _edge_mask(exchange, edge_count)


def turns_of(schedule: Schedule) -> Iterator[tuple[int, int, Mask]]:
    """Yield round, turn and active devices of the initial exchange and of every turn after it, without end."""
    yield 0, 0, schedule.opening
    for t in count(1):
        for turn, active in enumerate(schedule.turns(t)):
            yield t, turn, active


def _with_stage_links(devices: Devices, initial: ExchangeRecord) -> Devices:
    """Return the batch with the active links of a stage, those of its initial exchange."""
    if initial.edges is None:
        return devices
    return replace(devices, active_edges=_edge_mask(initial, len(devices.indices)))


def _sent_tables(exchange: ExchangeRecord, n: int) -> tuple[Integers, Integers]:
    """Return the rows (-1 without a message) and encoded bytes that each local device sent, int64[n] each."""
    rows, lengths = np.full(n, -1), np.zeros(n, np.int64)
    senders, sent_rows = exchange.sent_rows
    rows[senders] = sent_rows
    lengths[senders] = exchange.lengths
    return rows, lengths


def _edge_mask(exchange: ExchangeRecord, e: int) -> Mask:
    """Return the local edges that were active in an exchange, bool[e]; a record without edges stands for all."""
    edges = np.ones(e, np.bool_) if exchange.edges is None else np.zeros(e, np.bool_)
    if exchange.edges is not None:
        edges[exchange.edges] = True
    return edges


class Flops:
    """Counter of operations per turn, and of the rows that devices received since their last turn.

    Attributes
    ----------
    topology : Topology
    sizes : int64[N]
        Points of each device.
    """

    def __init__(self, topology: Topology, sizes: Integers, d: int) -> None:
        self.topology = topology
        self.sizes = sizes
        self._d = d
        # Rows that each device has received since it was last active.
        self._unread = np.zeros(topology.n, np.int64)

    def count(self, algorithm: Any, active: Mask, edges: Mask) -> Integers:
        """Count the operations of a turn, int64[N]; undefined for inactive devices.

        Parameters
        ----------
        algorithm : Algorithm
        active : bool[N]
        edges : bool[E]
            Active directed edges.
        """
        n = self.topology.n
        work = Work(self.sizes, np.bincount(self.topology.sources[edges], minlength=n), self._unread.copy(), self._d)
        flops = operations.count_flops(algorithm, work, np.arange(n) == self.topology.hub)
        self._unread[active] = 0
        return flops

    def deliver(self, rows: Integers, edges: Mask, arrivals: Arrivals | None = None) -> None:
        """Deliver the messages of a turn.

        Parameters
        ----------
        rows : int64[N]
            Rows that each device sends; -1 without a message.
        edges : bool[E]
            Active directed edges.
        arrivals : Arrivals, optional
            Messages that arrive; default: all of them.
        """
        source, target = self.topology.sources, self.topology.indices
        is_used = edges & (rows >= 0)[source]
        if arrivals is not None:
            is_used &= arrivals.now
            np.add.at(self._unread, arrivals.target[arrivals.used], arrivals.rows[arrivals.used])
        np.add.at(self._unread, target[is_used], rows[source[is_used]])
