"""Faults of a run, applied to its ledger: who acts in a turn, and which messages arrive, for the simulated time."""

from typing import NamedTuple

import numpy as np

from p2pkm.channel.availability import Availability
from p2pkm.channel.timed_faults import TimedFaults
from p2pkm.channel.transform import Settings
from p2pkm.core.batch import Integers, Mask
from p2pkm.network.graph import Topology

# Columns of the delayed tables that have not arrived yet.
_ROUND, _TURN, _TARGET, _ROWS = range(4)


class Arrivals(NamedTuple):
    """Messages of an exchange that arrive, at once or delayed.

    Attributes
    ----------
    returning : bool[N]
        Devices that were unavailable or stragglers in the round before, and act again.
    now : bool[E]
        Edges over which a message arrives in its turn, if there is one.
    late : bool[E]
        Edges over which a table was sent that is delayed.
    target : int64[m]
        Receivers of all delayed tables that have not arrived yet, in the order of their sending; those of `late` are
        the last.
    due : bool[m]
        Delayed tables that arrive in this exchange.
    used : bool[m]
        Those of them whose receiver is available.
    rows : int64[m]
    """

    returning: Mask
    now: Mask
    late: Mask
    target: Integers
    due: Mask
    used: Mask
    rows: Integers


class ReplayedFaults:
    """Faults on the whole graph, in the order of the exchanges in the ledger.

    Parameters
    ----------
    settings : mapping
        Settings of the faults on the graph, see `p2pkm.channel.faults.FaultInjector.place`.
    topology : Topology

    Attributes
    ----------
    inactive : bool[N]
        Devices that neither compute nor send in the current round.
    timed : TimedFaults or None
        Faults of a trace in seconds, which must be moved to the second at which a round begins, before it is started.
    """

    def __init__(self, settings: Settings, topology: Topology) -> None:
        faults = settings["faults"]
        self.timed = faults if isinstance(faults, TimedFaults) else None
        # An edge of the topology leads from its source; `Availability` lists edges by receiver. Links have both
        # directions, so the opposite of each edge is listed in its place.
        self._availability = Availability(faults, topology.n, topology.indices, topology.sources)
        self._opposite = topology.mirror
        self._topology = topology
        self._is_dropping = settings["stale"].place(topology.indices, topology.sources).age == 0
        self.start_stage()

    def start_stage(self) -> None:
        """Start a stage that faults affect: messages that have not arrived are discarded."""
        self._first = self._availability.round + 1
        self._waiting = np.zeros((0, 4), np.int64)

    @property
    def inactive(self) -> Mask:
        """Devices that neither compute nor send in the current round."""
        return self._availability.inactive

    def start_round(self, t: int) -> Mask:
        """Start round t of the stage, unless it has started; return the devices that act again, bool[N]."""
        if self._first + t == self._availability.round:
            return np.zeros(self._topology.n, np.bool_)
        before = self._availability.inactive
        self._availability.start_round(self._first + t)
        return before & ~self._availability.inactive

    def skip_rounds(self, end: int) -> None:
        """Apply the faults of all rounds of the fault model before round `end`, in which a stage starts."""
        for t in range(self._availability.round + 1, end):
            self._availability.start_round(t)
        self.start_stage()

    def foresee(self, turn: int, returning: Mask) -> Arrivals:
        """Return the part of an exchange that is known before its deadline is applied: `returning` and `now`."""
        nothing, nobody = np.zeros(0, np.bool_), np.zeros(0, np.int64)
        now = self._availability.delay_messages(turn)[self._opposite] == 0
        return Arrivals(returning, now, nothing, nobody, nothing, nothing, nobody)

    def exchange(
        self, turn: int, returning: Mask, rows: Integers, edges: Mask, overdue: Mask | None = None
    ) -> Arrivals:
        """Determine which messages of an exchange arrive.

        Parameters
        ----------
        turn : int
            Number of the turn in its round, from 0.
        returning : bool[N]
            What `start_round` has returned before this exchange.
        rows : int64[N]
            Rows that each device sends; -1 without a message.
        edges : bool[E]
            Active directed edges.
        overdue : bool[E], optional
            Edges whose message misses the deadline of the round, so that it arrives in the next one.
        """
        t, source = self._availability.round, self._topology.sources
        delays = self._availability.delay_messages(turn)[self._opposite]
        if overdue is not None:
            delays[overdue & (delays == 0)] = 1
        # Stale policy "drop": a late table would not be used, so it counts as lost.
        late = edges & (rows >= 0)[source] & (delays > 0) & (not self._is_dropping)
        added = np.flatnonzero(late)
        arrival = t + delays[added], np.full(len(added), turn)
        waiting = np.column_stack((*arrival, self._topology.indices[added], rows[source[added]]))
        waiting = np.concatenate((self._waiting, waiting))
        due = (waiting[:, _ROUND] < t) | ((waiting[:, _ROUND] == t) & (waiting[:, _TURN] <= turn))
        used = due & ~self._availability.absent[waiting[:, _TARGET]]
        self._waiting = waiting[~due]
        return Arrivals(returning, delays == 0, late, waiting[:, _TARGET], due, used, waiting[:, _ROWS])
