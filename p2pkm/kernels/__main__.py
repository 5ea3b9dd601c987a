"""Second process of `p2pkm.kernels.background`: ``python -m p2pkm.kernels PARENT stay|ahead|now TYPE``."""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from p2pkm.kernels import compile_ahead, compile_for_later

# Parameter of Linux' prctl: signal that a process receives when its parent ends.
_PR_SET_PDEATHSIG = 1
# Lower priority of a process that compiles for later runs.
_NICE = 10
# Seconds after which a process ends that compiles for later runs: at most, and after the end of its parent.
_LIFETIME, _REST = 900, 60


def main(parent: str, purpose: str, dtype: str) -> None:
    """Compile the kernels for a type of points, from the last to the first, until the parent process ends.

    With ``stay``, the kernel at hand is finished after that, and at least one is compiled, within a minute.
    """

    def lives() -> bool:
        return os.getppid() == int(parent)

    def hurry(number: int, frame: FrameType | None) -> None:
        # Linux sends the signal also at the end of the thread of the parent that has started this process.
        if not lives():
            signal.alarm(_REST)

    # The alarm ends the process, whatever it does.
    signal.alarm(_LIFETIME)
    signal.signal(signal.SIGUSR1, hurry)
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1 if purpose == "stay" else signal.SIGKILL)
    if not lives():
        if purpose != "stay":
            return
        signal.alarm(_REST)
    if purpose == "now":
        compile_ahead(dtype, lock=False, backwards=True)
        return
    os.nice(_NICE)
    compile_for_later(dtype, lives)


main(*sys.argv[1:])
