"""The run folder: what is in it, that it is readable at every moment, and that no run harms the files of another."""

import errno
import json
import os
import signal
import tomllib
from datetime import datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError, NetworkError
from p2pkm.experiments.simulate import simulate
from p2pkm.methods.peer.gtvmin import GTVMin
from p2pkm.metrics.registry import summary_keys
from p2pkm.storage import run_folder
from p2pkm.storage.checksums import check_files, write_checksums
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import RunFolder, check_target, describe_program, lock_target
from p2pkm.storage.run_status import describe_run_collection, read_manifest, repeated_from, run_status
from tests.support.build import build_result
from tests.support.run_cli import FILES, SMALL, here, listed, ranks, small_disk, solve, there

KEYS = "stage round turn_count objective gtv ratio_mean messages bytes wire_bytes converged descent".split()


@pytest.fixture(autouse=True)
def _stand_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def manifest(path):
    return json.loads((path / "manifest.json").read_text())


def records(path):
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


def run(*more, out="run"):
    return here(*SMALL, "--out", out, "--format", "json", *more)


def test_files(tmp_path):
    summary, folder = run().summary, tmp_path / "run"
    assert {path.name for path in folder.iterdir()} >= FILES
    assert not [name for name in listed(tmp_path) if "partial" in name or ".old" in name]
    assert json.loads((folder / "summary.json").read_text()) == summary
    with np.load(folder / "centroids.npz") as arrays:
        centroids = arrays["centroids"]
    assert centroids.shape == (4, 16, 2) and centroids.dtype == np.float64
    assert summary["out"] == "run"


def test_manifest(tmp_path):
    summary, found = run("--seed", 7).summary, manifest(tmp_path / "run")
    assert (found["state"], found["seed"], found["ranks"], found["mpi"]) == ("done", 7, 1, None)
    assert found["chain"] == summary["chain_sha256"]
    assert {"version", "python", "libraries", "host", "command", "start", "end"} <= found.keys()
    assert {"numpy", "mpi4py", "networkx"} <= found["libraries"].keys()
    start, end = (datetime.fromisoformat(found[name]) for name in ("start", "end"))
    assert start.tzinfo is not None and start <= end


def test_config_is_resolved_toml_without_the_folder(tmp_path):
    run("--partition", "by-label", "--alpha", "0.5")
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["partition"] == "by-label:labels=2,minimum=0,seed=0"
    assert (config["devices"], config["clusters"], config["alpha"], config["rounds"]) == (4, 16, 0.5, 20)
    assert "out" not in config


def test_rounds_are_the_trace_of_the_result(tmp_path):
    summary, found = run("--coupling", "strong").summary, records(tmp_path / "run")
    assert not [record for record in found if list(record) != KEYS]
    assert found == json.loads(json.dumps(found), parse_constant=pytest.fail)
    stages = list(dict.fromkeys(record["stage"] for record in found))
    assert stages == ["total-variance", "tree-summaries", "gtvmin"]
    for stage in stages:
        numbers = [record["round"] for record in found if record["stage"] == stage]
        assert numbers == list(range(len(numbers)))
    assert max(record["round"] for record in found if record["stage"] == "gtvmin") == summary["rounds"]
    for name in ("objective", "gtv", "messages", "bytes", "ratio_mean"):
        assert found[-1][name] == summary[name]
    own = [record for record in found if record["stage"] == "gtvmin"]
    assert own[-1]["descent"] == summary["descent"]
    assert [record["bytes"] for record in found] == sorted(record["bytes"] for record in found)


def test_every_third_round_and_always_the_last(tmp_path):
    run("--init", "local", "--tol", 0, "--rounds", 7, "--record-every", 3)
    assert [record["round"] for record in records(tmp_path / "run") if record["stage"] == "gtvmin"] == [0, 3, 6, 7]


def test_without_rounds_there_is_record_zero(tmp_path):
    assert run("--rounds", 0).summary["rounds"] == 0
    assert [record["round"] for record in records(tmp_path / "run") if record["stage"] == "gtvmin"] == [0]


