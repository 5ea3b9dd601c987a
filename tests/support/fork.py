"""Execution of a function in a forked child process, with a time limit."""

import os
import signal
import time

# Time limit: a child that waits for a thread of its parent would wait forever.
_SECONDS = 20.0


def run_in_fork(function):
    """Call a function in a child process and return its exit code: 0 if it returns True; None if it does not end."""
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
