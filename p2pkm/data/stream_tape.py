"""Data tapes: which points arrive, leave and move at which device in which round, as lines of JSON.

A line is one event; docs/drift.md lists the kinds with their keys. The points of a device are numbered from 0 in the
order of the data; one that arrives gets the next number, and no number is given twice.
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
ROUND, DEVICE, KIND, PLACE = range(4)  # columns of a table of events
_END = 10**9
_Event = tuple[dict[str, Any], str]  # of a line, and its place
_KEYS = EventKeys(
    {"stream": (), "arrive": ("device", "point", "round"), "leave": ("device", "number", "round"),
     "move": ("device", "number", "point", "round")},
    {"stream": ("devices", "features"), "arrive": ("weight",), "leave": (), "move": ()},
    '{"kind": "arrive", "round": 3, "device": 0, "point": [0.5, 1.2]}',
)  # fmt: skip


class DataTape(NamedTuple):
    """The changes of the points of a run, see `p2pkm.data.stream.PointStream`.

    Attributes
    ----------
    events : int64[b, 4]
        Round, device, kind, and place of the point among those that the device then has (-1: a new one), by round.
    points : float64[b, d]
        Where a point arrives or moves to.
    weights : float64[b]
        Of a point that arrives, else 1.
    """

    events: Integers
    points: Floats
    weights: Floats

    def has_changes(self, t: int) -> bool:
        """Return whether points of any device change at the start of round t."""
        first, last = np.searchsorted(self.events[:, ROUND], (t, t + 1))
        return bool(first < last)

    def growth(self, t: int, n: int) -> Integers:
        """Return by how many points each device has more from round t on than before, int64[n]."""
        _, device, kind, _ = self.events[self._of(t)].T
        return np.bincount(device[kind == ARRIVE], minlength=n) - np.bincount(device[kind == LEAVE], minlength=n)

    def change(self, t: int, own: Shards, ids: Integers) -> Shards:
        """Return the points of the own devices (int64[n], ascending) from round t on."""
        now = self._of(t)
        now = now[np.isin(self.events[now, DEVICE], ids)]
        if not len(now):
            return own
        rows: list[Any] = [np.arange(first, last) for first, last in zip(own.offsets, own.offsets[1:], strict=False)]
        weights = np.concatenate((own.weights, self.weights[now]))
        order = np.concatenate((own.rows, np.full(len(now), -1)))
        for new, event in enumerate(now, own.m):
            _, device, kind, place = self.events[event].tolist()
            i = int(np.searchsorted(ids, device))
            rows[i] = rows[i] if isinstance(rows[i], list) else rows[i].tolist()
            if kind == ARRIVE:
                rows[i].append(new)
            elif kind == LEAVE:
                del rows[i][place]
            else:
                weights[new], order[new] = weights[rows[i][place]], order[rows[i][place]]
                rows[i][place] = new
        chosen = np.concatenate([np.asarray(part, np.int64) for part in rows])
        points = np.concatenate((own.points, self.points[now].astype(own.points.dtype)))[chosen]
        same = not any(own.weights.strides) and bool((self.weights[now] == 1.0).all())
        return replace(
            own, points=np.ascontiguousarray(points), offsets=offsets_of(np.array([len(part) for part in rows])),
            weights=unweighted(len(chosen)) if same else weights[chosen],
            order=order[chosen], labels=None,
        )  # fmt: skip

    def to_arrays(self) -> dict[str, Any]:
        """Return what `from_arrays` needs on another rank."""
        return self._asdict()

    def _of(self, t: int) -> Integers:
        return np.arange(*np.searchsorted(self.events[:, ROUND], (t, t + 1)))


class Limits(NamedTuple):
    """What a tape has to fit, besides the points: devices without a hub, rounds and clusters."""

    clients: int
    rounds: int
    k: int


def read_data_trace(path: str, shards: Shards, limits: Limits) -> DataTape:
    """Read a tape for these points.

    Raises
    ------
    ExperimentError
        If there is no such file or a line is not an event; the message names the line and what was expected.
    DataError
        If a point has other features than the data or is not finite, one is to leave or move that is not there, or
        fewer points than clusters are left.
    """
    return read_file(path, "data tape", lambda lines: parse_data_trace(lines, shards, limits, path))


def check_data_trace(path: str, m: int, d: int, limits: Limits) -> None:
    """Refuse a tape that fits no m points of d features, as `read_data_trace`; who has which point is not known yet."""
    float64 = np.dtype(np.float64)
    read_file(path, "data tape", lambda lines: _check_total(_read_events(lines, d, float64, limits, path), m, limits.k))


def parse_data_trace(lines: Iterable[bytes | str], shards: Shards, limits: Limits, where: str) -> DataTape:
    """Return the events of the lines; see `read_data_trace` for the errors. Empty lines are passed over."""
    found = _read_events(lines, shards.d, shards.points.dtype, limits, where)
    tape = _number_points(found, shards)
    _check_reach(found, shards)
    _check_total(found, shards.m, limits.k)
    return tape


def _read_events(lines: Iterable[bytes | str], d: int, dtype: Any, limits: Limits, where: str) -> list[_Event]:
    """Return the events by round, each with the place of its line; points that arrive have a weight."""
    found: list[_Event] = []
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
        found.append((event, place))
        if len(found) > MOST:
            raise ExperimentError(f"{place}: more than {MOST:,} events; expected at most so many")
    found.sort(key=lambda one: one[0]["round"])  # stable: those of a round in the order of the lines
    return found


def write_data_trace(tape: DataTape, sizes: Integers) -> Iterator[str]:
    """Yield the lines of a tape; sizes: the points of each device at the start, int64[n]."""
    import json

    yield json.dumps({"kind": "stream", "devices": len(sizes), "features": tape.points.shape[1]})
    numbers, ends = [list(range(size)) for size in sizes.tolist()], sizes.tolist()
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
        given = read_number(event, key, (1, _END), place, known)
        if given != known:
            raise DataError(f"{place}: the data tape is for {given:,} {what}, but there are {known:,}; make them equal")


def _check_reach(found: list[_Event], shards: Shards) -> None:
    """Reject points that are so far from those at the start that differences would lose their digits."""
    told = [(event["point"], place) for event, place in found if "point" in event]
    if not told:
        return
    points, limits = np.array([point for point, _ in told], np.float64), find_limits(shards.points)
    dtype = shards.points.dtype
    extent = float((limits[1] - limits[0]).max(initial=0.0))
    if not extent > 0.0:  # all alike, or none: the tape tells how far they are apart
        check_limits(merge_limits((limits, find_limits(points))), "the points with those of the tape", dtype)
        return
    most, reached = FARTHEST[dtype.name] * extent, np.abs(points).max(axis=1)
    if reached.max() > most:
        row = int(np.argmax(reached > most))
        raise DataError(
            f"{told[row][1]}: point has a coordinate of size {reached[row]:g}; expected at most {most:g}, which is "
            f"{FARTHEST[dtype.name]:g} times the range of the points at the start"
        )


def _check_total(found: list[_Event], total: int, k: int) -> None:
    """Refuse events after which there are fewer points than clusters in a round."""
    later = [event["round"] for event, _ in found[1:]]
    for (event, place), following in zip(found, [*later, None], strict=False):
        total += {"arrive": 1, "leave": -1, "move": 0}[event["kind"]]
        if total < k and following != event["round"]:
            raise DataError(
                f"{place}: after round {event['round']} there are {total} points for {k} clusters; expected at least "
                "as many as clusters"
            )


def _number_points(found: list[_Event], shards: Shards) -> DataTape:
    """Follow the points of all devices through the rounds, and find the place of each point that leaves or moves."""
    numbers: dict[int, list[int]] = {}
    ends = shards.sizes.tolist()
    events, points = np.zeros((len(found), 4), np.int64), np.zeros((len(found), shards.d))
    weights = np.ones(len(found))
    for row, (event, place) in enumerate(found):
        device, kind = event["device"], WORDS.index(event["kind"])
        there = numbers.setdefault(device, list(range(ends[device])))
        if kind == ARRIVE:
            there.append(ends[device])
            ends[device] += 1
            at = -1
            weights[row] = event["weight"]
        else:
            at = bisect_left(there, event["number"])
            if at == len(there) or there[at] != event["number"]:
                raise DataError(_missing(event, there, place))
        if kind == LEAVE:
            del there[at]
        else:
            points[row] = event["point"]
        events[row] = event["round"], device, kind, at
    return DataTape(events, points, weights)


def _missing(event: dict[str, Any], there: list[int], place: str) -> str:
    word, number, device = event["kind"], event["number"], event["device"]
    known = f"its {len(there)} points have numbers from {there[0]} to {there[-1]}" if there else "it has no points"
    return (
        f"{place}: {word} of point {number} of device {device}, which is not there in round {event['round']}; {known}. "
        "The first point is number 0, and one that arrives gets the next number"
    )


def _weigh(event: dict[str, Any], place: str) -> float:
    value = event.get("weight", 1.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LARGEST:
        raise DataError(f"{place}: weight is {shorten(value)}; expected a number above 0 and at most {LARGEST:g}")
    return float(value)


def _read_point(value: Any, d: int, dtype: Any, place: str) -> list[float]:
    """Return the coordinates of a point, which the type of the data can hold."""
    if not isinstance(value, list) or len(value) != d:
        count = f"{len(value)} coordinates" if isinstance(value, list) else shorten(value)
        raise DataError(f"{place}: point is {count}; expected a list of {d} numbers, as the data have features")
    most = min(LARGEST, float(np.finfo(dtype).max))
    for one in value:
        good = isinstance(one, (int, float)) and not isinstance(one, bool) and abs(one) <= most and isfinite(one)
        if not good:
            raise DataError(f"{place}: point has {shorten(one)}; expected finite numbers of at most {most:.2g}")
    return value
