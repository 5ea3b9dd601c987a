"""See every call of a method in a run, for `check_method`: what it is given, what it returns, and what its parts do."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.contract import (
    check_messages,
    check_model,
    check_report,
    check_state,
    list_fields,
    locate,
)
from p2pkm.core.errors import ContractError
from p2pkm.core.messages import Delivery, Inbox, SparseMessages, Tables, expand_ranges

_PARTS: tuple[Callable[[Integers], Any], ...] = (
    lambda i: i == 0, lambda i: i < 0, lambda i: i % 3 == 1, lambda i: (i > 0) & (i % 3 != 1),
)  # fmt: skip


class Part(NamedTuple):
    """Devices of a batch that is the whole system, and the edges that lead from them."""

    which: Integers
    edges: Integers

    @property
    def name(self) -> str:
        """Return what it is called in a message."""
        ids = ", ".join(map(str, self.which))
        return f"the batch of devices {ids}" if len(self.which) else "the batch of no devices"


class ShapeError(Exception):
    """A state or message that the run could not go on with."""


class Watcher:
    """What is found in the calls of a method: by the name of the check, the first finding each.

    Beside the whole batch the method plays the parts of it, each from a state of its own, on what it would receive if
    every part were on another rank.

    Parameters
    ----------
    k, d : int
        Number of clusters and features.
    numbers : bool
        Whether what is sent are numbers, which must be finite, and not bits behind masks, for example.
    """

    def __init__(self, k: int, d: int, *, numbers: bool) -> None:
        self.found: dict[str, str] = {}
        self.busy = False
        self._k, self._d, self._numbers = k, d, numbers
        self._parts: list[Part] = []
        self._states: list[Any] = []
        self._sent: list[Any] = []
        self._width = 0  # columns of a report; 0: not known yet

    def initial_state(self, call: Callable[..., Any], devices: Devices, start: Any) -> Any:
        """Begin a stage."""
        with self._unchanged("initial_state", devices=devices, start=start):
            state = call(devices, start)
        self._check_state(call, state, devices)
        self._parts = _divide(devices)
        self._states = [None] * len(self._parts)
        for number, part in self._play_parts():
            with self._part("initial_state", part):
                self._states[number] = call(take(devices, part), _slice(start, part, devices))
                self._compare_states("initial_state", state, self._states[number], part)
        return state

    def message(self, call: Callable[..., Any], state: Any, devices: Devices) -> Any:
        """Look at what is sent."""
        with self._unchanged("message", state=state, devices=devices):
            messages = call(state, devices)
        self._check_messages(call, messages, devices)
        self._sent = [None] * len(self._parts)
        for number, part in self._play_parts():
            with self._part("message", part):
                sent = self._sent[number] = call(self._states[number], take(devices, part))
                whole, own = _list_messages(messages, part), _list_messages(sent, _renumbered(part))
                self._compare("message", "messages", whole, own, part)
        return messages

    def update(self, call: Callable[..., Any], state: Any, inbox: Any, devices: Devices) -> Any:
        """Take a turn."""
        own = {} if devices.turn else {"state": state}  # what the turn before has made may be written to
        # The state first: a table of the inbox may be an array of it.
        with self._unchanged("update", **own, inbox=inbox, devices=devices):
            after = call(state, inbox, devices)
        self._check_state(call, after, devices)
        for number, part in self._play_parts():
            with self._part("update", part):
                now = take(devices, part)
                received = _receive(inbox, self._sent[number], part, devices)
                self._states[number] = call(self._states[number], received, now)
                self._compare_states("update", after, self._states[number], part)
        return after

    def report(self, call: Callable[..., Any], clients: Devices, model: Floats) -> Any:
        """Look at what clients send to a server."""
        with self._unchanged("report", clients=clients, model=model):
            report = call(clients, model)
        with self._shapes(call):
            check_report(report, len(clients), self._d)
            self._width = self._width or report.values.shape[2]
            self._check_width(report, f"in round {clients.round}")
        sent = [table[: rows * (i != clients.server)] for i, table, rows in
                zip(clients.ids, report.values, report.rows, strict=True)]  # fmt: skip
        self._check_sent("report", sent)
        self._parts = _divide(clients)
        for _, part in self._play_parts():
            with self._part("report", part):
                own = call(take(clients, part), model[part.which])
                with self._shapes(call):
                    self._check_width(own, f"for {part.name}")
                whole = [report.values[i, : report.rows[i]] for i in part.which]
                self._compare("report", "tables", whole, [t[:r] for t, r in zip(own.values, own.rows, strict=True)],
                              part)  # fmt: skip
        return report

    def aggregate(self, call: Callable[..., Any], hub: Devices, tables: list[Floats], model: Floats) -> Any:
        """Look at what a server finds."""
        with self._unchanged("aggregate", hub=hub, tables=tables, model=model):
            centroids = call(hub, tables, model)
        with self._shapes(call):
            check_model(centroids, self._k, self._d)
        self._check_finite("aggregate", centroids[None])
        part = _choose_part(hub, hub.ids == hub.server)
        if "inputs" not in self.found:
            with self._part("aggregate", part):
                own = call(take(hub, part), [table.copy() for table in tables], model)
                self._compare("aggregate", "centroids", [centroids], [own], part)
        return centroids

    @contextmanager
    def _unchanged(self, function: str, **given: Any) -> Iterator[None]:
        """Notice what a function writes into what it is given."""
        before = [(key, array, array.copy()) for name, part in given.items() for key, array in _arrays(part, name)]
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
        for name, array, was in before:
            if array.tobytes() != was.tobytes():
                self.found.setdefault(
                    "inputs",
                    f"{function} wrote into {name}. Expected that nothing that is given is changed: work on a copy, "
                    f"{name}.copy()",
                )

    @contextmanager
    def _part(self, function: str, part: Part) -> Iterator[None]:
        """Play a part, unless parts have been found to differ already."""
        self.busy = True
        try:
            yield
        except Exception as error:
            self.found["parts"] = (
                f"{function} raised {type(error).__name__} for {part.name}: {error}. Expected that it works on any "
                "batch, the batch of a rank that hosts no devices among them: no reshape with -1, no reduction without "
                "a start, and sizes from len(devices)"
            )
        finally:
            self.busy = False

    def _play_parts(self) -> Iterator[tuple[int, Part]]:
        """Yield the parts, until they are found to differ or to have been written to."""
        for number, part in enumerate(self._parts):
            if not self.found.keys() & {"inputs", "parts"}:
                yield number, part

    def _compare_states(self, function: str, whole: Any, own: Any, part: Part) -> None:
        self._compare(function, "centroids", list(whole.centroids[part.which]), list(own.centroids), part)
        self._compare(function, "converged", list(whole.converged[part.which]), list(own.converged), part)

    def _compare(self, function: str, what: str, whole: list[Any], own: list[Any], part: Part) -> None:
        """Note the first device for which a part has other bits than the whole batch."""
        if len(whole) != len(own):
            device, other = part.name, f"{len(own)} {what} for {len(whole)} devices"
        else:
            differ = [i for i, (a, b) in enumerate(zip(whole, own, strict=True)) if not _same(a, b)]
            names = [f"device {i}" for i in part.which] + ["the edges"]
            device, other = names[differ[0]] if differ else "", f"other {what}"
        if device and "parts" not in self.found:
            self.found["parts"] = (
                f"{function} returned {other} for {device} in {part.name} than in the batch of all devices. Expected "
                "the same bits whoever else is in the batch: add up in the order of devices.indptr, use devices.keys "
                "and devices.ids instead of positions, and no sum over devices"
            )

    def _check_width(self, report: Any, where: str) -> None:
        """Reject a report with another number of columns: ranks and rounds share one table format."""
        if report.values.shape[2] != self._width:
            raise ContractError(
                f"report returned {report.values.shape[2]} columns {where}, but {self._width} in its first report; "
                "expected as many for every batch and in every round"
            )

    @contextmanager
    def _shapes(self, call: Callable[..., Any]) -> Iterator[None]:
        """Note what no run can go on with."""
        try:
            yield
        except ContractError as error:
            self.found["shapes"] = (
                f"{error}. See {locate(call)}; p2pkm.core.protocols and p2pkm.core.messages have the shapes of states "
                "and messages"
            )
            raise ShapeError from None

    def _check_state(self, call: Callable[..., Any], state: Any, devices: Devices) -> None:
        with self._shapes(call):
            check_state(call.__name__, state, len(devices), self._k, self._d)
        self._check_finite(call.__name__, state.centroids)

    def _check_finite(self, function: str, centroids: Floats) -> None:
        """Notice rows that are neither finite nor absent."""
        whole = np.isfinite(centroids).all(axis=2) | np.isposinf(centroids).all(axis=2)
        if not whole.all():
            i, c = np.argwhere(~whole)[0]
            self._note_values(function, f"centroid {c} of device {i} as {centroids[i, c]}")

    def _note_values(self, function: str, seen: str) -> None:
        self.found.setdefault(
            "finite",
            f"{function} returned {seen}. Expected finite numbers, or +inf in the whole row of a centroid that is "
            "absent: look for a division by the number of points, which may be 0",
        )

    def _check_messages(self, call: Callable[..., Any], messages: Any, devices: Devices) -> None:
        with self._shapes(call):
            check_messages(messages, devices)
        if isinstance(messages, SparseMessages):
            self._check_sent("message", [messages.tables.take(np.array([i])).flat() for i in range(len(messages.who))])
        else:
            self._check_sent("message", [messages.values[i, : max(rows, 0)] for i, rows in enumerate(messages.rows)])

    def _check_sent(self, function: str, tables: list[Floats]) -> None:
        wrong = [i for i, table in enumerate(tables) if not np.isfinite(table).all()]
        if wrong and self._numbers:
            self._note_values(function, f"table number {wrong[0]} with NaN or infinite numbers in rows that travel")


class PointReweigher:
    """Play a method with other weights of points than the run has; all else that devices are given stays the same."""

    busy = False

    def initial_state(self, call: Callable[..., Any], devices: Devices, start: Any) -> Any:
        """Begin a stage."""
        return call(_reweigh(devices), start)

    def message(self, call: Callable[..., Any], state: Any, devices: Devices) -> Any:
        """Return the messages."""
        return call(state, _reweigh(devices))

    def update(self, call: Callable[..., Any], state: Any, inbox: Any, devices: Devices) -> Any:
        """Take a turn."""
        return call(state, inbox, _reweigh(devices))

    def report(self, call: Callable[..., Any], clients: Devices, model: Floats) -> Any:
        """Return the reports."""
        return call(_reweigh(clients), model)

    def aggregate(self, call: Callable[..., Any], hub: Devices, tables: list[Floats], model: Floats) -> Any:
        """Return the model."""
        return call(hub, tables, model)


def _reweigh(devices: Devices) -> Devices:
    """Return the batch with weights 1, 2, 4, 1, ... of its points."""
    weights = np.array([1.0, 2.0, 4.0])[np.arange(len(devices.stored)) % 3]
    return replace(devices, point_weights=weights)


Observer = Watcher | PointReweigher


class _SeenPeer:
    """The functions of a method, each seen by an observer; a parent before the method's own class."""

    watcher: Observer

    def initial_state(self, *given: Any) -> Any:
        call = super().initial_state  # type: ignore[misc]
        return call(*given) if self.watcher.busy else self.watcher.initial_state(call, *given)

    def message(self, *given: Any) -> Any:
        call = super().message  # type: ignore[misc]
        return call(*given) if self.watcher.busy else self.watcher.message(call, *given)

    def update(self, *given: Any) -> Any:
        call = super().update  # type: ignore[misc]
        return call(*given) if self.watcher.busy else self.watcher.update(call, *given)

    def on(self, topology: Any) -> Any:
        played = super().on(topology)  # type: ignore[misc]
        return played if played is self else watch(played, self.watcher)


