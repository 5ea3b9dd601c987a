"""Push-sum k-means: Lloyd steps on sums that devices distribute to their neighbors."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.averaging_step import AveragingStep
from p2pkm.core.batch import Devices, Floats
from p2pkm.core.card import OPEN, Card
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.averaging import add_differences, relative_weights
from p2pkm.methods.building_blocks.lloyd_by_averages import CountedLloyd
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology
from topologies.mixing import mean_link_weights


@dataclass(frozen=True)
class PushSumLloyd(CountedLloyd):
    r"""Lloyd steps on sums and counts that devices distribute in equal shares to neighbors.

    Every round approximates a Lloyd step on the pooled points, and a device needs to know only its own degree. Clusters
    are paired by their number.

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
        Averages with symmetric weights.
    TrackingLloyd
        Continues the averages of the last round.

    Notes
    -----
    **Update.** Device i has deg_i neighbors N_i. S_ic and n_ic are the sum and the number of its local points nearest
    to its centroid w_ic::

        z_ic = (S_ic, n_ic)
        T times:  z_ic <- A_ii z_ic + sum_{j in N_i} A_ij z_jc,   A_ji = A_ii = 1 / (1 + deg_i)
        (s, v) = z_ic;  w_ic <- s / v

    A centroid does not move if v < 1e-12 points of mean weight.

    **Messages.** k rows (s, v) / (1 + deg_i) to each neighbor, once per turn and in the initial exchange.

    **Link weights.** They define A_ji (docs/ref/graphs.md); only their ratios matter.

    **Convergence.** The columns of A add up to 1, so a turn preserves sum_i z_ic. On a connected graph s / v tends to
    the ratio of the sums over all devices [1]_, so for large T every round is a central Lloyd step.

    **Privacy.** No guarantee. In the first turn of every round neighbors receive a known fraction of the local sums and
    counts, from which they can compute them.

    **Faults.** With `counters` a device sends the running total of all its shares [2]_, and each receiver adds the
    increase since the last total that it received, so no sums are lost. Each round continues the last averages: z
    changes by the change of the local sums.

    References
    ----------
    .. [1] D. Kempe, A. Dobra, J. Gehrke, "Gossip-based computation of aggregate information", FOCS 2003: Protocol
       Push-Sum, with equal shares for all neighbors.
    .. [2] C. N. Hadjicostis, N. H. Vaidya, A. D. Dominguez-Garcia, "Robust distributed average consensus via exchange
       of running sums", IEEE Transactions on Automatic Control 61, 2016.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.PushSumLloyd(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 70)
    """

    k: int
    _: KW_ONLY
    gossips: int | None = None
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5
    counters: bool | None = None

    card = Card(
        "pushsum",
        family="iterative",
        sends="sums",
        points="few",
        line="Lloyd steps on sums averaged by push-sum",
        paper={"gossips": 10, "init": "global:candidates=1", "tol": 1e-5},
        source=OPEN,
    )
    name: ClassVar[str] = card.name
    least_turns: ClassVar[int] = 10
    unevenness: ClassVar[float] = 0.1
    default_rounds: ClassVar[int] = 30
    link_weights: ClassVar[str] = "divide what a device gives away"

    def offered(self, averages: Floats, devices: Devices) -> Floats:
        """Compute the share of each neighbor, float64[n, k, d + 1]."""
        return averages / (1.0 + devices.degrees)[:, None, None]

    retained = offered

    def received_weights(self, devices: Devices) -> Floats | None:
        """Compute the weight of each link divided by the mean weight of the neighbor's links, float64[e]."""
        return relative_weights(devices)

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Add the shares of the neighbors to the share that each device keeps."""
        total = self.retained(averages, devices)
        weights = self.received_weights(devices)
        weights = np.ones(len(devices.indices)) if weights is None else weights
        return add_differences(devices, inbox, total, np.zeros_like(total), weights)[0]

    def fair_shares(self, devices: Devices) -> Floats:
        """Estimate the weight of each device in the long run from its links and those of its neighbors, float64[n]."""
        neighbors = np.maximum(devices.degrees, 1)
        if devices.neighbor_mean_weights is None:
            mean_degree = np.bincount(devices.sources, devices.neighbor_degrees, len(devices)) / neighbors
            return np.minimum(1.0, (1.0 + devices.degrees) / (1.0 + mean_degree))
        loads = devices.neighbor_mean_weights * (1.0 + devices.neighbor_degrees)
        neighbor_load = np.bincount(devices.sources, loads, len(devices)) / neighbors
        load = devices.mean_link_weights * (1.0 + devices.degrees)
        return np.minimum(1.0, np.divide(load, neighbor_load, out=np.ones(len(devices)), where=neighbor_load > 0.0))

    def averaging_step(self, topology: Topology) -> AveragingStep | None:
        """Return the shares of the senders; with counters, a part of the averages is not in the tables."""
        if self.counters:
            return None
        loads = mean_link_weights(topology.links) * (1.0 + topology.degrees)
        return AveragingStep(topology.weights / loads[topology.indices], loads, self.turns)
