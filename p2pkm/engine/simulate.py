"""One run from checked input to result: `simulate` for scripts, `perform` for everybody."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.channel.byzantine import Byzantine
from p2pkm.channel.pipeline import ChannelPlan, plan_channel
from p2pkm.channel.sampled_faults import Faults
from p2pkm.channel.suppression import reach
from p2pkm.channel.transform import RunScope
from p2pkm.core.batch import Devices, Floats
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.protocols import check_method
from p2pkm.core.spec import suggest
from p2pkm.core.validation import bounded
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch, choose_kernels, count_classes, sizes_of, weigh_division
from p2pkm.engine.checkpointing import Checkpointer, CheckpointWriter
from p2pkm.engine.event_driven import schedule_events
from p2pkm.engine.feature_scaling import apply, scale
from p2pkm.engine.loop import RunContext, run
from p2pkm.engine.validate import check
from p2pkm.engine.virtual_time import Timing, compute_virtual_time
from p2pkm.kernels.compile_time import count_compilation
from p2pkm.kernels.streams import shared_key
from p2pkm.methods.init.given import check_start
from p2pkm.methods.init.pipelines import InitContext, place_graph, scaling_stage, stages
from p2pkm.metrics.cost_ratio import CostEvaluator, cluster_centrally, gather_points
from p2pkm.metrics.monitor import Monitor, Record, usual_every
from p2pkm.metrics.result import Result
from p2pkm.metrics.summary import FinishedRun, OptionalMetrics, build_result, describe
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.link_model import LinkModel, build_link_model
from p2pkm.network.rank_partition import RankPartition, check_rank_partition, choose
from p2pkm.network.transport import Network, World
from p2pkm.network.world import connect

if TYPE_CHECKING:
    import networkx as nx

    from topologies import CSRGraph, TimeVaryingGraph

_SCALES = ("none", "standard", "minmax")


@dataclass(frozen=True)
class Job:
    """One run, ready to start: checked, and with this rank's own points only.

    Attributes
    ----------
    algorithm : Algorithm
    topology : Topology
    own : Shards
        The points of this rank's devices.
    baselines : bool
        Whether there is to be a central baseline.
    scale : {"none", "standard", "minmax"}
        How to scale the points first.
    scaling : tuple of (float64[n, d], float64[n, d]) or None
        Shift and span that every device then used.
    start : float64[n, k, d] or None
        Centroids of this rank's devices that replace the seeding stages.
    wishes : Wishes
        What to score besides; the centers matter on rank 0 alone.
    names : dict
        What the summary says of graph, data and partition.
    sink : callable
        Gets every record on rank 0 as it is made.
    tell : callable
        Gets what the user should know of the stages, on every rank, before they run.
    begin : callable
        Called on every rank before the first exchange.
    interrupted : callable
        The signal that asked this rank to stop, or 0; the run ends with the round.
    division : Division or None
        Which rank hosts which devices; None: contiguous blocks.
    link_model : Net or None
        The network in life, for virtual time.
    vault, saved : Vault or None, dict or None
        Where checkpoints go, on rank 0 alone; what an earlier run was kept as, to go on from.
    channel : ChannelPlan
        What messages pass on their way.
    """

    algorithm: Any
    topology: Topology
    own: Shards
    baselines: bool = True
    scale: str = "none"
    scaling: tuple[Floats, Floats] | None = None
    rounds: int = 150
    seed: int = 0
    record_every: int = 1
    start: Floats | None = None
    wishes: OptionalMetrics = field(default_factory=OptionalMetrics)
    names: dict[str, Any] = field(default_factory=dict)
    sink: Callable[[Record], None] = lambda record: None
    tell: Callable[[str], None] = lambda note: None
    begin: Callable[[], None] = lambda: None
    interrupted: Callable[[], int] = lambda: 0
    division: RankPartition | None = None
    link_model: LinkModel | None = None
    vault: CheckpointWriter | None = None
    saved: dict[str, Any] | None = None
    channel: ChannelPlan = field(default_factory=lambda: plan_channel({}, None))


def simulate(  # noqa: PLR0913 - the public signature
    algorithm: Any, graph: "nx.Graph | CSRGraph | TimeVaryingGraph | Topology | None", shards: Shards, *,
    rounds: int | None = None, seed: int = 0, start: Any = None, record_every: int | None = None,
    baselines: bool = True, allow_disconnected: bool = False, rank_partition: str = "auto",
    link_model: str | None = None, faults: Faults | str | None = None, stale_policy: str | None = None,
    byzantine: Byzantine | str | None = None, min_cluster_size: int = 0, noise: float = 0.0,
    transforms: str | None = None, scale: str = "none", silhouette: bool = False, true_centers: Any = None,
) -> Result:  # fmt: skip
    """Run a method on a communication graph and return the same result on every rank.

    Under ``mpirun`` the devices are dealt to the ranks; without it one process hosts all of them, with the same bits.

    Parameters
    ----------
    algorithm : Algorithm
        For example ``p2pkm.GTVMin(16)`` or ``p2pkm.FKM(16)``.
    graph : networkx.Graph, topologies.LightGraph, topologies.TimeVaryingGraph, Topology or None
        Undirected; device i is its i-th node in sorted order. None: the star of a server method, whose hub is one more
        device, without points.
    shards : Shards
        The points of every device.
    rounds : int, optional
        Most rounds of the last stage; None: the method's default (150 for GTVMin).
    seed : int
    start : array_like of float64[n, k, d], optional
        Starting centroids, +inf for absent rows; skips the seeding stages.
    record_every : int, optional
        Record every so many rounds; None: 1, above 100,000 devices 1000. The last one of a stage always.
    baselines : bool
        Whether to compare with central k-means and with every device alone.
    allow_disconnected : bool
        Whether the graph may fall into several components.
    rank_partition : {"auto", "blocks", "metis"}
        How the devices are dealt to MPI ranks: in contiguous blocks, as METIS divides the graph (extra ``metis``), or
        as cuts fewer links; the result is the same.
    link_model : str, optional
        Network in life, as ``"wan:latency=0.05"``: then the result says how long the run would take there; attributes
        `latency` and `bandwidth` of edges, `access` and `speed` of nodes go before the profile's figures.
    faults : Faults or str, optional
        What goes wrong, as ``"loss=0.1,dropout=0.02"``, or the path of a tape; see docs/faults.md.
    stale_policy : str, optional
        What becomes of tables that faults keep from being replaced: ``"keep:age=8"`` (rounds), the default, ``"drop"``.
    byzantine : Byzantine or str, optional
        How many devices send wrong tables, and how, as ``"2:kind=flip,place=central"``; see
        `p2pkm.channel.byzantine.Byzantine`.
    min_cluster_size : int
        Nothing of rows of fewer own points leaves their device.
    noise : float
        Standard deviation of the Gaussian noise on every row of centroids that is sent, in units of the standard
        deviation of the points (root mean square over coordinates); see `p2pkm.channel.noise`. No privacy guarantee.
    transforms : str, optional
        What other packages do to messages, a list of specs such as ``"rounding:digits=3"``.
    scale : {"none", "standard", "minmax"}
        How the devices scale their features first, by messages; `Result.scaling` has shift and span.
    silhouette : bool
        Whether to compute the silhouettes, too.
    true_centers : array_like of float64[c, d], optional
        Known centers to measure the distance to, in the units of the points.

    Raises
    ------
    TopologyError
        If the graph cannot be used, has another number of nodes than there are devices, or is given to a server
        method.
    DataError
        If there are fewer points than clusters, or known centers have other features than the points.
    ExperimentError
        If an option is out of range.
    """
    check_method(type(algorithm), type(algorithm).__name__)
    rounds = algorithm.default_rounds if rounds is None else rounds
    topology = place_graph(algorithm, graph, shards.n, shards.names)
    shards = shards if topology.hub < 0 else shards.with_hub()
    record_every = usual_every(topology.n) if record_every is None else record_every
    check(algorithm, topology, shards, rounds=rounds, record_every=record_every, allow_disconnected=allow_disconnected)
    if start is not None and algorithm.traits.init is None:
        raise ExperimentError(f"{algorithm.name} starts from what the devices find in their points; leave start out")
    life = None if link_model is None else build_link_model(link_model, topology, graph)
    schedule_events(algorithm, life, topology)
    faults = Faults.of(faults)
    options = {"faults": faults, "stale_policy": stale_policy, "link_model": link_model, "byzantine": byzantine,
               "min_cluster_size": min_cluster_size, "noise": noise, "transforms": transforms}  # fmt: skip
    channel = plan_channel(options, algorithm).place(topology, seed)
    if scale not in _SCALES:
        raise ExperimentError(f"scale is {scale!r}. {suggest(str(scale), _SCALES)}")
    wishes = OptionalMetrics(silhouette, None if true_centers is None else check_centers(true_centers, shards.d))
    given = None if start is None else check_start(start, topology.n, algorithm.k, shards.d)
    world = connect()
    check_rank_partition(rank_partition, world.size)
    found = choose(topology, shards.sizes, world.size, rank_partition).to_arrays() if world.rank == 0 else None
    division = RankPartition.from_arrays(world.broadcast(found))
    ids = division.of(world.rank)
    job = Job(
        algorithm, topology, shards.take(ids), baselines, scale, rounds=rounds, seed=seed, record_every=record_every,
        start=None if given is None else given[ids], division=division, link_model=life,
        names={"link_model": link_model, "faults": None if faults is None else str(faults),
               "stale_policy": None if faults is None else stale_policy or "keep"},
        wishes=wishes if world.rank == 0 else OptionalMetrics(), channel=channel,
    )  # fmt: skip
    return run_job(job, world)


def check_centers(centers: Any, d: int) -> Floats:
    """Return known centers as float64[c, d]."""
    found: Floats = np.asarray(centers, np.float64)
    bounded(found, "true_centers")
    if found.ndim != 2 or found.shape[1] != d:
        raise DataError(f"true_centers have shape {found.shape}; expected (number of centers, {d}), as the points")
    return found


def run_job(job: Job, world: World) -> Result:
    """Run a job on this world; every rank calls it alike."""
    began, compiled = time.perf_counter(), count_compilation()
    network = world.network(place(job.topology, world.rank, world.size, job.division))
    sizes = sizes_of(job.own, network)
    figures = weigh_division(network, sizes, world.size)
    kernels = choose_kernels(world, job.topology.n, int(sizes.sum()) * job.algorithm.k * job.own.d)
    devices = build_batch(job.topology, job.own, network, job.seed, kernels)
    channel = job.channel.build(RunScope(devices, network, job.topology, job.seed))
    devices = channel.equip(devices)
    referee = Monitor(network, job.record_every, job.sink, job.topology)
    job.begin()
    _tell_placement(job, figures)
    setting = InitContext(job.topology, sizes, shared_key(job.seed), job.algorithm.k, job.own.d, channel.exposes)
    keeper = Checkpointer(referee, job.vault, job.own, kernels, job.saved)
    events = schedule_events(job.algorithm, job.link_model, job.topology)
    keeper.watch(channel.lasting | ({} if events is None else {"events": events}))
    field = RunContext(
        devices, job.topology.colors, referee, job.interrupted, job.topology.varying, keeper, events, channel
    )
    if job.scale != "none":
        devices, job = _scale(job, setting, field, keeper)
    prices = _price(job, world, devices, network)
    referee.attach(devices, prices)
    played = stages(
        channel.adapt(job.algorithm, job.topology),
        setting,
        job.rounds,
        seeded=job.start is not None,
    )
    warnings = channel.start(played, devices, network)
    _tell(job, prices, [stage.note for stage in played if stage.note] + warnings)
    referee.exclude(channel.left_out)
    ending = run(played, job.start, field._replace(devices=devices))
    network.close()
    facts = {**describe(job.algorithm, replace(devices, late=field.late)), **job.names, **figures,
             **channel.figures(network), "devices": job.topology.clients,
             "device_names": job.topology.list_names(), "ranks": world.size,
             "seed": job.seed, "rounds": ending.rounds, "termination": ending.stop}  # fmt: skip
    compiled = count_compilation() - compiled
    facts |= {"wall_seconds": time.perf_counter() - began - compiled, "compile_seconds": compiled}
    scaling = () if job.scale == "none" else (scaling_stage(job.scale, setting),)
    timing = None if job.link_model is None else Timing(job.link_model, scaling + played, events)
    clock = compute_virtual_time(timing, devices, job.topology, network, referee.trace)
    ages = events.ages if timing is not None and events is not None else None
    hops = reach(stage.algorithm for stage in played)
    left = FinishedRun(devices, job.own, referee, ending.state, job.topology, clock, ages, hops)
    return replace(build_result(world, left, facts, _in_scaled_units(job)), scaling=job.scaling)


def _in_scaled_units(job: Job) -> OptionalMetrics:
    """Return what to score besides, known centers in the units of the centroids."""
    if job.wishes.centers is None or job.scaling is None:
        return job.wishes
    shift, span = (part[0] for part in job.scaling)
    return job.wishes._replace(centers=(job.wishes.centers - shift) / span)


def _tell(job: Job, prices: CostEvaluator, notes: list[str]) -> None:
    """Say notes now, and once more with the result."""
    prices.notes.extend(notes)
    for note in notes:
        job.tell(note)


def _tell_placement(job: Job, figures: dict[str, Any]) -> None:
    if figures:
        points, devices = (figures[name] for name in ("load_imbalance", "load_imbalance_devices"))
        job.tell(
            f"placement {figures['rank_partition']}: edge cut {figures['edge_cut']:,}, halo {figures['halo_size']:,}; "
            f"load imbalance {points:.3f} in points, {devices:.3f} in devices"
        )


def _scale(job: Job, setting: InitContext, field: RunContext, keeper: Checkpointer) -> tuple[Devices, Job]:
    """Let the devices agree on shift and span of every feature by messages, and scale their points by them."""
    field.referee.attach(field.devices, None)
    stage = scaling_stage(job.scale, setting)
    field.channel.start((stage,), field.devices, field.referee.network)
    units = scale(stage, field, keeper)
    own, network = apply(job.own, units), field.referee.network
    hosted = build_batch(job.topology, own, network, job.seed, field.devices.kernels)
    shared = network.allgather_by_device(units[0]), network.allgather_by_device(units[1])
    return field.channel.equip(hosted), replace(job, own=own, scaling=shared)


def _price(job: Job, world: World, devices: Devices, network: Network) -> CostEvaluator:
    """Compute the central baseline on rank 0 and let every rank know it."""
    central = note = None
    if job.baselines:
        pooled, note = gather_points(job.own, devices.shared_key, network)
        found = None if pooled is None else {"central": cluster_centrally(devices, job.algorithm.k, pooled)}
        central = world.broadcast(found)["central"]
    classes = np.zeros(0, np.int64) if job.own.labels is None else job.own.labels.astype(np.int64)
    prices = CostEvaluator(devices, classes, count_classes(job.own, network), network, central)
    prices.notes.extend([note] if note else [])
    return prices
