"""Own seeds: no message at all."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Stream
from p2pkm.core.expected_messages import Known, NoMessages
from p2pkm.core.messages import DenseMessages, Inbox, no_messages
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks.small_clusters import publish

_LIMIT = 300  # Lloyd steps, where seeds may not leave


@register("local-kmeanspp")
class OwnState(NamedTuple):
    """centroids: float64[n, k, d]; converged: bool[n]."""

    centroids: Floats
    converged: Mask


@dataclass(frozen=True)
class LocalKMeansPP(MethodBase):
    """Every device draws plain k-means++ seeds from its own points (Arthur and Vassilvitskii 2007).

    Fewer than k distinct points leave rows absent. GTVMin started from own seeds is trapped in a poor local minimum
    at every alpha: this seeding exists to show it. With a `min_cluster_size` Lloyd steps follow, and rows of fewer
    points are absent.
    """

    name: ClassVar[str] = "local"
    traits: ClassVar[MethodTraits] = MethodTraits(ends_under_faults=True)
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> NoMessages:
        """Return that nothing is sent."""
        return NoMessages()

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device has k centroids in the end, for sure."""
        return known.fills(self.k)

    def initial_state(self, devices: Devices, start: Any) -> OwnState:
        """Draw the seeds."""
        limit = _LIMIT if devices.min_count > 1 else 0  # a seed is a point as it is
        centroids, _, _ = devices.kmeans(self.k, Stream.LOCAL, starts=1, limit=limit, greedy=False)
        return OwnState(publish(devices, centroids), np.ones(len(devices), np.bool_))

    def message(self, state: OwnState, devices: Devices) -> DenseMessages:
        """Send nothing."""
        return no_messages(len(devices), 1, devices.d)

    def update(self, state: OwnState, inbox: Inbox, devices: Devices) -> OwnState:
        """Change nothing."""
        return state
