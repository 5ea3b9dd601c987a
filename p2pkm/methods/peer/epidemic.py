"""Epidemic k-means: Lloyd steps on sums that random pairs of neighbors average."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import Work
from p2pkm.methods.building_blocks.averaging import add_fresh
from p2pkm.methods.building_blocks.lloyd_by_averages import AveragesState, LloydByAverages
from p2pkm.methods.building_blocks.random_matching import find_partners
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology


@dataclass(frozen=True)
class Epidemic(LloydByAverages):
    r"""Average the sums and counts in random pairs, then take a Lloyd step.

    A round is one Lloyd step of C cycles. Device i starts from the sum S_ic and the number n_ic of its own points
    nearest to its centroid w_ic. A cycle is a push-pull exchange along a random maximal matching of the links, which
    all can compute from the topology and the seed; a device without a partner waits::

        z_ic = (S_ic, n_ic)
        C times, for every pair i, j of the matching:  z_ic, z_jc <- (z_ic + z_jc) / 2
        (s, v) = z_ic;  w_ic <- s / v,  kept where v < 1e-12 points of mean weight

    Clusters are paired by their number, so all devices must start from the same centroids (any initialization but
    `local`).

    Message: k rows z_ic, once per turn and at the opening, to the partner alone.

    Guarantee: a cycle keeps sum_i z_ic and leaves z equal at both ends of a pair, to the bit; z tends to the mean over
    the devices of a connected graph, so with C large enough every round is a central Lloyd step at every device. A
    message that is lost leaves the two ends apart, until the next round begins anew.

    Departs from the paper: in a cycle there every device calls a random neighbor, one after another, that is 2 n
    messages. A maximal matching takes at most n and meets no pair twice: on a ring 2.3 of them send as much.

    Link weights: ignored; partners are drawn without them.

    Privacy: no guarantee; the first partner of a round receives the own sums and counts.

    Parameters
    ----------
    k : int
        Number of clusters.
    cycles : int
        C, exchanges per Lloyd step.
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
    G. Di Fatta, F. Blasa, S. Cafiero, G. Fortino, "Fault tolerant decentralised k-means clustering for asynchronous
    large-scale networks", Journal of Parallel and Distributed Computing 73(3), 2013; push-pull: M. Jelasity,
    A. Montresor, O. Babaoglu, "Gossip-based aggregation in large dynamic networks", ACM Transactions on Computer
    Systems 23, 2005.

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
    tol: float = 1e-5

    name: ClassVar[str] = "epidemic"
    default_rounds: ClassVar[int] = 20
    turns_parameter: ClassVar[str] = "cycles"
    receivers: ClassVar[Any] = "partner"

    def on(self, topology: Topology) -> "EpidemicOnGraph":
        """Give the method the topology: the pairs depend on the whole graph."""
        return EpidemicOnGraph(**{**vars(self), "topology": topology})

    def flops(self, work: Work) -> Integers:
        """Count a turn: its part of the pass over the local points, and a table."""
        return work.d * (3 * self.k + 2) * work.sizes // self.cycles + 2 * self.k * (work.d + 1)


@dataclass(frozen=True)
class EpidemicOnGraph(Epidemic):
    """Epidemic k-means on a graph."""

    topology: Topology = field(kw_only=True)

    def message(self, state: AveragesState, devices: Devices) -> DenseMessages:
        """Send the sums to the partner of the next cycle; a device without links sends them to no device."""
        partner = find_partners(self.topology, devices, self.cycles)
        sending = devices.active_devices & ((partner >= 0) | (devices.degrees == 0))
        rows = np.where(sending, self.k, -1)
        return DenseMessages(state.averages, rows, edges=partner[devices.sources] == devices.indices)

    def exchange(self, averages: Floats, inbox: Inbox, devices: Devices) -> Floats:
        """Average with the partner that just sent, if there is one."""
        met = np.zeros(len(devices), np.bool_)
        met[devices.sources[inbox.fresh]] = True
        return np.where(met, 0.5, 1.0)[:, None, None] * add_fresh(devices, inbox, averages)
