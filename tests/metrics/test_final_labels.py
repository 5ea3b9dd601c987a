"""The census at the end: every point of the sample with its device, class and cluster."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.metrics import final_labels


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("known", [True, False])
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
