"""The network in one process: every device is in the batch, so what is sent is received by reading the same array."""

from collections.abc import Iterator
from typing import Any

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.messages import Delivery, DenseMessages, Inbox, SparseMessages
from p2pkm.network.delay_model import DelayModel
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.ledger import Ledger
from p2pkm.network.mailbox import Mailbox, restrict_edges
from p2pkm.network.sparse_routing import SparseRouter
from p2pkm.network.transport_state import restore, snapshot


class LocalNetwork:
    """Deliver messages within one process; see `p2pkm.network.transport.Network` for the meaning of each method."""

    snapshot, restore = snapshot, restore

    def __init__(self, placement: LocalSubgraph) -> None:
        self.placement = placement
        self.ledger = Ledger(placement.indptr)
        self.stage = -1
        self._active: Mask | None = None
        self.memory, self._post = Mailbox(placement), SparseRouter(placement)

    def open(self, delays: DelayModel | None = None) -> None:
        """Begin a stage: nothing has been received yet."""
        self.stage, self.turn = self.stage + 1, 0
        self.memory = Mailbox(self.placement, delays=delays)

    def set_active_edges(self, active: Mask) -> None:
        """Let messages go over these own edges only, from now on."""
        self._active = None if active.all() else active
        self.memory.forget(~active)

    def exchange(self, messages: DenseMessages) -> Inbox:
        """Deliver what every device sends to its neighbors."""
        edges = restrict_edges(messages.edges, self._active)
        self.ledger.count_dense(messages, edges, self.stage, self.turn)
        self.turn += 1
        self.memory.write(messages, messages.values.shape[1])
        return self.memory.inbox(None if edges is None else edges[self.placement.mirror])

    def deliver(self, sparse: SparseMessages) -> Delivery:
        """Deliver what few devices send."""
        delivery = self._post.sort(sparse, self._active)
        self.ledger.count_sparse(sparse, delivery, (self.stage, self.turn))
        self.turn += 1
        return self._post.hand_out(delivery, [])

    def halo_exchange_uncounted(self, values: Floats) -> Floats:
        """Return the values of own devices and ghosts, uncounted."""
        return values

    def gather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices, in their order, on rank 0, uncounted."""
        return values

    def allgather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices, in their order, on every rank, uncounted."""
        return values

    def total(self, counts: Integers) -> Integers:
        """Return the sums of whole numbers over ranks, on every rank."""
        return counts

    def close(self) -> None:
        """Free what the network holds."""


class LocalWorld:
    """The one rank of a program that was not started by an MPI launcher."""

    rank, size = 0, 1

    def broadcast(self, arrays: dict[str, Any] | None) -> dict[str, Any]:
        """Return the arrays of rank 0 on every rank."""
        return arrays or {}

    def scatter(self, parts: Iterator[dict[str, Any]] | None) -> dict[str, Any]:
        """Return this rank's part of what rank 0 scatters."""
        return {} if parts is None else next(parts)

    def gather(self, part: Any) -> list[Any] | None:
        """Return what every rank gives, uint8[...] each, on rank 0."""
        return [part]

    def wait(self) -> None:
        """Wait, without using the processor, until every rank has come here."""

    def network(self, placement: LocalSubgraph) -> LocalNetwork:
        """Return a network over the placement."""
        return LocalNetwork(placement)

    def abort(self, code: int) -> None:
        """End all ranks at once: this one ends by itself."""

    def library(self) -> str | None:
        """Return the MPI library and its version."""
        return None
