"""Settings of the C allocator (glibc only) and of the garbage collector of Python.

A run allocates and frees arrays proportional to the number of devices. Imports create objects that live until the exit.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Parameter numbers of glibc's mallopt: M_MMAP_MAX limits the number of arrays allocated by mmap; M_TRIM_THRESHOLD is
# the number of free bytes at the end of the heap above which they are returned to the system.
_M_MMAP_MAX = -4
_M_TRIM_THRESHOLD = -1
# 64 MiB; the default of 128 KiB is exceeded and trimmed again in every step of a small run.
_TRIM_BYTES = 1 << 26
# Devices of a rank above which free pages are returned; below, that takes longer than the step that needs memory.
_MANY_DEVICES = 100_000


def retain_freed_memory() -> None:
    """Reuse freed memory of this process for large arrays, instead of new pages of the system.

    By default, glibc allocates arrays of 32 MB or more by mmap and returns their pages when they are freed. The first
    access to new pages takes longer than the computation on them. Free memory at the end of the heap is still returned,
    from 64 MiB on. No effect with other C libraries.
    """
    # Other C libraries lack mallopt.
    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


@contextmanager
def suspended_collection(*, lasting: bool = False) -> Iterator[None]:
    """Suspend garbage collection, for imports.

    lasting: exclude all objects from later collections, too. One collection of the objects of the imports takes as long
    as all others of a small run.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if lasting:
            gc.freeze()
        if was_enabled:
            gc.enable()


def skip_last_collection() -> None:
    """Exclude all objects from the collections at the exit, which take longer than the imports of p2pkm."""
    gc.freeze()


def trim_if_large(n: int) -> None:
    """Call `trim_heap` if arrays of n devices are large: before checkpoints and the result.

    Not before stages and records: their arrays soon fill the same pages again, and the peak of memory is at the end.
    """
    if n > _MANY_DEVICES:
        trim_heap()


def trim_heap() -> None:
    """Return free pages inside the heap to the system, before a step with a high memory peak."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
