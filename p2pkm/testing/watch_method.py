"""Observation of all calls of a method in a run, for `check_method`.

`wrap_method` returns the method as an instance of a subclass whose functions pass every call to an observer.
`ContractChecker` checks arguments and results of each call, and repeats the call for parts of the batch.
`PointReweigher` repeats a run with other point weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.contract import (
    check_messages,
    check_model,
    check_report,
    check_state,
    locate,
)
from p2pkm.core.errors import ContractError
from p2pkm.core.messages import SparseMessages
from p2pkm.testing.laws import describe_part, on_part, unchanged
from p2pkm.testing.parts import (
    Part,
    choose_part,
    divide,
    list_messages,
    receive_part,
    renumber,
    same_bits,
    select_part,
    slice_state,
)


class ShapeError(Exception):
    """State or message of a shape with which the run cannot continue."""


class ContractChecker:
    """Checker of all calls of a method in one run.

    Each call is repeated for the parts of the batch. Each part has a separate state, and receives what it would
    receive if it were hosted by a separate rank.

    Parameters
    ----------
    k, d : int
        Number of clusters and of features.
    numbers : bool
        Messages contain numbers, which must be finite, and not, for example, masked bits.
    absent : bool
        Some centroids are absent at the start; a message may then have +inf in all columns of a row.

    Attributes
    ----------
    findings : dict of str to str
        First violation found by each check, by the name of the check.
    busy : bool
        True during a call of the method. Calls that the method makes to its own functions are not checked.
    """

    def __init__(self, k: int, d: int, *, numbers: bool, absent: bool = False) -> None:
        self.findings: dict[str, str] = {}
        self.busy = False
        self._k = k
        self._d = d
        self._numbers = numbers
        self._absent = absent
        self._parts: list[Part] = []
        self._states: list[Any] = []
        self._sent: list[Any] = []
        self._width = 0  # columns of the first report; 0: no report yet

    def initial_state(self, call: Callable[..., Any], devices: Devices, start: Any) -> Any:
        """Call `initial_state` and check its state."""
        with self._call("initial_state", devices=devices, start=start):
            state = call(devices, start)
        self._check_state(call, state, devices)
        self._parts = divide(devices)
        self._states = [None] * len(self._parts)
        for number, part in self._play_parts():
            with self._part("initial_state", part):
                self._states[number] = call(select_part(devices, part), slice_state(start, part, devices))
                self._compare_states("initial_state", state, self._states[number], part)
        return state

    def message(self, call: Callable[..., Any], state: Any, devices: Devices) -> Any:
        """Call `message` and check its tables."""
        with self._call("message", state=state, devices=devices):
            messages = call(state, devices)
        self._check_messages(call, messages, devices)
        self._sent = [None] * len(self._parts)
        for number, part in self._play_parts():
            with self._part("message", part):
                sent = self._sent[number] = call(self._states[number], select_part(devices, part))
                expected = list_messages(messages, part)
                self._compare("message", "messages", expected, list_messages(sent, renumber(part)), part)
        return messages

    def update(self, call: Callable[..., Any], state: Any, inbox: Any, devices: Devices) -> Any:
        """Call `update` and check its state."""
        # Within a round, a turn may write into the state that the turn before has created.
        protected = {} if devices.turn else {"state": state}
        # Absent devices are restored by `p2pkm.channel.faults`; those that wait for their turn are not.
        idle = np.flatnonzero(~devices.active_devices)
        before = state.centroids[idle]
        # The state comes first, so that it is named in the message: tables of the inbox may be views of its arrays.
        with self._call("update", **protected, inbox=inbox, devices=devices):
            after = call(state, inbox, devices)
        self._check_state(call, after, devices)
        moved = [i for i, old in zip(idle, before, strict=True) if not same_bits(old, after.centroids[i])]
        if moved:
            self.findings.setdefault(
                "inputs",
                f"update changed the centroids of device {moved[0]}, which was not active in round {devices.round}; "
                "only active devices act. Compute the rows of devices.active, and copy the others",
            )
        for number, part in self._play_parts():
            with self._part("update", part):
                received = receive_part(inbox, self._sent[number], part, devices)
                self._states[number] = call(self._states[number], received, select_part(devices, part))
                self._compare_states("update", after, self._states[number], part)
        return after

    def report(self, call: Callable[..., Any], clients: Devices, model: Floats) -> Any:
        """Call `report` and check its tables."""
        with self._call("report", clients=clients, model=model):
            report = call(clients, model)
        with self._shapes(call):
            check_report(report, len(clients), self._d)
            self._width = self._width or report.values.shape[2]
            self._check_width(report, f"in round {clients.round}")
        sent = [
            # The server is among the clients, but its table is not sent.
            table[: rows * (i != clients.server)]
            for i, table, rows in zip(clients.ids, report.values, report.rows, strict=True)
        ]
        self._check_sent("report", sent)
        self._parts = divide(clients)
        for _, part in self._play_parts():
            with self._part("report", part):
                part_report = call(select_part(clients, part), model[part.positions])
                with self._shapes(call):
                    self._check_width(part_report, f"for {part.name}")
                expected = [report.values[i, : report.rows[i]] for i in part.positions]
                tables = [table[:rows] for table, rows in zip(part_report.values, part_report.rows, strict=True)]
                self._compare("report", "tables", expected, tables, part)
        return report

    def aggregate(self, call: Callable[..., Any], hub: Devices, tables: list[Floats], model: Floats) -> Any:
        """Call `aggregate` and check its centroids."""
        with self._call("aggregate", hub=hub, tables=tables, model=model):
            centroids = call(hub, tables, model)
        with self._shapes(call):
            check_model(centroids, self._k, self._d)
        self._check_finite("aggregate", centroids[None])
        part = choose_part(hub, hub.ids == hub.server)
        if "inputs" not in self.findings:
            with self._part("aggregate", part):
                repeated = call(select_part(hub, part), [table.copy() for table in tables], model)
                self._compare("aggregate", "centroids", [centroids], [repeated], part)
        return centroids

    @contextmanager
    def _call(self, function: str, **arguments: Any) -> Iterator[None]:
        """Note the first argument that a function writes into."""
        self.busy = True
        try:
            with unchanged(**arguments) as written:
                yield
        finally:
            self.busy = False
        for name in written[:1]:
            self.findings.setdefault(
                "inputs", f"{function} wrote into {name}; arguments must not be changed. Work on a copy: {name}.copy()"
            )

    @contextmanager
    def _part(self, function: str, part: Part) -> Iterator[None]:
        """Note an exception of a call for a part of the batch."""
        self.busy = True
        try:
            with on_part(self.findings, function, part):
                yield
        finally:
            self.busy = False

    def _play_parts(self) -> Iterator[tuple[int, Part]]:
        """Yield the parts until a part differs or an argument was changed; later findings would only follow from it."""
        for number, part in enumerate(self._parts):
            if not self.findings.keys() & {"inputs", "parts"}:
                yield number, part

    def _compare_states(self, function: str, full: Any, part_state: Any, part: Part) -> None:
        """Compare the state of a part with that of the full batch."""
        i = part.positions
        self._compare(function, "centroids", list(full.centroids[i]), list(part_state.centroids), part)
        self._compare(function, "converged", list(full.converged[i]), list(part_state.converged), part)

    def _compare(self, function: str, quantity: str, expected: list[Any], actual: list[Any], part: Part) -> None:
        """Note the first device whose result for a part is not bit-identical to that for the full batch."""
        difference = describe_part(function, quantity, expected, actual, part)
        if difference:
            self.findings.setdefault(
                "parts",
                f"{difference}. Add in the order of devices.indptr, use devices.keys and devices.ids instead of "
                "positions, and do not sum over devices",
            )

    def _check_width(self, report: Any, where: str) -> None:
        """Reject a report with another number of columns: ranks and rounds share one table format."""
        if report.values.shape[2] != self._width:
            raise ContractError(
                f"report returned {report.values.shape[2]} columns {where}; expected {self._width}, as in its first "
                "report: the number of columns must be the same for every batch and in every round"
            )

    @contextmanager
    def _shapes(self, call: Callable[..., Any]) -> Iterator[None]:
        """Note a wrong shape or type and end the run."""
        try:
            yield
        except ContractError as error:
            self.findings["shapes"] = (
                f"{error}. Correct {locate(call)}; p2pkm.core.protocols and p2pkm.core.messages describe the shapes of "
                "states and messages"
            )
            raise ShapeError from None

    def _check_state(self, call: Callable[..., Any], state: Any, devices: Devices) -> None:
        """Check shapes, types and values of a state."""
        with self._shapes(call):
            check_state(call.__name__, state, len(devices), self._k, self._d)
        self._check_finite(call.__name__, state.centroids)

    def _check_finite(self, function: str, centroids: Floats) -> None:
        """Note the first centroid that is neither finite nor absent."""
        valid = np.isfinite(centroids).all(axis=2) | np.isposinf(centroids).all(axis=2)
        if not valid.all():
            i, c = np.argwhere(~valid)[0]
            self._note_values(function, f"centroid {c} of device {i} as {centroids[i, c]}")

    def _note_values(self, function: str, values: str) -> None:
        """Note values that must not occur."""
        self.findings.setdefault(
            "finite",
            f"{function} returned {values}; expected finite numbers, or +inf in every column of an absent centroid. "
            "Check divisions by the number of points, which may be 0",
        )

    def _check_messages(self, call: Callable[..., Any], messages: Any, devices: Devices) -> None:
        """Check shapes, types and values of messages."""
        with self._shapes(call):
            check_messages(messages, devices)
        if isinstance(messages, SparseMessages):
            self._check_sent(
                "message", [messages.tables.take(np.array([i])).flat() for i in range(len(messages.senders))]
            )
        else:
            self._check_sent("message", [messages.values[i, : max(rows, 0)] for i, rows in enumerate(messages.rows)])

    def _check_sent(self, function: str, tables: list[Floats]) -> None:
        """Note the first sent table with NaN or infinite numbers."""
        if self._absent:
            tables = [np.where(np.isposinf(table).all(axis=-1, keepdims=True), 0.0, table) for table in tables]
        wrong = [i for i, table in enumerate(tables) if not np.isfinite(table).all()]
        if wrong and self._numbers:
            self._note_values(function, f"table number {wrong[0]} with NaN or infinite numbers in rows that are sent")


class PointReweigher:
    """Observer that calls a method with other point weights; all other arguments are unchanged."""

    busy = False

    def initial_state(self, call: Callable[..., Any], devices: Devices, start: Any) -> Any:
        """Call `initial_state` with other point weights."""
        return call(_reweigh(devices), start)

    def message(self, call: Callable[..., Any], state: Any, devices: Devices) -> Any:
        """Call `message` with other point weights."""
        return call(state, _reweigh(devices))

    def update(self, call: Callable[..., Any], state: Any, inbox: Any, devices: Devices) -> Any:
        """Call `update` with other point weights."""
        return call(state, inbox, _reweigh(devices))

    def report(self, call: Callable[..., Any], clients: Devices, model: Floats) -> Any:
        """Call `report` with other point weights."""
        return call(_reweigh(clients), model)

    def aggregate(self, call: Callable[..., Any], hub: Devices, tables: list[Floats], model: Floats) -> Any:
        """Call `aggregate` of a server whose clients have point weights."""
        return call(replace(hub, weighted=True), tables, model)


def _reweigh(devices: Devices) -> Devices:
    """Set the weights of the points to 1, 2, 4, 1, 2, 4, ..."""
    weights = np.array([1.0, 2.0, 4.0])[np.arange(len(devices.stored)) % 3]
    return replace(devices, point_weights=weights, weighted=True)


class Observer(Protocol):
    """Observer of a method. That of a server method has the functions `report` and `aggregate` instead.

    Attributes
    ----------
    busy : bool
        Whether calls are passed on without the observer, such as those that the method makes to its own functions.
    """

    busy: bool

    def initial_state(self, call: Callable[..., Any], devices: Devices, start: Any) -> Any:
        """Observe a call of `initial_state`."""

    def message(self, call: Callable[..., Any], state: Any, devices: Devices) -> Any:
        """Observe a call of `message`."""

    def update(self, call: Callable[..., Any], state: Any, inbox: Any, devices: Devices) -> Any:
        """Observe a call of `update`."""


# The classes below precede the class of the method in the order of base classes, so that `super()` is the method.
class _ObservedPeer:
    """Functions of a method without a server, each called through an observer."""

    observer: Observer

    def initial_state(self, *args: Any) -> Any:
        call = super().initial_state  # type: ignore[misc]
        return call(*args) if self.observer.busy else self.observer.initial_state(call, *args)

    def message(self, *args: Any) -> Any:
        call = super().message  # type: ignore[misc]
        return call(*args) if self.observer.busy else self.observer.message(call, *args)

    def update(self, *args: Any) -> Any:
        call = super().update  # type: ignore[misc]
        return call(*args) if self.observer.busy else self.observer.update(call, *args)

    def on(self, topology: Any) -> Any:
        on_graph = super().on(topology)  # type: ignore[misc]
        return on_graph if on_graph is self else wrap_method(on_graph, self.observer)


class _ObservedServer:
    """Functions of a method with a server, each called through an observer."""

    observer: ContractChecker | PointReweigher

    def report(self, *args: Any) -> Any:
        call = super().report  # type: ignore[misc]
        return call(*args) if self.observer.busy else self.observer.report(call, *args)

    def aggregate(self, *args: Any) -> Any:
        call = super().aggregate  # type: ignore[misc]
        return call(*args) if self.observer.busy else self.observer.aggregate(call, *args)


def wrap_method(method: Any, observer: Observer) -> Any:
    """Copy a method into a subclass that passes every call to an observer, also on a graph."""
    kind = type(method)
    base = _ObservedServer if method.traits.is_server_method else _ObservedPeer
    wrapped = copy(method)
    object.__setattr__(wrapped, "__class__", type(kind.__name__, (base, kind), {"observer": observer}))
    return wrapped
