"""An experiment in outline: what a run would be made of, without its points."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.pipeline import ChannelPlan
from p2pkm.core.batch import Integers
from p2pkm.core.errors import P2PKMError
from p2pkm.core.expected_messages import Known
from p2pkm.core.protocols import PointCount, RunOutline
from p2pkm.core.spec import Spec, complete
from p2pkm.data.readers.intake import FILLING
from p2pkm.data.size_estimate import Size, measure
from p2pkm.engine.build_run import RunConfig, build_run, check_fit
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import (
    K_MAX,
    RunSpecs,
    build_topology,
    parse_specs,
    read_attributes,
    record_defaults,
)
from p2pkm.methods.init.pipelines import Stage, choosing_stage, imputing_stage, needs_hub, scaling_stage, stages
from p2pkm.methods.init.registry import InitContext
from p2pkm.network.graph import Topology

_CLUSTERS, _DEVICES = 8, 16  # where neither data nor options say


class RunPlan(NamedTuple):
    """A run that is planned.

    Attributes
    ----------
    experiment : RunOptions
        The resolved options.
    algorithm : Algorithm or ServerMethod
    topology : Topology
    size : Size
    sizes : int64[n]
        Points of each device, a hub included: as they will be if `dealt`, else in equal parts.
    dealt : bool
    stages : tuple of Stage
        In their order, scaling among them; without the seeding if that is refused.
    refusal : P2PKMError or None
        Why `run` would refuse, for reasons other than memory.
    graph : Spec
    run : RunConfig or None
        None: it was refused.
    partition : Spec or None
        None: the default of the source.
    """

    experiment: RunOptions
    algorithm: Any
    topology: Topology
    size: Size
    sizes: Integers
    dealt: bool
    stages: tuple[Stage, ...]
    refusal: P2PKMError | None
    graph: Spec
    run: RunConfig | None
    partition: Spec | None = None

    @property
    def least(self) -> int:
        """Return how many points every client has for sure."""
        clients = self.sizes[: self.topology.clients]
        return int(clients.min()) if self.dealt else 0

    @property
    def known(self) -> Known:
        """Return what is known of the data."""
        connected = int(self.topology.components.max()) == 0
        return Known(
            self.topology.clients, self.size.points, self.size.distinct, self.size.features, self.least, connected
        )

    @property
    def used(self) -> float | None:
        """Return how many links are in use in a round, on average; None: all, in all rounds."""
        from topologies.measures import active_degrees

        graph = self.topology.varying
        return None if graph is None else (active_degrees(graph).value or 0.0) * self.topology.n / 2


def resolve_experiment(specs: RunSpecs, ranks: int | None, *, count: bool = True) -> tuple[RunOptions, Any, Size]:
    """Return the options with devices, clusters and rounds filled in, the method, and the size of the data.

    Cheap: neither points nor the graph are made. Where the devices are to choose the number of clusters, all is for the
    largest one.

    Parameters
    ----------
    ranks : int or None
        Number of MPI ranks, the default number of devices; None without MPI: 16.
    count : bool
        Whether to read a file to the end if its classes or devices are to be counted.
    """
    import topologies
    from p2pkm.data.sources import SOURCES

    experiment, graph, source, partition = specs.options, specs.graph, specs.source, specs.partition
    columns = experiment.name_columns()
    unknown = count and (experiment.clusters is None or (experiment.devices is None and ranks is None))
    size = measure(source, **columns, whole_file=unknown, partition=partition)
    if experiment.dtype == "float32":
        size = size._replace(distinct=1)  # points that differ in double precision may be one
    auto = experiment.clusters == "auto"
    k_max = (experiment.k_max or min(K_MAX, max(1, size.points))) if auto else None
    clusters = k_max or experiment.clusters or size.classes or _CLUSTERS
    column = partition is None or partition.name == "column"
    n = experiment.devices or (size.devices if column else None)
    if n is None and graph.name not in topologies.FIXED:
        n = ranks or _DEVICES
    resolved = replace(
        experiment, graph=str(graph), clusters="auto" if auto else clusters, k_max=k_max, devices=n,
        data=str(complete(source, SOURCES, experiment.seed) if source.name != "file" else source),
        rounds=specs.draft.default_rounds if experiment.rounds is None else experiment.rounds,
    )  # fmt: skip
    early = RunOutline(None, disturbed="a graph that is not built yet", image=size.image)
    return resolved, specs.method.build(int(clusters)).configure(early), size


def build_plan(experiment: RunOptions, ranks: int | None) -> RunPlan:
    """Return a run in outline; the graph is built, points are not.

    Raises
    ------
    P2PKMError
        If options, graph or data cannot be used.
    """
    specs = parse_specs(experiment)
    resolved, method, size = resolve_experiment(specs, ranks)
    n, graph = resolved.devices, specs.graph
    topology = Topology.star(n or _DEVICES) if needs_hub(method) else build_topology(graph, n, 1)
    outline = RunOutline(topology, disturbed="a run that is rejected", image=size.image)
    points = PointCount(topology.n, size.points, size.features)
    check_fit(method, outline, points)  # nor can a plan time it
    resolved = replace(resolved, devices=topology.clients)
    sizes, dealt = _deal(specs.partition, size, topology)
    setting = InitContext(topology, sizes, _key(resolved.seed), method.k, size.features)
    run, refusal = None, None
    try:
        run = build_run(method, resolved, topology, points, graph=read_attributes(resolved, graph), image=size.image)
    except P2PKMError as error:
        refusal = error
    else:
        resolved = record_defaults(resolved, specs.method, run)
    method = method.configure(outline._replace(points=size.points)) if run is None else run.configure(size.points)
    channel = ChannelPlan() if run is None else run.channel
    played, other = _arrange(resolved, method, setting, channel)
    return RunPlan(
        resolved, method, topology, size, sizes, dealt, played, refusal or other, graph, run, specs.partition
    )


def _deal(partition: Spec | None, size: Size, topology: Topology) -> tuple[Integers, bool]:
    """Return the points of each device, and whether they are known: they are if dealt in equal parts."""
    n, m = topology.clients, size.points
    sizes = np.full(n, m // n)
    sizes[: m % n] += 1
    spec = partition or Spec(_usual(size, n), {})
    even = spec.name in ("iid", "blocks") and spec.options.get("minimum", 0) <= m // n
    return np.append(sizes, np.zeros(topology.n - n, np.int64)), even


def _usual(size: Size, n: int) -> str:
    """Return the partition that a run takes if none is given."""
    if size.stored:
        return "column" if size.devices == n else "blocks"
    return "column" if size.devices is not None else "dirichlet" if size.labeled else "iid"


def _arrange(
    experiment: RunOptions, method: Any, setting: InitContext, channel: ChannelPlan
) -> tuple[tuple[Stage, ...], P2PKMError | None]:
    """Return the stages, and why they would be refused."""
    before: tuple[Stage, ...] = (imputing_stage(experiment.missing, setting),) if experiment.missing in FILLING else ()
    before = before if experiment.scale == "none" else (*before, scaling_stage(experiment.scale, setting))
    before = before if experiment.k_max is None else (*before, choosing_stage(method, setting))
    rounds = experiment.rounds or 0
    try:
        return before + channel.prepare(setting) + stages(method, setting, rounds, seeded=False), None
    except P2PKMError as error:
        return (*before, Stage(method.name, method.on(setting.topology), rounds)), error


def _key(seed: int) -> int:
    from p2pkm.kernels.streams import shared_key

    return shared_key(seed)
