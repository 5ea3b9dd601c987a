"""Tracking k-means: every device follows the sums of all devices while its own change."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.averaging import WEIGHTED, mix, mixing
from p2pkm.methods.building_blocks.lloyd_by_averages import CountedLloyd
from p2pkm.methods.init.value import Init


@dataclass(frozen=True)
class TrackingLloyd(CountedLloyd):
    r"""Follow the mean of all devices' sums and counts by dynamic average consensus, a Lloyd step at a time.

    A round is one Lloyd step of T turns. r_ic(t) = (S_ic, n_ic) are the sum and the number of the points of device i
    nearest to its centroid w_ic(t); z(0) = r(0). With P the Metropolis weights, P_ij = 1 / (1 + max(deg_i, deg_j))::

        (s, v) = [P^T z(t)]_ic;  w_ic(t+1) = s / v,  kept where v < 1e-3 points of mean weight
        z(t+1) = P^T z(t) + r(t+1) - r(t)

    Where consensus k-means begins every average anew, this one goes on from the last, so few gossips per step do. The
    centroids divide what has been mixed already: with the newest correction in it the method is unstable where devices
    hold different classes. Clusters are paired by their number, so all devices must start from the same centroids (any
    initialization but `local`).

    With `counters`, for links that lose messages, device i sends the total of all its z so far and takes the part that
    it offers out of its own; neighbor j adds P_ij times what is new in the total that it receives. Without losses that
    is the same average; with them, sum_i z_ic plus what has been offered and not received yet stays sum_i r_ic. Whoever
    holds too little, because its neighbors are away, keeps its centroids for that round.

    Message: k rows z, once per turn and at the opening.

    Guarantee: sum_i z_ic = sum_i r_ic after every turn. When no label changes any more, z tends to the mean over the
    devices of a connected graph.

    Link weights: they make P as in `ConsensusLloyd`; only their ratios matter.

    Privacy: no guarantee; the first message is the sums and counts of the own points; any device that receives all
    neighbors of a device can work out how they change.

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
    M. Zhu, S. Martinez, "Discrete-time dynamic average consensus", Automatica 46, 2010; weights of L. Xiao, S. Boyd,
    "Fast linear iterations for distributed averaging", Systems & Control Letters 53, 2004; counters:
    C. N. Hadjicostis, N. H. Vaidya, A. D. Dominguez-Garcia, "Robust distributed average consensus via exchange of
    running sums", IEEE Transactions on Automatic Control 61, 2016.

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
    gossips: int = 3
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5
    counters: bool | None = None

    name: ClassVar[str] = "tracking"
    default_rounds: ClassVar[int] = 150
    continues: ClassVar[bool] = True
    link_weights: ClassVar[str] = WEIGHTED

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Average with the neighbors by Metropolis weights."""
        return mix(devices, averages, inbox)

    def kept(self, averages: Floats, devices: Devices) -> Floats:
        """Subtract the parts P_ij z of all neighbors."""
        parts = np.bincount(devices.sources, mixing(devices), len(devices))
        return averages - parts[:, None, None] * averages

    def received_weights(self, devices: Devices) -> Floats:
        """Compute P_ij of each own edge, float64[e]."""
        return mixing(devices)

    def fair_shares(self, devices: Devices) -> Floats:
        """Expect the mean number of points at every device, float64[n]."""
        return np.ones(len(devices))
