"""Graphs that change from round to round: which links are in use now, and when a run over them is at rest.

A round of the graph is the time in which every device sends: an exchange where all act in every turn, otherwise a round
of the schedule. The opening goes over the links of round 0. Whenever a round of the graph ends, the links of the next
one come into use and every device sends over them; what came over the others is forgotten. So a device acts on what it
received over the links that are in use, and the two ends of a link receive from each other equally often.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.batch import Devices
from p2pkm.core.errors import TopologyError
from p2pkm.network.transport import Network
from topologies.checks import CHECKED, check_round, find_opposite
from topologies.errors import GraphError
from topologies.mixing import is_weighted, mean_link_weights

if TYPE_CHECKING:
    from topologies import TimeVaryingGraph

_LONG = 32  # rounds that stand for a period where nothing ever repeats


class ActiveLinks:
    """The links in use, in one stage.

    Parameters
    ----------
    devices : Devices
        With all links there ever are.
    network : Network
    graph : TimeVaryingGraph or None
        None: all links are in use all the time.

    Attributes
    ----------
    devices : Devices
        The batch, with the links in use now.
    """

    def __init__(self, devices: Devices, network: Network, graph: "TimeVaryingGraph | None") -> None:
        self.devices, self._network, self._graph = devices, network, graph
        self._round, self._unrest = -1, 0
        self.advance(due=True)

    def advance(self, *, due: bool) -> bool:
        """Take the links of the next round into use, if the graph changes and this is the time; return whether so."""
        if self._graph is None or not due:
            return False
        self._round += 1
        graph, placement = self._graph, self._network.placement
        if not graph.checked and CHECKED <= self._round < (graph.period or math.inf):
            self._check()
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

    def _check(self) -> None:
        """Reject links in use, or a mixing matrix, that the check before the run has not seen."""
        if self._graph is None:
            return
        try:
            check_round(self._graph, self._round, find_opposite(self._graph.union))
        except GraphError as error:
            raise TopologyError(str(error)) from None

    def snapshot(self) -> dict[str, int]:
        """Return the round of the graph, and the last one that was not at rest."""
        return {"round": self._round, "unrest": self._unrest}

    def restore(self, kept: dict[str, int]) -> None:
        """Take the links of that round into use."""
        self._round, self._unrest = kept["round"] - 1, kept["unrest"]
        self.advance(due=True)

    def check_termination(self, stop: str) -> str:
        """Return why to stop: where links change, rest counts once it has lasted for a whole period.

        Who has no link in use is at rest for the moment only, and where no device has one, silence is no end.
        """
        if self._graph is None:
            return stop
        if stop not in ("converged", "oscillating"):
            self._unrest = self._round
        return stop if self._round - self._unrest >= (self._graph.period or _LONG) else ""
