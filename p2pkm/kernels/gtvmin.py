"""Compiled update of GTVMin k-means (Jung 2025, Algorithm 1, corrected) and the variation (4) of a link."""

import numpy as np
from numba import njit

from p2pkm.kernels.nearest import LANES, _nearest, _room


@njit(cache=True, nogil=True)
def _points(points, weights, centroids, sums, counts, room):
    """E1 and the first sums of line 21: add every own point to its nearest real centroid, lowest index on ties."""
    for first in range(0, points.shape[0], LANES):
        count = min(LANES, points.shape[0] - first)
        _nearest(points, first, count, centroids, centroids.shape[0], room)
        for r in range(count):
            nearest = room[2][r]
            if nearest >= 0:  # an absent row is at infinity: no point chooses it
                weight = weights[first + r]
                counts[nearest] += weight
                if points.shape[1] == 2:  # no loop where it would cost as much as the sums
                    sums[nearest, 0] += weight * points[first + r, 0]
                    sums[nearest, 1] += weight * points[first + r, 1]
                else:
                    for f in range(points.shape[1]):
                        sums[nearest, f] += weight * points[first + r, f]


@njit(cache=True, nogil=True)
def _tabulate(a, b, rows, distances):
    """Write the squared distances of the rows of a to the first rows of b, summed in feature order."""
    d = a.shape[1]
    for c in range(a.shape[0]):
        for q in range(rows):
            if d == 2:
                x, y = a[c, 0] - b[q, 0], a[c, 1] - b[q, 1]
                distances[c, q] = x * x + y * y
            else:
                distance = 0.0
                for f in range(d):
                    distance += (a[c, f] - b[q, f]) * (a[c, f] - b[q, f])
                distances[c, q] = distance


@njit(cache=True, nogil=True)
def _add(sums, counts, c, table, q, alpha, printed):
    """Add one matched row to the numerator (times alpha, but for the printed algorithm) and alpha to the divisor."""
    counts[c] += alpha
    for f in range(sums.shape[1]):
        sums[c, f] += table[q, f] if printed else alpha * table[q, f]


@njit(cache=True, nogil=True)
def _match(centroids, table, rows, alpha, star, printed, sums, counts, distances):
    """E2 and E3 for one neighbour: add its matched rows to the sums of lines 20 to 22.

    The nearest row is selected without branches, which nobody could predict.
    """
    k = centroids.shape[0]
    _tabulate(centroids, table, rows, distances)
    for q in range(rows):  # E2: a = the own row nearest to the neighbour's row q
        nearest, lowest = -1, np.inf
        for c in range(k):
            nearer = distances[c, q] < lowest
            lowest = distances[c, q] if nearer else lowest
            nearest = c if nearer else nearest
        if nearest >= 0:
            _add(sums, counts, nearest, table, q, alpha, printed)
    if star:
        for c in range(k):  # E3: b = the neighbour's row nearest to the own row c
            nearest, lowest = -1, np.inf
            for q in range(rows):
                nearer = distances[c, q] < lowest
                lowest = distances[c, q] if nearer else lowest
                nearest = q if nearer else nearest
            if nearest >= 0:
                _add(sums, counts, c, table, nearest, alpha, printed)


@njit(cache=True, nogil=True)
def _move(centroids, sums, counts, theta, printed):
    """M, lines 19 to 25: divide, relax by theta, keep what has no weight (the printed algorithm divides by 1 then)."""
    for c in range(centroids.shape[0]):
        divisor = max(counts[c], 1.0) if printed else counts[c]
        if divisor > 0.0 and centroids[c, 0] < np.inf:
            for f in range(centroids.shape[1]):
                new = sums[c, f] / divisor
                centroids[c, f] = new if theta == 1.0 else centroids[c, f] + theta * (new - centroids[c, f])


@njit(cache=True, nogil=True)
def _gtvmin(points, weights, centroids, tables, rows, slots, alpha, theta, passes, star, printed, room):
    """Update the centroids of one device in place: `passes` times E1, E2, E3, M with the neighbours held fixed."""
    nearest, distances, sums, counts = room
    for _ in range(passes):
        sums[:] = 0.0
        counts[:] = 0.0
        _points(points, weights, centroids, sums, counts, nearest)
        for e in range(slots.shape[0]):  # neighbours in ascending id
            if slots[e] >= 0:
                slot = slots[e]
                _match(centroids, tables[slot], rows[slot], alpha[e], star, printed, sums, counts, distances)
        _move(centroids, sums, counts, theta, printed)


@njit(cache=True, nogil=True)
def gtvmin(
    points, weights, offsets, centroids, awake, indptr, tables, rows, slots, alpha, theta, passes, star, printed
):
    """Update every awake device; see `p2pkm.kernels.plain.gtvmin`."""
    result, (k, d) = centroids.copy(), centroids.shape[1:]
    room = _room(d), np.empty((k, tables.shape[1])), np.empty((k, d)), np.empty(k)
    for i in range(result.shape[0]):
        if awake[i]:
            own, links = slice(offsets[i], offsets[i + 1]), slice(indptr[i], indptr[i + 1])
            _gtvmin(
                points[own], weights[own], result[i], tables, rows, slots[links], alpha[links],
                theta, passes, star, printed, room,
            )  # fmt: skip
    return result


@njit(cache=True, nogil=True)
def _one_sided(distances, transposed):
    """Return one of the two terms of (4): the sum over the real rows of their least distance, row after row."""
    total = 0.0
    for c in range(distances.shape[1 if transposed else 0]):
        lowest = np.inf
        for q in range(distances.shape[0 if transposed else 1]):
            distance = distances[q, c] if transposed else distances[c, q]
            if distance < lowest:  # inf - inf is nan and compares false
                lowest = distance
        if lowest < np.inf:
            total += lowest
    return total


@njit(cache=True, nogil=True)
def gtv(centroids, ids, indptr, indices, slots):
    """Return (4) of every link at its lower end; see `p2pkm.kernels.plain.gtv`."""
    result, k = np.zeros(indices.shape[0]), centroids.shape[1]
    distances = np.empty((k, k))
    for i in range(ids.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            if ids[i] < indices[e]:
                _tabulate(centroids[i], centroids[slots[e]], k, distances)
                result[e] = _one_sided(distances, False) + _one_sided(distances, True)
    return result
