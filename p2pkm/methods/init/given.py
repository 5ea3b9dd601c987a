"""Initial centroids without k-means++ seeding: random points, or centroids from the user."""

from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Stream
from p2pkm.core.errors import DataError
from p2pkm.core.validation import as_floats, check_magnitude
from p2pkm.kernels.reference import uniforms
from p2pkm.network.graph import Topology


def cluster_from_random_points(clients: Devices, k: int, *, starts: int, limit: int) -> tuple[Floats, Floats]:
    """Run k-means on every device from random local points; keep the best of several starts.

    Parameters
    ----------
    k : int
        Number of clusters.
    starts : int
        Number of starts.
    limit : int
        Largest number of Lloyd steps.

    Returns
    -------
    centroids : float64[n, k, d]
        Rows beyond the number of points are +inf.
    counts : float64[n, k]
    """
    trials = []
    for start in range(starts):
        initial = np.full((len(clients), k, clients.d), np.inf)
        for i, key in enumerate(clients.keys):
            points = clients.table(i)[0]
            chosen = points[np.argsort(uniforms(key, Stream.CLIENT, [start], len(points))[0], kind="stable")[:k]]
            initial[i, : len(chosen)] = chosen
        trials.append(clients.refine(initial, limit, fill=True))
    centroids, counts, costs = (np.stack(part) for part in zip(*trials, strict=True))
    best = costs.argmin(axis=0)
    positions = np.arange(len(clients))
    return centroids[best, positions], counts[best, positions]


def check_start(start: Any, topology: Topology, k: int, d: int, *, shared: bool) -> Floats:
    """Validate initial centroids, one set per device, and convert them to an array.

    Parameters
    ----------
    start : array-like of shape (n, k, d)
        Absent centroids are rows of +inf.
    topology : Topology
        Its n clients need centroids.
    shared : bool
        Whether the method requires the same centroids at all devices.

    Raises
    ------
    DataError
        If the shape or a value cannot be used, or the devices differ although `shared` is set.
    """
    centroids, n = np.ascontiguousarray(as_floats(start, "start")), topology.clients
    if centroids.shape != (n, k, d):
        raise DataError(f"start has shape {centroids.shape}; expected {(n, k, d)}: devices x clusters x features.")
    absent = np.isposinf(centroids)
    if not np.all(np.isfinite(centroids) | absent) or np.any(absent.any(axis=2) != absent.all(axis=2)):
        raise DataError(
            "start contains NaN, -inf or a row that is only partly +inf; expected finite values. Set all values of an "
            "absent centroid to +inf."
        )
    check_magnitude(np.where(absent, 0.0, centroids), "start")
    if shared and np.any(centroids != centroids[:1]):
        first = int(np.flatnonzero((centroids != centroids[0]).any(axis=(1, 2)))[0])
        raise DataError(
            f"start differs between device {topology.label(0)} and device {topology.label(first)}; expected the same "
            "centroids for all devices, because the method adds up rows by their number."
        )
    return centroids
