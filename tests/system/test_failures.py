"""When a rank, MPI or the user ends a run: everybody ends, soon, with one code and one message."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.programs import failing as failing_program
from tests.support.run_cli import SMALL, StageResult, environment, fill, listed, ranks, there

pytestmark = pytest.mark.slow

PROGRAM = Path(failing_program.__file__)
CONSOLE = Path(sys.executable).with_name("p2pkm")
SOON = 10.0  # seconds
START = 10.0  # what a slow machine may need to start Python and MPI; the same commands end in 2 s without a fault


@pytest.fixture(autouse=True)
def _stand_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("way", "fault", "rank"),
    [
        ("module", "update", 0),
        ("module", "update", 1),
        ("module", "prepare", 0),
        ("console", "update", 0),
        ("console", "update", 2),
        ("console", "init", 1),
        ("script", "update", 0),
        ("script", "update", 2),
    ],
)
def test_one_rank_raises(tmp_path, way, fault, rank):
    began = time.monotonic()
    ending = there(*ranks(3), PROGRAM, way, *SMALL, "--out", "run", FAULT=fault, RANK=str(rank))
    assert time.monotonic() - began < START + SOON
    assert ending.code == 4
    assert ending.err.count(f"p2pkm: rank {rank} failed: RuntimeError: a broken kernel") == 1
    assert ending.err.count(" failed: ") == 1
    assert "summary.json" not in {path.name for path in tmp_path.rglob("*")}
    if way == "script" or fault == "prepare":
        assert not listed(tmp_path)
    elif rank == 0:
        assert json.loads((tmp_path / "run" / "manifest.json").read_text())["state"] == "failed"


@pytest.mark.mpi
def test_all_ranks_raise():
    """The first to speak ends the others."""
    ending = there(*ranks(3), "-c", "import p2pkm.network.world as n; n.connect(); raise RuntimeError('everywhere')")
    assert ending.code == 4
    assert 1 <= ending.err.count(" failed: RuntimeError: everywhere") <= 3
    assert "p2pkm: rank 0 failed: RuntimeError: everywhere" in ending.err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PMI_SIZE", ("16 processes, but each is alone", "mpirun -n 16 python -m p2pkm")),
        ("OMPI_COMM_WORLD_SIZE", ("belongs to another MPI", "mpirun -n 16 python -m p2pkm")),
        ("SLURM_STEP_NUM_TASKS", ("srun started 16 tasks, but each is alone", "Start with: srun --mpi=")),
    ],
)
def test_launcher_of_another_mpi(tmp_path, name, said):
    ending = there(sys.executable, "-m", "p2pkm", *SMALL, "--out", "run", **{name: "16"})
    assert (ending.code, ending.out) == (4, "")
    assert all(words in ending.err for words in said)
    assert ending.err.count("p2pkm: ") == 1 and "Traceback" not in ending.err
    assert not listed(tmp_path)


def test_launcher_of_another_mpi_in_a_script():
    ending = there(sys.executable, PROGRAM, "script", OMPI_COMM_WORLD_SIZE="16")
    assert ending.code != 0 and "belongs to another MPI" in ending.err


def test_other_ranks_of_another_mpi_are_silent():
    more = {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_RANK": "3"}
    ending = there(sys.executable, "-W", "ignore", "-m", "p2pkm", *SMALL, **more)
    assert ending == StageResult(4, "", "")


@pytest.mark.mpi
def test_no_mpi_library(tmp_path):
    words = (*ranks(3), "-m", "p2pkm", *SMALL, "--out", "run")
    ending = there(*words, MPI4PY_LIBMPI=str(tmp_path / "none.so"))
    assert ending.code == 4
    assert ending.err.count("no MPI library can be loaded") == 1
    assert 'pip install "p2pkm[mpich]"' in ending.err and "Traceback" not in ending.err
    assert not listed(tmp_path)


def test_no_mpi_library_without_launcher():
    """One process runs without MPI."""
    words = (sys.executable, "-m", "p2pkm", *SMALL, "--out", "none", "--format", "json")
    assert there(*words, MPI4PY_LIBMPI="/nonexistent").summary["ranks"] == 1


@pytest.mark.parametrize("word", ["--help", "-h", "--version"])
def test_help_needs_neither_numpy_nor_mpi(word):
    program = f"""
