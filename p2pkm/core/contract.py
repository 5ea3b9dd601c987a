"""Shapes and types that the functions of a method must return: checked by `check_method`, and in runs of plug-ins."""

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

_OWN = "p2pkm."  # modules whose methods are covered by tests and not checked in every turn


def refuse(function: str, seen: str, expected: str) -> None:
    """Reject what a function has returned.

    Raises
    ------
    ContractError
        Always.
    """
    raise ContractError(f"{function} returned {seen}; expected {expected}")


def expect(function: str, name: str, array: Any, shape: tuple[int | None, ...], kind: Any) -> None:
    """Reject an array of another shape or type; None: any length."""
    words = f"{kind.__name__}[{', '.join('any' if one is None else str(one) for one in shape)}]"
    if not isinstance(array, np.ndarray):
        refuse(function, f"{name} as {type(array).__name__}", f"a NumPy array, {words}")
    fits = array.ndim == len(shape) and all(b in (None, a) for a, b in zip(array.shape, shape, strict=True))
    if not fits or not np.issubdtype(array.dtype, kind):
        refuse(function, f"{name} of {array.dtype} and shape {array.shape}", words)


def expect_fields(function: str, thing: Any, *names: str) -> None:
    """Reject what is not a NamedTuple with these fields."""
    if not set(names) <= set(list_fields(thing)):
        refuse(function, type(thing).__name__, f"a NamedTuple with the fields {', '.join(names)}")


def list_fields(tree: Any) -> tuple[str, ...]:
    """Return the names of the fields of a NamedTuple, none of anything else."""
    return tuple(tree._fields) if "_fields" in vars(type(tree)) else ()


def check_state(function: str, state: Any, n: int, k: int | None, d: int | None) -> None:
    """Check the centroids of a state and which devices have converged."""
    expect_fields(function, state, "centroids", "converged")
    expect(function, "centroids", state.centroids, (n, k, d), np.float64)
    expect(function, "converged", state.converged, (n,), np.bool_)


def check_rows(function: str, rows: Any, n: int, room: int, least: int) -> None:
    """Check how many rows every table has."""
    expect(function, "rows", rows, (n,), np.integer)
    if ((rows < least) | (rows > room)).any():
        refuse(function, f"rows {rows.min()} to {rows.max()}", f"{least} to {room}, the rows of its tables")


def check_messages(messages: Any, devices: Devices) -> None:
    """Check what devices send."""
    if isinstance(messages, SparseMessages):
        _check_sparse(messages, devices)
    elif isinstance(messages, DenseMessages):
        _check_dense(messages, devices)
    else:
        refuse("message", type(messages).__name__, "DenseMessages or SparseMessages")


def _check_dense(messages: DenseMessages, devices: Devices) -> None:
    n = len(devices)
    expect("message", "values", messages.values, (n, None, None), np.floating)
    check_rows("message", messages.rows, n, messages.values.shape[1], least=-1)
    if messages.edges is not None:
        expect("message", "edges", messages.edges, (len(devices.indices),), np.bool_)
    if messages.wire is not None:
        expect("message", "wire", messages.wire, (n,), np.integer)
    loud = np.flatnonzero((messages.rows >= 0) & ~devices.active_devices)
    if len(loud):
        refuse("message", f"a table of device {loud[0]}, which is not active in this turn", "rows of -1 there")


def _check_sparse(messages: SparseMessages, devices: Devices) -> None:
    n, who, edges = len(devices), messages.who, messages.edges
    expect("message", "who", who, (None,), np.integer)
    expect("message", "edges", edges, (None,), np.integer)
    if not _ascends(who, n):
        refuse("message", f"who {who}", f"positions of devices, ascending, below {n}")
    if not _ascends(edges, len(devices.indices)) or not np.isin(devices.sources[edges], who).all():
        refuse("message", f"edges {edges}", "own edges, ascending, each of which leads from one of who")
    if len(messages.tables.rows) != len(who):
        refuse("message", f"{len(messages.tables.rows)} tables", f"{len(who)}, one for each of who")


