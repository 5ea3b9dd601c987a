"""Attacks on noisy sums, beside what is claimed of them: what a receiver can find out, measured with the best test.

All that a receiver, or a coalition, knows is a linear view ``O = A (x + s g)`` of what devices hold: x their values, g
independent normal noise. Whether a point of device u is there moves x by at most D in one direction. The best test of
two normal distributions with the same covariance is the matched filter ``a_u^T (A A^T)^+ O``, a_u column u of A: its
statistic has mean 0 or mu and standard deviation 1 (in units of its noise), with

    mu = D / s sqrt(a_u^T (A A^T)^+ a_u)

`Trials` holds statistics with and without the point. The measured mu is what an implementation really gives; epsilon
from so many trials is a lower bound, with confidence, which noise that is too small by half may stay below: so both are
compared with what is claimed, and mu decides.

Source: M. Jagielski, J. Ullman, A. Oprea, "Auditing differentially private machine learning", NeurIPS 2020
(Clopper-Pearson); T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import topologies
from p2pkm.core.batch import Devices, Floats, Integers, Keys, Mask
from p2pkm.methods.building_blocks.gdp import epsilon_of
from p2pkm.methods.building_blocks.secure_sums import (
    SumName,
    add_masks,
    draw_noise,
    link_keys,
    link_masks,
    public_words,
)
from p2pkm.network.graph import Topology
from topologies.single_thread import single_thread

CONFIDENCE = 0.95
_SURE = 4.0  # standard errors by which a measured mu may exceed the claimed one


class Trials(NamedTuple):
    """Statistics of a test in trials without and with the point, float64[trials] each, in units of their noise."""

    without: Floats
    with_point: Floats


@dataclass(frozen=True)
class Attack:
    """What an attack has found, beside what is claimed.

    Attributes
    ----------
    mu_claimed, mu_measured, mu_error : float
        In Gaussian differential privacy; the standard error of the measured one.
    epsilon_claimed, epsilon_found : float
        At `delta`; the lower bound that trials give with 95 % confidence.
    delta : float
    trials : int
        With and without the point each.
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
        """Return whether what was measured does not exceed what is claimed."""
        slack = _SURE * self.mu_error
        return self.mu_measured <= self.mu_claimed + slack and self.epsilon_found <= self.epsilon_claimed


def judge(trials: Trials, mu: float, delta: float) -> Attack:
    """Return what trials show, beside a claimed mu."""
    without, found = trials
    count = min(len(without), len(found))
    spread = math.sqrt((float(without.var(ddof=1)) + float(found.var(ddof=1))) / 2.0)
    apart = float(found.mean() - without.mean())
    measured = apart / spread if spread > 0.0 else 0.0 if apart == 0.0 else math.inf
    error = math.sqrt(2.0 / count + measured**2 / (4.0 * count)) if math.isfinite(measured) else 0.0
    return Attack(mu, measured, error, epsilon_of(mu, delta), bound_epsilon(trials, delta), delta, count)


def bound_epsilon(trials: Trials, delta: float) -> float:
    """Return an epsilon that the trials exceed, with 95 % confidence; 0 if they show nothing.

    One half chooses a threshold, the other one bounds how often the statistic lies above it, with and without the point
    (Clopper and Pearson, each at half of the error): ``epsilon >= ln((p_with - delta) / p_without)``, and the same for
    statistics below it.
    """
    (choose_without, without), (choose_with, found) = ((values[::2], values[1::2]) for values in trials)
    at = np.quantile(np.concatenate((choose_without, choose_with)), np.linspace(0.0005, 0.9995, 400))
    above = _bounds(choose_without, choose_with, at, delta), _bounds(without, found, at, delta)
    below = _bounds(-choose_with, -choose_without, -at, delta), _bounds(-found, -without, -at, delta)
    chosen, tested = (np.concatenate(parts) for parts in zip(above, below, strict=True))
    return max(0.0, float(tested[np.argmax(chosen)]))


