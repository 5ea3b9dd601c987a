"""A disk that is full or a folder that vanishes during a run: code 4, one message, what was written stays."""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.support.run_cli import (
    ROOT,
    SMALL,
    StageResult,
    environment,
    fill,
    here,
    listed,
    ranks,
    small_disk,
    there,
)
from tests.support.stored_rows import list_lines

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20
MANY = ("--data", "grid16:points=1000", "--devices", "6", "-k", "16", "--rounds", "3", "--no-plot", "--init", "local")
ENDLESS = fill(SMALL, ("--rounds", "1000000", "--tol", "0", "--schedule", "async", "--init", "local", "--no-baselines"))


@pytest.fixture
def disk(tmp_path):
    """Return a folder on a disk of 2 MB."""
    with small_disk(tmp_path / "disk", "2m") as place:
        yield place


def _fill(disk, left):
    with open(disk / "other", "wb") as file:
        file.write(bytes(2 * MEGABYTE - left))


def _check(ending, folder):
    """One message, no file that is half written, and the earlier ones can be read."""
    assert ending.code == 4 and ending.out == ""
    assert ending.err.count("No space left on device") == 1 and "Traceback" not in ending.err
    assert "Free disk space, or choose another --out" in ending.err
    assert tomllib.loads((folder / "config.toml").read_text())["clusters"] == 16
    assert json.loads((folder / "manifest.json").read_text())["state"] in {"running", "failed"}
    assert not [name for name in listed(folder) if "partial" in name]
    assert "summary.json" not in listed(folder) and "checksums.sha256" not in listed(folder)


@pytest.mark.parametrize("left", [30_000, 60_000])
def test_the_disk_is_full_when_the_results_are_written(disk, left):
    _fill(disk, left)
    ending = here(*MANY, "--out", disk / "run", "-q")
    _check(ending, disk / "run")
    lines = (disk / "run" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["stage"] for line in lines]
    assert (disk / "other").stat().st_size == 2 * MEGABYTE - left


def test_the_disk_is_full_during_the_rounds(disk):
    _fill(disk, 200_000)
    ending = here(*ENDLESS, "--out", disk / "run", "-q")
    _check(ending, disk / "run")
    lines = (disk / "run" / "rounds.jsonl").read_bytes().split(b"\n")
    assert len([json.loads(line) for line in lines[:-1]]) > 300


@pytest.mark.mpi
def test_the_disk_is_full_on_three_ranks(disk, tmp_path):
    _fill(disk, 60_000)
    ending = there(*ranks(3), "-m", "p2pkm", *MANY, "--out", "disk/run", "-q", cwd=tmp_path)
    _check(ending, disk / "run")


def test_the_disk_is_full_before_the_run(disk):
    _fill(disk, 0)
    ending = here(*MANY, "--out", disk / "run", "-q")
    assert ending.code == 4 and ending.err.count("No space left on device") == 1 and "Traceback" not in ending.err


def test_a_disk_without_room_for_names(tmp_path, disk):
    subprocess.run(["mount", "-o", "remount,nr_inodes=5", disk], check=True)
    ending = here(*MANY, "--out", disk / "run", "-q")
    assert ending.code == 4 and "No space left on device" in ending.err and "Traceback" not in ending.err


def test_a_list_of_seeds_on_a_full_disk(disk):
    _fill(disk, 500_000)
    ending = here(*MANY, "--seeds", "0-9", "--out", disk / "list", "-q")
    assert ending.code == 4 and ending.out == "" and "Traceback" not in ending.err
    assert ending.err.count("No space left on device") == 1
    assert here("verify", disk / "list" / "seed-0", "--files-only").code == 0


STUDY = """
devices = 4
data = "grid16:points=2"
rounds = 2
plot = false
seeds = "0-9"
[grid]
graph = ["ring", "path"]
"""


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("left", [8_000, 40_000, 150_000])
def test_a_study_on_a_full_disk_goes_on_where_it_ended(disk, tmp_path, jobs, left):
    """The disk is full with the mark of the study, after some rows, and when the table is written."""
    (tmp_path / "study.toml").write_text(STUDY)
    words = ("study", tmp_path / "study.toml", "--jobs", jobs, "-q", "--out")
    _fill(disk, left)
    ending = here(*words, disk / "study")
    assert ending.code == 4 and ending.out == "" and "Traceback" not in ending.err, ending
    assert ending.err.count(f"{disk / 'study'} cannot be written: No space left on device") == 1, ending.err
    stored = list_lines(disk / "study")
    (disk / "other").unlink()
    assert here(*words, disk / "study").code == here(*words, tmp_path / "one").code == 0
    kept = list_lines(disk / "study")
    assert stored.items() <= kept.items() and len(kept) == 20
    table = [(place / "study.csv").read_text().splitlines() for place in (disk / "study", tmp_path / "one")]
    assert [len(lines) for lines in table] == [21, 21]


def _run_and_remove(words, folder):
    """Remove the folder once it has records, and return how the run ended."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([str(word) for word in words], env=environment(), **pipes)
    try:
        limit, records = time.monotonic() + 40, folder / "rounds.jsonl"
        while not (records.exists() and records.stat().st_size > 5_000) and time.monotonic() < limit:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        shutil.rmtree(folder)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return StageResult(process.returncode, out, err)


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.mpi)])
def test_the_folder_vanishes_during_the_run(tmp_path, monkeypatch, count):
    monkeypatch.chdir(tmp_path)
    start = [sys.executable] if count == 1 else ranks(count)
    ending = _run_and_remove((*start, "-m", "p2pkm", *ENDLESS, "--out", "run", "-q"), tmp_path / "run")
    assert ending.code == 4 and ending.out == "" and "Traceback" not in ending.err
    assert ending.err.count("the run folder run cannot be written: No such file or directory") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(
    "words", [[*SMALL, "--format", "json"], [*SMALL, "--dry-run"], ["algorithms"], ["topology", "list"]], ids=" ".join
)
def test_output_that_nobody_takes(tmp_path, words):
    command = [sys.executable, "-m", "p2pkm", *words, *(["--out", "none"] if words[0].startswith("-") else [])]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment(),
                              timeout=60, check=False)  # fmt: skip
    assert done.returncode == 4 and "the output cannot be used: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_reader_that_goes_away(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "p2pkm", "topology", "list"], stdout=writing, stderr=subprocess.PIPE,
                          text=True, cwd=ROOT, env=environment(), timeout=60, check=False)  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (4, "")
