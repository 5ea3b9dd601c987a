"""Lock on the cache of numba: one process at a time compiles; the others wait and load its result."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "p2pkm-compile.lock"
# Seconds. Compilation of all kernels takes up to a minute.
_LIMIT, _PAUSE = 300.0, 0.2


@contextmanager
def lock_cache(folder: Path, limit: float = _LIMIT, is_needless: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Hold the lock of a cache folder.

    Numba replaces each file of its cache as a whole, but it adds to an index without a lock: two nodes with different
    processors can store their code under one name, and on NFS a file can disappear while it is read.

    Parameters
    ----------
    folder : Path
        The lock is skipped if the folder is not writable or its file system does not support locks.
    limit : float, default=300
        Seconds after which the lock is skipped, so that a stopped process does not block all others.
    is_needless : callable
        Asked while another process has the lock; if True, the lock is skipped: the cache has what was to be compiled.

    Yields
    ------
    bool
        Whether this process has the lock.
    """
    try:
        file = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield False
        return
    try:
        yield _wait_for_lock(file, limit, is_needless)
    finally:
        os.close(file)  # releases the lock


def _wait_for_lock(file: int, limit: float, is_needless: Callable[[], bool]) -> bool:
    """Wait until the file is locked, or needs no lock, or locks are unsupported, or the limit is over; True: locked."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_needless():
                return False
            time.sleep(_PAUSE)
        except OSError:
            return False
        else:
            return True
    return False
