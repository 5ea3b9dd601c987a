"""Chunks of a batch: computations on all points, a few devices at a time, to limit memory."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers

# Target size of a chunk, in points plus devices: an order of magnitude, not tuned.
_CHUNK_SIZE = 1_000_000


class Chunk(NamedTuple):
    """Labels and losses of consecutive devices.

    Attributes
    ----------
    span, rows : slice
        Devices of the chunk (positions in the batch), and their points.
    offsets : int64[span + 1]
        First point of each device, counted from the first point of the chunk, and the number of points.
    losses : float64[span]
        Local loss (6) of each device.
    labels : int64[rows]
        Nearest centroid of each point, -1 if all centroids of the device are absent.
    """

    span: slice
    rows: slice
    offsets: Integers
    losses: Floats
    labels: Integers


def label(
    devices: Devices, centroids: Floats, through: Floats | None = None, penalties: Floats | None = None
) -> Iterator[Chunk]:
    """Label the points of every device by its centroids, float64[n, k, d], chunk by chunk.

    With `through`, float64[n, q, d], each point is first assigned to the nearest row of `through`, and gets the label
    of the centroid nearest to that row. The losses are then those of the rows of `through`.

    With `penalties`, float64[n, k] and at least 0, a point gets the label with the least sum of squared distance and
    penalty. The losses are then those of these sums.
    """
    points, weights, offsets = devices.kernel_inputs
    first = centroids if through is None else np.ascontiguousarray(through)
    nearest = None if through is None else _nearest_centroids(devices, first, centroids)
    if penalties is not None:
        first = add_penalties(centroids, penalties)
    for span, rows in iter_chunks(offsets):
        chunk_offsets = offsets[span.start : span.stop + 1] - rows.start
        chunk_points = points[rows] if penalties is None else widen(points[rows])
        losses, labels = devices.kernels.losses(chunk_points, weights[rows], chunk_offsets, first[span])
        if nearest is not None:
            owner = np.repeat(np.arange(span.start, span.stop), np.diff(chunk_offsets))
            labels = np.where(labels < 0, -1, nearest[owner, np.maximum(labels, 0)])
        yield Chunk(span, rows, chunk_offsets, losses, labels)


def widen(points: NDArray[Any]) -> NDArray[Any]:
    """Add a coordinate that is 0 to points, [m, d], for `add_penalties`."""
    return np.column_stack((points, np.zeros(len(points), points.dtype)))


def add_penalties(centroids: Floats, penalties: Floats) -> Floats:
    """Add a coordinate whose square is the penalty to centroids, float64[n, k, d]; absent rows stay +inf.

    The squared distance from a point, whose additional coordinate is 0, then contains the penalty.
    """
    return np.dstack((centroids, np.where(centroids[:, :, 0] < np.inf, np.sqrt(penalties), np.inf)))


def _nearest_centroids(devices: Devices, local: Floats, models: Floats) -> Integers:
    """Find the centroid of each device, float64[n, k, d], nearest to each of its local rows, int64[n, q]."""
    n, rows, d = local.shape
    flat = local.reshape(n * rows, d)
    # Absent rows are +inf, so their distances are NaN; their labels are not used.
    with np.errstate(invalid="ignore"):
        _, labels = devices.kernels.losses(flat, np.ones(len(flat)), np.arange(n + 1) * rows, models)
    return labels.reshape(n, rows)


def iter_chunks(offsets: Integers) -> Iterator[tuple[slice, slice]]:
    """Split the batch into chunks of consecutive devices; yield the devices and the points of each chunk.

    Parameters
    ----------
    offsets : int64[n + 1]
        Points ``offsets[i]:offsets[i + 1]`` belong to device i.
    """
    n = len(offsets) - 1
    if 0 < n <= _CHUNK_SIZE - offsets[-1]:
        yield slice(0, n), slice(offsets[0], offsets[-1])
        return
    # Devices count, too: a batch may have millions of devices with few points.
    sizes = offsets + np.arange(n + 1)
    ends = np.unique(np.append(np.searchsorted(sizes, np.arange(0, sizes[-1], _CHUNK_SIZE)), n))
    # Otherwise held between the chunks.
    del sizes
    for first, last in pairwise(ends):
        yield slice(first, last), slice(offsets[first], offsets[last])


def rescale(points: NDArray[Any], offsets: Integers, shift: Floats, span: Floats) -> NDArray[Any]:
    """Scale the points of every device by its shift and span, float64[n, d] each: ``(point - shift) / span``."""
    scaled = np.empty_like(points)
    for chunk, rows in iter_chunks(offsets):
        sizes = np.diff(offsets[chunk.start : chunk.stop + 1])
        scaled[rows] = (points[rows] - np.repeat(shift[chunk], sizes, axis=0)) / np.repeat(span[chunk], sizes, axis=0)
    return scaled
