"""Consensus k-means: Lloyd steps on sums averaged by gossip with Metropolis weights."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from p2pkm.core.averaging_step import AveragingStep
from p2pkm.core.batch import Devices, Floats
from p2pkm.core.card import OPEN, Card
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.averaging import WEIGHTED, mix, symmetric_step
from p2pkm.methods.building_blocks.lloyd_by_averages import LloydByAverages
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology


@dataclass(frozen=True)
class ConsensusLloyd(LloydByAverages):
    r"""Lloyd steps on sums and counts averaged by gossip with Metropolis weights.

    Every round approximates a Lloyd step on the pooled points. Clusters are paired by their number.

    Parameters
    ----------
    k : int
        Number of clusters.
    gossips : int, optional
        Gossip turns T per Lloyd step. Default: the smallest number from 10 to 100 after which a value of one device,
        averaged with zeros of all others, differs from its mean by at most 10 % at every device.
    init : Init or str, default="global:candidates=1"
        Should give all devices the same centroids; `local` does not.
    tol : float, default=1e-5
        A device has converged if no coordinate of its centroids moved by more than tol * sqrt(total variance) in a
        round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    TrackingLloyd
        Continues the averages of the last round, so it requires fewer turns.
    PushSumLloyd
        Requires only the sender's degree, and tolerates lost messages.

    Notes
    -----
    **Update.** Device i has deg_i neighbors N_i. S_ic and n_ic are the sum and the number of its local points nearest
    to its centroid w_ic::

        z_ic = (S_ic, n_ic)
        T times:  z_ic <- z_ic + sum_{j in N_i} P_ij (z_jc - z_ic),   P_ij = 1 / (1 + max(deg_i, deg_j))
        (s, v) = z_ic;  w_ic <- s / v

    A centroid does not move if v < 1e-12 points of mean weight.

    **Messages.** k rows (s, v) to each neighbor, once per turn and in the initial exchange.

    **Link weights.** They define P_ij after Metropolis and Hastings [2]_ (docs/ref/graphs.md); only their ratios
    matter.

    **Convergence.** P is symmetric and its rows add up to 1, so a turn preserves sum_i z_ic, and on a connected graph
    z_ic tends to the mean over all devices [1]_. For large T every round is a central Lloyd step.

    **Privacy.** No guarantee. In the first turn of every round neighbors receive the local sums and counts of a device.

    References
    ----------
    .. [1] L. Xiao, S. Boyd, "Fast linear iterations for distributed averaging", Systems & Control Letters 53, 2004.
    .. [2] W. K. Hastings, "Monte Carlo sampling methods using Markov chains and their applications", Biometrika 57,
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
    gossips: int | None = None
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    card = Card(
        "consensus",
        family="iterative",
        sends="sums",
        points="few",
        line="Lloyd steps on sums averaged by gossip",
        paper={"gossips": 10, "init": "global:candidates=1", "tol": 1e-5},
        source=OPEN,
    )
    name: ClassVar[str] = card.name
    least_turns: ClassVar[int] = 10
    unevenness: ClassVar[float] = 0.1
    default_rounds: ClassVar[int] = 30
    link_weights: ClassVar[str] = WEIGHTED

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Average with the neighbors, by Metropolis weights."""
        return mix(devices, averages, inbox)

    def averaging_step(self, topology: Topology) -> AveragingStep:
        """Return the Metropolis weights of the graph."""
        return symmetric_step(topology, self.turns)
