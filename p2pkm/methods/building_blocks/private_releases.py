"""Releases of private k-means: tables of the local points whose change by one point is bounded.

A release is the noisy total of the tables of all devices. Every table has this form: points are clipped to a ball of
radius R around a public center, and a point x contributes to one row only, with every number rounded to whole units::

    (clip(v, r), a)

with an offset v of x, for example from the nearest centroid, and a constant a, from which the count of the row follows.
Rings have no offsets, only counts. The exception are second moments: the upper triangle of ``z z^T`` with
``z = clip(x - m, r)``, whose entries off the diagonal get noise smaller by sqrt(2), as they occur twice in the matrix.

For the privacy of whole devices, the table of a device is scaled to at most the length of the contribution of a number
of points.

All that a release depends on, `Knowledge`, is computed from the totals of earlier releases (`private_plan`).
"""

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.chunks import iter_chunks
from p2pkm.core.fixed_order import multiply
from p2pkm.methods.building_blocks.secure_sums import Grain, grain_of

# Number of rings; each radius is 2^(-1/4) of the previous one, so 41 rings cover a factor of 1024.
RINGS = 41
# Numbers in a table of second moments at most, 8 MB; points with more features are not projected.
MOST_MOMENTS = 1 << 20
# Clipping radius of second moments, divided by sqrt(d), in units of a coordinate, at least: rounding enlarges the
# sensitivity by at most 0.1 %.
_FINEST_COORDINATE = 1024
# Tables are scaled to this share of their limit: more than the rounding error of a sum of 2^32 squares.
_SAFE_SHARE = 1.0 - 2.0**-20


class Kind(IntEnum):
    """Kind of a release, in the order of a run."""

    MEAN = 0
    RINGS = 1
    MOMENTS = 2
    INNER_RINGS = 3
    CELLS = 4
    INNER_STEP = 5
    STEP = 6
    END = 7


class Facts(NamedTuple):
    """Numbers that all devices know about the next release.

    Attributes
    ----------
    kind, number : float
        Kind of the next release, and its number among the releases of this kind, from 0.
    size : float
        Radius R1 of the ball around the mean that contains the centroids.
    reach : float
        Radius that half of the points exceed; clipping radius of second moments and of steps.
    points : float
        Estimate of their number.
    inner : float
        Radius of the ball that contains the projected points; without projection R1.
    cell : float
        Clipping radius in the cells.
    steps : float
        Number of steps in all dimensions.
    """

    kind: float = float(Kind.MEAN)
    number: float = 0.0
    size: float = 0.0
    reach: float = 0.0
    points: float = 0.0
    inner: float = 0.0
    cell: float = 0.0
    steps: float = 1.0


class Knowledge(NamedTuple):
    """Everything that the releases so far determine; equal at all devices before each release.

    Attributes
    ----------
    facts : Facts
    mean : float64[d]
        Estimate m of the mean of the points, relative to the public center.
    basis : float64[q, d + 1]
        Orthonormal rows that span the subspace of the projection, each with the mean square of the points along it.
        Without rows points are not projected.
    origins : float64[r, w]
        Cells or centroids of the next release, relative to m; in the subspace (w = q) or in all dimensions (w = d).
    """

    facts: Facts
    mean: Floats
    basis: Floats
    origins: Floats

    @property
    def vectors(self) -> Floats:
        """Rows that span the subspace, float64[q, d]."""
        return self.basis[:, :-1]


class Release(NamedTuple):
    """Shape and sensitivity of the table of a release.

    Attributes
    ----------
    kind : Kind
    rows, width : int
        Shape of the table.
    clip_radius : float
        Largest length of an offset.
    weight : float
        Contribution of a point to the count of a row, a in the module docstring.
    grain : Grain
        Unit and sensitivity.
    limit : float
        Largest length of the table of a device; +inf without a limit.
    """

    kind: Kind
    rows: int
    width: int
    clip_radius: float
    weight: float
    grain: Grain
    limit: float = math.inf

    @property
    def point_units(self) -> float:
        """Contribution of a point to the count, in units."""
        return float(np.rint(self.weight / self.grain.unit))

    def counts(self, total: Floats) -> Floats:
        """Compute the noisy number of points of each row, float64[r], from a total, float64[r, w]."""
        return total[:, -1] / (self.point_units * self.grain.unit)


