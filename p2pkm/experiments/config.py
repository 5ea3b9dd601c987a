"""An experiment: what was asked for on the command line or in TOML, checked and assembled into a job."""

from dataclasses import replace
from typing import Any, NamedTuple

from p2pkm.core.cache import memoize_in_study
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.spec import Spec, complete, parameters, parse, suggest
from p2pkm.data.assign import assign, count_in_column, default_partition, list_notes, name_devices
from p2pkm.engine.run_options import METHOD_FIELDS, RunOptions
from p2pkm.methods.registry import known


class Prepared(NamedTuple):
    """A checked experiment on rank 0.

    Attributes
    ----------
    experiment : RunOptions
        Its resolved fields.
    run : RunConfig
    shards : Shards or Sharded
    scores : OptionalMetrics
    notes : tuple of str
        What the user should know of the points.
    """

    experiment: RunOptions
    run: Any
    shards: Any
    scores: Any
    notes: tuple[str, ...] = ()


def check_draft(experiment: RunOptions, ranks: int) -> tuple[Any, Spec]:
    """Check what needs neither data nor graph; return the method (k = 1 if it is open) and the graph.

    Raises
    ------
    P2PKMError
        If something cannot work.
    """
    from p2pkm.engine.build_run import check_options

    draft = build(experiment, experiment.draft_k)
    graph = parse_graph(experiment, draft)
    check_options(draft, experiment, ranks)
    return draft, graph


def prepare(experiment: RunOptions, ranks: int | None) -> Prepared:
    """Check an experiment, build its graph and read and deal its points; cheap checks come first.

    Parameters
    ----------
    ranks : int or None
        Number of MPI ranks, the default number of devices; None without MPI: 16.

    Raises
    ------
    P2PKMError
        If anything cannot be used; nothing has been written then.
    """
    from p2pkm.data.out_of_core.index import open_stored
    from p2pkm.data.out_of_core.shards import Sharded
    from p2pkm.data.partition import known as known_partitions
    from p2pkm.data.sources import SOURCES, load, load_centers, parse_source
    from p2pkm.engine.build_batch import label_pooled
    from p2pkm.engine.build_run import build_run
    from p2pkm.methods.init.pipelines import needs_hub
    from p2pkm.metrics.summary import OptionalMetrics
    from p2pkm.network.graph import Topology

    draft, graph = check_draft(experiment, ranks or 1)
    source = parse_source(experiment.data)
    partitions, partition = known_partitions(experiment.partition), parse_partition(experiment.partition)
    source = complete(source, SOURCES, experiment.seed) if source.name != "file" else source
    columns = experiment.name_columns()
    stored = open_stored(source.options["path"], partition, **columns) if source.name == "file" else None
    given = str(source), experiment.seed, *map(str, columns.values())
    table: Any = stored or memoize_in_study(
        "points", lambda: given, lambda: load(source, seed=experiment.seed, **columns)
    )
    partition = complete(
        partition or Spec(default_partition(table, experiment.devices), {}), partitions, experiment.seed
    )
    n = experiment.devices or count_in_column(partition, table)
    names = name_devices(partition, table, n) if n else None
    if needs_hub(draft):
        topology = Topology.star(n or ranks or 16).call(names)
    else:
        topology = build_topology(graph, n, ranks or 16, names)
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
    method = build(experiment, clusters).for_images(None if stored else table.image)
    run = build_run(method, replace(experiment, k_max=k_max), topology, shards, ranks=ranks or 1,
                    graph=read_attributes(experiment, graph))  # fmt: skip
    resolved = replace(
        experiment, graph=str(graph), data=str(source), partition=str(partition), devices=topology.clients,
        clusters="auto" if k_max else clusters, k_max=k_max, rounds=run.rounds, record_every=run.record_every,
    )  # fmt: skip
    features = None if stored else table.features
    centers = load_centers(experiment.true_centers, shards.d, features) if experiment.true_centers else None
    notes = () if stored else list_notes(partition, table, shards, topology)
    return Prepared(resolved, run, shards, OptionalMetrics(experiment.silhouette, centers, table.groups), notes)


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


def build(experiment: RunOptions, k: int) -> Any:
    """Build the method with k clusters from its spec and the options of the experiment."""
    kinds = known(experiment.algorithm)
    spec = parse(experiment.algorithm, kinds, "algorithm")
    keys = parameters(kinds[spec.name])
    given = {name: getattr(experiment, name) for name in METHOD_FIELDS}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name in spec.options:
            raise ExperimentError(
                f"{name} is given both as an option and in --algorithm {experiment.algorithm}; give one"
            )
        if name not in keys:
            raise ExperimentError(f"{name} is {given[name]!r}, but {spec.name} has no {name}. {suggest(name, keys)}")
    algorithm = kinds[spec.name](k, **spec.options, **given)
    from p2pkm.methods.init.pipelines import check_init, needs_hub

    if not needs_hub(algorithm):
        check_init(algorithm.traits.init, algorithm.k)
    return algorithm


def record_defaults(experiment: RunOptions, run: Any) -> RunOptions:
    """Return the experiment with what the run has filled in of the method's options, and how its tables travel."""
    from p2pkm.channel.quantization import Quantization, Quantizer

    resolved, integers = run.algorithm, run.channel.find(Quantizer)
    open_, filled = vars(build(experiment, resolved.k)), vars(resolved)
    found = {name: filled[name] for name in METHOD_FIELDS if name in open_ and open_[name] != filled[name]}
    spec = parse(experiment.algorithm, known(experiment.algorithm), "algorithm")
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
