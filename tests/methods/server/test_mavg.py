"""Match averaging: the matching by trying all, cases by hand, and data that are hardly any."""

from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.core.errors import ExperimentError
from p2pkm.methods.server.mavg import MAvg
from tests.support.each import each
from tests.support.server import clients_of, serve


def aggregate(tables, k):
    tables = [np.asarray(table, float).reshape(len(table), -1 if len(table) else 1) for table in tables]
    hub, _ = clients_of(tables)
    return MAvg(k).aggregate(hub, tables, np.full((k, tables[0].shape[1]), np.inf))


def average(tables):
    """Try every one-to-one map of every client's rows to those of the first of the longest tables."""
    reference = next(table for table in tables if len(table) == max(map(len, tables)))
    groups = [[] for _ in reference]
    for table in tables:
        maps = list(permutations(range(len(reference)), len(table)))
        prices = [sum(((table[c] - reference[p[c]]) ** 2).sum() for c in range(len(table))) for p in maps]
        for c, partner in enumerate(maps[int(np.argmin(prices))]):
            groups[partner].append(table[c])
    return np.array([np.mean(group, axis=0) for group in groups])


def test_two_clients_by_hand():
    assert_allclose(aggregate([[[0.0], [10.0]], [[12.0], [1.0]]], 2), [[0.5], [11.0]])


def test_the_sum_of_the_squared_distances_decides_not_the_nearest_row():
    """3 is nearest to 2, but 3 -> 0 and 4 -> 2 is dearer (9 + 4) than 3 -> 2 and 4 -> 0 (1 + 16) is not."""
    assert_allclose(aggregate([[[0.0], [2.0]], [[4.0], [3.0]]], 2), [[1.5], [3.0]])


def test_a_short_table_is_matched_in_part_and_the_reference_is_the_first_with_k_rows():
    assert_allclose(aggregate([[[9.0]], [[0.0], [10.0]], [[1.0], [20.0]]], 2), [[0.5], [13.0]])
    assert_allclose(aggregate([[[9.0]], [[1.0]], []], 2), [[5.0]])


@each("seed", range(10))
def test_the_matching_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    tables = [rng.normal(size=(rng.integers(0, 5), 2)) for _ in range(4)] + [rng.normal(size=(4, 2))]
    assert_allclose(aggregate(tables, 4), average(tables))


def test_a_run_says_the_centroids_of_every_client_once():
    data = [np.array([[0.0, 0.0], [0.0, 2.0], [10.0, 0.0]]), np.array([[12.0, 0.0], [2.0, 1.0]])]
    played = serve(MAvg(2), data)
    assert_allclose(played.model[np.argsort(played.model[:, 0])], [[1.0, 1.0], [11.0, 0.0]])
    assert played.ledger == (4, 8 * 2 * 8)
    for said, local in zip(played.uplinks[0], played.local, strict=True):
        assert_array_equal(said, local)


def test_more_seedings_are_not_worse():
    data = [np.random.default_rng(3).normal(size=(60, 2))]
    costs = []
    for starts in (1, 10):
        rows = serve(MAvg(8, client_n_init=starts), data).model
        costs.append(((data[0][:, None] - rows) ** 2).sum(axis=2).min(axis=1).sum())
    assert costs[1] < costs[0]


def test_hardly_any_points():
    assert_array_equal(serve(MAvg(3), [[], [[1.0, 2.0]] * 5]).model, [[1.0, 2.0]])


@pytest.mark.parametrize("options", [{"k": 0}, {"client_n_init": 0}])
def test_options_out_of_range(options):
    with pytest.raises(ExperimentError):
        MAvg(**{"k": 2, **options})
