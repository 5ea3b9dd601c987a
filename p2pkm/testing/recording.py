"""Record of all messages of a run in one process, so that laws can compare them."""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.messages import DenseMessages, Inbox, SparseMessages
from p2pkm.metrics.monitor import Record
from p2pkm.metrics.result import Result
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.local import LocalNetwork, LocalWorld

_UNSENT = 12345.0  # written into rows that are not sent, which no receiver may read


class Exchange(NamedTuple):
    """Messages of one exchange.

    Attributes
    ----------
    sent : list of bytes or tuple or None
        Table of each device as a tuple that can be compared, of shape or number of rows, numbers, encoded bytes if any,
        and with sparse messages edges; None: nothing was sent.
    edges : int64[e, 2]
        Receiver and sender of each edge over which a table arrived.
    """

    sent: list[Any]
    edges: Integers


class PlayedRun(NamedTuple):
    """Result of a run, its messages and its records."""

    result: Result
    exchanges: list[Exchange]
    records: list[Record]

    @property
    def bits(self) -> dict[str, Any]:
        """Values that must be equal in two runs with the same seed: all except for times."""
        summary = {key: value for key, value in self.result.summary.items() if not key.endswith("seconds")}
        return {"centroids": self.result.centroids.tobytes()} | summary


class RecordingWorld(LocalWorld):
    """Single process whose network records all messages.

    Parameters
    ----------
    overwrite_unsent : bool
        Overwrite rows of message tables that are not sent; no receiver may read them.
    """

    def __init__(self, *, overwrite_unsent: bool = False) -> None:
        self.exchanges: list[Exchange] = []
        self._overwrite_unsent = overwrite_unsent

    def network(self, placement: LocalSubgraph) -> LocalNetwork:
        """Create a recording network."""
        return _RecordingNetwork(placement, self.exchanges, overwrite_unsent=self._overwrite_unsent)


class _RecordingNetwork(LocalNetwork):
    def __init__(self, placement: LocalSubgraph, exchanges: list[Exchange], *, overwrite_unsent: bool) -> None:
        super().__init__(placement)
        self._exchanges = exchanges
        self._overwrite_unsent = overwrite_unsent

    def exchange(self, messages: DenseMessages) -> Inbox:
        if self._overwrite_unsent:
            values = messages.values.copy()
            values[np.arange(values.shape[1]) >= messages.rows[:, None]] = _UNSENT
            messages = messages._replace(values=values)
        inbox = super().exchange(messages)
        arrived = np.flatnonzero(inbox.fresh & (inbox.slots >= 0))
        self._exchanges.append(Exchange(_pack_dense(messages), self._ends(arrived)))
        return inbox

    def deliver(self, sparse: SparseMessages) -> Any:
        delivery = super().deliver(sparse)
        self._exchanges.append(Exchange(self._pack_sparse(sparse), self._ends(delivery.edges)))
        return delivery

    def _ends(self, edges: Integers) -> Integers:
        """Return receiver and sender of each edge, int64[e, 2]."""
        owners = np.repeat(self.placement.ids, np.diff(self.placement.indptr))
        return np.column_stack((owners[edges], self.placement.indices[edges]))

    def _pack_sparse(self, messages: SparseMessages) -> list[Any]:
        """Pack the table of each device, with the edges over which it is sent."""
        packed: list[Any] = [None] * len(self.placement.ids)
        for number, v in enumerate(messages.senders):
            table = messages.tables.take(np.array([number])).flat()
            first, last = self.placement.indptr[v : v + 2]
            edges = messages.edges[(messages.edges >= first) & (messages.edges < last)] - first
            wire = None if messages.wire is None else int(messages.wire[number])
            packed[v] = (table.shape, table.tobytes(), wire, edges.tobytes())
        return packed


def _pack_dense(messages: DenseMessages) -> list[Any]:
    """Pack the table of each device, with its encoded length."""
    packed: list[Any] = []
    for v, rows in enumerate(messages.rows):
        wire = None if messages.wire is None else int(messages.wire[v])
        packed.append(None if rows < 0 else (int(rows), messages.values[v, :rows].tobytes(), wire))
    return packed
