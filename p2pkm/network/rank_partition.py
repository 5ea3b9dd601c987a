"""Which rank hosts which devices: contiguous blocks, or what METIS finds, whichever cuts fewer links."""

from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import expand_ranges
from p2pkm.core.validation import check_scalar
from p2pkm.network.graph import Topology

PLACEMENTS = ("auto", "blocks", "metis")
_UNEVEN = 1.05  # largest load over mean load that a smaller cut may cost, unless blocks are more uneven themselves


class RankPartition(NamedTuple):
    """The devices of each rank.

    Attributes
    ----------
    name : str
        How it was found; for people.
    bounds : int64[size + 1]
        Rank r hosts ``order[bounds[r]:bounds[r + 1]]``.
    order : int64[n] or None
        All devices by rank, ascending within a rank; None: 0 to n - 1, so that every rank has a contiguous block.
    """

    name: str
    bounds: Integers
    order: Integers | None = None

    @classmethod
    def blocks(cls, n: int, size: int) -> "RankPartition":
        """Return contiguous blocks of devices, the longer ones first."""
        return cls("blocks", divide(n, size))

    @classmethod
    def by_owner(cls, name: str, owner: Any, size: int) -> "RankPartition":
        """Return the division in which every device has this rank, int[n]."""
        bounds = _ends(np.bincount(owner, minlength=size))
        order = np.argsort(np.asarray(owner, np.min_scalar_type(size)), kind="stable")
        return cls(name, bounds, order if (np.diff(order) != 1).any() else None)

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.bounds) - 1

    @property
    def owner(self) -> Any:
        """Return the rank of every device in the smallest type that has room for it, uint8[n] up to 255 ranks."""
        by_rank = np.repeat(np.arange(self.size, dtype=np.min_scalar_type(self.size)), np.diff(self.bounds))
        if self.order is None:
            return by_rank
        owner = np.empty_like(by_rank)
        owner[self.order] = by_rank
        return owner

    def of(self, rank: int) -> Integers:
        """Return the devices of a rank, ascending."""
        first, last = self.bounds[rank], self.bounds[rank + 1]
        return np.arange(first, last) if self.order is None else self.order[first:last]

    def rows(self, counts: Integers | None) -> Integers:
        """Return how many rows each rank has, int64[size], if the devices have so many, int64[n]; None: one each."""
        if counts is None:
            return np.diff(self.bounds)
        return np.diff(_ends(counts if self.order is None else counts[self.order])[self.bounds])

    def arrange(self, rows: Any, counts: Integers | None) -> Any:
        """Return the rows of all ranks, one rank after the other, in the order of the devices."""
        if self.order is None:
            return rows
        result = np.empty_like(rows)
        places = self.order if counts is None else expand_ranges(_ends(counts)[self.order], counts[self.order])
        result[places] = rows
        return result

    def to_arrays(self) -> dict[str, Any]:
        """Return what another rank needs to build the same division."""
        order = {} if self.order is None else {"order": self.order}
        return {"division": np.array(self.name), "bounds": self.bounds, **order}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> "RankPartition":
        """Build the division from `to_arrays`."""
        return cls(str(arrays["division"]), arrays["bounds"], arrays.get("order"))


def divide(n: int, size: int) -> Integers:
    """Return the bounds of contiguous blocks of devices, the longer blocks first, int64[size + 1]."""
    return _ends(np.full(size, n // size) + (np.arange(size) < n % size))


def check_rank_partition(wish: str, size: int) -> None:
    """Refuse a placement that is unknown, or that needs a library that is not there.

    Raises
    ------
    ExperimentError
        If so.
    """
    if check_scalar(wish, "rank_partition") not in PLACEMENTS:
        raise ExperimentError(f"rank_partition is {wish!r}; expected one of {', '.join(PLACEMENTS)}")
    if wish == "metis" and size > 1 and not _has_metis():
        raise ExperimentError(
            "rank_partition 'metis' needs pymetis, which is not installed. Install it with "
            'pip install "p2pkm[metis]", or take auto or blocks'
        )


def choose(topology: Topology, sizes: Integers, size: int, wish: str = "auto") -> RankPartition:
    """Return the division of the devices with the smaller cut: contiguous blocks, or what METIS finds.

    METIS balances points and devices; ``auto`` takes its division only if no rank gets more than 5 % above the mean (or
    blocks are worse). With a device per rank or less, and in a star around a server, which every division cuts alike,
    there is nothing to find: these have blocks.

    Parameters
    ----------
    sizes : int64[n]
        Points of every device.
    size : int
        Number of ranks.
    wish : {"auto", "blocks", "metis"}
        What to take; blocks if it is auto and pymetis is not installed.
    """
    blocks = RankPartition.blocks(topology.n, size)
    if wish == "blocks" or size in (1, topology.n) or size > topology.n:
        return blocks
    if wish == "auto" and (topology.hub >= 0 or not _has_metis()):
        return blocks
    load = 1 + sizes
    found = RankPartition.by_owner("metis", _cut_by_metis(topology, load, size), size)
    if wish == "metis":
        return found
    fair = imbalance(found.rows(load)) <= max(imbalance(blocks.rows(load)), _UNEVEN)
    return found if fair and count_cut(topology, found) < count_cut(topology, blocks) else blocks


def count_cut(topology: Topology, division: RankPartition) -> int:
    """Return how many links have their ends on two ranks."""
    owner = division.owner
    return int(np.count_nonzero(np.repeat(owner, topology.degrees) != owner[topology.indices])) // 2


def imbalance(loads: Integers) -> float:
    """Return the largest load of a rank over the mean; 1 is even."""
    total = int(loads.sum())
    return float(loads.max() * len(loads) / total) if total else 1.0


def _has_metis() -> bool:
    return find_spec("pymetis") is not None


def _cut_by_metis(topology: Topology, load: Integers, size: int) -> Any:
    """Return the rank of every device, int64[n], such that few links are cut and the loads are even.

    By repeated bisection: METIS's other way, k-way partitioning, leaves ranks empty if devices are few.
    """
    import pymetis

    links = pymetis.CSRAdjacency(topology.indptr, topology.indices)
    return np.array(pymetis.part_graph(size, links, vweights=load, recursive=True).vertex_part)


def _ends(counts: Integers) -> Integers:
    """Return where each run ends that is so long, after a 0."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends
