"""Status, repetition and extension of studies, from one folder."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

import p2pkm
import p2pkm.experiments.studies.run_study as module
from p2pkm.cli.run import run_command
from p2pkm.engine.run_options import OPTIONS, RunOptions
from p2pkm.experiments.studies.status import _measure_rate, read_status
from p2pkm.storage.study_rows import RowWriter
from tests.support.run_cli import environment, here
from tests.support.stored_rows import list_lines, list_rows, lose_rows

STUDY = """
devices = 4
data = "grid16:points=5"
rounds = 3
plot = false
baselines = false
refusals = "rows"
seeds = "0-1"
[grid]
algorithm = ["gtvmin", "fkm"]
graph = ["ring", "path", "random-regular:degree=9"]
"""
RUNS = 2 * (3 + 1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of a study with two runs that failed and two that were rejected."""
    execute = module.execute

    def fail(prepared, *more):
        if str(prepared.options.graph).startswith("path"):
            raise p2pkm.DataError("no luck")
        return execute(prepared, *more)

    (tmp_path / "s.toml").write_text(STUDY)
    with monkeypatch.context() as patch:
        patch.setattr(module, "execute", fail)
        assert here("study", tmp_path / "s.toml", "--out", tmp_path / "s", "-q").code == 4
    return tmp_path / "s"


def counts(status):
    return status.done, status.failed, status.rejected, status.missing


def test_the_status_counts_runs_by_how_they_ended(folder):
    status = read_status(folder)
    assert counts(status) == (4, 2, 2, 0) and status.total == RUNS and not status.running
    reasons = {reason.partition(":")[0]: number for reason, number in status.reasons.items()}
    assert reasons == {"DataError": 2, "TopologyError": 2}
    by_graph = {axis.value: axis[2:] for axis in status.axes if axis.option == "graph"}
    assert by_graph == {"ring": (2, 0, 2), "path": (0, 2, 2), "random-regular:degree=9": (0, 2, 2), "server": (2, 0, 2)}
    text = here("study", "status", folder).out
    assert "2 x DataError: no luck" in text and f"resume {folder} --retry-failed" in text
    said = json.loads(here("study", "status", folder, "--format", "json").out)
    assert (said["done"], said["failed"], said["rejected"], said["missing"]) == (4, 2, 2, 0)


@pytest.mark.parametrize(
    ("option", "left", "again"), [("--retry-failed", 2, 2), ("--retry-rejected", 4, 2), ("", 4, 0)]
)
@pytest.mark.sample(3)
def test_only_the_runs_that_are_asked_for_are_repeated(folder, option, left, again):
    before = list_lines(folder)
    ending = here("resume", folder, "-q", *filter(None, [option]))
    assert ending.code == 4
    after = list_lines(folder)
    assert sum(line != before[key] for key, line in after.items()) == again
    assert sum(row["error"] is not None for row in list_rows(folder)) == left


def test_runs_in_progress_and_lost_ones_are_told_apart(folder):
    keys = lose_rows(folder, 2)
    with RowWriter(folder) as writer:
        writer.claim(keys[0])
        status = read_status(folder)
        assert counts(status)[-1] == 2 and len(status.running) == status.workers == 1 and not status.lost
        assert " on " in status.running[0]["name"] or " with " in status.running[0]["name"]
        assert "nobody works on it" not in status.format()
    status = read_status(folder)
    assert not status.running and status.lost == 1 and status.seconds_left is None
    assert f"nobody works on it; continue with: python -m p2pkm resume {folder}" in status.format()


def test_the_rate_is_that_of_the_last_runs():
    assert _measure_rate([5.0]) is None and _measure_rate([]) is None and _measure_rate([1.0, 1.0]) is None
    assert _measure_rate([*range(1000), *(1000 + 0.5 * i for i in range(500))]) == pytest.approx(2.0)


@pytest.mark.parametrize("words", [("status",), ("extend", "--seeds", "3")])
def test_a_folder_without_a_study_is_refused(tmp_path, words):
    ending = here("study", words[0], tmp_path, *words[1:])
    assert ending.code == 3 and "is not the folder of a study" in ending.err


