"""Choose one of several candidate clusterings by the sum of all devices' local losses."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Flooding, Known
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks.flooding import Flood, begin, group, receive, send
from p2pkm.methods.init.flooded_summaries import summarize


@register("select-candidate")
class SelectCandidateState(NamedTuple):
    """centroids: float64[n, k, d]; converged: bool[n], has chosen; candidates: float64[n, q, k, d]; flood."""

    centroids: Floats
    converged: Mask
    candidates: Floats
    flood: Flood


@dataclass(frozen=True)
class SelectCandidate(MethodBase):
    """``W <- W^q, q = argmin_q sum_i L_i(W^q)``, the lowest q on ties; L_i is the local loss (6).

    Message: the losses of the q candidates on the own points, one row of q columns, flooded; the id of the origin
    travels uncounted. A device without points sends an empty table. Starts from a stage with `candidates`.

    Privacy: d + 1 losses of one point reveal where it is. With a `min_cluster_size` the losses are those of the summary
    of the own points that every device can have received already, see `judges`, so they reveal nothing more; a device
    that had none to send sends an empty table.
    """

    name: ClassVar[str] = "select-candidate"
    traits: ClassVar[MethodTraits] = MethodTraits(ends_under_faults=True, common_centroids=True)
    k: int
    candidates: int = 1
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> Flooding:
        """Return the losses of all candidates."""
        return Flooding(1, self.candidates)

    def initial_state(self, devices: Devices, start: Any) -> SelectCandidateState:
        """Price the candidates on the own points."""
        candidates: Floats = start.candidates
        judging = judges(devices, self.k)
        losses = [price(devices, judging, candidates[:, q].copy()) for q in range(candidates.shape[1])]
        rows = (np.diff(judging[2]) > 0).astype(np.int64)
        flood = begin(devices, np.stack(losses, axis=1)[:, None, :], rows)
        return SelectCandidateState(candidates[:, 0].copy(), np.zeros(len(devices), np.bool_), candidates, flood)

    def message(self, state: SelectCandidateState, devices: Devices) -> DenseMessages:
        """Forward the losses that are news."""
        return send(state.flood, devices)

    def update(self, state: SelectCandidateState, inbox: Inbox, devices: Devices) -> SelectCandidateState:
        """Take in losses; choose if there was nothing new."""
        flood = receive(state.flood, inbox, devices)
        ready = np.logical_not(flood.news.any(axis=1))
        members = np.flatnonzero(ready & ~state.converged)
        centroids = state.centroids.copy()
        if len(members):
            collections, which = group(flood, members)
            zero = np.zeros((1, state.candidates.shape[1]))
            totals = [np.cumsum(np.concatenate((zero, losses)), axis=0)[-1] for losses in collections]
            best = np.argmin(totals, axis=1)[which]
            centroids[members] = state.candidates[members, best]
        return SelectCandidateState(centroids, ready, state.candidates, flood)


def judges(devices: Devices, k: int) -> tuple[NDArray[Any], Floats, Integers]:
    """Return points, weights and offsets that candidates are priced on, as the kernels take them: those of the devices.

    With a `min_cluster_size`, the pairs (centroid, count) of every device's summary, which are sent before.
    """
    if devices.min_count < 2:
        return devices.kernel_inputs
    pairs, rows = pack(summarize(devices, k))
    real = pairs[np.arange(k) < rows[:, None]]
    return np.ascontiguousarray(real[:, :-1]), np.ascontiguousarray(real[:, -1]), np.concatenate(([0], np.cumsum(rows)))


def price(devices: Devices, judging: tuple[NDArray[Any], Floats, Integers], sets: Floats) -> Floats:
    """Return what one set of each device, float64[n, k, d], costs on its judges, float64[n]."""
    return devices.kernels.losses(*judging, sets)[0]
