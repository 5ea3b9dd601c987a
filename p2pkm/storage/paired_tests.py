"""Which configuration of a study is the best, and whether the seeds can tell it from the others."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.units import count
from p2pkm.metrics.registry import find

LEVEL = 0.05
TEST = "paired t-test over seeds, Holm correction, level 0.05"


class PairedTest(NamedTuple):
    """A paired t-test over the seeds that two configurations share.

    Attributes
    ----------
    mean, low, high : float
        Mean difference with its 95 % interval by Student's t.
    p : float or None
        Two-sided; None with one seed, which tells nothing of others.
    seeds : int
    """

    mean: float
    low: float
    high: float
    p: float | None
    seeds: int


class Standing(NamedTuple):
    """Where a configuration stands.

    Attributes
    ----------
    name : str
    mean : float
        Of the figure, over its seeds.
    gap : PairedTest or None
        Its difference to the best; None of the best itself, or without a common seed.
    tied : bool or None
        Whether the test, corrected for all others, does not tell it from the best; None of the best itself, or where
        there are too few seeds for a test.
    """

    name: str
    mean: float
    gap: PairedTest | None = None
    tied: bool | None = None


def compare_pairs(
    group: Mapping[int, Mapping[str, Any]], other: Mapping[int, Mapping[str, Any]], figure: str
) -> PairedTest | None:
    """Return the paired test of a figure of two configurations, given their runs by seeds; None without common ones.

    Differences that are all the same have no spread: then p is 1 if they are 0, else 0.
    """
    gaps = np.array([group[seed][figure] - other[seed][figure] for seed in sorted(group.keys() & other.keys())], float)
    if len(gaps) == 0:
        return None
    mean, low, high = estimate_mean(gaps)
    if len(gaps) == 1:
        return PairedTest(mean, low, high, None, 1)
    if low == high:
        return PairedTest(mean, low, high, float(mean == 0.0), len(gaps))
    from scipy.stats import t

    spread = gaps.std(ddof=1) / np.sqrt(len(gaps))
    return PairedTest(mean, low, high, float(2 * t.sf(abs(mean) / spread, len(gaps) - 1)), len(gaps))


def estimate_mean(values: Sequence[float] | Any) -> tuple[float, float, float]:
    """Return the mean of values and its 95 % interval by Student's t; without width if all are the same."""
    from scipy.stats import t

    known = np.asarray(values, float)
    if np.ptp(known) == 0.0:
        return (float(known[0]),) * 3
    mean = float(known.mean())
    half = float(t.ppf(1 - LEVEL / 2, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return mean, mean - half, mean + half


def correct(values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many there are, by Holm's step-down method (Scand. J. Statist. 6, 1979)."""
    order = np.argsort(values, kind="stable")
    stepped = np.minimum(np.asarray(values, float)[order] * np.arange(len(values), 0, -1), 1.0)
    found = np.empty(len(values))
    found[order] = np.maximum.accumulate(stepped)
    return [float(value) for value in found]


def rank(groups: Mapping[str, Mapping[int, Mapping[str, Any]]], figure: str) -> list[Standing]:
    """Return the configurations, the best mean of a figure first, each tested against the best.

    Parameters
    ----------
    groups : mapping of str to mapping of int to dict
        The runs of every configuration by their seeds; one that does not have the figure in all runs is left out.
    figure : str
    """
    known = {
        name: {seed: row for seed, row in group.items()}
        for name, group in groups.items()
        if group and all(row.get(figure) is not None for row in group.values())
    }
    means = {name: estimate_mean([row[figure] for row in group.values()])[0] for name, group in known.items()}
    order = sorted(known, key=lambda name: means[name], reverse=find(figure).better == "higher")
    if not order:
        return []
    best, *others = order
    gaps = {name: compare_pairs(known[name], known[best], figure) for name in others}
    tested = {name: gap.p for name, gap in gaps.items() if gap is not None and gap.p is not None}
    tied = {name: p >= LEVEL for name, p in zip(tested, correct(list(tested.values())), strict=True)}
    return [Standing(best, means[best]), *(Standing(name, means[name], gaps[name], tied.get(name)) for name in others)]


def is_best_alone(standings: Sequence[Standing]) -> bool:
    """Return whether the first is significantly better than every other one."""
    return len(standings) > 1 and all(one.tied is False for one in standings[1:])


def conclude(groups: Mapping[str, Mapping[int, Mapping[str, Any]]], figure: str = "ratio_mean") -> str:
    """Return one sentence that says which configuration is the best, by how much and how surely, or that it is a tie.

    Parameters
    ----------
    groups : mapping of str to mapping of int to dict
        The runs of every configuration, in words, by their seeds.
    figure : str
        What is compared; the cost over that of central k-means by default.
    """
    standings = rank(groups, figure)
    metric = find(figure)
    if not standings:
        return f"No configuration has the figure {metric.label} in all of its runs, so none can be called the best."
    best, *others = standings
    seeds = len(groups[best.name])
    over = f"Over {count(seeds, 'seed')}, "
    _, low, high = estimate_mean([row[figure] for row in groups[best.name].values()])
    label = "cost relative to central k-means" if figure == "ratio_mean" else metric.label
    what = f"mean {label if metric.scale == 1 else metric.column}"
    extreme = "highest" if metric.better == "higher" else "lowest"
    mean = f"{best.mean / metric.scale:{_form(figure)}}"
    if not others:
        reach = f" (95 % interval {_write(low, figure)} to {_write(high, figure)})" if seeds > 1 else ""
        return f"{over}{best.name} has a {what} of {mean}{reach}."
    if any(one.tied is None for one in others):
        return (f"{over}{best.name} has the {extreme} {what} ({mean}), but without at least two common seeds it cannot "
                "be told from chance.")  # fmt: skip
    tied = [one for one in others if one.tied]
    if not tied:
        return (f"{over}{best.name} has the {extreme} {what} of {count(len(standings), 'configuration')}, {mean}; the "
                f"next, {_tell_next(others[0], figure, metric.better)}.")  # fmt: skip
    if len(tied) == len(others) > 1:
        return (f"{over}the {len(standings)} configurations are tied: {best.name} has the {extreme} {what}, {mean}, "
                f"but is significantly better than none of the others ({TEST}).")  # fmt: skip
    more = f" and {count(len(tied) - 1, 'more configuration')}" if len(tied) > 1 else ""
    return (f"{over}{best.name} has the {extreme} {what}, {mean}, but is tied with {_tell_next(tied[0], figure)}"
            f"{more}.")  # fmt: skip


def _tell_next(one: Standing, figure: str, better: str = "") -> str:
    """Return a configuration and its difference to the best in words."""
    assert one.gap is not None
    gap, sign = one.gap, -1 if better == "higher" else 1
    low, high = sorted((sign * gap.low, sign * gap.high))
    way = {"lower": " higher", "higher": " lower"}.get(better, "")
    reach = f"95 % interval {_write(low, figure)} to {_write(high, figure)}"
    if not way:
        return f"{one.name} (difference {_write(gap.mean, figure)}, {reach}; {TEST})"
    return f"{one.name}, is {_write(sign * gap.mean, figure)}{way} ({reach}; {TEST})"


def _form(figure: str) -> str:
    return find(figure).form or ".4g"


def _write(value: float, figure: str) -> str:
    """Write a value of a figure, or a difference, so that it is not rounded to nothing."""
    scaled = value / find(figure).scale
    text = f"{scaled:{_form(figure)}}"
    return text if float(text) or not scaled else f"{scaled:.1e}"
