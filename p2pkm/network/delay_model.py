"""How late messages are: a clock or a fault model answers one question after every exchange."""

from typing import NamedTuple, Protocol

from p2pkm.core.batch import Integers, Mask


class SentTables(NamedTuple):
    """What a rank knows of an exchange.

    Attributes
    ----------
    rows : int64[s]
        Rows that every own device, and every neighbor on another rank, has just sent; -1: silent.
    row_bytes : int
        Counted bytes of a row.
    over : bool[e] or None
        The own edges over which something could come, None: all.
    """

    rows: Integers
    row_bytes: int
    over: Mask | None


class ReceivedTables(NamedTuple):
    """Which table each own edge receives.

    Attributes
    ----------
    ages : int64[e]
        How many tables its sender has sent since, over whatever edges: 0: none, it is the newest; at most the bound;
        -1: nothing has come yet.
    fresh : bool[e]
        Whether it is to be taken as one that came in this exchange; what has not come is never fresh.
    """

    ages: Integers
    fresh: Mask


class DelayModel(Protocol):
    """Decides how late messages are; every rank asks it alike, and it may ask the network to agree with the others."""

    @property
    def bound(self) -> int:
        """Return the largest age there is: so many tables of each sender are kept beside its newest one."""

    def receive(self, tables: SentTables) -> ReceivedTables:
        """Return what is received after an exchange; called once in each, the opening included."""
