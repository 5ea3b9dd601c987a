"""Search for the best centroids of weighted rows."""

import numpy as np

from p2pkm.core.batch import Floats, Kernels, Search, Stream, cluster

# Largest number of Lloyd steps after a seeding.
_LIMIT = 300


def search_centroids(
    kernels: Kernels, key: int, points: Floats, weights: Floats, k: int, *, most: int, seedings: int, first: int = 0
) -> tuple[Floats, float]:
    """Cluster weighted rows: the best of several greedy k-means++ seedings, improved by breathing k-means.

    Parameters
    ----------
    key : int
        Key of the random stream.
    points : float64[m, d]
    weights : float64[m]
    k : int
        Number of clusters.
    most : int
        Number of centroids that breathing adds at first.
    seedings : int
        Number of seedings.
    first : int, default=0
        Number of the first seeding in the random stream.

    Returns
    -------
    centroids : float64[k, d]
        Centroids beyond the number of distinct rows are +inf.
    cost : float
    """
    points, weights = np.ascontiguousarray(points), np.ascontiguousarray(weights)
    search = Search(k, Stream.CLUSTER, seedings, _LIMIT, first=first)
    centroids, _, _ = cluster(kernels, key, points, weights, search)
    return kernels.breathe(points, weights, centroids, most, key, first)
