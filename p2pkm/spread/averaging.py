"""Averages over the graph: sums and counts of clusters that devices measure, mix with their neighbours' and divide.

A table of mass holds a row (S_c, n_c) for each of the k clusters, also for those without points: clusters are paired by
their number. What every device divides by its own count needs no common scale.
"""

from collections.abc import Iterator

import numpy as np

from p2pkm.devices import Devices, Floats, Integers, Mask
from p2pkm.mail import Inbox
from p2pkm.spread.links import heard


def measure(devices: Devices, centroids: Floats) -> Floats:
    """Return the sum and the weight of the own points nearest to each centroid, float64[n, k, d + 1].

    Parameters
    ----------
    centroids : float64[n, k, d]
        Absent rows are +inf and take no point.
    """
    n, k, d = centroids.shape
    _, labels = devices.kernels.losses(*devices.own, centroids)
    taken = labels >= 0
    cells = (np.repeat(np.arange(n) * k, devices.sizes) + labels)[taken]
    mass = np.empty((n * k, d + 1))
    for f, column in enumerate((*devices.stored.T, np.ones(len(labels)))):
        mass[:, f] = np.bincount(cells, (devices.point_weights * column)[taken], n * k)
    return mass.reshape(n, k, d + 1)


def listen(devices: Devices, inbox: Inbox, shape: tuple[int, ...]) -> Iterator[tuple[Integers, Integers, Floats]]:
    """Yield the first neighbour that every device heard, then the second, and so on: sums of them run in ascending id.

    Those who never spoke, and those over links that are not in use, are left out.

    Parameters
    ----------
    shape : (r, w)
        Of the tables that all devices say.

    Yields
    ------
    devices, edges : int64[b]
        Those that heard so many neighbours, and the own edges to them.
    tables : float64[b, r, w]
        What was last heard over these edges.
    """
    r, w = shape
    used = heard(inbox, devices.active)
    first = np.searchsorted(used, devices.indptr)
    counts = np.diff(first)
    order = np.argsort(-counts, kind="stable")
    for number in range(counts.max(initial=0)):
        who = order[: np.searchsorted(-counts[order], -number)]
        edges = used[first[who] + number]
        yield who, edges, inbox.tables[inbox.slots[edges], :r, :w]


def mix(devices: Devices, mass: Floats, inbox: Inbox) -> Floats:
    """Return P z, one gossip with the Metropolis weights P_ij = 1 / (1 + max(deg_i, deg_j)); P_ii takes the rest.

    Degrees count the links in use; of a graph that changes and brings weights of its own, P has those.
    """
    mixed, weights = mass.copy(), devices.shares
    if weights is None:
        degrees = devices.degrees[devices.sources]
        weights = 1.0 / (1.0 + np.maximum(degrees, devices.neighbor_degrees))
    for who, edges, theirs in listen(devices, inbox, mass.shape[1:]):
        mixed[who] += weights[edges, None, None] * (theirs - mass[who])
    return mixed


def divide(mass: Floats, centroids: Floats, least: float) -> Floats:
    """Return S / n of every cluster; a centroid whose count is below `least` stays."""
    counts = mass[:, :, -1:]
    enough = counts >= least
    return np.where(enough, mass[:, :, :-1] / np.where(enough, counts, 1.0), centroids)


def rest(new: Floats, old: Floats, most: float) -> Mask:
    """Return which devices moved no coordinate by more than `most`, bool[n]; absent rows do not move."""
    with np.errstate(invalid="ignore"):
        moves = np.abs(new - old)
    return np.fmax.reduce(moves, axis=(1, 2), initial=0.0) <= most
