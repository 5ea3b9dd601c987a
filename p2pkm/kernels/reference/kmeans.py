"""Weighted k-means on every device: k-means++ seeding and Lloyd steps."""

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, _squared, _sums, find_nearest, measure_distances
from p2pkm.kernels.reference.philox import uniforms

# Distances computed together, over several starts; limits temporary arrays to 512 KiB.
_MAX_DISTANCES = 1 << 16


def _seed(points, weights, k, trials, draws):
    """Draw k-means++ seeds (Arthur and Vassilvitskii 2007) for each row of draws; greedy with several trials.

    All rows are processed together: with few points, a step for one row takes as long as for all.
    """
    chosen = np.full((len(draws), k), -1)
    chosen[:, 0] = _pick(np.cumsum(weights), draws[:, 0])
    closest = _squared(points, points[chosen[:, 0]]).T
    unfinished = np.arange(len(draws))
    for c in range(1, k):
        cumulative = np.cumsum(weights * closest, axis=1)
        # If all remaining distances are 0, there are fewer than k distinct points.
        has_candidates = cumulative[:, -1] > 0.0
        if not has_candidates.all():
            unfinished = unfinished[has_candidates]
            closest = closest[has_candidates]
            cumulative = cumulative[has_candidates]
            if not len(unfinished):
                break
        first = 1 + (c - 1) * trials
        candidates = np.array([
            _pick(*row) for row in zip(cumulative, draws[unfinished, first : first + trials], strict=True)
        ])
        trial = _squared(points, points[candidates.ravel()]).T.reshape(*candidates.shape, -1)
        np.minimum(closest[:, None], trial, out=trial)
        rows = np.arange(len(unfinished))
        best = np.argmin(np.cumsum(weights * trial, axis=2)[:, :, -1], axis=1)
        chosen[unfinished, c] = candidates[rows, best]
        closest = trial[rows, best]
    return [points[indices[indices >= 0]] for indices in chosen]


def _pick(cumulative, draws):
    """Find the first index whose cumulative weight exceeds draw x total, for each draw."""
    indices = cumulative.searchsorted(draws * cumulative[-1], side="right")
    # If rounding makes draw x total equal to the total, take the last index with a positive weight.
    if indices.max(initial=0) == len(cumulative):
        indices[indices == len(cumulative)] = cumulative.searchsorted(cumulative[-1])
    return indices


def _fill(weights, rows, labels, distances):
    """Move the point of largest weighted distance, from clusters with several points, to every empty cluster."""
    members = np.bincount(labels, minlength=rows)
    for c in np.flatnonzero(members == 0):
        costs = np.where(members[labels] > 1, weights * distances, 0.0)
        farthest = int(np.argmax(costs))
        if costs[farthest] > 0.0:
            members[labels[farthest]] -= 1
            members[c] = 1
            labels[farthest] = c
            distances[farthest] = 0.0


def run_lloyd(points, weights, limit, tol, fill, centroids):
    """Run at most `limit` Lloyd steps, until labels are unchanged or moves small; return centroids, counts and cost."""
    rows = len(centroids)
    labels = np.full(len(points), -1)
    has_settled = False
    for step in range(limit + 1):
        before = labels
        labels, distances = find_nearest(measure_distances(points, centroids))
        if step == limit or has_settled or np.array_equal(labels, before):
            break
        if fill:
            _fill(weights, rows, labels, distances)
        sums, counts = _sums(points, weights, labels, rows)
        filled = counts > 0.0
        old = centroids
        centroids = centroids.copy()
        centroids[filled] = sums[filled] / counts[filled, None]
        has_settled = tol > 0.0 and np.cumsum(np.append(0.0, (centroids - old)[filled] ** 2))[-1] < tol
    counts = np.bincount(labels, weights=weights, minlength=rows)
    return centroids, counts, np.cumsum(weights * distances)[-1]


