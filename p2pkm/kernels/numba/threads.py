"""Threads of a kernel: each computes a range of devices, so results do not depend on the number of threads."""

import os
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from p2pkm.core.mpi_environment import launched

# Number of points plus devices from which a second thread saves time.
_MIN_WORK = 20_000


@cache
def count():
    """Return the number of threads: one under mpirun, otherwise the user's setting, otherwise one per core."""
    if launched():
        return 1
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdecimal():
            return max(1, int(os.environ[name]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool():
    """Return the thread pool of this process."""
    return ThreadPoolExecutor(count())


# A fork copies the pool without its threads, for which the child would wait forever.
os.register_at_fork(after_in_child=_pool.cache_clear)


def divide(task, offsets):
    """Call ``task(first, last)`` for ranges of devices with similar numbers of points plus devices."""
    n = len(offsets) - 1
    work = int(offsets[-1]) + n
    parts = min(count(), work // _MIN_WORK + 1)
    if parts == 1:
        if n:
            task(0, n)
        return
    shares = (work * part // parts for part in range(parts + 1))
    bounds = sorted({bisect_left(range(n), share, key=lambda i: int(offsets[i]) + i) for share in shares})
    list(_pool().map(task, bounds[:-1], bounds[1:]))
