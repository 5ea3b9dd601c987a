"""What a run reached when, from its records alone: within 1 % of its final quality, of central k-means, its best."""

from collections.abc import Iterable, Mapping
from typing import Any

from p2pkm.methods.init.accept_test import AcceptTest

Record = dict[str, Any]
_NEAR = 0.01  # of the final ratio, or of central k-means
_WORSE = 1e-4  # of the lowest ratio; a rise of less is none
OF_CENTRAL = "_of_central"
_REACHED = ("rounds_to_1pct", "method_rounds_to_1pct", "bytes_to_1pct", "seconds_to_1pct")
BEST = ("ratio_best", "ratio_best_stage", "ratio_best_round")
MILESTONES = (*_REACHED, *(name + OF_CENTRAL for name in _REACHED))
MILESTONES_LEGEND = (
    "to own 1 %, to central 1 %: until the ratio stays within 1 % of its own final value, of central k-means; rounds "
    "of the method, in brackets all rounds from the start of the initialization"
)


def accumulate_rounds(records: Iterable[Record]) -> list[list[Any]]:
    """Return rounds so far, seeding included, bytes, mean ratio and virtual seconds (or None) of every record."""
    found: list[list[Any]] = []
    before = last = 0
    stage = None
    for record in records:
        if record["stage"] != stage or record["round"] < last:
            stage, before = record["stage"], before + last
        last = record["round"]
        found.append([before + last, record["bytes"], record["ratio_mean"], record.get("virtual_seconds")])
    return found


def of_method(records: list[Record]) -> list[Record]:
    """Return the records without those of the accept test, which comes after the method."""
    return [record for record in records if record["stage"] != AcceptTest.name]


def find_milestones(records: list[Record]) -> Record:
    """Return from when on a run stays within 1 % of its own final mean ratio, and of the cost of central k-means.

    Only what was recorded can be known: with a seldom look, or none before the end, a milestone is one at the latest.

    Returns
    -------
    dict
        Until within 1 % of the run's own final ratio, however bad that is: ``rounds_to_1pct`` of all stages,
        initialization included, ``method_rounds_to_1pct`` of the last one alone (0: the initialization was there
        already), ``bytes_to_1pct`` and the virtual ``seconds_to_1pct`` of all stages. With ``_of_central`` at the end
        of the name: until a ratio of at most 1.01. None if that never happens, if the last record has no ratio, for
        seconds without a network.
    """
    steps = accumulate_rounds(records)
    final = steps[-1][2] if steps else None
    own = of_method(records)
    start = accumulate_rounds(own)[-1][0] - own[-1]["round"] if own else 0
    same = [step[2] is not None and final is not None and abs(step[2] - final) <= _NEAR * abs(final) for step in steps]
    central = [step[2] is not None and step[2] <= 1 + _NEAR for step in steps]
    found: Record = dict.fromkeys(MILESTONES)
    for near, goal in ((same, ""), (central, OF_CENTRAL)):
        first = len(near)
        while first > 0 and near[first - 1]:
            first -= 1
        if first < len(steps):
            rounds, volume, _, seconds = steps[first]
            figures = (rounds, max(rounds - start, 0), volume, seconds)
            found |= {name + goal: figure for name, figure in zip(_REACHED, figures, strict=True)}
    return found


def find_best(records: Iterable[Record]) -> Record:
    """Return the lowest mean ratio of a run, and the last recorded round in which it was that low (within 0.01 %)."""
    known = [record for record in records if record.get("ratio_mean") is not None]
    if not known:
        return dict.fromkeys(BEST)
    best = min(record["ratio_mean"] for record in known)
    last = [record for record in known if not is_worse(record["ratio_mean"], best)][-1]
    return dict(zip(BEST, (best, last["stage"], last["round"]), strict=True))


def is_worse(ratio: float | None, best: float | None) -> bool:
    """Return whether a final mean ratio is worse than the best one of its run, by more than 0.01 %."""
    return ratio is not None and best is not None and ratio > (1 + _WORSE) * best


def write_rounds(figures: Mapping[str, Any], goal: str = "", form: str = "") -> str:
    """Return rounds of the method to 1 %, with those of initialization in brackets: 4 (12), never, - if not compared.

    Parameters
    ----------
    figures : mapping
        Of a run, or means over runs with ``reached_central``, the number of those that came within 1 % of central.
    goal : {"", "_of_central"}
    form : str
        Format of the numbers.
    """
    every, method = (figures.get(f"{name}{goal}") for name in _REACHED[:2])
    if every is None or method is None:
        return "-" if figures.get("ratio_mean") is None or not goal else "never"
    return f"{method:{form}} ({every:{form}})" + (write_share(figures) if goal else "")


def never_reached(row: Mapping[str, Any], name: str) -> bool:
    """Return whether a run was compared with central k-means and never came within 1 % of it."""
    came = row.get(f"rounds_to_1pct{OF_CENTRAL}", 0) is not None  # a result older than the figure does not have it
    return name.endswith(OF_CENTRAL) and not came and row.get("ratio_mean") is not None


def write_share(figures: Mapping[str, Any]) -> str:
    """Return how many of several runs came within 1 % of central, nothing if all did."""
    reached, runs = figures.get("reached_central"), figures.get("seeds")
    return "" if reached is None or reached == runs else f" {reached}/{runs}"
