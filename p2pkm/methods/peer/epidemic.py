"""Epidemic k-means: Lloyd steps on sums averaged in random pairs of neighbors."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.card import OPEN, Card
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import Work
from p2pkm.methods.building_blocks.averaging import add_received_tables
from p2pkm.methods.building_blocks.lloyd_by_averages import AveragesState, LloydByAverages
from p2pkm.methods.building_blocks.random_matching import find_partners
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology


@dataclass(frozen=True)
class Epidemic(LloydByAverages):
    r"""Lloyd steps on sums and counts averaged in random pairs of neighbors.

    Every round approximates a Lloyd step on the pooled points. Clusters are paired by their number.

    Parameters
    ----------
    k : int
        Number of clusters.
    cycles : int, default=24
        Averaging cycles C per Lloyd step.
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
    GossipSum
        One-sided messages to random neighbors instead of averages in pairs.

    Notes
    -----
    **Update.** S_ic and n_ic are the sum and the number of the local points of device i nearest to its centroid w_ic.
    Each cycle uses a random maximal matching of the links, which all devices compute from graph and seed::

        z_ic = (S_ic, n_ic)
        C times, for every matched pair i, j:  z_ic, z_jc <- (z_ic + z_jc) / 2
        (s, v) = z_ic;  w_ic <- s / v

    A device without a partner waits. A centroid does not move if v < 1e-12 points of mean weight.

    **Messages.** k rows z_ic to the partner only, once per turn and in the initial exchange.

    **Convergence.** A cycle preserves sum_i z_ic and leaves bit-identical z at both ends of a pair. On a connected
    graph z tends to the mean over all devices, so for large C every round is a central Lloyd step.

    **Privacy.** No guarantee. The first partner of a round receives the local sums and counts of a device.

    **Faults.** A lost message leaves different z at the two ends, until the next round starts from new local sums.

    **Differences from the paper.** In a cycle of [1]_ each device in turn calls a random neighbor (push-pull [2]_),
    which takes 2 n messages instead of at most n.

    References
    ----------
    .. [1] G. Di Fatta, F. Blasa, S. Cafiero, G. Fortino, "Fault tolerant decentralised k-means clustering for
       asynchronous large-scale networks", Journal of Parallel and Distributed Computing 73(3), 2013.
    .. [2] M. Jelasity, A. Montresor, O. Babaoglu, "Gossip-based aggregation in large dynamic networks", ACM
       Transactions on Computer Systems 23, 2005.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.Epidemic(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 54)
    """

    k: int
    _: KW_ONLY
    cycles: int = 24
    init: Init | str = "global:candidates=1"
    tol: float = 1e-3

    card = Card(
        "epidemic",
        family="iterative",
        sends="sums",
        points="few",
        line="Lloyd steps on sums averaged in random pairs",
        paper={"cycles": 24, "init": "global:candidates=1", "tol": 1e-5},
        source=OPEN,
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 20
    turns_parameter: ClassVar[str] = "cycles"
    receivers: ClassVar[Any] = "partner"

    def on(self, topology: Topology) -> "EpidemicOnGraph":
        """Bind the method to a graph, because the random matching depends on all links."""
        return EpidemicOnGraph(**{**vars(self), "topology": topology})

    def flops(self, work: Work) -> Integers:
        """Count a turn: its share of the pass over the local points, and one table."""
        return work.d * (3 * self.k + 2) * work.sizes // self.cycles + 2 * self.k * (work.d + 1)


@dataclass(frozen=True)
class EpidemicOnGraph(Epidemic):
    """`Epidemic` bound to a graph."""

    topology: Topology = field(kw_only=True)

    def message(self, state: AveragesState, devices: Devices) -> DenseMessages:
        """Send the sums to the partner of the next cycle."""
        partner = find_partners(self.topology, devices, self.cycles)
        # A device without links sends a table over no edge: silence would end the run before its own Lloyd steps end.
        sending = devices.active_devices & ((partner >= 0) | (devices.degrees == 0))
        rows = np.where(sending, self.k, -1)
        return DenseMessages(state.averages, rows, edges=partner[devices.sources] == devices.indices)

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Average with the partner if its message arrived."""
        has_partner = np.zeros(len(devices), np.bool_)
        has_partner[devices.sources[inbox.fresh]] = True
        return np.where(has_partner, 0.5, 1.0)[:, None, None] * add_received_tables(devices, inbox, averages)
