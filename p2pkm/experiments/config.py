"""Configuration of an experiment: options of the command line or a TOML file, checked and assembled into a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from p2pkm.core.cache import memoize_in_study
from p2pkm.core.card import with_defaults
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.program_function import is_function, name_function
from p2pkm.core.program_object import ProgramObject, require_object
from p2pkm.core.protocols import MethodBase
from p2pkm.core.spec import Spec, complete, parameters, parse, suggest
from p2pkm.core.validation import as_floats, cast_points, check_magnitude
from p2pkm.engine.run_options import METHOD_FIELDS, RunOptions
from p2pkm.methods.declaration import check_declaration
from p2pkm.methods.registry import known

if TYPE_CHECKING:
    from p2pkm.channel.pipeline import ChannelPlan
    from p2pkm.data.out_of_core.index import FileIndex
    from p2pkm.engine.build_run import Run

_DEVICES = 16  # default number of devices without MPI
_GRAPHS = 64  # graphs that a study keeps for later runs


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
            algorithm = self._kind(k, **with_defaults(self._kind, {**self.spec.options, **self._options}))
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
    graph : Spec or ProgramObject
        Includes the default value of every key that is not given.
    source : Spec or ProgramObject
        Source of the points.
    partition : Spec, ProgramObject or None
        None: default partition of the source.
    channel : ChannelPlan or None
        Transforms of the messages; None if the options were not checked.
    """

    options: RunOptions
    method: MethodSpec
    draft: Any
    graph: Spec | ProgramObject
    source: Spec | ProgramObject
    partition: Spec | ProgramObject | None
    channel: "ChannelPlan | None" = None


def parse_specs(options: RunOptions, *, check: bool = True) -> RunSpecs:
    """Parse the specs of a run.

    Parameters
    ----------
    options : RunOptions
    check : bool, default=True
        Check the options before data and partition are parsed.

    Raises
    ------
    P2PKMError
        If a spec cannot be parsed, or no data could satisfy the options.
    """
    from p2pkm.engine.build_run import check_options

    method = parse_method(options)
    draft = method.build(options.draft_k)
    graph = parse_graph(options, draft)
    channel = check_options(draft, options) if check else None
    if options.data is None:
        options = options.replaced(data=_choose_data(options, draft))
    source, partition = parse_data(options.data), parse_partition(options.partition)
    return RunSpecs(options, method, draft, graph, source, partition, channel)


