"""Encoding of arrays for a page: quantized, concatenated, compressed, and written as text."""

import base64
import gzip
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Floats, Mask

ABSENT = 65_535  # code of an absent coordinate
# Steps of a coordinate: a tenth of a pixel in a figure of 800 pixels.
_LEVELS = 8_191
# Margin on each side, relative to the extent of the points; centroids farther out are not shown.
_MARGIN = 1.0
_TYPES = {"u1": "Uint8Array", "u2": "Uint16Array", "i2": "Int16Array", "i4": "Int32Array", "u4": "Uint32Array",
          "f4": "Float32Array", "f8": "Float64Array"}  # fmt: skip


class Box(NamedTuple):
    """Visible rectangle: smallest and largest coordinates, float64[2] each."""

    low: Floats
    high: Floats

    def place(self, rows: Floats) -> tuple[NDArray[np.uint16], int]:
        """Quantize coordinates to steps from the lower left corner, and count the rows outside the box.

        Parameters
        ----------
        rows : float64[..., 2]
            Rows that are not finite are absent.

        Returns
        -------
        steps : uint16[..., 2]
            `ABSENT` for absent rows and rows outside.
        outside : int
        """
        known: Mask = np.asarray(np.isfinite(rows).all(axis=-1))
        inside: Mask = known & (rows >= self.low).all(axis=-1) & (rows <= self.high).all(axis=-1)
        steps = (np.where(inside[..., None], rows, self.low) - self.low) / (self.high - self.low) * _LEVELS
        return np.where(inside[..., None], np.rint(steps), ABSENT).astype(np.uint16), int((known & ~inside).sum())

    def to_json(self) -> dict[str, Any]:
        """Return the corners, the number of steps between them, and the code of absent coordinates."""
        return {"low": self.low.tolist(), "high": self.high.tolist(), "levels": _LEVELS, "absent": ABSENT}


def bounding_box(points: Floats, centroids: Floats) -> Box:
    """Compute a box that contains all points, and the centroids up to `_MARGIN` times the extent of the points.

    Parameters
    ----------
    points, centroids : float64[*, 2]
        Centroids that are not finite are ignored.
    """
    known = centroids[np.isfinite(centroids).all(axis=1)]
    core = points if len(points) else known
    if not len(core):
        return Box(np.zeros(2), np.ones(2))
    low, high = core.min(axis=0), core.max(axis=0)
    reach = _MARGIN * np.maximum(high - low, 1e-9 * np.maximum(np.abs(high), 1.0))
    if len(known):
        low = np.maximum(np.minimum(low, known.min(axis=0)), low - reach)
        high = np.minimum(np.maximum(high, known.max(axis=0)), high + reach)
    pad = 0.03 * (high - low) + 1e-9 * np.maximum(np.abs(high), 1.0)
    return Box(low - pad, high + pad)


def round_singles(values: Any) -> NDArray[np.float32]:
    """Round to float32 with 16 fraction bits: five digits are exact, and the zero bits compress well."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x40)) & np.uint32(0xFFFFFF80)).view(np.float32)


def to_steps(values: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Compute differences along the first axis, modulo 65,536: centroids that do not move become 0."""
    first = np.zeros_like(values[:1])
    return np.diff(values, axis=0, prepend=first)


def shrink_counts(values: Any) -> NDArray[Any]:
    """Convert counts to uint32 or, if one is too large, to float64, which is exact up to 2^53."""
    counts = np.asarray(values)
    return counts.astype(np.uint32 if counts.max(initial=0) < 2**32 else np.float64)


def pack(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Encode arrays for JSON: a list of names, types and sizes, and one compressed text."""
    listed = []
    parts = []
    for name, array in arrays.items():
        little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
        listed.append([name, _TYPES[array.dtype.str[1:]], little.size])
        parts.append(little.tobytes())
    compressed = gzip.compress(b"".join(parts), 9, mtime=0)
    return {"arrays": listed, "data": base64.b64encode(compressed).decode()}
