"""Folders that the program names by the second: every run, study or comparison gets its own."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from p2pkm.core.errors import ExperimentError
from p2pkm.storage import run_folder
from p2pkm.storage.lock import Lock, make_new_folder
from p2pkm.storage.run_folder import lock_new_folder
from tests.support.run_cli import SMALL, here

STUDY = 'data = "grid16:points=5"\ndevices = 4\nrounds = 1\nseeds = [0]\nplot=false\n[grid]\ngraph = ["ring", "star"]\n'
SHORT = (*SMALL, "--rounds", 1)
TWICE = {
    "run": SHORT,
    "seeds": (*SHORT, "--seeds", "0"),
    "coupling path": (*SHORT, "--coupling-path", "0.1,1"),
    "compare": ("compare", *SHORT, "--algorithm", "local", "--seeds", "0"),
    "sweep": ("sweep", "study.toml"),
}


@pytest.fixture(autouse=True)
def one_second(monkeypatch, tmp_path):
    """Let all that happens happen in one second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        run_folder, "time", SimpleNamespace(strftime=lambda form: "20260101-120000", time_ns=time.time_ns)
    )
    Path("study.toml").write_text(STUDY)


@pytest.mark.parametrize("words", TWICE.values(), ids=TWICE)
@pytest.mark.sample(3)
def test_the_same_command_twice_in_one_second(words):
    every = [here(*words) for _ in range(2)]
    assert [one.code for one in every] == [0, 0], [one.err for one in every]
    names = sorted(os.listdir("runs"))
    assert len(names) == 2 and [name.removeprefix(names[0]) for name in names] == ["", "-2"]
    assert not [name for name in names if not len(os.listdir(Path("runs", name))) > 1]


def test_many_that_choose_one_name_at_once_each_get_a_folder():
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: make_new_folder(Path("runs", "name")), range(64)))
    assert len(set(found)) == 64 and all(path.is_dir() for path in found)


def test_a_folder_that_is_held_is_passed_over_and_an_empty_one_goes():
    with Lock(Path("runs", "name"), new=True) as first, Lock(Path("runs", "name"), new=True) as second:
        assert (first.folder.name, second.folder.name) == ("name", "name-2")
        (second.folder / "kept").touch()
    assert os.listdir("runs") == ["name-2"]


@pytest.mark.parametrize("make", [lambda: Path("runs").touch(), lambda: Path("runs").symlink_to("runs")])
def test_a_folder_that_cannot_be_made_is_an_error_of_its_own(make):
    make()
    with pytest.raises(ExperimentError, match=r"runs.* cannot be"):
        lock_new_folder(Path("runs", "name"))
    found = here("compare", "--algorithm", "local,consensus", "--seeds", "0", "--rounds", 1, "--devices", 4)
    assert found.code == 2 and "cannot be" in found.err
