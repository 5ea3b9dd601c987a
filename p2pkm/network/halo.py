"""Which devices a rank hosts, and which tables must travel between ranks: arithmetic, no MPI."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Integers
from p2pkm.core.messages import expand_ranges
from p2pkm.core.sorting import narrow
from p2pkm.network.graph import Topology, sort_stably, walk
from p2pkm.network.rank_partition import RankPartition


class Peer(NamedTuple):
    """What this rank exchanges with another one.

    Attributes
    ----------
    rank : int
    send : int64[b]
        Own devices (positions in the batch) whose tables the peer needs, ascending.
    first, last : int
        Slots ``first:last`` take the peer's tables.
    send_edges, recv_edges : int64[c]
        Own edges that lead to the peer, in the order in which the peer lists the same edges as `recv_edges`.
    """

    rank: int
    send: Integers
    first: int
    last: int
    send_edges: Integers
    recv_edges: Integers


@dataclass(frozen=True)
class LocalSubgraph:
    """One rank's part of the graph.

    Attributes
    ----------
    rank : int
    ids : int64[n]
        Own devices, ascending.
    ghosts : int64[g]
        Neighbors on other ranks, by rank and then by id; they follow the own devices in the numbering of slots.
    indptr, indices, edges : int64
        Own directed edges: neighbors' ids, and the positions of the edges in the topology (a slice if they lie side by
        side).
    senders : int64[e]
        Slot of the neighbor at each own edge.
    peers : tuple of Peer
    division : RankPartition
        The devices of all ranks.
    edge_counts : int64[total]
        Directed edges of every device of the system: the `counts` of what has a row per edge.
    """

    rank: int
    ids: Integers
    ghosts: Integers
    indptr: Integers
    indices: Integers
    edges: Integers | slice
    senders: Integers
    peers: tuple[Peer, ...]
    division: RankPartition
    edge_counts: Integers

    @property
    def slots(self) -> int:
        """Return the number of tables that this rank holds."""
        return len(self.ids) + len(self.ghosts)

    @cached_property
    def mirror(self) -> NDArray[np.integer[Any]]:
        """Return for every edge between two own devices the opposite edge, else -1, int[e] of the smallest type."""
        kind = narrow(len(self.senders))
        if not len(self.ghosts):
            return walk("mirror", self.indptr, self.senders).astype(kind)
        mirror = np.full(len(self.senders), -1, kind)
        inside = np.flatnonzero(self.senders < len(self.ids))
        mirror[inside] = inside[sort_stably(self.senders[inside])]
        return mirror


def place(topology: Topology, rank: int, size: int, division: RankPartition | None = None) -> LocalSubgraph:
    """Work out what `rank` needs to know if the devices are divided like this; None: into contiguous blocks."""
    division = division or RankPartition.blocks(topology.n, size)
    ids, owner = division.of(rank), division.owner
    degrees = topology.degrees
    indptr, edges = _own_edges(topology, division, ids)
    indices = topology.indices[edges]
    outside = np.flatnonzero(owner[indices] != rank)
    ghosts = _distinct(indices[outside], topology.n)
    ghosts = ghosts[np.argsort(owner[ghosts], kind="stable")]
    senders = indices if len(ids) == topology.n else _number((ids, ghosts), topology.n)[indices]
    peers = _meet(indptr, outside, senders, owner[ghosts])
    return LocalSubgraph(rank, ids, ghosts, indptr, indices, edges, senders, peers, division, degrees)


def _own_edges(topology: Topology, division: RankPartition, ids: Integers) -> tuple[Integers, Integers | slice]:
    """Return the own edges of each own device as CSR, and where they are in the topology."""
    if division.order is None:
        first = int(ids[0]) if len(ids) else 0
        indptr = topology.indptr[first : first + len(ids) + 1]
        return indptr - indptr[0] if first else indptr, slice(int(indptr[0]), int(indptr[-1]))
    counts = topology.degrees[ids]
    return np.concatenate(([0], np.cumsum(counts))), expand_ranges(topology.indptr[ids], counts)


def _distinct(devices: Integers, n: int) -> Integers:
    """Return the distinct ones of these devices, ascending."""
    found = np.zeros(n, np.bool_)
    found[devices] = True
    return np.flatnonzero(found)


def _number(parts: tuple[Integers, ...], n: int) -> Integers:
    """Return the position of each device in the parts put end to end, int64[n]; of others anything."""
    number = np.empty(n, np.int64)
    devices = np.concatenate(parts)
    number[devices] = np.arange(len(devices))
    return number


def _meet(indptr: Integers, outside: Integers, senders: Integers, owner: Integers) -> tuple[Peer, ...]:
    """Return the peers.

    Parameters
    ----------
    indptr : int64[n + 1]
        Own edges by own device.
    outside : int64[c]
        Own edges to ghosts, ascending.
    senders : int64[e]
        Slots at the own edges.
    owner : int[g]
        Rank of each ghost; ghosts with the same one lie side by side.
    """
    if not len(outside):
        return ()
    source = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    own = int(senders.max()) + 1 - len(owner)  # slots of own devices
    slots = senders[outside]
    rank = owner[slots - own]
    send_edges, recv_edges = outside[np.argsort(rank, kind="stable")], outside[sort_stably(slots)]
    ends, lasts = np.cumsum(np.bincount(rank)), own + np.cumsum(np.bincount(owner))
    peers = []
    for peer in np.unique(owner):
        first, first_slot = (ends[peer - 1], lasts[peer - 1]) if peer else (0, own)
        edges = slice(int(first), int(ends[peer]))
        send = np.unique(source[send_edges[edges]])
        peers.append(Peer(int(peer), send, int(first_slot), int(lasts[peer]), send_edges[edges], recv_edges[edges]))
    return tuple(peers)
