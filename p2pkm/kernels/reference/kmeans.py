"""k-means on every device: seeds and Lloyd steps."""

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, _squared, _sums, find_nearest, measure_distances
from p2pkm.kernels.reference.philox import uniforms

_TOGETHER = 1 << 16  # distances that starts look at together


def _seed(points, weights, k, trials, draws):
    """Return k-means++ seeds (Arthur and Vassilvitskii 2007) for each row of draws; several trials: the greedy variant.

    All rows are at the same seed at a time: of few points a step of one takes as long as a step of all.
    """
    chosen = np.full((len(draws), k), -1)
    chosen[:, 0] = _pick(np.cumsum(weights), draws[:, 0])
    closest, going = _squared(points, points[chosen[:, 0]]).T, np.arange(len(draws))
    for c in range(1, k):
        cumulative = np.cumsum(weights * closest, axis=1)
        more = cumulative[:, -1] > 0.0
        if not more.all():
            going, closest, cumulative = going[more], closest[more], cumulative[more]
            if not len(going):
                break
        first = 1 + (c - 1) * trials
        candidates = np.array([
            _pick(*row) for row in zip(cumulative, draws[going, first : first + trials], strict=True)
        ])
        trial = _squared(points, points[candidates.ravel()]).T.reshape(*candidates.shape, -1)
        np.minimum(closest[:, None], trial, out=trial)
        each = np.arange(len(going))
        best = np.argmin(np.cumsum(weights * trial, axis=2)[:, :, -1], axis=1)
        chosen[going, c], closest = candidates[each, best], trial[each, best]
    return [points[found[found >= 0]] for found in chosen]


def _pick(cumulative, draws):
    """Return the first indices whose cumulative weight exceeds draw x total (else the last that adds weight)."""
    found = cumulative.searchsorted(draws * cumulative[-1], side="right")
    if found.max(initial=0) == len(cumulative):
        found[found == len(cumulative)] = cumulative.searchsorted(cumulative[-1])
    return found


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


def run_lloyd(points, weights, limit, tol, fill, centroids):
    """Run at most `limit` Lloyd steps, to unchanged labels or a small move; return centroids, counts and cost."""
    rows = len(centroids)
    labels, still = np.full(len(points), -1), False
    for step in range(limit + 1):
        before = labels
        labels, distances = find_nearest(measure_distances(points, centroids))
        if step == limit or still or np.array_equal(labels, before):
            break
        if fill:
            _fill(weights, rows, labels, distances)
        sums, counts = _sums(points, weights, labels, rows)
        filled = counts > 0.0
        centroids, old = centroids.copy(), centroids
        centroids[filled] = sums[filled] / counts[filled, None]
        still = tol > 0.0 and np.cumsum(np.append(0.0, (centroids - old)[filled] ** 2))[-1] < tol
    counts = np.bincount(labels, weights=weights, minlength=rows)
    return centroids, counts, np.cumsum(weights * distances)[-1]


def _kmeans(points, weights, odds, k, trials, starts, limit, tol, draws):
    """Run weighted k-means on one device from `starts` seedings; return the best start, first on ties."""
    centroids, counts, lowest = np.full((k, points.shape[1]), np.inf), np.zeros(k), np.inf
    if len(points) == 0:
        return centroids, counts, 0.0
    together = max(_TOGETHER // (trials * len(points)), 1)
    for begin in range(0, starts, together):
        for seeds in _seed(points, odds, k, trials, draws[begin : begin + together]):
            trial, number, cost = run_lloyd(points, weights, limit, tol, True, seeds)
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
            centroids[i, :r], counts[i, :r], costs[i] = run_lloyd(
                points[own], weights[own], limit, tols[i], fill, centroids[i, :r]
            )
    return centroids, counts, costs
