"""Sparse messages on one rank: which stay here, what goes to which other rank, and what came. Arithmetic, no MPI."""

from collections.abc import Iterator

import numpy as np

from p2pkm.core.batch import Floats, Mask
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.network.halo import LocalSubgraph


class SparseRouter:
    """Sort sparse messages by where they go; the cost of each step grows with what is sent and not with the graph.

    Parameters
    ----------
    placement : LocalSubgraph
    """

    def __init__(self, placement: LocalSubgraph) -> None:
        self._indptr, self._mirror, self._peers = placement.indptr, placement.mirror, placement.peers
        self._orders = [np.argsort(peer.send_edges) for peer in placement.peers]

    def sort(self, sparse: SparseMessages, active: Mask | None) -> Delivery:
        """Return the edges in use that sparse messages go over, as own edges from the sender, and the table of each."""
        edges = sparse.edges if active is None else sparse.edges[active[sparse.edges]]
        senders = self._indptr.searchsorted(edges, side="right") - 1
        return Delivery(edges, sparse.tables.take(sparse.who.searchsorted(senders)))

    def wrap(self, delivery: Delivery) -> Iterator[Floats]:
        """Yield what goes to each peer, as numbers one after another.

        First how many tables, edges and columns; then the rows of each table; for each edge its place among those
        between the two ranks, and then which table goes over it; then the rows themselves.
        """
        leaving = np.flatnonzero(self._mirror[delivery.edges] < 0)
        for peer, order in zip(self._peers, self._orders, strict=True):
            at = np.searchsorted(peer.send_edges, delivery.edges[leaving], sorter=order)
            places = order[np.minimum(at, len(order) - 1)]
            here = peer.send_edges[places] == delivery.edges[leaving]
            tables = delivery.tables.take(leaving[here])
            alike = tables.starts * (len(tables.values) + 1) + tables.rows
            _, first, which = np.unique(alike, return_index=True, return_inverse=True)
            once = tables.take(first)
            counts = len(first), len(which), tables.values.shape[1]
            yield np.concatenate((counts, once.rows, places[here], which, once.flat().ravel())).astype(np.float64)

    def hand_out(self, delivery: Delivery, parcels: list[Floats]) -> Delivery:
        """Return what the own devices receive: of each other, and from each peer what it wrapped for this rank."""
        opposite, tables = self._mirror[delivery.edges].astype(np.int64), delivery.tables
        if self._peers:
            inside = np.flatnonzero(opposite >= 0)
            opposite, tables = opposite[inside], tables.take(inside)
        edges, values, starts, rows = [opposite], [tables.values], [tables.starts], [tables.rows]
        held = len(tables.values)
        for peer, parcel in zip(self._peers, parcels, strict=len(parcels) > 0):
            count, over, width = (int(number) for number in parcel[:3])
            lengths, places, which, flat = np.split(parcel[3:], np.cumsum((count, over, over)))
            if not count:
                continue
            each, picked = lengths.astype(np.int64), which.astype(np.int64)
            edges.append(peer.recv_edges[places.astype(np.int64)])
            starts.append((held + np.cumsum(each) - each)[picked])
            rows.append(each[picked])
            values.append(flat.reshape(-1, width))
            held += len(values[-1])
        whole = (values[0] if len(values) == 1 else np.concatenate(values)).view()
        whole.flags.writeable = False
        edges_in = np.concatenate(edges)
        order = edges_in.argsort()
        return Delivery(edges_in[order], Tables(whole, np.concatenate(starts), np.concatenate(rows)).take(order))
