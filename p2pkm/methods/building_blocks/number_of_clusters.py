"""Number of clusters among weighted rows: indices for k = 1, 2, ..., and the rule that chooses k.

Symbols: J_k is the bound B of the best centroids found for k (`weighted_rows.cost_upper_bound`, including the SSE of
the rows), T = J_1, m the number of points, d the number of features, n_c the number of points of a cluster.
"""

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Kernels, Search, Stream, cluster
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks import cluster_evidence as evidence
from p2pkm.methods.building_blocks import own_covariances
from p2pkm.methods.building_blocks.breathing import search_centroids
from p2pkm.methods.building_blocks.total_variation import squared_distances
from p2pkm.methods.building_blocks.weighted_rows import Rows, cost_upper_bound

# Seedings of the search for each k, and number of centroids that breathing k-means adds at first.
_SEEDINGS = 8
_BREATH = 3
# Reference sets of the gap index, and seedings of the clusterings for gap and prediction strength.
_REFERENCES = 5
_STARTS = 3
# Smallest prediction strength that counts as stable (Tibshirani and Walther 2005).
_STRENGTH = 0.8
# Difference of BIC per point by which fewer clusters must be better.
_MARGIN = 0.05
# A wide gap between two clusters: least standard deviations, and most points in it as a share of those at the sparser
# cluster. Chosen on tables that differ from those of tests/benchmarks/verdict_on_k.py.
_WIDE_GAP, _NEARLY_EMPTY = 3.0, 0.25
# Standard deviations of separation that clusters need, and the value of BIC per point, in the same unit, if all
# clusters are separated by gaps. Chosen on the sets of docs/howto/choose-k.md.
_CLEAR = 3.5
_GAIN = 8.0


class Index(NamedTuple):
    """Index of the number of clusters.

    Attributes
    ----------
    label : str
    largest : bool
        Whether the largest value is the best one; otherwise the smallest.
    least : float, optional
        If given, the best k is the largest one whose value is at least this.
    """

    label: str
    largest: bool
    least: float | None = None


INDICES = {
    "ch": Index("Calinski-Harabasz", largest=True),
    "bic": Index("BIC", largest=True),
    "xu": Index("Xu", largest=False),
    "wb": Index("WB", largest=False),
    "silhouette": Index("simplified silhouette", largest=True),
    "jump": Index("jump", largest=True),
    "db": Index("Davies-Bouldin", largest=False),
    "gap": Index("gap", largest=True),
    "strength": Index("prediction strength", largest=True, least=_STRENGTH),
    "kl": Index("Krzanowski-Lai", largest=True),
    "elbow": Index("elbow, 2nd log difference", largest=True),
    "kneedle": Index("kneedle", largest=True),
}
# The first 9 indices are computed for one k at a time, the others from J_1, J_2, ...
_SINGLE_K_INDICES = 9
COLUMNS = ("cost", *INDICES)


