"""Compiled update of GTVMin k-means (Jung 2025, Algorithm 1, corrected), and total variation (4) of links.

Neighbors agree more and more during a run. If the distance of the tables of two neighbors (over all rows together) is
less than half of the smallest distance between two local rows, then each row is nearest to its counterpart, in both
directions, and the search is skipped ("agreement").
"""

import numpy as np

from p2pkm.kernels.numba.compiling import compiled_backend, helper
from p2pkm.kernels.numba.nearest import LANES, _add, _label, _prepare_labels, _workspace
from p2pkm.kernels.numba.plane import FEW, sum_nearest
from p2pkm.kernels.numba.simd import (
    add_agreed,
    add_row,
    copy_row,
    eight_rows,
    fetch,
    four_rows,
    largest_gap,
    least_of_columns,
    least_of_row,
    nearest_rows,
    squared_gap,
    transpose_rows,
)
from p2pkm.kernels.numba.threads import divide

# For two features: links that are matched together, one per lane.
_LINKS = 64
# Number of rows up to which the smallest distance between local rows is always computed; with more rows, a bound is
# tried first.
_PAIRS = 4
# Number of active devices ahead whose neighbors' tables are prefetched; their links twice as early.
_EARLY = 8
# Agreement: largest ratio of squared distances, (1/2)^2 minus more than all rounding errors.
_CLOSE = 0.25 * (1 - 1e-6)
# Smaller squares are inaccurate because of underflow.
_LEAST = 1e-280


@helper()
def _points(points, mass, first, last, centroids, sums, counts, workspace):
    """E1 and the first sums of line 21: add every local point to its nearest centroid, lowest index on ties."""
    block, distances, lowest, labels, singles = workspace
    lanes, rows = labels.shape[0], centroids.shape[0]
    radius = _prepare_labels(centroids, rows, last - first, singles)
    for start in range(first, last, lanes):
        count = min(lanes, last - start)
        _label(points, start, count, centroids, rows, radius, singles, block, distances, lowest, labels)
        _add(points, mass, start, count, rows, sums, counts, block, labels)


@helper(inline="always")
def _points_2d(points, mass, first, last, after, lines, line, rows, sums, counts):
    """Add every local point to the nearest of ``lines[line : line + rows]``, two features and up to four centroids.

    after: first point of the next active device, which is prefetched. With more features, the processor prefetches in
    time by itself.
    """
    for start in range(first, last, LANES):
        count = min(LANES, last - start)
        coming = start + count if start + count < last else after
        sum_nearest(points, mass, start, count, coming, lines, line, rows, sums, counts)


@helper(inline="always")
def _links(k, r, d, plane):
    """Allocate the scratch arrays of matching: local and other coordinates, distances, minima, nearest rows."""
    wide, most = r + -r % 8, max(k, r)
    if plane:
        table, indices = np.empty((2 * most, _LINKS)), np.empty((most, _LINKS), np.int64)
        return table, table.copy(), table.copy(), table.copy(), indices, indices.copy()
    distances, minima, indices = np.empty((k + 7, wide)), np.empty((1, wide)), np.empty((1, wide), np.int64)
    return distances, np.full((d, wide), np.inf), minima, minima, indices, indices


@helper(inline="always")
def _load_tables(table, rows, numbers, count, block):
    """Load the tables of several devices into the lanes of a block, two features; absent rows are infinite.

    table: float64[s, 2 r], concatenated rows; rows: int64[s], or empty if all tables have r rows.
    """
    width = table.shape[1]
    in_eights = count - count % 8
    square = width - width % 8
    for e in range(0, in_eights, 8):
        for f in range(0, square, 8):
            transpose_rows(table, numbers, e, f, block)
    for e in range(count):
        for f in range(square if e < in_eights else 0, width):
            block[f, e] = table[numbers[e], f]
        if rows.shape[0] > 0:
            for f in range(2 * rows[numbers[e]], width):
                block[f, e] = np.inf


