"""Runs while the cache has no compiled kernels: they use the reference, and a second process compiles."""

import contextlib
import ctypes
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from p2pkm import kernels
from p2pkm.engine import build_batch
from p2pkm.engine.build_batch import choose_kernels
from p2pkm.kernels import background, compile_time
from p2pkm.kernels import reference as plain
from p2pkm.kernels.cache_lock import lock_cache
from tests.support.run_cli import environment, solve, there

PARENT = """
import sys
from p2pkm.kernels import background
background.start_compilation("float64", ahead=True)
background.start_compilation("float64", ahead=True)
print(*(process.pid for process, _ in background._running), flush=True)
sys.stdin.read()
"""
# One small run, after which the program ends.
SCRIPT = """
import p2pkm, topologies
points, _ = p2pkm.grid16(points=5, seed=0)
shards = p2pkm.Shards.deal(points, p2pkm.partition.iid(len(points), 4, seed=0), devices=4)
p2pkm.simulate(p2pkm.GTVMin(16), topologies.ring(4), shards, rounds=2, progress=False)
"""

# Together they call every kernel of runs, with points and with rows of tables.
_RUNS = (
    "--init tree-summaries", "--init flooded-summaries", "--algorithm kfed", "--algorithm cdkm", "--algorithm ffcm1",
    "--algorithm fedlloyd", "--algorithm consensus",
)  # fmt: skip


@pytest.fixture
def missing(monkeypatch):
    """Count how often the second process is started, while kernels are missing in the cache."""
    starts = []
    monkeypatch.setattr(background, "are_cached", lambda compiled, calls: False)
    monkeypatch.setattr(background, "start_compilation", lambda dtype, *, ahead: starts.append((dtype, ahead)))
    monkeypatch.setattr(background, "is_marked", lambda dtype: False)
    for module in (kernels, build_batch):
        monkeypatch.setattr(module, "compile_ahead", lambda dtype, **options: starts.append((dtype, options)))
    monkeypatch.setattr(kernels, "_compiled_types", set())
    monkeypatch.setattr(kernels, "_plain_so_far", 0)
    return starts


def test_runs_up_to_a_size_do_not_wait_for_missing_kernels(missing):
    half = kernels._SMALL_COLD // 2
    selected = [kernels.select_kernels(1, kernels._FEW_COLD, half) for _ in range(3)]
    assert [kind is plain for kind in selected] == [True, True, False]
    assert missing == [("float64", True)] * 3
    # After a run that has compiled its kernels, the next one finds them in this process.
    assert kernels.select_kernels(1, kernels._FEW_COLD, 1) is not plain
    assert missing == [("float64", True)] * 3


def test_many_devices_wait_for_their_kernels(missing):
    assert kernels.select_kernels(1, kernels._FEW_COLD + 1, 1) is not plain
    assert missing == [("float64", True)]


def test_a_type_of_points_waits_for_its_own_kernels(missing):
    assert kernels.select_kernels(1, kernels._FEW_COLD + 1, 1, "float64") is not plain
    assert kernels.select_kernels(1, kernels._FEW_COLD, 1, "float32") is plain
    assert missing == [("float64", True), ("float32", True)]


@pytest.mark.parametrize(("n", "is_reference"), [(kernels._FEW_COLD, True), (kernels._FEW_COLD + 1, False)])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_all_ranks_select_the_same_kernels(missing, n, is_reference, rank, dtype):
    sent = {"missing": np.array(True)}
    world = SimpleNamespace(
        size=2, rank=rank, broadcast=lambda arrays: sent if arrays is None else arrays, wait=lambda: None
    )
    assert (choose_kernels(world, n, 10, dtype) is plain) == is_reference
    assert missing == ([] if rank else [(dtype, True if is_reference else {"helped": True})])


