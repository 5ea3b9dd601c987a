"""Work on several processes of this machine that know nothing of each other: lines in, lines out."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO

from p2pkm.core.mpi_environment import THREADS

Worker = subprocess.Popen[str]
_LOOK = 0.2  # seconds between two looks whether somebody asked to stop


def work_through(
    program: str, tasks: Sequence[str], count: int, interrupted: Callable[[], int]
) -> Iterator[tuple[int, str | None]]:
    """Let processes work on tasks; yield the number of each that has ended and the answer, None if its process died.

    Parameters
    ----------
    program : str
        Python code that ends in `serve`; every process starts afresh with it, on one thread.
    tasks : sequence of str
        Without line breaks.
    count : int
        Most processes at a time.
    interrupted : callable
        Once it says so, all processes end and the work is over.
    """
    waiting, selector = iter(enumerate(tasks)), DefaultSelector()

    def give(worker: Worker) -> None:
        number, task = next(waiting, (None, ""))
        if number is None:
            worker.communicate()  # no more tasks: it ends
            return
        selector.register(_answers(worker), EVENT_READ, (worker, number))
        with suppress(BrokenPipeError):  # then there is no answer either
            print(task, file=worker.stdin, flush=True)

    try:
        for _ in range(min(count, len(tasks))):
            give(_start(program))
        while selector.get_map() and not interrupted():
            for key, _ in selector.select(_LOOK):
                worker, number = key.data
                answer = _answers(worker).readline()
                selector.unregister(key.fileobj)
                give(worker if answer else _replace(worker, program))
                yield number, answer or None
    finally:
        _stop([key.data[0] for key in selector.get_map().values()])
        selector.close()


def _stop(workers: Sequence[Worker]) -> None:
    """End processes that are at work."""
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.communicate()


def _replace(worker: Worker, program: str) -> Worker:
    """Start a process in the place of one that died."""
    worker.communicate()
    return _start(program)


def serve(work: Callable[[str], str]) -> None:
    """Answer every line of standard input by a line on standard output, until there are no more."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anybody prints is no answer
    for task in sys.stdin:
        print(work(task), file=out, flush=True)


def _start(program: str) -> Worker:
    """Start a process that Ctrl-C does not reach: whoever started it ends it."""
    package = str(Path(__file__).parents[3])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, "-c", program], text=True, env=environment, start_new_session=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip


def _answers(worker: Worker) -> IO[str]:
    assert worker.stdout is not None
    return worker.stdout
