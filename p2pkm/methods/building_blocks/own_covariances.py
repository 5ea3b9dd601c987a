"""Clusters of which each has a covariance of its own, and how well clusters are separated.

Computed at a root from summary rows. As in `cluster_evidence`, sums have a fixed order and logarithms are scalar, so
results are bit-identical for any number of threads and on any processor.
"""

import math
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.methods.building_blocks.cluster_evidence import Scores
from p2pkm.methods.building_blocks.total_variation import squared_distances

# Largest number of cells from which clusters are merged. Each cell has at least two rows per unknown of its mean.
_CELLS = 25
_BREATH = 3
# Weight in points, per axis, of the prior of a covariance, and its size as a share of the covariance of all rows.
_PRIOR = 1e-3
# Largest number of steps that assign rows to the likeliest cluster.
_STEPS = 5
# Penalties of an additional parameter, in units of that of BIC, with which the number of clusters must be the same. The
# likeliest number does not increase with the penalty, so it is the same with all between them, too.
PENALTIES = (0.25, 1.4)
# Share of the mean variance that is added to each axis before clusters are separated along a line.
_RIDGE = 0.01
# Width of a window along the line between two means, and the offsets at which windows start, in units of the distance.
_WIDTH = 0.25
_OFFSETS = np.linspace(-0.25, 0.25, 11)


class Moments(NamedTuple):
    """Number of points, mean and sum of outer products of each cluster: float64[k], float64[k, p], float64[k, p, p]."""

    sizes: Floats
    means: Floats
    outer: Floats


class Gap(NamedTuple):
    """Smallest gap between two of several clusters.

    Attributes
    ----------
    deviations : float
        Difference between the number of points at the sparser of two clusters and between them, in standard deviations
        of this difference; the smallest of all pairs of clusters.
    ratio : float
        Number of points between two clusters over that at the sparser of them; the largest of all pairs.
    """

    deviations: float
    ratio: float