def prepare(specs: RunSpecs, ranks: int | None) -> "Run":
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
    from p2pkm.data.assign import assign, count_in_column, name_devices
    from p2pkm.data.held_out import hold_out
    from p2pkm.data.sources import SOURCES, follows_graph
    from p2pkm.engine.build_batch import label_pooled
    from p2pkm.engine.build_run import build_run
    from p2pkm.methods.init.pipelines import needs_hub
    from p2pkm.metrics.summary import OptionalMetrics

    experiment, source, partition = specs.options, specs.source, specs.partition
    columns, stored = experiment.name_columns(), None
    if isinstance(source, Spec) and source.name == "file":
        stored = _index_files(source, partition, columns)
    elif isinstance(source, Spec) and source.name in SOURCES:
        source = complete(source, SOURCES, experiment.seed)
    if isinstance(source, Spec) and follows_graph(source):
        source = follow_graph(source, specs, ranks)
    data_key = _describe(source), experiment.seed, *map(str, columns.values())
    try:
        table: Any = stored or memoize_in_study("points", lambda: data_key, lambda: load_points(source, experiment))
    except ExperimentError:
        # Points that follow the graph of the run cannot be drawn without it, and then its own error is raised.
        if isinstance(source, Spec) and follows_graph(source) and not needs_hub(specs.draft):
            build_topology(specs.graph, experiment.devices, ranks or _DEVICES)
        raise
    table, partition = _choose_partition(table, specs, ranks)
    n = experiment.devices or count_in_column(partition, table)
    names = name_devices(partition, table, n) if n else None
    topology = _choose_topology(specs, n, ranks or _DEVICES, names)
    if names is None and partition.name == "column" and not needs_hub(specs.draft):
        topology = topology.tell_order()
    default_k, k_max = specs.method.k or table.classes or 8, None
    clusters = (default_k if experiment.clusters == "auto" else experiment.clusters) or default_k
    # Named nodes without points are added after the points are assigned.
    count = len(names) if names and topology.names else topology.clients
    if partition.name == "mufc" and not stored:
        # This partition deals the clusters of central k-means instead of classes.
        table = table._replace(clusters=label_pooled(table.completed().points, clusters, experiment.seed))
    shards: Any = find_shards(experiment)
    if shards is None and stored:
        shards = assign(table, partition, count, experiment.dtype)
    elif shards is None:
        shards = memoize_in_study(
            "shards",
            lambda: (data_key, clusters, experiment.partition, str(partition), count, experiment.dtype),
            lambda: assign(table, partition, count, experiment.dtype),
        )
    shards, notes = hold_out(shards, experiment.test_share, experiment.seed)
    shards = shards.place(topology, names)
    if experiment.clusters == "auto":
        # The devices choose k later; the run is checked and planned for the largest one.
        clusters = k_max = experiment.find_k_max(shards.m)
    run = build_run(
        specs.method.build(clusters),
        experiment.replaced(k_max=k_max),
        topology,
        shards,
        graph=read_attributes(experiment, specs.graph),
        image=None if stored else table.image,
        channel=specs.channel,
    )
    resolved = experiment.replaced(
        graph=_describe(specs.graph),
        data=_describe(source),
        partition=_describe(specs.partition if isinstance(specs.partition, ProgramObject) else partition),
        devices=topology.clients,
        clusters="auto" if k_max else clusters,
        k_max=k_max,
        rounds=run.rounds,
        record_every=run.record_every,
    )
    features = stored.features if stored else table.features
    centers = load_true_centers(experiment.true_centers, shards.d, features) if experiment.true_centers else None
    scores = OptionalMetrics(experiment.silhouette, centers, table.groups)
    notes += _list_notes(partition, table, shards, run)
    completed = record_defaults(resolved, specs.method, run)
    return replace(run, options=resolved, completed=completed, points=shards, scores=scores, notes=run.notes + notes)


def _choose_data(options: RunOptions, draft: Any) -> str:
    """Choose the data of a run that names none."""
    from p2pkm.data.sources import DEVICES_ALIKE, DEVICES_DIFFER

    if options.partition is not None or options.stream is not None or draft.traits.derives_features:
        return DEVICES_ALIKE
    return DEVICES_DIFFER


def follow_graph(source: Spec, specs: RunSpecs, ranks: int | None) -> Spec:
    """Complete the graph and the number of devices of a data source whose clusters follow a graph.

    Raises
    ------
    ExperimentError
        If source and run have different numbers of devices, or the graph is an object of a program.
    """
    import topologies
    from p2pkm.data.synthetic_device_clusters import nest, read_links
    from p2pkm.methods.init.pipelines import needs_hub

    experiment = specs.options
    given, graph = source.options.get("graph"), specs.graph
    if given is None and isinstance(graph, ProgramObject):
        raise ExperimentError(
            f"data {source.name} cannot follow graph {graph}, which is an object of the program. Use "
            "data=p2pkm.device_clusters(graph=..., devices=...).shards"
        )
    if given is not None or needs_hub(specs.draft):
        # A server method runs on a star, and peer methods by default on a ring.
        text = str(complete_graph((given or "ring").replace(";", ","), experiment.seed))
    else:
        text = str(graph)
    of_source = source.options.get("devices")
    if None not in (of_source, experiment.devices) and of_source != experiment.devices:
        raise ExperimentError(
            f"devices is {experiment.devices}, but data {source.name} has {of_source} devices; expected the same "
            "number. Remove one"
        )
    devices = of_source or experiment.devices
    if devices is None and text.partition(":")[0] in topologies.FIXED:
        if text == str(graph):
            devices = build_topology(graph, None, _DEVICES).clients
        else:
            devices = len(read_links(text, None, experiment.seed)[0]) - 1
    # Last, also if they are given: a run that is resumed from its own configuration has the same text.
    rest = {key: value for key, value in source.options.items() if key not in ("graph", "devices")}
    return Spec(source.name, rest | {"graph": nest(text), "devices": devices or ranks or _DEVICES})


