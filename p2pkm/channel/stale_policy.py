"""Policy for outdated tables: tables that faults keep from being replaced."""

from dataclasses import dataclass

from p2pkm.channel.fault_trace import LONGEST
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import read_value
from p2pkm.core.validation import check_integer

# Default number of rounds for which an outdated table is used.
_DEFAULT_AGE = 8


@dataclass(frozen=True)
class StalePolicy:
    """Use of outdated tables for at most `age` further rounds; built by ``StalePolicy.keep(age=8)`` or ``.drop()``.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.StalePolicy.of("keep:age=3") == p2pkm.StalePolicy.keep(age=3)
    True
    """

    age: int

    def __str__(self) -> str:
        """Return the text of the command line: ``keep``, ``keep:age=3`` or ``drop``."""
        return "drop" if self.age == 0 else "keep" if self.age == _DEFAULT_AGE else f"keep:age={self.age}"

    @classmethod
    def of(cls, value: "StalePolicy | str | None") -> "StalePolicy | None":
        """Convert a text; a `StalePolicy` and None are returned unchanged, see `p2pkm.core.spec.read_value`."""
        return None if value is None else read_value(StalePolicy, value, _POLICIES, "stale policy")

    @classmethod
    def keep(cls, *, age: int = _DEFAULT_AGE) -> "StalePolicy":
        """Use the table that was received last, for at most `age` rounds."""
        check_integer(age, 1, "stale policy keep:age")
        if age > LONGEST:
            raise ExperimentError(f"stale policy keep:age is {age}; expected at most {LONGEST} (rounds)")
        return cls(age)

    @classmethod
    def drop(cls) -> "StalePolicy":
        """Use only tables that arrive in time."""
        return cls(0)


_POLICIES = {"keep": StalePolicy.keep, "drop": StalePolicy.drop}
