"""Faults: which devices, links and messages fail in which round, drawn from a seed or read from a trace."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from p2pkm.channel.fault_trace import DELAY, KIND, LINK, LOSS, ROUND, ROUNDS, TURN, A, B, FaultTrace, read_trace
from p2pkm.channel.sampled_faults import Faults, SampledFaults
from p2pkm.core.batch import Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.json_lines import MOST
from p2pkm.methods.registry import suggest_methods
from p2pkm.network.graph import Topology


class FaultModel(Protocol):
    """Faults of a run on its graph; every rank asks alike."""

    @property
    def stages(self) -> str:
        """Return "method", or "all" if the stages before the method's own are affected, too."""

    @property
    def ignored_events(self) -> int:
        """Return how many events were left out because the graph has no such device or link."""

    @property
    def longest(self) -> int:
        """Return the longest delay there is, in rounds."""

    @property
    def absence_only(self) -> bool:
        """Return whether no link and no message between devices that are there ever fails."""

    def to_arrays(self) -> dict[str, Any]:
        """Return what other ranks need beside the experiment, for `rebuild_fault_model`."""

    def begin(self, t: int) -> Integers:
        """Return what happens to devices and links from round t on: events as in `FaultTrace`, of the whole graph."""

    def message_delays(self, t: int, turn: int, source: Integers, target: Integers) -> Integers:
        """Return what becomes of a message over each edge, int64[e]: -1: lost, else so many rounds late."""


class TraceFaults:
    """Apply a fault trace on its graph; see `FaultModel` for the meaning of each method."""

    def __init__(self, trace: FaultTrace, n: int) -> None:
        self.stages, self._n, self._trace, self.ignored_events = trace.stages, n, trace, trace.ignored_events
        message = trace.events[:, KIND] >= LOSS
        self.absence_only = not (trace.events[:, KIND] >= LINK).any()
        self._begins, self._messages = trace.events[~message], trace.events[message]
        held = self._messages[self._messages[:, KIND] == DELAY]
        self.longest = int(held[:, ROUNDS].max(initial=0))

    def to_arrays(self) -> dict[str, Any]:
        """Return the trace, which other ranks may not be able to read."""
        return {"trace_events": self._trace.events, "trace_all": np.array(self.stages == "all"),
                "trace_ignored_events": np.array(self.ignored_events)}  # fmt: skip

    def begin(self, t: int) -> Integers:
        """Return the trace's events of devices and links from round t on."""
        return _of(self._begins, t)

    def message_delays(self, t: int, turn: int, source: Integers, target: Integers) -> Integers:
        """Return the trace's delay of a message over each edge; a loss overrides a delay, the longest one counts."""
        events = _of(self._messages, t)
        events = events[(events[:, TURN] < 0) | (events[:, TURN] == turn)]
        message_delays, edges = np.zeros(len(source), np.int64), target * self._n + source  # ascending
        at, here = locate(edges, events[:, B] * self._n + events[:, A])
        lost = events[here, KIND] == LOSS
        np.maximum.at(message_delays, at[~lost], events[here][~lost, ROUNDS])
        message_delays[at[lost]] = -1
        return message_delays


def build_fault_model(faults: Faults | None, topology: Topology, seed: int) -> FaultModel | None:
    """Return what goes wrong on a graph, None if nothing ever does; see `read_trace` for errors."""
    if faults is None or faults.empty:
        return None
    if faults.trace is not None:
        return play_trace(read_trace(faults.trace, topology), topology.n)
    return SampledFaults(faults, topology, seed)


def rebuild_fault_model(
    faults: Faults | None, order: Mapping[str, Any], topology: Topology, seed: int
) -> FaultModel | None:
    """Return the same as `build_fault_model` on a rank that got what `FaultModel.to_arrays` returns."""
    if "trace_events" in order:
        stages = "all" if order["trace_all"] else "method"
        return play_trace(FaultTrace(order["trace_events"], stages, int(order["trace_ignored_events"])), topology.n)
    return None if faults is None or faults.trace is not None else build_fault_model(faults, topology, seed)


def play_trace(trace: FaultTrace, n: int) -> FaultModel | None:
    """Return the events of a fault trace, None if it has none."""
    return TraceFaults(trace, n) if len(trace.events) else None


def record(faults: FaultModel | None, topology: Topology, rounds: int, turns: int = 1) -> FaultTrace:
    """Return what goes wrong in rounds 0 to `rounds`; with one turn a message's fate is that of its round."""
    if faults is None:
        return FaultTrace(np.zeros((0, 6), np.int64))
    source, target = topology.indices, topology.sources
    found: list[Integers] = []
    for t in range(rounds + 1):
        found.append(faults.begin(t))
        for turn in range(turns):
            message_delays = faults.message_delays(t, turn, source, target)
            struck = np.flatnonzero(message_delays)
            events = np.full((len(struck), 6), turn if turns > 1 else -1)
            events[:, KIND], events[:, ROUND] = np.where(message_delays[struck] < 0, LOSS, DELAY), t
            events[:, A], events[:, B], events[:, ROUNDS] = (
                source[struck],
                target[struck],
                np.abs(message_delays[struck]),
            )
            found.append(events)
        if sum(map(len, found)) > MOST:
            raise ExperimentError(f"the fault trace has over {MOST:,} events by round {t}; take fewer --rounds")
    return FaultTrace(np.concatenate(found), faults.stages)


def check_faults(algorithm: Any, *, absence_only: bool) -> None:
    """Refuse a method that overshoots or needs every message; absence_only: devices leave and return, and no more."""
    relaxation = algorithm.traits.relaxation
    if relaxation is not None and relaxation > 1.0:
        raise ExperimentError(
            f"relaxation is {relaxation:g} with faults: devices go on with the last tables that they received, and "
            "overshooting on old ones diverges. Take up to 1"
        )
    why, absence = algorithm.traits.needs_reliable_links, algorithm.traits.tolerates_absence
    if not why or (absence and absence_only):
        return
    others = suggest_methods(lambda other: not other.traits.needs_reliable_links)
    if absence:
        raise ExperimentError(
            f"{algorithm.name} {why}; of all faults it runs with those of devices alone: dropout, late_join, "
            f"straggler, and in a trace away and asleep. Remove the others, or use {others}"
        )
    raise ExperimentError(f"{algorithm.name} {why}; it cannot run with --faults. Remove --faults, or use {others}")


def locate(places: Integers, wanted: Integers) -> tuple[Integers, Any]:
    """Return where the wanted numbers are among ascending places, and which of them are there, bool[b]."""
    if not len(places):
        return np.zeros(0, np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    here = places[at] == wanted
    return at[here], here


def _of(events: Integers, t: int) -> Integers:
    """Return the events of a round."""
    first, last = np.searchsorted(events[:, ROUND], (t, t + 1))
    return events[first:last]
