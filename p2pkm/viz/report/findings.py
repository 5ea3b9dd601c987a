"""Alternative texts of the figures of a report, for screen readers."""

from collections.abc import Callable, Mapping

import numpy as np

from p2pkm.core.units import count, format_bytes, format_number
from p2pkm.metrics.milestones import is_personal
from p2pkm.metrics.result import Result
from p2pkm.viz.color_by import cost_per_point
from p2pkm.viz.figures.bytes_per_device import sum_bytes


def describe(name: str, result: Result) -> str:
    """Describe a figure of a run in one sentence: its contents and its main result."""
    return _DESCRIPTIONS[name](result)


def _find_convergence(result: Result) -> str:
    words = "Quality, objective and total variation over the rounds"
    known = [record["ratio_mean"] for record in result.rounds if record.get("ratio_mean") is not None]
    if not known:
        return f"{words}: {count(result.summary['rounds'], 'round')}, without a comparison with central k-means."
    tests = [record["test_ratio_common"] for record in result.rounds if record.get("test_ratio_common") is not None]
    if tests and is_personal(result.summary):
        first, last = (format_number(ratio) for ratio in (tests[0], tests[-1]))
        return f"{words}: the cost of the test points changes from {first} to {last} times that of a common clustering."
    first, last = (format_number(100 * (ratio - 1)) for ratio in (known[0], known[-1]))
    return f"{words}: the cost above central k-means changes from {first} % to {last} %."


def _find_graph(result: Result) -> str:
    costs = cost_per_point(result.losses, result.census.sizes)
    known = np.flatnonzero(np.isfinite(costs))
    links = count(len(result.topology.indices) // 2, "link")
    words = f"Communication graph: {count(result.topology.clients, 'device')}, {links}"
    if not len(known):
        return f"{words}; the costs of all devices are unknown."
    low = known[costs[known].argmin()]
    high = known[costs[known].argmax()]
    label = result.topology.label
    return (
        f"{words}; the cost per point is lowest on device {label(int(low))}, {format_number(float(costs[low]))}, "
        f"and highest on device {label(int(high))}, {format_number(float(costs[high]))}."
    )


def _find_points(result: Result) -> str:
    sets = result.summary["centroid_sets"]
    n = len(result.centroids)
    agree = "all devices hold the same centroids" if sets == 1 else f"the devices hold {sets:,} distinct models"
    return f"{count(len(result.census.sample), 'point')} and the centroids of {count(n, 'device')}: {agree}."


def _find_partition(result: Result) -> str:
    sizes, classes = result.census.sizes, result.census.classes
    words = f"Points per device: from {sizes.min():,} to {sizes.max():,}"
    if classes is None:
        return f"{words}."
    present = (classes > 0).sum(axis=1)[sizes > 0]
    return f"{words}, of {present.min():,} to {present.max():,} of {count(classes.shape[1], 'class', 'es')}."


def _find_bytes(result: Result) -> str:
    load = np.sum(sum_bytes(result), axis=0)
    if not load.any():
        return "Plain bytes sent and received per device: nothing was sent."
    top = int(load.argmax())
    busiest = "the server" if top == result.topology.hub else f"device {result.topology.label(top)}"
    low, high = format_bytes(float(load.min())), format_bytes(float(load.max()))
    return f"Plain bytes sent and received per device: from {low} to {high}, most at {busiest}."


def _find_groups(result: Result) -> str:
    assert result.groups is not None
    sizes = np.bincount(result.groups)
    words = f"{sizes.min():,} to {sizes.max():,} devices"
    return f"Communication graph by groups: {count(len(sizes), 'group')} of {words}."


def _find_profile(result: Result) -> str:
    points = result.clusters.points
    assert points is not None, "a run without means of clusters does not have this figure"
    sizes = points.sum(axis=0)
    words = f"Standardized means of {count(len(result.feature_names), 'feature')} in {count(len(sizes), 'cluster')}"
    return f"{words}, of {sizes.min():,} to {sizes.max():,} points."


def _find_k(result: Result) -> str:
    chosen, preferred = result.summary["k_chosen"], result.summary["k_preferred"]
    agree = sum(number == chosen for number in preferred.values())
    remarks = {"none": " (no clear clusters)", "unclear": " (unclear)"}
    remark = remarks.get(result.summary["k_verdict"], "")
    return (
        f"Indices for the number of clusters: {chosen} is chosen{remark}, which {agree} of {len(preferred)} indices "
        "prefer."
    )


def _find_drift(result: Result) -> str:
    known = [record["ratio_mean"] for record in result.rounds if record.get("ratio_mean") is not None]
    worst = f": at most {format_number(100 * (max(known) - 1))} %" if known else ""
    return f"Cost above central k-means, and encoded bytes, over the rounds of a run with changing points{worst}."


_DESCRIPTIONS: Mapping[str, Callable[[Result], str]] = {
    "convergence": _find_convergence,
    "graph": _find_graph,
    "points": _find_points,
    "partition": _find_partition,
    "bytes": _find_bytes,
    "groups": _find_groups,
    "profile": _find_profile,
    "k": _find_k,
    "drift": _find_drift,
}
