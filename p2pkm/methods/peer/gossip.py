"""Gossip k-means: local Lloyd steps, and averages of matched centroids of two devices at a time."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.card import OPEN, Card
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import MethodBase, OnGraph
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import check_integer, check_positive
from p2pkm.methods.building_blocks.averaging import has_converged, local_sums
from p2pkm.methods.building_blocks.optimal_matching import match_rows
from p2pkm.methods.building_blocks.random_matching import find_partners
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology

_SENT = MethodTraits(
    message_content=MessageContent.CENTROIDS,
    suppresses_small_clusters=True,
    incompatible_with={"compression": "sends to one neighbor at a time, so that the others lack the numbers"},
    follows_points=True,
)


@dataclass(frozen=True)
class GossipMatching(MethodBase):
    r"""Local Lloyd steps, and averages of matched centroids in random pairs of neighbors.

    In each round a device moves its centroids towards the means of its local points, and averages them with those of
    one neighbor, weighted by a confidence, which starts as the number of local points. Centroids are paired by
    distance, so devices may start from different centroids.

    Parameters
    ----------
    k : int
        Number of clusters.
    share : float, default=0.04
        Weight of the local points in a Lloyd step; 0 < share <= 1. The averages reach back over about 1 / share
        exchanges.
    init : Init or str, default="global:candidates=1"
        Initialization.
    tol : float, default=1e-5
        A device has converged if no coordinate of its centroids moved by more than tol * sqrt(total variance) in a
        round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    Epidemic
        Averages of sums in random pairs, with Lloyd steps of all devices together.

    Notes
    -----
    **Update.** Device i has centroids w_c with confidences c_c. S_c and N_c are the sum and the number of its local
    points nearest to w_c. First a Lloyd step::

        w_c <- (share S_c + (1 - share) c_c w_c) / (share N_c + (1 - share) c_c);  c_c <- share N_c + (1 - share) c_c

    Then the pairs of a random maximal matching, computed from graph and seed, exchange their rows. Both ends i and j
    pair their centroids so that the sum of squared distances is smallest (Hungarian method [2]_), and set for each
    pair::

        w <- (c_i w_i + c_j w_j) / (c_i + c_j);  c <- (c_i + c_j) / 2

    Centroids with zero weight, or without a counterpart, do not move.

    **Messages.** The present rows (w_c, c_c) to the partner only, once per round and in the initial exchange.

    **Convergence.** An exchange preserves c_i + c_j and c_i w_i + c_j w_j of each pair [1]_. Consensus is not
    guaranteed: local Lloyd steps separate the devices again in every round.

    **Privacy.** No guarantee. The partner receives centroids and confidences; the first confidences are numbers of
    points.

    References
    ----------
    .. [1] S. Boyd, A. Ghosh, B. Prabhakar, D. Shah, "Randomized gossip algorithms", IEEE Transactions on Information
       Theory 52, 2006.
    .. [2] H. W. Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics Quarterly 2, 1955.

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

    card = Card(
        "gossip",
        family="iterative",
        sends="centroids",
        points="few",
        line="means of matched centroids with one neighbor at a time",
        paper={"share": 0.04, "init": "global:candidates=1", "tol": 1e-5},
        source=OPEN,
    )
    name: ClassVar[str] = card.name
    schedule: ClassVar[str] = "jacobi"
    default_rounds: ClassVar[int] = 150

    def __post_init__(self) -> None:
        """Validate the parameters."""
        object.__setattr__(self, "init", Init.of(self.init))
        check_integer(self.k, 1, "clusters")
        check_positive(self.tol, "tol", zero=True)
        check_positive(self.share, "share", most=1.0)

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return replace(_SENT, init=self.init)

    def on(self, topology: Topology) -> "GossipMatchingOnGraph":
        """Bind the method to a graph, because the random matching depends on all links."""
        return GossipMatchingOnGraph(self, topology)


