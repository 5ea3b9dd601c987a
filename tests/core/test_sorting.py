import numpy as np
import pytest

from p2pkm.core.sorting import find_runs


@pytest.mark.parametrize("numbers", [[], [3], [0, 0, 1, 4, 4, 4], [-1, 0]])
def test_runs_begin_where_the_number_changes(numbers):
    found = find_runs(np.array(numbers, np.int64))
    assert found.tolist() == np.unique(numbers, return_index=True)[1].tolist()
