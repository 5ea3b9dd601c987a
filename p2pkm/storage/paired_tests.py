"""Verdicts on the configurations of a study: better or worse, equivalent, or not distinguished by these seeds.

All pairs of configurations are compared over their common seeds, on one scale (`choose_scale`). Differences are tested
by a paired t-test, or by a signed-rank test if one seed dominates them: a t-test cannot reject equality then. Holm's
correction is over all pairs, because the best configuration is chosen by the same data: correcting only for its pairs
gives 14 % of false verdicts among ten equal configurations. Intervals are at the level of the test of the pair, so an
interval excludes equality exactly if the test rejects it.

Two configurations are equivalent if the 90 % interval of the log ratio of their metrics is within a margin (two
one-sided tests at level 0.05). Equivalence has precedence: a difference within the margin counts as equal, even if it
is significant.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from p2pkm.core.batch import Floats, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.metrics.registry import find

# Level of the tests.
LEVEL = 0.05
# Default margin of equivalence, a log ratio: 0.5 %.
MARGIN = 0.005
# Smallest number of seeds for a t-test.
SEEDS = 5
EQUIVALENT = "equivalent"
UNDECIDED = "not distinguished"
# Smallest number of seeds for a rank test: with seven, no pair is significant after correction for several pairs.
_RANKED = 8
# Largest number of seeds for a rank test: its exact distribution takes time of their cube.
_MANY = 200
# Share of one seed in the squared differences above which the t statistic cannot exceed about 1.
_DOMINATED = 0.5
# Excess over central k-means below which all values are equal.
_FLOOR = 1e-4
# Probability of a verdict for which numbers of seeds are computed.
_POWER = 0.8
# Largest number of seeds that is computed.
_MOST = 10_000
# Verdicts on a lower and a higher value, by the direction in which a metric is better.
_WORDS = {"lower": ("better", "worse"), "higher": ("worse", "better"), "": ("lower", "higher")}

# Options that determine the points of a run; its seed does, too.
_POINTS = (
    "data", "scale", "columns", "drop", "encode", "missing", "keep", "label_column", "device_column", "weight_column",
    "header", "na", "decimal", "thousands", "separator", "encoding", "sheet", "stream",
)  # fmt: skip

Runs = Mapping[int, Mapping[str, Any]]
Name = TypeVar("Name", bound=Hashable)


class PairedTest(NamedTuple):
    """Comparison of a configuration with another one over their common seeds.

    Attributes
    ----------
    verdict : str
        "better" or "worse" ("lower" or "higher" for metrics without a better direction), "equivalent" or "not
        distinguished".
    seeds : int
        Number of common seeds.
    difference : float
        Mean difference of the metric.
    scale : {"excess", "ratio", "difference"}
        Scale of effect and interval, see `choose_scale`.
    effect, low, high : float or None
        Ratio of the excesses or metrics (geometric mean), or difference of the metrics, with an interval at the
        corrected level. None for an end that is infinite, or with too few seeds for a test.
    test : {"t", "rank", ""}
        Test that was used; empty with too few seeds.
    p : float or None
        Two-sided p-value, corrected for all pairs.
    near_low, near_high : float or None
        90 % interval of the log ratio of the metrics, for equivalence; for scores, of the difference divided by the
        larger mean.
    needed : int or None
        Number of seeds for a verdict with probability 0.8, if mean and spread of the differences stay the same; only
        for pairs that are not distinguished. None: more than 10,000.
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
    """Configuration in comparison with the best one.

    Attributes
    ----------
    name : str
        Name of the configuration.
    mean : float
        Mean of the metric over its seeds.
    gap : PairedTest or None
        Comparison with the best configuration; None for the best itself, or without a common seed.
    """

    name: str
    mean: float
    gap: PairedTest | None = None

    @property
    def verdict(self) -> str:
        """Verdict of the comparison with the best; "not distinguished" without a common seed."""
        return UNDECIDED if self.gap is None else self.gap.verdict


