"""Compiled update of GTVMin k-means (Jung 2025, Algorithm 1, corrected) and the variation (4) of a link.

Neighbors agree more and more. Where the rows of two of them lie apart, all together, by less than half of the least
distance between two own rows, each row is nearest to its counterpart, both ways: there is nothing to be searched.
"""

import numpy as np

from p2pkm.kernels.numba.compiling import behind, helper
from p2pkm.kernels.numba.nearest import LANES, _add, _aim, _label, _room
from p2pkm.kernels.numba.plane import FEW, sum_nearest
from p2pkm.kernels.numba.simd import (
    add_agreed,
    add_row,
    copy_row,
    eight_rows,
    four_rows,
    largest_gap,
    least_of_columns,
    least_of_row,
    squared_gap,
    turn_rows,
)
from p2pkm.kernels.numba.threads import divide

_LINKS = 64  # links of the plane that are looked at together
_PAIRS = 4  # rows up to which all pairs are looked at at once; of more a bound comes first
_CLOSE, _LEAST = 0.25 * (1 - 1e-6), 1e-280  # (1/2)^2, less than any rounding; squares that are still exact to it


@helper()
def _points(points, mass, first, last, centroids, sums, counts, room):
    """E1 and the first sums of line 21: add every own point to its nearest real centroid, lowest index on ties."""
    block, distances, lowest, labels, singles = room
    lanes, rows = labels.shape[0], centroids.shape[0]
    radius = _aim(centroids, rows, last - first, singles)
    for start in range(first, last, lanes):
        count = min(lanes, last - start)
        _label(points, start, count, centroids, rows, radius, singles, block, distances, lowest, labels)
        _add(points, mass, start, count, rows, sums, counts, block, labels)


@helper(inline="always")
def _points_in_the_plane(points, mass, first, last, after, lines, line, rows, sums, counts):
    """Do the same for two features and up to four centroids ``lines[line : line + rows]``.

    after: the first of the points that come next, of the next device awake; of more features the processor brings them
    in time by itself.
    """
    for start in range(first, last, LANES):
        count = min(LANES, last - start)
        coming = start + count if start + count < last else after
        sum_nearest(points, mass, start, count, coming, lines, line, rows, sums, counts)


@helper(inline="always")
def _links(k, r, d, plane):
    """Return what matching works in: own and other coordinates, distances, least distances, nearest rows."""
    wide, most = r + -r % 8, max(k, r)
    if plane:
        table, whole = np.empty((2 * most, _LINKS)), np.empty((most, _LINKS), np.int64)
        return table, table.copy(), table.copy(), table.copy(), whole, whole.copy()
    own, least, whole = np.empty((k + 7, wide)), np.empty((1, wide)), np.empty((1, wide), np.int64)
    return own, np.full((d, wide), np.inf), least, least, whole, whole


@helper(inline="always")
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


@helper(forceinline=True)
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


@helper(inline="always")
def _measure(centroids, rows, columns, r, distances):
    """Write the squared distances of the first `rows` centroids to eight columns from r on."""
    c = 0
    while rows - c > 4:
        eight_rows(centroids, c, rows - 1, columns, r, distances, c)
        c += 8
    if c < rows:
        four_rows(centroids, c, rows - 1, columns, r, distances, c)


@helper()
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


@helper(inline="always")
def _apart(flat, i, received, slot):
    """Return the squared distance of two lines, or of all rows of two tables that stand end to end, in any order."""
    whole = flat.shape[1] - flat.shape[1] % 8
    total = squared_gap(flat, i, received, slot, whole) if whole > 0 else 0.0
    for f in range(whole, flat.shape[1]):
        total += (flat[i, f] - received[slot, f]) * (flat[i, f] - received[slot, f])
    return total


@helper(inline="always")
def _least(lines, first, k):
    """Return the least squared distance of k lines, 0 where it is too small to go by."""
    least = np.inf
    for c in range(first + 1, first + k):
        for q in range(first, c):
            if lines.shape[1] == 2:
                x, y = lines[c, 0] - lines[q, 0], lines[c, 1] - lines[q, 1]
                distance = x * x + y * y
            else:
                distance = _apart(lines, c, lines, q)
            least = distance if distance < least else least
    return least if least > _LEAST else 0.0


