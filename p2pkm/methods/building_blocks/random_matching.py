"""Random partners: matchings that every device can compute from public facts, and neighbors drawn by each device."""

import numpy as np

from p2pkm.core.batch import Devices, Integers, Mask, Stream
from p2pkm.kernels.reference import philox
from p2pkm.network.graph import Topology


def match(topology: Topology, key: int, t: int, active: Mask | None = None) -> Integers:
    """Compute the partner of every device in round t, int64[n]; -1 if a device has none.

    Links are added in ascending order of a random key of (seed, round, ends) if both ends are free. So the matching is
    maximal: of two neighbors at least one has a partner.

    Parameters
    ----------
    key : int
        Shared key of the random streams.
    t : int
        Number of the round.
    active : bool[e], optional
        Active edges of the topology; None: all.
    """
    lower = topology.sources < topology.indices
    lower = lower if active is None else lower & active
    low, high = topology.sources[lower], topology.indices[lower]
    draws = philox((low * topology.n + high).astype(np.uint64), t, key, Stream.MATCH)[:, 0]
    order = np.argsort(draws, kind="stable")
    low, high = low[order], high[order]
    partner = np.full(topology.n, -1)
    # A link whose key is the smallest at both of its ends is part of the matching regardless of the other links. So all
    # of these are added at once, in a few passes instead of a loop over links.
    while len(low):
        rank = np.arange(len(low))
        first = np.full(topology.n, len(low))
        np.minimum.at(first, low, rank)
        np.minimum.at(first, high, rank)
        is_matched = (first[low] == rank) & (first[high] == rank)
        partner[low[is_matched]] = high[is_matched]
        partner[high[is_matched]] = low[is_matched]
        free = (partner[low] < 0) & (partner[high] < 0)
        low, high = low[free], high[free]
    return partner


def count_exchanges(devices: Devices, turns: int) -> int:
    """Count the exchanges of a stage before the next one; `turns` is the number of turns per round."""
    return (devices.round - 1) * turns + devices.turn + 1 if devices.round else 0


def find_partners(topology: Topology, devices: Devices, turns: int = 1) -> Integers:
    """Compute the partner of every device of a batch in the next exchange, int64[n]; see `match`."""
    number, varying = count_exchanges(devices, turns), topology.varying
    active = None if varying is None else varying.active(number)
    return match(topology, devices.shared_key, number + 1, active)[devices.ids]


def pick_neighbor(devices: Devices, number: int) -> Mask:
    """Draw the edge over which every device sends in exchange `number`, bool[e]: one of its active edges, uniformly.

    Each device draws from its local random stream.
    """
    used = np.flatnonzero(devices.active_edges)
    linked = np.flatnonzero(devices.degrees)
    draws = philox(0, number, devices.keys[linked], Stream.NEIGHBOR)[:, 0]
    numbers = (draws % devices.degrees[linked].astype(np.uint64)).astype(np.int64)
    is_drawn = np.zeros(len(devices.active_edges), np.bool_)
    is_drawn[used[np.searchsorted(used, devices.indptr[linked]) + numbers]] = True
    return is_drawn
