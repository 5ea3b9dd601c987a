"""The same runs under several divisions of the devices, as lines of JSON on rank 0; started by mpirun, and imported.

mpirun -n 3 python tests/support/programs/placement.py
"""

import hashlib
import json
import sys
from pathlib import Path
from unittest.mock import patch

import networkx as nx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import p2pkm
import p2pkm.experiments.deal
import p2pkm.metrics.final_labels
import topologies
from p2pkm.methods.registry import find
from p2pkm.network.rank_partition import RankPartition, choose
from p2pkm.network.world import connect

SUMMARIZED = (
    "centroids_sha256",
    "chain_sha256",
    "objective",
    "gtv",
    "ratio_mean",
    "ari",
    "messages",
    "bytes",
    "groups",
)
PLACED = ("rank_partition", "edge_cut", "halo_size", "load_imbalance", "load_imbalance_devices")


def interleave(topology, sizes, size, wish):
    """Assign device i to rank i modulo the number of ranks, the opposite of blocks."""
    return RankPartition.by_owner("interleaved", np.arange(topology.n) % size, size)


def reverse(topology, sizes, size, wish):
    """Assign the first devices to the last rank, in unequal numbers, and none to rank 0."""
    return RankPartition.by_owner("reversed", size - 1 - (np.arange(topology.n) * (size - 1)) // topology.n, size)


# how to choose, and what to wish for
DIVISIONS = {
    "blocks": (choose, "blocks"),
    "metis": (choose, "metis"),
    "interleaved": (interleave, "auto"),
    "reversed": (reverse, "auto"),
}


def deal(n, seed):
    """Generate unequal numbers of points on n devices, with classes; every fifth device has none."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 12 * n)
    owner = rng.choice(np.flatnonzero(np.arange(n) % 5 != 3), len(y))
    return p2pkm.Shards.deal(rng.normal(5.0 * y[:, None], 1.0, (len(y), 2)), owner, devices=n, labels=y)


def shuffled_ring(n):
    """Build a ring with shuffled node labels."""
    order = np.random.default_rng(1).permutation(n).tolist()
    return nx.relabel_nodes(topologies.ring(n), dict(enumerate(order)))


def configurations():
    """List (name, graph, shards, algorithm) of all runs."""
    ring, small = shuffled_ring(24), topologies.small_world(23, degree=4, rewire=0.3, seed=2)
    yield "colored", ring, deal(24, 1), p2pkm.GTVMin(3)
    yield "jacobi", small, deal(23, 2), p2pkm.GTVMin(3, schedule="jacobi", init="d2-sampling")
    yield "groups", small, deal(23, 3), p2pkm.GTVMin(3, groups=True, schedule="async")
    yield "gossip", small, deal(23, 4), find("gossip")(3)
    yield "star", None, deal(22, 6), p2pkm.FKM(3)


def fingerprint(result):
    """Return a hash of each array of a result, and the summary entries that must not depend on ranks."""
    parts = [*result.ledger, *result.census, *result.chain, result.centroids, result.server_centroids, result.losses,
             result.gtv, result.groups]  # fmt: skip
    arrays = b"".join(np.ascontiguousarray(part).tobytes() for part in parts if part is not None)
    records = json.dumps(result.rounds).encode()
    return {"arrays": hashlib.sha256(arrays + records).hexdigest(), **{key: result.summary[key] for key in SUMMARIZED}}


def runs(divisions):
    """Return one record per configuration and rank partition."""
    for name, graph, shards, algorithm in configurations():
        for division in divisions:
            chosen, wish = DIVISIONS[division]
            # points for pictures are a sample, as in larger runs
            with (
                patch.object(p2pkm.experiments.deal, "choose", chosen),
                patch.object(p2pkm.metrics.final_labels, "_SAMPLE", 50),
            ):
                result = p2pkm.simulate(algorithm, graph, shards, seed=3, rounds=4, rank_partition=wish)
            placed = {key: result.summary[key] for key in PLACED}
            yield {"name": name, "division": division, "placed": placed, "found": fingerprint(result)}


if __name__ == "__main__":
    for record in runs(DIVISIONS):
        if connect().rank == 0:
            print(json.dumps(record | {"ranks": connect().size}), flush=True)