def _kmeans(points, weights, odds, k, trials, starts, limit, tol, draws):
    """Run weighted k-means on one device from `starts` seedings; return the best result, the first one on ties."""
    centroids, counts, lowest = np.full((k, points.shape[1]), np.inf), np.zeros(k), np.inf
    if len(points) == 0:
        return centroids, counts, 0.0
    block = max(_MAX_DISTANCES // (trials * len(points)), 1)
    for first in range(0, starts, block):
        for seeds in _seed(points, odds, k, trials, draws[first : first + block]):
            trial, number, cost = run_lloyd(points, weights, limit, tol, True, seeds)
            if cost < lowest:
                lowest = cost
                centroids[:] = np.inf
                counts[:] = 0.0
                centroids[: len(trial)] = trial
                counts[: len(trial)] = number
    return centroids, counts, lowest


def kmeans(points, weights, odds, offsets, k, trials, starts, limit, tols, keys, purpose, first):
    """Run weighted k-means on every device; all k-means of the package use this kernel.

    Each start draws k-means++ seeds and runs Lloyd steps until labels are unchanged, the move is below `tols`, or
    `limit` is reached. The start with the lowest cost is returned, the first one on ties. An empty cluster gets the
    point of largest weighted distance.

    Parameters
    ----------
    points : float64[m, d] or float32[m, d]
    weights, odds : float64[m]
        Weights of points, in costs and in the draws of seeds; empty: all 1, in every kernel.
    offsets : int64[n + 1]
        Points ``offsets[i]:offsets[i + 1]`` belong to device i.
    k, trials, starts, limit : int
        Number of clusters; candidates of each draw (1: plain k-means++, 2 + floor(ln k): greedy); seedings; largest
        number of Lloyd steps.
    tols : float64[n]
        Stop when the sum of the squared moves of a step is below this; 0: not used.
    keys : uint64[n]
        Key of the random stream of each device.
    purpose, first : int
        Purpose of the stream, see `p2pkm.core.batch.Stream`, and number of the first start in it.

    Returns
    -------
    centroids : float64[n, k, d]
        Absent rows (fewer than k distinct points) are +inf.
    counts : float64[n, k]
        Weight of the points nearest to each centroid.
    costs : float64[n]
    """
    points, weights = _plain(points, weights)
    _, odds = _plain(points, odds)
    n = len(offsets) - 1
    centroids = np.empty((n, k, points.shape[1]))
    counts = np.empty((n, k))
    costs = np.empty(n)
    for i in range(n):
        span = slice(offsets[i], offsets[i + 1])
        draws = uniforms(keys[i], purpose, np.arange(first, first + starts), 1 + (k - 1) * trials)
        centroids[i], counts[i], costs[i] = _kmeans(
            points[span], weights[span], odds[span], k, trials, starts, limit, tols[i], draws
        )
    return centroids, counts, costs


def refine(points, weights, offsets, start, rows, limit, tols, fill):
    """Run Lloyd steps on every device from initial centroids.

    Parameters
    ----------
    points, weights, offsets, limit, tols
        As in `kmeans`.
    start : float64[n, k, d]
    rows : int64[n]
        Number of present rows of each device; the others stay absent.
    fill : bool
        Whether an empty cluster gets the point of largest weighted distance; otherwise its centroid does not move.

    Returns
    -------
    centroids : float64[n, k, d]
    counts : float64[n, k]
        Weight of the points nearest to each centroid.
    costs : float64[n]
    """
    points, weights = _plain(points, weights)
    centroids = np.full_like(start, np.inf)
    counts = np.zeros(start.shape[:2])
    costs = np.zeros(len(rows))
    for i, r in enumerate(rows):
        span = slice(offsets[i], offsets[i + 1])
        centroids[i, :r] = start[i, :r]
        if r > 0 and offsets[i] < offsets[i + 1]:
            centroids[i, :r], counts[i, :r], costs[i] = run_lloyd(
                points[span], weights[span], limit, tols[i], fill, centroids[i, :r]
            )
    return centroids, counts, costs
