"""Thresholds of the variation between neighbors above which the penalty of their link saturates."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.expected_messages import Known, UntilUnchanged
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.total_variation import lower_quartile, received_edges, variation


@register("saturation-thresholds")
class SaturationThresholdsState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    quartile : float64[n]
        Lower quartile of the variation over the links of a device; NaN without links.
    edge_limit : float64[e]
        Threshold of each edge; +inf if the link never saturates.
    """

    centroids: Floats
    converged: Mask
    quartile: Floats
    edge_limit: Floats


@dataclass(frozen=True)
class SaturationThresholds(MethodBase):
    """Thresholds ``d0_ij = min(q_i, q_j)`` for ``robust=saturate``. The centroids do not change.

    Attributes
    ----------
    k : int
        Number of clusters.

    Notes
    -----
    **Update.**

    1. Each device computes q_i, the lower quartile of the variation (4) of Jung 2025 over its links, at the initial
       centroids.
    2. Both ends of a link use the smaller of their two quartiles.

    **Messages.** The k centroids; then one row with q_i.

    **Privacy.** No guarantee. Neighbors receive the initial centroids and q_i.
    """

    name: ClassVar[str] = "saturation-thresholds"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OPENING_CENTROIDS, suppresses_small_clusters=True
    )
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilUnchanged:
        """Count the centroids as an upper bound: later messages are shorter."""
        return UntilUnchanged(self.k, known.features)

    def initial_state(self, devices: Devices, start: Any) -> SaturationThresholdsState:
        """Adopt the centroids of the previous stage."""
        n, e = len(devices), len(devices.indices)
        return SaturationThresholdsState(start.centroids, np.zeros(n, np.bool_), np.full(n, np.nan), np.full(e, np.inf))

    def message(self, state: SaturationThresholdsState, devices: Devices) -> DenseMessages:
        """Send the centroids, then the quartile."""
        if devices.round == 0:
            return DenseMessages(*pack(state.centroids))
        rows = (state.quartile >= 0.0).astype(np.int64)
        return DenseMessages(state.quartile[:, None, None], rows if devices.round == 1 else np.full(len(devices), -1))

    def update(self, state: SaturationThresholdsState, inbox: Inbox, devices: Devices) -> SaturationThresholdsState:
        """Compute the quartile of the local links, then use the smaller quartile of both ends of each link."""
        if devices.round == 1:
            edges = received_edges(inbox, devices.active_edges)
            values = variation(devices, state.centroids, inbox, edges)
            return state._replace(quartile=lower_quartile(devices, values, edges))
        # A device that has received nothing is without a quartile; its links keep +inf and never saturate.
        is_complete = inbox.fresh & (inbox.rows_of(slice(None)) == 1) & (state.quartile[devices.sources] >= 0.0)
        edges = np.flatnonzero(is_complete)
        limit = np.full(len(devices.indices), np.inf)
        received = inbox.tables_of(edges, 1, 1)[:, 0, 0]
        limit[edges] = np.minimum(state.quartile[devices.sources[edges]], received)
        return state._replace(edge_limit=limit, converged=np.ones(len(devices), np.bool_))
