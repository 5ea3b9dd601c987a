"""Compiled weighted k-means: k-means++ seeding (greedy or plain), Lloyd steps, best of several starts."""

import numpy as np

from p2pkm.kernels.numba.compiling import compiled_backend, helper, kernel
from p2pkm.kernels.numba.nearest import _add, _label, _label_distances, _prepare_labels, _transpose, _workspace
from p2pkm.kernels.numba.philox import _uniforms
from p2pkm.kernels.numba.simd import WIDTH, four_rows
from p2pkm.kernels.numba.threads import divide

# Points whose distances to all trials are computed at a time: they stay in the first-level cache.
_SEEDED = 512


@helper(inline="always")
def _squared(a, b):
    """Compute the squared distance of two rows, summed in feature order."""
    total = 0.0
    for f in range(a.shape[0]):
        total += (a[f] - b[f]) * (a[f] - b[f])
    return total


@helper(inline="always")
def _copy(source, target):
    """Copy a row; an array assignment would also compile an error message about shapes."""
    for f in range(source.shape[0]):
        target[f] = source[f]


@helper(inline="always")
def _pick(cumulative, target):
    """Find the first index whose cumulative weight exceeds the target, otherwise the last one with a weight."""
    last = cumulative.shape[0] - 1
    low, high = 0, last + 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > target:
            high = middle
        else:
            low = middle + 1
    if low <= last:
        return low
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] >= cumulative[last]:
            high = middle
        else:
            low = middle + 1
    return low


@helper()
def _measure(seeds, columns, trials, first, count, scratch, row):
    """Compute the squared distances of a block of points to the first `trials` seeds.

    columns: float64[d, m], points by feature. Distances are written to the rows of `scratch` from `row` on; up to two
    more rows are overwritten.
    """
    # A single seed, and a block of fewer than eight points, are not measured in tiles of four and eight.
    in_tiles = 0 if count < WIDTH else trials - (trials % 4 == 1)
    for t in range(0, in_tiles, 4):
        for r in range(0, count, WIDTH):
            # The last tile overlaps the one before.
            four_rows(seeds, t, trials - 1, columns, first + min(r, count - WIDTH), scratch, row + t)
    for t in range(in_tiles, trials):
        # Of a C-ordered array, such a slice is known to be contiguous.
        distances = scratch[row + t, first : first + count]
        distances[:] = 0.0
        for f in range(columns.shape[0]):
            column, value = columns[f, first : first + count], seeds[t, f]
            for r in range(count):
                distances[r] += (column[r] - value) * (column[r] - value)


@helper()
def _lower(weights, trials, first, count, scratch, potentials):
    """Lower the distances of a block of points to those of the closest seed, and add them up for every trial.

    The sum of a trial waits for every single addition. Sums of four trials do not wait for each other.
    """
    last, span = trials - 1, slice(first, first + count)
    mass, closest = weights[span], scratch[0, span]
    for t in range(trials):
        distances = scratch[2 + t, span]
        for r in range(count):
            distances[r] = min(closest[r], distances[r])
    for t in range(0, trials, 4):
        # Fewer than four trials: the last one is added up several times.
        t1, t2, t3 = min(t + 1, last), min(t + 2, last), min(t + 3, last)
        p0, p1, p2, p3 = potentials[t], potentials[t1], potentials[t2], potentials[t3]
        d0, d1, d2, d3 = scratch[2 + t, span], scratch[2 + t1, span], scratch[2 + t2, span], scratch[2 + t3, span]
        for r in range(count):
            p0 += mass[r] * d0[r]
            p1 += mass[r] * d1[r]
            p2 += mass[r] * d2[r]
            p3 += mass[r] * d3[r]
        potentials[t], potentials[t1], potentials[t2], potentials[t3] = p0, p1, p2, p3


