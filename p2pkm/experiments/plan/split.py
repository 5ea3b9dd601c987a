"""A graph on any number of ranks: devices, ghosts and edge cut."""

from typing import NamedTuple

import numpy as np

from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import RankPartition, choose

RANKS = (1, 2, 16, 256, 4096)
_LONG = 500_000  # directed edges above which METIS takes seconds


class Split(NamedTuple):
    """A graph on a number of ranks.

    Attributes
    ----------
    ranks : int
    devices : int
        Devices of the rank with the most.
    ghosts : int
        Neighbors on other ranks, of the rank with the most.
    cut : int
        Undirected links between ranks.
    placement : {"blocks", "metis"}
    """

    ranks: int
    devices: int
    ghosts: int
    cut: int
    placement: str = "blocks"


def split(topology: Topology, division: RankPartition) -> Split:
    """Count the links that a rank partition cuts, and their ends; see `p2pkm.network.halo`."""
    ranks, owner = division.size, division.owner
    cross = np.flatnonzero(np.repeat(owner, topology.degrees) != owner[topology.indices])
    tables = np.unique(topology.sources[cross] * ranks + owner[topology.indices[cross]])  # one per device and rank
    ghosts = int(np.bincount(tables % ranks, minlength=1).max())
    return Split(ranks, int(np.diff(division.bounds).max()), ghosts, len(cross) // 2, division.name)


def divide(plan: RunPlan, ranks: int, asked: int) -> RankPartition:
    """Choose the rank partition for a number of ranks; on large graphs METIS is used for the `asked` number only."""
    wish = plan.experiment.rank_partition
    long = ranks != asked and len(plan.topology.indices) > _LONG
    return choose(plan.topology, plan.sizes, ranks, "blocks" if long else wish)
