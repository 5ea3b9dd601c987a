"""Traces of faults: what goes wrong in which round, one event after the other, and as lines of JSON.

A line is one event; docs/faults.md lists the kinds with their keys. An event takes so many rounds from its own one on.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.json_lines import MOST, EventKeys, read_event, read_file, read_number, shorten
from p2pkm.network.graph import Topology

AWAY, ASLEEP, LINK, LOSS, DELAY = range(5)
KIND, ROUND, A, B, ROUNDS, TURN = range(6)  # columns of a table of events
WORDS = ("away", "asleep", "link", "loss", "delay")
LONGEST = 64  # rounds of a delay
_END = 10**9  # a round
_DEVICE, _EDGE = ("device", "round"), ("src", "dst", "round")
_KEYS = EventKeys(
    {"trace": (), "away": _DEVICE, "asleep": _DEVICE, "link": _EDGE, "loss": _EDGE, "delay": _EDGE,
     "partition": ("round",)},
    {"trace": ("devices", "stages"), "away": ("rounds",), "asleep": ("rounds",), "link": ("rounds",),
     "loss": ("turn",), "delay": ("rounds", "turn"), "partition": ("rounds", "devices")},
    '{"kind": "away", "round": 3, "device": 0, "rounds": 2}',
)  # fmt: skip


class FaultTrace(NamedTuple):
    """Fault events on one graph.

    Attributes
    ----------
    events : int64[b, 6]
        Kind, round, device or sender, receiver (-1: none), rounds, turn (-1: every turn of the round), by round.
    stages : {"method", "all"}
        Whether the stages before the method's own are affected, too.
    ignored_events : int
        Events that were left out because the graph has no such link, or no server.
    """

    events: Integers
    stages: str = "method"
    ignored_events: int = 0


def read_trace(path: str, topology: Topology) -> FaultTrace:
    """Read a trace for a graph.

    Raises
    ------
    ExperimentError
        If there is no such file or a line is not an event; the message names the line and what was expected.
    """
    return read_file(path, "fault trace", lambda lines: parse_trace(lines, topology, path))


def parse_trace(lines: Iterable[bytes | str], topology: Topology, where: str) -> FaultTrace:
    """Return the events of the lines; see `read_trace` for the errors. Empty lines are passed over."""
    rows: list[tuple[int, ...]] = []
    cuts, stages = [np.zeros((0, 6), np.int64)], "method"
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{where}, line {number}"
        event = read_event(line, _KEYS, place)
        kind = event["kind"]
        if kind == "trace":
            stages = _read_head(event, topology, place)
        elif kind == "partition":
            cuts.append(_cut(event, topology, place))
        else:
            rows.append(_row(event, topology, place))
        if len(rows) + sum(map(len, cuts)) > MOST:
            raise ExperimentError(f"{place}: more than {MOST:,} events; expected at most so many")
    events = np.concatenate((np.array(rows, np.int64).reshape(-1, 6), *cuts))
    fits = _fits(events, topology)
    kept = events[fits]
    return FaultTrace(kept[np.argsort(kept[:, ROUND], kind="stable")], stages, int(np.sum(~fits)))


def write_trace(trace: FaultTrace, devices: int) -> Iterator[str]:
    """Yield the lines of a trace."""
    yield json.dumps({"kind": "trace", "devices": devices, "stages": trace.stages})
    for kind, t, a, b, rounds, turn in trace.events.tolist():
        ends = {"device": a} if kind in (AWAY, ASLEEP) else {"src": a, "dst": b}
        lasts = {} if kind == LOSS else {"rounds": rounds}
        yield json.dumps({"kind": WORDS[kind], "round": t, **ends, **lasts, **({} if turn < 0 else {"turn": turn})})


def crossing(topology: Topology, side: Integers) -> Integers:
    """Return the links between these devices and the others, int64[b, 2], the lower end first."""
    inside = np.zeros(topology.n, np.bool_)
    inside[side] = True
    cut = (topology.sources < topology.indices) & (inside[topology.sources] != inside[topology.indices])
    return np.column_stack((topology.sources[cut], topology.indices[cut]))


def lower_half(topology: Topology) -> Integers:
    """Return one side of a partition without a given division: the devices with the lower ids."""
    return np.arange(topology.clients // 2)


def _row(event: dict[str, Any], topology: Topology, place: str) -> tuple[int, ...]:
    kind = WORDS.index(event["kind"])
    last = topology.clients  # the id of a server, if there were one
    ends = [read_number(event, key, (0, last), place) for key in _KEYS.needed[event["kind"]][:-1]]
    if len(ends) == 2 and ends[0] == ends[1]:
        raise ExperimentError(f"{place}: src and dst are both {ends[0]}; expected the two ends of a link")
    t = read_number(event, "round", (0, _END), place)
    rounds = read_number(event, "rounds", (1, LONGEST if kind == DELAY else _END), place, 1)
    turn = read_number(event, "turn", (0, _END), place) if "turn" in event else -1
    return kind, t, ends[0], ends[1] if len(ends) == 2 else -1, rounds, turn


def _cut(event: dict[str, Any], topology: Topology, place: str) -> Integers:
    """Return a partition as what it does to the links between its sides."""
    t, rounds = read_number(event, "round", (0, _END), place), read_number(event, "rounds", (1, _END), place, 1)
    side = event.get("devices", lower_half(topology).tolist())
    if not isinstance(side, list):
        raise ExperimentError(f"{place}: devices is {shorten(side)}; expected a list of the devices on one side")
    ids = [read_number({"devices": one}, "devices", (0, topology.clients), place) for one in side]
    return links_down(crossing(topology, np.array([i for i in ids if i < topology.n], np.int64)), t, rounds)


def links_down(links: Integers, t: int, rounds: int) -> Integers:
    """Return the events of links, int64[b, 2], that fail in a round."""
    events = np.full((len(links), 6), -1)
    events[:, KIND], events[:, ROUND], events[:, ROUNDS] = LINK, t, rounds
    events[:, A:ROUNDS] = links
    return events


def _read_head(event: dict[str, Any], topology: Topology, place: str) -> str:
    devices = read_number(event, "devices", (1, _END), place, topology.clients)
    if devices != topology.clients:
        raise ExperimentError(
            f"{place}: the fault trace is for {devices} devices, but there are {topology.clients}; make them equal"
        )
    stages = event.get("stages", "method")
    if stages not in ("method", "all"):
        raise ExperimentError(f"{place}: stages is {shorten(stages)}; expected method or all")
    return str(stages)


def _fits(events: Integers, topology: Topology) -> Any:
    """Return which events the graph has the device or the link for, bool[b]."""
    there = events[:, [A, B]].max(axis=1, initial=-1) < topology.n
    links = there & (events[:, B] >= 0)
    places = topology.sources * topology.n + topology.indices  # ascending
    wanted = events[links, A] * topology.n + events[links, B]
    at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    there[links] = places[at] == wanted if len(places) else False
    return there
