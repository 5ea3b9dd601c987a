"""How many clusters rows fall into: indices for k = 1, 2, ... and the rule that chooses by them.

J_k is the bound B of the best centroids found for k (`weighted_rows.bound`, SSE of the rows included), T = J_1, m the
number of points, d that of features, n_c the points of a cluster.
"""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Kernels
from p2pkm.methods.building_blocks.breathing import search
from p2pkm.methods.building_blocks.total_variation import squared
from p2pkm.methods.building_blocks.weighted_rows import Rows, bound

_SEEDINGS, _BREATH = 8, 3  # of the search for each k


class Index(NamedTuple):
    """An index: its label, and whether its largest value is the best one, else its smallest."""

    label: str
    largest: bool


INDICES = {
    "ch": Index("Calinski-Harabasz", largest=True),
    "bic": Index("BIC", largest=True),
    "xu": Index("Xu", largest=False),
    "wb": Index("WB", largest=False),
    "silhouette": Index("simplified silhouette", largest=True),
    "jump": Index("jump", largest=True),
    "db": Index("Davies-Bouldin", largest=False),
}
COLUMNS = ("cost", *INDICES)


def tabulate(kernels: Kernels, key: int, rows: Rows, most: int) -> Floats:
    """Return J_k and all indices for k = 1 to `most`, float64[most, 1 + indices], in the order of `COLUMNS`.

    NaN where there are fewer distinct rows, or no more points, than k, and where an index is not defined.

    Parameters
    ----------
    key : int
        Of the random stream.
    rows : Rows
        Weights in points.

    Notes
    -----
    * CH(k) = ((T - J_k) / (k - 1)) / (J_k / (m - k)): Calinski and Harabasz 1974, "A dendrite method for cluster
      analysis".
    * BIC(k) = sum_c n_c ln(n_c / m) - (m d / 2) ln(2 pi s) - d (m - k) / 2 - ((k - 1) + k d + 1) / 2 ln m with the
      variance s = J_k / (d (m - k)): Pelleg and Moore 2000, "X-means".
    * Xu(k) = d ln sqrt(J_k / (d m^2)) + ln k: Xu 1997, "Bayesian Ying-Yang machine, clustering and number of clusters".
    * WB(k) = k J_k / (T - J_k): Zhao and Fraenti 2014, "WB-index: a sum-of-squares based index for cluster validity".
    * Simplified silhouette, mean of (b - a) / max(a, b) over points, with distances to the own and the next centroid
      (Hruschka et al. 2004); the points of a row are taken at the root mean square distances of all of them.
    * jump(k) = D_k^(-d/2) - D_(k-1)^(-d/2) with D_k = J_k / T, D_0^(-d/2) = 0: Sugar and James 2003, "Finding the
      number of clusters in a dataset".
    * DB(k) = mean over c of max over c' of (S_c + S_c') / |c - c'|, S_c the root mean square distance of the points of
      c to it: Davies and Bouldin 1979, "A cluster separation measure", q = p = 2.
    """
    table = np.full((most, len(COLUMNS)), np.nan)
    m, d = float(np.cumsum(rows.weights)[-1]), rows.means.shape[1]
    for k in range(1, min(most, len(rows.means)) + 1):
        centroids, _ = search(kernels, key, rows.means, rows.weights, k, most=_BREATH, seedings=_SEEDINGS)
        if not np.isfinite(centroids).all() or (k > 1 and m - k < 0.5):
            break
        table[k - 1, 0] = bound(rows, centroids)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            table[k - 1, 1:] = _evaluate(rows, centroids, table[:k, 0], m, d)
    return table


def _evaluate(rows: Rows, centroids: Floats, costs: Floats, m: float, d: int) -> tuple[float, ...]:
    """Return the indices of one k, given J_1, ..., J_k."""
    k, cost, total = len(costs), costs[-1], costs[0]
    distances = squared(rows.means, centroids)
    labels, two = np.argmin(distances, axis=1), np.sort(distances, axis=1)[:, :2]
    weights = np.bincount(labels, weights=rows.weights, minlength=k)
    shares = weights[weights > 0]
    bic = float(
        np.cumsum(shares * np.log(shares / m))[-1]
        - 0.5 * m * d * np.log(2.0 * np.pi * cost / (d * (m - k)))
        - 0.5 * d * (m - k)
        - 0.5 * (k - 1 + k * d + 1) * np.log(m)
    )
    xu = float(0.5 * d * np.log(cost / (d * m * m)) + np.log(k))
    jump = float((cost / total) ** (-0.5 * d) - ((costs[-2] / total) ** (-0.5 * d) if k > 1 else 0.0))
    if k == 1:
        return np.nan, bic, xu, np.nan, np.nan, jump, np.nan
    ch, wb = float((total - cost) / (k - 1) / (cost / (m - k))), float(k * cost / (total - cost))
    own, other = np.sqrt(two + (rows.within / rows.weights)[:, None]).T
    silhouette = np.cumsum(rows.weights * np.where(other > 0.0, (other - own) / other, 0.0))[-1] / m
    spread = np.sqrt(np.bincount(labels, weights=rows.weights * two[:, 0] + rows.within, minlength=k) / weights)
    apart = np.sqrt(squared(centroids, centroids))
    np.fill_diagonal(apart, np.inf)
    db = np.cumsum(((spread[:, None] + spread) / apart).max(axis=1))[-1] / k
    return ch, bic, xu, wb, float(silhouette), jump, float(db)


def prefer(table: Floats) -> dict[str, int | None]:
    """Return the k that each index prefers, the smallest on ties; None: it is not defined for any."""
    found: dict[str, int | None] = {}
    for column, (name, index) in enumerate(INDICES.items(), 1):
        values = table[:, column] if index.largest else -table[:, column]
        found[name] = None if np.isnan(values).all() else 1 + int(np.nanargmax(values))
    return found


def choose(table: Floats) -> int:
    """Return the number of clusters: 1 if BIC is largest there or all points are alike, else that of largest CH."""
    best = prefer(table)
    if best["ch"] is None or best["bic"] == 1 or not table[0, 0] > 0.0:
        return 1
    return best["ch"]
