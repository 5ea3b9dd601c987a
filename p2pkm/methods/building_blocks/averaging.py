"""Averaging of cluster sums and counts over the graph, by gossip or running sums.

A table holds a row (S_c, n_c) for each of the k clusters, including those without points: clusters are paired by their
number. Devices divide S_c by their own n_c, so the tables of different devices need no common scale.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from p2pkm.core.averaging_step import AveragingStep
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Inbox
from p2pkm.core.sorting import blocks
from p2pkm.core.states import register
from p2pkm.methods.building_blocks.small_clusters import count_nearest
from p2pkm.methods.building_blocks.total_variation import received_edges
from p2pkm.network.graph import Topology, find_first
from topologies.mixing import metropolis_weights

# Effect of link weights in methods that use `mixing_weights`, see `p2pkm.core.traits.MethodTraits`.
WEIGHTED = "weight the mixing matrix"
# A device whose averaged weight is below this share of its expected weight keeps its centroids, see `has_low_weight`.
_LOW_WEIGHT = 0.25
# Largest number of gossip turns per Lloyd step that is chosen from a graph.
_MOST_TURNS = 100
# Largest number of devices for which turns are counted, which takes up to a second. Above it the least number is used.
_MOST_COUNTED = 100_000


def local_sums(devices: Devices, centroids: Floats) -> Floats:
    """Compute sum and weight of the local points nearest to each centroid, float64[n, k, d + 1].

    Parameters
    ----------
    centroids : float64[n, k, d]
        Absent rows are +inf and are assigned no points.
    """
    _, labels = devices.kernels.losses(*devices.kernel_inputs, centroids)
    # Deviations from the origin are the points.
    origin = np.zeros_like(centroids)
    _, weights, coordinates, _ = devices.kernels.cluster_moments(*devices.kernel_inputs, labels, origin)
    sums = np.concatenate((coordinates, weights[:, :, None]), axis=2)
    if devices.min_count > 1:
        # Clusters of fewer points must not leave the device.
        sums[count_nearest(devices, labels, centroids.shape[1]) < devices.min_count] = 0.0
    return sums


def iter_neighbor_tables(
    devices: Devices, inbox: Inbox, shape: tuple[int, ...]
) -> Iterator[tuple[Integers, Integers, Floats]]:
    """Yield the tables of every device's first neighbor, then of the second, and so on, in ascending id.

    Every device thus adds its neighbors' tables in the same order on any number of ranks. Inactive edges, and edges
    without a received table, are omitted.

    Parameters
    ----------
    shape : (r, w)
        Shape of the tables, the same for all devices.

    Yields
    ------
    positions : int64[b]
        Devices with at least this number of neighbors.
    edges : int64[b]
        Edges to these neighbors.
    tables : float64[b, r, w]
        Latest tables received over these edges.
    """
    r, w = shape
    used = received_edges(inbox, devices.active_edges)
    first = np.searchsorted(used, devices.indptr)
    counts = np.diff(first)
    order = np.argsort(-counts, kind="stable")
    for number in range(counts.max(initial=0)):
        positions = order[: np.searchsorted(-counts[order], -number)]
        edges = used[first[positions] + number]
        yield positions, edges, inbox.tables_of(edges, r, w)


def add_received_tables(devices: Devices, inbox: Inbox, tables: Floats) -> Floats:
    """Add the tables received in this exchange to those of the devices, in ascending id of their senders."""
    edges = np.flatnonzero(inbox.fresh)
    total = tables.copy()
    np.add.at(total, devices.sources[edges], inbox.tables_of(edges, *tables.shape[1:]))
    return total


def mix(devices: Devices, tables: Floats, inbox: Inbox) -> Floats:
    """Perform one gossip step P z with the weights P_ij of `mixing_weights`; P_ii is 1 minus their sum."""
    return add_differences(devices, inbox, tables, tables, mixing_weights(devices))[0]


def add_differences(
    devices: Devices, inbox: Inbox, start: Floats, local: Floats, weights: Floats
) -> tuple[Floats, Integers]:
    """Add weight x (received - local) of the last table received over each active edge, neighbors in ascending id.

    Every device thus adds its neighbors' tables in the same order on any number of ranks. Numbers that are not finite
    at one of both ends are ignored.

    Parameters
    ----------
    start, local : float64[n, r, w]
        Tables to which the differences are added; tables of the devices.
    weights : float64[e]

    Returns
    -------
    sums : float64[n, r, w]
    counts : int64[n, r]
        Number of neighbors whose row is present, like that of the device.
    """
    slots = np.where(devices.active_edges, inbox.slots, -1)
    return devices.kernels.add_differences(start, local, inbox.tables, devices.indptr, slots, weights)


def mixing_weights(devices: Devices) -> Floats:
    """Compute the mixing weight P_ij of every edge, float64[e], the same at both ends.

    Metropolis weights: P_ij = 1 / (1 + max(deg_i, deg_j)) without link weights, otherwise as in `topologies.mixing`. A
    mixing matrix of the graph takes precedence. Degrees and mean weights are those of the active links.
    """
    if devices.averaging_weights is not None:
        return devices.averaging_weights
    degrees, neighbor_degrees = devices.degrees[devices.sources], devices.neighbor_degrees
    if devices.neighbor_mean_weights is None:
        return 1.0 / (1.0 + np.maximum(degrees, neighbor_degrees))
    local_share = devices.link_weights / devices.mean_link_weights[devices.sources] / (1.0 + degrees)
    neighbor_share = devices.link_weights / devices.neighbor_mean_weights / (1.0 + neighbor_degrees)
    weights: Floats = np.minimum(local_share, neighbor_share)
    return weights


def symmetric_step(topology: Topology, turns: int) -> AveragingStep:
    """Return the step of `mix` on a static graph, from the weights of the graph."""
    return AveragingStep(metropolis_weights(topology.links), np.ones(topology.n), turns)


def relative_weights(devices: Devices) -> Floats | None:
    """Compute the weight of each link relative to the mean weight at the neighbor, float64[e]; None if all are 1."""
    means = devices.neighbor_mean_weights
    return None if means is None else devices.link_weights / means


def count_turns(topology: Topology, least: int, unevenness: float) -> int:
    """Count the gossip turns after which the sums of any single device are nearly even on all devices.

    This is the smallest T of at least `least` with ``max_i |n (P^T e_j)_i - 1| <= unevenness`` on every component, for
    the Metropolis weights P and a device j at an end of a long path; at most `_MOST_TURNS`. Link weights do not count.

    Parameters
    ----------
    least : int
    unevenness : float
    """
    if topology.n > _MOST_COUNTED:
        return least
    degrees, source, target = topology.degrees, topology.sources, topology.indices
    weights = 1.0 / (1.0 + np.maximum(degrees[source], degrees[target]))
    self_weights = 1.0 - np.bincount(source, weights, topology.n)
    sizes = np.bincount(topology.components)
    shares = np.zeros(topology.n)
    farthest = find_first(
        topology.components, topology.layers(find_first(topology.components, np.zeros(topology.n, np.int64)))
    )
    shares[farthest] = sizes
    for turn in range(_MOST_TURNS):
        if turn >= least and np.abs(shares - 1.0).max() <= unevenness:
            return turn
        shares = self_weights * shares + np.bincount(source, weights * shares[target], topology.n)
    return max(least, _MOST_TURNS)


@register("running-sums")
class RunningSums(NamedTuple):
    """Running totals, by which averaging tolerates lost and late messages [1]_.

    A device sends the total of all tables that it has ever sent. A neighbor adds the increase since the last total that
    it received. So each message also delivers all earlier lost ones, and no sum is lost.

    Attributes
    ----------
    total : float64[n, k, w]
        Sum of all tables that a device has sent.
    edge_received : float64[e, k, w]
        Latest total received from each neighbor.

    References
    ----------
    .. [1] C. N. Hadjicostis, N. H. Vaidya, A. D. Dominguez-Garcia, "Robust distributed average consensus via exchange
       of running sums", IEEE Transactions on Automatic Control 61, 2016.
    """

    total: Floats
    edge_received: Floats


def start_running_sums(devices: Devices, sent: Floats) -> RunningSums:
    """Initialize running totals with the first sent tables, float64[n, k, w]; nothing is received yet."""
    return RunningSums(sent, np.zeros((len(devices.indices), *sent.shape[1:])))


def receive_increments(
    devices: Devices, inbox: Inbox, sums: RunningSums, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Add up the increases of the neighbors' totals since they were last received.

    Parameters
    ----------
    weights : float64[e], optional
        Factor of the increase over each edge; None: all 1.

    Returns
    -------
    gain : float64[n, k, w]
        Sum of the weighted increases.
    edge_received : float64[e, k, w]
        Latest totals.
    """
    gain, edge_received = np.zeros_like(sums.total), sums.edge_received.copy()
    for positions, edges, totals in iter_neighbor_tables(devices, inbox, gain.shape[1:]):
        increment = totals - edge_received[edges]
        gain[positions] += increment if weights is None else weights[edges, None, None] * increment
        edge_received[edges] = totals
    return gain, edge_received


