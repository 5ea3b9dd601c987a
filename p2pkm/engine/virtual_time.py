"""Virtual time: how long a run would take on a network model, computed at its end from what the ledger kept.

Every device has a clock of its own. In a turn

* any device that is awake computes: counted operations / speed;
* it then sends its table over its edges in use. The transfer from i to j lasts
  ``max(bytes / bandwidth of the edge, load_i / access_i, load_j / access_j)``, where the load of a device is all that
  it sends and receives in this exchange: its line is shared by all of its transfers, both ways;
* j has the table a latency after the last byte left; i is busy until its last byte has left;
* nothing new to send is sent, too: no bytes, but a latency, because a neighbor cannot know otherwise.

``jacobi`` and ``star`` have a barrier: a turn begins when all have computed, sent and received. So, with c seconds of
computing, a table of b bytes, latency l, bandwidth w and access a, the same everywhere, a turn takes

* on a ring ``c + l + max(b / w, 4 b / a)``: two tables out, two in;
* from n clients up to their hub ``c + l + max(b / w, n b / a_hub)``;
* for a token that moves one hop along a path ``c + l + max(b / w, load / a)`` per hop, the load 2 b for a device that
  says it to both of its neighbors.

``colored`` and ``async`` have none: a device computes as soon as it has all that its own neighbors have sent in the
turns before. Colors need no more than that, because neighbors never act in the same turn; so a slow device slows
down its neighbors first, and devices r hops away r turns later. (That a device goes on with what has arrived, without
waiting for the rest, is another matter: `p2pkm.engine.event_driven` plays ``async`` so.)

A stage begins when all have ended the one before, at no cost. What no method needs is free: how ranks find out that
all have converged, and what the monitor looks at.

Operations are estimates, see `p2pkm.engine.flop_count`: 3 m k d + 2 m d for a turn with m points, or what the
method says.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, groupby
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Integers, Mask
from p2pkm.core.protocols import Work
from p2pkm.data.stream import PointStream
from p2pkm.engine import flop_count as operations
from p2pkm.engine.event_driven import Events
from p2pkm.methods.init.pipelines import Stage, find_method_stage
from p2pkm.methods.schedules import Schedule, make
from p2pkm.network.graph import Topology
from p2pkm.network.ledger import ExchangeRecord
from p2pkm.network.link_model import LinkParameters
from p2pkm.network.transport import Network

FREE = ("colored", "async")  # schedules without a barrier


class Timing(NamedTuple):
    """What a clock needs beside the ledger: the link model, the stages as they were played, and by which events.

    events: those of the last stage, None: it was played by rounds. stream: how the points change in it, None: they
    stay.
    """

    net: LinkParameters
    stages: tuple[Stage, ...]
    events: Events | None = None
    stream: PointStream | None = None


class Turn(NamedTuple):
    """What all devices did in a turn.

    Attributes
    ----------
    awake : bool[n]
    rows : int64[n]
        That each sent, -1: none.
    lengths : int64[n]
        Bytes on the wire of what each sent.
    edges : bool[e]
        The directed edges that were in use.
    flops : int64[n]
        Of those awake.
    """

    awake: Mask
    rows: Integers
    lengths: Integers
    edges: Mask
    flops: Integers


class Clock:
    """The clocks of all devices.

    Parameters
    ----------
    net : LinkParameters
    topology : Topology
    """

    def __init__(self, net: LinkParameters, topology: Topology) -> None:
        self._net, self._topology = net, topology
        self.ready = np.zeros(topology.n)  # when each has computed, and sent all that it had to
        self.received = np.zeros(topology.n)  # when each has all that was sent to it

    @property
    def now(self) -> float:
        """Return when the last device is done."""
        return float(max(self.ready.max(), self.received.max()))

    def barrier(self) -> None:
        """Let every device wait for all."""
        self.ready[:] = self.received[:] = self.now

    def pass_turn(self, turn: Turn) -> None:
        """Let those awake wait for what they were sent, compute and send."""
        net, awake, n = self._net, turn.awake, self._topology.n
        begin = np.maximum(self.ready, self.received)[awake]
        self.ready[awake] = begin + turn.flops[awake] / net.speed[awake]
        sending = awake | (turn.rows >= 0)
        over = np.flatnonzero(turn.edges & sending[self._topology.sources])
        source, target = self._topology.sources[over], self._topology.indices[over]
        volume = turn.lengths[source]
        busy = (np.bincount(source, volume, n) + np.bincount(target, volume, n)) / net.access
        lasts = np.maximum(volume / net.bandwidth[over], np.maximum(busy[source], busy[target]))
        sent = self.ready[source] + lasts
        np.maximum.at(self.ready, source, sent)
        np.maximum.at(self.received, target, sent + net.latency[over])


def compute_virtual_time(
    timing: Timing | None, devices: Devices, topology: Topology, network: Network, trace: list[dict[str, Any]]
) -> dict[str, float | None]:
    """Add `virtual_seconds` to every record and return the summary figures, on rank 0; every rank calls it."""
    if timing is None:
        return {}
    clock = Clock(timing.net, topology)
    ends = _follow(clock, timing, devices, topology, network)
    stage_number = -1
    for record in trace:
        stage_number += record["round"] == 0  # every stage records its opening
        record["virtual_seconds"] = ends[stage_number, record["round"]]
    return {"virtual_seconds": clock.now, **({} if timing.events is None else timing.events.summary)}


def _follow(
    clock: Clock, timing: Timing, devices: Devices, topology: Topology, network: Network
) -> dict[tuple[int, int], float]:
    """Pass the turns of all stages; return when each round of each had ended, on rank 0."""
    ends: dict[tuple[int, int], float] = {}
    flops = Flops(topology, network.gather_by_device(devices.sizes), devices.d)
    for number, exchanges in groupby(network.ledger.exchanges, key=lambda exchange: exchange.stage):
        stage, held = timing.stages[number], list(exchanges)
        if timing.events is not None and stage is find_method_stage(timing.stages):
            ends |= {(number, t): clock.now + computed for t, computed in enumerate(timing.events.ends)}
            clock.ready[:] = clock.received[:] = clock.now + timing.events.ends[-1]
            continue
        linked = devices if topology.varying is not None else _in_use(devices, held[0])  # as the loop makes it
        schedule = make(stage.algorithm.schedule, linked, topology.colors)
        free = stage.algorithm.schedule in FREE
        stream = timing.stream if stage is find_method_stage(timing.stages) else None
        clock.barrier()
        reached = 0
        for exchange, (t, awake) in zip(held, _turns(schedule), strict=False):
            sent = network.gather_by_device(np.column_stack((*_dense(exchange, len(devices)), awake)))
            edges = network.gather_by_device(_mask(exchange, len(devices.indices)), network.placement.edge_counts)
            if sent is None:
                continue
            if stream is not None and t > reached:
                reached = t
                flops.sizes = flops.sizes + stream.growth(t, topology.n)
            if not free:
                clock.barrier()
            rows, lengths, acts = sent[:, 0], sent[:, 1], sent[:, 2] > 0
            work = flops.of(stage.algorithm, acts, rows, edges)
            clock.pass_turn(Turn(acts, rows, lengths, edges, work))
            ends[number, t] = clock.now
    return ends


def _turns(schedule: Schedule) -> Iterator[tuple[int, Mask]]:
    """Yield the round and who is awake of the opening and of every turn after it, without end."""
    yield 0, schedule.opening
    for t in count(1):
        for awake in schedule.turns(t):
            yield t, awake


def _in_use(devices: Devices, opening: ExchangeRecord) -> Devices:
    """Return the batch with the links that are in use in a stage, which its opening goes over."""
    return devices if opening.edges is None else replace(devices, active_edges=_mask(opening, len(devices.indices)))


def _dense(exchange: ExchangeRecord, n: int) -> tuple[Integers, Integers]:
    """Return the rows that each own device sent, int64[n], -1: none, and their bytes on the wire, int64[n]."""
    rows, lengths = np.full(n, -1), np.zeros(n, np.int64)
    who, sent = exchange.sent_rows
    rows[who], lengths[who] = sent, exchange.lengths
    return rows, lengths


def _mask(exchange: ExchangeRecord, e: int) -> Mask:
    """Return the own edges that an exchange went over, bool[e]."""
    edges = np.ones(e, np.bool_) if exchange.edges is None else np.zeros(e, np.bool_)
    if exchange.edges is not None:
        edges[exchange.edges] = True
    return edges


class Flops:
    """Count the operations of turns, and the rows that were received; sizes: points of each device, int64[n]."""

    def __init__(self, topology: Topology, sizes: Integers, d: int) -> None:
        self._topology, self.sizes, self._d = topology, sizes, d
        self._unread = np.zeros(topology.n, np.int64)  # rows that each has received since it was last awake

    def of(self, algorithm: Any, awake: Mask, rows: Integers, edges: Mask) -> Integers:
        """Return the operations of a turn of all devices, int64[n], of meaning for those awake; then they send."""
        n, source, target = self._topology.n, self._topology.sources, self._topology.indices
        work = Work(self.sizes, np.bincount(source[edges], minlength=n), self._unread.copy(), self._d)
        found = operations.count_flops(algorithm, work, np.arange(n) == self._topology.hub)
        self._unread[awake] = 0
        over = edges & (rows >= 0)[source]
        np.add.at(self._unread, target[over], rows[source[over]])
        return found
