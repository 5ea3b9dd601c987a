"""Rank partition: assignment of devices to ranks, by contiguous blocks or by METIS, whichever cuts fewer links."""

from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import expand_ranges
from p2pkm.core.validation import check_scalar
from p2pkm.network.graph import Topology

PLACEMENTS = ("auto", "blocks", "metis")
# Largest imbalance (largest over mean load) that is accepted for a smaller cut, unless that of blocks is larger.
_MAX_IMBALANCE = 1.05


class RankPartition(NamedTuple):
    """Devices of each rank.

    Attributes
    ----------
    name : str
        "blocks" or "metis", for messages.
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
        """Assign contiguous blocks of devices, longer blocks first."""
        return cls("blocks", divide(n, size))

    @classmethod
    def by_owner(cls, name: str, owner: Any, size: int) -> "RankPartition":
        """Create the partition from the rank of every device, int[n]."""
        bounds = _ends(np.bincount(owner, minlength=size))
        order = np.argsort(np.asarray(owner, np.min_scalar_type(size)), kind="stable")
        return cls(name, bounds, order if (np.diff(order) != 1).any() else None)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.bounds) - 1

    @property
    def owner(self) -> Any:
        """Rank of every device in the smallest type, uint8[n] up to 255 ranks."""
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
        """Return the number of rows of each rank, int64[size], given those of devices, int64[n]; None: one each."""
        if counts is None:
            return np.diff(self.bounds)
        if self.order is not None:
            counts = counts[self.order]
        # Without cumulative sums, which take 8 bytes per device of the system.
        return np.array([counts[first:last].sum(dtype=np.int64) for first, last in pairwise(self.bounds)])

    def arrange(self, rows: Any, counts: Integers | None) -> Any:
        """Reorder rows from rank order to device order."""
        if self.order is None:
            return rows
        result = np.empty_like(rows)
        places = self.order if counts is None else expand_ranges(_ends(counts)[self.order], counts[self.order])
        result[places] = rows
        return result

    def to_arrays(self) -> dict[str, Any]:
        """Convert the partition to arrays, for `from_arrays` on another rank."""
        order = {} if self.order is None else {"order": self.order}
        return {"division": np.array(self.name), "bounds": self.bounds, **order}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> "RankPartition":
        """Create the partition from the result of `to_arrays`."""
        return cls(str(arrays["division"]), arrays["bounds"], arrays.get("order"))


def divide(n: int, size: int) -> Integers:
    """Compute the bounds of contiguous blocks of n devices, longer blocks first, int64[size + 1]."""
    return _ends(np.full(size, n // size) + (np.arange(size) < n % size))


def check_rank_partition(wish: str) -> None:
    """Validate the option rank_partition, alike in one process and on ranks.

    Raises
    ------
    ExperimentError
        If the value is unknown, or if METIS is required but not installed.
    """
    if check_scalar(wish, "rank_partition") not in PLACEMENTS:
        raise ExperimentError(f"rank_partition is {wish!r}; expected one of {', '.join(PLACEMENTS)}")
    if wish == "metis" and not _has_metis():
        raise ExperimentError(
            "rank_partition 'metis' requires pymetis, which is not installed. Install it with "
            'pip install "p2pkm[metis]", or use auto or blocks'
        )


def choose(topology: Topology, sizes: Integers, size: int, wish: str = "auto") -> RankPartition:
    """Choose the rank partition: contiguous blocks, or that of METIS if it cuts fewer links.

    METIS balances points and devices. With ``auto``, its partition is used only if the load of every rank is at most
    5 % above the mean (or blocks are worse). With at most one device per rank, and on a star around a server, all
    partitions cut the same number of links, so blocks are used.

    Parameters
    ----------
    topology : Topology
    sizes : int64[n]
        Number of points of every device.
    size : int
        Number of ranks.
    wish : {"auto", "blocks", "metis"}
        Requested partition. "auto" means blocks if pymetis is not installed.
    """
    blocks = RankPartition.blocks(topology.n, size)
    if wish == "blocks" or size in (1, topology.n) or size > topology.n:
        return blocks
    if wish == "auto" and (topology.hub >= 0 or not _has_metis()):
        return blocks
    load = 1 + sizes
    by_metis = RankPartition.by_owner("metis", _cut_by_metis(topology, load, size), size)
    if wish == "metis":
        return by_metis
    is_balanced = imbalance(by_metis.rows(load)) <= max(imbalance(blocks.rows(load)), _MAX_IMBALANCE)
    return by_metis if is_balanced and count_cut(topology, by_metis) < count_cut(topology, blocks) else blocks


def count_cut(topology: Topology, division: RankPartition) -> int:
    """Count the links between devices on different ranks (edge cut)."""
    owner = division.owner
    return int(np.count_nonzero(np.repeat(owner, topology.degrees) != owner[topology.indices])) // 2


def imbalance(loads: Integers) -> float:
    """Return the largest load of a rank divided by the mean; 1 is balanced."""
    total = int(loads.sum())
    return float(loads.max() * len(loads) / total) if total else 1.0


def _has_metis() -> bool:
    """Return whether pymetis is installed."""
    return find_spec("pymetis") is not None


def _cut_by_metis(topology: Topology, load: Integers, size: int) -> Any:
    """Compute the rank of every device, int64[n], by METIS: few cut links, balanced loads.

    Uses recursive bisection; the k-way partitioning of METIS leaves ranks empty if there are few devices.
    """
    import pymetis

    links = pymetis.CSRAdjacency(topology.indptr, topology.indices)
    return np.array(pymetis.part_graph(size, links, vweights=load, recursive=True).vertex_part)


def _ends(counts: Integers) -> Integers:
    """Return 0 and the cumulative sums of counts."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends
