"""Variables outside of an extension that its functions read: a change of one is a state that no checkpoint contains."""

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np

_CONTAINERS = (list, dict, set, bytearray, np.ndarray)


def hash_outer(kind: type) -> dict[str, str]:
    """Hash the content of lists, dicts, sets and arrays that the functions of a class read from outside, by name.

    Variables of its module, of functions around it and of the class itself. Functions of the module that they call are
    searched, too. Those of this package are tested, and left out.
    """
    import joblib

    saved = dict[str, str]()
    for name, value in _list_outer(kind):
        # A variable that cannot be pickled cannot be compared.
        try:
            saved[name] = str(joblib.hash(value))
        except Exception:
            continue
    return saved


def find_written(kind: type, saved: dict[str, str]) -> str:
    """Return the name of the first variable whose content is not that of `saved`, from `hash_outer`; "" if none is."""
    now = hash_outer(kind)
    return next((name for name, content in saved.items() if now.get(name, content) != content), "")


def _list_outer(kind: type) -> Iterator[tuple[str, Any]]:
    searched = set[FunctionType]()
    for base in kind.__mro__:
        if base is object or base.__module__.startswith("p2pkm."):
            continue
        for name, value in vars(base).items():
            if isinstance(value, _CONTAINERS) and not name.startswith("__"):
                yield f"{base.__name__}.{name}", value
            function = value
            if isinstance(value, property):
                function = value.fget
            elif isinstance(value, (classmethod, staticmethod)):
                function = value.__func__
            if isinstance(function, FunctionType):
                yield from _search(function, searched)


def _search(function: FunctionType, searched: set[FunctionType]) -> Iterator[tuple[str, Any]]:
    """Yield the containers that a function reads from outside, and those of functions of its module that it calls."""
    if function in searched:
        return
    searched.add(function)
    try:
        outer = inspect.getclosurevars(function)
    except ValueError:
        # A variable of the function around it has no value yet.
        return
    for name, value in [*outer.globals.items(), *outer.nonlocals.items()]:
        if isinstance(value, _CONTAINERS):
            yield name, value
        elif isinstance(value, FunctionType) and value.__module__ == function.__module__:
            yield from _search(value, searched)
