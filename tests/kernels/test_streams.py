"""Draws of random streams."""

import numpy as np

from p2pkm.kernels.streams import as_normal


def test_normal_draws_are_finite_and_symmetric_up_to_the_smallest_and_the_largest_uniform_one():
    draws = np.array([0, 1, 2**51, 2**52 - 1, 2**52, 3 * 2**51 - 1, 2**53 - 2, 2**53 - 1]) * 2.0**-53
    normal = as_normal(draws)
    assert np.isfinite(normal).all() and (np.diff(normal) > 0).all()
    np.testing.assert_allclose(normal, -normal[::-1], rtol=0.02, atol=1e-15)
