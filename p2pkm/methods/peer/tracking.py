"""Tracking k-means: every device follows the sums of all devices while its own change."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, whole
from p2pkm.methods.building_blocks.averaging import (
    COUNTED,
    WEIGHTED,
    RunningSums,
    begin_account,
    centroids_from_sums,
    draw,
    has_converged,
    is_thin,
    local_sums,
    mix,
    mixing,
)
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology

_LEAST = 1e-3  # points of mean weight; a cluster of which less has arrived keeps its centroid


@register("tracking")
class TrackingState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    mass, own : float64[n, k, d + 1]
        The rows z that follow the mean over all devices (with counters without what is offered already), and r, the
        sums and counts of the own points.
    account : RunningSums or None
        None: no counters.
    """

    centroids: Floats
    converged: Mask
    mass: Floats
    own: Floats
    account: RunningSums | None = None


@dataclass(frozen=True)
class TrackingLloyd(MethodBase):
    r"""Follow the mean of all devices' sums and counts by dynamic average consensus, a Lloyd step at a time.

    A round is one Lloyd step of T turns. r_ic(t) = (S_ic, n_ic) are the sum and the number of the points of device i
    nearest to its centroid w_ic(t); z(0) = r(0). With P the Metropolis weights, P_ij = 1 / (1 + max(deg_i, deg_j))::

        (s, v) = [P^T z(t)]_ic;  w_ic(t+1) = s / v,  kept where v < 1e-3 points of mean weight
        z(t+1) = P^T z(t) + r(t+1) - r(t)

    Where consensus k-means begins every average anew, this one goes on from the last, so few gossips per step do. The
    centroids divide what has been mixed already: with the newest correction in it the method is unstable where devices
    hold different classes. Clusters are paired by their number, so all devices must start from the same centroids (any
    initialization but `local`).

    With `counters`, for links that lose messages, device i sends the total of all its z so far and takes the part that
    it offers out of its own; neighbor j adds P_ij times what is new in the total that it receives. Without losses that
    is the same average; with them, sum_i z_ic plus what has been offered and not received yet stays sum_i r_ic. Whoever
    holds too little, because its neighbors are away, keeps its centroids for that round.

    Message: k rows z, once per turn and at the opening.

    Guarantee: sum_i z_ic = sum_i r_ic after every turn. When no label changes any more, z tends to the mean over the
    devices of a connected graph.

    Link weights: they make P as in `ConsensusLloyd`; only their ratios matter.

    Privacy: no guarantee; the first message is the sums and counts of the own points; any device that receives all
    neighbors of a device can work out how they change.

    Parameters
    ----------
    k : int
        Number of clusters.
    gossips : int
        T, turns per Lloyd step.
    init : Init or str
        How all devices get their first centroids.
    tol : float
        A device has converged when no coordinate moved by more than tol x sqrt(total variance) in a round.
    counters : bool, optional
        Whether to send running totals, which needs links that last; None: if there are faults, on a graph that does not
        change.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    M. Zhu, S. Martinez, "Discrete-time dynamic average consensus", Automatica 46, 2010; weights of L. Xiao, S. Boyd,
    "Fast linear iterations for distributed averaging", Systems & Control Letters 53, 2004; counters:
    C. N. Hadjicostis, N. H. Vaidya, A. D. Dominguez-Garcia, "Robust distributed average consensus via exchange of
    running sums", IEEE Transactions on Automatic Control 61, 2016.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.TrackingLloyd(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 28)
    """

    k: int
    _: KW_ONLY
    gossips: int = 3
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5
    counters: bool | None = None

    name: ClassVar[str] = "tracking"
    default_rounds: ClassVar[int] = 150

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        object.__setattr__(self, "init", Init.of(self.init))
        whole(self.k, 1, "clusters")
        whole(self.gossips, 1, "gossips")
        positive(self.tol, "tol", zero=True)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.SUMS,
            init=self.init,
            follows_points=True,
            link_weights=WEIGHTED,
            needs_static_links=COUNTED if self.counters else "",
        )

    def under_faults(self, topology: Topology) -> Self:
        """Return the method with counters, if that was left open; they need links that stay.

        A total is the same for all neighbors.
        """
        return replace(self, counters=True) if self.counters is None and topology.varying is None else self

    @property
    def schedule(self) -> str:
        """Return the schedule: every device, T times a round."""
        return f"jacobi*{self.gossips}"

    def expected_messages(self, known: Known) -> EveryTurn:
        """Return sums and counts of all k rows in every turn."""
        return EveryTurn(self.k, known.features + 1, absent_rows=True)

    def initial_state(self, devices: Devices, start: Any) -> TrackingState:
        """Start from the centroids of the last stage."""
        own, asleep = local_sums(devices, start.centroids), np.zeros(len(devices), np.bool_)
        if not self.counters:
            return TrackingState(start.centroids, asleep, own, own)
        account = begin_account(devices, own, own)
        return TrackingState(start.centroids, asleep, own - offered(own, devices), own, account)

    def message(self, state: TrackingState, devices: Devices) -> DenseMessages:
        """Send the mass, or the total of all masses so far."""
        sent = state.mass if state.account is None else state.account.total
        return DenseMessages(sent, np.where(devices.active_devices, self.k, -1))

    def update(self, state: TrackingState, inbox: Inbox, devices: Devices) -> TrackingState:
        """Average with the neighbors; in the last turn of a round divide, measure, and correct what is followed."""
        if state.account is not None:
            return self._update(state, state.account, inbox, devices)
        mass = mix(devices, state.mass, inbox)
        if devices.turn < self.gossips - 1:
            return state._replace(mass=mass)
        centroids = centroids_from_sums(mass, state.centroids, _LEAST * devices.unit)
        converged = has_converged(centroids, state.centroids, self.tol * devices.data_std)
        own = local_sums(devices, centroids)
        return TrackingState(centroids, converged, mass + (own - state.own), own)

    def _update(self, state: TrackingState, account: RunningSums, inbox: Inbox, devices: Devices) -> TrackingState:
        """Do the same with counters: what is kept, and shares of what the totals of the neighbors have grown by."""
        gain, edge_received = draw(devices, inbox, account, mixing(devices))
        mass, own, centroids, converged = state.mass + gain, account.own, state.centroids, state.converged
        if devices.turn == self.gossips - 1:
            thin = is_thin(devices, mass, np.ones(len(devices)))
            found = centroids_from_sums(mass, state.centroids, _LEAST * devices.unit)
            centroids = np.where(thin[:, None, None], state.centroids, found)
            converged = has_converged(centroids, state.centroids, self.tol * devices.data_std) & ~thin
            own = local_sums(devices, centroids)
            mass += own - account.own
        kept = mass - offered(mass, devices)
        return TrackingState(centroids, converged, kept, own, RunningSums(own, account.total + mass, edge_received))


def offered(mass: Floats, devices: Devices) -> Floats:
    """Return what each device gives to all of its neighbors together, sum_j P_ij z."""
    shares = np.bincount(devices.sources, mixing(devices), len(devices))
    return shares[:, None, None] * mass
