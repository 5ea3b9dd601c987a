"""Compiled update of GTVMin k-means (Jung 2025, Algorithm 1, corrected) and the variation (4) of a link.

The distances between the rows of two neighbors serve both of them: what is nearest to a row of mine among yours is
what E3 asks at my end and E2 at yours. So where all devices move at once, each link between two devices of a batch is
looked at once, at its lower end, which leaves the answer for the other one.
"""

import numpy as np
from numba import njit

from p2pkm.kernels.numba.nearest import _add, _measure, _nearest, _room
from p2pkm.kernels.numba.simd import add_row, fetch, largest_gap, least_of_columns, least_of_row, turn_rows
from p2pkm.kernels.numba.threads import divide

_LINKS = 64  # links of the plane that are looked at together
_SHARED = 2**8  # rows of a table up to which one look serves both ends; the answers are kept as uint8


@njit(cache=True, nogil=True, forceinline=True)
def _points(points, mass, first, last, centroids, sums, counts, block, centers, distances, lowest, labels):
    """E1 and the first sums of line 21: add every own point to its nearest real centroid, lowest index on ties."""
    lanes, rows = labels.shape[0], centroids.shape[0]
    for start in range(first, last, lanes):
        count = min(lanes, last - start)
        if points.shape[1] == 2:  # of more features the processor brings the next ones in time
            fetch(points, start + count, min(count, points.shape[0] - start - count))
        _nearest(points, start, count, centroids, rows, block, centers, distances, lowest, labels)
        _add(points, mass, start, count, rows, sums, counts, block, labels)


@njit(cache=True, nogil=True)
def _links(k, r, d, plane):
    """Return what matching works in: own and other coordinates, distances, least distances, nearest rows."""
    wide, most = r + -r % 8, max(k, r)
    if plane:
        table, whole = np.empty((2 * most, _LINKS)), np.empty((most, _LINKS), np.int64)
        return table, table.copy(), table.copy(), table.copy(), whole, whole.copy()
    own, least, whole = np.empty((k + 7, wide)), np.empty((1, wide)), np.empty((1, wide), np.int64)
    return own, np.full((d, wide), np.inf), least, least, whole, whole


@njit(cache=True, nogil=True, forceinline=True)
def _spread(table, rows, numbers, count, block):
    """Write the tables of so many devices side by side into the lanes of a block; absent rows are at infinity.

    table: float64[s, 2 r], rows of two features end to end; rows: int64[s], or empty if there are always r.
    """
    width = table.shape[1]
    whole = count - count % 8
    square = width - width % 8
    for e in range(0, whole, 8):
        for f in range(0, square, 8):
            turn_rows(table, numbers, e, f, block)
    for e in range(count):
        for f in range(square if e < whole else 0, width):
            block[f, e] = table[numbers[e], f]
        if rows.shape[0] > 0:
            for f in range(2 * rows[numbers[e]], width):
                block[f, e] = np.inf


@njit(cache=True, nogil=True, forceinline=True)
def _match_in_the_plane(count, k, r, here, other, low, lowest, near, nearest):
    """Find for up to 64 links the nearest row of the other end to each own row, and the other way round; -1: none."""
    for c in range(k):
        low[c], near[c] = np.inf, -1
    for q in range(r):
        lowest[q], nearest[q] = np.inf, -1
    lanes = count + -count % 8
    for c in range(k):
        for q in range(r):
            for e in range(lanes):  # those without a link are never looked at
                x, y = here[2 * c, e] - other[2 * q, e], here[2 * c + 1, e] - other[2 * q + 1, e]
                distance = x * x + y * y  # inf - inf is nan and compares false
                nearer = distance < low[c, e]
                low[c, e] = distance if nearer else low[c, e]
                near[c, e] = q if nearer else near[c, e]
                nearer = distance < lowest[q, e]
                lowest[q, e] = distance if nearer else lowest[q, e]
                nearest[q, e] = c if nearer else nearest[q, e]


@njit(cache=True, nogil=True)
def _match(centroids, table, rows, there, back, distances, columns, least, nearest):
    """Do the same for one link with any number of features."""
    k, wide = centroids.shape[0], columns.shape[1]
    for q in range(table.shape[0]):
        for f in range(centroids.shape[1]):
            columns[f, q] = table[q, f] if q < rows else np.inf
    for q in range(0, wide, 8):
        _measure(centroids, k, columns, q, distances)
        least_of_columns(distances, k, q, least[0], nearest[0])
    for c in range(k):
        there[c] = least_of_row(distances, c, wide)
    for q in range(table.shape[0]):
        back[q] = nearest[0, q]


