"""What becomes of memory that arrays have left: a run makes and drops arrays as large as its devices are many."""

import ctypes
from contextlib import suppress

_MOST_MAPPED = -4  # M_MMAP_MAX of glibc's mallopt: how many arrays may have pages of their own
_LEAST_TRIMMED, _SPARE = -1, 1 << 26  # M_TRIM_THRESHOLD: bytes at the end of the heap from which on they are given back


def retain_freed_memory() -> None:
    """Let large arrays take memory that others of this process have left, not new pages from the system.

    glibc gives back what an array of 32 MB or more had as soon as it is dropped, and to touch pages for the first time
    takes longer than to compute with what is in them. What is left over at the end of the heap is given back still,
    but not as little as 128 kB, which arrays of a small run take and leave in every step.
    Elsewhere nothing is changed.
    """
    with suppress(AttributeError, OSError, TypeError):  # other C libraries have no such function
        tune = ctypes.CDLL(None).mallopt
        tune(_MOST_MAPPED, 0)
        tune(_LEAST_TRIMMED, _SPARE)


def trim_heap() -> None:
    """Give the system the pages of what arrays have left between others, before much is needed at a time."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
