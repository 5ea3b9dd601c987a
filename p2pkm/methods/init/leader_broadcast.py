"""The own seeds of one device, spread along a tree."""

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
    """centroids: float64[n, k, d]; converged: bool[n], has centroids; news: bool[n], got them just now."""

    centroids: Floats
    converged: Mask
    news: Mask


@dataclass(frozen=True)
class Leader(MethodBase):
    """``W_i <- W_parent(i)``, once, along a breadth-first tree; the root draws plain k-means++ seeds from its points.

    Message: k rows per tree edge. The tree is computed from the topology and known to all, like the colors.

    Attributes
    ----------
    k : int
    parent : int64[N]
        Parent of each device of the system, -1 at the leader of each component.
    """

    name: ClassVar[str] = "leader"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.FORWARDED_CENTROIDS, common_centroids=True
    )
    k: int
    parent: Integers
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> TreeBroadcast:
        """Return k rows over every link of the tree."""
        return TreeBroadcast(self.parent, self.k, known.features)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device has k centroids in the end, for sure."""
        return known.pools(self.k) and known.distinct == known.points and -(-known.points // known.clients) >= self.k

    def initial_state(self, devices: Devices, start: Any) -> LeaderState:
        """Let the leaders draw their seeds."""
        centroids = np.full((len(devices), self.k, devices.d), np.inf)
        leads = self.parent[devices.ids] < 0
        for i in np.flatnonzero(leads):
            search = Search(self.k, Stream.LOCAL, limit=0, greedy=False)
            centroids[i] = cluster(devices.kernels, int(devices.keys[i]), *devices.table(i), search)[0]
        return LeaderState(centroids, leads, leads)

    def message(self, state: LeaderState, devices: Devices) -> DenseMessages:
        """Send the centroids to the children, once."""
        values, rows = pack(state.centroids)
        source = devices.sources
        children = self.parent[devices.indices] == devices.ids[source]
        return DenseMessages(
            values, np.where(state.news & devices.active_devices, rows, -1), edges=children & state.news[source]
        )

    def update(self, state: LeaderState, inbox: Inbox, devices: Devices) -> LeaderState:
        """Take over what the parent sent."""
        centroids, news = state.centroids.copy(), np.zeros(len(devices), np.bool_)
        source = devices.sources
        for e in np.flatnonzero(inbox.fresh):
            rows = int(inbox.rows_of(e))
            centroids[source[e], :rows] = inbox.tables_of(e, rows, centroids.shape[2])
            news[source[e]] = True
        return LeaderState(centroids, state.converged | news, news)


def elect(topology: Topology, sizes: Integers, k: int, key: int) -> Integers:
    """Draw one leader per component among the devices with at least k points, else take the largest device.

    Parameters
    ----------
    sizes : int64[n]
        Number of points of each device.
    key : int
        Shared key of the random streams.

    Returns
    -------
    int64[components]
    """
    leaders = []
    for number in range(topology.components.max() + 1):
        members = np.flatnonzero(topology.components == number)
        able = members[sizes[members] >= k]
        draw = uniforms(key, Stream.LEADER, [number], 1)[0, 0]
        leaders.append(able[int(draw * len(able))] if len(able) else members[np.argmax(sizes[members])])
    return np.array(leaders)