class _SeenServer:
    """The functions of a method with a server, each seen by an observer."""

    watcher: Observer

    def report(self, *given: Any) -> Any:
        call = super().report  # type: ignore[misc]
        return call(*given) if self.watcher.busy else self.watcher.report(call, *given)

    def aggregate(self, *given: Any) -> Any:
        call = super().aggregate  # type: ignore[misc]
        return call(*given) if self.watcher.busy else self.watcher.aggregate(call, *given)


def watch(method: Any, watcher: Observer) -> Any:
    """Return the same method, of a subclass whose calls an observer sees; so is what it plays on a graph."""
    kind = type(method)
    seen = _SeenServer if method.traits.is_server_method else _SeenPeer
    watched = copy(method)
    object.__setattr__(watched, "__class__", type(kind.__name__, (seen, kind), {"watcher": watcher}))
    return watched


def _divide(devices: Devices) -> list[Part]:
    """Return parts of a batch that holds all devices: one device, none, some, and the rest."""
    return [_choose_part(devices, rule(devices.ids)) for rule in _PARTS]


def _choose_part(devices: Devices, chosen: Mask) -> Part:
    """Return the part of the chosen devices."""
    which = np.flatnonzero(chosen)
    return Part(which, expand_ranges(devices.indptr[which], np.diff(devices.indptr)[which]))


