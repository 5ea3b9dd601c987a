"""What was sent: logical messages and bytes, the same on every placement."""

from typing import NamedTuple

import numpy as np

from p2pkm.devices import Integers, Mask
from p2pkm.mail import Delivery, Letters, Mail


class Exchange(NamedTuple):
    """Who said how many rows in one exchange.

    Attributes
    ----------
    stage, turn : int
        Stage, and number of the exchange in it; 0 is the opening.
    rows : int64[n] or int64[s]
        -1 = silent.
    row_bytes : int
        Counted bytes of a row.
    edges : bool[e] or int64[f] or None
        The own directed edges that it went over, None: all.
    who : int64[s] or None
        Positions of those that `rows` is about, None: all.
    """

    stage: int
    turn: int
    rows: Integers
    row_bytes: int
    edges: Mask | Integers | None
    who: Integers | None = None

    @property
    def said(self) -> tuple[Integers, Integers]:
        """Return the positions of those who spoke, and how many rows each of them said."""
        if self.who is not None:
            return self.who, self.rows
        who = np.flatnonzero(self.rows >= 0)
        return who, self.rows[who]


class Ledger:
    """Count what devices say: one message per directed edge and exchange, rows x counted columns x 8 bytes."""

    def __init__(self, indptr: Integers) -> None:
        self._degrees = np.diff(indptr)
        self._senders = np.zeros((3, len(self._degrees)), np.int64)  # messages, rows, bytes over all of its edges each
        self._edges = np.zeros((3, int(indptr[-1])), np.int64)  # the same for what went over some edges only
        self._noted: list[tuple[int, int, Integers, int, Mask | None]] = []
        self._exchanges: list[Exchange] = []

    def note(self, mail: Mail, edges: Mask | None, stage: int, turn: int) -> None:
        """Write down one exchange over the own edges, bool[e], or all; it is added up when somebody asks."""
        self._noted.append((stage, turn, mail.rows, 8 * (mail.values.shape[2] - mail.header), edges))

    def enter(self, letters: Letters, said: Delivery, at: tuple[int, int]) -> None:
        """Add up one exchange of letters; said: which table goes over which own edge; at: stage and turn."""
        self._count()
        rows, row_bytes = said.tables.rows, 8 * (said.tables.values.shape[1] - letters.header)
        self._edges[:, said.edges] += np.stack((np.ones_like(rows), rows, rows * row_bytes))
        self._exchanges.append(Exchange(*at, letters.tables.rows, row_bytes, said.edges, letters.who))

    @property
    def exchanges(self) -> list[Exchange]:
        """Return all exchanges so far."""
        self._count()
        return self._exchanges

    @property
    def totals(self) -> tuple[int, int]:
        """Return messages and bytes that the batch has sent so far."""
        self._count()
        sent = (self._senders * self._degrees).sum(axis=1) + self._edges.sum(axis=1)
        return int(sent[0]), int(sent[2])

    @property
    def edges(self) -> Integers:
        """Return messages, rows and bytes over each own directed edge, int64[e, 3]."""
        self._count()
        return (self._edges + np.repeat(self._senders, self._degrees, axis=1)).T

    def _count(self) -> None:
        """Add up the exchanges since the last time."""
        for stage, turn, rows, row_bytes, edges in self._noted:
            spoken = np.maximum(rows, 0)
            said = np.stack((rows >= 0, spoken, spoken * row_bytes))
            if edges is None:
                self._senders += said
            else:
                self._edges += np.repeat(said, self._degrees, axis=1) * edges
            self._exchanges.append(Exchange(stage, turn, rows, row_bytes, edges))
        self._noted.clear()
