"""What a rank has heard: the tables last said, who spoke, and over which edges it came."""

import numpy as np

from p2pkm.devices import Floats, Mask
from p2pkm.mail import Inbox, Mail
from p2pkm.network.placement import Placement


class Memory:
    """The tables of own devices and ghosts; the same on every kind of network.

    Parameters
    ----------
    placement : Placement
    spare : int
        Rows that every table has beyond the largest one said; a network may let something travel in them.

    Attributes
    ----------
    tables : float64[s, r + spare, w]
        Grows to the largest table of the stage.
    heads : int64[s]
        Rows said in this exchange by every slot, -1 = silent; a network fills in those of the ghosts.
    """

    def __init__(self, placement: Placement, spare: int = 0) -> None:
        self._senders, self._spare = placement.senders, spare
        self._n, slots = len(placement.ids), placement.slots
        self.heads = np.full(slots, -1)
        self._rows = np.full(slots, -1)
        self._slots = np.full(len(self._senders), -1)
        self._complete = False  # whether something has come over every edge
        self._hold(np.zeros((slots, spare, 0)), borrowed=False)

    def say(self, mail: Mail, r: int) -> None:
        """Write down what the own devices say, in tables of at least r rows."""
        n = self._n
        self.heads[:n] = mail.rows
        whole = n == 0 or mail.rows.min() >= 0
        steady = self._own.shape == mail.values.shape and r == mail.values.shape[1]
        if not (whole and steady and not self._borrowed):
            if self._borrow(mail, whole):
                return
            self._fit(mail, r)
        if whole:
            self._own[:, : mail.values.shape[1], : mail.values.shape[2]] = mail.values
        else:
            spoke = mail.rows >= 0
            self._own[spoke, : mail.values.shape[1], : mail.values.shape[2]] = mail.values[spoke]

    def hear(self, flags: Mask | None) -> Inbox:
        """Return what was heard once all heads are known; flags: bool[e], edges over which something came."""
        if self.heads.min(initial=0) >= 0:
            spoke = None
            self._rows[:] = self.heads
        else:
            spoke = self.heads >= 0
            np.copyto(self._rows, self.heads, where=spoke)
        inbox = Inbox(self._readable, self._rows, self._slots, self._senders, spoke, flags)
        if not self._complete:
            np.copyto(self._slots, self._senders, where=inbox.fresh)
            if spoke is None and flags is None:
                self._complete, self._slots = True, self._senders
        return inbox

    def forget(self, edges: Mask) -> None:
        """Take what came over these own edges, bool[e], as never heard."""
        self._complete, self._slots = False, self._slots.copy() if self._complete else self._slots
        self._slots[edges] = -1

    def _borrow(self, mail: Mail, whole: bool) -> bool:
        """Take what all devices say as the tables themselves, if that is possible: nobody writes into a state."""
        _, rows, width = mail.values.shape
        fits = rows >= self.tables.shape[1] and width >= self.tables.shape[2]
        if whole and fits and not self._spare and self._n == len(self.tables):
            self._hold(mail.values, borrowed=True)
            return True
        return False

    def _fit(self, mail: Mail, r: int) -> None:
        """Make tables of one's own that are large enough."""
        slots, rows, columns = self.tables.shape
        height, width = max(r + self._spare, rows), max(mail.values.shape[2], columns)
        if self._borrowed or (height, width) != (rows, columns):
            tables = np.zeros((slots, height, width))
            tables[:, : rows - self._spare, :columns] = self.tables[:, : rows - self._spare]
            self._hold(tables, borrowed=False)

    def _hold(self, tables: Floats, *, borrowed: bool) -> None:
        self.tables, self._borrowed = tables, borrowed
        self._own = tables[: self._n, : tables.shape[1] - self._spare]
        self._readable = tables.view()
        self._readable.flags.writeable = False


def narrow(edges: Mask | None, active: Mask | None) -> Mask | None:
    """Return the own edges that a table goes over, bool[e], or None for all, given those in use."""
    if edges is None or active is None:
        return active if edges is None else edges
    return edges & active
