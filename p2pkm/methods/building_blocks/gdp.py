"""Gaussian differential privacy (GDP): guarantee of a value with normal noise, and of several such values together.

Normal noise of standard deviation s on a value that one point changes by at most D (Euclidean norm) is mu-GDP with
mu = D / s: distinguishing two neighboring data sets is at least as hard as distinguishing N(0, 1) from N(mu, 1).
Several values compose exactly to mu = sqrt(mu_1^2 + mu_2^2 + ...), even if each depends on the previous ones. Every
mu-GDP value is (epsilon, delta)-differentially private for all pairs with::

    delta = Phi(-epsilon / mu + mu / 2) - exp(epsilon) Phi(-epsilon / mu - mu / 2)

and not for a smaller delta. Rounding is conservative: `delta_of` and `epsilon_of` are never too small and `mu_of` is
never too large, provided the relative error of the logarithm of the normal distribution is at most 2^-49.

Sources: Dong, Roth, Su: Gaussian Differential Privacy, 2022 (Corollaries 1 and 3); Balle, Wang: Improving the Gaussian
Mechanism for Differential Privacy, 2018 (Theorem 8).
"""

import math
from collections.abc import Callable
from functools import lru_cache

from p2pkm.core.errors import ExperimentError

# Bound of the relative error of `log_ndtr` and of the sums in this module.
_ERROR = 2.0**-49


def delta_of(mu: float, epsilon: float) -> float:
    """Compute the smallest delta, in [0, 1], for which a mu-GDP value is (epsilon, delta)-differentially private.

    Raises
    ------
    ExperimentError
        If mu or epsilon is negative or not a number.
    """
    mu, epsilon = _at_least_zero(mu, "mu"), _at_least_zero(epsilon, "epsilon")
    if mu == 0 or epsilon == math.inf:
        return 0.0
    return 1.0 if mu == math.inf else _delta(mu, epsilon)


def epsilon_of(mu: float, delta: float) -> float:
    """Compute the smallest epsilon for which a mu-GDP value is (epsilon, delta)-differentially private.

    Raises
    ------
    ExperimentError
        If mu is negative or not a number, or delta is not between 0 and 1.
    """
    mu, delta = _at_least_zero(mu, "mu"), _probability(delta)
    if mu == math.inf:
        return math.inf
    if mu == 0 or _delta(mu, 0.0) <= delta:
        return 0.0
    return _bisect(lambda epsilon: _delta(mu, epsilon) <= delta)[1]


def mu_of(epsilon: float, delta: float) -> float:
    """Compute the largest mu such that every mu-GDP value is (epsilon, delta)-differentially private.

    Noise of standard deviation D / mu is sufficient for a value that one point changes by at most D.

    Raises
    ------
    ExperimentError
        If epsilon is negative or not a number, or delta is not between 0 and 1.
    """
    epsilon, delta = _at_least_zero(epsilon, "epsilon"), _probability(delta)
    if epsilon == math.inf:
        return math.inf
    return _largest_mu(epsilon, delta)


@lru_cache(maxsize=64)
def _largest_mu(epsilon: float, delta: float) -> float:
    """Find the largest mu for a finite epsilon: a run asks for the same one several times per sum."""
    return _bisect(lambda mu: _delta(mu, epsilon) > delta)[0]


def compose(*mus: float) -> float:
    """Compute the mu of several values computed from the same points: the root of the sum of their squares."""
    return math.hypot(*(_at_least_zero(mu, "mu") for mu in mus))


def _delta(mu: float, epsilon: float) -> float:
    """Compute delta for finite mu > 0 and epsilon, rounded up by at most the error bound."""
    from scipy.special import log_ndtr

    first = float(log_ndtr(mu / 2 - epsilon / mu))
    tail = float(log_ndtr(-mu / 2 - epsilon / mu))
    if tail == -math.inf:
        return math.exp(first)
    error = _ERROR * (epsilon - first - tail)
    return math.exp(min(0.0, first + error)) * -math.expm1(min(0.0, epsilon + tail - first - error))


def _bisect(is_high: Callable[[float], bool]) -> tuple[float, float]:
    """Find the last float for which `is_high` is False, and the next float, for which it is True."""
    low, high = 0.0, 1.0
    while not is_high(high):
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if is_high(middle) else (middle, high)
    return low, high


def _at_least_zero(value: float, name: str) -> float:
    """Validate a number of at least 0; NaN is rejected."""
    if not value >= 0:
        raise ExperimentError(f"{name} is {value!r}; expected a number of at least 0")
    return float(value)


def _probability(delta: float) -> float:
    """Validate a delta between 0 and 1; NaN is rejected."""
    if not 0 < delta < 1:
        raise ExperimentError(f"delta is {delta!r}; expected a number between 0 and 1, such as 1e-6")
    return float(delta)
