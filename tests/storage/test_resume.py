"""A run that goes on from any of its checkpoints ends as if nothing had happened."""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import p2pkm
from p2pkm.methods.peer.gtvmin import GTVMin
from p2pkm.storage import checkpoint
from p2pkm.storage.checksums import check_files
from tests.support import kill_runs as killed
from tests.support.methods import METHODS, spell
from tests.support.resume import ENDED, difference, keep_all, resume
from tests.support.run_cli import fill, here, on_ranks, there
from tests.support.sampling import thin

SMALL = ("--data", "grid16:points=4", "--devices", "6", "--no-plot", "--no-baselines", "--quiet", "--clusters", "4",
         "--checkpoint-every", "1", "--record-every", "1", "--partition", "iid")  # fmt: skip
RUNS = {
    **{name: ("--algorithm", spell(name), "--rounds", "4", *(("--init", "leader") if name in
       killed.PEERS else ())) for name in METHODS},
    **{f"seeding {name}": ("--init", name, "--rounds", "2") for name in
       ("local", "bounding-box", "leader", "d2-sampling", "d2-sampling:greedy=false", "flooded-summaries",
        "flooded-summaries:hops=1",
        "flooded-summaries:candidates=3", "tree-summaries", "tree-summaries:candidates=3", "rows", "rows:lean=true")},
    **{f"schedule {name}": ("--schedule", name, "--init", "local", "--rounds", "5") for name in
       ("jacobi", "colored", "async")},
    "recipe global": ("--rounds", "3"),
    "strong": ("--coupling", "strong", "--rounds", "3"),
    "bayes": ("--coupling", "bayes", "--rounds", "3"),
    "links": ("--coupling", "links", "--rounds", "3"),
    "auto": ("--coupling", "auto", "--rounds", "3", "--partition", "dirichlet:alpha=0.3"),
    "devices that differ": ("--data", "device-clusters:points=9", "--partition", "column", "--rounds", "3"),
    "auto in parts": ("--graph", "file:parts.edgelist", "--allow-disconnected", "--devices", "12", "--data",
                      "grid16:points=40", "--partition", "dirichlet:alpha=0.3", "--rounds", "3"),
    "shares": ("--algorithm", "gtvmin:shares=true", "--coupling", "links", "--rounds", "3"),
    "recipe groups": ("--groups", "--rounds", "3", "--graph", "complete"),
    "tree groups": ("--algorithm", "treelloyd", "--groups", "--rounds", "3"),
    "liars in groups": ("--groups", "--rounds", "3", "--graph", "complete", "--byzantine", "1:kind=flip"),
    "saturated liars": ("--robust", "saturate", "--rounds", "3", "--byzantine", "2:kind=nan", "--min-cluster-size",
    "2"),
    "scale standard": ("--scale", "standard", "--rounds", "3", "--init", "local"),
    "scale minmax": ("--scale", "minmax", "--rounds", "3"),
    "k auto": ("--clusters", "auto", "--k-max", "6", "--scale", "minmax", "--rounds", "3", "--init", "local"),
    "k auto of a server": ("--clusters", "auto", "--k-max", "5", "--rounds", "3", "--algorithm", "fkm"),
    "net": ("--link-model", "wan", "--rounds", "3", "--algorithm", "gossip", "--init", "leader"),
    "net rooted": ("--link-model", "lan", "--rounds", "3", "--init", "tree-summaries:candidates=2"),
    "private behind masks": ("--algorithm", "private:epsilon=20,radius=40,noise_seed=0", "--graph", "complete"),
    "breathing": ("--algorithm", "treelloyd:search=breathing", "--init", "leader", "--rounds", "18"),
    "changing": ("--graph", "exponential:base=2", "--devices", "8", "--rounds", "6", "--algorithm", "consensus",
                 "--init", "leader"),
    "seldom recorded": ("--record-every", "3", "--rounds", "7", "--init", "local"),
    "float32": ("--dtype", "float32", "--rounds", "3"),
    "integers": ("--quantize", "rice:threshold=1", "--rounds", "4"),
    "integers in groups": ("--quantize", "int8", "--groups", "--rounds", "3", "--graph", "complete"),
    "integers async": ("--quantize", "rice", "--schedule", "async", "--init", "local", "--rounds", "6"),
    "integers on a net": ("--quantize", "rice", "--link-model", "wan", "--rounds", "4"),
    "integer sums": ("--quantize", "rice", "--algorithm", "tracking", "--init", "leader", "--rounds", "4"),
    "integer reports": ("--quantize", "rice", "--algorithm", "fkm", "--rounds", "4"),
    "loss": ("--faults", "loss=0.2", "--rounds", "5", "--init", "local"),
    "late": ("--faults", "loss=0.1,delay=0.4,max_delay=3", "--rounds", "6", "--init", "local", "--stale-policy",
             "keep:age=2"),
    "dropped": ("--faults", "loss=0.1,delay=0.2", "--rounds", "4", "--init", "local", "--stale-policy", "drop"),
    "dropout": ("--faults", "dropout=0.2,dropout_length=2,late_join=0.3,straggler=0.2,straggler_length=2", "--rounds",
                "6", "--algorithm", "tracking", "--init", "leader"),
    "regrown": ("--faults", "dropout=0.1,dropout_length=2,straggler=0.1,straggler_length=2", "--rounds", "8",
                "--algorithm", "treelloyd", "--init", "leader"),
    "parted": ("--faults", "partition=1-3,link_failure=0.2,link_downtime=2", "--rounds", "6", "--algorithm", "pushsum",
               "--init", "local"),
    "struck server": ("--faults", "dropout=0.3,dropout_length=2,server=0.3,delay=0.2", "--rounds", "6",
                      "--algorithm", "fkm"),
    "deadline": ("--deadline", "0.075", "--link-model", "edge:speed=3e5", "--client-share", "0.6", "--faults",
                 "loss=0.1,delay=0.2,stages=all", "--rounds", "6", "--algorithm", "fkm"),
    "asked": ("--client-share", "0.4:by=size", "--faults", "loss=0.1,dropout=0.1,delay=0.2", "--link-model", "wan",
              "--rounds", "6", "--algorithm", "fkm"),
    "struck everywhere": ("--faults", "loss=0.2,delay=0.2,dropout=0.1,dropout_length=2,stages=all", "--rounds", "4",
                          "--init", "flooded-summaries:candidates=3"),
    "struck here and there": ("--faults", "loss=0.2,delay=0.2,stages=all", "--rounds", "4", "--init", "d2-sampling",
                              "--scale", "minmax"),
    "struck changing": ("--graph", "exponential:base=2", "--devices", "8", "--rounds", "6", "--algorithm", "pushsum",
                        "--init", "local", "--faults", "delay=0.4,max_delay=3,dropout=0.1,dropout_length=2"),
    "struck liars": ("--faults", "loss=0.2,delay=0.2", "--byzantine", "2:kind=drift,stages=all", "--rounds", "5",
                     "--algorithm", "consensus", "--init", "local", "--min-cluster-size", "3"),
    "flooding liars": ("--byzantine", "2:kind=collude,stages=all", "--rounds", "2", "--init",
                       "flooded-summaries:candidates=3"),
    "liars": ("--byzantine", "1:kind=random", "--rounds", "4", "--algorithm", "gossip", "--init", "local"),
    "struck on a net": ("--faults", "loss=0.1,delay=0.4,max_delay=3,dropout=0.2,dropout_length=3,straggler=0.1",
                        "--link-model", "wan", "--rounds", "6", "--init", "local"),
    "withheld": ("--min-cluster-size", "4", "--rounds", "4"),
    "events": ("--schedule", "async", "--link-model", "wan", "--rounds", "6", "--init", "local"),
    "slow events": ("--schedule", "async", "--link-model", "lora", "--rounds", "6", "--init", "tree-summaries",
                    "--scale",
                    "standard", "--byzantine", "1:kind=flip"),
}  # fmt: skip


