"""Signals that request the end of a run: Ctrl-C (SIGINT), and SIGTERM from a job scheduler."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from p2pkm.core.termination import INTERRUPTED, TERMINATED

_AGAIN = 1.0  # seconds between two alarms after the time limit


def code_of(error: KeyboardInterrupt) -> int:
    """Return the exit code of a program that was stopped by a second signal."""
    return int(error.args[0]) if error.args else INTERRUPTED


class OutOfTimeError(Exception):
    """The enclosed computation took longer than its limit."""


@contextmanager
def limit_time(seconds: float | None) -> Iterator[None]:
    """Raise an error in the enclosed computation once the time is over; in other threads than the main one, never.

    Parameters
    ----------
    seconds : float or None
        Elapsed time; None: no limit.

    Raises
    ------
    OutOfTimeError
        If the time is over.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    previous = signal.signal(signal.SIGALRM, end)
    # Repeated, because an error in a callback of a library may be ignored.
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], int]]:
    """Record the first SIGINT or SIGTERM, so that the run stops after the current round; the second stops it at once.

    Yields
    ------
    callable
        Returns the number of the first signal, 0 before it arrives.
    """
    first_signal = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first_signal
        if first_signal:
            raise KeyboardInterrupt(*((TERMINATED,) if number == signal.SIGTERM else ()))
        first_signal = number

    # Python sets signal handlers in the main thread only.
    handled = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    previous = {number: signal.getsignal(number) for number in handled}
    # A signal that is ignored at the start stays ignored: a shell does so with SIGINT for jobs in the background.
    previous = {number: handler for number, handler in previous.items() if handler is not signal.SIG_IGN}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield lambda: first_signal
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
