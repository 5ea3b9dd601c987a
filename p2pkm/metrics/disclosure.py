"""Exposure of devices: number of other devices whose rows reached each device."""

import numpy as np

from p2pkm.core.sorting import sum_by
from p2pkm.metrics.result import Exposure
from p2pkm.network.graph import Topology
from p2pkm.network.ledger import Traffic


def count_exposure(traffic: Traffic, topology: Topology, hops: int | None) -> Exposure:
    """Count the devices whose tables each device received, directly from neighbors or forwarded unchanged.

    Parameters
    ----------
    traffic : Traffic
        Ledger of the run.
    topology : Topology
        Graph of the run.
    hops : int or None
        Number of hops over which tables were forwarded unchanged; None: to all connected devices.
    """
    n = topology.n
    sending = (traffic.edge_rows > 0) & (traffic.src != topology.hub)
    seen = sum_by(traffic.dst, sending, n).astype(np.int64)
    if hops is None:
        sizes = np.bincount(topology.components)
        seen = np.maximum(seen, np.where(seen > 0, sizes[topology.components] - 1, 0))
    elif hops > 1:
        from topologies import CSRGraph, measures

        seen = np.maximum(seen, measures.count_within(CSRGraph(topology.indptr, topology.indices), hops))
    return Exposure(seen, sum_by(traffic.dst, traffic.edge_rows, n).astype(np.int64))
