"""Wrong calls: errors that suggest the nearest known keyword, as the command line does for options, or show a call."""

import inspect
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import suggest
from p2pkm.core.units import count

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")


class UnknownKeywordError(ExperimentError, TypeError):
    """Keyword argument that a function does not have; also a TypeError, as for other functions of Python."""


class WrongCallError(ExperimentError, TypeError):
    """Call with too many or too few arguments; also a TypeError, as for other functions of Python."""


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


def show_call(example: str) -> Callable[[Callable[Parameters, Value]], Callable[Parameters, Value]]:
    """Decorate a function, so that missing and surplus positional arguments are a `WrongCallError`.

    Parameters
    ----------
    example : str
        Call that works, which the message shows.
    """

    def decorate(function: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
        parameters = inspect.signature(function).parameters.values()
        names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        required = [one.name for one in parameters if one.name in names and one.default is one.empty]

        @wraps(function)
        def call(*args: Parameters.args, **options: Parameters.kwargs) -> Value:
            fault = _find_fault(names, required, len(args), options)
            if fault:
                raise WrongCallError(f"{function.__name__} {fault}. A call that works: {example}")
            return function(*args, **options)

        return call

    return decorate


def _find_fault(names: list[str], required: list[str], given: int, options: Iterable[str]) -> str:
    """Describe why a function with these positional parameters cannot be called; empty if it can."""
    if given > len(names):
        known = f"at most {len(names)} ({', '.join(names)}), and names for all others" if names else "names for all"
        return f"received {count(given, 'argument')} without a name; expected {known}"
    twice = [name for name in names[:given] if name in options]
    if twice:
        return f"received {twice[0]} twice, without and with its name; expected it once"
    missing = [name for name in required if name not in names[:given] and name not in options]
    return f"lacks {', '.join(missing)}" if missing else ""