@helper(inline="always")
def _within(flat, i, anchor, least):
    """Return how far apart the rows of table i are at least, squared, by another table's least distance; 0: unknown.

    Two rows of which each lies at most so far from the anchor's as both tables lie apart are sqrt(2) times that nearer.
    """
    known = np.sqrt(least)
    left = known - np.sqrt(2.0 * _apart(flat, i, anchor, 0))
    return left * left if left >= 0.5 * known else 0.0


@helper(inline="always")
def _pull(tables, slot, rows, there, back, p, alpha, star, factor, sums, counts):
    """E2 and E3 for one neighbor: add its matched rows to the sums of lines 20 to 22, and alpha to the divisors.

    there[p], back[p]: the answers of `_match`. No view is taken of any array and nothing is called: either would cost
    more than the sums.
    """
    table = slot * tables.shape[1]
    for q in range(rows):  # E2: a = the own row nearest to the neighbor's row q
        nearest = back[np.uintp(p), q]  # an unsigned index needs no look at its sign
        if nearest >= 0:
            counts[np.uintp(nearest)] += alpha
            add_row(sums, nearest, tables, table + q, factor)
    if star:
        for c in range(sums.shape[0]):  # E3: b = the neighbor's row nearest to the own row c
            nearest = there[np.uintp(p), c]
            if nearest >= 0:
                counts[c] += alpha
                add_row(sums, c, tables, table + nearest, factor)


@helper(inline="always")
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


@helper(inline="always")
def _largest_move(new, i, old, j):
    """Return the largest move of any coordinate of a device, whose rows stand end to end."""
    whole = new.shape[1] - new.shape[1] % 8
    largest = largest_gap(new, i, old, j, whole) if whole > 0 else 0.0
    for f in range(whole, new.shape[1]):
        move = abs(new[i, f] - old[j, f])
        largest = move if move > largest else largest
    return largest


@behind(2)
def _sweep(
    points, mass, offsets, centroids, previous, who, indptr, tables, rows, slots, alpha, theta, passes, star, printed,
    nobody, first, last, result, moves,
):  # fmt: skip
    """Update the devices ``who[first:last]``, a few at a time; `result` may be `centroids`.

    nobody: an empty int64[0].
    """
    k, d, r = result.shape[1], result.shape[2], tables.shape[1]
    most = _LINKS
    for j in range(first, last):
        most = max(most, indptr[who[j] + 1] - indptr[who[j]])
    most += 3 * _LINKS
    own, other, answer = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    there, back = np.empty((most, k), np.int64), np.empty((most, r), np.int64)
    room = _room(k, d)
    plane, alike = d == 2 and tables.shape[2] == 2, d == tables.shape[2] and k <= r
    here, beyond, low, least, near, nearest = _links(k, r, d, plane)
    sums, counts, old = np.empty((k, d)), np.empty(k), np.empty((_LINKS, k * d))
    flat, received, total = result.reshape(-1, k * d), tables.reshape(-1, r * tables.shape[2]), sums.reshape(1, k * d)
    lines, before, earlier = result.reshape(-1, d), centroids.reshape(-1, k * d), previous.reshape(-1, k * d)
    agreed = np.empty(_LINKS, np.bool_)
    few, times = d == 2 and k <= FEW, 2 if star else 1
    anchor, known = np.zeros((1, k * d)), 0.0  # a device's table and its least distance
    begin = first
    while begin < last:
        for number in range(passes):
            end, seen, listed = begin, 0, 0
            while end < last and (end == begin or (passes == 1 and end - begin < _LINKS)):
                i = who[end]
                if end > begin and seen + indptr[i + 1] - indptr[i] > most:
                    break
                if number == 0:
                    copy_row(before, i, old, end - begin)
                    copy_row(old, end - begin, flat, i)
                began, searched, sure = seen, listed, k <= _PAIRS
                close = _least(lines, i * k, k) if sure else _within(flat, i, anchor, known) if alike else 0.0
                for e in range(indptr[i], indptr[i + 1]):  # neighbors in ascending id
                    slot = slots[e]
                    if slot >= 0:
                        agrees, apart = False, np.inf
                        if alike and rows[slot] == k:
                            apart = _apart(flat, i, received, slot)
                            agrees = apart < _CLOSE * close
                            if not (agrees or sure):
                                close, sure = _least(lines, i * k, k), True
                                known = close
                                copy_row(flat, i, anchor, 0)
                                agrees = apart < _CLOSE * close
                        if agrees:
                            answer[seen] = -1
                        else:
                            own[listed], other[listed], answer[seen] = i, slot, listed
                            listed += 1
                        seen += 1
                agreed[end - begin] = listed == searched and seen - began == indptr[i + 1] - indptr[i]
                end += 1
            if plane:
                for p in range(0, listed, _LINKS):
                    count = min(_LINKS, listed - p)
                    _spread(flat, nobody, own[p : p + count], count, here)
                    _spread(received, rows, other[p : p + count], count, beyond)
                    _match_in_the_plane(count, k, r, here, beyond, low, least, near, nearest)
                    for e in range(count):
                        for c in range(k):
                            there[p + e, c] = near[c, e]
                        for q in range(r):
                            back[p + e, q] = nearest[q, e]
            else:
                for p in range(listed):
                    i, slot = own[p], other[p]
                    _match(result[i], tables[slot], rows[slot], there[p], back[p], here, beyond, least, nearest)
            seen = 0
            for j in range(begin, end):
                i = who[j]
                for c in range(k):
                    counts[c] = 0.0
                    for f in range(d):
                        sums[c, f] = 0.0
                if few:
                    after = offsets[who[min(j + 1, last - 1)]]
                    _points_in_the_plane(points, mass, offsets[i], offsets[i + 1], after, lines, i * k, k, sums, counts)
                else:
                    _points(points, mass, offsets[i], offsets[i + 1], result[i], sums, counts, room)
                if agreed[j - begin]:
                    seen += indptr[i + 1] - indptr[i]
                    add_agreed(total, counts, received, slots, alpha, indptr[i], indptr[i + 1], times, not printed)
                    _move(result, i, sums, counts, theta, printed)
                    continue
                for e in range(indptr[i], indptr[i + 1]):
                    slot, weight = slots[e], alpha[e]
                    if slot >= 0:
                        p = answer[seen]
                        seen += 1
                        factor = 1.0 if printed else weight  # the printed algorithm leaves alpha out of the numerator
                        if p >= 0:
                            _pull(tables, slot, rows[slot], there, back, p, weight, star, factor, sums, counts)
                            continue
                        for _ in range(times):  # every row is nearest to its counterpart, both ways
                            for c in range(k):
                                counts[c] += weight
                            add_row(total, 0, received, slot, factor)
                _move(result, i, sums, counts, theta, printed)
        for j in range(begin, end):
            i = who[j]
            moves[j, 0], moves[j, 1] = _largest_move(flat, i, old, j - begin), _largest_move(flat, i, earlier, i)
        begin = end