def test_without_folder_nothing_is_written(tmp_path):
    assert list(solve()) == summary_keys() and solve()["out"] is None
    (tmp_path / "none.toml").write_text('out = "none"\n')
    assert here(*SMALL, "--config", "none.toml").code == 0
    assert listed(tmp_path) == {"none.toml"}


def test_default_name(tmp_path):
    summary = here(*SMALL, "--graph", "small-world:degree=2", "--format", "json").summary
    (folder,) = (tmp_path / "runs").iterdir()
    assert str(folder.relative_to(tmp_path)) == summary["out"]
    assert folder.name.split("-", 2)[2].startswith("small-world-gtvmin-")


def test_an_empty_folder_is_used_and_parents_are_made(tmp_path):
    (tmp_path / "a" / "run").mkdir(parents=True)
    assert run(out="a/run").code == run(out="b/c/run").code == 0


def test_force_replaces_the_whole_folder(tmp_path):
    run()
    (tmp_path / "run" / "stale").write_text("of the old run")
    assert run("--seed", 1).code == 2
    assert run("--seed", 1, "--force").code == 0
    assert manifest(tmp_path / "run")["seed"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert not (tmp_path / "run" / "stale").exists()


def test_force_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "stale").write_text("")
    (tmp_path / "run").symlink_to("real")
    assert run("--force").code == 0
    assert (tmp_path / "run").is_symlink()
    assert (tmp_path / "real" / "summary.json").exists() and not (tmp_path / "real" / "stale").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"run", "real"}


def _old(tmp_path):
    """Return the folder that was moved aside, as it was."""
    (old,) = tmp_path.glob("run.old-*")
    assert manifest(old)["seed"] == 5 and (old / "precious").read_text() == "old"
    return old


@pytest.fixture
def precious(tmp_path):
    run("--seed", 5)
    (tmp_path / "run" / "precious").write_text("old")


def test_a_failing_run_keeps_the_old_folder(tmp_path, monkeypatch, precious):
    def fail(*arguments):
        raise RuntimeError("a broken kernel")

    monkeypatch.setattr(GTVMin, "update", fail)
    with pytest.raises(RuntimeError, match="a broken kernel"):
        run("--force")
    _old(tmp_path)
    assert manifest(tmp_path / "run")["state"] == "failed"
    assert records(tmp_path / "run")[-1]["round"] == 0
    assert not (tmp_path / "run" / "centroids.npz").exists()


def test_an_interrupted_run_keeps_the_old_folder(tmp_path, monkeypatch, precious):
    _interrupt_in_round(monkeypatch, 3)
    assert run("--force", "--tol", 0).code == 130
    _old(tmp_path)
    assert manifest(tmp_path / "run")["state"] == "interrupted"


