"""Fault models: failures of devices, links and messages by round, drawn from a seed or read from a fault trace.

Those of a trace in seconds need the clock of a run, see `p2pkm.channel.timed_faults`.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from p2pkm.channel.fault_trace import (
    DELAY,
    KIND,
    LINK,
    LOSS,
    ROUND,
    ROUNDS,
    TURN,
    A,
    B,
    FaultTrace,
    is_much,
    read_trace,
)
from p2pkm.channel.sampled_faults import Faults, SampledFaults
from p2pkm.channel.timed_faults import TimedFaults
from p2pkm.channel.timed_trace import TimedTrace
from p2pkm.core.batch import Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.json_lines import MOST
from p2pkm.core.units import count
from p2pkm.network.graph import Topology


class FaultModel(Protocol):
    """Faults of a run on its graph, identical on all ranks."""

    @property
    def stages(self) -> str:
        """Affected stages: "method", or "all" if the stages before the method are affected, too."""

    @property
    def ignored_events(self) -> int:
        """Number of events that were ignored because their device or link is not in the graph."""

    @property
    def max_delay(self) -> int:
        """Largest delay of a message, in rounds."""

    @property
    def device_faults_only(self) -> bool:
        """Whether only devices fail: no link does, and no message between available devices is lost or delayed."""

    @property
    def in_seconds(self) -> bool:
        """Whether the faults of a round depend on the second at which it begins."""

    def to_arrays(self) -> dict[str, Any]:
        """Collect the arrays that `rebuild_fault_model` needs on other ranks, in addition to the options."""

    def begin(self, t: int) -> Integers:
        """Return the faults of devices and links that begin in round t: events of `FaultTrace`, on the whole graph."""

    def message_delays(self, t: int, turn: int, source: Integers, target: Integers) -> Integers:
        """Return the delay of a message over each edge, int64[e], in rounds; -1 if it is lost."""

    def describe_end(self, t: int) -> str:
        """Describe the part of a trace after round t, the last one, or of the run after the trace; empty if small."""


class TraceFaults:
    """Faults of a fault trace, an implementation of `FaultModel`."""

    in_seconds = False

    def __init__(self, trace: FaultTrace, n: int) -> None:
        self.stages = trace.stages
        self.ignored_events = trace.ignored_events
        self._n = n
        self._trace = trace
        self.device_faults_only = not (trace.events[:, KIND] >= LINK).any()
        is_message_fault = trace.events[:, KIND] >= LOSS
        self._begins, self._messages = trace.events[~is_message_fault], trace.events[is_message_fault]
        delayed = self._messages[self._messages[:, KIND] == DELAY]
        self.max_delay = int(delayed[:, ROUNDS].max(initial=0))

    def to_arrays(self) -> dict[str, Any]:
        """Collect the events: other ranks may lack access to the file."""
        return {"trace_events": self._trace.events, "trace_all": np.array(self.stages == "all"),
                "trace_ignored_events": np.array(self.ignored_events)}  # fmt: skip

    def begin(self, t: int) -> Integers:
        """Return the events of devices and links that begin in round t."""
        return _select_round(self._begins, t)

    def message_delays(self, t: int, turn: int, source: Integers, target: Integers) -> Integers:
        """Return the delay of a message over each edge; of several the largest counts, and a loss overrides them."""
        events = _select_round(self._messages, t)
        events = events[(events[:, TURN] < 0) | (events[:, TURN] == turn)]
        message_delays = np.zeros(len(source), np.int64)
        # The edges of a rank are sorted by receiver, then by sender, so these keys are ascending.
        edge_keys = target * self._n + source
        edge, is_local = find_sorted(edge_keys, events[:, B] * self._n + events[:, A])
        is_lost = events[is_local, KIND] == LOSS
        np.maximum.at(message_delays, edge[~is_lost], events[is_local][~is_lost, ROUNDS])
        message_delays[edge[is_lost]] = -1
        return message_delays

    def describe_end(self, t: int) -> str:
        """Describe the events after round t, the last one, or the rounds after the last event; empty if few."""
        events = self._trace.events
        unread = int(np.count_nonzero(events[:, ROUND] > t))
        end = int((events[:, ROUND] + np.maximum(events[:, ROUNDS], 1)).max()) - 1
        if is_much(unread, len(events)):
            return (
                f"the run ended with round {t:,}, but the fault trace lasts until round {end:,}; its later part, "
                f"{unread:,} of {count(len(events), 'event')}, was not reached"
            )
        if is_much(t - end, t):
            return f"the fault trace ends with round {end:,}: nothing failed in the {count(t - end, 'round')} after it"
        return ""


def build_fault_model(faults: Faults | None, topology: Topology, seed: int) -> FaultModel | None:
    """Build the fault model of a run; None without faults. Raises the errors of `read_trace`."""
    if faults is None or faults.empty:
        return None
    if faults.trace is not None:
        trace = read_trace(faults.trace, topology)
        if isinstance(trace, TimedTrace):
            return TimedFaults(trace, topology, seed)
        return build_trace_model(trace, topology.n)
    return SampledFaults(faults, topology, seed)


def rebuild_fault_model(
    faults: Faults | None, order: Mapping[str, Any], topology: Topology, seed: int
) -> FaultModel | None:
    """Build the fault model on a rank that received the arrays of `FaultModel.to_arrays`."""
    if "timed_seconds" in order:
        return TimedFaults.from_arrays(order, topology, seed)
    if "trace_events" in order:
        stages = "all" if order["trace_all"] else "method"
        trace = FaultTrace(order["trace_events"], stages, int(order["trace_ignored_events"]))
        return build_trace_model(trace, topology.n)
    return None if faults is None or faults.trace is not None else build_fault_model(faults, topology, seed)


def build_trace_model(trace: FaultTrace, n: int) -> FaultModel | None:
    """Build the fault model of a trace; None without events."""
    return TraceFaults(trace, n) if len(trace.events) else None


def record_faults(faults: FaultModel | None, topology: Topology, rounds: int, turns: int = 1) -> FaultTrace:
    """Record the faults of rounds 0 to `rounds` as a trace.

    Parameters
    ----------
    faults : FaultModel or None
    topology : Topology
    rounds : int
    turns : int, default=1
        Turns of a round. With one turn, message faults are recorded for all turns of their round.

    Returns
    -------
    FaultTrace

    Raises
    ------
    ExperimentError
        If there are too many events.
    """
    if faults is None:
        return FaultTrace(np.zeros((0, 6), np.int64))
    source, target = topology.indices, topology.sources
    recorded: list[Integers] = []
    for t in range(rounds + 1):
        recorded.append(faults.begin(t))
        for turn in range(turns):
            message_delays = faults.message_delays(t, turn, source, target)
            affected = np.flatnonzero(message_delays)
            events = np.full((len(affected), 6), turn if turns > 1 else -1)
            events[:, KIND] = np.where(message_delays[affected] < 0, LOSS, DELAY)
            events[:, ROUND] = t
            events[:, A] = source[affected]
            events[:, B] = target[affected]
            events[:, ROUNDS] = np.abs(message_delays[affected])
            recorded.append(events)
        if sum(map(len, recorded)) > MOST:
            raise ExperimentError(
                f"the fault trace has more than {MOST:,} events by round {t}; expected at most {MOST:,}. Reduce "
                "--rounds"
            )
    return FaultTrace(np.concatenate(recorded), faults.stages)


def refuse_seconds(faults: FaultModel | None, where: str) -> None:
    """Reject a trace in seconds where no run takes place: only the clock of a run knows when a round begins.

    Raises
    ------
    ExperimentError
    """
    if isinstance(faults, TimedFaults):
        raise ExperimentError(
            f"{where} needs a fault trace by rounds, but this one is in seconds, and only a run has a clock. Use a "
            "trace by rounds, or drawn faults"
        )


def find_sorted(ascending: Integers, requested: Integers) -> tuple[Integers, Any]:
    """Find numbers in an ascending array.

    Parameters
    ----------
    ascending : int64[a]
    requested : int64[b]

    Returns
    -------
    position : int64[c]
        Positions of the numbers that exist.
    exists : bool[b]
        Marks them in `requested`.
    """
    if not len(ascending):
        return np.zeros(0, np.int64), np.zeros(len(requested), np.bool_)
    position = np.minimum(np.searchsorted(ascending, requested), len(ascending) - 1)
    exists = ascending[position] == requested
    return position[exists], exists


def _select_round(events: Integers, t: int) -> Integers:
    """Select the events of a round."""
    first, last = np.searchsorted(events[:, ROUND], (t, t + 1))
    return events[first:last]
