"""The states that a checkpoint may hold, each under a name of its own that outlives every move of its module."""

import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

_NAME = re.compile(r"[a-z0-9]+([-:][a-z0-9]+)*")
_Kind = TypeVar("_Kind", bound=type)
_KINDS: dict[str, type] = {}
_NAMES: dict[type, str] = {}


class Checkpointable(Protocol):
    """An object that lives as long as a run and is part of its checkpoints, as named arrays and plain values."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two rounds."""

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from a snapshot, once the stage in which it was taken has been opened."""


def register(name: str) -> Callable[[_Kind], _Kind]:
    """Let checkpoints hold a NamedTuple, the state of a method or a part of one; a decorator of its class.

    A checkpoint names nothing else, and nothing is imported for it: the method that a run asks for registers its states
    when it is imported. A plug-in registers those of its methods in the module of the method's entry point.

    Parameters
    ----------
    name : str
        Lower case letters, digits, hyphens and colons. For a plug-in the name of the entry point, followed by a colon
        and a word if there are several. It must stay as it is as long as checkpoints are to be resumed.

    Raises
    ------
    ValueError
        If it is no such name, or that of another state.
    TypeError
        If the class is not a NamedTuple.
    """

    def keep(kind: _Kind) -> _Kind:
        before = _KINDS.get(name)
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a state; expected lower case letters, digits, hyphens and colons")
        if not (issubclass(kind, tuple) and "_fields" in vars(kind)):
            raise TypeError(f"{kind.__qualname__} cannot be the state {name!r}; expected a NamedTuple")
        if before is not None and _place(before) != _place(kind):  # a module that is read again names its own anew
            raise ValueError(f"{name!r} is the state {before.__qualname__} of {before.__module__}; take another name")
        _KINDS[name], _NAMES[kind] = kind, name
        return kind

    return keep


OPTIONAL = ("oscillating", "edge_limit", "edge_weight", "held", "reverted", "rehearsed", "group", "derived")


def optional(state: Any, name: str, default: Any = None) -> Any:
    """Return a field that a state may have, the default if it has none of this name.

    Parameters
    ----------
    state : NamedTuple or None
        The state of a method or stage.
    name : {"oscillating", "edge_limit", "edge_weight", "held", "reverted", "rehearsed", "group", "derived"}
        See `p2pkm.core.protocols.State`.
    """
    if name not in OPTIONAL:
        raise ValueError(f"{name!r} is no optional field of a state; expected one of {', '.join(OPTIONAL)}")
    fields: tuple[str, ...] = () if state is None else state._fields
    return state[fields.index(name)] if name in fields else default


def name_of(kind: type) -> str:
    """Return the name of a state that has one."""
    return _NAMES[kind]


def find(name: str) -> Any:
    """Return the state of this name, None if it is not registered."""
    return _KINDS.get(name)


def unnamed(tree: Any) -> list[str]:
    """Return the classes of the NamedTuples in a tree of them and of dicts that have no name, in words."""
    parts: Any
    if isinstance(tree, dict):
        parts, own = tree.values(), []
    elif isinstance(tree, tuple) and "_fields" in vars(type(tree)):
        parts, own = tree, [] if type(tree) in _NAMES else [f"{type(tree).__module__}.{type(tree).__qualname__}"]
    else:
        return []
    return sorted({*own, *(one for part in parts for one in unnamed(part))})


def _place(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
