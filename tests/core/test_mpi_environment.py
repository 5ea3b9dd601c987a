"""What launchers tell a process by its environment."""

import re

import pytest

from p2pkm.core import mpi_environment as seen

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
MPICH = {"PMI_SIZE": "4", "PMI_RANK": "2", "MPI_LOCALNRANKS": "4"}
STEP = {"SLURM_STEP_NUM_TASKS": "6", "SLURM_PROCID": "5", "SLURM_STEP_TASKS_PER_NODE": "3(x2)"}
PMIX = {"PMIX_RANK": "1"}
BATCH = {"SLURM_PROCID": "0", "SLURM_JOB_ID": "42"}  # a batch script outside of any step


@pytest.fixture
def put(monkeypatch):
    """Return a function that gives this process the environment of a launcher."""

    def change(environment):
        for name in (*seen._SIZES, *seen._LOCAL, *seen._RANKS):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return change


@pytest.mark.parametrize(
    ("environment", "size", "rank", "local", "starter"),
    [
        (OPEN_MPI, 4, 3, 2, "Open MPI's mpirun"),
        (MPICH, 4, 2, 4, "mpirun"),
        (STEP, 6, 5, 3, "srun"),
        ({**STEP, **MPICH}, 4, 2, 4, "mpirun"),  # mpirun may start its own part by srun
        (PMIX, 1, 1, 1, "a PMIx launcher"),
        (BATCH, 1, 0, 1, "mpirun"),
        ({"SLURM_PROCID": "3"}, 1, 0, 1, "mpirun"),  # without a launcher there is one process
        ({"PMI_SIZE": "2", "SLURM_STEP_TASKS_PER_NODE": "?"}, 2, 0, 1, "mpirun"),
    ],
)  # fmt: skip
def test_size_rank_and_who_started(put, environment, size, rank, local, starter):
    put(environment)
    assert seen.launched() == (environment not in (BATCH, {"SLURM_PROCID": "3"}))
    assert (seen.expected_size(), seen.expected_rank(), seen.local_size()) == (size, rank, local)
    assert seen.starter() == starter


@pytest.mark.parametrize(
    ("environment", "library", "words"),
    [
        (MPICH, "MPICH 4.2", r"started 4 processes, .*library \(MPICH 4.2\) belong to different MPIs"),
        (STEP, "MPICH 4.2", r"srun started 6 tasks, .*--mpi=pmi2 python -m p2pkm"),
        (STEP, "Open MPI v5.0", r"srun started 6 tasks, .*--mpi=pmix python -m p2pkm"),
    ],
)
def test_why_each_process_is_alone(put, environment, library, words):
    put(environment)
    assert re.search(words, seen.explain_alone(library))
