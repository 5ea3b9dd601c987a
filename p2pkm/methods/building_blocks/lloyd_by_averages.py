"""Base classes of methods that take Lloyd steps on averaged cluster sums and counts.

Each device computes sums and counts of its local clusters. The turns of a round average these tables over the network.
The last turn divides the averaged sums by the averaged counts, which gives the next centroids. A method defines one
averaging exchange.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.errors import ContractError
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase, RunOutline
from p2pkm.core.states import register
from p2pkm.core.traits import Condition, MessageContent, MethodTraits
from p2pkm.core.validation import check_integer, check_positive
from p2pkm.methods.building_blocks.averaging import (
    RunningSums,
    centroids_from_sums,
    count_turns,
    has_converged,
    has_low_weight,
    local_sums,
    receive_increments,
    start_running_sums,
)
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology

COUNTED = "with counters=true sends running totals to all neighbors and requires static links"
# Smallest averaged count of a cluster, in points of mean weight, at which its centroid is updated. If averages continue
# from the last round, corrections may leave a small remainder in a cluster without points.
_LEAST = 1e-12
_LEAST_CORRECTED = 1e-3


@register("averages")
class AveragesState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    averages : float64[n, k, d + 1]
        Rows (S, n) that are averaged; with running totals, without the part that was sent to the neighbors.
    local : float64[n, k, d + 1] or None
        Local sums and counts that the averages contain, if each round continues the averages of the previous one.
        None: each round starts from new local sums.
    totals : RunningSums or None
        Running totals of all sent tables; None without counters.
    """

    centroids: Floats
    converged: Mask
    averages: Floats
    local: Floats | None = None
    totals: RunningSums | None = None


