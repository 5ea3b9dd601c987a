"""Numbers that the ranks of an MPI program draw as they become free; rank 0 hands them out in a thread and draws, too.

Every other rank asks, computes and asks again, until there are no more numbers or it stops early, and rank 0 ends when
each of them has done so. A rank that computes for long delays nobody: the thread answers while rank 0 computes.
"""

import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np

# Seconds between two polls.
_POLL = 0.002
_ASK_TAG, _ANSWER_TAG = 4, 5
# Answer if there are no more numbers; request of a rank that has not drawn any number yet; and of one that stops early.
_NONE, _FIRST, _LEAVES = -1, -1, -2


def draw_numbers(mpi: Any, count: int, completed: Callable[[int], None]) -> Generator[int]:
    """Yield each of the numbers 0 to count - 1 on one rank; see `p2pkm.network.transport.World.draw_numbers`."""
    return _ask(mpi.COMM_WORLD) if mpi.COMM_WORLD.rank > 0 else _hand_out(mpi, count, completed)


def _ask(comm: Any) -> Generator[int]:
    """Yield the numbers that rank 0 answers."""
    number, request = np.array([_FIRST]), _FIRST
    try:
        while True:
            comm.Send(np.array([request]), 0, _ASK_TAG)
            answered = comm.Irecv(number, 0, _ANSWER_TAG)
            while not answered.Test():
                time.sleep(_POLL)
            request = int(number[0])
            if request == _NONE:
                return
            yield request
    finally:
        if request != _NONE:
            comm.Send(np.array([_LEAVES]), 0, _ASK_TAG)


def _hand_out(mpi: Any, count: int, completed: Callable[[int], None]) -> Generator[int]:
    """Yield numbers on rank 0, and answer the other ranks until none of them works any more."""
    comm, lock, rest = mpi.COMM_WORLD, Lock(), deque(range(count))

    def take() -> int:
        with lock:
            return rest.popleft() if rest else _NONE

    def serve() -> None:
        working, message, status = comm.size - 1, np.empty(1, np.int64), mpi.Status()
        while working:
            if not comm.Iprobe(mpi.ANY_SOURCE, _ASK_TAG, status):
                time.sleep(_POLL)
                continue
            comm.Recv(message, status.source, _ASK_TAG)
            if message[0] >= 0:
                completed(int(message[0]))
            number = _NONE
            if message[0] != _LEAVES:
                number = take()
                comm.Send(np.array([number]), status.source, _ANSWER_TAG)
            working -= number == _NONE

    if mpi.Query_thread() < mpi.THREAD_SERIALIZED:
        # Only the main thread may use MPI: rank 0 hands out all numbers.
        serve()
        return
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        try:
            while (number := take()) != _NONE:
                yield number
        finally:
            # If rank 0 stops early, the others finish what they have.
            with lock:
                rest.clear()
            served.result()
