"""Which devices a rank hosts, and which tables must travel between ranks: arithmetic, no MPI."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from p2pkm.devices import Integers
from p2pkm.topology import Topology


class Peer(NamedTuple):
    """What this rank exchanges with another one.

    Attributes
    ----------
    rank : int
    send : int64[b]
        Own devices (positions in the batch) whose tables the peer needs, ascending.
    first, last : int
        Slots ``first:last`` take the peer's tables.
    speaking, hearing : int64[c]
        Own edges that lead to the peer, in the order in which the peer lists the same edges as `hearing`.
    """

    rank: int
    send: Integers
    first: int
    last: int
    speaking: Integers
    hearing: Integers


@dataclass(frozen=True)
class Placement:
    """One rank's part of the graph.

    Attributes
    ----------
    rank : int
    ids : int64[n]
        Own devices, ascending.
    ghosts : int64[g]
        Neighbours on other ranks, by rank and then by id; they follow the own devices in the numbering of slots.
    indptr, indices, edges : int64
        Own directed edges: neighbours' ids, and the positions of the edges in the topology.
    senders : int64[e]
        Slot of the neighbour at each own edge.
    mirror : int64[e]
        For an edge between two own devices the opposite edge, else -1.
    peers : tuple of Peer
    bounds, edge_bounds : int64[size + 1]
        Rank r hosts the devices ``bounds[r]:bounds[r + 1]`` and the edges ``edge_bounds[r]:edge_bounds[r + 1]``.
    """

    rank: int
    ids: Integers
    ghosts: Integers
    indptr: Integers
    indices: Integers
    edges: Integers
    senders: Integers
    mirror: Integers
    peers: tuple[Peer, ...]
    bounds: Integers
    edge_bounds: Integers

    @property
    def slots(self) -> int:
        """Return the number of tables that this rank holds."""
        return len(self.ids) + len(self.ghosts)


def divide(n: int, size: int) -> Integers:
    """Return the bounds of contiguous blocks of devices, the longer blocks first, int64[size + 1]."""
    return np.concatenate(([0], np.cumsum([n // size + (rank < n % size) for rank in range(size)])))


def place(topology: Topology, rank: int, size: int) -> Placement:
    """Give the devices to the ranks in contiguous blocks and work out what `rank` needs to know."""
    bounds = divide(topology.n, size)
    first, last = bounds[rank], bounds[rank + 1]
    edges = np.arange(topology.indptr[first], topology.indptr[last])
    indptr = topology.indptr[first : last + 1] - topology.indptr[first]
    indices = topology.indices[edges]
    own = topology.sources[edges]
    ghosts = np.unique(indices[(indices < first) | (indices >= last)])
    senders = np.where((indices >= first) & (indices < last), indices - first, 0)
    outside = (indices < first) | (indices >= last)
    senders[outside] = last - first + np.searchsorted(ghosts, indices[outside])
    owner = np.searchsorted(bounds, indices, side="right") - 1
    peers = []
    for peer in np.unique(owner[owner != rank]):
        cross = np.flatnonzero(owner == peer)
        slots = senders[cross]
        hearing = cross[np.lexsort((own[cross], indices[cross]))]
        peers.append(
            Peer(int(peer), np.unique(own[cross]) - first, int(slots.min()), int(slots.max()) + 1, cross, hearing)
        )
    return Placement(rank, np.arange(first, last), ghosts, indptr, indices, edges, senders,
                     _mirror(own, indices, owner == rank), tuple(peers), bounds, topology.indptr[bounds])  # fmt: skip


def _mirror(own: Integers, indices: Integers, inside: Integers) -> Integers:
    """Return the opposite edge of every edge that leads from one own device to another."""
    mirror = np.full(len(own), -1)
    local = np.flatnonzero(inside)
    mirror[local] = local[np.lexsort((own[local], indices[local]))]
    return mirror