def gtvmin(
    points, weights, offsets, centroids, previous, who, indptr, tables, rows, slots, alpha, theta, passes, star,
    printed, in_place,
):  # fmt: skip
    """Update the devices `who`; see `p2pkm.kernels.reference.gtvmin`."""
    every = len(who) == len(centroids)
    result = centroids if in_place else np.empty_like(centroids) if every else centroids.copy()
    moves = np.empty((len(who), 2))
    given = points, weights, offsets, centroids, previous, who, indptr, tables, rows, slots, alpha
    rule = theta, passes, star, printed, np.zeros(0, np.int64)
    load = offsets if every else np.concatenate(([0], np.cumsum(offsets[who + 1] - offsets[who])))
    divide(lambda first, last: _sweep(*given, *rule, first, last, result, moves), load)
    return result, moves


@helper()
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


@helper()
def _tabulate(a, b, distances):
    """Write the squared distances of the rows of a to those of b, summed in feature order."""
    for c in range(a.shape[0]):
        for q in range(b.shape[0]):
            distance = 0.0
            for f in range(a.shape[1]):
                distance += (a[c, f] - b[q, f]) * (a[c, f] - b[q, f])
            distances[c, q] = distance


@behind(1)
def _gtv(centroids, ids, indptr, indices, slots, begin, end, result):
    """Measure the links of the devices `begin` to `end` - 1."""
    k = centroids.shape[1]
    distances = np.empty((k, k))
    for i in range(begin, end):
        for e in range(indptr[i], indptr[i + 1]):
            if ids[i] < indices[e]:
                _tabulate(centroids[i], centroids[slots[e]], distances)
                result[e] = _one_sided(distances, np.bool_(False)) + _one_sided(distances, np.bool_(True))


def gtv(centroids, ids, indptr, indices, slots):
    """Return (4) of every link at its lower end; see `p2pkm.kernels.reference.gtv`."""
    result = np.zeros(len(indices))
    divide(lambda begin, end: _gtv(centroids, ids, indptr, indices, slots, begin, end, result), indptr)
    return result
