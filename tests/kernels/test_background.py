"""Runs while the cache has no compiled kernels: they use the reference, and a second process compiles."""

import ctypes
import os
import runpy
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
from p2pkm.kernels import background
from p2pkm.kernels import reference as plain
from tests.support.run_cli import environment, solve, there

PARENT = """
import sys
from p2pkm.kernels import background
background.start_compilation("float64", ahead=True)
background.start_compilation("float64", ahead=True)
print(*(process.pid for process in background._running), flush=True)
sys.stdin.read()
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


@pytest.mark.parametrize("ahead", [False, True])
def test_the_second_process_compiles_the_types_of_the_first(ahead, monkeypatch):
    commands, compiled = [], []
    monkeypatch.setattr(background, "_running", [])
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command))
    background.start_compilation("float32", ahead=ahead)
    monkeypatch.setattr(background, "_running", [])
    # What follows would change this process: its priority, and the signal at the end of its parent.
    monkeypatch.setattr(os, "nice", lambda step: None)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    monkeypatch.setattr(os, "getppid", os.getpid)
    monkeypatch.setattr(kernels, "compile_ahead", lambda dtype, **options: compiled.append((dtype, options)))
    ((*_, name, parent, purpose, dtype),) = commands
    monkeypatch.setattr(sys, "argv", ["", parent, purpose, dtype])
    runpy.run_module(name, run_name="__main__")
    assert compiled == [("float32", {"lock": ahead, "backwards": True})]


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


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_second_process_ends_with_the_first(tmp_path, is_killed):
    settings = environment(NUMBA_CACHE_DIR=str(tmp_path))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], env=settings, **pipes)
    (child,) = map(int, parent.stdout.readline().split())
    assert _is_running(child)
    if is_killed:
        parent.send_signal(signal.SIGKILL)
    parent.communicate(timeout=60)
    end = time.monotonic() + 60
    while _is_running(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _is_running(child)


def _is_running(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_second_process_compiles_all_kernels(tmp_path, dtype):
    command = [sys.executable, "-m", "p2pkm.kernels", str(os.getpid()), "now", dtype]
    subprocess.run(command, env=environment(NUMBA_CACHE_DIR=str(tmp_path)), timeout=300, check=True)
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
