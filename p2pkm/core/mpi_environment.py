"""Environment variables of MPI launchers; MPI itself is neither imported nor started."""

import os
import re
import sys

from p2pkm.core.errors import ExperimentError

# Variables that set the number of threads of numerical libraries.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_LOCAL = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")
_STARTERS = {"OMPI_COMM_WORLD_SIZE": "Open MPI's mpirun", "MPI_LOCALNRANKS": "mpirun", "SLURM_STEP_NUM_TASKS": "srun",
             "PMIX_RANK": "a PMIx launcher"}  # fmt: skip
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID")
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


def check_threads() -> None:
    """Reject a number of threads with which the import of numba would fail.

    Raises
    ------
    ExperimentError
        If NUMBA_NUM_THREADS is below 1.
    """
    value = os.environ.get("NUMBA_NUM_THREADS", "1").strip()
    if re.fullmatch(r"0+|-\d+", value):
        raise ExperimentError(f"NUMBA_NUM_THREADS is {value}; expected at least 1: unset it, or set it to 1")


def launched() -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in os.environ for name in (*_SIZES, "PMIX_RANK"))


def in_job() -> bool:
    """Return whether this process belongs to an MPI launcher or to the job of a scheduler, which ends its processes."""
    return launched() or any(name in os.environ for name in _JOBS)


def expected_size() -> int:
    """Return the number of processes that the launcher started, 1 if unknown."""
    return int(next((os.environ[name] for name in _SIZES if name in os.environ), 1))


def expected_rank() -> int:
    """Return the rank that the launcher assigned to this process, 0 without a launcher."""
    return int(next((os.environ[name] for name in _RANKS if name in os.environ), 0)) if launched() else 0


def local_size() -> int:
    """Return the number of processes on this machine; all processes if unknown."""
    value = next((os.environ[name] for name in _LOCAL if name in os.environ), str(expected_size()))
    # Slurm writes "4(x2)" for 4 tasks on each of 2 nodes.
    match = re.match(r"\d+", value)
    return int(match[0]) if match else 1


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def starter() -> str:
    """Return the launcher of this process: the first match of `_STARTERS`.

    The order matters: an mpirun under Slurm may use srun, which then sets its variables, too.
    """
    return next((launcher for name, launcher in _STARTERS.items() if name in os.environ), "mpirun")


def explain_mismatch(library: str) -> str:
    """Explain why an MPI library cannot start under the launcher of this process; empty if it can.

    Some libraries abort the process under the launcher of another MPI, so this must be checked before MPI starts.

    Parameters
    ----------
    library : str
        Version text of the library.
    """
    named = library.partition("\n")[0]
    from_open_mpi, is_open_mpi = "OMPI_COMM_WORLD_SIZE" in os.environ, "Open MPI" in library
    from_mpich = "MPI_LOCALNRANKS" in os.environ and not from_open_mpi and expected_size() > 1
    if from_open_mpi != is_open_mpi and (from_open_mpi or from_mpich):
        mismatch = f"{starter()} started this process, but mpi4py's library ({_shorten(named)}) belongs to another MPI"
        return f"{mismatch}. {_advise_mpirun()}"
    by_pmix = "PMIX_RANK" in os.environ and not any(name in os.environ for name in ("PMI_RANK", "PMI_FD"))
    if by_pmix and named.startswith("MPICH") and "pmix" not in library.lower():
        return (
            f"a PMIx launcher started this process, but mpi4py's library ({_shorten(named)}) does not understand PMIx. "
            "Under Slurm use: srun --mpi=pmi2 python -m p2pkm"
        )
    return ""


def _shorten(version: str) -> str:
    """Collapse white space of a version text."""
    return " ".join(version.split())


def _advise_mpirun() -> str:
    """Recommend the mpirun of this Python environment, if there is one."""
    from pathlib import Path

    path = Path(sys.executable).with_name("mpirun")
    if not path.exists():
        return "Use the mpirun of that library"
    return f"Use {path}, as in: {path} -n {expected_size()} python -m p2pkm"


def explain_alone(library: str) -> str:
    """Explain why every process has a world of size 1 although the launcher started several, and the fix."""
    size = expected_size()
    if starter() != "srun":
        return (
            f"the launcher started {size} processes, but each is alone (a world of size 1): launcher and mpi4py's "
            f"library ({library}) belong to different MPIs. {_advise_mpirun()}"
        )
    kind = "pmix" if "Open MPI" in library else "pmi2"
    return (
        f"srun started {size} tasks, but each is alone (a world of size 1): srun must use the protocol of the MPI "
        f"library ({library}), and the default is often --mpi=none. Start with: "
        f"srun --mpi={kind} python -m p2pkm (srun --mpi=list shows the choices)"
    )
