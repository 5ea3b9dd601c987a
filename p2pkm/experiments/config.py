"""An experiment: what was asked for on the command line or in TOML, checked and assembled into a job."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from p2pkm.core.cache import memoize_in_study
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.spec import Spec, complete, parameters, parse, suggest
from p2pkm.engine.run_options import METHOD_FIELDS, RunOptions
from p2pkm.methods.registry import known


class Prepared(NamedTuple):
    """A checked experiment on rank 0.

    Attributes
    ----------
    experiment : RunOptions
        Its resolved fields.
    specs : RunSpecs
    run : RunConfig
    shards : Shards or Sharded
    scores : OptionalMetrics
    notes : tuple of str
        What the user should know of the points.
    """

    experiment: RunOptions
    specs: "RunSpecs"
    run: Any
    shards: Any
    scores: Any
    notes: tuple[str, ...] = ()


class MethodSpec:
    """The method that was asked for: its class, and the parameters of its spec and of the options.

    Attributes
    ----------
    spec : Spec
        Name and parameters of ``--algorithm``.
    """

    def __init__(self, kind: Callable[..., Any], spec: Spec, given: Mapping[str, Any]) -> None:
        self.spec, self._kind, self._given = spec, kind, given
        self._built: dict[int, Any] = {}

    def build(self, k: int) -> Any:
        """Build the method with k clusters, once for each k.

        Raises
        ------
        ExperimentError
            If a parameter is out of range.
        """
        from p2pkm.methods.init.pipelines import check_init, needs_hub

        if k not in self._built:
            algorithm = self._kind(k, **self.spec.options, **self._given)
            if not needs_hub(algorithm):
                check_init(algorithm.traits.init, algorithm.k)
            self._built[k] = algorithm
        return self._built[k]


class RunSpecs(NamedTuple):
    """The specs of a run, each parsed once, with the options that they come from.

    Attributes
    ----------
    options : RunOptions
    method : MethodSpec
    draft : Algorithm or ServerMethod
        The method while its number of clusters is open.
    graph : Spec
        With the default of every key.
    source : Spec
        Of the points.
    partition : Spec or None
        None: the default of the source.
    """

    options: RunOptions
    method: MethodSpec
    draft: Any
    graph: Spec
    source: Spec
    partition: Spec | None


def parse_specs(options: RunOptions, ranks: int | None = None) -> RunSpecs:
    """Parse the specs of a run.

    Parameters
    ----------
    options : RunOptions
    ranks : int or None
        Number of MPI ranks to check the options with, before data and partition are parsed; None: no check.

    Raises
    ------
    P2PKMError
        If a spec cannot be parsed, or the options cannot work with any data.
    """
    from p2pkm.data.sources import parse_source
    from p2pkm.engine.build_run import check_options

    method = parse_method(options)
    draft = method.build(options.draft_k)
    graph = parse_graph(options, draft)
    if ranks is not None:
        check_options(draft, options, ranks)
    return RunSpecs(options, method, draft, graph, parse_source(options.data), parse_partition(options.partition))


def prepare(specs: RunSpecs, ranks: int | None) -> Prepared:
    """Build the graph of a run, read and deal its points, and check the run with them; cheap checks come first.

    Parameters
    ----------
    specs : RunSpecs
        Of options that have been checked.
    ranks : int or None
        Number of MPI ranks, the default number of devices; None without MPI: 16.

    Raises
    ------
    P2PKMError
        If anything cannot be used; nothing has been written then.
    """
    from p2pkm.data.assign import assign, count_in_column, default_partition, list_notes, name_devices
    from p2pkm.data.out_of_core.index import open_stored
    from p2pkm.data.out_of_core.shards import Sharded
    from p2pkm.data.partition import known as known_partitions
    from p2pkm.data.sources import SOURCES, load, load_centers
    from p2pkm.engine.build_batch import label_pooled
    from p2pkm.engine.build_run import build_run
    from p2pkm.methods.init.pipelines import needs_hub
    from p2pkm.metrics.summary import OptionalMetrics
    from p2pkm.network.graph import Topology

    experiment, source, partition = specs.options, specs.source, specs.partition
    source = complete(source, SOURCES, experiment.seed) if source.name != "file" else source
    columns = experiment.name_columns()
    stored = open_stored(source.options["path"], partition, **columns) if source.name == "file" else None
    given = str(source), experiment.seed, *map(str, columns.values())
    table: Any = stored or memoize_in_study(
        "points", lambda: given, lambda: load(source, seed=experiment.seed, **columns)
    )
    partition = complete(
        partition or Spec(default_partition(table, experiment.devices), {}),
        known_partitions(experiment.partition),
        experiment.seed,
    )
    n = experiment.devices or count_in_column(partition, table)
    names = name_devices(partition, table, n) if n else None
    if needs_hub(specs.draft):
        topology = Topology.star(n or ranks or 16).call(names)
    else:
        topology = build_topology(specs.graph, n, ranks or 16, names)
        topology = topology.tell_order() if names is None and partition.name == "column" else topology
    usual, k_max = table.classes or 8, None
    clusters = (usual if experiment.clusters == "auto" else experiment.clusters) or usual
    if partition.name == "mufc" and stored is None:
        table = table._replace(clusters=label_pooled(table.completed().points, clusters, experiment.seed))
    shards = Sharded.deal(stored, partition, topology.clients, experiment.dtype) if stored else memoize_in_study(
        "shards", lambda: (given, str(partition), clusters, topology.clients, experiment.dtype),
        lambda: assign(table, partition, topology.clients, experiment.dtype))  # fmt: skip
    shards = shards if topology.hub < 0 else shards.with_hub()
    if experiment.clusters == "auto":
        clusters = k_max = experiment.k_max or min(K_MAX, max(1, shards.m))
    image = None if stored else table.image
    run = build_run(
        specs.method.build(clusters), replace(experiment, k_max=k_max), topology, shards, ranks=ranks or 1,
        graph=read_attributes(experiment, specs.graph), image=image,
    )  # fmt: skip
    resolved = replace(
        experiment, graph=str(specs.graph), data=str(source), partition=str(partition), devices=topology.clients,
        clusters="auto" if k_max else clusters, k_max=k_max, rounds=run.rounds, record_every=run.record_every,
    )  # fmt: skip
    features = None if stored else table.features
    centers = load_centers(experiment.true_centers, shards.d, features) if experiment.true_centers else None
    notes = () if stored else list_notes(partition, table, shards, topology)
    scores = OptionalMetrics(experiment.silhouette, centers, table.groups)
    return Prepared(resolved, specs, run, shards, scores, notes)


def read_attributes(experiment: RunOptions, graph: Spec) -> Any:
    """Return the graph of a file, whose attributes a link model reads; None: there are none, or nobody asks."""
    import topologies

    return topologies.read(graph.options["path"]) if experiment.link_model and graph.name == "file" else None


def parse_graph(experiment: RunOptions, method: Any) -> Spec:
    """Return the spec of the graph in full: what was asked for, else a ring, or, with a server, its star alone."""
    from p2pkm.core.plugins import families
    from p2pkm.methods.init.pipelines import needs_hub, refuse_graph

    served = needs_hub(method)
    text = ("star" if served else "ring") if experiment.graph is None else experiment.graph
    kinds = families(text)
    graph = parse(text, kinds, "graph")
    if served and graph.name != "star":
        raise refuse_graph(method, repr(text), "Remove --graph")
    return complete(graph, kinds, experiment.seed)


def parse_partition(text: str | None) -> Spec | None:
    """Return the spec of a partition, None: the usual one."""
    from p2pkm.data.partition import known as known_partitions

    return parse(text, known_partitions(text), "partition") if text else None


def parse_method(options: RunOptions) -> MethodSpec:
    """Parse the spec of the method, and add the options that are its parameters.

    Raises
    ------
    ExperimentError
        If the method or a parameter is not known, or one is given twice.
    """
    kinds = known(options.algorithm)
    spec = parse(options.algorithm, kinds, "algorithm")
    keys = parameters(kinds[spec.name])
    given = {name: getattr(options, name) for name in METHOD_FIELDS}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name in spec.options:
            raise ExperimentError(f"{name} is given both as an option and in --algorithm {options.algorithm}; give one")
        if name not in keys:
            raise ExperimentError(f"{name} is {given[name]!r}, but {spec.name} has no {name}. {suggest(name, keys)}")
    return MethodSpec(kinds[spec.name], spec, given)


def record_defaults(experiment: RunOptions, method: MethodSpec, run: Any) -> RunOptions:
    """Return the options with those of the method that the run has filled in, and the encoding of its tables."""
    from p2pkm.channel.quantization import Quantization, Quantizer

    resolved, integers = run.algorithm, run.channel.find(Quantizer)
    open_, filled = vars(method.build(resolved.k)), vars(resolved)
    found = {name: filled[name] for name in METHOD_FIELDS if name in open_ and open_[name] != filled[name]}
    spec = method.spec
    told = {name: str(value) for name, value in found.items() if name in spec.options}
    algorithm = str(Spec(spec.name, spec.options | told)) if told else experiment.algorithm
    quantize = Quantization("none") if integers is None else integers["spec"]
    return replace(
        experiment, algorithm=algorithm, quantize=quantize, **{name: found[name] for name in found if name not in told}
    )


def build_topology(graph: Spec, n: int | None, default: int, names: tuple[str, ...] | None = None) -> Any:
    """Build the graph; real graphs, files and the gallery bring their own number of devices.

    names: of the devices in the order of their points; a graph whose nodes have names is put into that order.
    """
    return memoize_in_study(
        "graph",
        lambda: (str(graph), n, default, names),
        lambda: _build_topology(graph, n, default, names),
        keep=_GRAPHS,
    )


def _build_topology(graph: Spec, n: int | None, default: int, names: tuple[str, ...] | None) -> Any:
    import topologies
    from p2pkm.network.graph import Topology

    fixed = graph.name in topologies.FIXED
    try:
        wanted = (n if names is None else None) if fixed else n or default
        light = True if graph.name in topologies.DETERMINISTIC else None  # does without networkx
        built = topologies.build(graph.name, wanted, light=light, **graph.options)
    except topologies.GraphError as error:
        raise TopologyError(f"graph {graph}: {error}") from None
    topology = Topology.from_graph(built).call(names)
    if n is not None and topology.n != n:
        raise TopologyError(f"graph {graph} has {topology.n} nodes, but there are {n} devices; make them equal")
    return topology


K_MAX = 25  # clusters that are considered by default where their number is open
_GRAPHS = 64  # that a study keeps
