"""Averages over the graph: sums and counts of clusters that devices measure, mix with their neighbors' and divide.

A table of mass holds a row (S_c, n_c) for each of the k clusters, also for those without points: clusters are paired by
their number. What every device divides by its own count needs no common scale.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Inbox
from p2pkm.core.sorting import blocks
from p2pkm.core.states import register
from p2pkm.methods.building_blocks.small_clusters import count_nearest
from p2pkm.methods.building_blocks.total_variation import received_edges

WEIGHTED = "weight the mixing matrix"  # what weights of links do in methods that call `mixing`
_THIN = 0.25  # of the points that a device should hold


def local_sums(devices: Devices, centroids: Floats) -> Floats:
    """Return the sum and the weight of the own points nearest to each centroid, float64[n, k, d + 1].

    Parameters
    ----------
    centroids : float64[n, k, d]
        Absent rows are +inf and take no point.
    """
    n, k, d = centroids.shape
    _, labels = devices.kernels.losses(*devices.kernel_inputs, centroids)
    taken = labels >= 0
    cells = (np.repeat(np.arange(n) * k, devices.sizes) + labels)[taken]
    mass = np.empty((n * k, d + 1))
    for f, column in enumerate((*devices.stored.T, np.ones(len(labels)))):
        mass[:, f] = np.bincount(cells, (devices.point_weights * column)[taken], n * k)
    mass = mass.reshape(n, k, d + 1)
    if devices.min_count > 1:  # so few points do not take part
        mass[count_nearest(devices, labels, k) < devices.min_count] = 0.0
    return mass


def iter_neighbor_tables(
    devices: Devices, inbox: Inbox, shape: tuple[int, ...]
) -> Iterator[tuple[Integers, Integers, Floats]]:
    """Yield the first neighbor that every device received, then the second, and so on: sums run in ascending id.

    Those that never sent, and those over links that are not in use, are left out.

    Parameters
    ----------
    shape : (r, w)
        Of the tables that all devices send.

    Yields
    ------
    devices, edges : int64[b]
        Those that received so many neighbors, and the own edges to them.
    tables : float64[b, r, w]
        What was last received over these edges.
    """
    r, w = shape
    used = received_edges(inbox, devices.active_edges)
    first = np.searchsorted(used, devices.indptr)
    counts = np.diff(first)
    order = np.argsort(-counts, kind="stable")
    for number in range(counts.max(initial=0)):
        who = order[: np.searchsorted(-counts[order], -number)]
        edges = used[first[who] + number]
        yield who, edges, inbox.tables_of(edges, r, w)


def add_fresh(devices: Devices, inbox: Inbox, mass: Floats) -> Floats:
    """Return the mass with the tables that came in this exchange added to it, in ascending id of their senders."""
    came, total = np.flatnonzero(inbox.fresh), mass.copy()
    np.add.at(total, devices.sources[came], inbox.tables_of(came, *mass.shape[1:]))
    return total


def mix(devices: Devices, mass: Floats, inbox: Inbox) -> Floats:
    """Return P z, one gossip with the Metropolis weights P_ij of `mixing`; P_ii is the rest."""
    mixed, weights = mass.copy(), mixing(devices)
    for who, edges, theirs in iter_neighbor_tables(devices, inbox, mass.shape[1:]):
        mixed[who] += weights[edges, None, None] * (theirs - mass[who])
    return mixed


def mixing(devices: Devices) -> Floats:
    """Return P_ij of every own link, float64[e], the same at both ends.

    Metropolis weights: P_ij = 1 / (1 + max(deg_i, deg_j)) without weights of links, else as in `topologies.mixing`. If
    the graph has its own mixing matrix, it is used. Degrees and mean weights are those of the links in use.
    """
    if devices.averaging_weights is not None:
        return devices.averaging_weights
    own, others = devices.degrees[devices.sources], devices.neighbor_degrees
    if devices.neighbor_mean_weights is None:
        return 1.0 / (1.0 + np.maximum(own, others))
    proposed = devices.link_weights / devices.mean_link_weights[devices.sources] / (1.0 + own)
    accepted: Floats = np.minimum(proposed, devices.link_weights / devices.neighbor_mean_weights / (1.0 + others))
    return accepted


def relative_weights(devices: Devices) -> Floats | None:
    """Return the weight of each own link relative to the mean of the neighbor's links, float64[e]; None: all 1."""
    means = devices.neighbor_mean_weights
    return None if means is None else devices.link_weights / means


@register("running-sums")
class RunningSums(NamedTuple):
    """What makes up for messages that are lost or late: running totals, so that the next one replaces all lost ones.

    A device sends the total of all that it has ever offered; a neighbor adds what that has grown by since it last
    received it. What was offered and not received is in between, and nothing is ever gone (C. N. Hadjicostis, N. H.
    Vaidya, A. D. Dominguez-Garcia, "Robust distributed average consensus via exchange of running sums", IEEE
    Transactions on Automatic Control 61, 2016).

    Attributes
    ----------
    total : float64[n, k, w]
    edge_received : float64[e, k, w]
        The neighbor's total as it was last received.
    """

    total: Floats
    edge_received: Floats


def start_running_sums(devices: Devices, offered: Floats) -> RunningSums:
    """Start the running totals of devices that have made their first offer and received nothing."""
    return RunningSums(offered, np.zeros((len(devices.indices), *offered.shape[1:])))


def receive_growth(
    devices: Devices, inbox: Inbox, sums: RunningSums, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Add up the growth of the neighbors' totals.

    Parameters
    ----------
    weights : float64[e], optional
        Factor of the growth over each own edge; None: all 1.

    Returns
    -------
    gain : float64[n, k, w]
    edge_received : float64[e, k, w]
        The totals as received now.
    """
    gain, edge_received = np.zeros_like(sums.total), sums.edge_received.copy()
    for who, edges, theirs in iter_neighbor_tables(devices, inbox, gain.shape[1:]):
        growth = theirs - edge_received[edges]
        gain[who] += growth if weights is None else weights[edges, None, None] * growth
        edge_received[edges] = theirs
    return gain, edge_received


def is_thin(devices: Devices, mass: Floats, fair: Floats) -> Mask:
    """Return which devices hold too few points in their mass to go by it, bool[n].

    While a device is away its neighbors go on offering it their shares, and what is left with them gets less and less,
    until a correction by own points would outweigh it. How many points all rows stand for, corrections leave alone.

    Parameters
    ----------
    fair : float64[n]
        What a device would hold in the long run, in mean numbers of points of a device.
    """
    held = np.cumsum(mass[:, :, -1], axis=1)[:, -1]
    return held < _THIN * fair * (devices.total_weight / devices.total)


def centroids_from_sums(mass: Floats, centroids: Floats, least: float) -> Floats:
    """Return S / n of every cluster; a centroid whose count is below `least` stays."""
    counts = mass[:, :, -1:]
    enough = counts >= least
    return np.where(enough, mass[:, :, :-1] / np.where(enough, counts, 1.0), centroids)


def has_converged(new: Floats, old: Floats, most: float) -> Mask:
    """Return which devices moved no coordinate by more than `most`, bool[n]; absent rows do not move."""
    return find_moves(new, old) <= most


def find_moves(new: Floats, old: Floats) -> Floats:
    """Return the largest move of any coordinate of each device, float64[n]; absent rows do not move."""
    moves = np.empty(len(new))
    with np.errstate(invalid="ignore"):
        for some in blocks(len(new), max(new[:1].size, 1)):
            moves[some] = np.fmax.reduce(np.abs(new[some] - old[some]), axis=(1, 2), initial=0.0)
    return moves
