"""Own seeds: no message at all."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from p2pkm.devices import OWN, Devices, Floats, Mask
from p2pkm.mail import Inbox, Mail, silence


class OwnState(NamedTuple):
    """centroids: float64[n, k, d]; settled: bool[n]."""

    centroids: Floats
    settled: Mask


@dataclass(frozen=True)
class Own:
    """Every device draws plain k-means++ seeds from its own points (Arthur and Vassilvitskii 2007).

    Fewer than k distinct points leave rows absent. GTVMin started from own seeds is trapped in a poor local minimum
    at every alpha: this seeding exists to show it.
    """

    k: int
    schedule: str = "jacobi"

    def init(self, devices: Devices, start: Any) -> OwnState:
        """Draw the seeds."""
        centroids, _, _ = devices.kmeans(self.k, OWN, starts=1, limit=0, greedy=False)
        return OwnState(centroids, np.ones(len(devices), np.bool_))

    def message(self, state: OwnState, devices: Devices) -> Mail:
        """Say nothing."""
        return silence(len(devices), 1, devices.d)

    def update(self, state: OwnState, inbox: Inbox, devices: Devices) -> OwnState:
        """Change nothing."""
        return state
