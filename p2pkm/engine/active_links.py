"""Time-varying graphs: the active links of each round, and termination on such graphs.

In one round of the graph every device sends once: it is an exchange if all devices act in every turn, otherwise a round
of the schedule. The initial exchange uses the links of round 0. At the end of a round of the graph, the links of the
next one become active and every device sends over them. Messages from links that became inactive are discarded. So a
device acts on messages from active links only, and both ends of a link receive from each other equally often.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.batch import Devices
from p2pkm.core.errors import TopologyError
from p2pkm.network.transport import Network
from topologies.errors import GraphError
from topologies.mixing import is_weighted, mean_link_weights

if TYPE_CHECKING:
    from topologies import TimeVaryingGraph

# Rounds, instead of the period of a graph that never repeats: convergence counts after this many rounds.
_APERIODIC_ROUNDS = 32


class ActiveLinks:
    """Active links of one stage.

    Parameters
    ----------
    devices : Devices
        Batch with all links of the graph.
    network : Network
    graph : TimeVaryingGraph or None
        None if all links are always active.

    Attributes
    ----------
    devices : Devices
        Batch with the links that are active now.
    """

    def __init__(self, devices: Devices, network: Network, graph: "TimeVaryingGraph | None") -> None:
        self.devices = devices
        self._network = network
        self._graph = graph
        self._round = -1
        # Round of the graph in which the devices had last not converged.
        self._last_moving_round = 0
        self.advance(due=True)

    def advance(self, *, due: bool) -> bool:
        """Activate the links of the next round of the graph; return False if it is static or no round has ended.

        Parameters
        ----------
        due : bool
            Whether a round of the graph has ended.
        """
        if self._graph is None or not due:
            return False
        self._round += 1
        graph, placement = self._graph, self._network.placement
        if not graph.checked:
            self._check(graph)
        mask = graph.active(self._round)
        degrees = np.diff(np.concatenate(([0], np.cumsum(mask)))[graph.indptr])
        shares = means = None
        if graph.own_mixing is not None:
            shares = np.asarray(graph.own_mixing(self._round), np.float64)[placement.edges]
        if is_weighted(graph.union):
            means = mean_link_weights(graph.union, mask)[placement.indices]
        self.devices = self.devices.with_active_edges(mask[placement.edges], degrees[placement.indices], shares, means)
        self._network.set_active_edges(self.devices.active_edges)
        return True

    def _check(self, graph: "TimeVaryingGraph") -> None:
        """Validate the links and the mixing matrix of a round, if the check before the run has not done so."""
        from topologies.checks import CHECKED, check_round, find_opposite

        if CHECKED <= self._round < (graph.period or math.inf):
            try:
                check_round(graph, self._round, find_opposite(graph.union))
            except GraphError as error:
                raise TopologyError(str(error)) from None

    def snapshot(self) -> dict[str, int]:
        """Return the round of the graph, and the last one in which the devices had not converged."""
        return {"round": self._round, "unrest": self._last_moving_round}

    def restore(self, snapshot: dict[str, int]) -> None:
        """Activate the links of the round in a snapshot."""
        self._round = snapshot["round"] - 1
        self._last_moving_round = snapshot["unrest"]
        self.advance(due=True)

    def check_termination(self, stop: str) -> str:
        """Return the reason to stop, empty to continue; on a time-varying graph convergence must last for a period.

        A device without an active link converges only for the moment. If no device has one, no message is sent, which
        does not end the run either.
        """
        if self._graph is None:
            return stop
        if stop not in ("converged", "oscillating"):
            self._last_moving_round = self._round
        steady_rounds = self._round - self._last_moving_round
        return stop if steady_rounds >= (self._graph.period or _APERIODIC_ROUNDS) else ""
