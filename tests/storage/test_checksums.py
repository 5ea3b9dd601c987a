"""verify finds every flipped byte and every cut in a run folder, and load names the file that it cannot read."""

import hashlib
import json
import random
import shutil
import subprocess
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import p2pkm
from p2pkm.core.errors import DataError
from p2pkm.storage import checksums
from p2pkm.storage.checksums import NAME, FileMismatch, check_files, write_checksums
from tests.support.run_cli import SMALL, here
from tests.support.sampling import thin

KEPT = (
    "census.npz centroids.csv centroids.npz chain.npz config.toml graph.graphml labels.csv labels.npz ledger.npz "
    "manifest.json rounds.jsonl summary.json"
).split()
TRIES = 25


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("once") / "run"
    assert here(*SMALL, "--plot", "--out", folder, "-q").code == 0
    return folder


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def test_the_list_names_every_file_in_the_format_of_sha256sum(run):
    lines = (run / NAME).read_text().splitlines()
    files = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file() and path.name != NAME)
    assert [line.split("  ")[1] for line in lines[:-1]] == files
    assert set(KEPT) < set(files) and "figures/graph.svg" in files
    done = subprocess.run(["sha256sum", "--strict", "--check", NAME], cwd=run, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "way"),
    thin(product([*KEPT, NAME, "figures/graph.png", "figures/points.svg"], ["flip", "cut", "longer"]), 4),
)
@pytest.mark.sample(5)
def test_every_damage_is_found_and_named(run, name, way):
    whole, draw = (run / name).read_bytes(), random.Random(f"{name} {way}")
    places = [0, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(TRIES))]
    for place in places:
        damaged = {
            "flip": whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :],
            "cut": whole[:place],
            "longer": whole + draw.randbytes(1 + place % 7),
        }[way]
        (run / name).write_bytes(damaged)
        assert [fault.file for fault in check_files(run)] == [name]
    ending = here("verify", run)
    assert ending.code == 6 and f"  {name} is" in ending.out and not ending.err
    verdict = json.loads(here("verify", run, "--files-only", "--format", "json").out)
    assert not verdict["same"] and verdict["files"][0]["file"] == name and name in verdict["difference"]


@pytest.mark.parametrize("name", [*KEPT, NAME])
def test_every_missing_file_is_named(run, name):
    (run / name).unlink()
    assert [fault.file for fault in check_files(run)] == [name]
    assert f"{name} is missing" in here("verify", run).out


def test_all_faults_are_named_with_the_place_where_that_is_known(run):
    archive = (run / "centroids.npz").read_bytes()
    at = archive.index(b"centroids.npy") + 300
    (run / "centroids.npz").write_bytes(archive[:at] + bytes([archive[at] ^ 8]) + archive[at + 1 :])
    lines = (run / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    (run / "rounds.jsonl").write_bytes(b"".join([*lines[:4], b"{" + lines[4], *lines[5:]]))
    (run / "summary.json").rename(run / "summary")
    assert check_files(run) == [
        FileMismatch("centroids.npz", "is changed: array 'centroids' is damaged"),
        FileMismatch("rounds.jsonl", "is changed: line 5 is not a record"),
        FileMismatch("summary.json", "is missing"),
        FileMismatch("summary", "was added after the run ended"),
    ]


def test_lines_that_were_changed_are_told_apart_from_lines_that_are_no_records(tmp_path):
    lines = tmp_path / "rounds.jsonl"
    lines.write_text('{"round": 0}\n{"round": 1}\n')
    write_checksums(tmp_path)
    others = "its lines can be read, but differ from those of the run"
    for text, told in (
        ('{"round": 0}\n{"round": 2}\n', others), ('{"round": 0}\n', others), ("", others),
        ('{"round": 0}\n[1]\n', "line 2 is not a record"), ('{"round": 0}\n{"rou', "line 2 is not a record"),
    ):  # fmt: skip
        lines.write_text(text)
        assert check_files(tmp_path) == [FileMismatch("rounds.jsonl", f"is changed: {told}")]


def test_what_other_commands_write_may_come_and_go(run):
    (run / "report.html").write_text("<html>")
    (run / "figures" / "more.png").write_bytes(b"a picture")
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "part.npz").write_bytes(b"a part")
    assert check_files(run) == []
    write_checksums(run)
    assert "checkpoint" not in (run / NAME).read_text()
    (run / "report.html").write_text("<html> again")
    shutil.rmtree(run / "checkpoint")
    assert check_files(run) == []


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_a_file_is_no_file(run):
    import os

    (run / "labels.npz").unlink()
    os.mkfifo(run / "labels.npz")
    assert check_files(run) == [FileMismatch("labels.npz", "is not a file any more")]


def test_a_sealed_list_that_names_files_outside_is_refused(run, tmp_path):
    (tmp_path / "secret").write_text("outside")
    for outside in ("../secret", str(tmp_path / "secret")):
        lines = f"{'0' * 64}  {outside}\n"
        (run / NAME).write_text(lines + f"# {hashlib.sha256(lines.encode()).hexdigest()}: the lines above\n")
        (fault,) = check_files(run)
        assert fault.file == NAME and "outside" in fault.what


def test_whole_files_are_said_to_be_whole(run):
    ending = here("verify", run, "--files-only")
    assert (ending.code, ending.err) == (0, "") and "all files are as the run wrote them" in ending.out
    assert json.loads(here("verify", run, "--files-only", "--format", "json").out)["same"]


