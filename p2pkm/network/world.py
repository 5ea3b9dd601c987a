"""The ranks that this process belongs to."""

from functools import cache

from p2pkm.core.mpi_environment import launched
from p2pkm.network.transport import World


@cache
def connect() -> World:
    """Return the world of this process: MPI's if a launcher started it, else a world of one rank.

    Raises
    ------
    NetworkError
        If there is no MPI library, or if the launcher belongs to another MPI than the library.
    """
    if launched():
        from p2pkm.network.mpi import MPIWorld

        return MPIWorld()
    from p2pkm.network.local import LocalWorld

    return LocalWorld()
