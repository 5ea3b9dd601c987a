"""Breathing along a tree: which rows are added and taken out, and what 16 bits hold."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.methods.building_blocks import tree_search
from tests.methods.peer.test_treelloyd import GRAPHS, agree, draw, lloyd
from tests.support.play_rounds import arrange, play, squared

K, D = 5, 2


def search(data, links, start, rounds=140, **more):
    table = arrange(data, links, **more)
    method = p2pkm.TreeLloyd(len(start), search="breathing", tol=0.0).on(table.topology)
    history, state = play(method, table, np.array([start] * len(data)), rounds)
    return history[:: 2 * method.depth + 1], state, method


SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", [pytest.param("ring", marks=SLOW), "star", pytest.param("grid", marks=SLOW)])
def test_a_search_lowers_the_cost_and_ends_at_a_lloyd_point(name):
    better = 0
    for seed in range(2):
        data = draw(9, seed, sizes=np.full(9, 25))
        pooled, start = np.concatenate(data), np.random.default_rng(seed).normal(6, 4, (K, D))
        history, state, _ = search(data, GRAPHS[name][1], start)
        assert state.converged.all() and (history == history[:, :1]).all()
        costs = [squared(pooled, table[0]).min(axis=1).sum() for table in history]
        assert (np.diff(costs) <= 1e-12 * costs[0]).all()
        step, unit, coarse = state.units[0]
        plain = lloyd(data, start, agree(data, GRAPHS[name][1], start)).cost
        assert costs[-1] <= plain * (1 + 1e-12)
        better += costs[-1] < 0.99 * plain
        root = int(np.argmax(state.sums[:, :, -1].sum(axis=1)))
        assert_array_equal(state.sums[root], state.own.sum(axis=0))
        assert_allclose(state.costs[root] * step**2 * unit, costs[-1])
        assert np.isfinite(state.kept_reference[root, :, 0]).sum() == K
        nearest = squared(pooled, history[-1, 0]).argmin(axis=1)
        for c in np.unique(nearest):
            own = pooled[nearest == c]
            assert (np.abs(own.mean(axis=0) - history[-1, 0, c]) <= step * (1 + coarse * 9 / len(own))).all()
    assert better


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_tree():
    data, start = draw(9, 3, sizes=np.full(9, 25)), np.random.default_rng(3).normal(6, 4, (K, D))
    found = [search(data, links, start)[1] for n, links in GRAPHS.values() if n == 9]
    for other in found:
        assert_allclose(other.centroids, found[0].centroids, rtol=1e-9)


def test_errors_and_utilities_by_hand():
    table = arrange([np.array([[0.0], [1.0], [9.0]]), np.zeros((0, 1))], [(0, 1)])
    rows = np.array([[[0.0], [10.0], [np.inf]]] * 2)
    found = [tree_search.sum_errors(table.devices, rows, np.ones(2), utility=flag) for flag in (False, True)]
    assert_array_equal(found[0], [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert_array_equal(found[1], [[180.0, 80.0, 0.0], [0.0, 0.0, 0.0]])  # 100 - 0 + 81 - 1 and 81 - 1


def test_16_bits_hold_8_digits():
    values = np.array([0.0, 1.0, 257.0, 259.0, 1e-30, 3.0])
    assert_array_equal(tree_search.shorten(values)[[0, 1, 2, 3, 5]], [0.0, 1.0, 256.0, 260.0, 3.0])
    many = np.random.default_rng(0).uniform(0, 1e9, 1000)
    assert_allclose(tree_search.shorten(many), many, rtol=2.0**-8)
    assert_array_equal(tree_search.shorten(tree_search.shorten(many)), tree_search.shorten(many))


def test_the_neighbor_of_a_row_that_was_taken_out_stays():
    rows = np.array([[0.0], [1.0], [50.0], [90.0], [np.inf]])
    assert_array_equal(tree_search.choose_least(np.array([1.0, 2.0, 3.0, 4.0, 0.0]), rows, 2), [0, 2])
    assert_array_equal(tree_search.choose_least(np.array([1.0, 2.0, 3.0, 4.0, 0.0]), rows, 3), [0, 2, 1])
    assert_array_equal(
        tree_search.choose_largest(np.array([1.0, 5.0, 5.0, 9.0, 7.0]), np.array([0, 1, 2, 4]), 3), [4, 1, 2]
    )


@pytest.mark.parametrize("k", [1, pytest.param(2, marks=SLOW), 9])
def test_a_search_runs_with_few_and_with_many_rows(k):
    data = draw(9, 1)
    start = np.random.default_rng(1).normal(6, 4, (k, D))
    history, state, _ = search(data, GRAPHS["star"][1], start)
    assert state.converged.all() and np.isfinite(history).all()


def test_a_run_with_a_search_is_planned_weighed_and_certified():
    parts = draw(8, 2, sizes=np.full(8, 20))
    found = []
    for factor in (1.0, 2.0**-60):
        weights = [np.full(len(part), factor) for part in parts]
        shards = p2pkm.Shards.from_list(parts, weights=weights)
        method = p2pkm.TreeLloyd(4, search="breathing", init="leader")
        result = p2pkm.simulate(method, topologies.star(8), shards, seed=2)
        found.append(result.summary)
    assert found[0]["descent"] == "certified" and found[0]["termination"] == "converged"
    for key in ("centroids_sha256", "chain_sha256", "bytes", "wire_bytes", "rounds"):
        assert found[0][key] == found[1][key]
    own = [entry for entry in result.rounds if entry["stage"] == "treelloyd"]
    per_round = np.diff([entry["bytes"] for entry in own])[1:]
    assert (per_round == 7 * 8 * (4 + 5 + 1) * (2 + 2 + 2)).all()
    assert found[0]["wire_bytes"] < found[0]["bytes"] / 5
