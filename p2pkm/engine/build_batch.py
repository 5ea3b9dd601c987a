"""Batch of devices of one rank, built from the graph and the local points.

The batch also contains constants that all devices are assumed to know, such as the number of points of the system.
"""

from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Kernels, Search, Stream, cluster
from p2pkm.core.errors import DataError
from p2pkm.core.sorting import blocks
from p2pkm.data.shards import Shards
from p2pkm.engine.run_secret import derive_keys
from p2pkm.kernels import compile_ahead, is_faster_than_compilation, select_kernels, starts_compilation
from p2pkm.kernels.reference import philox
from p2pkm.kernels.streams import shared_key
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import imbalance
from p2pkm.network.transport import Network, World
from topologies.mixing import is_weighted, mean_link_weights

# Temporary memory of the draw of one key, in numbers of 8 bytes; sizes the blocks of `_draw_keys`.
_NUMBERS_PER_DRAW = 64


def build_batch(
    topology: Topology, shards: Shards, network: Network, seed: int, kernels: Kernels, secret: bytes | None = None
) -> Devices:
    """Build the batch of this rank.

    Number, weight and variance of all points are summed in device order, so they do not depend on the rank partition.

    Parameters
    ----------
    topology : Topology
    shards : Shards
        Points of the local devices.
    network : Network
    seed : int
    kernels : Kernels
    secret : bytes, optional
        Secret of the run, see `p2pkm.engine.run_secret`.
    """
    placement, links = network.placement, topology.links
    weight, scale = _measure(shards, network, kernels)
    return Devices(
        ids=placement.ids,
        stored=np.require(shards.points, requirements=["C", "W"]),
        offsets=shards.offsets,
        point_weights=shards.weights,
        indptr=placement.indptr,
        indices=placement.indices,
        mirror=placement.mirror,
        link_weights=topology.weights[placement.edges],
        active_edges=np.ones(len(placement.indices), np.bool_),
        degrees=placement.degrees,
        neighbor_degrees=topology.degrees[placement.indices].astype(np.int32),
        varying=topology.varying is not None,
        averaging_weights=None,
        keys=_draw_keys(placement.ids, seed),
        shared_key=shared_key(seed),
        total=topology.n,
        server=topology.hub,
        hops=topology.hops,
        total_points=int(network.total(np.array([shards.m]))[0]),
        total_weight=weight,
        weighted=bool(network.total(np.array([np.count_nonzero(shards.weights != 1.0)]))[0]),
        data_std=scale,
        kernels=kernels,
        round=0,
        turn=0,
        active_devices=np.ones(len(placement.ids), np.bool_),
        secrets=None if secret is None else derive_keys(secret, placement.ids),
        neighbor_mean_weights=mean_link_weights(links)[placement.indices] if is_weighted(links) else None,
    )


def _draw_keys(ids: Integers, seed: int) -> Any:
    """Draw the key of each device, uint64[n], in blocks: a draw needs many times the memory of its result."""
    keys = np.empty(len(ids), np.uint64)
    for block in blocks(len(ids), _NUMBERS_PER_DRAW):
        keys[block] = philox(ids[block].astype(np.uint64), 0, seed, Stream.KEYS)[:, 0]
    return keys


def count_classes(shards: Shards, network: Network) -> int:
    """Count the classes over all ranks; 0 if the points are unlabeled."""
    if shards.labels is None:
        return 0
    return int(network.allgather_by_device(np.full(shards.n, shards.labels.max(initial=-1))).max()) + 1


def _measure(shards: Shards, network: Network, kernels: Kernels) -> tuple[float, float]:
    """Compute the weight of all points and the square root of their total variance."""
    # Without weights the array is one number with stride 0; for the kernels an empty array means weight 1.
    weights = shards.weights if any(shards.weights.strides) else np.zeros(0)
    local, d = (shards.points, weights, shards.offsets), shards.d
    total = _add_in_order(kernels.moments(*local, np.zeros(d))[:, : 1 + d], network)
    squares = _add_in_order(kernels.moments(*local, total[1:] / total[0])[:, 1 + d :], network)
    return float(total[0]), float(np.sqrt(squares.sum() / total[0]))


def _add_in_order(values: Floats, network: Network) -> Floats:
    """Add the rows of all devices, float64[n, w], in device order: float64[w], equal on all ranks."""
    # Only rank 0 gathers the rows, which take gigabytes with many devices; the others receive the bits of the sum.
    gathered = network.gather_by_device(values)
    bits = np.zeros(values.shape[1], np.int64)
    if gathered is not None:
        # A cumulative sum adds in device order. `sum` would add pairwise, with other rounding.
        bits = np.cumsum(gathered, axis=0)[-1].view(np.int64)
    total: Floats = network.total(bits).view(np.float64)
    return total


def sizes_of(shards: Shards, network: Network) -> Integers:
    """Gather the number of points of every device of the system, int64[N]."""
    sizes: Integers = network.allgather_by_device(shards.sizes)
    return sizes


def label_pooled(points: Floats, k: int, seed: int) -> Integers:
    """Label all points by central k-means."""
    if k > len(points):
        raise DataError(f"{k} clusters of {len(points)} points; expected at most as many clusters as points. Reduce k")
    kernels = select_kernels(1, 1, points.size * k)
    offsets, weights = np.array([0, len(points)]), np.ones(len(points))
    points = np.require(points, np.float64, ["C", "W"])
    centroids, _, _ = cluster(kernels, shared_key(seed), points, weights, Search(k, Stream.CENTRAL, starts=10))
    labels: Integers = kernels.losses(points, weights, offsets, centroids[None])[1]
    return labels


def describe_rank_partition(network: Network, sizes: Integers, ranks: int) -> dict[str, Any]:
    """Compute the summary metrics of the rank partition; empty for one rank.

    Parameters
    ----------
    network : Network
    sizes : int64[N]
        Points of every device of the system.
    ranks : int
    """
    if ranks == 1:
        return {}
    division, peers = network.placement.division, network.placement.peers
    local_counts = np.array([sum(len(peer.send_edges) for peer in peers), len(network.placement.ghosts)])
    cut_edges, halo_size = network.total(local_counts)
    return {
        "rank_partition": division.name,
        # Both directions of a cut link are counted.
        "edge_cut": int(cut_edges) // 2,
        "halo_size": int(halo_size),
        "load_imbalance": imbalance(division.rows(sizes)),
        "load_imbalance_devices": imbalance(division.rows(None)),
    }


def choose_kernels(world: World, n: int, work: int, dtype: str = "float64") -> Kernels:
    """Choose the kernels for n devices and `work` operations on points of a type.

    If they are compiled ones, rank 0 compiles them while the other ranks wait, so that they find them in the cache. If
    the reference takes less time than that, all ranks use it.
    """
    kernels = select_kernels(world.size, -(-n // world.size), work, dtype)
    if world.size == 1 or kernels is (reference := select_kernels(world.size, 0, 0)):
        return kernels
    if is_faster_than_compilation(n, work):
        is_missing = {"missing": np.array(starts_compilation(dtype))} if world.rank == 0 else None
        if world.broadcast(is_missing)["missing"]:
            return reference
    if world.rank == 0:
        compile_ahead(dtype, helped=True)
    world.wait()
    return kernels
