"""Outline of an experiment: graph, sizes and stages of a run, without its points."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.pipeline import ChannelPlan
from p2pkm.core.batch import Integers
from p2pkm.core.errors import P2PKMError
from p2pkm.core.expected_messages import Known
from p2pkm.core.program_object import ProgramObject
from p2pkm.core.protocols import PointCount, RunOutline
from p2pkm.core.spec import Spec, complete
from p2pkm.data.identifiers import FILLING
from p2pkm.data.size_estimate import Size, measure
from p2pkm.engine.build_run import Run, build_run, check_fit
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import (
    RunSpecs,
    build_topology,
    follow_graph,
    parse_specs,
    read_attributes,
    record_defaults,
)
from p2pkm.methods.init.pipelines import Stage, choosing_stage, imputing_stage, needs_hub, scaling_stage, stages
from p2pkm.methods.init.registry import InitContext
from p2pkm.network.graph import Topology

_CLUSTERS, _DEVICES = 8, 16  # if neither data nor options determine them


class RunPlan(NamedTuple):
    """Outline of a run.

    Attributes
    ----------
    experiment : RunOptions
        Resolved options.
    algorithm : Algorithm or ServerMethod
    topology : Topology
    size : Size
        Size of the data.
    sizes : int64[n]
        Points of each device, including a hub: actual numbers if `sizes_known`, otherwise equal parts.
    sizes_known : bool
        The partition determines the number of points of each device in advance.
    stages : tuple of Stage
        All stages in order, including feature scaling; without initialization if that is rejected.
    refusal : P2PKMError or None
        Error that `run` would raise, except for memory.
    graph : Spec or ProgramObject
    run : Run or None
        None if the run is rejected.
    partition : Spec, ProgramObject or None
        None: default partition of the source.
    not_counted : str
        Options whose effect on messages and seconds is not planned, and what is planned instead; empty: none.
    """

    experiment: RunOptions
    algorithm: Any
    topology: Topology
    size: Size
    sizes: Integers
    sizes_known: bool
    stages: tuple[Stage, ...]
    refusal: P2PKMError | None
    graph: Spec | ProgramObject
    run: Run | None
    partition: Spec | ProgramObject | None = None
    not_counted: str = ""

    @property
    def min_points(self) -> int:
        """Number of points that every client is certain to have."""
        clients = self.sizes[: self.topology.clients]
        return int(clients.min()) if self.sizes_known else 0

    @property
    def known(self) -> Known:
        """Facts about the data that are known before the run."""
        connected = int(self.topology.components.max()) == 0
        return Known(
            self.topology.clients,
            self.size.points,
            self.size.distinct,
            self.size.features,
            self.min_points,
            connected,
            self.size.weighted,
        )

    @property
    def links_in_use(self) -> float | None:
        """Mean number of links in use per round; None if the graph is static."""
        from topologies.measures import active_degrees

        graph = self.topology.varying
        return None if graph is None else (active_degrees(graph).value or 0.0) * self.topology.n / 2


def resolve_experiment(specs: RunSpecs, ranks: int | None, *, count: bool = True) -> tuple[RunOptions, Any, Size]:
    """Fill in devices, clusters and rounds without generating points or graph.

    If the devices are to choose the number of clusters, its maximum is used.

    Parameters
    ----------
    specs : RunSpecs
    ranks : int or None
        Number of MPI ranks, which is the default number of devices; None without MPI: 16 devices.
    count : bool
        Read a file to its end if its classes or devices must be counted.

    Returns
    -------
    options : RunOptions
    method : Algorithm or ServerMethod
    size : Size
        Size of the data.
    """
    import topologies
    from p2pkm.data.sources import SOURCES, follows_graph

    experiment, graph, source, partition = specs.options, specs.graph, specs.source, specs.partition
    columns = experiment.name_columns()
    must_count = count and (experiment.clusters is None or (experiment.devices is None and ranks is None))
    # A study checks the memory of its runs, too, but only of those whose data are text.
    assert isinstance(source, Spec)
    if follows_graph(source):
        source = follow_graph(source, specs, ranks)
    requested = partition if isinstance(partition, Spec) else None
    size = measure(source, **columns, whole_file=must_count, partition=requested)
    if experiment.dtype == "float32":
        # Points that differ in double precision may be equal in single precision.
        size = size._replace(distinct=1)
    auto = experiment.clusters == "auto"
    k_max = experiment.find_k_max(size.points) if auto else None
    clusters = k_max or experiment.clusters or size.classes or _CLUSTERS
    by_column = partition is None or partition.name == "column"
    n = experiment.devices or (size.devices if by_column else None)
    if n is None and graph.name not in topologies.FIXED:
        n = ranks or _DEVICES
    resolved = experiment.replaced(
        graph=str(graph),
        clusters="auto" if auto else clusters,
        k_max=k_max,
        devices=n,
        data=str(complete(source, SOURCES, experiment.seed) if source.name != "file" else source),
        rounds=specs.draft.default_rounds if experiment.rounds is None else experiment.rounds,
    )
    outline = RunOutline(None, disturbed="a graph that is not built yet", image=size.image)
    return resolved, specs.method.build(int(clusters)).configure(outline), size


def build_plan(experiment: RunOptions, ranks: int | None) -> RunPlan:
    """Build the outline of a run, with its graph but without its points.

    Raises
    ------
    P2PKMError
        If options, graph or data cannot be used.
    """
    specs = parse_specs(experiment, check=False)
    resolved, method, size = resolve_experiment(specs, ranks)
    n, graph = resolved.devices, specs.graph
    topology = Topology.star(n or _DEVICES) if needs_hub(method) else _build_graph(graph, experiment, n)
    outline = RunOutline(topology, disturbed="a run that is rejected", image=size.image)
    points = PointCount(topology.n, size.points, size.features)
    # Errors of this check end the plan: even the pilot could not run.
    check_fit(method, outline, points)
    resolved = replace(resolved, devices=topology.clients)
    sizes, sizes_known = _estimate_sizes(specs.partition, size, topology)
    setting = InitContext(topology, sizes, _shared_key(resolved.seed), method.k, size.features)
    run, refusal = None, None
    try:
        run = build_run(method, resolved, topology, points, graph=read_attributes(resolved, graph), image=size.image)
    except P2PKMError as error:
        refusal = error
    else:
        resolved = record_defaults(resolved, specs.method, run)
        # With --client-share the links of the star change.
        topology = run.topology
        setting = setting._replace(topology=topology)
    method = method.configure(outline._replace(points=size.points)) if run is None else run.configure(size.points)
    channel = ChannelPlan() if run is None else run.channel
    faults = channel.find("faults")
    if faults is not None:
        setting = setting._replace(faults_apply=faults["faults"].stages == "all")
    sequence, stage_refusal = _list_stages(resolved, method, setting, channel)
    return RunPlan(
        resolved,
        method,
        topology,
        size,
        sizes,
        sizes_known,
        sequence,
        refusal or stage_refusal,
        graph,
        run,
        specs.partition,
        "" if faults is None else _describe_not_counted(resolved, topology),
    )


def _describe_not_counted(experiment: RunOptions, topology: Topology) -> str:
    """Describe what faults and a deadline change in a run, but not in its plan."""
    named = {"faults": experiment.faults, "deadline": experiment.deadline}
    given = " and ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    text = f"{given}: planned as if all devices took part and all messages arrived in time"
    share, clients = experiment.client_share, topology.clients
    if experiment.faults is None or share is None or share.by != "availability":
        return text
    return f"{text}; a round with fewer than {share.count(clients):,} of the {clients:,} clients available asks fewer"


def _build_graph(graph: Spec | ProgramObject, experiment: RunOptions, n: int | None) -> Topology:
    """Build the graph; it may have more named nodes than the column of devices, which are devices without points."""
    import topologies

    if experiment.devices is None and n is not None and graph.name in topologies.FIXED:
        largest: Topology = build_topology(graph, None, 1)
        if largest.names is not None and largest.n > n:
            return largest
    built: Topology = build_topology(graph, n, 1)
    return built


def _estimate_sizes(partition: Spec | ProgramObject | None, size: Size, topology: Topology) -> tuple[Integers, bool]:
    """Divide the points into equal parts; True if the partition does so, too, so that the sizes are exact."""
    n, m = topology.clients, size.points
    sizes = np.full(n, m // n)
    sizes[: m % n] += 1
    spec = partition or Spec(_default_partition(size, n), {})
    is_even = spec.name in ("iid", "blocks") and spec.options.get("minimum", 0) <= m // n
    return np.append(sizes, np.zeros(topology.n - n, np.int64)), is_even


def _default_partition(size: Size, n: int) -> str:
    """Name the partition that a run uses by default."""
    if size.stored:
        return "column" if size.devices == n else "blocks"
    if size.devices is not None:
        return "column"
    return "dirichlet" if size.labeled else "iid"


def _list_stages(
    experiment: RunOptions, method: Any, setting: InitContext, channel: ChannelPlan
) -> tuple[tuple[Stage, ...], P2PKMError | None]:
    """List the stages, and the error that rejects the initialization, if any."""
    before: tuple[Stage, ...] = ()
    if experiment.missing in FILLING:
        before = (imputing_stage(experiment.missing, setting),)
    if experiment.scale in ("standard", "minmax"):
        before = (*before, scaling_stage(experiment.scale, setting))
    if experiment.k_max is not None:
        before = (*before, choosing_stage(method, setting))
    rounds = experiment.rounds or 0
    try:
        return before + channel.prepare(setting) + stages(method, setting, rounds, seeded=False), None
    except P2PKMError as error:
        return (*before, Stage(method.name, method.on(setting.topology), rounds)), error


def _shared_key(seed: int) -> int:
    from p2pkm.kernels.streams import shared_key

    return shared_key(seed)