@pytest.mark.parametrize("broken", ["p2pkm.engine.run_job.sizes_of", "p2pkm.engine.run_job.build_batch"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.sample(3)
def test_a_run_that_never_began_leaves_the_folder_alone(tmp_path, monkeypatch, precious, broken, error):
    def fail(*arguments):
        raise error("too early")

    before = {name: (tmp_path / name).read_bytes() for name in listed(tmp_path) if (tmp_path / name).is_file()}
    monkeypatch.setattr(broken, fail)
    for out in ("run", "new"):
        if error is KeyboardInterrupt:
            assert run("--force", out=out).code == 130
        else:
            with pytest.raises(RuntimeError):
                run("--force", out=out)
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def _interrupt_in_round(monkeypatch, t, number=signal.SIGINT):
    update = GTVMin.update

    def interrupting(self, state, inbox, devices):
        if devices.round == t and devices.turn == 0:
            os.kill(os.getpid(), number)
        return update(self, state, inbox, devices)

    monkeypatch.setattr(GTVMin, "update", interrupting)


def test_interrupted(tmp_path, monkeypatch):
    """The round is finished, and everything is written."""
    _interrupt_in_round(monkeypatch, 3)
    ending = run("--tol", 0, "--init", "local")
    folder = tmp_path / "run"
    summary = json.loads((folder / "summary.json").read_text())
    assert ending.code == 130 and "Traceback" not in ending.err
    assert (summary["termination"], summary["rounds"]) == ("interrupted", 3)
    assert (manifest(folder)["state"], manifest(folder)["chain"]) == ("interrupted", summary["chain_sha256"])
    assert records(folder)[-1]["round"] == 3
    assert np.load(folder / "centroids.npz")["centroids"].shape == (4, 16, 2)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored(tmp_path, monkeypatch):
    """As of a job that a shell starts in the background; SIGTERM ends it all the same."""
    _interrupt_in_round(monkeypatch, 3)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ending = run("--tol", 0, "--init", "local", "--rounds", 6)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert ending.code == 0 and records(tmp_path / "run")[-1]["round"] == 6
        _interrupt_in_round(monkeypatch, 2, signal.SIGTERM)
        assert run("--tol", 0, "--init", "local", out="other").code == 143
        assert records(tmp_path / "other")[-1]["round"] == 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_interrupted_twice(tmp_path, monkeypatch):
    def impatient(self, state, inbox, devices):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second one ends the run at once")

    monkeypatch.setattr(GTVMin, "update", impatient)
    assert run().code == 130
    assert manifest(tmp_path / "run")["state"] == "interrupted"
    assert records(tmp_path / "run")
    assert not [name for name in listed(tmp_path) if "partial" in name]


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", "64k") as place:
        yield place


ENDLESS = ("--tol", 0, "--rounds", 400, "--schedule", "async", "--init", "local")


def _check_full_disk(ending, folder):
    assert ending.code == 4 and ending.out == ""
    assert "No space left on device" in ending.err and "Traceback" not in ending.err
    assert tomllib.loads((folder / "config.toml").read_text())["rounds"] == 400
    assert manifest(folder)["state"] in {"running", "failed"}
    lines = (folder / "rounds.jsonl").read_text().split("\n")
    assert len([json.loads(line) for line in lines[:-1]]) > 10
    assert not [name for name in listed(folder) if "partial" in name]


def test_full_disk(disk):
    _check_full_disk(run(*ENDLESS, out="disk/run"), disk / "run")


@pytest.mark.mpi
def test_full_disk_on_ranks(disk, tmp_path):
    ending = there(*ranks(3), "-m", "p2pkm", *SMALL, *ENDLESS, "--out", "disk/run", cwd=tmp_path)
    assert ending.err.count("No space left on device") == 1
    _check_full_disk(ending, disk / "run")


@pytest.mark.parametrize("what", ["centroids.npz", "summary.json"])
def test_disk_fails_at_the_end(tmp_path, monkeypatch, what):
    fsync, named = os.fsync, os.readlink

    def full(number):
        if what in named(f"/proc/self/fd/{number}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(number)

    monkeypatch.setattr(os, "fsync", full)
    ending, folder = run(), tmp_path / "run"
    assert ending.code == 4 and ending.out == "" and "No space left on device" in ending.err
    assert manifest(folder)["state"] == "failed"
    assert records(folder)
    assert not [name for name in listed(folder) if what in name]


def test_folder_equals_the_result_of_a_script(tmp_path):
    import p2pkm
    import topologies

    run("--partition", "iid")
    X, y = p2pkm.grid16(points=5, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 4, seed=0), devices=4, labels=y)
    result = simulate(GTVMin(16), topologies.ring(4), shards, rounds=20)
    assert result.rounds == records(tmp_path / "run")
    assert np.array_equal(result.centroids, np.load(tmp_path / "run" / "centroids.npz")["centroids"])


@pytest.mark.parametrize("links", [[(0, 1), (1, 2)], []])
def test_a_device_without_links_comes_back(tmp_path, links):
    X, _ = p2pkm.grid16(points=2, seed=0)
    shards = p2pkm.Shards.deal(X, np.arange(len(X)) % 4, devices=4)
    graph = nx.empty_graph(4)
    graph.add_edges_from(links)
    result = simulate(GTVMin(2), graph, shards, allow_disconnected=True, baselines=False)
    result.save(tmp_path / "run")
    assert p2pkm.load(tmp_path / "run").summary == result.summary


def test_what_a_run_lacks_is_looked_for_where_it_was_begun_unless_that_is_here(tmp_path):
    for place, more in (
        (Path.cwd(), ""),
        (tmp_path / "there", f". The run was started in {tmp_path}/there: try again"),
    ):
        (tmp_path / "manifest.json").write_text(json.dumps({"cwd": str(place)}), "utf-8")
        with pytest.raises(DataError) as found, repeated_from(tmp_path):
            raise DataError("no such file")
        assert str(found.value).removesuffix(" from there") == "no such file" + more


def test_folders_that_cannot_be_taken_are_refused_and_none_is_made(tmp_path, monkeypatch):
    Path("full").mkdir()
    Path("full", "a").write_text("")
    for name, force, words in (
        ("full/a", True, "is a file"),
        ("full/a/b", False, "is not a writable folder"),
        ("full", False, "is not empty"),
        (".", True, "contains the current folder"),
        ("a\0b", False, "cannot be used: embedded null byte"),
        ("a" * 300, False, "cannot be used: File name too long. Choose another folder"),
    ):
        with pytest.raises(ExperimentError, match=words):
            check_target(Path(name), force=force)
    check_target(Path("full"), force=True)
    check_target(Path("new/run"), force=False)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(ExperimentError, match="is not a writable folder"):
        check_target(Path("new/run"), force=False)
    assert listed(tmp_path) == {"full", "full/a"}


def test_a_folder_is_claimed_with_what_is_below_it_and_looked_at_once_more_when_it_is_held(tmp_path, monkeypatch):
    with Lock(Path("above/run")), pytest.raises(ExperimentError, match=f"above/run is in use: process {os.getpid()}"):
        lock_target(Path("above"), force=True)
    lock_folder = run_folder.lock_folder

    def late(path):
        (path / "result").write_text("of a run that has just ended")
        return lock_folder(path)

    monkeypatch.setattr(run_folder, "lock_folder", late)
    Path("empty").mkdir()
    monkeypatch.chdir("empty")
    with pytest.raises(ExperimentError, match="contains the current folder"):
        lock_target(Path(), force=True)
    assert listed(Path()) == {"result"}


def test_names_that_are_no_text_stand_in_the_comments_of_the_configuration(tmp_path):
    with Lock(tmp_path / "run") as held:
        writer = RunFolder(held, {"seed": 3}, {}, {"devices": "a\ud800, b\nc", "features": None})
        writer.begin()
        writer.end("done")
        lines = (held.folder / "config.toml").read_text("utf-8").splitlines()
    assert lines == [r'# devices names: "a\ud800, b\nc"', "seed = 3"]


def test_a_run_that_goes_on_counts_how_often_and_cuts_off_what_came_after_its_records(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "old").write_text("")
    with Lock(folder) as held:
        writer = RunFolder(held, {"seed": 3}, {"ranks": 1}, {})
        writer.begin()
        for t in range(3):
            writer.record({"round": t})
        writer.end("failed")
        before = manifest(folder)
        for resumed in (1, 2):
            writer = RunFolder(held, {"seed": 3}, {"ranks": 2}, {})
            assert not writer.begun
            writer.reopen(records(folder)[:2])
            assert writer.begun
            found = manifest(folder)
            assert (found["state"], found["ranks"], found["resumed"]) == ("running", 2, resumed)
            assert not [name for name in ("start", "aside", "cwd") if found[name] != before[name]]
            writer.record({"round": 2})
            assert [one["round"] for one in records(folder)] == [0, 1, 2]
            writer.end("failed" if resumed == 1 else "done")
            assert (tmp_path / before["aside"]).exists() == (resumed == 1)
    assert "aside" not in manifest(folder) and listed(tmp_path) == {
        "run", "run/config.toml", "run/manifest.json", "run/rounds.jsonl"
    }  # fmt: skip


def test_a_run_that_goes_on_after_it_was_interrupted_is_not_taken_for_a_damaged_one(tmp_path):
    folder = tmp_path / "run"
    with Lock(folder) as held:
        writer = RunFolder(held, {"seed": 3}, {}, {})
        writer.begin()
        writer.end("interrupted")
        (folder / "summary.json").write_text("{}")
        write_checksums(folder)
        writer = RunFolder(held, {"seed": 3}, {}, {})
        writer.reopen([])
        with pytest.raises(DataError, match=r"has not ended: process .* is still working on it"):
            check_files(folder)
        writer.record({"round": 0})
        writer._rounds.close()  # and is killed
    with pytest.raises(DataError, match=r"it was killed\. Resume it with"):
        check_files(folder)


@pytest.mark.parametrize("seconds", [None, 2.5])
def test_records_get_the_virtual_time_that_is_known_at_the_end(tmp_path, monkeypatch, seconds):
    monkeypatch.setattr(run_folder, "save_result", lambda result, folder: None)
    summary = {"virtual_seconds": seconds, "termination": "converged", "chain_sha256": ""}
    with Lock(tmp_path / "run") as held:
        writer = RunFolder(held, {"seed": 3}, {}, {})
        writer.begin()
        writer.record({"round": 0})
        writer.finish(build_result(summary=summary, rounds=[{"round": 0, "virtual_seconds": seconds}]), None)
        assert records(held.folder) == [{"round": 0} | ({} if seconds is None else {"virtual_seconds": seconds})]


def test_nothing_is_written_of_a_run_whose_folder_was_moved(tmp_path):
    result = build_result(summary={"virtual_seconds": 2.5}, rounds=[])
    with Lock(tmp_path / "run") as held:
        writer = RunFolder(held, {"seed": 3}, {}, {})
        writer.begin()
        held.folder.rename(tmp_path / "away")
        for place in ("No such file", "another folder is in its place"):
            with pytest.raises(NetworkError, match=place):
                writer.record({"round": 0})
            with pytest.raises(NetworkError, match=place):
                writer.finish(result, None)
            with pytest.raises(OSError, match=place):
                writer.end("failed")
            held.folder.mkdir(exist_ok=True)
        assert not records(tmp_path / "away") and not [*held.folder.iterdir()]


def test_a_library_that_is_missing_is_said_to_be(monkeypatch):
    def find(name):
        if name == "mpi4py":
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr("importlib.metadata.version", find)
    assert describe_program()["libraries"] == {"numpy": "1.0", "networkx": "1.0", "numba": "1.0",
                                               "mpi4py": "not installed"}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["study.toml"], "a study, which keeps rows"),
        (["comparison.json"], "a comparison, which keeps rows"),
        (["path.jsonl"], "a path of couplings"),
        (["seed-0/config.toml"], "1 run. Use the folder of one run, such as .*/seed-0"),
        (["seed-0/config.toml", "seed-1/config.toml"], "2 runs. Use the folder of one run, such as .*/seed-0"),
        (["study.toml", "config.toml"], ""),
        ([], ""),
    ],
)
def test_a_folder_of_several_runs_is_not_taken_for_that_of_one(tmp_path, files, words):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert bool(describe_run_collection(tmp_path)) == bool(words)
    said = f"is not the folder of a single run: it contains {words}" if words else "summary.json is missing"
    for read in (p2pkm.load, check_files):
        with pytest.raises(DataError, match=said):
            read(tmp_path)


def test_the_state_of_a_run_is_that_of_its_manifest_unless_it_was_killed(tmp_path):
    assert run_status(tmp_path) == ""
    for state, found in (("done", "done"), ("failed", "failed"), ("running", "killed")):
        (tmp_path / "manifest.json").write_text(json.dumps({"state": state}))
        assert run_status(tmp_path) == found
    with Lock(tmp_path):
        assert run_status(tmp_path) == "running"
    for name, read in (("manifest.json", read_manifest), ("summary.json", p2pkm.load)):
        (tmp_path / name).write_text("[1, 2]")
        with pytest.raises(DataError, match=f"{name} cannot be read: .*a JSON object"):
            read(tmp_path)
