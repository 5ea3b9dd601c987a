"""A batch in pieces: what looks at all points works on some devices at a time, in little memory."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.devices import Devices, Floats, Integers

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


def label(devices: Devices, centroids: Floats) -> Iterator[Piece]:
    """Label the points of every device by its own centroids, float64[n, k, d], piece by piece."""
    points, weights, offsets = devices.own
    for own, rows in cut(offsets):
        begins = offsets[own.start : own.stop + 1] - rows.start
        given = points[rows], weights[rows], begins, centroids[own]
        yield Piece(own, rows, begins, *devices.kernels.losses(*given))


def cut(offsets: Integers) -> Iterator[tuple[slice, slice]]:
    """Cut devices into runs with few points; yield the devices and the points of each.

    Parameters
    ----------
    offsets : int64[n + 1]
        Points ``offsets[i]:offsets[i + 1]`` belong to device i.
    """
    n = len(offsets) - 1
    reached = offsets + np.arange(n + 1)
    ends = np.unique(np.append(np.searchsorted(reached, np.arange(0, reached[-1], _POINTS)), n))
    for first, last in pairwise(ends):
        yield slice(first, last), slice(offsets[first], offsets[last])


def rescale(points: NDArray[Any], offsets: Integers, shift: Floats, span: Floats) -> NDArray[Any]:
    """Return the points of every device in its own units, by shift and span, float64[n, d]."""
    scaled = np.empty_like(points)
    for own, rows in cut(offsets):
        sizes = np.diff(offsets[own.start : own.stop + 1])
        scaled[rows] = (points[rows] - np.repeat(shift[own], sizes, axis=0)) / np.repeat(span[own], sizes, axis=0)
    return scaled
