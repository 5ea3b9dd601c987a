"""How many clusters rows fall into: indices for k = 1, 2, ... and the rule that chooses by them.

J_k is the bound B of the best centroids found for k (`weighted_rows.bound`, SSE of the rows included), T = J_1, m the
number of points, d that of features, n_c the points of a cluster.
"""

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Kernels, Search, Stream, cluster
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks import cluster_evidence as evidence
from p2pkm.methods.building_blocks.breathing import search
from p2pkm.methods.building_blocks.total_variation import squared
from p2pkm.methods.building_blocks.weighted_rows import Rows, bound

_SEEDINGS, _BREATH = 8, 3  # of the search for each k
_REFERENCES, _STARTS = 5, 3  # reference sets of the gap; seedings of what is clustered for gap and prediction strength
_STRENGTH = 0.8  # prediction strength that counts
_MARGIN = 0.05  # BIC per point in favor of fewer clusters
_CLEAR, _GAIN = 3.5, 8.0  # standard deviations of separation that are needed; that BIC per point is worth with gaps


class Index(NamedTuple):
    """An index: its label, and whether its largest value is the best one, else its smallest.

    With `least` the largest k is preferred whose value is at least that.
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
_EACH = 9  # so many are computed for one k at a time, the others from J_1, J_2, ...
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
    * gap(k) = mean of ln J'_k over 5 reference sets - ln J_k: Tibshirani, Walther and Hastie 2001, "Estimating the
      number of clusters in a data set via the gap statistic", its largest value. A row of a reference keeps weight and
      SSE, its mean is drawn from the box of the means.
    * Prediction strength(k): the rows are halved at random and each half is clustered; of the pairs of points of a
      cluster of one half that the centroids of the other half put together, the least share over its clusters.
      The largest k of at least .8: Tibshirani and Walther 2005, "Cluster validation by prediction strength".
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
        centroids, _ = search(kernels, key, rows.means, rows.weights, k, most=_BREATH, seedings=_SEEDINGS)
        if not np.isfinite(centroids).all() or (k > 1 and m - k < 0.5):
            break
        table[k - 1, 0] = bound(rows, centroids)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            table[k - 1, 1:8] = _evaluate(rows, centroids, table[:k, 0], m, d)
            costs = _log(_refer(kernels, key, rows, k))
            table[k - 1, 8] = np.cumsum(costs)[-1] / _REFERENCES - _log(table[k - 1, 0])
            table[k - 1, 9] = _predict(kernels, key, rows, k)
    with np.errstate(divide="ignore", invalid="ignore"):
        table[:, 1 + _EACH :] = _compare(table[:, 0], d)
    return table


def _refer(kernels: Kernels, key: int, rows: Rows, k: int) -> Floats:
    """Return J_k of every reference set, float64[5]."""
    low, high = rows.means.min(axis=0), rows.means.max(axis=0)
    draws = uniforms(key, Stream.INDEX, range(1, 1 + _REFERENCES), rows.means.size)
    costs = [
        cluster(kernels, key, low + (high - low) * draw.reshape(rows.means.shape), rows.weights,
                Search(k, Stream.INDEX, _STARTS, first=(1 + number) * _STARTS))[2]
        for number, draw in enumerate(draws)
    ]  # fmt: skip
    return np.array(costs) + np.cumsum(rows.within)[-1]


def _predict(kernels: Kernels, key: int, rows: Rows, k: int) -> float:
    """Return the prediction strength of k clusters, the mean of both halves; NaN if one has fewer rows."""
    first = np.argsort(uniforms(key, Stream.INDEX, [0], len(rows.means))[0], kind="stable") < len(rows.means) // 2
    halves = [(rows.means[half], rows.weights[half]) for half in (first, ~first)]
    found = [cluster(kernels, key, *half, Search(k, Stream.INDEX, _STARTS))[0] for half in halves]
    if not all(np.isfinite(centroids).all() for centroids in found):
        return np.nan
    strengths = []
    for (means, weights), own, other in zip(halves, found, found[::-1], strict=True):
        mine, theirs = (np.argmin(squared(means, centroids), axis=1) for centroids in (own, other))
        both = np.bincount(mine * k + theirs, weights=weights, minlength=k * k).reshape(k, k)
        sizes = both.sum(axis=1)
        pairs = np.where(sizes > 1.0, sizes * (sizes - 1.0), 1.0)
        together = np.where(sizes > 1.0, (both * (both - 1.0)).sum(axis=1).clip(0.0), 1.0)
        strengths.append((together / pairs).min())
    return float(sum(strengths) / len(strengths))


def _compare(costs: Floats, d: int) -> Floats:
    """Return the indices that compare J_k with J_(k-1) and J_(k+1), or all of them, float64[most, 3]."""
    found = np.full((len(costs), 3), np.nan)
    numbers = np.arange(1, 1 + len(costs))
    powers = np.array([float(k) ** (2.0 / d) for k in numbers.tolist()])
    falls = powers[:-1] * costs[:-1] - powers[1:] * costs[1:]  # D_2, D_3, ...
    logs = _log(costs)
    found[1:-1, 0] = np.abs(falls[:-1] / falls[1:])
    found[1:-1, 1] = logs[:-2] - 2.0 * logs[1:-1] + logs[2:]
    known = np.flatnonzero(np.isfinite(costs))
    if len(known) > 1:
        one, last = costs[known[0]], costs[known[-1]]
        found[known, 2] = 1.0 - known / known[-1] - (costs[known] - last) / (one - last)
    return found


def _evaluate(rows: Rows, centroids: Floats, costs: Floats, m: float, d: int) -> tuple[float, ...]:
    """Return the indices of one k, given J_1, ..., J_k."""
    k, cost, total = len(costs), costs[-1], costs[0]
    distances = squared(rows.means, centroids)
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
    own, other = np.sqrt(two + (rows.within / rows.weights)[:, None]).T
    silhouette = np.cumsum(rows.weights * np.where(other > 0.0, (other - own) / other, 0.0))[-1] / m
    spread = np.sqrt(np.bincount(labels, weights=rows.weights * two[:, 0] + rows.within, minlength=k) / weights)
    apart = np.sqrt(squared(centroids, centroids))
    np.fill_diagonal(apart, np.inf)
    db = np.cumsum(((spread[:, None] + spread) / apart).max(axis=1))[-1] / k
    return ch, bic, xu, wb, float(silhouette), jump, float(db)


def _log(values: Any) -> Any:
    """Return logarithms by `math.log`, whose bits are those of the C library, whatever the vectors of the processor."""
    found = [
        math.log(one) if one > 0.0 else (-math.inf if one == 0.0 else math.nan) for one in np.ravel(values).tolist()
    ]
    return np.array(found).reshape(np.shape(values))


def prefer(table: Floats) -> dict[str, int | None]:
    """Return the k that each index prefers, the smallest on ties; None: it is not defined for any."""
    found: dict[str, int | None] = {}
    for column, (name, index) in enumerate(INDICES.items(), 1):
        values = table[:, column] if index.largest else -table[:, column]
        if index.least is not None:  # ties: the largest k counts
            values = np.where(np.isnan(values), np.nan, np.where(values >= index.least, np.arange(len(values)), -1.0))
        found[name] = None if np.isnan(values).all() else 1 + int(np.nanargmax(values))
    return found


class Verdict(IntEnum):
    """How clear a chosen number of clusters is."""

    CLEAR = 0
    NONE = 1  # no clear clusters: k is 1
    UNCLEAR = 2


class Decision(NamedTuple):
    """The chosen number of clusters.

    Attributes
    ----------
    k : int
    verdict : Verdict
    groups : int
        Groups of clusters with gaps between them, 0 where that was not examined.
    """

    k: int
    verdict: Verdict
    groups: int = 0


def decide(kernels: Kernels, key: int, rows: Rows, table: Floats) -> Decision:
    """Choose the number of clusters.

    1. k is that of the largest CH.
    2. Fewer clusters, at least 2, of the rows or of the whitened rows are chosen instead if their BIC with a common
       covariance is larger by more than 0.05 per point and they are clear by the next rule.
    3. The clusters are clear if s + (g - 1) / (k - 1) (3.5 + 8 b) is at least 3.5: s is their separation in standard
       deviations, g the number of groups into which gaps divide them, b that BIC per point above that of one cluster,
       at least 0. Otherwise k is 1.
    4. k is unclear if g is at most k / 4, or if it is that of CH and BIC and silhouette both prefer numbers that differ
       from it by more than 1. With fewer than 2 k rows nothing can be examined: k is that of CH and unclear.

    Parameters
    ----------
    key : int
        Of the random stream.
    rows : Rows
        Weights in points.
    table : float64[most, 1 + indices]
        Of `tabulate`.
    """
    best = prefer(table)
    if best["ch"] is None or not table[0, 0] > 0.0:
        return Decision(1, Verdict.NONE)
    k = best["ch"]
    if len(rows.means) < 2 * k:
        return Decision(k, Verdict.UNCLEAR)
    scores = evidence.project(kernels, key, rows)
    per_point = 1.0 / float(np.cumsum(scores.weights)[-1])
    one, value = (evidence.likelihood(scores, scores, count) for count in (1, k))
    candidates = [(value, scores, k)]
    for at in (scores, scores.whitened):
        fewer = [(evidence.likelihood(scores, at, count), at, count) for count in range(2, k)]
        candidates += [most for most in _likeliest(fewer) if (most[0] - value) * per_point > _MARGIN]
    for found, at, count in sorted(candidates, key=lambda candidate: -candidate[0]):
        gain = max((found - one) * per_point, 0.0)
        groups = evidence.count_separated(at, count)
        share = (groups - 1) / (count - 1)
        if evidence.separation(at, count) + share * (_CLEAR + _GAIN * gain) >= _CLEAR:
            vague = 4 * groups <= count or (count == k and _disagree(best, k))
            return Decision(count, Verdict.UNCLEAR if vague else Verdict.CLEAR, groups)
    return Decision(1, Verdict.NONE, 1)


_Candidate = tuple[float, evidence.Scores, int]


def _likeliest(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return the one of largest likelihood, the first on ties; none of none."""
    return [max(candidates, key=lambda candidate: candidate[0])] if candidates else []


def _disagree(best: Mapping[str, int | None], k: int) -> bool:
    """Return whether BIC and silhouette both prefer a number that differs from k by more than 1."""
    return all(other is not None and abs(other - k) > 1 for other in (best["bic"], best["silhouette"]))
