"""Registry of the states that a checkpoint can hold; names are independent of module and class names."""

import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

_NAME = re.compile(r"[a-z0-9]+([-:][a-z0-9]+)*")
_Kind = TypeVar("_Kind", bound=type)
_KINDS: dict[str, type] = {}
_NAMES: dict[type, str] = {}


class Checkpointable(Protocol):
    """Object that exists for a whole run and is part of its checkpoints, as named arrays and plain values."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two rounds."""

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a snapshot; called after the stage in which it was taken has been opened."""


def register(name: str) -> Callable[[_Kind], _Kind]:
    """Register a NamedTuple as a state of a method, or as a part of one, for checkpoints (class decorator).

    A checkpoint refers to states by these names only and never imports a module: the method of the run registers its
    states when it is imported. A plug-in registers the states of its methods in the module of the entry point.

    Parameters
    ----------
    name : str
        Lower-case letters, digits, hyphens and colons. For a plug-in: the name of the entry point, followed by a colon
        and a word if there are several. A changed name makes existing checkpoints unusable.

    Raises
    ------
    ValueError
        If the name is invalid or belongs to another state.
    TypeError
        If the class is not a NamedTuple.
    """

    def add(kind: _Kind) -> _Kind:
        registered = _KINDS.get(name)
        if not _NAME.fullmatch(name):
            raise ValueError(f"name of a state is {name!r}; expected lower-case letters, digits, hyphens and colons")
        if not (issubclass(kind, tuple) and "_fields" in vars(kind)):
            raise TypeError(f"state {name!r} is the class {kind.__qualname__}; expected a NamedTuple")
        # A reloaded module registers its classes again under the same names.
        if registered is not None and _location(registered) != _location(kind):
            raise ValueError(
                f"state {name!r} is already {registered.__qualname__} of {registered.__module__}. Use another name"
            )
        _KINDS[name] = kind
        _NAMES[kind] = name
        return kind

    return add


OPTIONAL = ("oscillating", "edge_alpha", "edge_estimated", "edge_limit", "edge_weight", "held", "coupling",
            "shares", "chosen", "group", "derived")  # fmt: skip


def optional(state: Any, name: str, default: Any = None) -> Any:
    """Return an optional field of a state, or the default if the state lacks it.

    Parameters
    ----------
    state : NamedTuple or None
        State of a method or stage.
    name : str
        One of `OPTIONAL`, see `p2pkm.core.protocols.State`.
    """
    if name not in OPTIONAL:
        raise ValueError(f"optional field of a state is {name!r}; expected one of {', '.join(OPTIONAL)}")
    fields: tuple[str, ...] = () if state is None else state._fields
    return state[fields.index(name)] if name in fields else default


def name_of(kind: type) -> str:
    """Return the name of a registered state class."""
    return _NAMES[kind]


def find(name: str) -> Any:
    """Return the state class of this name, None if it is not registered."""
    return _KINDS.get(name)


def unnamed(tree: Any) -> list[str]:
    """List the classes of unregistered NamedTuples in a tree of NamedTuples and dicts."""
    parts: Any
    names: set[str] = set()
    if isinstance(tree, dict):
        parts = tree.values()
    elif isinstance(tree, tuple) and "_fields" in vars(type(tree)):
        parts = tree
        if type(tree) not in _NAMES:
            names = {f"{type(tree).__module__}.{type(tree).__qualname__}"}
    else:
        return []
    return sorted(names.union(*map(unnamed, parts)))


def _location(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
