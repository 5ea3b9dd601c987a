"""The script for Slurm on a real one, of two nodes; skipped where its daemons are absent."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.run_cli import ROOT, environment, here
from tests.support.slurm import lacking, two_nodes
from tests.support.stored_rows import list_lines

SCRIPT = ROOT / "launch/slurm.sbatch"
ENDLESS = "--devices 4 --data grid16:points=100 --no-baselines --rounds 1000000 --all-rounds --no-plot -q".split()
OPTIONS = ("--graph", "grid", "--devices", "6", "--data", "grid16:points=10", "--rounds", "30", "--no-plot", "-q")
STUDY = """
devices = 4
data = "grid16:points=5"
rounds = 6
plot = false
seeds = "0-1"
[grid]
algorithm = ["gtvmin", "consensus"]
graph = ["ring", "path"]
"""
RUNS = 8
LIMIT = 120  # seconds; jobs take some ten, but ranks that never meet (docs/howto/cluster.md, "With UCX") wait forever
pytestmark = [pytest.mark.system, pytest.mark.skipif(bool(lacking()), reason=lacking())]


class Cluster(NamedTuple):
    """What starts programs on the nodes."""

    settings: dict[str, str]

    def run(self, *words, folder, **more):
        """Run a command as a user who has activated the environment would."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = environment(PATH=path, MPIR_CVAR_CH4_NETMOD="ofi", **self.settings, **more)  # as launch/slurm.sbatch says
        limited = ["timeout", "-k", "2", str(LIMIT), *map(str, words)]
        return subprocess.run(limited, cwd=folder, capture_output=True, text=True, check=False, env=env)

    def submit(self, *words, folder, until=lambda: False):
        """Submit a job, wait until it has ended, and return how each of its parts ended and what they printed.

        Once `until` holds, its tasks are sent SIGTERM.
        """
        done = self.run("sbatch", "--parsable", *words, folder=folder)
        assert done.returncode == 0, done.stderr
        number, limit, told = done.stdout.strip(), time.monotonic() + LIMIT, False
        while state := self.run("squeue", "--noheader", "--format=%T %r", f"--jobs={number}", folder=folder).stdout:
            if time.monotonic() > limit:
                self.run("scancel", number, folder=folder)
                pytest.fail(f"job {number} has not ended after {LIMIT} s: {state}{read_output(folder)}", pytrace=False)
            if not told and until():
                self.run("scancel", "--signal=TERM", number, folder=folder)
                told = True
            time.sleep(0.3)
        shown = self.run("scontrol", "--oneliner", "show", "job", number, folder=folder).stdout
        return re.findall(r"JobState=(\S+) .*?ExitCode=(\d+):", shown), read_output(folder)


