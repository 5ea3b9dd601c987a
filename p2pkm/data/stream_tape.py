"""Data traces: recorded changes of the points of a run, as lines of JSON.

Each line is one event: a point arrives, leaves or moves at a device in a round. docs/howto/streams.md lists the kinds
of events and their keys. The points of a device are numbered from 0 in the order of the data. A point that arrives
gets the next number; numbers are never reused.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.json_lines import MOST, EventKeys, read_event, read_file, read_number, shorten
from p2pkm.core.sorting import offsets_of
from p2pkm.core.validation import FARTHEST, LARGEST, check_limits, find_limits, merge_limits
from p2pkm.data.shards import Shards, unweighted

ARRIVE, LEAVE, MOVE = range(3)
WORDS = ("arrive", "leave", "move")
# Columns of a table of events.
ROUND, DEVICE, KIND, PLACE = range(4)
# Largest number that is accepted for a point, and for devices and features in the first line.
_END = 10**9
# An event and its location for messages: file and line.
_Event = tuple[dict[str, Any], str]
_KEYS = EventKeys(
    {"stream": (), "arrive": ("device", "point", "round"), "leave": ("device", "number", "round"),
     "move": ("device", "number", "point", "round")},
    {"stream": ("devices", "features"), "arrive": ("weight",), "leave": (), "move": ()},
    '{"kind": "arrive", "round": 3, "device": 0, "point": [0.5, 1.2]}',
)  # fmt: skip


class DataTrace(NamedTuple):
    """Stream of recorded changes; see `p2pkm.data.stream.PointStream` for the methods.

    Attributes
    ----------
    events : int64[b, 4]
        Round, device, kind, and index of the point among the points that the device has then (-1 for a new point),
        sorted by round.
    points : float64[b, d]
        New coordinates of a point that arrives or moves.
    weights : float64[b]
        Weight of a point that arrives, else 1.
    """

    events: Integers
    points: Floats
    weights: Floats

    def has_changes(self, t: int) -> bool:
        """Return whether points of any device change at the start of round t."""
        first, last = np.searchsorted(self.events[:, ROUND], (t, t + 1))
        return bool(first < last)

    def growth(self, t: int, n: int) -> Integers:
        """Return the change of the number of points of each device at the start of round t, int64[n]."""
        _, device, kind, _ = self.events[self._find_events(t)].T
        return np.bincount(device[kind == ARRIVE], minlength=n) - np.bincount(device[kind == LEAVE], minlength=n)

    def change(self, t: int, shards: Shards, ids: Integers) -> Shards:
        """Return the points of the local devices `ids` (int64[n], ascending) from round t on."""
        numbers = self._find_events(t)
        numbers = numbers[np.isin(self.events[numbers, DEVICE], ids)]
        if not len(numbers):
            return shards
        # Rows of each device in the points before, followed by one new point per event. Only devices with events get a
        # list, in which single rows can be inserted and deleted.
        rows: list[Any] = [
            np.arange(first, last) for first, last in zip(shards.offsets, shards.offsets[1:], strict=False)
        ]
        weights = np.concatenate((shards.weights, self.weights[numbers]))
        order = np.concatenate((shards.rows, np.full(len(numbers), -1)))
        for row, event in enumerate(numbers, shards.m):
            _, device, kind, place = self.events[event].tolist()
            i = int(np.searchsorted(ids, device))
            rows[i] = rows[i] if isinstance(rows[i], list) else rows[i].tolist()
            if kind == ARRIVE:
                rows[i].append(row)
            elif kind == LEAVE:
                del rows[i][place]
            else:
                weights[row], order[row] = weights[rows[i][place]], order[rows[i][place]]
                rows[i][place] = row
        chosen = np.concatenate([np.asarray(part, np.int64) for part in rows])
        points = np.concatenate((shards.points, self.points[numbers].astype(shards.points.dtype)))[chosen]
        # Unit weights remain a view of a single 1.
        is_unweighted = not any(shards.weights.strides) and bool((self.weights[numbers] == 1.0).all())
        return replace(
            shards, points=np.ascontiguousarray(points), offsets=offsets_of(np.array([len(part) for part in rows])),
            weights=unweighted(len(chosen)) if is_unweighted else weights[chosen],
            order=order[chosen], labels=None,
        )  # fmt: skip

    def to_arrays(self) -> dict[str, Any]:
        """Return the arrays from which `p2pkm.data.stream.rebuild_stream` rebuilds the stream on another rank."""
        return self._asdict()

    def _find_events(self, t: int) -> Integers:
        return np.arange(*np.searchsorted(self.events[:, ROUND], (t, t + 1)))


class Limits(NamedTuple):
    """Limits of a run that a data trace must satisfy: devices without the server, rounds, and clusters."""

    clients: int
    rounds: int
    k: int


def read_data_trace(path: str, shards: Shards, limits: Limits) -> DataTrace:
    """Read a data trace for the given points.

    Raises
    ------
    ExperimentError
        If the file cannot be read or a line is not an event; the message names the line.
    DataError
        If a point does not match the features of the data or is not finite, an event names a point that the device
        does not have, or fewer points than clusters remain.
    """
    return read_file(path, "data trace", lambda lines: parse_data_trace(lines, shards, limits, path))


def check_data_trace(path: str, m: int, d: int, limits: Limits) -> None:
    """Validate a data trace as `read_data_trace` does, before the partition of the m points of d features is known."""
    float64 = np.dtype(np.float64)
    read_file(
        path, "data trace", lambda lines: _check_total(_read_events(lines, d, float64, limits, path), m, limits.k)
    )


def parse_data_trace(lines: Iterable[bytes | str], shards: Shards, limits: Limits, where: str) -> DataTrace:
    """Parse the lines of a data trace, without empty ones; raises the errors of `read_data_trace`."""
    events = _read_events(lines, shards.d, shards.points.dtype, limits, where)
    tape = _number_points(events, shards)
    _check_reach(events, shards)
    _check_total(events, shards.m, limits.k)
    return tape


def _read_events(lines: Iterable[bytes | str], d: int, dtype: Any, limits: Limits, where: str) -> list[_Event]:
    """Read the events, sorted by round, each with the location of its line; arriving points get a weight."""
    events: list[_Event] = []
    clients, rounds, _ = limits
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{where}, line {number}"
        event = read_event(line, _KEYS, place)
        if event["kind"] == "stream":
            _check_head(event, clients, d, place)
            continue
        read_number(event, "round", (1, rounds), place)
        read_number(event, "device", (0, clients - 1), place)
        if "number" in event:
            read_number(event, "number", (0, _END), place)
        if "point" in event:
            event["point"] = _read_point(event["point"], d, dtype, place)
        event["weight"] = _weigh(event, place)
        events.append((event, place))
        if len(events) > MOST:
            raise ExperimentError(f"{place}: the trace has more than {MOST:,} events; expected at most {MOST:,}")
    # The sort is stable: events of a round stay in the order of the lines.
    events.sort(key=lambda event_and_place: event_and_place[0]["round"])
    return events


def write_data_trace(tape: DataTrace, sizes: Integers) -> Iterator[str]:
    """Yield the lines of a data trace for devices with the given numbers of points at the start, int64[n]."""
    import json

    yield json.dumps({"kind": "stream", "devices": len(sizes), "features": tape.points.shape[1]})
    numbers = [list(range(size)) for size in sizes.tolist()]
    ends = sizes.tolist()
    for (t, device, kind, place), point, weight in zip(tape.events.tolist(), tape.points, tape.weights, strict=True):
        event: dict[str, Any] = {"kind": WORDS[kind], "round": t, "device": device}
        if kind == ARRIVE:
            numbers[device].append(ends[device])
            ends[device] += 1
            event |= {} if weight == 1.0 else {"weight": float(weight)}
        else:
            event["number"] = numbers[device][place]
        if kind == LEAVE:
            del numbers[device][place]
        else:
            event["point"] = point.tolist()
        yield json.dumps(event)


def _check_head(event: dict[str, Any], clients: int, d: int, place: str) -> None:
    for key, known, what in (("devices", clients, "devices"), ("features", d, "features")):
        count = read_number(event, key, (1, _END), place, known)
        if count != known:
            raise DataError(
                f"{place}: the data trace is for {count:,} {what}, but the run has {known:,}; expected the same number"
            )


def _check_reach(events: list[_Event], shards: Shards) -> None:
    """Validate that new points are not so far from the initial points that differences lose their digits."""
    targets = [(event["point"], place) for event, place in events if "point" in event]
    if not targets:
        return
    points = np.array([point for point, _ in targets], np.float64)
    limits = find_limits(shards.points)
    dtype = shards.points.dtype
    extent = float((limits[1] - limits[0]).max(initial=0.0))
    # If all initial points are equal, their range is 0 and the points of the trace define the scale.
    if not extent > 0.0:
        check_limits(merge_limits((limits, find_limits(points))), "the points with those of the data trace", dtype)
        return
    most = FARTHEST[dtype.name] * extent
    reached = np.abs(points).max(axis=1)
    if reached.max() > most:
        row = int(np.argmax(reached > most))
        raise DataError(
            f"{targets[row][1]}: a coordinate of point has the magnitude {reached[row]:g}; expected at most {most:g}, "
            f"{FARTHEST[dtype.name]:g} times the range of the initial points. Scale the point as the data"
        )


def _check_total(events: list[_Event], total: int, k: int) -> None:
    """Validate that no round has fewer points than clusters."""
    later = [event["round"] for event, _ in events[1:]]
    for (event, place), following in zip(events, [*later, None], strict=False):
        total += {"arrive": 1, "leave": -1, "move": 0}[event["kind"]]
        if total < k and following != event["round"]:
            raise DataError(
                f"{place}: after the events of round {event['round']}, {total} points remain for {k} clusters; "
                f"expected at least {k}. Use fewer clusters, or remove events of kind leave"
            )


def _number_points(records: list[_Event], shards: Shards) -> DataTrace:
    """Replay all events and find the index of each point that leaves or moves among the points of its device."""
    numbers: dict[int, list[int]] = {}
    ends = shards.sizes.tolist()
    events = np.zeros((len(records), 4), np.int64)
    points = np.zeros((len(records), shards.d))
    weights = np.ones(len(records))
    for row, (event, place) in enumerate(records):
        device = event["device"]
        kind = WORDS.index(event["kind"])
        present = numbers.setdefault(device, list(range(ends[device])))
        if kind == ARRIVE:
            present.append(ends[device])
            ends[device] += 1
            index = -1
            weights[row] = event["weight"]
        else:
            index = bisect_left(present, event["number"])
            if index == len(present) or present[index] != event["number"]:
                raise DataError(_describe_unknown_point(event, present, place))
        if kind == LEAVE:
            del present[index]
        else:
            points[row] = event["point"]
        events[row] = event["round"], device, kind, index
    return DataTrace(events, points, weights)


def _describe_unknown_point(event: dict[str, Any], present: list[int], place: str) -> str:
    """Return the message for an event with a point that its device does not have."""
    known = f"one of its {len(present)} points, {present[0]} to {present[-1]}" if present else "a device with points"
    return (
        f"{place}: number is {event['number']} for kind {event['kind']}, but device {event['device']} does not have "
        f"this point in round {event['round']}; expected {known}. Points are numbered from 0 in the order of the data, "
        "and each point that arrives gets the next number"
    )


def _weigh(event: dict[str, Any], place: str) -> float:
    value = event.get("weight", 1.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LARGEST:
        raise DataError(f"{place}: weight is {shorten(value)}; expected a number above 0 and at most {LARGEST:g}")
    return float(value)


def _read_point(value: Any, d: int, dtype: Any, place: str) -> list[float]:
    """Validate the coordinates of a point, which must fit in the type of the data."""
    if not isinstance(value, list) or len(value) != d:
        count = f"{len(value)} coordinates" if isinstance(value, list) else shorten(value)
        raise DataError(f"{place}: point is {count}; expected a list of {d} numbers, one per feature")
    most = min(LARGEST, float(np.finfo(dtype).max))
    for coordinate in value:
        good = (
            isinstance(coordinate, (int, float))
            and not isinstance(coordinate, bool)
            and abs(coordinate) <= most
            and isfinite(coordinate)
        )
        if not good:
            raise DataError(
                f"{place}: point has the coordinate {shorten(coordinate)}; expected finite numbers up to {most:.2g}"
            )
    return value
