"""Connection of this process to its world of ranks."""

import os
from functools import cache

from p2pkm.core.fork import is_inherited
from p2pkm.core.mpi_environment import launched
from p2pkm.network.transport import World


@cache
def connect() -> World:
    """Return the world of this process: that of MPI if a launcher started it, otherwise a world of one rank.

    A forked process is a world of one rank, since MPI cannot be used after a fork.

    Raises
    ------
    NetworkError
        If no MPI library is found, or if launcher and library belong to different MPI implementations.
    """
    if launched() and not is_inherited("mpi4py.MPI"):
        from p2pkm.network.mpi import MPIWorld

        return MPIWorld()
    from p2pkm.network.local import LocalWorld

    return LocalWorld()


os.register_at_fork(after_in_child=connect.cache_clear)