@helper(forceinline=True)
def _match_2d(count, k, r, local, other, low, lowest, forward, backward):
    """Match rows over up to 64 links, two features; -1: none.

    forward: nearest remote row of each local row; backward: nearest local row of each remote row.
    """
    for c in range(k):
        low[c], forward[c] = np.inf, -1
    for q in range(r):
        lowest[q], backward[q] = np.inf, -1
    lanes = count + -count % 8
    for c in range(k):
        for q in range(r):
            # Results of lanes without a link are not used.
            for e in range(lanes):
                x, y = local[2 * c, e] - other[2 * q, e], local[2 * c + 1, e] - other[2 * q + 1, e]
                # inf - inf is NaN, which compares false.
                distance = x * x + y * y
                nearer = distance < low[c, e]
                low[c, e] = distance if nearer else low[c, e]
                forward[c, e] = q if nearer else forward[c, e]
                nearer = distance < lowest[q, e]
                lowest[q, e] = distance if nearer else lowest[q, e]
                backward[q, e] = c if nearer else backward[q, e]


@helper(inline="always")
def _measure(centroids, rows, columns, r, distances):
    """Compute the squared distances of the first `rows` centroids to eight columns from r on."""
    c = 0
    while rows - c > 4:
        eight_rows(centroids, c, rows - 1, columns, r, distances, c)
        c += 8
    if c < rows:
        four_rows(centroids, c, rows - 1, columns, r, distances, c)


@helper()
def _match(centroids, table, rows, forward, backward, distances, columns, least, nearest):
    """Match rows over one link, any number of features: see `_match_2d`."""
    k, wide = centroids.shape[0], columns.shape[1]
    for q in range(table.shape[0]):
        for f in range(centroids.shape[1]):
            columns[f, q] = table[q, f] if q < rows else np.inf
    for q in range(0, wide, 8):
        _measure(centroids, k, columns, q, distances)
        least_of_columns(distances, k, q, least[0], nearest[0])
    for c in range(k):
        forward[c] = least_of_row(distances, c, wide)
    for q in range(table.shape[0]):
        backward[q] = nearest[0, q]


@helper(inline="always")
def _squared_distance(flat, i, received, slot):
    """Compute the squared distance of two rows, or of two flattened tables; the order of summation is not fixed."""
    in_eights = flat.shape[1] - flat.shape[1] % 8
    total = squared_gap(flat, i, received, slot, in_eights) if in_eights > 0 else 0.0
    for f in range(in_eights, flat.shape[1]):
        total += (flat[i, f] - received[slot, f]) * (flat[i, f] - received[slot, f])
    return total


@helper(inline="always")
def _least(lines, first, k):
    """Compute the smallest squared distance between k rows; 0 if it is too small to be accurate."""
    least = np.inf
    for c in range(first + 1, first + k):
        for q in range(first, c):
            if lines.shape[1] == 2:
                x, y = lines[c, 0] - lines[q, 0], lines[c, 1] - lines[q, 1]
                distance = x * x + y * y
            else:
                distance = _squared_distance(lines, c, lines, q)
            least = distance if distance < least else least
    return least if least > _LEAST else 0.0


@helper(inline="always")
def _within(flat, i, anchor, least):
    """Bound the smallest squared distance between rows of table i from below, given that of the anchor; 0: no bound.

    If D is the distance of the two tables, then two rows are at most sqrt(2) D nearer than those of the anchor.
    """
    known = np.sqrt(least)
    left = known - np.sqrt(2.0 * _squared_distance(flat, i, anchor, 0))
    return left * left if left >= 0.5 * known else 0.0


