"""Push-sum k-means: Lloyd steps on sums that the devices share out among their neighbours."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.data.checks import positive, whole
from p2pkm.devices import Devices, Floats, Mask
from p2pkm.mail import Inbox, Mail
from p2pkm.spread.averaging import divide, listen, measure, rest

_LEAST = 1e-12  # points; a cluster of which less has arrived keeps its centroid


class PushSumState(NamedTuple):
    """centroids: float64[n, k, d]; settled: bool[n]; mass: float64[n, k, d + 1], the rows (S, n) being shared out."""

    centroids: Floats
    settled: Mask
    mass: Floats


@dataclass(frozen=True)
class PushSumLloyd:
    r"""Share out the sums and counts among the neighbours, then take a Lloyd step.

    A round is one Lloyd step of T turns. Device i with neighbours N_i and deg_i of them, w_ic its centroid c, starts
    from the sum S_ic and the number n_ic of its own points nearest to w_ic::

        z_ic = (S_ic, n_ic)
        T times:  z_ic <- A_ii z_ic + sum_{j in N_i} A_ij z_jc,   A_ji = A_ii = 1 / (1 + deg_i)
        (s, v) = z_ic;  w_ic <- s / v,  kept where v < 1e-12

    A sender needs its own degree alone. Devices with many neighbours gather more than others; this weight is the same
    in s and in v and cancels in the ratio. Clusters are paired by their number, so all devices must start from the same
    centroids (any seeding but `own`).

    Message: k rows, the share (s, v) / (1 + deg_i), once per turn and at the opening.

    Guarantee: the columns of A add up to 1, so a turn keeps sum_i z_ic; s / v tends to the ratio of the sums over all
    devices of a connected graph: with T large enough every round is a central Lloyd step at every device.

    Privacy: in the first turn of every round a device says a known fraction of the sums and counts of its own points
    to its neighbours, which is to say those sums and counts.

    Parameters
    ----------
    k : int
        Number of clusters.
    gossips : int
        T, turns per Lloyd step.
    seeding : str, optional
        The stage that all devices get their start from; None: own.
    tol : float
        A device is settled when no coordinate moved by more than tol x sqrt(total variance) in a round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    D. Kempe, A. Dobra, J. Gehrke, "Gossip-based computation of aggregate information", FOCS 2003: Protocol Push-Sum,
    with equal shares to all neighbours.
    """

    k: int
    _: KW_ONLY
    gossips: int = 10
    seeding: str | None = "summaries"
    tol: float = 1e-5

    name: ClassVar[str] = "pushsum"
    recipe: ClassVar[str] = "none"
    default_rounds: ClassVar[int] = 30

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        whole(self.gossips, 1, "gossips")
        positive(self.tol, "tol", zero=True)

    @property
    def schedule(self) -> str:
        """Return the schedule: everybody, T times a round."""
        return f"jacobi*{self.gossips}"

    def init(self, devices: Devices, start: Any) -> PushSumState:
        """Start from the centroids of the last stage."""
        asleep = np.zeros(len(devices), np.bool_)
        return PushSumState(start.centroids, asleep, measure(devices, start.centroids))

    def message(self, state: PushSumState, devices: Devices) -> Mail:
        """Say the share of each neighbour."""
        return Mail(share(state.mass, devices), np.where(devices.awake, self.k, -1))

    def update(self, state: PushSumState, inbox: Inbox, devices: Devices) -> PushSumState:
        """Add up the own share and those of the neighbours; in the last turn of a round divide, and measure anew."""
        mass = share(state.mass, devices)
        for who, _, theirs in listen(devices, inbox, mass.shape[1:]):
            mass[who] += theirs
        if devices.turn < self.gossips - 1:
            return state._replace(mass=mass)
        centroids = divide(mass, state.centroids, _LEAST)
        settled = rest(centroids, state.centroids, self.tol * devices.scale)
        return PushSumState(centroids, settled, measure(devices, centroids))


def share(mass: Floats, devices: Devices) -> Floats:
    """Return what each device keeps, and what it gives to each of its neighbours."""
    return mass / (1.0 + devices.degrees)[:, None, None]
