"""Sum-weight gossip k-means: Lloyd steps on sums of which each device sends halves to random neighbors."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.card import OPEN, Card
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import Work
from p2pkm.methods.building_blocks.averaging import add_received_tables
from p2pkm.methods.building_blocks.lloyd_by_averages import AveragesState, LloydByAverages
from p2pkm.methods.building_blocks.random_matching import count_exchanges, pick_neighbor
from p2pkm.methods.init.value import Init


@dataclass(frozen=True)
class GossipSum(LloydByAverages):
    r"""Lloyd steps on sums and counts spread by halves to random neighbors (sum-weight gossip).

    Every round approximates a Lloyd step on the pooled points. Clusters are paired by their number.

    Parameters
    ----------
    k : int
        Number of clusters.
    sends : int, default=20
        Messages M of each device per Lloyd step.
    init : Init or str, default="global:candidates=1"
        Should give all devices the same centroids; `local` does not.
    tol : float, default=1e-3
        A device has converged if no coordinate of its centroids moved by more than tol * sqrt(total variance) in a
        round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    PushSumLloyd
        Equal shares to all neighbors.

    Notes
    -----
    **Update.** S_ic and n_ic are the sum and the number of the local points of device i nearest to its centroid w_ic::

        z_ic = (S_ic, n_ic)
        M times:  j(i) = a random neighbor of i;  z_ic <- z_ic / 2 + sum_{i' with j(i') = i} z_i'c / 2
        (s, v) = z_ic;  w_ic <- s / v

    A centroid does not move if v < 1e-12 points of mean weight.

    **Messages.** k rows (s, v) / 2 to one neighbor, once per turn and in the initial exchange.

    **Convergence.** A turn preserves sum_i z_ic. On a connected graph s / v tends to the ratio of the sums over all
    devices [2]_, so for large M every round is a central Lloyd step.

    **Privacy.** No guarantee. The first neighbor of a round receives half of the local sums and counts, and so can
    compute them.

    **Faults.** A lost message loses its half of the sums for the rest of the round.

    **Differences from the paper.** In [1]_ devices send one after another, at random times.

    References
    ----------
    .. [1] J. Fellus, D. Picard, P.-H. Gosselin, "Decentralized k-means using randomized gossip protocols for clustering
       large datasets", ICDM workshops 2013 (HAL hal-00915822).
    .. [2] D. Kempe, A. Dobra, J. Gehrke, "Gossip-based computation of aggregate information", FOCS 2003: Protocol
       Push-Sum.

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
    tol: float = 1e-3

    card = Card(
        "gossip-sum",
        family="iterative",
        sends="sums",
        points="few",
        line="Lloyd steps on sums pushed to random neighbors",
        paper={"sends": 20, "init": "global:candidates=1", "tol": 1e-5},
        source=OPEN,
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 20
    turns_parameter: ClassVar[str] = "sends"
    receivers: ClassVar[Any] = "one"

    def flops(self, work: Work) -> Integers:
        """Count a turn: its share of the pass over the local points, and two tables on average."""
        return work.d * (3 * self.k + 2) * work.sizes // self.sends + 2 * self.k * (work.d + 1)

    def offered(self, averages: Floats, devices: Devices) -> Floats:
        """Compute the half that each device sends."""
        return 0.5 * averages

    def message(self, state: AveragesState, devices: Devices) -> DenseMessages:
        """Send one half to a random neighbor."""
        edges = pick_neighbor(devices, count_exchanges(devices, self.sends))
        return super().message(state, devices)._replace(edges=edges)

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Add the received halves to the half that each device keeps; a device without links keeps all."""
        retained = np.where(devices.degrees > 0, 0.5, 1.0)[:, None, None] * averages
        return add_received_tables(devices, inbox, retained)
