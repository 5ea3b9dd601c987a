"""What a rank has heard: the tables last said, who spoke, and over which edges it came."""

import numpy as np

from p2pkm.devices import Floats, Mask
from p2pkm.mail import Inbox, Mail
from p2pkm.network.placement import Placement


class Memory:
    """The tables of own devices and ghosts; the same on every kind of network.

    Attributes
    ----------
    tables : float64[s, r, w]
        Grows to the largest table of the stage.
    heads : int64[s]
        Rows said in this exchange by every slot, -1 = silent; a network fills in those of the ghosts.
    """

    def __init__(self, placement: Placement) -> None:
        self._senders = placement.senders
        self._n, slots = len(placement.ids), placement.slots
        self.heads = np.full(slots, -1)
        self._rows = np.full(slots, -1)
        self._slots = np.full(len(self._senders), -1)
        self._hold(np.zeros((slots, 0, 0)), borrowed=False)

    def say(self, mail: Mail, r: int) -> None:
        """Write down what the own devices say, in tables of at least r rows."""
        n, rows, width = mail.values.shape
        self.heads[:n] = mail.rows
        whole = n == 0 or mail.rows.min() >= 0
        _, largest, widest = self.tables.shape
        if whole and n == len(self.tables) and rows >= largest and width >= widest:
            self._hold(mail.values, borrowed=True)  # nobody writes into a state: no copy is needed
            return
        if self._borrowed or r > largest or width > widest:
            self._grow(max(r, largest), max(width, widest))
        own = self._own if self._own.shape == mail.values.shape else self._own[:, :rows, :width]
        if whole:
            own[:] = mail.values
        else:
            spoke = mail.rows >= 0
            own[spoke] = mail.values[spoke]

    def hear(self, flags: Mask | None) -> Inbox:
        """Return what was heard once all heads are known; flags: bool[e], edges over which something came."""
        spoke = self.heads >= 0
        np.copyto(self._rows, self.heads, where=spoke)
        fresh = spoke[self._senders]
        if flags is not None:
            fresh &= flags
        np.copyto(self._slots, self._senders, where=fresh)
        return Inbox(self._readable, self._rows, self._slots, fresh)

    def _grow(self, r: int, width: int) -> None:
        slots, rows, columns = self.tables.shape
        tables = np.zeros((slots, r, width))
        tables[:, :rows, :columns] = self.tables
        self._hold(tables, borrowed=False)

    def _hold(self, tables: Floats, *, borrowed: bool) -> None:
        self.tables, self._borrowed = tables, borrowed
        self._own = tables[: self._n]
        self._readable = tables.view()
        self._readable.flags.writeable = False
