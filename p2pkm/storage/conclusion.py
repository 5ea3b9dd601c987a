"""Verdicts of a study in words: sentences to quote, effects with intervals, and the statistical tests."""

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from p2pkm.core.units import count
from p2pkm.metrics.registry import find
from p2pkm.storage.paired_tests import (
    EQUIVALENT,
    MARGIN,
    SEEDS,
    UNDECIDED,
    PairedTest,
    Standing,
    Verdicts,
    estimate_mean,
    list_standings,
    split_points,
)

Groups = Mapping[str, Mapping[int, Mapping[str, Any]]]
BEST = "best"
_SCALES = {"excess": "log excess", "ratio": "log ratios", "difference": "differences"}


def conclude(groups: Groups, figure: str = "ratio_mean", margin: float = MARGIN) -> str:
    """Summarize a study in sentences to quote: the best configuration, and the verdict on each of the others.

    Configurations on different points are not compared: each block on the same points has its sentences.

    Parameters
    ----------
    groups : mapping of str to mapping of int to dict
        Runs of each configuration by seed; keys are names of configurations.
    figure : str
        Key of the metric to compare; the cost ratio by default.
    margin : float
        Log ratio within which two configurations are equivalent.
    """
    blocks = split_points(groups)
    if len(blocks) < 2:
        return _conclude_block(groups, figure, margin)
    return " ".join(
        f"For {label}: {sentences[0].lower()}{sentences[1:]}"
        for label, block in blocks.items()
        if (sentences := _conclude_block(block, figure, margin))
    )


def _conclude_block(groups: Groups, figure: str, margin: float) -> str:
    """Summarize the configurations on the same points."""
    verdicts = Verdicts(groups, figure, margin)
    standings = list_standings(verdicts)
    metric = find(figure)
    if not standings:
        return f"No configuration has the metric {metric.label} in all of its runs, so no best one can be determined."
    best, *remaining = standings
    values = [row[figure] for row in groups[best.name].values()]
    label = "cost relative to central k-means" if figure == "ratio_mean" else metric.label
    what = f"mean {label if metric.scale == 1 else metric.column}"
    mean = f"{best.mean / metric.scale:{_get_format(figure)}}"
    over = f"Over {count(len(values), 'seed')}, {best.name} has "
    if not remaining:
        _, low, high = estimate_mean(values)
        reach = f" (95 % interval {write_value(low, figure)} to {write_value(high, figure)})" if len(values) > 1 else ""
        return f"{over}a {what} of {mean}{reach}."
    extreme = "highest" if metric.better == "higher" else "lowest"
    words = [f"{over}the {extreme} {what} of {count(len(standings), 'configuration')}, {mean}."]
    return " ".join([*words, *_list_verdicts(remaining, figure, margin), describe_test(verdicts, margin)])


def _list_verdicts(standings: Sequence[Standing], figure: str, margin: float) -> list[str]:
    """List a sentence per verdict, with all configurations that have this verdict."""
    titles = {
        EQUIVALENT: f"Equivalent to it within {format_margin(margin)}",
        UNDECIDED: "Not distinguished from it",
    }
    sentences: dict[str, list[str]] = {}
    for standing in standings:
        title = titles.get(standing.verdict, f"{standing.verdict.capitalize()} than it")
        text = "no common seed" if standing.gap is None else format_comparison(standing.gap, figure)
        sentences.setdefault(title, []).append(f"{standing.name} ({text})")
    return [f"{title}: {'; '.join(names)}." for title, names in sentences.items()]


def format_comparison(gap: PairedTest, figure: str) -> str:
    """Describe an effect with its interval; for an undecided pair also the number of seeds for a verdict."""
    parts = [format_effect(gap, figure)]
    if gap.verdict == EQUIVALENT:
        parts.append(f"90 % interval {format_equivalence_interval(gap)}")
    if gap.verdict == UNDECIDED:
        parts.append(format_seeds_needed(gap))
    return ", ".join(parts)


def format_effect(gap: PairedTest, figure: str) -> str:
    """Describe an effect with the interval of its test; without interval if there are too few seeds."""
    if gap.scale == "difference":
        reach = f", interval {_bound(gap.low, figure)} to {_bound(gap.high, figure)}" if gap.test else ""
        return f"difference {_bound(gap.effect, figure)}{reach}"
    what = "excess" if gap.scale == "excess" else "cost" if figure.startswith("ratio_") else find(figure).label
    effect, low, high = ("-" if value is None else write_factor(value) for value in (gap.effect, gap.low, gap.high))
    return f"{what} {effect} times" + (f", interval {low} to {high}" if gap.test else "")


def list_verdicts(groups: Groups, figures: Sequence[str], margin: float = MARGIN) -> list[dict[str, Any]]:
    """List a row per metric and configuration, with the comparison with the best; in each block on the same points."""
    rows = []
    for figure, block in product(figures, split_points(groups).values()):
        standings = list_standings(Verdicts(block, figure, margin))
        empty = dict.fromkeys(PairedTest._fields)
        for standing in standings:
            gap = {**empty, "verdict": UNDECIDED} if standing.gap is None else standing.gap._asdict()
            gap = gap if standing is not standings[0] else {**empty, "verdict": BEST}
            lead = {
                "configuration": standing.name,
                "reference": standings[0].name,
                "figure": figure,
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


def format_equivalence_interval(gap: PairedTest) -> str:
    """Format the interval of the equivalence test in percent; a dash without interval."""
    if gap.near_low is None or gap.near_high is None:
        return "-"
    return f"{100 * gap.near_low:+.3g} % to {100 * gap.near_high:+.3g} %"


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


def format_margin(margin: float) -> str:
    """Format a margin of equivalence in percent."""
    return f"{100 * margin:.3g} %"


def describe_test(verdicts: Verdicts, margin: float = MARGIN) -> str:
    """Describe the statistical tests of the verdicts."""
    ranks = ", signed-rank test where one seed dominates" if verdicts.has_ranks else ""
    equivalence = f"equivalent: 90 % interval of the log ratio within {format_margin(margin)}"
    equivalence = (
        equivalence if verdicts.scale != "difference" else f"equivalent: 90 % interval within {format_margin(margin)}"
    )
    equivalence = equivalence if margin else "no equivalence"
    return (
        f"Paired t-test on {_SCALES[verdicts.scale]} from {SEEDS} seeds{ranks}, Holm correction over all pairs, "
        f"level 0.05, intervals at the corrected level; {equivalence}."
    )


def write_factor(value: float) -> str:
    """Format a factor: 4 decimals close to 1, else 3 significant digits."""
    if 0.0 < abs(value - 1.0) < 0.1:
        return f"{value:.4f}"
    if value < 1000.0 or value >= 1e6:
        return f"{value:.3g}"
    return f"{float(f'{value:.3g}'):,.0f}"


def _get_format(figure: str) -> str:
    return find(figure).form or ".4g"


def write_value(value: float, figure: str) -> str:
    """Format a value of a metric, or a difference, so that it is not rounded to 0."""
    scaled = value / find(figure).scale
    text = f"{scaled:{_get_format(figure)}}"
    return text if float(text) or not scaled else f"{scaled:.1e}"


def _bound(value: float | None, figure: str) -> str:
    """Format a difference with its sign; a dash if there is none."""
    if value is None:
        return "-"
    text = write_value(value, figure)
    return text if text.startswith("-") else f"+{text}"