def tabulate(kernels: Kernels, key: int, rows: Rows, most: int) -> Floats:
    """Compute J_k and all indices for k = 1 to `most`, float64[most, 1 + indices], in the order of `COLUMNS`.

    NaN if there are fewer distinct rows than k, or not more points than k, and where an index is undefined.

    Parameters
    ----------
    key : int
        Key of the random stream.
    rows : Rows
        Weights in points.
    most : int
        Largest k.

    Notes
    -----
    * CH(k) = ((T - J_k) / (k - 1)) / (J_k / (m - k)): Calinski and Harabasz 1974, "A dendrite method for cluster
      analysis".
    * BIC(k) = sum_c n_c ln(n_c / m) - (m d / 2) ln(2 pi s) - d (m - k) / 2 - ((k - 1) + k d + 1) / 2 ln m with the
      variance s = J_k / (d (m - k)): Pelleg and Moore 2000, "X-means".
    * Xu(k) = d ln sqrt(J_k / (d m^2)) + ln k: Xu 1997, "Bayesian Ying-Yang machine, clustering and number of clusters".
    * WB(k) = k J_k / (T - J_k): Zhao and Fraenti 2014, "WB-index: a sum-of-squares based index for cluster validity".
    * Simplified silhouette: mean of (b - a) / max(a, b) over points, with the distances a and b to the nearest and the
      second nearest centroid (Hruschka et al. 2004). All points of a row have the root mean square distance of the row.
    * jump(k) = D_k^(-d/2) - D_(k-1)^(-d/2) with D_k = J_k / T, D_0^(-d/2) = 0: Sugar and James 2003, "Finding the
      number of clusters in a dataset".
    * DB(k) = mean over c of max over c' of (S_c + S_c') / |c - c'|, S_c the root mean square distance of the points of
      c to it: Davies and Bouldin 1979, "A cluster separation measure", q = p = 2.
    * gap(k) = mean of ln J'_k over 5 reference sets - ln J_k: Tibshirani, Walther and Hastie 2001, "Estimating the
      number of clusters in a data set via the gap statistic"; here its largest value. Rows of a reference set keep
      their weight and SSE; their means are drawn from the box of the means.
    * Prediction strength(k): the rows are divided at random into two halves, which are clustered. For each cluster of
      one half, it is the share of pairs of points that the centroids of the other half assign to the same cluster; the
      least share counts. Best is the largest k with at least 0.8: Tibshirani and Walther 2005, "Cluster validation by
      prediction strength".
    * KL(k) = |D_k / D_(k+1)| with D_k = (k - 1)^(2/d) J_(k-1) - k^(2/d) J_k: Krzanowski and Lai 1988, "A criterion for
      determining the number of groups in a data set using sum-of-squares clustering".
    * elbow(k) = ln J_(k-1) - 2 ln J_k + ln J_(k+1), the bend of the curve: Thorndike 1953, "Who belongs in the
      family?".
    * kneedle(k) = 1 - (k - 1) / (K - 1) - (J_k - J_K) / (J_1 - J_K), K being the last k: Satopaa, Albrecht, Irwin and
      Raghavan 2011, "Finding a 'kneedle' in a haystack".
    """
    table = np.full((most, len(COLUMNS)), np.nan)
    m, d = float(np.cumsum(rows.weights)[-1]), rows.means.shape[1]
    for k in range(1, min(most, len(rows.means)) + 1):
        centroids, _ = search_centroids(kernels, key, rows.means, rows.weights, k, most=_BREATH, seedings=_SEEDINGS)
        if not np.isfinite(centroids).all() or (k > 1 and m - k < 0.5):
            break
        table[k - 1, 0] = cost_upper_bound(rows, centroids)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            table[k - 1, 1:8] = _evaluate(rows, centroids, table[:k, 0], m, d)
            costs = _log(_reference_costs(kernels, key, rows, k))
            table[k - 1, 8] = np.cumsum(costs)[-1] / _REFERENCES - _log(table[k - 1, 0])
            table[k - 1, 9] = _prediction_strength(kernels, key, rows, k)
    with np.errstate(divide="ignore", invalid="ignore"):
        table[:, 1 + _SINGLE_K_INDICES :] = _compare(table[:, 0], d)
    return table


def _reference_costs(kernels: Kernels, key: int, rows: Rows, k: int) -> Floats:
    """Compute J_k of every reference set, float64[5]."""
    low, high = rows.means.min(axis=0), rows.means.max(axis=0)
    draws = uniforms(key, Stream.INDEX, range(1, 1 + _REFERENCES), rows.means.size)
    costs = [
        cluster(kernels, key, low + (high - low) * draw.reshape(rows.means.shape), rows.weights,
                Search(k, Stream.INDEX, _STARTS, first=(1 + number) * _STARTS))[2]
        for number, draw in enumerate(draws)
    ]  # fmt: skip
    return np.array(costs) + np.cumsum(rows.within)[-1]


def _prediction_strength(kernels: Kernels, key: int, rows: Rows, k: int) -> float:
    """Compute the prediction strength of k clusters, the mean of both halves; NaN if one has fewer rows."""
    first = np.argsort(uniforms(key, Stream.INDEX, [0], len(rows.means))[0], kind="stable") < len(rows.means) // 2
    halves = [(rows.means[half], rows.weights[half]) for half in (first, ~first)]
    clusterings = [cluster(kernels, key, *half, Search(k, Stream.INDEX, _STARTS))[0] for half in halves]
    if not all(np.isfinite(centroids).all() for centroids in clusterings):
        return np.nan
    strengths = []
    for (means, weights), centroids, predictors in zip(halves, clusterings, clusterings[::-1], strict=True):
        labels = np.argmin(squared_distances(means, centroids), axis=1)
        predicted = np.argmin(squared_distances(means, predictors), axis=1)
        table = np.bincount(labels * k + predicted, weights=weights, minlength=k * k).reshape(k, k)
        sizes = table.sum(axis=1)
        pairs = np.where(sizes > 1.0, sizes * (sizes - 1.0), 1.0)
        together = np.where(sizes > 1.0, (table * (table - 1.0)).sum(axis=1).clip(0.0), 1.0)
        strengths.append((together / pairs).min())
    return float(sum(strengths) / len(strengths))


