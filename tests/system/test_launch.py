"""The start scripts: short, valid, and the local one runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[2] / "launch"
SCRIPTS = ("local.sh", "slurm.sbatch", "pbs.sh")
HERE = Path(sys.executable).parent
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")]


def environment(**more):
    """Return what a shell has after the environment was activated, without what the scripts themselves set."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS") and name != "RANKS"}
    return kept | {"PATH": f"{HERE}:{os.environ['PATH']}"} | more


def run(command, folder, **more):
    return subprocess.run(
        ["timeout", "-k", "2", "60", *map(str, command)],
        cwd=folder, capture_output=True, text=True, timeout=90, env=environment(**more), check=False,
    )  # fmt: skip


def stand_in(folder, name):
    """Put a program of this name into a folder: it appends its arguments and some settings to a log."""
    path = folder / name
    path.write_text(f'#!/usr/bin/env bash\necho "{name} $* | $OMP_NUM_THREADS $MPIR_CVAR_ENABLE_HEAVY_YIELD" >> log\n')
    path.chmod(0o755)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_valid_short_and_pass_their_arguments_on(name):
    path = LAUNCH / name
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = path.read_text().splitlines()
    assert len(lines) <= 30
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[-1].endswith('python -m p2pkm "$@"')
    assert "set -euo pipefail" in lines


@pytest.mark.parametrize(
    ("arguments", "more", "expected"),
    [
        (["3", "--graph", "ring"], {}, "mpirun -n 3 python -m p2pkm --graph ring | 1 1"),
        (["--graph", "ring"], {}, "mpirun -n 4 python -m p2pkm --graph ring | 1 1"),
        (["doctor"], {"RANKS": "7"}, "mpirun -n 7 python -m p2pkm doctor | 1 1"),
        (["2"], {"RANKS": "7", "OMP_NUM_THREADS": "5"}, "mpirun -n 2 python -m p2pkm | 5 1"),
        (["2"], {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "0"}, "mpirun -n 2 python -m p2pkm | 1 0"),
    ],
)
def test_local_starts_as_many_ranks_as_asked(tmp_path, arguments, more, expected):
    stand_in(tmp_path, "mpirun")
    done = run([LAUNCH / "local.sh", *arguments], tmp_path, **({"PATH": f"{tmp_path}:{os.environ['PATH']}"} | more))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "log").read_text().replace("p2pkm  |", "p2pkm |") == expected + "\n"


@pytest.mark.mpi
def test_local_runs_a_job(tmp_path):
    options = "--graph ring --data grid16:points=10 --rounds 3 --no-baselines --out none --format json -q".split()
    done = run([LAUNCH / "local.sh", "3", *options], tmp_path)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert json.loads(line)["ranks"] == 3
    assert os.access(LAUNCH / "local.sh", os.X_OK)


@pytest.mark.mpi
def test_local_ends_with_the_code_of_the_run(tmp_path):
    assert run([LAUNCH / "local.sh", "2", "--graph", "nonsense"], tmp_path).returncode in {2, 3}


def test_slurm_compiles_first_and_starts_one_world(tmp_path):
    for name in ("srun", "python"):
        stand_in(tmp_path, name)
    script = LAUNCH / "slurm.sbatch"
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run(["bash", script, "--graph", "star"], tmp_path, **path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "log").read_text().splitlines() == [
        "python -m p2pkm compile | 1 1",
        "srun --mpi=pmi2 python -m p2pkm --graph star | 1 1",
    ]
    header = [line.split()[1].split("=")[0] for line in script.read_text().splitlines() if line.startswith("#SBATCH ")]
    assert {"--ntasks", "--time", "--signal", "--mem-per-cpu", "--output"} <= set(header)
    commands = [n for n, line in enumerate(script.read_text().splitlines()) if line and not line.startswith("#")]
    last = max(n for n, line in enumerate(script.read_text().splitlines()) if line.startswith("#SBATCH "))
    assert last < commands[0]  # Slurm reads no option after the first command


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"OPTIONS": "--graph star"}, "--graph star"),
        ({"OPTIONS": "sweep S.toml --out D", "PBS_ARRAY_INDEX": "3"}, "sweep S.toml --out D --part 3/8"),
        ({"OPTIONS": "sweep S.toml --out D", "PBS_ARRAYID": "2", "SHARES": "5"}, "sweep S.toml --out D --part 2/5"),
        ({}, ""),
    ],
)
def test_pbs_starts_a_rank_for_each_line_of_its_file(tmp_path, more, expected):
    for name in ("mpirun", "python"):
        stand_in(tmp_path, name)
    nodes = tmp_path / "nodes"
    nodes.write_text("a\na\nb\n")
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PBS_NODEFILE": str(nodes), "PBS_O_WORKDIR": str(tmp_path)}
    done = run(["bash", LAUNCH / "pbs.sh"], tmp_path, **given, **more)
    assert (done.returncode, done.stderr) == (0, "")
    words = f"mpirun -launcher ssh -f {nodes} -n 3 python -m p2pkm {expected}".strip()
    log = (tmp_path / "log").read_text().splitlines()
    assert [line.partition(" | ")[0].strip() for line in log] == ["python -m p2pkm compile", words]


def test_slurm_gives_each_job_of_an_array_its_share(tmp_path):
    for name in ("srun", "python"):
        stand_in(tmp_path, name)
    array = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MAX": "8"}
    done = run(["bash", LAUNCH / "slurm.sbatch", "sweep", "S.toml", "--out", "D"], tmp_path, **array)
    assert (done.returncode, done.stderr) == (0, "")
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last == "srun --mpi=pmi2 python -m p2pkm sweep S.toml --out D --part 3/8 | 1 1"


@pytest.mark.parametrize("name", ["pbs.sh", "kubernetes-mpijob.yaml"])
def test_what_was_not_tried_says_so(name):
    assert "NOT TRIED" in (LAUNCH / name).read_text()


@pytest.mark.mpi
def test_the_hostfile_works_once_it_names_this_machine(tmp_path):
    mpirun = shutil.which("mpirun", path=environment()["PATH"])
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    if "HYDRA" not in version:
        pytest.skip("the example is written for MPICH's mpirun")
    example = (LAUNCH / "hostfile.example").read_text().splitlines()
    hosts = tmp_path / "hosts"
    hosts.write_text("\n".join(line if line.startswith("#") else "localhost:8" for line in example[:-1]) + "\n")
    done = run([mpirun, "-f", hosts, "-n", "2", sys.executable, "-m", "p2pkm", "doctor"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 ranks see each other" in done.stdout


def test_the_readme_names_every_file_and_no_other():
    named = set(re.findall(r"^\| `([^`]+)` \|", (LAUNCH / "README.md").read_text(), re.MULTILINE))
    assert named == {path.name for path in LAUNCH.iterdir()} - {"README.md"}
