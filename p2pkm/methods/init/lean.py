"""Rows and centroids in few bits: coordinates in a box that all agree on, weights in bytes, SSE in half precision."""

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.messages import Tables
from p2pkm.core.wire_format import fixed_bits, quantize_in_box, to_bytes

ROW_BITS, CENTROID_BITS = 10, 12  # of a coordinate
_SSE_BITS, _WIDTH_BITS = 16, 2  # of an SSE; in front of a table, for the width of its weights
_BYTE, _WORD = 255.0, 65535.0


def pack_rows(tables: Tables, boxes: Floats) -> Tables:
    """Return tables of rows (origin, mean, weight, SSE) as they are read when they have been encoded.

    Coordinates are the nearest of 2^10 in the box, SSE numbers of half precision in units of the squared diagonal.
    Weights stay as they are if they are whole numbers up to 65,535, else they are of single precision. Rows that have
    been packed stay the same.

    Parameters
    ----------
    boxes : float64[t, 2 d]
        Of each table: lower ends, and minus the upper ends.
    """
    flat, d = tables.flat(), boxes.shape[1] // 2
    places = np.cumsum(tables.rows) - tables.rows
    for box in np.unique(boxes, axis=0):
        own = np.repeat((boxes == box).all(axis=1), tables.rows)
        if own.any():
            flat[own, 1 : 1 + d] = quantize_in_box(flat[own, 1 : 1 + d], box[:d], -box[d:], ROW_BITS)[1]
            unit = max(float(np.cumsum((-box[d:] - box[:d]) ** 2)[-1]), np.finfo(np.float64).tiny)
            flat[own, 2 + d] = (flat[own, 2 + d] / unit).astype(np.float16).astype(np.float64) * unit
    wide = np.repeat(_width(flat[:, 1 + d], tables.rows) == 4, tables.rows)
    flat[wide, 1 + d] = flat[wide, 1 + d].astype(np.float32)
    return Tables(flat, places, tables.rows)


def pack_centroids(centroids: Floats, box: Floats) -> Floats:
    """Return centroids, float64[k, d], as the nearest of 2^12 coordinates in the box; absent ones stay so."""
    d, real, packed = len(box) // 2, np.isfinite(centroids[:, 0]), centroids.copy()
    if real.any():
        packed[real] = quantize_in_box(centroids[real], box[:d], -box[d:], CENTROID_BITS)[1]
    return packed


def count_row_bytes(tables: Tables, d: int) -> Integers:
    """Return the bytes of tables of rows (origin, mean, weight, SSE) on the wire, without the origin."""
    width = _width(tables.flat()[:, 1 + d], tables.rows)
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
