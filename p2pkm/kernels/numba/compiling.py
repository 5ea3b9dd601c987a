"""How kernels are compiled, each once per type of number; that it happens is reported once, and counted apart.

Compilation costs seconds. So no kernel is compiled again because an array is strided, or writable in one place and
read-only in another: all that are only read are handed over alike. What only kernels call (`helper`) has no entry for
callers that it does not have.
"""

import functools
import time
from typing import Any

import numpy as np
from numba import njit, typeof
from numba.core import event

from p2pkm.kernels.compile_time import WAITING

_SAID = "compiling kernels, which is done once and takes up to half a minute; it does not count as time of the run"

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}
_VAGUE = np.ndarray, tuple  # strided arrays, arrays on disk: their class does not say what numba takes them for
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


def kernel(function):
    """Compile a function when it is first called, for arrays that are `alike`."""
    return _enter(njit(**_OPTIONS)(function), alike)


def behind(written):
    """Compile a function in the same way, but for so many of its last arguments: arrays in C order, writable."""

    def prepare(*given):
        return *alike(*given[:-written]), *(one if one.flags.writeable else one.copy() for one in given[-written:])

    return lambda function: _enter(njit(**_OPTIONS)(function), prepare)


def _enter(compiled, prepare):
    """Return a function that has the arguments of its first call of each kind looked at by numba, and no others.

    In every call numba would look whether each array may be written to, which takes as long as a small kernel; what it
    compiled does not: it takes all arrays in C order of the same numbers and dimensions.
    """
    entries: dict[Any, Any] = {}

    @functools.wraps(compiled, updated=())
    def call(*given):
        kinds = tuple([
            (one.dtype, one.ndim) if type(one) is np.ndarray and one.flags.c_contiguous else type(one)
            for one in given
        ])  # fmt: skip
        if kinds in entries:
            return entries[kinds](*given)
        given = prepare(*given)
        result = compiled(*given)
        if not any(issubclass(kind, _VAGUE) for kind in kinds if isinstance(kind, type)):
            entries[kinds] = compiled.overloads[tuple(map(typeof, given))].entry_point
        return result

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
