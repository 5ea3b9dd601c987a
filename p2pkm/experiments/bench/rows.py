"""Rows of the benchmark, from the rows of its study."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from p2pkm.experiments.bench.entries import Entry
from p2pkm.experiments.bench.references import Reference, References, name_points
from p2pkm.experiments.bench.suites import TEST, Suite, Task
from p2pkm.storage.study_rows import Row

COLUMNS = (
    "suite", "suite_version", "task", "graph", "seed", "entry", "algorithm", "defaults", "encoding", "trust", "cost",
    "reference_cost", "excess", "start_excess", "excess_worst", "bytes_over_raw", "busiest_over_raw", "rounds",
    "bytes_to_1_over_raw", "seconds_lan", "seconds_wan", "seconds_edge", "disclosed", "status", "reason", "points",
)  # fmt: skip
# Further columns of rows with test points.
TESTED = ("test_ratio_common", "test_ratio_alone", "test_ratio_centers", "test_ari", "test_ari_all")
_BYTES = 8  # of a value of a raw point
_NEAR = 0.01  # excess that counts as reached
_DONE = "done"
_UNFINISHED = ("rejected", "failed", "timeout")


class Place(NamedTuple):
    """Place of a run in the benchmark.

    Attributes
    ----------
    number : int
        Number of the row.
    task : Task
    entry : Entry
    graph : str
        Graph, or "server".
    seed : int
    """

    number: int
    task: Task
    entry: Entry
    graph: str
    seed: int


def make_row(suite: Suite, place: Place, measured: Row, references: References) -> Row:
    """Make the row of the benchmark from a row of a study.

    A run on other points than those of its reference is a failure, because its excess would be wrong.
    """
    _, task, entry, graph, seed = place
    row: Row = dict.fromkeys(COLUMNS)
    row |= {"suite": suite.name, "suite_version": suite.version, "task": task.name, "graph": graph,
            "seed": seed, "entry": entry.name, "algorithm": measured["algorithm"], "defaults": entry.defaults,
            "encoding": entry.encoding, "trust": entry.trust, "points": name_points(task, seed)}  # fmt: skip
    if suite.measure == TEST:
        # The cost of all points has no part in the ranking, so its reference is not searched.
        return _rank_by_tests(row | {"family": task.family}, suite, place, measured)
    reference = references.find(task, seed)
    row["reference_cost"] = None if reference is None else reference.cost
    status = measured["termination"] if measured["termination"] in _UNFINISHED else _DONE
    reason = measured["error"] or _find_fault(measured, reference)
    if reason is not None:
        return row | {"status": "failed" if status == _DONE else status, "reason": reason}
    assert reference is not None
    return row | {
        "excess": measured["cost_mean"] / reference.cost - 1.0,
        "start_excess": _measure_start(measured, reference),
        "excess_worst": measured["cost_worst"] / reference.cost - 1.0,
        "bytes_to_1_over_raw": _find_bytes(measured, reference, _count_raw(measured)),
        **_measure(suite, place, measured),
    }


def _rank_by_tests(row: Row, suite: Suite, place: Place, measured: Row) -> Row:
    """Make the row of a suite that ranks by test points."""
    termination = measured["termination"]
    status, reason = (termination if termination in _UNFINISHED else _DONE), measured["error"]
    if reason is None and measured["test_ratio_common"] is None:
        reason = "no device has test points and centroids; data without test points need test_share"
    if reason is not None:
        return row | {"status": "failed" if status == _DONE else status, "reason": reason}
    return row | _measure(suite, place, measured)


def _measure(suite: Suite, place: Place, measured: Row) -> Row:
    """Return the columns of a finished run that need no reference."""
    raw = _count_raw(measured)
    return {
        "encoding": measured["message_encoding"],
        "cost": measured["cost_mean"],
        "bytes_over_raw": measured["wire_bytes"] / raw,
        "busiest_over_raw": measured["wire_bytes_busiest"] / raw,
        "rounds": measured["rounds"],
        **{f"seconds_{name}": _find_seconds(name, place, measured) for name in suite.link_models},
        "disclosed": measured["raw_points_disclosed"],
        "status": _DONE,
        **{key: measured[key] for key in TESTED if measured[key] is not None},
    }


def _find_seconds(link_model: str, place: Place, measured: Row) -> float | None:
    """Return the simulated time; with a deadline, on whose link model the messages depend, on this one only."""
    options = place.entry.options
    if "deadline" not in options:
        return measured.get(f"seconds_{link_model}")
    return measured["virtual_seconds"] if str(options["link_model"]) == link_model else None


def _count_raw(measured: Row) -> int:
    """Return the bytes of the raw points."""
    return int(measured["points"] * measured["features"] * _BYTES)


def _find_fault(measured: Row, reference: Reference | None) -> str | None:
    """Return the reason why a finished run cannot be compared with its reference; None if it can."""
    if reference is None:
        return "the task has no reference"
    if measured["points_sha256"] != reference.points_sha256:
        return (
            f"the points have the checksum {measured['points_sha256']}; expected {reference.points_sha256}, that of "
            "the reference. Search the reference again with update_reference"
        )
    if measured["cost_mean"] is None:
        return "no device has centroids at the end"
    return None if reference.cost > 0.0 else "the cost of the reference is 0, so that no excess exists"


def _measure_start(measured: Row, reference: Reference) -> float | None:
    """Return the excess before the first round of the method."""
    start, central = measured["ratio_start"], measured["cost_central"]
    if start is None or central is None:
        return None
    # A method that returns its start has the same excess in every bit.
    cost = measured["cost_mean"] if start == measured["ratio_mean"] else start * central
    return float(cost / reference.cost - 1.0)


def _find_bytes(measured: Row, reference: Reference, raw: int) -> float | None:
    """Return the encoded bytes until the excess stays within 1 %, over those of the raw points; None if never."""
    central = measured["cost_central"]
    reached = None
    for _, _, ratio, _, encoded in reversed(measured["trace"]):
        if ratio is None or central is None or ratio * central > (1.0 + _NEAR) * reference.cost:
            break
        reached = encoded
    return None if reached is None else reached / raw


def list_best(placed: Sequence[tuple[Place, Row]]) -> list[tuple[Place, float]]:
    """List the lowest cost of the finished runs for the same points, with its place."""
    best: dict[str, tuple[Place, float]] = {}
    for place, row in placed:
        cost: Any = row.get("cost_mean")
        key = name_points(place.task, place.seed)
        if cost is not None and row["error"] is None and (key not in best or cost < best[key][1]):
            best[key] = place, cost
    return list(best.values())
