# ruff: noqa: N802 - names of mpi4py
"""Substitute for the part of mpi4py that the package uses: ranks are threads of one process, one running at a time.

It is stricter than MPI:

* A send completes when the message is received, and its array must not change until then.
* Type and size of a message equal those of the receiving array; with `Irecv` it may be shorter.
* If all ranks wait for each other, all fail.
* Every request must be waited for, and every type must be freed.
"""

import threading
from collections import defaultdict, deque
from types import ModuleType

import numpy as np


class LostRankError(RuntimeError):
    """Failure of another rank, or a deadlock of all ranks."""


class Kind:
    """Data type of a number of bytes."""

    def __init__(self, size, held):
        self.size, self.ready, self.held = size, False, held

    def Create_contiguous(self, count):
        self.held.append(Kind(self.size * count, self.held))
        return self.held[-1]

    def Commit(self):
        self.ready = True
        return self

    def Free(self):
        assert self.ready
        self.ready = False
        self.held.remove(self)


class Request:
    """Message that a rank sends or receives, repeatedly if it is persistent."""

    def __init__(self, comm, array, way, *, sends, kept=False, exact=True):
        assert array.flags.c_contiguous and (sends or array.flags.writeable)
        self.comm, self.array, self.mail = comm, array, comm.ranks.mail[way]
        self.sends, self.kept, self.exact, self.active, self.freed = sends, kept, exact, False, False

    def __bool__(self):
        return not self.freed

    def start(self):
        assert not self.active and not self.freed
        self.active = True
        self.comm.ranks.held.append(self)
        if self.sends:
            self.parcel = self.array.copy()
            self.mail.append(self.parcel)
            self.comm.ranks.moved()
        return self

    def ended(self):
        """Check whether the request is complete, and store a received message."""
        before = self.active
        if self.active and self.sends and all(one is not self.parcel for one in self.mail):
            assert self.array.tobytes() == self.parcel.tobytes(), "changed before it was received"
            self.active = False
        elif self.active and not self.sends and self.mail:
            come = self.mail.popleft()
            assert come.dtype == self.array.dtype and come.size <= self.array.size
            assert come.size == self.array.size or not self.exact
            self.array.reshape(-1)[: come.size] = come.reshape(-1)
            self.active = False
            self.comm.ranks.moved()
        if before and not self.active:
            self.comm.ranks.held.remove(self)
        if not (self.active or self.kept):
            self.freed = True
        return not self.active

    def Free(self):
        assert not self.active and not self.freed
        self.freed = True

    @staticmethod
    def Startall(requests):
        for one in requests:
            one.start()

    @staticmethod
    def Waitall(requests):
        if requests:
            requests[0].comm.ranks.wait(lambda: all([one.ended() for one in requests]))


class Barrier:
    """Nonblocking barrier: other ranks run while it is tested."""

    def __init__(self, ranks, said):
        self.ranks, self.said, self.tests = ranks, said, 0

    def Test(self):
        self.tests += 1
        if self.tests > 1:
            self.ranks.wait(lambda: len(self.said) == self.ranks.size)
        return len(self.said) == self.ranks.size


