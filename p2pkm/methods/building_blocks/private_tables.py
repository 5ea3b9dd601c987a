"""Tables whose sums one point can change only so much, and what noisy sums of them say about clusters.

All points are taken relative to a center and clipped to a ball around it. A table has a row for each of r places w_c,
and a point adds to the row of the place nearest to it alone::

    (clip(x - w_c, reach), a)

each number rounded to whole units before it is added. One point in or out changes the sums by at most
``sqrt(reach^2 + a^2)`` but for the rounding, however many rows there are; that of one point for another by at most
``max(sqrt(2) sqrt(reach^2 + a^2), 2 reach)``: in two rows, or in one. Where a mean that is to move by m has noise
``(g - m h / a) / n`` (g of a coordinate, h of the count), the noise is least at ``a^2 = reach m / sqrt(d)``.
"""

import math
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Kernels, Search, Stream, cluster
from p2pkm.core.chunks import iter_chunks
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.secure_sums import Grain, gaussian, grain_of

RINGS = 41
_CELLS, _EACH = 6, 100  # cells for each cluster; points for each cell that they are found by
_LIMIT, _STARTS = 30, 20  # Lloyd steps on these; seedings of the k-means of the cells
_MOVE = 0.3  # of the reach: how far a centroid is expected to move in a step
_STEP = 0.6  # reach of a step, in units of the radius of one of k equal balls
_OUTSIDE, _SURE, _SHARE = 0.005, 3.0, 0.1  # of the points; standard deviations; of the points that noise may be


class Shape(NamedTuple):
    """What a sum is made of.

    Attributes
    ----------
    rows, width : int
        Of the table.
    reach, weight : float
        By how much a point moves the coordinates of a row at most, and its count.
    grain : Grain
    """

    rows: int
    width: int
    reach: float
    weight: float
    grain: Grain

    @property
    def each(self) -> float:
        """Return what a point counts, in units."""
        return float(np.rint(self.weight / self.grain.unit))


def ring_shape(relation: str) -> Shape:
    """Return the shape of the sum of points in rings."""
    return _shape(RINGS, 1, 0.0, 1.0, relation)


def cell_shape(k: int, d: int, size: float, relation: str) -> Shape:
    """Return the shape of the sum over cells of a ball."""
    reach = size * (_CELLS * k) ** (-1.0 / d)
    return _shape(_CELLS * k, d + 1, reach, reach, relation)


def step_shape(k: int, d: int, size: float, relation: str) -> Shape:
    """Return the shape of the sum of a step."""
    reach = min(size, _STEP * size * k ** (-1.0 / d))
    return _shape(k, d + 1, reach, reach * math.sqrt(_MOVE) / d**0.25, relation)


def _shape(rows: int, width: int, reach: float, weight: float, relation: str) -> Shape:
    sensitivity = math.hypot(reach, weight)
    if relation == "exchange":
        sensitivity = max(math.sqrt(2.0) * sensitivity, 2.0 * reach)
    return Shape(rows, width, reach, weight, grain_of(sensitivity, width))


def radii(radius: float) -> Floats:
    """Return the outer radii of the rings, float64[41]: each 2^(-1/4) of the one before."""
    return np.asarray(radius * 2.0 ** (-0.25 * np.arange(RINGS)), np.float64)


def clip(vectors: Floats, most: float) -> Floats:
    """Return vectors, float64[..., d], none longer than `most`."""
    length = np.sqrt(np.cumsum(vectors * vectors, axis=-1)[..., -1:])
    return vectors * np.minimum(1.0, most / np.where(length > 0.0, length, 1.0))


def count_rings(devices: Devices, center: float, radius: float) -> Integers:
    """Return the own points in each ring, int64[n, 41, 1].

    Ring j lies between the radii j + 1 and j; the first has the points beyond `radius`, too, the last all inside.
    """
    n = len(devices)
    counts = np.zeros((n, RINGS), np.int64)
    edges = radii(radius)[:0:-1]
    for own, rows in iter_chunks(devices.offsets):
        apart = devices.stored[rows].astype(np.float64) - center
        length = np.sqrt(np.cumsum(apart * apart, axis=1)[:, -1])
        ring = RINGS - 1 - np.searchsorted(edges, length, side="left")
        owner = np.repeat(np.arange(own.start, own.stop), np.diff(devices.offsets[own.start : own.stop + 1]))
        np.add.at(counts, (owner, ring), 1)
    return counts[:, :, None]


