"""What was sent: logical messages and bytes, the same on every placement."""

from typing import NamedTuple

import numpy as np

from p2pkm.devices import Integers
from p2pkm.mail import Mail


class Exchange(NamedTuple):
    """Who said how many rows in one exchange; -1 = silent."""

    stage: int
    turn: int
    rows: Integers


class Ledger:
    """Count what a batch of devices says: one message per directed edge and exchange, rows x counted columns x 8 bytes.

    Attributes
    ----------
    messages, rows, bytes : int64[e]
        Totals of every own directed edge.
    exchanges : list of Exchange
    """

    def __init__(self, indptr: Integers) -> None:
        self._indptr = indptr
        self._degrees = np.diff(indptr)
        self._senders = np.zeros((3, len(self._degrees)), np.int64)  # messages, rows, bytes over all of its edges each
        self._edges = np.zeros((3, int(indptr[-1])), np.int64)  # the same for what went over some edges only
        self.exchanges: list[Exchange] = []

    def note(self, mail: Mail, stage: int, turn: int) -> None:
        """Count one exchange."""
        spoken = np.maximum(mail.rows, 0)
        said = np.stack((mail.rows >= 0, spoken, spoken * (8 * (mail.values.shape[2] - mail.header))))
        if mail.edges is None:
            self._senders += said
        else:
            self._edges += np.repeat(said, self._degrees, axis=1) * mail.edges
        self.exchanges.append(Exchange(stage, turn, mail.rows))

    @property
    def totals(self) -> tuple[int, int]:
        """Return messages and bytes that the batch has sent so far."""
        sent = (self._senders * self._degrees).sum(axis=1) + self._edges.sum(axis=1)
        return int(sent[0]), int(sent[2])

    @property
    def edges(self) -> Integers:
        """Return messages, rows and bytes over each own directed edge, int64[e, 3]."""
        return (self._edges + np.repeat(self._senders, self._degrees, axis=1)).T
