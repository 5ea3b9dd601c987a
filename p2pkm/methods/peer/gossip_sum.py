"""Sum-weight gossip k-means: Lloyd steps on sums of which every device keeps giving halves away."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase, Work
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, whole
from p2pkm.methods.building_blocks.averaging import add_fresh, centroids_from_sums, has_converged, local_sums
from p2pkm.methods.building_blocks.random_matching import count_exchanges, pick_neighbor
from p2pkm.methods.init.value import Init

_LEAST = 1e-12  # points of mean weight; a cluster of which less has arrived keeps its centroid


@register("gossip-sum")
class GossipSumState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    mass : float64[n, k, d + 1]
        The rows (S, n) being given away, before the next half has left.
    """

    centroids: Floats
    converged: Mask
    mass: Floats


@dataclass(frozen=True)
class GossipSum(MethodBase):
    r"""Push halves of the sums and counts to random neighbors, then take a Lloyd step.

    A round is one Lloyd step of M turns. Device i starts from the sum S_ic and the number n_ic of its own points
    nearest to its centroid w_ic::

        z_ic = (S_ic, n_ic)
        M times:  j(i) = a random neighbor of i;  z_ic <- z_ic / 2 + sum_{i' with j(i') = i} z_i'c / 2
        (s, v) = z_ic;  w_ic <- s / v,  kept where v < 1e-12 points of mean weight

    Both columns of z get the same weights, which cancel in the ratio. Clusters are paired by their number, so all
    devices must start from the same centroids (any initialization but `local`).

    Message: k rows, the half (s, v) / 2, to one neighbor, once per turn and at the opening.

    Guarantee: a turn keeps sum_i z_ic; s / v tends to the ratio of the sums over all devices of a connected graph, so
    with M large enough every round is a central Lloyd step at every device. A message that is lost takes its half
    along, until the next round begins anew.

    Departs from the paper: devices send at random times there, one after another, here M times each, all at once.

    Link weights: ignored; neighbors are drawn without them.

    Privacy: no guarantee; the first neighbor of a round receives a half of the own sums and counts, which amounts to
    these.

    Parameters
    ----------
    k : int
        Number of clusters.
    sends : int
        M, messages of every device per Lloyd step.
    init : Init or str
        How all devices get their first centroids.
    tol : float
        A device has converged when no coordinate moved by more than tol x sqrt(total variance) in a round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    J. Fellus, D. Picard, P.-H. Gosselin, "Decentralized k-means using randomized gossip protocols for clustering large
    datasets", ICDM workshops 2013 (HAL hal-00915822); D. Kempe, A. Dobra, J. Gehrke, "Gossip-based computation of
    aggregate information", FOCS 2003: Protocol Push-Sum.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.GossipSum(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 67)
    """

    k: int
    _: KW_ONLY
    sends: int = 20
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    name: ClassVar[str] = "gossip-sum"
    default_rounds: ClassVar[int] = 20

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        object.__setattr__(self, "init", Init.of(self.init))
        whole(self.k, 1, "clusters")
        whole(self.sends, 1, "sends")
        positive(self.tol, "tol", zero=True)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(message_content=MessageContent.SUMS, init=self.init, follows_points=True)

    @property
    def schedule(self) -> str:
        """Return the schedule: every device, M times a round."""
        return f"jacobi*{self.sends}"

    def expected_messages(self, known: Known) -> EveryTurn:
        """Return sums and counts of all k rows, to one neighbor in every turn."""
        return EveryTurn(self.k, known.features + 1, absent_rows=True, to="one")

    def flops(self, work: Work) -> Integers:
        """Count a turn: its share of the pass over the own points, and two tables on average."""
        return work.d * (3 * self.k + 2) * work.sizes // self.sends + 2 * self.k * (work.d + 1)

    def initial_state(self, devices: Devices, start: Any) -> GossipSumState:
        """Start from the centroids of the last stage."""
        asleep = np.zeros(len(devices), np.bool_)
        return GossipSumState(start.centroids, asleep, local_sums(devices, start.centroids))

    def message(self, state: GossipSumState, devices: Devices) -> DenseMessages:
        """Send a half to a random neighbor."""
        edges = pick_neighbor(devices, count_exchanges(devices, self.sends))
        return DenseMessages(0.5 * state.mass, np.where(devices.active_devices, self.k, -1), edges=edges)

    def update(self, state: GossipSumState, inbox: Inbox, devices: Devices) -> GossipSumState:
        """Add up the half that is left and those that came; in the last turn of a round divide, and measure anew."""
        left = np.where(devices.degrees > 0, 0.5, 1.0)[:, None, None] * state.mass
        mass = add_fresh(devices, inbox, left)
        if devices.turn < self.sends - 1:
            return state._replace(mass=mass)
        centroids = centroids_from_sums(mass, state.centroids, _LEAST * devices.unit)
        converged = has_converged(centroids, state.centroids, self.tol * devices.data_std)
        return GossipSumState(centroids, converged, local_sums(devices, centroids))
