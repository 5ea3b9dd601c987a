"""Check of the declarations of a method from another package."""

from dataclasses import fields, is_dataclass
from typing import Any

from p2pkm.core.errors import ExperimentError
from p2pkm.core.protocols import MethodBase, ServerMethodBase
from p2pkm.methods.schedules import SCHEDULES

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
    declared = {*dir(kind), *(field.name for field in fields(kind))} if is_dataclass(kind) else {*dir(kind)}
    required = list(_REQUIRED)
    # A method that overrides `on` is run by the object that `on` returns, which has the other functions.
    if kind.on is MethodBase.on:
        required += _REQUIRED_OF_SERVERS if issubclass(kind, ServerMethodBase) else _REQUIRED_OF_PEERS
    missing = [attribute for attribute in required if attribute not in declared]
    if kind.traits is MethodBase.traits:
        missing.insert(0, "traits")
    if not is_dataclass(kind) or "k" not in declared:
        missing.insert(0, "k (it is a dataclass of its parameters)")
    if missing:
        raise ExperimentError(
            f"algorithm {name!r} ({kind.__module__}:{kind.__qualname__}) lacks {', '.join(missing)}. Add the missing "
            "attributes; docs/tutorial/write-a-method.md has a complete method."
        )
    untyped: Any = kind
    # Where the schedule is a parameter without default the class lacks an attribute of this name.
    schedule = untyped.schedule if "schedule" in dir(untyped) else None
    if isinstance(schedule, str) and schedule.partition("*")[0] not in SCHEDULES:
        raise ExperimentError(
            f"algorithm {name!r}: schedule is {schedule!r}; expected one of {', '.join(SCHEDULES)}, or jacobi*T "
            "for T turns per round"
        )
    return kind
