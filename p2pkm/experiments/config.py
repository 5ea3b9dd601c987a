"""Configuration of an experiment: options of the command line or a TOML file, checked and assembled into a run."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from p2pkm.core.cache import memoize_in_study
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.protocols import MethodBase
from p2pkm.core.spec import Spec, complete, parameters, parse, suggest
from p2pkm.core.validation import cast_points
from p2pkm.engine.run_options import METHOD_FIELDS, RunOptions
from p2pkm.experiments.program_objects import find_object, is_reference, kind_of
from p2pkm.methods.declaration import check_declaration
from p2pkm.methods.registry import known

if TYPE_CHECKING:
    from p2pkm.data.out_of_core.index import FileIndex

K_MAX = 25  # default maximum of the number of clusters, if the devices choose it
_GRAPHS = 64  # graphs that a study keeps for later runs


class Prepared(NamedTuple):
    """Checked experiment on rank 0.

    Attributes
    ----------
    experiment : RunOptions
        Resolved options.
    specs : RunSpecs
    run : RunConfig
    shards : Shards or DiskShards
    scores : OptionalMetrics
    notes : tuple of str
        Remarks on the points and their partition, for the user.
    schema : Schema or None
        Columns of the table.
    copied : dict of str to array, or None
        Columns that are copied to labels.csv.
    """

    experiment: RunOptions
    specs: "RunSpecs"
    run: Any
    shards: Any
    scores: Any
    notes: tuple[str, ...] = ()
    schema: Any = None
    copied: Any = None


class MethodSpec:
    """Requested method whose number of clusters is still open.

    Parameters
    ----------
    kind : callable
        Class of the method.
    spec : Spec
        Name and parameters of ``--algorithm``.
    options : mapping
        Parameters that are options of the program, such as ``--coupling``.

    k : int, optional
        Number of clusters of a method object.

    Attributes
    ----------
    spec : Spec
    k : int or None
    """

    def __init__(self, kind: Callable[..., Any], spec: Spec, options: Mapping[str, Any], k: int | None = None) -> None:
        self.spec = spec
        self.k = k
        self._kind = kind
        self._options = options
        self._built: dict[int, Any] = {}

    def build(self, k: int) -> Any:
        """Build the method with k clusters; a second call with the same k returns the same object.

        Raises
        ------
        ExperimentError
            If a parameter is out of range.
        """
        from p2pkm.methods.init.pipelines import check_init

        if k not in self._built:
            algorithm = self._kind(k, **self.spec.options, **self._options)
            check_init(algorithm.traits.init, algorithm.k)
            self._built[k] = algorithm
        return self._built[k]


class RunSpecs(NamedTuple):
    """Parsed specs of a run.

    Attributes
    ----------
    options : RunOptions
        Options that contain the specs.
    method : MethodSpec
    draft : Algorithm or ServerMethod
        Method with a provisional number of clusters.
    graph : Spec
        Includes the default value of every key that is not given.
    source : Spec
        Source of the points.
    partition : Spec or None
        None: default partition of the source.
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
    ranks : int, optional
        Number of MPI ranks with which to check the options before data and partition are parsed; None: no check.

    Raises
    ------
    P2PKMError
        If a spec cannot be parsed, or no data could satisfy the options.
    """
    from p2pkm.engine.build_run import check_options

    method = parse_method(options)
    draft = method.build(options.draft_k)
    graph = parse_graph(options, draft)
    if ranks is not None:
        check_options(draft, options, ranks)
    return RunSpecs(options, method, draft, graph, parse_data(options.data), parse_partition(options.partition))


def prepare(specs: RunSpecs, ranks: int | None) -> Prepared:
    """Build the graph, read and partition the points, and check the run with them.

    Parameters
    ----------
    specs : RunSpecs
        Specs of checked options.
    ranks : int or None
        Number of MPI ranks, which is the default number of devices; None without MPI: 16 devices.

    Raises
    ------
    P2PKMError
        If graph, data or options cannot be used; nothing has been written then.
    """
    from p2pkm.data.assign import count_in_column, name_devices
    from p2pkm.data.sources import SOURCES
    from p2pkm.engine.build_batch import label_pooled
    from p2pkm.engine.build_run import build_run
    from p2pkm.methods.init.pipelines import needs_hub
    from p2pkm.metrics.summary import OptionalMetrics

    experiment, source, partition = specs.options, specs.source, specs.partition
    source = complete(source, SOURCES, experiment.seed) if source.name in SOURCES and source.name != "file" else source
    columns = experiment.name_columns()
    stored = _index_files(source, partition, columns) if source.name == "file" else None
    data_key = str(source), experiment.seed, *map(str, columns.values())
    table: Any = stored or memoize_in_study("points", lambda: data_key, lambda: load_points(source, experiment))
    table, partition = _choose_partition(table, partition, experiment)
    n = experiment.devices or count_in_column(partition, table)
    names = name_devices(partition, table, n) if n else None
    topology = _choose_topology(specs, n, ranks or 16, names)
    if names is None and partition.name == "column" and not needs_hub(specs.draft):
        topology = topology.tell_order()
    default_k, k_max = specs.method.k or table.classes or 8, None
    clusters = (default_k if experiment.clusters == "auto" else experiment.clusters) or default_k
    # Named nodes without points are added after the points are assigned.
    count = len(names) if names and topology.names else topology.clients
    if stored:
        from p2pkm.data.out_of_core.shards import DiskShards

        shards: Any = DiskShards.deal(stored, partition, count, experiment.dtype)
    else:
        if partition.name == "mufc":
            # This partition deals the clusters of central k-means instead of classes.
            table = table._replace(clusters=label_pooled(table.completed().points, clusters, experiment.seed))
        shards = find_shards(experiment) or _assign_points(
            table, partition, count, experiment.dtype, (data_key, clusters, experiment.partition)
        )
    shards = shards.place(topology, names)
    if experiment.clusters == "auto":
        # The devices choose k later; the run is checked and planned for the largest one.
        clusters = k_max = experiment.k_max or min(K_MAX, max(1, shards.m))
    run = build_run(
        specs.method.build(clusters),
        replace(experiment, k_max=k_max),
        topology,
        shards,
        ranks=ranks or 1,
        graph=read_attributes(experiment, specs.graph),
        image=None if stored else table.image,
    )
    resolved = replace(
        experiment,
        graph=str(specs.graph),
        data=str(source),
        partition=experiment.partition if is_reference(experiment.partition) else str(partition),
        devices=topology.clients,
        clusters="auto" if k_max else clusters,
        k_max=k_max,
        rounds=run.rounds,
        record_every=run.record_every,
    )
    features = stored.features if stored else table.features
    centers = load_true_centers(experiment.true_centers, shards.d, features) if experiment.true_centers else None
    scores = OptionalMetrics(experiment.silhouette, centers, table.groups)
    if stored:
        return Prepared(resolved, specs, run, shards, scores, schema=stored.schema)
    notes = _list_notes(partition, table, shards, run)
    return Prepared(resolved, specs, run, shards, scores, notes, table.schema, table.copied)


def _list_notes(partition: Spec, table: Any, shards: Any, run: Any) -> tuple[str, ...]:
    """List the notes on the table, its devices and points that the method clips."""
    from p2pkm.data.assign import list_notes
    from p2pkm.methods.building_blocks.guarantee import note_clipped

    return list_notes(partition, table, shards, run.topology) + note_clipped(run.algorithm, shards.points)


def _choose_topology(specs: RunSpecs, n: int | None, default: int, names: tuple[str, ...] | None) -> Any:
    """Build the star of a server method, or the graph; `default` is the number of devices if `n` is None."""
    from p2pkm.methods.init.pipelines import needs_hub
    from p2pkm.network.graph import Topology

    if needs_hub(specs.draft):
        return Topology.star(n or default).call(names)
    return build_topology(specs.graph, n, default, names)


def _assign_points(table: Any, partition: Spec, clients: int, dtype: str, key: tuple[Any, ...]) -> Any:
    """Assign points to devices, or return the shards of an earlier run of the study with the same key."""
    from p2pkm.data.assign import assign

    return memoize_in_study(
        "shards",
        lambda: (*key, str(partition), clients, dtype),
        lambda: assign(table, partition, clients, dtype),
    )


def load_points(source: Spec, experiment: RunOptions) -> Any:
    """Generate or read the points of a spec, or read those of an object, as a table."""
    from p2pkm.data.readers.intake import TIDY
    from p2pkm.data.shards import Shards
    from p2pkm.data.sources import load
    from p2pkm.data.table import Table, encode

    columns = experiment.name_columns()
    data = find_object(source.name, "data")
    if data is None:
        return load(source, seed=experiment.seed, **columns)
    intake = columns.pop("intake")
    if isinstance(data, Shards | Table):
        if intake._replace(missing=TIDY.missing) != TIDY or any(column is not None for column in columns.values()):
            raise ExperimentError(
                f"data {source} has been read already; expected no option about its columns. Remove label_column, "
                "device_column, columns, drop, encode and header, or use them in read_table"
            )
        return data if isinstance(data, Table) else _tabulate_shards(data, experiment)
    points, labels = data if isinstance(data, tuple) else (data, None)
    from p2pkm.data.readers.any_format import read_table

    table = read_table(points, **columns, **intake._asdict())
    if labels is None:
        return table
    if table.labels is not None:
        raise ExperimentError(f"data {source} has labels twice, in a column and in the pair. Remove one")
    codes = encode(labels, table.total or len(table.points), "the labels of the pair")
    codes = codes if table.rows is None else codes[table.rows]
    return table._replace(labels=codes, classes=int(codes.max()) + 1)


def _index_files(source: Spec, partition: Spec | None, columns: dict[str, Any]) -> "FileIndex | None":
    """Return the index of files whose points stay on disk, None if they are read."""
    from p2pkm.data.out_of_core.index import index_files

    return index_files(source.options["path"], partition, **columns)


def _choose_partition(table: Any, partition: Spec | None, experiment: RunOptions) -> tuple[Any, Spec]:
    """Complete the partition, by default that of the table; an array becomes the column of devices of the table.

    Raises
    ------
    DataError
        If the array does not have a device for each row, or the points stay on disk.
    """
    import numpy as np

    from p2pkm.data.assign import default_partition
    from p2pkm.data.partition import known as known_partitions
    from p2pkm.data.partition.by_column import read_owners

    owners = find_object(experiment.partition, "partition")
    if owners is None:
        partition = partition or Spec(default_partition(table, experiment.devices), {})
        return table, complete(partition, known_partitions(experiment.partition), experiment.seed)
    from p2pkm.data.out_of_core.index import FileIndex

    if isinstance(table, FileIndex):
        raise DataError(
            f"partition {experiment.partition} cannot be combined with points that stay on disk: it is an array of the "
            "program. Use a column of devices in the files, or points in memory"
        )
    rows = table.total or len(table.points)
    if len(owners) != rows:
        raise DataError(
            f"partition {experiment.partition} has {len(owners):,} entries; expected {rows:,}, the device of each row "
            "of the data. Use an array of this length"
        )
    owner, n, names = read_owners(owners, rows, experiment.devices)
    owner = owner if table.rows is None else owner[table.rows]
    return table._replace(device=owner, owners=np.arange(n), names=names), Spec("column", {})


def _tabulate_shards(shards: Any, experiment: RunOptions) -> Any:
    """Describe shards as a table whose devices are numbers, of which some may have no points."""
    import numpy as np

    from p2pkm.data.table import Table

    if experiment.partition not in (None, "column"):
        raise ExperimentError(
            f"partition {experiment.partition} cannot be combined with data {experiment.data}: its points belong to "
            "devices already. Use the points and their labels, or remove partition"
        )
    if experiment.devices not in (None, shards.n):
        raise ExperimentError(
            f"devices is {experiment.devices}, but the points of {experiment.data} belong to {shards.n} devices; "
            "expected the same number. Remove devices"
        )
    labels = shards.labels
    classes = None if labels is None else int(labels.max()) + 1
    owners = np.arange(shards.n)
    return Table(shards.points, labels, classes, shards.devices, features=shards.features, names=shards.names,
                 owners=owners, schema=shards.schema, copied=shards.copied)  # fmt: skip


def find_shards(experiment: RunOptions) -> Any:
    """Return the shards that are the data of a run, in the precision of its points; None if the data are others."""
    from p2pkm.data.shards import Shards

    data = find_object(experiment.data, "data")
    if not isinstance(data, Shards):
        return None
    if experiment.dtype == "float32":
        data = replace(data, points=cast_points(data.points, "the points", "float32"))
    return data


def load_true_centers(centers: str, d: int, features: tuple[str, ...] | None) -> Any:
    """Return the known centers of an object or a file, float64[c, d]."""
    from p2pkm.data.sources import load_centers

    array = find_object(centers, "true_centers")
    if array is None:
        return load_centers(centers, d, features)
    from p2pkm.experiments.simulate import check_centers

    return check_centers(array, d)


def read_attributes(experiment: RunOptions, graph: Spec) -> Any:
    """Return a graph with the attributes of its edges and nodes, from its file or its object; None without either."""
    import topologies

    if is_reference(graph.name):
        return find_object(graph.name, "graph")
    return topologies.file(**graph.options) if experiment.link_model and graph.name == "file" else None


def parse_graph(experiment: RunOptions, method: Any) -> Spec:
    """Parse the spec of the graph and complete its keys; the default is a ring, with a server method its star.

    Raises
    ------
    TopologyError
        If the method requires a star and another graph is given.
    """
    from p2pkm.core.plugins import families
    from p2pkm.methods.init.pipelines import graph_error, needs_hub

    on_star = needs_hub(method)
    text = ("star" if on_star else "ring") if experiment.graph is None else experiment.graph
    if not on_star and find_object(text, "graph") is not None:
        return Spec(text, {})
    kinds = families(text)
    graph = parse(text, kinds, "graph")
    if on_star and graph.name != "star":
        raise graph_error(method, repr(text), "Remove --graph")
    return complete(graph, kinds, experiment.seed)


def parse_data(text: str) -> Spec:
    """Parse the spec of the data; the spec of an object has its reference as name."""
    from p2pkm.data.sources import parse_source

    return parse_source(text) if find_object(text, "data") is None else Spec(text, {})


def parse_partition(text: str | None) -> Spec | None:
    """Parse the spec of a partition; None stands for the default of the data source."""
    from p2pkm.data.partition import known as known_partitions

    if find_object(text, "partition") is not None:
        return Spec(str(text), {})
    return parse(text, known_partitions(text), "partition") if text else None


def parse_method(options: RunOptions) -> MethodSpec:
    """Parse the spec of the method and add the options that are parameters of methods.

    Raises
    ------
    ExperimentError
        If the method or a parameter is unknown, or a parameter is set twice.
    """
    values = {name: getattr(options, name) for name in METHOD_FIELDS}
    values = {name: value for name, value in values.items() if value is not None}
    method = find_object(options.algorithm, "algorithm")
    if isinstance(method, MethodBase):
        return _take_method(options, method, values)
    if method is None:
        kinds = known(options.algorithm)
        spec = parse(options.algorithm, kinds, "algorithm")
    else:
        spec = Spec(options.algorithm, {})
        check_declaration(kind_of(method), kind_of(method).__name__)
        kinds = {spec.name: method}
    keys = parameters(kinds[spec.name])
    for name, value in values.items():
        if name in spec.options:
            raise ExperimentError(f"{name} is set both as an option and in --algorithm {options.algorithm}. Remove one")
        if name not in keys:
            raise ExperimentError(
                f"{name} is {str(value)!r}, but method {spec.name!r} has no key {name}. Remove it, or use a key of "
                f"this method. {suggest(name, keys)}"
            )
    return MethodSpec(kinds[spec.name], spec, values)


def _take_method(options: RunOptions, method: MethodBase, values: Mapping[str, Any]) -> MethodSpec:
    """Take a method object, whose parameters are set already.

    Raises
    ------
    ExperimentError
        If the options set a parameter of the object, or another number of clusters.
    """
    check_declaration(type(method), type(method).__name__)
    for name, value in values.items():
        raise ExperimentError(
            f"{name} {value} cannot be combined with algorithm {options.algorithm}: the object has parameters of its "
            f"own. Set {name} in the object, or remove it"
        )
    if isinstance(options.clusters, int) and options.clusters != method.k:
        raise ExperimentError(
            f"clusters is {options.clusters}, but algorithm {options.algorithm} has {method.k}; expected one number. "
            f"Remove clusters, or use the class {type(method).__name__} instead of an object"
        )

    def build(k: int) -> Any:
        return method.with_k(k) if options.clusters == "auto" else method

    return MethodSpec(build, Spec(options.algorithm, {}), {}, method.k)


def record_defaults(experiment: RunOptions, method: MethodSpec, run: Any) -> RunOptions:
    """Fill in the method parameters and the message encoding that the run has chosen.

    A parameter in the spec of ``--algorithm`` is filled in there, all others as options.
    """
    from p2pkm.channel.quantization import Quantization

    resolved, integers = run.algorithm, run.channel.find("quantization")
    before, after = vars(method.build(resolved.k)), vars(resolved)
    chosen = {name: after[name] for name in METHOD_FIELDS if name in before and before[name] != after[name]}
    spec = method.spec
    in_spec = {name: str(value) for name, value in chosen.items() if name in spec.options}
    as_options = {name: value for name, value in chosen.items() if name not in in_spec}
    algorithm = str(Spec(spec.name, spec.options | in_spec)) if in_spec else experiment.algorithm
    quantize = Quantization("none") if integers is None else integers["spec"]
    return replace(experiment, algorithm=algorithm, quantize=quantize, **as_options)


def build_topology(graph: Spec, n: int | None, default: int, names: tuple[str, ...] | None = None) -> Any:
    """Build a graph, or return the one built for an earlier run of the same study.

    Parameters
    ----------
    graph : Spec
    n : int or None
        Number of devices; None: the number of nodes of a real graph, a file or the gallery, for all others `default`.
    default : int
    names : tuple of str, optional
        Names of the devices in the order of their points. Named nodes are arranged in this order.

    Raises
    ------
    TopologyError
        If the graph cannot be built, or its number of nodes is not `n`.
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

    method = find_object(graph.name, "graph")
    if method is not None:
        return _check_size(graph, Topology.from_graph(method).call(names), n, names)
    fixed = graph.name in topologies.FIXED
    try:
        # With names, the number of nodes is compared with them by `call`, whose message lists the missing ones.
        size = (n if names is None else None) if fixed else n or default
        # True: build without networkx, whose import takes long.
        light = True if graph.name in topologies.DETERMINISTIC else None
        built = topologies.build(graph.name, size, light=light, **graph.options)
    except topologies.GraphError as error:
        raise TopologyError(f"graph {graph}: {error}") from None
    return _check_size(graph, Topology.from_graph(built).call(names), n, names)


def _check_size(graph: Spec, topology: Any, n: int | None, names: tuple[str, ...] | None) -> Any:
    # Named nodes may be more than the names of the data, whose number is n then: they are devices without points.
    is_larger = names is not None and len(names) == n and set(names) < set(topology.names or ())
    if n is not None and topology.n != n and not is_larger:
        raise TopologyError(
            f"graph {graph} has {topology.n} nodes; expected {n}, one for each device. Use a graph with {n} nodes, "
            f"or {topology.n} devices"
        )
    return topology