def test_without_missing_kernels_all_ranks_compile_ahead(missing, monkeypatch):
    monkeypatch.setattr(background, "are_cached", lambda compiled, calls: True)
    world = SimpleNamespace(size=2, rank=0, broadcast=lambda arrays: arrays, wait=lambda: None)
    assert choose_kernels(world, 100, 10) is not plain
    assert missing == [("float64", {"helped": True})]


def test_one_rank_compiles_only_for_the_type_of_its_points(missing):
    choose_kernels(SimpleNamespace(size=1, rank=0), 100, 10, "float32")
    assert missing == [("float32", True)]


@pytest.fixture
def started(monkeypatch):
    """Collect the commands and sessions of second processes, which do not start."""
    commands = []
    monkeypatch.setenv(background.SWITCH, "1")
    monkeypatch.setattr(background, "_running", [])
    monkeypatch.setattr(
        subprocess, "Popen",
        lambda command, **options: commands.append((command[-2:], options["start_new_session"]))
        or SimpleNamespace(poll=lambda: 0, kill=lambda: None, wait=lambda: None, command=command),
    )  # fmt: skip
    for name in [name for name in os.environ if name.startswith(("PMI", "OMPI_", "SLURM_", "PBS_", "LSB_", "JOB_ID"))]:
        monkeypatch.delenv(name)
    return commands


@pytest.mark.parametrize("ahead", [False, True])
def test_the_second_process_compiles_the_types_of_the_first(ahead, started, monkeypatch):
    compiled = []
    assert background.start_compilation("float32", ahead=ahead)
    (command,) = [process.command for process, _ in background._running]
    # What follows would change this process: its priority, its signals, and the signal at the end of its parent.
    monkeypatch.setattr(os, "nice", lambda step: None)
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    monkeypatch.setattr(signal, "alarm", lambda seconds: None)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    monkeypatch.setattr(os, "getppid", os.getpid)
    monkeypatch.setattr(kernels, "compile_ahead", lambda dtype, **options: compiled.append((dtype, options)))
    monkeypatch.setattr(kernels, "compile_for_later", lambda dtype, goes_on: compiled.append((dtype, goes_on())))
    *_, name, parent, purpose, dtype = command
    monkeypatch.setattr(sys, "argv", ["", parent, purpose, dtype])
    runpy.run_module(name, run_name="__main__")
    assert compiled == [("float32", True if ahead else {"lock": False, "backwards": True})]


def test_a_process_stays_only_where_it_disturbs_nobody(started, monkeypatch, tmp_path):
    background.start_compilation("float64", ahead=True)
    background.start_compilation("float64", ahead=False)
    assert started == [(["stay", "float64"], True), (["now", "float64"], False)]
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "OMPI_COMM_WORLD_SIZE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            background.start_compilation("float64", ahead=True)
            assert started.pop() == (["ahead", "float64"], False)
    refused = {background.SWITCH: "0"}, {"PMI_SIZE": "2", "PMI_RANK": "1"}
    for settings in refused:
        with monkeypatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            assert not background.start_compilation("float64", ahead=True)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    assert not background.start_compilation("float64", ahead=True)
    assert len(started) == 2


def test_a_small_run_starts_compilation_and_loads_compiled_kernels_when_that_pays(missing, monkeypatch):
    clock = iter(range(100))
    monkeypatch.delitem(sys.modules, "numba")
    monkeypatch.setattr(kernels, "_plain_since", None)
    monkeypatch.setattr(time, "process_time", lambda: 0.6 * next(clock))
    assert kernels.select_kernels(1, 16, 10) is plain
    assert missing == [("float64", True)]
    monkeypatch.setattr(background, "is_marked", lambda dtype: True)
    monkeypatch.setattr(background, "are_cached", lambda compiled, calls: True)
    # The time of three more runs of 0.6 s.
    assert [kernels.select_kernels(1, 16, 10) is plain for _ in range(4)] == [True, True, False, False]
    assert missing == [("float64", True)]


