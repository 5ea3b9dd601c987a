"""Network on MPI: persistent requests send from and receive into the mailbox.

Tags: 0 for tables, 1 for edge flags, `_SPARSE_TAG` for sparse messages.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.errors import NetworkError
from p2pkm.core.messages import Delivery, DenseMessages, Inbox, SparseMessages
from p2pkm.core.mpi_environment import count_cores, expected_size, explain_alone, explain_mismatch, local_size
from p2pkm.core.sorting import offsets_of
from p2pkm.network.delay_model import DelayModel
from p2pkm.network.halo import LocalSubgraph, RankExchange
from p2pkm.network.ledger import Ledger
from p2pkm.network.mailbox import Mailbox, restrict_edges
from p2pkm.network.mpi_abort import abort_on_error
from p2pkm.network.sparse_routing import SparseRouter
from p2pkm.network.transport_state import restore, snapshot

if TYPE_CHECKING:
    from p2pkm.network.shared_arrays import Machines

# Seconds between two polls while waiting for other ranks.
_POLL = 0.002
# Nanoseconds by which Linux may delay the end of a sleep, with more ranks than cores. With the default of 50,000 ranks
# that wait poll so often that they use as much of the processor as ranks that work.
_TIMER_SLACK = 200_000
_SPARSE_TAG, _REST_TAG = 2, 3
# Numbers in the first part of sparse messages (8 kB), for which every rank reserves memory per neighboring rank.
_FIRST_PART = 1_024
# Bytes from which the ranks of a machine share an array that rank 0 broadcasts; below, copies take less time.
_LEAST = 1 << 20
# Name of the list of these arrays in a broadcast.
_SLOTS = ".large"
# Seconds in which the launcher forwards printed text; an abort makes it drop the rest.
_FLUSH_DELAY = 0.2


class MPINetwork:
    """Network between MPI ranks; see `p2pkm.network.transport.Network` for the methods."""

    snapshot, restore = snapshot, restore

    def __init__(self, placement: LocalSubgraph, mpi: Any) -> None:
        self.placement = placement
        self.ledger = Ledger(placement.indptr)
        self._mpi = mpi
        self._comm = mpi.COMM_WORLD
        self._start = mpi.Prequest.Startall
        self._finish = mpi.Request.Waitall
        self._requests: list[Any] = []
        # Copies for ranks whose tables are not contiguous in the mailbox: local devices, and the buffer.
        self._outgoing: list[tuple[Integers, Floats]] = []
        # Edge flags that are sent and received, in the order of the requests.
        self._flags = np.zeros((2, sum(len(peer.send_edges) for peer in placement.peers)), np.bool_)
        self.stage = -1
        self._active: Mask | None = None
        self.memory = Mailbox(placement, header_rows=1)
        self._router = SparseRouter(placement)
        # First parts of the sparse messages of neighboring ranks.
        self._first_parts = np.empty((len(placement.peers), _FIRST_PART))

    def open(self, delays: DelayModel | None = None) -> None:
        """Start a stage with an empty mailbox."""
        self._free()
        self.stage += 1
        self.turn = 0
        self.memory = Mailbox(self.placement, header_rows=1, delays=delays)
        # Array of tables and kind of messages for which the present requests were created.
        self._planned: tuple[Floats | None, bool] = (None, False)

    def set_active_edges(self, active: Mask) -> None:
        """Restrict messages to these edges, bool[e]."""
        self._active = None if active.all() else active
        self.memory.discard(~active)

    def exchange(self, messages: DenseMessages) -> Inbox:
        """Deliver dense messages.

        Every exchange transfers the tables of all boundary devices, also of silent ones, so that all exchanges of a
        stage have the same shape and need one transfer per rank. The header row of a table carries its row count, -1 if
        the device is silent; the receiver then keeps the last table.
        """
        memory = self.memory
        r = messages.values.shape[1]
        memory.write(messages, self._largest(r) if messages.ragged else r)
        selective = messages.edges is not None
        # The requests point into the array of tables, so they are created again if the mailbox replaced it.
        if self._planned[0] is not memory.tables or self._planned[1] != selective:
            self._plan(selective)
        for send, tables in self._outgoing:
            np.take(memory.tables, send, axis=0, out=tables)
        edges = restrict_edges(messages.edges, self._active)
        flags = self._send_flags(edges) if selective and edges is not None else None
        self._start(self._requests)
        # Counting overlaps with the transfer.
        self.ledger.count_dense(messages, edges, self.stage, self.turn)
        self.turn += 1
        self._finish(self._requests)
        memory.receive()
        return memory.inbox(self._active if flags is None else self._recv_flags(flags))

    def deliver(self, sparse: SparseMessages) -> Delivery:
        """Deliver sparse messages: one transfer to each neighboring rank, and a second one if the first is full.

        Receivers do not wait with `Probe`, which does not yield the processor. With 16 ranks on two cores it used 0.2 s
        on each rank in 100 exchanges.
        """
        delivery = self._router.route(sparse, self._active)
        self.ledger.count_sparse(sparse, delivery, (self.stage, self.turn))
        self.turn += 1
        peers, comm = self.placement.peers, self._comm
        parts = zip(self._first_parts, peers, strict=True)
        requests = [comm.Irecv(part, peer.rank, _SPARSE_TAG) for part, peer in parts]
        # The messages are stored until they are sent.
        packed = list(self._router.pack(delivery))
        for message, peer in zip(packed, peers, strict=True):
            requests.append(comm.Isend(message[:_FIRST_PART], peer.rank, _SPARSE_TAG))
            if len(message) > _FIRST_PART:
                requests.append(comm.Isend(message[_FIRST_PART:], peer.rank, _REST_TAG))
        self._finish(requests[: len(peers)])
        received = list(map(self._receive_rest, self._first_parts, peers))
        self._finish(requests[len(peers) :])
        return self._router.assemble(delivery, received)

    def _receive_rest(self, first_part: Floats, peer: RankExchange) -> Floats:
        """Return a sparse message, whose length its first number contains; receive the rest if there is one."""
        length = int(first_part[0])
        if length <= _FIRST_PART:
            return first_part[:length]
        message = np.concatenate((first_part, np.empty(length - _FIRST_PART)))
        self._comm.Recv(message[_FIRST_PART:], peer.rank, _REST_TAG)
        return message

    def halo_exchange_uncounted(self, values: Floats) -> Floats:
        """Return the values of local and halo devices, uncounted."""
        result = np.empty((self.placement.slots, *values.shape[1:]))
        result[: len(values)] = values
        peers = self.placement.peers
        sent = [self._comm.Isend(np.ascontiguousarray(values[peer.send]), peer.rank) for peer in peers]
        for peer in peers:
            self._comm.Recv(result[peer.first : peer.last], peer.rank)
        self._mpi.Request.Waitall(sent)
        return result

    def gather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices in device order on rank 0, uncounted."""
        is_root = self._comm.rank == 0
        values, rows, kind, result = self._rows(values, counts, is_receiver=is_root)
        self._comm.Gatherv([values, len(values), kind], [result, rows, kind] if is_root else None)
        kind.Free()
        return self.placement.division.arrange(result, counts) if is_root else None

    def allgather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices in device order on all ranks, uncounted."""
        values, rows, kind, result = self._rows(values, counts)
        self._comm.Allgatherv([values, len(values), kind], [result, rows, kind])
        kind.Free()
        return self.placement.division.arrange(result, counts)

    def find_first_rows(self, counts: Integers) -> Integers:
        """Return the position of the first row of each local device, int64[n]; only rank 0 holds those of all."""
        division = self.placement.division
        everywhere = self.gather_by_device(counts)
        sent = None
        if everywhere is not None:
            first_rows = offsets_of(everywhere)[:-1]
            sent = [first_rows if division.order is None else first_rows[division.order], division.rows(None)]
        result = np.empty(len(counts), np.int64)
        self._comm.Scatterv(sent, result)
        return result

    def total(self, counts: Integers) -> Integers:
        """Sum integers over all ranks."""
        result = np.empty_like(counts)
        self._comm.Allreduce(np.ascontiguousarray(counts), result)
        return result

    def _rows(self, values: Any, counts: Integers | None, *, is_receiver: bool = True) -> tuple[Any, Any, Any, Any]:
        """Return contiguous rows, the number of rows of each rank, the MPI type of a row, and an array for all rows.

        A rank that does not receive the rows gets None instead of the numbers and of the array.
        """
        values = np.ascontiguousarray(values)
        size = values.dtype.itemsize * int(np.prod(values.shape[1:]))
        kind = self._mpi.BYTE.Create_contiguous(size).Commit()
        if not is_receiver:
            return values, None, kind, None
        rows = self.placement.division.rows(counts)
        return values, rows, kind, np.empty((rows.sum(), *values.shape[1:]), values.dtype)

    def _largest(self, r: int) -> int:
        """Return the largest number of rows on any rank, rounded up to a power of two: requests are rarely rebuilt."""
        largest = np.empty(1, np.int64)
        self._comm.Allreduce(np.array([r]), largest, self._mpi.MAX)
        return 1 << (int(largest[0]) - 1).bit_length()

    def _send_flags(self, edges: Mask) -> Mask:
        """Write the flags of edges to other ranks; return the flags of edges between local devices, at the receiver."""
        first = 0
        for peer in self.placement.peers:
            last = first + len(peer.send_edges)
            self._flags[0, first:last] = edges[peer.send_edges]
            first = last
        return edges[self.placement.mirror] & (self.placement.mirror >= 0)

    def _recv_flags(self, flags: Mask) -> Mask:
        """Add the received flags of edges from other ranks."""
        first = 0
        for peer in self.placement.peers:
            last = first + len(peer.recv_edges)
            flags[peer.recv_edges] = self._flags[1, first:last]
            first = last
        return flags

    def _plan(self, selective: bool) -> None:
        """Create the persistent requests: tables and, if selective, edge flags for each neighboring rank."""
        self._free()
        self._planned = (self.memory.tables, selective)
        first = 0
        for peer in self.placement.peers:
            last = first + len(peer.send_edges)
            sent = self._source(peer), self._flags[0, first:last]
            received = self.memory.tables[peer.first : peer.last], self._flags[1, first:last]
            for tag in range(2 if selective else 1):
                self._requests.append(self._comm.Send_init(sent[tag], peer.rank, tag))
                self._requests.append(self._comm.Recv_init(received[tag], peer.rank, tag))
            first = last

    def _source(self, peer: RankExchange) -> Floats:
        """Return the send buffer for another rank: the mailbox if its tables are contiguous, otherwise a copy."""
        send = peer.send
        memory = self.memory
        if send[-1] - send[0] + 1 == len(send):
            return memory.tables[int(send[0]) : int(send[-1]) + 1]
        tables = np.empty((len(send), *memory.tables.shape[1:]))
        self._outgoing.append((send, tables))
        return tables

    def _free(self) -> None:
        """Free the persistent requests."""
        for request in self._requests:
            request.Free()
        self._requests = []
        self._outgoing = []

    def close(self) -> None:
        """Free requests and tables of the exchanges; gathering and sums still work."""
        self._free()
        # With millions of devices the tables take gigabytes, which the result needs.
        del self.memory, self._flags, self._router
        self._planned = (None, False)

    def release(self) -> None:
        """Free the links of this rank; gathering, sums and the ledger still work."""
        self.placement = self.placement.without_links()


class MPIWorld:
    """World of the ranks of COMM_WORLD; see `p2pkm.network.transport.World` for the methods."""

    def __init__(self) -> None:
        self._mpi = _start()
        self._comm = self._mpi.COMM_WORLD
        self.rank = self._comm.rank
        self.size = self._comm.size
        self._machines: Machines | None = None
        if self.size > 1:
            abort_on_error(self)

    def broadcast(self, arrays: dict[str, Any] | None) -> dict[str, Any]:
        """Send the arrays of rank 0 to all ranks."""
        self.wait()
        small, large = _divide(arrays or {})
        blob = _pack(small) if self.rank == 0 else np.empty(0, np.uint8)
        length = np.array([len(blob)])
        self._comm.Bcast(length)
        blob = blob if self.rank == 0 else np.empty(int(length[0]), np.uint8)
        self._comm.Bcast(blob)
        received = _unpack(blob)
        slots = received.pop(_SLOTS, None)
        if slots is None:
            return received
        # After the small arrays, as most broadcasts have no large ones, and those need the module.
        from p2pkm.network.shared_arrays import Machines, read_slots

        if self._machines is None:
            self._machines = Machines(self._mpi)
        return received | self._machines.broadcast(read_slots(slots), large)

    def scatter(self, parts: Iterator[dict[str, Any]] | None) -> dict[str, Any]:
        """Send one part of rank 0 to each rank; return the part of this rank."""
        if parts is None:
            return _unpack(self._receive(0))
        first = next(parts)
        for rank, part in enumerate(parts, 1):
            blob = _pack(part)
            self._comm.Send(np.array([len(blob)]), rank)
            self._comm.Send(blob, rank)
        return first

    def gather(self, part: Any) -> list[Any] | None:
        """Collect the parts of all ranks, uint8[...] each, on rank 0; None on other ranks."""
        self.wait()
        if self.rank > 0:
            self._comm.Send(np.array([len(part)]), 0)
            self._comm.Send(np.ascontiguousarray(part), 0)
            return None
        return [part, *(self._receive(rank) for rank in range(1, self.size))]

    def _receive(self, rank: int) -> Any:
        """Receive bytes from a rank, preceded by their number."""
        length = np.empty(1, np.int64)
        self._comm.Recv(length, rank)
        blob = np.empty(int(length[0]), np.uint8)
        self._comm.Recv(blob, rank)
        return blob

    def draw_numbers(self, count: int, completed: Callable[[int], None]) -> Generator[int]:
        """Yield numbers that no other rank draws, as this rank asks for them."""
        # Only studies need it, and it imports modules that no run needs.
        from p2pkm.network.dealing import draw_numbers

        return draw_numbers(self._mpi, count, completed)

    def wait(self) -> None:
        """Wait for all ranks, sleeping between polls: a blocking barrier would use the processor."""
        request = self._comm.Ibarrier()
        while not request.Test():
            time.sleep(_POLL)

    def network(self, placement: LocalSubgraph) -> MPINetwork:
        """Create the network of the subgraph of this rank."""
        return MPINetwork(placement, self._mpi)

    def library(self) -> str:
        """Return name and version of the MPI library."""
        return str(self._mpi.Get_library_version().splitlines()[0].strip())

    def abort(self, code: int) -> None:
        """End all ranks at once with an exit code."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_FLUSH_DELAY)
        self._comm.Abort(code)
        # Some launchers end this rank only after a moment, in which it must not continue.
        os._exit(code)


