"""Consensus k-means: Lloyd steps on sums that the devices average by gossip with Metropolis weights."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, whole
from p2pkm.methods.building_blocks.averaging import WEIGHTED, centroids_from_sums, has_converged, local_sums, mix
from p2pkm.methods.init.value import Init

_LEAST = 1e-12  # points of mean weight; a cluster of which less has arrived keeps its centroid


@register("consensus")
class ConsensusState(NamedTuple):
    """centroids: float64[n, k, d]; converged: bool[n]; mass: float64[n, k, d + 1], the rows (S, n) being averaged."""

    centroids: Floats
    converged: Mask
    mass: Floats


@dataclass(frozen=True)
class ConsensusLloyd(MethodBase):
    r"""Average the sums and counts of all devices by gossip, then take a Lloyd step.

    A round is one Lloyd step of T turns. Device i with neighbors N_i and deg_i of them, w_ic its centroid c, starts
    from the sum S_ic and the number n_ic of its own points nearest to w_ic::

        z_ic = (S_ic, n_ic)
        T times:  z_ic <- z_ic + sum_{j in N_i} P_ij (z_jc - z_ic),   P_ij = 1 / (1 + max(deg_i, deg_j))
        (s, v) = z_ic;  w_ic <- s / v,  kept where v < 1e-12 points of mean weight

    Clusters are paired by their number, so all devices must start from the same centroids (any initialization but
    `local`).

    Message: k rows (s, v), once per turn and at the opening.

    Guarantee: P is symmetric with rows that add up to 1, so a turn keeps sum_i z_ic, and z_ic tends to the mean over
    the devices of a connected graph: with T large enough every round is a central Lloyd step at every device.

    Link weights: they make P; only their ratios matter. With mean_i the mean weight of the links of device i, P_ij is
    the smaller of w_ij / (mean_i (1 + deg_i)) and w_ij / (mean_j (1 + deg_j)): Metropolis and Hastings, see
    `topologies.metropolis_weights`. It is symmetric and doubly stochastic, and equal weights give the P above.

    Privacy: no guarantee; in the first turn of every round a device sends the sums and counts of its own points to its
    neighbors.

    Parameters
    ----------
    k : int
        Number of clusters.
    gossips : int
        T, turns per Lloyd step.
    init : Init or str
        How all devices get their first centroids.
    tol : float
        A device has converged when no coordinate moved by more than tol x sqrt(total variance) in a round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    L. Xiao, S. Boyd, "Fast linear iterations for distributed averaging", Systems & Control Letters 53, 2004; weights of
    links: W. K. Hastings, "Monte Carlo sampling methods using Markov chains and their applications", Biometrika 57,
    1970.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.ConsensusLloyd(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 70)
    """

    k: int
    _: KW_ONLY
    gossips: int = 10
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    name: ClassVar[str] = "consensus"
    default_rounds: ClassVar[int] = 30

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        object.__setattr__(self, "init", Init.of(self.init))
        whole(self.k, 1, "clusters")
        whole(self.gossips, 1, "gossips")
        positive(self.tol, "tol", zero=True)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.SUMS,
            init=self.init,
            follows_points=True,
            link_weights=WEIGHTED,
        )

    @property
    def schedule(self) -> str:
        """Return the schedule: every device, T times a round."""
        return f"jacobi*{self.gossips}"

    def expected_messages(self, known: Known) -> EveryTurn:
        """Return sums and counts of all k rows in every turn."""
        return EveryTurn(self.k, known.features + 1, absent_rows=True)

    def initial_state(self, devices: Devices, start: Any) -> ConsensusState:
        """Start from the centroids of the last stage."""
        asleep = np.zeros(len(devices), np.bool_)
        return ConsensusState(start.centroids, asleep, local_sums(devices, start.centroids))

    def message(self, state: ConsensusState, devices: Devices) -> DenseMessages:
        """Send the mass."""
        return DenseMessages(state.mass, np.where(devices.active_devices, self.k, -1))

    def update(self, state: ConsensusState, inbox: Inbox, devices: Devices) -> ConsensusState:
        """Average with the neighbors; in the last turn of a round divide, and measure anew."""
        mass = mix(devices, state.mass, inbox)
        if devices.turn < self.gossips - 1:
            return state._replace(mass=mass)
        centroids = centroids_from_sums(mass, state.centroids, _LEAST * devices.unit)
        converged = has_converged(centroids, state.centroids, self.tol * devices.data_std)
        return ConsensusState(centroids, converged, local_sums(devices, centroids))
