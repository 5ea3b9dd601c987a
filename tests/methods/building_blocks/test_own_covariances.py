"""Clusters with a covariance each: likelihood against SciPy, mergers, gaps counted by hand, and the same bits."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score

from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference
from p2pkm.methods.building_blocks import own_covariances
from p2pkm.methods.building_blocks.cluster_evidence import project
from tests.methods.building_blocks.test_number_of_clusters import as_rows, draw_long_clusters


def test_the_likelihood_is_that_of_gaussians_with_a_covariance_each():
    points, labels = draw_long_clusters(0), np.repeat(np.arange(4), 100)
    scores = project(compiled, 0, as_rows(points))
    expected = -0.5 * (3 + 8 + 12) * np.log(400)
    for c in range(4):
        part = points[labels == c]
        mean, covariance = part.mean(axis=0), np.cov(part.T, bias=True)
        expected += multivariate_normal(mean, covariance).logpdf(part).sum() + 100 * np.log(0.25)
    # Without the constant of the Gaussian and of the exponent. The prior is small, but its effect is not 0.
    found = own_covariances.likelihood(scores, labels) - 400 * (np.log(2.0 * np.pi) + 1.0)
    assert_allclose(found, expected, rtol=2e-3)
    half = own_covariances.likelihood(scores, labels, 0.5) - own_covariances.likelihood(scores, labels)
    assert_allclose(half, 0.25 * (3 + 8 + 12) * np.log(400))


def test_cells_are_merged_to_the_clusters():
    scores = project(compiled, 0, as_rows(draw_long_clusters(1)))
    partitions = own_covariances.partition(scores)
    assert [int(labels.max()) + 1 for labels in partitions][:5] == [1, 2, 3, 4, 5]
    assert adjusted_rand_score(partitions[3], np.repeat(np.arange(4), 100)) > 0.98


def test_a_gap_is_counted_in_windows_along_the_line_between_two_means():
    """Counted again by distances from the middle of every window."""
    places = [*np.linspace(-1.0, 1.0, 8), 3.0, 5.0, 7.0, *np.linspace(11.0, 13.0, 5), 9.5]
    labels = np.repeat([0, 1], [8, 9])
    scores = project(reference, 0, as_rows(np.array(places)[:, None]))
    mean = np.mean(places[8:])
    width = 0.25 * mean
    counts = {
        middle: [
            sum(abs(place - (middle + offset) * mean) <= 0.5 * width for place in places)
            for offset in np.linspace(-0.25, 0.25, 11)
        ]
        for middle in (0.0, 0.5, 1.0)
    }
    sparser, between = min(max(counts[0.0]), max(counts[1.0])), min(counts[0.5])
    gap = own_covariances.find_gap(scores, labels)
    assert_allclose(gap, [(sparser - between) / np.sqrt(sparser + between), between / sparser])
    even = project(reference, 0, as_rows(np.linspace(0.0, 1.0, 60)[:, None]))
    assert own_covariances.find_gap(even, np.arange(60) // 30).ratio > 0.8


def test_both_forms_of_the_kernels_divide_with_the_same_bits():
    rows = as_rows(draw_long_clusters(2, 40))
    found = [own_covariances.partition(project(kernels, 0, rows)) for kernels in (compiled, reference)]
    for one, other in zip(*found, strict=True):
        assert_array_equal(one, other)
