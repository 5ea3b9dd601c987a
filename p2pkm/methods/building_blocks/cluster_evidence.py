"""Evidence for several clusters: likelihood with a common covariance, separation, and gaps between clusters.

Computed at a root from the rows that it holds, in the coordinates of their leading principal axes. All sums run in one
order, logarithms are scalar and eigenvalues come from Jacobi rotations in a fixed order, so that the bits depend on
neither threads nor processor.
"""

import math
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Kernels, Stream
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.breathing import search
from p2pkm.methods.building_blocks.total_variation import squared
from p2pkm.methods.building_blocks.weighted_rows import Rows

_ROWS, _AXES = 1000, 10  # most rows and principal axes that are examined: bounds the time
_REFERENCES, _SEEDINGS = 20, 8  # reference sets; seedings of every clustering
_BREATH = 3  # of the clustering whose likelihood counts
_SWEEPS, _ITERATIONS = 30, 20  # of Jacobi rotations at most; of the search for leading axes
_FLAT = 1e-12  # an axis with a smaller share of the variance has no spread
_BAND = 0.4  # a row lies between two clusters if its margin is below
_WINDOW = 0.25  # half width of a window along the line between two centroids, in halves of their distance
# standard deviations by which a window between two centroids holds fewer points than those at both ends, of several
# pairs, of which more differ by chance, and of a single one
_GAP, _SINGLE_GAP = 2.0, 1.5


class Scores(NamedTuple):
    """Rows along their leading principal axes, around their mean.

    Attributes
    ----------
    kernels : Kernels
    key : int
        Of the random stream.
    values : float64[r, p]
    weights : float64[r]
        In points.
    spreads : float64[p]
        Standard deviation along each axis, above 0, descending.
    within : float64
        Variance of the points of a row around its mean, per axis.
    """

    kernels: Kernels
    key: int
    values: Floats
    weights: Floats
    spreads: Floats
    within: float

    @property
    def whitened(self) -> "Scores":
        """Return the rows in units of the standard deviation along each axis."""
        return self._replace(values=self.values / self.spreads, spreads=np.ones(len(self.spreads)), within=0.0)

    def cluster(self, k: int, breath: int = 0) -> Floats:
        """Return the centroids of the best of 8 seedings after breathing (with so many centroids), float64[k, p]."""
        return search(self.kernels, self.key, self.values, self.weights, k, most=breath, seedings=_SEEDINGS)[0]


def project(kernels: Kernels, key: int, rows: Rows) -> Scores:
    """Return at most 1,000 rows along at most 10 principal axes; which rows is drawn from the key."""
    kept = np.arange(len(rows.means))
    if len(kept) > _ROWS:
        draws = uniforms(key, Stream.INDEX, [1 << 20], len(kept))[0]
        kept = np.sort(np.argsort(draws, kind="stable")[:_ROWS])
    weights, within = rows.weights[kept], rows.within[kept]
    total, d = _add(weights), rows.means.shape[1]
    away = rows.means[kept] - _add_rows(weights[:, None] * rows.means[kept]) / total
    basis = _find_leading(key, away, weights) if d > _AXES else np.eye(d)
    values = _multiply(away, basis)
    variances, axes = diagonalize(_covariance(values, weights))
    order = np.argsort(-variances, kind="stable")
    order = order[variances[order] > _FLAT * max(_add(np.maximum(variances, 0.0)), 0.0)]
    spreads = np.array([math.sqrt(one) for one in variances[order].tolist()])
    return Scores(kernels, key, np.ascontiguousarray(_multiply(values, axes[:, order])), weights, spreads,
                  float(_add(within) / total / d))  # fmt: skip