def _start() -> Any:
    """Check that launcher and library match, and start MPI.

    The library is loaded first and initialized later: under the launcher of another MPI, initialization can end the
    process.
    """
    # MPICH: yield the processor between polls, for more ranks than cores.
    os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
    if local_size() > count_cores():
        _lengthen_sleeps()
    # MPICH: no second message at an abort, after the one of `mpi_abort`.
    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")
    try:
        import mpi4py

        # Otherwise the calling program has loaded MPI and may have initialized it.
        is_first_import = "mpi4py.MPI" not in sys.modules
        if is_first_import:
            mpi4py.rc.initialize = False
            mpi4py.rc.finalize = True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise NetworkError(
            f"an MPI launcher started this program, but no MPI library can be loaded ({str(error).splitlines()[0]}). "
            'Install one, for example: pip install "p2pkm[mpich]"'
        ) from None
    if reason := explain_mismatch(MPI.Get_library_version()):
        raise NetworkError(reason)
    if is_first_import and not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    if expected_size() > 1 and MPI.COMM_WORLD.size == 1:
        raise NetworkError(explain_alone(" ".join(MPI.Get_library_version().splitlines()[0].split())))
    return MPI


def _lengthen_sleeps() -> None:
    """Lengthen the sleeps of this process, and with them the pauses between the polls of MPICH."""
    with suppress(OSError), open("/proc/self/timerslack_ns", "w") as file:
        file.write(str(_TIMER_SLACK))


