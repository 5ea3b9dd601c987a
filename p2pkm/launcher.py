"""What the environment says of the MPI launcher that started this process; MPI itself is not touched."""

import os
import re

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")  # how many libraries take
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_LOCAL = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


def launched() -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in os.environ for name in (*_SIZES, "PMIX_RANK"))


def expected_size() -> int:
    """Return how many processes the launcher started, 1 if it does not say."""
    return int(next((os.environ[name] for name in _SIZES if name in os.environ), 1))


def expected_rank() -> int:
    """Return the rank that the launcher gave to this process, 0 without one."""
    return int(next((os.environ[name] for name in _RANKS if name in os.environ), 0)) if launched() else 0


def local_size() -> int:
    """Return how many of the processes are on this machine; all of them if the launcher does not say."""
    given = next((os.environ[name] for name in _LOCAL if name in os.environ), str(expected_size()))
    found = re.match(r"\d+", given)
    return int(found[0]) if found else 1
