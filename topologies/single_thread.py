"""Limit of BLAS, LAPACK and OpenMP to one thread, so that the bits of their results do not depend on their threads.

A library that divides a matrix product among threads adds in another order than with one thread. On one thread the
order depends on the library and the processor alone, and a process of `mpirun` computes the same bits as a process
without it.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class _Libraries:
    """Libraries of this process that have threads, and the lock that admits one Python thread at a time to the limit.

    Some libraries have one limit for the process, others one for each thread: with the lock both are one limit.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._modules = 0
        self._found: Any = None

    def find(self) -> Any:
        """Return a controller of these libraries; looked for, which takes milliseconds, only after an import."""
        from threadpoolctl import ThreadpoolController

        if self._modules != len(sys.modules):
            self._found, self._modules = ThreadpoolController(), len(sys.modules)
        for library in self._found.lib_controllers:
            # Some versions of threadpoolctl ignore, for OpenBLAS, all Python threads but the first that set a limit.
            getattr(library, "clear_controlling_thread", lambda *, force: None)(force=True)
        return self._found


_libraries = _Libraries()


def _renew() -> None:
    """Begin with a free lock in a forked process, in which the thread that held it does not exist."""
    global _libraries
    _libraries = _Libraries()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def single_thread(*modules: str) -> Iterator[None]:
    """Limit BLAS, LAPACK and OpenMP to one thread, as a context or as a decorator.

    Another Python thread that enters waits until the first one has left.

    Parameters
    ----------
    *modules : str
        Modules besides NumPy that are used inside and bring such a library, such as ``scipy.linalg``. They are imported
        first, because a library that is loaded inside has no limit yet.

    Examples
    --------
    >>> import numpy as np
    >>> from topologies.single_thread import single_thread
    >>> with single_thread():
    ...     np.linalg.eigvalsh(np.eye(2)).tolist()
    [1.0, 1.0]
    """
    for module in ("numpy", *modules):
        import_module(module)
    libraries = _libraries
    with libraries.lock, libraries.find().limit(limits=1):
        yield
