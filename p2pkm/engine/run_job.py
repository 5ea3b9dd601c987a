"""One run on this rank, from the checked input to the result: the same on every rank."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from p2pkm.channel.suppression import reach
from p2pkm.channel.transform import RunScope
from p2pkm.core.batch import Devices, Floats
from p2pkm.core.states import optional
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch, choose_kernels, count_classes, sizes_of, weigh_division
from p2pkm.engine.build_run import RunConfig, require_same_run
from p2pkm.engine.checkpointing import Checkpointer, CheckpointSink
from p2pkm.engine.event_driven import schedule_events
from p2pkm.engine.loop import RunContext, run
from p2pkm.engine.point_feed import PointFeed
from p2pkm.engine.preliminaries import Scaling, explain, list_preliminaries, run_preliminaries, summarize
from p2pkm.engine.run_secret import describe_secret, draw_secret
from p2pkm.engine.virtual_time import Timing, compute_virtual_time
from p2pkm.kernels.compile_time import count_compilation
from p2pkm.kernels.streams import shared_key
from p2pkm.methods.init.pipelines import (
    Stage,
    describe_graph_use,
    stages,
)
from p2pkm.methods.init.registry import InitContext
from p2pkm.metrics.cost_ratio import CostEvaluator, cluster_centrally, gather_points
from p2pkm.metrics.monitor import Monitor, Record
from p2pkm.metrics.result import Result
from p2pkm.metrics.summary import FinishedRun, OptionalMetrics, build_result, describe
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.rank_partition import RankPartition
from p2pkm.network.transport import Network, World


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
    given : mapping of str to bytes
        SHA-256 of what every rank was given whole, to be compared: points and start. Empty: rank 0 alone has them.
    """

    shards: Shards
    start: Floats | None = None
    division: RankPartition | None = None
    saved: dict[str, Any] | None = None
    interrupted: Callable[[], int] = lambda: 0
    given: Mapping[str, bytes] = field(default_factory=dict)


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
    checkpoints : CheckpointSink or None
    scores : OptionalMetrics
        What to score besides.
    names : dict
        What the summary says of graph, data and partition.
    """

    begin: Callable[[], None] = lambda: None
    sink: Callable[[Record], None] = lambda record: None
    tell: Callable[[str], None] = lambda note: None
    checkpoints: CheckpointSink | None = None
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
    require_same_run(config, world, part.given)
    hooks, topology, algorithm = hooks if world.rank == 0 else RootHooks(), config.topology, config.algorithm
    network = world.network(place(topology, world.rank, world.size, part.division))
    sizes = sizes_of(part.shards, network)
    figures = weigh_division(network, sizes, world.size)
    kernels = choose_kernels(world, topology.n, _count_work(config, int(sizes.sum()) * algorithm.k * part.shards.d))
    devices = build_batch(
        topology, part.shards, network, config.seed, kernels, draw_secret(algorithm.traits, config.seed, world)
    )
    channel = config.channel.build(RunScope(devices, network, topology, config.seed))
    devices = channel.equip(devices)
    monitor = Monitor(network, config.record_every, hooks.sink, topology)
    hooks.begin()
    _tell_division(hooks, figures)
    setting = InitContext(topology, sizes, shared_key(config.seed), algorithm.k, part.shards.d, channel.exposes)
    # a checkpoint would hold the keys
    keeper = Checkpointer(
        monitor, None if algorithm.traits.is_secret else hooks.checkpoints, part.shards, kernels, part.saved
    )
    events = schedule_events(algorithm, config.link_model, topology)
    keeper.watch(channel.lasting | ({} if events is None else {"events": events}))
    context = RunContext(
        devices,
        topology.colors,
        monitor,
        part.interrupted,
        topology.varying,
        keeper,
        events,
        channel,
        config.all_rounds,
    )
    before = list_preliminaries(config, setting)
    config, devices, own, scaling, choice = run_preliminaries(config, part.shards, before, context, keeper)
    algorithm = config.configure(int(sizes.sum()))
    setting = setting._replace(k=algorithm.k)
    feed = None if config.stream is None else PointFeed(config.stream, part.shards, keeper.scaling, devices)
    prices = _watch(config, own, world, devices, monitor, feed)
    played = config.channel.prepare(setting) + stages(
        channel.adapt(algorithm, topology), setting, config.rounds, seeded=part.start is not None
    )
    warnings = channel.start(played, devices, network)
    _tell(hooks, prices, explain(choice) + _list_notes(algorithm, topology, played) + warnings)
    monitor.exclude(channel.left_out, altered=channel.alters)
    ending = run(played, part.start, context._replace(devices=devices, feed=feed))
    network.close()
    told = _share_rehearsal(ending.state, network)
    facts = {**describe(algorithm.settle(told), replace(devices, has_stale_links=context.has_stale_links)),
             **hooks.names, **figures,
             **summarize(choice),
             **channel.figures(network), "devices": topology.clients,
             "device_names": topology.list_names(), "feature_names": config.list_features(),
             "ranks": world.size,
             "coupling_choice": config.algorithm.traits.coupling_choice or None,
             "seed": config.seed, "rounds": ending.rounds, "termination": ending.stop,
             "excess_predicted": _predict(algorithm, topology, world, devices, told)}  # fmt: skip
    facts |= _time(began, compiled)
    timing = None if config.link_model is None else Timing(config.link_model, (*before, *played), events, config.stream)
    clock = compute_virtual_time(timing, devices, topology, network, monitor.trace)
    ages = events.ages if timing is not None and events is not None else None
    hops = reach(stage.algorithm for stage in played)
    left = FinishedRun(*_leave(devices, own, feed, ending.state), monitor, ending.state, topology, clock, ages, hops)
    result = build_result(world, left, facts, _in_scaled_units(hooks.scores, scaling))
    # names are those of the points, not of features that were derived from them
    return replace(result, scaling=scaling, features=None if result.derived else config.features or None)


def _time(began: float, compiled: float) -> dict[str, float]:
    """Return the seconds since then, compilation apart."""
    compiled = count_compilation() - compiled
    return {"wall_seconds": time.perf_counter() - began - compiled, "compile_seconds": compiled}


def _share_rehearsal(state: Any, network: Network) -> Any:
    """Return the state with what a rehearsal told all devices: a rank may host none of them."""
    found = optional(state, "rehearsed")
    return state if found is None else state._replace(rehearsed=network.allgather_by_device(found))


def _predict(algorithm: Any, topology: Topology, world: World, devices: Devices, state: Any) -> float | None:
    """Return the excess of the mean ratio that theory or a rehearsal expects; six digits: it is no part of the bits.

    Rank 0 computes it for all: it takes scipy, which sixteen ranks would import.
    """
    found = optional(state, "rehearsed")
    if found is None:
        asked = algorithm.objective if world.rank == 0 else None
        excess = None if asked is None else asked.predict_excess(topology, devices.total_points)
        told = world.broadcast({"excess": np.array([np.nan if excess is None else excess])})["excess"][0]
        return None if np.isnan(told) else float(f"{told:.6g}")
    return float(f"{float(found[0, 1]):.6g}")


def _in_scaled_units(scores: OptionalMetrics, scaling: Scaling | None) -> OptionalMetrics:
    """Return what to score besides, known centers in the units of the centroids."""
    if scores.centers is None or scaling is None:
        return scores
    shift, span = (part[0] for part in scaling)
    return scores._replace(centers=(scores.centers - shift) / span)


def _list_notes(algorithm: Any, topology: Topology, played: tuple[Stage, ...]) -> list[str]:
    """List what the user should know of graph, stages and noise before the run."""
    notes = [stage.note for stage in played if stage.note]
    return describe_graph_use(algorithm, topology) + notes + describe_secret(algorithm.traits)


def _tell(hooks: RootHooks, prices: CostEvaluator, notes: list[str]) -> None:
    """Print notes now, and once more with the result."""
    prices.notes.extend(notes)
    for note in notes:
        hooks.tell(note)


def _tell_division(hooks: RootHooks, figures: dict[str, Any]) -> None:
    if figures:
        points, devices = (figures[name] for name in ("load_imbalance", "load_imbalance_devices"))
        hooks.tell(
            f"rank partition {figures['rank_partition']}: edge cut {figures['edge_cut']:,}, "
            f"halo {figures['halo_size']:,}; load imbalance {points:.3f} in points, {devices:.3f} in devices"
        )


def _count_work(config: RunConfig, work: int) -> int:
    """Return the work on the points; where they change, the cost of a central server is found in every round."""
    return work if config.stream is None else work * (config.rounds + 1)


def _leave(devices: Devices, own: Shards, feed: PointFeed | None, state: Any) -> tuple[Devices, Shards]:
    """Return batch and points as they are at the end: features in the place of points that they were derived from."""
    derived = optional(state, "derived")
    if derived is not None:
        points = derived.features.values
        return replace(devices, stored=points), replace(own, points=points)
    return (devices, own) if feed is None else (feed.equip(devices), feed.own)


def _watch(
    config: RunConfig, own: Shards, world: World, devices: Devices, monitor: Monitor, feed: PointFeed | None
) -> CostEvaluator:
    """Let the monitor compare with a central server: on the points as they are, and again whenever they change.

    Features that are derived from points are compared in the last record only.
    """
    if config.algorithm.traits.derives_features:
        prices = _price(replace(config, baselines=False), own, world, devices, monitor.network)
        monitor.follow(
            lambda now, last: _price(config, replace(own, points=now.stored), world, now, monitor.network, alone=last)
        )
    elif feed is None:
        prices = _price(config, own, world, devices, monitor.network)
    else:
        prices = _price(config, feed.own, world, devices, monitor.network)
        monitor.follow(lambda now, last: _price(config, feed.own, world, now, monitor.network, alone=last))
    monitor.attach(devices, prices)
    return prices


def _price(
    config: RunConfig, own: Shards, world: World, devices: Devices, network: Network, *, alone: bool = True
) -> CostEvaluator:
    """Compute the central baseline on rank 0 and let every rank know it; alone: that of every device alone, too."""
    central = note = None
    if config.baselines:
        pooled, note = gather_points(own, devices.shared_key, network)
        found = None if pooled is None else {"central": cluster_centrally(devices, config.algorithm.k, pooled)}
        central = world.broadcast(found)["central"]
    classes = np.zeros(0, np.int64) if own.labels is None else own.labels
    prices = CostEvaluator(devices, classes, count_classes(own, network), network, central, alone=alone)
    prices.notes.extend([note] if note else [])
    return prices
