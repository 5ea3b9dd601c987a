"""Push-sum k-means: Lloyd steps on sums that the devices share out among their neighbors."""

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
    RunningSums,
    begin_account,
    centroids_from_sums,
    draw,
    has_converged,
    is_thin,
    iter_neighbor_tables,
    local_sums,
    relative_weights,
)
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology

_LEAST = 1e-12  # points of mean weight; a cluster of which less has arrived keeps its centroid
_LEAST_KEPT = 1e-3  # the same with counters, where corrections may leave little


@register("pushsum")
class PushSumState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    mass : float64[n, k, d + 1]
        The rows (S, n) being shared out; with counters without what is offered already.
    account : RunningSums or None
        None: no counters.
    """

    centroids: Floats
    converged: Mask
    mass: Floats
    account: RunningSums | None = None


@dataclass(frozen=True)
class PushSumLloyd(MethodBase):
    r"""Share out the sums and counts among the neighbors, then take a Lloyd step.

    A round is one Lloyd step of T turns. Device i with neighbors N_i and deg_i of them, w_ic its centroid c, starts
    from the sum S_ic and the number n_ic of its own points nearest to w_ic::

        z_ic = (S_ic, n_ic)
        T times:  z_ic <- A_ii z_ic + sum_{j in N_i} A_ij z_jc,   A_ji = A_ii = 1 / (1 + deg_i)
        (s, v) = z_ic;  w_ic <- s / v,  kept where v < 1e-12 points of mean weight

    A sender needs its own degree alone. Devices with many neighbors gather more than others; this weight is the same
    in s and in v and cancels in the ratio. Clusters are paired by their number, so all devices must start from the same
    centroids (any initialization but `local`).

    With `counters`, for links that lose messages, a device sends the total of all shares so far, and any device that
    receives it adds what is new in it. So no mass is ever lost: sum_i z_ic plus what has been sent and not received yet
    stays the same. Mass of the last average may arrive in the next one, so an average goes on from the last: instead of
    beginning with the own sums r anew, z changes by r(t+1) - r(t). A device that holds too little, because its
    neighbors are away, keeps its centroids for that round.

    Message: k rows, the share (s, v) / (1 + deg_i), once per turn and at the opening.

    Guarantee: the columns of A add up to 1, so a turn keeps sum_i z_ic; s / v tends to the ratio of the sums over all
    devices of a connected graph: with T large enough every round is a central Lloyd step at every device.

    Link weights: they divide what device i gives away; only their ratios matter. With mean_i the mean weight of its
    links, A_ji = w_ij / (mean_i (1 + deg_i)), and A_ii stays 1 / (1 + deg_i). The message does not change; the receiver
    multiplies it by w_ij / mean_i.

    Privacy: no guarantee; in the first turn of every round a device sends a known fraction of the sums and counts of
    its own points to its neighbors, which amounts to sending those sums and counts.

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
    D. Kempe, A. Dobra, J. Gehrke, "Gossip-based computation of aggregate information", FOCS 2003: Protocol Push-Sum,
    with equal shares to all neighbors; counters: C. N. Hadjicostis, N. H. Vaidya, A. D. Dominguez-Garcia, "Robust
    distributed average consensus via exchange of running sums", IEEE Transactions on Automatic Control 61, 2016.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.PushSumLloyd(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 70)
    """

    k: int
    _: KW_ONLY
    gossips: int = 10
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5
    counters: bool | None = None

    name: ClassVar[str] = "pushsum"
    default_rounds: ClassVar[int] = 30

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
            link_weights="divide what a device gives away",
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

    def initial_state(self, devices: Devices, start: Any) -> PushSumState:
        """Start from the centroids of the last stage."""
        asleep, own = np.zeros(len(devices), np.bool_), local_sums(devices, start.centroids)
        if not self.counters:
            return PushSumState(start.centroids, asleep, own)
        part = share(own, devices)
        return PushSumState(start.centroids, asleep, part, begin_account(devices, own, part))

    def message(self, state: PushSumState, devices: Devices) -> DenseMessages:
        """Send the share of each neighbor, or the total of all shares so far."""
        sent = share(state.mass, devices) if state.account is None else state.account.total
        return DenseMessages(sent, np.where(devices.active_devices, self.k, -1))

    def update(self, state: PushSumState, inbox: Inbox, devices: Devices) -> PushSumState:
        """Add up the own share and those of the neighbors; in the last turn of a round divide, and measure anew."""
        if state.account is not None:
            return self._update(state, state.account, inbox, devices)
        mass = share(state.mass, devices)
        weights = relative_weights(devices)
        for who, edges, theirs in iter_neighbor_tables(devices, inbox, mass.shape[1:]):
            mass[who] += theirs if weights is None else weights[edges, None, None] * theirs
        if devices.turn < self.gossips - 1:
            return state._replace(mass=mass)
        centroids = centroids_from_sums(mass, state.centroids, _LEAST * devices.unit)
        converged = has_converged(centroids, state.centroids, self.tol * devices.data_std)
        return PushSumState(centroids, converged, local_sums(devices, centroids))

    def _update(self, state: PushSumState, account: RunningSums, inbox: Inbox, devices: Devices) -> PushSumState:
        """Do the same with counters: what is kept, and what the totals of the neighbors have grown by."""
        gain, edge_received = draw(devices, inbox, account, relative_weights(devices))
        mass, own, centroids, converged = state.mass + gain, account.own, state.centroids, state.converged
        if devices.turn == self.gossips - 1:
            thin = is_thin(devices, mass, fair_share(devices))
            found = centroids_from_sums(mass, state.centroids, _LEAST_KEPT * devices.unit)
            centroids = np.where(thin[:, None, None], state.centroids, found)
            converged = has_converged(centroids, state.centroids, self.tol * devices.data_std) & ~thin
            own = local_sums(devices, centroids)
            mass += own - account.own
        part = share(mass, devices)
        return PushSumState(centroids, converged, part, RunningSums(own, account.total + part, edge_received))


def fair_share(devices: Devices) -> Floats:
    """Return what each device should hold, in mean numbers of points: by its links, next to those around it."""
    if devices.neighbor_mean_weights is None:
        around = np.bincount(devices.sources, devices.neighbor_degrees, len(devices)) / np.maximum(devices.degrees, 1)
        return np.minimum(1.0, (1.0 + devices.degrees) / (1.0 + around))
    loads = devices.neighbor_mean_weights * (1.0 + devices.neighbor_degrees)
    around = np.bincount(devices.sources, loads, len(devices)) / np.maximum(devices.degrees, 1)
    own = devices.mean_link_weights * (1.0 + devices.degrees)
    return np.minimum(1.0, np.divide(own, around, out=np.ones(len(devices)), where=around > 0.0))


def share(mass: Floats, devices: Devices) -> Floats:
    """Return what each device keeps, and what it gives to each of its neighbors."""
    return mass / (1.0 + devices.degrees)[:, None, None]
