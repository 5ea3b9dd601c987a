"""The nearest of several centroids for a block of points at a time, and the sums of the points that chose each one.

A distance is summed in feature order, or from 64 features on in eight lanes; point by point the same operations as in
the plain form: the bits are the same. Where labels alone are wanted, single precision tells most of them.
"""

import numpy as np

from p2pkm.kernels.numba.compiling import helper
from p2pkm.kernels.numba.filter import SIXTEEN, guess, limits, prepare, single_room, turn_singles
from p2pkm.kernels.numba.simd import (
    add_points,
    add_row,
    nearest_rows,
    reach_four,
    reach_one,
    reach_two,
    sum_where,
    turn_pairs,
    turn_square,
)

LANES = 128  # points of a block
_CACHED = 4096  # numbers of a block that are to stay in the processor's first cache
_LONG = 64  # features from which on a distance is added up in lanes
_FEW = 8  # centroids in the plane whose sums go side by side
_WORTH = 28  # centroids times features less one, and points, from which on single precision pays; more than _FEW


@helper()
def _room(k, d):
    """Return what `_nearest` works in: coordinates and weights, distances, the least of them, labels.

    Last comes what single precision works in. As many points are looked at together as there are labels: fewer, if they
    have many features.
    """
    lanes = min(LANES, max(SIXTEEN, _CACHED // max(d, 1) // SIXTEEN * SIXTEEN))
    exact = np.ones((d + 1, lanes)), np.empty((4, k)), np.empty(lanes), np.empty(lanes, np.int64)
    return *exact, single_room(k, d, lanes)


@helper(inline="always")
def _turn(points, first, count, block):
    """Write the coordinates of points[first : first + count] feature by feature into the block."""
    d = points.shape[1]
    whole = count - count % 8
    if d == 2:
        if whole > 0:
            turn_pairs(points, first, block, whole)
        for r in range(whole, count):
            block[0, r], block[1, r] = points[first + r, 0], points[first + r, 1]
        return
    square = d - d % 8
    for r in range(0, whole, 8):
        for f in range(0, square, 8):
            turn_square(points, first + r, f, block, r)
        for f in range(square, d):
            for j in range(8):
                block[f, r + j] = points[first + r + j, f]
    for r in range(whole, count):
        for f in range(d):
            block[f, r] = points[first + r, f]


@helper(forceinline=True)
def _nearest(points, first, count, centroids, rows, block, distances, lowest, labels):
    """Find the nearest of the first `rows` centroids for points[first : first + count], count at most a block.

    The answer: least distances (inf) and labels (-1 where every centroid is at infinity).
    """
    if points.shape[1] >= _LONG:
        _nearest_along(points, first, count, centroids, rows, distances, lowest, labels)
        return
    _turn(points, first, count, block)
    if points.shape[1] == 2:
        _nearest_in_the_plane(block, count, centroids, rows, lowest, labels)
        return
    for r in range(0, count, 8):  # up to 7 lanes of left-overs are never looked at
        nearest_rows(centroids, rows, block, r, lowest, labels)


@helper(inline="always")
def _aim(centroids, rows, count, singles):
    """Get ready to label so many points by the first `rows` centroids; return their radius, see `filter.prepare`."""
    d = centroids.shape[1]
    return prepare(centroids, rows, singles) if rows * (d - 1) >= _WORTH and d < _LONG and count >= _WORTH else np.inf


@helper(forceinline=True)
def _label(points, first, count, centroids, rows, radius, singles, block, distances, lowest, labels):
    """Find the labels that `_nearest` finds, and the distances only if single precision is not used; see `_aim`."""
    if radius < np.inf:
        _label_in_singles(points, first, count, centroids, rows, radius, singles, block, lowest, labels)
    else:
        _nearest(points, first, count, centroids, rows, block, distances, lowest, labels)


@helper()
def _label_in_singles(points, first, count, centroids, rows, radius, singles, block, lowest, labels):
    """Do so with single precision; what it is unsure of is looked at again, eight points at a time."""
    start, slope = limits(points.shape[1], radius)
    turn_singles(points, first, count, singles)
    for r in range(0, count, SIXTEEN):
        unsure = guess(singles[1], singles[2], r, start, slope, labels)
        for half in range(r, min(r + SIXTEEN, count), 8):
            last = min(half + 8, count)
            if unsure >> (half - r) & ((1 << (last - half)) - 1):
                for j in range(half, last):
                    for f in range(points.shape[1]):
                        block[f, j] = points[first + j, f]
                nearest_rows(centroids, rows, block, half, lowest, labels)


@helper()
def _gaps(points, centroids, labels, distances):
    """Write the distances that `_nearest` finds, for labels by single precision."""
    for r in range(points.shape[0]):
        c, total = labels[r], 0.0
        for f in range(points.shape[1]):
            total += (points[r, f] - centroids[c, f]) * (points[r, f] - centroids[c, f])
        distances[r] = total if total < np.inf else np.inf


@helper()
def _nearest_along(points, first, count, centroids, rows, distances, lowest, labels):
    """Do the same for many features, eight of them at a time; see `lanes._make_reach` for the order of the sums."""
    last = first + count - 1
    for r in range(0, count, 4):
        c = 0
        while c + 4 <= rows:
            reach_four(points, first + r, last, centroids, c, distances)
            c += 4
        if c + 2 <= rows:
            reach_two(points, first + r, last, centroids, c, distances)
            c += 2
        if c < rows:
            reach_one(points, first + r, last, centroids, c, distances)
        for j in range(min(4, count - r)):
            low, near = np.inf, -1
            for c in range(rows):
                if distances[j, c] < low:
                    low, near = distances[j, c], c
            lowest[r + j], labels[r + j] = low, near


@helper(inline="always")
def _nearest_in_the_plane(block, count, centroids, rows, lowest, labels):
    """Do the same for two features: four centroids at a time, without a table of distances."""
    for r in range(count):
        lowest[r], labels[r] = np.inf, -1
    whole = rows - rows % 4
    for c in range(0, whole, 4):
        u0, u1, u2, u3 = centroids[c, 0], centroids[c + 1, 0], centroids[c + 2, 0], centroids[c + 3, 0]
        v0, v1, v2, v3 = centroids[c, 1], centroids[c + 1, 1], centroids[c + 2, 1], centroids[c + 3, 1]
        for r in range(count):
            x, y, low, near = block[0, r], block[1, r], lowest[r], labels[r]
            distance = (x - u0) * (x - u0) + (y - v0) * (y - v0)
            nearer = distance < low
            low, near = distance if nearer else low, c if nearer else near
            distance = (x - u1) * (x - u1) + (y - v1) * (y - v1)
            nearer = distance < low
            low, near = distance if nearer else low, c + 1 if nearer else near
            distance = (x - u2) * (x - u2) + (y - v2) * (y - v2)
            nearer = distance < low
            low, near = distance if nearer else low, c + 2 if nearer else near
            distance = (x - u3) * (x - u3) + (y - v3) * (y - v3)
            nearer = distance < low
            lowest[r], labels[r] = distance if nearer else low, c + 3 if nearer else near
    for c in range(whole, rows):
        u, v = centroids[c, 0], centroids[c, 1]
        for r in range(count):
            distance = (block[0, r] - u) * (block[0, r] - u) + (block[1, r] - v) * (block[1, r] - v)
            nearer = distance < lowest[r]
            lowest[r] = distance if nearer else lowest[r]
            labels[r] = c if nearer else labels[r]


@helper(inline="always")
def _least_in_the_plane(block, count, centroids, rows, lowest):
    """Find only how far the nearest of the first `rows` centroids is, for the points that stand in a block."""
    for r in range(count):
        lowest[r] = np.inf
    whole = rows - rows % 4
    for c in range(0, whole, 4):
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
    for c in range(whole, rows):
        for r in range(count):
            x, y = block[0, r] - centroids[c, 0], block[1, r] - centroids[c, 1]
            distance = x * x + y * y
            lowest[r] = distance if distance < lowest[r] else lowest[r]


@helper(forceinline=True)
def _add(points, mass, first, count, rows, sums, counts, block, labels):
    """Add each point of the block that `_nearest` has just looked at to the sum and the count of its centroid.

    mass: float64[m], or empty if every point weighs 1.
    """
    if points.shape[1] == 2 and rows <= _FEW:
        _add_in_the_plane(mass, first, count, rows, sums, counts, block, labels)
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
def _add_in_the_plane(mass, first, count, rows, sums, counts, block, labels):
    """Do the same for two features and few centroids: eight sums side by side, see `lanes.sum_where`."""
    padded = count + -count % 8
    for r in range(count, padded):
        labels[r] = -1
    if mass.shape[0] > 0:
        for r in range(count):
            weight = mass[first + r]
            block[0, r], block[1, r], block[2, r] = weight * block[0, r], weight * block[1, r], weight
    for first_label in range(0, rows, 4):
        found = sum_where(labels, first_label, block, padded)
        for j in range(min(4, rows - first_label)):
            c = first_label + j
            sums[c, 0] += found[3 * j]
            sums[c, 1] += found[3 * j + 1]
            counts[c] += found[3 * j + 2]
