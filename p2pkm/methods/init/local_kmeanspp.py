"""Initialization by local k-means++ seeding on every device, without messages."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Stream
from p2pkm.core.expected_messages import Known, NoMessages
from p2pkm.core.messages import DenseMessages, Inbox, no_messages
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.small_clusters import suppressed_means

# Largest number of Lloyd steps with a `min_cluster_size`.
_LIMIT = 300


@register("local-kmeanspp")
class LocalKMeansPPState(NamedTuple):
    """centroids: float64[n, k, d]; converged: bool[n]."""

    centroids: Floats
    converged: Mask


@dataclass(frozen=True)
class LocalKMeansPP(MethodBase):
    """Initialization by plain k-means++ seeding on the local points of each device [1]_.

    Devices start with unrelated centroids. From these, GTVMin ends in a poor local minimum for every alpha; this
    initialization exists to show it.

    Attributes
    ----------
    k : int
        Number of clusters.

    Notes
    -----
    **Update.** Each device draws its centroids. With fewer than k distinct points the remaining centroids are absent.
    With a `min_cluster_size` p, Lloyd steps follow, and centroids of fewer than p points are absent.

    **Messages.** None.

    **Privacy.** The stage sends nothing, but its centroids are local points, which the method may send. With a
    `min_cluster_size` they are means.

    References
    ----------
    .. [1] D. Arthur, S. Vassilvitskii, "k-means++: the advantages of careful seeding", 2007.
    """

    name: ClassVar[str] = "local"
    traits: ClassVar[MethodTraits] = MethodTraits(message_content=MessageContent.OTHER, ends_under_faults=True)
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> NoMessages:
        """Expect no messages."""
        return NoMessages()

    def finds_all(self, known: Known, before: bool) -> bool:
        """Check whether every device is certain to end with k centroids."""
        return known.fills(self.k)

    def initial_state(self, devices: Devices, start: Any) -> LocalKMeansPPState:
        """Draw the centroids."""
        # Without Lloyd steps each centroid is a local point, which must not leave its device with a min_cluster_size.
        limit = _LIMIT if devices.min_count > 1 else 0
        centroids, _, _ = devices.kmeans(self.k, Stream.LOCAL, starts=1, limit=limit, greedy=False)
        return LocalKMeansPPState(suppressed_means(devices, centroids), np.ones(len(devices), np.bool_))

    def message(self, state: LocalKMeansPPState, devices: Devices) -> DenseMessages:
        """Send nothing."""
        return no_messages(len(devices), 1, devices.d)

    def update(self, state: LocalKMeansPPState, inbox: Inbox, devices: Devices) -> LocalKMeansPPState:
        """Return the state unchanged."""
        return state
