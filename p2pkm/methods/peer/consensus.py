"""Consensus k-means: Lloyd steps on sums that the devices average by gossip with Metropolis weights."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.averaging import WEIGHTED, mix
from p2pkm.methods.building_blocks.lloyd_by_averages import LloydByAverages
from p2pkm.methods.init.value import Init


@dataclass(frozen=True)
class ConsensusLloyd(LloydByAverages):
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
    link_weights: ClassVar[str] = WEIGHTED

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Average with the neighbors by Metropolis weights."""
        return mix(devices, averages, inbox)
