"""The network on MPI: persistent requests straight into the memory of what was received."""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.errors import NetworkError
from p2pkm.core.messages import Delivery, DenseMessages, Inbox, SparseMessages
from p2pkm.core.mpi_environment import expected_size, explain_alone, explain_mismatch
from p2pkm.network.delay_model import DelayModel
from p2pkm.network.halo import LocalSubgraph, Peer
from p2pkm.network.ledger import Ledger
from p2pkm.network.mailbox import Mailbox, restrict_edges
from p2pkm.network.mpi_abort import abort_on_error
from p2pkm.network.sparse_routing import SparseRouter
from p2pkm.network.transport_state import restore, snapshot

_POLL, _SPARSE = 0.002, 2  # seconds between two looks at a rank that works; tag, beside those of tables and flags
_PASS_ON = 0.2  # seconds for the launcher to pass on what was printed, before an abort makes it drop the rest


class MPINetwork:
    """Deliver messages between MPI ranks; see `p2pkm.network.transport.Network` for the meaning of each method."""

    snapshot, restore = snapshot, restore

    def __init__(self, placement: LocalSubgraph, mpi: Any) -> None:
        self.placement = placement
        self.ledger = Ledger(placement.indptr)
        self._mpi, self._comm = mpi, mpi.COMM_WORLD
        self._start, self._finish = mpi.Prequest.Startall, mpi.Request.Waitall
        self._requests: list[Any] = []
        self._outgoing: list[tuple[Integers, Floats]] = []
        self._flags = np.zeros((2, len(placement.indices)), np.bool_)
        self.stage = -1
        self._active: Mask | None = None
        self.memory, self._post = Mailbox(placement, spare=1), SparseRouter(placement)

    def open(self, delays: DelayModel | None = None) -> None:
        """Begin a stage: nothing has been received yet."""
        self._free()
        self.stage, self.turn = self.stage + 1, 0
        self.memory = Mailbox(self.placement, spare=1, delays=delays)
        self._planned: tuple[Floats | None, bool] = (None, False)

    def set_active_edges(self, active: Mask) -> None:
        """Let messages go over these own edges only, from now on."""
        self._active = None if active.all() else active
        self.memory.forget(~active)

    def exchange(self, messages: DenseMessages) -> Inbox:
        """Deliver what every device sends to its neighbors.

        The tables of boundary devices travel whether they sent or not (a table that was not sent anew is the one that
        the receiver has already). In the first number of its spare last row each carries its head: how many rows were
        sent, or -1 for nothing new. So every exchange of a stage has the same shape, and one message does.
        """
        memory, r = self.memory, messages.values.shape[1]
        memory.write(messages, self._largest(r) if messages.ragged else r)
        selective = messages.edges is not None
        if self._planned[0] is not memory.tables or self._planned[1] != selective:
            self._plan(selective)
        for send, tables in self._outgoing:
            np.take(memory.tables, send, axis=0, out=tables)
        edges = restrict_edges(messages.edges, self._active)
        flags = self._send_flags(edges) if selective and edges is not None else None
        self._start(self._requests)
        self.ledger.count_dense(messages, edges, self.stage, self.turn)  # while they travel
        self.turn += 1
        self._finish(self._requests)
        memory.receive()
        return memory.inbox(self._active if flags is None else self._recv_flags(flags))

    def deliver(self, sparse: SparseMessages) -> Delivery:
        """Deliver what few devices send: one message to each peer, whose length it learns as it comes."""
        delivery = self._post.sort(sparse, self._active)
        self.ledger.count_sparse(sparse, delivery, (self.stage, self.turn))
        self.turn += 1
        peers, comm, kind = self.placement.peers, self._comm, self._mpi.DOUBLE
        sent = [comm.Isend(one, peer.rank, _SPARSE) for peer, one in zip(peers, self._post.wrap(delivery), strict=True)]
        parcels, status = [], self._mpi.Status()
        for peer in peers:
            comm.Probe(peer.rank, _SPARSE, status)
            parcels.append(np.empty(status.Get_count(kind)))
            comm.Recv(parcels[-1], peer.rank, _SPARSE)
        self._mpi.Request.Waitall(sent)
        return self._post.hand_out(delivery, parcels)

    def halo_exchange_uncounted(self, values: Floats) -> Floats:
        """Return the values of own devices and ghosts, uncounted."""
        result = np.empty((self.placement.slots, *values.shape[1:]))
        result[: len(values)] = values
        peers = self.placement.peers
        sent = [self._comm.Isend(np.ascontiguousarray(values[peer.send]), peer.rank) for peer in peers]
        for peer in peers:
            self._comm.Recv(result[peer.first : peer.last], peer.rank)
        self._mpi.Request.Waitall(sent)
        return result

    def gather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices, in their order, on rank 0, uncounted."""
        values, rows, kind, result = self._rows(values, counts)
        self._comm.Gatherv([values, len(values), kind], [result, rows, kind])
        kind.Free()
        return self.placement.division.arrange(result, counts) if self._comm.rank == 0 else None

    def allgather_by_device(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices, in their order, on every rank, uncounted."""
        values, rows, kind, result = self._rows(values, counts)
        self._comm.Allgatherv([values, len(values), kind], [result, rows, kind])
        kind.Free()
        return self.placement.division.arrange(result, counts)

    def total(self, counts: Integers) -> Integers:
        """Return the sums of whole numbers over ranks, on every rank."""
        result = np.empty_like(counts)
        self._comm.Allreduce(np.ascontiguousarray(counts), result)
        return result

    def _rows(self, values: Any, counts: Integers | None) -> tuple[Any, Any, Any, Any]:
        """Return contiguous rows, how many each rank has, their MPI type, and room for all of them."""
        values = np.ascontiguousarray(values)
        rows = self.placement.division.rows(counts)
        size = values.dtype.itemsize * int(np.prod(values.shape[1:]))
        kind = self._mpi.BYTE.Create_contiguous(size).Commit()
        return values, rows, kind, np.empty((rows.sum(), *values.shape[1:]), values.dtype)

    def _largest(self, r: int) -> int:
        """Return the largest table of this exchange on any rank, rounded up so that plans are rarely made anew."""
        largest = np.empty(1, np.int64)
        self._comm.Allreduce(np.array([r]), largest, self._mpi.MAX)
        return 1 << (int(largest[0]) - 1).bit_length()

    def _send_flags(self, edges: Mask) -> Mask:
        """Write down over which edges to other ranks a selective table goes; return the own edges among themselves."""
        first = 0
        for peer in self.placement.peers:
            last = first + len(peer.send_edges)
            self._flags[0, first:last] = edges[peer.send_edges]
            first = last
        return edges[self.placement.mirror] & (self.placement.mirror >= 0)

    def _recv_flags(self, flags: Mask) -> Mask:
        """Add to the own edges those over which something came from other ranks."""
        first = 0
        for peer in self.placement.peers:
            last = first + len(peer.recv_edges)
            flags[peer.recv_edges] = self._flags[1, first:last]
            first = last
        return flags

    def _plan(self, selective: bool) -> None:
        """Make the persistent requests of this stage: for each peer the tables and perhaps edge flags."""
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

    def _source(self, peer: Peer) -> Floats:
        """Return where the tables for a peer are sent from: the memory itself if they lie side by side, else a copy."""
        send, memory = peer.send, self.memory
        if send[-1] - send[0] + 1 == len(send):
            return memory.tables[int(send[0]) : int(send[-1]) + 1]
        tables = np.empty((len(send), *memory.tables.shape[1:]))
        self._outgoing.append((send, tables))
        return tables

    def _free(self) -> None:
        """Free the requests of the last plan."""
        for request in self._requests:
            request.Free()
        self._requests, self._outgoing = [], []

    def close(self) -> None:
        """Free the requests; collecting and sharing still work."""
        self._free()


