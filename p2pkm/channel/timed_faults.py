"""Faults of a trace in seconds: who is online in a round, which messages are lost, and the speeds that hold in it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from p2pkm.channel.fault_trace import AWAY, KIND, ROUND, ROUNDS, A, is_much
from p2pkm.channel.sampled_faults import TURNS
from p2pkm.channel.timed_trace import LATENCY, LOSS, NAMES, ONLINE, TimedTrace
from p2pkm.core.batch import Integers, Mask, Stream
from p2pkm.core.units import count
from p2pkm.kernels.reference import philox
from p2pkm.kernels.streams import shared_key
from p2pkm.network.graph import Topology
from p2pkm.network.link_model import LinkParameters


class TimedFaults:
    """Faults of a trace in seconds, an implementation of `p2pkm.channel.fault_model.FaultModel`.

    The seconds at which rounds begin are not known before the run: `p2pkm.engine.virtual_time.StageTimer` computes
    them. Whoever starts a round first calls `move_to` with its second; all other methods are about this second.

    Parameters
    ----------
    trace : TimedTrace
    topology : Topology
    seed : int
        Of the draws of lost messages.

    Attributes
    ----------
    trace : TimedTrace
    every : float
        A round begins at the earliest this many seconds after the one before; 0: when that one has ended.
    second : float
        Second of `move_to`; 0 at first.
    """

    in_seconds = True
    stages = "method"
    max_delay = 0

    def __init__(self, trace: TimedTrace, topology: Topology, seed: int) -> None:
        self.trace = trace
        self._topology = topology
        self._key = shared_key(seed)
        self.ignored_events = trace.ignored_events
        self.device_faults_only = not (trace.values[trace.names == LOSS] > 0).any()
        self.every = trace.every
        # Edges are sorted by sender, then by receiver, so these keys are ascending.
        self._edge_keys = topology.sources * topology.n + topology.indices
        self._reset()
        self.move_to(0.0)

    def _reset(self) -> None:
        """Set the values that hold before the first line; NaN: that of the link model."""
        n, e = self._topology.n, len(self._topology.indices)
        nothing = [np.full(n if number < LATENCY else e, np.nan) for number in range(LOSS)]
        self._values = [np.ones(n), *nothing[1:], np.zeros(e)]
        self._read = 0

    def move_to(self, seconds: float) -> None:
        """Set the values that hold at this second, at which a round begins."""
        self.second = seconds
        end = int(np.searchsorted(self.trace.seconds, seconds, side="right"))
        if end < self._read:
            self._reset()
        lines = slice(self._read, end)
        for number in np.unique(self.trace.names[lines]):
            is_set = self.trace.names[lines] == number
            # Of several lines the last one counts.
            self._values[number][self.trace.places[lines][is_set]] = self.trace.values[lines][is_set]
        self._read = end

    def to_arrays(self) -> dict[str, Any]:
        """Collect the values: other ranks may lack access to the file."""
        return {f"timed_{name}": np.asarray(part) for name, part in self.trace._asdict().items()}

    @staticmethod
    def from_arrays(arrays: Mapping[str, Any], topology: Topology, seed: int) -> "TimedFaults":
        """Build the faults from the arrays of `to_arrays`."""
        parts = {name: arrays[f"timed_{name}"] for name in TimedTrace._fields}
        parts |= {"every": float(parts["every"]), "ignored_events": int(parts["ignored_events"])}
        return TimedFaults(TimedTrace(**parts), topology, seed)

    def find_start(self, begun: float, elapsed: float) -> float:
        """Return the second at which a round begins; without `every` this moves there, or to a second before it.

        Parameters
        ----------
        begun : float
            Second at which the round before began.
        elapsed : float
            Seconds that it took.
        """
        start = begun + max(elapsed, self.every)
        if self.every:
            return start
        # A round in which nobody is online would take no time, so it begins when a device comes online.
        self.move_to(start)
        while not self._is_online().any() and self._read < len(self.trace.seconds):
            start = float(self.trace.seconds[self._read])
            self.move_to(start)
        return start if self._is_online().any() else begun + elapsed

    def _is_online(self) -> Mask:
        """Mark the devices that are online, without a server."""
        return self._values[ONLINE][: self._topology.clients] > 0

    def begin(self, t: int) -> Integers:
        """Return an event of one round for each device that is offline when round t begins."""
        offline = np.flatnonzero(self._values[ONLINE] == 0)
        events = np.full((len(offline), 6), -1)
        events[:, KIND], events[:, ROUND], events[:, A], events[:, ROUNDS] = AWAY, t, offline, 1
        return events

    def message_delays(self, t: int, turn: int, source: Integers, target: Integers) -> Integers:
        """Return -1 for each edge whose message in this turn is lost, otherwise 0, int64[e]."""
        delays = np.zeros(len(source), np.int64)
        if self.device_faults_only:
            return delays
        ids = source * self._topology.n + target
        words = philox(ids.astype(np.uint64), t * TURNS + turn, self._key, Stream.LOSS)
        draws = (words[:, 0] >> np.uint64(11)) * 2.0**-53
        delays[draws < self._values[LOSS][np.searchsorted(self._edge_keys, ids)]] = -1
        return delays

    def set_values(self, net: LinkParameters) -> LinkParameters:
        """Return the parameters of devices and links: those of the trace, where it has one."""
        values = dict(zip(NAMES, self._values, strict=True))
        return LinkParameters(
            *(np.where(np.isnan(values[name]), usual, values[name]) for name, usual in net._asdict().items())
        )

    def describe_end(self, t: int) -> str:
        """Describe what a run whose last round begins at this second has not reached, or what held after the trace."""
        seconds, unread = self.trace.seconds, len(self.trace.seconds) - self._read
        end = float(seconds.max(initial=0.0))
        if is_much(unread, len(seconds)):
            return (
                f"the last round began at {_show(self.second)}, but the fault trace lasts until {_show(end)}; its "
                f"later part, {unread:,} of {count(len(seconds), 'value')}, was not reached"
            )
        if end and is_much(self.second - end, self.second):
            offline = int(np.count_nonzero(~self._is_online()))
            return (
                f"the fault trace ends at {_show(end)}, but the last round began at {_show(self.second)}; from its end "
                f"on all values stayed as they were, with {offline:,} of {count(self._topology.clients, 'device')} "
                "offline"
            )
        return ""


def _show(seconds: float) -> str:
    """Write a second of the simulated time."""
    return f"{seconds:,.0f} s" if seconds >= 1_000 else f"{seconds:.4g} s"