def name_data_graph(options: RunOptions, graphs: Sequence[Any]) -> RunOptions:
    """Name the graph that the data follow, so that a server method has the points of peer methods on `graphs`.

    Raises
    ------
    ExperimentError
        If there are several graphs.
    """
    from p2pkm.data.sources import follows_graph
    from p2pkm.data.synthetic_device_clusters import nest

    source, named = parse_data(options.data), [graph for graph in graphs if graph is not None]
    if not isinstance(source, Spec) or not follows_graph(source) or "graph" in source.options or not named:
        return options
    if len(named) > 1 or isinstance(named[0], ProgramObject):
        raise ExperimentError(
            f"data {options.data} follow the graph, but methods with a server, which run on a star, have none, and the "
            f"graphs are {', '.join(map(str, named))}; expected one graph that is text. Name the graph of the data, as "
            f"in --data {source.name}:graph=torus"
        )
    devices = {} if options.devices is None else {"devices": options.devices}
    return replace(options, data=str(Spec(source.name, devices | source.options | {"graph": nest(named[0])})))


def _describe(value: Spec | ProgramObject) -> Any:
    """Return the text of a spec; an object remains an object."""
    return value if isinstance(value, ProgramObject) else str(value)


def _list_notes(partition: Spec, table: Any, shards: Any, run: Any) -> tuple[str, ...]:
    """List the notes on the table, its devices and points that the method clips."""
    from p2pkm.data.assign import list_notes
    from p2pkm.methods.building_blocks.guarantee import note_clipped

    notes = list_notes(partition, table, shards, run.topology)
    if shards.in_memory:
        # Other scalings are refused by methods with a ball.
        units = (0.0, 1.0) if isinstance(run.scale, str) else run.scale.find_units(run.features, shards.d)
        notes += note_clipped(run.algorithm, shards.points, units)
    return notes


def _choose_topology(specs: RunSpecs, n: int | None, default: int, names: tuple[str, ...] | None) -> Any:
    """Build the star of a server method, or the graph; `default` is the number of devices if `n` is None."""
    from p2pkm.methods.init.pipelines import needs_hub
    from p2pkm.network.graph import Topology

    if needs_hub(specs.draft):
        return Topology.star(n or default).call(names)
    return build_topology(specs.graph, n, default, names)


def load_points(source: Spec | ProgramObject, experiment: RunOptions) -> Any:
    """Generate or read the points of a spec, or read those of an object, as a table."""
    from p2pkm.data.readers.intake import TIDY
    from p2pkm.data.shards import Shards
    from p2pkm.data.sources import load
    from p2pkm.data.table import Table, encode

    columns = experiment.name_columns()
    if isinstance(source, Spec):
        return load(source, seed=experiment.seed, **columns)
    data = source.value
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


def call_partition(partition: Callable[[Any, int], Any], table: Any, n: int) -> Any:
    """Call a function that returns the device of each row; rows that the reader has left out get device 0.

    Raises
    ------
    ExperimentError
        If the array has another length.
    """
    import numpy as np

    rows = len(table.points)
    # A copy: the points of the run must not change.
    owners = np.asarray(partition(table.points.copy(), n))
    if owners.shape != (rows,):
        raise ExperimentError(
            f"partition={name_function(partition)} returned an array of shape {owners.shape}; expected ({rows},), the "
            f"device of each row, from 0 to {n - 1}"
        )
    if table.rows is None:
        return owners
    of_all = np.zeros(table.total or rows, owners.dtype)
    of_all[table.rows] = owners
    return of_all


