"""One run on one rank, from validated input to the result.

All ranks call `run_job` with the same configuration, make the same collective calls and return the same result, except
for arrays that only rank 0 holds.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.channel.suppression import can_suppress, reach
from p2pkm.channel.transform import RunScope
from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.states import optional
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch, choose_kernels, count_classes, describe_rank_partition, sizes_of
from p2pkm.engine.build_run import RunConfig, require_same_run
from p2pkm.engine.checkpointing import Checkpointer, CheckpointSink
from p2pkm.engine.loop import RunContext, run
from p2pkm.engine.point_feed import PointFeed
from p2pkm.engine.preliminaries import Scaling, explain, list_preliminaries, run_preliminaries, summarize
from p2pkm.engine.run_secret import describe_secret, draw_secret
from p2pkm.kernels.compile_time import count_compilation
from p2pkm.methods.init.pipelines import Stage, describe_graph_use, stages
from p2pkm.methods.init.registry import InitContext
from p2pkm.metrics.cost_ratio import CostEvaluator, cluster_centrally, gather_points
from p2pkm.metrics.disclosure import add_disclosed
from p2pkm.metrics.gathering import Gathering
from p2pkm.metrics.medians import LabeledPoints, add_medians
from p2pkm.metrics.monitor import Monitor, Record
from p2pkm.metrics.result import Result
from p2pkm.metrics.summary import FinishedRun, OptionalMetrics, build_result, describe
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.rank_partition import RankPartition
from p2pkm.network.transport import Network, World

if TYPE_CHECKING:
    from p2pkm.engine.event_driven import Events
    from p2pkm.engine.virtual_time import Timing
    from p2pkm.network.link_model import LinkParameters


@dataclass(frozen=True)
class RankPart:
    """Input of one rank.

    Attributes
    ----------
    shards : Shards
        Points of the local devices.
    start : float64[n, k, d] or None
        Initial centroids of the local devices, which replace the initialization stages.
    division : RankPartition or None
        Assignment of devices to ranks; None for contiguous blocks.
    saved : dict or None
        This rank's part of the checkpoint to resume from.
    interrupted : callable
        Returns the signal that requested a stop, or 0. The run stops after the current round.
    input_digests : mapping of str to bytes
        SHA-256 of inputs that every rank has as a whole, points and initial centroids, to compare them between ranks.
        Empty if only rank 0 has them.
    """

    shards: Shards
    start: Floats | None = None
    division: RankPartition | None = None
    saved: dict[str, Any] | None = None
    interrupted: Callable[[], int] = lambda: 0
    input_digests: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class RootHooks:
    """Callbacks and options of rank 0; those of other ranks are ignored.

    Attributes
    ----------
    begin : callable
        Called before the first exchange.
    on_record : callable
        Receives every record when it is made.
    tell : callable
        Receives notes for the user, before the stages run.
    checkpoints : CheckpointSink or None
    scores : OptionalMetrics
        Metrics that are computed only on request.
    names : dict
        Summary values that describe graph, data and partition.
    link_models : dict of str to LinkParameters
        Link models for which the simulated time is computed, too, from the same messages: in a single process,
        and not for an event-driven run, whose messages depend on the link model.
    """

    begin: Callable[[], None] = lambda: None
    on_record: Callable[[Record], None] = lambda record: None
    tell: Callable[[str], None] = lambda note: None
    checkpoints: CheckpointSink | None = None
    scores: OptionalMetrics = OptionalMetrics()  # noqa: RUF009 - a tuple
    names: dict[str, Any] = field(default_factory=dict)
    link_models: "Mapping[str, LinkParameters]" = field(default_factory=dict)


def run_job(config: RunConfig, part: RankPart, world: World, hooks: RootHooks = RootHooks()) -> Result:
    """Run on all ranks, each of which receives the result; a collective call with the same `config`.

    Raises
    ------
    ExperimentError
        On every rank, if the ranks have different configurations or inputs.
    """
    result = _run(config, part, world, hooks, everywhere=True)
    assert result is not None
    return result


def run_for_root(config: RunConfig, part: RankPart, world: World, hooks: RootHooks = RootHooks()) -> Result | None:
    """Run as `run_job` does, but only rank 0 receives the result: the result of all devices may be the largest array.

    Other ranks return None.
    """
    return _run(config, part, world, hooks, everywhere=False)


def _run(config: RunConfig, part: RankPart, world: World, hooks: RootHooks, *, everywhere: bool) -> Result | None:
    began, compiled = time.perf_counter(), count_compilation()
    require_same_run(config, world, part.input_digests)
    hooks = hooks if world.rank == 0 else RootHooks()
    topology, algorithm = config.topology, config.algorithm
    network = world.network(place(topology, world.rank, world.size, part.division))
    sizes = sizes_of(part.shards, network)
    partition_metrics = describe_rank_partition(network, sizes, world.size)
    kernels = choose_kernels(
        world,
        topology.n,
        _count_work(config, int(sizes.sum()) * algorithm.k * part.shards.d),
        part.shards.points.dtype.name,
    )
    devices = build_batch(
        topology, part.shards, network, config.seed, kernels, draw_secret(algorithm.traits, config.seed, world)
    )
    channel = config.channel.build(RunScope(devices, network, topology, config.seed))
    devices = channel.equip(devices)
    monitor = Monitor(network, config.record_every, hooks.on_record, topology)
    hooks.begin()
    _tell_rank_partition(hooks, partition_metrics)
    setting = InitContext(topology, sizes, devices.shared_key, algorithm.k, part.shards.d, channel.exposes)
    # A checkpoint would contain the keys that are derived from the secret.
    checkpointer = Checkpointer(
        monitor, None if algorithm.traits.is_secret else hooks.checkpoints, part.shards, kernels, part.saved
    )
    events = _schedule_events(config)
    checkpointer.watch(channel.checkpointed | ({} if events is None else {"events": events}))
    context = RunContext(
        devices,
        topology.colors,
        monitor,
        part.interrupted,
        topology.varying,
        checkpointer,
        events,
        channel,
        config.all_rounds,
    )
    # Preliminary stages change the configuration (the number of clusters), the points and with them the batch, so
    # everything below uses their results instead of `config`, `part.shards` and `devices` from above.
    preliminaries = list_preliminaries(config, setting)
    config, devices, shards, scaling, choice = run_preliminaries(
        config, part.shards, preliminaries, context, checkpointer
    )
    algorithm = config.configure(int(sizes.sum()))
    setting = setting._replace(k=algorithm.k)
    point_feed = None if config.stream is None else PointFeed(config.stream, part.shards, checkpointer.scaling, devices)
    evaluator = _attach_evaluator(config, shards, world, devices, monitor, point_feed)
    run_stages = config.channel.prepare(setting) + stages(
        channel.adapt(algorithm, topology), setting, config.rounds, seeded=part.start is not None
    )
    warnings = channel.start(run_stages, devices, network)
    _tell(hooks, evaluator, explain(choice) + _list_notes(algorithm, topology, run_stages) + warnings)
    monitor.exclude(channel.left_out, altered=channel.alters)
    final = run(run_stages, part.start, context._replace(devices=devices, point_feed=point_feed))
    network.close()
    shared_state = _share_rehearsal(final.state, network)
    facts = {**describe(algorithm.settle(shared_state), replace(devices, has_stale_links=context.has_stale_links)),
             **hooks.names, **partition_metrics,
             **summarize(choice),
             **channel.figures(network), "devices": topology.clients,
             "device_names": topology.list_names(), "feature_names": config.list_features(),
             "ranks": world.size,
             "coupling_choice": config.algorithm.traits.coupling_choice or None,
             "seed": config.seed, "rounds": final.rounds, "termination": final.stop,
             "excess_predicted": _predict(algorithm, topology, world, devices, shared_state),
             **_time(began, compiled)}  # fmt: skip
    timing = _build_timing(config, (*preliminaries, *run_stages), events, hooks.link_models if world.size == 1 else {})
    clock, times = _compute_times(timing, devices, topology, network, monitor.trace)
    ages = None if events is None else events.edge_ages
    finished = FinishedRun(
        *_final_points(devices, shards, point_feed, final.state),
        monitor,
        final.state,
        topology,
        clock,
        ages,
        reach(stage.algorithm for stage in run_stages),
    )
    gathering = Gathering(network, world, everywhere)
    built = build_result(gathering, finished, facts, _in_scaled_units(hooks.scores, scaling))
    completed = _complete(built, config, finished, scaling, channel.results(part.shards, network), gathering)
    return None if completed is None else replace(completed, times=times)


def _complete(
    built: tuple[Result | None, Integers | None],
    config: RunConfig,
    finished: FinishedRun,
    scaling: Scaling | None,
    arrays: dict[str, Any],
    gathering: Gathering,
) -> Result | None:
    """Add scaling, names of the features, medians and the arrays of the channel to a result, if there is one here."""
    result, labels = built
    if result is not None:
        # The names belong to the features of the points, not to features that were derived from them.
        features = None if result.derived else config.features or None
        result = replace(result, scaling=scaling, features=features)
    points = LabeledPoints(labels, finished.state.centroids.shape[1])
    result = add_medians(result, points, scaling, finished.devices, gathering)
    disclosed, suppressible = arrays.get("disclosed"), can_suppress(config.algorithm)
    return None if result is None else add_disclosed(result, disclosed, suppressible=suppressible)


def _schedule_events(config: RunConfig) -> "Events | None":
    if config.link_model is None:
        return None
    from p2pkm.engine.event_driven import schedule_events

    return schedule_events(config.algorithm, config.link_model, config.topology)


def _build_timing(
    config: RunConfig, run_stages: tuple[Stage, ...], events: "Events | None", further: "Mapping[str, LinkParameters]"
) -> "Timing | None":
    # The messages of an event-driven run depend on its link model.
    further = {} if events is not None else further
    if config.link_model is None and not further:
        return None
    from p2pkm.engine.virtual_time import Timing

    return Timing(config.link_model, run_stages, events, config.stream, further)


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


def _share_rehearsal(state: Any, network: Network) -> Any:
    """Share the calibrated coupling in the state with all ranks, for a rank without devices."""
    rehearsed = optional(state, "rehearsed")
    return state if rehearsed is None else state._replace(rehearsed=network.allgather_by_device(rehearsed))


def _predict(algorithm: Any, topology: Topology, world: World, devices: Devices, state: Any) -> float | None:
    """Predict the excess of the mean cost ratio, by theory or from the calibration of the coupling.

    Rounded to six digits, because it is not one of the values that are bit-identical on any number of ranks.
    """
    rehearsed = optional(state, "rehearsed")
    if rehearsed is None:
        # Rank 0 computes it for all: the prediction needs scipy, whose import takes time and memory on every rank.
        objective = algorithm.objective if world.rank == 0 else None
        excess = None if objective is None else objective.predict_excess(topology, devices.total_points)
        shared = world.broadcast({"excess": np.array([np.nan if excess is None else excess])})["excess"][0]
        return None if np.isnan(shared) else float(f"{shared:.6g}")
    return float(f"{float(rehearsed[0, 1]):.6g}")


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


def _tell(hooks: RootHooks, evaluator: CostEvaluator, notes: list[str]) -> None:
    """Print notes before the stages run, and store them for the result."""
    evaluator.notes.extend(notes)
    for note in notes:
        hooks.tell(note)


def _tell_rank_partition(hooks: RootHooks, metrics: dict[str, Any]) -> None:
    if metrics:
        points, devices = metrics["load_imbalance"], metrics["load_imbalance_devices"]
        hooks.tell(
            f"rank partition {metrics['rank_partition']}: edge cut {metrics['edge_cut']:,}, "
            f"halo {metrics['halo_size']:,}; load imbalance {points:.3f} in points, {devices:.3f} in devices"
        )


def _count_work(config: RunConfig, work: int) -> int:
    """Estimate the work on the points; if they change, central k-means is computed again in every round."""
    return work if config.stream is None else work * (config.rounds + 1)


def _final_points(devices: Devices, shards: Shards, point_feed: PointFeed | None, state: Any) -> tuple[Devices, Shards]:
    """Return batch and points at the end of the run; features that a method derived from points replace them."""
    derived = optional(state, "derived")
    if derived is not None:
        points = derived.features.values
        return replace(devices, stored=points), replace(shards, points=points)
    return (devices, shards) if point_feed is None else (point_feed.with_points(devices), point_feed.shards)


def _attach_evaluator(
    config: RunConfig, shards: Shards, world: World, devices: Devices, monitor: Monitor, point_feed: PointFeed | None
) -> CostEvaluator:
    """Attach the batch and its comparison with central k-means to the monitor; return the evaluator.

    If points change, the monitor computes the comparison again. Features that are derived from points change in every
    round, and are compared in the last record only.
    """
    if config.algorithm.traits.derives_features:
        evaluator = _build_evaluator(replace(config, baselines=False), shards, world, devices, monitor.network)

        def evaluate_features(batch: Devices, last: bool) -> CostEvaluator:
            features = replace(shards, points=batch.stored)
            return _build_evaluator(config, features, world, batch, monitor.network, alone=last)

        monitor.follow(evaluate_features)
    elif point_feed is None:
        evaluator = _build_evaluator(config, shards, world, devices, monitor.network)
    else:
        evaluator = _build_evaluator(config, point_feed.shards, world, devices, monitor.network)

        def evaluate_points(batch: Devices, last: bool) -> CostEvaluator:
            return _build_evaluator(config, point_feed.shards, world, batch, monitor.network, alone=last)

        monitor.follow(evaluate_points)
    monitor.attach(devices, evaluator)
    return evaluator


def _build_evaluator(
    config: RunConfig, shards: Shards, world: World, devices: Devices, network: Network, *, alone: bool = True
) -> CostEvaluator:
    """Build the cost evaluator of these points; a collective call, in which rank 0 computes central k-means.

    alone: whether the evaluator also computes the local-only baseline.
    """
    central = note = None
    if config.baselines:
        pooled, note = gather_points(shards, devices.shared_key, network)
        # Only rank 0 has the pooled points.
        computed = None if pooled is None else {"central": cluster_centrally(devices, config.algorithm.k, pooled)}
        central = world.broadcast(computed)["central"]
    classes = np.zeros(0, np.int64) if shards.labels is None else shards.labels
    evaluator = CostEvaluator(devices, classes, count_classes(shards, network), network, central, alone=alone)
    evaluator.notes.extend([note] if note else [])
    return evaluator
