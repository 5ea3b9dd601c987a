"""Seeds of each device's own points."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.methods.init.local_kmeanspp import LocalKMeansPP
from tests.support.play_rounds import arrange


@pytest.mark.parametrize(("least", "found"), [(1, None), (2, [0.5, 10.5]), (3, [np.inf, np.inf])])
def test_seeds_are_points_or_where_these_may_not_be_sent_means_of_enough_of_them(least, found):
    points = np.array([0.0, 1.0, 10.0, 11.0])[:, None]
    devices = replace(arrange([points], []).devices, min_count=least)
    centroids = np.sort(LocalKMeansPP(2).initial_state(devices, None).centroids.ravel())
    assert set(centroids) <= set(points.ravel()) if found is None else assert_array_equal(centroids, found) is None


def test_means_that_are_sent_have_converged():
    points = np.random.default_rng(0).normal(size=(200, 2))
    devices = replace(arrange([points], []).devices, min_count=2)
    found = LocalKMeansPP(5).initial_state(devices, None).centroids
    assert_allclose(devices.refine(found, 1)[0], found)
