"""GTVMin on every device, and the variation of links."""

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, _squared, _sums, find_nearest, measure_distances


def _match(centroids, table, alpha, star, printed, sums, counts):
    """Add what E2 and E3 match at one neighbor to the numerator and the divisor of line 21 and 22."""
    distances = _squared(centroids, table)
    distances[np.isnan(distances)] = np.inf
    scaled = table if printed else alpha * table
    nearest, _ = find_nearest(distances.T)  # E2: a = the own row nearest to the neighbor's row
    real = nearest >= 0
    np.add.at(sums, nearest[real], scaled[real])
    np.add.at(counts, nearest[real], alpha)
    if star:
        nearest, _ = find_nearest(distances)  # E3: b = the neighbor's row nearest to the own row
        real = nearest >= 0
        sums[real] += scaled[nearest[real]]
        counts[real] += alpha


def _gtvmin(points, weights, centroids, tables, alpha, theta, passes, star, printed):
    """Update the centroids of one device (Jung 2025, Algorithm 1, corrected); `tables` are its neighbors' rows."""
    k = len(centroids)
    for _ in range(passes):
        labels, _ = find_nearest(measure_distances(points, centroids))  # E1
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
    points, weights, offsets, centroids, previous, who, indptr, tables, rows, slots, alpha, theta, passes, star,
    printed, in_place,
):  # fmt: skip
    """Update the centroids of every device awake by `passes` times E1, E2, E3 and M.

    Parameters
    ----------
    points, weights, offsets
        As in `kmeans`.
    centroids : float64[n, k, d]
        Absent rows are +inf: they match nothing and stay absent.
    previous : float64[n, k, d]
        Other centroids, with the same rows absent, from which the moves are measured, too.
    who : int64[a]
        Positions of the devices awake, ascending.
    indptr : int64[n + 1]
        Links ``indptr[i]:indptr[i + 1]`` belong to device i, neighbors in ascending id.
    tables, rows, slots : float64[s, r, w], int64[s], int64[e]
        What was last received over each link (slot -1: nothing yet); the first n tables are those of the devices.
    alpha : float64[e]
        Strength of each link.
    theta : float
        Relaxation inside every pass.
    passes : int
    star, printed : bool
        Whether E3 counts; whether to divide as the printed algorithm does.
    in_place : bool
        Whether to write into `centroids` itself; no device may have a neighbor awake then whose table lies in there.

    Returns
    -------
    centroids : float64[n, k, d]
    moves : float64[a, 2]
        Largest move of any coordinate of a device awake from `centroids` and from `previous`.
    """
    result, d = centroids if in_place else centroids.copy(), centroids.shape[2]
    (points, weights), moves = _plain(points, weights), np.zeros((len(who), 2))
    for j, i in enumerate(who):
        own = slice(offsets[i], offsets[i + 1])
        links = [e for e in range(indptr[i], indptr[i + 1]) if slots[e] >= 0]
        received = [tables[slots[e], : rows[slots[e]], :d] for e in links]
        new = _gtvmin(points[own], weights[own], centroids[i], received, alpha[links], theta, passes, star, printed)
        real = new[:, 0] < np.inf
        moves[j] = [np.abs(new[real] - old[i, real]).max(initial=0.0) for old in (centroids, previous)]
        result[i] = new
    return result, moves


def _one_sided(distances):
    """Return one of the two terms of (4): the sum over the real rows of their least distance, row after row."""
    _, lowest = find_nearest(distances)
    return np.cumsum(np.append(0.0, lowest[lowest < np.inf]))[-1]


def gtv(centroids, ids, indptr, indices, slots):
    """Return the variation (4) of every link at its lower end, 0 at the upper one.

    Parameters
    ----------
    centroids : float64[s, k, d]
        Own devices first, then the neighbors on other ranks.
    ids : int64[n]
    indptr, indices, slots : int64
        Own links: neighbor's id and where its centroids are.

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