# Devices of three components take turns; one has two devices.
PARTS = "0 2\n2 4\n4 6\n6 0\n0 8\n1 3\n3 5\n5 7\n7 1\n3 9\n10 11\n"


@pytest.fixture(autouse=True)
def _stand_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("parts.edgelist").write_text(PARTS, "utf-8")


@pytest.mark.parametrize(("name", "most"), [
    *((name, 1) for name in list(RUNS)[::24]), *(pytest.param(name, 8, marks=pytest.mark.slow) for name in RUNS),
])  # fmt: skip
def test_a_run_goes_on_from_its_checkpoints(tmp_path, monkeypatch, name, most):
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        ending = here(*fill(SMALL, RUNS[name]), "--out", "run")
        assert ending.code in ENDED, ending.err
    copies = sorted((tmp_path / "copies").iterdir())
    assert copies or name == "local"  # ends with its opening
    middle = copies[len(copies) // 2 :][:1]
    # All of most runs, some of long ones.
    for copy in middle if most == 1 else {*middle, *copies[-1 :: -1 - len(copies) // most]}:
        assert difference(tmp_path / "run", resume(copy)) == "", copy


MOVED = (
    "k auto",
    "k auto of a server",
    "gtvmin",
    "gossip",
    "coreset",
    "fkm",
    "mufc",
    "private behind masks",
    "recipe groups",
    "scale standard",
    "net rooted",
    "changing",
    "strong",
    "shares",
    "auto",
    "auto in parts",
)
STRUCK = ("late", "dropout", "parted", "struck server", "struck everywhere", "struck here and there")
LIVELY = ("struck changing", "struck liars", "liars in groups", "slow events", "flooding liars")


MOVES = {
    (3, 1): (*MOVED[::2], *STRUCK),
    (1, 3): (*MOVED[1::2], *STRUCK, *LIVELY),
    (3, 2): (*MOVED, *LIVELY),
    (1, 7): ("auto", "shares", "auto in parts"),  # a rank without devices
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a function from a number of ranks to a folder of all runs that move from it, with copies of each."""

    @cache
    def write(count):
        folder = tmp_path_factory.mktemp("written")
        (folder / "parts.edgelist").write_text(PARTS, "utf-8")
        names = dict.fromkeys(name for (before, _), names in MOVES.items() if before == count for name in names)
        with contextlib.chdir(folder):
            endings = on_ranks(count, [(*fill(SMALL, RUNS[name]), "--out", name) for name in names], KEEP="1")
        for name, ending in zip(names, endings, strict=True):
            assert ending.code in ENDED, (name, ending.err)
        return folder

    return write


@pytest.mark.mpi
@pytest.mark.parametrize(("before", "after"), MOVES)
def test_a_run_goes_on_with_another_number_of_ranks(written, before, after):
    copies = {}
    for number, name in enumerate(MOVES[before, after]):
        found = sorted((written(before) / f"{name}.copies").iterdir())
        for i in {number % len(found), len(found) // 2, len(found) - 1}:
            copy = shutil.copytree(found[i], f"{name} {i}")
            copies[copy] = written(before) / name
    endings = on_ranks(after, [("resume", copy, "-q") for copy in copies])
    for (copy, whole), ending in zip(copies.items(), endings, strict=True):
        assert ending.code in ENDED, (copy, ending.err)
        assert difference(whole, Path(copy)) == "", copy


ENDLESS = fill(SMALL, ("--init", "local", "--tol", "0", "--rounds", "1000000", "--record-every", "50", "--out", "run"))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "stop"), [
    (signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"),
])  # fmt: skip
def test_a_signal_leaves_a_checkpoint_of_its_round(tmp_path, monkeypatch, number, code, stop):
    whole = here(*SMALL, "--init", "local", "--tol", "0", "--rounds", "9", "--out", "whole")
    assert whole.code == 0, whole.err
    update = GTVMin.update

    def asking(self, state, inbox, devices):
        if devices.round == 4 and devices.turn == 0:
            os.kill(os.getpid(), number)
        return update(self, state, inbox, devices)

    with monkeypatch.context() as patched:
        patched.setattr(GTVMin, "update", asking)
        words = ("--init", "local", "--tol", "0", "--rounds", "9", "--checkpoint-every", "1000", "--out", "run")
        assert here(*fill(SMALL, words)).code == code
    manifest, summary = (json.loads(Path("run", name).read_text()) for name in ("manifest.json", "summary.json"))
    assert (manifest["state"], summary["termination"], summary["rounds"]) == ("interrupted", stop, 4)
    assert len(list(Path("run", "checkpoint").iterdir())) == 1
    ending = here("verify", "run")
    assert ending.code == 3 and "it was interrupted. Resume it with python -m p2pkm resume run. Its" in ending.err
    resume(Path("run"))
    assert check_files(Path("run")) == []
    shutil.copy("whole/config.toml", "run")  # but for how often it is kept
    assert difference(Path("whole"), Path("run")) == ""


def _wait_for(process, path):
    limit = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    assert process.poll() is None


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("whom", ["launcher", "rank 0", "rank 2"])
def test_a_signal_to_any_of_three_ranks_ends_all_with_its_code(tmp_path, number, whom):
    process = killed.start(ENDLESS, 3)
    try:
        _wait_for(process, Path("run", "checkpoint"))
        if whom == "launcher":
            os.kill(killed.launcher(process), number)
        else:
            os.kill(killed.members(process)[int(whom[-1])], number)
        code = process.wait(30)
    finally:
        killed.end(process)
    assert code == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert json.loads(Path("run", "manifest.json").read_text())["state"] == "interrupted"
    assert checkpoint.load_newest(Path("run"), pytest.fail).facts["config"]["rounds"] == 1000000


@pytest.mark.mpi
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_killed_run_goes_on(tmp_path, seed):
    found = list(killed.kill_some(1, tmp_path, seed))
    assert [one.fault for one in found] == [""]


def _kept(tmp_path, monkeypatch):
    """Return a run that ended, and copies of it as it stood after each checkpoint."""
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*SMALL, "--init", "local", "--rounds", "6", "--out", "run").code == 0
    return tmp_path / "run", sorted((tmp_path / "copies").iterdir())


@pytest.mark.parametrize("damage", thin(["cut", "flipped", "empty", "gone"], 2))
def test_of_a_damaged_checkpoint_the_one_before_is_used(tmp_path, monkeypatch, damage):
    whole, copies = _kept(tmp_path, monkeypatch)
    last = checkpoint.list_checkpoints(copies[4])[0]
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 1
    changed = {"cut": last.read_bytes()[:-1], "flipped": bytes(data), "empty": b"", "gone": None}[damage]
    last.unlink()
    if changed is not None:
        last.write_bytes(changed)
    ending = here("resume", copies[4])
    assert ending.code == 0
    assert ("The previous checkpoint is used" in ending.err) == (damage != "gone")
    assert f"resuming {copies[4]} after round 4 of" in ending.err
    assert difference(whole, copies[4]) == ""


@pytest.mark.slow
def test_without_a_whole_checkpoint_a_run_begins_anew(tmp_path, monkeypatch):
    whole, copies = _kept(tmp_path, monkeypatch)
    for path in checkpoint.list_checkpoints(copies[2]):
        path.write_bytes(path.read_bytes()[1:])
    (copies[2] / "rounds.jsonl").write_text('{"torn')
    ending = here("resume", copies[2])
    assert ending.code == 0 and "from its start" in ending.err
    assert difference(whole, copies[2]) == ""


def test_the_last_two_checkpoints_are_kept_and_a_finished_run_has_none(tmp_path, monkeypatch):
    whole, copies = _kept(tmp_path, monkeypatch)
    assert [len(checkpoint.list_checkpoints(copy)) for copy in copies] == [1, *[2] * (len(copies) - 1)]
    assert not (whole / "checkpoint").exists()


def test_a_finished_run_shows_its_summary_again(tmp_path, monkeypatch):
    whole, _ = _kept(tmp_path, monkeypatch)
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    ending = here("resume", whole, "--format", "json")
    assert ending.summary == json.loads((whole / "summary.json").read_text())
    assert before == {path.name: path.read_bytes() for path in whole.iterdir()}
    notes = [f"p2pkm: {note}" for note in p2pkm.load(whole).notes]
    assert ending.err.splitlines() == [f"p2pkm: {whole} was already finished: nothing was computed", *notes]
    assert "nothing was computed" not in here("resume", whole, "-q").err


def test_a_resumed_run_says_how_often_it_was(tmp_path, monkeypatch):
    _, copies = _kept(tmp_path, monkeypatch)
    resume(copies[3])
    assert json.loads((copies[3] / "manifest.json").read_text())["resumed"] == 1


def _simulate(**options):
    data = "blobs:clusters=4,points=9"
    result = p2pkm.simulate("gtvmin", "ring", data, devices=4, rounds=2, baselines=False, **options)
    if not options:
        result.save("x")


@pytest.mark.parametrize("command", ["resume", "verify"])
@pytest.mark.parametrize(("make", "words"), [
    (lambda: _simulate(checkpoint="x", checkpoint_every=1), "has checkpoints of p2pkm.simulate"),
    (lambda: _simulate(), {"resume": "manifest.json", "verify": "was written by Result.save"}),
    (lambda: None, "does not exist"),
    (lambda: Path("x").mkdir(), {"resume": "manifest.json", "verify": "summary.json is missing"}),
    (lambda: Path("x").write_text("a file"), "not a run folder"),
])  # fmt: skip
@pytest.mark.sample(5)
def test_a_folder_that_is_no_run_is_refused(tmp_path, command, make, words):
    make()
    ending = here(command, "x")
    words = words[command] if isinstance(words, dict) else words
    assert ending.code == 3 and words in ending.err and "Traceback" not in ending.err


def _alter(folder, name, change):
    text = (folder / name).read_text()
    (folder / name).write_text(change(text))


@pytest.mark.parametrize(("name", "change", "code", "words"), [
    ("config.toml", lambda text: text.replace("seed = 0", "seed = 1"), 3, "is 1; the run was started with 0"),
    ("config.toml", lambda text: text.replace('schedule', 'shcedule') + "\nx = 1", 2, "unknown key"),
    ("manifest.json", lambda text: text[:-5], 3, "manifest.json cannot be read"),
])  # fmt: skip
@pytest.mark.sample(3)
def test_a_changed_folder_is_refused(tmp_path, monkeypatch, name, change, code, words):
    _, copies = _kept(tmp_path, monkeypatch)
    _alter(copies[3], name, change)
    ending = here("resume", copies[3])
    assert ending.code == code and words in ending.err, ending.err
    assert checkpoint.list_checkpoints(copies[3])


@pytest.mark.parametrize("name", ["test_share", "dtype", "init"])
@pytest.mark.sample(3)
def test_an_option_that_is_newer_than_the_run_has_its_default(tmp_path, monkeypatch, name):
    whole, copies = _kept(tmp_path, monkeypatch)
    for path in checkpoint.list_checkpoints(copies[3]):
        saved = checkpoint.read(path)
        del saved.facts["config"][name]
        checkpoint.write(path.parent, path.name, saved)
    ending = here("resume", copies[3])
    if name == "init":
        assert ending.code == 3 and "init in " in ending.err and "is 'local'; the run was started with " in ending.err
    else:
        assert ending.code == 0 and "after round 4" in ending.err, ending.err
        assert difference(whole, copies[3]) == ""


def test_another_version_is_refused(tmp_path, monkeypatch):
    _, copies = _kept(tmp_path, monkeypatch)
    monkeypatch.setattr(checkpoint, "__version__", "99.0")
    ending = here("resume", copies[3])
    assert ending.code == 2 and "this is p2pkm 99.0" in ending.err


@pytest.mark.parametrize("change", ["one value", "order", "one more"])
@pytest.mark.sample(3)
def test_changed_points_are_refused(tmp_path, monkeypatch, change):
    points = np.random.default_rng(0).standard_normal((40, 2))
    np.save("points.npy", points)
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        words = ("--data", "points.npy", "--devices", "4", "-k", "3", "--rounds", "4", "--checkpoint-every", "1")
        assert here(*words, "--no-plot", "--partition", "blocks", "--out", "run", "-q").code == 0
    copy = sorted((tmp_path / "copies").iterdir())[-1]
    changed = points.copy()
    changed[7, 1] += 1e-9
    swapped = np.concatenate((points[1::-1], points[2:]))
    more = np.concatenate((points, points[:1]))
    np.save("points.npy", {"one value": changed, "order": swapped, "one more": more}[change])
    ending = here("resume", copy)
    assert ending.code == 3 and "the points differ from those of the original run" in ending.err, ending.err


def test_a_run_that_is_still_going_on_is_left_alone(tmp_path):
    process = killed.start(ENDLESS, 1)
    try:
        _wait_for(process, Path("run", "checkpoint"))
        for command in ("resume", "verify"):
            ending = here(command, "run")
            process_name = f"process {process.pid} on {platform.node()}"
            assert ending.code == 3 and f"{process_name} is still working on it" in ending.err
        process.kill()
        process.wait()
        ending = here("verify", "run")
        assert ending.code == 3 and "it was killed. Resume it with python -m p2pkm resume run" in ending.err
    finally:
        killed.end(process)


def test_never_a_checkpoint(tmp_path, monkeypatch):
    keep_all(monkeypatch, tmp_path / "run", tmp_path / "copies")
    assert here(*fill(SMALL, ("--init", "local", "--checkpoint-every", "0", "--out", "run"))).code == 0
    assert not list((tmp_path / "copies").iterdir())


def test_a_full_disk_ends_no_run_and_leaves_earlier_files(tmp_path, monkeypatch):
    """The first checkpoint is written, those after it are not."""
    write, calls = checkpoint.write, []

    def failing(folder, name, one):
        calls.append(name)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        write(folder, name, one)

    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        patched.setattr(checkpoint, "write", failing)
        ending = here(*SMALL[:-1], "iid", "--init", "local", "--rounds", "4", "--out", "run")
    assert ending.code == 0
    copies = sorted((tmp_path / "copies").iterdir())
    assert len(copies) > 2 and len(checkpoint.list_checkpoints(copies[-1])) == 1
    assert difference(tmp_path / "run", resume(copies[-1])) == ""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount a small file system")
def test_a_really_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        words = ("--data", "grid16:points=400", "--devices", "1500", "-k", "16", "--init", "local", "--rounds", "30",
                 "--tol", "0", "--no-plot", "--no-baselines", "--checkpoint-every", "1")  # fmt: skip
        ending = there(sys.executable, "-m", "p2pkm", *words, "--out", disk / "run")
        assert ending.code in {0, 4} and "Traceback" not in ending.err
        assert "No space left on device" in ending.err, ending
        assert json.loads((disk / "run" / "manifest.json").read_text())["state"] in {"done", "failed", "running"}
        assert not list((disk / "run").rglob("*.partial"))
        [json.loads(line) for line in (disk / "run" / "rounds.jsonl").read_text().split("\n")[:-1]]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
