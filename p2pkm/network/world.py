"""The ranks that this process belongs to."""

import os
from functools import cache

from p2pkm.core.fork import is_inherited
from p2pkm.core.mpi_environment import launched
from p2pkm.network.transport import World


@cache
def connect() -> World:
    """Return the world of this process: MPI's if a launcher started it, else a world of one rank.

    A fork of a rank is a world of one rank: MPI belongs to the process that started it.

    Raises
    ------
    NetworkError
        If there is no MPI library, or if the launcher belongs to another MPI than the library.
    """
    if launched() and not is_inherited("mpi4py.MPI"):
        from p2pkm.network.mpi import MPIWorld

        return MPIWorld()
    from p2pkm.network.local import LocalWorld

    return LocalWorld()


os.register_at_fork(after_in_child=connect.cache_clear)
