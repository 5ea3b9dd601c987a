"""Sums of bounded sensitivity for private k-means, and the centroids computed from their noisy totals.

Points are relative to a center and are clipped to a ball around it. A table has one row for each of r positions w_c. A
point x contributes to the row of the nearest position only, with each number rounded to integer units::

    (clip(x - w_c, R), a)

Adding or removing a point changes the sums by at most ``sqrt(R^2 + a^2)``, apart from rounding, for any number of rows.
Replacing one point by another changes them by at most ``max(sqrt(2) sqrt(R^2 + a^2), 2 R)``: in two rows, or in one. If
a mean is expected to move by m, its noise is ``(g - m h / a) / n``, with noise g of a coordinate and h of the count.
This is least at ``a^2 = R m / sqrt(d)``.
"""

import math
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Kernels, Search, Stream, cluster
from p2pkm.core.chunks import iter_chunks
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.secure_sums import Grain, grain_of, standard_normals

# Number of rings; each radius is 2^(-1/4) of the previous one, so 41 rings cover a factor of 1024.
RINGS = 41
# Cells of the ball per cluster, and random points per cell by whose k-means the cells are placed.
_CELLS_PER_CLUSTER = 6
_POINTS_PER_CELL = 100
# Largest number of Lloyd steps of this k-means, and seedings of the k-means of the cells.
_LIMIT = 30
_STARTS = 20
# Expected movement of a centroid in a Lloyd step, as a share of the clipping radius.
_EXPECTED_MOVE = 0.3
# Clipping radius of a Lloyd step, in radii of one of k balls that together have the volume of the ball.
_STEP_RADIUS = 0.6
# Choice of the radius: share of the points that may lie outside, standard deviations that count as noise, and share of
# all points that this noise may be.
_MAX_OUTSIDE = 0.005
_NOISE_DEVIATIONS = 3.0
_MAX_NOISE_SHARE = 0.1


class SumLayout(NamedTuple):
    """Layout and sensitivity of a private sum.

    Attributes
    ----------
    rows, width : int
        Shape of the table.
    clip_radius : float
        Largest length of the contribution of a point to the coordinates of a row.
    weight : float
        Contribution of a point to the count of a row, a in the module docstring.
    grain : Grain
        Unit and sensitivity.
    """

    rows: int
    width: int
    clip_radius: float
    weight: float
    grain: Grain

    @property
    def point_units(self) -> float:
        """Contribution of a point to the count, in units."""
        return float(np.rint(self.weight / self.grain.unit))


def ring_layout(relation: str) -> SumLayout:
    """Create the layout of the sum of points in rings."""
    return _create_layout(RINGS, 1, 0.0, 1.0, relation)


def cell_layout(k: int, d: int, size: float, relation: str) -> SumLayout:
    """Create the layout of the sum over the cells of a ball with radius `size`."""
    clip_radius = size * (_CELLS_PER_CLUSTER * k) ** (-1.0 / d)
    return _create_layout(_CELLS_PER_CLUSTER * k, d + 1, clip_radius, clip_radius, relation)


def step_layout(k: int, d: int, size: float, relation: str) -> SumLayout:
    """Create the layout of the sum of a Lloyd step in a ball with radius `size`."""
    clip_radius = min(size, _STEP_RADIUS * size * k ** (-1.0 / d))
    # The weight of least noise for the expected movement, see the module docstring.
    weight = clip_radius * math.sqrt(_EXPECTED_MOVE) / d**0.25
    return _create_layout(k, d + 1, clip_radius, weight, relation)


def _create_layout(rows: int, width: int, clip_radius: float, weight: float, relation: str) -> SumLayout:
    """Create a layout with the sensitivity for adding ("add") or replacing ("exchange") a point."""
    sensitivity = math.hypot(clip_radius, weight)
    if relation == "exchange":
        sensitivity = max(math.sqrt(2.0) * sensitivity, 2.0 * clip_radius)
    return SumLayout(rows, width, clip_radius, weight, grain_of(sensitivity, width))


def radii(radius: float) -> Floats:
    """Compute the outer radii of the rings, float64[41]: each is 2^(-1/4) of the previous one."""
    return np.asarray(radius * 2.0 ** (-0.25 * np.arange(RINGS)), np.float64)


def clip(vectors: Floats, most: float) -> Floats:
    """Shorten vectors, float64[..., d], to at most the length `most`."""
    length = np.sqrt(np.cumsum(vectors * vectors, axis=-1)[..., -1:])
    return vectors * np.minimum(1.0, most / np.where(length > 0.0, length, 1.0))


def count_rings(devices: Devices, center: float, radius: float) -> Integers:
    """Count the local points in each ring, int64[n, 41, 1].

    Ring j lies between the radii j + 1 and j. The first ring includes the points beyond `radius`, the last one all
    points inside.
    """
    n = len(devices)
    counts = np.zeros((n, RINGS), np.int64)
    edges = radii(radius)[:0:-1]
    for chunk, rows in iter_chunks(devices.offsets):
        offsets = devices.stored[rows].astype(np.float64) - center
        length = np.sqrt(np.cumsum(offsets * offsets, axis=1)[:, -1])
        ring = RINGS - 1 - np.searchsorted(edges, length, side="left")
        owner = np.repeat(np.arange(chunk.start, chunk.stop), np.diff(devices.offsets[chunk.start : chunk.stop + 1]))
        np.add.at(counts, (owner, ring), 1)
    return counts[:, :, None]