def row_release(kind: Kind, shape: tuple[int, int], clip_radius: float, weight: float, relation: str) -> Release:
    """Create a release with rows of offsets and counts.

    One point more or less ("add") changes it by ``D = sqrt(r^2 + a^2)``. One point for another ("replace") changes two
    rows, by ``sqrt(2) D``, or one row, by 2 r.
    """
    sensitivity = math.hypot(clip_radius, weight)
    if relation == "replace":
        # The mean has one row.
        two_rows = math.sqrt(2.0) * sensitivity if shape[0] > 1 else 0.0
        sensitivity = max(two_rows, 2.0 * clip_radius)
    return Release(kind, *shape, clip_radius, weight, grain_of(sensitivity, shape[1]))


def limit_devices(release: Release, points: int) -> Release:
    """Limit the table of a device to the length of `points` points; then a whole device changes the total by that."""
    limit = points * release.grain.sensitivity
    return release._replace(limit=limit, grain=release.grain._replace(sensitivity=limit))


def moment_release(d: int, clip_radius: float, relation: str) -> Release:
    """Create the release of second moments.

    A point changes the matrix by ``|z|^2 <= (r + sqrt(d) u / 2)^2`` in the Frobenius norm, with the unit u of a
    coordinate. One point for another changes it by at most sqrt(2) times as much: the inner product of ``z z^T`` and
    ``w w^T`` is ``(z . w)^2``, not negative.
    """
    coordinate = 2.0 ** math.floor(math.log2(clip_radius / (_FINEST_COORDINATE * math.sqrt(d))))
    largest = (clip_radius + math.sqrt(d) * coordinate / 2.0) ** 2
    sensitivity = largest * (math.sqrt(2.0) if relation == "replace" else 1.0)
    grain = Grain(coordinate * coordinate, sensitivity)
    return Release(Kind.MOMENTS, 1, d * (d + 1) // 2, clip_radius, 0.0, grain)


def noise_scale(release: Release) -> Floats | float:
    """Compute the standard deviation of the noise of each number of a table, relative to that of the release.

    Entries of second moments off the diagonal have 1 / sqrt(2), because they occur twice in the matrix.
    """
    if release.kind != Kind.MOMENTS:
        return 1.0
    row, column = np.triu_indices(_dimension(release.width))
    return np.where(row == column, 1.0, math.sqrt(0.5))


def _dimension(width: int) -> int:
    """Compute the number of features from the number of second moments."""
    return (math.isqrt(8 * width + 1) - 1) // 2


def as_matrix(moments: Floats) -> Floats:
    """Create the symmetric matrix of an upper triangle, float64[d (d + 1) / 2]."""
    d = _dimension(len(moments))
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = moments
    return np.where(np.tri(d, dtype=np.bool_), matrix.T, matrix)


def radii(radius: float) -> Floats:
    """Compute the outer radii of the rings, float64[41]: each is 2^(-1/4) of the previous one."""
    return np.asarray(radius * 2.0 ** (-0.25 * np.arange(RINGS)), np.float64)


def lengths(vectors: Floats) -> Floats:
    """Compute the lengths of vectors, float64[..., d], with sums in a fixed order."""
    return np.sqrt(np.cumsum(vectors * vectors, axis=-1)[..., -1])


def clip(vectors: Floats, most: float) -> Floats:
    """Shorten vectors, float64[..., d], to at most the length `most`."""
    length = lengths(vectors)[..., None]
    return vectors * np.minimum(1.0, most / np.where(length > 0.0, length, 1.0))


def local_table(devices: Devices, ball: tuple[float, float], known: Knowledge, release: Release) -> Integers:
    """Compute the tables of the local points, int64[n, r, w], in units.

    Parameters
    ----------
    ball : (float, float)
        Center and radius, public.
    """
    center, radius = ball
    table = np.zeros((len(devices), release.rows, release.width), np.int64)
    for chunk, rows in iter_chunks(devices.offsets):
        points = clip(devices.stored[rows].astype(np.float64) - center, radius) - known.mean
        firsts = devices.offsets[chunk.start : chunk.stop + 1] - rows.start
        if release.kind == Kind.MOMENTS:
            table[chunk, 0] = _second_moments(points, firsts, release)
            continue
        offsets, labels = _contributions(devices, points, known, release)
        cells = np.repeat(np.arange(len(firsts) - 1), np.diff(firsts)) * release.rows + labels
        shape = table[chunk].shape[:2]
        # Each point is rounded before it is added, so its contribution is bounded by the sensitivity.
        for f, column in enumerate(np.rint(offsets / release.grain.unit).T):
            # Integers below 2^53 add up without rounding in any order.
            table[chunk, :, f] = np.bincount(cells, column, shape[0] * shape[1]).reshape(shape)
        counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
        table[chunk, :, -1] = counts * int(release.point_units)
    return table if math.isinf(release.limit) else _limit_lengths(table, release)


def _limit_lengths(table: Integers, release: Release) -> Integers:
    """Scale the tables that are longer than the limit, in the norm of the noise; rounding towards 0 keeps it."""
    scale = noise_scale(release) / release.grain.unit
    for local in table:
        length = float(lengths((local / scale).ravel()))
        if length > _SAFE_SHARE * release.limit:
            local[:] = np.trunc(local * (_SAFE_SHARE * release.limit / length))
    return table


def _contributions(devices: Devices, points: Floats, known: Knowledge, release: Release) -> tuple[Floats, Integers]:
    """Compute the offset of each point, float64[m, w - 1], and its row, int64[m]."""
    kind = release.kind
    if kind == Kind.MEAN:
        return clip(points, release.clip_radius), np.zeros(len(points), np.int64)
    if kind in (Kind.INNER_RINGS, Kind.CELLS, Kind.INNER_STEP) and len(known.basis):
        points = multiply(points, known.vectors.T)
    if kind in (Kind.RINGS, Kind.INNER_RINGS):
        # The first ring includes the points beyond its radius, the last one all points inside.
        edges = radii(known.facts.size)[:0:-1]
        ring = RINGS - 1 - np.searchsorted(edges, lengths(points), side="left")
        return np.zeros((len(points), 0)), ring
    points, origins = np.ascontiguousarray(points), np.ascontiguousarray(known.origins)
    _, labels = devices.kernels.losses(points, np.zeros(0), np.array([0, len(points)]), origins[None])
    return clip(points - origins[labels], release.clip_radius), labels


def _second_moments(points: Floats, firsts: Integers, release: Release) -> Integers:
    """Compute the second moments of the points of each device, int64[n, d (d + 1) / 2], in squared units."""
    # Products of integers add up to integers below 2^53, exactly in any order, so a library may compute them.
    integers = np.rint(clip(points, release.clip_radius) / math.sqrt(release.grain.unit))
    upper = np.triu_indices(points.shape[1])
    moments = np.zeros((len(firsts) - 1, release.width), np.int64)
    for i in range(len(moments)):
        local = integers[firsts[i] : firsts[i + 1]]
        moments[i] = (local.T @ local)[upper].astype(np.int64)
    return moments


def encode(known: Knowledge, kind: Kind) -> Floats:
    """Create the command that the root sends after a release of this kind: the facts, and the part that changed."""
    changed = {Kind.MEAN: known.mean, Kind.MOMENTS: known.basis}.get(kind, known.origins)
    return np.concatenate((np.array(known.facts), changed.ravel()))


def decode(known: Knowledge, command: Floats) -> Knowledge:
    """Apply a command to the knowledge before it.

    Raises
    ------
    ValueError or OverflowError
        If the command does not have whole rows, or names no kind of release.
    """
    kind, d = Kind(int(known.facts.kind)), len(known.mean)
    if len(command) < len(Facts._fields):
        raise ValueError(f"command has {len(command)} numbers; expected at least {len(Facts._fields)}")
    facts, values = Facts(*command[: len(Facts._fields)].tolist()), command[len(Facts._fields) :]
    # Whole numbers, so that the next release has the same kind at all devices.
    facts = facts._replace(
        kind=float(Kind(round(facts.kind))), number=float(round(facts.number)), steps=float(round(facts.steps))
    )
    known = known._replace(facts=facts)
    if kind == Kind.MEAN:
        return known._replace(mean=values)
    if kind == Kind.MOMENTS:
        return known._replace(basis=values.reshape(-1, d + 1))
    is_inner = facts.kind in (Kind.CELLS, Kind.INNER_STEP) and len(known.basis)
    return known._replace(origins=values.reshape(-1, len(known.basis) if is_inner else d))
