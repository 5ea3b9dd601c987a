"""Local steps after a common clustering, and Ditto: a case by hand, a naive twin, limits, and what must not change."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

import p2pkm
import topologies
from p2pkm.engine.loop import Start
from p2pkm.methods.tree.local_steps import LocalSteps
from tests.support.play_rounds import arrange
from tests.support.sampling import thin


def draw(n=6, m=20, k=4, d=2, seed=0):
    """Draw points of n devices around centers of their own; device 1 has no points, device 2 has equal points."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0, 15, (k, d))
    data = [(centers + rng.normal(size=(k, d)))[rng.integers(0, k, m)] + rng.normal(size=(m, d)) for _ in range(n)]
    data[1], data[2] = np.zeros((0, d)), np.repeat(data[2][:1], 5, axis=0)
    return data, centers


def fit(points, weights, common, steps, pull):
    """Move centroids by steps that are exact for fixed labels, one point after the other."""
    rows = [list(row) for row in common]
    for _ in range(steps):
        sums = [[pull * x for x in row] for row in common]
        masses = [pull] * len(common)
        for point, weight in zip(points.tolist(), weights.tolist(), strict=True):
            distances = [sum((a - b) ** 2 for a, b in zip(point, row, strict=True)) for row in rows]
            nearest = distances.index(min(distances))
            masses[nearest] += weight
            sums[nearest] = [a + weight * b for a, b in zip(sums[nearest], point, strict=True)]
        rows = [
            [x / mass for x in total] if mass > 0 else row for row, total, mass in zip(rows, sums, masses, strict=True)
        ]
    return np.array(rows)


def run(method, data, *, graph=None, weights=None, **options):
    shards = p2pkm.Shards.from_list(data) if weights is None else p2pkm.Shards.from_list(data, weights=weights)
    return p2pkm.simulate(method, graph, shards, **options)


def test_two_clients_by_hand():
    """The points are at their common centroids, except for those of the second client around 10."""
    data = [np.array([[0.0], [0.0], [10.0], [10.0]]), np.array([[0.0], [12.0], [12.0]])]
    start = np.array([[[0.0], [10.0]]] * 2)
    common = run(p2pkm.FedLloyd(2), data, start=start).centroids[0]
    low, high = common[:, 0]
    assert_allclose(high, 11.0, atol=0.2)
    found = run(p2pkm.Ditto(2, pull=1.0), data, start=start).centroids[:, :, 0]
    assert_allclose(found, [[low / 3, (20 + high) / 3], [low / 2, (24 + high) / 3]], rtol=1e-12)
    found = run(p2pkm.FedLloyd(2, local_steps=1), data, start=start).centroids[:, :, 0]
    assert_allclose(found, [[0, 10], [0, 12]], atol=1e-12)


@pytest.mark.parametrize(("steps", "pull", "weighted"), thin(product([1, 3, 100], [0.0, 0.7, 20.0], [False, True]), 5))
@pytest.mark.sample(3)
def test_the_twin_finds_the_same_centroids(steps, pull, weighted):
    for seed in range(3):
        data, _ = draw(seed=seed)
        rng = np.random.default_rng(seed)
        weights = [rng.uniform(0.5, 4.0, len(points)) if weighted else np.ones(len(points)) for points in data]
        given = {"weights": weights} if weighted else {}
        common = run(p2pkm.FedLloyd(4), data, **given)
        result = run(p2pkm.FedLloyd(4, local_steps=steps, pull=pull), data, **given)
        # The pull is in points of mean weight.
        unit = np.concatenate(weights).mean()
        twin = [
            fit(*device, common.centroids[0], steps, pull * unit) for device in zip(data, weights, strict=True)
        ]  # fmt: skip
        assert_allclose(result.centroids, twin, rtol=1e-10, atol=1e-10)
        # The server has the common ones, and local steps send nothing.
        assert_array_equal(result.server_centroids, common.centroids[0])
        for name in ("messages", "bytes", "wire_bytes", "rounds", "termination", "descent"):
            assert result.summary[name] == common.summary[name]
        # The objective is the local losses and the pull.
        losses = sum(
            (w * ((x[:, None] - rows) ** 2).sum(axis=2).min(axis=1)).sum()
            for x, w, rows in zip(data, weights, twin, strict=True)
        )
        penalty = pull * unit * ((np.array(twin) - common.centroids) ** 2).sum()
        assert_allclose(result.summary["objective"], losses + penalty, rtol=1e-9)


