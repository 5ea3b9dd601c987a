"""What the environment shows of the MPI launcher that started this process; MPI itself is not touched."""

import os
import re
import sys
from pathlib import Path

from p2pkm.core.errors import ExperimentError

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")  # how many libraries take
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_LOCAL = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")
_STARTERS = {"OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun", "MPI_LOCALNRANKS": "mpirun", "SLURM_STEP_NUM_TASKS": "srun",
             "PMIX_RANK": "a PMIx launcher"}  # fmt: skip
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


def check_threads() -> None:
    """Refuse a number of threads that numba would refuse when it is imported.

    Raises
    ------
    ExperimentError
        If it is below 1.
    """
    given = os.environ.get("NUMBA_NUM_THREADS", "1").strip()
    if re.fullmatch(r"0+|-\d+", given):
        raise ExperimentError(f"NUMBA_NUM_THREADS is {given}; expected at least 1: unset it, or set it to 1")


def launched() -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in os.environ for name in (*_SIZES, "PMIX_RANK"))


def expected_size() -> int:
    """Return how many processes the launcher started, 1 if unknown."""
    return int(next((os.environ[name] for name in _SIZES if name in os.environ), 1))


def expected_rank() -> int:
    """Return the rank that the launcher gave to this process, 0 without one."""
    return int(next((os.environ[name] for name in _RANKS if name in os.environ), 0)) if launched() else 0


def local_size() -> int:
    """Return how many of the processes are on this machine; all of them if unknown."""
    given = next((os.environ[name] for name in _LOCAL if name in os.environ), str(expected_size()))
    found = re.match(r"\d+", given)
    return int(found[0]) if found else 1


def starter() -> str:
    """Return which launcher started this process; an mpirun under Slurm may have started its own part by srun."""
    return next((whose for name, whose in _STARTERS.items() if name in os.environ), "mpirun")


def explain_mismatch(library: str) -> str:
    """Return why an MPI library of this version text cannot start under the launcher of this process; empty if it can.

    Some libraries end the process when they are started by another MPI's launcher, so this is asked before.
    """
    named = library.partition("\n")[0]
    from_open_mpi, is_open_mpi = "OMPI_COMM_WORLD_SIZE" in os.environ, "Open MPI" in library
    from_mpich = "MPI_LOCALNRANKS" in os.environ and not from_open_mpi and expected_size() > 1
    if from_open_mpi != is_open_mpi and (from_open_mpi or from_mpich):
        found = f"{starter()} started this process, but mpi4py's library ({_shorten(named)}) belongs to another MPI"
        return f"{found}. {_own()}"
    by_pmix = "PMIX_RANK" in os.environ and not any(name in os.environ for name in ("PMI_RANK", "PMI_FD"))
    if by_pmix and named.startswith("MPICH") and "pmix" not in library.lower():
        return (
            f"a PMIx launcher started this process, but mpi4py's library ({_shorten(named)}) does not understand PMIx. "
            "Under Slurm use: srun --mpi=pmi2 python -m p2pkm"
        )
    return ""


def _shorten(version: str) -> str:
    return " ".join(version.split())


def _own() -> str:
    """Return which mpirun to use: the one of this environment, if it has one."""
    beside = Path(sys.executable).with_name("mpirun")
    path = str(beside) if beside.exists() else "the mpirun of that library"
    return f"Use {path}, as in: {path} -n {expected_size()} python -m p2pkm" if beside.exists() else f"Use {path}"


def explain_alone(library: str) -> str:
    """Return why each of the processes that were started is alone, and what to do; for an MPI library of this name."""
    size = expected_size()
    if starter() != "srun":
        return (
            f"the launcher started {size} processes, but each is alone (a world of size 1): launcher and mpi4py's "
            f"library ({library}) belong to different MPIs. {_own()}"
        )
    kind = "pmix" if "Open MPI" in library else "pmi2"
    return (
        f"srun started {size} tasks, but each is alone (a world of size 1): srun must be told how the MPI library "
        f"({library}) finds the others, and the default is often --mpi=none. Start with: "
        f"srun --mpi={kind} python -m p2pkm (srun --mpi=list shows what there is)"
    )
