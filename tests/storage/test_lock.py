"""A run folder belongs to one process at a time: the second one is told whose it is, whatever the timing."""

import errno
import fcntl
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import p2pkm.experiments.deal
import p2pkm.experiments.resume
import p2pkm.experiments.run
import p2pkm.experiments.studies.coupling_path
import p2pkm.experiments.studies.seeds
import p2pkm.storage.run_folder
from p2pkm.core.errors import ExperimentError
from p2pkm.storage import lock
from p2pkm.storage.checksums import check_files
from p2pkm.storage.lock import NAME, Lock, describe_lock_holder, process_has_ended, process_identity, process_start
from p2pkm.storage.run_folder import RunFolder
from tests.support import kill_runs as killed
from tests.support.resume import difference, keep_all
from tests.support.run_cli import SMALL, environment, fill, here, listed, ranks, there
from tests.support.sampling import thin

ENDLESS = fill(SMALL, ("--init", "local", "--tol", "0", "--rounds", "1000000", "--record-every", "50",
                       "--checkpoint-every", "1", "--no-baselines", "--out", "run", "-q"))  # fmt: skip
GONE = (1 << 31) - 1  # the largest number of a process that a file may name; no system gives it to one


@pytest.fixture(autouse=True)
def _stand_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def me():
    return f"process {os.getpid()} on {platform.node()}"


def run(*more):
    return here(*SMALL, "--out", "run", "-q", *more)


def manifest(folder="run"):
    return json.loads(Path(folder, "manifest.json").read_text())


def wait_for(path, process):
    limit = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    assert process.poll() is None


@pytest.fixture
def live(tmp_path):
    """Return a run that goes on in another process until it is ended."""
    process = killed.start(ENDLESS, 1)
    try:
        wait_for(tmp_path / "run" / "checkpoint", process)
        yield process
    finally:
        killed.end(process)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--force",), ("--force", "--dry-run"), ("--force", "--seeds", "0-1"),
                                  ("--force", "--coupling-path", "0.1,0.2")])  # fmt: skip
def test_the_folder_of_a_live_run_is_refused(live, more):
    ending = run(*more)
    assert ending.code == 2, ending.err
    assert f"process {live.pid} on {platform.node()}" in ending.err and "Traceback" not in ending.err
    live.send_signal(signal.SIGTERM)
    assert live.wait(30) == 143
    assert (manifest()["state"], manifest()["seed"]) == ("interrupted", 0)
    assert check_files(Path("run")) == [] and NAME not in listed(Path("run"))
    assert [path.name for path in Path().iterdir()] == ["run"]


def test_a_folder_above_a_live_run_is_not_replaced(live, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    ending = here(*SMALL, "--out", tmp_path, "--force")
    assert ending.code == 2 and f"process {live.pid} on" in ending.err
    assert live.poll() is None and describe_lock_holder(tmp_path / "run")


MOMENTS = [(p2pkm.experiments.run, "assemble"),
           (p2pkm.experiments.deal, "deal"), (RunFolder, "begin"), (RunFolder, "record"),
           (RunFolder, "finish"), (RunFolder, "end"), (p2pkm.storage.run_folder, "write_checksums"),
           (p2pkm.storage.run_folder, "move_to_backup")]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "name", "force"), thin([(*moment, force) for moment in MOMENTS for force in ((), ("--force",))], 3)
)
@pytest.mark.sample(3)
def test_a_second_run_is_refused_at_every_moment_of_the_first(monkeypatch, place, name, force):
    if force:
        assert run("--seed", 5).code == 0
    do, tried = getattr(place, name), []

    def second(*given, **named):
        if not tried:
            tried.append(None)
            tried.append(run("--seed", 1, *force))
        return do(*given, **named)

    monkeypatch.setattr(place, name, second)
    assert run(*force).code == 0
    assert tried[1].code == 2 and me() in tried[1].err
    assert manifest()["seed"] == 0 and check_files(Path("run")) == []
    assert [path.name for path in Path().iterdir()] == ["run"]