class Comm:
    """Communicator COMM_WORLD of one rank."""

    def __init__(self, ranks, rank):
        self.ranks, self.rank, self.size, self.calls = ranks, rank, ranks.size, 0

    def Send_init(self, array, to, tag=0):
        return Request(self, array, (self.rank, to, tag), sends=True, kept=True)

    def Recv_init(self, array, source, tag=0):
        return Request(self, array, (source, self.rank, tag), sends=False, kept=True)

    def Isend(self, array, to, tag=0):
        return Request(self, array, (self.rank, to, tag), sends=True).start()

    def Send(self, array, to, tag=0):
        Request.Waitall([self.Isend(array, to, tag)])

    def Recv(self, array, source, tag=0):
        Request.Waitall([Request(self, array, (source, self.rank, tag), sends=False).start()])

    def Irecv(self, array, source, tag=0):
        return Request(self, array, (source, self.rank, tag), sends=False, exact=False).start()

    def _say(self, name, value):
        """Contribute to a collective call, and yield the contributions of all ranks as they arrive."""
        self.calls += 1
        said = self.ranks.said[self.calls]
        assert all(other == name for other, _ in said.values())
        said[self.rank] = name, value
        self.ranks.moved()
        return said

    def _all(self, name, value):
        said = self._say(name, value)
        self.ranks.wait(lambda: len(said) == self.size)
        return [said[rank][1] for rank in range(self.size)]

    def Ibarrier(self):
        return Barrier(self.ranks, self._say("barrier", None))

    def Bcast(self, array):
        first = self._all("bcast", array.copy() if self.rank == 0 else None)[0]
        assert (first.dtype, first.shape) == (array.dtype, array.shape)
        if self.rank:
            array[...] = first

    def Allreduce(self, array, result, operation=np.add):
        found = self._all("allreduce", array.copy())
        assert array.flags.c_contiguous and len({(one.dtype, one.size) for one in (*found, result)}) == 1
        result[...] = operation.reduce(found).reshape(result.shape)

    def Gatherv(self, given, taken, name="gather", everywhere=False):
        values, count, kind = given
        assert kind.ready and values.nbytes == count * kind.size
        found = self._all(name, values.tobytes())
        if everywhere or self.rank == 0:
            result, rows, same = taken
            assert kind is same and count == rows[self.rank]
            assert result.flags.c_contiguous and result.nbytes == sum(rows) * kind.size
            result.reshape(-1).view(np.uint8)[:] = np.frombuffer(b"".join(found), np.uint8)

    def Scatterv(self, given, result):
        (values, rows), *_ = self._all("scatter", None if self.rank else (given[0].copy(), given[1]))
        first = sum(rows[: self.rank])
        assert values.dtype == result.dtype and sum(rows) == len(values) and len(result) == rows[self.rank]
        result[...] = values[first : first + len(result)]

    def Allgatherv(self, given, taken):
        self.Gatherv(given, taken, "allgather", everywhere=True)

    def Abort(self, code):
        self.ranks.fail(LostRankError(f"aborted with code {code}"))


class Ranks(ModuleType):
    """`mpi4py.MPI` of so many threads, each of which sees a COMM_WORLD of its own."""

    MAX, Request, Prequest = np.maximum, Request, Request

    def __init__(self, size):
        super().__init__("mpi4py.MPI")
        self.size, self.mail, self.said = size, defaultdict(deque), defaultdict(dict)
        self.held = []  # requests that were begun, and types
        self.BYTE = Kind(1, self.held)
        self.running, self.asleep, self.failed = size, 0, None
        self.turn, self.own = threading.Condition(), threading.local()

    @property
    def COMM_WORLD(self):
        return self.own.comm

    def Get_library_version(self):
        return "Threads 1.0 \nof one process\n"

    def Is_initialized(self):
        return True

    def moved(self):
        """Wake all waiting ranks."""
        self.asleep = 0
        self.turn.notify_all()

    def fail(self, error):
        self.failed = self.failed or error
        self.moved()

    def wait(self, ready):
        """Let other ranks run until `ready` returns True."""
        while not ready():
            self.asleep += 1
            if self.asleep == self.running:
                self.fail(LostRankError("every rank waits for another one"))
            if self.failed:
                raise LostRankError from self.failed
            self.turn.wait()

    def play(self, work):
        """Call `work` on each rank and return its results; raise the first error."""
        found = [None] * self.size

        def run(rank):
            with self.turn:
                self.own.comm = Comm(self, rank)
                try:
                    found[rank] = work()
                except BaseException as error:
                    self.fail(error)
                self.running -= 1
                if self.asleep == self.running > 0:
                    self.fail(LostRankError("a rank ended for which others wait"))

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        if self.failed:
            raise self.failed
        assert not any(self.mail.values()), "sent and never received"
        assert not self.held, "never waited for, or never freed"
        return found