@njit(cache=True, nogil=True, forceinline=True)
def _pull(tables, slot, rows, there, e, back, o, alpha, star, printed, sums, counts):
    """E2 and E3 for one neighbor: add its matched rows to the sums of lines 20 to 22, and alpha to the divisors.

    there[e], back[o]: the answers of `_match`. The printed algorithm leaves alpha out of the numerator. No view is
    taken of any array and nothing is called: either would cost more than the sums.
    """
    factor, table = 1.0 if printed else alpha, slot * tables.shape[1]
    for q in range(rows):  # E2: a = the own row nearest to the neighbor's row q
        nearest = back[np.uintp(o), q]  # an unsigned index needs no look at its sign
        if nearest >= 0:
            counts[np.uintp(nearest)] += alpha
            add_row(sums, nearest, tables, table + q, factor)
    if star:
        for c in range(sums.shape[0]):  # E3: b = the neighbor's row nearest to the own row c
            nearest = there[np.uintp(e), c]
            if nearest >= 0:
                counts[c] += alpha
                add_row(sums, c, tables, table + nearest, factor)


@njit(cache=True, nogil=True, forceinline=True)
def _move(centroids, i, sums, counts, theta, printed):
    """M, lines 19 to 25: divide, relax by theta, keep what has no weight (the printed algorithm divides by 1 then)."""
    for c in range(centroids.shape[1]):
        divisor = max(counts[c], 1.0) if printed else counts[c]
        if divisor > 0.0 and centroids[i, c, 0] < np.inf:
            if theta == 1.0:
                for f in range(centroids.shape[2]):
                    centroids[i, c, f] = sums[c, f] / divisor
            else:
                for f in range(centroids.shape[2]):
                    centroids[i, c, f] += theta * (sums[c, f] / divisor - centroids[i, c, f])


@njit(cache=True, nogil=True, forceinline=True)
def _largest_move(new, old, i):
    """Return the largest move of any coordinate of a device, whose rows stand end to end."""
    whole = new.shape[1] - new.shape[1] % 8
    largest = largest_gap(new, old, i, whole) if whole > 0 else 0.0
    for f in range(whole, new.shape[1]):
        move = abs(new[i, f] - old[i, f])
        largest = move if move > largest else largest
    return largest


