"""Scores of labels against the truth, from contingency tables int64[..., classes, clusters] alone.

The score of a table without any point is NaN: nothing was labeled, so nothing agrees.
"""

import math

import numpy as np

from p2pkm.core.batch import Floats, Integers
from topologies.single_thread import single_thread


def ari(tables: Integers) -> Floats:
    """Return the adjusted Rand index (Hubert and Arabie 1985), float64[...]; 1 for one class in one cluster."""
    cells = _pairs(tables).sum((-2, -1))
    rows, columns = _pairs(tables.sum(-1)).sum(-1), _pairs(tables.sum(-2)).sum(-1)
    expected = rows * columns / np.maximum(_pairs(tables.sum((-2, -1))), 1.0)
    most = (rows + columns) / 2
    index = np.where(most == expected, 1.0, (cells - expected) / np.where(most == expected, 1.0, most - expected))
    return _of_some(tables, index)


def nmi(tables: Integers) -> Floats:
    """Return the mutual information over the arithmetic mean of the entropies, float64[...]."""
    total = np.maximum(tables.sum((-2, -1)), 1)
    rows, columns = _entropy(tables.sum(-1), total), _entropy(tables.sum(-2), total)
    cells = tables.shape[-2] * tables.shape[-1]
    joint = _entropy(tables.reshape(*tables.shape[:-2], cells), total)
    information = np.maximum(rows + columns - joint, 0.0)
    both = rows + columns
    return _of_some(tables, np.where(both == 0, 1.0, 2 * information / np.where(both == 0, 1.0, both)))


def purity(tables: Integers) -> Floats:
    """Return the sum of every cluster's majority over the number of points, float64[...]."""
    return _of_some(tables, tables.max(axis=-2, initial=0).sum(-1) / np.maximum(tables.sum((-2, -1)), 1))


def _of_some(tables: Integers, scores: Floats) -> Floats:
    """Return the scores of tables that hold a point, NaN for the others."""
    return np.where(tables.sum((-2, -1)) > 0, scores, np.nan)


def _pairs(counts: Integers) -> Floats:
    """Return the number of pairs among so many points."""
    return counts * (counts - 1.0) / 2.0


def _entropy(counts: Integers, total: Integers) -> Floats:
    """Return the entropy of the last axis in nats."""
    shares = counts / total[..., None]
    return -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(-1)


def distance(centroids: Floats, centers: Floats) -> float:
    """Return the l2-distance to known centers: the Frobenius norm of the difference of matched rows (Xu et al. 2024).

    The rows are matched one to one so that the squared distances add up to the least; rows left over do not count. NaN
    without any row.

    Parameters
    ----------
    centroids, centers : float64[k, d], float64[c, d]
    """
    if not len(centroids):
        return math.nan
    return math.sqrt(match_one_to_one(((centroids[:, None] - centers[None]) ** 2).sum(axis=2)))


def match_one_to_one(costs: Floats) -> float:
    """Return the least sum of the costs float64[k, c] of rows that are matched one to one."""
    return float(costs[pair_one_to_one(costs)].sum())


def pair_one_to_one(costs: Floats) -> tuple[Integers, Integers]:
    """Return the rows and the columns of costs float64[k, c] that are matched one to one at the least sum."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(costs)
    return rows, columns


def mean_square_error(distances: Floats, k: int) -> float:
    """Return (mean l2-distance over runs)^2 / k, the "mean square error" of Xu et al. 2024, table 5.

    Parameters
    ----------
    distances : float64[runs]
        Of `distance`, in the units of the data; the result has their square.
    k : int
        Number of known centers.
    """
    return float(np.mean(distances)) ** 2 / k


@single_thread("sklearn.metrics")
def silhouettes(points: Floats, centroids: Floats) -> tuple[float | None, float | None]:
    """Return the mean silhouette (Rousseeuw 1987) and its simplified form (Hruschka et al. 2004).

    Points are labeled by the nearest centroid. The simplified form takes distances to centroids instead of mean
    distances to the points of a cluster. The silhouette is None if all points have one label, both if there is only one
    centroid.
    """
    from sklearn.metrics import silhouette_score

    if len(centroids) < 2:
        return None, None
    distances = np.sqrt(np.stack([((points - row) ** 2).sum(axis=1) for row in centroids], axis=1))
    labels = distances.argmin(axis=1)
    nearest, second = np.sort(distances, axis=1)[:, :2].T
    simple = float(np.where(second > 0, (second - nearest) / np.where(second > 0, second, 1.0), 0.0).mean())
    count = len(np.unique(labels))
    whole = float(silhouette_score(points, labels)) if 1 < count < len(points) else None
    return whole, simple
