"""Compilation of kernels: once per type of numbers; its start is reported once, and its time is counted separately.

Compilation takes seconds. A kernel must therefore not be compiled again because an array is strided, or read-only
instead of writable: input arrays are normalized (`normalize_layout`). Functions that only kernels call (`helper`) are
compiled without an entry point for Python.
"""

import functools
import time
from typing import Any

import numpy as np
from numba import njit, typeof
from numba.core import event

from p2pkm.kernels.compile_time import WAITING

_MESSAGE = "compiling kernels, which is done once and takes up to half a minute; it does not count as time of the run"

# No C callback wrapper, and for helpers no Python wrapper: neither is used, and both take time to compile.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}
# Classes that do not determine the numba type: strided arrays, memory-mapped arrays, tuples.
_AMBIGUOUS = np.ndarray, tuple
helper: Any = functools.partial(njit, **_INNER)


def normalize_layout(*args):
    """Return arrays as read-only views in C order (copies if strided), and other arguments unchanged."""
    normalized = list(args)
    for index, item in enumerate(args):
        if isinstance(item, np.ndarray):
            flags = item.flags
            if not flags.c_contiguous:
                normalized[index] = item.copy()
            elif flags.writeable:
                normalized[index] = item.view()
            else:
                continue
            normalized[index].setflags(write=False)
    return normalized


def kernel(function):
    """Compile a function at its first call, for arrays as returned by `normalize_layout` (decorator)."""
    return _dispatch(njit(**_OPTIONS)(function), normalize_layout)


def compiled_backend(n_outputs):
    """Compile a function like `kernel`, but with writable C-ordered arrays as the last `n_outputs` arguments."""

    def normalize(*args):
        outputs = (item if item.flags.writeable else item.copy() for item in args[-n_outputs:])
        return *normalize_layout(*args[:-n_outputs]), *outputs

    return lambda function: _dispatch(njit(**_OPTIONS)(function), normalize)


def _dispatch(compiled, normalize):
    """Return a function that calls the compiled code directly if arguments of these types were used before.

    The dispatcher of numba inspects every array in every call, which takes as long as a small kernel. The compiled code
    itself does not: it accepts all C-ordered arrays of the same type and dimensions, read-only or not.
    """
    entries: dict[Any, Any] = {}

    @functools.wraps(compiled, updated=())
    def call(*args):
        kinds = tuple([
            (item.dtype, item.ndim) if type(item) is np.ndarray and item.flags.c_contiguous else type(item)
            for item in args
        ])  # fmt: skip
        if kinds in entries:
            return entries[kinds](*args)
        args = normalize(*args)
        result = compiled(*args)
        if not any(issubclass(kind, _AMBIGUOUS) for kind in kinds if isinstance(kind, type)):
            entries[kinds] = compiled.overloads[tuple(map(typeof, args))].entry_point
        return result

    return call


@event.Listener.register
class Compilation:
    """Listener that measures the time of compilation, and reports its start once.

    Attributes
    ----------
    seconds : float
        Total time; nested compilations count once.
    """

    def __init__(self, waiting):
        self.seconds = 0.0
        self._waiting = waiting
        self._depth = 0
        self._began = 0.0

    def notify(self, event):
        """Handle the start or end of a compilation."""
        if event.is_start and self._depth == 0:
            self._began = time.perf_counter()
            while self._waiting:
                self._waiting.pop()(_MESSAGE)
        self._depth += 1 if event.is_start else -1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began


COMPILATION = Compilation(WAITING)
event.register("numba:compile", COMPILATION)
