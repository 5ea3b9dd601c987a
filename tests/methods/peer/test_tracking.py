"""Tracking Lloyd: the sum that never changes its meaning, a twin by matrices, and label skew."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.methods.peer.tracking import TrackingLloyd
from tests.support.averages import (
    GRAPHS,
    column,
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


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def twin(data, P, start, gossips, rounds):
    weights, centroids = np.linalg.matrix_power(P, gossips), np.array(start)
    own = np.array([sums(points, w) for points, w in zip(data, centroids, strict=True)])
    mass = own
    for _ in range(rounds):
        mass = np.einsum("ij,jcw->icw", weights, mass)
        centroids = np.array([divide(z, w, 1e-3) for z, w in zip(mass, centroids, strict=True)])
        before, own = own, np.array([sums(points, w) for points, w in zip(data, centroids, strict=True)])
        mass = mass + own - before
    return centroids


def test_two_rounds_by_hand():
    # P = [[1/2, 1/2], [1/2, 1/2]]: both get ((0 + 2 + 3) / 3, 10) from the mean of (0, 1) (2 + 3, 2) and (10, 1)
    table = arrange([column(0), column(2, 3, 10)], [(0, 1)])
    start = np.array([column(2, 8)] * 2)
    found, _ = states(TrackingLloyd(2, gossips=1), table, start, 2)
    close(found[0].mass, [[[0, 1], [0, 0]], [[5, 2], [10, 1]]])
    close(found[1].centroids, [column(5 / 3, 10)] * 2)
    close(found[1].mass, [[[2.5, 1.5], [5, 0.5]]] * 2)
    # other centroids at the start: device 1 moves its point 2 from the first cluster to the second
    start = np.array([column(2, 8), column(2, 8)])
    start[1] = column(-1, 4.5)
    found, _ = states(TrackingLloyd(2, gossips=1), table, start, 1)
    close(found[0].mass, [[[0, 1], [0, 0]], [[0, 0], [15, 3]]])
    close(found[1].centroids, [column(0, 5)] * 2)
    # own sums of device 1 at (0, 5): 2 goes to 0, so (2, 1) and (13, 2): a change of (2, 1) and (-2, -1)
    close(found[1].mass, [[[0, 0.5], [7.5, 1.5]], [[2, 1.5], [5.5, 0.5]]])


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_twin_finds_the_same(name, kernels):
    data, near, table, start = scene(name, kernels=kernels)
    for gossips in (1, 3):
        found = last(TrackingLloyd(4, gossips=gossips), table, start, 5)
        close(found[:, :3], twin(data, metropolis(near), start, gossips, 5)[:, :3])
        assert np.isinf(found[:, 3]).all()


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_twin_finds_the_same_with_weights_of_links(name, kernels):
    data, links, table, start = scene(name, kernels=kernels, weighted=True)
    q = proposals(len(data), links)
    P = np.minimum(q, q.T)
    P += np.diag(1 - P.sum(axis=1))
    for gossips in (1, 3):
        expected = twin(data, P, start, gossips, 5)[:, :3]
        close(last(TrackingLloyd(4, gossips=gossips), table, start, 5)[:, :3], expected)
        if name != "tree":  # where a device holds so few points that it keeps its centroids with counters
            close(last(TrackingLloyd(4, gossips=gossips, counters=True), table, start, 5)[:, :3], expected)


@given(seeds)
def test_what_is_followed_adds_up_to_the_own_sums_after_every_turn(graph):
    table, start = draw(graph)
    found, _ = states(TrackingLloyd(3, gossips=2), table, start, 6)
    for state in found:
        assert_allclose(state.mass.sum(axis=0), state.own.sum(axis=0), atol=1e-11)


def test_the_own_sums_are_those_of_the_centroids():
    data, _, table, start = scene("tree")
    found, _ = states(TrackingLloyd(4, gossips=2), table, start, 3)
    for state in found[::2]:
        expected = [sums(points, w) for points, w in zip(data, state.centroids, strict=True)]
        assert_allclose(state.own, expected, atol=1e-12)


def test_on_a_complete_graph_the_first_step_is_a_central_one():
    data, _, table, start = scene("complete")
    found = last(TrackingLloyd(4, gossips=1), table, start, 1)
    close(found[:, :3], [lloyd(data, start[0])[:3]] * 4)


def test_a_device_alone_runs_lloyd():
    data, _, table, start = scene("one")
    found = last(TrackingLloyd(4), table, start, 2)
    close(found[0, :3], lloyd(data, lloyd(data, start[0]))[:3])


@pytest.mark.parametrize("gossips", [1, 3])
def test_it_settles_at_a_fixed_point_of_central_lloyd_under_label_skew(gossips):
    X, y = p2pkm.blobs(clusters=4, points=40, seed=2)
    shards = p2pkm.Shards.from_list([X[y == c] for c in (0, 1, 2, 3)])  # every device has one class only
    result = p2pkm.simulate(TrackingLloyd(4, gossips=gossips, tol=1e-9), topologies.ring(4), shards, rounds=400)
    assert result.summary["termination"] == "converged"
    for one in result.centroids:
        assert_allclose(one, lloyd([X], one), atol=1e-6)


def test_a_row_of_less_than_a_thousandth_of_a_point_stays():
    # 0.004 of the mean weight is shared by four devices: 0.001, which is enough, and 0.00098 is not
    data, links = [column(7, 90), *[np.zeros((0, 1))] * 3], [(i, j) for i in range(4) for j in range(i)]
    for mean in (1.0, 1e-9, 1e9):
        for share, expected in ((0.004001, 7.0), (0.0039, 3.0)):
            table = arrange(data, links, d=1, weights=[share * mean, (2 - share) * mean])
            found = last(TrackingLloyd(2, gossips=1), table, np.full((4, 2, 1), [[3.0], [99.0]]), 1)
            close(found, np.full((4, 2, 1), [[expected], [90.0]]))


def test_an_absent_row_is_filled_from_elsewhere():
    table = arrange([column(0, 2), column(10)], [(0, 1)])
    start = np.array([column(1, 50), column(np.inf, 9)])
    close(last(TrackingLloyd(2, gossips=1), table, start, 1), [column(1, 10), column(1, 10)])
    apart = last(TrackingLloyd(2), arrange([column(0, 2), column(10)], []), start, 1)
    assert_array_equal(apart, [column(1, 50), column(np.inf, 10)])


def test_messages_by_hand():
    shards = p2pkm.Shards.from_list([np.zeros((1, 2)), np.zeros((0, 2)), np.ones((2, 2))])
    result = p2pkm.simulate(TrackingLloyd(2), topologies.path(3), shards, rounds=2,
                            start=[[[0, 0], [5, 5]]] * 3, baselines=False)  # fmt: skip
    messages = (1 + 2 * 3) * 4
    assert (result.summary["messages"], result.summary["bytes"]) == (messages, messages * 2 * 3 * 8)
    assert [record["turn_count"] for record in result.rounds] == [0, 3, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"gossips": True}, "gossips is True; expected a whole number of at least 1"),
        ({"tol": -1.0}, "tol is -1.0; expected a finite number of at least 0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        TrackingLloyd(**{"k": 3} | options)


def test_defaults():
    method = TrackingLloyd(3)
    assert (method.schedule, str(method.init)) == ("jacobi*3", "global:candidates=1")
    assert (method.name, method.default_rounds, method.tol) == ("tracking", 150, 1e-5)
