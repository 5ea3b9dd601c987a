"""Every score of a run, computed once more by scikit-learn from the centroids, points and classes of its devices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment

import p2pkm
import topologies
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.metrics.summary import _score_groups

pytest.importorskip("sklearn", reason="scikit-learn, which judges the scores, is not installed")

from sklearn.cluster import KMeans
from sklearn.metrics import (
    adjusted_rand_score,
    normalized_mutual_info_score,
    pairwise_distances,
    pairwise_distances_argmin_min,
    silhouette_score,
)
from sklearn.metrics.cluster import contingency_matrix

N, K, D = 6, 4, 3
PLACES = np.random.default_rng(7).normal(0.0, 3.0, (K, D))
METHODS = {
    "gtvmin": p2pkm.GTVMin(K), "alone": p2pkm.LocalOnly(K), "consensus": p2pkm.ConsensusLloyd(K, gossips=2),
    "fkm": p2pkm.FKM(K), "kfed": p2pkm.KFED(K, local_k=2), "feca": p2pkm.FeCA(K),
}  # fmt: skip
NAMES = ("ari", "nmi", "purity")


def purity(truth, found):
    return contingency_matrix(truth, found).max(axis=0).sum() / len(truth)


SCORES = adjusted_rand_score, normalized_mutual_info_score, purity


def play(name):
    """Return the points and classes of all devices, and the result of a run on them."""
    rng = np.random.default_rng(1)
    sizes = [40, 25, 60, 12, 33, 50]
    classes = [rng.choice(K, size, p=rng.dirichlet(np.full(K, 0.7))) for size in sizes]
    points = [PLACES[kind] + rng.normal(0.0, 1.2, (len(kind), D)) for kind in classes]
    shards = p2pkm.Shards.from_list(points, labels=classes)
    method = METHODS[name]
    graph = None if needs_hub(method) else topologies.small_world(N, degree=2, seed=1)
    result = p2pkm.simulate(method, graph, shards, rounds=8, seed=2, silhouette=True, true_centers=PLACES)
    return points, classes, result


@pytest.fixture(
    scope="module",
    params=[name if name in {"gtvmin", "fkm"} else pytest.param(name, marks=pytest.mark.slow) for name in METHODS],
)
def run(request):
    return play(request.param)


def real(rows):
    return rows[np.isfinite(rows[:, 0])]


def assign(points, rows):
    return pairwise_distances_argmin_min(points, real(rows), metric="sqeuclidean")


def cost(points, rows):
    return assign(points, rows)[1].sum()


def test_cost_ratios(run):
    points, _, result = run
    pooled = np.concatenate(points)
    central = cost(pooled, result.central)
    ratios = [cost(pooled, rows) / central for rows in result.centroids]
    assert_allclose(result.ratios, ratios, rtol=1e-9)
    assert_allclose([result.summary["ratio_mean"], result.summary["ratio_worst"]], [np.mean(ratios), max(ratios)])


def test_the_central_baseline_is_where_k_means_stays_and_as_good_as_the_best_of_twenty(run):
    points, _, result = run
    pooled = np.concatenate(points)
    stays = KMeans(K, init=result.central, n_init=1, tol=0.0, algorithm="lloyd").fit(pooled)
    assert_allclose(stays.inertia_, cost(pooled, result.central), rtol=1e-9)
    best = KMeans(K, n_init=20, random_state=0, tol=0.0).fit(pooled).inertia_
    assert cost(pooled, result.central) <= 1.001 * best


def test_labels_are_scored_over_all_points_and_over_the_own_ones(run):
    points, classes, result = run
    pooled, truth = np.concatenate(points), np.concatenate(classes)
    for name, score in zip(NAMES, SCORES, strict=True):
        every = [score(truth, assign(pooled, rows)[0]) for rows in result.centroids]
        assert_allclose(result.summary[name], np.mean(every), rtol=1e-9, err_msg=name)
    own = np.split(result.census.labels, np.cumsum([len(part) for part in points])[:-1])
    for c, (name, score) in enumerate(zip(NAMES, SCORES, strict=True)):
        each = [score(kind, found) for kind, found in zip(classes, own, strict=True)]
        assert_allclose(result.census.scores[:, c], each, rtol=1e-9, err_msg=name)
        weighted = np.average(each, weights=[len(part) for part in points])
        assert_allclose(result.summary[f"{name}_clients"], weighted, rtol=1e-9, err_msg=name)


def test_silhouettes(run):
    points, _, result = run
    pooled = np.concatenate(points)
    rows = result.server_centroids if result.server_centroids is not None else result.centroids[result.best]
    labels = assign(pooled, rows)[0]
    assert_allclose(result.summary["silhouette"], silhouette_score(pooled, labels), rtol=1e-9)
    own, other = np.sort(pairwise_distances(pooled, real(rows)), axis=1)[:, :2].T
    assert_allclose(result.summary["simplified_silhouette"], np.mean((other - own) / other), rtol=1e-9)


def test_distance_to_the_true_centers(run):
    _, _, result = run
    sets = result.centroids if result.server_centroids is None else result.server_centroids[None]
    squares = [pairwise_distances(real(rows), PLACES, metric="sqeuclidean") for rows in sets]
    expected = [np.sqrt(one[linear_sum_assignment(one)].sum()) for one in squares]
    assert_allclose(result.summary["l2_centers"], np.mean(expected), rtol=1e-9)


def test_losses_at_the_server(run):
    points, _, result = run
    if result.server_centroids is None:
        assert result.summary["loss_global"] is None
        return
    pooled = np.concatenate(points)
    expected = cost(pooled, result.server_centroids) / cost(pooled, result.central)
    assert_allclose(result.summary["loss_global"], expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_groups(seed):
    rng = np.random.default_rng(seed)
    truth, found = rng.integers(0, 3, 20), rng.integers(0, 4, 20)
    found[:4] = range(4)
    marks = _score_groups(found, truth)
    assert marks["groups"] == 4
    assert_allclose(marks["groups_ari"], adjusted_rand_score(truth, found), atol=1e-12)
