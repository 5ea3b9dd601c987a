"""ADMM consensus k-means: the two devices with known numbers, a twin by plain loops, and prices that cancel."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.protocols import RunOutline
from p2pkm.engine.loop import Start
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.methods.peer.admm import ADMM
from p2pkm.network.graph import Topology
from tests.support.averages import GRAPHS, column, draw, lloyd, scene, seeds, states, sums
from tests.support.play_rounds import arrange, last
from tests.support.sampling import thin


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def twin(data, near, start, eta, rounds):
    """Return m and p by the two lines of the method, absent rows left out."""
    m, p = np.array(start), np.zeros_like(start)
    for _ in range(rounds):
        own, old = [sums(points, rows) for points, rows in zip(data, m, strict=True)], m.copy()
        for i, c in np.ndindex(m.shape[:2]):
            ends = [j for j in near[i] if old[i, c, 0] < np.inf and old[j, c, 0] < np.inf]
            weight = own[i][c, -1] + 2 * eta * len(ends)
            if weight > 0:
                m[i, c] = (own[i][c, :-1] - p[i, c] + eta * sum(old[i, c] + old[j, c] for j in ends)) / weight
        for i, j in [(end, j) for end in range(len(m)) for j in near[end]]:
            both = (m[i] < np.inf) & (m[j] < np.inf)
            p[i][both] += eta * (m[i][both] - m[j][both])
    return m, p


# case 10: two devices with the points 0, 2 and 10
TWO = [column(0, 2), column(10)]


def test_two_devices_first_steps_and_limit():
    table = arrange(TWO, [(0, 1)])
    found, _ = states(ADMM(1, eta=1.0), table, np.zeros((2, 1, 1)), 400)
    close(found[1].centroids.ravel(), [0.5, 3.3333333333333335])
    close(found[2].duals.ravel(), [-2.8333333333333335, 2.8333333333333335])
    close(found[2].centroids.ravel(), [2.166666666666667, 3.6666666666666665])
    close(found[3].duals.ravel(), [-4.333333333333333, 4.333333333333333])
    close(found[400].centroids.ravel(), [4.0, 4.0])
    close(found[400].duals.ravel(), [-6.0, 6.0])  # S_i - 4 n_i
    assert_array_equal(found[1].duals, 0.0)


@pytest.mark.parametrize(("name", "kernels"), thin(product(GRAPHS, [plain, compiled]), 3))
def test_the_twin_finds_the_same(name, kernels):
    data, near, table, start = scene(name, kernels=kernels)
    for eta in (0.5, 5.0):
        found, _ = states(ADMM(4, eta=eta), table, start, 6)
        m, _ = twin(data, near, start, eta, 6)
        _, p = twin(data, near, start, eta, 5)
        close(found[-1].centroids[:, :3], m[:, :3])
        close(found[-1].duals, p)
        assert np.isinf(found[-1].centroids[:, 3]).all()


@given(seeds)
def test_the_duals_add_up_to_zero_from_any_start(graph):
    table, start = draw(graph)
    found, _ = states(ADMM(3, eta=2.0), table, start, 8)
    for state in found:
        assert_allclose(state.duals.sum(axis=0), 0.0, atol=1e-10)
        assert_array_equal(np.isinf(state.centroids), np.isinf(start))  # absent rows are never revived, none is lost
        assert np.isfinite(state.duals).all()


@settings(max_examples=10)
@given(seeds)
def test_a_start_that_differs_is_not_charged_in_the_first_round(graph):
    table, start = draw(graph)
    found, _ = states(ADMM(3), table, start, 2)
    assert_array_equal(found[1].duals, 0.0)


@pytest.mark.parametrize("name", thin(["ring", "star", "tree", "complete"], 2))
def test_all_agree_on_the_mean_of_all_points_for_one_cluster(name):
    data, _, table, start = scene(name, k=2)
    found = last(ADMM(2, eta=1.0), table, start, 600)
    pooled = np.concatenate(data).mean(axis=0)
    assert_allclose(found[:, 0], [pooled] * len(data), atol=1e-6)


def test_a_rest_is_a_fixed_point_of_central_lloyd():
    X, y = p2pkm.blobs(clusters=4, points=40, seed=2)
    shards = p2pkm.Shards.from_list([X[y == c] for c in (0, 1, 2, 3)])  # every device has one class only
    result = p2pkm.simulate(ADMM(4, tol=1e-10), topologies.ring(4), shards, rounds=2000)
    assert result.summary["termination"] == "converged"
    for one in result.centroids:
        assert_allclose(one, lloyd([X], one), atol=1e-6)


def test_a_device_alone_runs_lloyd():
    data, _, table, start = scene("one")
    close(last(ADMM(4), table, start, 2)[0, :3], lloyd(data, lloyd(data, start[0]))[:3])


def test_a_row_that_one_end_lacks_belongs_to_the_other_alone():
    table = arrange([column(0, 8, 10), column(1)], [(0, 1)])
    start = np.array([column(0, 7), column(1, np.inf)])
    found, _ = states(ADMM(2, eta=1.0), table, start, 3)
    for state in found[1:]:
        close(state.centroids[0, 1], 9)
        assert np.isinf(state.centroids[1, 1])
        assert_array_equal(state.duals[:, 1], 0.0)
    close(found[1].centroids[:, 0, 0], [(0 + 0 + 1) / 3, (1 + 1 + 0) / 3])


def test_a_row_without_points_and_links_stays():
    table = arrange([column(0), np.zeros((0, 1))], [])
    close(last(ADMM(2), table, [column(1, 50), column(3, 4)], 3), [column(0, 50), column(3, 4)])


def test_who_sleeps_says_nothing():
    devices = arrange([column(0), column(1)], [(0, 1)]).devices
    state = ADMM(2).initial_state(devices, Start(np.zeros((2, 2, 1)), np.ones(2, bool)))
    assert_array_equal(ADMM(2).message(state, devices.at_turn(1, 0, np.array([True, False]))).rows, [2, -1])


def test_messages_by_hand():
    shards = p2pkm.Shards.from_list([np.zeros((1, 2)), np.zeros((0, 2)), np.ones((2, 2))])
    result = p2pkm.simulate(ADMM(2, tol=0.0), topologies.path(3), shards, rounds=5,
                            start=[[[0, 0], [np.inf, np.inf]]] * 3, baselines=False)  # fmt: skip
    assert result.summary["rounds"] == 5
    assert (result.summary["messages"], result.summary["bytes"]) == (6 * 4, 6 * 4 * 2 * 2 * 8)
    assert [record["turn_count"] for record in result.rounds] == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"eta": 0.0}, "eta is 0.0; expected a finite number above 0"),
        ({"eta": np.inf}, "eta is inf"),
        ({"tol": -1.0}, "tol is -1.0; expected a finite number of at least 0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        ADMM(**{"k": 3} | options)


def test_defaults():
    method = ADMM(3)
    assert (method.schedule, str(method.init), method.eta) == ("jacobi", "global:candidates=1", None)
    assert (method.name, method.default_rounds, method.tol) == ("admm", 150, 1e-5)


@pytest.mark.parametrize(("points", "k", "eta"), [(120, 4, 7.5), (120, 6, 5.0), (20, 1, 5.0), (None, 4, None)])
def test_the_default_penalty_is_the_mean_number_of_points_of_a_cluster_on_a_device(points, k, eta):
    outline = RunOutline(Topology.from_graph(topologies.ring(4)), points=points)
    method = ADMM(k).configure(outline)
    assert method.eta == eta and method.configure(outline) == method
    assert ADMM(k, eta=2.0).configure(outline).eta == 2.0


def test_a_run_uses_the_default_penalty():
    X, y = p2pkm.blobs(clusters=3, points=80, seed=1)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(240, 4, seed=0), labels=y)
    given, default = (
        p2pkm.simulate(p2pkm.ADMM(3, eta=eta), topologies.ring(4), shards, rounds=5, seed=1) for eta in (20.0, None)
    )
    assert_array_equal(given.centroids, default.centroids)
