import numpy as np
import pytest

from p2pkm.core.sorting import find_runs, sum_by


@pytest.mark.parametrize("numbers", [[], [3], [0, 0, 1, 4, 4, 4], [-1, 0]])
def test_runs_begin_where_the_number_changes(numbers):
    found = find_runs(np.array(numbers, np.int64))
    assert found.tolist() == np.unique(numbers, return_index=True)[1].tolist()


def test_sums_by_device_are_over_all_blocks(monkeypatch):
    monkeypatch.setattr("p2pkm.core.sorting._BLOCK", 2)
    assert sum_by(np.array([0, 2, 2, 0, 2]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 4).tolist() == [5.0, 0.0, 10.0, 0.0]
