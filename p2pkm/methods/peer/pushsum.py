"""Push-sum k-means: Lloyd steps on sums that the devices share out among their neighbors."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.averaging import iter_neighbor_tables, relative_weights
from p2pkm.methods.building_blocks.lloyd_by_averages import CountedLloyd
from p2pkm.methods.init.value import Init


@dataclass(frozen=True)
class PushSumLloyd(CountedLloyd):
    r"""Share out the sums and counts among the neighbors, then take a Lloyd step.

    A round is one Lloyd step of T turns. Device i with neighbors N_i and deg_i of them, w_ic its centroid c, starts
    from the sum S_ic and the number n_ic of its own points nearest to w_ic::

        z_ic = (S_ic, n_ic)
        T times:  z_ic <- A_ii z_ic + sum_{j in N_i} A_ij z_jc,   A_ji = A_ii = 1 / (1 + deg_i)
        (s, v) = z_ic;  w_ic <- s / v,  kept where v < 1e-12 points of mean weight

    A sender needs its own degree alone. Devices with many neighbors gather more than others; this weight is the same
    in s and in v and cancels in the ratio. Clusters are paired by their number, so all devices must start from the same
    centroids (any initialization but `local`).

    With `counters`, for links that lose messages, a device sends the total of all shares so far, and any device that
    receives it adds what is new in it. So no mass is ever lost: sum_i z_ic plus what has been sent and not received yet
    stays the same. Mass of the last average may arrive in the next one, so an average goes on from the last: instead of
    beginning with the own sums r anew, z changes by r(t+1) - r(t). A device that holds too little, because its
    neighbors are away, keeps its centroids for that round.

    Message: k rows, the share (s, v) / (1 + deg_i), once per turn and at the opening.

    Guarantee: the columns of A add up to 1, so a turn keeps sum_i z_ic; s / v tends to the ratio of the sums over all
    devices of a connected graph: with T large enough every round is a central Lloyd step at every device.

    Link weights: they divide what device i gives away; only their ratios matter. With mean_i the mean weight of its
    links, A_ji = w_ij / (mean_i (1 + deg_i)), and A_ii stays 1 / (1 + deg_i). The message does not change; the receiver
    multiplies it by w_ij / mean_i.

    Privacy: no guarantee; in the first turn of every round a device sends a known fraction of the sums and counts of
    its own points to its neighbors, which amounts to sending those sums and counts.

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
    counters : bool, optional
        Whether to send running totals, which needs links that last; None: if there are faults, on a graph that does not
        change.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    D. Kempe, A. Dobra, J. Gehrke, "Gossip-based computation of aggregate information", FOCS 2003: Protocol Push-Sum,
    with equal shares to all neighbors; counters: C. N. Hadjicostis, N. H. Vaidya, A. D. Dominguez-Garcia, "Robust
    distributed average consensus via exchange of running sums", IEEE Transactions on Automatic Control 61, 2016.

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
    gossips: int = 10
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5
    counters: bool | None = None

    name: ClassVar[str] = "pushsum"
    default_rounds: ClassVar[int] = 30
    link_weights: ClassVar[str] = "divide what a device gives away"

    def offered(self, averages: Floats, devices: Devices) -> Floats:
        """Compute the share of each neighbor."""
        return averages / (1.0 + devices.degrees)[:, None, None]

    kept = offered

    def received_weights(self, devices: Devices) -> Floats | None:
        """Compute the weight of each link relative to the mean of the neighbor's links, float64[e]; None: all 1."""
        return relative_weights(devices)

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Add up the kept share and those of the neighbors."""
        total, weights = self.kept(averages, devices), self.received_weights(devices)
        for who, edges, theirs in iter_neighbor_tables(devices, inbox, total.shape[1:]):
            total[who] += theirs if weights is None else weights[edges, None, None] * theirs
        return total

    def fair_shares(self, devices: Devices) -> Floats:
        """Compare the links of each device with those of its neighbors, float64[n]."""
        neighbors = np.maximum(devices.degrees, 1)
        if devices.neighbor_mean_weights is None:
            mean_degree = np.bincount(devices.sources, devices.neighbor_degrees, len(devices)) / neighbors
            return np.minimum(1.0, (1.0 + devices.degrees) / (1.0 + mean_degree))
        loads = devices.neighbor_mean_weights * (1.0 + devices.neighbor_degrees)
        around = np.bincount(devices.sources, loads, len(devices)) / neighbors
        own = devices.mean_link_weights * (1.0 + devices.degrees)
        return np.minimum(1.0, np.divide(own, around, out=np.ones(len(devices)), where=around > 0.0))
