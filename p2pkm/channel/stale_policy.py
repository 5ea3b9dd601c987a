"""Policy for outdated tables: tables that faults keep from being replaced."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from p2pkm.channel.fault_trace import LONGEST
from p2pkm.core.batch import Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.program_function import check_returned, is_function, name_function
from p2pkm.core.program_object import ProgramObject
from p2pkm.core.spec import read_value
from p2pkm.core.validation import check_integer

# Default number of rounds for which an outdated table is used.
_DEFAULT_AGE = 8


@dataclass(frozen=True)
class StalePolicy:
    """Use of outdated tables for at most `age` further rounds; built by ``StalePolicy.keep(age=8)`` or ``.drop()``.

    Attributes
    ----------
    age : int
    rule : callable, optional
        Function ``rule(ages, senders, receivers)`` of int64[e] that returns bool[e]: the outdated tables that are used.
        Ages are rounds since a table became outdated, from 0 to 63; senders and receivers are numbers of devices. It is
        a function of these values alone, and older tables are never used.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.StalePolicy.of("keep:age=3") == p2pkm.StalePolicy.keep(age=3)
    True
    """

    age: int
    rule: Callable[[Integers, Integers, Integers], Any] | None = None

    def __str__(self) -> str:
        """Return the text of the command line: ``keep``, ``keep:age=3`` or ``drop``; of a function its name."""
        if self.rule is not None:
            return name_function(self.rule)
        if self.age == 0:
            return "drop"
        return "keep" if self.age == _DEFAULT_AGE else f"keep:age={self.age}"

    @classmethod
    def of(cls, value: Any) -> "StalePolicy | None":
        """Convert a text or a function; a `StalePolicy` and None are returned unchanged.

        For text see `p2pkm.core.spec.read_value`; a function is the `rule`, also as a `ProgramObject`.
        """
        function = value.value if isinstance(value, ProgramObject) else value
        if is_function(function):
            return cls(LONGEST, function)
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

    def place(self, senders: Integers, receivers: Integers) -> "StalePolicy":
        """Return the policy on the links of a graph: `age` is the largest age, plus 1, at which a table is used.

        Raises
        ------
        ContractError
            If the rule does not return bool[e].
        """
        if self.rule is None:
            return self
        for age in range(LONGEST, 0, -1):
            if self._call(np.full(len(senders), age - 1), senders, receivers).any():
                return StalePolicy(age, self.rule)
        return StalePolicy.drop()

    def is_used(self, ages: Integers, senders: Integers, receivers: Integers) -> Mask:
        """Return which tables are used, bool[e]; ages below 0 are those of tables that are not outdated."""
        used: Mask = ages < self.age
        if self.rule is not None:
            outdated = np.flatnonzero(used & (ages >= 0))
            used[outdated] = self._call(ages[outdated], senders[outdated], receivers[outdated])
        return used

    def _call(self, ages: Integers, senders: Integers, receivers: Integers) -> Mask:
        assert self.rule is not None
        returned = self.rule(ages, senders, receivers)
        used: Mask = check_returned(
            returned, ages.shape, f"stale_policy={self}", "whether each outdated table is used", "bool"
        )
        return used


_POLICIES = {"keep": StalePolicy.keep, "drop": StalePolicy.drop}
