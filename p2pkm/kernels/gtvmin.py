"""Compiled update of GTVMin k-means (Jung 2025, Algorithm 1, corrected) and the variation (4) of a link.

The distances between the rows of two neighbors serve both of them: what is nearest to a row of mine among yours is
what E3 asks at my end and E2 at yours. So where all devices move at once, each link between two devices of a batch is
looked at once, at its lower end, which leaves the answer for the other one.
"""

import numpy as np
from numba import njit

from p2pkm.kernels.lanes import add_row, least_of_columns, least_of_row, tile
from p2pkm.kernels.nearest import _add, _nearest, _room
from p2pkm.kernels.threads import divide

_LINKS = 64  # links of the plane that are looked at together
_SHARED = 2**15  # rows of a table; the answers that are left for the other end are kept as int16


@njit(cache=True, nogil=True)
def _points(points, mass, first, last, centroids, sums, counts, block, distances, lowest, labels):
    """E1 and the first sums of line 21: add every own point to its nearest real centroid, lowest index on ties."""
    lanes, rows = labels.shape[0], centroids.shape[0]
    for start in range(first, last, lanes):
        count = min(lanes, last - start)
        _nearest(points, start, count, centroids, rows, block, distances, lowest, labels)
        _add(points, mass, start, count, rows, sums, counts, block, labels)


@njit(cache=True, nogil=True)
def _links(k, r, d):
    """Return what matching works in: own and other coordinates, distances, least distances, nearest rows."""
    wide, most = r + -r % 8, max(k, r)
    if d == 2:
        table, whole = np.empty((2 * most, _LINKS)), np.empty((most, _LINKS), np.int64)
        return table, table.copy(), table.copy(), table.copy(), whole, whole.copy()
    own, least, whole = np.empty((k + 3, wide)), np.empty((1, wide)), np.empty((1, wide), np.int64)
    return own, np.full((d, wide), np.inf), least, least, whole, whole


@njit(cache=True, nogil=True)
def _match_in_the_plane(centroids, tables, rows, own, slots, there, back, room):
    """Find for up to 64 links the nearest row of the other end to each own row, and the other way round; -1: none."""
    here, other, low, lowest, near, nearest = room
    count, k, r = own.shape[0], centroids.shape[1], tables.shape[1]
    for e in range(count):
        for c in range(k):
            here[2 * c, e], here[2 * c + 1, e] = centroids[own[e], c, 0], centroids[own[e], c, 1]
        for q in range(r):
            real = q < rows[slots[e]]
            other[2 * q, e] = tables[slots[e], q, 0] if real else np.inf
            other[2 * q + 1, e] = tables[slots[e], q, 1] if real else np.inf
    for c in range(k):
        low[c], near[c] = np.inf, -1
    for q in range(r):
        lowest[q], nearest[q] = np.inf, -1
    for c in range(k):
        for q in range(r):
            for e in range(_LINKS):  # all lanes: those without a link are never looked at
                x, y = here[2 * c, e] - other[2 * q, e], here[2 * c + 1, e] - other[2 * q + 1, e]
                distance = x * x + y * y  # inf - inf is nan and compares false
                nearer = distance < low[c, e]
                low[c, e] = distance if nearer else low[c, e]
                near[c, e] = q if nearer else near[c, e]
                nearer = distance < lowest[q, e]
                lowest[q, e] = distance if nearer else lowest[q, e]
                nearest[q, e] = c if nearer else nearest[q, e]
    for e in range(count):
        for c in range(k):
            there[e, c] = near[c, e]
        for q in range(r):
            back[e, q] = nearest[q, e]


@njit(cache=True, nogil=True)
def _match(centroids, table, rows, there, back, room):
    """Do the same for one link with any number of features."""
    distances, columns, least, _, nearest, _ = room
    k, wide = centroids.shape[0], columns.shape[1]
    for q in range(table.shape[0]):
        for f in range(centroids.shape[1]):
            columns[f, q] = table[q, f] if q < rows else np.inf
    for q in range(0, wide, 8):
        for c in range(0, k, 4):
            tile(centroids, c, k - 1, columns, q, distances)
        least_of_columns(distances, k, q, least[0], nearest[0])
    for c in range(k):
        there[c] = least_of_row(distances, c, wide)
    for q in range(table.shape[0]):
        back[q] = nearest[0, q]