def likelihood(scores: Scores, at: Scores, k: int) -> float:
    """Return the BIC of k clusters with one covariance matrix for all, of rows that are assigned in `at`.

    ``sum_c n_c ln(n_c / m) - (m / 2) ln det W - ((k - 1) + k p + p (p + 1) / 2) / 2 ln m`` without its constant, W the
    pooled covariance within clusters times m / (m - k). Unlike with one variance for all directions, a long Gaussian is
    not likelier in pieces.
    """
    labels = (
        np.argmin(squared(at.values, at.cluster(k, _BREATH)), axis=1) if k > 1 else np.zeros(len(at.values), np.int64)
    )
    weights, (_, p) = scores.weights, scores.values.shape
    sizes, m = np.bincount(labels, weights, k), _add(weights)
    if m - k < 1.0:
        return -math.inf
    means = np.stack([np.bincount(labels, weights * one, k) for one in scores.values.T], axis=1)
    rest = scores.values - (means / np.where(sizes > 0.0, sizes, 1.0)[:, None])[labels]
    spread = (_covariance(rest, weights) + scores.within * np.eye(p)) * (m / (m - k))
    shares = sum(n * math.log(n / m) for n in sizes.tolist() if n > 0.0)
    floor = _FLAT * float(_add(scores.spreads * scores.spreads))
    return shares - 0.5 * m * _log_det(spread, floor) - 0.5 * (k - 1 + k * p + 0.5 * p * (p + 1)) * math.log(m)


def separation(scores: Scores, k: int) -> float:
    """Return by how many standard deviations k clusters are further apart than those of rows uniform in a box.

    The sum of two scores, each (mean over 20 references - own value) / standard deviation over the references: of
    ``ln(J_k / J_1)``, and of the share of points between two clusters. A point lies there if
    ``(d2^2 - d1^2) / D^2 < 0.4``, d1 and d2 being its distances to the two nearest centroids and D theirs: 0 on the
    border of two clusters, 1 at a centroid. The sides of the box are the ranges along the principal axes; references
    keep the weights.
    """
    own = _measure(scores, k)
    low, span = scores.values.min(axis=0), np.ptp(scores.values, axis=0)
    draws = uniforms(scores.key, Stream.INDEX, range(1 << 21, (1 << 21) + _REFERENCES), scores.values.size)
    shape = scores.values.shape
    references = [_measure(scores._replace(values=low + span * draw.reshape(shape)), k) for draw in draws]
    found = 0.0
    for value, others in zip(own, zip(*references, strict=True), strict=True):
        mean = sum(others) / _REFERENCES
        variance = sum((one - mean) ** 2 for one in others) / (_REFERENCES - 1)
        found += (mean - value) / max(math.sqrt(variance), 1e-3)
    return found


def count_separated(scores: Scores, k: int) -> int:
    """Return into how many groups gaps divide k clusters: two clusters without a gap between them are in one group.

    Considered are pairs of centroids with no other one in the ball whose diameter joins them. Along that line, within
    half of their distance of it, points are counted in three windows: at both centroids and halfway. There is a gap if
    the middle one holds fewer than the smaller of the others by 2 standard deviations of the difference, 1.5 if k is 2.
    """
    centroids = scores.cluster(k, _BREATH)
    apart, group, least = squared(centroids, centroids), np.arange(k), _GAP if k > 2 else _SINGLE_GAP
    for a in range(k):
        for b in range(a):
            others = apart[a] + apart[b]
            others[[a, b]] = np.inf
            if (others >= apart[a, b]).all() and not _has_gap(scores, centroids[a], centroids[b], least):
                group[group == group[a]] = group[b]
    return len(np.unique(group))


def _has_gap(scores: Scores, a: Floats, b: Floats, least: float) -> bool:
    """Return whether fewer points lie halfway between two centroids than at both, by some standard deviations."""
    half = 0.5 * (b - a)
    length = _add(half * half)
    if not length > 0.0:
        return False
    away = scores.values - (a + half)
    along = _multiply(away, half[:, None])[:, 0] / length
    aside = np.cumsum(away * away, axis=1)[:, -1] - along * along * length
    near = aside <= length
    left, middle, right = (_add(scores.weights[near & (np.abs(along - at) <= _WINDOW)]) for at in (-1.0, 0.0, 1.0))
    less = min(left, right)
    return less - middle >= least * math.sqrt(less + middle) and less > middle


def _measure(scores: Scores, k: int) -> tuple[float, float]:
    """Return ``ln(J_k / J_1)`` and the share of points between two clusters."""
    centroids, m, p = scores.cluster(k), _add(scores.weights), scores.values.shape[1]
    away = scores.values - _add_rows(scores.weights[:, None] * scores.values) / m
    distances = squared(scores.values, centroids)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :2]
    first, second = np.take_along_axis(distances, nearest, axis=1).T
    apart = squared(centroids, centroids)[nearest[:, 0], nearest[:, 1]]
    margins = (second - first) / np.where((apart > 0.0) & (apart < np.inf), apart, 1.0)
    within = scores.within * m * p
    whole = _add(scores.weights * np.cumsum(away * away, axis=1)[:, -1]) + within
    left = _add(scores.weights * first) + within
    return math.log(max(left / whole, _FLAT)), _add(scores.weights[margins < _BAND]) / m