@njit(cache=True, nogil=True)
def _sweep(
    points, mass, offsets, centroids, previous, awake, indptr, tables, rows, slots, mirror, alpha,
    theta, passes, star, printed, nobody, kept, first, last, result, moves,
):  # fmt: skip
    """Update the awake ones among the devices `first` to `last` - 1, a few at a time, in place.

    none: an empty int64[0]; kept: uint8[e, k], the nearest row of the neighbor over each own edge where one look
    serves both ends; empty if every end is to look for itself.
    """
    k, d, r = result.shape[1], result.shape[2], tables.shape[1]
    most = 4 * _LINKS + np.max(indptr[first + 1 : last + 1] - indptr[first:last])
    own, other, twin, answer = (np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64),
                                np.empty(most, np.int64))  # fmt: skip
    there, back = np.empty((most, k), np.int64), np.empty((most, r), np.int64)
    block, centers, distances, lowest, labels = _room(k, d)
    plane = d == 2 and tables.shape[2] == 2
    here, beyond, low, least, near, nearest = _links(k, r, d, plane)
    sums, counts = np.empty((k, d)), np.empty(k)
    begin, start, stop = first, indptr[first], indptr[last] if kept.shape[0] > 0 else indptr[first]
    flat, said = result.reshape(-1, k * d), tables.reshape(-1, r * tables.shape[2])
    before, earlier = centroids.reshape(-1, k * d), previous.reshape(-1, k * d)
    while begin < last:
        for number in range(passes):
            end, heard, listed = begin, 0, 0
            while end < last and (end == begin or (passes == 1 and heard + indptr[end + 1] - indptr[end] <= most)):
                if number == 0:
                    for f in range(k * d):
                        flat[end, f] = before[end, f]
                if awake[end]:
                    for e in range(indptr[end], indptr[end + 1]):  # neighbors in ascending id
                        if slots[e] >= 0:
                            both = start <= mirror[e] < stop
                            if not both or e < mirror[e]:
                                own[listed], other[listed], twin[listed] = end, slots[e], e if both else -1
                                listed += 1
                            answer[heard] = -1 if both else listed - 1
                            heard += 1
                end += 1
            if plane:
                for p in range(0, listed, _LINKS):
                    count = min(_LINKS, listed - p)
                    _spread(flat, nobody, own[p : p + count], count, here)
                    _spread(said, rows, other[p : p + count], count, beyond)
                    _match_in_the_plane(count, k, r, here, beyond, low, least, near, nearest)
                    for e in range(count):
                        if twin[p + e] >= 0:
                            for c in range(k):
                                kept[twin[p + e], c] = near[c, e]
                                kept[mirror[twin[p + e]], c] = nearest[c, e]
                        else:
                            for c in range(k):
                                there[p + e, c] = near[c, e]
                            for q in range(r):
                                back[p + e, q] = nearest[q, e]
            else:
                for p in range(listed):
                    _match(
                        result[own[p]],
                        tables[other[p]],
                        rows[other[p]],
                        there[p],
                        back[p],
                        here,
                        beyond,
                        least,
                        nearest,
                    )
                    if twin[p] >= 0:
                        for c in range(k):
                            kept[twin[p], c] = there[p, c]
                            kept[mirror[twin[p]], c] = back[p, c]
            heard = 0
            for i in range(begin, end):
                if not awake[i]:
                    continue
                for c in range(k):
                    counts[c] = 0.0
                    for f in range(d):
                        sums[c, f] = 0.0
                _points(
                    points,
                    mass,
                    offsets[i],
                    offsets[i + 1],
                    result[i],
                    sums,
                    counts,
                    block,
                    centers,
                    distances,
                    lowest,
                    labels,
                )
                for e in range(indptr[i], indptr[i + 1]):
                    slot = slots[e]
                    if slot >= 0:
                        p = answer[heard]
                        heard += 1
                        if p < 0:
                            _pull(tables, slot, k, kept, e, kept, mirror[e], alpha[e], star, printed, sums, counts)
                        else:
                            _pull(tables, slot, rows[slot], there, p, back, p, alpha[e], star, printed, sums, counts)
                _move(result, i, sums, counts, theta, printed)
        for i in range(begin, end):
            if awake[i]:
                moves[i, 0], moves[i, 1] = _largest_move(flat, before, i), _largest_move(flat, earlier, i)
        begin = end


def gtvmin(
    points, weights, offsets, centroids, previous, awake, indptr, tables, rows, slots, mirror, alpha, theta, passes,
    star, printed,
):  # fmt: skip
    """Update every awake device; see `p2pkm.kernels.reference.gtvmin`."""
    (n, k, _), same = centroids.shape, tables.shape[1:] == centroids.shape[1:]
    together = passes == 1 and k <= _SHARED and same and awake.all() and slots.min(initial=0) >= 0
    together = together and bool((rows[:n] == k).all())
    together = together and (tables.ctypes.data == centroids.ctypes.data or _equal(tables, centroids))
    kept = np.empty((len(slots) if together else 0, k), np.uint8)  # all rows are real: each has a nearest one
    given = points, weights, offsets, centroids, previous, awake, indptr, tables, rows, slots, mirror, alpha
    rule = theta, passes, star, printed, np.zeros(0, np.int64), kept
    result, moves = np.empty_like(centroids), np.zeros((n, 2))
    divide(lambda first, last: _sweep(*given, *rule, first, last, result, moves), offsets)
    return result, moves


@njit(cache=True, nogil=True)
def _equal(tables, centroids):
    """Return whether every device holds the rows of its table."""
    for i in range(centroids.shape[0]):
        for c in range(centroids.shape[1]):
            for f in range(centroids.shape[2]):
                if tables[i, c, f] != centroids[i, c, f]:
                    return False
    return True


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
    """Return (4) of every link at its lower end; see `p2pkm.kernels.reference.gtv`."""
    result, k = np.zeros(indices.shape[0]), centroids.shape[1]
    distances = np.empty((k, k))
    for i in range(ids.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            if ids[i] < indices[e]:
                _tabulate(centroids[i], centroids[slots[e]], distances)
                result[e] = _one_sided(distances, False) + _one_sided(distances, True)
    return result
