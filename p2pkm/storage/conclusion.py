"""Verdicts of a study in words: sentences to quote, effects with their intervals, and the tests behind them."""

import csv
import io
from collections.abc import Mapping, Sequence
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
)

Groups = Mapping[str, Mapping[int, Mapping[str, Any]]]
BEST = "best"
_SCALES = {"excess": "log excess", "ratio": "log ratios", "difference": "differences"}


def conclude(groups: Groups, figure: str = "ratio_mean", margin: float = MARGIN) -> str:
    """Return sentences to quote: the best configuration, and the verdict on every other one beside it.

    Parameters
    ----------
    groups : mapping of str to mapping of int to dict
        The runs of every configuration, in words, by their seeds.
    figure : str
        What is compared; the cost over that of central k-means by default.
    margin : float
        Log ratio within which two configurations are equivalent.
    """
    verdicts = Verdicts(groups, figure, margin)
    standings, metric = list_standings(verdicts), find(figure)
    if not standings:
        return f"No configuration has the figure {metric.label} in all of its runs, so none can be called the best."
    best, *others = standings
    values = [row[figure] for row in groups[best.name].values()]
    label = "cost relative to central k-means" if figure == "ratio_mean" else metric.label
    what = f"mean {label if metric.scale == 1 else metric.column}"
    mean, over = f"{best.mean / metric.scale:{_form(figure)}}", f"Over {count(len(values), 'seed')}, {best.name} has "
    if not others:
        _, low, high = estimate_mean(values)
        reach = f" (95 % interval {write_value(low, figure)} to {write_value(high, figure)})" if len(values) > 1 else ""
        return f"{over}a {what} of {mean}{reach}."
    extreme = "highest" if metric.better == "higher" else "lowest"
    words = [f"{over}the {extreme} {what} of {count(len(standings), 'configuration')}, {mean}."]
    return " ".join([*words, *_list_verdicts(others, figure, margin), describe_test(verdicts, margin)])


def _list_verdicts(others: Sequence[Standing], figure: str, margin: float) -> list[str]:
    """Return a sentence for each verdict, with all configurations of which it is the verdict."""
    titles = {
        EQUIVALENT: f"Equivalent to it within {tell_margin(margin)}",
        UNDECIDED: "Not distinguished from it",
    }
    found: dict[str, list[str]] = {}
    for one in others:
        title = titles.get(one.verdict, f"{one.verdict.capitalize()} than it")
        told = "no common seed" if one.gap is None else tell_gap(one.gap, figure)
        found.setdefault(title, []).append(f"{one.name} ({told})")
    return [f"{title}: {'; '.join(names)}." for title, names in found.items()]


def tell_gap(gap: PairedTest, figure: str) -> str:
    """Return an effect with its interval in words, and of a pair that is not distinguished the seeds that it takes."""
    told = [format_effect(gap, figure)]
    if gap.verdict == EQUIVALENT:
        told.append(f"90 % interval {format_equivalence_interval(gap)}")
    if gap.verdict == UNDECIDED:
        told.append(tell_needed(gap))
    return ", ".join(told)


def format_effect(gap: PairedTest, figure: str) -> str:
    """Return an effect with the interval of its test; without interval if there are too few seeds for one."""
    if gap.scale == "difference":
        reach = f", interval {_bound(gap.low, figure)} to {_bound(gap.high, figure)}" if gap.test else ""
        return f"difference {_bound(gap.effect, figure)}{reach}"
    what = "excess" if gap.scale == "excess" else "cost" if figure.startswith("ratio_") else find(figure).label
    effect, low, high = ("-" if one is None else write_factor(one) for one in (gap.effect, gap.low, gap.high))
    return f"{what} {effect} times" + (f", interval {low} to {high}" if gap.test else "")


def list_verdicts(groups: Groups, figures: Sequence[str], margin: float = MARGIN) -> list[dict[str, Any]]:
    """Return a row per figure and configuration, the best first, with its comparison with the best."""
    rows = []
    for figure in figures:
        standings = list_standings(Verdicts(groups, figure, margin))
        empty = dict.fromkeys(PairedTest._fields)
        for one in standings:
            gap = {**empty, "verdict": UNDECIDED} if one.gap is None else one.gap._asdict()
            gap = gap if one is not standings[0] else {**empty, "verdict": BEST}
            lead = {"configuration": one.name, "reference": standings[0].name, "figure": figure, "mean": one.mean}
            rows.append(lead | gap)
    return rows


def write_verdicts(groups: Groups, figures: Sequence[str], margin: float = MARGIN) -> str:
    """Return these rows as CSV."""
    rows, text = list_verdicts(groups, figures, margin), io.StringIO()
    writer = csv.DictWriter(text, ["configuration", "reference", "figure", "mean", *PairedTest._fields])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def format_equivalence_interval(gap: PairedTest) -> str:
    """Return the interval for equivalence in per cent; a dash if there is none."""
    if gap.near_low is None or gap.near_high is None:
        return "-"
    return f"{100 * gap.near_low:+.3g} % to {100 * gap.near_high:+.3g} %"


def tell_needed(gap: PairedTest) -> str:
    """Return how many seeds a verdict would take with probability 0.8."""
    if gap.seeds == 1:
        return f"takes at least {SEEDS} seeds"
    return "takes more than 10,000 seeds" if gap.needed is None else f"takes about {gap.needed:,} seeds"


def format_verdict(gap: PairedTest | None) -> str:
    """Return a verdict in few words, for tables and figures."""
    if gap is None:
        return f"{UNDECIDED} (no common seed)"
    return f"{UNDECIDED} ({tell_needed(gap)})" if gap.verdict == UNDECIDED else gap.verdict


def tell_margin(margin: float) -> str:
    """Return a margin of equivalence in per cent."""
    return f"{100 * margin:.3g} %"


def describe_test(verdicts: Verdicts, margin: float = MARGIN) -> str:
    """Return which tests the verdicts are of."""
    ranks = ", signed-rank test where one seed dominates" if verdicts.has_ranks else ""
    near = f"equivalent: 90 % interval of the log ratio within {tell_margin(margin)}"
    near = near if verdicts.scale != "difference" else f"equivalent: 90 % interval within {tell_margin(margin)}"
    return (f"Paired t-test on {_SCALES[verdicts.scale]} from {SEEDS} seeds{ranks}, Holm correction over all pairs, "
            f"level 0.05, intervals at the corrected level; {near if margin else 'no equivalence'}.")  # fmt: skip


def write_factor(value: float) -> str:
    """Return a multiple with three digits after what makes it differ from 1, but no more than needed."""
    near = abs(value - 1.0)
    return f"{value:.4f}" if 0.0 < near < 0.1 else f"{value:,.3g}" if value < 1000 else f"{value:.2e}"


def _form(figure: str) -> str:
    return find(figure).form or ".4g"


def write_value(value: float, figure: str) -> str:
    """Write a value of a metric, or a difference, such that it is not rounded to 0."""
    scaled = value / find(figure).scale
    text = f"{scaled:{_form(figure)}}"
    return text if float(text) or not scaled else f"{scaled:.1e}"


def _bound(value: float | None, figure: str) -> str:
    """Write a difference with its sign; a dash if there is none."""
    if value is None:
        return "-"
    text = write_value(value, figure)
    return text if text.startswith("-") else f"+{text}"
