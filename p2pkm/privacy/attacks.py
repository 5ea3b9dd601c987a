"""Attacks on noisy sums: the privacy loss that the best test of a receiver measures, compared with the claim.

A receiver, or a coalition, knows a linear view ``O = A (x + s g)``: x are the values of the devices, g is independent
normal noise. A point of device u moves x by at most D in one direction. The best test of two normal distributions with
equal covariance is the matched filter ``a_u^T (A A^T)^+ O``, where a_u is column u of A. In units of its noise, its
statistic has standard deviation 1 and mean 0 without the point, or mu with it:

    mu = D / s sqrt(a_u^T (A A^T)^+ a_u)

`Trials` holds statistics with and without the point. The measured mu is the privacy loss of the implementation. The
epsilon that follows from a number of trials is a lower bound with confidence, which may hold even if the noise is too
small by half. Both are compared with the claim, and mu decides.

Source: M. Jagielski, J. Ullman, A. Oprea, "Auditing differentially private machine learning", NeurIPS 2020
(Clopper-Pearson); T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import topologies
from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.methods.building_blocks.gdp import epsilon_of
from p2pkm.network.graph import Topology
from topologies.single_thread import single_thread

CONFIDENCE = 0.95
# Standard errors by which a measured mu may exceed the claimed one: a correct method exceeds them once in 30,000 tests.
_TOLERATED_ERRORS = 4.0


class Trials(NamedTuple):
    """Statistics of a test, float64[trials] each, in units of their noise: without the point, and with it."""

    without: Floats
    with_point: Floats


@dataclass(frozen=True)
class Attack:
    """Result of an attack, with the claimed values.

    Attributes
    ----------
    mu_claimed, mu_measured, mu_error : float
        mu of Gaussian differential privacy, and the standard error of the measured one.
    epsilon_claimed, epsilon_found : float
        epsilon at `delta`; the second one is a lower bound from the trials, with 95 % confidence.
    delta : float
    trials : int
        Number of trials with the point, and of those without.
    """

    mu_claimed: float
    mu_measured: float
    mu_error: float
    epsilon_claimed: float
    epsilon_found: float
    delta: float
    trials: int

    @property
    def holds(self) -> bool:
        """Whether the measured values do not exceed the claimed ones."""
        slack = _TOLERATED_ERRORS * self.mu_error
        return self.mu_measured <= self.mu_claimed + slack and self.epsilon_found <= self.epsilon_claimed


def judge(trials: Trials, mu: float, delta: float) -> Attack:
    """Compare the trials with a claimed mu.

    Parameters
    ----------
    trials : Trials
    mu : float
        Claimed mu.
    delta : float
    """
    without, with_point = trials
    count = min(len(without), len(with_point))
    spread = math.sqrt((float(without.var(ddof=1)) + float(with_point.var(ddof=1))) / 2.0)
    difference = float(with_point.mean() - without.mean())
    if spread > 0.0:
        measured = difference / spread
    else:
        measured = 0.0 if difference == 0.0 else math.inf
    error = math.sqrt(2.0 / count + measured**2 / (4.0 * count)) if math.isfinite(measured) else 0.0
    return Attack(mu, measured, error, epsilon_of(mu, delta), bound_epsilon(trials, delta), delta, count)


def bound_epsilon(trials: Trials, delta: float, confidence: float = CONFIDENCE) -> float:
    """Compute a lower bound of epsilon from trials, by default with 95 % confidence; 0 if they are too few for any.

    One half of the trials selects a threshold. The other half bounds the probabilities that the statistic exceeds it,
    with and without the point (Clopper and Pearson, each with half of the error):
    ``epsilon >= ln((p_with - delta) / p_without)``. The same is done for statistics below a threshold.
    """
    # Separate halves: a threshold that is tested on the trials that selected it would give a biased bound.
    (select_without, without), (select_with, with_point) = ((values[::2], values[1::2]) for values in trials)
    thresholds = np.quantile(np.concatenate((select_without, select_with)), np.linspace(0.0005, 0.9995, 400))
    above = (
        _bound_at_thresholds(select_without, select_with, thresholds, delta, confidence),
        _bound_at_thresholds(without, with_point, thresholds, delta, confidence),
    )
    below = (
        _bound_at_thresholds(-select_with, -select_without, -thresholds, delta, confidence),
        _bound_at_thresholds(-with_point, -without, -thresholds, delta, confidence),
    )
    selecting, tested = (np.concatenate(parts) for parts in zip(above, below, strict=True))
    return max(0.0, float(tested[np.argmax(selecting)]))


def _bound_at_thresholds(
    without: Floats, with_point: Floats, thresholds: Floats, delta: float, confidence: float
) -> Floats:
    """Bound epsilon at each threshold, from a low estimate of hits and a high estimate of false alarms."""
    hits, false_alarms = ((values[:, None] > thresholds).sum(axis=0) for values in (with_point, without))
    low = clopper_pearson(hits, len(with_point), confidence)[0]
    high = clopper_pearson(false_alarms, len(without), confidence)[1]
    return np.where(low > delta, np.log(np.maximum(low - delta, 1e-300) / high), -np.inf)


def clopper_pearson(hits: Integers, count: int, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Compute the Clopper-Pearson bounds of probabilities.

    Parameters
    ----------
    hits : int64[...]
    count : int
        Number of trials.
    confidence : float, default=0.95

    Returns
    -------
    low, high : float64[...]
        Each is wrong with probability at most (1 - confidence) / 2.
    """
    from scipy.special import betaincinv

    error = (1.0 - confidence) / 2.0
    low = betaincinv(np.maximum(hits, 1), count - hits + 1, error)
    high = betaincinv(hits + 1, np.maximum(count - hits, 1), 1.0 - error)
    return np.where(hits == 0, 0.0, low), np.where(hits == count, 1.0, high)