def _renumbered(part: Part) -> Part:
    """Return the part as positions in itself."""
    return Part(np.arange(len(part.which)), np.arange(len(part.edges)))


def take(devices: Devices, part: Part) -> Devices:
    """Return the batch that a rank has that hosts these devices alone."""
    which, edges = part
    rows = expand_ranges(devices.offsets[which], devices.sizes[which])
    place = np.full(len(devices.indices) + 1, -1)  # the last one: the other end is not known
    place[edges] = np.arange(len(edges))
    weights, lengths = devices.point_weights, np.diff(devices.indptr)[which]
    means = devices.neighbor_mean_weights
    return replace(
        devices,
        ids=devices.ids[which],
        stored=devices.stored[rows],
        offsets=np.concatenate(([0], np.cumsum(devices.sizes[which]))),
        point_weights=weights[rows] if any(weights.strides) else weights[: len(rows)],  # a view of one number
        indptr=np.concatenate(([0], np.cumsum(lengths))),
        indices=devices.indices[edges],
        mirror=place[devices.mirror[edges]],
        link_weights=devices.link_weights[edges],
        active_edges=devices.active_edges[edges],
        degrees=devices.degrees[which],
        neighbor_degrees=devices.neighbor_degrees[edges],
        shares=None if devices.shares is None else devices.shares[edges],
        keys=devices.keys[which],
        active_devices=devices.active_devices[which],
        grid=None if devices.grid is None else devices.grid._replace(step=devices.grid.step[which]),
        secrets=None if devices.secrets is None else devices.secrets._replace(keys=devices.secrets.keys[which]),
        neighbor_mean_weights=None if means is None else means[edges],
    )


