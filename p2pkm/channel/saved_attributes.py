"""State of a transform between two rounds: its attributes, saved without any code of the transform.

What `__init__` assigns are parameters; what is assigned later is state. So no transform can forget to save a part.
"""

from typing import Any

import numpy as np

from p2pkm.channel.transform import Transform
from p2pkm.core.batch import Devices
from p2pkm.core.errors import ContractError
from p2pkm.core.states import unnamed

_PLAIN = (int, float, str, bool, type(None), np.generic)
_MUTABLE = (list, dict, set, bytearray)
# First words of names whose first axis is neither devices nor edges, see `p2pkm.engine.state_tree`.
_OTHER_AXES = ("store", "arcs", "root")


class SavedAttributes:
    """Attributes of a transform for checkpoints; implements `p2pkm.core.states.Checkpointable`.

    Arrays that `__init__` assigned become read-only, because a change in place would not be saved.

    Parameters
    ----------
    transform : Transform
        As built, before its first stage.

    Raises
    ------
    ContractError
        If `__init__` assigns a list, dict or set, whose changes could not be noticed.
    """

    def __init__(self, transform: Transform) -> None:
        self._transform = transform
        for name, value in vars(transform).items():
            if name in transform.prepared:
                continue
            if isinstance(value, _MUTABLE):
                self._refuse(name, value, "__init__ assigns parameters only: use a tuple, or assign it in start")
            if isinstance(value, np.ndarray):
                read_only = value.view()
                read_only.flags.writeable = False
                object.__setattr__(transform, name, read_only)
        self._parameters = dict(vars(transform))
        # Devices and edges of the batch, once they are known.
        self._counts: tuple[int, int] | None = None

    def attach(self, devices: Devices) -> None:
        """Check from now on that arrays have one row per device of this batch, or per edge."""
        self._counts = len(devices), len(devices.indices)

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two rounds; arrays have one row per local device."""
        saved: dict[str, Any] = {}
        for name, value in vars(self._transform).items():
            if name in self._transform.prepared or self._is_parameter(name, value):
                continue
            key = _to_key(name)
            if key in saved:
                self._refuse(name, value, f"another attribute is saved as {key!r}, too: rename one of them")
            saved[key] = value.snapshot() if _saves_itself(value) else self._check(name, value)
        return saved

    def restore(self, state: dict[str, Any]) -> None:
        """Assign the saved attributes, once the stage in which they were saved has begun."""
        names = {_to_key(name): name for name in vars(self._transform)}
        for key, value in state.items():
            name = names.get(key, "_" * (len(key) - len(key.rstrip("_"))) + key.rstrip("_"))
            current: Any = getattr(self._transform, name, None)
            if _saves_itself(current):
                current.restore(value)
            else:
                object.__setattr__(self._transform, name, value)

    def _is_parameter(self, name: str, value: Any) -> bool:
        """Return whether an attribute is as `__init__` left it; numbers are saved anyway, the same on every rank."""
        is_unchanged = name in self._parameters and self._parameters[name] is value
        return is_unchanged and not isinstance(value, _PLAIN) and not _saves_itself(value)

    def _check(self, name: str, value: Any) -> Any:
        """Return the value of an attribute, if a checkpoint can hold it."""
        if isinstance(value, np.ndarray):
            if value.dtype == object or not value.ndim:
                self._refuse(name, value, "use an array of numbers with one row per device")
            self._check_rows(name, len(value))
            return value
        is_state = "_fields" in vars(type(value)) and not unnamed(value)
        if not isinstance(value, (*_PLAIN, dict)) and not is_state:
            self._refuse(
                name,
                value,
                "use arrays, numbers or text, or, if start and begin compute it again after a resume, add its name to "
                "`prepared`",
            )
        return value

    def _check_rows(self, name: str, rows: int) -> None:
        """Check the first axis of an array: devices, or edges if its name begins with ``edge_``."""
        first = name.lstrip("_").partition("_")[0]
        if self._counts is None or first in _OTHER_AXES:
            return
        axis, expected = ("edge", self._counts[1]) if first == "edge" else ("device", self._counts[0])
        if rows != expected:
            raise ContractError(
                f"attribute {name} of transform {self._transform.name} has {rows} rows; expected {expected}, one for "
                f"each {axis} of the batch. If start or begin compute it again after a resume, add its name to "
                "`prepared`. See docs/howto/add-a-transform.md"
            )

    def _refuse(self, name: str, value: Any, advice: str) -> None:
        raise ContractError(
            f"attribute {name} of transform {self._transform.name} is a {type(value).__name__}, whose changes a "
            f"checkpoint cannot hold; {advice}. See docs/howto/add-a-transform.md"
        )


def _to_key(name: str) -> str:
    """Return the name in checkpoints, with leading underscores at the end: there the first word names the axis."""
    stripped = name.lstrip("_")
    return stripped + "_" * (len(name) - len(stripped))


def _saves_itself(value: Any) -> bool:
    return hasattr(value, "snapshot") and hasattr(value, "restore")
