"""A server with all points: k-means as the baseline has it, and coordinate descent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.core.errors import ExperimentError
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.methods.server.centralized import Central
from p2pkm.metrics.cost_ratio import PooledPoints, cluster_centrally
from tests.support.server import serve

FORMS = pytest.mark.parametrize("form", [plain, compiled], ids=["plain", "compiled"])


def normal(seed, sizes, d=2):
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 5, (m, d)) for m in sizes]


def cost_of(points, weights, labels):
    """Return the cost of a partition, from its definition."""
    total = 0.0
    for label in set(labels):
        own, mass = points[labels == label], weights[labels == label]
        mean = (own * mass[:, None]).sum(axis=0) / mass.sum()
        total += (mass * ((own - mean) ** 2).sum(axis=1)).sum()
    return total


def nearest(points, rows):
    return ((points[:, None] - rows) ** 2).sum(axis=2).argmin(axis=1)


def descend(points, start):
    """Coordinate descent in plain loops that price a move by the cost of the whole partition."""
    labels, ones, moved = nearest(points, start), np.ones(len(points)), True
    while moved:
        moved = False
        for r in range(len(points)):
            if (labels == labels[r]).sum() == 1:
                continue
            trials = []
            for c in range(len(start)):
                trial = labels.copy()
                trial[r] = c
                trials.append(cost_of(points, ones, trial))
            if min(trials) < trials[labels[r]] - 1e-9:
                labels[r], moved = int(np.argmin(trials)), True
    return np.array([points[labels == c].mean(axis=0) for c in range(len(start))])


@st.composite
def cases(draw):
    m, k, d = draw(st.integers(1, 25)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    points = rng.normal(0, 3, (m, d))
    points = points.round() if draw(st.booleans()) else points
    weights = rng.integers(1, 4, m).astype(float) if draw(st.booleans()) else np.ones(m)
    distinct = np.unique(points, axis=0)
    start = np.ascontiguousarray(rng.permutation(distinct)[:k])
    return points, weights, start


def test_clients_say_all_points_with_their_weights():
    data, weights = normal(0, [3, 0, 5]), np.arange(1.0, 9.0)
    for method in ("lloyd", "cdkm"):
        played = serve(Central(2, method=method), data, weights=weights)
        for said, points, mass in zip(played.uplinks[0], data, (weights[:3], weights[:0], weights[3:]), strict=True):
            assert_array_equal(said, np.column_stack((points, mass)))
        assert played.ledger == (6, 8 * 3 * 8 + 3 * 2 * 2 * 8)
        assert [len(local) for local in played.local] == [0, 0, 0]
        assert np.isinf(played.state.local).all() and played.state.local.shape == (4, 1, 2)


@pytest.mark.parametrize("weights", [None, np.ones(8)], ids=["none", "ones"])
def test_weights_of_one_are_not_sent(weights):
    data = normal(0, [3, 0, 5])
    for method in ("lloyd", "cdkm"):
        played = serve(Central(2, method=method), data, weights=weights)
        for said, points in zip(played.uplinks[0], data, strict=True):
            assert_array_equal(said, points)
        assert played.ledger == (6, 8 * 2 * 8 + 3 * 2 * 2 * 8)


def test_one_weight_is_enough_for_all_clients_to_send_theirs():
    """Weights whose sum is the number of points are weights, too."""
    played = serve(Central(2), normal(0, [3, 0, 5]), weights=[1, 1, 1, 1, 1, 1, 0.5, 1.5])
    assert [said.shape for said in played.uplinks[0]] == [(3, 3), (0, 3), (5, 3)]


def test_the_centroids_are_those_of_the_baseline():
    data = normal(1, [30, 0, 25])
    weights = np.random.default_rng(1).integers(1, 4, 55).astype(float)
    played = serve(Central(6), data, weights=weights)
    pooled = PooledPoints(played.devices.points, played.devices.point_weights)
    assert_array_equal(played.model, cluster_centrally(played.devices, 6, pooled))


def test_two_clients_by_hand():
    data = [np.array([[0.0, 0.0], [10.0, 0.0]]), np.array([[0.0, 2.0], [10.0, 4.0], [10.0, 2.0]])]
    for method in ("lloyd", "cdkm"):
        model = serve(Central(2, method=method), data).model
        assert_allclose(model[np.argsort(model[:, 0])], [[0.0, 1.0], [10.0, 2.0]])


@FORMS
def test_one_move_by_hand(form):
    """0, 4 | 7: Lloyd stands still at 2 and 7; 4 costs 2 * 4 = 8 at home and 9 / 2 elsewhere. Nothing else moves."""
    points, ones = np.array([[0.0], [4.0], [7.0]]), np.ones(3)
    start = np.array([[2.0], [7.0]])
    still, _, _ = form.refine(points, ones, np.array([0, 3]), start[None], np.array([2]), 9, ones, False)
    assert_array_equal(still[0], start)
    centroids, cost = form.cdkm(points, ones, start, 300)
    assert_array_equal(centroids, [[0.0], [5.5]])
    assert cost == 4.5
    assert_array_equal(form.cdkm(points, ones, np.array([[1.0], [8.0]]), 0)[0], start)


@FORMS
@given(case=cases())
def test_no_start_is_raised_and_no_single_move_helps_in_the_end(form, case):
    points, weights, start = case
    centroids, cost = form.cdkm(points, weights, start, 300)
    labels = nearest(points, centroids)
    before = cost_of(points, weights, nearest(points, start))
    assert cost <= before * (1 + 1e-12) + 1e-12
    assert_allclose(cost, cost_of(points, weights, labels), atol=1e-9)
    for r in range(len(points)):
        for c in range(len(start)):
            trial = labels.copy()
            trial[r] = c
            if len(set(trial)) == len(set(labels)):
                assert cost_of(points, weights, trial) >= cost - 1e-9
    still, _, _ = form.refine(
        points, weights, np.array([0, len(points)]), centroids[None], np.array([len(start)]), 1, np.zeros(1), False
    )
    assert_allclose(still[0], centroids, atol=1e-9)


@given(case=cases())
def test_both_forms_give_the_same_bits(case):
    for limit in (0, 1, 300):
        one, other = plain.cdkm(*case, limit), compiled.cdkm(*case, limit)
        assert_array_equal(one[0], other[0])
        assert one[1] == other[1]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.sample(5)
def test_both_forms_give_the_same_bits_on_many_points(seed, d):
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(rng.integers(60, 300), d)).round(1), rng.random(300) + 0.01
    start = np.ascontiguousarray(np.unique(points, axis=0)[: rng.integers(1, 9)])
    one, other = (form.cdkm(points, weights[: len(points)], start, 300) for form in (plain, compiled))
    assert_array_equal(one[0], other[0])
    assert one[1] == other[1]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.sample(5)
def test_coordinate_descent_against_the_cost_of_the_whole_partition(seed):
    points = normal(seed, [25])[0]
    start = points[:4].copy()
    assert_allclose(compiled.cdkm(points, np.ones(25), start, 300)[0], descend(points, start), atol=1e-9)


@pytest.mark.parametrize("seed", [0, 3])
def test_coordinate_descent_begins_at_points_that_are_drawn_as_for_lloyd(seed):
    data, search = normal(seed, [15, 15]), Search(5, Stream.CENTRAL, limit=0)
    played, points = serve(Central(5, method="cdkm", n_init=1), data, seed=seed), np.concatenate(data)
    seeds, _, _ = cluster(plain, played.devices.shared_key, points, np.ones(30), search)
    assert not [one for one in seeds if not (points == one).all(axis=1).any()]
    assert_allclose(played.model, descend(points, seeds), atol=1e-9)


def test_the_best_of_several_starts_is_taken_and_coordinate_descent_beats_lloyd():
    data = normal(5, [40, 40])
    points, costs = np.concatenate(data), {}
    for method in ("lloyd", "cdkm"):
        for starts in (1, 2, 20):
            models = [serve(Central(8, method=method, n_init=starts), data, seed=seed).model for seed in range(10)]
            costs[method, starts] = np.array([cost_of(points, np.ones(80), nearest(points, w)) for w in models])
        assert (costs[method, 2] <= costs[method, 1] + 1e-9).all() and (costs[method, 2] < costs[method, 1] - 1).any()
        assert (costs[method, 20] <= costs[method, 2] + 1e-9).all()
    assert costs["cdkm", 1].sum() < costs["lloyd", 1].sum()


def test_hardly_any_points():
    for method in ("lloyd", "cdkm"):
        central = Central(3, method=method)
        assert central.name == ("central" if method == "lloyd" else "cdkm")
        assert_array_equal(serve(central, [[], [[1.0, 2.0]] * 5]).model, [[1.0, 2.0]])
        two = serve(central, [[[0.0, 0.0]] * 3, [[1.0, 2.0]] * 5]).model
        assert_array_equal(np.unique(two, axis=0), [[0.0, 0.0], [1.0, 2.0]])


@pytest.mark.parametrize("options", [{"k": 0}, {"method": "best"}, {"n_init": 0}])
def test_options_out_of_range(options):
    with pytest.raises(ExperimentError):
        Central(**{"k": 2, **options})
