"""How far centroid sets are apart once their rows are matched one to one: to central k-means, and to the neighbors."""

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.sorting import blocks
from p2pkm.metrics.clustering import match_one_to_one
from p2pkm.metrics.result import Result

_SETS = 2_000  # pairs of sets that are matched; of more nothing is said


def aligned_distance(a: Floats, b: Floats) -> float:
    """Return the least sum of squared distances of rows matched one to one; nan if a set is empty.

    Parameters
    ----------
    a, b : float64[k, d]
        Absent rows are +inf and have no partner; neither have surplus rows of the longer set.
    """
    short, long = sorted((part[part[:, 0] < np.inf] for part in (a, b)), key=len)
    if not len(short):
        return np.nan
    squared = ((short[:, None] - long) ** 2).sum(axis=2)
    nearest = squared.argmin(axis=1)
    if len(set(nearest.tolist())) == len(short):  # cheaper than that there is nothing
        return float(squared.min(axis=1).sum())
    return match_one_to_one(squared)


def aligned_distances(one: Floats, other: Floats) -> Floats:
    """Return the `aligned_distance` of each of some pairs of sets, float64[p] of float64[p, k, d] and float64[p, c, d].

    Most sets are complete, and each of their rows is nearest to a row of its own: these are compared together.
    """
    found = np.empty(len(one))
    easy: Mask = np.zeros(len(one), np.bool_)
    if one.shape == other.shape:
        easy = np.all(np.maximum(one[:, :, 0], other[:, :, 0]) < np.inf, axis=1)
    complete = np.flatnonzero(easy)
    for some in blocks(len(complete), one.shape[1] * other[:1].size):
        which = complete[some]
        squared = ((one[which, :, None] - other[which, None]) ** 2).sum(axis=3)
        easy[which] = (np.sort(squared.argmin(axis=2), axis=1) == np.arange(one.shape[1])).all(axis=1)
        found[which] = squared.min(axis=2).sum(axis=1)
    for i in np.flatnonzero(~easy):
        found[i] = aligned_distance(one[i], other[i])
    return found


def distance_to_central(result: Result) -> Floats:
    r"""Return the share of every device in the deviation from central k-means, float64[n].

    Its mean is ``xi_1 = 1 / (n k) sum_i min_s sum_c |w_ic - w*_s(c)|^2``, w* the centroids of central k-means, s one to
    one (Yang, Rastelli and Jung 2026). NaN at Byzantine devices and those without centroids, and everywhere without the
    baseline or above 2,000 devices.
    """
    n, k, _ = result.centroids.shape
    found = np.full(n, np.nan)
    if result.central is None or n > _SETS:
        return found
    among = np.delete(np.arange(n), _left_out(result))
    sets = result.centroids[among]
    found[among] = aligned_distances(sets, np.broadcast_to(result.central, (len(among), *result.central.shape))) / k
    return found


def distance_to_neighbors(result: Result) -> Floats:
    r"""Return the share of every device in the consensus variation, float64[n].

    Its mean over the devices with neighbors is ``xi_2 = 1 / (n' k) sum_i 1 / deg_i sum_{j in N_i} min_s sum_c
    |w_ic - w_js(c)|^2``, s one to one (Yang, Rastelli and Jung 2026). Byzantine devices and those without centroids
    are no neighbors. NaN without neighbors, and everywhere above 2,000 links.
    """
    n, k, _ = result.centroids.shape
    topology, lost = result.topology, _left_out(result)
    without = topology.degrees[[*lost, *[topology.hub] * (topology.hub >= 0)]].sum()
    if len(topology.indices) // 2 - without > _SETS:
        return np.full(n, np.nan)
    source, target = topology.sources, topology.indices
    links = (source < target) & (target < n) & ~np.isin(source, lost) & ~np.isin(target, lost)
    if np.count_nonzero(links) > _SETS:
        return np.full(n, np.nan)
    total, degrees = np.zeros(n), np.zeros(n)
    one, other = source[links], target[links]
    apart = aligned_distances(result.centroids[one], result.centroids[other])
    known = ~np.isnan(apart)
    ends, both = np.column_stack((one, other))[known].ravel(), apart[known].repeat(2)
    np.add.at(total, ends, both)
    np.add.at(degrees, ends, 1.0)
    return np.where(degrees > 0, total / np.where(degrees > 0, degrees, np.nan) / k, np.nan)


def _left_out(result: Result) -> Integers:
    """Return the devices that no score is about."""
    return np.zeros(0, np.int64) if result.byzantine is None else result.byzantine
