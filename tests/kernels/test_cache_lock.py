"""Compilation by several processes at once: each kernel is compiled once, and nobody waits forever."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from p2pkm import kernels
from p2pkm.kernels import background
from p2pkm.kernels.cache_lock import lock_cache
from tests.support.run_cli import environment

ONE_KERNEL = """
from p2pkm import kernels
calls = kernels._calls
kernels._calls = lambda dtype: calls(dtype)[-1:]
kernels.compile_ahead()
"""


@pytest.mark.slow
def test_a_second_process_waits_for_the_first(tmp_path):
    entered = threading.Event()

    def enter():
        with lock_cache(tmp_path):
            entered.set()

    other = threading.Thread(target=enter, daemon=True)
    with lock_cache(tmp_path):
        other.start()
        assert not entered.wait(0.3)
    assert entered.wait(30)
    other.join(30)


def test_a_stopped_process_does_not_block_the_others(tmp_path):
    with lock_cache(tmp_path) as first, lock_cache(tmp_path, limit=0.2) as second:
        assert first and not second


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks(tmp_path, monkeypatch, code):
    def refuse(file, kind):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock_cache(tmp_path):
        pass


@pytest.mark.parametrize("becomes_cached", [False, True])
def test_nobody_waits_for_kernels_that_are_cached(tmp_path, monkeypatch, becomes_cached):
    """Ranks once slept up to five minutes while another process compiled kernels that they did not need."""
    cached = iter([False, False] if becomes_cached else [])
    monkeypatch.setattr(kernels, "load", lambda: None)
    monkeypatch.setattr(kernels, "_calls", lambda dtype: [])
    monkeypatch.setattr(background, "find_cache", lambda compiled: tmp_path)
    monkeypatch.setattr(background, "are_cached", lambda compiled, calls: next(cached, True))
    asked = []
    monkeypatch.setattr(time, "sleep", asked.append)
    with lock_cache(tmp_path) as is_locked:
        assert is_locked
        kernels.compile_ahead()
    assert len(asked) == becomes_cached


def test_a_folder_that_does_not_exist(tmp_path):
    with lock_cache(tmp_path / "missing"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_processes_that_start_together_compile_each_kernel_once(tmp_path):
    settings = environment(NUMBA_CACHE_DIR=str(tmp_path), NUMBA_DEBUG_CACHE="1")
    words = [sys.executable, "-c", ONE_KERNEL]
    started = [subprocess.Popen(words, env=settings, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [process.communicate(timeout=200)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    saved = Counter(line for text in printed for line in text.splitlines() if "data saved to" in line)
    assert saved and set(saved.values()) == {1}
    assert len(saved) == len(list(tmp_path.rglob("*.nbc")))
