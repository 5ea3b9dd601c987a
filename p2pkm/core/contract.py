"""Checks of the shapes and types that functions of a method return, for `check_method` and for runs of plug-ins."""

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, cast

import numpy as np

from p2pkm.core.batch import Devices, Integers
from p2pkm.core.errors import ContractError
from p2pkm.core.messages import DenseMessages, SparseMessages
from p2pkm.core.protocols import OnGraph
from p2pkm.core.traits import MessageContent

# Methods of this package are covered by tests; those of other packages are checked in every call.
_BUILTIN = "p2pkm."


def refuse(function: str, seen: str, expected: str) -> None:
    """Reject the result of a function.

    Raises
    ------
    ContractError
        Always.
    """
    raise ContractError(f"{function} returned {seen}; expected {expected}")


def expect(function: str, name: str, array: Any, shape: tuple[int | None, ...], kind: Any) -> None:
    """Check shape and type of an array; a length of None matches any."""
    words = f"{kind.__name__}[{', '.join('any' if length is None else str(length) for length in shape)}]"
    if not isinstance(array, np.ndarray):
        refuse(function, f"{name} as {type(array).__name__}", f"a NumPy array, {words}")
    fits = array.ndim == len(shape) and all(b in (None, a) for a, b in zip(array.shape, shape, strict=True))
    if not fits or not np.issubdtype(array.dtype, kind):
        refuse(function, f"{name} of {array.dtype} and shape {array.shape}", words)


def expect_fields(function: str, thing: Any, *names: str) -> None:
    """Check that a result is a NamedTuple with these fields."""
    if not set(names) <= set(list_fields(thing)):
        refuse(function, type(thing).__name__, f"a NamedTuple with the fields {', '.join(names)}")


def list_fields(tree: Any) -> tuple[str, ...]:
    """Return the field names of a NamedTuple, none for other types."""
    return tuple(tree._fields) if "_fields" in vars(type(tree)) else ()


def check_state(function: str, state: Any, n: int, k: int | None, d: int | None) -> None:
    """Check `centroids` and `converged` of a state."""
    expect_fields(function, state, "centroids", "converged")
    expect(function, "centroids", state.centroids, (n, k, d), np.float64)
    expect(function, "converged", state.converged, (n,), np.bool_)


def check_rows(function: str, rows: Any, n: int, room: int, least: int) -> None:
    """Check the number of rows of every table: `least` to `room`."""
    expect(function, "rows", rows, (n,), np.integer)
    if ((rows < least) | (rows > room)).any():
        refuse(function, f"rows {rows.min()} to {rows.max()}", f"{least} to {room}, the rows of its tables")


def check_messages(messages: Any, devices: Devices) -> None:
    """Check the messages of devices."""
    if isinstance(messages, SparseMessages):
        _check_sparse(messages, devices)
    elif isinstance(messages, DenseMessages):
        _check_dense(messages, devices)
    else:
        refuse("message", type(messages).__name__, "DenseMessages or SparseMessages")


def check_transformed(name: str, before: Any, after: Any, devices: Devices) -> None:
    """Check the messages that a transform returns; NaN is accepted where it was in the messages that it received."""
    try:
        check_messages(after, devices)
        if _has_nan(after) and not _has_nan(before):
            _refuse_nan("message")
    except ContractError as error:
        text = str(error).replace("message returned", "outgoing returned", 1)
        raise ContractError(f"{name}: {text}, as in p2pkm.core.messages") from None


def _has_nan(messages: Any) -> bool:
    """Return whether a row that is sent contains NaN."""
    if isinstance(messages, SparseMessages):
        return bool(np.isnan(messages.tables.flat()).any())
    return _have_nan(messages.values, messages.rows)


def _have_nan(values: Any, rows: Integers) -> bool:
    """Return whether the first rows of tables contain NaN."""
    return bool(np.isnan(values[np.arange(values.shape[1]) < rows[:, None]]).any())


def _refuse_nan(function: str) -> None:
    refuse(
        function,
        "tables with NaN in rows that are sent",
        "finite numbers: receivers reject a table with NaN. Check divisions by the number of points, which may be 0",
    )


def _check_dense(messages: DenseMessages, devices: Devices) -> None:
    n = len(devices)
    expect("message", "values", messages.values, (n, None, None), np.floating)
    check_rows("message", messages.rows, n, messages.values.shape[1], least=-1)
    if messages.edges is not None:
        expect("message", "edges", messages.edges, (len(devices.indices),), np.bool_)
    if messages.wire is not None:
        expect("message", "wire", messages.wire, (n,), np.integer)
        if n and messages.wire.min() < 0:
            refuse("message", f"wire {messages.wire.min()}", "encoded bytes of each table, at least 0")
    known = messages.senders
    if known is not None and not np.array_equal(known, np.flatnonzero(messages.rows >= 0)):
        refuse("message", f"senders {known}", "the positions of the devices with at least 0 rows, ascending, or None")
    senders = np.flatnonzero((messages.rows >= 0) & ~devices.active_devices)
    if len(senders):
        refuse("message", f"a table of device {senders[0]}, which is not active in this turn", "-1 rows for it")


def _check_sparse(messages: SparseMessages, devices: Devices) -> None:
    n, senders, edges = len(devices), messages.senders, messages.edges
    expect("message", "senders", senders, (None,), np.integer)
    expect("message", "edges", edges, (None,), np.integer)
    if not _ascends(senders, n):
        refuse("message", f"senders {senders}", f"positions of devices, ascending, below {n}")
    if not _ascends(edges, len(devices.indices)) or not np.isin(devices.sources[edges], senders).all():
        refuse("message", f"edges {edges}", "edges, ascending, whose sources are in senders")
    if len(messages.tables.rows) != len(senders):
        refuse("message", f"{len(messages.tables.rows)} tables", f"{len(senders)}, one for each sender")


