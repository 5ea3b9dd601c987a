"""Agreement under faults: whose candidates count."""

import numpy as np
from numpy.testing import assert_array_equal

from p2pkm.methods.init.min_id_agreement import MinIdAgreement
from p2pkm.methods.init.select_candidate import SelectCandidateState
from tests.support.play_rounds import arrange


def test_candidates_of_a_stage_that_ended_go_before_those_of_one_that_did_not_and_own_points_before_none():
    """Of four devices the first was through, the second was not, the third had nothing, the fourth has no points."""
    table = arrange([[[1.0]], [[2.0]], [[3.0]], []], [(0, 1), (1, 2), (2, 3)], d=1)
    candidates = np.array([10.0, 20.0, np.inf, np.inf]).reshape(4, 1, 1, 1)
    before = SelectCandidateState(candidates[:, 0], np.array([True, False, True, True]), candidates, None)
    state = MinIdAgreement(1).initial_state(table.devices, before)
    assert_array_equal(state.origin, [0, 1 + 4, 2 + 4, 2 * 4])
    assert_array_equal(state.centroids[:, 0, 0], [10.0, 20.0, 3.0, np.inf])