def test_a_saved_result_has_checksums_too(run, tmp_path):
    saved = p2pkm.load(run).save(tmp_path / "saved")
    assert check_files(saved) == []
    (saved / "chain.npz").write_bytes(b"")
    assert [fault.file for fault in check_files(saved)] == ["chain.npz"]


READ = [name for name in KEPT if name not in {"config.toml", "manifest.json"}]


@pytest.mark.parametrize("tries", [TRIES // 4, pytest.param(4 * TRIES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READ)
@pytest.mark.sample(5)
def test_load_reads_a_damaged_file_or_names_it(run, name, tries):
    whole, draw = (run / name).read_bytes(), random.Random(name)
    for number in range(tries):
        place = draw.randrange(len(whole))
        flipped = whole[:place] + bytes([draw.randrange(256)]) + whole[place + 1 :]
        (run / name).write_bytes(flipped if number % 2 else whole[:place])
        try:
            p2pkm.load(run)
        except DataError as error:
            assert name in str(error) or str(error).startswith(f"{run} cannot be read")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.json", b"[" * 100_000),
        ("summary.json", b"[1, 2]"),
        ("summary.json", b"\xff\xfe"),
        ("rounds.jsonl", b"[" * 100_000),
        ("rounds.jsonl", b"3\n4\n"),
        ("graph.graphml", b'<!DOCTYPE a [<!ENTITY b "c">]><graphml>&b;</graphml>'),
    ],
)
def test_load_names_a_file_that_holds_something_else(run, name, content):
    (run / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        p2pkm.load(run)


@pytest.mark.parametrize("name", ["centroids.npz", "labels.npz", "ledger.npz", "census.npz", "chain.npz"])
def test_load_names_an_archive_of_other_arrays(run, name):
    nothing = np.array([[[None]]])
    for arrays in (
        {"else": np.ones(3)},
        {"centroids": np.ones(3), "src": np.ones((2, 2)), "heads": np.array(1)},
        {"centroids": nothing, "sizes": nothing[0, 0], "heads": nothing[0]},
    ):
        np.savez(run / name, allow_pickle=True, **arrays)
        with pytest.raises(DataError, match="cannot be read" if name == "labels.npz" else name):
            p2pkm.load(run)


def test_only_objects_of_a_program_are_pickled_for_its_own_processes():
    sources = [*Path(p2pkm.__file__).parent.rglob("*.py"), *Path(p2pkm.__file__).parents[1].glob("topologies/**/*.py")]
    words = "allow_pickle=True", "import pickle", "joblib", "cloudpickle"
    found = {path.name: {word for word in words if word in path.read_text()} for path in sources}
    # joblib only hashes in outer_variables.py.
    assert {name: used for name, used in found.items() if used} == {
        "object_content.py": {"joblib", "cloudpickle"},
        "outer_variables.py": {"joblib"},
    }


@pytest.mark.parametrize("state", ["done", "interrupted", "running"])
def test_a_list_is_missed_where_a_run_has_ended(tmp_path, state):
    (tmp_path / "manifest.json").write_text(json.dumps({"state": state}), "utf-8")
    with pytest.raises(DataError, match="killed") if state == "running" else nullcontext():
        assert check_files(tmp_path) == [FileMismatch(NAME, "is missing, so the other files cannot be checked")]


@pytest.mark.parametrize("place", [3, 15_000])
def test_the_damaged_array_of_an_archive_is_named(run, monkeypatch, place):
    monkeypatch.setattr(checksums, "_CHUNK", 64)
    np.savez(run / "a.npz", good=np.arange(50), bad=np.arange(2000))
    write_checksums(run)
    data = bytearray((run / "a.npz").read_bytes())
    data[data.index(np.arange(2000).tobytes()) + place] ^= 1
    (run / "a.npz").write_bytes(data)
    assert check_files(run) == [FileMismatch("a.npz", "is changed: array 'bad' is damaged")]
    (run / "a.npz").write_bytes(data[:-1])
    assert check_files(run) == [FileMismatch("a.npz", "is changed: the archive is incomplete")]


def test_an_empty_list_of_checksums_counts_as_cut_off(run):
    (run / NAME).write_bytes(b"")
    (fault,) = check_files(run)
    assert fault.file == NAME and "truncated" in fault.what


def test_files_that_cannot_be_read_are_named(run, monkeypatch):
    def fail(*_):
        raise OSError(5, "broken disk")

    listed = [line.split("  ")[1] for line in (run / NAME).read_text().splitlines()[:-1]]
    monkeypatch.setattr(hashlib, "file_digest", fail)
    assert check_files(run) == [FileMismatch(name, "cannot be read: broken disk") for name in listed]
    monkeypatch.setattr(Path, "read_bytes", fail)
    assert check_files(run) == [FileMismatch(NAME, "cannot be read: broken disk")]


@pytest.mark.parametrize(("arrays", "found"), [({}, "there is none"), ({"centroids": np.zeros(3)}, r"shape \(3,\)")])
def test_load_names_the_missing_array(run, arrays, found):
    np.savez(run / "centroids.npz", **arrays)
    with pytest.raises(DataError, match=f"'centroids' with 3 axes, but .*{found}"):
        p2pkm.load(run)
