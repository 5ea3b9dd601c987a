"""Shares of the clusters at each device: an independent twin of update and objective, and labels by the same rule."""

import math

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.experiments.estimators.estimator import P2PKMeans
from p2pkm.methods.building_blocks.shares import count_excess, find_strength, penalize
from p2pkm.methods.init.coupling_estimate import CouplingEstimate
from p2pkm.methods.peer.gtvmin import GTVMin
from p2pkm.methods.schedules import make
from tests.support.play_rounds import arrange, describe, play

K = 3
CENTERS = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])


def world(seed, n=8):
    """Devices with centers and shares of their own, weights of points, and links with weights."""
    draws = np.random.default_rng(seed)
    points = []
    for _ in range(n):
        shares, size = draws.dirichlet(np.full(K, 0.4)), draws.integers(5, 50)
        clusters = draws.choice(K, size, p=shares)
        points.append(CENTERS[clusters] + 0.5 * draws.normal(size=(K, 2))[clusters] + draws.normal(size=(size, 2)))
    graph = nx.connected_watts_strogatz_graph(n, 4, 0.3, seed=seed)
    links = [(min(e), max(e), float(draws.integers(1, 3))) for e in graph.edges()]
    return points, links, draws.integers(1, 4, sum(map(len, points))).astype(float)


def begin(seed, *, coupling="bayes", schedule="colored", relaxation=1.0):
    """Batch, method with shares, and its state after the first estimate."""
    points, links, weights = world(seed)
    table = arrange(points, links, weights=weights)
    method = GTVMin(K, coupling=coupling, shares=True, schedule=schedule, relaxation=relaxation)
    stage = CouplingEstimate.of(method, describe(table))
    _, state = play(stage, table, np.repeat(CENTERS[None], len(points), axis=0), 1)
    return table, method, state


def assign(table, i, centroids, penalties):
    """Points, weights and labels of device i, and the sum of its distances and penalties."""
    points, weights = table.devices.table(i)
    costs = ((points[:, None] - centroids[i][None]) ** 2).sum(axis=2) + penalties[i]
    return points, weights, costs.argmin(axis=1), (weights * costs.min(axis=1)).sum()


def objective(table, state):
    """Sum of assignments, priors and differences of equal clusters, each link once."""
    devices, shares = table.devices, state.shares
    total = 0.0
    for i in range(len(devices)):
        total += assign(table, i, state.centroids, shares.penalties)[3]
        total += devices.unit * shares.prior[i] * shares.penalties[i].sum()
    for i, j, alpha in zip(devices.sources, devices.indices, state.edge_alpha, strict=True):
        total += alpha * ((state.centroids[i] - state.centroids[j]) ** 2).sum()  # each link twice: 2 alpha
    return total


def turns(table, method, begun, rounds):
    """Yield the batch and the states before and after each turn."""
    devices, network = table.devices, table.network
    schedule = make(method.schedule, devices, table.topology.colors)
    network.open()
    state = method.initial_state(devices, begun)
    inbox = network.exchange(method.message(state, devices.at_stage_start(schedule.opening)))
    for t in range(1, rounds + 1):
        for turn, awake in enumerate(schedule.turns(t)):
            now = devices.at_turn(t, turn, awake)
            before = state._replace(centroids=state.centroids.copy())
            state = method.update(state, inbox, now)
            inbox = network.exchange(method.message(state, now))
            yield now, before, state


