"""The census at the end of a run: where the points are, how they were labelled, and a sample for pictures."""

from typing import Any

import numpy as np

from p2pkm.data.shards import Shards
from p2pkm.devices import Devices, Floats
from p2pkm.network import Network
from p2pkm.prices import locate, spread
from p2pkm.result import Census
from p2pkm.scores import ari, nmi, purity, tabulate

_LABELLED = 10_000_000  # points; above, nobody gathers the labels
_SAMPLE = 5_000


def take_census(devices: Devices, network: Network, shards: Shards, n_classes: int, centroids: Floats) -> Census:
    """Gather what all ranks know of their points; the same on every rank.

    Parameters
    ----------
    shards : Shards
        The points of this rank's devices.
    n_classes : int
        Number of classes over all ranks, 0 without labels.
    centroids : float64[n, k, d]
        Of this rank's devices.
    """
    sizes, clients = network.share(devices.sizes), devices.clients
    m = int(sizes.sum())
    _, labels = devices.kernels.losses(*devices.own, centroids)
    owner = np.repeat(np.arange(len(devices)), devices.sizes)
    names: tuple[Any, Any, Any] = (None, None, None)
    if m <= _LABELLED:
        parts = labels, devices.ids[owner], shards.rows
        names = network.share(parts[0], sizes), network.share(parts[1], sizes), network.share(parts[2], sizes)
    classes = scores = None
    known = np.full(len(owner), -1)
    if n_classes and shards.labels is not None:
        known = shards.labels.astype(np.int64)
        tables = tabulate(devices.offsets, known, labels, (n_classes, centroids.shape[1]))
        own = tabulate(devices.offsets, known, np.zeros_like(known), (n_classes, 1))[:, :, 0]
        each = np.stack([score(tables) for score in (ari, nmi, purity)], axis=1)
        classes, scores = network.share(own)[:clients], network.share(each)[:clients]
    mine, counts = locate(spread(m, min(_SAMPLE, m), devices.shared_key, 2), sizes, devices.ids)
    drawn = [network.share(part[mine], counts) for part in (devices.stored, devices.ids[owner], known)]
    return Census(sizes[:clients], *names, classes, scores, drawn[0], drawn[1], drawn[2])