@helper(inline="always")
def _seed(points, columns, weights, k, trials, key, purpose, start, centroids, scratch, draws):
    """Draw k-means++ seeds to `centroids` (best of `trials` candidates each); return the number of rows.

    scratch: float64[4 + trials or more, m or more]; draws: float64[1 + (k - 1) trials or more], scratch array.
    """
    m = points.shape[0]
    closest, cumulative = scratch[0, :m], scratch[1, :m]
    seeds, potentials, total = np.empty((trials, points.shape[1])), np.empty(trials), 0.0
    _uniforms(key, purpose, start, draws)
    for r in range(m):
        total += weights[r]
        cumulative[r] = total
    _copy(points[_pick(cumulative, draws[0] * cumulative[m - 1])], seeds[0])
    _copy(seeds[0], centroids[0])
    for first in range(0, m, _SEEDED):
        _measure(seeds, columns, 1, first, min(_SEEDED, m - first), scratch, 0)
    for c in range(1, k):
        total = 0.0
        for r in range(m):
            total += weights[r] * closest[r]
            cumulative[r] = total
        if not total > 0.0:
            return c
        for t in range(trials):
            _copy(points[_pick(cumulative, draws[1 + (c - 1) * trials + t] * total)], seeds[t])
            potentials[t] = 0.0
        for first in range(0, m, _SEEDED):
            count = min(_SEEDED, m - first)
            _measure(seeds, columns, trials, first, count, scratch, 2)
            _lower(weights, trials, first, count, scratch, potentials)
        lowest, best = np.inf, 0
        for t in range(trials):
            if potentials[t] < lowest:
                lowest = potentials[t]
                _copy(seeds[t], centroids[c])
                best = t
        if lowest < np.inf:
            _copy(scratch[2 + best, :m], closest)
    return k


@helper(inline="always")
def _assign(points, weights, centroids, rows, radius, labels, distances, sums, counts, workspace):
    """Assign points to the nearest of the first `rows` centroids, and sum them; return whether a label changed.

    workspace: from `_workspace`, for at least as many centroids; reused, since allocation takes longer than ten points.
    """
    block, squared, lowest, nearest, singles = workspace
    lanes, changed = nearest.shape[0], False
    sums[:] = 0.0
    counts[:] = 0.0
    for first in range(0, points.shape[0], lanes):
        count = min(lanes, points.shape[0] - first)
        _label(points, first, count, centroids, rows, radius, singles, block, squared, lowest, nearest)
        for r in range(count):
            nearest[r] = max(nearest[r], 0)
            changed |= labels[first + r] != nearest[r]
            labels[first + r] = nearest[r]
            distances[first + r] = lowest[r]
        _add(points, weights, first, count, rows, sums, counts, block, nearest)
    return changed


@helper()
def _collect(points, weights, rows, labels, sums, counts, workspace):
    """Sum the points by cluster again, after labels were changed."""
    block, nearest = workspace[0], workspace[3]
    sums[:] = 0.0
    counts[:] = 0.0
    for first in range(0, points.shape[0], nearest.shape[0]):
        count = min(nearest.shape[0], points.shape[0] - first)
        _transpose(points, first, count, block)
        for r in range(count):
            nearest[r] = labels[first + r]
        _add(points, weights, first, count, rows, sums, counts, block, nearest)


@helper(inline="always")
def _fill(weights, rows, labels, distances):
    """Move the point of largest weighted distance, from clusters with several points, to every empty cluster."""
    members, weighted = np.zeros(rows, np.int64), weights.shape[0] > 0
    for label in labels:
        members[label] += 1
    for c in range(rows):
        if members[c] == 0:
            farthest, largest = -1, 0.0
            for r in range(labels.shape[0]):
                cost = weights[r] * distances[r] if weighted else distances[r]
                if members[labels[r]] > 1 and cost > largest:
                    farthest, largest = r, cost
            if farthest >= 0:
                members[labels[farthest]] -= 1
                members[c] = 1
                labels[farthest] = c
                distances[farthest] = 0.0


@helper()
def _lloyd(points, weights, limit, tol, fill, centroids, rows, counts, sums, labels, distances, workspace):
    """Run at most `limit` Lloyd steps in place, until labels are unchanged or moves small; return the final cost.

    sums, labels, distances, workspace: scratch arrays.
    """
    m, d = points.shape
    for r in range(m):
        labels[r] = -1
    has_settled, radius = False, np.inf
    for step in range(limit + 1):
        radius = _prepare_labels(centroids, rows, m, workspace[4])
        changed = _assign(points, weights, centroids, rows, radius, labels, distances, sums, counts, workspace)
        if step == limit or has_settled or not changed:
            break
        empty = False
        for c in range(rows):
            empty |= counts[c] == 0.0
        if fill and empty:
            if radius < np.inf:
                _label_distances(points, centroids, labels, distances)
            _fill(weights, rows, labels, distances)
            _collect(points, weights, rows, labels, sums, counts, workspace)
        move = 0.0
        for c in range(rows):
            if counts[c] > 0.0:
                for f in range(d):
                    new = sums[c, f] / counts[c]
                    move += (new - centroids[c, f]) * (new - centroids[c, f])
                    centroids[c, f] = new
        has_settled = move < tol
    cost = 0.0
    counts[:] = 0.0
    if radius < np.inf:
        _label_distances(points, centroids, labels, distances)
    for r in range(m):
        weight = weights[r] if weights.shape[0] > 0 else 1.0
        counts[labels[r]] += weight
        cost += weight * distances[r]
    return cost


