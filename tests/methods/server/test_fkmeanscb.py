"""FKmeansCB: the noise, a twin of the algorithm, cases by hand, and data that are hardly any."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kstest, laplace

from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.core.errors import ExperimentError
from p2pkm.kernels import numba as compiled
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.server.fkmeanscb import FKMeansCB, laplace_quantiles
from tests.support.each import each
from tests.support.server import serve


def normal(seed, sizes, d=2):
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 5, (m, d)) for m in sizes]


def noise(key, shape, epsilon):
    """Return the noise of one client, by the quantile function of the Laplace distribution."""
    draws = uniforms(key, Stream.NOISE, [0], shape[0] * shape[1])[0]
    return laplace.ppf(draws).reshape(shape) / epsilon


def test_the_noise_is_laplace_and_symmetric_and_finite():
    draws = uniforms(7, Stream.NOISE, [0], 20_000)[0]
    assert kstest(laplace_quantiles(draws), laplace.cdf).pvalue > 0.01
    assert_allclose(laplace_quantiles(draws), laplace.ppf(draws), atol=1e-9)
    edges = np.array([0.0, 0.5 - 2.0**-53, 0.5, 1.0 - 2.0**-53])
    assert_array_equal(laplace_quantiles(edges), [-52 * math.log(2.0), 0.0, 0.0, 52 * math.log(2.0)])


@pytest.mark.parametrize("epsilon", [0.5, 20.0, None, math.inf])
def test_a_client_says_the_centroids_of_its_noised_points(epsilon):
    data = normal(1, [30, 4, 0, 25])
    played = serve(FKMeansCB(3, local_k=5, epsilon=epsilon, client_n_init=1), data)
    for points, key, said, local in zip(data, played.devices.keys[:4], played.uplinks[0], played.local, strict=True):
        noised = points + (0.0 if epsilon is None else noise(key, points.shape, epsilon))
        found, _, _ = cluster(compiled, int(key), noised, np.ones(len(points)), Search(5, Stream.CLIENT))
        assert_allclose(said, found[: min(5, len(points))], atol=1e-9)
        assert_array_equal(said, local)


def test_noise_is_drawn_for_every_client_and_seed_anew_and_moves_no_points():
    same = normal(2, [10])[0]
    before = same.copy()
    one = serve(FKMeansCB(2, epsilon=1.0), [same, same])
    other = serve(FKMeansCB(2, epsilon=1.0), [same, same], seed=1)
    assert not np.isclose(one.uplinks[0][0], one.uplinks[0][1]).any()
    assert not np.isclose(one.uplinks[0][0], other.uplinks[0][0]).any()
    assert_array_equal(same, before)
    assert_array_equal(one.devices.points[:10], before)


def test_the_server_by_hand_does_not_weigh():
    """Three points at 0 make one row, as the point at 3 does."""
    data = [np.array([[0.0]] * 3 + [[10.0]]), np.array([[3.0], [10.0], [13.0]])]
    played = serve(FKMeansCB(2, epsilon=None, server_n_init=5), data)
    assert_allclose(np.sort(played.model[:, 0]), [1.5, 11.0])
    assert played.ledger == (4, (2 + 3 + 2 * 2) * 8)


@pytest.mark.parametrize(("k", "expected"), [(3, 7), (9, 9)])
def test_clusters_of_a_client_unless_said_otherwise(k, expected):
    assert [len(table) for table in serve(FKMeansCB(k), normal(3, [40, 5])).uplinks[0]] == [expected, 5]


def test_more_seedings_of_the_server_are_not_worse():
    data, costs = normal(4, [60] * 5), []
    for starts in (1, 20):
        played = serve(FKMeansCB(8, local_k=20, server_n_init=starts), data)
        rows = np.concatenate(played.uplinks[0])
        costs.append(((rows[:, None] - played.model) ** 2).sum(axis=2).min(axis=1).sum())
    assert costs[1] < costs[0]


def test_hardly_any_points():
    assert_array_equal(serve(FKMeansCB(3, epsilon=None), [[], [[1.0, 2.0]] * 5]).model, [[1.0, 2.0]])


@each(
    "options",
    [
        {"k": 0}, {"local_k": 0}, {"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": math.nan}, {"epsilon": 1e-300},
        {"client_n_init": 0}, {"server_n_init": 0},
    ],
)  # fmt: skip
def test_options_out_of_range(options):
    with pytest.raises(ExperimentError):
        FKMeansCB(**{"k": 2, **options})
