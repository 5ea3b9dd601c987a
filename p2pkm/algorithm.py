"""What a method is: three pure functions on a batch of devices, and a state of arrays."""

from typing import Any, Protocol

from p2pkm.devices import Devices, Floats, Mask
from p2pkm.mail import Inbox, Mail


class State(Protocol):
    """A NamedTuple of arrays, device axis first (own edge axis if named `edge_*`, origin axis if named `store_*`).

    A state may have a field `stalled`, bool[n]: unsettled, but going round in circles.
    """

    @property
    def centroids(self) -> Floats:
        """Return the centroids, float64[n, k, d]; absent rows are +inf."""

    @property
    def settled(self) -> Mask:
        """Return which devices see no reason to go on, bool[n]."""


class Algorithm(Protocol):
    """A method: a frozen dataclass of its hyper-parameters. It never sees network, rank, clock or file.

    No function writes into an array that it was given.
    """

    @property
    def k(self) -> int:
        """Return the number of clusters."""

    @property
    def schedule(self) -> str:
        """Return the name of the default schedule."""

    def init(self, devices: Devices, start: Any) -> Any:
        """Return the state before the opening; `start` is the last stage's state, or None."""

    def message(self, state: Any, devices: Devices) -> Mail:
        """Return what the awake devices say."""

    def update(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Return the state after the awake devices have acted on what they heard."""