def count_nodes(graph: Spec | ProgramObject) -> int | None:
    """Return the number of nodes of a graph that is an object, a file or of one size; None if it is open."""
    from topologies import FIXED

    if isinstance(graph, ProgramObject) or graph.name in FIXED:
        return int(build_topology(graph, None, 1).clients)
    return None


def _index_files(source: Spec, partition: Spec | ProgramObject | None, columns: dict[str, Any]) -> "FileIndex | None":
    """Return the index of files whose points stay on disk, None if they are read."""
    from p2pkm.data.out_of_core.index import index_files

    # An array of devices is refused later, because it cannot be combined with such files.
    requested = Spec("", {}) if isinstance(partition, ProgramObject) else partition
    return index_files(source.options["path"], requested, **columns)


def _choose_partition(table: Any, specs: RunSpecs, ranks: int | None) -> tuple[Any, Spec]:
    """Complete the partition, by default that of the table; an object becomes the column of devices of the table.

    Raises
    ------
    DataError
        If the array does not have a device for each row, or the points stay on disk.
    """
    import numpy as np

    from p2pkm.data.assign import default_partition
    from p2pkm.data.partition import known as known_partitions
    from p2pkm.data.partition.by_column import read_owners

    experiment, partition = specs.options, specs.partition
    if not isinstance(partition, ProgramObject):
        partition = partition or Spec(default_partition(table, experiment.devices), {})
        return table, complete(partition, known_partitions(experiment.partition), experiment.seed)
    from p2pkm.data.out_of_core.index import FileIndex
    from p2pkm.methods.init.pipelines import needs_hub

    if isinstance(table, FileIndex):
        raise DataError(
            f"partition {experiment.partition} cannot be combined with points that stay on disk: it is an object of "
            "the program. Use a column of devices in the files, or points in memory"
        )
    owners, devices = partition.value, experiment.devices
    if is_function(owners):
        if table.device is not None:
            raise ExperimentError(
                f"partition {partition} cannot be combined with data {experiment.data}: the points belong to devices "
                "already. Remove partition, or the column of devices"
            )
        devices = devices or (None if needs_hub(specs.draft) else count_nodes(specs.graph)) or ranks or _DEVICES
        owners = call_partition(owners, table, devices)
    rows = table.total or len(table.points)
    if len(owners) != rows:
        raise DataError(
            f"partition {experiment.partition} has {len(owners):,} entries; expected {rows:,}, the device of each row "
            "of the data. Use an array of this length"
        )
    owner, n, names = read_owners(owners, rows, devices)
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

    data = require_object(experiment.data, "data")
    if not isinstance(data, Shards):
        return None
    if experiment.dtype == "float32":
        data = replace(data, points=cast_points(data.points, "the points", "float32"))
        if data.tests is not None:
            data = data.with_tests(
                replace(data.tests, points=cast_points(data.tests.points, "the test points", "float32"))
            )
    return data


def load_true_centers(centers: Any, d: int, features: tuple[str, ...] | None) -> Any:
    """Return the known centers of an object or a file, float64[c, d]."""
    from p2pkm.data.sources import load_centers

    array = require_object(centers, "true_centers")
    if array is None:
        return load_centers(centers, d, features)
    return check_centers(array, d)


def check_centers(centers: Any, d: int) -> Any:
    """Convert known centers to float64[c, d] and check them.

    Raises
    ------
    DataError
        If the shape is wrong or a number is out of range.
    """
    array = as_floats(centers, "true_centers")
    check_magnitude(array, "true_centers")
    if array.ndim != 2 or array.shape[1] != d:
        raise DataError(f"true_centers has shape {array.shape}; expected (number of centers, {d})")
    return array


def read_attributes(experiment: RunOptions, graph: Spec | ProgramObject) -> Any:
    """Return a graph with the attributes of its edges and nodes, from its file or its object; None without either."""
    import topologies

    if isinstance(graph, ProgramObject):
        return graph.value
    return topologies.file(**graph.options) if experiment.link_model and graph.name == "file" else None


