"""A function in a forked child of this process, which is ended if it does not end."""

import os
import signal
import time

_SECONDS = 20.0  # a child that waits for a thread of its parent waits for ever


def run_in_fork(function):
    """Return the exit code of a child that calls a function: 0 if it returns True; None: it did not end."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if function() is True else 1)
        finally:
            os._exit(2)
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
