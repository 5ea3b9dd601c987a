"""GTVMin on instances so small that all assignments can be tried, and SciPy's search around its end."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import p2pkm
from tests.support.play_rounds import arrange, last, objective

N, K = 3, 2
LINKS = [(0, 1, 1.0), (1, 2, 0.5)]
SEEDS = (1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow))


def instance(seed):
    """Return 10 points on 3 devices and the method, which goes by the exact equation."""
    rng = np.random.default_rng(seed)
    data = [rng.normal(0.0, 3.0, (count, 2)) for count in rng.permutation([5, 3, 2])]
    method = p2pkm.GTVMin(K, alpha=float(rng.uniform(0.1, 2.0)), schedule="async", relaxation=1.0, tol=0.0)
    return data, method, rng


def enumerate_all(data, alpha):
    """Return the least value of the objective, and where it is taken.

    Given to which centroid every point belongs, and which of a neighbor's centroids is compared with each own one, the
    objective is a quadratic form of the N K rows; its least value over all these choices is the global minimum.
    """
    points = np.concatenate(data)
    device = np.repeat(np.arange(N), [len(own) for own in data])
    chosen = np.array(list(product(range(K), repeat=len(points))))  # [2^m, m]
    rows = K * device + chosen
    masses, sums = np.zeros((len(rows), N * K)), np.zeros((len(rows), N * K, 2))
    for j, point in enumerate(points):
        masses[np.arange(len(rows)), rows[:, j]] += 1.0
        sums[np.arange(len(rows)), rows[:, j]] += point
    best, where = np.inf, None
    sides = [(K * a + c, K * b, weight) for i, j, weight in LINKS for a, b in ((i, j), (j, i)) for c in range(K)]
    for other in product(range(K), repeat=len(sides)):
        form = 1e-11 * np.eye(N * K)  # a row that nothing pulls at may be anywhere
        for (row, first, weight), c in zip(sides, other, strict=True):
            difference = np.eye(N * K)[row] - np.eye(N * K)[first + c]
            form += alpha * weight * np.outer(difference, difference)
        full = form + masses[:, :, None] * np.eye(N * K)
        found = np.linalg.solve(full, sums)
        values = (points**2).sum() - (sums * found).sum(axis=(1, 2))
        if values.min() < best:
            best, where = values.min(), found[values.argmin()]
    return best, where.reshape(N, K, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_end_is_a_local_minimum_and_the_global_one_is_an_end(seed):
    data, method, rng = instance(seed)
    table = arrange(data, LINKS)
    least, best = enumerate_all(data, method.alpha)

    def value(flat):
        return objective(method, table, flat.reshape(N, K, 2))

    assert_allclose(value(best.ravel()), least, atol=1e-6)
    stays = last(method, table, best, 5)
    assert_allclose(value(stays.ravel()), least, atol=1e-6)
    for _ in range(2):
        start = rng.normal(0.0, 3.0, (N, K, 2))
        end = last(method, table, start, 400)
        assert_allclose(last(method, table, end, 1), end, atol=1e-9)
        there = value(end.ravel())
        assert least - 1e-6 <= there <= value(start.ravel())
        near = end.ravel() + 1e-3 * rng.normal(size=(end.size + 1, end.size))
        found = minimize(value, end.ravel(), method="Nelder-Mead", options={"initial_simplex": near, "maxfev": 400})
        assert found.fun >= there - 1e-9
