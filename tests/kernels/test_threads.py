"""Several threads in one process: each takes a range of devices, and no bit depends on how many there are."""

from functools import cache
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.kernels.numba import threads
from tests.kernels.test_kernels import TYPES, draw_points, gtvmin_case
from tests.support.fork import run_in_fork


@pytest.fixture(params=[2, 3, 5])
def divided(monkeypatch, request):
    """Let every call be divided among so many threads, and count the ranges."""
    ranges = []
    divide = threads.divide

    def watch(task, offsets):
        divide(lambda first, last: ranges.append((int(first), int(last))) or task(first, last), offsets)

    monkeypatch.setattr(threads, "count", lambda: request.param)
    monkeypatch.setattr(threads, "_MIN_WORK", 1)
    for name in ("gtvmin", "kmeans", "cost"):
        monkeypatch.setattr(import_module(f"p2pkm.kernels.numba.{name}"), "divide", watch)
    return ranges


@cache
def list_calls(dtype):
    """List calls of the kernels that are divided, with what the reference returns."""
    calls = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        points, weights, offsets = draw_points(rng, 6, 3, dtype)
        own = points, weights, weights, offsets, 3, 2, 2, 10, np.zeros(6), np.arange(6, dtype=np.uint64), 1, 0
        centroids = plain.kmeans(*own)[0]
        count = int(rng.integers(3))
        labels = rng.integers(0, max(count, 1), len(points))
        calls += [
            ("gtvmin", gtvmin_case(seed, dtype)),
            ("kmeans", own),
            ("losses", (points, weights, offsets, centroids)),
            ("evaluate_costs", (points, weights, offsets, labels, count, centroids)),
        ]
    return [(name, arguments, getattr(plain, name)(*arguments)) for name, arguments in calls]


@TYPES
@pytest.mark.sample(3)
def test_no_kernel_depends_on_the_number_of_threads(divided, dtype):
    for name, arguments, expected in list_calls(dtype):
        for one, other in zip(getattr(compiled, name)(*arguments), expected, strict=True):
            assert_array_equal(one, other)
    assert len(divided) > 160


def test_ranges_follow_one_another_and_hold_everybody(divided):
    offsets = np.concatenate(([0], np.cumsum([0, 5, 0, 0, 90, 1, 1, 0])))
    threads_seen = []
    threads.divide(lambda first, last: threads_seen.append((int(first), int(last))), offsets)
    seen = sorted(threads_seen)
    assert seen[0][0] == 0 and seen[-1][1] == 8
    assert not [(one, other) for one, other in pairwise(seen) if one[1] != other[0]]


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, if another test has loaded it
def test_a_fork_of_a_process_that_used_threads_uses_its_own(monkeypatch):
    """The child of a fork has none of the threads of its parent; it waited for them for ever."""
    monkeypatch.setattr(threads, "count", lambda: 2)
    monkeypatch.setattr(threads, "_MIN_WORK", 1)
    offsets = np.arange(9)

    def list_ranges():
        ranges = []
        threads.divide(lambda first, last: ranges.append((int(first), int(last))), offsets)
        return sorted(ranges)

    found = list_ranges()
    assert len(found) == 2
    assert run_in_fork(lambda: list_ranges() == found) == 0
    assert run_in_fork(lambda: run_in_fork(lambda: list_ranges() == found) == 0) == 0  # of a fork, too
    assert list_ranges() == found
