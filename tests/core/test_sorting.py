import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pkm.core import chunks
from p2pkm.core.sorting import blocks, find_runs, narrow, sort_by, sum_by


@pytest.mark.parametrize("numbers", [[], [3], [0, 0, 1, 4, 4, 4], [-1, 0]])
def test_runs_begin_where_the_number_changes(numbers):
    found = find_runs(np.array(numbers, np.int64))
    assert found.tolist() == np.unique(numbers, return_index=True)[1].tolist()


def test_sums_by_device_are_over_all_blocks(monkeypatch):
    monkeypatch.setattr("p2pkm.core.sorting._BLOCK", 2)
    assert sum_by(np.array([0, 2, 2, 0, 2]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 4).tolist() == [5.0, 0.0, 10.0, 0.0]


@pytest.mark.parametrize("counted", [False, True])
def test_rows_by_device_ascend_whether_they_are_sorted_or_counted(monkeypatch, counted):
    monkeypatch.setattr("p2pkm.core.sorting._MIN_COUNTING_ROWS", 0 if counted else 100)
    rows, offsets = sort_by(np.array([3, 0, 3, 1, 0], np.int16), 5)
    assert rows.tolist() == [1, 4, 3, 0, 2]
    assert offsets.tolist() == [0, 2, 3, 3, 5, 5]


def test_blocks_cover_all_rows_and_bound_the_numbers_of_each():
    assert [(one.start, one.stop) for one in blocks(5, 1 << 22)] == [(i, i + 1) for i in range(5)]
    assert [(one.start, one.stop) for one in blocks(3, 1 << 30)] == [(0, 1), (1, 2), (2, 3)]
    assert [(one.start, one.stop) for one in blocks(1 << 22, 2)] == [(0, 1 << 21), (1 << 21, 1 << 22)]
    assert [(one.start, one.stop) for one in blocks((1 << 22) + 1, 0)] == [(0, 1 << 22), (1 << 22, (1 << 22) + 1)]


def test_integers_are_narrowed_to_the_smallest_sufficient_type():
    for bits, kind, wider in ((15, np.int16, np.int32), (31, np.int32, np.int64)):
        assert narrow(1 << bits) is kind and narrow((1 << bits) + 1) is wider


@given(st.lists(st.integers(0, 9), max_size=30))
def test_chunks_cover_all_devices_and_points_and_are_bounded(sizes):
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_CHUNK_SIZE", 12)
        found = list(chunks.iter_chunks(offsets))
    assert [i for own, _ in found for i in range(own.start, own.stop)] == list(range(len(sizes)))
    for own, rows in found:
        assert (rows.start, rows.stop) == (offsets[own.start], offsets[own.stop])
        assert rows.stop - rows.start + (own.stop - own.start) <= 12 + 10
    assert len(found) <= 1 + (sum(sizes) + len(sizes)) // 12 * (sum(sizes) + len(sizes) > 12)
