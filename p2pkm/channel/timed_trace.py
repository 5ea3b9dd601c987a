"""Fault traces in seconds: which devices are online, their speed, and the values of links, over the time of a run.

Each line sets values of a device or of a link, in one direction, which hold until another line sets them again;
docs/howto/time-and-faults.md lists the keys. Seconds count from the start of the method. A round has the values that
hold when it begins.
"""

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.json_lines import read_number, shorten
from p2pkm.network.graph import Topology

# Values of devices, then of links.
ONLINE, SPEED, ACCESS, LATENCY, BANDWIDTH, LOSS = range(6)
NAMES = ("online", "speed", "access", "latency", "bandwidth", "loss")
OF_DEVICES, OF_LINKS = NAMES[:LATENCY], NAMES[LATENCY:]
# Least and largest number of each value; online is true or false. Those of the link model.
_LIMITS = {"speed": (1e-30, 1e30), "access": (1e-30, 1e30), "latency": (0.0, 1e30), "bandwidth": (1e-30, 1e30),
           "loss": (0.0, 1.0)}  # fmt: skip
# Latest second, and longest time between two rounds.
_END = 1e12


class TimedTrace(NamedTuple):
    """Trace in seconds on one graph; one entry for each value that a line sets.

    Attributes
    ----------
    seconds : float64[b]
        Ascending.
    names : int64[b]
        Number of the value in `NAMES`.
    places : int64[b]
        Device, or directed edge of the topology.
    values : float64[b]
        Online: 1 or 0.
    every : float
        A round begins at the earliest this many seconds after the one before; 0: when that one has ended.
    ignored_events : int
        Number of values that were ignored because their link, or a server, is not in the graph.
    """

    seconds: Floats
    names: Integers
    places: Integers
    values: Floats
    every: float = 0.0
    ignored_events: int = 0


class TimedLines:
    """Values of the lines of a trace in seconds, which are read one after the other."""

    def __init__(self) -> None:
        # Second, number of the value, device or sender, receiver (-1 if there is none), value.
        self._rows: list[tuple[float, int, int, int, float]] = []
        self._last = 0.0
        # Values that lines have set at the last second.
        self._set: set[tuple[int, int, int]] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, event: dict[str, Any], clients: int, place: str) -> None:
        """Add a line whose keys are known; `clients`: devices without a server.

        Raises
        ------
        ExperimentError
            If a value is out of range, the line is earlier than the one before, or it sets a value once more.
        """
        is_device = event["kind"] == "device"
        seconds = read_seconds(event, "seconds", place)
        if seconds < self._last:
            raise ExperimentError(
                f"{place}: seconds is {seconds:g} after a line with {self._last:g}; expected lines in the order of "
                "their seconds"
            )
        if seconds > self._last:
            self._set.clear()
            self._last = seconds
        ends = [read_number(event, key, (0, clients), place) for key in (("device",) if is_device else ("src", "dst"))]
        if not is_device and ends[0] == ends[1]:
            raise ExperimentError(f"{place}: src and dst are both {ends[0]}; expected the two ends of a link")
        known = OF_DEVICES if is_device else OF_LINKS
        names = [name for name in known if name in event]
        if not names:
            raise ExperimentError(f"{place}: {event['kind']} sets nothing; expected one or more of {', '.join(known)}")
        a, b = ends[0], -1 if is_device else ends[1]
        for name in names:
            number = NAMES.index(name)
            if (number, a, b) in self._set:
                what = f"device {a}" if is_device else f"link {a} to {b}"
                raise ExperimentError(f"{place}: {name} of {what} is set once more at {seconds:g} s; expected one line")
            self._set.add((number, a, b))
            self._rows.append((seconds, number, a, b, _read_value(event[name], name, place)))

    def build(self, topology: Topology, every: float) -> TimedTrace:
        """Return the trace on a graph, without the links and the server that it does not have."""
        table = np.array(self._rows, np.float64).reshape(-1, 5)
        names, first, second = (table[:, column].astype(np.int64) for column in (1, 2, 3))
        n = topology.n
        # Edges are sorted by sender, then by receiver, so these keys are ascending.
        keys, wanted = topology.sources * n + topology.indices, first * n + second
        is_link = second >= 0
        edge = np.searchsorted(keys, wanted)
        exists = np.maximum(first, second) < n
        exists[is_link] &= np.isin(wanted, keys)[is_link]
        places = np.where(is_link, edge, first)
        return TimedTrace(
            table[exists, 0], names[exists], places[exists], table[exists, 4], every, int(np.count_nonzero(~exists))
        )


def read_seconds(event: dict[str, Any], key: str, place: str) -> float:
    """Read a number of seconds, at least 0."""
    value = event[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _END:
        raise ExperimentError(f"{place}: {key} is {shorten(value)}; expected a number from 0 to {_END:g}")
    return float(value)


def _read_value(value: Any, name: str, place: str) -> float:
    if name == "online":
        if not isinstance(value, bool):
            raise ExperimentError(f"{place}: online is {shorten(value)}; expected true or false")
        return float(value)
    least, most = _LIMITS[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most or not isfinite(value):
        raise ExperimentError(f"{place}: {name} is {shorten(value)}; expected a number from {least:g} to {most:g}")
    return float(value)


def write_timed_trace(trace: TimedTrace, topology: Topology) -> Iterator[str]:
    """Yield the lines of a trace in seconds; values that one line can set stand together."""
    head: dict[str, Any] = {"kind": "trace", "devices": topology.clients}
    yield json.dumps(head | ({"every": trace.every} if trace.every else {}))
    line: dict[str, Any] = {}
    last = None
    for seconds, number, where, value in zip(
        trace.seconds.tolist(), trace.names.tolist(), trace.places.tolist(), trace.values.tolist(), strict=True
    ):
        is_device = number < LATENCY
        if (seconds, is_device, where) != last:
            if line:
                yield json.dumps(line)
            last = seconds, is_device, where
            if is_device:
                line = {"kind": "device", "seconds": seconds, "device": where}
            else:
                ends = {"src": int(topology.sources[where]), "dst": int(topology.indices[where])}
                line = {"kind": "link", "seconds": seconds, **ends}
        line[NAMES[number]] = bool(value) if number == ONLINE else value
    if line:
        yield json.dumps(line)
