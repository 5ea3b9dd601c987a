import numpy as np
import pytest

from p2pkm.core.sorting import find_runs, sort_by, sum_by


@pytest.mark.parametrize("numbers", [[], [3], [0, 0, 1, 4, 4, 4], [-1, 0]])
def test_runs_begin_where_the_number_changes(numbers):
    found = find_runs(np.array(numbers, np.int64))
    assert found.tolist() == np.unique(numbers, return_index=True)[1].tolist()


def test_sums_by_device_are_over_all_blocks(monkeypatch):
    monkeypatch.setattr("p2pkm.core.sorting._BLOCK", 2)
    assert sum_by(np.array([0, 2, 2, 0, 2]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 4).tolist() == [5.0, 0.0, 10.0, 0.0]


@pytest.mark.parametrize("counted", [False, True])
def test_rows_by_device_ascend_whether_they_are_sorted_or_counted(monkeypatch, counted):
    monkeypatch.setattr("p2pkm.core.sorting._SORTED", 0 if counted else 100)
    rows, offsets = sort_by(np.array([3, 0, 3, 1, 0], np.int16), 5)
    assert rows.tolist() == [1, 4, 3, 0, 2]
    assert offsets.tolist() == [0, 2, 3, 3, 5, 5]
