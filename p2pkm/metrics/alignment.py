"""Distances of models after one-to-one matching of their centroids: to central k-means, and to neighbors."""

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.sorting import blocks
from p2pkm.metrics.clustering import match_one_to_one
from p2pkm.metrics.result import Result

# Largest number of pairs of models that are matched; larger runs are without these metrics, to limit the time.
_PAIRS = 2_000


def aligned_distance(a: Floats, b: Floats) -> float:
    """Compute the smallest sum of squared distances of centroids matched one to one; nan if a model is empty.

    Parameters
    ----------
    a, b : float64[k, d]
        Absent centroids are +inf; they and the surplus centroids of the larger model are not matched.
    """
    short, long = sorted((part[part[:, 0] < np.inf] for part in (a, b)), key=len)
    if not len(short):
        return np.nan
    squared = ((short[:, None] - long) ** 2).sum(axis=2)
    nearest = squared.argmin(axis=1)
    # If the nearest centroids are distinct, they are the optimal matching.
    if len(set(nearest.tolist())) == len(short):
        return float(squared.min(axis=1).sum())
    return match_one_to_one(squared)


def aligned_distances(first: Floats, second: Floats) -> Floats:
    """Compute the `aligned_distance` of p pairs of models, float64[p, k, d] and float64[p, c, d].

    In most pairs both models are complete and the nearest centroids are distinct; these pairs are compared together.
    """
    distances = np.empty(len(first))
    easy: Mask = np.zeros(len(first), np.bool_)
    if first.shape == second.shape:
        easy = np.all(np.maximum(first[:, :, 0], second[:, :, 0]) < np.inf, axis=1)
    complete = np.flatnonzero(easy)
    for block in blocks(len(complete), first.shape[1] * second[:1].size):
        pairs = complete[block]
        squared = ((first[pairs, :, None] - second[pairs, None]) ** 2).sum(axis=3)
        easy[pairs] = (np.sort(squared.argmin(axis=2), axis=1) == np.arange(first.shape[1])).all(axis=1)
        distances[pairs] = squared.min(axis=2).sum(axis=1)
    for i in np.flatnonzero(~easy):
        distances[i] = aligned_distance(first[i], second[i])
    return distances


def distance_to_central(result: Result) -> Floats:
    r"""Compute the deviation of each device from central k-means, float64[n].

    Its mean over devices is ``xi_1 = 1 / (n k) sum_i min_s sum_c |w_ic - w*_s(c)|^2`` with the centroids w* of central
    k-means and one-to-one matchings s (Yang, Rastelli and Jung 2026). NaN for Byzantine devices and devices without
    centroids; NaN for all devices without the baseline or above 2,000 devices.
    """
    n, k, _ = result.centroids.shape
    deviations = np.full(n, np.nan)
    if result.central is None or n > _PAIRS:
        return deviations
    among = np.delete(np.arange(n), _list_excluded(result))
    sets = result.centroids[among]
    deviations[among] = (
        aligned_distances(sets, np.broadcast_to(result.central, (len(among), *result.central.shape))) / k
    )
    return deviations


def distance_to_neighbors(result: Result) -> Floats:
    r"""Compute the variation of each device with respect to its neighbors, float64[n].

    Its mean over devices with neighbors is ``xi_2 = 1 / (n' k) sum_i 1 / deg_i sum_{j in N_i} min_s sum_c
    |w_ic - w_js(c)|^2`` with one-to-one matchings s (Yang, Rastelli and Jung 2026). Byzantine devices and devices
    without centroids do not count as neighbors. NaN without neighbors; NaN for all devices above 2,000 links.
    """
    n, k, _ = result.centroids.shape
    topology = result.topology
    lost = _list_excluded(result)
    left_out = [*lost, topology.hub] if topology.hub >= 0 else [*lost]
    without = topology.degrees[left_out].sum()
    if len(topology.indices) // 2 - without > _PAIRS:
        return np.full(n, np.nan)
    source = topology.sources
    target = topology.indices
    links = (source < target) & (target < n) & ~np.isin(source, lost) & ~np.isin(target, lost)
    if np.count_nonzero(links) > _PAIRS:
        return np.full(n, np.nan)
    total, degrees = np.zeros(n), np.zeros(n)
    first = source[links]
    second = target[links]
    distances = aligned_distances(result.centroids[first], result.centroids[second])
    known = ~np.isnan(distances)
    # Each link counts at both ends.
    ends = np.column_stack((first, second))[known].ravel()
    np.add.at(total, ends, distances[known].repeat(2))
    np.add.at(degrees, ends, 1.0)
    return np.where(degrees > 0, total / np.where(degrees > 0, degrees, np.nan) / k, np.nan)


def _list_excluded(result: Result) -> Integers:
    """Return the ids of the devices that are excluded from scores."""
    return np.zeros(0, np.int64) if result.byzantine is None else result.byzantine