class LloydByAverages(MethodBase):
    """Lloyd steps on averages of the sums and counts of all devices. Methods override `exchange`.

    Attributes
    ----------
    turns_parameter : str
        Name of the parameter with the number of turns per Lloyd step.
    continues : bool
        Whether a round continues the averages of the previous one, corrected by the change of the local sums.
    receivers : str
        See `to` of `p2pkm.core.expected_messages.EveryTurn`, which lists the values.
    link_weights : str
        Effect of link weights, see `p2pkm.core.traits.MethodTraits`.
    least_turns : int
        Smallest number of turns that is chosen from the graph, if the parameter is None.
    unevenness : float
        Largest deviation from the mean that these turns leave of the sums of a single device, relative to the mean.
    """

    turns_parameter: ClassVar[str] = "gossips"
    continues: ClassVar[bool] = False
    receivers: ClassVar[Any] = "all"
    link_weights: ClassVar[str] = ""
    least_turns: ClassVar[int] = 1
    unevenness: ClassVar[float] = np.inf

    init: Init | str

    def __post_init__(self) -> None:
        """Validate the parameters."""
        object.__setattr__(self, "init", Init.of(self.init))
        check_integer(self.k, 1, "clusters")
        if vars(self)[self.turns_parameter] is not None:
            check_integer(self.turns, 1, self.turns_parameter)
        check_positive(self.tol, "tol", zero=True)

    @property
    def turns(self) -> int:
        """Turns per Lloyd step."""
        turns: int | None = vars(self)[self.turns_parameter]
        return self.least_turns if turns is None else turns

    def configure(self, run: RunOutline) -> Self:
        """Choose the number of turns from the graph, if the user did not; if its links change, the smallest number."""
        if vars(self)[self.turns_parameter] is not None or run.topology is None or run.topology.varying is not None:
            return self
        turns = count_turns(run.topology, self.least_turns, self.unevenness)
        return self.replaced(**{self.turns_parameter: turns})

    @property
    def schedule(self) -> str:
        """Schedule: all devices are active in every turn of a round."""
        return f"jacobi*{self.turns}"

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.SUMS,
            init=self.init,
            follows_points=True,
            link_weights=self.link_weights,
        )

    def expected_messages(self, known: Known) -> EveryTurn:
        """Count sums and counts of all k rows in every turn."""
        return EveryTurn(self.k, known.features + 1, absent_rows=True, to=self.receivers)

    def offered(self, averages: Floats, devices: Devices) -> Floats:
        """Compute the table that each device sends, float64[n, k, d + 1]."""
        return averages

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Compute the averages after one exchange, float64[n, k, d + 1]."""
        # Not abstract: some methods define it only for their form on a graph.
        raise ContractError(f"{type(self).__name__} does not define how averages are exchanged. Define `exchange`")

    def initial_state(self, devices: Devices, start: Any) -> AveragesState:
        """Compute local sums and counts at the centroids of the previous stage."""
        local = local_sums(devices, start.centroids)
        none = np.zeros(len(devices), np.bool_)
        return AveragesState(start.centroids, none, local, local if self.continues else None)

    def message(self, state: AveragesState, devices: Devices) -> DenseMessages:
        """Send the table of this turn, or the running total of all tables."""
        sent = self.offered(state.averages, devices) if state.totals is None else state.totals.total
        return DenseMessages(sent, np.where(devices.active_devices, self.k, -1))

    def update(self, state: AveragesState, inbox: Inbox, devices: Devices) -> AveragesState:
        """Update the averages; in the last turn of a round perform a Lloyd step."""
        averages = self.exchange(state.averages, inbox, devices)
        return self.finish_turn(state._replace(averages=averages), devices)

    def finish_turn(self, state: AveragesState, devices: Devices) -> AveragesState:
        """In the last turn of a round, divide sums by counts and compute local sums at the new centroids."""
        if devices.turn < self.turns - 1:
            return state
        centroids, converged = self.divide(state, devices)
        local = local_sums(devices, centroids)
        if state.local is None:
            return AveragesState(centroids, converged, local)
        return AveragesState(centroids, converged, state.averages + (local - state.local), local)

    def divide(self, state: AveragesState, devices: Devices) -> tuple[Floats, Mask]:
        """Compute the centroids, float64[n, k, d], and the convergence of each device, bool[n]."""
        least = _LEAST if state.local is None else _LEAST_CORRECTED
        centroids = centroids_from_sums(state.averages, state.centroids, least * devices.unit)
        return centroids, has_converged(centroids, state.centroids, self.tol * devices.data_std)


class CountedLloyd(LloydByAverages, ABC):
    """Lloyd steps on averages that can be sent as running totals, so that lost messages do not lose sums.

    Methods with counters also define `retained`, `fair_shares` and `received_weights`.
    """

    counters: bool | None

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return replace(super().traits, incompatible_with={Condition.CHANGING_LINKS: COUNTED if self.counters else ""})

    def under_faults(self, topology: Topology) -> Self:
        """Enable counters if the user did not choose, on static graphs: all neighbors receive the same total."""
        return self.replaced(counters=True) if self.counters is None and topology.varying is None else self

    @abstractmethod
    def retained(self, averages: Floats, devices: Devices) -> Floats:
        """Compute the part of the averages that each device retains when it sends, float64[n, k, d + 1]."""

    @abstractmethod
    def fair_shares(self, devices: Devices) -> Floats:
        """Compute the long-term weight of each device, in units of the mean total weight of a device, float64[n]."""

    @abstractmethod
    def received_weights(self, devices: Devices) -> Floats | None:
        """Compute the weight of tables received over each edge, float64[e]; None if all are 1."""

    def initial_state(self, devices: Devices, start: Any) -> AveragesState:
        """Compute local sums and counts; with counters prepare the first totals."""
        state = super().initial_state(devices, start)
        if not self.counters:
            return state
        local = state.averages
        totals = start_running_sums(devices, self.offered(local, devices))
        return state._replace(averages=self.retained(local, devices), local=local, totals=totals)

    def update(self, state: AveragesState, inbox: Inbox, devices: Devices) -> AveragesState:
        """Update the averages; with counters, by the increases of the neighbors' totals."""
        totals = state.totals
        if totals is None:
            return super().update(state, inbox, devices)
        gain, edge_received = receive_increments(devices, inbox, totals, self.received_weights(devices))
        state = self.finish_turn(state._replace(averages=state.averages + gain), devices)
        total = totals.total + self.offered(state.averages, devices)
        return state._replace(averages=self.retained(state.averages, devices), totals=RunningSums(total, edge_received))

    def divide(self, state: AveragesState, devices: Devices) -> tuple[Floats, Mask]:
        """Compute the centroids; with counters, devices with a low averaged weight keep theirs."""
        centroids, converged = super().divide(state, devices)
        if state.totals is None:
            return centroids, converged
        low = has_low_weight(devices, state.averages, self.fair_shares(devices))
        return np.where(low[:, None, None], state.centroids, centroids), converged & ~low
