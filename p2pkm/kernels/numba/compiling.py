"""When numba compiles a kernel, instead of reading it from its cache: reported once, and counted apart."""

import time

from numba.core import event

from p2pkm.kernels.compile_time import WAITING

_SAID = "compiling kernels, which is done once and takes up to half a minute; it does not count as time of the run"


@event.Listener.register
class Compilation:
    """Add up the seconds of compilation, nested ones once, and notify those registered that it begins.

    Attributes
    ----------
    seconds : float
    """

    def __init__(self, waiting):
        self.seconds = 0.0
        self._waiting = waiting
        self._depth = 0
        self._began = 0.0

    def notify(self, event):
        """Take in that a compilation begins or ends."""
        if event.is_start and self._depth == 0:
            self._began = time.perf_counter()
            while self._waiting:
                self._waiting.pop()(_SAID)
        self._depth += 1 if event.is_start else -1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began


COMPILATION = Compilation(WAITING)
event.register("numba:compile", COMPILATION)
