"""Pool of independent processes on this machine that exchange tasks and answers as lines of text."""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO

from p2pkm.core.mpi_environment import THREADS

Worker = subprocess.Popen[str]
_POLL = 0.2  # seconds between two checks for an interruption


def work_through(
    program: str,
    tasks: Sequence[str],
    count: int,
    interrupted: Callable[[], int],
    groups: Sequence[Hashable] | None = None,
) -> Iterator[tuple[int, str | None]]:
    """Distribute tasks to processes, and yield number and answer of each finished task; None if its process died.

    Parameters
    ----------
    program : str
        Python code that ends with a call of `serve`. Each process runs it, on one thread.
    tasks : sequence of str
        Texts without line breaks.
    count : int
        Maximum number of processes.
    interrupted : callable
        Polled while tasks run; a nonzero result ends all processes.
    groups : sequence of hashable, optional
        Group of each task. Consecutive tasks of a group go to one process, which can share their work; at the end,
        processes help each other.
    """
    numbers = range(len(tasks))
    waiting = deque(deque(part) for _, part in groupby(numbers, (groups or numbers).__getitem__))
    selector = DefaultSelector()
    # Tasks of the group that each process works on; processes that help another one share its tasks.
    shares: dict[Worker, deque[int]] = {}

    def assign_next(worker: Worker) -> None:
        group = shares.pop(worker, deque[int]())
        if not group:
            group = waiting.popleft() if waiting else max(shares.values(), key=len, default=group)
        if not group:
            # No more tasks: closing its input ends the process.
            worker.communicate()
            return
        shares[worker] = group
        number = group.popleft()
        task = tasks[number]
        selector.register(_answers(worker), EVENT_READ, (worker, number))
        # A process that has died is noticed when its answer is read.
        with suppress(BrokenPipeError):
            print(task, file=worker.stdin, flush=True)

    try:
        for _ in range(min(count, len(tasks))):
            assign_next(_start(program))
        while selector.get_map() and not interrupted():
            for key, _ in selector.select(_POLL):
                worker, number = key.data
                answer = _answers(worker).readline()
                selector.unregister(key.fileobj)
                next_worker = worker if answer else _restart(worker, program)
                shares[next_worker] = shares.pop(worker)
                assign_next(next_worker)
                yield number, answer or None
    finally:
        _stop([key.data[0] for key in selector.get_map().values()])
        selector.close()


def _stop(workers: Sequence[Worker]) -> None:
    """Terminate busy processes."""
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.communicate()


def _restart(worker: Worker, program: str) -> Worker:
    """Replace a process that has died."""
    worker.communicate()
    return _start(program)


def serve(work: Callable[[str], str]) -> None:
    """Answer each line of standard input with a line on standard output, until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    # Output of the tasks goes to standard error: on standard output it would be taken for an answer.
    os.dup2(2, 1)
    for task in sys.stdin:
        print(work(task), file=out, flush=True)


def _start(program: str) -> Worker:
    """Start a process in a new session, so that Ctrl-C does not reach it; the parent ends it."""
    package = str(Path(__file__).parents[3])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        text=True,
        env=environment,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _answers(worker: Worker) -> IO[str]:
    """Return the stream of answers of a process."""
    assert worker.stdout is not None
    return worker.stdout
