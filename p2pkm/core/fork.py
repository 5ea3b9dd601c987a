"""Detection of libraries that cannot be used after a fork: MPI and JAX."""

import os
import sys

# Their threads and connections are not copied to a forked process.
_LIBRARIES = ("jax", "mpi4py.MPI")
_inherited: set[str] = set()


def is_inherited(library: str) -> bool:
    """Return whether the parent of this forked process had loaded the library, so that it cannot be used."""
    return library in _inherited


def _note_libraries() -> None:
    """Record in a new child process the libraries that its parent had loaded."""
    _inherited.update(name for name in _LIBRARIES if name in sys.modules)


os.register_at_fork(after_in_child=_note_libraries)
