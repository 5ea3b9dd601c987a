"""How tables flood a graph."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.network.graph import Topology

_WORK = 2e9  # 64-bit words that following a flood may touch
_HELD = 1 << 23  # of them at a time


class Wave(NamedTuple):
    """One turn of a flood: directed edges that are sent over, and the origins' tables that travel over them."""

    messages: int
    tables: int


def flood(topology: Topology, hops: int | None = None) -> list[Wave] | None:
    """Return what every turn of a flood sends, see `spread`; all send at the opening. None where that is much work."""
    counts, degrees = spread(topology), topology.degrees
    if counts is None:
        return None
    return [
        Wave(int(degrees[(count > 0) | (t == 0)].sum()), int((degrees * count).sum()))
        for t, count in enumerate(counts[:hops])
    ]


def spread(topology: Topology) -> list[Integers] | None:
    """Return how many tables each device sends in every turn of a flood, int64[n] each; None where that is much work.

    Each device but a hub, which has no points, has a table of its own. A device forwards in turn t the tables of the
    devices at distance t, to all its neighbors.
    """
    n, most = topology.n, topology.hops + 1
    if most * len(topology.indices) * (n / 64) > _WORK:
        return None
    step = max(1, _HELD // max(len(topology.indices), 1))
    counts: list[Integers] = []
    origins = np.flatnonzero(np.arange(n) != topology.hub)
    for first in range(0, len(origins), 64 * step):
        for t, arrived in enumerate(_follow(topology, origins[first : first + 64 * step])):
            if t == len(counts):
                counts.append(np.zeros(n, np.int64))
            counts[t] += arrived
    return counts


def _follow(topology: Topology, origins: Integers) -> list[Integers]:
    """Return how many of the origins are at distance 0, 1, ... of every device, each int64[n]."""
    news = np.zeros((topology.n, -(-len(origins) // 64)), np.uint64)
    place = np.arange(len(origins))
    news[origins, place // 64] = np.uint64(1) << (place % 64).astype(np.uint64)
    known, linked = news.copy(), np.flatnonzero(topology.degrees)
    starts, found = topology.indptr[linked], []
    while news.any():
        found.append(np.bitwise_count(news).sum(axis=1).astype(np.int64))
        arrived = np.zeros_like(news)
        if len(linked):
            arrived[linked] = np.bitwise_or.reduceat(news[topology.indices], starts, axis=0)
        news = arrived & ~known
        known |= news
    return found
