"""The message layer: who hosts whom, how messages are delivered, and what it costs."""

from collections.abc import Iterator
from typing import Any, Protocol

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.messages import Delivery, DenseMessages, Inbox, SparseMessages
from p2pkm.network.delay_model import DelayModel
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.ledger import Ledger


class Network(Protocol):
    """Moves messages between devices; has the same semantics, to the bit, in one process and on MPI."""

    placement: LocalSubgraph
    ledger: Ledger

    def open(self, delays: DelayModel | None = None) -> None:
        """Begin a stage: nothing has been received yet; delays: how late `DenseMessages` is in it, None: never."""

    def set_active_edges(self, active: Mask) -> None:
        """Let messages go over these own edges only, bool[e], from now on, also in later stages.

        Both ends of a link must pass the same. What came over an edge is forgotten when it goes out of use.
        """

    def exchange(self, messages: DenseMessages) -> Inbox:
        """Deliver what every device sends to its neighbors."""

    def deliver(self, sparse: SparseMessages) -> Delivery:
        """Deliver what few devices send, over edges in use; every rank calls it in the same turns."""

    def halo_exchange_uncounted(self, values: Floats) -> Floats:
        """Return the values of own devices and ghosts, float64[s, ...]; for the monitor, uncounted."""

    # What ranks gather for the monitor is in device order, whatever the placement; `counts` is the number of rows of
    # every device of the system, int64[total], the same on every rank; None: one row per device.

    def gather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices, in their order, on rank 0, else None; uncounted."""

    def allgather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices, in their order, on every rank; uncounted."""

    def total(self, counts: Integers) -> Integers:
        """Return the sums of whole numbers over ranks, on every rank."""

    def snapshot(self) -> dict[str, Any]:
        """Return what the network knows between two exchanges, by device and edge; see `p2pkm.engine.state_tree`."""

    def restore(self, kept: dict[str, Any]) -> Inbox:
        """Go on from a snapshot, in the stage that was opened last; return the inbox of its last exchange."""

    def close(self) -> None:
        """Free the requests; collecting and sharing still work."""


class World(Protocol):
    """The ranks of this program."""

    rank: int
    size: int

    def broadcast(self, arrays: dict[str, Any] | None) -> dict[str, Any]:
        """Return the arrays of rank 0 on every rank."""

    def scatter(self, parts: Iterator[dict[str, Any]] | None) -> dict[str, Any]:
        """Return this rank's part of what rank 0 scatters, one rank after the other; None on all other ranks."""

    def gather(self, part: Any) -> list[Any] | None:
        """Return what every rank gives, uint8[...] each, on rank 0, else None."""

    def wait(self) -> None:
        """Wait, without using the processor, until every rank has come here."""

    def network(self, placement: LocalSubgraph) -> Network:
        """Return a network over the placement."""

    def abort(self, code: int) -> None:
        """End all other ranks at once with an exit code."""

    def library(self) -> str | None:
        """Return the MPI library and its version, None without MPI."""
