"""One run on one rank: `play` its stages, and `report` the result.

All ranks call both with the same run, make the same collective calls and return the same result, except for arrays that
only rank 0 holds.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.channel.pipeline import Channel
from p2pkm.channel.suppression import reach
from p2pkm.channel.transform import RunScope
from p2pkm.core.averaging_step import find_step
from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.mpi_environment import local_size
from p2pkm.core.states import optional
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch, choose_kernels, count_classes, describe_rank_partition, sizes_of
from p2pkm.engine.build_run import Rank, Run, Scaling, require_same_run
from p2pkm.engine.checkpointing import Checkpointer, CheckpointSink
from p2pkm.engine.conflicts import against_suppression
from p2pkm.engine.loop import RunContext, StageResult
from p2pkm.engine.loop import run as run_stages
from p2pkm.engine.point_feed import PointFeed
from p2pkm.engine.preliminaries import explain, list_preliminaries, scale_by_ranges, summarize
from p2pkm.engine.run_secret import describe_secret, draw_secret
from p2pkm.kernels.compile_time import count_compilation
from p2pkm.methods.init.pipelines import Stage, describe_graph_use
from p2pkm.methods.init.pipelines import stages as list_stages
from p2pkm.methods.init.registry import InitContext
from p2pkm.metrics.averaging_bound import AveragingBound, watch_averaging
from p2pkm.metrics.cost_ratio import CostEvaluator, cluster_centrally, gather_points
from p2pkm.metrics.disclosure import add_disclosed
from p2pkm.metrics.gathering import Gathering
from p2pkm.metrics.medians import LabeledPoints, add_medians, find_labeled
from p2pkm.metrics.monitor import Monitor, Record
from p2pkm.metrics.result import Result
from p2pkm.metrics.summary import (
    Ending,
    FinishedRun,
    Measured,
    OptionalMetrics,
    build_result,
    describe,
    measure_final_state,
)
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.transport import Network, World

if TYPE_CHECKING:
    from p2pkm.engine.event_driven import Events
    from p2pkm.engine.round_clock import RoundClock
    from p2pkm.engine.virtual_time import Timing
    from p2pkm.network.link_model import LinkParameters
    from topologies import TimeVaryingGraph


# Points times clusters times features from which two ranks on two cores are as fast as one process with two threads,
# see docs/results/speed.csv, ranks-or-threads.
_WORTH_RANKS = 100_000 * 16 * 2


@dataclass(frozen=True)
class Observers:
    """Callbacks and options of rank 0; those of other ranks are ignored.

    Attributes
    ----------
    begin : callable
        Called before the first exchange.
    on_record : callable
        Receives every record when it is made.
    tell : callable
        Receives what concerns the execution, while it lasts: ranks, checkpoints.
    announce : callable
        Receives the notes of the result that are known before the stages run.
    checkpoints : CheckpointSink or None
    names : dict
        Summary values that describe graph, data and partition.
    link_models : dict of str to LinkParameters
        Link models for which the simulated time is computed, too, from the same messages: in a single process,
        and not for an event-driven run, whose messages depend on the link model.
    """

    begin: Callable[[], None] = lambda: None
    on_record: Callable[[Record], None] = lambda record: None
    tell: Callable[[str], None] = lambda note: None
    announce: Callable[[list[str]], None] = lambda notes: None
    checkpoints: CheckpointSink | None = None
    names: dict[str, Any] = field(default_factory=dict)
    link_models: "Mapping[str, LinkParameters]" = field(default_factory=dict)


class Outcome(NamedTuple):
    """Ended run on one rank, from which `report` measures the result.

    Attributes
    ----------
    dealt : Rank
        Before the first stage.
    rank : Rank
        As the preliminary stages left it: with the number of clusters, and complete and scaled points.
    context : RunContext
        Environment of the last stage.
    algorithm : Algorithm or ServerMethod
        Method as it was run.
    preliminaries, stages : tuple of Stage
    final : StageResult
    partition : dict
        Summary metrics of the rank partition.
    observers : Observers
    began, compiled : float
        Seconds at the start of the run: of the clock, and of compilation until then.
    """

    dealt: Rank
    rank: Rank
    context: RunContext
    algorithm: Any
    preliminaries: tuple[Stage, ...]
    stages: tuple[Stage, ...]
    final: StageResult
    partition: dict[str, Any]
    observers: Observers
    began: float
    compiled: float


def play(rank: Rank, observers: Observers = Observers()) -> Outcome:
    """Run preliminaries, initialization, method and what follows it; a collective call with the same run on all ranks.

    Raises
    ------
    ExperimentError
        On every rank, if the ranks have different configurations or inputs.
    """
    began, compiled = time.perf_counter(), count_compilation()
    run, world = rank.run, rank.world
    require_same_run(run, world, rank.input_digests)
    observers = observers if world.rank == 0 else Observers()
    network = world.network(place(run.topology, world.rank, world.size, rank.division))
    sizes = sizes_of(rank.shards, network)
    partition = describe_rank_partition(network, sizes, world.size)
    work = _count_work(run, int(sizes.sum()) * run.algorithm.k * rank.shards.d)
    kernels = choose_kernels(world, run.topology.n, work, rank.shards.points.dtype.name)
    secret = draw_secret(run.algorithm.traits, run.seed, world)
    batch = build_batch(run.topology, rank.shards, network, run.seed, kernels, secret)
    channel = run.channel.build(RunScope(batch, network, run.topology, run.seed, _make_round_clock(rank, sizes)))
    monitor = Monitor(network, run.record_every, observers.on_record, run.topology)
    observers.begin()
    _tell_rank_partition(observers, partition)
    if 1 < world.size == local_size() and work < _WORTH_RANKS:
        observers.tell(
            f"{world.size} ranks on one machine pay off from about 100,000 points with 16 clusters; with fewer, the "
            "same command without mpirun takes less time and computes the same bits"
        )
    # A checkpoint would contain the keys that are derived from the secret.
    sink = None if run.algorithm.traits.is_secret else observers.checkpoints
    checkpointer = Checkpointer(monitor, sink, rank.shards, kernels, rank.saved)
    events = _schedule_events(run)
    checkpointer.watch(channel.checkpointed | ({} if events is None else {"events": events}))
    weights = network.allgather_by_device(batch.masses) if batch.weighted else None
    context = RunContext(
        channel.equip(batch),
        run.topology.colors,
        monitor,
        rank.interrupted,
        _draw_links(run, sizes if weights is None else weights, channel),
        checkpointer,
        events,
        channel,
        run.all_rounds,
    )
    setting = InitContext(
        run.topology, sizes, batch.shared_key, run.algorithm.k, rank.shards.d, channel.exposes, weights,
        partial(_compute_on_root, world),
    )  # fmt: skip
    del batch
    played, context = scale_by_ranges(rank, context)
    preliminaries = list_preliminaries(run, setting)
    for stage, absorb in preliminaries:
        played, context = absorb(played, context, stage, checkpointer)
    # `played` and its context replace `rank` from here on; of the run, only the method can have changed.
    algorithm = played.run.configure(int(sizes.sum()), partial(_compute_on_root, world))
    devices = context.devices
    setting = setting._replace(k=algorithm.k)
    feed = None if run.stream is None else PointFeed(run.stream, rank.shards, _find_units(played, devices), devices)
    evaluator = _attach_evaluator(played, context, feed)
    stages = run.channel.prepare(setting) + list_stages(
        channel.adapt(algorithm, run.topology), setting, run.rounds, seeded=rank.start is not None
    )
    # Numbers of points of all devices, which nothing needs any more.
    del setting, sizes
    warnings = channel.start(stages, devices, network)
    choice = explain(played.choice, scaled=played.scaling is not None)
    notes = choice + _list_notes(algorithm, run.topology, stages) + warnings
    evaluator.notes.extend(notes)
    observers.announce(notes)
    monitor.exclude(channel.left_out, altered=channel.alters)
    context = context._replace(point_feed=feed)
    monitor.watch_averaging(_watch_averaging(played, algorithm, context))
    final = run_stages(stages, rank.start, context)
    network.close()
    before = tuple(stage for stage, _ in preliminaries)
    return Outcome(rank, played, context, algorithm, before, stages, final, partition, observers, began, compiled)


def report(outcome: Outcome) -> Result:
    """Gather what the ranks hold at the end of a run, and measure it; a collective call, equal on all ranks."""
    outcomes = [outcome]
    del outcome
    result = _measure(outcomes, everywhere=True)
    assert result is not None
    return result


def report_to_root(outcome: Outcome) -> Result | None:
    """Report as `report` does, but only to rank 0: the result of all devices may be the largest array.

    Other ranks return None.
    """
    outcomes = [outcome]
    del outcome
    return _measure(outcomes, everywhere=False)


def _tell_why_numbers_differ(run: Run) -> str | None:
    """Tell why cluster c need not be the same cluster at all devices; None if it is."""
    if run.algorithm.traits.no_correspondence:
        return run.algorithm.traits.no_correspondence
    if run.topology.components.max(initial=0) > 0:
        return "clusters each component of the graph alone"
    return None


class _Final(NamedTuple):
    """Measured outcome, from which the result is built after points, links and state of the devices are freed.

    Attributes
    ----------
    run : Run
    scaling : Scaling or None
    gathering : Gathering
    remains : list of Measured
    ending : Ending
    facts, times : dict
        Values of the summary, and simulated times on further link models.
    labeled : LabeledPoints
        Points of this rank; their devices only if medians are computed.
    arrays : dict
        Results of the channel.
    """

    run: Run
    scaling: Scaling | None
    gathering: Gathering
    remains: list[Measured]
    ending: Ending
    facts: dict[str, Any]
    times: dict[str, float]
    labeled: LabeledPoints
    arrays: dict[str, Any]


def _measure(outcomes: list[Outcome], *, everywhere: bool) -> Result | None:
    """Gather and measure the result, on all ranks or on rank 0 only.

    The list is emptied, so that no caller holds the outcome: rank 0 gathers the result of all devices when its own
    points, links and state are freed. With millions of devices, both together take gigabytes.
    """
    final = _measure_final_state(outcomes.pop(), everywhere)
    final.ending.monitor.release()
    final.gathering.network.release()
    scores = _in_scaled_units(final.run.scores, final.scaling)
    result = build_result(final.gathering, final.remains, final.ending, final.facts, scores)
    completed = _complete(result, final)
    return None if completed is None else replace(completed, times=final.times)


def _measure_final_state(outcome: Outcome, everywhere: bool) -> _Final:
    """Measure what needs points, links and state of the devices; a collective call."""
    rank, context, algorithm, observers = outcome.rank, outcome.context, outcome.algorithm, outcome.observers
    run, world, monitor, devices = rank.run, rank.world, context.monitor, context.devices
    network, topology, final = monitor.network, run.topology, outcome.final
    settled = _settle(algorithm, final.state, network, topology)
    facts = {**describe(settled, replace(devices, has_stale_links=context.has_stale_links)),
             **observers.names, **outcome.partition,
             **summarize(rank.choice),
             **context.channel.figures(network), "devices": topology.clients,
             "device_names": topology.list_names(), "feature_names": run.list_features(),
             "ranks": world.size,
             "no_correspondence": _tell_why_numbers_differ(run),
             "coupling_choice": run.algorithm.traits.coupling_choice or None,
             "seed": run.seed, "rounds": final.rounds, "termination": final.stop,
             "excess_predicted": _predict(algorithm, topology, world, devices),
             **_time(outcome.began, outcome.compiled)}  # fmt: skip
    timing = _build_timing(outcome)
    clock, times = _compute_times(timing, devices, topology, network, monitor.trace)
    # After the times: a resumed run may have no round in which a trace in seconds was asked.
    assert monitor.cost_evaluator is not None
    monitor.cost_evaluator.notes += context.channel.closing_notes()
    ages = None if context.events is None else context.events.edge_ages
    devices, shards = _final_points(devices, rank.shards, context.point_feed, final.state)
    finished = FinishedRun(devices, shards, monitor, final.state, topology, run.algorithm.objective)
    gathering = Gathering(network, world, everywhere)
    measured, labels = measure_final_state(gathering, finished, facts, _in_scaled_units(run.scores, rank.scaling))
    ending = Ending(monitor, topology, clock, ages, reach(stage.algorithm for stage in outcome.stages))
    labeled = find_labeled(labels, final.state.centroids.shape[1], devices, network)
    arrays = context.channel.results(outcome.dealt.shards, network)
    return _Final(run, rank.scaling, gathering, [measured], ending, facts, times, labeled, arrays)


def _complete(result: Result | None, final: _Final) -> Result | None:
    """Add scaling, names of the features, medians and the arrays of the channel to a result, if there is one here."""
    if result is not None:
        # The names belong to the features of the points, not to features that were derived from them.
        features = None if result.derived else final.run.features or None
        result = replace(result, scaling=final.scaling, features=features)
    result = add_medians(result, final.labeled, final.scaling, final.gathering)
    disclosed, suppressible = final.arrays.get("disclosed"), not against_suppression(final.run.algorithm)
    return None if result is None else add_disclosed(result, disclosed, suppressible=suppressible)


def _draw_links(run: Run, sizes: Integers | Floats, channel: Channel) -> "TimeVaryingGraph | None":
    """Return the active links of each round; a server may ask clients by what is known only now.

    These are their points, and whether they are available in the current round.
    """
    share = run.options.client_share
    topology = run.topology
    if share is not None:
        topology = share.apply(topology, run.seed, sizes, lambda: channel.absent)
    return topology.varying


def _make_round_clock(rank: Rank, sizes: Integers) -> "RoundClock | None":
    """Make the clock of rounds that end at a deadline, or of a fault trace in seconds; None without both."""
    run = rank.run
    faults = run.channel.find("faults")
    needs_clock = run.options.deadline is not None or (faults is not None and faults["faults"].in_seconds)
    if not needs_clock or run.link_model is None:
        return None
    from p2pkm.engine.round_clock import RoundClock

    return RoundClock(run.options.deadline, run.link_model, run.topology, sizes, rank.shards.d, run.stream)


def _schedule_events(run: Run) -> "Events | None":
    if run.link_model is None:
        return None
    from p2pkm.engine.event_driven import schedule_events

    return schedule_events(run.algorithm, run.link_model, run.topology)


def _build_timing(outcome: Outcome) -> "Timing | None":
    run, events, further = outcome.rank.run, outcome.context.events, outcome.observers.link_models
    # Times on further link models are computed in one process, and not if the messages depend on the link model.
    if events is not None or outcome.rank.world.size > 1:
        further = {}
    if run.link_model is None and not further:
        return None
    from p2pkm.engine.virtual_time import Timing

    stages = (*outcome.preliminaries, *outcome.stages)
    return Timing(
        run.link_model, stages, events, run.stream, further, run.channel.find("faults"), run.options.deadline
    )  # fmt: skip


def _compute_times(
    timing: "Timing | None", devices: Devices, topology: Topology, network: Network, trace: list[dict[str, Any]]
) -> tuple[dict[str, float | None], dict[str, float]]:
    """Compute the simulated time for the summary, and on further link models; empty without a link model."""
    if timing is None:
        return {}, {}
    from p2pkm.engine.virtual_time import compute_virtual_time

    return compute_virtual_time(timing, devices, topology, network, trace)


def _time(began: float, compiled: float) -> dict[str, float]:
    """Measure the seconds of the run: without compilation, and of compilation."""
    compiled = count_compilation() - compiled
    return {"wall_seconds": time.perf_counter() - began - compiled, "compile_seconds": compiled}


def _settle(algorithm: Any, state: Any, network: Network, topology: Topology) -> Any:
    """Settle the method by those fields of the state that it reads, of all devices."""
    fields = {} if state is None else state._asdict()
    parts = {name: fields.get(name) for name in algorithm.settle_from}
    found = {name: network.allgather_by_device(part) for name, part in parts.items() if part is not None}
    return algorithm.settle(found, topology)


def _watch_averaging(rank: Rank, algorithm: Any, context: RunContext) -> AveragingBound | None:
    """Prepare the measurement of averaging, where its theorem holds: on a static graph, with undisturbed messages."""
    run, monitor = rank.run, context.monitor
    is_disturbed = context.has_stale_links or context.channel.alters or context.graph is not None
    if is_disturbed or context.devices.min_count > 1:
        return None
    step = find_step(algorithm, run.topology)
    return watch_averaging(step, run.topology, monitor.network, monitor.every, algorithm.k * (rank.shards.d + 1))


def _predict(algorithm: Any, topology: Topology, world: World, devices: Devices) -> float | None:
    """Predict the excess of the mean cost ratio by theory; None without a theorem.

    Rounded to six digits, because it is not one of the values that are bit-identical on any number of ranks.
    """

    def predict() -> Floats:
        objective = algorithm.objective
        excess = None if objective is None else objective.predict_excess(topology, devices.total_points)
        return np.array([np.nan if excess is None else excess])

    excess = _compute_on_root(world, predict)[0]
    return None if np.isnan(excess) else float(f"{excess:.6g}")


def _find_units(rank: Rank, devices: Devices) -> Scaling | None:
    """Return shift and span of the local devices, float64[n, d] each; None if the points are not scaled."""
    return None if rank.scaling is None else (rank.scaling[0][devices.ids], rank.scaling[1][devices.ids])


def _compute_on_root(world: World, compute: Callable[[], Floats]) -> Floats:
    """Compute an array on rank 0 for all ranks, where it needs scipy, whose import takes time and memory."""
    computed = {"values": compute()} if world.rank == 0 else None
    values: Floats = world.broadcast(computed)["values"]
    return values


def _in_scaled_units(scores: OptionalMetrics, scaling: Scaling | None) -> OptionalMetrics:
    """Convert the known centers of the optional metrics to the units of the centroids."""
    if scores.centers is None or scaling is None:
        return scores
    shift, span = (part[0] for part in scaling)
    return scores._replace(centers=(scores.centers - shift) / span)


def _list_notes(algorithm: Any, topology: Topology, run_stages: tuple[Stage, ...]) -> list[str]:
    """List the notes on graph, stages and noise."""
    notes = [stage.note for stage in run_stages if stage.note]
    return describe_graph_use(algorithm, topology) + notes + describe_secret(algorithm.traits)


def _tell_rank_partition(observers: Observers, metrics: dict[str, Any]) -> None:
    if metrics:
        points, devices = metrics["load_imbalance"], metrics["load_imbalance_devices"]
        observers.tell(
            f"rank partition {metrics['rank_partition']}: edge cut {metrics['edge_cut']:,}, "
            f"halo {metrics['halo_size']:,}; load imbalance {points:.3f} in points, {devices:.3f} in devices"
        )


def _count_work(run: Run, work: int) -> int:
    """Estimate the work on the points; if they change, central k-means is computed again in every round."""
    return work if run.stream is None else work * (run.rounds + 1)


def _final_points(devices: Devices, shards: Shards, point_feed: PointFeed | None, state: Any) -> tuple[Devices, Shards]:
    """Return batch and points at the end of the run; features that a method derived from points replace them."""
    derived = optional(state, "derived")
    if derived is not None:
        points = derived.features.values
        return replace(devices, stored=points), replace(shards, points=points)
    return (devices, shards) if point_feed is None else (point_feed.with_points(devices), point_feed.shards)


def _attach_evaluator(rank: Rank, context: RunContext, point_feed: PointFeed | None) -> CostEvaluator:
    """Attach the batch and its comparison with central k-means to the monitor; return the evaluator.

    If points change, the monitor computes the comparison again. Features that are derived from points change in every
    round, and are compared in the last record only.
    """
    run, devices, monitor = rank.run, context.devices, context.monitor
    if run.algorithm.traits.derives_features:
        without_baselines = replace(rank, run=replace(run, baselines=False))
        evaluator = _build_evaluator(without_baselines, rank.shards, devices, monitor.network)

        def evaluate_features(batch: Devices, last: bool) -> CostEvaluator:
            features = replace(rank.shards, points=batch.stored)
            return _build_evaluator(rank, features, batch, monitor.network, alone=last)

        monitor.follow(evaluate_features)
    elif point_feed is None:
        evaluator = _build_evaluator(rank, rank.shards, devices, monitor.network)
    else:
        evaluator = _build_evaluator(rank, point_feed.shards, devices, monitor.network)

        def evaluate_points(batch: Devices, last: bool) -> CostEvaluator:
            return _build_evaluator(rank, point_feed.shards, batch, monitor.network, alone=last)

        monitor.follow(evaluate_points)
    monitor.attach(devices, evaluator)
    return evaluator


def _build_evaluator(
    rank: Rank, shards: Shards, devices: Devices, network: Network, *, alone: bool = True
) -> CostEvaluator:
    """Build the cost evaluator of these points; a collective call, in which rank 0 computes central k-means.

    alone: whether the evaluator also computes the local-only baseline.
    """
    central = note = None
    if rank.run.baselines:
        pooled, note = gather_points(shards, devices.shared_key, network)
        # Only rank 0 has the pooled points.
        computed = None if pooled is None else {"central": cluster_centrally(devices, rank.run.algorithm.k, pooled)}
        central = rank.world.broadcast(computed)["central"]
    classes = np.zeros(0, np.int64) if shards.labels is None else shards.labels
    n_classes = count_classes(shards, network)
    evaluator = CostEvaluator(devices, classes, n_classes, network, central, alone=alone, tests=shards.tests)
    evaluator.notes.extend([note] if note else [])
    return evaluator
