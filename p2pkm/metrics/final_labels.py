"""The census at the end of a run: where the points are, how they were labeled, and a sample for pictures."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.chunks import label
from p2pkm.data.shards import Shards
from p2pkm.metrics.clustering import ari, nmi, purity
from p2pkm.metrics.cost_ratio import locate, spread
from p2pkm.metrics.result import Census
from p2pkm.network.transport import Network

_LABELED = 10_000_000  # points; above, labels are not gathered
_SAMPLE = 5_000


def collect_labels(
    devices: Devices, network: Network, shards: Shards, n_classes: int, centroids: Floats, through: Floats | None = None
) -> Census:
    """Gather what all ranks know of their points; the same on every rank.

    Parameters
    ----------
    shards : Shards
        The points of this rank's devices.
    n_classes : int
        Number of classes over all ranks, 0 without labels.
    centroids : float64[n, k, d]
        Of this rank's devices.
    through : float64[n, q, d], optional
        Rows by way of which points are labeled, see `p2pkm.core.chunks.label`.
    """
    sizes, clients = network.allgather_by_device(devices.sizes), devices.clients
    m = int(sizes.sum())
    known = shards.labels if n_classes else None
    labels, own, marks = _score(devices, known, n_classes, (centroids, through), keep=m <= _LABELED)
    names: tuple[Any, Any, Any] = (None, None, None)
    if labels is not None:
        owner = np.repeat(devices.ids, devices.sizes)
        names = (
            network.allgather_by_device(labels, sizes),
            network.allgather_by_device(owner, sizes),
            network.allgather_by_device(shards.rows, sizes),
        )
    classes = scores = None
    if known is not None:
        classes, scores = network.allgather_by_device(own)[:clients], network.allgather_by_device(marks)[:clients]
    rows, counts = locate(spread(m, min(_SAMPLE, m), devices.shared_key, 2), sizes, devices.ids)
    truth = np.full(len(rows), -1) if known is None else known[rows].astype(np.int64)
    owner = np.repeat(devices.ids, counts[devices.ids])
    drawn = [network.allgather_by_device(part, counts) for part in (devices.stored[rows], owner, truth)]
    return Census(sizes[:clients], *names, classes, scores, drawn[0], drawn[1], drawn[2])


def _score(
    devices: Devices, known: NDArray[Any] | None, n_classes: int, rows: tuple[Floats, Floats | None], *, keep: bool
) -> tuple[Integers | None, Integers, Floats]:
    """Label the own points by their own centroids and score the labels against the true classes, if they are known.

    Parameters
    ----------
    rows : (float64[n, k, d], float64[n, q, d] or None)
        Centroids, and the rows by way of which points take them.

    Returns
    -------
    labels : int64[m] or None
        If they are to be kept.
    classes : int64[n, c]
    scores : float64[n, 3]
        Adjusted Rand index, NMI and purity.
    """
    labels = np.empty(len(devices.stored), np.int64) if keep else None
    classes, scores = np.zeros((len(devices), n_classes), np.int64), np.zeros((len(devices), 3))
    for piece in label(devices, *rows):
        if labels is not None:
            labels[piece.rows] = piece.labels
        if known is not None:
            count, own, truth = devices.kernels.tabulate, piece.own, known[piece.rows].astype(np.int64)
            tables = count(piece.offsets, truth, piece.labels, n_classes, rows[0].shape[1])
            classes[own] = count(piece.offsets, truth, np.zeros_like(truth), n_classes, 1)[:, :, 0]
            scores[own] = np.stack([score(tables) for score in (ari, nmi, purity)], axis=1)
    return labels, classes, scores


def tabulate(
    devices: Devices, network: Network, known: NDArray[Any] | None, n_classes: int, rows: tuple[Floats, Floats | None]
) -> Integers:
    """Return the contingency table of all points, each labeled at its own device, int64[c, k]; same on every rank."""
    table = np.zeros((n_classes, rows[0].shape[1]), np.int64)
    if known is not None:
        for piece in label(devices, *rows):
            truth = known[piece.rows].astype(np.int64)
            table += devices.kernels.tabulate(piece.offsets, truth, piece.labels, *table.shape).sum(axis=0)
    return network.total(table)
