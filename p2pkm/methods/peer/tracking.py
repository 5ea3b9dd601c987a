"""Tracking k-means: Lloyd steps on sums tracked by dynamic average consensus."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.averaging_step import AveragingStep
from p2pkm.core.batch import Devices, Floats
from p2pkm.core.card import OPEN, Card
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.averaging import WEIGHTED, mix, mixing_weights, symmetric_step
from p2pkm.methods.building_blocks.lloyd_by_averages import CountedLloyd
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology


@dataclass(frozen=True)
class TrackingLloyd(CountedLloyd):
    r"""Lloyd steps on sums and counts tracked by dynamic average consensus.

    Unlike in `ConsensusLloyd`, each round continues the averages of the last one, so few gossip turns per round
    suffice. Clusters are paired by their number.

    Parameters
    ----------
    k : int
        Number of clusters.
    gossips : int, optional
        Gossip turns T per Lloyd step. Default: the smallest number from 3 to 100 after which a value of one device,
        averaged with zeros of all others, differs from its mean by at most 100 % at every device.
    init : Init or str, default="global:candidates=1"
        Should give all devices the same centroids; `local` does not.
    tol : float, default=1e-5
        A device has converged if no coordinate of its centroids moved by more than tol * sqrt(total variance) in a
        round.
    counters : bool, optional
        Whether to send running totals, which tolerate lost messages but require static links. Default: True under
        faults on a static graph.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    ConsensusLloyd
        Averages that start from new local sums in each round.

    Notes
    -----
    **Update.** r_ic(t) = (S_ic, n_ic) are the sum and the number of the local points of device i nearest to its
    centroid w_ic(t), and z(0) = r(0). With Metropolis weights P_ij = 1 / (1 + max(deg_i, deg_j)) [2]_ and T-th power
    P^T::

        (s, v) = [P^T z(t)]_ic;  w_ic(t+1) = s / v
        z(t+1) = P^T z(t) + r(t+1) - r(t)

    A centroid does not move if v < 1e-3 points of mean weight. Centroids are computed before the newest correction is
    added: otherwise the method is unstable if devices hold different classes.

    **Messages.** k rows z to each neighbor, once per turn and in the initial exchange.

    **Link weights.** They define P as in `ConsensusLloyd`; only their ratios matter.

    **Convergence.** sum_i z_ic = sum_i r_ic after every turn. Once no label changes, z tends to the mean over all
    devices of a connected graph [1]_. With `gossips=1` the method is not stable on every graph, for example on a star
    of ten devices.

    **Privacy.** No guarantee. The first message contains the local sums and counts. A device that receives the messages
    of device i and of all its neighbors can compute how the sums of device i change.

    **Faults.** With `counters` device i sends the running total of all its z [3]_, and neighbor j adds P_ij times the
    increase of the total, so lost messages lose no sums.

    References
    ----------
    .. [1] M. Zhu, S. Martinez, "Discrete-time dynamic average consensus", Automatica 46, 2010.
    .. [2] L. Xiao, S. Boyd, "Fast linear iterations for distributed averaging", Systems & Control Letters 53, 2004.
    .. [3] C. N. Hadjicostis, N. H. Vaidya, A. D. Dominguez-Garcia, "Robust distributed average consensus via exchange
       of running sums", IEEE Transactions on Automatic Control 61, 2016.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.TrackingLloyd(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 28)
    """

    k: int
    _: KW_ONLY
    gossips: int | None = None
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5
    counters: bool | None = None

    card = Card(
        "tracking",
        family="iterative",
        sends="sums",
        points="few",
        line="Lloyd steps on sums tracked by dynamic consensus",
        paper={"gossips": 3, "init": "global:candidates=1", "tol": 1e-5},
        source=OPEN,
    )
    name: ClassVar[str] = card.name
    least_turns: ClassVar[int] = 3
    unevenness: ClassVar[float] = 1.0
    default_rounds: ClassVar[int] = 150
    continues: ClassVar[bool] = True
    link_weights: ClassVar[str] = WEIGHTED

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Average with the neighbors, by Metropolis weights."""
        return mix(devices, averages, inbox)

    def retained(self, averages: Floats, devices: Devices) -> Floats:
        """Subtract the offers P_ij z to all neighbors."""
        parts = np.bincount(devices.sources, mixing_weights(devices), len(devices))
        return averages - parts[:, None, None] * averages

    def received_weights(self, devices: Devices) -> Floats:
        """Compute P_ij of each edge, float64[e]."""
        return mixing_weights(devices)

    def fair_shares(self, devices: Devices) -> Floats:
        """Expect the mean weight of all devices at each device, float64[n]."""
        return np.ones(len(devices))

    def averaging_step(self, topology: Topology) -> AveragingStep | None:
        """Return the Metropolis weights of the graph; with counters, a part of the averages is not in the tables."""
        return None if self.counters else symmetric_step(topology, self.turns)
