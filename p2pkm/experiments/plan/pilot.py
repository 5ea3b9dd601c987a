"""Seconds of a run, scaled up from a pilot: the same run with fewer devices and points, for two rounds.

The factor is the largest of three ratios: of devices, of links and of points. Seconds are those of one process that
runs all stages, without the simulator's own work: reading points, central baseline, records, figures and files.
"""

from dataclasses import replace
from time import perf_counter
from typing import Any

from p2pkm.core.errors import P2PKMError
from p2pkm.core.spec import Spec
from p2pkm.data.sources import parse_source
from p2pkm.engine.run_job import RankPart, RootHooks, run_job
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import Prepared, parse_partition, parse_specs, prepare
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.kernels import pick
from p2pkm.kernels.compile_time import count_compilation
from p2pkm.network.local import LocalWorld

_DEVICES, _ROUNDS = 2_000, 2
_WORK = 30_000_000  # points x clusters x features
_SHARES = (64, 16, 4, 1)  # of both that a pilot has: pilots become larger until one takes long
_ENOUGH = 1.0  # seconds of a pilot


def estimate_seconds(plan: RunPlan) -> dict[str, Any]:
    """Run pilots of a plan and scale the last one linearly.

    Returns
    -------
    dict
        ``devices``, ``points`` and ``rounds`` of the pilot and its ``data``, the ``factor`` by which it was scaled, and
        seconds of the planned run: ``start`` (of all other stages and the opening), ``round`` (of a round of the
        method, from the faster one of the pilot) and ``total`` (if no round is left out). Without a pilot: ``reason``.
    """
    asked, clients, work = plan.algorithm, plan.topology.clients, plan.size.points * plan.size.features
    if asked.traits.derives_features:
        return {"reason": f"{asked.name} trains networks, which takes minutes on few devices, too"}
    if _is_fixed(plan) and clients > _DEVICES:
        return {"reason": f"graph {plan.graph} has no fewer than {clients:,} devices; a pilot has at most {_DEVICES:,}"}
    found: dict[str, Any] = {}
    pick(1, plan.topology.n, work * asked.k)  # so the pilot takes compiled kernels if the run does
    for share in _SHARES:
        try:
            pilot = prepare(parse_specs(_shrink(plan, share), 1), None)
            if "reason" in found or not found:
                _play(pilot, asked)  # loads and compiles the kernels
            began = _now()
            found = _scale(plan, pilot, _play(pilot, asked))
        except (P2PKMError, OSError, MemoryError) as error:
            found = found or {"reason": f"a run of fewer devices and two rounds cannot be made: {error}"}
            continue
        if _now() - began > _ENOUGH:
            break
    return found


class _Clock:
    """Seconds of a run's stages without those of the monitor, taken between a record and the end of the next round."""

    def __init__(self, method: str) -> None:
        self._method, self._seconds, self._last = method, 0.0, _now()
        self.rounds, self.others = list[float](), 0.0

    def end_round(self) -> int:
        """Count the seconds since the last record, and let the run go on."""
        now = _now()
        self._seconds, self._last = self._seconds + now - self._last, now
        return 0

    def record(self, record: dict[str, Any]) -> None:
        """Assign what was counted since the record before to a round of the method, or to all else."""
        if record["stage"] == self._method and record["round"]:
            self.rounds.append(self._seconds)
        else:
            self.others += self._seconds
        self._seconds, self._last = 0.0, _now()


def _now() -> float:
    """Return seconds without those in which kernels were compiled."""
    return perf_counter() - count_compilation()


def _play(pilot: Prepared, method: Any) -> _Clock:
    """Run the method of a plan on a pilot; with a tolerance of 0 it does not converge."""
    method = method.replaced(tol=0.0) if "tol" in vars(method) else method
    clock = _Clock(method.name)
    part = RankPart(pilot.shards, interrupted=clock.end_round)
    run_job(replace(pilot.run, algorithm=method), part, LocalWorld(), RootHooks(sink=clock.record))
    return clock


def _scale(plan: RunPlan, pilot: Prepared, clock: _Clock) -> dict[str, Any]:
    """Scale the seconds of a pilot to a plan."""
    large, small = plan.topology, pilot.run.topology
    pairs = ((large.n, small.n), (len(large.indices), len(small.indices)), (plan.size.points, pilot.shards.m))
    factor = max(whole / max(part, 1) for whole, part in pairs)
    complete = len(clock.rounds) == pilot.run.rounds  # some methods end after one round
    rounds = plan.experiment.rounds or 0 if complete else len(clock.rounds)
    start, each = factor * clock.others, factor * min(clock.rounds, default=0.0)
    return {
        "devices": small.clients, "points": pilot.shards.m, "rounds": len(clock.rounds), "data": pilot.experiment.data,
        "factor": factor, "start": start, "round": each, "total": start + rounds * each,
    }  # fmt: skip


def _is_fixed(plan: RunPlan) -> bool:
    """Check whether the graph exists for one number of devices only."""
    import topologies

    return plan.topology.hub < 0 and plan.graph.name in topologies.FIXED


def _shrink(plan: RunPlan, share: int) -> RunOptions:
    """Return the experiment with two rounds and a share of the devices and points of the largest pilot.

    Devices are halved until they are few, to an even number: most families that need a power of 2 still exist then, and
    an even ring keeps its two colors.
    """
    asked, n = plan.experiment, plan.topology.clients
    while n > _DEVICES // share and not _is_fixed(plan):
        n = max(n // 4 * 2, 2)
    source, partition, columns = _shrink_data(plan, n, _WORK // share)
    return replace(
        asked, devices=n, data=source, partition=partition, rounds=min(asked.rounds or 0, _ROUNDS), record_every=1,
        baselines=False, silhouette=False, true_centers=None, plot=False, out="none", checkpoint_every=None,
        rank_partition="auto", **columns,
    )  # fmt: skip


def _shrink_data(plan: RunPlan, n: int, work: int) -> tuple[str, str | None, dict[str, Any]]:
    """Return source, partition and changed columns of a pilot on n devices.

    Generators make fewer points. Small tables are taken unchanged. Blobs with as many features replace large ones,
    those on disk, and those with a column of more devices than the pilot has.
    """
    asked, size, source = plan.experiment, plan.size, parse_source(plan.experiment.data)
    most = max(1, work // (plan.algorithm.k * size.features))
    points = max(1, min(size.points * n // plan.topology.clients, most))
    if "devices" in source.options:
        return str(Spec(source.name, source.options | {"devices": n})), asked.partition, {}
    if "points" in source.options:  # per class
        each = max(1, source.options["points"] * points // size.points)
        return str(Spec(source.name, source.options | {"points": each})), asked.partition, {}
    fewer = n < plan.topology.clients and size.devices is not None
    if size.points <= most and not (fewer or size.stored):
        return asked.data, asked.partition, {}
    clusters = min(size.classes or plan.algorithm.k, points)
    options = {"clusters": clusters, "points": points // clusters, "features": size.features}
    partition = parse_partition(asked.partition)
    kept = None if partition is None or partition.name == "column" else asked.partition
    return str(Spec("blobs", options)), kept, {"label_column": None, "device_column": None, "columns": None}