import sys
from p2pkm.cli.main import main
code = main([{word!r}])
loaded = {{name.partition(".")[0] for name in sys.modules}}
sys.exit(code or bool(loaded & {{"numpy", "mpi4py", "networkx", "scipy", "numba", "sklearn", "matplotlib", "rich"}}))
"""
    for more in ({}, {"PMI_SIZE": "3", "PMI_RANK": "0"}):
        ending = there(sys.executable, "-c", program, **more)
        assert (ending.code, ending.err) == (0, "") and ending.out
    assert there(sys.executable, "-c", program, PMI_SIZE="3", PMI_RANK="2") == StageResult(0, "", "")


@pytest.mark.mpi
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["run", "--help"]])
def test_help_is_printed_once(words):
    ending = there(*ranks(3), "-m", "p2pkm", *words, MPI4PY_LIBMPI="/nonexistent")
    assert (ending.code, ending.err) == (0, "")
    assert ending.out.count("version" if words == ["--version"] else "Usage: p2pkm") == 1


@pytest.mark.mpi
@pytest.mark.parametrize("given", [{}, {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "0", "OMP_NUM_THREADS": "2"}])
def test_settings(given):
    ending = there(*ranks(2), PROGRAM, "threads", **given)
    lines = [line for line in ending.out.splitlines() if line.startswith("SETTINGS")]
    heavy, threads = (given.get(name, "1") for name in ("MPIR_CVAR_ENABLE_HEAVY_YIELD", "OMP_NUM_THREADS"))
    assert lines == [f"SETTINGS {heavy} {threads} 1 1 1"] * 2


def test_settings_of_one_process_stay():
    ending = there(sys.executable, PROGRAM, "threads", OMP_NUM_THREADS="2")
    assert "SETTINGS None 2 None None" in ending.out


def _interrupt(words, ready, **more):
    """Start a program, press Ctrl-C once it is ready, and return how it ended."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([str(word) for word in words], env=environment(**more), **pipes)
    try:
        limit = time.monotonic() + 40
        while not ready() and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.02)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        out, err = process.communicate(timeout=30)
        assert time.monotonic() - began < SOON
    finally:
        process.kill()
    return StageResult(process.returncode, out, err)


ENDLESS = fill(SMALL, ("--rounds", 10**6, "--tol", 0, "--schedule", "async", "--init", "local", "--out", "run"))


def _many_rounds():
    path = Path("run/rounds.jsonl")
    return path.exists() and path.stat().st_size > 20_000


def _check_interrupted(ending, folder):
    assert ending.code == 130 and "Traceback" not in ending.err
    summary = json.loads((folder / "summary.json").read_text())
    manifest = json.loads((folder / "manifest.json").read_text())
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert summary["termination"] == manifest["state"] == "interrupted"
    assert records[-1]["round"] == summary["rounds"] > 50
    assert (folder / "centroids.npz").exists()


@pytest.mark.parametrize("program", [(sys.executable, "-m", "p2pkm"), (CONSOLE,)])
def test_ctrl_c(tmp_path, program):
    _check_interrupted(_interrupt((*program, *ENDLESS), _many_rounds), tmp_path / "run")


@pytest.mark.mpi
def test_ctrl_c_on_ranks(tmp_path):
    words = ranks(3)[-4:]  # without `timeout`, for the signal is for the launcher
    _check_interrupted(_interrupt((*words, "-m", "p2pkm", *ENDLESS), _many_rounds), tmp_path / "run")


@pytest.mark.mpi
def test_ctrl_c_while_rank_0_prepares(tmp_path):
    words = (*ranks(3)[-4:], PROGRAM, "module", *ENDLESS)
    ending = _interrupt(words, Path("waiting").exists, FAULT="wait")
    assert ending.code == 130 and "Traceback" not in ending.err
    assert listed(tmp_path) == {"waiting"}


def test_ctrl_c_before_the_run(tmp_path):
    ending = _interrupt((sys.executable, PROGRAM, "module", *ENDLESS), Path("waiting").exists, FAULT="wait")
    assert (ending.code, ending.out) == (130, "") and "Traceback" not in ending.err
    assert listed(tmp_path) == {"waiting"}
