"""Nearest centroids of blocks of points, and sums of the points of each cluster.

Distances are summed in feature order, or in eight lanes from 64 features on: the same operations per point as in the
reference, so results are bit-identical. If only labels are needed, single precision determines most of them.
"""

import numpy as np

from p2pkm.kernels.numba.compiling import helper
from p2pkm.kernels.numba.filter import (
    SIXTEEN,
    float32_workspace,
    label_float32,
    limits,
    prepare_float32,
    transpose_float32,
)
from p2pkm.kernels.numba.simd import (
    add_points,
    add_row,
    distances_to_four,
    distances_to_one,
    distances_to_two,
    nearest_rows,
    sum_where,
    transpose_pairs,
    transpose_square,
)

# Points of a block.
LANES = 128
# Numbers of a block: 32 KiB, which stay in the first-level cache.
_CACHED = 4096
# Number of features from which distances are summed in eight lanes; part of the result, as in the reference.
_LONG = 64
# For two features: largest number of centroids with sums in eight lanes; part of the result, as in the reference.
_FEW = 8
# Smallest k (d - 1), and smallest number of points, for which single precision saves time. Above `_FEW`, because for
# two features and few centroids the sums need the block.
_WORTH = 28


@helper()
def _workspace(k, d):
    """Allocate the scratch arrays of `_nearest`: block of coordinates and weights, distances, minima, labels, float32.

    The length of `labels` is the number of points of a block; smaller with many features.
    """
    lanes = min(LANES, max(SIXTEEN, _CACHED // max(d, 1) // SIXTEEN * SIXTEEN))
    exact = np.ones((d + 1, lanes)), np.empty((4, k)), np.empty(lanes), np.empty(lanes, np.int64)
    return *exact, float32_workspace(k, d, lanes)


@helper(inline="always")
def _transpose(points, first, count, block):
    """Write ``points[first : first + count]`` feature by feature to the block."""
    d = points.shape[1]
    in_eights = count - count % 8
    if d == 2:
        if in_eights > 0:
            transpose_pairs(points, first, block, in_eights)
        for r in range(in_eights, count):
            block[0, r], block[1, r] = points[first + r, 0], points[first + r, 1]
        return
    square = d - d % 8
    for r in range(0, in_eights, 8):
        for f in range(0, square, 8):
            transpose_square(points, first + r, f, block, r)
        for f in range(square, d):
            for j in range(8):
                block[f, r + j] = points[first + r + j, f]
    for r in range(in_eights, count):
        for f in range(d):
            block[f, r] = points[first + r, f]


@helper(forceinline=True)
def _nearest(points, first, count, centroids, rows, block, distances, lowest, labels):
    """Find the nearest of the first `rows` centroids for ``points[first : first + count]``, at most one block.

    Writes the smallest squared distances and the labels; inf and -1 if all centroids are absent.
    """
    if points.shape[1] >= _LONG:
        _nearest_in_lanes(points, first, count, centroids, rows, distances, lowest, labels)
        return
    _transpose(points, first, count, block)
    if points.shape[1] == 2:
        _nearest_2d(block, count, centroids, rows, lowest, labels)
        return
    # Up to 7 lanes beyond `count` hold leftovers; their results are not used.
    for r in range(0, count, 8):
        nearest_rows(centroids, rows, block, r, lowest, labels)


@helper(inline="always")
def _prepare_labels(centroids, rows, count, workspace_f32):
    """Prepare single precision for the first `rows` centroids, if useful; return the radius of `prepare_float32`."""
    d = centroids.shape[1]
    return (
        prepare_float32(centroids, rows, workspace_f32)
        if rows * (d - 1) >= _WORTH and d < _LONG and count >= _WORTH
        else np.inf
    )


@helper(forceinline=True)
def _label(points, first, count, centroids, rows, radius, workspace_f32, block, distances, lowest, labels):
    """Compute the labels of `_nearest`; distances only if the radius is inf (float64), see `_prepare_labels`."""
    if radius < np.inf:
        _label_float32(points, first, count, centroids, rows, radius, workspace_f32, block, lowest, labels)
    else:
        _nearest(points, first, count, centroids, rows, block, distances, lowest, labels)


@helper()
def _label_float32(points, first, count, centroids, rows, radius, workspace_f32, block, lowest, labels):
    """Compute the labels in single precision, and uncertain ones in float64, eight points at a time."""
    start, slope = limits(points.shape[1], radius)
    transpose_float32(points, first, count, workspace_f32)
    for r in range(0, count, SIXTEEN):
        uncertain = label_float32(workspace_f32[1], workspace_f32[2], r, start, slope, labels)
        for half in range(r, min(r + SIXTEEN, count), 8):
            last = min(half + 8, count)
            if uncertain >> (half - r) & ((1 << (last - half)) - 1):
                for j in range(half, last):
                    for f in range(points.shape[1]):
                        block[f, j] = points[first + j, f]
                nearest_rows(centroids, rows, block, half, lowest, labels)


@helper()
def _label_distances(points, centroids, labels, distances):
    """Compute the distances of `_nearest`, given labels from single precision."""
    for r in range(points.shape[0]):
        c, total = labels[r], 0.0
        for f in range(points.shape[1]):
            total += (points[r, f] - centroids[c, f]) * (points[r, f] - centroids[c, f])
        distances[r] = total if total < np.inf else np.inf


@helper()
def _nearest_in_lanes(points, first, count, centroids, rows, distances, lowest, labels):
    """Find the nearest centroids with many features; for the order of sums see `simd._make_distances`."""
    last = first + count - 1
    for r in range(0, count, 4):
        c = 0
        while c + 4 <= rows:
            distances_to_four(points, first + r, last, centroids, c, distances)
            c += 4
        if c + 2 <= rows:
            distances_to_two(points, first + r, last, centroids, c, distances)
            c += 2
        if c < rows:
            distances_to_one(points, first + r, last, centroids, c, distances)
        for j in range(min(4, count - r)):
            low, nearest = np.inf, -1
            for c in range(rows):
                if distances[j, c] < low:
                    low, nearest = distances[j, c], c
            lowest[r + j], labels[r + j] = low, nearest


@helper(inline="always")
def _nearest_2d(block, count, centroids, rows, lowest, labels):
    """Find the nearest centroids with two features, four centroids at a time, without a table of distances."""
    for r in range(count):
        lowest[r], labels[r] = np.inf, -1
    in_fours = rows - rows % 4
    for c in range(0, in_fours, 4):
        u0, u1, u2, u3 = centroids[c, 0], centroids[c + 1, 0], centroids[c + 2, 0], centroids[c + 3, 0]
        v0, v1, v2, v3 = centroids[c, 1], centroids[c + 1, 1], centroids[c + 2, 1], centroids[c + 3, 1]
        for r in range(count):
            x, y, low, nearest = block[0, r], block[1, r], lowest[r], labels[r]
            distance = (x - u0) * (x - u0) + (y - v0) * (y - v0)
            nearer = distance < low
            low, nearest = distance if nearer else low, c if nearer else nearest
            distance = (x - u1) * (x - u1) + (y - v1) * (y - v1)
            nearer = distance < low
            low, nearest = distance if nearer else low, c + 1 if nearer else nearest
            distance = (x - u2) * (x - u2) + (y - v2) * (y - v2)
            nearer = distance < low
            low, nearest = distance if nearer else low, c + 2 if nearer else nearest
            distance = (x - u3) * (x - u3) + (y - v3) * (y - v3)
            nearer = distance < low
            lowest[r], labels[r] = distance if nearer else low, c + 3 if nearer else nearest
    for c in range(in_fours, rows):
        u, v = centroids[c, 0], centroids[c, 1]
        for r in range(count):
            distance = (block[0, r] - u) * (block[0, r] - u) + (block[1, r] - v) * (block[1, r] - v)
            nearer = distance < lowest[r]
            lowest[r] = distance if nearer else lowest[r]
            labels[r] = c if nearer else labels[r]


@helper(inline="always")
def _lowest_2d(block, count, centroids, rows, lowest):
    """Compute the distances to the nearest of the first `rows` centroids, two features, for the points of a block."""
    for r in range(count):
        lowest[r] = np.inf
    in_fours = rows - rows % 4
    for c in range(0, in_fours, 4):
        u0, u1, u2, u3 = centroids[c, 0], centroids[c + 1, 0], centroids[c + 2, 0], centroids[c + 3, 0]
        v0, v1, v2, v3 = centroids[c, 1], centroids[c + 1, 1], centroids[c + 2, 1], centroids[c + 3, 1]
        for r in range(count):
            x, y, low = block[0, r], block[1, r], lowest[r]
            distance = (x - u0) * (x - u0) + (y - v0) * (y - v0)
            low = distance if distance < low else low
            distance = (x - u1) * (x - u1) + (y - v1) * (y - v1)
            low = distance if distance < low else low
            distance = (x - u2) * (x - u2) + (y - v2) * (y - v2)
            low = distance if distance < low else low
            distance = (x - u3) * (x - u3) + (y - v3) * (y - v3)
            lowest[r] = distance if distance < low else low
    for c in range(in_fours, rows):
        for r in range(count):
            x, y = block[0, r] - centroids[c, 0], block[1, r] - centroids[c, 1]
            distance = x * x + y * y
            lowest[r] = distance if distance < lowest[r] else lowest[r]


@helper(forceinline=True)
def _add(points, mass, first, count, rows, sums, counts, block, labels):
    """Add the points of the block of the last call of `_nearest` to sums and counts of their centroids.

    mass: float64[m], or empty if all weights are 1.
    """
    if points.shape[1] == 2 and rows <= _FEW:
        _add_2d(mass, first, count, rows, sums, counts, block, labels)
        return
    if mass.shape[0] == 0:
        add_points(points, first, count, labels, sums, counts)
        return
    for r in range(count):
        c = labels[r]
        if c >= 0:
            counts[c] += mass[first + r]
            add_row(sums, c, points, first + r, mass[first + r])


@helper(inline="always")
def _add_2d(mass, first, count, rows, sums, counts, block, labels):
    """Add the points of the block, two features and few centroids: eight partial sums, see `simd.sum_where`."""
    padded = count + -count % 8
    for r in range(count, padded):
        labels[r] = -1
    if mass.shape[0] > 0:
        for r in range(count):
            weight = mass[first + r]
            block[0, r], block[1, r], block[2, r] = weight * block[0, r], weight * block[1, r], weight
    for first_label in range(0, rows, 4):
        partial = sum_where(labels, first_label, block, padded)
        for j in range(min(4, rows - first_label)):
            c = first_label + j
            sums[c, 0] += partial[3 * j]
            sums[c, 1] += partial[3 * j + 1]
            counts[c] += partial[3 * j + 2]