@pytest.mark.parametrize("schedule", ["colored", "jacobi"])
@pytest.mark.parametrize("seed", range(3))
def test_a_turn_minimizes_over_shares_and_centroids(seed, schedule):
    table, method, begun = begin(seed, schedule=schedule, relaxation=0.7)
    for now, before, after in turns(table, method, begun, 3):
        for i in range(len(now)):
            if not now.active_devices[i]:
                assert_array_equal(after.centroids[i], before.centroids[i])
                assert_array_equal(after.shares.penalties[i], before.shares.penalties[i])
                continue
            points, weights, labels, _ = assign(table, i, before.centroids, before.shares.penalties)
            counts = np.bincount(labels, weights / now.unit, K)
            m0 = before.shares.prior[i]
            shares = (counts + m0) / (counts.sum() + K * m0)
            assert_allclose(after.shares.penalties[i], -2 * before.shares.noise[i] * np.log(shares), rtol=1e-10)
            for c in range(K):
                own = labels == c
                total, divisor = (weights[own, None] * points[own]).sum(axis=0), weights[own].sum()
                for e in np.flatnonzero(now.sources == i):
                    total = total + 2 * before.edge_alpha[e] * before.centroids[now.indices[e], c]
                    divisor += 2 * before.edge_alpha[e]
                moved = before.centroids[i, c] + 0.7 * (total / divisor - before.centroids[i, c])
                assert_allclose(after.centroids[i, c], moved, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("coupling", ["bayes", 2.0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(3)
def test_the_objective_falls_and_is_the_one_recorded(seed, coupling):
    table, method, begun = begin(seed, coupling=coupling, relaxation=1.4)
    assert coupling == "bayes" or begun.coupling is None
    values = []
    for now, _, state in turns(table, method, begun, 6):
        values.append(objective(table, state))
        terms = method.objective
        variation = terms.variation(now, state.centroids, now.indices)
        recorded = terms.add_terms(state, now).sum() + terms.penalties(state, now, variation).sum()
        nearest = sum(assign(table, i, state.centroids, np.zeros((len(now), K)))[3] for i in range(len(now)))
        assert recorded + nearest == pytest.approx(values[-1], rel=1e-12)
    assert (np.diff(values) <= 1e-9 * values[0]).all() and values[-1] < values[0]


def test_a_device_alone_and_points_without_noise():
    """s2 = 4 / (6 - 2), and the counts 4 and 2 vary less than at random: m0 is the largest one."""
    points = np.array([[0.0], [0.0], [2.0], [2.0], [9.0], [9.0]])
    for rows, noise in ((points, 1.0), (points[[0, 0, 0, 0, 4, 4]], 0.0)):
        table = arrange([rows], [])
        method = GTVMin(2, coupling=3.0, shares=True)
        start = np.array([[[1.0], [9.0]]])
        _, state = play(CouplingEstimate.of(method, describe(table)), table, start, 1)
        assert state.shares.noise.tolist() == [noise]
        expected = -2.0 * noise * np.log(np.array([[1004.0, 1002.0]]) / 2006.0)
        assert_allclose(state.shares.penalties, expected)


def test_penalties_and_strength_by_hand():
    found = penalize(np.array([[3.0, 1.0]]), np.array([0.5]), np.array([1.0]))
    assert_allclose(found.penalties, [[-math.log(4 / 6), -math.log(2 / 6)]])
    # (3 - 2)^2 + (1 - 2)^2 - 4 / 2 = 0, and (4 - 2)^2 + (0 - 2)^2 - 4 / 2 = 6; 4 * 3 / 2 = 6 for each device.
    assert_allclose(count_excess(np.array([[3.0, 1.0], [4.0, 0.0]])), [[0.0, 6.0], [6.0, 6.0]])
    assert find_strength(6.0, 12.0, 2) == (12 / 6 - 1) / 2
    assert find_strength(-1.0, 12.0, 2) == find_strength(0.0, 0.0, 2) == 1e3  # as even as at random


@pytest.mark.parametrize("strength", [0.3, 2.0])
def test_the_strength_of_a_dirichlet_distribution_is_found(strength):
    draws = np.random.default_rng(0)
    counts = np.array([draws.multinomial(40, draws.dirichlet(np.full(5, strength))) for _ in range(4_000)], float)
    assert find_strength(*count_excess(counts).sum(axis=0), 5) == pytest.approx(strength, rel=0.1)


def scatter(n=9, seed=0):
    draws = np.random.default_rng(seed)
    points, classes = [], []
    for _ in range(n):
        classes.append(draws.choice(K, 60, p=draws.dirichlet(np.full(K, 0.3))))
        points.append(0.7 * CENTERS[classes[-1]] + draws.normal(size=(60, 2)))
    return points, np.concatenate(classes)


@pytest.mark.parametrize("coupling", ["links", "strong"])
def test_labels_predictions_and_saved_results_use_the_same_rule(tmp_path, coupling):
    points, classes = scatter(seed=1)
    shards = p2pkm.Shards.from_list(points, labels=classes)
    results = [p2pkm.simulate(p2pkm.GTVMin(K, coupling=coupling, shares=shares), topologies.grid(9), shards)
               for shares in (True, False)]  # fmt: skip
    result, without = results
    assert result.summary["descent"] == "certified"
    penalties = result.label_penalties
    assert without.label_penalties is None and (penalties >= 0).all() and np.ptp(penalties) > 1
    expected = [(((x[:, None] - w) ** 2).sum(axis=2) + b).argmin(axis=1)
                for x, w, b in zip(points, result.centroids, penalties, strict=True)]  # fmt: skip
    assert_array_equal(result.labels, np.concatenate(expected))
    nearest = [
        ((x[:, None] - w) ** 2).sum(axis=2).argmin(axis=1) for x, w in zip(points, result.centroids, strict=True)
    ]
    assert (result.labels != np.concatenate(nearest)).any()
    result.save(tmp_path / "run")
    for one in (result, p2pkm.load(tmp_path / "run")):
        assert_array_equal(np.concatenate([one.predict(x, device=i) for i, x in enumerate(points)]), result.labels)
    scores = [one.census.scores[:, 0].mean() for one in results]
    assert scores[0] > scores[1] + 0.05


def test_test_points_are_labeled_by_the_same_rule():
    points, classes = scatter(seed=1)
    halves = [p2pkm.Shards.from_list([x[part] for x in points], labels=classes.reshape(9, 60)[:, part].ravel())
              for part in (slice(0, 40), slice(40, 60))]  # fmt: skip
    method = p2pkm.GTVMin(K, coupling="bayes", shares=True)
    result = p2pkm.simulate(method, topologies.grid(9), halves[0].with_tests(halves[1]))
    truth = classes.reshape(9, 60)[:, 40:]
    expected = [adjusted_rand_score(truth[i], result.predict(points[i][40:], device=i)) for i in range(9)]
    assert_allclose(result.devices["test_ari"], expected)


def test_an_estimator_predicts_for_a_device_by_the_same_rule():
    points, _ = scatter()
    rows, devices = np.concatenate(points), np.repeat(np.arange(9), 60)
    model = P2PKMeans(K, algorithm="gtvmin:coupling=bayes,shares=true", graph=topologies.grid(9), random_state=0)
    model.fit(rows, devices=devices)
    labels = model.predict(rows, devices=devices)
    assert_array_equal(labels, model.result_.labels)
    distances = ((rows - model.device_centers_[devices, labels]) ** 2).sum()
    assert model.score(rows, devices=devices) == pytest.approx(-distances)


@pytest.mark.parametrize(("options", "refusal"), [
    ({}, "requires coupling=bayes"),
    ({"alpha": 3.0}, "requires coupling=bayes"),
    ({"coupling": "bayes", "swaps": True}, "cannot be combined with swaps"),
    ({"coupling": "links", "local_steps": 2}, "cannot be combined with local_steps=2"),
    ({"coupling": "bayes", "schedule": "jacobi", "safeguard": True}, "cannot be combined with safeguard"),
])  # fmt: skip
def test_shares_need_the_noise_and_the_plain_update(options, refusal):
    with pytest.raises(ExperimentError, match=f"shares=true {refusal}[:, ]"):
        GTVMin(K, shares=True, **options)
