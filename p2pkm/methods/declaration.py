"""Check of the declarations of a method from another package."""

import re
from dataclasses import fields, is_dataclass
from inspect import isabstract
from typing import Any

from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.protocols import MethodBase, ServerMethodBase
from p2pkm.methods.schedules import SCHEDULES

_NAME = re.compile(r"[\w-]+")
_REQUIRED = ("name", "default_rounds", "schedule")
_REQUIRED_OF_PEERS = ("initial_state", "message", "update")
_REQUIRED_OF_SERVERS = ("report", "aggregate")


def check_declaration(kind: Any, name: str) -> Any:
    """Return the class of a method from another package after a check of its declarations.

    Parameters
    ----------
    kind : object
        The object behind the entry point.
    name : str
        Name of the method on the command line.

    Raises
    ------
    ExperimentError
        If `kind` does not inherit from the base class, or lacks traits or another required attribute.
    """
    bases = "p2pkm.core.protocols.MethodBase, or of ServerMethodBase if it has a server"
    if not (isinstance(kind, type) and issubclass(kind, MethodBase)):
        raise ExperimentError(f"algorithm {name!r} is {kind!r}; expected a subclass of {bases}")
    if kind.__module__.startswith("p2pkm."):
        # Tests of all methods cover those of this package.
        return kind
    declared = {*dir(kind), *(field.name for field in fields(kind))} if is_dataclass(kind) else {*dir(kind)}
    required = list(_REQUIRED)
    # A method that overrides `on` is run by the object that `on` returns, which has the other functions.
    if kind.on is MethodBase.on:
        required += _REQUIRED_OF_SERVERS if issubclass(kind, ServerMethodBase) else _REQUIRED_OF_PEERS
    missing = [attribute for attribute in required if attribute not in declared]
    untyped: Any = kind
    # Functions that a base class, such as `TableMethod`, leaves to its subclasses.
    if isabstract(kind):
        missing += sorted(untyped.__abstractmethods__)
    if kind.traits is MethodBase.traits:
        missing.insert(0, "traits")
    if not is_dataclass(kind) or "k" not in declared:
        missing.insert(0, "k (it is a dataclass of its parameters)")
    if missing:
        raise ExperimentError(
            f"algorithm {name!r} ({kind.__module__}:{kind.__qualname__}) lacks {', '.join(missing)}. Add the missing "
            "attributes; docs/tutorial/write-a-method.md has a complete method."
        )
    # The class lacks those of them that are a parameter without default; a property is read in the run.
    known = {key: getattr(kind, key) for key in _REQUIRED if key in dir(kind)}
    called, rounds, schedule = (known.get(key) for key in _REQUIRED)
    if isinstance(called, str) and not _NAME.fullmatch(called):
        raise ExperimentError(
            f"algorithm {name!r} ({kind.__module__}:{kind.__qualname__}): name is {called!r}; expected letters, digits "
            "and hyphens, because specs such as NAME:key=value contain it"
        )
    if isinstance(rounds, (str, float)):
        raise ExperimentError(f"algorithm {name!r}: default_rounds is {rounds!r}; expected an integer")
    _check_traits(kind, name)
    if isinstance(schedule, str) and schedule.partition("*")[0] not in SCHEDULES:
        raise ExperimentError(
            f"algorithm {name!r}: schedule is {schedule!r}; expected one of {', '.join(SCHEDULES)}, or jacobi*T "
            "for T turns per round"
        )
    return kind


def _check_traits(kind: Any, name: str) -> None:
    """Read the traits of a method with 3 clusters, so that traits without a message content are found before a run."""
    try:
        method = kind(3)
    except Exception:
        # Parameters without a default are missing, or 3 clusters are not possible: the run reads the traits.
        return
    where = f"algorithm {name!r} ({kind.__module__}:{kind.__qualname__})"
    try:
        traits = method.traits
    except ContractError as error:
        raise ExperimentError(f"{where}: {error}") from error
    has_server = issubclass(kind, ServerMethodBase)
    # A method that overrides `on` is run by the object that `on` returns.
    if kind.on is MethodBase.on and traits.is_server_method != has_server:
        base, expected = ("ServerMethodBase", "ServerTraits") if has_server else ("MethodBase", "MethodTraits")
        raise ExperimentError(
            f"{where} is a subclass of {base}, but its traits are {type(traits).__name__}; expected {expected}. Use "
            f"p2pkm.core.traits.{expected}, or inherit from the other base class"
        )
