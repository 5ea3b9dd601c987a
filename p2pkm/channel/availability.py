"""Devices that are online in a round, and messages that arrive: the faults in effect, on some edges of a graph.

Each rank applies the faults of a run to its own edges (`p2pkm.channel.faults`), and the simulated time applies them
again to all edges (`p2pkm.engine.replayed_faults`). Both ask an `Availability`, so that they cannot disagree.
"""

import numpy as np

from p2pkm.channel.fault_model import FaultModel, find_sorted
from p2pkm.channel.fault_trace import AWAY, KIND, LINK, ROUNDS, A, B
from p2pkm.core.batch import Integers


class Availability:
    """Unavailable devices, stragglers and failed links of the current round.

    Parameters
    ----------
    faults : FaultModel
    n : int
        Devices of the system.
    source, target : int64[e]
        Sender and receiver of each edge, sorted by receiver, then by sender.

    Attributes
    ----------
    round : int
        Round of the fault model; -1 before the first one.
    absent : bool[n]
        Unavailable devices: they neither compute, send nor receive.
    inactive : bool[n]
        Devices that neither compute nor send: unavailable ones and stragglers.
    until : int64[2, n]
        Rounds in which each device is available again, and is not a straggler any more.
    down : int64[e]
        Round in which each edge works again.
    """

    def __init__(self, faults: FaultModel, n: int, source: Integers, target: Integers) -> None:
        self._faults = faults
        self._n = n
        self._source = source
        self._target = target
        # Keys of the edges for `find_sorted`, ascending.
        self._edge_keys = target * n + source
        self.round = -1
        self.until = np.zeros((2, n), np.int64)
        self.down = np.zeros(len(source), np.int64)
        self.absent = self.inactive = np.zeros(n, np.bool_)

    def start_round(self, t: int) -> None:
        """Apply the faults that begin in round t of the fault model; rounds are started in their order, each once."""
        events = self._faults.begin(t)
        devices = events[events[:, KIND] < LINK]
        np.maximum.at(self.until, ((devices[:, KIND] != AWAY).astype(np.int64), devices[:, A]), t + devices[:, ROUNDS])
        links = events[events[:, KIND] == LINK]
        # A link failure concerns both directions.
        for first, second in ((A, B), (B, A)):
            edge, exists = find_sorted(self._edge_keys, links[:, first] * self._n + links[:, second])
            np.maximum.at(self.down, edge, t + links[exists, ROUNDS])
        self._set_round(t)

    def restore(self, t: int, until: Integers, down: Integers) -> None:
        """Continue from round t with these values of `until` and `down`."""
        self.until, self.down = until, down
        self._set_round(t)

    def _set_round(self, t: int) -> None:
        self.round = t
        self.absent = self.until[0] > t
        self.inactive = self.absent | (self.until[1] > t)

    def delay_messages(self, turn: int) -> Integers:
        """Return the rounds after which a message over each edge in this turn arrives, int64[e]; -1: it is lost."""
        delays = self._faults.message_delays(self.round, turn, self._source, self._target)
        delays[self.absent[self._target] | (self.down > self.round)] = -1
        return delays