def parse_graph(experiment: RunOptions, method: Any) -> Spec | ProgramObject:
    """Parse the spec of the graph and complete its keys; the default is a ring, with a server method its star.

    Raises
    ------
    TopologyError
        If the method requires a star and another graph is given.
    """
    from p2pkm.methods.init.pipelines import graph_error, needs_hub

    on_star = needs_hub(method)
    text: Any = experiment.graph
    if text is None:
        text = "star" if on_star else "ring"
    if not on_star and require_object(text, "graph") is not None:
        return text
    if isinstance(text, ProgramObject):
        raise graph_error(method, repr(str(text)), "Remove --graph")
    graph = complete_graph(text, experiment.seed)
    if on_star and graph.name != "star":
        raise graph_error(method, repr(text), "Remove --graph")
    return graph


def complete_graph(text: str, seed: int) -> Spec:
    """Parse the spec of a graph, and complete its keys."""
    from p2pkm.core.plugins import families

    kinds = families(text)
    return complete(parse(text, kinds, "graph"), kinds, seed)


def parse_data(text: Any) -> Spec | ProgramObject:
    """Parse the spec of the data; an object is returned unchanged."""
    from p2pkm.data.sources import parse_source

    return parse_source(text) if require_object(text, "data") is None else text


def parse_partition(text: Any) -> Spec | ProgramObject | None:
    """Parse the spec of a partition; an object is returned unchanged, and None stands for the default of the data."""
    from p2pkm.data.partition import known as known_partitions

    if require_object(text, "partition") is not None:
        return text
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
    require_object(values.get("robust"), "robust")
    method = require_object(options.algorithm, "algorithm")
    if isinstance(method, MethodBase):
        return _take_method(options, method, values)
    if method is None:
        kinds = known(options.algorithm)
        spec = parse(options.algorithm, kinds, "algorithm")
    else:
        from p2pkm.experiments.object_content import kind_of

        spec = Spec(str(options.algorithm), {})
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
    # Parameters that are functions of a program.
    values = {name: value.value if isinstance(value, ProgramObject) else value for name, value in values.items()}
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

    return MethodSpec(build, Spec(str(options.algorithm), {}), {}, method.k)


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
    return experiment.replaced(algorithm=algorithm, quantize=quantize, **as_options)


def build_topology(
    graph: Spec | ProgramObject, n: int | None, default: int, names: tuple[str, ...] | None = None
) -> Any:
    """Build a graph, or return the one built for an earlier run of the same study.

    Parameters
    ----------
    graph : Spec or ProgramObject
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
        lambda: (_describe(graph), n, default, names),
        lambda: _build_topology(graph, n, default, names),
        keep=_GRAPHS,
    )


def _build_topology(graph: Spec | ProgramObject, n: int | None, default: int, names: tuple[str, ...] | None) -> Any:
    import topologies
    from p2pkm.network.graph import Topology

    if isinstance(graph, ProgramObject):
        return _check_size(graph, Topology.from_graph(graph.value).call(names), n, names)
    fixed = graph.name in topologies.FIXED
    try:
        size: int | None = n or default
        if fixed:
            # With names, the number of nodes is compared with them by `call`, whose message lists the missing ones.
            size = n if names is None else None
        # True: build without networkx, whose import takes long.
        light = True if graph.name in topologies.DETERMINISTIC else None
        built = topologies.build(graph.name, size, light=light, **graph.options)
    except topologies.GraphError as error:
        raise TopologyError(f"graph {graph}: {error}") from None
    return _check_size(graph, Topology.from_graph(built).call(names), n, names)


def _check_size(graph: Spec | ProgramObject, topology: Any, n: int | None, names: tuple[str, ...] | None) -> Any:
    # Named nodes may be more than the names of the data, whose number is n then: they are devices without points.
    is_larger = names is not None and len(names) == n and set(names) < set(topology.names or ())
    if n is not None and topology.n != n and not is_larger:
        raise TopologyError(
            f"graph {graph} has {topology.n} nodes; expected {n}, one for each device. Use a graph with {n} nodes, "
            f"or {topology.n} devices"
        )
    return topology
