"""Number of tables that a flood sends in each exchange."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.network.graph import Topology

_MAX_WORK = 2e9  # 64-bit words read while a flood is followed; more would take seconds
_BLOCK = 1 << 23  # of these words at a time


class FloodStep(NamedTuple):
    """One exchange of a flood.

    Attributes
    ----------
    messages : int
        Directed edges over which a message is sent.
    tables : int
        Tables of the origins in these messages.
    """

    messages: int
    tables: int


def count_flood_steps(topology: Topology, hops: int | None = None) -> list[FloodStep] | None:
    """Count messages and tables of each exchange of a flood; all devices send in the first one.

    None if the graph is too large, see `count_flooded_tables`.
    """
    counts, degrees = count_flooded_tables(topology), topology.degrees
    if counts is None:
        return None
    return [
        FloodStep(int(degrees[(count > 0) | (t == 0)].sum()), int((degrees * count).sum()))
        for t, count in enumerate(counts[:hops])
    ]


def count_flooded_tables(topology: Topology) -> list[Integers] | None:
    """Count the tables that each device sends in each exchange of a flood, int64[n] per exchange.

    Each device with points is the origin of one table; a hub is not. In exchange t, a device forwards the tables of
    the devices at distance t to all its neighbors. None if the graph is so large that this would take seconds.
    """
    n, exchanges = topology.n, topology.hops + 1
    if exchanges * len(topology.indices) * (n / 64) > _MAX_WORK:
        return None
    block = max(1, _BLOCK // max(len(topology.indices), 1))
    counts: list[Integers] = []
    origins = np.flatnonzero(np.arange(n) != topology.hub)
    for first in range(0, len(origins), 64 * block):
        for t, arrived in enumerate(_count_at_distance(topology, origins[first : first + 64 * block])):
            if t == len(counts):
                counts.append(np.zeros(n, np.int64))
            counts[t] += arrived
    return counts


def _count_at_distance(topology: Topology, origins: Integers) -> list[Integers]:
    """Count the origins at distance 0, 1, ... from each device, int64[n] per distance.

    Breadth-first search from 64 origins at a time: one bit per origin in a word of each device.
    """
    newest = np.zeros((topology.n, -(-len(origins) // 64)), np.uint64)
    place = np.arange(len(origins))
    newest[origins, place // 64] = np.uint64(1) << (place % 64).astype(np.uint64)
    reached, linked = newest.copy(), np.flatnonzero(topology.degrees)
    # Without isolated devices, whose empty ranges `reduceat` would misread.
    starts, counts = topology.indptr[linked], []
    while newest.any():
        counts.append(np.bitwise_count(newest).sum(axis=1).astype(np.int64))
        arrived = np.zeros_like(newest)
        if len(linked):
            arrived[linked] = np.bitwise_or.reduceat(newest[topology.indices], starts, axis=0)
        newest = arrived & ~reached
        reached |= newest
    return counts
