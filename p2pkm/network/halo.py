"""Subgraph of a rank, and the tables that must be exchanged between ranks; without MPI calls."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Integers
from p2pkm.core.messages import expand_ranges
from p2pkm.core.sorting import narrow
from p2pkm.network.graph import Topology, sort_stably, walk
from p2pkm.network.rank_partition import RankPartition


class RankExchange(NamedTuple):
    """Tables and edges that this rank exchanges with another rank.

    Attributes
    ----------
    rank : int
        The other rank.
    send : int64[b]
        Local devices (positions in the batch) whose tables the other rank needs, ascending.
    first, last : int
        Slots ``first:last`` hold the tables of its devices.
    send_edges, recv_edges : int64[c]
        Local edges to the other rank in two orders: `send_edges` here and `recv_edges` there list the same links in the
        same order.
    """

    rank: int
    send: Integers
    first: int
    last: int
    send_edges: Integers
    recv_edges: Integers


@dataclass(frozen=True)
class LocalSubgraph:
    """Subgraph of the devices of one rank.

    Attributes
    ----------
    rank : int
    ids : int64[n]
        Local devices, ascending.
    ghosts : int64[g]
        Halo devices (neighbors on other ranks), by rank and then by id. Slots are numbered in this order: local
        devices, then halo devices.
    indptr, indices, edges : int64
        Directed edges from local devices: ids of the neighbors, and positions of the edges in the topology (a slice if
        they are contiguous).
    senders : int64[e]
        Slot of the neighbor at each edge.
    peers : tuple of RankExchange
        Exchanges with all ranks that host neighbors.
    division : RankPartition
        Devices of all ranks.
    edge_counts : int64[total]
        Number of directed edges of every device of the system; the `counts` of arrays with one row per edge.
    """

    rank: int
    ids: Integers
    ghosts: Integers
    indptr: Integers
    indices: Integers
    edges: Integers | slice
    senders: Integers
    peers: tuple[RankExchange, ...]
    division: RankPartition
    edge_counts: Integers

    @property
    def slots(self) -> int:
        """Number of tables that this rank holds: of local and of halo devices."""
        return len(self.ids) + len(self.ghosts)

    @property
    def degrees(self) -> Integers:
        """Number of edges of each local device, int64[n]; of contiguous devices, a view of `edge_counts`."""
        if self.division.order is not None or not len(self.ids):
            return self.edge_counts[self.ids]
        return self.edge_counts[int(self.ids[0]) : int(self.ids[-1]) + 1]

    def without_links(self) -> "LocalSubgraph":
        """Return the devices alone, for gathering."""
        none = np.zeros(0, np.int64)
        return replace(self, ghosts=none, indptr=none, indices=none, edges=slice(0, 0), senders=none, peers=())

    @cached_property
    def mirror(self) -> NDArray[np.integer[Any]]:
        """Reverse of every edge between local devices, -1 for other edges, int[e] of the smallest type."""
        kind = narrow(len(self.senders))
        if not len(self.ghosts):
            return walk("mirror", self.indptr, self.senders).astype(kind)
        mirror = np.full(len(self.senders), -1, kind)
        inside = np.flatnonzero(self.senders < len(self.ids))
        mirror[inside] = inside[sort_stably(self.senders[inside])]
        return mirror


def place(topology: Topology, rank: int, size: int, division: RankPartition | None = None) -> LocalSubgraph:
    """Build the subgraph of a rank for a rank partition; None: contiguous blocks."""
    division = division or RankPartition.blocks(topology.n, size)
    ids, owner = division.of(rank), division.owner
    degrees = topology.degrees
    indptr, edges = _local_edges(topology, division, ids)
    indices = topology.indices[edges]
    outside = np.flatnonzero(owner[indices] != rank)
    ghosts = _distinct(indices[outside], topology.n)
    ghosts = ghosts[np.argsort(owner[ghosts], kind="stable")]
    senders = indices if len(ids) == topology.n else _number((ids, ghosts), topology.n)[indices].astype(np.int64)
    peers = _build_exchanges(indptr, outside, senders, owner[ghosts])
    return LocalSubgraph(rank, ids, ghosts, indptr, indices, edges, senders, peers, division, degrees)


def _local_edges(topology: Topology, division: RankPartition, ids: Integers) -> tuple[Integers, Integers | slice]:
    """Return the offsets of the edges of each local device, and the positions of these edges in the topology."""
    if division.order is None:
        first = int(ids[0]) if len(ids) else 0
        indptr = topology.indptr[first : first + len(ids) + 1]
        return indptr - indptr[0] if first else indptr, slice(int(indptr[0]), int(indptr[-1]))
    counts = topology.degrees[ids]
    return np.concatenate(([0], np.cumsum(counts))), expand_ranges(topology.indptr[ids], counts)


def _distinct(devices: Integers, n: int) -> Integers:
    """Return the distinct device ids, ascending."""
    is_included = np.zeros(n, np.bool_)
    is_included[devices] = True
    return np.flatnonzero(is_included)


def _number(parts: tuple[Integers, ...], n: int) -> Integers:
    """Return the position of each device in the concatenated parts, int[n]; undefined for other devices."""
    devices = np.concatenate(parts)
    # A small type, as the array has a number for every device of the system.
    number = np.empty(n, narrow(len(devices)))
    number[devices] = np.arange(len(devices))
    return number


def _build_exchanges(
    indptr: Integers, outside: Integers, senders: Integers, owner: Integers
) -> tuple[RankExchange, ...]:
    """Build the exchanges with other ranks.

    Parameters
    ----------
    indptr : int64[n + 1]
        Offsets of the edges of each local device.
    outside : int64[c]
        Edges to halo devices, ascending.
    senders : int64[e]
        Slot of the neighbor at each edge.
    owner : int[g]
        Rank of each halo device, ascending.
    """
    if not len(outside):
        return ()
    source = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    n_local = int(senders.max()) + 1 - len(owner)
    slots = senders[outside]
    rank = owner[slots - n_local]
    # Edges are sent in the order (local device, neighbor). The other rank does the same, so they must be received in
    # the order (neighbor, local device): `outside` ascends by local device, and the sort by slot is stable.
    send_edges = outside[np.argsort(rank, kind="stable")]
    recv_edges = outside[sort_stably(slots)]
    ends = np.cumsum(np.bincount(rank))
    slot_ends = n_local + np.cumsum(np.bincount(owner))
    exchanges = []
    # Not np.unique, which imports numpy.ma: 10 ms on every rank.
    for other in np.flatnonzero(np.bincount(owner)):
        first, first_slot = (ends[other - 1], slot_ends[other - 1]) if other else (0, n_local)
        edges = slice(int(first), int(ends[other]))
        send = _distinct(source[send_edges[edges]], len(indptr) - 1)
        exchanges.append(
            RankExchange(int(other), send, int(first_slot), int(slot_ends[other]), send_edges[edges], recv_edges[edges])
        )
    return tuple(exchanges)
