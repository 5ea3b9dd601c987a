"""What a method from outside the package must declare."""

from dataclasses import fields, is_dataclass
from typing import Any

from p2pkm.core.errors import ExperimentError
from p2pkm.core.protocols import MethodBase, ServerMethodBase
from p2pkm.methods.schedules import SCHEDULES

_EVERY = ("name", "default_rounds", "schedule")
_PLAYED, _SERVED = ("initial_state", "message", "update"), ("report", "aggregate")


def check_declaration(kind: Any, name: str) -> Any:
    """Return the class of a method from outside the package, after a look at what it declares.

    Raises
    ------
    ExperimentError
        If it does not inherit the base of its kind, declares no traits, or lacks something that every method has.
    """
    bases = "p2pkm.core.protocols.MethodBase, or of ServerMethodBase if it has a server"
    if not (isinstance(kind, type) and issubclass(kind, MethodBase)):
        raise ExperimentError(f"algorithm {name!r} is {kind!r}; expected a subclass of {bases}")
    declared = {*dir(kind), *(field.name for field in fields(kind))} if is_dataclass(kind) else {*dir(kind)}
    needs = list(_EVERY)
    if kind.on is MethodBase.on:  # else another class is played
        needs += _SERVED if issubclass(kind, ServerMethodBase) else _PLAYED
    missing = [one for one in needs if one not in declared]
    if kind.traits is MethodBase.traits:
        missing.insert(0, "traits")
    if not is_dataclass(kind) or "k" not in declared:
        missing.insert(0, "k (it is a dataclass of its parameters)")
    if missing:
        raise ExperimentError(
            f"algorithm {name!r} ({kind.__module__}:{kind.__qualname__}) lacks {', '.join(missing)}: docs/tutorial.md "
            "shows what a method gives"
        )
    chosen: Any = kind
    schedule = chosen.schedule if "schedule" in dir(chosen) else None  # a parameter of some methods
    if isinstance(schedule, str) and schedule.partition("*")[0] not in SCHEDULES:
        raise ExperimentError(
            f"algorithm {name!r}: schedule is {schedule!r}; expected one of {', '.join(SCHEDULES)}, or jacobi*T "
            "for T turns a round"
        )
    return kind
