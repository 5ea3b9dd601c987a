"""Whose rows reached each device."""

import numpy as np

from p2pkm.core.sorting import sum_by
from p2pkm.metrics.result import Exposure
from p2pkm.network.graph import Topology
from p2pkm.network.ledger import Traffic


def expose(traffic: Traffic, topology: Topology, hops: int | None) -> Exposure:
    """Return whose tables every device has seen: those of neighbors who sent to it, and what was passed on.

    Parameters
    ----------
    hops : int or None
        How far the tables of a device traveled unchanged; None: as far as there are links.
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
