"""Verdicts on the configurations of a study: better or worse, equivalent, or not distinguished by these seeds.

All pairs of configurations are compared over their common seeds. Verdict, effect and intervals are about one quantity:
the ratio of their metrics (geometric mean over the seeds), or for scores and metrics that can be 0 the mean difference.
Excesses over central k-means are not divided by each other: close to 0, the quotient depends on the restarts of central
k-means.

Differences are tested by a paired t-test, or by a signed-rank test if one seed dominates them: a t-test cannot reject
equality then. Holm's correction is over all pairs, because the best configuration is chosen by the same data:
correcting only for its pairs gives 14 % of false verdicts among ten equal configurations. Intervals are at the level of
the test of the pair, so an interval excludes equality exactly if the test rejects it.

Two configurations are equivalent if the 90 % interval by Student's t is within a margin (two one-sided tests at level
0.05, each pair by itself). Equivalence has precedence: a difference within the margin counts as equal, even if it is
significant.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from p2pkm.core.batch import Floats, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.metrics.registry import find

# Keys of the metrics by which configurations are ranked: one clustering for all devices, and a clustering for each.
COMMON = "ratio_mean"
PERSONAL = "test_ratio_common"
# Level of the tests.
LEVEL = 0.05
# Default margin of equivalence: 0.5 %.
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
# Relative difference of two values up to which they are equal: rounding errors of sums.
_ROUNDING = 1e-12
# Probability of a verdict for which numbers of seeds are computed.
_POWER = 0.8
# Largest number of seeds that is computed.
_MOST = 10_000
# Verdicts on a lower and a higher value, by the direction in which a metric is better.
_WORDS = {"lower": ("better", "worse"), "higher": ("worse", "better"), "": ("lower", "higher")}

# Options that determine the points of a run; its seed does, too.
_POINTS = (
    "data", "scale", "columns", "drop", "encode", "missing", "keep", "label_column", "device_column", "weight_column",
    "header", "na", "decimal", "thousands", "separator", "encoding", "sheet", "dates", "rename", "skip_rows",
    "stream",
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
        Mean difference of the metric, in its unit.
    scale : {"ratio", "difference"}
        Quantity of verdict and all following attributes: ratio or difference of the metrics, see `choose_scale`.
    effect : float
        Geometric mean of the ratios, or mean of the differences; with a signed-rank test, their Hodges-Lehmann
        estimate.
    low, high : float or None
        Interval of `effect` at the corrected level. None for an end that is infinite, or without a test.
    test : {"t", "rank", ""}
        Test of the difference: paired t-test, signed-rank test, or none because there are too few seeds.
    p : float or None
        Two-sided p-value, corrected for all pairs.
    near_low, near_high : float or None
        90 % interval by Student's t, for equivalence.
    near_margin : float
        Largest difference that counts as equal: of the ratio from 1, or of the metrics; 0: none.
    needed : int or None
        Number of seeds for a verdict with probability 0.8, if mean and spread of the differences stay the same; only
        for pairs that are not distinguished. None: more than 10,000.
    """

    verdict: str
    seeds: int
    difference: float
    scale: str
    effect: float
    low: float | None = None
    high: float | None = None
    test: str = ""
    p: float | None = None
    near_low: float | None = None
    near_high: float | None = None
    near_margin: float = 0.0
    needed: int | None = None

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """Interval on which the verdict is based: of the test of equivalence, or else of the test of the difference."""
        return (self.near_low, self.near_high) if self.verdict == EQUIVALENT else (self.low, self.high)


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
        Relative difference up to which two configurations are equivalent: each metric is at most 1 + margin times the
        other one; for scores, the difference is at most margin times the larger mean. 0: never.
    scale : {"ratio", "difference"}, optional
        Quantity to compare; None: see `choose_scale`.

    Attributes
    ----------
    figure : str
    names : list of str
        Configurations with the metric, the best mean first.
    means : list of float
        Means of these configurations.
    scale : {"ratio", "difference"}
        Quantity that is compared.
    seeds : list of int
        Number of common seeds of each pair of configurations.
    ranked : int
        Number of pairs that were compared by a signed-rank test.
    """

    def __init__(
        self, groups: Mapping[Any, Runs], figure: str, margin: float = MARGIN, scale: str | None = None
    ) -> None:
        known = _read_values(groups, figure)
        self.figure = figure
        self._better = find(figure).better
        self._margin = check_margin(margin)
        means = {name: float(np.mean(list(values.values()))) for name, values in known.items()}
        self.names = sorted(known, key=lambda name: means[name], reverse=self._better == "higher")
        self.means = [means[name] for name in self.names]
        seeds = sorted({seed for values in known.values() for seed in values})
        self._values = np.array([[known[name].get(seed, np.nan) for seed in seeds] for name in self.names], float)
        self._values = self._values.reshape(len(self.names), len(seeds))
        self.scale = scale or choose_scale(self._values, figure)
        self._scaled = np.log(self._values) if self.scale == "ratio" else self._values
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
        gaps = self._find_gaps(i, [j])[0, common]
        count = len(gaps)
        bound = self._margin * float(np.abs(self._values[[i, j]][:, common].mean(axis=1)).max())
        if self.scale == "ratio":
            bound = math.log1p(self._margin)
        near_margin = self._margin if self.scale == "ratio" else bound
        mean = float(gaps.mean())
        difference = float(np.mean(self._values[i, common] - self._values[j, common]))
        if count < SEEDS:
            needed = _count_seeds(gaps, self._strictest, bound)
            effect = _from_scale(mean, self.scale)
            return PairedTest(UNDECIDED, count, difference, self.scale, effect, near_margin=near_margin, needed=needed)
        p = self._p[i, j]
        level = self._level[i, j]
        test = "rank" if self._by_rank[i, j] else "t"
        effect, low, high = (walsh_interval if test == "rank" else t_interval)(gaps, level)
        near_low, near_high = t_interval(gaps, 2 * LEVEL)[1:]
        verdict = UNDECIDED
        if max(-near_low, near_high) <= bound and self._margin:
            # The test of equivalence is about the mean; where one seed dominates, the other estimate can be far away.
            verdict, effect = EQUIVALENT, mean
        elif p <= LEVEL:
            verdict = _WORDS[self._better][int(effect > 0.0)]
        needed = _count_seeds(gaps, level, bound) if verdict == UNDECIDED else None
        effect, *ends = (_from_scale(value, self.scale) for value in (effect, low, high, near_low, near_high))
        known = [end if math.isfinite(end) else None for end in ends]
        return PairedTest(
            verdict, count, difference, self.scale, effect, known[0], known[1], test, float(p), known[2], known[3],
            near_margin, needed,
        )  # fmt: skip

    def _find_gaps(self, i: int, others: Any) -> Floats:
        """Compute the differences of a configuration and others on the scale, 0 where only rounding errors differ."""
        is_same = np.isclose(self._values[i], self._values[others], rtol=_ROUNDING, atol=0.0)
        return np.where(is_same, 0.0, self._scaled[i] - self._scaled[others])

    def _test_all(self) -> None:
        """Test all pairs with enough common seeds, and correct their p-values by Holm's method."""
        n = len(self.names)
        raw = np.full((n, n), np.nan)
        known = ~np.isnan(self._values)
        self.seeds = [int((known[i] & known[j]).sum()) for i in range(n - 1) for j in range(i + 1, n)]
        self._by_rank = np.zeros((n, n), np.bool_)
        for i in range(n - 1):
            gaps = self._find_gaps(i, slice(i + 1, n))
            p, ranked = find_p_values(gaps)
            raw[i, i + 1 :], self._by_rank[i, i + 1 :] = p, ranked
        self.ranked = int(self._by_rank.sum())
        pairs = np.nonzero(~np.isnan(raw))
        corrected, levels = correct(raw[pairs])
        self._p = np.full((n, n), np.nan)
        self._level = np.full((n, n), np.nan)
        self._p[pairs], self._level[pairs] = corrected, levels
        self._p.T[pairs], self._level.T[pairs], self._by_rank.T[pairs] = corrected, levels, self._by_rank[pairs]
        self._strictest = LEVEL / max(n * (n - 1) // 2, 1)


def _read_values(groups: Mapping[Name, Runs], figure: str) -> dict[Name, dict[int, float]]:
    """Return the metric of each configuration that has it in all runs, by seed."""
    return {
        name: {seed: float(row[figure]) for seed, row in group.items()}
        for name, group in groups.items()
        if group and all(row.get(figure) is not None for row in group.values())
    }


def choose_figure(rows: Iterable[Mapping[str, Any]]) -> str:
    """Choose the key of the metric that ranks configurations.

    Where devices have test points, a clustering for each device is asked for: its test cost. A high cost ratio, which
    is about one clustering for all, may then be what suits the devices. Otherwise it is the cost ratio.
    """
    return PERSONAL if any(row.get(PERSONAL) is not None for row in rows) else COMMON


def judge_blocks(
    groups: Mapping[Name, Runs], figure: str | None = None, margin: float = MARGIN
) -> dict[str, Verdicts]:  # fmt: skip
    """Compare the configurations of each block on the same points, see `split_points`, all on one scale.

    Parameters
    ----------
    groups, margin
        As for `Verdicts`.
    figure : str or None
        Key of the metric; None: chosen for each block by `choose_figure`.
    """
    blocks = split_points(groups)
    figures = {
        label: figure or choose_figure(row for runs in block.values() for row in runs.values())
        for label, block in blocks.items()
    }
    scales = {}
    for key in set(figures.values()):
        values = [value for one in _read_values(groups, key).values() for value in one.values()]
        scales[key] = choose_scale(np.array(values, float), key)
    return {label: Verdicts(block, figures[label], margin, scales[figures[label]]) for label, block in blocks.items()}


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
    """Choose the quantity to compare, given the metrics of all configurations float64[n, seeds] (NaN: no run).

    * "ratio": ratio of positive metrics for which lower is better, such as costs and bytes.
    * "difference": difference of all other metrics, such as scores.
    """
    known = values[~np.isnan(values)]
    return "ratio" if find(figure).better == "lower" and (known > 0.0).all() else "difference"


def _from_scale(value: float, scale: str) -> float:
    """Convert a log ratio to a ratio, infinite above the largest float64; differences are unchanged."""
    if scale == "difference" or not math.isfinite(value):
        return value
    return float(np.exp(min(value, 700.0)))  # exp(700) is just below the largest float64.


def find_p_values(gaps: Floats) -> tuple[Floats, Mask]:
    """Test each row of differences: return p-values, NaN with too few seeds, and whether the rank test was used."""
    # The functions behind scipy.stats.t, whose import takes a second.
    from scipy.special import stdtr

    known = ~np.isnan(gaps)
    count = known.sum(axis=1)
    enough = count >= SEEDS
    filled = np.where(known, gaps, 0.0)
    safe = np.maximum(count, 2)
    mean = filled.sum(axis=1) / safe
    spread = np.sqrt((np.where(known, gaps - mean[:, None], 0.0) ** 2).sum(axis=1) / (safe - 1) / safe)
    is_constant = spread <= 1e-12 * np.abs(mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(is_constant, (mean == 0.0).astype(float), 2.0 * stdtr(safe - 1, -np.abs(mean) / spread))
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
    from scipy.special import stdtrit

    mean = float(values.mean())
    spread = float(values.std(ddof=1))
    if spread <= 1e-12 * abs(mean):
        return (mean,) * 3
    half = float(stdtrit(len(values) - 1, 1.0 - level / 2.0)) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half


def estimate_mean(values: Sequence[float] | Any, figure: str | None = None) -> tuple[float, float, float]:
    """Compute the mean of a metric and its 95 % interval by Student's t; the width is 0 if all values are equal.

    The interval of a cost and of other metrics on the scale "ratio", see `choose_scale`, is that of the logarithm of
    the mean (delta method), so that both ends are positive. Other intervals end where the metric does: at 0, or at 1
    for scores. A bootstrap would be too narrow: with five seeds it covers 82 % of the means, with three 73 %.

    Parameters
    ----------
    values : float64[n]
        At least one value.
    figure : str, optional
        Key of the metric; None: values without limits, such as differences.
    """
    known = np.asarray(values, float)
    if np.ptp(known) == 0.0:
        return (float(known[0]),) * 3
    mean, low, high = t_interval(known, LEVEL)
    if figure is None:
        return mean, low, high
    metric = find(figure)
    if choose_scale(known, figure) == "ratio":
        half = min((high - mean) / mean, 700.0)  # exp(700) is just below the largest float64.
        return mean, mean * math.exp(-half), mean * math.exp(half)
    if metric.better == "lower" and known.min() >= 0.0:
        low = max(low, 0.0)
    if metric.better == "higher" and not metric.unit:
        high = min(high, 1.0)
    return mean, low, high


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
    from scipy.special import stdtrit

    seeds = np.arange(SEEDS, _MOST + 1, dtype=np.float64)
    return seeds, np.asarray(stdtrit(seeds - 1, 1.0 - level / 2.0) + stdtrit(seeds - 1, _POWER), np.float64)


def _count_seeds(gaps: Floats, level: float, bound: float) -> int | None:
    """Compute the smallest number of seeds, above the present one, with which a t-test or equivalence would decide."""
    if len(gaps) < 2:
        return SEEDS
    seeds, away = _quantiles(level)
    roots = np.sqrt(seeds)
    mean, spread = abs(float(gaps.mean())), float(gaps.std(ddof=1))
    differs = (mean * roots >= away * spread) & (mean > 0.0)
    within = (mean + _quantiles(2 * LEVEL)[1] * spread / roots <= bound) & (bound > 0.0)
    enough = (differs | within) & (seeds > len(gaps))
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
    return len(standings) > 1 and all(other.verdict == "worse" for other in standings[1:])
