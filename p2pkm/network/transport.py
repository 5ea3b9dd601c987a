"""Interfaces of the message layer: `Network` delivers messages between devices, `World` connects the ranks."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.messages import Delivery, DenseMessages, Inbox, SparseMessages
from p2pkm.network.delay_model import DelayModel
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.ledger import Ledger


class Network(Protocol):
    """Delivery of messages between devices; bit-identical in one process and on MPI."""

    placement: LocalSubgraph
    ledger: Ledger

    def open(self, delays: DelayModel | None = None) -> None:
        """Start a stage with an empty mailbox; delays: delays of `DenseMessages` in this stage, None: no delays."""

    def set_active_edges(self, active: Mask) -> None:
        """Restrict messages to these edges, bool[e], also in later stages.

        Both ends of a link must be equal. Tables received over an edge are discarded when it becomes inactive.
        """

    def exchange(self, messages: DenseMessages) -> Inbox:
        """Deliver dense messages: one table of every device to its neighbors."""

    def deliver(self, sparse: SparseMessages) -> Delivery:
        """Deliver sparse messages over active edges; all ranks must call it in the same turns."""

    def halo_exchange_uncounted(self, values: Floats) -> Floats:
        """Return the values of local and halo devices, float64[s, ...], for the monitor; not counted as messages."""

    # Results of the following methods are in device order and do not depend on the rank partition. `counts`,
    # int[total], is the number of rows of every device of the system; ranks that do not receive the rows ignore it,
    # and pass None: with very many devices, it takes more memory than all other arrays of a rank. None on a rank that
    # receives: one row per device.

    def gather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices in device order on rank 0, None on other ranks; uncounted."""

    def allgather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices in device order on all ranks; uncounted."""

    def find_first_rows(self, counts: Integers) -> Integers:
        """Return the position of the first row of each local device among those of all devices, int64[n]; uncounted.

        `counts`, int64[n], is the number of rows of each local device.
        """

    def total(self, counts: Integers) -> Integers:
        """Sum integers over all ranks; the result is equal on all ranks."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two exchanges, by device and edge; see `p2pkm.engine.state_tree`."""

    def restore(self, state: dict[str, Any]) -> Inbox:
        """Restore a snapshot after its stage was opened; return the inbox of its last exchange."""

    def close(self) -> None:
        """Free requests and tables of the exchanges; gathering and sums still work."""

    def release(self) -> None:
        """Free the links of this rank after `close`; gathering, sums and the ledger still work."""


class World(Protocol):
    """World: the ranks of this program."""

    rank: int
    size: int

    def broadcast(self, arrays: dict[str, Any] | None) -> dict[str, Any]:
        """Send the arrays of rank 0 to all ranks.

        The ranks of one machine hold large arrays once, each rank with private changes if it writes to them.
        """

    def scatter(self, parts: Iterator[dict[str, Any]] | None) -> dict[str, Any]:
        """Send one part of rank 0 to each rank, in turn; other ranks pass None. Return the part of this rank."""

    def gather(self, part: Any) -> list[Any] | None:
        """Collect the parts of all ranks, uint8[...] each, on rank 0; None on other ranks."""

    def draw_numbers(self, count: int, completed: Callable[[int], None]) -> Generator[int]:
        """Yield each of the numbers 0 to count - 1 on one rank, as ranks ask for them; a collective call.

        A rank asks for a number when its iterator advances. One that stops early closes its iterator; if rank 0 does,
        no more numbers are handed out. The iterator of rank 0 ends after those of all other ranks.

        Parameters
        ----------
        count : int
            That of rank 0 counts.
        completed : callable
            Called on rank 0, possibly in another thread, with each number after which another rank asks again.
        """

    def wait(self) -> None:
        """Wait for all ranks, without using the processor."""

    def network(self, placement: LocalSubgraph) -> Network:
        """Create the network of the subgraph of this rank."""

    def abort(self, code: int) -> None:
        """End all ranks at once with an exit code."""

    def library(self) -> str | None:
        """Return name and version of the MPI library, None without MPI."""
