"""Network in one process: all devices are in the batch, so receivers read the array of the senders."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.messages import Delivery, DenseMessages, Inbox, SparseMessages
from p2pkm.core.sorting import offsets_of
from p2pkm.network.delay_model import DelayModel
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.ledger import Ledger
from p2pkm.network.mailbox import Mailbox, restrict_edges
from p2pkm.network.sparse_routing import SparseRouter
from p2pkm.network.transport_state import restore, snapshot


class LocalNetwork:
    """Network of one process; see `p2pkm.network.transport.Network` for the methods."""

    snapshot, restore = snapshot, restore

    def __init__(self, placement: LocalSubgraph) -> None:
        self.placement = placement
        self.ledger = Ledger(placement.indptr)
        self.stage = -1
        self._active: Mask | None = None
        self.memory = Mailbox(placement)
        self._router = SparseRouter(placement)

    def open(self, delays: DelayModel | None = None) -> None:
        """Start a stage with an empty mailbox."""
        self.stage += 1
        self.turn = 0
        self.memory = Mailbox(self.placement, delays=delays)

    def set_active_edges(self, active: Mask) -> None:
        """Restrict messages to these edges, bool[e]."""
        self._active = None if active.all() else active
        self.memory.discard(~active)

    def exchange(self, messages: DenseMessages) -> Inbox:
        """Deliver dense messages."""
        edges = restrict_edges(messages.edges, self._active)
        self.ledger.count_dense(messages, edges, self.stage, self.turn)
        self.turn += 1
        self.memory.write(messages, messages.values.shape[1])
        return self.memory.inbox(None if edges is None else edges[self.placement.mirror])

    def deliver(self, sparse: SparseMessages) -> Delivery:
        """Deliver sparse messages."""
        delivery = self._router.route(sparse, self._active)
        self.ledger.count_sparse(sparse, delivery, (self.stage, self.turn))
        self.turn += 1
        return self._router.assemble(delivery, [])

    def halo_exchange_uncounted(self, values: Floats) -> Floats:
        """Return the values of local and halo devices, uncounted."""
        return values

    def gather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices in device order, uncounted."""
        return values

    def allgather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices in device order, uncounted."""
        return values

    def find_first_rows(self, counts: Integers) -> Integers:
        """Return the position of the first row of each device, int64[n]."""
        return offsets_of(counts)[:-1]

    def total(self, counts: Integers) -> Integers:
        """Sum integers over all ranks."""
        return counts

    def close(self) -> None:
        """Free the tables of the exchanges."""
        del self.memory, self._router

    def release(self) -> None:
        """Free the links; gathering, sums and the ledger still work."""
        self.placement = self.placement.without_links()


class LocalWorld:
    """World of a program that was not started by an MPI launcher: one rank."""

    rank, size = 0, 1

    def broadcast(self, arrays: dict[str, Any] | None) -> dict[str, Any]:
        """Return the arrays unchanged."""
        return arrays or {}

    def scatter(self, parts: Iterator[dict[str, Any]] | None) -> dict[str, Any]:
        """Return the only part."""
        return {} if parts is None else next(parts)

    def gather(self, part: Any) -> list[Any] | None:
        """Return the only part, uint8[...], as a list."""
        return [part]

    def draw_numbers(self, count: int, completed: Callable[[int], None]) -> Generator[int]:
        """Yield all numbers."""
        yield from range(count)

    def wait(self) -> None:
        """Return at once; this is the only rank."""

    def network(self, placement: LocalSubgraph) -> LocalNetwork:
        """Create the network of the subgraph."""
        return LocalNetwork(placement)

    def abort(self, code: int) -> None:
        """Return at once; this is the only rank."""

    def library(self) -> str | None:
        """Return None: no MPI library."""
        return None
