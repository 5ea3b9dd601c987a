"""Swaps: a device leaves a poor local minimum by moving one centroid to where it serves more.

The own objective is (8) of Jung 2025: the local loss plus the weighted variation of the own links, the neighbors'
centroids held fixed. If no two neighbors swap at a time, what lowers (8) of one device lowers (7) by as much.
"""

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Stream
from p2pkm.core.messages import Inbox
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.total_variation import received_edges, squared, variation

_DRAWN = 8  # own points among the candidates
_PASSES = 3  # after the swap, before it is judged
_LEAST = 1e-9  # relative fall of (8) that counts


def swap(devices: Devices, centroids: Floats, inbox: Inbox, alpha: Floats, trying: Mask) -> tuple[Floats, Mask]:
    """Let some devices swap a centroid if that lowers their own objective.

    The centroid whose removal costs least gives way to the candidate of largest gain: a neighbor's row, or one of 8
    random own points. Three exact passes follow; the outcome is kept if (8) has fallen by more than 1e-9 relative.

    Parameters
    ----------
    centroids : float64[n, k, d]
    alpha : float64[e]
        Strength of each own link.
    trying : bool[n]

    Returns
    -------
    centroids : float64[n, k, d]
    better : bool[n]
        Who has swapped.
    """
    proposed = centroids.copy()
    for i in map(int, np.flatnonzero(trying)):
        proposed[i] = best_swap(devices, i, centroids[i], inbox, alpha)
    tried = (proposed != centroids).any(axis=(1, 2))
    moved, _ = devices.kernels.gtvmin(
        *devices.kernel_inputs, proposed, proposed, np.flatnonzero(tried), devices.indptr,
        inbox.tables, inbox.rows, inbox.slots, alpha, 1.0, _PASSES, True, False, True,
    )  # fmt: skip
    before, after = (own_objective(devices, one, inbox, alpha) for one in (centroids, moved))
    better = tried & (after < (1.0 - _LEAST) * before)
    return np.where(better[:, None, None], moved, centroids), better


def own_objective(devices: Devices, centroids: Floats, inbox: Inbox, alpha: Floats) -> Floats:
    """Return (8) of every device, given what it last received, float64[n]; +inf where a point has no centroid."""
    total, _ = devices.kernels.losses(*devices.kernel_inputs, centroids)
    edges = received_edges(inbox, devices.active_edges)
    links = alpha[edges] * variation(devices, centroids, inbox, edges)
    return total + np.bincount(devices.sources[edges], links, len(devices))


def best_swap(devices: Devices, i: int, centroids: Floats, inbox: Inbox, alpha: Floats) -> Floats:
    """Apply the most promising swap to the centroids of device i, float64[k, d]; absent centroids take no part."""
    real = np.flatnonzero(centroids[:, 0] < np.inf)
    points, weights, tables, strengths = _around(devices, i, inbox, alpha)
    candidates = _gather(devices, i, points, tables)
    if len(real) < 2 or not len(candidates):
        return centroids
    pulled = np.concatenate((points, *tables))
    masses = np.concatenate((weights, *(np.full(len(one), a) for one, a in zip(tables, strengths, strict=True))))
    distances = squared(pulled, centroids[real])
    order = np.argsort(distances, axis=1, kind="stable")
    nearest, second = (np.take_along_axis(distances, order[:, q : q + 1], axis=1)[:, 0] for q in (0, 1))
    stars = [_star(rows, tables, strengths) for rows in (centroids[real], candidates)]
    loss = np.bincount(order[:, 0], masses * (second - nearest), len(real)) - stars[0]
    removed = int(np.argmin(loss))
    left = np.where(order[:, 0] == removed, second, nearest)
    gains = masses[:, None] * np.maximum(left[:, None] - squared(pulled, candidates), 0.0)
    result = centroids.copy()
    result[real[removed]] = candidates[np.argmax(np.cumsum(gains, axis=0)[-1] - stars[1])]
    return result


def _around(devices: Devices, i: int, inbox: Inbox, alpha: Floats) -> tuple[Floats, Floats, list[Floats], list[float]]:
    """Return the own points and their weights, the tables of the neighbors and the strength of the links to them."""
    links = range(devices.indptr[i], devices.indptr[i + 1])
    received = inbox.received
    edges = [e for e in links if received[e] and alpha[e] > 0.0]
    tables = [inbox.tables_of(e, inbox.rows_of(e), devices.d) for e in edges]
    filled = [(table, float(alpha[e])) for table, e in zip(tables, edges, strict=True) if len(table)]
    return *devices.table(i), [one for one, _ in filled], [a for _, a in filled]


def _gather(devices: Devices, i: int, points: Floats, tables: list[Floats]) -> Floats:
    """Return the candidates of a device: the neighbors' rows, then random own points, float64[q, d]."""
    draws = uniforms(int(devices.keys[i]), Stream.SWAP, [devices.round], _DRAWN)[0]
    drawn = points[(draws * len(points)).astype(np.int64)] if len(points) else points
    return np.concatenate((*tables, drawn))


def _star(rows: Floats, tables: list[Floats], strengths: list[float]) -> Floats:
    """Return what each row adds to (8) by its own matches at the neighbors, float64[rows]."""
    total = np.zeros(len(rows))
    for table, strength in zip(tables, strengths, strict=True):
        total += strength * squared(rows, table).min(axis=1)
    return total