@pytest.mark.slow
def test_a_study_is_extended_by_seeds_and_values(folder, tmp_path):
    before = list_lines(folder)
    assert here("study", "extend", folder, "--seeds", "1-2", "--add", "graph=complete", "-q").code == 4
    assert before.items() <= list_lines(folder).items()
    status = read_status(folder)
    # Three seeds of two methods: one on four graphs, the other on its star.
    assert status.total == 3 * (4 + 1) and status.missing == 0
    (tmp_path / "whole.toml").write_text(STUDY.replace('"0-1"', '"0-2"').replace("degree=9", 'degree=9", "complete'))
    assert here("study", tmp_path / "whole.toml", "--out", folder, "-q").code == 4
    assert len(list_lines(folder)) == status.total


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "requires what is added"),
        (("--add", "graph"), "expected OPTION=VALUE"),
        (("--add", "coupling=3"), "expected an option that is varied in \\[grid\\]"),
        (("--seeds", "x"), "seeds is 'x'"),
    ],
)
@pytest.mark.sample(3)
def test_what_cannot_be_added_changes_nothing(folder, words, message):
    before = (folder / "study.toml").read_bytes()
    ending = here("study", "extend", folder, *words)
    assert ending.code == 2 and (folder / "study.toml").read_bytes() == before
    import re

    assert re.search(message, ending.err)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["worker", "parent"])
def test_a_killed_process_loses_its_run_alone(tmp_path, who):
    text = STUDY.replace('"0-1"', '"0-19"').replace(', "random-regular:degree=9"', "").replace("points=5", "points=50")
    (tmp_path / "s.toml").write_text(text)
    folder = tmp_path / "s"
    words = [sys.executable, "-m", "p2pkm", "study", str(tmp_path / "s.toml"), "--out", str(folder), "--jobs", "2"]
    parent = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while len(list_lines(folder)) < 5 and parent.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    children = subprocess.run(["pgrep", "-P", str(parent.pid)], capture_output=True, text=True, check=True).stdout
    os.kill(parent.pid if who == "parent" else int(children.split()[0]), signal.SIGKILL)
    out, err = parent.communicate(timeout=300)
    assert parent.returncode == (-9 if who == "parent" else 4), out + err
    before = list_lines(folder)
    while read_status(folder).workers and time.monotonic() < until:  # the workers notice that their parent is gone
        time.sleep(0.2)
    status = read_status(folder)
    assert status.missing > 0 and status.failed == 0
    assert here("resume", folder, "-q").code == 0
    assert before.items() <= list_lines(folder).items() and read_status(folder).missing == 0


