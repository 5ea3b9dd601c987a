"""Rows and centroids in few bits: coordinates in a box that all agree on, weights in bytes, SSE in half precision."""

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.messages import Tables
from p2pkm.core.wire_format import fixed_bits, quantize_in_box, to_bytes
from p2pkm.methods.building_blocks.weighted_rows import in_points

ROW_BITS, CENTROID_BITS = 10, 12  # of a coordinate
_SSE_BITS, _WIDTH_BITS = 16, 2  # of an SSE; in front of a table, for the width of its weights
_BYTE, _WORD = 255.0, 65535.0
_MOST = 65504.0  # of half precision


def pack_rows(tables: Tables, boxes: Floats, unit: float) -> Tables:
    """Return tables of rows (origin, mean, weight, SSE) as they are read when they have been encoded.

    Coordinates are the nearest of 2^10 in the box. Weights, in units of a point's mean weight, stay as they are if they
    are whole numbers up to 65,535, else they are of single precision. Instead of an SSE travels the root of SSE over
    weight, a number of half precision in units of the diagonal, at most 65,504 of them. Rows that have been packed stay
    the same.

    Parameters
    ----------
    boxes : float64[t, 2 d]
        Of each table: lower ends, and minus the upper ends.
    unit : float
        Mean weight of a point.
    """
    flat, d = tables.flat(), boxes.shape[1] // 2
    places = np.cumsum(tables.rows) - tables.rows
    weights = in_points(flat[:, 1 + d], unit)
    wide = np.repeat(_width(weights, tables.rows) == 4, tables.rows)
    weights[wide] = weights[wide].astype(np.float32)
    spread = np.sqrt(np.maximum(flat[:, 2 + d], 0.0) / np.where(flat[:, 1 + d] > 0.0, flat[:, 1 + d], 1.0))
    for box in np.unique(boxes, axis=0):
        own = np.repeat((boxes == box).all(axis=1), tables.rows)
        if own.any():
            flat[own, 1 : 1 + d] = quantize_in_box(flat[own, 1 : 1 + d], box[:d], -box[d:], ROW_BITS)[1]
            diagonal = _length(-box[d:] - box[:d])
            spread[own] = np.minimum(spread[own] / diagonal, _MOST).astype(np.float16).astype(np.float64) * diagonal
    flat[:, 1 + d] = weights * unit
    flat[:, 2 + d] = flat[:, 1 + d] * spread**2
    return Tables(flat, places, tables.rows)


def _length(sides: Floats) -> float:
    """Return the diagonal of a box, above 0."""
    longest = float(sides.max(initial=0.0))
    return longest * float(np.sqrt(np.cumsum((sides / longest) ** 2)[-1])) if longest > 0.0 else 1.0


def pack_centroids(centroids: Floats, box: Floats) -> Floats:
    """Return centroids, float64[k, d], as the nearest of 2^12 coordinates in the box; absent ones stay so."""
    d, real, packed = len(box) // 2, np.isfinite(centroids[:, 0]), centroids.copy()
    if real.any():
        packed[real] = quantize_in_box(centroids[real], box[:d], -box[d:], CENTROID_BITS)[1]
    return packed


def count_row_bytes(tables: Tables, d: int, unit: float) -> Integers:
    """Return the bytes of tables of rows (origin, mean, weight, SSE) on the wire, without the origin."""
    width = _width(in_points(tables.flat()[:, 1 + d], unit), tables.rows)
    return to_bytes(_WIDTH_BITS + fixed_bits(tables.rows, [ROW_BITS] * d + [_SSE_BITS]) + 8 * width * tables.rows)


def count_centroid_bytes(rows: Integers, d: int) -> Integers:
    """Return the bytes of tables of so many centroids on the wire."""
    return to_bytes(fixed_bits(rows, [CENTROID_BITS] * d))


def _width(weights: Floats, rows: Integers) -> Integers:
    """Return in how many bytes the weights of each table fit: 1 or 2 for whole numbers, else 4."""
    needed = np.where(weights != np.rint(weights), 4, np.where(weights <= _BYTE, 1, np.where(weights <= _WORD, 2, 4)))
    found = np.ones(len(rows), np.int64)
    np.maximum.at(found, np.repeat(np.arange(len(rows)), rows), needed)
    return found
