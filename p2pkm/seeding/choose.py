"""Choose one of several candidate clusterings by the sum of all devices' local losses."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from p2pkm.devices import Devices, Floats, Mask
from p2pkm.mail import Inbox, Mail
from p2pkm.spread.flood import Flood, begin, group, hear, speak


class ChooseState(NamedTuple):
    """centroids: float64[n, k, d]; settled: bool[n], has chosen; candidates: float64[n, q, k, d]; flood."""

    centroids: Floats
    settled: Mask
    candidates: Floats
    flood: Flood


@dataclass(frozen=True)
class Choose:
    """``W <- W^q, q = argmin_q sum_i L_i(W^q)``, the lowest q on ties; L_i is the local loss (6).

    Message: the losses of the q candidates on the own points, one row of q columns, flooded; the id of the origin
    travels uncounted. A device without points says an empty table. Starts from a stage with `candidates`.
    """

    k: int
    schedule: str = "jacobi"

    def init(self, devices: Devices, start: Any) -> ChooseState:
        """Price the candidates on the own points."""
        candidates: Floats = start.candidates
        rows = (devices.sizes > 0).astype(np.int64)
        flood = begin(devices, price(devices, candidates)[:, None, :], rows)
        return ChooseState(candidates[:, 0].copy(), np.zeros(len(devices), np.bool_), candidates, flood)

    def message(self, state: ChooseState, devices: Devices) -> Mail:
        """Forward the losses that are news."""
        return speak(state.flood, devices)

    def update(self, state: ChooseState, inbox: Inbox, devices: Devices) -> ChooseState:
        """Take in losses; choose if there was nothing new."""
        flood = hear(state.flood, inbox, devices)
        ready = np.logical_not(flood.news.any(axis=1))
        members = np.flatnonzero(ready & ~state.settled)
        centroids = state.centroids.copy()
        if len(members):
            collections, which = group(flood, members)
            zero = np.zeros((1, state.candidates.shape[1]))
            totals = [np.cumsum(np.concatenate((zero, losses)), axis=0)[-1] for losses in collections]
            best = np.argmin(totals, axis=1)[which]
            centroids[members] = state.candidates[members, best]
        return ChooseState(centroids, ready, state.candidates, flood)


def price(devices: Devices, candidates: Floats) -> Floats:
    """Return what each candidate, float64[n, q, k, d], costs on each device's own points, float64[n, q]."""
    columns = [devices.kernels.losses(*devices.own, candidates[:, q].copy())[0] for q in range(candidates.shape[1])]
    return np.stack(columns, axis=1)
