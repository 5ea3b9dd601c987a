"""Submission of a study to a queue: what is submitted, and with a stand-in for the scheduler, what comes of it."""

import json
import os
import subprocess

import pytest

from tests.support.run_cli import environment, here
from tests.support.stored_rows import list_lines

STUDY = """
devices = 4
data = "grid16:points=5"
rounds = 3
plot = false
baselines = false
seeds = "0-2"
[grid]
graph = ["ring", "path"]
"""
# Writes down how it was called, and prints the number of the job.
SBATCH = '#!/bin/bash\nprintf "%s\\n" "$*" >> {place}/calls\necho $(wc -l < {place}/calls)\n'
SQUEUE = "#!/bin/bash\ncat {place}/queue 2> /dev/null\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with a study, and with stand-ins for the commands of Slurm on the path."""
    (tmp_path / "bin").mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": SQUEUE}.items():
        (tmp_path / "bin" / name).write_text(text.format(place=tmp_path))
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "s.toml").write_text(STUDY)
    return tmp_path


def submit(place, *words):
    return here("study", "submit", place / "s.toml", "--out", place / "a study", *words)


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_a_dry_run_prints_what_would_be_submitted(place, scheduler):
    ending = submit(place, f"--{scheduler}", "--tasks", "4", "--dry-run", "--", "--time=01:00:00")
    assert ending.code == 0, ending.err
    variable, array = {
        "slurm": ("SLURM_ARRAY_TASK_ID", "--array=1-4"), "pbs": ("PBS_ARRAY_INDEX", "-J 1-4")
    }[scheduler]  # fmt: skip
    assert f'--part "${variable}/4"' in ending.out and f"resume '{place}/a study' --quiet" in ending.out
    first, last = ending.out.splitlines()[-2:]
    assert array in first and "--time=01:00:00" in first and first.endswith("jobs/array.sh'")
    assert "afterany:NUMBER" in last and "--time=01:00:00" in last and last.endswith("jobs/last.sh'")
    assert not (place / "a study").exists() and not (place / "calls").exists()


@pytest.mark.slow
def test_the_scripts_that_are_submitted_make_the_study(place):
    ending = submit(place, "--tasks", "2", "--", "--partition=long")
    assert ending.code == 0 and "6 runs in 2 jobs of array 1; job 2 makes the table" in ending.out
    folder, calls = place / "a study", (place / "calls").read_text().splitlines()
    assert "--partition=long" in calls[0] and "--array=1-2" in calls[0] and "--dependency=afterany:1" in calls[1]
    (place / "s.toml").write_text("")  # what was submitted does not change any more

    def play(name, **variables):
        done = subprocess.run(["bash", folder / "jobs" / name], env=environment(**variables), capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = play("array.sh", SLURM_ARRAY_TASK_ID="2")
    assert "part 2/2 is stored: 3 runs. " in shown and "kB plain" not in shown  # no table of half of the seeds
    stored = list_lines(folder)
    assert 0 < len(stored) < 6 and not (folder / "study.jsonl").exists()
    assert "kB plain" in play("last.sh")  # the first task was killed before its first run
    assert stored.items() <= list_lines(folder).items()
    assert len((folder / "study.jsonl").read_text().splitlines()) == 6


def test_an_array_whose_last_job_is_refused_is_not_submitted_twice(place):
    text = SBATCH.format(place=place).replace("echo", "[[ $* != *afterany* ]] || exit 1\necho")
    (place / "bin/sbatch").write_text(text)
    ending = submit(place, "--tasks", "2")
    assert ending.code != 0 and "--dependency=afterany:1" in ending.err
    (place / "queue").write_text("1 PENDING\n")
    (place / "bin/sbatch").write_text(SBATCH.format(place=place))
    again = submit(place, "--tasks", "2")
    assert again.code == 2 and "the jobs 1 of" in again.err and "are in the queue" in again.err
    assert len((place / "calls").read_text().splitlines()) == 2


def test_a_second_submission_waits_for_the_first(place):
    assert submit(place).code == 0
    (place / "queue").write_text("1 PENDING\n")
    ending = submit(place)
    assert ending.code == 2 and "the jobs 1, 2 of" in ending.err and "are in the queue" in ending.err
    (place / "queue").unlink()
    assert submit(place).code == 0
    assert json.loads((place / "a study/jobs/submitted.json").read_text())["jobs"] == ["3", "4"]


@pytest.mark.parametrize("fault", ["none", "refused", "no folder", "no configuration"])
def test_what_cannot_be_submitted_is_refused(place, fault, monkeypatch):
    words, code, message = ("--out", place / "s"), 4, "sbatch --parsable .* failed: invalid partition"
    if fault == "none":
        monkeypatch.setenv("PATH", "/nowhere")
        code, message = 2, "sbatch is not installed here"
    elif fault == "refused":
        (place / "bin/sbatch").write_text("#!/bin/bash\necho invalid partition >&2\nexit 1\n")
    elif fault == "no folder":
        words, code, message = (), 2, "Add --out FOLDER"
    else:
        (place / "s.toml").write_text(STUDY.replace("path", "random-regular:degree=9"))
        code, message = 3, "graph = random-regular:degree=9"
    import re

    ending = here("study", "submit", place / "s.toml", *words)
    assert ending.code == code and re.search(message, ending.err), ending.err
