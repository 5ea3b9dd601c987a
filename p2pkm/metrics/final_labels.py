"""Final labels of a run: labels of all points, statistics of clusters, and a sample of points for figures."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.chunks import Chunk, label
from p2pkm.data.shards import Shards
from p2pkm.metrics.clustering import ari, nmi, purity
from p2pkm.metrics.cost_ratio import count_points, draw_stratified, find_local_rows
from p2pkm.metrics.gathering import Gathering
from p2pkm.metrics.result import Census
from p2pkm.network.transport import Network

# Largest number of points whose labels are gathered.
_LABELED = 10_000_000
# Points of the sample for figures.
_SAMPLE = 5_000
# Variances up to this share of the mean square are rounding errors of equal points.
_ROUNDED = 2.0**-46
# Largest number of coordinates of points, or of centroids, with which means of clusters are computed.
_PROFILED = 20_000_000


def is_labeled(m: int) -> bool:
    """Return whether a run with m points gathers the label and the row of each point."""
    return m <= _LABELED


class Moments(NamedTuple):
    """Moments of the points of every cluster on every device.

    Attributes
    ----------
    sizes : int64[n, k]
        Number of points.
    weights : float64[n, k]
        Sum of weights.
    first, second : float64[n, k, d]
        Sums of weighted deviations from the centroid, and of their squares.
    """

    sizes: Integers
    weights: Floats
    first: Floats
    second: Floats

    @classmethod
    def none(cls, n: int, k: int, d: int) -> "Moments":
        """Return the moments without points."""
        return cls(np.zeros((n, k), np.int64), np.zeros((n, k)), np.zeros((n, k, d)), np.zeros((n, k, d)))

    def add(self, piece: Chunk, devices: Devices, centroids: Floats) -> None:
        """Add the points of a piece."""
        points, weights, _ = devices.kernel_inputs
        rows = piece.rows
        sums = devices.kernels.cluster_moments(
            points[rows], weights[rows], piece.offsets, piece.labels, centroids[piece.span]
        )
        self.sizes[piece.span], self.weights[piece.span], self.first[piece.span], self.second[piece.span] = sums

    def summarize(self, centroids: Floats) -> tuple[Integers, Floats, Floats, Floats]:
        """Compute sizes int64[n, k], means and deviations float64[n, k, d], and weights; NaN for empty clusters."""
        total = np.where(self.sizes > 0, self.weights, np.nan)[:, :, None]
        mean = self.first / total
        square = self.second / total
        variance = square - mean * mean
        deviation = np.sqrt(np.where(variance <= _ROUNDED * square, 0.0, variance))
        return self.sizes, centroids + mean, deviation, self.weights


def collect_labels(
    devices: Devices, gathering: Gathering, shards: Shards, n_classes: int, centroids: Floats,
    through: Floats | None = None, penalties: Floats | None = None,
) -> tuple[Census | None, Integers | None]:  # fmt: skip
    """Label all points and gather labels and statistics, identical on all ranks that receive the result.

    Parameters
    ----------
    devices : Devices
        Batch of this rank.
    gathering : Gathering
        Collective operations.
    shards : Shards
        Points of this rank's devices.
    n_classes : int
        Number of classes over all ranks, 0 without labels.
    centroids : float64[n, k, d]
        Models of this rank's devices.
    through : float64[n, q, d], optional
        Intermediate rows by which points are labeled, see `p2pkm.core.chunks.label`.
    penalties : float64[n, k], optional
        Penalties of the labels, see the same.

    Returns
    -------
    census : Census or None
        None on ranks that do not receive the result.
    labels : int64[m] or None
        Labels of the points of this rank; None in large runs.
    """
    gather, network = gathering.gather, gathering.network
    sizes = gather(devices.sizes)
    clients = devices.clients
    m = count_points(devices.sizes, network)
    known = shards.labels if n_classes else None
    large = max(m, devices.total * centroids.shape[1]) * devices.d > _PROFILED
    moments = None if large else Moments.none(*centroids.shape)
    labels, class_counts, scores_of_devices = _score(
        devices, known, n_classes, (centroids, through, penalties), moments, keep=is_labeled(m)
    )
    names: tuple[Any, Any, Any] = (None, None, None)
    if labels is not None:
        owner = np.repeat(devices.ids, devices.sizes)
        names = gather(labels, sizes), gather(owner, sizes), gather(shards.rows, sizes)
    classes, scores = (None, None) if known is None else (gather(class_counts), gather(scores_of_devices))
    sample = draw_stratified(m, min(_SAMPLE, m), devices.shared_key, 2)
    rows, local_counts = find_local_rows(sample, network.find_first_rows(devices.sizes), devices.sizes)
    counts = gather(local_counts)
    truth = np.full(len(rows), -1) if known is None else known[rows].astype(np.int64)
    owner = np.repeat(devices.ids, local_counts)
    sample_labels = np.full(len(rows), -1) if labels is None else labels[rows]
    drawn = [gather(part, counts) for part in (devices.stored[rows], owner, truth, sample_labels)]
    profile = [] if moments is None else [gather(part) for part in moments.summarize(centroids)]
    if not gathering.is_receiver:
        return None, labels
    classes, scores = (None if part is None else part[:clients] for part in (classes, scores))
    profile = [part[:clients] for part in profile]
    return Census(sizes[:clients], *names, classes, scores, drawn[0], drawn[1], drawn[2], drawn[3], *profile), labels


def _score(
    devices: Devices,
    known: NDArray[Any] | None,
    n_classes: int,
    rows: tuple[Floats, Floats | None, Floats | None],
    moments: Moments | None,
    *,
    keep: bool,
) -> tuple[Integers | None, Integers, Floats]:
    """Label local points by the centroids of their device, and score the labels if true classes are known.

    Parameters
    ----------
    rows : (float64[n, k, d], float64[n, q, d] or None, float64[n, k] or None)
        Centroids, the intermediate rows by which points are labeled, and the penalties of the labels.
    moments : Moments or None
        Moments to which the points of the clusters are added.

    Returns
    -------
    labels : int64[m] or None
        Labels, if `keep`.
    classes : int64[n, c]
        Number of points of each class on each device.
    scores : float64[n, 3]
        Adjusted Rand index, NMI and purity of each device.
    """
    labels = np.empty(len(devices.stored), np.int64) if keep else None
    classes = np.zeros((len(devices), n_classes), np.int64)
    scores = np.zeros((len(devices), 3))
    for piece in label(devices, *rows):
        if labels is not None:
            labels[piece.rows] = piece.labels
        if moments is not None:
            moments.add(piece, devices, rows[0])
        if known is not None:
            device_rows = piece.span
            truth = known[piece.rows].astype(np.int64)
            # The first column counts points without a label.
            tables = devices.kernels.count_class_labels(
                piece.offsets, truth, 1 + piece.labels, n_classes, 1 + rows[0].shape[1]
            )
            classes[device_rows] = tables.sum(axis=2)
            tables = tables[:, :, 1:]
            scores[device_rows] = np.stack([score(tables) for score in (ari, nmi, purity)], axis=1)
    return labels, classes, scores


def tabulate(
    devices: Devices, network: Network, known: NDArray[Any] | None, n_classes: int, rows: tuple[Floats, Floats | None]
) -> Integers:
    """Compute the contingency table of all points, labeled by their devices, int64[c, k]; identical on all ranks."""
    table = np.zeros((n_classes, rows[0].shape[1]), np.int64)
    if known is not None:
        for piece in label(devices, *rows):
            truth = known[piece.rows].astype(np.int64)
            table += devices.kernels.count_class_labels(piece.offsets, truth, piece.labels, *table.shape).sum(axis=0)
    return network.total(table)
