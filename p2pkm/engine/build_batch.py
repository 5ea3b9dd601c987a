"""From a graph and points to the batch of devices that a rank hosts, with what every device knows at the start."""

from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Kernels, Search, Stream, cluster
from p2pkm.core.errors import DataError
from p2pkm.core.sorting import blocks
from p2pkm.data.shards import Shards
from p2pkm.engine.run_secret import derive_keys
from p2pkm.kernels import compile_ahead, select_kernels
from p2pkm.kernels.reference import philox
from p2pkm.kernels.streams import shared_key
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import imbalance
from p2pkm.network.transport import Network, World
from topologies.mixing import is_weighted, mean_link_weights

_DRAW = 64  # numbers of 8 bytes that the draw of a key takes while it is computed


def build_batch(
    topology: Topology, shards: Shards, network: Network, seed: int, kernels: Kernels, secret: bytes | None = None
) -> Devices:
    """Return this rank's batch; `shards` has the points of its own devices alone.

    Number of points, their weight and their variance are added up device by device, so they do not depend on the
    placement. secret: see `p2pkm.engine.run_secret`.
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
        degrees=np.diff(placement.indptr),
        neighbor_degrees=topology.degrees.astype(np.int32)[placement.indices],
        varying=topology.varying is not None,
        averaging_weights=None,
        keys=_draw_keys(placement.ids, seed),
        shared_key=shared_key(seed),
        total=topology.n,
        server=topology.hub,
        hops=topology.hops,
        total_points=int(sizes_of(shards, network).sum()),
        total_weight=weight,
        data_std=scale,
        kernels=kernels,
        round=0,
        turn=0,
        active_devices=np.ones(len(placement.ids), np.bool_),
        secrets=None if secret is None else derive_keys(secret, placement.ids),
        neighbor_mean_weights=mean_link_weights(links)[placement.indices] if is_weighted(links) else None,
    )


def _draw_keys(ids: Integers, seed: int) -> Any:
    """Return the key of each device, uint64[n], a block at a time: a draw takes many times its own memory."""
    keys = np.empty(len(ids), np.uint64)
    for block in blocks(len(ids), _DRAW):
        keys[block] = philox(ids[block].astype(np.uint64), 0, seed, Stream.KEYS)[:, 0]
    return keys


def count_classes(shards: Shards, network: Network) -> int:
    """Return the number of classes over all ranks, 0 without labels."""
    if shards.labels is None:
        return 0
    return int(network.allgather_by_device(np.full(shards.n, shards.labels.max(initial=-1))).max()) + 1


def _measure(shards: Shards, network: Network, kernels: Kernels) -> tuple[float, float]:
    """Return the weight of all points and the square root of their total variance."""
    weights = shards.weights if any(shards.weights.strides) else np.zeros(0)  # one number that stands for all: 1
    own, d = (shards.points, weights, shards.offsets), shards.d
    total = np.cumsum(network.allgather_by_device(kernels.moments(*own, np.zeros(d))[:, : 1 + d]), axis=0)[-1]
    squares = network.allgather_by_device(kernels.moments(*own, total[1:] / total[0])[:, 1 + d :])
    return float(total[0]), float(np.sqrt(np.cumsum(squares, axis=0)[-1].sum() / total[0]))


def sizes_of(shards: Shards, network: Network) -> Integers:
    """Return the number of points of every device of the system, int64[n]."""
    sizes: Integers = network.allgather_by_device(shards.sizes)
    return sizes


def label_pooled(points: Floats, k: int, seed: int) -> Integers:
    """Return the labels of k-means on all points, which the partition mufc deals by."""
    if k > len(points):
        raise DataError(f"{k} clusters of {len(points)} points; expected at most as many clusters as points")
    kernels = select_kernels(1, 1, points.size * k)
    offsets, weights = np.array([0, len(points)]), np.ones(len(points))
    points = np.require(points, np.float64, ["C", "W"])
    centroids, _, _ = cluster(kernels, shared_key(seed), points, weights, Search(k, Stream.CENTRAL, starts=10))
    labels: Integers = kernels.losses(points, weights, offsets, centroids[None])[1]
    return labels


def weigh_division(network: Network, sizes: Integers, ranks: int) -> dict[str, Any]:
    """Return the summary figures of the division of the devices over more than one rank."""
    if ranks == 1:
        return {}
    division, peers = network.placement.division, network.placement.peers
    here = np.array([sum(len(peer.send_edges) for peer in peers), len(network.placement.ghosts)])
    crossing, ghosts = network.total(here)
    return {"rank_partition": division.name, "edge_cut": int(crossing) // 2, "halo_size": int(ghosts),
            "load_imbalance": imbalance(division.rows(sizes)),
            "load_imbalance_devices": imbalance(division.rows(None))}  # fmt: skip


def choose_kernels(world: World, n: int, work: int) -> Kernels:
    """Choose the kernels for so many devices and operations; rank 0 compiles them while the others sleep."""
    kernels = select_kernels(world.size, -(-n // world.size), work)
    if world.size > 1 and kernels is not select_kernels(world.size, 0, 0):
        if world.rank == 0:
            compile_ahead()
        world.wait()
    return kernels
