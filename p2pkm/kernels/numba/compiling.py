"""How kernels are compiled, each once per type of number; that it happens is reported once, and counted apart.

Compilation costs seconds. So no kernel is compiled again because an array is strided, or writable in one place and
read-only in another: `kernel` hands over all of them alike. What only kernels call (`helper`) and what stands behind a
function that divides its work (`behind`) has no entry for callers that it does not have.
"""

import functools
import time
from typing import Any

import numpy as np
from numba import njit
from numba.core import event

from p2pkm.kernels.compile_time import WAITING

_SAID = "compiling kernels, which is done once and takes up to half a minute; it does not count as time of the run"

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}
behind: Any = njit(**_OPTIONS)
helper: Any = functools.partial(njit, **_INNER)


def alike(*given):
    """Return arrays as read-only ones in C order, copied only if they are strided, and all else as it is."""
    found = list(given)
    for place, one in enumerate(given):
        if isinstance(one, np.ndarray):
            flags = one.flags
            if not flags.c_contiguous:
                found[place] = one.copy()
            elif flags.writeable:
                found[place] = one.view()
            else:
                continue
            found[place].setflags(write=False)
    return found


def writable(array):
    """Return an array that is writable and in C order, copied only if it is not."""
    return np.require(array, requirements=["C", "W"])


def kernel(function):
    """Compile a function when it is first called, for arrays that are `alike`."""
    compiled = behind(function)

    @functools.wraps(compiled, updated=())
    def call(*given):
        return compiled(*alike(*given))

    return call


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
