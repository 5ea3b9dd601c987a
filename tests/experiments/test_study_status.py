"""Status, repetition and extension of studies, from one folder."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import p2pkm
import p2pkm.experiments.studies.run_study as module
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
