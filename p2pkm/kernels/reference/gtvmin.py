"""GTVMin update of every device, and total variation of links."""

import numpy as np

from p2pkm.kernels.reference.nearest import _plain, _squared, _sums, find_nearest, measure_distances


def _match(centroids, table, alpha, star_term, as_printed, sums, counts):
    """Add the matches E2 and E3 of one neighbor to numerator and divisor of lines 21 and 22."""
    distances = _squared(centroids, table)
    distances[np.isnan(distances)] = np.inf
    scaled = table if as_printed else alpha * table
    # E2: local row nearest to each row of the neighbor.
    nearest, _ = find_nearest(distances.T)
    is_matched = nearest >= 0
    np.add.at(sums, nearest[is_matched], scaled[is_matched])
    np.add.at(counts, nearest[is_matched], alpha)
    if star_term:
        # E3: row of the neighbor nearest to each local row.
        nearest, _ = find_nearest(distances)
        is_matched = nearest >= 0
        sums[is_matched] += scaled[nearest[is_matched]]
        counts[is_matched] += alpha


def _gtvmin(points, weights, centroids, tables, alpha, theta, passes, star_term, as_printed):
    """Update the centroids of one device (Jung 2025, Algorithm 1, corrected); `tables`: rows of its neighbors."""
    k = len(centroids)
    for _ in range(passes):
        # E1
        labels, _ = find_nearest(measure_distances(points, centroids))
        sums, counts = _sums(points, weights, labels, k)
        for table, strength in zip(tables, alpha, strict=True):
            _match(centroids, table, strength, star_term, as_printed, sums, counts)
        # M
        divisor = np.maximum(counts, 1.0) if as_printed else counts
        moved = (divisor > 0.0) & (centroids[:, 0] < np.inf)
        new = sums[moved] / divisor[moved, None]
        centroids = centroids.copy()
        centroids[moved] = new if theta == 1.0 else centroids[moved] + theta * (new - centroids[moved])
    return centroids


def gtvmin(
    points, weights, offsets, centroids, previous, active, indptr, tables, rows, slots, alpha, theta, passes,
    star_term, as_printed, in_place,
):  # fmt: skip
    """Update the centroids of every active device by `passes` repetitions of E1, E2, E3 and M.

    Parameters
    ----------
    points, weights, offsets
        As in `kmeans`.
    centroids : float64[n, k, d]
        Absent rows are +inf: they are not matched and stay absent.
    previous : float64[n, k, d]
        Other centroids, with the same absent rows, from which moves are measured in addition.
    active : int64[a]
        Positions of the active devices, ascending.
    indptr : int64[n + 1]
        Links ``indptr[i]:indptr[i + 1]`` belong to device i, neighbors in ascending id.
    tables, rows, slots : float64[s, r, w], int64[s], int64[e]
        Last tables, and the slot of the table received over each link (-1: none yet); the first n tables are those of
        the devices.
    alpha : float64[e]
        Strength of each link.
    theta : float64[n]
        Relaxation factor of every pass of each device.
    passes : int
    star_term, as_printed : bool
        Whether to include E3; whether to divide as in the printed algorithm.
    in_place : bool
        Whether to write to `centroids`. No active device may then have an active neighbor whose table is in
        `centroids`.

    Returns
    -------
    centroids : float64[n, k, d]
    moves : float64[a, 2]
        Largest move of a coordinate of each active device from `centroids` and from `previous`.
    """
    points, weights = _plain(points, weights)
    result = centroids if in_place else centroids.copy()
    d = centroids.shape[2]
    rule = passes, star_term, as_printed
    moves = np.zeros((len(active), 2))
    for j, i in enumerate(active):
        span = slice(offsets[i], offsets[i + 1])
        links = [e for e in range(indptr[i], indptr[i + 1]) if slots[e] >= 0]
        received = [tables[slots[e], : rows[slots[e]], :d] for e in links]
        new = _gtvmin(points[span], weights[span], centroids[i], received, alpha[links], theta[i], *rule)
        is_present = new[:, 0] < np.inf
        moves[j] = [np.abs(new[is_present] - old[i, is_present]).max(initial=0.0) for old in (centroids, previous)]
        result[i] = new
    return result, moves


def _directed_variation(distances):
    """Compute one of the two terms of (4): the sum of the smallest distance of each present row."""
    _, lowest = find_nearest(distances)
    return np.cumsum(np.append(0.0, lowest[lowest < np.inf]))[-1]


def gtv(centroids, ids, indptr, indices, slots):
    """Compute the total variation (4) of every link, stored at its lower end; 0 at its upper end.

    Parameters
    ----------
    centroids : float64[s, k, d]
        Local devices first, then halo devices.
    ids : int64[n]
        Ids of the devices.
    indptr, indices, slots : int64
        Links: id of the neighbor, and slot of its centroids.

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
                result[e] = _directed_variation(distances) + _directed_variation(distances.T)
    return result
