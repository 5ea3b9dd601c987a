"""Large arrays that rank 0 broadcasts: the ranks of one machine map the same memory, instead of a copy on each.

The memory is an anonymous file (`memfd_create`), which the first rank of a machine fills and the others open through
``/proc``. In contrast to a window of MPI it needs neither ``/dev/shm``, which has 64 MB in many containers, nor a
collective call to free it: it is freed with the last array of the last rank, however these end.

Each rank maps the file privately: pages are shared until a rank writes to them, so that a rank cannot change the arrays
of another. Where a rank cannot open the file (outside Linux, or ranks in different containers of a machine), all ranks
of this machine receive a copy.
"""

import json
import mmap
import os
import sys
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

# Whether the ranks of a machine can share memory, as far as the system tells.
SHARES = sys.platform.startswith("linux")
# Bytes in one call of MPI, some versions of which count them in 32 bits.
_CALL = 1 << 30
# Arrays begin at multiples of this number of bytes, that of a vector register.
_ALIGNMENT = 64


class Slot(NamedTuple):
    """Place of an array in the shared memory.

    Attributes
    ----------
    name : str
    kind : str
        Type of the numbers, as NumPy writes it.
    shape : tuple of int
    first, size : int
        First byte, and number of bytes.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    first: int
    size: int

    def view(self, memory: Any) -> Any:
        """Return the array in a buffer of bytes."""
        return np.frombuffer(memory, np.uint8, self.size, self.first).view(self.kind).reshape(self.shape)


def write_slots(arrays: dict[str, Any]) -> Any:
    """Place arrays one after the other; return the list of the slots as an array of bytes, which can be broadcast."""
    slots, first = list[Slot](), 0
    for name, array in arrays.items():
        slots.append(Slot(name, array.dtype.str, array.shape, first, array.nbytes))
        first += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    return np.frombuffer(json.dumps(slots).encode(), np.uint8)


def read_slots(written: Any) -> list[Slot]:
    """Return the slots of the result of `write_slots`."""
    return [Slot(name, kind, tuple(shape), *place) for name, kind, shape, *place in json.loads(written.tobytes())]


class Machines:
    """Communicators of the ranks of this machine, and of the first rank of each machine.

    Parameters
    ----------
    mpi : module
        ``mpi4py.MPI``. To create this object is a collective call.
    """

    def __init__(self, mpi: Any) -> None:
        world = mpi.COMM_WORLD
        self._mpi = mpi
        self._machine = world.Split_type(mpi.COMM_TYPE_SHARED, world.rank)
        self._is_first = self._machine.rank == 0
        self._firsts = world.Split(0 if self._is_first else mpi.UNDEFINED, world.rank)

    def broadcast(self, slots: list[Slot], arrays: dict[str, Any]) -> dict[str, Any]:
        """Return the arrays of rank 0 on all ranks; a collective call.

        Parameters
        ----------
        slots : list of Slot
            Equal on all ranks.
        arrays : dict
            On rank 0; empty on other ranks.
        """
        file = self._open_file(slots[-1].first + slots[-1].size)
        if file is None:
            copies = {slot.name: arrays[slot.name] if arrays else np.empty(slot.shape, slot.kind) for slot in slots}
            if self._is_first:
                _send(self._firsts, copies)
            _send(self._machine, copies)
            return copies
        if self._is_first:
            self._fill(file, slots, arrays)
        self._machine.Barrier()
        memory = mmap.mmap(file, 0, access=mmap.ACCESS_COPY)
        os.close(file)
        return {slot.name: slot.view(memory) for slot in slots}

    def _open_file(self, length: int) -> int | None:
        """Open the same new file on all ranks of this machine; None if there is one rank, or one cannot open it."""
        machine = self._machine
        if machine.size == 1:
            return None
        file = None
        # Process, number and identity of the file of the first rank.
        place = np.zeros(4, np.int64)
        if self._is_first:
            # Not every system has such files.
            with suppress(AttributeError, OSError):
                file = os.memfd_create("p2pkm")
                os.ftruncate(file, length)
                place[:] = os.getpid(), file, *_identify(file)
        machine.Bcast(place)
        if not self._is_first:
            # In another container, the number may be that of a pipe.
            with suppress(AttributeError, OSError):
                file = os.open("/proc/{}/fd/{}".format(*place), os.O_RDONLY | os.O_NONBLOCK)
        is_open = np.array([file is not None and _identify(file) == tuple(place[2:])], np.uint8)
        everywhere = np.empty_like(is_open)
        machine.Allreduce(is_open, everywhere, self._mpi.MIN)
        if file is not None and not everywhere[0]:
            os.close(file)
            return None
        return file

    def _fill(self, file: int, slots: list[Slot], arrays: dict[str, Any]) -> None:
        """Write the arrays of rank 0 to the file of this machine."""
        with mmap.mmap(file, 0) as memory:
            views = {slot.name: slot.view(memory) for slot in slots}
            for name, array in arrays.items():
                views[name][...] = array
            _send(self._firsts, views)
            # A mapping that arrays refer to cannot be closed.
            views.clear()


def _identify(file: int) -> tuple[int, int]:
    """Return numbers that tell an open file from others: in another container, its process is not the first rank."""
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _send(comm: Any, arrays: dict[str, Any]) -> None:
    """Send arrays from the first rank of a communicator to the others."""
    for array in arrays.values():
        flat = array.reshape(-1).view(np.uint8)
        for first in range(0, len(flat), _CALL):
            comm.Bcast(flat[first : first + _CALL])