def test_a_tree_gives_the_same_centroids_as_a_server():
    data, start = draw(seed=1)
    start = np.array([start] * len(data))
    server = run(p2pkm.Ditto(4, pull=2.0), data, start=start)
    for graph in (topologies.ring(6), topologies.path(6)):
        result = run(p2pkm.TreeLloyd(4, local_steps=100, pull=2.0), data, graph=graph, start=start)
        assert_array_equal(result.centroids, server.centroids)
        assert result.summary["centroid_sets"] == 6 and result.summary["local_steps"] == 100


def test_limits_of_the_pull():
    data, _ = draw(seed=2)
    common = run(p2pkm.FedLloyd(4), data).centroids
    assert_allclose(run(p2pkm.Ditto(4, pull=1e9), data).centroids, common, atol=1e-6)
    alone = run(p2pkm.Ditto(4, pull=0.0), data).centroids
    for points, rows, start in zip(data, alone, common, strict=True):
        labels = ((points[:, None] - start) ** 2).sum(axis=2).argmin(axis=1)
        # scikit-learn moves empty clusters; here they stay.
        if len(set(labels)) == 4:
            fitted = KMeans(4, init=start, n_init=1, tol=0.0).fit(points)
            assert_allclose(rows, fitted.cluster_centers_, rtol=1e-9)


@pytest.mark.slow
def test_steps_never_increase_the_objective():
    data, _ = draw(seed=3, m=60)
    found = [run(p2pkm.Ditto(4, pull=0.5, local_steps=steps), data).summary["objective"] for steps in range(1, 8)]
    found.insert(0, run(p2pkm.FedLloyd(4), data).summary["objective"])
    assert found == sorted(found, reverse=True) and found[0] > found[1] > found[-1]


def test_a_device_does_not_depend_on_the_others_of_its_batch():
    data, start = draw(n=5, seed=4, m=50)
    stage = LocalSteps(4, 100, 0.3)

    def play(points):
        devices = arrange(points, [(i, i + 1) for i in range(len(points) - 1)]).devices
        return stage.initial_state(devices, Start(np.array([start] * len(points)), np.ones(len(points), np.bool_)))

    # A batch without any points has no mean weight.
    data = [points for points in data if len(points)]
    whole = play(data)
    for i, points in enumerate(data):
        alone = play([points])
        assert_array_equal(alone.centroids[0], whole.centroids[i])
        assert alone.converged[0] == whole.converged[i]


def test_points_far_from_the_origin_lose_no_digits():
    data, start = draw(seed=5)
    near = run(p2pkm.Ditto(4), data, start=np.array([start] * 6)).centroids
    far = run(p2pkm.Ditto(4), [points + 2.0**30 for points in data], start=np.array([start + 2.0**30] * 6)).centroids
    assert_allclose(far - 2.0**30, near, atol=1e-5)


def test_cluster_numbers_keep_their_meaning():
    shards = p2pkm.device_clusters(graph="torus", devices=9, points=20, amplitude=0.7, seed=1).shards
    result = p2pkm.simulate(p2pkm.TreeLloyd(4, local_steps=3), topologies.torus(9), shards)
    common = p2pkm.simulate(p2pkm.TreeLloyd(4), topologies.torus(9), shards)
    assert result.summary["test_ari_all"] > common.summary["test_ari_all"] - 0.1
    assert result.summary["test_ratio_common"] < common.summary["test_ratio_common"]
    assert not result.summary["no_correspondence"]
    # Leaving the common clustering is not a loss of quality.
    assert result.summary["ratio_best"] is None and not any("decreased" in note for note in result.notes)


@pytest.mark.parametrize("options", [{"groups": 2}, {"search": "breathing"}])
@pytest.mark.sample(2)
def test_groups_and_searches_come_first(options):
    data = draw(seed=6, m=40)[0]
    graph = topologies.ring(6)
    before = run(p2pkm.TreeLloyd(4, **options), data, graph=graph)
    result = run(p2pkm.TreeLloyd(4, local_steps=2, **options), data, graph=graph)
    twin = [fit(x, np.ones(len(x)), rows, 2, 0.0) for x, rows in zip(data, before.centroids, strict=True)]
    assert_allclose(result.centroids, twin, rtol=1e-10)
    if result.groups is not None:
        assert_array_equal(result.groups, before.groups)


def test_options_that_exclude_each_other():
    with pytest.raises(p2pkm.ExperimentError, match="pull is 2 without local steps"):
        p2pkm.FedLloyd(3, pull=2.0)
    with pytest.raises(p2pkm.ExperimentError, match="cannot follow a stream"):
        run(p2pkm.TreeLloyd(3, local_steps=1), draw()[0], graph=topologies.ring(6), stream="drawn:kind=slow")
