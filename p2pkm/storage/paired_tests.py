"""Verdicts on the configurations of a study: better or worse, equivalent, or not distinguished by these seeds.

All pairs of configurations are compared over the seeds that both have, on one scale (`choose_scale`). Differences are
tested by a paired t-test, or, where one seed dominates them and a t-test is blind, by a signed-rank test. Holm's
correction is over all pairs, because the best configuration is chosen by the same data: correcting for its pairs alone
gives 14 % of false verdicts among ten equal configurations. Intervals are at the level at which the pair was tested,
so an interval excludes equality exactly where the test rejects it.

Two configurations are equivalent if the 90 % interval of the log ratio of their figures is within a margin (two
one-sided tests at level 0.05). This comes first: a difference within the margin counts as none, however certain.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.metrics.registry import find

LEVEL = 0.05
MARGIN = 0.005  # of the log ratio; 0.5 %
SEEDS = 5  # fewest for a t-test
EQUIVALENT, UNDECIDED = "equivalent", "not distinguished"
_RANKED = 8  # fewest seeds for a rank test: seven cannot be significant beside others
_MANY = 200  # most seeds for a rank test, whose exact distribution takes their cube
_DOMINATED = 0.5  # share of one seed in the squared differences from which on the t statistic cannot exceed about 1
_FLOOR = 1e-4  # excess over central k-means that counts as none
_POWER = 0.8  # with which a number of seeds is to lead to a verdict
_MOST = 10_000  # seeds
_WORDS = {"lower": ("better", "worse"), "higher": ("worse", "better"), "": ("lower", "higher")}

Runs = Mapping[int, Mapping[str, Any]]


class PairedTest(NamedTuple):
    """Comparison of a configuration with another one over their common seeds.

    Attributes
    ----------
    verdict : str
        "better", "worse" (of figures that are neither: "lower", "higher"), "equivalent" or "not distinguished".
    seeds : int
        Common seeds.
    difference : float
        Mean difference of the figure.
    scale : {"excess", "ratio", "difference"}
        Of effect and interval, see `choose_scale`.
    effect, low, high : float or None
        Excess or figure as a multiple of the other's (geometric mean), or its difference, with an interval at the
        corrected level. An end is None if it has no bound, or if there are too few seeds for a test.
    test : {"t", "rank", ""}
    p : float or None
        Two-sided, corrected for all pairs.
    near_low, near_high : float or None
        90 % interval of the log ratio of the figures, for equivalence; of scores the difference as a share of the
        larger one.
    needed : int or None
        Seeds that would lead to a verdict with probability 0.8 if mean and spread of the differences stay the same, of
        a pair that is not distinguished; None: more than 10,000.
    """

    verdict: str
    seeds: int
    difference: float
    scale: str
    effect: float | None
    low: float | None = None
    high: float | None = None
    test: str = ""
    p: float | None = None
    near_low: float | None = None
    near_high: float | None = None
    needed: int | None = None


class Standing(NamedTuple):
    """Configuration beside the best one.

    Attributes
    ----------
    name : str
    mean : float
        Of the figure, over its seeds.
    gap : PairedTest or None
        Its comparison with the best; None of the best itself, or without a common seed.
    """

    name: str
    mean: float
    gap: PairedTest | None = None

    @property
    def verdict(self) -> str:
        """Return the verdict beside the best; not distinguished without a common seed."""
        return UNDECIDED if self.gap is None else self.gap.verdict


class Verdicts:
    """Verdicts on all pairs of configurations.

    Parameters
    ----------
    groups : mapping of name to mapping of int to dict
        The runs of every configuration by their seeds; one that does not have the figure in all runs is left out.
    figure : str
    margin : float
        Log ratio within which two configurations are equivalent; 0: never.

    Attributes
    ----------
    names : list of str
        The configurations with the figure, the best mean first.
    means : list of float
        Of the same.
    scale : {"excess", "ratio", "difference"}
    """

    def __init__(self, groups: Mapping[Any, Runs], figure: str, margin: float = MARGIN) -> None:
        known = {
            name: {seed: float(row[figure]) for seed, row in group.items()}
            for name, group in groups.items()
            if group and all(row.get(figure) is not None for row in group.values())
        }
        self._better, self._margin = find(figure).better, check_margin(margin)
        means = {name: float(np.mean(list(values.values()))) for name, values in known.items()}
        self.names = sorted(known, key=lambda name: means[name], reverse=self._better == "higher")
        self.means = [means[name] for name in self.names]
        seeds = sorted({seed for values in known.values() for seed in values})
        self._values = np.array([[known[name].get(seed, np.nan) for seed in seeds] for name in self.names], float)
        self._values = self._values.reshape(len(self.names), len(seeds))
        self.scale = choose_scale(self._values, figure)
        self._scaled = _transform(self._values, self.scale)
        self._place = {name: place for place, name in enumerate(self.names)}
        self._test_all()

    def pair(self, name: Hashable, other: Hashable) -> PairedTest | None:
        """Return the comparison of a configuration with another one; None without a common seed or the figure."""
        if name not in self._place or other not in self._place:
            return None
        i, j = self._place[name], self._place[other]
        common = ~np.isnan(self._values[i] - self._values[j])
        if not common.any():
            return None
        one, two, gaps = self._values[i, common], self._values[j, common], (self._scaled[i] - self._scaled[j])[common]
        count, difference = len(gaps), float(np.mean(one - two))
        near = _relate(one, two, self.scale)
        if count < SEEDS:
            needed = _count_seeds(gaps, near, self._strictest, self._margin)
            effect = _show(float(gaps.mean()), self.scale)
            return PairedTest(UNDECIDED, count, difference, self.scale, effect, needed=needed)
        p, level, test = self._p[i, j], self._level[i, j], "rank" if self._by_rank[i, j] else "t"
        effect, low, high = (walsh_interval if test == "rank" else _interval)(gaps, level)
        near_low, near_high = _interval(near, 2 * LEVEL)[1:]
        worse = p <= LEVEL
        if max(-near_low, near_high) <= self._margin and self._margin:
            verdict = EQUIVALENT
        else:
            verdict = _WORDS[self._better][int(effect > 0.0)] if worse else UNDECIDED
        needed = _count_seeds(gaps, near, level, self._margin) if verdict == UNDECIDED else None
        return PairedTest(
            verdict, count, difference, self.scale, _show(effect, self.scale), _show(low, self.scale),
            _show(high, self.scale), test, float(p), near_low, near_high, needed,
        )  # fmt: skip

    @property
    def has_ranks(self) -> bool:
        """Return whether any pair was compared by a rank test."""
        return bool(self._by_rank.any())

    def _test_all(self) -> None:
        """Test all pairs with enough common seeds, and correct their p-values by Holm's method."""
        n = len(self.names)
        raw, self._by_rank = np.full((n, n), np.nan), np.zeros((n, n), np.bool_)
        for i in range(n - 1):
            gaps = self._scaled[i] - self._scaled[i + 1 :]
            p, ranked = _test(gaps)
            raw[i, i + 1 :], self._by_rank[i, i + 1 :] = p, ranked
        pairs = np.nonzero(~np.isnan(raw))
        found, levels = correct(raw[pairs])
        self._p, self._level = np.full((n, n), np.nan), np.full((n, n), np.nan)
        self._p[pairs], self._level[pairs] = found, levels
        self._p.T[pairs], self._level.T[pairs], self._by_rank.T[pairs] = found, levels, self._by_rank[pairs]
        self._strictest = LEVEL / max(n * (n - 1) // 2, 1)


def check_margin(margin: float) -> float:
    """Validate a margin of equivalence.

    Raises
    ------
    ExperimentError
        If it is not a number from 0 to 1.
    """
    if isinstance(margin, bool) or not isinstance(margin, (int, float, np.floating)) or not 0.0 <= margin < 1.0:
        raise ExperimentError(f"margin is {margin!r}; expected a share from 0 to less than 1, such as 0.005 for 0.5 %")
    return float(margin)


def choose_scale(values: Floats, figure: str) -> str:
    """Choose the scale on which all configurations are compared, given their figures float64[n, seeds]; NaN: no run.

    "difference": the figure itself, such as a score. "ratio": the log of a positive figure of which less is better.
    "excess": of a cost ratio, none of which is below 1, the log of its excess over 1 (at least 0.01 %), if single seeds
    dominate the differences less on this scale than on that of the ratio. Signs of differences play no part in this,
    so equal configurations are not told apart more often.
    """
    known = values[~np.isnan(values)]
    if find(figure).better != "lower" or not (known > 0.0).all():
        return "difference"
    if not figure.startswith("ratio_") or not (known >= 1.0 - _FLOOR).all():
        return "ratio"
    excess, ratio = (_measure_dominance(_transform(values, scale)) for scale in ("excess", "ratio"))
    return "excess" if excess <= ratio else "ratio"


def _measure_dominance(scaled: Floats) -> float:
    """Return the share of the largest squared difference in the sum over seeds, median over pairs; 0 without any."""
    shares = []
    for i in range(len(scaled) - 1):
        squares = np.nan_to_num((scaled[i] - scaled[i + 1 :]) ** 2)
        total = squares.sum(axis=1)
        shares.append(squares.max(axis=1, initial=0.0)[total > 0.0] / total[total > 0.0])
    found = np.concatenate(shares) if shares else np.zeros(0)
    return float(np.median(found)) if len(found) else 0.0


def _transform(values: Floats, scale: str) -> Floats:
    """Return the values on a scale."""
    if scale == "difference":
        return values
    found: Floats = np.log(np.maximum(values - 1.0, _FLOOR) if scale == "excess" else values)
    return found


def _relate(one: Floats, other: Floats, scale: str) -> Floats:
    """Return the log ratios of paired figures, of scores their differences as shares of the larger mean."""
    if scale != "difference":
        return np.log(one) - np.log(other)
    size = max(abs(float(one.mean())), abs(float(other.mean())))
    return (one - other) / size if size else one - other


def _show(value: float, scale: str) -> float | None:
    """Return a log as a multiple, a difference as it is; None if there is no bound."""
    if not math.isfinite(value):
        return None
    return value if scale == "difference" else float(np.exp(min(value, 700.0)))


def _test(gaps: Floats) -> tuple[Floats, Mask]:
    """Return the p-value of each row of differences, NaN with too few of them, and whether it is of the rank test."""
    from scipy.stats import t

    known = ~np.isnan(gaps)
    count = known.sum(axis=1)
    enough = count >= SEEDS
    filled, safe = np.where(known, gaps, 0.0), np.maximum(count, 2)
    mean = filled.sum(axis=1) / safe
    spread = np.sqrt((np.where(known, gaps - mean[:, None], 0.0) ** 2).sum(axis=1) / (safe - 1) / safe)
    alike = spread <= 1e-12 * np.abs(mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(alike, (mean == 0.0).astype(float), 2.0 * t.sf(np.abs(mean) / spread, safe - 1))
    squares = filled**2
    dominated = squares.max(axis=1, initial=0.0) > _DOMINATED * squares.sum(axis=1)
    ranked = dominated & (count >= _RANKED) & (count <= _MANY)
    for row in np.flatnonzero(ranked):
        p[row] = signed_rank(gaps[row, known[row]])
    return np.where(enough, p, np.nan), ranked


def _walsh(gaps: Floats) -> Floats:
    """Return the means of all pairs of differences, each with itself included, ascending."""
    i, j = np.triu_indices(len(gaps))
    return np.sort((gaps[i] + gaps[j]) / 2.0)


@lru_cache(maxsize=_MANY)
def _rank_distribution(n: int) -> Floats:
    """Return the distribution function of Wilcoxon's signed-rank statistic of n differences."""
    ways = np.zeros(n * (n + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, n + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
        ways /= 2.0
    return np.cumsum(ways)


def signed_rank(gaps: Floats) -> float:
    """Compute the p-value of Wilcoxon's signed-rank test of differences; pair means of 0 count for both sides."""
    walsh, below = _walsh(gaps), _rank_distribution(len(gaps))
    fewest = min(np.count_nonzero(walsh <= 0.0), np.count_nonzero(walsh >= 0.0))
    return min(1.0, 2.0 * float(below[fewest]))


def walsh_interval(gaps: Floats, level: float) -> tuple[float, float, float]:
    """Compute the Hodges-Lehmann estimate and the interval that excludes 0 exactly if the rank test rejects it."""
    walsh, below = _walsh(gaps), _rank_distribution(len(gaps))
    cut = int(np.count_nonzero(below <= level / 2.0)) - 1
    bounds = (float(walsh[cut]), float(walsh[-1 - cut])) if cut >= 0 else (-math.inf, math.inf)
    return float(np.median(walsh)), *bounds


def _interval(values: Floats, level: float) -> tuple[float, float, float]:
    """Return the mean of values and its interval by Student's t; without width if all are the same."""
    from scipy.stats import t

    mean, spread = float(values.mean()), float(values.std(ddof=1))
    if spread <= 1e-12 * abs(mean):
        return (mean,) * 3
    half = float(t.ppf(1.0 - level / 2.0, len(values) - 1)) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half


def estimate_mean(values: Sequence[float] | Any) -> tuple[float, float, float]:
    """Return the mean of values and its 95 % interval by Student's t; without width if all are the same."""
    known = np.asarray(values, float)
    return (float(known[0]),) * 3 if np.ptp(known) == 0.0 else _interval(known, LEVEL)


def correct(values: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    """Correct p-values for their number by Holm's step-down method (Scand. J. Statist. 6, 1979).

    Returns
    -------
    p : float64[n]
        Corrected.
    level : float64[n]
        At which each was tested: an uncorrected p is below it exactly where the corrected one is below 0.05.
    """
    known = np.asarray(values, float)
    order = np.argsort(known, kind="stable")
    steps = np.arange(len(known), 0, -1)
    stepped = np.maximum.accumulate(np.minimum(known[order] * steps, 1.0)) if len(known) else known
    rejected = int(np.count_nonzero(stepped <= LEVEL))
    found, level = np.empty(len(known)), np.empty(len(known))
    found[order] = stepped
    level[order] = LEVEL / np.maximum(steps, len(known) - rejected)
    return found, level


@lru_cache(maxsize=256)
def _quantiles(level: float) -> tuple[Floats, Floats]:
    """Return numbers of seeds, and how many standard errors a difference must be away to be found at a level."""
    from scipy.stats import t

    seeds = np.arange(SEEDS, _MOST + 1, dtype=np.float64)
    return seeds, np.asarray(t.ppf(1.0 - level / 2.0, seeds - 1) + t.ppf(_POWER, seeds - 1), np.float64)


def _count_seeds(gaps: Floats, near: Floats, level: float, margin: float) -> int | None:
    """Return the fewest seeds, more than there are, with which a t-test or equivalence would decide."""
    if len(gaps) < 2:
        return SEEDS
    seeds, away = _quantiles(level)
    roots = np.sqrt(seeds)
    differs = np.abs(gaps.mean()) * roots >= away * gaps.std(ddof=1)
    differs &= gaps.any()
    within = np.abs(near.mean()) + _quantiles(2 * LEVEL)[1] * near.std(ddof=1) / roots <= margin
    enough = (differs | (within & (margin > 0.0))) & (seeds > len(gaps))
    return int(seeds[enough.argmax()]) if enough.any() else None


def rank(groups: Mapping[str, Runs], figure: str, margin: float = MARGIN) -> list[Standing]:
    """Return the configurations, the best mean of a figure first, each compared with the best.

    Parameters
    ----------
    groups, figure, margin
        As of `Verdicts`.
    """
    return list_standings(Verdicts(groups, figure, margin))


def list_standings(verdicts: Verdicts) -> list[Standing]:
    """Return the configurations, the best first, each compared with the best."""
    names, means = verdicts.names, verdicts.means
    return [
        Standing(name, mean, verdicts.pair(name, names[0]) if place else None)
        for place, (name, mean) in enumerate(zip(names, means, strict=True))
    ]


def is_best_alone(standings: Sequence[Standing]) -> bool:
    """Return whether every configuration is worse than the first."""
    return len(standings) > 1 and all(one.verdict not in (EQUIVALENT, UNDECIDED) for one in standings[1:])
