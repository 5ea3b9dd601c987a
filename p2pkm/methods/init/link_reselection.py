"""A second look at the links: whether the centroids at one end serve the points at the other."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, UntilQuiet
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.init.link_selection import learn_degrees, send_degrees
from p2pkm.methods.init.select_candidate import judges

_LENIENT = 2.0  # times the own cost: what a neighbor's centroids may cost


@register("link-reselection")
class LinkReselectionState(NamedTuple):
    """centroids, converged; edge_active: bool[e], what is kept; edge_degrees: int64[e], how many the neighbor keeps."""

    centroids: Floats
    converged: Mask
    edge_active: Mask
    edge_degrees: Integers


@dataclass(frozen=True)
class LinkReselection(MethodBase):
    """Keep the links with ``L_i(W_j) <= 2 L_i(W_i)`` or the same with i and j exchanged; L_i is the local loss (6).

    Where one end has the better centroids of the same mixture, they serve the points of the other nearly as well as its
    own, which few points of a cluster or a poor start may have led astray; the centroids of another mixture do not. So
    this finds links that `LinkSelection` cut because the summaries of few points differ, and links that it kept by
    mistake. The neighbor whose centroids serve best is always kept. The centroids stay as they are.

    Message: the centroids, over all links of the graph; then one row over the links that the sender wants to keep; then
    one row with the number of links that stay, over these.

    Privacy: neighbors see the centroids, and a bit about what theirs cost; with a `min_cluster_size` it is about the
    summary of the own points, see `p2pkm.methods.init.select_candidate.judges`.
    """

    name: ClassVar[str] = "link-reselection"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OPENING_CENTROIDS, suppresses_small_clusters=True, cuts_links=True
    )
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilQuiet:
        """Return the centroids, then less."""
        return UntilQuiet(self.k, known.features)

    def initial_state(self, devices: Devices, start: Any) -> LinkReselectionState:
        """Take the centroids of the stage before."""
        asleep = np.zeros(len(devices), np.bool_)
        return LinkReselectionState(start.centroids, asleep, devices.active_edges, devices.neighbor_degrees)

    def message(self, state: LinkReselectionState, devices: Devices) -> DenseMessages:
        """Send the centroids, then over which links to stay, then the number of links that do."""
        if devices.round == 0:
            return DenseMessages(*pack(state.centroids))
        if devices.round == 1:
            n = len(devices)
            return DenseMessages(np.ones((n, 1, 1)), np.ones(n, np.int64), edges=state.edge_active)
        return send_degrees(devices, state.edge_active)

    def update(self, state: LinkReselectionState, inbox: Inbox, devices: Devices) -> LinkReselectionState:
        """Choose the links to keep, then add those that the neighbors want, then learn how many each of them keeps."""
        if devices.round == 1:
            return state._replace(edge_active=_serving(state.centroids, inbox, devices))
        if devices.round == 2:
            return state._replace(edge_active=state.edge_active | inbox.fresh)
        return state._replace(edge_degrees=learn_degrees(inbox), converged=np.ones(len(devices), np.bool_))


def _serving(centroids: Floats, inbox: Inbox, devices: Devices) -> Mask:
    """Return over which own edges came centroids that serve the own points, bool[e]."""
    n, k, d = centroids.shape
    stored, weights, offsets = judges(devices, k)
    own, _ = devices.kernels.losses(stored, weights, offsets, centroids)
    result = np.zeros(len(devices.indices), np.bool_)
    nobody = np.zeros(0, np.int64)
    for i in range(n):
        first, last = devices.indptr[i], devices.indptr[i + 1]
        edges = first + np.flatnonzero(inbox.fresh[first:last])
        if not len(edges):
            continue
        sets = inbox.tables[inbox.slots[edges], :k, :d].copy()
        sets[np.arange(k) >= inbox.rows[inbox.slots[edges], None]] = np.inf
        points = slice(offsets[i], offsets[i + 1])
        costs, _ = devices.kernels.price(
            stored[points], weights[points], np.array([0, points.stop - points.start]), nobody, 0, sets,
        )  # fmt: skip
        result[edges] = (costs[0] <= _LENIENT * own[i]) | (costs[0] == costs[0].min())
    return result
