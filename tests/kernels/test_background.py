"""Runs while the cache has no compiled kernels: they use the reference, and a second process compiles."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from p2pkm import kernels
from p2pkm.engine.build_batch import choose_kernels
from p2pkm.kernels import background
from p2pkm.kernels import reference as plain
from tests.support.run_cli import environment, there

PARENT = """
import sys
from p2pkm.kernels import background
background.start_compilation(ahead=True)
background.start_compilation(ahead=True)
print(*(process.pid for process in background._running), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def missing(monkeypatch):
    """Count how often the second process is started, while kernels are missing in the cache."""
    starts = []
    monkeypatch.setattr(background, "are_cached", lambda compiled: False)
    monkeypatch.setattr(background, "start_compilation", lambda *, ahead: starts.append(ahead))
    monkeypatch.setattr(kernels, "compile_ahead", lambda **options: starts.append(options))
    monkeypatch.setattr("p2pkm.engine.build_batch.compile_ahead", lambda **options: starts.append(options))
    monkeypatch.setattr(kernels, "_compiled_types", set())
    monkeypatch.setattr(kernels, "_plain_so_far", 0)
    return starts


def test_runs_up_to_a_size_do_not_wait_for_missing_kernels(missing):
    half = kernels._SMALL_COLD // 2
    selected = [kernels.select_kernels(1, kernels._FEW_COLD, half) for _ in range(3)]
    assert [kind is plain for kind in selected] == [True, True, False]
    assert missing == [True, True, True]
    # After a run that has compiled its kernels, the next one finds them in this process.
    assert kernels.select_kernels(1, kernels._FEW_COLD, 1) is not plain
    assert missing == [True, True, True]


def test_many_devices_wait_for_their_kernels(missing):
    assert kernels.select_kernels(1, kernels._FEW_COLD + 1, 1) is not plain
    assert missing == [True]


@pytest.mark.parametrize(("n", "is_reference"), [(kernels._FEW_COLD, True), (kernels._FEW_COLD + 1, False)])
@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_select_the_same_kernels(missing, n, is_reference, rank):
    sent = {"missing": np.array(True)}
    world = SimpleNamespace(
        size=2, rank=rank, broadcast=lambda arrays: sent if arrays is None else arrays, wait=lambda: None
    )
    assert (choose_kernels(world, n, 10) is plain) == is_reference
    assert missing == ([] if rank else [True] if is_reference else [{"helped": True}])


def test_without_missing_kernels_all_ranks_compile_ahead(missing, monkeypatch):
    monkeypatch.setattr(background, "are_cached", lambda compiled: True)
    world = SimpleNamespace(size=2, rank=0, broadcast=lambda arrays: arrays, wait=lambda: None)
    assert choose_kernels(world, 100, 10) is not plain
    assert missing == [{"helped": True}]


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
def test_the_second_process_compiles_all_kernels(tmp_path):
    command = [sys.executable, "-m", "p2pkm.kernels", str(os.getpid()), "now"]
    subprocess.run(command, env=environment(NUMBA_CACHE_DIR=str(tmp_path)), timeout=300, check=True)
    program = "from p2pkm.kernels import background, load; print(background.are_cached(load()))"
    done = there(sys.executable, "-c", program, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.out.strip() == "True"


@pytest.mark.slow
def test_a_first_run_of_a_few_devices_compiles_nothing(tmp_path):
    words = ("-m", "p2pkm", "--graph", "ring", "--devices", "17", "--rounds", "2", "--no-plot", "--out", "none")
    done = there(sys.executable, *words, cwd=tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert done.code == 0, done.err
    assert "compiling kernels" not in done.err
