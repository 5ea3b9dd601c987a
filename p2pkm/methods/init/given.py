"""Starts that are not k-means++ seeds: random points, or given centroids."""

from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Stream
from p2pkm.core.errors import DataError
from p2pkm.core.validation import as_floats, check_magnitude
from p2pkm.kernels.reference import uniforms


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
            chosen = own[np.argsort(uniforms(key, Stream.CLIENT, [start], len(own))[0], kind="stable")[:k]]
            seeds[i, : len(chosen)] = chosen
        trials.append(clients.refine(seeds, limit, fill=True))
    centroids, counts, costs = (np.stack(part) for part in zip(*trials, strict=True))
    best, each = costs.argmin(axis=0), np.arange(len(clients))
    return centroids[best, each], counts[best, each]


def check_start(start: Any, n: int, k: int, d: int, *, shared: bool) -> Floats:
    """Return given centroids, one set for each device, if they can be used; shared: all sets have to be the same."""
    centroids = np.ascontiguousarray(as_floats(start, "start"))
    if centroids.shape != (n, k, d):
        raise DataError(f"start has shape {centroids.shape}; expected {(n, k, d)}: devices x clusters x features")
    absent = np.isposinf(centroids)
    if not np.all(np.isfinite(centroids) | absent) or np.any(absent.any(axis=2) != absent.all(axis=2)):
        raise DataError("start has NaN, -inf or rows that are only partly +inf; expected numbers, or a whole row +inf")
    check_magnitude(np.where(absent, 0.0, centroids), "start")
    if shared and np.any(centroids != centroids[:1]):
        first = int(np.flatnonzero((centroids != centroids[0]).any(axis=(1, 2)))[0])
        raise DataError(
            f"start has other centroids for device {first} than for device 0; the method adds up rows by their number, "
            "so all devices need the same ones"
        )
    return centroids