def choose_size(counts: Floats, radius: float, sd: float) -> float:
    """Return the smallest radius beyond which there are few points, given noisy counts float64[41] and their noise.

    ``R_j`` is taken if the points beyond it are at most 0.5 % of all, or no more than noise may be, three standard
    deviations of a sum over j rings, and these are at most a tenth of all points.
    """
    total = float(np.cumsum(counts)[-1])
    beyond = np.cumsum(np.append(0.0, counts[:-1]))
    doubt = _SURE * sd * np.sqrt(np.arange(RINGS))
    fits = (beyond <= np.maximum(_OUTSIDE * total, doubt)) & (doubt <= _SHARE * total)
    fits[0] = True
    return float(radii(radius)[np.flatnonzero(fits)[-1]])


def sum_offsets(devices: Devices, ball: tuple[float, float], places: Floats, shape: Shape) -> Integers:
    """Return the sums of the own points, int64[n, r, d + 1] in units; ball: center and radius.

    places: float64[n, r, d] from the center.
    """
    center, radius = ball
    n, r, d = places.shape
    sums = np.zeros((n, r, d + 1), np.int64)
    for own, rows in iter_chunks(devices.offsets):
        points = np.ascontiguousarray(clip(devices.stored[rows].astype(np.float64) - center, radius))
        begins = devices.offsets[own.start : own.stop + 1] - rows.start
        some = np.ascontiguousarray(places[own])
        _, labels = devices.kernels.losses(points, np.zeros(0), begins, some)
        owner, count = np.repeat(np.arange(own.stop - own.start), np.diff(begins)), own.stop - own.start
        moved = np.rint(clip(points - some[owner, labels], shape.reach) / shape.grain.unit)
        cells = owner * r + labels
        for f, column in enumerate(moved.T):  # whole numbers below 2^53: no rounding in any order
            sums[own, :, f] = np.bincount(cells, column, count * r).reshape(count, r)
        sums[own, :, d] = np.bincount(cells, minlength=count * r).reshape(count, r) * int(shape.each)
    return sums


def make_cells(kernels: Kernels, key: int, k: int, d: int) -> Floats:
    """Return the centers of 6 k cells of the unit ball, float64[6 k, d]: k-means of uniform points, 100 for each."""
    rows, count = _CELLS * k, _CELLS * k * _EACH
    directions = gaussian(np.array([key], np.uint64), 0, Stream.CELLS, d * count).reshape(count, d)
    length = np.sqrt(np.cumsum(directions * directions, axis=1)[:, -1:])
    shares = uniforms(key, Stream.CELLS, [1], count).ravel().tolist()  # NumPy's power differs with the vectors
    points = directions / length * np.array([share ** (1.0 / d) for share in shares])[:, None]
    search = Search(rows, Stream.CELLS, limit=_LIMIT, greedy=False, first=2)
    return cluster(kernels, key, points, np.ones(len(points)), search)[0]


def read_counts(total: Floats, shape: Shape) -> Floats:
    """Return the noisy number of points of each row, float64[..., r]."""
    return total[..., -1] / (shape.each * shape.grain.unit)


def seed(total: Floats, cells: Floats, shape: Shape, sd: float, find: tuple[Kernels, int, int]) -> Floats:
    """Return k centroids from the noisy sums of cells, float64[k, d].

    Cells with more points than twice the noise of a count are kept, at least k of them; k-means of their means, each
    weighing its noisy count, is the best of 20.

    Parameters
    ----------
    total : float64[r, d + 1]
    cells : float64[r, d]
    sd : float
        Standard deviation of the noise on a number of `total`.
    find : (Kernels, int, int)
        With which kernels and which key to cluster, into how many clusters.
    """
    kernels, key, k = find
    counts = read_counts(total, shape)
    kept = counts > 2.0 * sd / shape.weight
    if np.count_nonzero(kept) < k:
        kept = np.isin(np.arange(len(counts)), np.argsort(-counts, kind="stable")[:k])
    means = cells + clip(total[:, :-1] / np.maximum(counts, 1.0)[:, None], shape.reach)
    search = Search(k, Stream.CLUSTER, starts=_STARTS)
    return cluster(kernels, key, means[kept], np.maximum(counts[kept], 1.0), search)[0]


def step(places: Floats, total: Floats, shape: Shape, sd: float, size: float) -> Floats:
    """Return the places after a step, float64[..., k, d], in the ball: rows move whose count is more than noise."""
    counts = read_counts(total, shape)
    moves = clip(total[..., :-1] / np.maximum(counts, 1.0)[..., None], shape.reach)
    return clip(places + np.where((counts > 2.0 * sd / shape.weight)[..., None], moves, 0.0), size)