def _ascends(places: Integers, most: int) -> bool:
    """Return whether indices are ascending, distinct and in 0 to most - 1."""
    return bool((np.diff(places) > 0).all() and (places >= 0).all() and (places < most).all())


def check_report(report: Any, n: int, d: int) -> None:
    """Check the reports of clients."""
    expect_fields("report", report, "values", "rows", "local")
    expect("report", "values", report.values, (n, None, None), np.float64)
    expect("report", "local", report.local, (n, None, d), np.float64)
    check_rows("report", report.rows, n, report.values.shape[1], least=0)


def check_model(centroids: Any, k: int, d: int) -> None:
    """Check the centroids of a server."""
    expect("aggregate", "the centroids", centroids, (None, d), np.float64)
    if len(centroids) > k:
        refuse("aggregate", f"{len(centroids)} centroids", f"at most k = {k}")


def locate(call: Any) -> str:
    """Return file and line of a function or method, for messages."""
    code = inspect.unwrap(call).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


class _GuardedPeer:
    """Mixin that checks the result of each function of a method; it precedes the class of the method."""

    any_shape: bool

    def initial_state(self, devices: Devices, start: Any) -> Any:
        call = super().initial_state  # type: ignore[misc]
        try:
            return _check_call(self, call, (devices, start), lambda state: self._check("initial_state", state, devices))
        except AttributeError as error:
            if start is not None or "'NoneType'" not in str(error):
                raise
            raise ContractError(
                f"{type(self).__name__}.initial_state uses start, which is None because the traits of the method have "
                "init=None. Declare an initialization, such as MethodTraits(init=Init.of('global')), or start from "
                f"the local points. See {locate(call)}"
            ) from error

    def message(self, state: Any, devices: Devices) -> Any:
        call, method = super().message, cast(Any, self)  # type: ignore[misc]

        def check(messages: Any) -> None:
            check_messages(messages, devices)
            if _sends_numbers(method) and _has_nan(messages):
                _refuse_nan("message")

        return _check_call(self, call, (state, devices), check)

    def update(self, state: Any, inbox: Any, devices: Devices) -> Any:
        call = super().update  # type: ignore[misc]
        return _check_call(self, call, (state, inbox, devices), lambda after: self._check("update", after, devices))

    def _check(self, function: str, state: Any, devices: Devices) -> None:
        method: Any = self
        shape = (None, None) if self.any_shape else (method.k, devices.d)
        check_state(function, state, len(devices), *shape)
        _check_numbers(function, state.centroids)


class _GuardedServer:
    """Mixin that checks the result of each function of a server method."""

    any_shape: bool

    def report(self, clients: Devices, model: Any) -> Any:
        call, method = super().report, cast(Any, self)  # type: ignore[misc]

        def check(report: Any) -> None:
            check_report(report, len(clients), clients.d)
            if _sends_numbers(method) and _have_nan(report.values, report.rows):
                _refuse_nan("report")

        return _check_call(self, call, (clients, model), check)

    def aggregate(self, server: Devices, tables: Any, model: Any) -> Any:
        call, method = super().aggregate, cast(Any, self)  # type: ignore[misc]
        return _check_call(self, call, (server, tables, model), lambda model: self._check(model, method.k, server.d))

    def _check(self, model: Any, k: int, d: int) -> None:
        check_model(model, k, d)
        _check_numbers("aggregate", model)


def _sends_numbers(method: Any) -> bool:
    """Return whether messages contain numbers, and not, for example, masked bits, some of which are a NaN."""
    return method.traits.message_content is not MessageContent.OTHER


def _check_numbers(function: str, centroids: Any) -> None:
    """Reject centroids that are not a number; absent ones are +inf."""
    if np.isnan(centroids).any():
        place = tuple(int(number) for number in np.argwhere(np.isnan(centroids))[0])
        refuse(function, f"centroids with NaN at {list(place)}", "finite numbers, or +inf in all columns if absent")


def _check_call(method: Any, call: Callable[..., Any], args: tuple[Any, ...], check: Callable[[Any], None]) -> Any:
    """Call a function of a method and check its result."""
    result = call(*args)
    try:
        check(result)
    except ContractError as error:
        name = type(method).__name__
        raise ContractError(
            f"{name}.{error}. See {locate(call)}; p2pkm.check_method({name}) makes all checks"
        ) from None
    return result


def guard(method: Any, *, any_shape: bool) -> Any:
    """Return a method whose results are checked in every call; methods of this package are returned unchanged.

    Parameters
    ----------
    method : Algorithm
        Method as run by the loop; for a server method, `star.Star`.
    any_shape : bool
        Whether centroids may have any shape, as in initialization stages and with derived features.
    """
    if isinstance(method, OnGraph):
        inner = guard(method.method, any_shape=any_shape)
        method = method if inner is method.method else replace(method, method=inner)
    kind = type(method)
    if kind.__module__.startswith(_BUILTIN):
        return method
    guarded = copy(method)
    base = _GuardedServer if method.traits.is_server_method else _GuardedPeer
    object.__setattr__(guarded, "__class__", type(kind.__name__, (base, kind), {"any_shape": any_shape}))
    return guarded