@helper(inline="always")
def _add_matches(tables, slot, rows, forward, backward, p, alpha, star_term, factor, sums, counts):
    """E2 and E3 for one neighbor: add its matched rows to the sums of lines 20 to 22, and alpha to the divisors.

    forward[p], backward[p]: results of `_match`. Views of arrays and calls are avoided; both would take longer than the
    sums.
    """
    table = slot * tables.shape[1]
    # E2: local row nearest to row q of the neighbor.
    for q in range(rows):
        # An unsigned index avoids the test for negative values.
        nearest = backward[np.uintp(p), q]
        if nearest >= 0:
            counts[np.uintp(nearest)] += alpha
            add_row(sums, nearest, tables, table + q, factor)
    if star_term:
        # E3: row of the neighbor nearest to local row c.
        for c in range(sums.shape[0]):
            nearest = forward[np.uintp(p), c]
            if nearest >= 0:
                counts[c] += alpha
                add_row(sums, c, tables, table + nearest, factor)


@helper(inline="always")
def _move(centroids, i, sums, counts, theta, as_printed):
    """M, lines 19 to 25: divide and relax by theta; rows with zero weight do not move (as printed: divide by 1)."""
    for c in range(centroids.shape[1]):
        divisor = max(counts[c], 1.0) if as_printed else counts[c]
        if divisor > 0.0 and centroids[i, c, 0] < np.inf:
            if theta == 1.0:
                for f in range(centroids.shape[2]):
                    centroids[i, c, f] = sums[c, f] / divisor
            else:
                for f in range(centroids.shape[2]):
                    centroids[i, c, f] += theta * (sums[c, f] / divisor - centroids[i, c, f])


@helper(inline="always")
def _largest_move(new, i, old, j):
    """Compute the largest move of a coordinate of a device, given flattened tables."""
    in_eights = new.shape[1] - new.shape[1] % 8
    largest = largest_gap(new, i, old, j, in_eights) if in_eights > 0 else 0.0
    for f in range(in_eights, new.shape[1]):
        move = abs(new[i, f] - old[j, f])
        largest = move if move > largest else largest
    return largest


@helper(inline="always")
def _fetch_links(active, j, last, offsets, indptr, slots, alpha, rows, flat, earlier, received):
    """Prefetch the links of the active devices after number j, and the tables that they refer to.

    The processor itself does not foresee tables of distant neighbors, nor the links of every fourth device.
    """
    i = active[min(j + 4 * _EARLY, last - 1)]
    fetch(indptr, i)
    fetch(offsets, i)
    fetch(flat, i)
    fetch(earlier, i)
    i = indptr[active[min(j + 2 * _EARLY, last - 1)]]
    fetch(slots, i)
    fetch(alpha, i)
    i = active[min(j + _EARLY, last - 1)]
    for e in range(indptr[i], indptr[i + 1]):
        fetch(received, max(slots[e], 0))
        fetch(rows, max(slots[e], 0))


