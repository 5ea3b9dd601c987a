"""Indices for the number of clusters: against their formulas on points, against scikit-learn, and the rule."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import calinski_harabasz_score

from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.breathing import search_centroids
from p2pkm.methods.building_blocks.number_of_clusters import COLUMNS, Decision, Verdict, decide, prefer, tabulate
from p2pkm.methods.building_blocks.weighted_rows import Rows
from tests.support.sampling import thin


def clusters(k, points, seed, sd=0.3, d=2):
    """Return points of k Gaussians around distinct places of a grid."""
    rng = np.random.default_rng(seed)
    places = rng.permutation(36)[:k]
    centers = np.zeros((k, d))
    centers[:, 0], centers[:, 1] = 4.0 * (places // 6), 4.0 * (places % 6)
    return np.concatenate([center + rng.normal(0, sd, (points, d)) for center in centers])


def as_rows(points, weights=None):
    """Return every point as a row."""
    return Rows(points, np.ones(len(points)) if weights is None else weights, np.zeros(len(points)))


def choose(rows, most, kernels=compiled, seed=0):
    """Return the decision on the number of clusters of rows."""
    return decide(kernels, seed, rows, tabulate(kernels, seed, rows, most))


def column(table, name):
    """Return an index for k = 1, 2, ..."""
    return table[:, COLUMNS.index(name)]


@pytest.mark.parametrize(("d", "seed"), [(2, 0), (3, 1)])
def test_indices_of_points_are_those_of_the_formulas(d, seed):
    points = clusters(4, 12, seed, sd=0.8, d=d)
    m, table = len(points), tabulate(compiled, 5, as_rows(points), 6)
    costs = column(table, "cost")
    assert_allclose(costs[0], ((points - points.mean(axis=0)) ** 2).sum(), rtol=1e-12)
    for k in range(2, 7):
        centers, cost = search_centroids(compiled, 5, points, np.ones(m), k, most=3, seedings=8)
        away = np.sqrt(((points[:, None] - centers) ** 2).sum(axis=2))
        labels = away.argmin(axis=1)
        assert_allclose(costs[k - 1], cost, rtol=1e-12)
        assert_allclose(column(table, "ch")[k - 1], calinski_harabasz_score(points, labels), rtol=1e-9)
        assert_allclose(column(table, "wb")[k - 1], k * cost / (costs[0] - cost), rtol=1e-12)
        assert_allclose(column(table, "xu")[k - 1], d * np.log(np.sqrt(cost / (d * m**2))) + np.log(k), rtol=1e-12)
        own, other = np.sort(away, axis=1)[:, :2].T
        assert_allclose(column(table, "silhouette")[k - 1], np.mean((other - own) / other), rtol=1e-9)
        jump = (cost / costs[0]) ** (-d / 2) - (costs[k - 2] / costs[0]) ** (-d / 2)
        assert_allclose(column(table, "jump")[k - 1], jump, rtol=1e-9)
        counts = np.bincount(labels)
        variance = cost / (d * (m - k))
        likelihood = sum(n * np.log(n / m) for n in counts) - m * d / 2 * np.log(2 * np.pi * variance) - d * (m - k) / 2
        assert_allclose(column(table, "bic")[k - 1], likelihood - (k - 1 + k * d + 1) / 2 * np.log(m), rtol=1e-9)
        spread = [np.sqrt((away[labels == c, c] ** 2).mean()) for c in range(k)]
        worst = [
            max((spread[a] + spread[b]) / np.linalg.norm(centers[a] - centers[b]) for b in range(k) if a != b)
            for a in range(k)
        ]
        assert_allclose(column(table, "db")[k - 1], np.mean(worst), rtol=1e-9)
    assert np.isnan(column(table, "ch")[0]) and np.isfinite(column(table, "bic")[0])


def test_indices_of_the_curve_are_those_of_the_formulas():
    for d in (2, 3):
        table = tabulate(compiled, 5, as_rows(clusters(4, 12, d, sd=0.8, d=d)), 7)
        costs = {k: cost for k, cost in enumerate(column(table, "cost"), 1)}
        fall = {k: (k - 1) ** (2 / d) * costs[k - 1] - k ** (2 / d) * costs[k] for k in range(2, 8)}
        for k in range(2, 7):
            assert_allclose(column(table, "kl")[k - 1], abs(fall[k] / fall[k + 1]), rtol=1e-9)
            bend = np.log(costs[k - 1] * costs[k + 1] / costs[k] ** 2)
            assert_allclose(column(table, "elbow")[k - 1], bend, rtol=1e-9, atol=1e-12)
        for k in costs:
            line = costs[1] + (costs[7] - costs[1]) * (k - 1) / 6  # how far the curve is below its chord
            below = (line - costs[k]) / (costs[1] - costs[7])
            assert_allclose(column(table, "kneedle")[k - 1], below, rtol=1e-9, atol=1e-12)
        assert np.isnan(column(table, "kl")[[0, 6]]).all() and np.isnan(column(table, "elbow")[[0, 6]]).all()
        assert prefer(table)["kl"] == 1 + np.nanargmax(column(table, "kl"))


def test_gap_and_prediction_strength_find_separate_clusters():
    points = clusters(4, 30, 1)
    table = tabulate(compiled, 0, as_rows(points), 8)
    gaps, strengths = column(table, "gap"), column(table, "strength")
    assert prefer(table)["gap"] == 4 == prefer(table)["strength"]
    assert_allclose(strengths[[0, 3]], 1.0)
    assert (strengths[4:] < 0.8).all() and ((strengths >= 0) & (strengths <= 1)).all()
    # one cluster: ln of the variance of a uniform box over that of the points, five references of 120 points
    box = np.ptp(points, axis=0)
    assert abs(gaps[0] - np.log(len(points) * (box**2 / 12).sum() / column(table, "cost")[0])) < 0.1
    one = tabulate(compiled, 0, as_rows(np.random.default_rng(0).normal(size=(200, 2))), 8)
    assert prefer(one)["strength"] == 1


def test_prediction_strength_prefers_the_largest_number_that_is_strong():
    table = np.full((5, len(COLUMNS)), np.nan)
    table[:, COLUMNS.index("strength")] = [1.0, 0.9, 0.3, 0.85, np.nan]
    assert prefer(table)["strength"] == 4


@pytest.mark.parametrize("alone", [0, 1])  # a cluster without pairs in one half
def test_prediction_strength_is_that_of_all_pairs(alone):
    points, k = np.concatenate((clusters(3, 8, 1, sd=3.0), np.full((alone, 2), 99.0))), 3 + alone
    strengths, m = column(tabulate(compiled, 7, as_rows(points), k), "strength"), len(points)
    first = np.argsort(uniforms(7, Stream.INDEX, [0], m)[0], kind="stable") < m // 2
    halves = [points[first], points[~first]]
    sets = [cluster(compiled, 7, half, np.ones(len(half)), Search(k, Stream.INDEX, 3))[0] for half in halves]
    found = []
    for half, own, other in zip(halves, sets, sets[::-1], strict=True):
        mine, theirs = (((half[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1) for centers in (own, other))
        shares = []
        for c in range(k):
            here = np.flatnonzero(mine == c)
            pairs = [(i, j) for i in here for j in here if i != j]
            shares.append(np.mean([theirs[i] == theirs[j] for i, j in pairs]) if pairs else 1.0)
        found.append(min(shares))
    assert_allclose(strengths[k - 1], np.mean(found), rtol=1e-12)
    assert 0.0 < np.mean(found) < 1.0


def test_rows_count_what_they_stand_for():
    """Rows of whole clusters keep T and, from the right k on, J_k; so CH there is that of the points."""
    points = clusters(5, 40, 3)
    labels = np.repeat(np.arange(5), 40)
    fine = as_rows(points).merge(np.repeat(np.arange(40), 5), points[::5])
    table, exact = tabulate(compiled, 1, fine, 5), calinski_harabasz_score(points, labels)
    assert_allclose(column(table, "cost")[0], ((points - points.mean(axis=0)) ** 2).sum(), rtol=1e-9)
    assert_allclose(column(table, "ch")[4], exact, rtol=1e-9)


@pytest.mark.parametrize("k", thin(range(2, 8), 2))
@pytest.mark.sample(3)
def test_the_rule_finds_separate_clusters(k):
    assert choose(as_rows(clusters(k, 30, k)), 12) == Decision(k, Verdict.CLEAR)


def turned(points, seed):
    """Return the points after a random rotation."""
    d = points.shape[1]
    return points @ np.linalg.qr(np.random.default_rng([seed, 1]).normal(size=(d, d)))[0]


@pytest.mark.parametrize(("d", "ratio"), thin([(1, 1), (2, 1), (2, 2), (2, 6), (2, 30), (3, 10), (5, 4), (12, 3)], 5))
@pytest.mark.sample(2)
def test_one_gaussian_of_any_shape_has_no_clear_clusters(d, ratio):
    for seed in range(2):
        points = np.random.default_rng(seed).normal(size=(200, d))
        points[:, 0] *= ratio
        assert choose(as_rows(turned(points, seed)), 10) == Decision(1, Verdict.NONE)


@pytest.mark.parametrize("draw", thin([
    lambda rng: rng.exponential(size=(300, 2)),
    lambda rng: rng.laplace(size=(300, 2)),
    lambda rng: rng.standard_t(3, size=(300, 2)),
    lambda rng: rng.uniform(size=(300, 2)) * [4.0, 1.0],
], 4))  # fmt: skip
def test_one_cluster_that_is_skewed_has_heavy_tails_or_borders_is_one(draw):
    for seed in range(2):
        assert choose(as_rows(draw(np.random.default_rng(seed))), 12).k == 1


@pytest.mark.parametrize(("sides", "apart"), thin([((10.0, 1.0), (0, 5)), ((10.0, 1.0), (50, 0)), ((1.0, 0.1), (0, 5)),
                                              ((3.0, 1.0), (0, 6))], 4))  # fmt: skip
def test_long_clusters_are_counted_once(sides, apart):
    """Calinski-Harabasz cuts them; BIC with a common covariance does not."""
    for seed in range(2):
        points = np.random.default_rng(seed).normal(size=(2, 150, 2)) * sides
        points[1] += apart
        rows = as_rows(turned(points.reshape(-1, 2), seed))
        assert prefer(tabulate(compiled, 0, rows, 12))["ch"] > 2
        assert choose(rows, 12) == Decision(2, Verdict.CLEAR)


def test_a_cluster_much_larger_than_the_others_is_not_cut():
    rng = np.random.default_rng(3)
    places = np.repeat([[0, 0], [7, 0], [0, 7], [7, 7], [14, 0], [14, 7]], [20, 20, 20, 40, 80, 640], axis=0)
    assert choose(as_rows(places + rng.normal(size=places.shape)), 12).k == 6


@pytest.mark.parametrize("seed", thin(range(2), 2))
def test_the_parts_of_a_ring_are_unclear(seed):
    angle, radius = np.random.default_rng(seed).uniform(0, 1, (2, 600))
    radius = 4.0 + 2.0 * radius
    angle *= 2.0 * np.pi
    found = choose(as_rows(np.column_stack((radius * np.cos(angle), radius * np.sin(angle)))), 20)
    assert found.verdict is Verdict.UNCLEAR


def draw_long_clusters(seed, points=100):
    """Return four long Gaussians, each in its own direction."""
    rng = np.random.default_rng(seed)
    parts = []
    for center, angle in zip([(0, 0), (16, 0), (0, 16), (16, 16)], rng.uniform(0.0, np.pi, 4), strict=True):
        axes = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        parts.append(center + rng.normal(size=(points, 2)) * [4.0, 0.6] @ axes)
    return np.concatenate(parts)


@pytest.mark.parametrize("seed", thin(range(3), 3))
def test_long_clusters_of_different_directions_are_counted_once(seed):
    """Neither spheres of one size nor clusters with one covariance describe them."""
    rows = as_rows(draw_long_clusters(seed))
    assert prefer(tabulate(compiled, 0, rows, 12))["ch"] > 4
    assert choose(rows, 12) == Decision(4, Verdict.CLEAR)


def test_clusters_that_touch_are_unclear():
    """Three round clusters, 4 standard deviations apart: their number is found, with few empty places between them."""
    rng = np.random.default_rng(1)
    points = np.repeat([[0, 0], [3.3, 0], [1.65, 2.86]], 80, axis=0) + rng.normal(size=(240, 2))
    assert choose(as_rows(points), 8) == Decision(3, Verdict.UNCLEAR)


def test_points_that_are_alike_or_few_are_one_cluster():
    alike = as_rows(np.ones((9, 2)))
    assert choose(alike, 5, reference) == Decision(1, Verdict.NONE)
    assert np.isnan(tabulate(reference, 0, alike, 5)[1:]).all()
    single = as_rows(np.ones((1, 2)))
    assert choose(single, 1, reference).k == 1 and tabulate(reference, 0, single, 1)[0, 0] == 0.0
    assert decide(reference, 0, single, np.full((1, len(COLUMNS)), np.nan)) == Decision(1, Verdict.NONE)


def test_fewer_rows_than_two_for_each_cluster_leave_k_unclear():
    found = choose(as_rows(np.array([[0.0], [1.0], [5.0], [7.0]])), 6, reference)
    assert found.k > 2 and found.verdict is Verdict.UNCLEAR


@pytest.mark.parametrize(("points", "verdict"), [(8, Verdict.UNCLEAR), (9, Verdict.CLEAR)])
@pytest.mark.sample(2)
def test_few_distinct_points_are_as_many_clusters_and_clear_from_nine_points_each(points, verdict):
    """A window of n points differs from an empty one by sqrt(n) standard deviations, and 3 are required."""
    rows = as_rows(np.repeat(np.array([[0.0, 0.0], [5.0, 1.0], [9.0, 9.0]]), points, axis=0))
    table = tabulate(reference, 0, rows, 5)
    assert np.isnan(table[3:]).all() and table[2, 0] == 0.0
    assert decide(reference, 0, rows, table) == Decision(3, verdict)


def test_there_is_no_index_of_as_many_clusters_as_points_and_two_points_are_one_pair():
    table = tabulate(reference, 0, as_rows(np.array([[0.0], [1.0], [5.0], [7.0]])), 6)
    assert np.isfinite(column(table, "cost")[:3]).all() and np.isnan(table[3:]).all()
    assert column(table, "strength")[0] == 1.0  # of halves of two points


@pytest.mark.slow
def test_both_forms_of_the_kernels_choose_with_the_same_bits():
    rows = as_rows(clusters(4, 15, 8, sd=1.0), np.arange(1.0, 61.0))
    assert_array_equal(tabulate(compiled, 3, rows, 7), tabulate(reference, 3, rows, 7))
    assert choose(rows, 7, compiled, 3) == choose(rows, 7, reference, 3)