@pytest.mark.slow
def test_two_jobs_of_the_same_runs_execute_none_of_them_twice(tmp_path):
    (tmp_path / "s.toml").write_text(STUDY.replace('"0-1"', '"0-19"').replace(', "random-regular:degree=9"', ""))
    words = [sys.executable, "-m", "p2pkm", "study", str(tmp_path / "s.toml"), "--out", str(tmp_path / "s"), "-q"]
    jobs = [
        subprocess.Popen([*words, "--part", "1/1"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [(job.communicate(timeout=300)[1], job.returncode) for job in jobs] == [(b"", 0)] * 2
    assert read_status(tmp_path / "s").missing == 0
    rows = b"".join(path.read_bytes() for path in (tmp_path / "s/runs").iterdir()).count(b'\n{"run": ')
    assert rows == 60


def list_commands(folder):
    """Return the commands of the runs of a study by the keys of its rows, and check that both outputs have them."""
    commands = json.loads(here("study", "status", folder, "--commands", "--format", "json").out)
    assert here("study", "status", folder, "--commands").out.splitlines() == list(commands.values())
    assert all(command.startswith("python -m p2pkm ") for command in commands.values())
    return commands


# Tables whose names a shell would read otherwise, and options of each kind.
VARIED = {
    "methods": """
data = "grid16:points=5"
test_share = 0.25
all_rounds = true
baselines = false
[grid]
algorithm = ["gtvmin:coupling=30", "fkm:server_n_init=2", "local"]
graph = ["ring", "small-world:degree=2,rewire=0.5"]
""",
    "files": """
data = "it's $HOME; a table.csv"
device_column = "the site"
drop = '"a ""quoted"", name",id'
decimal = ","
na = "-99"
missing = "median"
scale = "ranges:x=0..10,y=-1..1"
[[runs]]
clusters = "auto"
k_max = 3
[[runs]]
clusters = 2
groups = true
algorithm = "treelloyd"
[[runs]]
clusters = 2
groups = false
""",
    "faults": """
data = "blobs"
faults = "loss=0.2"
link_model = "wan:latency=0.05"
stale_policy = "drop"
[grid]
coupling = [0.5, 1e-05]
min_cluster_size = [0, 2]
""",
}


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.sample(3)
def test_the_command_of_a_run_repeats_its_row(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    heads = ["the site", "x", "y", '"a ""quoted"", name"', "id"]
    lines = [";".join([f"s{i % 4}", f"{i % 7},5", "-99" if i == 4 else f"0,{i % 9}", "1", str(i)]) for i in range(40)]
    (tmp_path / "it's $HOME; a table.csv").write_text("\n".join([";".join(heads), *lines]) + "\n")
    text = VARIED[name] if name == "files" else "devices = 4\n" + VARIED[name]
    (tmp_path / "s.toml").write_text("rounds = 3\nplot = false\nseeds = [0, 5]\n" + text)
    ending = here("study", "s.toml", "--out", "my study", "-q")
    assert ending.code == 0, ending.out + ending.err
    commands = list_commands("my study")
    rows = [json.loads(line) for line in (tmp_path / "my study" / "study.jsonl").read_text().splitlines()]
    assert list(commands) == [row["key"] for row in rows]
    for row in rows:
        again = here(*shlex.split(commands[row["key"]])[3:], "--out", "none", "-q", "--format", "json")
        assert json.loads(again.out)["centroids_sha256"] == row["centroids_sha256"]


@pytest.mark.slow
def test_a_shell_runs_the_command_of_a_comparison(tmp_path):
    words = ("--algorithm", "gtvmin:coupling=3,fkm", "--graph", "ring", "--seeds", "0,7", "--devices", 4, "--rounds", 3,
             "--data", "grid16:points=5", "--out", tmp_path / "c", "--no-plot", "-q")  # fmt: skip
    assert here("compare", *words).code == 0
    command = list_commands(tmp_path / "c")[list_rows(tmp_path / "c")[1]["key"]]
    python = f"{shlex.quote(sys.executable)}{command.removeprefix('python')} --out one --format json --no-plot"
    done = subprocess.run(
        python, shell=True, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["centroids_sha256"] == list_rows(tmp_path / "c")[1]["centroids_sha256"]
    assert here("verify", tmp_path / "one").code == 0


def test_objects_of_a_program_have_no_command(tmp_path):
    p2pkm.study(
        grid={"algorithm": {"ours": p2pkm.FKM(2), "text": "local"}}, data="blobs", devices=3, rounds=2, seeds=[0],
        clusters=2, plot=False, out=tmp_path / "s", progress=False,
    )  # fmt: skip
    ours, text = here("study", "status", tmp_path / "s", "--commands").out.splitlines()
    assert ours.startswith("# ours") and "object of a Python program" in ours and "(object" not in ours
    assert text.startswith("python -m p2pkm ") and "--algorithm local" in text


def test_the_advice_to_start_one_of_the_runs_names_their_commands(folder):
    moved = folder.rename(folder.with_name("a study"))
    ending = here("verify", moved)
    assert ending.code == 3 and f"python -m p2pkm study status '{moved}' --commands" in ending.err
    # Runs that failed or were rejected have a command, too: it repeats the failure.
    commands = list_commands(moved)
    assert len(commands) == RUNS
    rejected = next(command for command in commands.values() if "degree=9" in command)
    assert here(*shlex.split(rejected)[3:], "--out", "none").code == 3


# A value of each option that is not its default; options that are text have blanks and quotes.
VALUES = {
    "devices": 7, "missing": "drop", "header": "yes", "decimal": ",", "dates": "dmy", "scale": "minmax",
    "na": "-99,n/a", "dtype": "float32", "test_share": 0.1, "clusters": 3, "algorithm": "fkm:server_n_init=3",
    "init": "leader", "groups": True, "alpha": 1e-07, "coupling": "links", "schedule": "jacobi", "relaxation": 0.3,
    "local_steps": 2, "rounds": 0, "all_rounds": True, "tol": 0.1, "seed": 2**62, "record_every": 2, "silhouette": True,
    "link_model": "wan:latency=0.05", "faults": "loss=0.1,dropout=0.02", "stale_policy": "keep:age=3", "deadline": 0.1,
    "client_share": "0.1:by=size", "byzantine": "2:kind=flip", "min_cluster_size": 2, "noise": 0.1, "quantize": "none",
    "compress": "topk:share=0.2", "stream": "drawn:kind=slow", "checkpoint_every": 0, "baselines": False,
    "allow_disconnected": True, "rank_partition": "blocks", "require_converged": True, "k_max": 5,
}  # fmt: skip
UNPRINTED = {"out", "plot", "figures", "transforms"}  # not of the result, and of an installed package


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - UNPRINTED))
@pytest.mark.sample(10)
def test_the_command_line_reads_the_words_of_each_option(name):
    more = {"clusters": "auto"} if name == "k_max" else {}
    options = RunOptions(**more | {name: VALUES.get(name, 'it\'s "$a"; b')})
    words = options.to_words()
    assert shlex.split(shlex.join(words)) == words
    given = run_command.make_context("run", list(words)).params
    read = RunOptions.from_mapping(
        {key: given[key] for key in OPTIONS if given.get(key) is not None}, "the command line"
    )
    assert read.to_mapping() == options.to_mapping() and read != RunOptions()