def _divide(arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide arrays into small ones, with the list of the large ones, and large ones."""
    stored = {name: _stored(np.asarray(array)) for name, array in arrays.items()}
    # A repeated number stays one.
    large = {
        name: part for name, part in stored.items() if part.nbytes >= _LEAST and part.size == np.size(arrays[name])
    }
    if not large:
        return arrays, {}
    from p2pkm.network.shared_arrays import write_slots

    small = {name: array for name, array in arrays.items() if name not in large}
    return small | {_SLOTS: write_slots(large)}, large


def _pack(arrays: dict[str, Any]) -> Any:
    """Serialize arrays: length of the header, header (names, types, shapes, stored numbers), contents.

    Of an array that repeats one number with stride 0, such as weights of 1, this number is stored.
    """
    contents = {name: _stored(np.asarray(array)) for name, array in arrays.items()}
    shapes = {name: np.shape(array) for name, array in arrays.items()}
    header = json.dumps({name: [part.dtype.str, shapes[name], part.size] for name, part in contents.items()}).encode()
    parts = [np.array([len(header)]), np.frombuffer(header, np.uint8), *contents.values()]
    # Written to one buffer: joined copies would be three times the graph of a large run.
    blob = np.empty(sum(part.nbytes for part in parts), np.uint8)
    position = 0
    for part in parts:
        blob[position : position + part.nbytes] = part.reshape(-1).view(np.uint8)
        position += part.nbytes
    return blob


def _stored(array: Any) -> Any:
    """Return the contents of an array, or one number if it is repeated with stride 0."""
    is_repeated = array.size > 1 and not any(array.strides)
    return array.flat[:1] if is_repeated else np.asarray(array, order="C")


def _unpack(blob: Any) -> dict[str, Any]:
    """Deserialize the result of `_pack`."""
    length = int(blob[:8].view(np.int64)[0])
    position = 8 + length
    arrays = {}
    for name, (kind, shape, size) in json.loads(blob[8:position].tobytes()).items():
        stored = np.frombuffer(blob, kind, size, position)
        position += stored.nbytes
        is_repeated = size < np.prod(shape)
        arrays[name] = np.broadcast_to(stored[0], shape) if is_repeated else stored.reshape(shape).copy()
    return arrays