@compiled_backend(2)
def _update_devices(
    points, mass, offsets, centroids, previous, active, indptr, tables, rows, slots, alpha, theta, passes, star_term,
    as_printed, empty, first, last, result, moves,
):  # fmt: skip
    """Update the devices ``active[first:last]``, in groups; `result` may be `centroids`.

    With one pass, a group has as many devices as links fit, so that searches over several links run in lanes; with
    several passes, a group is one device, because the next pass needs its result.

    empty: int64[0].
    """
    k, d, r = result.shape[1], result.shape[2], tables.shape[1]
    most = _LINKS
    for j in range(first, last):
        most = max(most, indptr[active[j] + 1] - indptr[active[j]])
    most += 3 * _LINKS
    sources, targets, answer = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    forward, backward = np.empty((most, k), np.int64), np.empty((most, r), np.int64)
    workspace = _workspace(k, d)
    is_2d, is_comparable = d == 2 and tables.shape[2] == 2, d == tables.shape[2] and k <= r
    local, remote, low, least, nearest_forward, nearest_backward = _links(k, r, d, is_2d)
    sums, counts, old = np.empty((k, d)), np.empty(k), np.empty((_LINKS, k * d))
    flat, received, total = result.reshape(-1, k * d), tables.reshape(-1, r * tables.shape[2]), sums.reshape(1, k * d)
    lines, before, earlier = result.reshape(-1, d), centroids.reshape(-1, k * d), previous.reshape(-1, k * d)
    all_agree = np.empty(_LINKS, np.bool_)
    is_fused, times = d == 2 and k <= FEW, 2 if star_term else 1
    # Table of a device whose smallest distance between rows is known; bounds that of the next devices.
    anchor, anchor_least = np.zeros((1, k * d)), 0.0
    begin = first
    while begin < last:
        for number in range(passes):
            end, seen, listed = begin, 0, 0
            while end < last and (end == begin or (passes == 1 and end - begin < _LINKS)):
                i = active[end]
                _fetch_links(active, end, last, offsets, indptr, slots, alpha, rows, flat, earlier, received)
                if end > begin and seen + indptr[i + 1] - indptr[i] > most:
                    break
                if number == 0:
                    copy_row(before, i, old, end - begin)
                    copy_row(old, end - begin, flat, i)
                first_seen, searched, is_exact = seen, listed, k <= _PAIRS
                close = 0.0
                if is_exact:
                    close = _least(lines, i * k, k)
                elif is_comparable:
                    close = _within(flat, i, anchor, anchor_least)
                # In ascending id of the neighbors: the order of sums is part of the result.
                for e in range(indptr[i], indptr[i + 1]):
                    slot = slots[e]
                    if slot >= 0:
                        agrees, distance = False, np.inf
                        if is_comparable and rows[slot] == k:
                            distance = _squared_distance(flat, i, received, slot)
                            agrees = distance < _CLOSE * close
                            if not (agrees or is_exact):
                                close, is_exact = _least(lines, i * k, k), True
                                anchor_least = close
                                copy_row(flat, i, anchor, 0)
                                agrees = distance < _CLOSE * close
                        if agrees:
                            answer[seen] = -1
                        else:
                            sources[listed], targets[listed], answer[seen] = i, slot, listed
                            listed += 1
                        seen += 1
                all_agree[end - begin] = listed == searched and seen - first_seen == indptr[i + 1] - indptr[i]
                end += 1
            if is_2d:
                for p in range(0, listed, _LINKS):
                    count = min(_LINKS, listed - p)
                    _load_tables(flat, empty, sources[p : p + count], count, local)
                    _load_tables(received, rows, targets[p : p + count], count, remote)
                    _match_2d(count, k, r, local, remote, low, least, nearest_forward, nearest_backward)
                    for e in range(count):
                        for c in range(k):
                            forward[p + e, c] = nearest_forward[c, e]
                        for q in range(r):
                            backward[p + e, q] = nearest_backward[q, e]
            else:
                for p in range(listed):
                    i, slot = sources[p], targets[p]
                    _match(
                        result[i],
                        tables[slot],
                        rows[slot],
                        forward[p],
                        backward[p],
                        local,
                        remote,
                        least,
                        nearest_backward,
                    )
            seen = 0
            for j in range(begin, end):
                i = active[j]
                for c in range(k):
                    counts[c] = 0.0
                    for f in range(d):
                        sums[c, f] = 0.0
                if is_fused:
                    after = offsets[active[min(j + 1, last - 1)]]
                    _points_2d(points, mass, offsets[i], offsets[i + 1], after, lines, i * k, k, sums, counts)
                else:
                    _points(points, mass, offsets[i], offsets[i + 1], result[i], sums, counts, workspace)
                if all_agree[j - begin]:
                    seen += indptr[i + 1] - indptr[i]
                    add_agreed(total, counts, received, slots, alpha, indptr[i], indptr[i + 1], times, not as_printed)
                    _move(result, i, sums, counts, theta[i], as_printed)
                    continue
                for e in range(indptr[i], indptr[i + 1]):
                    slot, weight = slots[e], alpha[e]
                    if slot >= 0:
                        p = answer[seen]
                        seen += 1
                        # The printed algorithm omits alpha in the numerator.
                        factor = 1.0 if as_printed else weight
                        if p >= 0:
                            _add_matches(
                                tables, slot, rows[slot], forward, backward, p, weight, star_term, factor, sums, counts
                            )
                            continue
                        # Agreement: every row is nearest to its counterpart, in both directions.
                        for _ in range(times):
                            for c in range(k):
                                counts[c] += weight
                            add_row(total, 0, received, slot, factor)
                _move(result, i, sums, counts, theta[i], as_printed)
        for j in range(begin, end):
            i = active[j]
            moves[j, 0], moves[j, 1] = _largest_move(flat, i, old, j - begin), _largest_move(flat, i, earlier, i)
        begin = end


