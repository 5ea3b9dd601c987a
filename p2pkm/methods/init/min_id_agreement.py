"""One answer for all, where devices may have come to different ones: that of the device with the lowest id."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.init.flooded_summaries import summarize

_CALM = 2  # rounds without news, after which a device has converged


@register("min-id-agreement")
class MinIdAgreementState(NamedTuple):
    """The state of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    candidates : float64[n, q, k, d]
    origin : int64[n]
        The device that they come from, or N more than its id if it had to make do with its own points; 2 N: none.
    calm : int8[n]
        Rounds without news, counted up to 2.
    """

    centroids: Floats
    converged: Mask
    candidates: Floats
    origin: Integers
    calm: NDArray[np.int8]


@dataclass(frozen=True)
class MinIdAgreement(MethodBase):
    """``W_i <- W_j, j = argmin over i and its neighbors of the origin``, until nothing changes.

    Where messages are lost devices may hold different pairs or losses, and so different candidates. A device that has
    none, because it was away, sends the centroids of its own points, which count only until it receives others.

    Message: all candidates, q k rows (absent ones travel as +inf), in every round, for any of them may be lost; the id
    of their origin travels uncounted.

    Attributes
    ----------
    k : int
    chosen : bool
        Whether to agree on the centroids of the stage before, instead of its candidates.
    """

    name: ClassVar[str] = "min-id-agreement"
    traits: ClassVar[MethodTraits] = MethodTraits(ends_under_faults=True)
    k: int
    chosen: bool = False
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> None:
        """Return nothing: the data decide."""
        return None

    def initial_state(self, devices: Devices, start: Any) -> MinIdAgreementState:
        """Take the candidates of the stage before, or the centroids of the own points where there are none."""
        n, candidates = len(devices), start.centroids[:, None] if self.chosen else start.candidates
        missing = ~np.isfinite(candidates).any(axis=(1, 2, 3))
        if missing.any():
            own = summarize(devices, self.k)[:, :, :-1]
            candidates = np.where(missing[:, None, None, None], own[:, None], candidates)
        behind = missing | ~start.converged
        nothing = ~np.isfinite(candidates).any(axis=(1, 2, 3))
        origin = np.where(nothing, 2 * devices.total, devices.ids + devices.total * behind)
        return _state(candidates, origin, np.zeros(n, np.int8))

    def message(self, state: MinIdAgreementState, devices: Devices) -> DenseMessages:
        """Send all candidates and where they come from."""
        n, q, k, d = state.candidates.shape
        values = np.empty((n, q * k, 1 + d))
        values[:, :, 0], values[:, :, 1:] = state.origin[:, None], state.candidates.reshape(n, q * k, d)
        sending = devices.active_devices & ((state.origin < 2 * devices.total) | (devices.round == 0))
        rows = np.where(state.origin < 2 * devices.total, q * k, 0)
        return DenseMessages(values, np.where(sending, rows, -1), header=1)

    def update(self, state: MinIdAgreementState, inbox: Inbox, devices: Devices) -> MinIdAgreementState:
        """Take over what comes from a lower id than the own candidates."""
        edges = np.flatnonzero(inbox.fresh & (inbox.rows_of(slice(None)) > 0))
        owner, origins = devices.sources[edges], inbox.tables_of(edges, 1, 1)[:, 0, 0].astype(np.int64)
        order = np.lexsort((origins, owner))
        who, first = np.unique(owner[order], return_index=True)
        best = order[first]
        lower = origins[best] < state.origin[who]
        who, best = who[lower], best[lower]
        candidates, origin, calm = state.candidates.copy(), state.origin.copy(), state.calm + np.int8(1)
        _, q, k, d = candidates.shape
        tables = inbox.tables_of(edges[best], q * k, 1 + d)[:, :, 1:]
        candidates[who], origin[who], calm[who] = tables.reshape(-1, q, k, d), origins[best], 0
        return _state(candidates, origin, np.minimum(calm, np.int8(_CALM)))


def _state(candidates: Floats, origin: Integers, calm: NDArray[np.int8]) -> MinIdAgreementState:
    return MinIdAgreementState(candidates[:, 0].copy(), calm >= _CALM, candidates, origin, calm)
