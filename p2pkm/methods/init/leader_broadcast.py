"""Initialization by the local k-means++ centroids of one device, broadcast along a spanning tree."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask, Search, Stream, cluster
from p2pkm.core.expected_messages import Known, TreeBroadcast
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.kernels.reference import uniforms
from p2pkm.network.graph import Topology


@register("leader")
class LeaderState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf until the device has received them.
    converged : bool[n]
        Devices that hold centroids.
    has_new : bool[n]
        Devices that received them in this turn.
    """

    centroids: Floats
    converged: Mask
    has_new: Mask


@dataclass(frozen=True)
class Leader(MethodBase):
    """Initialization by k-means++ seeding on one device per component, broadcast along a breadth-first tree.

    Attributes
    ----------
    k : int
        Number of clusters.
    parent : int64[N]
        Parent of each of all N devices; -1 at the leader of each component. Public: it follows from the graph.

    Notes
    -----
    **Update.** The leader draws plain k-means++ centroids from its local points. Every other device adopts those of its
    parent.

    **Messages.** k rows over each tree link, once.

    **Privacy.** No guarantee. The centroids are local points of the leader, sent unchanged to all devices.
    """

    name: ClassVar[str] = "leader"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.FORWARDED_CENTROIDS, common_centroids=True
    )
    k: int
    parent: Integers
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> TreeBroadcast:
        """Count k rows over every link of the tree."""
        return TreeBroadcast(self.parent, self.k, known.features)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Check whether every device is certain to end with k centroids."""
        return known.pools(self.k) and known.distinct == known.points and -(-known.points // known.clients) >= self.k

    def initial_state(self, devices: Devices, start: Any) -> LeaderState:
        """Draw the centroids of the leaders."""
        centroids = np.full((len(devices), self.k, devices.d), np.inf)
        is_leader = self.parent[devices.ids] < 0
        for i in np.flatnonzero(is_leader):
            search = Search(self.k, Stream.LOCAL, limit=0, greedy=False)
            centroids[i] = cluster(devices.kernels, int(devices.keys[i]), *devices.table(i), search)[0]
        return LeaderState(centroids, is_leader, is_leader)

    def message(self, state: LeaderState, devices: Devices) -> DenseMessages:
        """Send the centroids to the children, once."""
        values, rows = pack(state.centroids)
        source = devices.sources
        children = self.parent[devices.indices] == devices.ids[source]
        return DenseMessages(
            values, np.where(state.has_new & devices.active_devices, rows, -1), edges=children & state.has_new[source]
        )

    def update(self, state: LeaderState, inbox: Inbox, devices: Devices) -> LeaderState:
        """Adopt the centroids of the parent."""
        centroids = state.centroids.copy()
        has_received = np.zeros(len(devices), np.bool_)
        source = devices.sources
        for e in np.flatnonzero(inbox.fresh):
            rows = int(inbox.rows_of(e))
            centroids[source[e], :rows] = inbox.tables_of(e, rows, centroids.shape[2])
            has_received[source[e]] = True
        return LeaderState(centroids, state.converged | has_received, has_received)


def elect(topology: Topology, sizes: Integers, k: int, key: int) -> Integers:
    """Draw one leader per component among the devices with at least k points; without any, use the largest device.

    Parameters
    ----------
    sizes : int64[n]
        Number of points of each device.
    key : int
        Shared key of the random streams.

    Returns
    -------
    leaders : int64[components]
    """
    leaders = []
    for number in range(topology.components.max() + 1):
        members = np.flatnonzero(topology.components == number)
        eligible = members[sizes[members] >= k]
        draw = uniforms(key, Stream.LEADER, [number], 1)[0, 0]
        leaders.append(eligible[int(draw * len(eligible))] if len(eligible) else members[np.argmax(sizes[members])])
    return np.array(leaders)
