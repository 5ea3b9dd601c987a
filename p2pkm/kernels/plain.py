"""The kernels in plain NumPy: the readable form, the oracle of the compiled one, and the path without numba.

Both forms add in the same order (features ascending, points ascending, neighbours ascending), so they return the same
bits: `np.bincount`, `np.cumsum` and `np.add.at` add one term after the other, `np.sum` does not and is not used.
A batch function loops over devices; the function with the underscore above it treats one device.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_LONG = 64  # features from which on a point's distances are added up in lanes
_FEW, _LANES = 8, 128  # labels whose sums go side by side in the plane; points of a block there
_BLOCK = 64  # points that coordinate descent looks at together


def _high(a, b):
    """Return the upper 64 bits of the 128-bit products."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    return a1 * b1 + (middle >> _HALF) + (((middle & _LOW) + a0 * b1) >> _HALF)


def philox(counters: ArrayLike, steps: ArrayLike, keys: ArrayLike, purpose: int) -> Any:
    """Return Philox 4x64-10 (Salmon et al. 2011) of the counters (counter, step, 0, 0) and keys (key, purpose).

    Parameters
    ----------
    counters, steps, keys : uint64, broadcastable to [b]
        Number of the block of four words, second counter word, first key word.
    purpose : int
        Second key word.

    Returns
    -------
    uint64[b, 4]
    """
    c0, c1, k0 = np.broadcast_arrays(*(np.atleast_1d(np.asarray(part, np.uint64)) for part in (counters, steps, keys)))
    c2 = c3 = np.zeros_like(c0)
    k1 = purpose & 0xFFFFFFFFFFFFFFFF
    for _ in range(10):
        h0, l0, h1, l1 = _high(_M0, c0), _M0 * c0, _high(_M1, c2), _M1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ np.uint64(k1), l0
        k0, k1 = k0 + np.uint64(_W0), (k1 + _W1) & 0xFFFFFFFFFFFFFFFF
    return np.stack((c0, c1, c2, c3), axis=-1)


def uniforms(key: int, purpose: int, steps: ArrayLike, count: int) -> Any:
    """Return the first `count` draws from [0, 1) of each of the streams (key, purpose, step), float64[steps, count]."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    steps = np.asarray(steps, np.uint64)
    words = philox(np.tile(blocks, len(steps)), np.repeat(steps, len(blocks)), key, purpose)
    return (words.reshape(len(steps), -1)[:, :count] >> np.uint64(11)) * (1.0 / 9007199254740992.0)


def _squared(a, b):
    """Return the squared distances of the rows of a to the rows of b, float64[a, b], summed in feature order."""
    total = np.zeros((a.shape[0], b.shape[0]))
    for f in range(a.shape[1]):
        difference = a[:, f, None] - b[None, :, f]
        total += difference * difference
    return total


def _apart(points, centroids):
    """Return the squared distances of points to centroids; of 64 features or more in eight lanes, see `lanes.reach`."""
    d = points.shape[1]
    if d < _LONG:
        return _squared(points, centroids)
    lanes = np.zeros((points.shape[0], centroids.shape[0], 8))
    for first in range(0, d, 8):
        part = slice(first, first + 8)
        difference = points[:, None, part] - centroids[None, :, part]
        lanes[:, :, : difference.shape[2]] += difference * difference
    for half in (4, 2, 1):
        lanes = lanes[:, :, :half] + lanes[:, :, half:]
    return lanes[:, :, 0]


def _nearest(distances):
    """Return index and value of each row's least distance, lowest index on ties; -1 and inf where none is finite."""
    if distances.shape[1] == 0:
        return np.full(len(distances), -1), np.full(len(distances), np.inf)
    labels = np.argmin(distances, axis=1)
    lowest = distances[np.arange(len(distances)), labels]
    return np.where(lowest < np.inf, labels, -1), lowest


def _plain(points, weights):
    """Return points and weights, float64[m, d] and float64[m]; no weights stand for 1 each."""
    return np.asarray(points, np.float64), weights if len(weights) == len(points) else np.ones(len(points))