def gtvmin(
    points, weights, offsets, centroids, previous, active, indptr, tables, rows, slots, alpha, theta, passes,
    star_term, as_printed, in_place,
):  # fmt: skip
    """Update the active devices; see `p2pkm.kernels.reference.gtvmin`."""
    moves = np.empty((len(active), 2))
    if not len(active):
        return centroids if in_place else centroids.copy(), moves
    all_active = len(active) == len(centroids)
    result = centroids if in_place else np.empty_like(centroids)
    arrays = points, weights, offsets, centroids, previous, active, indptr, tables, rows, slots, alpha
    rule = theta, passes, star_term, as_printed, np.zeros(0, np.int64)
    load = offsets if all_active else np.concatenate(([0], np.cumsum(offsets[active + 1] - offsets[active])))

    def update(first, last):
        if not (in_place or all_active):
            # Each thread copies the devices from its first active one up to that of the next thread.
            begin, end = active[first] if first else 0, active[last] if last < len(active) else None
            result[begin:end] = centroids[begin:end]
        _update_devices(*arrays, *rule, first, last, result, moves)

    divide(update, load)
    return result, moves


@helper()
def _directed_variation(rows, columns, lowest, labels):
    """Compute one of the two terms of (4): the sum of the distances from each present column to the nearest row."""
    total = 0.0
    for r in range(0, rows.shape[0], 8):
        nearest_rows(rows, rows.shape[0], columns, r, lowest, labels)
        for c in range(r, min(r + 8, rows.shape[0])):
            if lowest[c] < np.inf:
                total += lowest[c]
    return total


@helper()
def _write_columns(table, columns):
    """Write the rows of a table as columns."""
    for c in range(table.shape[0]):
        for f in range(table.shape[1]):
            columns[f, c] = table[c, f]


@compiled_backend(1)
def _gtv(centroids, ids, indptr, indices, slots, begin, end, result):
    """Compute the total variation of the links of the devices `begin` to `end` - 1."""
    k, d = centroids.shape[1:]
    # Columns beyond k are compared, too, and ignored.
    padded = k + -k % 8
    lowest, labels = np.empty(padded), np.empty(padded, np.int64)
    local, received = np.zeros((d, padded)), np.zeros((d, padded))
    for i in range(begin, end):
        _write_columns(centroids[i], local)
        for e in range(indptr[i], indptr[i + 1]):
            if ids[i] < indices[e]:
                _write_columns(centroids[slots[e]], received)
                result[e] = _directed_variation(centroids[slots[e]], local, lowest, labels)
                result[e] += _directed_variation(centroids[i], received, lowest, labels)


def gtv(centroids, ids, indptr, indices, slots):
    """Compute the total variation (4) of every link at its lower end; see `p2pkm.kernels.reference.gtv`."""
    result = np.zeros(len(indices))
    divide(lambda begin, end: _gtv(centroids, ids, indptr, indices, slots, begin, end, result), indptr)
    return result