def _bounds(without: Floats, found: Floats, thresholds: Floats, delta: float) -> Floats:
    """Return the bound of each threshold: a low estimate of hits, a high one of false alarms."""
    hits, false = ((values[:, None] > thresholds).sum(axis=0) for values in (found, without))
    low, high = clopper_pearson(hits, len(found))[0], clopper_pearson(false, len(without))[1]
    return np.where(low > delta, np.log(np.maximum(low - delta, 1e-300) / high), -np.inf)


def clopper_pearson(hits: Integers, count: int, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Return bounds of probabilities, each of which is wrong with at most half of 1 - confidence; hits: int64[...]."""
    from scipy.special import betaincinv

    error = (1.0 - confidence) / 2.0
    low = betaincinv(np.maximum(hits, 1), count - hits + 1, error)
    high = betaincinv(hits + 1, np.maximum(count - hits, 1), 1.0 - error)
    return np.where(hits == 0, 0.0, low), np.where(hits == count, 1.0, high)


# --- gossip of noisy values


@single_thread()
def gossip_view(topology: Topology, receiver: int, gossips: int) -> Floats:
    """Return what a receiver knows of the values of all devices after an average, float64[r, n].

    Its own value, and in each turn what its neighbors send: rows of I, W, W^2, ... with Metropolis weights.
    """
    n = topology.n
    mixing = np.zeros((n, n))
    mixing[topology.sources, topology.indices] = topologies.metropolis_weights(topology.links)
    mixing[np.arange(n), np.arange(n)] = 1.0 - mixing.sum(axis=1)
    near = topology.indices[topology.indptr[receiver] : topology.indptr[receiver + 1]]
    power, rows = np.eye(n), [np.eye(n)[[receiver]]]
    for _ in range(gossips):
        rows.append(power[near])
        power = mixing @ power
    return np.concatenate(rows)


@single_thread()
def filter_of(view: Floats, device: int) -> tuple[Floats, float]:
    """Return the matched filter of a device in units of its noise, float64[r], and the share of its information.

    The share is ``a_u^T (A A^T)^+ a_u``, the leak: 1 for a device that is seen directly, 0 for one that is not seen.
    """
    column = view[:, device]
    inverse = np.linalg.pinv(view @ view.T, rcond=1e-10, hermitian=True)
    leak = float(column @ inverse @ column)
    return (inverse @ column / math.sqrt(leak) if leak > 1e-9 else np.zeros(len(view))), leak


@single_thread()
def attack_gossip(view: Floats, device: int, mu: float, trials: int, seed: int) -> Trials:
    """Try to tell from a view whether a point of a device is there, whose own noise gives mu (``D / s``)."""
    filter_, _ = filter_of(view, device)
    rng = np.random.default_rng(seed)
    sent = filter_ @ view  # by linearity: what each device's noise adds to the statistic
    return Trials(*(rng.standard_normal((trials, len(sent))) @ sent + shift * sent[device] for shift in (0.0, mu)))


# --- sums behind masks


class NoisySum(NamedTuple):
    """A sum that is attacked.

    Attributes
    ----------
    name : SumName
    change : int64[w]
        By how much one point moves the numbers that it moves, in units.
    sd : float
        Of the noise of a device, in units.
    """

    name: SumName
    change: Integers
    sd: float


@single_thread()
def attack_sums(sums: list[NoisySum], hidden: int, trials: int, seed: int) -> Trials:
    """Try to tell from totals over `hidden` devices, which all that was sent comes down to, whether a point is there.

    The noise is drawn as in a run, from a stream per device, with other keys in every trial. Numbers of a table that
    the point does not change have independent noise and say nothing.
    """
    rng = np.random.default_rng(seed)
    statistics = []
    for present in (0, 1):
        keys = rng.integers(0, 2**64, (trials, hidden), dtype=np.uint64)
        statistic, weight = np.zeros(trials), 0.0
        for one in sums:
            noise = draw_noise(keys.ravel(), one.name, one.sd, (1, len(one.change)))
            totals = noise.reshape(trials, hidden, -1).sum(axis=1) + present * one.change
            statistic += totals @ one.change / one.sd**2
            weight += float(one.change @ one.change) / one.sd**2
        statistics.append(statistic / math.sqrt(weight * hidden))
    return Trials(*statistics)


def unmask(devices: Devices, sent: Keys, name: SumName, coalition: Mask) -> Keys:
    """Return the total that a coalition works out over all other devices, uint64[r, w], from what they sent.

    sent: uint64[n, r, w] behind masks. The coalition takes off the masks that it shares with others; where it does not
    cut the graph in two, the other masks cancel in the sum, and nothing less than the sum is free of masks.
    """
    _, r, w = sent.shape
    masks = link_masks(link_keys(devices, public_words(devices)[devices.indices]), name, r * w)
    known = coalition[devices.sources] | coalition[devices.indices]
    own = add_masks(np.zeros_like(sent), devices, np.where(known[:, None], masks, np.uint64(0)))
    return (sent - own)[~coalition].sum(axis=0, dtype=np.uint64)


# --- one run with many canaries


@dataclass(frozen=True)
class Audit:
    """What one run with many canaries shows.

    Attributes
    ----------
    epsilon_found, ceiling : float
        A lower bound with 95 % confidence, and the largest one that so many guesses can ever give.
    canaries, guesses, correct : int
    """

    epsilon_found: float
    ceiling: float
    canaries: int
    guesses: int
    correct: int


def audit(scores: Floats, included: Mask, guesses: int, delta: float) -> Audit:
    """Guess of the canaries with the largest and the smallest scores whether they were there, and bound epsilon.

    Parameters
    ----------
    scores : float64[m]
    included : bool[m]
        Whether each was there, drawn with probability 1/2.
    guesses : int
        Half of them "in", half "out"; of all other canaries nothing is said.
    """
    order, half = np.argsort(scores, kind="stable"), guesses // 2
    correct = int(included[order[len(order) - half :]].sum() + (~included[order[:half]]).sum())
    found, most = (_largest_epsilon(len(scores), 2 * half, right, delta) for right in (correct, 2 * half))
    return Audit(found, most, len(scores), 2 * half, correct)


def _largest_epsilon(m: int, guesses: int, correct: int, delta: float) -> float:
    """Return the largest epsilon that so many correct guesses reject with 95 % confidence (Steinke et al., 2023)."""
    low, high = 0.0, 1.0
    if _probability(m, guesses, correct, 0.0, delta) > 1.0 - CONFIDENCE:
        return 0.0
    while _probability(m, guesses, correct, high, delta) <= 1.0 - CONFIDENCE:
        low, high = high, 2.0 * high
        if high > 100.0:
            return high
    for _ in range(40):
        middle = (low + high) / 2.0
        rejects = _probability(m, guesses, correct, middle, delta) <= 1.0 - CONFIDENCE
        low, high = (middle, high) if rejects else (low, middle)
    return low


def _probability(m: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Return how probable so many correct guesses are at most, if the run is (epsilon, delta)-private."""
    from scipy.special import betainc, gammaln, xlog1py, xlogy

    right = 1.0 / (1.0 + math.exp(-epsilon))
    fewer = np.arange(correct - 1, -1, -1)
    ways = gammaln(guesses + 1) - gammaln(fewer + 1) - gammaln(guesses - fewer + 1)
    chances = np.exp(ways + xlogy(fewer, right) + xlog1py(guesses - fewer, -right))
    slope = float((np.cumsum(chances) / np.arange(1, correct + 1)).max(initial=0.0))
    at_least = float(betainc(correct, guesses - correct + 1, right)) if correct else 1.0
    return min(1.0, at_least + 2.0 * m * delta * slope)
