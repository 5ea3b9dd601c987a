"""Epidemic k-means: Lloyd steps on sums that random pairs of neighbors average."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase, OnGraph, Work
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, whole
from p2pkm.methods.building_blocks.averaging import add_fresh, centroids_from_sums, has_converged, local_sums
from p2pkm.methods.building_blocks.random_matching import find_partners
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology

_SENT = MethodTraits(message_content=MessageContent.SUMS, follows_points=True)
_LEAST = 1e-12  # points of mean weight; a cluster of which less has arrived keeps its centroid


@dataclass(frozen=True)
class Epidemic(MethodBase):
    r"""Average the sums and counts in random pairs, then take a Lloyd step.

    A round is one Lloyd step of C cycles. Device i starts from the sum S_ic and the number n_ic of its own points
    nearest to its centroid w_ic. A cycle is a push-pull exchange along a random maximal matching of the links, which
    all can compute from the topology and the seed; a device without a partner waits::

        z_ic = (S_ic, n_ic)
        C times, for every pair i, j of the matching:  z_ic, z_jc <- (z_ic + z_jc) / 2
        (s, v) = z_ic;  w_ic <- s / v,  kept where v < 1e-12 points of mean weight

    Clusters are paired by their number, so all devices must start from the same centroids (any initialization but
    `local`).

    Message: k rows z_ic, once per turn and at the opening, to the partner alone.

    Guarantee: a cycle keeps sum_i z_ic and leaves z equal at both ends of a pair, to the bit; z tends to the mean over
    the devices of a connected graph, so with C large enough every round is a central Lloyd step at every device. A
    message that is lost leaves the two ends apart, until the next round begins anew.

    Departs from the paper: in a cycle there every device calls a random neighbor, one after another, that is 2 n
    messages. A maximal matching takes at most n and meets no pair twice: on a ring 2.3 of them send as much.

    Link weights: ignored; partners are drawn without them.

    Privacy: no guarantee; the first partner of a round receives the own sums and counts.

    Parameters
    ----------
    k : int
        Number of clusters.
    cycles : int
        C, exchanges per Lloyd step.
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
    G. Di Fatta, F. Blasa, S. Cafiero, G. Fortino, "Fault tolerant decentralised k-means clustering for asynchronous
    large-scale networks", Journal of Parallel and Distributed Computing 73(3), 2013; push-pull: M. Jelasity,
    A. Montresor, O. Babaoglu, "Gossip-based aggregation in large dynamic networks", ACM Transactions on Computer
    Systems 23, 2005.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.Epidemic(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 54)
    """

    k: int
    _: KW_ONLY
    cycles: int = 24
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    name: ClassVar[str] = "epidemic"
    default_rounds: ClassVar[int] = 20

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        object.__setattr__(self, "init", Init.of(self.init))
        whole(self.k, 1, "clusters")
        whole(self.cycles, 1, "cycles")
        positive(self.tol, "tol", zero=True)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return replace(_SENT, init=self.init)

    @property
    def schedule(self) -> str:
        """Return the schedule: every device, C times a round."""
        return f"jacobi*{self.cycles}"

    def on(self, topology: Topology) -> "PairwiseSums":
        """Return the algorithm that the loop runs: who meets whom depends on the whole graph."""
        return PairwiseSums(self, topology)


@register("epidemic")
class PairwiseSumsState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    mass : float64[n, k, d + 1]
        The rows (S, n) being averaged.
    """

    centroids: Floats
    converged: Mask
    mass: Floats


@dataclass(frozen=True)
class PairwiseSums(OnGraph):
    """Epidemic k-means on a graph."""

    method: Epidemic
    topology: Topology

    name: ClassVar[str] = "epidemic"

    @property
    def schedule(self) -> str:
        """Return the schedule of the method."""
        return self.method.schedule

    def expected_messages(self, known: Known) -> EveryTurn:
        """Return sums and counts of all k rows, to one partner."""
        return EveryTurn(self.k, known.features + 1, absent_rows=True, to="partner")

    def flops(self, work: Work) -> Integers:
        """Count a turn: its share of the pass over the own points, and a table."""
        return work.d * (3 * self.k + 2) * work.sizes // self.method.cycles + 2 * self.k * (work.d + 1)

    def initial_state(self, devices: Devices, start: Any) -> PairwiseSumsState:
        """Start from the centroids of the last stage."""
        asleep = np.zeros(len(devices), np.bool_)
        return PairwiseSumsState(start.centroids, asleep, local_sums(devices, start.centroids))

    def message(self, state: PairwiseSumsState, devices: Devices) -> DenseMessages:
        """Send the sums to the partner of the next cycle; a device without links sends them to no device."""
        partner = find_partners(self.topology, devices, self.method.cycles)
        sending = devices.active_devices & ((partner >= 0) | (devices.degrees == 0))
        rows = np.where(sending, self.k, -1)
        return DenseMessages(state.mass, rows, edges=partner[devices.sources] == devices.indices)

    def update(self, state: PairwiseSumsState, inbox: Inbox, devices: Devices) -> PairwiseSumsState:
        """Average with the partner that just sent, if there is one; in the last turn of a round divide, and measure."""
        met = np.zeros(len(devices), np.bool_)
        met[devices.sources[inbox.fresh]] = True
        mass = np.where(met, 0.5, 1.0)[:, None, None] * add_fresh(devices, inbox, state.mass)
        if devices.turn < self.method.cycles - 1:
            return state._replace(mass=mass)
        centroids = centroids_from_sums(mass, state.centroids, _LEAST * devices.unit)
        converged = has_converged(centroids, state.centroids, self.method.tol * devices.data_std)
        return PairwiseSumsState(centroids, converged, local_sums(devices, centroids))