def choose_radius(counts: Floats, radius: float, sd: float) -> float:
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
    """
    total = float(np.cumsum(counts)[-1])
    beyond = np.cumsum(np.append(0.0, counts[:-1]))
    noise = _NOISE_DEVIATIONS * sd * np.sqrt(np.arange(RINGS))
    fits = (beyond <= np.maximum(_MAX_OUTSIDE * total, noise)) & (noise <= _MAX_NOISE_SHARE * total)
    fits[0] = True
    return float(radii(radius)[np.flatnonzero(fits)[-1]])


def sum_offsets(devices: Devices, ball: tuple[float, float], positions: Floats, layout: SumLayout) -> Integers:
    """Compute the sums of the local points, int64[n, r, d + 1], in units.

    Parameters
    ----------
    ball : (float, float)
        Center and radius.
    positions : float64[n, r, d]
        Relative to the center.
    """
    center, radius = ball
    n, r, d = positions.shape
    sums = np.zeros((n, r, d + 1), np.int64)
    for chunk, rows in iter_chunks(devices.offsets):
        points = np.ascontiguousarray(clip(devices.stored[rows].astype(np.float64) - center, radius))
        firsts = devices.offsets[chunk.start : chunk.stop + 1] - rows.start
        chunk_positions = np.ascontiguousarray(positions[chunk])
        _, labels = devices.kernels.losses(points, np.zeros(0), firsts, chunk_positions)
        count = chunk.stop - chunk.start
        owner = np.repeat(np.arange(count), np.diff(firsts))
        # Each point is rounded before it is added, so its contribution is bounded by the sensitivity.
        units = np.rint(clip(points - chunk_positions[owner, labels], layout.clip_radius) / layout.grain.unit)
        cells = owner * r + labels
        for f, column in enumerate(units.T):
            # Integers below 2^53 add up without rounding in any order.
            sums[chunk, :, f] = np.bincount(cells, column, count * r).reshape(count, r)
        sums[chunk, :, d] = np.bincount(cells, minlength=count * r).reshape(count, r) * int(layout.point_units)
    return sums


def make_cells(kernels: Kernels, key: int, k: int, d: int) -> Floats:
    """Place the centers of 6 k cells of the unit ball, float64[6 k, d], by k-means of 100 random points per cell."""
    rows = _CELLS_PER_CLUSTER * k
    count = rows * _POINTS_PER_CELL
    directions = standard_normals(np.array([key], np.uint64), 0, Stream.CELLS, d * count).reshape(count, d)
    length = np.sqrt(np.cumsum(directions * directions, axis=1)[:, -1:])
    # Powers of Python floats: those of NumPy differ in the last bit with the vectors of the processor.
    shares = uniforms(key, Stream.CELLS, [1], count).ravel().tolist()
    points = directions / length * np.array([share ** (1.0 / d) for share in shares])[:, None]
    search = Search(rows, Stream.CELLS, limit=_LIMIT, greedy=False, first=2)
    return cluster(kernels, key, points, np.ones(len(points)), search)[0]


def read_counts(total: Floats, layout: SumLayout) -> Floats:
    """Compute the noisy number of points of each row, float64[..., r]."""
    return total[..., -1] / (layout.point_units * layout.grain.unit)


def initial_centroids(
    total: Floats, cells: Floats, layout: SumLayout, sd: float, search: tuple[Kernels, int, int]
) -> Floats:
    """Compute k centroids from the noisy sums of cells, float64[k, d].

    Cells whose count exceeds twice the standard deviation of its noise are used, and at least k cells. Their means are
    clustered by weighted k-means, best of 20.

    Parameters
    ----------
    total : float64[r, d + 1]
        Noisy sums.
    cells : float64[r, d]
        Centers of the cells.
    layout : SumLayout
    sd : float
        Standard deviation of the noise of a number of `total`.
    search : (Kernels, int, int)
        Kernels, key of the random stream, and number of clusters.
    """
    kernels, key, k = search
    counts = read_counts(total, layout)
    used = counts > 2.0 * sd / layout.weight
    if np.count_nonzero(used) < k:
        used = np.isin(np.arange(len(counts)), np.argsort(-counts, kind="stable")[:k])
    means = cells + clip(total[:, :-1] / np.maximum(counts, 1.0)[:, None], layout.clip_radius)
    options = Search(k, Stream.CLUSTER, starts=_STARTS)
    return cluster(kernels, key, means[used], np.maximum(counts[used], 1.0), options)[0]


def lloyd_step(positions: Floats, total: Floats, layout: SumLayout, sd: float, size: float) -> Floats:
    """Move positions, float64[..., k, d], within the ball; rows whose count may be noise do not move."""
    counts = read_counts(total, layout)
    moves = clip(total[..., :-1] / np.maximum(counts, 1.0)[..., None], layout.clip_radius)
    return clip(positions + np.where((counts > 2.0 * sd / layout.weight)[..., None], moves, 0.0), size)
