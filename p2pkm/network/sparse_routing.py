"""Routing of sparse messages between ranks; without MPI calls."""

from collections.abc import Iterator

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.network.halo import LocalSubgraph

# Numbers before the rows of the tables: length of the message, numbers of tables, edges and columns.
_HEAD = 4


class SparseRouter:
    """Router of sparse messages. The cost of each step is proportional to the messages, not to the graph.

    Parameters
    ----------
    subgraph : LocalSubgraph
    """

    def __init__(self, subgraph: LocalSubgraph) -> None:
        self._indptr = subgraph.indptr
        self._mirror = subgraph.mirror
        self._peers = subgraph.peers
        self._orders = [np.argsort(peer.send_edges) for peer in subgraph.peers]

    def route(self, sparse: SparseMessages, active: Mask | None) -> Delivery:
        """Return the active edges of sparse messages, from the senders, and the table of each edge."""
        edges = sparse.edges if active is None else sparse.edges[active[sparse.edges]]
        senders = self._indptr.searchsorted(edges, side="right") - 1
        return Delivery(edges, sparse.tables.take(sparse.senders.searchsorted(senders)))

    def pack(self, delivery: Delivery) -> Iterator[Floats]:
        """Yield the message to each other rank, as one array of numbers.

        Contents: the length of the message; the numbers of tables, edges and columns; the number of rows of each table;
        the position of each edge among the edges between the two ranks; the number of the table of each edge; the rows.
        A table that is sent to several devices of a rank is contained once.
        """
        leaving = np.flatnonzero(self._mirror[delivery.edges] < 0)
        width = delivery.tables.values.shape[1]
        for peer, order in zip(self._peers, self._orders, strict=True):
            if not len(leaving):
                yield np.array([_HEAD, 0.0, 0.0, width])
                continue
            at = np.searchsorted(peer.send_edges, delivery.edges[leaving], sorter=order)
            places = order[np.minimum(at, len(order) - 1)]
            is_to_peer = peer.send_edges[places] == delivery.edges[leaving]
            tables = delivery.tables.take(leaving[is_to_peer])
            # Tables with equal position and number of rows are the same table.
            keys = tables.starts * (len(tables.values) + 1) + tables.rows
            _, first, number = np.unique(keys, return_index=True, return_inverse=True)
            distinct = tables.take(first)
            flat = distinct.flat().ravel()
            length = _HEAD + len(first) + 2 * len(number) + len(flat)
            head = length, len(first), len(number), width
            yield np.concatenate((head, distinct.rows, places[is_to_peer], number, flat)).astype(np.float64)

    def assemble(self, delivery: Delivery, received: list[Floats]) -> Delivery:
        """Assemble the tables that local devices receive: from each other, and from the messages of other ranks."""
        reverse = self._mirror[delivery.edges].astype(np.int64)
        tables = delivery.tables
        if not self._peers:
            return _sort_by_edge(reverse, tables.values, tables.starts, tables.rows)
        inside = np.flatnonzero(reverse >= 0)
        tables = tables.take(inside)
        edges = [reverse[inside]]
        values = [tables.values]
        starts = [tables.starts]
        rows = [tables.rows]
        n_rows = len(tables.values)
        for peer, message in zip(self._peers, received, strict=len(received) > 0):
            n_tables, n_edges, width = message[1:_HEAD].astype(np.int64).tolist()
            if not n_tables:
                continue
            after_rows = _HEAD + n_tables
            after_places, after_numbers = after_rows + n_edges, after_rows + 2 * n_edges
            table_rows = message[_HEAD:after_rows].astype(np.int64)
            number = message[after_places:after_numbers].astype(np.int64)
            edges.append(peer.recv_edges[message[after_rows:after_places].astype(np.int64)])
            starts.append((n_rows + np.cumsum(table_rows) - table_rows)[number])
            rows.append(table_rows[number])
            values.append(message[after_numbers:].reshape(-1, width))
            n_rows += len(values[-1])
        all_values = values[0] if len(values) == 1 else np.concatenate(values)
        return _sort_by_edge(np.concatenate(edges), all_values, np.concatenate(starts), np.concatenate(rows))


def _sort_by_edge(edges: Integers, values: Floats, starts: Integers, rows: Integers) -> Delivery:
    """Return tables in ascending order of the edges over which they arrived, with read-only values."""
    order = edges.argsort()
    values = values.view()
    values.setflags(write=False)
    return Delivery(edges[order], Tables(values, starts[order], rows[order]))
