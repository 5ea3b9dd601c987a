"""Estimated seconds of a run, extrapolated from a pilot: two rounds of the same run with fewer devices and points.

The scale factor is the largest of three ratios: of devices, of links and of points. The estimate is for one process and
all stages, without the work of the simulator: reading points, central baseline, records, figures and files.
"""

from dataclasses import replace
from time import perf_counter
from typing import Any

from p2pkm.core.errors import P2PKMError
from p2pkm.core.spec import Spec
from p2pkm.data.sources import parse_source
from p2pkm.engine.build_run import Rank, Run
from p2pkm.engine.run_job import Observers, play, report
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_partition, parse_specs, prepare
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.kernels import select_kernels
from p2pkm.kernels.compile_time import count_compilation
from p2pkm.metrics.summary import OptionalMetrics
from p2pkm.network.local import LocalWorld

# Limits of the largest pilot: devices, rounds, and points x clusters x features.
_DEVICES, _ROUNDS, _WORK = 2_000, 2, 30_000_000
# Divisors of devices and work: pilots become larger until one takes at least _ENOUGH seconds.
_DIVISORS = (64, 16, 4, 1)
_ENOUGH = 1.0


def estimate_seconds(plan: RunPlan) -> dict[str, Any]:
    """Run pilots of a plan and extrapolate the last one linearly.

    Returns
    -------
    dict
        ``devices``, ``points``, ``rounds`` and ``data`` of the pilot, the scale ``factor``, and seconds of the planned
        run: ``start`` (initial exchange and all other stages), ``round`` (one round of the method, from the fastest
        round of the pilot) and ``total`` (for the maximum number of rounds). Without a pilot: ``reason``.
    """
    method, clients, values = plan.algorithm, plan.topology.clients, plan.size.points * plan.size.features
    if method.traits.derives_features:
        return {"reason": f"{method.name} trains networks, which takes minutes even on few devices"}
    if _is_fixed(plan) and clients > _DEVICES:
        return {"reason": f"graph {plan.graph} has {clients:,} devices; a pilot has at most {_DEVICES:,}"}
    estimate: dict[str, Any] = {}
    # Selects compiled kernels for the pilots if the planned run is large enough for them.
    select_kernels(1, plan.topology.n, values * method.k)
    for divisor in _DIVISORS:
        try:
            pilot = prepare(parse_specs(_shrink(plan, divisor)), None)
            if "reason" in estimate or not estimate:
                # A first run that is not timed: it loads and compiles the kernels.
                _run_pilot(pilot, method)
            began = _now()
            estimate = _extrapolate(plan, pilot, _run_pilot(pilot, method))
        except (P2PKMError, OSError, MemoryError) as error:
            estimate = estimate or {"reason": f"a run of fewer devices and two rounds cannot be made: {error}"}
            continue
        if _now() - began > _ENOUGH:
            break
    return estimate


class _Clock:
    """Stopwatch of the rounds of a run, which stands still while the monitor evaluates.

    It runs from each record to the end of the next round.

    Attributes
    ----------
    rounds : list of float
        Seconds of each round of the method.
    other_seconds : float
        Seconds of all other stages and of initial exchanges.
    """

    def __init__(self, method: str) -> None:
        self._method = method
        self._seconds = 0.0
        self._last = _now()
        self.rounds: list[float] = []
        self.other_seconds = 0.0

    def end_round(self) -> int:
        """Add the seconds since the last record; 0 lets the run continue."""
        now = _now()
        self._seconds += now - self._last
        self._last = now
        return 0

    def record(self, record: dict[str, Any]) -> None:
        """Assign the seconds since the previous record to a round of the method, or to the rest."""
        if record["stage"] == self._method and record["round"]:
            self.rounds.append(self._seconds)
        else:
            self.other_seconds += self._seconds
        self._seconds = 0.0
        self._last = _now()


def _now() -> float:
    """Read the clock, excluding seconds in which kernels were compiled."""
    return perf_counter() - count_compilation()


