"""The nearest of several centroids for a block of points at a time, so that the processor treats many points at once.

Every distance is summed in feature order, point by point the same operations as in a plain loop: the bits are the same.
"""

import numpy as np
from numba import njit

LANES = 128  # points of a block


@njit(cache=True, nogil=True)
def _room(d):
    """Return what `_nearest` works in: coordinates and four rows of distances, least distances, labels."""
    return np.empty((d + 4, LANES)), np.empty(LANES), np.empty(LANES, np.int64)


@njit(cache=True, nogil=True)
def _keep(distances, c, count, lowest, labels):
    """Take centroid c where it is nearer than all before: the lowest index on ties."""
    for r in range(count):
        nearer = distances[r] < lowest[r]
        lowest[r] = distances[r] if nearer else lowest[r]
        labels[r] = c if nearer else labels[r]


@njit(cache=True, nogil=True)
def _nearest(points, first, count, centroids, rows, room):
    """Find the nearest of the first `rows` centroids for points[first : first + count], count at most LANES.

    The answer is in the room: least distances (inf) and labels (-1 where every centroid is at infinity).
    """
    d = points.shape[1]
    block, lowest, labels = room
    lowest[:count] = np.inf
    labels[:count] = -1
    if d == 2:
        _nearest_in_the_plane(points, first, count, centroids, rows, room)
        return
    for f in range(d):
        for r in range(count):
            block[f, r] = points[first + r, f]
    whole = rows - rows % 4
    for c in range(0, whole, 4):  # four at a time: each coordinate is read once for all of them
        block[d : d + 4, :count] = 0.0
        for f in range(d):
            u0, u1, u2, u3 = centroids[c, f], centroids[c + 1, f], centroids[c + 2, f], centroids[c + 3, f]
            for r in range(count):
                x = block[f, r]
                block[d, r] += (x - u0) * (x - u0)
                block[d + 1, r] += (x - u1) * (x - u1)
                block[d + 2, r] += (x - u2) * (x - u2)
                block[d + 3, r] += (x - u3) * (x - u3)
        for j in range(4):
            _keep(block[d + j], c + j, count, lowest, labels)
    for c in range(whole, rows):
        block[d, :count] = 0.0
        for f in range(d):
            u = centroids[c, f]
            for r in range(count):
                block[d, r] += (block[f, r] - u) * (block[f, r] - u)
        _keep(block[d], c, count, lowest, labels)


@njit(cache=True, nogil=True)
def _nearest_in_the_plane(points, first, count, centroids, rows, room):
    """Do the same for two features, without a row of distances."""
    block, lowest, labels = room
    for r in range(count):
        block[0, r], block[1, r] = points[first + r, 0], points[first + r, 1]
    for c in range(rows):
        u, v = centroids[c, 0], centroids[c, 1]
        for r in range(count):
            distance = (block[0, r] - u) * (block[0, r] - u)
            distance += (block[1, r] - v) * (block[1, r] - v)
            nearer = distance < lowest[r]
            lowest[r] = distance if nearer else lowest[r]
            labels[r] = c if nearer else labels[r]