def _slice(tree: Any, part: Part, devices: Devices) -> Any:
    """Return the part of the state that a stage starts from: centroids that were given, or a state of arrays."""
    if fields := list_fields(tree):
        return type(tree)(*(
            value[part.edges] if name.startswith("edge_") and isinstance(value, np.ndarray)
            else _slice(value, part, devices)
            for name, value in zip(fields, tree, strict=True)
        ))  # fmt: skip
    whole = isinstance(tree, np.ndarray) and tree.ndim and len(tree) == len(devices)
    return tree[part.which] if whole else tree


def _list_messages(messages: Any, part: Part) -> list[Any]:
    """Return what each device of a part sends, over which of its edges: for comparison."""
    if isinstance(messages, SparseMessages):
        tables = {int(v): messages.tables.take(np.array([i])).flat() for i, v in enumerate(messages.who)}
        sent = [(int(v) in tables, tables.get(int(v), np.zeros(0))) for v in part.which]
        return [*sent, np.isin(part.edges, messages.edges)]
    found: list[Any] = []
    for v in part.which:
        rows = int(messages.rows[v])
        wire = None if messages.wire is None or rows < 0 else int(messages.wire[v])
        found.append((rows, messages.values[v, : max(rows, 0)], wire))
    return [*found, None if messages.edges is None else messages.edges[part.edges]]


def _receive(inbox: Any, sent: Any, part: Part, devices: Devices) -> Any:
    """Return what the devices of a part have received, own tables first, then those of their neighbors elsewhere."""
    if isinstance(inbox, Delivery):
        return _receive_sparse(inbox, sent, part, devices)
    ghosts = np.setdiff1d(devices.indices[part.edges], part.which)
    order = np.concatenate((part.which, ghosts)).astype(np.int64)
    place = np.full(len(inbox.tables) + 1, -1)
    place[order] = np.arange(len(order))
    return Inbox(
        inbox.tables[order],
        inbox.rows[order],
        place[inbox.slots[part.edges]],
        place[inbox.senders[part.edges]],
        None if inbox.sent is None else inbox.sent[order],
        None if inbox.over is None else inbox.over[part.edges],
    )


def _receive_sparse(delivery: Delivery, sent: SparseMessages, part: Part, devices: Devices) -> Delivery:
    mine = np.isin(delivery.edges, part.edges)
    tables, senders = delivery.tables.take(np.flatnonzero(mine)), devices.indices[delivery.edges[mine]]
    own = sent.tables
    values, starts, end = [own.values], [], len(own.values)
    for number, sender in enumerate(senders):
        position = np.flatnonzero(part.which == sender)
        if len(position):
            starts.append(int(own.starts[np.flatnonzero(sent.who == position[0])[0]]))
            continue
        values.append(tables.take(np.array([number])).flat())
        starts.append(end)
        end += len(values[-1])
    edges = np.searchsorted(part.edges, delivery.edges[mine])
    return Delivery(edges, Tables(np.concatenate(values), np.array(starts, np.int64), tables.rows))


def _same(one: Any, other: Any) -> bool:
    """Return whether arrays, or tuples of them, have the same bits."""
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other)


def _arrays(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield all arrays in what a function is given, each with its name."""
    if isinstance(tree, np.ndarray):
        yield name, tree
        return
    parts: dict[str, Any] = {}
    if isinstance(tree, Mapping):
        parts = {f".{key}": part for key, part in tree.items()}
    elif fields := list_fields(tree):
        parts = {f".{key}": part for key, part in zip(fields, tree, strict=True)}
    elif isinstance(tree, (tuple, list)):
        parts = {f"[{number}]": part for number, part in enumerate(tree)}
    elif is_dataclass(tree):
        parts = {f".{key}": part for key, part in vars(tree).items()}
    for key, part in parts.items():
        yield from _arrays(part, name + key)
