"""Evidence for several clusters: likelihood with a common covariance, separation, and gaps between clusters.

Computed at a root from summary rows, in the coordinates of their leading principal axes. Sums have a fixed order,
logarithms are scalar, and eigenvalues are computed by Jacobi rotations in a fixed order. So results are bit-identical
for any number of threads and on any processor.
"""

import math
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Kernels, Stream
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.breathing import search_centroids
from p2pkm.methods.building_blocks.total_variation import squared_distances
from p2pkm.methods.building_blocks.weighted_rows import Rows

# Largest numbers of rows and principal axes that are examined; they bound the time.
_ROWS = 1000
_AXES = 10
# Reference sets of the separation, and k-means++ seedings of each clustering.
_REFERENCES = 20
_SEEDINGS = 8
# Number of centroids that breathing k-means adds at first, for clusterings whose likelihood or gaps are evaluated.
_BREATH = 3
# Largest number of sweeps of Jacobi rotations, and iterations of the search for the leading axes.
_SWEEPS = 30
_ITERATIONS = 20
# An axis with a smaller share of the variance counts as an axis without spread: rounding errors.
_FLAT = 1e-12
# A row lies between two clusters if its margin is below this value, see `separation`.
_BAND = 0.4
# Half width of a window along the line between two centroids, in halves of their distance.
_WINDOW = 0.25
# Standard deviations by which the window between two centroids must contain fewer points than those at both ends. The
# threshold is higher for several pairs of clusters, because more of them differ by chance.
_GAP = 2.0
_SINGLE_GAP = 1.5


