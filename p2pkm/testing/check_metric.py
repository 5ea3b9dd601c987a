"""Conformance checks for metrics: `check_metric`, the counterpart of `check_method`."""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from p2pkm.core.array_tree import read_only
from p2pkm.core.errors import ContractError
from p2pkm.core.program_function import is_function
from p2pkm.experiments.simulate import simulate
from p2pkm.methods.registry import find
from p2pkm.metrics.registry import METRICS, Metric, compute_value, read_metrics
from p2pkm.metrics.result import Result
from p2pkm.testing.laws import unchanged
from p2pkm.testing.parts import same_bits
from p2pkm.testing.trial import CLUSTERS, choose_checks, run_checks, trial_points

_ROUNDS = 3


def check_metric(
    metric: Metric | Callable[[Result], Any], *, only: str | Collection[str] = (), skip: str | Collection[str] = ()
) -> tuple[str, ...]:
    """Check that a metric satisfies the contract of all metrics of a finished run.

    It is computed for finished runs of 8 devices on a ring and on a star, with and without labels, lost messages and
    absent centroids. In a test: ``def test_it(): p2pkm.check_metric(MY_METRIC)``.

    Parameters
    ----------
    metric : Metric or callable
        Entry of `p2pkm.metrics.registry.METRICS`, registered or not, or a function as `simulate(metrics=)` takes it.
    only, skip : str or collection of str, optional
        Names of the checks to run (default: all) and to omit:

        - ``"declaration"``: key, label, meaning and function are present, and the key is new.
        - ``"runs"``: the function returns without an exception for every run.
        - ``"inputs"``: the function does not write into the result.
        - ``"values"``: one number, a text or None; with `per_device` one number for each device, or for each device and
          the server.
        - ``"repeatable"``: two calls return the same bits.

    Returns
    -------
    tuple of str
        Names of the checks that were run.

    Raises
    ------
    CheckError
        If a check fails; later checks are not run. The message of this AssertionError has the violation, the rule, and
        a way to fix it.
    ExperimentError
        If a check is unknown.

    Examples
    --------
    >>> import p2pkm
    >>> from p2pkm.metrics.registry import Metric
    >>> largest = Metric("largest", "largest", "largest coordinate", compute=lambda result: result.centroids.max())
    >>> p2pkm.check_metric(largest)
    ('declaration', 'runs', 'inputs', 'values', 'repeatable')
    """
    names = choose_checks(CHECKS, only, skip)
    if is_function(metric):
        (metric,) = read_metrics(metric, "check_metric(...)")
    # Later checks are not meaningful if one fails.
    return run_checks(f"metric {getattr(metric, 'key', metric)!r}", CHECKS, names, metric, names)


@cache
def _make_results() -> dict[str, Result]:
    """Make results of runs, by the words that name them; one device has no points, so that it may lack centroids."""
    from topologies import ring

    shards, graph = trial_points(), ring(trial_points().n)
    peer, server = find("gtvmin"), find("fkm")
    few: dict[str, Any] = {"rounds": _ROUNDS, "seed": 3}
    return {
        "a run of gtvmin": simulate(peer(CLUSTERS), graph, shards, **few),
        "a run without baselines": simulate(peer(CLUSTERS, init="local"), graph, shards, baselines=False, **few),
        "a run with a server": simulate(server(CLUSTERS), None, shards, **few),
        "a run with faults": simulate(peer(CLUSTERS), graph, shards, faults="loss=0.3", **few),
    }


def _check_declaration(metric: Metric) -> str:
    given: Any = metric
    if not isinstance(given, Metric):
        return f"it is {metric!r}; expected p2pkm.metrics.registry.Metric(key, label, meaning, compute=function)"
    if metric.compute is None:
        return "compute is None; expected a function of the finished p2pkm.Result: add compute=function"
    empty = [name for name in ("key", "label", "meaning") if not getattr(metric, name)]
    if empty:
        return f"{', '.join(empty)} is empty; tables and reports show it"
    if not metric.key.isidentifier():
        return f"the key is {metric.key!r}; expected letters, digits and underscores, because it names columns"
    if any(other.key == metric.key and other is not metric for other in METRICS):
        return f"the key {metric.key!r} exists already; one value would replace the other. Use another key"
    return ""


def _check_runs(metric: Metric) -> str:
    assert metric.compute is not None
    for run, result in _make_results().items():
        try:
            with read_only(vars(result)):
                metric.compute(result)
        except Exception as error:
            if "read-only" in str(error):
                # The check "inputs" reports it.
                continue
            return (
                f"compute raised {type(error).__name__} for {run}: {error}. Absent centroids are +inf, and values that "
                "were not measured are None: return None if a run lacks what the metric needs"
            )
    return ""


def _check_values(metric: Metric) -> str:
    for run, result in _make_results().items():
        try:
            value = compute_value(metric, result)
        except ContractError as error:
            return f"{error}, for {run}"
        if not metric.per_device and not isinstance(value, (int, float, str, list, dict, type(None))):
            return f"compute returned a {type(value).__name__} for {run}; expected a number, a text or None"
    return ""


def _check_inputs(metric: Metric) -> str:
    assert metric.compute is not None
    for result in _make_results().values():
        try:
            with unchanged(result=vars(result)) as written, read_only(vars(result)):
                metric.compute(result)
        except ValueError as error:
            return (
                f"compute failed, because arrays of the result are read-only here: {error}. Other metrics and the run "
                "folder use them; change a copy: result.centroids.copy()"
            )
        for name in written:
            return f"compute wrote into {name}, which other metrics and the run folder use; change a copy"
    return ""


def _check_repeatable(metric: Metric) -> str:
    for run, result in _make_results().items():
        first, second = (compute_value(metric, result) for _ in range(2))
        if repr(first) != repr(second) and not same_bits(first, second):
            return f"two calls returned different values for {run}; expected the same bits. Seed random numbers"
    return ""


CHECKS: Mapping[str, Callable[[Metric], str]] = {
    "declaration": _check_declaration,
    "runs": _check_runs,
    "inputs": _check_inputs,
    "values": _check_values,
    "repeatable": _check_repeatable,
}
