"""Limit of BLAS, LAPACK and OpenMP to one thread, so that their results do not depend on the number of threads.

A library that divides a matrix product among threads adds in another order than with one thread. With one thread, the
order depends only on the library and the processor, so a process started by `mpirun` computes bit-identical results.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class _Libraries:
    """Multithreaded libraries of this process, and a lock that lets one Python thread at a time set the limit.

    Some libraries have one limit per process, others one per thread; with the lock, both behave the same.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._n_modules = 0
        self._controller: Any = None

    def find(self) -> Any:
        """Return a controller of the libraries."""
        from threadpoolctl import ThreadpoolController

        # The search takes milliseconds, so it is repeated only after an import, which may have loaded a library.
        if self._n_modules != len(sys.modules):
            self._controller = ThreadpoolController()
            self._n_modules = len(sys.modules)
        for library in self._controller.lib_controllers:
            # For OpenBLAS, some versions of threadpoolctl ignore all Python threads except the first that set a limit.
            getattr(library, "clear_controlling_thread", lambda *, force: None)(force=True)
        return self._controller


_libraries = _Libraries()


def _renew() -> None:
    """Create a new lock in a forked process, because the thread that held the old one does not exist there."""
    global _libraries
    _libraries = _Libraries()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def single_thread(*modules: str) -> Iterator[None]:
    """Limit BLAS, LAPACK and OpenMP to one thread, as a context or as a decorator.

    Other Python threads that enter wait until the first one has left.

    Parameters
    ----------
    *modules : str
        Modules in addition to NumPy that load such a library and are used inside, such as ``scipy.linalg``. They are
        imported first, because the limit does not apply to libraries that are loaded later.

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
