"""What launchers tell a process by its environment."""

import re
import sys

import pytest

from p2pkm.core import mpi_environment as seen
from p2pkm.core.errors import ExperimentError
from p2pkm.core.mpi_environment import check_threads
from tests.support.run_cli import there

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
MPICH = {"PMI_SIZE": "4", "PMI_RANK": "2", "MPI_LOCALNRANKS": "4"}
STEP = {"SLURM_STEP_NUM_TASKS": "6", "SLURM_PROCID": "5", "SLURM_STEP_TASKS_PER_NODE": "3(x2)"}
PMIX = {"PMIX_RANK": "1"}
BATCH = {"SLURM_PROCID": "0", "SLURM_JOB_ID": "42"}  # a batch script outside of any step


@pytest.fixture
def put(monkeypatch):
    """Return a function that gives this process the environment of a launcher."""

    def change(environment):
        for name in (*seen._SIZES, *seen._LOCAL, *seen._RANKS, "PMI_FD"):
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


HYDRA = "MPICH Version:\t5.0.2\nMPICH configure: --with-pm=hydra"


@pytest.mark.parametrize(
    ("environment", "library", "words"),
    [
        (OPEN_MPI, HYDRA, "Open MPI's mpirun .*MPICH Version: 5.0.2.*another MPI"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1"}, HYDRA, "Open MPI's mpirun started"),
        (OPEN_MPI | PMIX, "Intel(R) MPI Library 2021.12", "Intel.*another MPI"),
        (MPICH, "Open MPI v5.0.8, package: x", "mpirun started .*Open MPI v5.0.8.*another MPI"),
        (PMIX, HYDRA, "does not understand PMIx.*--mpi=pmi2"),
    ],
)
def test_a_library_that_the_launcher_cannot_start_is_named_before_it_starts(put, environment, library, words):
    put(environment)
    assert re.search(words, seen.explain_mismatch(library))


@pytest.mark.parametrize(
    ("environment", "library"),
    [
        (OPEN_MPI, "Open MPI v4.1.4"), (OPEN_MPI | PMIX, "Open MPI v5.0.8"), (MPICH, HYDRA),
        (MPICH, "Intel(R) MPI Library 2021.12"), (MPICH | {"PMI_SIZE": "1"}, "Open MPI v5.0.8"), ({}, "MPICH 4.2"),
        ({"PMI_SIZE": "4", "PMI_RANK": "1", **STEP}, "Open MPI v4.1"), (STEP, "MPICH 4.2"), (PMIX, "Open MPI v5.0.8"),
        (PMIX, "MPICH Version:\t4.3\nMPICH configure: --with-pmix=/usr"), (PMIX | {"PMI_FD": "3"}, "MPICH 4.2"),
    ],
)  # fmt: skip
def test_pairs_that_may_belong_together_are_not_refused(put, environment, library):
    put(environment)
    assert seen.explain_mismatch(library) == ""


@pytest.mark.mpi
@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_launcher_of_open_mpi_with_the_library_of_mpich_ends_with_code_4(rank):
    """The library would end the process with code 16 and 20 lines of its own."""
    found = there(sys.executable, "-m", "p2pkm", "--rounds", "1", "--devices", "4", "--out", "none",
                  OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK=rank, PMIX_RANK=rank)  # fmt: skip
    if "Open MPI v" in found.err:
        pytest.skip("mpi4py loads Open MPI here")
    assert found.code == 4 and "Abort(" not in found.err
    assert ("belongs to another MPI. Use" in found.err) is (rank == "0")


def test_zero_threads_are_refused(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "0")
    with pytest.raises(ExperimentError, match="NUMBA_NUM_THREADS is 0"):
        check_threads()
    monkeypatch.delenv("NUMBA_NUM_THREADS")
    check_threads()