@njit(cache=True, nogil=True)
def _pull(tables, slot, rows, there, e, back, o, alpha, star, printed, sums, counts):
    """E2 and E3 for one neighbor: add its matched rows to the sums of lines 20 to 22, and alpha to the divisors.

    there[e], back[o]: the answers of `_match`. The printed algorithm leaves alpha out of the numerator. No view is
    taken of any array and nothing is called: either would cost more than the sums.
    """
    factor, table = 1.0 if printed else alpha, slot * tables.shape[1]
    for q in range(rows):  # E2: a = the own row nearest to the neighbour's row q
        nearest = back[o, q]
        if nearest >= 0:
            counts[nearest] += alpha
            add_row(sums, nearest, tables, table + q, factor)
    if star:
        for c in range(sums.shape[0]):  # E3: b = the neighbour's row nearest to the own row c
            nearest = there[e, c]
            if nearest >= 0:
                counts[c] += alpha
                add_row(sums, c, tables, table + nearest, factor)


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
def _sweep(
    points, mass, offsets, awake, indptr, tables, rows, slots, mirror, alpha,
    theta, passes, star, printed, shared, nearest, first, last, before, result, moves,
):  # fmt: skip
    """Update the awake ones among the devices `first` to `last` - 1, a few at a time, in place.

    shared: bool[n], devices whose table is what they hold, or empty if no link serves both ends at once; nearest:
    int16[e, k], the nearest row of the neighbor over each own edge, where both ends are shared.
    """
    k, d, r = result.shape[1], result.shape[2], tables.shape[1]
    most = 4 * _LINKS + np.max(indptr[first + 1 : last + 1] - indptr[first:last])
    own, other, twin, answer = np.empty((4, most), np.int64)
    there, back = np.empty((most, k), np.int64), np.empty((most, r), np.int64)
    block, distances, lowest, labels = _room(k, d)
    links, sums, counts = _links(k, r, d), np.empty((k, d)), np.empty(k)
    low, high = indptr[first], indptr[last]
    begin = first
    while begin < last:
        for _ in range(passes):
            end, heard, listed = begin, 0, 0
            while end < last and (end == begin or (passes == 1 and heard + indptr[end + 1] - indptr[end] <= most)):
                if awake[end]:
                    for e in range(indptr[end], indptr[end + 1]):  # neighbours in ascending id
                        slot, back_edge = slots[e], mirror[e]
                        if slot < 0:
                            continue
                        answer[heard] = listed
                        both = shared.shape[0] > 0 and low <= back_edge < high and slots[back_edge] >= 0
                        if both and shared[end] and shared[slot]:
                            answer[heard] = -1
                        if answer[heard] >= 0 or e < back_edge:
                            own[listed], other[listed], twin[listed] = end, slot, e if answer[heard] < 0 else -1
                            listed += 1
                        heard += 1
                end += 1
            if d == 2:
                for p in range(0, listed, _LINKS):
                    some = slice(p, min(p + _LINKS, listed))
                    _match_in_the_plane(result, tables, rows, own[some], other[some], there[some], back[some], links)
            else:
                for p in range(listed):
                    _match(result[own[p]], tables[other[p]], rows[other[p]], there[p], back[p], links)
            for p in range(listed):
                e = twin[p]
                if e >= 0:
                    for c in range(k):
                        nearest[e, c] = there[p, c]
                        nearest[mirror[e], c] = back[p, c]
            heard = 0
            for i in range(begin, end):
                if not awake[i]:
                    continue
                sums[:] = 0.0
                counts[:] = 0.0
                _points(
                    points, mass, offsets[i], offsets[i + 1], result[i], sums, counts, block, distances, lowest, labels
                )
                for e in range(indptr[i], indptr[i + 1]):
                    slot = slots[e]
                    if slot >= 0:
                        p = answer[heard]
                        heard += 1
                        if p < 0:
                            _pull(
                                tables, slot, k, nearest, e, nearest, mirror[e], alpha[e], star, printed, sums, counts
                            )
                        else:
                            _pull(tables, slot, rows[slot], there, p, back, p, alpha[e], star, printed, sums, counts)
                _move(result[i], sums, counts, theta, printed)
        for i in range(begin, end):
            if awake[i]:
                for number in range(2):
                    for c in range(k):
                        if result[i, c, 0] < np.inf:
                            for f in range(d):
                                moves[i, number] = max(moves[i, number], abs(result[i, c, f] - before[number][i, c, f]))
        begin = end


def gtvmin(
    points, weights, offsets, centroids, previous, awake, indptr, tables, rows, slots, mirror, alpha, theta, passes,
    star, printed,
):  # fmt: skip
    """Update every awake device; see `p2pkm.kernels.plain.gtvmin`."""
    result, moves, k = centroids.copy(), np.zeros((len(centroids), 2)), centroids.shape[1]
    together = passes == 1 and k < _SHARED and awake.all() and tables.shape[1:] == centroids.shape[1:]
    shared = (rows[: len(centroids)] == k) & _equal(tables, centroids) if together else np.zeros(0, np.bool_)
    nearest = np.empty((len(slots) if together else 0, k), np.int16)
    given = points, weights, offsets, awake, indptr, tables, rows, slots, mirror, alpha
    rule = theta, passes, star, printed, shared, nearest
    divide(lambda first, last: _sweep(*given, *rule, first, last, (centroids, previous), result, moves), offsets)
    return result, moves


@njit(cache=True, nogil=True)
def _equal(tables, centroids):
    """Return whether the table of each device is what it holds, bool[n]."""
    result = np.ones(centroids.shape[0], np.bool_)
    for i in range(centroids.shape[0]):
        for c in range(centroids.shape[1]):
            for f in range(centroids.shape[2]):
                result[i] &= tables[i, c, f] == centroids[i, c, f]
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
def _tabulate(a, b, distances):
    """Write the squared distances of the rows of a to those of b, summed in feature order."""
    for c in range(a.shape[0]):
        for q in range(b.shape[0]):
            distance = 0.0
            for f in range(a.shape[1]):
                distance += (a[c, f] - b[q, f]) * (a[c, f] - b[q, f])
            distances[c, q] = distance


@njit(cache=True, nogil=True)
def gtv(centroids, ids, indptr, indices, slots):
    """Return (4) of every link at its lower end; see `p2pkm.kernels.plain.gtv`."""
    result, k = np.zeros(indices.shape[0]), centroids.shape[1]
    distances = np.empty((k, k))
    for i in range(ids.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            if ids[i] < indices[e]:
                _tabulate(centroids[i], centroids[slots[e]], distances)
                result[e] = _one_sided(distances, False) + _one_sided(distances, True)
    return result
