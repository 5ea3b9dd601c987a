"""Milestones of a run from its records: within 1 % of its final quality, within 1 % of central k-means, best round."""

from collections.abc import Iterable, Mapping
from typing import Any

from p2pkm.methods.tree.local_steps import LocalSteps

Record = dict[str, Any]
# Stages after the method; results of earlier versions may have an acceptance test.
_AFTER = (LocalSteps.name, "accept-test")
# Relative distance to the final ratio, or to central k-means, at which a milestone is reached.
_NEAR = 0.01
# Relative increase over the lowest ratio up to which a ratio counts as the lowest.
_SAME = 1e-4
# The same, up to which quality has not decreased: within the default margin of a comparison, two costs are equivalent.
_WORSE = 0.005
OF_CENTRAL = "_of_central"
_REACHED = ("rounds_to_1pct", "method_rounds_to_1pct", "bytes_to_1pct", "seconds_to_1pct")
BEST = ("ratio_best", "ratio_best_stage", "ratio_best_round")
MILESTONES = (*_REACHED, *(name + OF_CENTRAL for name in _REACHED))


def accumulate_rounds(records: Iterable[Record]) -> list[list[Any]]:
    """List rounds so far, bytes, mean ratio, simulated seconds and encoded bytes of every record.

    Rounds include those of the initialization.
    """
    steps: list[list[Any]] = []
    before = last = 0
    stage = None
    for record in records:
        if record["stage"] != stage or record["round"] < last:
            stage = record["stage"]
            before = before + last
        last = record["round"]
        steps.append([before + last, record["bytes"], record["ratio_mean"], record.get("virtual_seconds")])
        steps[-1].append(record.get("wire_bytes"))
    return steps


def exclude_stages_after(records: list[Record]) -> list[Record]:
    """Return the records without those of the stages after the method."""
    return [record for record in records if record["stage"] not in _AFTER]


def find_milestones(records: list[Record]) -> Record:
    """Find when a run gets to within 1 % of its final mean cost ratio, and of central k-means, and stays there.

    Only recorded rounds are known, so with few records a milestone is an upper bound.

    Returns
    -------
    dict
        Values until the ratio stays within 1 % of its final value, however bad that is:

        * ``rounds_to_1pct``: rounds of all stages, with the initialization;
        * ``method_rounds_to_1pct``: rounds of the method (0: reached by the initialization);
        * ``bytes_to_1pct`` and ``seconds_to_1pct``: bytes and simulated seconds of all stages.

        With the suffix ``_of_central``: until a ratio of at most 1.01. None if this does not happen, or if the last
        record lacks a ratio; seconds are None without a link model.
    """
    steps = accumulate_rounds(records)
    final = steps[-1][2] if steps else None
    method = exclude_stages_after(records)
    # Rounds before the method.
    start = accumulate_rounds(method)[-1][0] - method[-1]["round"] if method else 0
    same = [step[2] is not None and final is not None and abs(step[2] - final) <= _NEAR * abs(final) for step in steps]
    central = [step[2] is not None and step[2] <= 1 + _NEAR for step in steps]
    milestones: Record = dict.fromkeys(MILESTONES)
    for is_reached, goal in ((same, ""), (central, OF_CENTRAL)):
        # The first record of the last uninterrupted sequence that reaches the goal.
        first = len(is_reached)
        while first > 0 and is_reached[first - 1]:
            first -= 1
        if first < len(steps):
            rounds, volume, _, seconds, _ = steps[first]
            figures = (rounds, max(rounds - start, 0), volume, seconds)
            milestones |= {name + goal: figure for name, figure in zip(_REACHED, figures, strict=True)}
    return milestones


def find_best(records: Iterable[Record]) -> Record:
    """Find the lowest mean ratio of a run, and the last recorded round with this ratio (within 0.01 %)."""
    known = [record for record in records if record.get("ratio_mean") is not None]
    if not known:
        return dict.fromkeys(BEST)
    best = min(record["ratio_mean"] for record in known)
    last = [record for record in known if is_best(record["ratio_mean"], best)][-1]
    return dict(zip(BEST, (best, last["stage"], last["round"]), strict=True))


def is_best(ratio: float, best: float) -> bool:
    """Return whether a mean ratio is the best one of its run, within 0.01 %."""
    return ratio <= (1 + _SAME) * best


def is_worse(ratio: float | None, best: float | None) -> bool:
    """Return whether a final mean ratio exceeds the best one of its run by more than 0.5 %."""
    return ratio is not None and best is not None and ratio > (1 + _WORSE) * best


def is_personal(figures: Mapping[str, Any]) -> bool:
    """Return whether the devices of a run have centroids of their own, so that the cost ratio is no measure of quality.

    They differ and suit the test points of each device better than a common clustering, or come from a coupling that
    was estimated from the differences between devices. A higher cost ratio, which is about one clustering for all, is
    then no loss.

    Parameters
    ----------
    figures : mapping
        Metrics of a run, or means over runs.
    """
    if figures.get("centroid_sets") == 1:
        return False
    test_ratio = figures.get("test_ratio_common")
    chosen = figures.get("coupling_chosen") or ""
    return (test_ratio is not None and test_ratio < 1) or "bayes" in chosen or "links" in chosen


def loses_quality(figures: Mapping[str, Any]) -> bool:
    """Return whether the quality of a run decreased before its end; never if `is_personal`.

    Parameters
    ----------
    figures : mapping
        Metrics of a run, or means over runs.
    """
    return not is_personal(figures) and is_worse(figures.get("ratio_mean"), figures.get("ratio_best"))


def write_rounds(figures: Mapping[str, Any], goal: str = "", form: str = "") -> str:
    """Format the rounds to within 1 %, such as "4 (12)": rounds of the method, and all rounds.

    "never" if a compared run did not reach 1 % of central k-means, "-" if it was not compared.

    Parameters
    ----------
    figures : mapping
        Metrics of a run, or means over runs with ``reached_central``, the number of runs that reached 1 % of central
        k-means.
    goal : {"", "_of_central"}
        Suffix of the metrics.
    form : str
        Format of the numbers.
    """
    every, method = (figures.get(f"{name}{goal}") for name in _REACHED[:2])
    if every is None or method is None:
        return "-" if figures.get("ratio_mean") is None or not goal else "never"
    return f"{method:{form}} ({every:{form}})" + (write_share(figures) if goal else "")


def never_reached(row: Mapping[str, Any], name: str) -> bool:
    """Return whether a run was compared with central k-means and did not get to within 1 % of it."""
    # The default 0 is for results of earlier versions, which lack the metric.
    has_reached = row.get(f"rounds_to_1pct{OF_CENTRAL}", 0) is not None
    return name.endswith(OF_CENTRAL) and not has_reached and row.get("ratio_mean") is not None


def write_share(figures: Mapping[str, Any]) -> str:
    """Format the number of runs that got to within 1 % of central k-means, such as " 3/5"; empty if all did."""
    reached = figures.get("reached_central")
    runs = figures.get("seeds")
    return "" if reached is None or reached == runs else f" {reached}/{runs}"
