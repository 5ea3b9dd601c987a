"""From a graph and points to the batch of devices that a rank hosts, with what everybody knows at the start."""

from typing import Any

import numpy as np

from p2pkm.data.shards import Shards
from p2pkm.devices import KEYS, Devices, Integers, Kernels
from p2pkm.kernels.plain import philox
from p2pkm.network import Network
from p2pkm.topology import Topology

_SHARED = 2**64 - 1  # stands for all devices where a device's id would


def host(topology: Topology, shards: Shards, network: Network, seed: int, kernels: Kernels) -> Devices:
    """Return this rank's batch; `shards` has the points of its own devices alone.

    Number of points, their weight and their variance are added up device by device, so they do not depend on the
    placement.
    """
    placement = network.placement
    weight, scale = _measure(shards, network)
    return Devices(
        ids=placement.ids,
        stored=np.require(shards.points, requirements=["C", "W"]),
        offsets=shards.offsets,
        point_weights=shards.weights,
        indptr=placement.indptr,
        indices=placement.indices,
        mirror=placement.mirror,
        link_weights=topology.weights[placement.edges],
        active=np.ones(len(placement.indices), np.bool_),
        degrees=np.diff(placement.indptr),
        neighbor_degrees=topology.degrees[placement.indices],
        keys=philox(placement.ids.astype(np.uint64), 0, seed, KEYS)[:, 0].copy(),
        shared_key=shared_key(seed),
        total=topology.n,
        hub=topology.hub,
        hops=topology.hops,
        total_weight=weight,
        scale=scale,
        kernels=kernels,
        step=0,
        turn=0,
        awake=np.ones(len(placement.ids), np.bool_),
    )


def shared_key(seed: int) -> int:
    """Return the key of the random streams that all devices share."""
    return int(philox(_SHARED, 0, seed, KEYS)[0, 0])


def count_classes(shards: Shards, network: Network) -> int:
    """Return the number of classes over all ranks, 0 without labels."""
    if shards.labels is None:
        return 0
    largest = np.full(shards.n, -1)
    np.maximum.at(largest, shards.devices, shards.labels)
    return int(network.share(largest).max()) + 1


def _measure(shards: Shards, network: Network) -> tuple[float, float]:
    """Return the weight of all points and the square root of their total variance."""
    sums = network.share(_by_device(shards, np.column_stack((np.ones(shards.m), shards.points))))
    total = np.cumsum(sums, axis=0)[-1]
    centered = shards.points - total[1:] / total[0]
    squares = network.share(_by_device(shards, centered * centered))
    return float(total[0]), float(np.sqrt(np.cumsum(squares, axis=0)[-1].sum() / total[0]))


def _by_device(shards: Shards, values: Any) -> Any:
    """Return the weighted sums of float64[m, w] over each device's points, in their order, float64[n, w]."""
    columns = [np.bincount(shards.devices, shards.weights * x, minlength=shards.n) for x in values.T]
    return np.stack(columns, axis=1).astype(np.float64)


def sizes_of(shards: Shards, network: Network) -> Integers:
    """Return the number of points of every device of the system, int64[n]."""
    sizes: Integers = network.share(shards.sizes)
    return sizes
