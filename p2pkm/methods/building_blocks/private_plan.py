"""Plan of private k-means: which release comes next, and what the root computes from its noisy total.

The plan sees totals only, never points. So everything it chooses, such as clipping radii, subspace and cells, is a
function of earlier releases, as the composition of Gaussian mechanisms requires.

The parts of the recipe (with shares of the squared budget mu^2, which add up to 1):

1. Mean of the points, and their number.
2. Rings around the mean: number of points, radius of the points, and radius of half of the points.
3. With many features, second moments: the subspace of at most k - 1 dimensions with the largest variance; then rings of
   the projected points.
4. Cells: places drawn from a normal distribution with the moments, or in the ball; three sums move them. Their weighted
   k-means gives k centroids.
5. A Lloyd step in the subspace, then steps in all dimensions with a wide clipping radius. The part of a centroid
   outside of the subspace is shrunk according to its noise.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Kernels, Search, Stream, cluster
from p2pkm.core.fixed_order import multiply
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.private_releases import (
    MOST_MOMENTS,
    RINGS,
    Facts,
    Kind,
    Knowledge,
    Release,
    as_matrix,
    clip,
    decode,
    lengths,
    limit_devices,
    moment_release,
    radii,
    row_release,
)
from p2pkm.methods.building_blocks.secure_sums import standard_normals

# Cells per cluster: least and largest number; random points per cell by whose k-means the cells are placed.
LEAST_CELLS = 6
MOST_CELLS = 60
_POINTS_PER_CELL = 50
# Lloyd steps of this k-means, and seedings of the k-means of the cells.
_LIMIT = 10
_STARTS = 20
# Clipping radius in the cells: quantile of the distance of a random point to its cell.
_CELL_QUANTILE = 0.75
# Expected movement of a centroid in a step, as a share of the clipping radius.
_EXPECTED_MOVE = 0.3
# Clipping radius of a narrow step, in radii of one of k balls that together have the volume of the ball.
_STEP_RADIUS = 0.6
# Standard deviations of a count that count as noise, in a row, in a row with few features, and in a radius; share of
# the points that the noise of a radius may be; shares of the points beyond the radius of all and of half of them.
_ROW_DEVIATIONS = 2.0
_FEW_FEATURES_DEVIATIONS = 1.5
_RING_DEVIATIONS = 3.0
_MAX_NOISE_SHARE = 0.1
_MAX_OUTSIDE = 0.005
_HALF = 0.5
# An eigenvalue is used if it exceeds the median by this share of the largest eigenvalue of the noise.
_EIGENVALUE_SHARE = 0.75
# Number of steps in all dimensions: largest number, and factor of the number for which their noise costs little.
MOST_STEPS = 8
_STEP_FACTOR = 0.002
# Least weight of a step among the steps within the subspace, from the second step in all dimensions on.
_LEAST_SHARE = 1.0 / 3.0
# Points are projected if they have this many times as many features as the subspace has dimensions, or if mu is below
# this limit (epsilon 0.85 at delta 1e-6). Otherwise second moments cost more than they gain.
_MANY_FEATURES = 1.5
_SMALL_BUDGET = 0.2
# With at most this number of features points are not projected.
_FEW_FEATURES = 3


class Total(NamedTuple):
    """Noisy total of a release.

    Attributes
    ----------
    values : float64[r, w]
    sd : float
        Standard deviation of the noise of a number.
    """

    values: Floats
    sd: float


class Draws(NamedTuple):
    """Source of the public random numbers: kernels and the shared key, which all devices have."""

    kernels: Kernels
    key: int


@dataclass(frozen=True)
class Plan:
    """Plan of a run.

    Parameters
    ----------
    k, d : int
        Number of clusters and of features.
    radius : float
        Radius of the public ball.
    relation : {"add", "replace", "device"}
    mu : float
        Budget of Gaussian differential privacy of all releases together.
    excess : float
        Standard deviation of the noise of a total, relative to the noise that mu requires.
    points : int
        Number of points whose contribution limits that of a device, with the relation "device".
    """

    k: int
    d: int
    radius: float
    relation: str
    mu: float
    excess: float = 1.0
    points: int = 1

    @property
    def is_projected(self) -> bool:
        """Whether points are projected to a subspace of at most k - 1 dimensions."""
        most = self.k - 1
        if not most or self.d <= max(most, _FEW_FEATURES) or self.d * (self.d + 1) // 2 > MOST_MOMENTS:
            return False
        return self.d > _MANY_FEATURES * most or self.mu / self.excess < _SMALL_BUDGET

    @property
    def _mu_of_points(self) -> float:
        """Sensitivity of a total to a point, over the standard deviation of its noise."""
        return self.mu / self.excess / self.points

    @property
    def has_few_features(self) -> bool:
        """Whether cells alone describe the points: no mean, and two sums of cells instead of three."""
        return self.d <= _FEW_FEATURES

    @cached_property
    def shares(self) -> dict[Kind, float]:
        """Shares of mu^2 of all releases of a kind together; they add up to 1."""
        if self.is_projected:
            return {
                Kind.MEAN: 0.04, Kind.RINGS: 0.08, Kind.MOMENTS: 0.30, Kind.INNER_RINGS: 0.03, Kind.CELLS: 0.20,
                Kind.INNER_STEP: 0.10, Kind.STEP: 0.25,
            }  # fmt: skip
        if self.has_few_features:
            return {Kind.RINGS: 0.061, Kind.CELLS: 0.603, Kind.INNER_STEP: 0.336}
        return {Kind.MEAN: 0.04, Kind.RINGS: 0.08, Kind.CELLS: 0.458, Kind.INNER_STEP: 0.422}

    @property
    def _cell_weight(self) -> float:
        """Contribution of a point to the count of a cell, relative to the clipping radius."""
        return 1.0 if self.has_few_features else math.sqrt(0.5)

    @property
    def _row_deviations(self) -> float:
        """Standard deviations of the count of a row that count as noise."""
        return _FEW_FEATURES_DEVIATIONS if self.has_few_features else _ROW_DEVIATIONS

    def repeats(self, kind: Kind, steps: float) -> int:
        """Count the releases of a kind, with `steps` steps in all dimensions."""
        return {
            Kind.CELLS: 2 if self.has_few_features else 3,
            Kind.INNER_STEP: 1 if self.is_projected else 2,
            Kind.STEP: int(steps),
        }.get(kind, 1)

    def start(self) -> Knowledge:
        """Create the knowledge before the first release."""
        facts = Facts(
            kind=float(next(iter(self.shares))),
            size=self.radius,
            reach=self.radius,
            inner=self.radius,
            cell=self.radius,
        )
        return Knowledge(facts, np.zeros(self.d), np.zeros((0, self.d + 1)), np.zeros((0, self.d)))

    def noise(self, release: Release, steps: float) -> float:
        """Compute the standard deviation of the noise of a total that the guarantee requires."""
        share = self.shares[release.kind] / self.repeats(release.kind, steps)
        return release.grain.sensitivity / (math.sqrt(share) * self.mu)

    def release(self, known: Knowledge) -> Release:
        """Create the next release."""
        release = self._release_of_points(known)
        return limit_devices(release, self.points) if self.relation == "device" else release

    def _release_of_points(self, known: Knowledge) -> Release:
        """Create the next release, without a limit of the table of a device."""
        facts, kind = known.facts, Kind(int(known.facts.kind))
        if kind == Kind.MEAN:
            return row_release(kind, (1, self.d + 1), self.radius, self.radius / 2.0, self.relation)
        if kind in (Kind.RINGS, Kind.INNER_RINGS):
            return row_release(kind, (RINGS, 1), 0.0, 1.0, self.relation)
        if kind == Kind.MOMENTS:
            return moment_release(self.d, facts.reach, self.relation)
        rows, width = known.origins.shape
        if kind == Kind.CELLS:
            return row_release(kind, (rows, width + 1), facts.cell, facts.cell * self._cell_weight, self.relation)
        reach = facts.reach
        if kind == Kind.INNER_STEP:
            reach = min(facts.inner, _STEP_RADIUS * facts.inner * self.k ** (-1.0 / width))
        # The weight of least noise: if a mean moves by m, its noise is (g - m h / a) / n, with noise g of a coordinate
        # and h of the count; this is least at a^2 = reach m / sqrt(width).
        weight = reach * math.sqrt(_EXPECTED_MOVE) / width**0.25
        return row_release(kind, (rows, width + 1), reach, weight, self.relation)

    def outline(self, cells: int, steps: int) -> list[Knowledge]:
        """List what is known before each release and at the end, with public numbers in place of those of the points.

        Parameters
        ----------
        cells, steps : int
            Number of cells per cluster, and of steps in all dimensions.
        """
        known = self.start()
        facts = known.facts._replace(steps=float(steps))
        states = []
        for kind in (*self.shares, Kind.END):
            q = self.k - 1 if self.is_projected and kind > Kind.MOMENTS else 0
            rows = {Kind.CELLS: cells * self.k}.get(kind, self.k) if kind >= Kind.CELLS else 0
            width = q if q and kind in (Kind.CELLS, Kind.INNER_STEP) else self.d
            state = Knowledge(
                facts._replace(kind=float(kind)), known.mean, np.zeros((q, self.d + 1)), np.zeros((rows, width))
            )
            states += [state] * (1 if kind == Kind.END else self.repeats(kind, steps))
        return states

    def advance(self, known: Knowledge, total: Total, draws: Draws) -> Knowledge:
        """Compute what follows from the total of the next release."""
        kind = Kind(int(known.facts.kind))
        rules = {
            Kind.MEAN: self._read_mean, Kind.RINGS: self._read_rings, Kind.MOMENTS: self._read_moments,
            Kind.INNER_RINGS: self._read_inner_rings, Kind.CELLS: self._read_cells,
            Kind.INNER_STEP: self._read_inner_step, Kind.STEP: self._read_step,
        }  # fmt: skip
        known = self._follow(rules[kind](known, total, draws))
        if Kind(int(known.facts.kind)) == Kind.CELLS and not known.facts.number:
            return self._place_cells(known, draws)
        if kind == Kind.CELLS and int(known.facts.kind) != Kind.CELLS:
            return self._cluster_cells(known, draws)
        is_left = kind == Kind.INNER_STEP and int(known.facts.kind) != Kind.INNER_STEP
        return known._replace(origins=lift(known, known.origins)) if is_left else known

    def _follow(self, known: Knowledge) -> Knowledge:
        """Select the kind of the following release."""
        facts, kind = known.facts, Kind(int(known.facts.kind))
        if facts.number + 1 < self.repeats(kind, facts.steps):
            return known._replace(facts=facts._replace(number=facts.number + 1.0))
        kinds = [*self.shares, Kind.END]
        return known._replace(facts=facts._replace(kind=float(kinds[kinds.index(kind) + 1]), number=0.0))

    def apply_command(self, known: Knowledge, command: Floats) -> Knowledge | None:
        """Compute what a device knows after a command; None if the command cannot follow from what it knew."""
        try:
            after = decode(known, command)
        except (ValueError, OverflowError):
            return None
        facts, kind = after.facts, after.facts.kind
        follows = self._follow(known._replace(facts=known.facts._replace(steps=facts.steps))).facts
        least = self.k if kind >= Kind.CELLS else 0
        most = MOST_CELLS * self.k if kind == Kind.CELLS else least
        fits = (
            (kind, facts.number) == (follows.kind, follows.number)
            and 1 <= facts.steps <= MOST_STEPS
            and len(after.mean) == self.d
            and len(after.basis) < self.k
            and least <= len(after.origins) <= most
            and bool(np.isfinite(command).all())
        )
        return after if fits else None

    def _read_mean(self, known: Knowledge, total: Total, draws: Draws) -> Knowledge:
        """Compute the mean, shrunk towards the public center according to its noise (James-Stein)."""
        release = self.release(known)
        count = float(release.counts(total.values)[0])
        if count <= self._row_deviations * total.sd / release.weight:
            return known._replace(facts=known.facts._replace(points=max(count, 0.0)))
        mean = shrink(total.values[:, :-1] / count, total.sd / count, 2)[0]
        mean = clip(mean, self.radius)
        size = min(2.0 * self.radius, self.radius + float(lengths(mean)))
        return known._replace(facts=known.facts._replace(points=count, size=size), mean=mean)

    def _read_rings(self, known: Knowledge, total: Total, draws: Draws) -> Knowledge:
        """Compute the number of points, and the radii of all and of half of them."""
        facts, counts = known.facts, total.values[:, -1]
        share = 1.0
        # Tables of devices are scaled differently in each release, so counts of two releases cannot be averaged.
        if Kind.MEAN in self.shares and self.relation != "device":
            # Both estimates of the number, weighted by their precision.
            first = self.release(self.start())
            first_sd = self.noise(first, 1.0) * self.excess / first.weight
            share = first_sd**2 / (first_sd**2 + RINGS * total.sd**2)
        count = max(1.0, share * float(np.cumsum(counts)[-1]) + (1.0 - share) * facts.points)
        size = choose_radius(counts, facts.size, total.sd, count)
        beyond = np.cumsum(np.append(0.0, counts[:-1]))
        half = int(np.argmax(beyond > _HALF * count)) - 1 if (beyond > _HALF * count).any() else RINGS - 1
        reach = min(size, float(radii(facts.size)[half]))
        return known._replace(facts=facts._replace(points=count, size=size, reach=reach, inner=size))

    def _read_moments(self, known: Knowledge, total: Total, draws: Draws) -> Knowledge:
        """Find the subspace of the eigenvectors whose eigenvalues exceed those of the noise."""
        from topologies.single_thread import single_thread

        with single_thread():
            values, vectors = np.linalg.eigh(as_matrix(total.values[0]))
        values, vectors = values[::-1], vectors.T[::-1]
        # Noise of standard deviation sd / sqrt(2) off the diagonal has eigenvalues up to sqrt(2) sd sqrt(d).
        noise = _EIGENVALUE_SHARE * math.sqrt(2.0) * total.sd * math.sqrt(self.d)
        most = self.k - 1
        rank = int(np.count_nonzero(values[:most] > np.median(values) + noise)) or most
        largest = max(float(values[0]), total.sd)
        squares = np.maximum(values[:rank], largest * 1e-6) / known.facts.points
        return known._replace(basis=np.column_stack((vectors[:rank], squares)))

    def _read_inner_rings(self, known: Knowledge, total: Total, draws: Draws) -> Knowledge:
        """Compute the radius of the projected points."""
        inner = choose_radius(total.values[:, -1], known.facts.size, total.sd, known.facts.points)
        return known._replace(facts=known.facts._replace(inner=inner))

    def _place_cells(self, known: Knowledge, draws: Draws) -> Knowledge:
        """Draw random points with the moments of the data, and place cells by their k-means."""
        facts = known.facts
        share = self.shares[Kind.CELLS] / self.repeats(Kind.CELLS, 1.0)
        mu = math.sqrt(share) * self._mu_of_points
        proposed = facts.points * mu / (4.0 * math.sqrt(3.0))
        number = int(min(max(proposed, LEAST_CELLS * self.k), MOST_CELLS * self.k))
        q = len(known.basis) or self.d
        count = _POINTS_PER_CELL * number
        points = standard_normals(np.array([draws.key], np.uint64), 0, Stream.CELLS, q * count).reshape(count, q)
        if len(known.basis):
            points = points * np.sqrt(known.basis[:, -1])
        else:
            # Powers of Python floats: those of NumPy differ in the last bit with the vectors of the processor.
            shares = uniforms(draws.key, Stream.CELLS, [1], count).ravel().tolist()
            distances = facts.size * np.array([share ** (1.0 / q) for share in shares])
            points *= (distances / lengths(points))[:, None]
        search = Search(number, Stream.CELLS, limit=_LIMIT, greedy=False, first=2)
        places = cluster(draws.kernels, draws.key, points, np.ones(count), search)[0]
        points = np.ascontiguousarray(points)
        _, labels = draws.kernels.losses(points, np.zeros(0), np.array([0, count]), places[None])
        cell = float(np.sort(lengths(points - places[labels]))[int(_CELL_QUANTILE * count)])
        return known._replace(facts=facts._replace(cell=cell), origins=places)

    def _read_cells(self, known: Knowledge, total: Total, draws: Draws) -> Knowledge:
        """Keep the cells with more points than noise, at least k, and move them to the means of their points.

        The last column of the origins is the number of points; the next release drops it.
        """
        release = self.release(known)
        counts = release.counts(total.values)
        used = counts > self._row_deviations * total.sd / release.weight
        if np.count_nonzero(used) < self.k:
            used = np.isin(np.arange(len(counts)), np.argsort(-counts, kind="stable")[: self.k])
        moves = clip(total.values[:, :-1] / np.maximum(counts, 1.0)[:, None], release.clip_radius)
        # Not clipped to the ball: cells on its surface could coincide, and fewer than k would remain.
        moved = (known.origins + moves)[used]
        if known.facts.number + 1 < self.repeats(Kind.CELLS, 1.0):
            return known._replace(origins=moved)
        return known._replace(origins=np.column_stack((moved, np.maximum(counts[used], 1.0))))

    def _cluster_cells(self, known: Knowledge, draws: Draws) -> Knowledge:
        """Cluster the cells into k centroids, by weighted k-means, best of 20, and choose the number of steps."""
        cells, weights = known.origins[:, :-1], known.origins[:, -1]
        options = Search(self.k, Stream.CLUSTER, starts=_STARTS)
        centroids = cluster(draws.kernels, draws.key, cells, weights, options)[0]
        facts = known.facts
        mu = self._mu_of_points
        budget = mu * mu * self.shares.get(Kind.STEP, 0.0) * facts.points * facts.points
        steps = math.floor(min(max(_STEP_FACTOR * budget / (1.5 * self.d * self.k**2), 1.0), MOST_STEPS))
        return known._replace(facts=facts._replace(steps=float(steps)), origins=clip(centroids, facts.inner))

    def _read_inner_step(self, known: Knowledge, total: Total, draws: Draws) -> Knowledge:
        """Move the centroids to the means of their points; those whose count may be noise do not move."""
        release = self.release(known)
        counts = release.counts(total.values)
        moves = clip(total.values[:, :-1] / np.maximum(counts, 1.0)[:, None], release.clip_radius)
        is_read = counts > self._row_deviations * total.sd / release.weight
        return known._replace(origins=clip(known.origins + np.where(is_read[:, None], moves, 0.0), known.facts.inner))

    def _read_step(self, known: Knowledge, total: Total, draws: Draws) -> Knowledge:
        """Move the centroids in all dimensions.

        Within the subspace the move is averaged with the steps before, by precision. The part outside is shrunk
        according to its noise, and averaged with the steps before.
        """
        release, number = self.release(known), known.facts.number + 1.0
        counts = release.counts(total.values)
        narrow = self._narrow_noise(known) ** 2
        share = narrow / (number * narrow + total.sd**2)
        if number > 1.0:
            # Otherwise centroids that are not yet near a minimum would hardly move.
            share = max(share, _LEAST_SHARE)
        moved = known.origins + total.values[:, :-1] / np.maximum(counts, 1.0)[:, None]
        inner_before, outer_before = self._split(known, known.origins)
        inner, outer = self._split(known, moved)
        outer = shrink(outer, total.sd / np.maximum(counts, 1.0), len(known.basis) + 2)
        inner = inner_before + share * (inner - inner_before)
        outer = outer_before + (outer - outer_before) / number
        moved = clip(multiply(inner, known.vectors) + outer, known.facts.size)
        is_read = counts > self._row_deviations * total.sd / release.weight
        return known._replace(origins=np.where(is_read[:, None], moved, known.origins))

    def _split(self, known: Knowledge, rows: Floats) -> tuple[Floats, Floats]:
        """Split rows into their coordinates in the subspace, float64[r, q], and the part outside, float64[r, d]."""
        inner = multiply(rows, known.vectors.T)
        return inner, rows - multiply(inner, known.vectors)

    def _narrow_noise(self, known: Knowledge) -> float:
        """Compute the standard deviation of the noise of the total of the step in the subspace."""
        facts = known.facts._replace(kind=float(Kind.INNER_STEP))
        inner = np.zeros((self.k, len(known.basis)))
        return self.noise(self.release(known._replace(facts=facts, origins=inner)), 1.0) * self.excess


def lift(known: Knowledge, rows: Floats) -> Floats:
    """Compute the rows in all dimensions, float64[r, d], of rows in the subspace, relative to the mean."""
    return multiply(rows, known.vectors) if len(known.basis) else rows


def shrink(vectors: Floats, sd: float | Floats, used: int) -> Floats:
    """Shrink noisy vectors, float64[r, d], towards 0 by the positive part of the rule of James and Stein.

    Parameters
    ----------
    sd : float or float64[r]
        Standard deviation of the noise of a coordinate.
    used : int
        The noise of d - `used` coordinates counts: 2, and the number of dimensions without noise.
    """
    d = vectors.shape[1]
    squares = np.cumsum(vectors * vectors, axis=1)[:, -1]
    noise = max(d - used, 0) * np.broadcast_to(np.square(sd), squares.shape)
    return vectors * np.maximum(0.0, 1.0 - noise / np.where(squares > 0.0, squares, 1.0))[:, None]


def choose_radius(counts: Floats, radius: float, sd: float, count: float) -> float:
    """Choose the smallest radius R_j beyond which there are few points.

    R_j qualifies if the points beyond it are at most 0.5 % of all points, or not more than the noise of their count:
    three standard deviations of a sum over j rings. This noise must be at most a tenth of all points.

    Parameters
    ----------
    counts : float64[41]
        Noisy counts of the rings.
    radius : float
        Outer radius of the first ring.
    sd : float
        Standard deviation of the noise of a count.
    count : float
        Estimate of the number of points.
    """
    beyond = np.cumsum(np.append(0.0, counts[:-1]))
    noise = _RING_DEVIATIONS * sd * np.sqrt(np.arange(RINGS))
    fits = (beyond <= np.maximum(_MAX_OUTSIDE * count, noise)) & (noise <= _MAX_NOISE_SHARE * count)
    fits[0] = True
    return float(radii(radius)[np.flatnonzero(fits)[-1]])