def read_output(folder):
    return "".join(path.read_text() for path in sorted(folder.glob("p2pkm-*.out")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with two_nodes(tmp_path_factory.mktemp("slurm")) as settings:
        yield Cluster(settings)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def table(folder):
    rows = [json.loads(line) for line in (folder / "study.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "wall_seconds"} for row in rows]


def test_a_job_over_two_nodes_ends_with_the_bits_of_one_process(cluster, tmp_path):
    ended, printed = cluster.submit("-N2", "--ntasks=4", SCRIPT, *OPTIONS, "--out", tmp_path / "job", folder=tmp_path)
    assert ended == [("COMPLETED", "0")], printed
    assert here(*OPTIONS, "--out", tmp_path / "one").code == 0
    job, one = summary(tmp_path / "job"), summary(tmp_path / "one")
    assert job["ranks"] == 4
    assert (job["chain_sha256"], job["centroids_sha256"]) == (one["chain_sha256"], one["centroids_sha256"])
    assert job["bytes"] == one["bytes"]


def test_jobs_of_an_array_make_the_table_of_one_process(cluster, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    words = ("sweep", study, "--out", tmp_path / "array", "-q")
    ended, printed = cluster.submit("--array=0-4:2", "--ntasks=1", SCRIPT, *words, folder=tmp_path)
    assert ended == [("COMPLETED", "0")] * 3, printed
    for number in (1, 2, 3):
        assert f"task {2 * number - 2} of the array runs with --part {number}/3" in printed
        assert f"part {number}/3 is stored" in printed
    kept = list_lines(tmp_path / "array")
    assert len(kept) == RUNS and not (tmp_path / "array/study.jsonl").exists()
    assert here(*words).code == 0
    assert list_lines(tmp_path / "array") == kept
    assert here("sweep", study, "--out", tmp_path / "one", "-q").code == 0
    assert table(tmp_path / "array") == table(tmp_path / "one")


SUBMITTED = """
devices = 4
data = "grid16:points=5"
rounds = 40
all_rounds = true
plot = false
seeds = "0-29"
[grid]
graph = ["ring", "path"]
algorithm = ["consensus"]
"""


@pytest.fixture
def submitted(cluster, tmp_path):
    """Submit a study of 60 runs as an array of three jobs, and wait until some runs are stored."""
    study, folder = tmp_path / "study.toml", tmp_path / "s"
    study.write_text(SUBMITTED)
    words = ("study", "submit", study, "--out", folder, "--tasks", "3", "--", "--time=00:10:00")
    done = cluster.run(sys.executable, "-m", "p2pkm", *words, folder=tmp_path)
    assert done.returncode == 0 and "60 runs in 3 jobs" in done.stdout, done.stderr
    until(lambda: len(list_lines(folder)) > 5)
    yield folder
    cluster.run("scancel", *json.loads((folder / "jobs/submitted.json").read_text())["jobs"], folder=tmp_path)


def until(holds):
    limit = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.1)


def kill(text):
    """Kill the processes whose command line has a text, as a node that runs out of memory does."""
    assert subprocess.run(["pkill", "-KILL", "-f", "--", text], check=False).returncode == 0


def wait_for_queue(cluster, folder):
    until(lambda: not cluster.run("squeue", "--noheader", folder=folder).stdout)


def test_a_submitted_study_survives_a_killed_task(cluster, submitted, tmp_path):
    again = cluster.run(sys.executable, "-m", "p2pkm", "study", "submit", tmp_path / "study.toml", "--out", submitted,
                        folder=tmp_path)  # fmt: skip
    assert again.returncode == 2 and "3 processes execute its runs" in again.stderr, again
    kill(f"{submitted} --quiet --part 2/3")
    wait_for_queue(cluster, tmp_path)
    printed = (submitted / "jobs/output.txt").read_text()
    assert "part 1/3 is stored" in printed and "part 2/3" not in printed and "part 3/3 is stored" in printed
    status = here("study", "status", submitted).out
    assert re.search(r"done +60\n", status) and re.search(r"to do +0\n", status), status
    assert here("study", tmp_path / "study.toml", "--out", tmp_path / "one", "-q").code == 0
    assert table(submitted) == table(tmp_path / "one")


def test_a_submitted_study_survives_a_killed_last_job(cluster, submitted, tmp_path):
    kill(f"{submitted} --quiet --part 1/3")  # so that the last job has runs to execute
    until(lambda: cluster.run("squeue", "--noheader", "--format=%t", folder=tmp_path).stdout.split() == ["R"])
    until(lambda: here("study", "status", submitted).out.count("in 1 process") == 1)
    kill(f"resume {submitted} --quiet")
    wait_for_queue(cluster, tmp_path)
    assert not (submitted / "study.jsonl").exists()
    assert "lost when a worker was ended" in here("study", "status", submitted).out
    assert here("resume", submitted, "-q").code == 0
    assert here("study", tmp_path / "study.toml", "--out", tmp_path / "one", "-q").code == 0
    assert table(submitted) == table(tmp_path / "one")


def test_an_array_whose_shares_are_unknown_ends_before_any_work(cluster, tmp_path):
    words = ("sweep", tmp_path / "missing.toml", "--out", tmp_path / "array")
    ended, printed = cluster.submit("--array=3,5", "--ntasks=1", SCRIPT, *words, folder=tmp_path)
    assert ended == [("FAILED", "2")] * 2 and not (tmp_path / "array").exists()
    assert printed.count("the array is a list of 2 tasks, 3 to 5; expected a range") == 2, printed


def test_every_word_reaches_the_ranks(cluster, tmp_path):
    table = tmp_path / "the table, of 'Zürich' and \"Ulm\".csv"
    table.write_text("a,b\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(60)))
    words = ("--graph", "small-world:degree=2,rewire=0.1", "--data", table, "--devices", "6", "--dry-run")
    ended, printed = cluster.submit("--ntasks=1", SCRIPT, *words, folder=tmp_path)
    assert ended == [("COMPLETED", "0")], printed
    shown = json.loads(printed[printed.index("{") :])
    assert (shown["graph"], shown["data"]) == ("small-world:degree=2,rewire=0.1,seed=0", f"file:{table}")


def test_a_job_is_not_requeued(cluster, tmp_path):
    run = tmp_path / "job"
    done = cluster.run("sbatch", "--parsable", "--ntasks=1", SCRIPT, *ENDLESS, "--out", run, folder=tmp_path)
    number, limit = done.stdout.strip(), time.monotonic() + LIMIT
    try:
        while count(run) < 1 and time.monotonic() < limit:
            time.sleep(0.3)
        requeued = cluster.run("scontrol", "requeue", number, folder=tmp_path)
        assert requeued.returncode != 0 and "disabled" in requeued.stderr, requeued.stderr
        assert "Restarts=0" in cluster.run("scontrol", "show", "job", number, folder=tmp_path).stdout
    finally:
        cluster.run("scancel", number, folder=tmp_path)


@pytest.mark.parametrize("words", [("--graph", "ring", "--out", "none"), ("doctor",)])
def test_worlds_of_size_1_are_one_clear_message(cluster, tmp_path, words):
    done = cluster.run("srun", "--mpi=none", "-N2", "-n4", sys.executable, "-m", "p2pkm", *words, folder=tmp_path)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "alone" in line]
    assert done.returncode == 4 and len(said) == 1, done.stdout + done.stderr
    assert "srun started 4 tasks" in said[0] and "srun --mpi=pmi2 python -m p2pkm" in said[0]
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr


def test_the_doctor_sees_all_tasks(cluster, tmp_path):
    done = cluster.run("srun", "--mpi=pmi2", "-N2", "-n4", sys.executable, "-m", "p2pkm", "doctor", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 ranks see each other, started by srun" in done.stdout


def test_the_doctor_names_the_default_of_this_slurm(cluster, tmp_path):
    done = cluster.run(sys.executable, "-m", "p2pkm", "doctor", folder=tmp_path)
    [line] = [line for line in done.stdout.splitlines() if "slurm" in line.split()[1:2]]
    assert "MpiDefault=none" in line and "--mpi=pmi2" in line


def test_a_job_whose_time_is_up_can_go_on(cluster, tmp_path):
    """The signal that Slurm sends ahead of the time limit is sent here as soon as there are rounds."""
    run, rounds = tmp_path / "job", 0
    for words in (("--ntasks=2", SCRIPT, *ENDLESS, "--out", run), ("--ntasks=3", SCRIPT, "resume", run, "-q")):
        ended, printed = cluster.submit("-N2", *words, folder=tmp_path, until=lambda: count(run) > rounds)  # noqa: B023
        assert ended == [("FAILED", "143")] and "p2pkm resume" in printed, printed
        assert json.loads((run / "manifest.json").read_text())["state"] == "interrupted"
        assert count(run) > rounds
        rounds = count(run)


def count(run):
    """Return the number of records of a run: rounds start again at 0 in each stage."""
    path = run / "rounds.jsonl"
    return path.read_text().count("\n") if path.is_file() else 0