def diagonalize(matrix: Floats) -> tuple[Floats, Floats]:
    """Return eigenvalues and eigenvectors (columns) of a symmetric matrix by cyclic Jacobi rotations."""
    left, axes, p = matrix.copy(), np.eye(len(matrix)), len(matrix)
    for _ in range(_SWEEPS):
        if not np.any(np.triu(left, 1)):
            break
        for i in range(p):
            for j in range(i + 1, p):
                _rotate(left, axes, i, j)
    return np.diagonal(left).copy(), axes


def _rotate(matrix: Floats, axes: Floats, i: int, j: int) -> None:
    """Make one off-diagonal element 0."""
    off, gap = float(matrix[i, j]), float(matrix[j, j] - matrix[i, i])
    if abs(off) <= 1e-300 or abs(off) <= 1e-18 * (abs(float(matrix[i, i])) + abs(float(matrix[j, j]))):
        matrix[i, j] = matrix[j, i] = 0.0
        return
    theta = gap / (2.0 * off)
    t = math.copysign(1.0, theta) / (abs(theta) + math.sqrt(theta * theta + 1.0))
    c = 1.0 / math.sqrt(t * t + 1.0)
    for part in (matrix.T, matrix, axes.T):  # columns, rows, columns of the axes
        one, two = part[i].copy(), part[j].copy()
        part[i], part[j] = c * one - t * c * two, t * c * one + c * two
    matrix[i, j] = matrix[j, i] = 0.0


def _find_leading(key: int, away: Floats, weights: Floats) -> Floats:
    """Return an orthonormal basis near the leading 10 principal axes, float64[d, 10], by orthogonal iteration."""
    draws = uniforms(key, Stream.INDEX, [(1 << 20) + 1], away.shape[1] * _AXES)[0]
    basis = _orthonormalize(2.0 * draws.reshape(-1, _AXES) - 1.0)
    for _ in range(_ITERATIONS):
        sides = weights[:, None] * _multiply(away, basis)
        basis = _orthonormalize(_multiply(np.ascontiguousarray(away.T), sides))
    return basis


def _orthonormalize(columns: Floats) -> Floats:
    """Return the columns after Gram-Schmidt, twice; a column without a rest is 0."""
    found = np.zeros_like(columns)
    for number, column in enumerate(columns.T):
        rest, size = column.copy(), math.sqrt(_add(column * column))
        for _ in range(2):
            for before in found.T[:number]:
                rest -= _add(before * rest) * before
        length = math.sqrt(_add(rest * rest))
        found[:, number] = rest / length if length > _FLAT * size else 0.0
    return found


def _covariance(values: Floats, weights: Floats) -> Floats:
    """Return the weighted mean of the outer products, float64[p, p]."""
    p = values.shape[1]
    found = np.zeros((p, p))
    for i in range(p):
        side = weights * values[:, i]
        for j in range(i + 1):
            found[i, j] = found[j, i] = _add(side * values[:, j])
    return found / _add(weights)


def _log_det(matrix: Floats, floor: float) -> float:
    """Return the logarithm of the determinant by Cholesky's elimination; no pivot is below the floor."""
    left, found = matrix.copy(), 0.0
    for i in range(len(left)):
        pivot = max(float(left[i, i]), floor, 1e-300)
        found += math.log(pivot)
        side = left[i + 1 :, i] / pivot
        left[i + 1 :, i + 1 :] -= side[:, None] * left[i, i + 1 :]
    return found


def _multiply(a: Floats, b: Floats) -> Floats:
    """Return the matrix product; the terms of each entry are added in order."""
    found = np.zeros((a.shape[0], b.shape[1]))
    for f in range(a.shape[1]):
        found += a[:, f, None] * b[f]
    return found


def _add(values: Floats) -> float:
    """Return the sum of the values, one after the other."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def _add_rows(values: Floats) -> Floats:
    """Return the sum of the rows, one after the other."""
    total: Floats = np.cumsum(values, axis=0)[-1]
    return total
