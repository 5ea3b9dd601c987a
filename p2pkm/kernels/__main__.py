"""Second process of `p2pkm.kernels.background`: ``python -m p2pkm.kernels PARENT ahead|now TYPE``."""

import ctypes
import os
import signal
import sys
from contextlib import suppress

from p2pkm.kernels import compile_ahead

# Parameter of Linux' prctl: signal that a process receives when its parent ends.
_PR_SET_PDEATHSIG = 1
# Lower priority of a process that compiles for later runs.
_NICE = 10


def main(parent: str, purpose: str, dtype: str) -> None:
    """Compile all kernels for a type of points, from the last to the first, unless the parent process ends before."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return
    ahead = purpose == "ahead"
    if ahead:
        os.nice(_NICE)
    compile_ahead(dtype, lock=ahead, backwards=True)


main(*sys.argv[1:])
