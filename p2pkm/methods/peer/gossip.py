"""Gossip k-means: own Lloyd steps, and averages of two devices at a time."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import MethodBase, OnGraph
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, whole
from p2pkm.methods.building_blocks.averaging import has_converged, local_sums
from p2pkm.methods.building_blocks.optimal_matching import pair_rows
from p2pkm.methods.building_blocks.random_matching import find_partners
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology

_SENT = MethodTraits(message_content=MessageContent.CENTROIDS, suppresses_small_clusters=True, follows_points=True)


@dataclass(frozen=True)
class GossipMatching(MethodBase):
    r"""Blend the centroids with the own points, meet one neighbor, and go on with the common mean.

    Device i has k centroids w_c with confidences c_c, at the start the numbers of its points nearest to them. A round
    is two steps. First a Lloyd step, blended (S_c and N_c are the sum and the number of the own points nearest to w_c,
    which count `share`, the centroid 1 - share; a centroid without any weight stays)::

        w_c <- (S_c + c_c w_c) / (N_c + c_c);  c_c <- (c_c + N_c) / 2    (at share = 1/2)

    Then the devices meet along a random maximal matching of the links, which all can compute from the topology and
    the seed. The two ends i and j pair their centroids so that the sum of squared distances is least (Hungarian
    method), and both take for each pair::

        w <- (c_i w_i + c_j w_j) / (c_i + c_j);  c <- (c_i + c_j) / 2

    A centroid without a partner, or a pair without any confidence, stays. Rows need no common order.

    Message: the real rows (w_c, c_c), once per round to the partner alone.

    Guarantee: a meeting keeps c_i + c_j and c_i w_i + c_j w_j of every pair and leaves it equal at both ends, to the
    bit. No common answer is promised: own Lloyd steps pull the ends apart again in every round.

    Link weights: ignored; partners are drawn without them.

    Privacy: no guarantee; the partner sees the centroids and confidences of the device, which begin as the numbers of
    its points.

    Parameters
    ----------
    k : int
        Number of clusters.
    share : float
        Weight of the own points in a blend, above 0 and at most 1. The pair (c w, c) is an average over walks of about
        1 / share meetings: with 1/2, the plain blend, a device receives little of what is further than two links away
        (on a ring of 10 with points dealt by distance: 1.31 times the central cost; 0.04: 1.010).
    init : Init or str
        How devices get their first centroids.
    tol : float
        A device has converged when no coordinate moved by more than tol x sqrt(total variance) in a round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    S. Boyd, A. Ghosh, B. Prabhakar, D. Shah, "Randomized gossip algorithms", IEEE Transactions on Information Theory
    52, 2006; H. W. Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics Quarterly 2, 1955.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.GossipMatching(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 306)
    """

    k: int
    _: KW_ONLY
    share: float = 0.04
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    name: ClassVar[str] = "gossip"
    schedule: ClassVar[str] = "jacobi"
    default_rounds: ClassVar[int] = 150

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        object.__setattr__(self, "init", Init.of(self.init))
        whole(self.k, 1, "clusters")
        positive(self.tol, "tol", zero=True)
        positive(self.share, "share", most=1.0)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return replace(_SENT, init=self.init)

    def on(self, topology: Topology) -> "PairwiseGossip":
        """Return the algorithm that the loop runs: who meets whom depends on the whole graph."""
        return PairwiseGossip(self, topology)


@register("pairwise-gossip")
class PairwiseGossipState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        After the last meeting.
    converged : bool[n]
    blended : float64[n, k, d + 1]
        The rows (w_c, c_c) that go into the next meeting; those of absent centroids are (+inf, 0).
    """

    centroids: Floats
    converged: Mask
    blended: Floats


@dataclass(frozen=True)
class PairwiseGossip(OnGraph):
    """`GossipMatching` on a graph."""

    method: GossipMatching
    topology: Topology
    traits: ClassVar[MethodTraits] = _SENT
    schedule: ClassVar[str] = "jacobi"

    def expected_messages(self, known: Known) -> EveryTurn:
        """Return k rows with their confidences to one partner."""
        return EveryTurn(self.k, known.features + 1, to="partner")

    def initial_state(self, devices: Devices, start: Any) -> PairwiseGossipState:
        """Start from the centroids of the last stage, with the numbers of the own points as confidences."""
        confidences = local_sums(devices, start.centroids)[:, :, -1]
        blended = blend(devices, start.centroids, confidences, self.method.share)
        return PairwiseGossipState(start.centroids, np.zeros(len(devices), np.bool_), blended)

    def message(self, state: PairwiseGossipState, devices: Devices) -> DenseMessages:
        """Send the blended rows to the partner of the next round; a device without links sends them to no device."""
        values, rows = pack(state.blended)
        partner = find_partners(self.topology, devices)
        sending = devices.active_devices & ((partner >= 0) | (devices.degrees == 0))
        return DenseMessages(values, np.where(sending, rows, -1), edges=partner[devices.sources] == devices.indices)

    def update(self, state: PairwiseGossipState, inbox: Inbox, devices: Devices) -> PairwiseGossipState:
        """Average with the partner that just sent, if there is one; then blend for the next exchange."""
        met = state.blended.copy()
        source = devices.sources
        for e in np.flatnonzero(inbox.fresh):
            i, theirs = source[e], inbox.tables_of(e, inbox.rows_of(e), met.shape[2])
            met[i] = meet(met[i], theirs, first=bool(devices.ids[i] < devices.indices[e]))
        centroids = np.ascontiguousarray(met[:, :, :-1])
        converged = has_converged(centroids, state.centroids, self.method.tol * devices.data_std)
        return PairwiseGossipState(centroids, converged, blend(devices, centroids, met[:, :, -1], self.method.share))


def blend(devices: Devices, centroids: Floats, confidences: Floats, share: float) -> Floats:
    """Return the rows (w, c) after a Lloyd step that keeps the old centroid in proportion to its confidence."""
    mass, kept = share * local_sums(devices, centroids), (1.0 - share) * confidences
    weight = mass[:, :, -1] + kept
    known = weight > 0.0
    before = np.where(known[:, :, None], centroids, 0.0) * kept[:, :, None]
    moved = (mass[:, :, :-1] + before) / np.where(known, weight, 1.0)[:, :, None]
    return np.concatenate((np.where(known[:, :, None], moved, centroids), weight[:, :, None]), axis=2)


def meet(mine: Floats, theirs: Floats, *, first: bool) -> Floats:
    """Return the own rows (w, c) after a meeting.

    Parameters
    ----------
    mine : float64[k, d + 1]
        Absent rows are +inf and stay.
    theirs : float64[r, d + 1]
    first : bool
        Whether the own id is the lower one: both ends solve the same problem, so that ties fall alike.
    """
    own, other = pair_rows(mine[:, :-1], theirs[:, :-1], first=first)
    a, b = mine[own, -1:], theirs[other, -1:]
    known = (a + b)[:, 0] > 0.0
    own, other, a, b = own[known], other[known], a[known], b[known]
    result = mine.copy()
    result[own, :-1] = (a * mine[own, :-1] + b * theirs[other, :-1]) / (a + b)
    result[own, -1:] = 0.5 * (a + b)
    return result
