"""Push-sum Lloyd: shares that keep the mass, a twin by matrices, and a weight that cancels."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.methods.building_blocks.averaging import local_sums, relative_weights
from p2pkm.methods.peer.pushsum import PushSumLloyd, fair_share
from tests.support.averages import (
    GRAPHS,
    column,
    deal,
    divide,
    draw,
    lloyd,
    neighbors,
    proposals,
    scene,
    seeds,
    states,
    sums,
)
from tests.support.play_rounds import arrange, last

GRAPH_OF_TREE = neighbors(*GRAPHS["tree"])


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def columns(near):
    """Return A with A_ji = 1 / (1 + deg_i)."""
    n = len(near)
    A = np.zeros((n, n))
    for i in range(n):
        for j in (i, *near[i]):
            A[j, i] = 1 / (1 + len(near[i]))
    return A


def twin(data, A, start, gossips, rounds):
    centroids = np.array(start)
    for _ in range(rounds):
        mass = np.array([sums(points, w) for points, w in zip(data, centroids, strict=True)])
        for _ in range(gossips):
            mass = np.einsum("ij,jcw->icw", A, mass)
        centroids = np.array([divide(z, w, 1e-12) for z, w in zip(mass, centroids, strict=True)])
    return centroids


def test_shares_on_a_path_of_three():
    table = arrange([column(6), np.zeros((0, 1)), np.zeros((0, 1))], [(0, 1), (1, 2)])
    found, said = states(PushSumLloyd(1, gossips=300), table, np.zeros((3, 1, 1)), 1)
    # the ends keep a half, the middle a third
    for turn, expected in ((0, [6, 0, 0]), (1, [3, 3, 0]), (2, [2.5, 2.5, 1])):
        close(found[turn].mass[:, 0, 0], expected)
        close(found[turn].mass[:, 0, 1], np.array(expected) / 6)
        close(said[turn].values[:, 0, 0], np.array(expected) / [2, 3, 2])
    close(found[299].mass[:, 0, 0], 6 * np.array([2, 3, 2]) / 7)  # devices with more links gather more
    close(found[300].centroids.ravel(), [6, 6, 6])


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_twin_finds_the_same(name, kernels):
    data, near, table, start = scene(name, kernels=kernels)
    for gossips in (1, 3):
        found = last(PushSumLloyd(4, gossips=gossips), table, start, 4)
        close(found[:, :3], twin(data, columns(near), start, gossips, 4)[:, :3])
        assert np.isinf(found[:, 3]).all()


def weighted_columns(n, links):
    """Return A with A_ji = w_ij over all weights of i and their mean."""
    A = proposals(n, links).T
    return A + np.diag(1 - A.sum(axis=0))


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_twin_finds_the_same_with_weights_of_links(name, kernels):
    data, links, table, start = scene(name, kernels=kernels, weighted=True)
    for gossips in (1, 3):
        found = last(PushSumLloyd(4, gossips=gossips), table, start, 4)
        close(found[:, :3], twin(data, weighted_columns(len(data), links), start, gossips, 4)[:, :3])
        with_counters = last(PushSumLloyd(4, gossips=gossips, counters=True), table, start, 1)
        close(with_counters[:, :3], twin(data, weighted_columns(len(data), links), start, gossips, 1)[:, :3])


def test_what_weighted_shares_gather_in_the_long_run_is_by_the_weights():
    data, links, table, start = scene("tree", weighted=True)
    found, _ = states(PushSumLloyd(4, gossips=4000), table, start, 1)
    held = found[3999].mass[:, :, -1].sum(axis=1)
    strength = np.zeros(len(data))
    for i, j, weight in links:
        strength[[i, j]] += weight
    strength *= 1 + 1 / table.devices.degrees
    close(held / held.sum(), strength / strength.sum())
    around = np.array([strength[near].mean() for near in GRAPH_OF_TREE])
    assert_allclose(fair_share(table.devices), np.minimum(1.0, strength / around))


@pytest.mark.parametrize("gossips", [1, 3])
def test_counters_keep_the_mass_with_weights_of_links(gossips):
    _, _, table, start = scene("tree", weighted=True)
    found, _ = states(PushSumLloyd(4, gossips=gossips, counters=True), table, start, 4)
    devices = table.devices
    weights = relative_weights(devices)
    for state in found[1:]:
        under_way = weights[:, None, None] * (state.account.total[devices.indices] - state.account.edge_received)
        held = state.mass.sum(axis=0) + under_way.sum(axis=0)
        assert_allclose(held, state.account.own.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("gossips", [1, 3])
def test_counters_change_nothing_in_the_first_round_and_from_then_on_what_is_held_adds_up_to_the_own_sums(gossips):
    _, _, table, start = scene("tree")
    method = PushSumLloyd(4, gossips=gossips, counters=True)
    found, _ = states(method, table, start, 4)
    close(found[gossips].centroids, last(PushSumLloyd(4, gossips=gossips), table, start, 1))
    sources, reverse = table.devices.sources, np.lexsort((table.devices.sources, table.devices.indices))
    for state in found[1:]:
        under_way = state.account.total[sources] - state.account.edge_received[reverse]
        held = state.mass.sum(axis=0) + under_way.sum(axis=0)
        assert_allclose(held, state.account.own.sum(axis=0), atol=1e-9)
    for i, state in enumerate(found):
        expected = local_sums(table.devices, found[i - i % gossips].centroids)
        assert_allclose(state.account.own, expected, atol=1e-12)


@given(seeds)
def test_every_turn_keeps_the_mass_of_all_devices(graph):
    table, start = draw(graph)
    found, _ = states(PushSumLloyd(3, gossips=4), table, start, 2)
    for before in (0, 4):
        for turn in (1, 2, 3):
            assert_allclose(found[before + turn].mass.sum(axis=0), found[before].mass.sum(axis=0), atol=1e-12)
            assert (found[before + turn].mass[:, :, -1] >= 0).all()


def test_with_many_gossips_a_round_is_a_central_lloyd_step_whatever_the_degrees():
    for name in ("star", "tree"):
        data, _, table, start = scene(name)
        found = last(PushSumLloyd(4, gossips=600), table, start, 2)
        pooled = lloyd(data, lloyd(data, start[0]))
        close(found[:, :3], [pooled[:3]] * len(data))


def test_a_cluster_without_points_keeps_its_centroid_and_an_absent_one_is_filled_from_elsewhere():
    start = np.array([column(1, 50), column(np.inf, 9)])
    table = arrange([column(0, 2), column(10)], [(0, 1)])
    close(last(PushSumLloyd(2, gossips=1), table, start, 1), [column(1, 10), column(1, 10)])
    apart = last(PushSumLloyd(2, gossips=1), arrange([column(0, 2), column(10)], []), start, 1)
    assert_array_equal(apart, [column(1, 50), column(np.inf, 10)])


def test_news_does_not_travel_further_than_the_gossips():
    data = deal(9, empty=False)
    links, start = [(i, i + 1) for i in range(8)], np.random.default_rng(1).normal(size=(9, 3, 2))
    stirred = [points + (i == 0) for i, points in enumerate(data)]
    calm, other = (last(PushSumLloyd(3, gossips=2), arrange(one, links), start, 1) for one in (data, stirred))
    assert_array_equal((calm != other).any(axis=(1, 2)), np.arange(9) <= 2)


def test_messages_by_hand():
    shards = p2pkm.Shards.from_list([np.zeros((1, 2)), np.zeros((0, 2)), np.ones((2, 2))])
    result = p2pkm.simulate(PushSumLloyd(2, gossips=4, tol=1e-9), topologies.path(3), shards, rounds=3,
                            start=[[[0, 0], [np.inf, np.inf]]] * 3, baselines=False)  # fmt: skip
    assert result.summary["rounds"] == 2  # the second step stands still
    messages = (1 + 2 * 4) * 4
    assert (result.summary["messages"], result.summary["bytes"]) == (messages, messages * 2 * 3 * 8)
    assert [record["turn_count"] for record in result.rounds] == [0, 4, 4]


def test_a_run_settles():
    X, y = p2pkm.grid16(points=20, seed=3)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 8, seed=0), devices=8, labels=y)
    result = p2pkm.simulate(PushSumLloyd(16), topologies.star(8), shards)
    assert result.summary["termination"] == "converged"
    assert result.summary["ratio_worst"] < 1.02


def test_who_has_more_links_than_those_around_it_should_hold_a_mean_number_of_points():
    star = arrange([[[0.0]]] * 5, [(0, i) for i in range(1, 5)]).devices
    assert_allclose(fair_share(star), [1.0, 0.4, 0.4, 0.4, 0.4])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"gossips": 0}, "gossips is 0; expected a whole number of at least 1"),
        ({"tol": np.nan}, "tol is nan; expected a finite number of at least 0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        PushSumLloyd(**{"k": 3} | options)


def test_defaults():
    method = PushSumLloyd(3)
    assert (method.schedule, str(method.init)) == ("jacobi*10", "global:candidates=1")
    assert (method.name, method.default_rounds, method.tol) == ("pushsum", 30, 1e-5)