@register("pairwise-gossip")
class GossipMatchingState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        After the last exchange with a partner.
    converged : bool[n]
    blended : float64[n, k, d + 1]
        Rows (w_c, c_c) after the Lloyd step, to be averaged next. Rows of absent centroids are (+inf, 0).
    """

    centroids: Floats
    converged: Mask
    blended: Floats


@dataclass(frozen=True)
class GossipMatchingOnGraph(OnGraph):
    """`GossipMatching` bound to a graph."""

    method: GossipMatching
    topology: Topology
    traits: ClassVar[MethodTraits] = _SENT
    schedule: ClassVar[str] = "jacobi"

    def expected_messages(self, known: Known) -> EveryTurn:
        """Count k rows with confidences to one partner per device."""
        return EveryTurn(self.k, known.features + 1, to="partner")

    def initial_state(self, devices: Devices, start: Any) -> GossipMatchingState:
        """Start from the centroids of the last stage, with the numbers of local points as confidences."""
        confidences = local_sums(devices, start.centroids)[:, :, -1]
        blended = add_local_points(devices, start.centroids, confidences, self.method.share)
        return GossipMatchingState(start.centroids, np.zeros(len(devices), np.bool_), blended)

    def message(self, state: GossipMatchingState, devices: Devices) -> DenseMessages:
        """Send the rows after the Lloyd step to the partner of the next round."""
        values, rows = pack(state.blended)
        partner = find_partners(self.topology, devices)
        # A device without links sends a table over no edge: silence would end the run before its own Lloyd steps end.
        sending = devices.active_devices & ((partner >= 0) | (devices.degrees == 0))
        return DenseMessages(values, np.where(sending, rows, -1), edges=partner[devices.sources] == devices.indices)

    def update(self, state: GossipMatchingState, inbox: Inbox, devices: Devices) -> GossipMatchingState:
        """Average with the partner if its message arrived; then take the Lloyd step for the next exchange."""
        averaged = state.blended.copy()
        source = devices.sources
        for e in np.flatnonzero(inbox.fresh):
            i = source[e]
            received = inbox.tables_of(e, inbox.rows_of(e), averaged.shape[2])
            averaged[i] = average_pair(averaged[i], received, first=bool(devices.ids[i] < devices.indices[e]))
        centroids = np.ascontiguousarray(averaged[:, :, :-1])
        converged = has_converged(centroids, state.centroids, self.method.tol * devices.data_std)
        blended = add_local_points(devices, centroids, averaged[:, :, -1], self.method.share)
        return GossipMatchingState(centroids, converged, blended)


def add_local_points(devices: Devices, centroids: Floats, confidences: Floats, share: float) -> Floats:
    """Average the local points of each cluster into its centroid.

    Parameters
    ----------
    centroids : float64[n, k, d]
    confidences : float64[n, k]
        Weights of the centroids.
    share : float
        Weight of the local points; the centroids count with 1 - share.

    Returns
    -------
    rows : float64[n, k, d + 1]
        Centroids and confidences (w, c). A row with zero weight keeps its centroid.
    """
    sums = share * local_sums(devices, centroids)
    centroid_weights = (1.0 - share) * confidences
    weight = sums[:, :, -1] + centroid_weights
    has_weight = weight > 0.0
    before = np.where(has_weight[:, :, None], centroids, 0.0) * centroid_weights[:, :, None]
    moved = (sums[:, :, :-1] + before) / np.where(has_weight, weight, 1.0)[:, :, None]
    return np.concatenate((np.where(has_weight[:, :, None], moved, centroids), weight[:, :, None]), axis=2)


def average_pair(local: Floats, received: Floats, *, first: bool) -> Floats:
    """Average the rows (w, c) of a device with the matched rows of its partner.

    Parameters
    ----------
    local : float64[k, d + 1]
        Absent rows are +inf and stay absent.
    received : float64[r, d + 1]
    first : bool
        Whether the device has the lower id. Both ends then solve the same matching problem and break ties equally.

    Returns
    -------
    rows : float64[k, d + 1]
    """
    local_rows, received_rows = match_rows(local[:, :-1], received[:, :-1], first=first)
    has_weight = (local[local_rows, -1:] + received[received_rows, -1:])[:, 0] > 0.0
    local_rows, received_rows = local_rows[has_weight], received_rows[has_weight]
    a, b = local[local_rows, -1:], received[received_rows, -1:]
    result = local.copy()
    result[local_rows, :-1] = (a * local[local_rows, :-1] + b * received[received_rows, :-1]) / (a + b)
    result[local_rows, -1:] = 0.5 * (a + b)
    return result
