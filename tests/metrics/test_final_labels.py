"""The census at the end: every point of the sample with its device, class and cluster."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.metrics import final_labels


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.sample(3)
def test_the_sample_says_whose_points_they_are_and_what_they_are(monkeypatch, kept, known):
    draw = np.random.default_rng(0)
    X, classes, device = draw.normal(size=(30, 2)), draw.integers(0, 3, 30), draw.integers(0, 4, 30)
    monkeypatch.setattr(final_labels, "_LABELED", 30 if kept else 29)
    shards = p2pkm.Shards.deal(X, device, labels=classes if known else None)
    result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), shards, rounds=1, baselines=False)
    census, order = result.census, np.argsort(device, kind="stable")
    assert_array_equal(census.sample, X[order])
    assert_array_equal(census.sample_device, device[order])
    assert_array_equal(census.sample_class, classes[order] if known else np.full(30, -1))
    nearest = ((X[:, None] - result.centroids[device]) ** 2).sum(axis=2).argmin(axis=1)
    assert_array_equal(census.sample_cluster, nearest[order] if kept else np.full(30, -1))
    assert (census.labels is None) == (census.row is None) == (not kept)


def test_equal_points_far_from_their_centroid_do_not_deviate():
    points = [np.full((m, 2), (0.1, 77.7)) for m in (1, 7)] + [np.array([[0.1, 77.7], [0.1, 77.7 + 2.0**-10]])]
    shards = p2pkm.Shards.from_list(points)
    start = np.full((3, 1, 2), -0.3)
    result = p2pkm.simulate(p2pkm.GTVMin(1), topologies.path(3), shards, start=start, rounds=0, baselines=False)
    assert result.clusters.deviations[:2, 0].tolist() == [[0.0, 0.0]] * 2
    assert_allclose(result.clusters.deviations[2, 0], [0.0, 2.0**-11], rtol=1e-3)
    assert_allclose(result.clusters.means[:, 0], [part.mean(axis=0) for part in points], rtol=1e-14)
