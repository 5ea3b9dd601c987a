"""Sum-weight gossip k-means: Lloyd steps on sums of which every device keeps giving halves away."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import Work
from p2pkm.methods.building_blocks.averaging import add_fresh
from p2pkm.methods.building_blocks.lloyd_by_averages import AveragesState, LloydByAverages
from p2pkm.methods.building_blocks.random_matching import count_exchanges, pick_neighbor
from p2pkm.methods.init.value import Init


@dataclass(frozen=True)
class GossipSum(LloydByAverages):
    r"""Push halves of the sums and counts to random neighbors, then take a Lloyd step.

    A round is one Lloyd step of M turns. Device i starts from the sum S_ic and the number n_ic of its own points
    nearest to its centroid w_ic::

        z_ic = (S_ic, n_ic)
        M times:  j(i) = a random neighbor of i;  z_ic <- z_ic / 2 + sum_{i' with j(i') = i} z_i'c / 2
        (s, v) = z_ic;  w_ic <- s / v,  kept where v < 1e-12 points of mean weight

    Both columns of z get the same weights, which cancel in the ratio. Clusters are paired by their number, so all
    devices must start from the same centroids (any initialization but `local`).

    Message: k rows, the half (s, v) / 2, to one neighbor, once per turn and at the opening.

    Guarantee: a turn keeps sum_i z_ic; s / v tends to the ratio of the sums over all devices of a connected graph, so
    with M large enough every round is a central Lloyd step at every device. A message that is lost takes its half
    along, until the next round begins anew.

    Departs from the paper: devices send at random times there, one after another, here M times each, all at once.

    Link weights: ignored; neighbors are drawn without them.

    Privacy: no guarantee; the first neighbor of a round receives a half of the own sums and counts, which amounts to
    these.

    Parameters
    ----------
    k : int
        Number of clusters.
    sends : int
        M, messages of every device per Lloyd step.
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
    J. Fellus, D. Picard, P.-H. Gosselin, "Decentralized k-means using randomized gossip protocols for clustering large
    datasets", ICDM workshops 2013 (HAL hal-00915822); D. Kempe, A. Dobra, J. Gehrke, "Gossip-based computation of
    aggregate information", FOCS 2003: Protocol Push-Sum.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.GossipSum(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 67)
    """

    k: int
    _: KW_ONLY
    sends: int = 20
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    name: ClassVar[str] = "gossip-sum"
    default_rounds: ClassVar[int] = 20
    turns_parameter: ClassVar[str] = "sends"
    receivers: ClassVar[Any] = "one"

    def flops(self, work: Work) -> Integers:
        """Count a turn: its part of the pass over the local points, and two tables on average."""
        return work.d * (3 * self.k + 2) * work.sizes // self.sends + 2 * self.k * (work.d + 1)

    def offered(self, averages: Floats, devices: Devices) -> Floats:
        """Compute the half that is sent."""
        return 0.5 * averages

    def message(self, state: AveragesState, devices: Devices) -> DenseMessages:
        """Send a half to a random neighbor."""
        edges = pick_neighbor(devices, count_exchanges(devices, self.sends))
        return super().message(state, devices)._replace(edges=edges)

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Add up the half that is left and those received."""
        left = np.where(devices.degrees > 0, 0.5, 1.0)[:, None, None] * averages
        return add_fresh(devices, inbox, left)