def _compare(costs: Floats, d: int) -> Floats:
    """Compute the indices that compare J_k with J_(k-1) and J_(k+1), or with all of them, float64[most, 3]."""
    values = np.full((len(costs), 3), np.nan)
    numbers = np.arange(1, 1 + len(costs))
    powers = np.array([float(k) ** (2.0 / d) for k in numbers.tolist()])
    # D_2, D_3, ... of the Krzanowski-Lai index.
    differences = powers[:-1] * costs[:-1] - powers[1:] * costs[1:]
    logs = _log(costs)
    values[1:-1, 0] = np.abs(differences[:-1] / differences[1:])
    values[1:-1, 1] = logs[:-2] - 2.0 * logs[1:-1] + logs[2:]
    finite = np.flatnonzero(np.isfinite(costs))
    if len(finite) > 1:
        first, last = costs[finite[0]], costs[finite[-1]]
        values[finite, 2] = 1.0 - finite / finite[-1] - (costs[finite] - last) / (first - last)
    return values


def _evaluate(rows: Rows, centroids: Floats, costs: Floats, m: float, d: int) -> tuple[float, ...]:
    """Compute the indices of one k from J_1, ..., J_k."""
    k, cost, total = len(costs), costs[-1], costs[0]
    distances = squared_distances(rows.means, centroids)
    labels, two = np.argmin(distances, axis=1), np.sort(distances, axis=1)[:, :2]
    weights = np.bincount(labels, weights=rows.weights, minlength=k)
    shares = weights[weights > 0]
    bic = float(
        np.cumsum(shares * _log(shares / m))[-1]
        - 0.5 * m * d * _log(2.0 * np.pi * cost / (d * (m - k)))
        - 0.5 * d * (m - k)
        - 0.5 * (k - 1 + k * d + 1) * math.log(m)
    )
    xu = float(0.5 * d * _log(cost / (d * m * m)) + math.log(k))
    jump = float((cost / total) ** (-0.5 * d) - ((costs[-2] / total) ** (-0.5 * d) if k > 1 else 0.0))
    if k == 1:
        return np.nan, bic, xu, np.nan, np.nan, jump, np.nan
    ch, wb = float((total - cost) / (k - 1) / (cost / (m - k))), float(k * cost / (total - cost))
    nearest, second = np.sqrt(two + (rows.within / rows.weights)[:, None]).T
    silhouette = np.cumsum(rows.weights * np.where(second > 0.0, (second - nearest) / second, 0.0))[-1] / m
    spread = np.sqrt(np.bincount(labels, weights=rows.weights * two[:, 0] + rows.within, minlength=k) / weights)
    between = np.sqrt(squared_distances(centroids, centroids))
    np.fill_diagonal(between, np.inf)
    db = np.cumsum(((spread[:, None] + spread) / between).max(axis=1))[-1] / k
    return ch, bic, xu, wb, float(silhouette), jump, float(db)


def _log(values: Any) -> Any:
    """Compute logarithms by `math.log`: np.log differs in the last bit with the vectors of the processor."""
    logs = []
    for value in np.ravel(values).tolist():
        if value > 0.0:
            logs.append(math.log(value))
        elif value == 0.0:
            logs.append(-math.inf)
        else:
            logs.append(math.nan)
    return np.array(logs).reshape(np.shape(values))


def prefer(table: Floats) -> dict[str, int | None]:
    """Find the best k of each index, the smallest on ties; None if the index is undefined for every k."""
    best: dict[str, int | None] = {}
    for column, (name, index) in enumerate(INDICES.items(), 1):
        values = table[:, column] if index.largest else -table[:, column]
        if index.least is not None:
            # Every k that reaches the threshold scores by its size, so the largest one is the best.
            values = np.where(np.isnan(values), np.nan, np.where(values >= index.least, np.arange(len(values)), -1.0))
        best[name] = None if np.isnan(values).all() else 1 + int(np.nanargmax(values))
    return best


class Verdict(IntEnum):
    """Clarity of the chosen number of clusters."""

    CLEAR = 0
    # No clear clusters: k is 1.
    NONE = 1
    UNCLEAR = 2


class Decision(NamedTuple):
    """Chosen number of clusters.

    Attributes
    ----------
    k : int
    verdict : Verdict
    """

    k: int
    verdict: Verdict


