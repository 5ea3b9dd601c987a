"""Unknown keyword arguments: errors that suggest the nearest known one, as the command line does for options."""

import inspect
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import suggest

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


class UnknownKeywordError(ExperimentError, TypeError):
    """Keyword argument that a function does not have; also a TypeError, as for other functions of Python."""


def check_keywords(function: Callable[..., Any], names: Iterable[str], what: str) -> None:
    """Check that a function has parameters of these names.

    Raises
    ------
    UnknownKeywordError
        If it has not; the message suggests the nearest known one.
    """
    known = _list_keywords(function)
    for name in names:
        if known is not None and name not in known:
            raise UnknownKeywordError(f"unknown argument {name!r} of {what}. {suggest(name, known)}")


@cache
def _list_keywords(function: Callable[..., Any]) -> frozenset[str] | None:
    """List the parameters of a function; None: any keyword is accepted."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters) - {"self"}


def suggest_keywords(function: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """Decorate a function, so that an unknown keyword is an `UnknownKeywordError`."""
    what = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def call(*args: Parameters.args, **options: Parameters.kwargs) -> Value:
        check_keywords(function, options, what)
        return function(*args, **options)

    return call