def partition(scores: Scores) -> list[Integers]:
    """Divide the rows into 1, 2, ... clusters of different covariances; labels int64[r] of each number.

    Cells of k-means are merged, each time the two whose merger decreases the classification likelihood least: Fraley
    1998, "Algorithms for model-based Gaussian hierarchical clustering". Then rows are assigned to the likeliest cluster
    (Celeux and Govaert 1992, classification EM). A number is missing if clusters become empty.
    """
    rows, p = scores.values.shape
    cells = max(1, min(_CELLS, rows // (2 * (p + 1))))
    labels = np.zeros(rows, np.int64)
    if cells > 1:
        labels = _renumber(np.argmin(squared_distances(scores.values, scores.cluster(cells, _BREATH)), axis=1))
    found = [_reassign(scores, merged) for merged in _merge(scores, labels)]
    by_number = {int(candidate.max()) + 1: candidate for candidate in found}
    return [by_number[number] for number in sorted(by_number)]


def likelihood(scores: Scores, labels: Integers, penalty: float = 1.0) -> float:
    """Compute the BIC of clusters with a covariance each, on the scale of `cluster_evidence.likelihood`.

    ``sum_c n_c (ln(n_c / m) - ln det(W_c) / 2) - penalty ((k - 1) + k p + k p (p + 1) / 2) / 2 ln m``
    """
    moments = measure(scores, labels)
    k, p = moments.means.shape
    m = float(np.cumsum(moments.sizes)[-1])
    total = sum(n * math.log(n / m) for n in moments.sizes.tolist())
    total -= 0.5 * sum(_weigh(scores, moments))
    return total - 0.5 * penalty * (k - 1 + k * p + 0.5 * k * p * (p + 1)) * math.log(m)


def measure(scores: Scores, labels: Integers) -> Moments:
    """Compute number, mean and outer products of each cluster."""
    k = int(labels.max()) + 1
    values, weights = scores.values, scores.weights
    sizes = np.bincount(labels, weights, k).astype(np.float64)
    means = np.stack([np.bincount(labels, weights * column, k) for column in values.T], axis=1) / sizes[:, None]
    residuals = values - means[labels]
    p = values.shape[1]
    outer = np.zeros((k, p, p))
    for i in range(p):
        for j in range(i + 1):
            products = weights * residuals[:, i] * residuals[:, j]
            outer[:, i, j] = outer[:, j, i] = np.bincount(labels, products, k)
    return Moments(sizes, means, outer)


def find_gap(scores: Scores, labels: Integers) -> Gap:
    """Find the smallest gap between two clusters, along the line that separates them best.

    The line is that of Fisher's linear discriminant. Points are counted in windows of a quarter of the distance of the
    means: the fullest window near each mean, and the emptiest one near the middle.
    """
    moments = measure(scores, labels)
    k, p = moments.means.shape
    covariances = moments.outer / moments.sizes[:, None, None]
    trace = float(np.cumsum(np.cumsum(covariances[:, range(p), range(p)], axis=0)[-1])[-1])
    ridge = (_RIDGE * trace / (k * p) + 1e-300) * np.eye(p)
    gap = Gap(math.inf, 0.0)
    for a in range(k):
        for b in range(a):
            shift = moments.means[a] - moments.means[b]
            direction = _solve(covariances[a] + covariances[b] + ridge, shift)
            selected = (labels == a) | (labels == b)
            centered = scores.values[selected] - moments.means[b]
            along = np.cumsum(centered * direction, axis=1)[:, -1] / float(np.cumsum(shift * direction)[-1])
            gap = _join(gap, _count(along, scores.weights[selected]))
    return gap


def _count(along: Floats, weights: Floats) -> Gap:
    """Compare the windows of two clusters with means at 0 and 1."""
    order = np.argsort(along, kind="stable")
    places, sums = along[order], np.concatenate(([0.0], np.cumsum(weights[order])))

    def fill(middle: float) -> Floats:
        ends = middle + _OFFSETS
        last = np.searchsorted(places, ends + 0.5 * _WIDTH, side="right")
        return np.asarray(sums[last] - sums[np.searchsorted(places, ends - 0.5 * _WIDTH)])

    sparser, between = min(float(fill(0.0).max()), float(fill(1.0).max())), float(fill(0.5).min())
    if not sparser > 0.0:
        return Gap(0.0, 1.0)
    return Gap((sparser - between) / math.sqrt(sparser + between), between / sparser)


def _join(first: Gap, second: Gap) -> Gap:
    """Return the smaller gap of both measures."""
    return Gap(min(first.deviations, second.deviations), max(first.ratio, second.ratio))


def _merge(scores: Scores, labels: Integers) -> list[Integers]:
    """Merge cells until one is left, and return the labels after every merger."""
    moments = measure(scores, labels)
    clusters = [Moments(*part) for part in zip(*(array[:, None] for array in moments), strict=True)]
    weighed = [_weigh(scores, cluster)[0] for cluster in clusters]
    groups = [[cell] for cell in range(len(clusters))]
    losses: dict[tuple[int, int], tuple[float, Moments]] = {}
    active, found = list(range(len(clusters))), [labels]
    while len(active) > 1:
        for a in active:
            for b in active:
                if b < a and (a, b) not in losses:
                    merged = _add(clusters[a], clusters[b])
                    losses[a, b] = _weigh(scores, merged)[0] - weighed[a] - weighed[b], merged
        a, b = min(losses, key=lambda pair: (losses[pair][0], pair))
        clusters[a] = losses[a, b][1]
        weighed[a] = _weigh(scores, clusters[a])[0]
        groups[a] += groups[b]
        active.remove(b)
        losses = {pair: loss for pair, loss in losses.items() if a not in pair and b not in pair}
        number = np.zeros(len(clusters), np.int64)
        for position, cluster in enumerate(active):
            number[groups[cluster]] = position
        found.append(number[labels])
    return found


def _add(first: Moments, second: Moments) -> Moments:
    """Merge two clusters."""
    sizes = first.sizes + second.sizes
    shift = second.means - first.means
    means = first.means + shift * (second.sizes / sizes)[:, None]
    between = (first.sizes * second.sizes / sizes)[:, None, None] * shift[:, :, None] * shift[:, None, :]
    return Moments(sizes, means, first.outer + second.outer + between)


def _weigh(scores: Scores, moments: Moments) -> list[float]:
    """Compute n_c ln det(W_c) of each cluster."""
    _, pivots = _factorize(_smooth(scores, moments))
    logs = [sum(math.log(pivot) for pivot in row) for row in pivots.tolist()]
    return [n * value for n, value in zip(moments.sizes.tolist(), logs, strict=True)]


def _smooth(scores: Scores, moments: Moments) -> Floats:
    """Compute the covariance of the points of each cluster, with a weak prior, float64[k, p, p]."""
    p = moments.means.shape[1]
    prior = _PRIOR * (p + 2) * scores.spreads * scores.spreads
    covariances = moments.outer / moments.sizes[:, None, None]
    covariances[:, range(p), range(p)] += scores.within + prior / moments.sizes[:, None]
    return np.asarray(covariances)


def _reassign(scores: Scores, labels: Integers) -> Integers:
    """Assign rows to the likeliest cluster until nothing changes."""
    for _ in range(_STEPS):
        moments = measure(scores, labels)
        factors, pivots = _factorize(_smooth(scores, moments))
        logs = [
            math.log(n) - 0.5 * sum(math.log(pivot) for pivot in row)
            for n, row in zip(moments.sizes.tolist(), pivots.tolist(), strict=True)
        ]
        shifts = scores.values[:, None, :] - moments.means
        density = np.broadcast_to(np.array(logs), shifts.shape[:2]).copy()
        for i in range(shifts.shape[2]):
            density -= 0.5 * shifts[:, :, i] * shifts[:, :, i] / pivots[:, i]
            shifts[:, :, i + 1 :] -= factors[:, i + 1 :, i] * shifts[:, :, i, None]
        likeliest = np.argmax(density, axis=1)
        if np.array_equal(likeliest, labels):
            break
        labels = _renumber(likeliest)
    return labels


def _factorize(matrices: Floats) -> tuple[Floats, Floats]:
    """Factorize symmetric matrices as L D L^T: L with a diagonal of 1, float64[k, p, p], and D, float64[k, p]."""
    remaining, p = matrices.copy(), matrices.shape[1]
    factors, pivots = np.zeros_like(matrices), np.zeros(matrices.shape[:2])
    for i in range(p):
        pivots[:, i] = np.maximum(remaining[:, i, i], 1e-300)
        column = remaining[:, i + 1 :, i] / pivots[:, i, None]
        factors[:, i + 1 :, i] = column
        remaining[:, i + 1 :, i + 1 :] -= column[:, :, None] * remaining[:, i, None, i + 1 :]
    return factors, pivots


def _solve(matrix: Floats, right: Floats) -> Floats:
    """Solve a symmetric system of equations."""
    (factors,), (pivots,) = _factorize(matrix[None])
    solution = right.copy()
    for i in range(len(solution)):
        solution[i + 1 :] -= factors[i + 1 :, i] * solution[i]
    solution /= pivots
    for i in range(len(solution) - 1, -1, -1):
        solution[:i] -= factors[i, :i] * solution[i]
    return solution


def _renumber(labels: Integers) -> Integers:
    """Return labels from 0 without numbers that have no rows."""
    return np.unique(labels, return_inverse=True)[1].reshape(-1)
