"""Several threads for one call of a kernel: each takes a range of devices, so that no bit depends on their number."""

import os
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from p2pkm.core.mpi_environment import launched

_LEAST = 20_000  # points and devices for which a second thread pays


@cache
def count():
    """Return how many threads a kernel may use: one under mpirun, else what the user set, else a thread per core."""
    if launched():
        return 1
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdecimal():
            return max(1, int(os.environ[name]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool():
    return ThreadPoolExecutor(count())


# A fork copies the pool without its threads: a child that waited for them would wait for ever.
os.register_at_fork(after_in_child=_pool.cache_clear)


def divide(task, offsets):
    """Call ``task(first, last)`` for ranges of devices that have about as many points and devices each."""
    n = len(offsets) - 1
    work = int(offsets[-1]) + n
    parts = min(count(), work // _LEAST + 1)
    if parts == 1:
        if n:
            task(0, n)
        return
    shares = (work * part // parts for part in range(parts + 1))
    bounds = sorted({bisect_left(range(n), share, key=lambda i: int(offsets[i]) + i) for share in shares})
    list(_pool().map(task, bounds[:-1], bounds[1:]))