def _run_pilot(pilot: Run, method: Any) -> _Clock:
    """Run the planned method on a pilot, with a tolerance of 0, so that it does not converge early."""
    method = method.replaced(tol=0.0) if "tol" in vars(method) else method
    clock = _Clock(method.name)
    run = replace(pilot, algorithm=method, scores=OptionalMetrics())
    rank = Rank(run, LocalWorld(), pilot.points, interrupted=clock.end_round)
    report(play(rank, Observers(on_record=clock.record)))
    return clock


def _extrapolate(plan: RunPlan, pilot: Run, clock: _Clock) -> dict[str, Any]:
    """Extrapolate the seconds of a pilot to the planned run."""
    large, small = plan.topology, pilot.topology
    pairs = ((large.n, small.n), (len(large.indices), len(small.indices)), (plan.size.points, pilot.points.m))
    factor = max(planned / max(piloted, 1) for planned, piloted in pairs)
    # A method that ended before the last round of the pilot, such as a one-shot method, takes as few in the run.
    has_all_rounds = len(clock.rounds) == pilot.rounds
    rounds = plan.experiment.rounds or 0 if has_all_rounds else len(clock.rounds)
    start, per_round = factor * clock.other_seconds, factor * min(clock.rounds, default=0.0)
    return {
        "devices": small.clients,
        "points": pilot.points.m,
        "rounds": len(clock.rounds),
        "data": pilot.options.data,
        "factor": factor,
        "start": start,
        "round": per_round,
        "total": start + rounds * per_round,
    }


def _is_fixed(plan: RunPlan) -> bool:
    """Check whether the graph exists only for one number of devices."""
    import topologies

    return plan.topology.hub < 0 and plan.graph.name in topologies.FIXED


def _shrink(plan: RunPlan, divisor: int) -> RunOptions:
    """Return options with two rounds and the devices and points of the largest pilot, divided by `divisor`.

    Devices are halved until they are few, to an even number: most graph families that need a power of 2 still exist
    then, and an even ring keeps its two colors.
    """
    options, n = plan.experiment, plan.topology.clients
    while n > _DEVICES // divisor and not _is_fixed(plan):
        n = max(n // 4 * 2, 2)
    source, partition, columns = _shrink_data(plan, n, _WORK // divisor)
    return replace(
        options,
        devices=n,
        data=source,
        partition=partition,
        rounds=min(options.rounds or 0, _ROUNDS),
        record_every=1,
        baselines=False,
        silhouette=False,
        true_centers=None,
        plot=False,
        out="none",
        checkpoint_every=None,
        rank_partition="auto",
        # A fault trace is of the devices of the planned run.
        faults=None,
        stale_policy=None,
        deadline=None,
        **columns,
    )


def _shrink_data(plan: RunPlan, n: int, work: int) -> tuple[str, str | None, dict[str, Any]]:
    """Return source, partition and changed columns of a pilot on n devices.

    Generators make fewer points. Small tables are used unchanged. Blobs with the same number of features replace
    large tables, tables on disk, and tables with a column of more devices than the pilot has.
    """
    options, size, data = plan.experiment, plan.size, str(plan.experiment.data)
    source = parse_source(data)
    most = max(1, work // (plan.algorithm.k * size.features))
    points = max(1, min(size.points * n // plan.topology.clients, most))
    if "devices" in source.options:
        return str(Spec(source.name, source.options | {"devices": n})), options.partition, {}
    if "points" in source.options:
        # The option is the number of points of each class.
        per_class = max(1, source.options["points"] * points // size.points)
        return str(Spec(source.name, source.options | {"points": per_class})), options.partition, {}
    has_more_devices = n < plan.topology.clients and size.devices is not None
    if size.points <= most and not (has_more_devices or size.stored):
        return data, options.partition, {}
    clusters = min(size.classes or plan.algorithm.k, points)
    blobs = Spec("blobs", {"clusters": clusters, "points": points // clusters, "features": size.features})
    partition = parse_partition(options.partition)
    is_default = partition is None or partition.name == "column"
    columns = {"label_column": None, "device_column": None, "columns": None}
    return str(blobs), None if is_default else options.partition, columns