@helper(inline="always")
def _kmeans(
    points, weights, odds, k, trials, starts, limit, tol, key, purpose, first, centroids, counts, scratch_arrays
):
    """Run k-means on one device; write the best start (first on ties) to `centroids` and `counts`; return its cost.

    scratch_arrays: from `_allocate`.
    """
    scratch, labels, coordinates, trial, number, sums, draws, workspace = scratch_arrays
    m, d = points.shape
    centroids[:] = np.inf
    counts[:] = 0.0
    lowest = np.inf
    if m == 0:
        return 0.0
    columns = coordinates[: d * m].reshape(d, m)
    for r in range(m):
        for f in range(d):
            columns[f, r] = points[r, f]
    for start in range(first, first + starts):
        trial[:] = np.inf
        number[:] = 0.0
        rows = _seed(points, columns, odds, k, trials, key, purpose, start, trial, scratch, draws)
        cost = _lloyd(
            points,
            weights,
            limit,
            tol,
            np.bool_(True),
            trial,
            rows,
            number,
            sums,
            labels[:m],
            scratch[0, :m],
            workspace,
        )
        if cost < lowest:
            lowest = cost
            for c in range(k):
                _copy(trial[c], centroids[c])
            _copy(number, counts)
    return lowest


@helper()
def _allocate(most, k, d, trials):
    """Allocate the scratch arrays of k-means for up to `most` points; once for all devices.

    Four numbers, one for each trial, and a label per point, coordinates, centroids, counts, sums, draws, and the
    workspace of `_nearest`.
    """
    by_point = np.empty((4 + trials, most)), np.empty(most, np.int64), np.empty(d * most)
    draws = np.empty((k - 1) * trials // 4 * 4 + 4)
    return *by_point, np.empty((k, d)), np.empty(k), np.empty((k, d)), draws, _workspace(k, d)


@compiled_backend(3)
def _devices(
    points, weights, odds, offsets, k, trials, starts, limit, tols, keys, purpose, number, first, last, centroids,
    counts, costs,
):  # fmt: skip
    """Run k-means on the devices `first` to `last` - 1."""
    most = 0
    for i in range(first, last):
        most = max(most, offsets[i + 1] - offsets[i])
    unit_weights, scratch_arrays = np.ones(most), _allocate(most, k, points.shape[1], trials)
    for i in range(first, last):
        span = slice(offsets[i], offsets[i + 1])
        draw_weights = odds[span] if odds.shape[0] > 0 else unit_weights[: offsets[i + 1] - offsets[i]]
        costs[i] = _kmeans(
            points[span], weights[span], draw_weights, k, trials, starts, limit, tols[i], keys[i], purpose, number,
            centroids[i], counts[i], scratch_arrays,
        )  # fmt: skip


def kmeans(points, weights, odds, offsets, k, trials, starts, limit, tols, keys, purpose, first):
    """Run k-means on every device; see `p2pkm.kernels.reference.kmeans`."""
    n, d = len(offsets) - 1, points.shape[1]
    results = np.empty((n, k, d)), np.empty((n, k)), np.empty(n)
    args = points, weights, odds, offsets, k, trials, starts, limit, tols, keys, purpose, first
    divide(lambda begin, end: _devices(*args, begin, end, *results), offsets)
    return results


@kernel
def refine(points, weights, offsets, start, rows, limit, tols, fill):
    """Run Lloyd steps on every device from initial centroids; see `p2pkm.kernels.reference.refine`."""
    centroids, counts, costs = np.full_like(start, np.inf), np.zeros(start.shape[:2]), np.zeros(len(rows))
    most = 0
    for i in range(len(rows)):
        most = max(most, offsets[i + 1] - offsets[i])
    scratch, labels, _, _, _, sums, _, workspace = _allocate(most, start.shape[1], start.shape[2], 1)
    for i in range(len(rows)):
        span, m = slice(offsets[i], offsets[i + 1]), offsets[i + 1] - offsets[i]
        for c in range(rows[i]):
            _copy(start[i, c], centroids[i, c])
        if rows[i] > 0 and m > 0:
            costs[i] = _lloyd(
                points[span], weights[span], limit, tols[i], fill, centroids[i], rows[i], counts[i], sums, labels[:m],
                scratch[0, :m], workspace,
            )  # fmt: skip
    return centroids, counts, costs
