"""Libraries that do not survive a fork: MPI and JAX belong to the process that started them."""

import os
import sys

_LIBRARIES = ("jax", "mpi4py.MPI")  # modules whose threads or connections exist in one process alone
_inherited: set[str] = set()


def is_inherited(library: str) -> bool:
    """Return whether this process is a fork of one that had loaded a library, which therefore cannot be used here."""
    return library in _inherited


def _note_libraries() -> None:
    """Note in a new child which libraries its parent had loaded."""
    _inherited.update(name for name in _LIBRARIES if name in sys.modules)


os.register_at_fork(after_in_child=_note_libraries)
