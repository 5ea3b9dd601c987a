"""Scores of labels with respect to true classes, from contingency tables int64[..., classes, clusters].

The score of a table without points is NaN.
"""

import math
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from topologies.single_thread import single_thread


def ari(tables: Integers) -> Floats:
    """Compute the adjusted Rand index (Hubert and Arabie 1985), float64[...]; 1 for a single class and cluster."""
    cells = _pairs(tables).sum((-2, -1))
    rows = _pairs(tables.sum(-1)).sum(-1)
    columns = _pairs(tables.sum(-2)).sum(-1)
    expected = rows * columns / np.maximum(_pairs(tables.sum((-2, -1))), 1.0)
    most = (rows + columns) / 2
    index = np.where(most == expected, 1.0, (cells - expected) / np.where(most == expected, 1.0, most - expected))
    return _mask_empty(tables, index)


def nmi(tables: Integers) -> Floats:
    """Compute the mutual information divided by the arithmetic mean of the entropies, float64[...]."""
    total = np.maximum(tables.sum((-2, -1)), 1)
    rows = _entropy(tables.sum(-1), total)
    columns = _entropy(tables.sum(-2), total)
    cells = tables.shape[-2] * tables.shape[-1]
    joint = _entropy(tables.reshape(*tables.shape[:-2], cells), total)
    information = np.maximum(rows + columns - joint, 0.0)
    total_entropy = rows + columns
    scores = np.where(total_entropy == 0, 1.0, 2 * information / np.where(total_entropy == 0, 1.0, total_entropy))
    return _mask_empty(tables, scores)


def purity(tables: Integers) -> Floats:
    """Compute the share of points in the majority class of their cluster, float64[...]."""
    return _mask_empty(tables, tables.max(axis=-2, initial=0).sum(-1) / np.maximum(tables.sum((-2, -1)), 1))


def _mask_empty(tables: Integers, scores: Floats) -> Floats:
    """Replace the scores of tables without points by NaN."""
    return np.where(tables.sum((-2, -1)) > 0, scores, np.nan)


def _pairs(counts: Integers) -> Floats:
    """Compute the number of pairs of the given numbers of points."""
    return counts * (counts - 1.0) / 2.0


def _entropy(counts: Integers, total: Integers) -> Floats:
    """Compute the entropy of the last axis in nats."""
    shares = counts / total[..., None]
    return -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(-1)


def distance(centroids: Floats, centers: Floats) -> float:
    """Compute the l2-distance to known centers: Frobenius norm of the difference of matched rows (Xu et al. 2024).

    Rows are matched one to one with the smallest sum of squared distances; rows without a partner do not count. NaN
    without centroids.

    Parameters
    ----------
    centroids : float64[k, d]
        Centroids, without absent ones.
    centers : float64[c, d]
        Known centers.
    """
    if not len(centroids):
        return math.nan
    return math.sqrt(match_one_to_one(((centroids[:, None] - centers[None]) ** 2).sum(axis=2)))


def match_one_to_one(costs: Floats) -> float:
    """Compute the smallest sum of costs float64[k, c] over one-to-one matchings of rows and columns."""
    return float(costs[pair_one_to_one(costs)].sum())


def pair_one_to_one(costs: Floats) -> tuple[Integers, Integers]:
    """Return the rows and columns of the one-to-one matching with the smallest sum of costs float64[k, c]."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(costs)
    return rows, columns


def mean_square_error(distances: Floats, k: int) -> float:
    """Compute the "mean square error" of Xu et al. 2024, table 5: (mean l2-distance over runs)^2 / k.

    Parameters
    ----------
    distances : float64[runs]
        Values of `distance`, in units of the data; the result is in squared units.
    k : int
        Number of known centers.
    """
    return float(np.mean(distances)) ** 2 / k


class Silhouettes(NamedTuple):
    """Silhouettes of points that are labeled by the nearest centroid.

    Attributes
    ----------
    mean : float or None
        Mean silhouette (Rousseeuw 1987); None if all labels are equal, or all points have different labels.
    simplified : float or None
        Mean of its simplified form (Hruschka et al. 2004), with distances to centroids instead of mean distances to the
        points of a cluster; None for a single centroid.
    values : float64[m] or None
        Silhouette of each point.
    labels : int64[m] or None
        Nearest centroid of each point.
    """

    mean: float | None = None
    simplified: float | None = None
    values: Floats | None = None
    labels: Integers | None = None


@single_thread("sklearn.metrics")
def label_silhouettes(points: Floats, centroids: Floats) -> Silhouettes:
    """Compute the silhouettes of points with respect to present centroids."""
    from sklearn.metrics import silhouette_samples

    if len(centroids) < 2:
        return Silhouettes()
    distances = np.sqrt(np.stack([((points - row) ** 2).sum(axis=1) for row in centroids], axis=1))
    labels = distances.argmin(axis=1)
    nearest, second = np.sort(distances, axis=1)[:, :2].T
    simple = float(np.where(second > 0, (second - nearest) / np.where(second > 0, second, 1.0), 0.0).mean())
    if not 1 < len(np.unique(labels)) < len(points):
        return Silhouettes(simplified=simple)
    values = silhouette_samples(points, labels)
    return Silhouettes(float(np.mean(values)), simple, values, labels)


def silhouettes(points: Floats, centroids: Floats) -> tuple[float | None, float | None]:
    """Compute the mean silhouette and its simplified form, see `Silhouettes`."""
    return label_silhouettes(points, centroids)[:2]