class Verdicts:
    """Verdicts on all pairs of configurations.

    Parameters
    ----------
    groups : mapping of name to mapping of int to dict
        Runs of each configuration by seed. Configurations without the metric in all runs are left out.
    figure : str
        Key of the metric.
    margin : float
        Log ratio within which two configurations are equivalent; 0: never.

    Attributes
    ----------
    names : list of str
        Configurations with the metric, the best mean first.
    means : list of float
        Means of these configurations.
    scale : {"excess", "ratio", "difference"}
        Scale of the comparisons, see `choose_scale`.
    """

    def __init__(self, groups: Mapping[Any, Runs], figure: str, margin: float = MARGIN) -> None:
        known = {
            name: {seed: float(row[figure]) for seed, row in group.items()}
            for name, group in groups.items()
            if group and all(row.get(figure) is not None for row in group.values())
        }
        self._better = find(figure).better
        self._margin = check_margin(margin)
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
        """Compare a configuration with another one; None without a common seed or without the metric."""
        if name not in self._place or other not in self._place:
            return None
        i = self._place[name]
        j = self._place[other]
        common = ~np.isnan(self._values[i] - self._values[j])
        if not common.any():
            return None
        first = self._values[i, common]
        second = self._values[j, common]
        gaps = (self._scaled[i] - self._scaled[j])[common]
        count = len(gaps)
        difference = float(np.mean(first - second))
        log_ratios = _relate(first, second, self.scale)
        if count < SEEDS:
            needed = _count_seeds(gaps, log_ratios, self._strictest, self._margin)
            effect = _from_scale(float(gaps.mean()), self.scale)
            return PairedTest(UNDECIDED, count, difference, self.scale, effect, needed=needed)
        p = self._p[i, j]
        level = self._level[i, j]
        test = "rank" if self._by_rank[i, j] else "t"
        effect, low, high = (walsh_interval if test == "rank" else t_interval)(gaps, level)
        near_low, near_high = t_interval(log_ratios, 2 * LEVEL)[1:]
        is_significant = p <= LEVEL
        if max(-near_low, near_high) <= self._margin and self._margin:
            verdict = EQUIVALENT
        else:
            verdict = _WORDS[self._better][int(effect > 0.0)] if is_significant else UNDECIDED
        needed = _count_seeds(gaps, log_ratios, level, self._margin) if verdict == UNDECIDED else None
        return PairedTest(
            verdict, count, difference, self.scale, _from_scale(effect, self.scale), _from_scale(low, self.scale),
            _from_scale(high, self.scale), test, float(p), near_low, near_high, needed,
        )  # fmt: skip

    @property
    def has_ranks(self) -> bool:
        """Whether any pair was compared by a rank test."""
        return bool(self._by_rank.any())

    def _test_all(self) -> None:
        """Test all pairs with enough common seeds, and correct their p-values by Holm's method."""
        n = len(self.names)
        raw = np.full((n, n), np.nan)
        self._by_rank = np.zeros((n, n), np.bool_)
        for i in range(n - 1):
            gaps = self._scaled[i] - self._scaled[i + 1 :]
            p, ranked = find_p_values(gaps)
            raw[i, i + 1 :], self._by_rank[i, i + 1 :] = p, ranked
        pairs = np.nonzero(~np.isnan(raw))
        corrected, levels = correct(raw[pairs])
        self._p = np.full((n, n), np.nan)
        self._level = np.full((n, n), np.nan)
        self._p[pairs], self._level[pairs] = corrected, levels
        self._p.T[pairs], self._level.T[pairs], self._by_rank.T[pairs] = corrected, levels, self._by_rank[pairs]
        self._strictest = LEVEL / max(n * (n - 1) // 2, 1)


def split_points(groups: Mapping[Name, Runs]) -> dict[str, dict[Name, Runs]]:
    """Split configurations into blocks on the same points: metrics on different points are never compared.

    Returns
    -------
    dict of str to dict
        Configurations by the options that determine the points and differ, such as "data wine"; "" if none differs.
    """
    firsts = {name: next(iter(group.values()), {}) for name, group in groups.items()}
    names = [key for key in _POINTS if len({str(row.get(key)) for row in firsts.values()}) > 1]
    blocks: dict[str, dict[Name, Runs]] = {}
    for name, group in groups.items():
        label = ", ".join(f"{key.replace('_', ' ')} {firsts[name].get(key)}" for key in names)
        blocks.setdefault(label, {})[name] = group
    return blocks or {"": {}}


def check_margin(margin: float) -> float:
    """Validate a margin of equivalence.

    Raises
    ------
    ExperimentError
        If the margin is not a number from 0 to less than 1.
    """
    if isinstance(margin, bool) or not isinstance(margin, (int, float, np.floating)) or not 0.0 <= margin < 1.0:
        raise ExperimentError(f"margin is {margin!r}; expected a number from 0 to less than 1, such as 0.005 for 0.5 %")
    return float(margin)


def choose_scale(values: Floats, figure: str) -> str:
    """Choose the scale for the comparison of all configurations, given their metrics float64[n, seeds] (NaN: no run).

    * "difference": the metric itself, such as a score.
    * "ratio": logarithm of a positive metric for which lower is better.
    * "excess": logarithm of the excess of a cost ratio over 1 (at least 0.01 %), if no ratio is below 1 and single
      seeds dominate the differences less than on the scale "ratio".

    The choice does not depend on the signs of differences, so it does not increase the rate of false verdicts.
    """
    known = values[~np.isnan(values)]
    if find(figure).better != "lower" or not (known > 0.0).all():
        return "difference"
    if not figure.startswith("ratio_") or not (known >= 1.0 - _FLOOR).all():
        return "ratio"
    excess, ratio = (_measure_dominance(_transform(values, scale)) for scale in ("excess", "ratio"))
    return "excess" if excess <= ratio else "ratio"


def _measure_dominance(scaled: Floats) -> float:
    """Compute the share of the largest squared difference in the sum over seeds, median over pairs; 0 without pairs."""
    shares = []
    for i in range(len(scaled) - 1):
        squares = np.nan_to_num((scaled[i] - scaled[i + 1 :]) ** 2)
        total = squares.sum(axis=1)
        shares.append(squares.max(axis=1, initial=0.0)[total > 0.0] / total[total > 0.0])
    all_shares = np.concatenate(shares) if shares else np.zeros(0)
    return float(np.median(all_shares)) if len(all_shares) else 0.0


def _transform(values: Floats, scale: str) -> Floats:
    """Transform values to a scale."""
    if scale == "difference":
        return values
    logarithms: Floats = np.log(np.maximum(values - 1.0, _FLOOR) if scale == "excess" else values)
    return logarithms


def _relate(first: Floats, second: Floats, scale: str) -> Floats:
    """Compute log ratios of paired metrics; for scores, differences divided by the larger mean."""
    if scale != "difference":
        return np.log(first) - np.log(second)
    size = max(abs(float(first.mean())), abs(float(second.mean())))
    return (first - second) / size if size else first - second


def _from_scale(value: float, scale: str) -> float | None:
    """Convert a log ratio to a ratio; differences are unchanged, infinite values become None."""
    if not math.isfinite(value):
        return None
    # exp(700) is just below the largest float64.
    return value if scale == "difference" else float(np.exp(min(value, 700.0)))


def find_p_values(gaps: Floats) -> tuple[Floats, Mask]:
    """Test each row of differences: return p-values, NaN with too few seeds, and whether the rank test was used."""
    from scipy.stats import t

    known = ~np.isnan(gaps)
    count = known.sum(axis=1)
    enough = count >= SEEDS
    filled = np.where(known, gaps, 0.0)
    safe = np.maximum(count, 2)
    mean = filled.sum(axis=1) / safe
    spread = np.sqrt((np.where(known, gaps - mean[:, None], 0.0) ** 2).sum(axis=1) / (safe - 1) / safe)
    is_constant = spread <= 1e-12 * np.abs(mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(is_constant, (mean == 0.0).astype(float), 2.0 * t.sf(np.abs(mean) / spread, safe - 1))
    squares = filled**2
    dominated = squares.max(axis=1, initial=0.0) > _DOMINATED * squares.sum(axis=1)
    ranked = dominated & (count >= _RANKED) & (count <= _MANY)
    for row in np.flatnonzero(ranked):
        p[row] = signed_rank(gaps[row, known[row]])
    return np.where(enough, p, np.nan), ranked


def _walsh(gaps: Floats) -> Floats:
    """Compute the Walsh averages: means of all pairs of differences, with pairs of equal index, ascending."""
    i, j = np.triu_indices(len(gaps))
    return np.sort((gaps[i] + gaps[j]) / 2.0)


@lru_cache(maxsize=_MANY)
def _rank_distribution(n: int) -> Floats:
    """Compute the distribution function of Wilcoxon's signed-rank statistic for n differences."""
    ways = np.zeros(n * (n + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, n + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
        ways /= 2.0
    return np.cumsum(ways)


def signed_rank(gaps: Floats) -> float:
    """Compute the p-value of Wilcoxon's signed-rank test of differences; Walsh averages of 0 count for both sides."""
    walsh = _walsh(gaps)
    below = _rank_distribution(len(gaps))
    fewest = min(np.count_nonzero(walsh <= 0.0), np.count_nonzero(walsh >= 0.0))
    return min(1.0, 2.0 * float(below[fewest]))


def walsh_interval(gaps: Floats, level: float) -> tuple[float, float, float]:
    """Compute the Hodges-Lehmann estimate and the interval that excludes 0 exactly if the rank test rejects 0."""
    walsh = _walsh(gaps)
    below = _rank_distribution(len(gaps))
    cut = int(np.count_nonzero(below <= level / 2.0)) - 1
    bounds = (float(walsh[cut]), float(walsh[-1 - cut])) if cut >= 0 else (-math.inf, math.inf)
    return float(np.median(walsh)), *bounds


def t_interval(values: Floats, level: float) -> tuple[float, float, float]:
    """Compute the mean of values and its interval by Student's t; the width is 0 if all values are equal."""
    from scipy.stats import t

    mean = float(values.mean())
    spread = float(values.std(ddof=1))
    if spread <= 1e-12 * abs(mean):
        return (mean,) * 3
    half = float(t.ppf(1.0 - level / 2.0, len(values) - 1)) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half


def estimate_mean(values: Sequence[float] | Any) -> tuple[float, float, float]:
    """Compute the mean of values and its 95 % interval by Student's t; the width is 0 if all values are equal."""
    known = np.asarray(values, float)
    return (float(known[0]),) * 3 if np.ptp(known) == 0.0 else t_interval(known, LEVEL)


def correct(values: Sequence[float] | Floats, factors: Sequence[int] | None = None) -> tuple[Floats, Floats]:
    """Correct p-values for their number by Holm's step-down method (Scand. J. Statist. 6, 1979).

    Parameters
    ----------
    values : float64[n]
        p-values.
    factors : sequence of int, optional
        Number of tests that each step corrects for, from the smallest p-value to the largest, descending; None: the
        number of remaining p-values.

    Returns
    -------
    p : float64[n]
        Corrected p-values.
    level : float64[n]
        Level of each test: an uncorrected p-value is below it exactly if the corrected one is below 0.05.
    """
    known = np.asarray(values, float)
    order = np.argsort(known, kind="stable")
    steps = np.arange(len(known), 0, -1) if factors is None else np.asarray(factors)
    stepped = np.maximum.accumulate(np.minimum(known[order] * steps, 1.0)) if len(known) else known
    rejected = int(np.count_nonzero(stepped <= LEVEL))
    corrected = np.empty(len(known))
    level = np.empty(len(known))
    corrected[order] = stepped
    level[order] = LEVEL / np.maximum(steps, steps[rejected] if rejected < len(known) else 0)
    return corrected, level


@lru_cache(maxsize=256)
def _quantiles(level: float) -> tuple[Floats, Floats]:
    """Return numbers of seeds, and the difference in standard errors that each detects at a level with `_POWER`."""
    from scipy.stats import t

    seeds = np.arange(SEEDS, _MOST + 1, dtype=np.float64)
    return seeds, np.asarray(t.ppf(1.0 - level / 2.0, seeds - 1) + t.ppf(_POWER, seeds - 1), np.float64)


def _count_seeds(gaps: Floats, log_ratios: Floats, level: float, margin: float) -> int | None:
    """Compute the smallest number of seeds, above the present one, with which a t-test or equivalence would decide."""
    if len(gaps) < 2:
        return SEEDS
    seeds, away = _quantiles(level)
    roots = np.sqrt(seeds)
    differs = np.abs(gaps.mean()) * roots >= away * gaps.std(ddof=1)
    differs &= gaps.any()
    within = np.abs(log_ratios.mean()) + _quantiles(2 * LEVEL)[1] * log_ratios.std(ddof=1) / roots <= margin
    enough = (differs | (within & (margin > 0.0))) & (seeds > len(gaps))
    return int(seeds[enough.argmax()]) if enough.any() else None


def rank(groups: Mapping[str, Runs], figure: str, margin: float = MARGIN) -> list[Standing]:
    """Rank the configurations by the mean of a metric, each compared with the best.

    Parameters
    ----------
    groups, figure, margin
        As for `Verdicts`.
    """
    return list_standings(Verdicts(groups, figure, margin))


def list_standings(verdicts: Verdicts) -> list[Standing]:
    """List the configurations, the best first, each compared with the best."""
    names = verdicts.names
    means = verdicts.means
    return [
        Standing(name, mean, verdicts.pair(name, names[0]) if place else None)
        for place, (name, mean) in enumerate(zip(names, means, strict=True))
    ]


def is_unique_best(standings: Sequence[Standing]) -> bool:
    """Return whether every configuration is worse than the first."""
    return len(standings) > 1 and all(other.verdict not in (EQUIVALENT, UNDECIDED) for other in standings[1:])
