"""Selection of a candidate: costs of candidates that are the same up to the order of their centroids."""

import numpy as np
import pytest

from p2pkm.methods.init import select_candidate
from p2pkm.methods.init.select_candidate import candidate_costs, evaluation_points, find_repeated
from tests.support.play_rounds import arrange


def test_candidates_are_the_same_in_any_order_of_their_centroids():
    first = np.array([[0.0, 1.0], [2.0, 3.0], [np.inf, np.inf]])
    other = np.array([[0.0, 1.0], [2.0, 4.0], [np.inf, np.inf]])
    tables = np.array([[first, other, first[::-1], first[[1, 0, 2]], other[[2, 0, 1]]]])
    assert find_repeated(tables) == [0, 1, 0, 0, 1]
    # On a second component, the candidates 0 and 2 differ.
    assert find_repeated(np.concatenate((tables, tables[:, [0, 1, 1, 0, 1]]))) == [0, 1, 2, 0, 1]
    assert find_repeated(tables[:0]) == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("d", [1, 2, 5, 70])
def test_costs_of_repeated_candidates_are_those_of_their_own_order(d, monkeypatch):
    rng = np.random.default_rng(d)
    devices = arrange([rng.normal(size=(40, d)).round(1) for _ in range(3)], [(0, 1), (1, 2)]).devices
    first, other = rng.normal(size=(2, 9, d)).round(1)
    tables = np.array([[first, other, rng.permutation(first), rng.permutation(other)]])
    inputs = devices, evaluation_points(devices, 9), tables, lambda q, block: np.repeat(tables[:, q], 3, axis=0)[block]
    costs = candidate_costs(*inputs)
    monkeypatch.setattr(select_candidate, "find_repeated", lambda tables: list(range(4)))
    np.testing.assert_array_equal(costs, candidate_costs(*inputs))
