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
        self.tables: Floats = np.zeros((slots, 0, 0))
        self.heads = np.full(slots, -1)
        self._rows = np.full(slots, -1)
        self._slots = np.full(len(self._senders), -1)
        self._borrowed = False

    def say(self, mail: Mail, r: int) -> None:
        """Write down what the own devices say, in tables of at least r rows."""
        n, _, width = mail.values.shape
        self.heads[: self._n] = mail.rows
        spoke = mail.rows >= 0
        whole = spoke.all()
        if whole and n == len(self.tables) and self._fits(mail.values.shape[1:]):
            self.tables, self._borrowed = mail.values, True  # nobody writes into a state: no copy is needed
            return
        self._grow(max(r, self.tables.shape[1]), max(width, self.tables.shape[2]))
        own = self.tables[: self._n, : mail.values.shape[1], :width]
        if whole:
            own[:] = mail.values
        else:
            own[spoke] = mail.values[spoke]

    def hear(self, flags: Mask | None) -> Inbox:
        """Return what was heard once all heads are known; flags: bool[e], edges over which something came."""
        spoke = self.heads >= 0
        np.copyto(self._rows, self.heads, where=spoke)
        fresh = spoke[self._senders]
        if flags is not None:
            fresh &= flags
        np.copyto(self._slots, self._senders, where=fresh)
        tables = self.tables.view()
        tables.flags.writeable = False
        return Inbox(tables, self._rows, self._slots, fresh)

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return shape[0] >= self.tables.shape[1] and shape[1] >= self.tables.shape[2]

    def _grow(self, r: int, width: int) -> None:
        slots, rows, columns = self.tables.shape
        if self._borrowed or (rows, columns) != (r, width):
            tables = np.zeros((slots, r, width))
            tables[:, :rows, :columns] = self.tables
            self.tables, self._borrowed = tables, False
