"""Consensus Lloyd: Metropolis weights on the path, a twin by matrices, and what gossip keeps."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.methods.peer.consensus import ConsensusLloyd
from tests.support.averages import (
    GRAPHS,
    column,
    deal,
    divide,
    draw,
    lloyd,
    metropolis,
    proposals,
    scene,
    seeds,
    states,
    sums,
)
from tests.support.play_rounds import arrange, last

PATH = [(0, 1), (1, 2)]
P = np.array([[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]])


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def twin(data, weights, start, gossips, rounds, least=1e-12):
    centroids = np.array(start)
    for _ in range(rounds):
        mass = np.array([sums(points, w) for points, w in zip(data, centroids, strict=True)])
        for _ in range(gossips):
            mass = np.einsum("ij,jcw->icw", weights, mass)
        centroids = np.array([divide(z, w, least) for z, w in zip(mass, centroids, strict=True)])
    return centroids


def test_gossip_on_a_path_of_three():
    table = arrange([column(3), np.zeros((0, 1)), np.zeros((0, 1))], PATH)
    found, _ = states(ConsensusLloyd(1, gossips=400), table, np.zeros((3, 1, 1)), 1)
    for turn, expected in ((0, [3, 0, 0]), (1, [2, 1, 0]), (2, [5 / 3, 1, 1 / 3]), (399, [1, 1, 1])):
        close(found[turn].mass[:, 0, 0], expected)
        close(found[turn].mass[:, 0, 1], np.array(expected) / 3)


def test_the_weights_of_a_path_of_three():
    for i in range(3):
        data = [column(1) if j == i else np.zeros((0, 1)) for j in range(3)]
        found, _ = states(ConsensusLloyd(1, gossips=2), arrange(data, PATH, d=1), np.zeros((3, 1, 1)), 1)
        close(found[1].mass[:, 0, 0], P[:, i])


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_twin_finds_the_same(name, kernels):
    data, near, table, start = scene(name, kernels=kernels)
    for gossips in (1, 3):
        found = last(ConsensusLloyd(4, gossips=gossips), table, start, 4)
        close(found[:, :3], twin(data, metropolis(near), start, gossips, 4)[:, :3])
        assert np.isinf(found[:, 3]).all()


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_twin_finds_the_same_with_weights_of_links(name, kernels):
    data, links, table, start = scene(name, kernels=kernels, weighted=True)
    q = proposals(len(data), links)
    P = np.minimum(q, q.T)
    P += np.diag(1 - P.sum(axis=1))
    for gossips in (1, 3):
        found = last(ConsensusLloyd(4, gossips=gossips), table, start, 4)
        close(found[:, :3], twin(data, P, start, gossips, 4)[:, :3])
        assert np.isinf(found[:, 3]).all()


def test_many_gossips_with_weights_are_a_central_lloyd_step():
    for name in ("star", "tree"):
        data, _, table, start = scene(name, weighted=True)
        found = last(ConsensusLloyd(4, gossips=4000), table, start, 2)
        pooled = lloyd(data, lloyd(data, start[0]))
        close(found[:, :3], [pooled[:3]] * len(data))


@given(seeds)
def test_every_turn_keeps_the_sums_of_all_devices(graph):
    table, start = draw(graph)
    found, _ = states(ConsensusLloyd(3, gossips=4), table, start, 2)
    for before in (0, 4):
        for turn in (1, 2, 3):
            assert_allclose(found[before + turn].mass.sum(axis=0), found[before].mass.sum(axis=0), atol=1e-12)
    for state in found:
        assert np.isfinite(state.mass).all()


def test_on_a_complete_graph_one_gossip_is_a_central_lloyd_step():
    data, _, table, start = scene("complete")
    found = last(ConsensusLloyd(4, gossips=1), table, start, 3)
    pooled = start[0]
    for _ in range(3):
        pooled = lloyd(data, pooled)
    close(found[:, :3], [pooled[:3]] * 4)


def test_a_device_alone_runs_lloyd_whatever_the_gossips():
    data, _, table, start = scene("one")
    for gossips in (1, 7):
        found = last(ConsensusLloyd(4, gossips=gossips), table, start, 2)
        close(found[0, :3], lloyd(data, lloyd(data, start[0]))[:3])


def test_centroids_move_in_the_last_turn_of_a_round_alone():
    _, _, table, start = scene("ring")
    found, _ = states(ConsensusLloyd(4, gossips=3), table, start, 2)
    moved = [(one.centroids != other.centroids).any() for one, other in pairwise(found)]
    assert moved == [False, False, True, False, False, True]


def test_a_cluster_without_points_keeps_its_centroid_and_an_absent_one_is_filled_from_elsewhere():
    table = arrange([column(0, 2), column(10)], [(0, 1)])
    start = np.array([column(1, 50), column(np.inf, 9)])
    found = last(ConsensusLloyd(2, gossips=1), table, start, 1)
    close(found, [column(1, 10), column(1, 10)])
    apart = last(ConsensusLloyd(2, gossips=1), arrange([column(0, 2), column(10)], []), start, 1)
    close(apart[0], column(1, 50))
    assert_array_equal(apart[1], column(np.inf, 10))


def test_points_of_a_device_without_any_row_count_nowhere():
    table = arrange([column(2, 3), column(7), column(10)], [])
    start = np.array([column(0, 2), column(np.inf, np.inf), column(9, 20)])
    found, _ = states(ConsensusLloyd(2, gossips=1), table, start, 1)
    assert_array_equal(found[0].mass, [[[0, 0], [5, 2]], [[0, 0], [0, 0]], [[10, 1], [0, 0]]])
    assert np.isinf(found[1].centroids[1]).all()


def test_news_does_not_travel_further_than_the_gossips():
    data = deal(9, empty=False)
    links, start = [(i, i + 1) for i in range(8)], np.random.default_rng(1).normal(size=(9, 3, 2))
    stirred = [points + (i == 0) for i, points in enumerate(data)]
    calm, other = (last(ConsensusLloyd(3, gossips=2), arrange(one, links), start, 1) for one in (data, stirred))
    assert_array_equal((calm != other).any(axis=(1, 2)), np.arange(9) <= 2)


def test_messages_by_hand():
    shards = p2pkm.Shards.from_list([np.zeros((1, 2)), np.zeros((0, 2)), np.ones((2, 2))])
    result = p2pkm.simulate(ConsensusLloyd(2, gossips=4, tol=0.0), topologies.path(3), shards, rounds=3,
                            start=[[[0, 0], [np.inf, np.inf]]] * 3, baselines=False)  # fmt: skip
    assert result.summary["rounds"] == 2  # the second step stands still
    messages = (1 + 2 * 4) * 4
    assert (result.summary["messages"], result.summary["bytes"]) == (messages, messages * 2 * 3 * 8)
    assert [record["turn_count"] for record in result.rounds] == [0, 4, 4]
    assert result.summary["rows_max_per_device"] == 9 * 2 * 2 * 2


def test_a_run_settles_and_reports():
    X, y = p2pkm.grid16(points=20, seed=3)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 8, seed=0), devices=8, labels=y)
    result = p2pkm.simulate(ConsensusLloyd(16), topologies.small_world(8, seed=1), shards)
    assert result.summary["termination"] == "converged"
    assert [record["stage"] for record in result.rounds if record["round"] == 0] == ["tree-summaries", "consensus"]
    assert result.summary["ratio_worst"] < 1.02


def test_settled_means_that_no_coordinate_moved():
    table = arrange([column(0, 4), column(8)], [(0, 1)])
    scale = table.devices.data_std
    start = np.full((2, 1, 1), 4 - 0.1 * scale)  # one gossip of two devices is the mean 4
    for tol, converged in ((0.11, True), (0.09, False)):
        found, _ = states(ConsensusLloyd(1, gossips=1, tol=tol), table, start, 2)
        assert not found[0].converged.any()
        assert_array_equal(found[1].converged, converged)
        assert found[2].converged.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"gossips": 0}, "gossips is 0; expected a whole number of at least 1"),
        ({"gossips": 1.5}, "gossips is 1.5"),
        ({"tol": -1.0}, "tol is -1.0; expected a finite number of at least 0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        ConsensusLloyd(**{"k": 3} | options)


def test_defaults():
    method = ConsensusLloyd(3)
    assert (method.schedule, str(method.init)) == ("jacobi*10", "global:candidates=1")
    assert (method.name, method.default_rounds, method.tol) == ("consensus", 30, 1e-5)
