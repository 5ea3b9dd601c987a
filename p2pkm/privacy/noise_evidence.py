"""Evidence about the noise of releases, from many runs of which all points except one are known.

A claim says that the noise of release i has at least the standard deviation ``s_i = D_i / mu_i``, with the largest
change D_i by one point, that its numbers are independent, and that the squares of all mu_i add up to mu^2. From noise
with the measured standard deviation r_i s_i, and the largest change f_i D_i that a canary caused, follows::

    mu_measured^2 = sum_i mu_i^2 f_i^2 / r_i^2

The statistics of `Trials` need no assumption about the noise, but show less: with 60 trials mu has a standard error of
0.18. Thousands of numbers measure r_i within about 1 %.

A correct method fails a family of tests with probability `ERROR`. Within a family, p-values are multiplied by the
number of tests (Bonferroni). An attack has at most 13 families, six for each of two coalitions and one of masks.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Keys

# Probability that a correct method fails a family of tests; 6.5e-4 for all families of an attack together.
ERROR = 5e-5
# A masked word is small if its size is below 2^56, which has this probability for a uniform word.
_SMALL_BITS = 56
_SMALL_SHARE = 2.0 ** (_SMALL_BITS + 1 - 64)


class ReleaseName(NamedTuple):
    """Kind of a release in words, and its number among the releases of this kind, from 0."""

    kind: str
    number: int


@dataclass
class Correlation:
    """Correlation of pairs of noise values."""

    products: float = 0.0
    first: float = 0.0
    second: float = 0.0
    count: int = 0

    def add(self, first: Floats, second: Floats) -> None:
        """Add pairs, float64[g, l] each; only the columns that both have."""
        length = min(first.shape[1], second.shape[1])
        first, second = first[:, :length], second[:, :length]
        self.products += float((first * second).sum())
        self.first += float(np.square(first).sum())
        self.second += float(np.square(second).sum())
        self.count += first.size

    @property
    def probability(self) -> float:
        """Probability of a correlation at least this large between independent normal values."""
        from scipy.special import log_ndtr

        norm = math.sqrt(self.first * self.second)
        if norm == 0.0:
            return 1.0
        return min(1.0, 2.0 * math.exp(log_ndtr(-abs(self.products / norm) * math.sqrt(self.count))))


@dataclass
class _Sum:
    """Noise of one release in all runs.

    Attributes
    ----------
    squares : float64[g]
        Sum of the squared noise of each group of devices, in units of the claimed variance.
    count : int
        Numbers that were added up for each group.
    runs : int
        Runs with this release.
    spent : float
        Sum of mu_i^2 over these runs.
    change : float
        Largest change by a canary, relative to the assumed one.
    """

    squares: Floats
    count: int = 0
    runs: int = 0
    spent: float = 0.0
    change: float = 0.0

    def ratio(self) -> Floats:
        """Compute measured over claimed variance of each group, float64[g]."""
        return self.squares / self.count

    def probabilities(self, squares: Floats, groups: int = 1) -> Floats:
        """Compute the probability of noise this small, for the change that is assumed or the larger one measured."""
        from scipy.special import gammainc

        required = max(1.0, self.change) ** 2
        # Lower tail of the chi-square distribution.
        tail: Floats = gammainc(groups * self.count / 2.0, squares / required / 2.0)
        return tail


class Measured(NamedTuple):
    """Claimed and measured mu, the standard error, and whether the tests of the claim are passed."""

    mu_claimed: float
    mu_measured: float
    mu_error: float
    holds: bool


@dataclass
class NoiseEvidence:
    """Noise of the releases of many runs, as one coalition computes it.

    Parameters
    ----------
    mu : float
        Claimed mu of all releases together against this coalition.
    """

    mu: float
    runs: int = 0
    sums: dict[ReleaseName, _Sum] = field(default_factory=dict)
    between_runs: dict[ReleaseName, Correlation] = field(default_factory=dict)
    between_releases: Correlation = field(default_factory=Correlation)
    between_groups: Correlation = field(default_factory=Correlation)
    _last: dict[ReleaseName, Floats] = field(default_factory=dict)

    def add_run(self, noise: dict[ReleaseName, Floats], mus: dict[ReleaseName, float]) -> None:
        """Add the noise of each release of a run, float64[g, l] in claimed standard deviations, and its claimed mu."""
        self.runs += 1
        before = None
        for name, values in noise.items():
            total = self.sums.setdefault(name, _Sum(np.zeros(len(values))))
            total.squares += np.square(values).sum(axis=1)
            total.count += values.shape[1]
            total.runs += 1
            total.spent += mus[name] ** 2
            if name in self._last:
                self.between_runs.setdefault(name, Correlation()).add(values, self._last[name])
            if before is not None:
                self.between_releases.add(values, before)
            self.between_groups.add(values[1:], values[:-1])
            before = values
        self._last = noise

    def add_change(self, name: ReleaseName, change: float) -> None:
        """Add the change by a canary, relative to the assumed largest one."""
        self.sums[name].change = max(self.sums[name].change, change)

    @property
    def is_independent(self) -> bool:
        """Whether noise of different runs, releases and devices is uncorrelated."""
        pairs = [*self.between_runs.values(), self.between_releases, self.between_groups]
        return min(pair.probability for pair in pairs) * len(pairs) >= ERROR

    def measure_releases(self) -> dict[ReleaseName, Measured]:
        """Measure mu of each release, from the noise of all groups together."""
        measured = {}
        for name, total in self.sums.items():
            groups = len(total.squares)
            ratio, numbers = float(total.ratio().mean()), groups * total.count
            claimed = math.sqrt(total.spent / total.runs)
            measured_mu = _divide(claimed * total.change, math.sqrt(ratio))
            holds = float(total.probabilities(total.squares.sum(), groups)) * len(self.sums) >= ERROR
            measured[name] = Measured(claimed, measured_mu, measured_mu / math.sqrt(2.0 * numbers), holds)
        return measured

    def measure_group(self, group: int | None = None) -> Measured:
        """Measure mu of all releases together, from the noise of one group or of all."""
        from scipy.special import ndtr

        squared, variance, required, required_variance = 0.0, 0.0, 0.0, 0.0
        for total in self.sums.values():
            ratios = total.ratio()
            ratio = float(ratios.mean() if group is None else ratios[group])
            numbers = total.count * (len(ratios) if group is None else 1)
            spent = total.spent / self.runs
            part = _divide(spent * total.change**2, ratio)
            squared += part
            variance += 2.0 * part**2 / numbers
            # The reciprocal of a measured variance is too large on average, by 2 / numbers.
            part = _divide(spent * max(1.0, total.change) ** 2, ratio) * max(0.0, 1.0 - 2.0 / numbers)
            required += part
            required_variance += 2.0 * part**2 / numbers
        measured_mu = math.sqrt(squared)
        error = math.sqrt(variance) / (2.0 * measured_mu) if math.isfinite(measured_mu) and measured_mu > 0.0 else 0.0
        excess = _divide(required - self.mu**2, math.sqrt(required_variance)) if math.isfinite(required) else math.inf
        return Measured(self.mu, measured_mu, error, float(ndtr(-excess)) >= ERROR)

    def find_quiet_group(self) -> int | None:
        """Find a group with too little noise, in one release or in all; None if there is none."""
        squares = np.array([total.squares / max(1.0, total.change) ** 2 for total in self.sums.values()])
        counts = np.array([total.count for total in self.sums.values()])
        if squares.shape[1] == 1:
            return None
        from scipy.special import gammainc

        squares, counts = np.vstack((squares, squares.sum(axis=0))), np.append(counts, counts.sum())
        tails = gammainc(counts[:, None] / 2.0, squares / 2.0)
        least = np.unravel_index(int(np.argmin(tails)), tails.shape)
        return int(least[1]) if float(tails[least]) * tails.size < ERROR else None


@dataclass
class WordCounts:
    """Numbers of small words among words that must be uniform, for each way in which an attacker computes them."""

    small: dict[str, int] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, words: Keys) -> None:
        """Add words."""
        signed = np.abs(words.view(np.int64).astype(np.float64))
        self.small[name] = self.small.get(name, 0) + int(np.count_nonzero(signed < 2.0**_SMALL_BITS))
        self.total[name] = self.total.get(name, 0) + len(words)

    def add_difference(self, name: str, first: Keys, second: Keys) -> None:
        """Add the differences of the words that two tables have in common."""
        length = min(len(first), len(second))
        self.add(name, first[:length] - second[:length])

    @property
    def are_uniform(self) -> bool:
        """Whether no more words are small than of uniform ones."""
        from scipy.special import bdtrc

        tails = [
            bdtrc(self.small[name] - 1, self.total[name], _SMALL_SHARE) if self.small[name] else 1.0
            for name in self.small
        ]
        return not tails or bool(min(tails) * len(tails) >= ERROR)


def _divide(value: float, by: float) -> float:
    """Divide numbers of at least 0; infinite if the divisor is 0."""
    if by > 0.0:
        return value / by
    return math.inf if value > 0.0 else 0.0
