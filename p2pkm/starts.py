"""k-means from starts that are not k-means++ seeds."""

import numpy as np

from p2pkm.devices import CLIENT, Devices, Floats
from p2pkm.kernels.plain import uniforms


def cluster_from_random_points(clients: Devices, k: int, *, starts: int, limit: int) -> tuple[Floats, Floats]:
    """Run k-means on every device's own points from random ones of them, the best of several starts.

    Parameters
    ----------
    k, starts, limit : int
        Number of clusters, of starts, and of Lloyd steps at most.

    Returns
    -------
    centroids : float64[n, k, d]
        Rows beyond the number of points are +inf.
    counts : float64[n, k]
    """
    trials = []
    for start in range(starts):
        seeds = np.full((len(clients), k, clients.d), np.inf)
        for i, key in enumerate(clients.keys):
            own = clients.table(i)[0]
            chosen = own[np.argsort(uniforms(key, CLIENT, [start], len(own))[0], kind="stable")[:k]]
            seeds[i, : len(chosen)] = chosen
        trials.append(clients.refine(seeds, limit, fill=True))
    centroids, counts, costs = (np.stack(part) for part in zip(*trials, strict=True))
    best, each = costs.argmin(axis=0), np.arange(len(clients))
    return centroids[best, each], counts[best, each]
