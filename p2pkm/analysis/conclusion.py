"""Verdicts of a study in words: sentences to quote, effects with intervals, and the statistical tests."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from p2pkm.analysis.paired_tests import (
    COMMON,
    EQUIVALENT,
    LEVEL,
    MARGIN,
    PERSONAL,
    SEEDS,
    UNDECIDED,
    PairedTest,
    Standing,
    Verdicts,
    estimate_mean,
    judge_blocks,
    list_standings,
    split_points,
)
from p2pkm.core.units import count
from p2pkm.metrics.registry import find

Groups = Mapping[str, Mapping[int, Mapping[str, Any]]]
BEST = "best"
_SCALES = {"ratio": "log ratios", "difference": "differences"}
# Names of the metrics that rank configurations in sentences, and of their effects.
_LABELS = {COMMON: "cost relative to central k-means", PERSONAL: "test cost relative to a common clustering"}
_EFFECTS = {COMMON: "cost", PERSONAL: "test cost"}
# Differences below this percentage, such as 1.62e-08 %, are rounding errors and shown with three decimals.
_LEAST_PERCENT = 0.001


def conclude(
    groups: Groups, figure: str | None = None, margin: float = MARGIN, failed: Mapping[str, int] | None = None
) -> str:
    """Summarize a study in sentences to quote: the best configuration, and the verdict on each of the others.

    Configurations on different points are not compared: each block on the same points has its sentences. Where devices
    have test points, the first sentences rank by the test cost of the devices, with the ARI over all devices beside it,
    and the last ones by the cost ratio of one clustering for all.

    Parameters
    ----------
    groups : mapping of str to mapping of int to dict
        Runs of each configuration by seed; keys are names of configurations.
    figure : str
        Key of the metric to compare; None: test cost or cost ratio, see `choose_figure`.
    margin : float
        Relative difference up to which two configurations are equivalent, see `Verdicts`.
    failed : mapping of str to int, optional
        Number of failed runs of each configuration that has any.
    """
    words = []
    for label, verdicts in judge_blocks(groups, figure, margin).items():
        block = split_points(groups)[label]
        sentences = _conclude_block(block, verdicts, margin)
        if figure is None and verdicts.figure == PERSONAL:
            of_all = judge_blocks(groups, COMMON, margin)[label]
            common = _conclude_block(block, of_all, margin, described=describe_test(verdicts, margin))
            sentences = " ".join([
                _lead("A clustering for each device, on its test points", sentences),
                *_list_scores(block),
                _lead("One clustering for all devices", common),
            ])
        words.append(_lead(f"For {label}", sentences) if label else sentences)
    if failed:
        listed = [f"{runs} of {runs + len(groups.get(name, ()))} of {name}" for name, runs in failed.items()]
        words.append(f"Failed runs are left out: {'; '.join(listed)}.")
    return " ".join(words)


def _lead(topic: str, sentences: str) -> str:
    """Write what sentences are about before the first of them."""
    return f"{topic}: {sentences[0].lower()}{sentences[1:]}"


def _list_scores(groups: Groups) -> list[str]:
    """List the mean ARI of the test points of all devices together, if classes are known, the highest first."""
    means, unknown = dict[str, float](), list[str]()
    for name, runs in groups.items():
        values = [row.get("test_ari_all") for row in runs.values()]
        if None in values or not values:
            unknown.append(name)
        else:
            means[name] = float(np.mean(np.array(values, float)))
    if not means:
        return []
    listed = [f"{name} {means[name]:.3f}" for name in sorted(means, key=lambda name: -means[name])]
    without = [f"not known for {', '.join(unknown)}"] if unknown else []
    return [f"ARI of the test points of all devices together: {'; '.join([*listed, *without])}."]


def _conclude_block(groups: Groups, verdicts: Verdicts, margin: float, *, described: str = "") -> str:
    """Summarize the configurations on the same points; tests that were `described` before are not described again."""
    figure, standings = verdicts.figure, list_standings(verdicts)
    metric = find(figure)
    if not standings:
        return f"No configuration has the metric {metric.label} in all of its runs, so no best one can be determined."
    best, *remaining = standings
    values = [row[figure] for row in groups[best.name].values()]
    label = _LABELS.get(figure, metric.label)
    what = f"mean {label if metric.scale == 1 else metric.column}"
    mean = f"{best.mean / metric.scale:{_get_format(figure)}}"
    over = f"Over {count(len(values), 'seed')}, {best.name} has "
    unknown = [name for name in groups if name not in verdicts.names]
    left_out = [f"Not compared, because some runs lack the metric: {'; '.join(unknown)}."] if unknown else []
    if not remaining:
        _, low, high = estimate_mean(values, figure)
        reach = f" (95 % interval {write_value(low, figure)} to {write_value(high, figure)})" if len(values) > 1 else ""
        return " ".join([f"{over}a {what} of {mean}{reach}.", *left_out])
    extreme = "highest" if metric.better == "higher" else "lowest"
    words = [f"{over}the {extreme} {what} of {count(len(standings), 'configuration')}, {mean}."]
    within = format_margin(margin, verdicts.scale)
    words += [*_list_verdicts(remaining, figure, len(values), within), *left_out]
    tests = describe_test(verdicts, margin)
    return " ".join(words if tests == described else [*words, tests])


def _list_verdicts(standings: Sequence[Standing], figure: str, seeds: int, within: str) -> list[str]:
    """List a sentence per verdict, with all configurations that have this verdict.

    Parameters
    ----------
    standings : sequence of Standing
        All but the best.
    figure : str
    seeds : int
        Number of seeds of the best.
    within : str
        Margin of equivalence.
    """
    titles = {
        EQUIVALENT: f"Equivalent to it within {within}",
        UNDECIDED: "Not distinguished from it",
        # The best is chosen by the mean, which one seed can decide.
        "better": "Better than it in the test, though not in the mean",
    }
    sentences: dict[str, list[str]] = {}
    for standing in standings:
        title = titles.get(standing.verdict, f"{standing.verdict.capitalize()} than it")
        text = "no common seed"
        if standing.gap is not None:
            text = format_comparison(standing.gap, figure)
            text += f", {count(standing.gap.seeds, 'common seed')}" if standing.gap.seeds < seeds else ""
        sentences.setdefault(title, []).append(f"{standing.name} ({text})")
    return [f"{title}: {'; '.join(names)}." for title, names in sentences.items()]


def format_comparison(gap: PairedTest, figure: str) -> str:
    """Describe an effect with the interval of its verdict; for an undecided pair also the number of seeds for one."""
    equal = 1.0 if gap.scale == "ratio" else 0.0
    if gap.effect == equal and gap.interval == (equal, equal):
        return f"{_name_effect(gap, figure)} identical"
    text = f"{_name_effect(gap, figure)} {format_effect(gap.effect, gap, figure)}"
    if gap.test:
        level = "90 % interval" if gap.verdict == EQUIVALENT else "interval"
        text += f", {level} {format_interval(gap, figure)}"
    if gap.test == "rank" and gap.verdict != EQUIVALENT:
        text += ", of a typical seed (signed-rank test)"
    return f"{text}, {format_seeds_needed(gap)}" if gap.verdict == UNDECIDED else text


def _name_effect(gap: PairedTest, figure: str) -> str:
    """Name the metric of an effect, with the unit of a difference."""
    if figure in _EFFECTS:
        return _EFFECTS[figure]
    metric = find(figure)
    return metric.column if gap.scale == "difference" and metric.scale != 1 else metric.label


def format_effect(value: float | None, gap: PairedTest, figure: str) -> str:
    """Format an effect, or an end of its interval, with its sign: a ratio as a difference in percent."""
    if value is None:
        return "unlimited"
    if gap.scale == "ratio":
        return format_percent(value - 1.0)
    text = write_value(value, figure)
    return text if text.startswith("-") else f"+{text}"


def format_interval(gap: PairedTest, figure: str) -> str:
    """Format the interval on which a verdict is based; a dash without a test."""
    if not gap.test:
        return "-"
    low, high = (format_effect(end, gap, figure) for end in gap.interval)
    return f"{low} to {high}"


def format_percent(share: float) -> str:
    """Format a relative difference in percent with its sign, three significant digits; tiny ones as +0.000 %."""
    percent = float(f"{100.0 * share:.3g}")
    if 0.0 < abs(percent) < _LEAST_PERCENT:
        return f"{percent:+.3f} %"
    return f"{percent:+,.0f} %" if abs(percent) >= 1000.0 else f"{percent:+.3g} %"


def list_verdicts(groups: Groups, figures: Sequence[str | None], margin: float = MARGIN) -> list[dict[str, Any]]:
    """List a row per metric and configuration, with the comparison with the best; in each block on the same points.

    The metric None is chosen for each block by `choose_figure`.
    """
    rows = []
    empty = dict.fromkeys(PairedTest._fields)
    for figure in figures:
        for verdicts in judge_blocks(groups, figure, margin).values():
            for standing in (standings := list_standings(verdicts)):
                gap = empty | {"verdict": BEST}
                if standing is not standings[0]:
                    gap = empty | {"verdict": UNDECIDED} if standing.gap is None else standing.gap._asdict()
                lead = {
                    "configuration": standing.name,
                    "reference": standings[0].name,
                    "figure": verdicts.figure,
                    "mean": standing.mean,
                }
                rows.append(lead | gap)
    return rows


def write_verdicts(groups: Groups, figures: Sequence[str], margin: float = MARGIN) -> str:
    """Return the rows of `list_verdicts` as CSV."""
    rows = list_verdicts(groups, figures, margin)
    text = io.StringIO()
    writer = csv.DictWriter(text, ["configuration", "reference", "figure", "mean", *PairedTest._fields])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def format_seeds_needed(gap: PairedTest) -> str:
    """Format the number of seeds for a verdict with probability 0.8."""
    if gap.seeds == 1:
        return f"requires at least {SEEDS} seeds"
    return "requires more than 10,000 seeds" if gap.needed is None else f"requires about {gap.needed:,} seeds"


def format_verdict(gap: PairedTest | None) -> str:
    """Format a verdict for tables and figures."""
    if gap is None:
        return f"{UNDECIDED} (no common seed)"
    return f"{UNDECIDED} ({format_seeds_needed(gap)})" if gap.verdict == UNDECIDED else gap.verdict


def format_margin(margin: float, scale: str) -> str:
    """Format a margin of equivalence in percent."""
    return f"{100 * margin:.3g} %" + (" of the larger mean" if scale == "difference" else "")


def describe_test(verdicts: Verdicts, margin: float = MARGIN) -> str:
    """Describe the statistical tests that were made: which, of how many pairs, on how many seeds."""
    seeds = [number for number in verdicts.seeds if number >= SEEDS]
    if not verdicts.seeds:
        return "No test was made: there is one configuration."
    if not seeds:
        most = max(verdicts.seeds)
        common = "the configurations have no common seed"
        if most:
            common = "there is one seed" if most == 1 else f"there are {most} common seeds"
        return f"No test was made: {common}, and a test requires at least {SEEDS}."
    pairs = count(len(seeds), "pair") + " of configurations"
    on = f"{seeds[0]} common seeds" if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)} common seeds"
    words = f"Paired t-test on {_SCALES[verdicts.scale]} of {on} for {pairs}"
    if verdicts.ranked == len(seeds):
        words = f"Signed-rank test on {_SCALES[verdicts.scale]} of {on} for {pairs}, because one seed dominates"
    elif verdicts.ranked:
        words += f", signed-rank test for {verdicts.ranked} of them where one seed dominates"
    if untested := len(verdicts.seeds) - len(seeds):
        words += f", no test for {count(untested, 'pair')} with fewer than {SEEDS} common seeds"
    words += f", level {LEVEL}"
    if len(seeds) > 1:
        words += " with Holm correction over these pairs; intervals are at the corrected level"
    within = format_margin(margin, verdicts.scale)
    return f"{words}." + (f" Equivalent: 90 % t interval within {within}." if margin else "")


def _get_format(figure: str) -> str:
    return find(figure).form or ".4g"


def write_value(value: float, figure: str) -> str:
    """Format a value of a metric, or a difference, so that it is not rounded to 0."""
    scaled = value / find(figure).scale
    text = f"{scaled:{_get_format(figure)}}"
    return text if float(text) or not scaled else f"{scaled:.1e}"
