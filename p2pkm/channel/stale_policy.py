"""What becomes of tables that faults keep from being replaced, as a value and as text."""

from dataclasses import dataclass

from p2pkm.channel.fault_trace import LONGEST
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import read_value
from p2pkm.core.validation import check_integer

_KEPT = 8  # rounds


@dataclass(frozen=True)
class StalePolicy:
    """Outdated tables are used for at most `age` rounds more; made by ``StalePolicy.keep(age=8)`` or ``.drop()``.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.StalePolicy.of("keep:age=3") == p2pkm.StalePolicy.keep(age=3)
    True
    """

    age: int

    def __str__(self) -> str:
        """Return the text of the command line: ``keep``, ``keep:age=3`` or ``drop``."""
        return "drop" if self.age == 0 else "keep" if self.age == _KEPT else f"keep:age={self.age}"

    @classmethod
    def of(cls, given: "StalePolicy | str | None") -> "StalePolicy | None":
        """Return the value of a text; a value and None stay as they are, see `p2pkm.core.spec.read_value`."""
        return None if given is None else read_value(StalePolicy, given, _POLICIES, "stale policy")

    @classmethod
    def keep(cls, *, age: int = _KEPT) -> "StalePolicy":
        """Go on with the table that was received last, for at most so many rounds."""
        check_integer(age, 1, "stale policy keep:age")
        if age > LONGEST:
            raise ExperimentError(f"stale policy keep:age is {age}; expected at most {LONGEST} rounds")
        return cls(age)

    @classmethod
    def drop(cls) -> "StalePolicy":
        """Use what comes in time, and nothing else."""
        return cls(0)


_POLICIES = {"keep": StalePolicy.keep, "drop": StalePolicy.drop}
