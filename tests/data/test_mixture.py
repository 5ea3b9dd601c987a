"""Mixtures: sizes, tails and outliers are those that were asked for."""

import numpy as np
import pytest
from scipy.stats import kurtosis

import p2pkm
from tests.support.each import each


def test_sizes_are_a_geometric_sequence():
    X, y = p2pkm.mixture(clusters=4, points=1500, ratio=8, features=3, seed=2)
    assert X.shape == (1500, 3) and np.bincount(y).tolist() == [800, 400, 200, 100]
    assert np.bincount(p2pkm.mixture(clusters=3, points=9)[1]).tolist() == [3, 3, 3]


def test_tails_are_heavy():
    (gauss, y), (heavy, _) = (p2pkm.mixture(clusters=2, points=4000, freedom=f, seed=1) for f in (None, 3.0))
    for points, low, high in ((gauss, -0.3, 0.3), (heavy, 1.5, np.inf)):
        inner = np.concatenate([points[y == c] - np.median(points[y == c], axis=0) for c in (0, 1)])
        assert low < kurtosis(inner, axis=None) < high
    assert np.std(gauss[y == 0], axis=0) == pytest.approx(1, rel=0.1)


def test_outliers_are_far_and_belong_to_the_nearest_mean():
    X, y = p2pkm.mixture(clusters=5, points=1000, outliers=0.1, box=10, sd=0.0, seed=4)
    means, inside = np.unique(X, axis=0, return_counts=True)
    means = means[inside > 1]
    assert len(means) == 5 and inside[inside == 1].sum() == 100
    nearest = ((X[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert len(set(zip(nearest.tolist(), y.tolist(), strict=True))) == 5
    assert 10 < np.abs(X).max() <= 30


@each(
    ("options", "message"),
    [
        ({"ratio": 0.5}, "ratio is 0.5"),
        ({"outliers": 1.0}, "outliers is 1"),
        ({"outliers": -0.1}, "outliers"),
        ({"freedom": 0.0}, "freedom"),
        ({"points": 3, "clusters": 4}, "points"),
        ({"points": 10, "clusters": 5, "ratio": 1e6}, "expected more for 5 clusters"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        p2pkm.mixture(**options)


def test_breast_cancer():
    X, y = p2pkm.breast_cancer()
    assert X.shape == (569, 30) and np.bincount(y).tolist() == [212, 357]
