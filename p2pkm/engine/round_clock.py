"""Clock of the method's stage while it runs: when rounds begin, and which messages miss the deadline of a round.

It is the simulated time of `p2pkm.engine.virtual_time`, computed exchange by exchange. All ranks compute it for the
whole graph, from what all devices sent, so that they decide alike. After the run the same times are computed once more
from the ledger; with a deadline or a trace in seconds they count from the start of a round, so that both agree to the
last bit.
"""

import numpy as np

from p2pkm.channel.transform import Settings
from p2pkm.core.batch import Integers, Mask
from p2pkm.data.stream import PointStream
from p2pkm.engine.replayed_faults import ReplayedFaults
from p2pkm.engine.virtual_time import Clock, Flops, StageTimer, gather_exchange, turns_of
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.schedules import Schedule
from p2pkm.network.graph import Topology
from p2pkm.network.link_model import LinkParameters
from p2pkm.network.transport import Network


class RoundClock:
    """Clock of all devices in the method's stage.

    Parameters
    ----------
    deadline : float or None
        Longest time of a round in seconds; None: no limit.
    net : LinkParameters
    topology : Topology
    sizes : int64[N]
        Points of each device.
    d : int
        Number of features.
    stream : PointStream or None
        Changes of the points.
    """

    def __init__(
        self, deadline: float | None, net: LinkParameters, topology: Topology, sizes: Integers, d: int,
        stream: PointStream | None,
    ) -> None:  # fmt: skip
        self._clock = Clock(net, topology)
        self._clock.deadline = self.deadline = deadline
        self._topology = topology
        self._flops = Flops(topology, sizes, d)
        self._stream = stream

    def open(self, stage: Stage, schedule: Schedule, faults: Settings, network: Network) -> None:
        """Start the method's stage."""
        self._algorithm, self._faults = stage.algorithm, faults
        self._turns = turns_of(schedule)
        self._network = network
        self._timer: StageTimer | None = None
        self._count = 0
        # The link of each local edge, seen from its sender.
        self._from_sender = self._topology.mirror[network.placement.edges]

    def find_start(self, first: int) -> float:
        """Return the second, since the start of the stage, at which its next round begins; collective. After round 0.

        `first`: number of the first round of the stage in the fault model.
        """
        self._advance(first)
        assert self._timer is not None
        return self._timer.find_start()

    def find_overdue(self, first: int) -> Mask:
        """Return the local edges whose message in the exchange just counted misses the deadline, bool[e]; collective.

        `first`: as in `find_start`. Without a deadline none does.
        """
        self._advance(first)
        if self.deadline is None:
            return np.zeros(len(self._from_sender), np.bool_)
        overdue: Mask = self._clock.overdue[self._from_sender]
        return overdue

    def _advance(self, first: int) -> None:
        """Advance the clock by the exchanges that it has not seen; a resumed run begins with those before it."""
        ledger = self._network.ledger
        if self._timer is None:
            exchanges = ledger.exchanges
            exchanges = [one for one in exchanges if one.stage == exchanges[-1].stage]
            replayed = ReplayedFaults(self._faults, self._topology)
            replayed.skip_rounds(first)
            self._timer = StageTimer(self._clock, self._flops, self._algorithm, replayed, self._stream)
        else:
            exchanges = [ledger.last] if ledger.last.turn == self._count else []
        network = self._network
        for exchange in exchanges:
            t, turn, active = next(self._turns)
            sent, edges = gather_exchange(exchange, active, len(self._from_sender))
            self._timer.advance(
                t,
                turn,
                network.allgather_by_device(sent),
                network.allgather_by_device(edges, network.placement.edge_counts),
            )
            self._count += 1