def _ascends(places: Integers, most: int) -> bool:
    return bool((np.diff(places) > 0).all() and (places >= 0).all() and (places < most).all())


def check_report(report: Any, n: int, d: int) -> None:
    """Check what clients send to a server."""
    expect_fields("report", report, "values", "rows", "local")
    expect("report", "values", report.values, (n, None, None), np.float64)
    expect("report", "local", report.local, (n, None, d), np.float64)
    check_rows("report", report.rows, n, report.values.shape[1], least=0)


def check_model(centroids: Any, k: int, d: int) -> None:
    """Check what a server finds."""
    expect("aggregate", "the centroids", centroids, (None, d), np.float64)
    if len(centroids) > k:
        refuse("aggregate", f"{len(centroids)} centroids", f"at most k = {k}")


def locate(call: Any) -> str:
    """Return file and line of a function or of a method of an object."""
    code = inspect.unwrap(call).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


class _GuardedPeer:
    """The functions of a method, each checked; a parent before the method's own class."""

    any_shape: bool

    def initial_state(self, devices: Devices, start: Any) -> Any:
        call = super().initial_state  # type: ignore[misc]
        try:
            return _check_call(self, call, (devices, start), lambda state: self._check("initial_state", state, devices))
        except AttributeError as error:
            if start is not None or "'NoneType'" not in str(error):
                raise
            raise ContractError(
                f"{type(self).__name__}.initial_state reads a start, but there is none: the traits of the method have "
                "init=None. Declare one, such as MethodTraits(init=Init.of('global')), or start from the devices' "
                f"points. See {locate(call)}"
            ) from error

    def message(self, state: Any, devices: Devices) -> Any:
        call = super().message  # type: ignore[misc]
        return _check_call(self, call, (state, devices), lambda messages: check_messages(messages, devices))

    def update(self, state: Any, inbox: Any, devices: Devices) -> Any:
        call = super().update  # type: ignore[misc]
        return _check_call(self, call, (state, inbox, devices), lambda after: self._check("update", after, devices))

    def _check(self, function: str, state: Any, devices: Devices) -> None:
        method: Any = self
        shape = (None, None) if self.any_shape else (method.k, devices.d)
        check_state(function, state, len(devices), *shape)


class _GuardedServer:
    """The functions of a method with a server, each checked."""

    any_shape: bool

    def report(self, clients: Devices, model: Any) -> Any:
        call = super().report  # type: ignore[misc]
        return _check_call(self, call, (clients, model), lambda report: check_report(report, len(clients), clients.d))

    def aggregate(self, hub: Devices, tables: Any, model: Any) -> Any:
        call, method = super().aggregate, cast(Any, self)  # type: ignore[misc]
        return _check_call(self, call, (hub, tables, model), lambda found: check_model(found, method.k, hub.d))


def _check_call(method: Any, call: Callable[..., Any], given: tuple[Any, ...], check: Callable[[Any], None]) -> Any:
    """Return what a function of a method returns, if a check lets it pass."""
    found = call(*given)
    try:
        check(found)
    except ContractError as error:
        name = type(method).__name__
        raise ContractError(
            f"{name}.{error}. See {locate(call)}; p2pkm.check_method({name}) makes all checks"
        ) from None
    return found


def guard(method: Any, *, any_shape: bool) -> Any:
    """Return a method whose functions are checked in every call, if it is of another package; else the method itself.

    Parameters
    ----------
    method : Algorithm
        As the loop runs it: of a server method the star around it.
    any_shape : bool
        Whether centroids may have any shape: those of an initialization, or of features that are derived from points.
    """
    if isinstance(method, OnGraph):
        inner = guard(method.method, any_shape=any_shape)
        method = method if inner is method.method else replace(method, method=inner)
    kind = type(method)
    if kind.__module__.startswith(_OWN):
        return method
    guarded = copy(method)
    base = _GuardedServer if method.traits.is_server_method else _GuardedPeer
    object.__setattr__(guarded, "__class__", type(kind.__name__, (base, kind), {"any_shape": any_shape}))
    return guarded
