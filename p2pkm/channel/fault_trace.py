"""Fault traces: lists of fault events by round, read from and written to lines of JSON.

Each line is one event; docs/howto/time-and-faults.md lists the kinds with their keys. An event lasts from its round on
for the number of rounds in its key "rounds". A trace whose lines have seconds instead is a
`p2pkm.channel.timed_trace.TimedTrace`.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.timed_trace import OF_DEVICES, OF_LINKS, TimedLines, TimedTrace, read_seconds
from p2pkm.core.batch import Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.json_lines import MOST, EventKeys, read_event, read_file, read_number, shorten
from p2pkm.network.graph import Topology

# Kinds of events: unavailable device, straggler, link down, message lost, message delayed.
AWAY, ASLEEP, LINK, LOSS, DELAY = range(5)
# Names of the kinds in files.
WORDS = ("away", "asleep", "link", "loss", "delay")
# Columns of a table of events.
KIND, ROUND, A, B, ROUNDS, TURN = range(6)
# Largest delay of a message, in rounds.
LONGEST = 64
# Largest number of a round.
_END = 10**9
# Share of a trace, or of a run, from which on it matters that the other one ended earlier.
_MUCH = 0.1
_DEVICE, _EDGE = ("device", "round"), ("src", "dst", "round")
_KEYS = EventKeys(
    {"trace": (), "away": _DEVICE, "asleep": _DEVICE, "link": _EDGE, "loss": _EDGE, "delay": _EDGE,
     "partition": ("round",), "device": ("device", "seconds")},
    {"trace": ("devices", "stages", "every"), "away": ("rounds",), "asleep": ("rounds",), "link": ("rounds",),
     "loss": ("turn",), "delay": ("rounds", "turn"), "partition": ("rounds", "devices"), "device": OF_DEVICES},
    '{"kind": "away", "round": 3, "device": 0, "rounds": 2}',
)  # fmt: skip
_BY_SECONDS = EventKeys(
    {"device": ("device", "seconds"), "link": ("src", "dst", "seconds")}, {"device": OF_DEVICES, "link": OF_LINKS}, ""
)


class FaultTrace(NamedTuple):
    """Fault events on one graph.

    Attributes
    ----------
    events : int64[b, 6]
        Sorted by round. Columns: kind, round, device or sender, receiver (-1 if there is none), number of rounds, turn
        (-1 for every turn of the round).
    stages : {"method", "all"}
        Affected stages: that of the method, or those before it, too.
    ignored_events : int
        Number of events that were ignored because their link, or a server, is not in the graph.
    """

    events: Integers
    stages: str = "method"
    ignored_events: int = 0


def read_trace(path: str, topology: Topology) -> FaultTrace | TimedTrace:
    """Read a trace for a graph.

    Raises
    ------
    ExperimentError
        If the file cannot be read, or a line is not an event; the message names the line and the expected form.
    """
    return read_file(path, "fault trace", lambda lines: parse_trace(lines, topology, path))


def parse_trace(lines: Iterable[bytes | str], topology: Topology, where: str) -> FaultTrace | TimedTrace:
    """Parse the lines of a trace; empty lines are skipped. Raises the errors of `read_trace`."""
    rows: list[tuple[int, ...]] = []
    timed, head = TimedLines(), dict[str, Any]()
    partitions = [np.zeros((0, 6), np.int64)]
    stages = "method"
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{where}, line {number}"
        event = read_event(line, _KEYS, place, _BY_SECONDS)
        kind = event["kind"]
        if kind == "trace":
            stages = _read_head(event, topology, place)
            head |= event
        elif "seconds" in event:
            timed.add(event, topology.clients, place)
        elif kind == "partition":
            partitions.append(_expand_partition(event, topology, place))
        else:
            rows.append(_row(event, topology, place))
        if len(timed) and (rows or len(partitions) > 1):
            raise ExperimentError(f"{place}: a trace has events by round or by seconds; this one has both")
        if len(rows) + len(timed) + sum(map(len, partitions)) > MOST:
            raise ExperimentError(f"{place}: more than {MOST:,} events; expected at most {MOST:,}. Split the trace")
    if len(timed):
        if stages == "all":
            raise ExperimentError(
                f"{where}: stages is 'all'; expected method, because seconds count from the start of the method"
            )
        return timed.build(topology, read_seconds(head, "every", where) if "every" in head else 0.0)
    if "every" in head:
        raise ExperimentError(f"{where}: every is the time between rounds of a trace in seconds, but no line has any")
    events = np.concatenate((np.array(rows, np.int64).reshape(-1, 6), *partitions))
    fits = _fits(events, topology)
    fitting = events[fits]
    return FaultTrace(fitting[np.argsort(fitting[:, ROUND], kind="stable")], stages, int(np.sum(~fits)))


def write_trace(trace: FaultTrace, devices: int) -> Iterator[str]:
    """Yield the lines of a trace."""
    yield json.dumps({"kind": "trace", "devices": devices, "stages": trace.stages})
    for kind, t, a, b, rounds, turn in trace.events.tolist():
        ends = {"device": a} if kind in (AWAY, ASLEEP) else {"src": a, "dst": b}
        lasts = {} if kind == LOSS else {"rounds": rounds}
        yield json.dumps({"kind": WORDS[kind], "round": t, **ends, **lasts, **({} if turn < 0 else {"turn": turn})})


def crossing(topology: Topology, side: Integers) -> Integers:
    """Find the links between some devices and all others, int64[b, 2], the lower id first."""
    inside = np.zeros(topology.n, np.bool_)
    inside[side] = True
    is_crossing = (topology.sources < topology.indices) & (inside[topology.sources] != inside[topology.indices])
    return np.column_stack((topology.sources[is_crossing], topology.indices[is_crossing]))


def lower_half(topology: Topology) -> Integers:
    """Return the default side of a network partition: the half of the devices with the lower ids."""
    return np.arange(topology.clients // 2)


def _row(event: dict[str, Any], topology: Topology, place: str) -> tuple[int, ...]:
    kind = WORDS.index(event["kind"])
    # The id of a server. Events of a server are read for every graph, and ignored where there is none.
    last = topology.clients
    ends = [read_number(event, key, (0, last), place) for key in _KEYS.needed[event["kind"]][:-1]]
    if len(ends) == 2 and ends[0] == ends[1]:
        raise ExperimentError(f"{place}: src and dst are both {ends[0]}; expected the two ends of a link")
    t = read_number(event, "round", (0, _END), place)
    rounds = read_number(event, "rounds", (1, LONGEST if kind == DELAY else _END), place, 1)
    turn = read_number(event, "turn", (0, _END), place) if "turn" in event else -1
    return kind, t, ends[0], ends[1] if len(ends) == 2 else -1, rounds, turn


def _expand_partition(event: dict[str, Any], topology: Topology, place: str) -> Integers:
    """Expand a network partition into failures of the links between its sides."""
    t, rounds = read_number(event, "round", (0, _END), place), read_number(event, "rounds", (1, _END), place, 1)
    side = event.get("devices", lower_half(topology).tolist())
    if not isinstance(side, list):
        raise ExperimentError(f"{place}: devices is {shorten(side)}; expected a list of the devices on one side")
    ids = [read_number({"devices": device}, "devices", (0, topology.clients), place) for device in side]
    return links_down(crossing(topology, np.array([i for i in ids if i < topology.n], np.int64)), t, rounds)


def links_down(links: Integers, t: int, rounds: int) -> Integers:
    """Return the events of links, int64[b, 2], that fail in round t for a number of rounds."""
    events = np.full((len(links), 6), -1)
    events[:, KIND] = LINK
    events[:, ROUND] = t
    events[:, ROUNDS] = rounds
    events[:, A:ROUNDS] = links
    return events


def _read_head(event: dict[str, Any], topology: Topology, place: str) -> str:
    devices = read_number(event, "devices", (1, _END), place, topology.clients)
    if devices != topology.clients:
        raise ExperimentError(
            f"{place}: the fault trace is for {devices} devices; expected {topology.clients}, as in the graph. Change "
            "the graph or the trace"
        )
    stages = event.get("stages", "method")
    if stages not in ("method", "all"):
        raise ExperimentError(f"{place}: stages is {shorten(stages)}; expected method or all")
    return str(stages)


def _fits(events: Integers, topology: Topology) -> Any:
    """Mark the events whose device or link is in the graph, bool[b]."""
    fits = events[:, [A, B]].max(axis=1, initial=-1) < topology.n
    is_link = fits & (events[:, B] >= 0)
    # Edges are sorted by sender, then by receiver, so these keys are ascending.
    edge_keys = topology.sources * topology.n + topology.indices
    requested = events[is_link, A] * topology.n + events[is_link, B]
    position = np.minimum(np.searchsorted(edge_keys, requested), len(edge_keys) - 1)
    fits[is_link] = edge_keys[position] == requested if len(edge_keys) else False
    return fits


def is_much(part: float, whole: float) -> bool:
    """Check whether a part of a trace, or of a run, is worth a note because the other one ended earlier."""
    return part > _MUCH * whole
