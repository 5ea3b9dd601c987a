"""What the clients of each method with a server report, in rows and columns."""

from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any, NamedTuple

from p2pkm.experiments.plan.draft import RunPlan


class Said(NamedTuple):
    """What clients say and hear.

    Attributes
    ----------
    rows, columns : int
        Of all clients' tables together, and of each.
    exact : bool
        Whether there are so many rows for sure, else at most.
    answered : bool
        Whether the server says k centroids for sure.
    by_points : bool
        Whether every client says a row per point, else all say equally many.
    """

    rows: int
    columns: int
    exact: bool = False
    answered: bool = False
    by_points: bool = False


def report(plan: RunPlan, summed: Callable[[int], bool]) -> Said:
    """Return what the clients report in every round; summed: whether every client finds so many clusters for sure."""
    return _REPORTS[plan.algorithm.name](plan, summed)


def _each(rows: Callable[[Any], int], extra: int) -> Callable[[RunPlan, Callable[[int], bool]], Said]:
    """Return the rule of methods whose clients say the centroids that they find, each with some more columns."""

    def rule(plan: RunPlan, summed: Callable[[int], bool]) -> Said:
        found = rows(plan.algorithm)
        exact = summed(found) and plan.algorithm.name in ("mavg", "fkmeanscb")
        n, d = plan.topology.clients, plan.size.features
        return Said(n * found, d + extra, exact, exact and plan.algorithm.name == "mavg")

    return rule


def _kfed(plan: RunPlan, summed: Callable[[int], bool]) -> Said:
    k, n = plan.algorithm.k, plan.topology.clients
    return Said(n * (plan.algorithm.local_k or max(1 + isqrt(k - 1), -(-k // n))), plan.size.features)


def _mufc(plan: RunPlan, summed: Callable[[int], bool]) -> Said:
    """Return 2 k' n rows of a client: limbs of 32 bits of a prime above the points, above the bins and above 2^31."""
    m, seeds, n = plan.size.points, plan.algorithm.local_k or plan.algorithm.k, plan.topology.clients
    largest = max(m, (round(m**0.5) + 1) ** plan.size.features, 2**31)
    return Said(2 * seeds * n * n, -(-largest.bit_length() // 32), True)


def _points(plan: RunPlan, summed: Callable[[int], bool]) -> Said:
    enough = plan.size.distinct >= plan.algorithm.k
    return Said(plan.size.points, plan.size.features + 1, True, enough, by_points=True)


def _fuzzy(plan: RunPlan, summed: Callable[[int], bool]) -> Said:
    """Return k rows of every client with points; version 1 answers with as many, version 2 with those that differ."""
    some = plan.least >= 1
    return Said(
        plan.topology.clients * plan.algorithm.k, plan.size.features + 1, some, some and plan.algorithm.version == 1
    )


def _own(method: Any) -> int:
    return method.local_k or method.k


_REPORTS: Mapping[str, Callable[[RunPlan, Callable[[int], bool]], Said]] = {
    "fkm": _each(lambda method: method.k, 1),
    "mavg": _each(lambda method: method.k, 0),
    "feca": _each(_own, 1),
    "fkmeanscb": _each(lambda method: method.local_k or max(method.k, 7), 0),
    "kfed": _kfed,
    "mufc": _mufc,
    "ffcm1": _fuzzy,
    "ffcm2": _fuzzy,
    "central": _points,
    "cdkm": _points,
}
