"""Signals that ask a run to stop: Ctrl-C, and what a job scheduler sends before the time is up."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from p2pkm.core.termination import INTERRUPTED, TERMINATED


def code_of(error: KeyboardInterrupt) -> int:
    """Return the exit code of a program that was ended at once."""
    return int(error.args[0]) if error.args else INTERRUPTED


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], int]]:
    """Turn the first SIGINT or SIGTERM into a wish that the run ends with this round; the second ends it at once.

    A signal that is ignored when the program starts stays so, as SIGINT is of a job that a shell starts in the
    background; in another thread than the main one signals stay as they are. Yields a function that returns the number
    of the first signal, 0 if there was none.
    """
    asked = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt(*((TERMINATED,) if number == signal.SIGTERM else ()))
        asked = number

    watched = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in watched}
    before = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield lambda: asked
    finally:
        for number, old in before.items():
            signal.signal(number, old)