def test_a_mark_counts_until_a_kernel_changes(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(background, "_marked", set())
    folder = tmp_path / "numba_1"
    folder.mkdir()
    monkeypatch.setattr(background, "find_cache", lambda compiled: folder)
    assert not background.is_marked("float64")
    background.mark_compiled(None, "float64")
    assert not background.is_marked("float32")
    (mark,) = folder.iterdir()
    os.utime(mark, (0, 0))
    assert not background.is_marked("float64")
    os.utime(mark)
    assert background.is_marked("float64")
    mark.unlink()
    background.mark_compiled(None, "float64")


def test_missing_kernels_are_compiled_one_at_a_time_and_at_least_one(tmp_path, monkeypatch):
    calls = [(name, (np.zeros(1),)) for name in "abcd"]
    cached, done = {"c"}, []

    def compile_one(name, values):
        # Another process can take the lock only between two kernels.
        with lock_cache(tmp_path, 0.0) as is_locked:
            assert not is_locked
        cached.add(name)
        done.append(name)

    compiled = SimpleNamespace(**{name: partial(compile_one, name) for name in "abcd"})
    monkeypatch.setattr(background, "_PAUSE", 0.0)
    monkeypatch.setattr(background, "find_cache", lambda compiled: tmp_path)
    monkeypatch.setattr(background, "are_cached", lambda compiled, calls: cached.issuperset(name for name, _ in calls))
    assert not background.compile_missing(compiled, calls, lambda: False)
    assert done == ["d"]
    assert background.compile_missing(compiled, calls, lambda: True)
    assert done == ["d", "b", "a"]
    cached.clear()
    with lock_cache(tmp_path):
        monkeypatch.setattr(background, "_PATIENCE", 0.1)
        assert not background.compile_missing(compiled, calls, lambda: True)
    assert done == ["d", "b", "a"]


def test_a_terminal_is_told_once_how_to_compile(missing, monkeypatch):
    monkeypatch.setattr(kernels, "compile_ahead", None)
    monkeypatch.setattr(background, "start_compilation", lambda dtype, *, ahead: True)
    monkeypatch.setattr(compile_time, "_has_told", False)
    monkeypatch.setattr(compile_time, "_MISSING", [])
    monkeypatch.delitem(sys.modules, "numba")
    for is_terminal in (False, True, True):
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda is_terminal=is_terminal: is_terminal))
        said = []
        compile_time.announce_compilation(said.append)
        kernels.select_kernels(1, 4, 1)
        kernels.select_kernels(1, 4, 1)
        missing.append(said)
    silent, told, again = missing
    assert silent == again == [] and len(told) == 1 and "python -m p2pkm compile" in told[0]


