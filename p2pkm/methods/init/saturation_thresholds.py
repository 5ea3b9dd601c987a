"""How far apart neighbors may be before their link begins to give way."""

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
    """centroids: float64[n, k, d]; converged: bool[n]; quartile: float64[n], nan if no links; edge_limit: [e]."""

    centroids: Floats
    converged: Mask
    quartile: Floats
    edge_limit: Floats


@dataclass(frozen=True)
class SaturationThresholds(MethodBase):
    """``d0_ij = min(q_i, q_j)``, q_i the lower quartile of the variation (4) over i's links as the centroids are now.

    Message: the centroids, then one row with q_i. The centroids stay as they are.
    """

    name: ClassVar[str] = "saturation-thresholds"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OPENING_CENTROIDS, suppresses_small_clusters=True
    )
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilUnchanged:
        """Return the centroids, then less."""
        return UntilUnchanged(self.k, known.features)

    def initial_state(self, devices: Devices, start: Any) -> SaturationThresholdsState:
        """Take the centroids of the stage before."""
        n, e = len(devices), len(devices.indices)
        return SaturationThresholdsState(start.centroids, np.zeros(n, np.bool_), np.full(n, np.nan), np.full(e, np.inf))

    def message(self, state: SaturationThresholdsState, devices: Devices) -> DenseMessages:
        """Send the centroids, then the quartile."""
        if devices.round == 0:
            return DenseMessages(*pack(state.centroids))
        rows = (state.quartile >= 0.0).astype(np.int64)
        return DenseMessages(state.quartile[:, None, None], rows if devices.round == 1 else np.full(len(devices), -1))

    def update(self, state: SaturationThresholdsState, inbox: Inbox, devices: Devices) -> SaturationThresholdsState:
        """Measure the own links, then take the smaller quartile of both ends."""
        if devices.round == 1:
            edges = received_edges(inbox, devices.active_edges)
            values = variation(devices, state.centroids, inbox, edges)
            return state._replace(quartile=lower_quartile(devices, values, edges))
        both = inbox.fresh & (inbox.rows_of(slice(None)) == 1) & (state.quartile[devices.sources] >= 0.0)
        fresh = np.flatnonzero(both)  # who has received nothing has no quartile, and its links never give way
        limit = np.full(len(devices.indices), np.inf)
        theirs = inbox.tables_of(fresh, 1, 1)[:, 0, 0]
        limit[fresh] = np.minimum(state.quartile[devices.sources[fresh]], theirs)
        return state._replace(edge_limit=limit, converged=np.ones(len(devices), np.bool_))
