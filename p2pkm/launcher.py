"""What the environment says of the MPI launcher that started this process; MPI itself is not touched."""

import os

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
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
