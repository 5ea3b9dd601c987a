"""Rank partition of a graph on any number of ranks: devices, halo size and edge cut."""

from typing import NamedTuple

import numpy as np

from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import RankPartition, choose

RANKS = (1, 2, 16, 256, 4096)  # numbers of ranks that a plan lists
_SLOW_EDGES = 500_000  # directed edges above which METIS takes seconds


class PartitionStats(NamedTuple):
    """Statistics of a rank partition.

    Attributes
    ----------
    ranks : int
    devices : int
        Devices of the rank with the most.
    halo : int
        Neighbors on other ranks, of the rank with the most.
    cut : int
        Links between ranks.
    partition : {"blocks", "metis"}
    """

    ranks: int
    devices: int
    halo: int
    cut: int
    partition: str = "blocks"


def count_cut_links(topology: Topology, division: RankPartition) -> PartitionStats:
    """Count the cut links of a rank partition, and the halo; see `p2pkm.network.halo`."""
    ranks, owner = division.size, division.owner
    cross = np.flatnonzero(np.repeat(owner, topology.degrees) != owner[topology.indices])
    # A device with several neighbors on a rank is received there once: one number for each pair of device and rank.
    received = np.unique(topology.sources[cross] * ranks + owner[topology.indices[cross]])
    halo = int(np.bincount(received % ranks, minlength=1).max())
    return PartitionStats(ranks, int(np.diff(division.bounds).max()), halo, len(cross) // 2, division.name)


def choose_partition(plan: RunPlan, ranks: int, planned_ranks: int) -> RankPartition:
    """Choose the rank partition for a number of ranks.

    On large graphs METIS is used only for `planned_ranks`; other numbers of ranks are estimated with blocks.
    """
    requested = plan.experiment.rank_partition
    is_slow = ranks != planned_ranks and len(plan.topology.indices) > _SLOW_EDGES
    return choose(plan.topology, plan.sizes, ranks, "blocks" if is_slow else requested)
