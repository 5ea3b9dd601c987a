"""Agreement of all devices on the initial centroids of the device with the lowest id."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.init.flooded_summaries import summarize

# Rounds without a change after which a device has converged.
_CALM = 2


@register("min-id-agreement")
class MinIdAgreementState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        First candidate.
    converged : bool[n]
    candidates : float64[n, q, k, d]
    origin : int64[n]
        Id of the device that computed the candidates, plus N if it used its local points only; 2 N if there are none.
    calm : int8[n]
        Rounds without a change, at most 2.
    """

    centroids: Floats
    converged: Mask
    candidates: Floats
    origin: Integers
    calm: NDArray[np.int8]


@dataclass(frozen=True)
class MinIdAgreement(MethodBase):
    """Agreement on the candidates, or the centroids, of the device with the lowest id.

    If messages are lost, devices may hold different summary rows or losses, and so different candidates.

    Attributes
    ----------
    k : int
        Number of clusters.
    chosen : bool, default=False
        Agree on the centroids of the previous stage instead of its candidates.

    Notes
    -----
    **Update.** ``W_i <- W_j`` where j is the device with the lowest origin among i and its neighbors, until nothing
    changes for 2 rounds. A device without candidates, because it was unavailable, uses the centroids of its local
    points; its origin counts after all others.

    **Messages.** All candidates (q k rows, absent ones as +inf) in every round, because any message may be lost. The id
    of the origin is not counted.

    **Privacy.** No guarantee. Candidates of another device are forwarded unchanged.
    """

    name: ClassVar[str] = "min-id-agreement"
    traits: ClassVar[MethodTraits] = MethodTraits(message_content=MessageContent.OTHER, ends_under_faults=True)
    k: int
    chosen: bool = False
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> None:
        """Return None: the number of messages depends on the data."""
        return None

    def initial_state(self, devices: Devices, start: Any) -> MinIdAgreementState:
        """Adopt the candidates of the previous stage; devices without any use the centroids of their local points."""
        candidates = start.centroids[:, None] if self.chosen else start.candidates
        missing = ~np.isfinite(candidates).any(axis=(1, 2, 3))
        if missing.any():
            local = summarize(devices, self.k)[:, :, :-1]
            candidates = np.where(missing[:, None, None, None], local[:, None], candidates)
        has_low_priority = missing | ~start.converged
        is_empty = ~np.isfinite(candidates).any(axis=(1, 2, 3))
        origin = np.where(is_empty, 2 * devices.total, devices.ids + devices.total * has_low_priority)
        return _state(candidates, origin, np.zeros(len(devices), np.int8))

    def message(self, state: MinIdAgreementState, devices: Devices) -> DenseMessages:
        """Send all candidates and their origin."""
        n, q, k, d = state.candidates.shape
        values = np.empty((n, q * k, 1 + d))
        values[:, :, 0] = state.origin[:, None]
        values[:, :, 1:] = state.candidates.reshape(n, q * k, d)
        sending = devices.active_devices & ((state.origin < 2 * devices.total) | (devices.round == 0))
        rows = np.where(state.origin < 2 * devices.total, q * k, 0)
        return DenseMessages(values, np.where(sending, rows, -1), header=1)

    def update(self, state: MinIdAgreementState, inbox: Inbox, devices: Devices) -> MinIdAgreementState:
        """Adopt received candidates with a lower origin."""
        edges = np.flatnonzero(inbox.fresh & (inbox.rows_of(slice(None)) > 0))
        owner = devices.sources[edges]
        origins = inbox.tables_of(edges, 1, 1)[:, 0, 0].astype(np.int64)
        order = np.lexsort((origins, owner))
        receivers, first = np.unique(owner[order], return_index=True)
        best = order[first]
        lower = origins[best] < state.origin[receivers]
        receivers, best = receivers[lower], best[lower]
        candidates = state.candidates.copy()
        origin = state.origin.copy()
        calm = state.calm + np.int8(1)
        _, q, k, d = candidates.shape
        tables = inbox.tables_of(edges[best], q * k, 1 + d)[:, :, 1:]
        candidates[receivers] = tables.reshape(-1, q, k, d)
        origin[receivers] = origins[best]
        calm[receivers] = 0
        return _state(candidates, origin, np.minimum(calm, np.int8(_CALM)))


def _state(candidates: Floats, origin: Integers, calm: NDArray[np.int8]) -> MinIdAgreementState:
    """Create the state whose centroids are the first candidates."""
    return MinIdAgreementState(candidates[:, 0].copy(), calm >= _CALM, candidates, origin, calm)