def test_kernels_are_cached_for_each_type(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    first = numba.njit(cache=True)(_first)
    compiled = SimpleNamespace(entry={"first": first}.get)
    calls = {dtype: [("first", (np.zeros(1, dtype),))] for dtype in ("float64", "float32")}

    def is_cached():
        return [background.are_cached(compiled, calls[dtype]) for dtype in calls]

    assert is_cached() == [False, False]
    first(np.zeros(1))
    assert is_cached() == [True, False]
    first(np.zeros(1, np.float32))
    assert is_cached() == [True, True]
    # Another version of the source.
    first._cache._cache_file._source_stamp = None
    assert is_cached() == [False, False]


def _first(values):
    return values[0]


@pytest.mark.slow
def test_compilation_covers_all_types_of_a_run(monkeypatch):
    called = set()

    def record(name, kernel, *args, **options):
        called.add((name, str(args[0].dtype)))
        return kernel(*args, **options)

    expected = {(name, str(args[0].dtype)) for name, args in kernels._calls("float32")}
    for name, _ in expected:
        monkeypatch.setattr(plain, name, partial(record, name, getattr(plain, name)))
    monkeypatch.setattr(kernels, "compiles", lambda: False)
    for words in _RUNS:
        solve("--dtype", "float32", "--rounds", 2, *words.split())
    # Of graphs only; no run needs it.
    assert called | {("lanczos", "int64")} == expected


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_the_second_process_finishes_its_kernel_after_the_first(tmp_path, is_killed):
    settings = environment(NUMBA_CACHE_DIR=str(tmp_path), **{background.SWITCH: "1"})
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    parent = subprocess.Popen([sys.executable, "-X", "dev", "-c", PARENT], env=settings, **pipes)
    (child,) = map(int, parent.stdout.readline().split())
    assert _is_running(child) and os.getsid(child) == child
    assert {os.readlink(f"/proc/{child}/fd/{number}") for number in range(3)} == {os.devnull}
    if is_killed:
        parent.send_signal(signal.SIGKILL)
    # The end of the pipes is read, although the second process lives.
    assert parent.communicate(timeout=60) == ("", "")
    _wait_for(child)
    assert len(list(tmp_path.rglob("*.nbi"))) >= 1


@pytest.fixture(scope="module")
def full_cache(tmp_path_factory):
    """Return a cache that a second process has filled with the kernels for float64."""
    cache = tmp_path_factory.mktemp("cache")
    _compile(cache, "float64")
    return cache


def _compile(cache, dtype):
    command = [sys.executable, "-m", "p2pkm.kernels", str(os.getpid()), "now", dtype]
    subprocess.run(command, env=environment(NUMBA_CACHE_DIR=str(cache)), timeout=600, check=True)


def _list_marks(cache):
    return list(cache.rglob("p2pkm-compiled-*"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_short_programs_compile_all_missing_kernels_together(full_cache, tmp_path):
    """Four are missing, of which one takes longest: to compile all of them takes as many programs, and minutes."""
    shutil.copytree(full_cache, tmp_path, dirs_exist_ok=True)
    for mark in _list_marks(tmp_path):
        mark.unlink()
    for name in ("kmeans", "moments", "color", "gtvmin"):
        code = kernels.load().entry(name).py_func.__code__
        files = list(tmp_path.rglob(f"{Path(code.co_filename).stem}.{code.co_name}-{code.co_firstlineno}.*.nb[ic]"))
        assert len(files) >= 2
        for file in files:
            file.unlink()
    settings = {"NUMBA_CACHE_DIR": str(tmp_path), background.SWITCH: "1"}
    counts = [len(list(tmp_path.rglob("*.nbc")))]
    while not _list_marks(tmp_path):
        assert len(counts) < 20 and there(sys.executable, "-c", SCRIPT, **settings).code == 0
        for child in _children_of(tmp_path):
            _wait_for(child)
        counts.append(len(list(tmp_path.rglob("*.nbc"))))
    assert counts == sorted(set(counts[:-1])) + counts[-1:] and len(counts) > 3


def _children_of(cache):
    """List the processes that compile into a cache."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"p2pkm.kernels" in (place / "cmdline").read_bytes().split(b"\0") and (
                str(cache).encode() in (place / "environ").read_bytes()
            ):
                yield int(place.name)


def _wait_for(number):
    """Wait until a process has ended, at most for the minute that it may take."""
    end = time.monotonic() + 90
    while _is_running(number) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _is_running(number)


def _is_running(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_second_process_compiles_all_kernels(full_cache, tmp_path, dtype):
    shutil.copytree(full_cache, tmp_path, dirs_exist_ok=True)
    if dtype == "float32":
        _compile(tmp_path, dtype)
    program = (
        f"from p2pkm.kernels import _calls, background, load\nprint(background.are_cached(load(), _calls({dtype!r})))"
    )
    done = there(sys.executable, "-c", program, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.out.strip() == "True"


@pytest.mark.slow
def test_a_first_run_of_a_few_devices_compiles_nothing(tmp_path):
    words = ("-m", "p2pkm", "--graph", "ring", "--devices", "17", "--rounds", "2", "--no-plot", "--out", "none")
    done = there(sys.executable, *words, cwd=tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert done.code == 0, done.err
    assert "compiling kernels" not in done.err
