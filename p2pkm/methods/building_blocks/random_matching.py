"""Who exchanges with whom at random: matchings that every device can compute like the colors, and own draws."""

import numpy as np

from p2pkm.core.batch import Devices, Integers, Mask, Stream
from p2pkm.kernels.reference import philox
from p2pkm.network.graph import Topology


def match(topology: Topology, key: int, t: int, active: Mask | None = None) -> Integers:
    """Return the partner of every device in round t, int64[n], -1 where there is none.

    Links join in ascending key of (seed, round, ends) as long as both ends are free, so the matching is maximal: of
    two neighbors at least one has a partner. A link whose key is the smallest at both of its ends joins whatever
    becomes of the others, so all such links join at once, again and again.

    Parameters
    ----------
    key : int
        Shared key of the random streams.
    active : bool[e], optional
        Links in use, of those of the topology; None: all.
    """
    lower = topology.sources < topology.indices
    lower = lower if active is None else lower & active
    low, high = topology.sources[lower], topology.indices[lower]
    draws = philox((low * topology.n + high).astype(np.uint64), t, key, Stream.MATCH)[:, 0]
    order = np.argsort(draws, kind="stable")
    low, high = low[order], high[order]
    partner = np.full(topology.n, -1)
    while len(low):
        place = np.arange(len(low))
        first = np.full(topology.n, len(low))
        np.minimum.at(first, low, place)
        np.minimum.at(first, high, place)
        joined = (first[low] == place) & (first[high] == place)
        partner[low[joined]], partner[high[joined]] = high[joined], low[joined]
        free = (partner[low] < 0) & (partner[high] < 0)
        low, high = low[free], high[free]
    return partner


def count_exchanges(devices: Devices, turns: int) -> int:
    """Return how many exchanges of a stage with so many turns a round came before the one that is about to begin."""
    return (devices.round - 1) * turns + devices.turn + 1 if devices.round else 0


def find_partners(topology: Topology, devices: Devices, turns: int = 1) -> Integers:
    """Return the partner of every device of a batch in the exchange about to begin, int64[n]; see `match`."""
    number, varying = count_exchanges(devices, turns), topology.varying
    active = None if varying is None else varying.active(number)
    return match(topology, devices.shared_key, number + 1, active)[devices.ids]


def pick_neighbor(devices: Devices, number: int) -> Mask:
    """Return the link over which every device sends in exchange `number`, bool[e]: one of those in use, uniformly.

    Each device draws for itself, with the key of its own stream.
    """
    used = np.flatnonzero(devices.active_edges)
    linked = np.flatnonzero(devices.degrees)
    draws = philox(0, number, devices.keys[linked], Stream.NEIGHBOR)[:, 0]
    which = (draws % devices.degrees[linked].astype(np.uint64)).astype(np.int64)
    picked = np.zeros(len(devices.active_edges), np.bool_)
    picked[used[np.searchsorted(used, devices.indptr[linked]) + which]] = True
    return picked
