"""A batch in pieces: what looks at all points works on some devices at a time, in little memory."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers

_POINTS = 1_000_000  # points and devices of a piece, about


class Piece(NamedTuple):
    """Some devices that follow one another.

    Attributes
    ----------
    own, rows : slice
        The devices and their points.
    offsets : int64[own + 1]
        Where each device's points begin, counted from the first of the piece.
    losses : float64[own]
        Cost (6) of each device.
    labels : int64[rows]
        Centroid that each point chose, -1 where a device has none.
    """

    own: slice
    rows: slice
    offsets: Integers
    losses: Floats
    labels: Integers


def label(devices: Devices, centroids: Floats, through: Floats | None = None) -> Iterator[Piece]:
    """Label the points of every device by its own centroids, float64[n, k, d], piece by piece.

    With `through`, float64[n, q, d], a point takes the centroid nearest to the row of `through` that is nearest to it;
    the losses are then those by the rows of `through`.
    """
    points, weights, offsets = devices.kernel_inputs
    first = centroids if through is None else np.ascontiguousarray(through)
    reached = None if through is None else _reach(devices, first, centroids)
    for own, rows in iter_chunks(offsets):
        begins = offsets[own.start : own.stop + 1] - rows.start
        losses, labels = devices.kernels.losses(points[rows], weights[rows], begins, first[own])
        if reached is not None:
            owner = np.repeat(np.arange(own.start, own.stop), np.diff(begins))
            labels = np.where(labels < 0, -1, reached[owner, np.maximum(labels, 0)])
        yield Piece(own, rows, begins, losses, labels)


def _reach(devices: Devices, local: Floats, models: Floats) -> Integers:
    """Return which row of each device's model, float64[n, k, d], is nearest to each of its local rows, int64[n, q]."""
    n, rows, d = local.shape
    each = local.reshape(n * rows, d)
    with np.errstate(invalid="ignore"):  # absent rows are at infinity
        _, places = devices.kernels.losses(each, np.ones(len(each)), np.arange(n + 1) * rows, models)
    return places.reshape(n, rows)


def iter_chunks(offsets: Integers) -> Iterator[tuple[slice, slice]]:
    """Cut devices into runs with few points; yield the devices and the points of each.

    Parameters
    ----------
    offsets : int64[n + 1]
        Points ``offsets[i]:offsets[i + 1]`` belong to device i.
    """
    n = len(offsets) - 1
    if 0 < n <= _POINTS - offsets[-1]:
        yield slice(0, n), slice(offsets[0], offsets[-1])
        return
    reached = offsets + np.arange(n + 1)
    ends = np.unique(np.append(np.searchsorted(reached, np.arange(0, reached[-1], _POINTS)), n))
    for first, last in pairwise(ends):
        yield slice(first, last), slice(offsets[first], offsets[last])


def rescale(points: NDArray[Any], offsets: Integers, shift: Floats, span: Floats) -> NDArray[Any]:
    """Return the points of every device in its own units, by shift and span, float64[n, d]."""
    scaled = np.empty_like(points)
    for own, rows in iter_chunks(offsets):
        sizes = np.diff(offsets[own.start : own.stop + 1])
        scaled[rows] = (points[rows] - np.repeat(shift[own], sizes, axis=0)) / np.repeat(span[own], sizes, axis=0)
    return scaled
