"""Centroid swaps: a device leaves a poor local minimum by replacing one centroid.

The local objective is (8) of Jung 2025: the local loss plus the weighted variation over the links of a device, with
fixed centroids of the neighbors. If no two neighbors swap in the same turn, (7) decreases by as much as (8) of the
swapping devices.
"""

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Stream
from p2pkm.core.messages import Inbox
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.total_variation import received_edges, squared_distances, variation

# Number of random local points among the candidates.
_DRAWN = 8
# Exact update passes after a swap, before its objective is evaluated.
_PASSES = 3
# Smallest relative decrease of (8) for which a swap is accepted; smaller ones may be rounding errors.
_MIN_DECREASE = 1e-9


def swap_centroids(
    devices: Devices, centroids: Floats, inbox: Inbox, alpha: Floats, candidates: Mask
) -> tuple[Floats, Mask]:
    """Swap a centroid at some devices if this decreases their local objective.

    The centroid whose removal increases (8) least is replaced by the row of largest gain: a neighbor's row, or one of 8
    random local points. Three exact passes follow. The result is accepted if (8) decreases by more than 1e-9 of its
    value.

    Parameters
    ----------
    centroids : float64[n, k, d]
    alpha : float64[e]
        Strength of each link.
    candidates : bool[n]
        Devices that attempt a swap.

    Returns
    -------
    centroids : float64[n, k, d]
    has_swapped : bool[n]
    """
    proposed = centroids.copy()
    for i in map(int, np.flatnonzero(candidates)):
        proposed[i] = best_swap(devices, i, centroids[i], inbox, alpha)
    is_changed = (proposed != centroids).any(axis=(1, 2))
    updated, _ = devices.kernels.gtvmin(
        *devices.kernel_inputs, proposed, proposed, np.flatnonzero(is_changed), devices.indptr,
        inbox.tables, inbox.rows, inbox.slots, alpha, np.ones(len(devices)), _PASSES, True, False, True,
    )  # fmt: skip
    before = local_objective(devices, centroids, inbox, alpha)
    after = local_objective(devices, updated, inbox, alpha)
    has_swapped = is_changed & (after < (1.0 - _MIN_DECREASE) * before)
    return np.where(has_swapped[:, None, None], updated, centroids), has_swapped


def local_objective(devices: Devices, centroids: Floats, inbox: Inbox, alpha: Floats) -> Floats:
    """Compute (8) of every device for the last received tables, float64[n]; +inf if all local centroids are absent."""
    total, _ = devices.kernels.losses(*devices.kernel_inputs, centroids)
    edges = received_edges(inbox, devices.active_edges)
    links = alpha[edges] * variation(devices, centroids, inbox, edges)
    return total + np.bincount(devices.sources[edges], links, len(devices))


def best_swap(devices: Devices, i: int, centroids: Floats, inbox: Inbox, alpha: Floats) -> Floats:
    """Apply the most promising swap to the centroids of device i, float64[k, d]; absent centroids are not swapped."""
    real = np.flatnonzero(centroids[:, 0] < np.inf)
    points, weights, tables, strengths = _local_data(devices, i, inbox, alpha)
    candidates = _swap_candidates(devices, i, points, tables)
    if len(real) < 2 or not len(candidates):
        return centroids
    # In (8) a neighbor's row acts on the nearest local centroid like a point of weight alpha_ij (E2).
    weighted_rows = np.concatenate((points, *tables))
    row_weights = np.concatenate((
        weights,
        *(np.full(len(table), a) for table, a in zip(tables, strengths, strict=True)),
    ))
    distances = squared_distances(weighted_rows, centroids[real])
    order = np.argsort(distances, axis=1, kind="stable")
    nearest, second = (np.take_along_axis(distances, order[:, q : q + 1], axis=1)[:, 0] for q in (0, 1))
    # The terms of (E3), from local centroids to the nearest neighbor rows, disappear with a removed centroid.
    removed_terms = _match_costs(centroids[real], tables, strengths)
    added_terms = _match_costs(candidates, tables, strengths)
    loss = np.bincount(order[:, 0], row_weights * (second - nearest), len(real)) - removed_terms
    removed = int(np.argmin(loss))
    remaining = np.where(order[:, 0] == removed, second, nearest)
    gains = row_weights[:, None] * np.maximum(remaining[:, None] - squared_distances(weighted_rows, candidates), 0.0)
    result = centroids.copy()
    result[real[removed]] = candidates[np.argmax(np.cumsum(gains, axis=0)[-1] - added_terms)]
    return result


def _local_data(
    devices: Devices, i: int, inbox: Inbox, alpha: Floats
) -> tuple[Floats, Floats, list[Floats], list[float]]:
    """Collect the points and weights of a device, the tables of its neighbors and the strengths of their links."""
    links = range(devices.indptr[i], devices.indptr[i + 1])
    received = inbox.received
    edges = [e for e in links if received[e] and alpha[e] > 0.0]
    tables = [inbox.tables_of(e, inbox.rows_of(e), devices.d) for e in edges]
    non_empty = [(table, float(alpha[e])) for table, e in zip(tables, edges, strict=True) if len(table)]
    return *devices.table(i), [table for table, _ in non_empty], [a for _, a in non_empty]


def _swap_candidates(devices: Devices, i: int, points: Floats, tables: list[Floats]) -> Floats:
    """Collect the candidates of a device: the neighbors' rows, then random local points, float64[q, d]."""
    draws = uniforms(int(devices.keys[i]), Stream.SWAP, [devices.round], _DRAWN)[0]
    drawn = points[(draws * len(points)).astype(np.int64)] if len(points) else points
    return np.concatenate((*tables, drawn))


def _match_costs(rows: Floats, tables: list[Floats], strengths: list[float]) -> Floats:
    """Compute the cost that each row adds to (8) by its matches at the neighbors, float64[rows]."""
    total = np.zeros(len(rows))
    for table, strength in zip(tables, strengths, strict=True):
        total += strength * squared_distances(rows, table).min(axis=1)
    return total