class MPIWorld:
    """The ranks of MPI's COMM_WORLD; see `p2pkm.network.transport.World` for the meaning of each method."""

    def __init__(self) -> None:
        self._mpi = _start()
        self._comm = self._mpi.COMM_WORLD
        self.rank, self.size = self._comm.rank, self._comm.size
        if self.size > 1:
            abort_on_error(self)

    def broadcast(self, arrays: dict[str, Any] | None) -> dict[str, Any]:
        """Return the arrays of rank 0 on every rank."""
        self.wait()
        blob = _freeze(arrays or {}) if self.rank == 0 else np.empty(0, np.uint8)
        length = np.array([len(blob)])
        self._comm.Bcast(length)
        blob = blob if self.rank == 0 else np.empty(int(length[0]), np.uint8)
        self._comm.Bcast(blob)
        return _thaw(blob)

    def scatter(self, parts: Iterator[dict[str, Any]] | None) -> dict[str, Any]:
        """Return this rank's part of what rank 0 scatters."""
        if parts is None:
            return _thaw(self._receive(0))
        own = next(parts)
        for rank, part in enumerate(parts, 1):
            blob = _freeze(part)
            self._comm.Send(np.array([len(blob)]), rank)
            self._comm.Send(blob, rank)
        return own

    def gather(self, part: Any) -> list[Any] | None:
        """Return what every rank gives, uint8[...] each, on rank 0, else None."""
        self.wait()
        if self.rank > 0:
            self._comm.Send(np.array([len(part)]), 0)
            self._comm.Send(np.ascontiguousarray(part), 0)
            return None
        return [part, *(self._receive(rank) for rank in range(1, self.size))]

    def _receive(self, rank: int) -> Any:
        """Return the bytes that a rank sends after their number."""
        length = np.empty(1, np.int64)
        self._comm.Recv(length, rank)
        blob = np.empty(int(length[0]), np.uint8)
        self._comm.Recv(blob, rank)
        return blob

    def wait(self) -> None:
        """Wait, asleep, until every rank has come here: a plain barrier would keep the processor busy."""
        request = self._comm.Ibarrier()
        while not request.Test():
            time.sleep(_POLL)

    def network(self, placement: LocalSubgraph) -> MPINetwork:
        """Return a network over the placement."""
        return MPINetwork(placement, self._mpi)

    def library(self) -> str:
        """Return the MPI library and its version."""
        return str(self._mpi.Get_library_version().splitlines()[0].strip())

    def abort(self, code: int) -> None:
        """End all ranks at once with an exit code."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_PASS_ON)
        self._comm.Abort(code)
        os._exit(code)  # some launchers take a moment to end this rank, in which it would go on


def _start() -> Any:
    """Check that the launcher and the library belong together, and start MPI.

    The library is loaded first and started later: under the launcher of another MPI it may end the process.
    """
    os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")  # many ranks on few cores: sleep between two looks
    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")  # one message, and that one is ours
    try:
        import mpi4py

        own = "mpi4py.MPI" not in sys.modules  # else the program has loaded it, and perhaps started it
        if own:
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise NetworkError(
            f"an MPI launcher started this program, but no MPI library can be loaded ({str(error).splitlines()[0]}). "
            'Install one, for example: pip install "p2pkm[mpich]"'
        ) from None
    if reason := explain_mismatch(MPI.Get_library_version()):
        raise NetworkError(reason)
    if own and not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    if expected_size() > 1 and MPI.COMM_WORLD.size == 1:
        raise NetworkError(explain_alone(" ".join(MPI.Get_library_version().splitlines()[0].split())))
    return MPI


def _freeze(arrays: dict[str, Any]) -> Any:
    """Write arrays as bytes: the length of the header, the header (names, types, shapes), the contents."""
    contents = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header = json.dumps({name: [array.dtype.str, array.shape] for name, array in contents.items()}).encode()
    parts = [np.array([len(header)]).tobytes(), header, *(array.tobytes() for array in contents.values())]
    return np.frombuffer(b"".join(parts), np.uint8)


def _thaw(blob: Any) -> dict[str, Any]:
    """Read what `_freeze` wrote."""
    length = int(blob[:8].view(np.int64)[0])
    position, arrays = 8 + length, {}
    for name, (kind, shape) in json.loads(blob[8:position].tobytes()).items():
        size = np.dtype(kind).itemsize * int(np.prod(shape))
        arrays[name] = np.frombuffer(blob[position : position + size].tobytes(), kind).reshape(shape).copy()
        position += size
    return arrays
