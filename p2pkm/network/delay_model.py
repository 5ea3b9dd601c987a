"""Interface of delay models: which table each edge receives after an exchange."""

from typing import NamedTuple, Protocol

from p2pkm.core.batch import Integers, Mask


class SentTables(NamedTuple):
    """Tables that were sent in an exchange, as known to one rank.

    Attributes
    ----------
    rows : int64[s]
        Rows sent in this exchange by every local device, then by every halo device; -1: silent.
    row_bytes : int
        Counted bytes of a row.
    open_edges : bool[e] or None
        Edges over which a table could arrive; None: all.
    """

    rows: Integers
    row_bytes: int
    open_edges: Mask | None


class ReceivedTables(NamedTuple):
    """Table that each edge receives.

    Attributes
    ----------
    ages : int64[e]
        Number of newer tables of the same sender, over any edge: 0 for the newest table, at most `DelayModel.bound`;
        -1: none received yet.
    fresh : bool[e]
        Whether the table counts as received in this exchange; False if none was received yet.
    """

    ages: Integers
    fresh: Mask


class DelayModel(Protocol):
    """Model of message delays. All ranks call it in the same exchanges; it may use collective operations."""

    @property
    def bound(self) -> int:
        """Largest age of a received table: number of older tables that are stored for each sender."""

    def receive(self, tables: SentTables) -> ReceivedTables:
        """Determine the received tables of an exchange; called once per exchange, including the initial one."""