def _sums(points, weights, labels, rows):
    """Return the weighted sums and counts of the points by label (-1: of none), added in the order of the points.

    Of two features and few labels: eight sums side by side in each block of points, see `lanes.sum_where`.
    """
    if points.shape[1] == 2 and rows <= _FEW:
        values = np.column_stack((weights[:, None] * points, weights))
        total = np.zeros((rows, 3))
        for first in range(0, len(points), _LANES):
            block, hit = values[first : first + _LANES], labels[first : first + _LANES, None] == np.arange(rows)
            lanes = np.zeros((-(-len(block) // 8), 8, rows, 3))
            lanes.reshape(-1, rows, 3)[: len(block)] = np.where(hit[:, :, None], block[:, None], 0.0)
            side = np.cumsum(lanes, axis=0)[-1]
            for half in (4, 2, 1):
                side = side[:half] + side[half:]
            total += side[0]
        return total[:, :2], total[:, 2]
    real = labels >= 0
    points, weights, labels = points[real], weights[real], labels[real]
    columns = [np.bincount(labels, weights=weights * x, minlength=rows) for x in (*points.T, 1.0)]
    sums = np.stack(columns, axis=1).astype(np.float64)  # bincount of nothing is whole numbers
    return sums[:, :-1], sums[:, -1]


def _seed(points, weights, k, trials, draws):
    """Return k-means++ seeds (Arthur and Vassilvitskii 2007); with several trials the greedy variant."""
    cumulative = np.cumsum(weights)
    chosen = [_pick(cumulative, draws[0])]
    closest = _squared(points, points[chosen])[:, 0]
    for c in range(1, k):
        cumulative = np.cumsum(weights * closest)
        if not cumulative[-1] > 0.0:
            break
        first = 1 + (c - 1) * trials
        candidates = [_pick(cumulative, draw) for draw in draws[first : first + trials]]
        trial = np.minimum(closest[:, None], _squared(points, points[candidates]))
        best = int(np.argmin(np.cumsum(weights[:, None] * trial, axis=0)[-1]))
        chosen.append(candidates[best])
        closest = trial[:, best]
    return points[chosen]


def _pick(cumulative, draw):
    """Return the first index whose cumulative weight exceeds draw x total (the last one that adds weight otherwise)."""
    index = int(np.searchsorted(cumulative, draw * cumulative[-1], side="right"))
    return index if index < len(cumulative) else int(np.searchsorted(cumulative, cumulative[-1]))


def _fill(weights, rows, labels, distances):
    """Give every empty cluster the point of largest weighted distance among clusters that can spare one."""
    members = np.bincount(labels, minlength=rows)
    for c in np.flatnonzero(members == 0):
        price = np.where(members[labels] > 1, weights * distances, 0.0)
        farthest = int(np.argmax(price))
        if price[farthest] > 0.0:
            members[labels[farthest]] -= 1
            members[c] = 1
            labels[farthest], distances[farthest] = c, 0.0


def _lloyd(points, weights, limit, tol, fill, centroids):
    """Run at most `limit` Lloyd steps, to unchanged labels or a small move; return centroids, counts and cost."""
    rows = len(centroids)
    labels, still = np.full(len(points), -1), False
    for step in range(limit + 1):
        before = labels
        labels, distances = _nearest(_apart(points, centroids))
        if step == limit or still or np.array_equal(labels, before):
            break
        if fill:
            _fill(weights, rows, labels, distances)
        sums, counts = _sums(points, weights, labels, rows)
        filled = counts > 0.0
        centroids, old = centroids.copy(), centroids
        centroids[filled] = sums[filled] / counts[filled, None]
        still = np.cumsum(np.append(0.0, (centroids - old)[filled] ** 2))[-1] < tol
    counts = np.bincount(labels, weights=weights, minlength=rows)
    return centroids, counts, np.cumsum(weights * distances)[-1]


def _kmeans(points, weights, odds, k, trials, starts, limit, tol, draws):
    """Run weighted k-means on one device from `starts` seedings; return the best start, first on ties."""
    centroids, counts, lowest = np.full((k, points.shape[1]), np.inf), np.zeros(k), np.inf
    if len(points) == 0:
        return centroids, counts, 0.0
    for start in range(starts):
        seeds = _seed(points, odds, k, trials, draws[start])
        trial, number, cost = _lloyd(points, weights, limit, tol, True, seeds)
        if cost < lowest:
            lowest = cost
            centroids[:], counts[:] = np.inf, 0.0
            centroids[: len(trial)], counts[: len(trial)] = trial, number
    return centroids, counts, lowest


def kmeans(points, weights, odds, offsets, k, trials, starts, limit, tols, keys, purpose, first):
    """Run the one weighted k-means of the package on every device.

    k-means++ seeds (`trials` candidates each: 1 is plain, 2 + floor(ln k) greedy), Lloyd steps to unchanged labels,
    to `limit` or to a move below `tols`, best cost of `starts`, first on ties; an empty cluster takes the point of
    largest weighted distance.

    Parameters
    ----------
    points : float64[m, d] or float32[m, d]
    weights, odds : float64[m]
        What a point weighs, and what it weighs in the draw of the seeds; empty: 1 each. So for all kernels.
    offsets : int64[n + 1]
        Points ``offsets[i]:offsets[i + 1]`` belong to device i.
    k, trials, starts, limit : int
    tols : float64[n]
        Stop when the squared moves of a step add up to less; 0: never.
    keys : uint64[n]
        Key of each device's random stream.
    purpose, first : int
        Which stream, and the number of the first start in it.

    Returns
    -------
    centroids : float64[n, k, d]
        Absent rows (fewer than k distinct points) are +inf.
    counts : float64[n, k]
        Weight of the points nearest to each centroid.
    costs : float64[n]
    """
    n, (points, weights) = len(offsets) - 1, _plain(points, weights)
    odds = _plain(points, odds)[1]
    centroids, counts, costs = np.empty((n, k, points.shape[1])), np.empty((n, k)), np.empty(n)
    for i in range(n):
        own = slice(offsets[i], offsets[i + 1])
        draws = uniforms(keys[i], purpose, np.arange(first, first + starts), 1 + (k - 1) * trials)
        centroids[i], counts[i], costs[i] = _kmeans(
            points[own], weights[own], odds[own], k, trials, starts, limit, tols[i], draws
        )
    return centroids, counts, costs


def refine(points, weights, offsets, start, rows, limit, tols, fill):
    """Run Lloyd steps on every device from given centroids.

    Parameters
    ----------
    points, weights, offsets, limit, tols
        As in `kmeans`.
    start : float64[n, k, d]
    rows : int64[n]
        How many of them are real; the others stay absent.
    fill : bool
        Whether a cluster without points takes the point of largest weighted distance; otherwise it stays where it is.

    Returns
    -------
    centroids : float64[n, k, d]
    counts : float64[n, k]
        Weight of the points nearest to each centroid.
    costs : float64[n]
    """
    points, weights = _plain(points, weights)
    centroids, counts, costs = np.full_like(start, np.inf), np.zeros(start.shape[:2]), np.zeros(len(rows))
    for i, r in enumerate(rows):
        own = slice(offsets[i], offsets[i + 1])
        centroids[i, :r] = start[i, :r]
        if r > 0 and offsets[i] < offsets[i + 1]:
            centroids[i, :r], counts[i, :r], costs[i] = _lloyd(
                points[own], weights[own], limit, tols[i], fill, centroids[i, :r]
            )
    return centroids, counts, costs


def _best_moves(points, weights, labels, centroids, mass, members):
    """Return the cluster in which each point costs least; its own if none is better, or if it is alone there."""
    each, distances = np.arange(len(points)), _squared(points, centroids)
    prices = mass / (mass + weights[:, None]) * distances
    prices[each, labels] = np.inf
    best, free = np.argmin(prices, axis=1), (members[labels] > 1) & (mass[labels] > weights)
    rest = np.where(free, mass[labels] - weights, 1.0)
    return np.where(free & (prices[each, best] < mass[labels] / rest * distances[each, labels]), best, labels)


def cdkm(points, weights, start, limit):
    """Run coordinate descent on k-means (Nie et al. 2022) on one table of points from given centroids.

    From the nearest centroids and the means of what is nearest, the points in order, again and again: a point that is
    not alone in its cluster p goes to the cheapest q (lowest index on ties) if ``n_q / (n_q + u) |x - w_q|^2`` is less
    than ``n_p / (n_p - u) |x - w_p|^2``, u its weight, n and w weights and means of the clusters.

    Parameters
    ----------
    points : float64[m, d]
    weights : float64[m]
    start : float64[k, d]
        No row is absent.
    limit : int
        At most so many sweeps over the points; fewer when a sweep moves none. Means are computed anew before each.

    Returns
    -------
    centroids : float64[k, d]
        The means of the clusters.
    cost : float
        Of every point to the mean of its cluster.
    """
    centroids, k, (points, weights) = start.copy(), len(start), _plain(points, weights)
    labels, _ = _nearest(_apart(points, centroids))
    moved = True
    for sweep in range(limit + 1):
        sums, mass = _sums(points, weights, labels, k)
        members = np.bincount(labels, minlength=k)
        centroids[members > 0] = sums[members > 0] / mass[members > 0, None]
        if sweep == limit or not moved:
            break
        moved = False
        r = 0
        while r < len(points):  # the points up to the first that moves see the same clusters
            block = slice(r, r + _BLOCK)
            best = _best_moves(points[block], weights[block], labels[block], centroids, mass, members)
            movers = np.flatnonzero(best != labels[block])
            if len(movers) == 0:
                r += _BLOCK
                continue
            r += int(movers[0])
            for c, sign in ((labels[r], -1), (best[movers[0]], 1)):
                members[c] += sign
                mass[c] += sign * weights[r]
                sums[c] += sign * (weights[r] * points[r])
                centroids[c] = sums[c] / mass[c]
            moved, labels[r] = True, best[movers[0]]
            r += 1
    lowest = _squared(points, centroids)[np.arange(len(points)), labels]
    return centroids, np.cumsum(np.append(0.0, weights * lowest))[-1]


def _memberships(points, centroids):
    """Return the memberships of every point, exponent 2: 1 at the first centroid that it lies on."""
    distances = _squared(points, centroids)
    nearest, lowest = _nearest(distances)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = lowest[:, None] / distances
        members = shares / np.cumsum(shares, axis=1)[:, -1:]
    on = lowest == 0.0
    members[on] = nearest[on, None] == np.arange(len(centroids))
    return members


def _fuzzy(points, weights, centroids, limit, tol):
    """Run fuzzy c-means on one device that has points; return centroids and supports."""
    members = _memberships(points, centroids)
    for _ in range(limit):
        before, masses = members, weights[:, None] * (members * members)
        divisors = np.cumsum(masses, axis=0)[-1]
        sums = np.stack([np.cumsum(masses * x[:, None], axis=0)[-1] for x in points.T], axis=1) + 0.0  # no -0.0
        filled = divisors > 0.0
        centroids = centroids.copy()
        centroids[filled] = sums[filled] / divisors[filled, None]
        members = _memberships(points, centroids)
        moves = members - before
        if np.cumsum(weights[:, None] * (moves * moves))[-1] < tol * tol:
            break
    return centroids, np.cumsum(weights[:, None] * members, axis=0)[-1]


def fuzzy(points, weights, offsets, start, rows, limit, tol):
    """Run fuzzy c-means (Bezdek 1981) with exponent 2 on every device from given centroids.

    Memberships ``u_rc = 1 / sum_b |x_r - c|^2 / |x_r - b|^2`` and centroids ``sum_r u_rc^2 x_r / sum_r u_rc^2`` in
    turn; a centroid without any membership stays where it is.

    Parameters
    ----------
    points, weights, offsets
        As in `kmeans`.
    start : float64[n, k, d]
    rows : int64[n]
        How many of them are real; the others stay absent.
    limit : int
        At most so many updates of the centroids.
    tol : float
        Stop when the memberships moved by less, in the Frobenius norm (a point counts by its weight).

    Returns
    -------
    centroids : float64[n, k, d]
    supports : float64[n, k]
        Weighted sum of the memberships in the returned centroids.
    """
    points, weights = _plain(points, weights)
    centroids, supports = np.full_like(start, np.inf), np.zeros(start.shape[:2])
    for i, r in enumerate(rows):
        own = slice(offsets[i], offsets[i + 1])
        centroids[i, :r] = start[i, :r]
        if r > 0 and offsets[i] < offsets[i + 1]:
            centroids[i, :r], supports[i, :r] = _fuzzy(points[own], weights[own], start[i, :r], limit, tol)
    return centroids, supports


def _match(centroids, table, alpha, star, printed, sums, counts):
    """Add what E2 and E3 match at one neighbour to the numerator and the divisor of line 21 and 22."""
    distances = _squared(centroids, table)
    distances[np.isnan(distances)] = np.inf
    scaled = table if printed else alpha * table
    nearest, _ = _nearest(distances.T)  # E2: a = the own row nearest to the neighbour's row
    real = nearest >= 0
    np.add.at(sums, nearest[real], scaled[real])
    np.add.at(counts, nearest[real], alpha)
    if star:
        nearest, _ = _nearest(distances)  # E3: b = the neighbour's row nearest to the own row
        real = nearest >= 0
        sums[real] += scaled[nearest[real]]
        counts[real] += alpha


def _gtvmin(points, weights, centroids, tables, alpha, theta, passes, star, printed):
    """Update the centroids of one device (Jung 2025, Algorithm 1, corrected); `tables` are its neighbours' rows."""
    k = len(centroids)
    for _ in range(passes):
        labels, _ = _nearest(_apart(points, centroids))  # E1
        sums, counts = _sums(points, weights, labels, k)
        for table, strength in zip(tables, alpha, strict=True):
            _match(centroids, table, strength, star, printed, sums, counts)
        divisor = np.maximum(counts, 1.0) if printed else counts
        moved = (divisor > 0.0) & (centroids[:, 0] < np.inf)  # M
        new = sums[moved] / divisor[moved, None]
        centroids = centroids.copy()
        centroids[moved] = new if theta == 1.0 else centroids[moved] + theta * (new - centroids[moved])
    return centroids


def gtvmin(
    points, weights, offsets, centroids, previous, awake, indptr, tables, rows, slots, mirror, alpha, theta, passes,
    star, printed,
):  # fmt: skip
    """Update the centroids of every awake device by `passes` times E1, E2, E3 and M.

    Parameters
    ----------
    points, weights, offsets
        As in `kmeans`.
    centroids : float64[n, k, d]
        Absent rows are +inf: they match nothing and stay absent.
    previous : float64[n, k, d]
        Other centroids, with the same rows absent, from which the moves are measured, too.
    awake : bool[n]
    indptr : int64[n + 1]
        Links ``indptr[i]:indptr[i + 1]`` belong to device i, neighbours in ascending id.
    tables, rows, slots : float64[s, r, w], int64[s], int64[e]
        What was last heard over each link (slot -1: nothing yet); the first n tables are those of the devices.
    mirror : int64[e]
        The same link at its other end, -1 where that is not in the batch.
    alpha : float64[e]
        Strength of each link.
    theta : float
        Relaxation inside every pass.
    passes : int
    star, printed : bool
        Whether E3 counts; whether to divide as the printed algorithm does.

    Returns
    -------
    centroids : float64[n, k, d]
    moves : float64[n, 2]
        Largest move of any coordinate of an awake device from `centroids` and from `previous`.
    """
    result, d, (points, weights) = centroids.copy(), centroids.shape[2], _plain(points, weights)
    moves = np.zeros((len(centroids), 2))
    for i in np.flatnonzero(awake):
        own = slice(offsets[i], offsets[i + 1])
        links = [e for e in range(indptr[i], indptr[i + 1]) if slots[e] >= 0]
        heard = [tables[slots[e], : rows[slots[e]], :d] for e in links]
        result[i] = _gtvmin(points[own], weights[own], result[i], heard, alpha[links], theta, passes, star, printed)
        real = result[i, :, 0] < np.inf
        moves[i] = [np.abs(result[i, real] - old[i, real]).max(initial=0.0) for old in (centroids, previous)]
    return result, moves


def _one_sided(distances):
    """Return one of the two terms of (4): the sum over the real rows of their least distance, row after row."""
    _, lowest = _nearest(distances)
    return np.cumsum(np.append(0.0, lowest[lowest < np.inf]))[-1]


def gtv(centroids, ids, indptr, indices, slots):
    """Return the variation (4) of every link at its lower end, 0 at the upper one.

    Parameters
    ----------
    centroids : float64[s, k, d]
        Own devices first, then the neighbours on other ranks.
    ids : int64[n]
    indptr, indices, slots : int64
        Own links: neighbour's id and where its centroids are.

    Returns
    -------
    float64[e]
    """
    result = np.zeros(len(indices))
    for i in range(len(ids)):
        for e in range(indptr[i], indptr[i + 1]):
            if ids[i] < indices[e]:
                with np.errstate(invalid="ignore"):
                    distances = _squared(centroids[i], centroids[slots[e]])
                distances[np.isnan(distances)] = np.inf
                result[e] = _one_sided(distances) + _one_sided(distances.T)
    return result


def losses(points: Any, weights: Any, offsets: Any, centroids: Any) -> Any:
    """Return (6) of every device on its own points, float64[n], and the label of each point, int64[m]."""
    n, (points, weights) = len(offsets) - 1, _plain(points, weights)
    costs, labels = np.zeros(n), np.empty(len(points), np.int64)
    for i in range(n):
        own = slice(offsets[i], offsets[i + 1])
        labels[own], lowest = _nearest(_apart(points[own], centroids[i]))
        costs[i] = np.cumsum(np.append(0.0, weights[own] * lowest))[-1]
    return costs, labels


def price(points, weights, offsets, classes, n_classes, sets):
    """Price every set of centroids on the points of every device.

    Returns
    -------
    costs : float64[n, q]
        Cost (2) of set q on the points of device i.
    tables : int64[q, n_classes, k]
        How many points of a class each centroid of set q attracts, over this batch.
    """
    n, q, k, (points, weights) = len(offsets) - 1, len(sets), sets.shape[1], _plain(points, weights)
    costs, tables = np.zeros((n, q)), np.zeros((q, n_classes, k), np.int64)
    for i in range(n if q else 0):
        own = slice(offsets[i], offsets[i + 1])
        distances = _apart(points[own], sets.reshape(q * k, -1)).reshape(-1, k)
        labels, lowest = (part.reshape(-1, q) for part in _nearest(distances))
        costs[i] = np.cumsum(np.vstack((np.zeros(q), weights[own, None] * lowest)), axis=0)[-1]
        for s in range(q if n_classes else 0):
            real = labels[:, s] >= 0
            np.add.at(tables[s], (classes[own][real], labels[real, s]), 1)
    return costs, tables


def moments(points: Any, weights: Any, offsets: Any, center: Any) -> Any:
    """Add up the points of every device in their order.

    Parameters
    ----------
    points : float64[m, d]
    weights : float64[m] or float64[0]
        Empty: all 1.
    offsets : int64[n + 1]
    center : float64[d]

    Returns
    -------
    float64[n, 1 + 2 d]
        Sums of the weights, of weight x (point - center), and of weight x (point - center)^2.
    """
    n = len(offsets) - 1
    owner, mass = np.repeat(np.arange(n), np.diff(offsets)), weights if len(weights) else np.ones(len(points))
    apart = points - center
    with np.errstate(over="ignore"):
        columns = np.concatenate((mass[None], mass * apart.T, mass * (apart * apart).T))
    sums = np.stack([np.bincount(owner, column, n) for column in columns], axis=1)
    return sums.astype(np.float64)  # bincount of nothing is whole numbers


def tabulate(offsets: Any, classes: Any, labels: Any, n_classes: int, k: int) -> Any:
    """Count the points of each class that every device gave each of k labels, int64[n, n_classes, k]; -1 = no label."""
    tables = np.zeros((len(offsets) - 1, n_classes, k), np.int64)
    owner, real = np.repeat(np.arange(len(tables)), np.diff(offsets)), labels >= 0
    np.add.at(tables, (owner[real], classes[real], labels[real]), 1)
    return tables


def digest(tables: Any) -> Any:
    """Return SHA-256 (FIPS 180-4) of the bytes of each table of float64[n, k, d], uint8[n, 32]."""
    size = tables[:1].nbytes
    contents, sha256 = tables.tobytes(), hashlib.sha256
    digests = [sha256(contents[first : first + size]).digest() for first in range(0, len(contents), max(size, 1))]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)


def merge(tables, rows, slots, fresh, indptr, known, store_tables, store_rows):
    """Take in the tables that were just heard: who knows which origin now, and what was new to each device.

    Parameters
    ----------
    tables, rows, slots, fresh, indptr
        As in `gtvmin`; column 0 of a row is the id of the device that it comes from.
    known : bool[n, N]
        Which of the N devices' tables each device of the batch holds.
    store_tables, store_rows : float64[N, r, w], int64[N]
        Every table that some device of the batch holds, once; rows -1: none does.

    Returns
    -------
    known, news, store_tables, store_rows
        New arrays; `news` is bool[n, N].
    """
    known, store_tables, store_rows = known.copy(), store_tables.copy(), store_rows.copy()
    news = np.zeros(known.shape, np.bool_)
    for i in range(len(known)):
        for e in np.flatnonzero(fresh[indptr[i] : indptr[i + 1]]) + indptr[i]:
            table = tables[slots[e], : rows[slots[e]], : 1 + store_tables.shape[2]]
            origins = table[:, 0].astype(np.int64)
            unknown = origins[~known[i, origins]]
            known[i, unknown] = news[i, unknown] = True
            for origin in np.unique(origins[store_rows[origins] < 0]):
                own = table[origins == origin, 1:]
                store_rows[origin] = len(own)
                store_tables[origin, : len(own)] = own
    return known, news, store_tables, store_rows


def bundle(news, store_tables, store_rows):
    """Write the rows of every device's new origins one after another, the origin's id in front.

    Returns
    -------
    values : float64[n, r, 1 + w]
    rows : int64[n]
    """
    rows = news @ np.maximum(store_rows, 0)
    values = np.zeros((len(news), max(1, rows.max(initial=0)), 1 + store_tables.shape[2]))
    for i in range(len(news)):
        q = 0
        for origin in np.flatnonzero(news[i]):
            end = q + store_rows[origin]
            values[i, q:end, 0] = origin
            values[i, q:end, 1:] = store_tables[origin, : store_rows[origin]]
            q = end
    return values, rows


def color(indptr, indices):
    """Give every device the smallest colour that no lower neighbour has, in ascending id.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbours of each device.

    Returns
    -------
    int64[n]
    """
    colors = [0] * (len(indptr) - 1)
    neighbors = indices.tolist()
    for i, (first, last) in enumerate(zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)):
        taken = {colors[j] for j in neighbors[first:last] if j < i}
        color = 0
        while color in taken:
            color += 1
        colors[i] = color
    return np.array(colors, np.int64)


def layers(indptr, indices, roots):
    """Search breadth first from all roots at once.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbours of each device.
    roots : int64[r]

    Returns
    -------
    int64[n]
        Number of links to the nearest root, -1 where there is no path.
    """
    layer = np.full(len(indptr) - 1, -1)
    depth, front = 0, np.unique(roots)
    layer[front] = 0
    while len(front):
        depth += 1
        counts = indptr[front + 1] - indptr[front]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        reached = indices[np.repeat(indptr[front], counts) + within]
        front = np.unique(reached[layer[reached] < 0])
        layer[front] = depth
    return layer


def components(indptr, indices):
    """Give every device the number of its component, counted by their lowest devices.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbours of each device.

    Returns
    -------
    int64[n]
        Component of each device.
    """
    component, count = np.full(len(indptr) - 1, -1), 0
    for device in range(len(component)):
        if component[device] < 0:
            component[layers(indptr, indices, np.array([device])) >= 0] = count
            count += 1
    return component


def mirror(indptr, indices):
    """Find the opposite (j, i) of every directed edge (i, j) of a graph.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbours of each device, ascending.

    Returns
    -------
    int64[e]
    """
    sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.lexsort((sources, indices))
