"""Gaussian differential privacy: what normal noise guarantees, and what several noisy answers guarantee together.

Normal noise of standard deviation s on a value that one point moves by at most D (Euclidean norm) is mu-GDP with
mu = D / s: telling two neighboring data sets apart is at least as hard as telling N(0, 1) from N(mu, 1). Many answers
compose exactly, also when each depends on those before it: mu = sqrt(mu_1^2 + mu_2^2 + ...). Every mu-GDP answer is
(epsilon, delta)-differentially private for all pairs with

    delta = Phi(-epsilon / mu + mu / 2) - exp(epsilon) Phi(-epsilon / mu - mu / 2)

and for no smaller delta. Rounding never claims more privacy than there is: `delta_of` and `epsilon_of` are never too
small, `mu_of` is never too large, given an error of the normal distribution's logarithm of at most 2^-49 of its value.

Source: Dong, Roth, Su: Gaussian Differential Privacy, 2022 (Corollary 1 and 3); Balle, Wang: Improving the Gaussian
Mechanism for Differential Privacy, 2018 (Theorem 8).
"""

import math
from collections.abc import Callable

from p2pkm.core.errors import ExperimentError

_ERROR = 2.0**-49  # relative, of `log_ndtr` and of the sums here


def delta_of(mu: float, epsilon: float) -> float:
    """Return the smallest delta, in [0, 1], at which a mu-GDP answer is (epsilon, delta)-differentially private.

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
    """Return the smallest epsilon at which a mu-GDP answer is (epsilon, delta)-differentially private.

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
    return _switch(lambda epsilon: _delta(mu, epsilon) <= delta)[1]


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu such that every mu-GDP answer is (epsilon, delta)-differentially private.

    Noise of standard deviation D / mu is enough for a value that one point moves by at most D.

    Raises
    ------
    ExperimentError
        If epsilon is negative or not a number, or delta is not between 0 and 1.
    """
    epsilon, delta = _at_least_zero(epsilon, "epsilon"), _probability(delta)
    if epsilon == math.inf:
        return math.inf
    return _switch(lambda mu: _delta(mu, epsilon) > delta)[0]


def compose(*mus: float) -> float:
    """Return the mu of several answers about the same points together: the root of the sum of their squares."""
    return math.hypot(*(_at_least_zero(mu, "mu") for mu in mus))


def _delta(mu: float, epsilon: float) -> float:
    """Return delta of finite mu > 0 and epsilon, at most one rounding error too large."""
    from scipy.special import log_ndtr

    first = float(log_ndtr(mu / 2 - epsilon / mu))
    tail = float(log_ndtr(-mu / 2 - epsilon / mu))
    if tail == -math.inf:
        return math.exp(first)
    error = _ERROR * (epsilon - first - tail)
    return math.exp(min(0.0, first + error)) * -math.expm1(min(0.0, epsilon + tail - first - error))


def _switch(high: Callable[[float], bool]) -> tuple[float, float]:
    """Return two neighboring floats, the last one that is not `high` and the first one that is."""
    low, top = 0.0, 1.0
    while not high(top):
        low, top = top, 2 * top
    while low < (middle := (low + top) / 2) < top:
        low, top = (low, middle) if high(middle) else (middle, top)
    return low, top


def _at_least_zero(value: float, name: str) -> float:
    if not value >= 0:
        raise ExperimentError(f"{name} is {value!r}; expected a number of at least 0")
    return float(value)


def _probability(delta: float) -> float:
    if not 0 < delta < 1:
        raise ExperimentError(f"delta is {delta!r}; expected a number between 0 and 1, such as 1e-6")
    return float(delta)
