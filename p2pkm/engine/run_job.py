"""One run on this rank, from the checked input to the result: the same on every rank."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from p2pkm.channel.suppression import reach
from p2pkm.channel.transform import RunScope
from p2pkm.core.batch import Devices, Floats
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch, choose_kernels, count_classes, sizes_of, weigh_division
from p2pkm.engine.build_run import RunConfig, require_same_run
from p2pkm.engine.checkpointing import Checkpointer, CheckpointWriter
from p2pkm.engine.event_driven import schedule_events
from p2pkm.engine.feature_scaling import apply, scale
from p2pkm.engine.loop import RunContext, run
from p2pkm.engine.virtual_time import Timing, compute_virtual_time
from p2pkm.kernels.compile_time import count_compilation
from p2pkm.kernels.streams import shared_key
from p2pkm.methods.init.pipelines import InitContext, scaling_stage, stages
from p2pkm.metrics.cost_ratio import CostEvaluator, cluster_centrally, gather_points
from p2pkm.metrics.monitor import Monitor, Record
from p2pkm.metrics.result import Result
from p2pkm.metrics.summary import FinishedRun, OptionalMetrics, build_result, describe
from p2pkm.network.halo import place
from p2pkm.network.rank_partition import RankPartition
from p2pkm.network.transport import Network, World

Scaling = tuple[Floats, Floats]  # shift and span that every device used, float64[n, d] each


@dataclass(frozen=True)
class RankPart:
    """What is a rank's own.

    Attributes
    ----------
    shards : Shards
        The points of its devices.
    start : float64[n, k, d] or None
        Their centroids that replace the seeding stages.
    division : RankPartition or None
        Which rank hosts which devices; None: contiguous blocks.
    saved : dict or None
        What an earlier run was kept as, to go on from: this rank's part of it.
    interrupted : callable
        The signal that asked this rank to stop, or 0; the run ends with the round.
    """

    shards: Shards
    start: Floats | None = None
    division: RankPartition | None = None
    saved: dict[str, Any] | None = None
    interrupted: Callable[[], int] = lambda: 0


@dataclass(frozen=True)
class RootHooks:
    """What rank 0 alone does with a run; other ranks may have none, or others.

    Attributes
    ----------
    begin : callable
        Called before the first exchange.
    sink : callable
        Gets every record as it is made.
    tell : callable
        Gets what the user should know of the stages, before they run.
    checkpoints : CheckpointWriter or None
    scores : OptionalMetrics
        What to score besides.
    names : dict
        What the summary says of graph, data and partition.
    """

    begin: Callable[[], None] = lambda: None
    sink: Callable[[Record], None] = lambda record: None
    tell: Callable[[str], None] = lambda note: None
    checkpoints: CheckpointWriter | None = None
    scores: OptionalMetrics = OptionalMetrics()  # noqa: RUF009 - a tuple
    names: dict[str, Any] = field(default_factory=dict)


def run_job(config: RunConfig, part: RankPart, world: World, hooks: RootHooks = RootHooks()) -> Result:
    """Run on this world; every rank calls it with the same `config`.

    Raises
    ------
    ExperimentError
        On every rank, if they were given different runs.
    """
    began, compiled = time.perf_counter(), count_compilation()
    require_same_run(config, world)
    hooks = hooks if world.rank == 0 else RootHooks()
    algorithm, topology = config.algorithm, config.topology
    network = world.network(place(topology, world.rank, world.size, part.division))
    sizes = sizes_of(part.shards, network)
    figures = weigh_division(network, sizes, world.size)
    kernels = choose_kernels(world, topology.n, int(sizes.sum()) * algorithm.k * part.shards.d)
    devices = build_batch(topology, part.shards, network, config.seed, kernels)
    channel = config.channel.build(RunScope(devices, network, topology, config.seed))
    devices = channel.equip(devices)
    referee = Monitor(network, config.record_every, hooks.sink, topology)
    hooks.begin()
    _tell_placement(hooks, figures)
    setting = InitContext(topology, sizes, shared_key(config.seed), algorithm.k, part.shards.d, channel.exposes)
    keeper = Checkpointer(referee, hooks.checkpoints, part.shards, kernels, part.saved)
    events = schedule_events(algorithm, config.link_model, topology)
    keeper.watch(channel.lasting | ({} if events is None else {"events": events}))
    field = RunContext(devices, topology.colors, referee, part.interrupted, topology.varying, keeper, events, channel)
    own, scaling = part.shards, None
    if config.scale != "none":
        devices, own, scaling = _scale(config, own, setting, field, keeper)
    prices = _price(config, own, world, devices, network)
    referee.attach(devices, prices)
    played = config.channel.prepare(setting) + stages(
        channel.adapt(algorithm, topology), setting, config.rounds, seeded=part.start is not None
    )
    warnings = channel.start(played, devices, network)
    _tell(hooks, prices, [stage.note for stage in played if stage.note] + warnings)
    referee.exclude(channel.left_out, altered=channel.alters)
    ending = run(played, part.start, field._replace(devices=devices))
    network.close()
    facts = {**describe(algorithm, replace(devices, late=field.late)), **hooks.names, **figures,
             **channel.figures(network), "devices": topology.clients,
             "device_names": topology.list_names(), "ranks": world.size,
             "seed": config.seed, "rounds": ending.rounds, "termination": ending.stop}  # fmt: skip
    compiled = count_compilation() - compiled
    facts |= {"wall_seconds": time.perf_counter() - began - compiled, "compile_seconds": compiled}
    before = () if config.scale == "none" else (scaling_stage(config.scale, setting),)
    timing = None if config.link_model is None else Timing(config.link_model, before + played, events)
    clock = compute_virtual_time(timing, devices, topology, network, referee.trace)
    ages = events.ages if timing is not None and events is not None else None
    hops = reach(stage.algorithm for stage in played)
    left = FinishedRun(devices, own, referee, ending.state, topology, clock, ages, hops)
    return replace(build_result(world, left, facts, _in_scaled_units(hooks.scores, scaling)), scaling=scaling)


def _in_scaled_units(scores: OptionalMetrics, scaling: Scaling | None) -> OptionalMetrics:
    """Return what to score besides, known centers in the units of the centroids."""
    if scores.centers is None or scaling is None:
        return scores
    shift, span = (part[0] for part in scaling)
    return scores._replace(centers=(scores.centers - shift) / span)


def _tell(hooks: RootHooks, prices: CostEvaluator, notes: list[str]) -> None:
    """Print notes now, and once more with the result."""
    prices.notes.extend(notes)
    for note in notes:
        hooks.tell(note)


def _tell_placement(hooks: RootHooks, figures: dict[str, Any]) -> None:
    if figures:
        points, devices = (figures[name] for name in ("load_imbalance", "load_imbalance_devices"))
        hooks.tell(
            f"placement {figures['rank_partition']}: edge cut {figures['edge_cut']:,}, halo {figures['halo_size']:,}; "
            f"load imbalance {points:.3f} in points, {devices:.3f} in devices"
        )


def _scale(
    config: RunConfig, own: Shards, setting: InitContext, field: RunContext, keeper: Checkpointer
) -> tuple[Devices, Shards, Scaling]:
    """Let the devices agree on shift and span of every feature by messages, and scale their points by them."""
    field.referee.attach(field.devices, None)
    stage = scaling_stage(config.scale, setting)
    field.channel.start((stage,), field.devices, field.referee.network)
    units = scale(stage, field, keeper)
    own, network = apply(own, units), field.referee.network
    hosted = build_batch(config.topology, own, network, config.seed, field.devices.kernels)
    return (
        field.channel.equip(hosted),
        own,
        (network.allgather_by_device(units[0]), network.allgather_by_device(units[1])),
    )


def _price(config: RunConfig, own: Shards, world: World, devices: Devices, network: Network) -> CostEvaluator:
    """Compute the central baseline on rank 0 and let every rank know it."""
    central = note = None
    if config.baselines:
        pooled, note = gather_points(own, devices.shared_key, network)
        found = None if pooled is None else {"central": cluster_centrally(devices, config.algorithm.k, pooled)}
        central = world.broadcast(found)["central"]
    classes = np.zeros(0, np.int64) if own.labels is None else own.labels.astype(np.int64)
    prices = CostEvaluator(devices, classes, count_classes(own, network), network, central)
    prices.notes.extend([note] if note else [])
    return prices
