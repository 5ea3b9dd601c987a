"""Gaussian differential privacy: known figures, the definition, the safe side, somebody else's accountant."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from p2pkm.core.errors import ExperimentError
from p2pkm.methods.building_blocks.gdp import compose, delta_of, epsilon_of, mu_of
from tests.support.each import each

MUS = st.floats(1e-3, 30)
EPSILONS = st.floats(0, 100)
DELTAS = st.floats(1e-12, 0.99)
EPS = np.finfo(float).eps


def test_known_figures():
    """Balle and Wang's equation, solved with the accountant of another package."""
    assert mu_of(1, 1e-6) == pytest.approx(0.236704, abs=1e-6)
    assert mu_of(4, 1e-6) == pytest.approx(0.837859, abs=1e-6)
    assert epsilon_of(1, 1e-6) == pytest.approx(4.886554, abs=1e-6)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.sample(3)
def test_delta_is_the_largest_excess_over_all_events(mu, epsilon):
    """The best event is x > t: P(N(mu, 1) > t) - exp(epsilon) P(N(0, 1) > t), tried at every t."""
    t = np.linspace(-10, 30, 400_001)
    largest = (norm.sf(t - mu) - math.exp(epsilon) * norm.sf(t)).max()
    assert delta_of(mu, epsilon) == pytest.approx(largest, rel=1e-6)
    assert delta_of(mu, epsilon) >= largest * (1 - 1e-12)


@given(MUS, DELTAS)
def test_epsilon_is_on_the_safe_side_and_not_far_from_it(mu, delta):
    epsilon = epsilon_of(mu, delta)
    assert delta_of(mu, epsilon) <= delta
    assert epsilon == 0 or delta_of(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-6)


@given(EPSILONS, DELTAS)
def test_mu_is_on_the_safe_side_and_not_far_from_it(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert delta_of(mu, epsilon) <= delta
    assert delta_of(mu * (1 + 1e-9), epsilon) > delta * (1 - 1e-6) - EPS  # a difference of numbers of at most 1


@given(st.lists(MUS, max_size=5), MUS)
def test_answers_compose_like_lengths(mus, one):
    assert compose(*mus, one) ** 2 == pytest.approx(sum(mu * mu for mu in mus) + one * one)
    assert compose(*mus, one) >= one


def test_the_ends_of_the_range():
    assert compose() == 0
    assert delta_of(0, 0) == 0 and delta_of(math.inf, 3) == 1 and delta_of(1, math.inf) == 0
    assert epsilon_of(0, 1e-6) == 0 and epsilon_of(1e-9, 1e-6) == 0 and epsilon_of(math.inf, 0.5) == math.inf
    assert mu_of(math.inf, 1e-6) == math.inf
    assert mu_of(0, 1e-6) == pytest.approx(2 * norm.ppf(0.5 + 5e-7))
    assert mu_of(1e300, 1e-6) > 1e149 and epsilon_of(1e-200, 1e-300) < 1e-40
    assert epsilon_of(1e200, 0.5) == math.inf  # above all numbers


@each(
    ("call", "given"),
    [
        (lambda: delta_of(-1, 1), "mu is -1"),
        (lambda: delta_of(1, math.nan), "epsilon is nan"),
        (lambda: epsilon_of(math.nan, 1e-6), "mu is nan"),
        (lambda: epsilon_of(1, 0), "delta is 0"),
        (lambda: mu_of(1, 1), "delta is 1"),
        (lambda: mu_of(-0.5, 1e-6), "epsilon is -0.5"),
        (lambda: compose(1, -2), "mu is -2"),
    ],
)
def test_what_is_out_of_range_is_refused(call, given):
    with pytest.raises(ExperimentError, match=given):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_another_accountant_agrees(epsilon, delta):
    """dp-accounting's analytic Gaussian mechanism, from both sides."""
    dp = pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: pip install p2pkm[dp-accounting]")
    mu = 1 / dp.get_sigma_gaussian(epsilon, delta, tol=1e-12)
    assert mu_of(epsilon, delta) == pytest.approx(mu, rel=1e-6)
    assert epsilon_of(mu, delta) == pytest.approx(dp.get_epsilon_gaussian(1 / mu, delta, tol=1e-12), rel=1e-6)
