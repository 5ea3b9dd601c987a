"""Random matchings that every device can compute from the topology and the shared seed, like the colors."""

import numpy as np

from p2pkm.core.batch import Integers, Mask, Stream
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