def decide(kernels: Kernels, key: int, rows: Rows, table: Floats) -> Decision:
    """Choose the number of clusters.

    1. k is the number with the largest CH.
    2. Fewer clusters, at least 2, of the rows or of the whitened rows are chosen if their BIC with a common covariance
       is larger by more than 0.05 per point, and they are separated by rule 3. CH assumes spheres of equal size: it
       divides clusters that are long or much larger than others.
    3. Clusters are separated if ``s + (g - 1) / (k - 1) (3.5 + 8 b) >= 3.5``. s is their separation in standard
       deviations, g the number of groups into which gaps divide them, and b their BIC per point minus that of one
       cluster, at least 0. If no candidate is separated, k is 1.
    4. Clusters with a covariance each replace this choice if their BIC is larger and the gap between every two of them
       is wide: 3 standard deviations, and at most a quarter of the points at the sparser one. Their number is clear if
       BIC prefers it with 0.25 and 1.4 times its penalty, and so with all between them.
    5. Otherwise the number is clear if the gaps between the chosen clusters are wide. With fewer than 2 k rows, gaps
       cannot be examined: the result is the number of rule 1, and it is unclear.

    Parameters
    ----------
    key : int
        Key of the random stream.
    rows : Rows
        Weights in points.
    table : float64[most, 1 + indices]
        Result of `tabulate`.
    """
    best = prefer(table)
    if best["ch"] is None or not table[0, 0] > 0.0:
        return Decision(1, Verdict.NONE)
    if len(rows.means) < 2 * best["ch"]:
        return Decision(best["ch"], Verdict.UNCLEAR)
    scores = evidence.project(kernels, key, rows)
    k, labels, bic = _choose_alike(scores, best["ch"])
    partitions = own_covariances.partition(scores)[: len(table)]
    bics = [own_covariances.likelihood(scores, candidate) for candidate in partitions]
    likeliest = _find_largest(bics)
    if likeliest and bics[likeliest] > bic:
        gap = own_covariances.find_gap(scores, partitions[likeliest])
        if _is_wide(gap):
            is_stable = all(
                likeliest == _find_largest([own_covariances.likelihood(scores, part, penalty) for part in partitions])
                for penalty in own_covariances.PENALTIES
            )
            number = 1 + int(partitions[likeliest].max())
            return Decision(number, Verdict.CLEAR if is_stable else Verdict.UNCLEAR)
    if k == 1:
        return Decision(1, Verdict.NONE)
    return Decision(k, Verdict.CLEAR if _is_wide(own_covariances.find_gap(scores, labels)) else Verdict.UNCLEAR)


def _choose_alike(scores: evidence.Scores, k: int) -> tuple[int, Integers, float]:
    """Choose among clusters of one covariance, k or fewer, by rules 1 to 3; return number, labels and BIC."""
    per_point = 1.0 / float(np.cumsum(scores.weights)[-1])
    single_bic = evidence.likelihood(scores, scores, 1)
    k_bic = evidence.likelihood(scores, scores, k)
    candidates = [(k_bic, scores, k)]
    for coordinates in (scores, scores.whitened):
        fewer = [(evidence.likelihood(scores, coordinates, count), coordinates, count) for count in range(2, k)]
        if fewer:
            likeliest = max(fewer, key=lambda candidate: candidate[0])
            if (likeliest[0] - k_bic) * per_point > _MARGIN:
                candidates.append(likeliest)
    for bic, coordinates, count in sorted(candidates, key=lambda candidate: -candidate[0]):
        gain = max((bic - single_bic) * per_point, 0.0)
        share = (evidence.count_separated(coordinates, count) - 1) / (count - 1)
        if evidence.separation(coordinates, count) + share * (_CLEAR + _GAIN * gain) >= _CLEAR:
            centroids = coordinates.cluster(count, _BREATH)
            labels = np.argmin(squared_distances(coordinates.values, centroids), axis=1)
            return count, np.unique(labels, return_inverse=True)[1].reshape(-1), bic
    return 1, np.zeros(len(scores.values), np.int64), single_bic


def _find_largest(values: Sequence[float]) -> int:
    """Find the place of the largest value, the first of several."""
    return max(range(len(values)), key=values.__getitem__)


def _is_wide(gap: own_covariances.Gap) -> bool:
    """Check whether the gap between clusters is wide enough for a clear number."""
    return gap.deviations >= _WIDE_GAP and gap.ratio <= _NEARLY_EMPTY