def has_low_weight(devices: Devices, sums: Floats, expected_weight: Floats) -> Mask:
    """Check which devices hold too little averaged weight to update their centroids, bool[n].

    While a device is unavailable, its neighbors keep sending it their shares, and the weight that remains with them
    shrinks, until corrections by local points would outweigh the averaged sums. The test uses the total weight of a
    table, which corrections do not change.

    Parameters
    ----------
    sums : float64[n, k, d + 1]
    expected_weight : float64[n]
        Long-term weight of each device, in units of the mean total weight of a device.
    """
    weight = np.cumsum(sums[:, :, -1], axis=1)[:, -1]
    return weight < _LOW_WEIGHT * expected_weight * (devices.total_weight / devices.total)


def centroids_from_sums(sums: Floats, centroids: Floats, least: float) -> Floats:
    """Compute S / n of every cluster; a centroid whose count is below `least` does not change."""
    counts = sums[:, :, -1:]
    enough = counts >= least
    return np.where(enough, sums[:, :, :-1] / np.where(enough, counts, 1.0), centroids)


def has_converged(new: Floats, old: Floats, most: float) -> Mask:
    """Check which devices changed no coordinate by more than `most`, bool[n]; absent rows do not count."""
    return max_moves(new, old) <= most


def max_moves(new: Floats, old: Floats) -> Floats:
    """Compute the largest coordinate change of each device, float64[n]; absent rows do not count."""
    moves = np.empty(len(new))
    with np.errstate(invalid="ignore"):
        # inf - inf of absent rows is NaN, which fmax ignores. Blocks bound the temporary arrays.
        for block in blocks(len(new), max(new[:1].size, 1)):
            moves[block] = np.fmax.reduce(np.abs(new[block] - old[block]), axis=(1, 2), initial=0.0)
    return moves