def test_who_waits_for_a_run_that_ends_does_not_overwrite_it(monkeypatch):
    """The second one has looked before the first one came, and gets the lock once that one is done."""
    take = p2pkm.storage.run_folder.Lock

    def late(folder):
        monkeypatch.setattr(p2pkm.storage.run_folder, "Lock", take)
        assert run("--seed", 1).code == 0
        return take(folder)

    monkeypatch.setattr(p2pkm.storage.run_folder, "Lock", late)
    ending = run()
    assert ending.code == 2 and "is not empty" in ending.err
    assert manifest()["seed"] == 1 and check_files(Path("run")) == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.mpi)])
def test_runs_that_are_started_at_the_same_moment(tmp_path, count):
    start = [sys.executable] if count == 1 else ranks(count)
    more = ("--tol", "0", "--init", "local", "--no-baselines", "--rounds", "3000", "--record-every", "100",
            "--out", "new/run", "-q", "--format", "json", "--seed")  # fmt: skip
    words = [*start, "-m", "p2pkm", *fill(SMALL, more)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    runs = [subprocess.Popen([*map(str, words), str(seed)], **pipes) for seed in range(5 - count)]
    ends = [(*one.communicate(timeout=90), one.returncode) for one in runs]
    assert sorted(code for _, _, code in ends) == [0, *[2] * (len(runs) - 1)], ends
    (seed,) = (seed for seed, end in enumerate(ends) if end[2] == 0)
    for out, err, code in ends:
        assert (code == 0) == bool(out)
        assert code == 0 or f" on {platform.node()} writes there" in err, err
        assert code == 0 or count > 1 or f"process {runs[seed].pid} on" in err, err
    assert manifest("new/run")["seed"] == json.loads(ends[seed][0])["seed"] == seed
    assert check_files(Path("new/run")) == []


def test_a_folder_that_is_removed_while_mkdir_looks_at_it_is_made_again(tmp_path, monkeypatch):
    mkdir, looks = Path.mkdir, iter([True])

    def look(path, *args, **options):
        # pathlib asks the system a second time whether what exists is a folder; meanwhile another process removed it.
        if path.name == "run" and next(looks, False):
            raise FileExistsError(17, "File exists", str(path))
        mkdir(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", look)
    with Lock(tmp_path / "run") as lock:
        assert lock.is_held


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(FileExistsError):
        Lock(tmp_path / "run")


@pytest.mark.slow
def test_many_processes_and_one_lock(tmp_path):
    program = Path(__file__).parents[1] / "support" / "programs" / "lock.py"
    words = [sys.executable, program, tmp_path / "deep" / "folder", "3"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    (tmp_path / "deep").mkdir()
    runs = [subprocess.Popen(list(map(str, words)), **pipes) for _ in range(5)]
    ends = [(*one.communicate(timeout=60), one.returncode) for one in runs]
    assert all(code == 0 for _, _, code in ends), ends
    assert sum(int(out) for out, _, _ in ends) > 10
    assert listed(tmp_path / "deep") <= {"folder"}  # empty, if who made it was not the first to lock it


def test_a_killed_run_is_no_obstacle(live):
    live.kill()
    live.wait()
    assert json.loads(Path("run", NAME).read_text())["process"] == live.pid
    assert not describe_lock_holder(Path("run"))
    shutil.copytree("run", "other")
    assert here("resume", "run", "-q", "--dry-run").code == 2  # no such option: nothing has happened
    with Lock(Path("run")):
        assert describe_lock_holder(Path("run")) == me()
    assert here(*SMALL, "--out", "other", "--force", "-q").code == 0
    assert NAME not in listed(Path("other")) and check_files(Path("other")) == []


def test_a_run_killed_before_it_began_leaves_a_folder_that_counts_as_empty():
    Path("run").mkdir()
    Path("run", NAME).write_text("")
    assert run().code == 0
    assert check_files(Path("run")) == []


@pytest.mark.slow
def test_one_of_two_that_resume_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert run("--init", "local", "--checkpoint-every", "1").code == 0
    copy, newest, tried = sorted(Path("copies").iterdir())[3], p2pkm.experiments.resume.load_newest, []

    def second(*given):
        monkeypatch.setattr(p2pkm.experiments.resume, "load_newest", newest)
        tried.append(here("resume", copy))
        tried.append(here(*SMALL, "--out", copy, "--force"))
        return newest(*given)

    monkeypatch.setattr(p2pkm.experiments.resume, "load_newest", second)
    assert here("resume", copy, "-q").code == 0
    assert [one.code for one in tried] == [3, 2] and all(me() in one.err for one in tried)
    assert difference(Path("run"), copy) == ""


@pytest.mark.slow
def test_who_waits_for_another_that_resumes_shows_its_results(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert run("--init", "local", "--checkpoint-every", "1").code == 0
    copy, lock_folder = sorted(Path("copies").iterdir())[3], p2pkm.experiments.resume.lock_folder

    def late(path):
        monkeypatch.setattr(p2pkm.experiments.resume, "lock_folder", lock_folder)
        assert here("resume", copy, "-q").code == 0
        return lock_folder(path)

    monkeypatch.setattr(p2pkm.experiments.resume, "lock_folder", late)
    assert here("resume", copy, "--format", "json").summary == json.loads((copy / "summary.json").read_text())
    assert difference(Path("run"), copy) == "" and manifest(copy)["resumed"] == 1


@pytest.mark.parametrize("name", ["record", "finish"])
@pytest.mark.sample(2)
def test_a_run_whose_folder_was_replaced_does_not_touch_the_new_one(monkeypatch, name):
    do, before = getattr(RunFolder, name), {}

    def replaced(self, *given, **named):
        if not before:
            before[NAME] = b""
            Path("run").rename("elsewhere")
            assert run("--seed", 1).code == 0
            before.update({one: Path("run", one).read_bytes() for one in listed(Path("run"))})
        return do(self, *given, **named)

    monkeypatch.setattr(RunFolder, name, replaced)
    ending = run("--checkpoint-every", "1")
    assert ending.code == 4 and "another folder is in its place" in ending.err and "Traceback" not in ending.err
    before.pop(NAME)
    assert before == {one: Path("run", one).read_bytes() for one in listed(Path("run"))}
    assert check_files(Path("run")) == []


def test_seeds_and_paths_hold_their_folder(monkeypatch):
    for words in (("--seeds", "0-1"), ("--coupling-path", "0.1,0.2")):
        execute, tried = p2pkm.experiments.run.execute, []

        def second(*given, execute=execute, words=words, tried=tried):
            if not tried:
                tried.append(None)
                tried.append(run("--force", *words))
            return execute(*given)

        for module in (p2pkm.experiments.studies.seeds, p2pkm.experiments.studies.coupling_path):
            monkeypatch.setattr(module, "execute", second)
        assert run("--force", *words).code == 0
        assert tried[1].code == 2 and me() in tried[1].err
        assert not list(Path().rglob(NAME)) and [path.name for path in Path().iterdir()] == ["run"]


def _no_locks(monkeypatch, number):
    def refuse(file, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_the_name_in_the_file_decides(monkeypatch, number):
    _no_locks(monkeypatch, number)
    folder = Path("run")
    with Lock(folder):
        assert describe_lock_holder(folder).startswith(me())
        assert run("--force").code == 2
        with pytest.raises(ExperimentError, match=f"{me()}.*if it has ended, remove run/{NAME}"):
            Lock(folder)
    assert run().code == 0 and not (folder / NAME).exists()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    owner = {"host": platform.node(), "process": gone.pid, "process_began": "1"}
    (folder / NAME).write_text(json.dumps(owner))
    assert not describe_lock_holder(folder)
    assert run("--force").code == 0
    reused = owner | {"process": os.getppid()}  # the same number, but another process
    (folder / NAME).write_text(json.dumps(reused))
    assert run("--force").code == 0
    (folder / NAME).write_text(json.dumps(owner | {"host": "far-away"}))
    ending = run("--force")
    assert ending.code == 2 and f"process {gone.pid} on far-away (if it has ended, remove run/{NAME})" in ending.err


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        ({}, ""),
        ({"process": GONE}, ""),
        ({"process_began": "1"}, ""),  # the same number, but another process
        ({"process": 7, "host": "far-away"}, f"process 7 on far-away (if it has ended, remove run/{NAME})"),
    ],
)
def test_where_there_are_no_locks_a_file_of_a_dead_process_is_made_anew(monkeypatch, owner, words):
    _no_locks(monkeypatch, errno.ENOLCK)
    monkeypatch.setattr("p2pkm.storage.lock._PAUSE", 0.0)
    folder = Path("run")
    if owner:
        folder.mkdir()
        (folder / NAME).write_text(json.dumps(process_identity() | owner))
    assert describe_lock_holder(folder) == words
    if words:
        with pytest.raises(ExperimentError, match="on far-away"):
            Lock(folder)
        return
    with Lock(folder):
        assert describe_lock_holder(folder) == f"{me()} (if it has ended, remove run/{NAME})"
        with pytest.raises(ExperimentError, match=me()):
            Lock(folder)
    assert not (folder / NAME).exists()


def test_what_a_file_said_before_it_was_locked_is_gone():
    Path("run").mkdir()
    Path("run", NAME).write_bytes(b"x" * 5000)
    assert describe_lock_holder(Path("run")) == ""
    with Lock(Path("run")):
        assert describe_lock_holder(Path("run")) == me()


def test_a_process_lives_until_it_ends_and_takes_what_memory_it_likes():
    owner = process_identity()
    taken = np.empty(1 << 27, np.uint8)
    assert process_identity() == owner and not process_has_ended(owner)
    del taken
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        owner = {"host": platform.node(), "process": child.pid, "process_began": process_start(child.pid)}
        assert owner["process_began"] and not process_has_ended(owner)
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_has_ended(owner)  # though nobody has waited for it


RUBBISH = (b"", b"[", b"[1]", b'{"process": "x"}', b'{"process": %d}' % 10**30, b"\xff" * 5000)


@pytest.mark.slow
def test_a_lock_file_of_rubbish_that_is_held():
    Path("run").mkdir()
    for rubbish in RUBBISH:
        Path("run", NAME).write_bytes(rubbish)
        with open(Path("run", NAME), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            ending = run()
        assert ending.code == 2 and "in use: another process writes there" in ending.err


def test_a_held_file_that_names_no_process_has_an_unknown_holder(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    Path("run").mkdir()
    numbers = [b'{"process": %d}' % number for number in (-1, 0, 2**31, 10**11)]
    for content in (*RUBBISH, b"3", b"null", b"{}", b'{"process": "3"}', *numbers):
        Path("run", NAME).write_bytes(content)
        with open(Path("run", NAME), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert describe_lock_holder(Path("run")) == "another process", content


def test_who_has_just_locked_a_file_is_known_once_its_name_is_in_it(monkeypatch):
    """A second look is taken at a file without a name, or with that of a process that has died."""
    owner = {"host": platform.node(), "process": GONE, "process_began": "1"}
    for before in (b"", json.dumps(owner).encode()):
        with Lock(Path("run")):
            name = Path("run", NAME).read_bytes()
            Path("run", NAME).write_bytes(before)
            monkeypatch.setattr(time, "sleep", lambda seconds, name=name: Path("run", NAME).write_bytes(name))
            assert describe_lock_holder(Path("run")) == me()
            monkeypatch.undo()


def test_a_second_lock_of_the_same_process_is_refused_and_both_may_be_released_twice(monkeypatch):
    monkeypatch.setattr("p2pkm.storage.lock._PAUSE", 0.0)
    with Lock(Path("a/b")) as lock:
        before = os.listdir("/proc/self/fd")
        with pytest.raises(ExperimentError, match=me()):
            Lock(Path("a/b"))
        assert lock.is_held and len(os.listdir("/proc/self/fd")) == len(before)
        lock.release()
        assert not lock.is_held and not Path("a").exists()
    assert not Path("a").exists()


def test_a_folder_that_was_there_stays():
    Path("a").mkdir()
    with Lock(Path("a/b")):
        pass
    assert listed(Path()) == {"a"}


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_not_said_to_be_in_use(monkeypatch):
    def refuse(self, **_given):
        raise FileNotFoundError(self)  # as mkdir in /proc

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ExperimentError, match="a cannot be created"), Lock(Path("a")):
        pass


@pytest.mark.mpi
def test_refused_on_ranks(live):
    ending = there(*ranks(3), "-m", "p2pkm", *SMALL, "--out", "run", "--force")
    assert ending.code == 2 and ending.err.count(f"process {live.pid} on {platform.node()}") == 1


def test_a_released_lock_closes_its_file(tmp_path):
    held = lock.Lock(tmp_path)
    file = held._file
    held.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
