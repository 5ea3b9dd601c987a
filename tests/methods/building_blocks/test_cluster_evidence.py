"""Evidence for several clusters: against formulas in matrix notation, and on points whose gaps are known."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.core.batch import Stream
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks import cluster_evidence as evidence
from p2pkm.methods.building_blocks.breathing import search_centroids
from p2pkm.methods.building_blocks.weighted_rows import Rows


def draw_rows(r, d, seed, within=0.0):
    """Return rows around three places with weights from 1 to 4."""
    rng = np.random.default_rng(seed)
    means = 6.0 * rng.normal(size=(3, d))[np.arange(r) % 3] + rng.normal(size=(r, d)) @ rng.normal(size=(d, d))
    return Rows(means, rng.integers(1, 5, r).astype(float), np.full(r, within))


@pytest.mark.parametrize("p", [1, 2, 5, 10])
def test_rotations_diagonalize_a_matrix(p):
    half = np.random.default_rng(p).normal(size=(p, p))
    matrix = half @ half.T
    values, axes = evidence.diagonalize(matrix)
    assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), rtol=1e-10, atol=1e-12)
    assert_allclose(axes @ np.diag(values) @ axes.T, matrix, atol=1e-10)
    assert_allclose(axes.T @ axes, np.eye(p), atol=1e-12)


@pytest.mark.parametrize("d", [2, 4, 25])
def test_rows_are_projected_on_their_leading_principal_axes(d):
    rows = draw_rows(60, d, 1)
    scores = evidence.project(compiled, 3, rows)
    mean = np.average(rows.means, axis=0, weights=rows.weights)
    covariance = np.cov(rows.means.T, aweights=rows.weights, ddof=0)
    values = np.linalg.eigvalsh(covariance)[::-1][: scores.values.shape[1]]
    assert scores.values.shape == (60, min(d, 10))
    few = values[:4]  # orthogonal iteration settles those that are far apart first
    assert_allclose(scores.spreads[: len(few)] ** 2, few, rtol=1e-9 if d <= 10 else 0.02)
    assert_allclose(
        np.cov(scores.values.T, aweights=rows.weights, ddof=0), np.diag(scores.spreads**2), atol=1e-9 * few[0]
    )
    if d <= 10:  # a rotation
        assert_allclose((scores.values**2).sum(axis=1), ((rows.means - mean) ** 2).sum(axis=1), rtol=1e-10)
    assert_allclose(np.cov(scores.whitened.values.T, aweights=rows.weights, ddof=0), np.eye(min(d, 10)), atol=1e-9)


def test_of_many_rows_a_thousand_are_examined():
    rows = Rows(np.random.default_rng(0).normal(size=(1500, 2)), np.ones(1500), np.zeros(1500))
    assert evidence.project(compiled, 3, rows).values.shape == (1000, 2)


def test_axes_without_spread_are_left_out():
    rows = draw_rows(40, 2, 2)
    wide = Rows(np.column_stack((rows.means, rows.means[:, 0] * 2.0, np.ones(40))), rows.weights, rows.within)
    assert evidence.project(compiled, 3, wide).values.shape == (40, 2)


@pytest.mark.parametrize(("d", "k"), [(1, 2), (2, 1), (3, 4)])
def test_the_likelihood_is_that_of_gaussians_with_one_covariance(d, k):
    rows = draw_rows(50, d, 5, within=0.7)
    scores = evidence.project(compiled, 3, rows)
    centers = search_centroids(compiled, 3, scores.values, scores.weights, k, most=3, seedings=8)[0]
    labels = ((scores.values[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    m, p = rows.weights.sum(), scores.values.shape[1]
    spread, shares = np.eye(p) * rows.within.sum() / d, 0.0
    for c in range(k):
        mine = labels == c
        n = rows.weights[mine].sum()
        away = scores.values[mine] - np.average(scores.values[mine], axis=0, weights=rows.weights[mine])
        spread = spread + (away * rows.weights[mine, None]).T @ away
        shares += n * np.log(n / m)
    expected = shares - m / 2 * np.linalg.slogdet(spread / (m - k))[1]
    expected -= (k - 1 + k * p + p * (p + 1) / 2) / 2 * np.log(m)
    assert_allclose(evidence.likelihood(scores, scores, k), expected, rtol=1e-9)


def test_separation_is_a_sum_of_two_scores_against_boxes():
    rows = draw_rows(45, 2, 7, within=0.3)
    scores = evidence.project(compiled, 9, rows)
    m, k = rows.weights.sum(), 3

    def measure(values):
        centers = search_centroids(compiled, 9, values, rows.weights, k, most=0, seedings=8)[0]
        away = ((values[:, None] - centers) ** 2).sum(axis=2)
        order = away.argsort(axis=1)
        first, second = np.sort(away, axis=1)[:, :2].T
        apart = ((centers[order[:, 0]] - centers[order[:, 1]]) ** 2).sum(axis=1)
        mean = np.average(values, axis=0, weights=rows.weights)
        total = (rows.weights * ((values - mean) ** 2).sum(axis=1)).sum() + rows.within.sum()
        cost = (rows.weights * first).sum() + rows.within.sum()
        return np.array([np.log(cost / total), rows.weights[(second - first) / apart < 0.4].sum() / m])

    low, high = scores.values.min(axis=0), scores.values.max(axis=0)
    draws = uniforms(9, Stream.INDEX, range(1 << 21, (1 << 21) + 20), 90).reshape(20, 45, 2)
    boxes = np.array([measure(low + (high - low) * draw) for draw in draws])
    expected = ((boxes.mean(axis=0) - measure(scores.values)) / boxes.std(axis=0, ddof=1)).sum()
    assert_allclose(evidence.separation(scores, k), expected, rtol=1e-9)


def test_gaps_divide_clusters_into_groups():
    """Six pieces of a line, two of them apart from the others by an empty part: two groups; without it one."""
    line = np.concatenate((np.linspace(0, 4, 200), np.linspace(7, 9, 100)))[:, None]
    found = []
    for points in (line, np.linspace(0, 9, 300)[:, None]):
        scores = evidence.project(compiled, 0, Rows(points, np.ones(300), np.zeros(300)))
        found.append(evidence.count_separated(scores, 6))
    assert found == [2, 1]


def test_both_forms_of_the_kernels_give_the_same_bits():
    rows = draw_rows(40, 3, 11, within=0.2)
    found = []
    for kernels in (compiled, reference):
        scores = evidence.project(kernels, 4, rows)
        found.append([evidence.likelihood(scores, scores.whitened, 3), evidence.separation(scores, 3)])
    assert_array_equal(*found)