class Scores(NamedTuple):
    """Rows in the coordinates of their leading principal axes, centered at their mean.

    Attributes
    ----------
    kernels : Kernels
    key : int
        Key of the random stream.
    values : float64[r, p]
    weights : float64[r]
        In points.
    spreads : float64[p]
        Standard deviation along each axis, positive, descending.
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
        """Rows in units of the standard deviation along each axis."""
        return self._replace(values=self.values / self.spreads, spreads=np.ones(len(self.spreads)), within=0.0)

    def cluster(self, k: int, breath: int = 0) -> Floats:
        """Cluster the rows, float64[k, p]: the best of 8 seedings, improved by breathing with `breath` centroids."""
        return search_centroids(self.kernels, self.key, self.values, self.weights, k, most=breath, seedings=_SEEDINGS)[
            0
        ]


def project(kernels: Kernels, key: int, rows: Rows) -> Scores:
    """Project at most 1,000 rows, a random sample, to at most 10 principal axes."""
    selected = np.arange(len(rows.means))
    if len(selected) > _ROWS:
        draws = uniforms(key, Stream.INDEX, [1 << 20], len(selected))[0]
        selected = np.sort(np.argsort(draws, kind="stable")[:_ROWS])
    weights, within = rows.weights[selected], rows.within[selected]
    total, d = _add(weights), rows.means.shape[1]
    centered = rows.means[selected] - _add_rows(weights[:, None] * rows.means[selected]) / total
    basis = _find_leading_axes(key, centered, weights) if d > _AXES else np.eye(d)
    values = _multiply(centered, basis)
    variances, axes = diagonalize(_covariance(values, weights))
    order = np.argsort(-variances, kind="stable")
    order = order[variances[order] > _FLAT * max(_add(np.maximum(variances, 0.0)), 0.0)]
    spreads = np.array([math.sqrt(variance) for variance in variances[order].tolist()])
    projected = np.ascontiguousarray(_multiply(values, axes[:, order]))
    return Scores(kernels, key, projected, weights, spreads, float(_add(within) / total / d))


def likelihood(scores: Scores, assigned: Scores, k: int) -> float:
    """Compute the BIC of k clusters with a common covariance matrix.

    ``sum_c n_c ln(n_c / m) - (m / 2) ln det W - ((k - 1) + k p + p (p + 1) / 2) / 2 ln m`` without its constant. W is
    the pooled covariance within clusters times m / (m - k). Unlike with one variance for all directions, splitting a
    long Gaussian does not increase the likelihood.

    Parameters
    ----------
    scores : Scores
        Rows whose likelihood is computed.
    assigned : Scores
        The same rows, possibly whitened, in which the clusters are found.
    k : int
        Number of clusters.
    """
    labels = np.zeros(len(assigned.values), np.int64)
    if k > 1:
        labels = np.argmin(squared_distances(assigned.values, assigned.cluster(k, _BREATH)), axis=1)
    weights, (_, p) = scores.weights, scores.values.shape
    sizes, m = np.bincount(labels, weights, k), _add(weights)
    if m - k < 1.0:
        return -math.inf
    means = np.stack([np.bincount(labels, weights * column, k) for column in scores.values.T], axis=1)
    residuals = scores.values - (means / np.where(sizes > 0.0, sizes, 1.0)[:, None])[labels]
    spread = (_covariance(residuals, weights) + scores.within * np.eye(p)) * (m / (m - k))
    shares = sum(n * math.log(n / m) for n in sizes.tolist() if n > 0.0)
    floor = _FLAT * float(_add(scores.spreads * scores.spreads))
    return shares - 0.5 * m * _log_det(spread, floor) - 0.5 * (k - 1 + k * p + 0.5 * p * (p + 1)) * math.log(m)


def separation(scores: Scores, k: int) -> float:
    """Compute the separation of k clusters compared with rows that are uniform in a box, in standard deviations.

    The sum of two scores, each (mean of 20 reference sets - value) / standard deviation of the reference sets: of
    ``ln(J_k / J_1)``, and of the share of points between two clusters. A point lies between two clusters if
    ``(d2^2 - d1^2) / D^2 < 0.4``, with its distances d1 and d2 to the two nearest centroids and their distance D. The
    ratio is 0 on the border of two clusters and 1 at a centroid. The sides of the box are the ranges along the axes;
    reference sets have the weights of the rows.
    """
    values = _measure(scores, k)
    low, span = scores.values.min(axis=0), np.ptp(scores.values, axis=0)
    draws = uniforms(scores.key, Stream.INDEX, range(1 << 21, (1 << 21) + _REFERENCES), scores.values.size)
    shape = scores.values.shape
    references = [_measure(scores._replace(values=low + span * draw.reshape(shape)), k) for draw in draws]
    total = 0.0
    for value, reference_values in zip(values, zip(*references, strict=True), strict=True):
        mean = sum(reference_values) / _REFERENCES
        variance = sum((reference - mean) ** 2 for reference in reference_values) / (_REFERENCES - 1)
        total += (mean - value) / max(math.sqrt(variance), 1e-3)
    return total


def count_separated(scores: Scores, k: int) -> int:
    """Count the groups into which gaps divide k clusters: clusters without a gap between them are in the same group.

    A pair of centroids is examined if the ball whose diameter connects them contains no third centroid. Points within
    half their distance of the connecting line are counted in three windows: at both centroids and halfway. There is a
    gap if the middle window contains fewer points than the smaller of the others, by 2 standard deviations of the
    difference, or 1.5 if k is 2.
    """
    centroids = scores.cluster(k, _BREATH)
    distances = squared_distances(centroids, centroids)
    group = np.arange(k)
    least = _GAP if k > 2 else _SINGLE_GAP
    for a in range(k):
        for b in range(a):
            # A third centroid c is outside the ball if |c - a|^2 + |c - b|^2 >= |a - b|^2 (Thales).
            through_third = distances[a] + distances[b]
            through_third[[a, b]] = np.inf
            if (through_third >= distances[a, b]).all() and not _has_gap(scores, centroids[a], centroids[b], least):
                group[group == group[a]] = group[b]
    return len(np.unique(group))


def _has_gap(scores: Scores, a: Floats, b: Floats, least: float) -> bool:
    """Check whether fewer points lie halfway between two centroids than at both, by `least` standard deviations."""
    half = 0.5 * (b - a)
    length = _add(half * half)
    if not length > 0.0:
        return False
    centered = scores.values - (a + half)
    along = _multiply(centered, half[:, None])[:, 0] / length
    across = np.cumsum(centered * centered, axis=1)[:, -1] - along * along * length
    in_tube = across <= length
    left, middle, right = (
        _add(scores.weights[in_tube & (np.abs(along - position) <= _WINDOW)]) for position in (-1.0, 0.0, 1.0)
    )
    smaller = min(left, right)
    return smaller - middle >= least * math.sqrt(smaller + middle) and smaller > middle


def _measure(scores: Scores, k: int) -> tuple[float, float]:
    """Compute ``ln(J_k / J_1)`` and the share of points between two clusters."""
    centroids, m, p = scores.cluster(k), _add(scores.weights), scores.values.shape[1]
    centered = scores.values - _add_rows(scores.weights[:, None] * scores.values) / m
    distances = squared_distances(scores.values, centroids)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :2]
    first, second = np.take_along_axis(distances, nearest, axis=1).T
    between = squared_distances(centroids, centroids)[nearest[:, 0], nearest[:, 1]]
    margins = (second - first) / np.where((between > 0.0) & (between < np.inf), between, 1.0)
    within = scores.within * m * p
    total_cost = _add(scores.weights * np.cumsum(centered * centered, axis=1)[:, -1]) + within
    cost = _add(scores.weights * first) + within
    return math.log(max(cost / total_cost, _FLAT)), _add(scores.weights[margins < _BAND]) / m


def diagonalize(matrix: Floats) -> tuple[Floats, Floats]:
    """Compute eigenvalues and eigenvectors (columns) of a symmetric matrix by cyclic Jacobi rotations."""
    rotated, axes, p = matrix.copy(), np.eye(len(matrix)), len(matrix)
    for _ in range(_SWEEPS):
        if not np.any(np.triu(rotated, 1)):
            break
        for i in range(p):
            for j in range(i + 1, p):
                _rotate(rotated, axes, i, j)
    return np.diagonal(rotated).copy(), axes


def _rotate(matrix: Floats, axes: Floats, i: int, j: int) -> None:
    """Rotate axes i and j so that matrix element (i, j) becomes 0, in place."""
    off, gap = float(matrix[i, j]), float(matrix[j, j] - matrix[i, i])
    if abs(off) <= 1e-300 or abs(off) <= 1e-18 * (abs(float(matrix[i, i])) + abs(float(matrix[j, j]))):
        matrix[i, j] = matrix[j, i] = 0.0
        return
    theta = gap / (2.0 * off)
    t = math.copysign(1.0, theta) / (abs(theta) + math.sqrt(theta * theta + 1.0))
    c = 1.0 / math.sqrt(t * t + 1.0)
    # Columns and rows of the matrix, then the columns of the axes.
    for lines in (matrix.T, matrix, axes.T):
        first, second = lines[i].copy(), lines[j].copy()
        lines[i] = c * first - t * c * second
        lines[j] = t * c * first + c * second
    matrix[i, j] = matrix[j, i] = 0.0


def _find_leading_axes(key: int, centered: Floats, weights: Floats) -> Floats:
    """Compute an orthonormal basis near the leading 10 principal axes, float64[d, 10], by orthogonal iteration."""
    draws = uniforms(key, Stream.INDEX, [(1 << 20) + 1], centered.shape[1] * _AXES)[0]
    basis = _orthonormalize(2.0 * draws.reshape(-1, _AXES) - 1.0)
    for _ in range(_ITERATIONS):
        projected = weights[:, None] * _multiply(centered, basis)
        basis = _orthonormalize(_multiply(np.ascontiguousarray(centered.T), projected))
    return basis


def _orthonormalize(columns: Floats) -> Floats:
    """Orthonormalize columns by Gram-Schmidt; a column that depends on earlier ones becomes 0."""
    basis = np.zeros_like(columns)
    for number, column in enumerate(columns.T):
        residual = column.copy()
        size = math.sqrt(_add(column * column))
        # Twice: after one pass the rounding errors of nearly dependent columns are not orthogonal.
        for _ in range(2):
            for axis in basis.T[:number]:
                residual -= _add(axis * residual) * axis
        length = math.sqrt(_add(residual * residual))
        basis[:, number] = residual / length if length > _FLAT * size else 0.0
    return basis


def _covariance(values: Floats, weights: Floats) -> Floats:
    """Compute the weighted mean of the outer products, float64[p, p]."""
    p = values.shape[1]
    sums = np.zeros((p, p))
    for i in range(p):
        weighted = weights * values[:, i]
        for j in range(i + 1):
            sums[i, j] = sums[j, i] = _add(weighted * values[:, j])
    return sums / _add(weights)


def _log_det(matrix: Floats, floor: float) -> float:
    """Compute the logarithm of the determinant by Cholesky elimination; pivots are at least `floor`."""
    remaining = matrix.copy()
    log_det = 0.0
    for i in range(len(remaining)):
        pivot = max(float(remaining[i, i]), floor, 1e-300)
        log_det += math.log(pivot)
        factors = remaining[i + 1 :, i] / pivot
        remaining[i + 1 :, i + 1 :] -= factors[:, None] * remaining[i, i + 1 :]
    return log_det


def _multiply(a: Floats, b: Floats) -> Floats:
    """Multiply matrices; the terms of each entry are added in order, unlike in BLAS."""
    product = np.zeros((a.shape[0], b.shape[1]))
    for f in range(a.shape[1]):
        product += a[:, f, None] * b[f]
    return product


def _add(values: Floats) -> float:
    """Add values in order."""
    # np.sum adds in an order that depends on the vectors of the processor.
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def _add_rows(values: Floats) -> Floats:
    """Add rows in order."""
    total: Floats = np.cumsum(values, axis=0)[-1]
    return total