# --- gossip of noisy values


@single_thread()
def gossip_view(topology: Topology, receiver: int, gossips: int) -> Floats:
    """Compute the view of a receiver of one average: the coefficients of all values that it knows.

    It knows its local value, and in each turn the messages of its neighbors: rows of I, W, W^2, ... with Metropolis
    weights.

    Parameters
    ----------
    topology : Topology
    receiver : int
    gossips : int
        Number of turns.

    Returns
    -------
    float64[r, n]
    """
    n = topology.n
    mixing = np.zeros((n, n))
    mixing[topology.sources, topology.indices] = topologies.metropolis_weights(topology.links)
    mixing[np.arange(n), np.arange(n)] = 1.0 - mixing.sum(axis=1)
    neighbors = topology.indices[topology.indptr[receiver] : topology.indptr[receiver + 1]]
    power, rows = np.eye(n), [np.eye(n)[[receiver]]]
    for _ in range(gossips):
        rows.append(power[neighbors])
        power = mixing @ power
    return np.concatenate(rows)


@single_thread()
def filter_of(view: Floats, device: int) -> tuple[Floats, float]:
    """Compute the matched filter of a device, and its leak.

    Parameters
    ----------
    view : float64[r, n]
    device : int

    Returns
    -------
    filter : float64[r]
        In units of its noise.
    leak : float
        ``a_u^T (A A^T)^+ a_u``: 1 if the receiver knows the value of the device, 0 if it knows nothing about it.
    """
    column = view[:, device]
    inverse = np.linalg.pinv(view @ view.T, rcond=1e-10, hermitian=True)
    leak = float(column @ inverse @ column)
    return (inverse @ column / math.sqrt(leak) if leak > 1e-9 else np.zeros(len(view))), leak


@single_thread()
def attack_gossip(view: Floats, device: int, mu: float, trials: int, seed: int) -> Trials:
    """Simulate the test for a point of a device from a view; mu: ``D / s`` of the device's local noise."""
    filter_, _ = filter_of(view, device)
    rng = np.random.default_rng(seed)
    # The statistic is linear: this is the contribution of each device's value, and of its noise.
    sent = filter_ @ view
    return Trials(*(rng.standard_normal((trials, len(sent))) @ sent + shift * sent[device] for shift in (0.0, mu)))


# --- one run with many canaries


@dataclass(frozen=True)
class Audit:
    """Result of an audit by one run with many canaries.

    Attributes
    ----------
    epsilon_found : float
        Lower bound of epsilon, with 95 % confidence.
    ceiling : float
        Largest bound that this number of guesses can give, if all of them are correct.
    canaries, guesses, correct : int
    """

    epsilon_found: float
    ceiling: float
    canaries: int
    guesses: int
    correct: int


def audit(scores: Floats, included: Mask, guesses: int, delta: float) -> Audit:
    """Guess that canaries with the largest scores were included and those with the smallest not, and bound epsilon.

    Parameters
    ----------
    scores : float64[m]
    included : bool[m]
        Whether each canary was included, drawn with probability 1/2.
    guesses : int
        Half of them guess "included", half "not included". No guess is made about the other canaries.
    delta : float
    """
    order, half = np.argsort(scores, kind="stable"), guesses // 2
    correct = int(included[order[len(order) - half :]].sum() + (~included[order[:half]]).sum())
    epsilon, ceiling = (_largest_epsilon(len(scores), 2 * half, hits, delta) for hits in (correct, 2 * half))
    return Audit(epsilon, ceiling, len(scores), 2 * half, correct)


def _largest_epsilon(m: int, guesses: int, correct: int, delta: float) -> float:
    """Compute the largest epsilon that the number of correct guesses rejects with 95 % confidence (Steinke 2023)."""
    low, high = 0.0, 1.0
    if _bound_probability(m, guesses, correct, 0.0, delta) > 1.0 - CONFIDENCE:
        return 0.0
    while _bound_probability(m, guesses, correct, high, delta) <= 1.0 - CONFIDENCE:
        low, high = high, 2.0 * high
        if high > 100.0:
            return high
    for _ in range(40):
        middle = (low + high) / 2.0
        rejects = _bound_probability(m, guesses, correct, middle, delta) <= 1.0 - CONFIDENCE
        low, high = (middle, high) if rejects else (low, middle)
    return low


def _bound_probability(m: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least `correct` correct guesses for an (epsilon, delta)-private run."""
    from scipy.special import betainc, gammaln, xlog1py, xlogy

    right = 1.0 / (1.0 + math.exp(-epsilon))
    fewer = np.arange(correct - 1, -1, -1)
    ways = gammaln(guesses + 1) - gammaln(fewer + 1) - gammaln(guesses - fewer + 1)
    chances = np.exp(ways + xlogy(fewer, right) + xlog1py(guesses - fewer, -right))
    slope = float((np.cumsum(chances) / np.arange(1, correct + 1)).max(initial=0.0))
    at_least = float(betainc(correct, guesses - correct + 1, right)) if correct else 1.0
    return min(1.0, at_least + 2.0 * m * delta * slope)
