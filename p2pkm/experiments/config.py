"""An experiment: what was asked for on the command line or in TOML, checked and assembled into a job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, Literal, NamedTuple, get_type_hints

from p2pkm.core.cache import memoize_in_study
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.spec import Spec, complete, convert, parameters, parse, suggest
from p2pkm.data.assign import assign, count_in_column, default_partition, list_notes, name_devices
from p2pkm.methods.registry import known


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that defines a run; the field names are the keys of the TOML file and, with dashes, the options.

    Attributes
    ----------
    data, partition, algorithm : str
        Specs ``NAME[:key=value,...]``.
    graph : str or None
        None: the star of a method with a server, else a ring.
    devices, clusters, rounds, record_every : int or None
        None: what the graph or the launcher, the data, the method, and the number of devices say. clusters "auto": the
        devices choose it.
    columns, drop, encode : str or None
        Columns of a file, parted by commas: the features, those to leave out, and those of categories or dates.
    missing : {"refuse", "drop", "mean", "median"}
        What becomes of missing values of a file; "mean", "median": the devices find these by messages.
    header : {"auto", "yes", "no"}
        Whether the first row of a text file holds the names of the columns; "auto": as far as it can be told.
    k_max : int or None
        The largest number of clusters that is considered then; None: 25, or the number of points if that is less.
    alpha, coupling, relaxation, local_steps, tol, schedule, init, groups, robust, accept
        Parameters of the method; None: its default.
    dtype : {"float64", "float32"}
        How the points are stored; what is computed from them is float64.
    silhouette : bool
        Whether to score the shape of the clusters.
    true_centers : str or None
        File of known centers to measure the distance to.
    rank_partition : str
        How devices are dealt to MPI ranks: as cuts fewer links, in contiguous blocks, or as METIS divides the graph.
    link_model : LinkModel or None
        How fast devices and links are, for virtual time; None: no virtual time.
    checkpoint_every : int or None
        Rounds between two checkpoints; None: about every 30 s, 0: never.
    faults, stale_policy : Faults and StalePolicy, or None
        What goes wrong, and what becomes of old tables then; None: nothing, and keep.
    byzantine : Byzantine or None
        How many devices send wrong tables, how and where; None: all are honest.
    min_cluster_size : int
        Suppression: rows of fewer own points are left out of all messages; 0: none are.
    noise : float
        Standard deviation of the noise on every row of centroids that is sent, in that of the points; 0: none.
    quantize : Quantization
        How tables travel as integers, or as real numbers, or as the run says.
    transforms : PluginTransforms or None
        What other packages do to messages.
    stream : DataStream or None
        How points arrive, leave and move while the method runs; None: they stay.
    out : str or None
        Run folder; None: a new one below ``runs``; "none": nothing is written.
    figures : str or None
        Kinds of files that figures are written as, a list such as "png,pdf"; None: png and svg.
    """

    graph: str | None = None
    devices: int | None = None
    data: str = "grid16"
    label_column: str | None = None
    device_column: str | None = None
    columns: str | None = None
    drop: str | None = None
    encode: str | None = None
    missing: Literal["refuse", "drop", "mean", "median"] = "refuse"
    header: Literal["auto", "yes", "no"] = "auto"
    scale: Literal["none", "standard", "minmax"] = "none"
    dtype: Literal["float64", "float32"] = "float64"
    partition: str | None = None
    clusters: int | Literal["auto"] | None = None
    k_max: int | None = None
    algorithm: str = "gtvmin"
    init: Any = None
    groups: bool | None = None
    alpha: float | None = None
    coupling: float | Literal["auto", "rehearsal"] | None = None
    schedule: Literal["colored", "jacobi", "async"] | None = None
    relaxation: float | Literal["auto"] | None = None
    local_steps: int | None = None
    rounds: int | None = None
    all_rounds: bool = False
    tol: float | None = None
    robust: str | None = None
    accept: bool | None = None
    seed: int = 0
    record_every: int | None = None
    silhouette: bool = False
    true_centers: str | None = None
    link_model: Any = None
    byzantine: Any = None
    min_cluster_size: int = 0
    noise: float = 0.0
    quantize: Any = "auto"
    transforms: Any = None
    out: str | None = None
    plot: bool = True
    figures: str | None = None
    baselines: bool = True
    allow_disconnected: bool = False
    rank_partition: Literal["auto", "blocks", "metis"] = "auto"
    require_converged: bool = False
    checkpoint_every: int | None = None
    faults: Any = None
    stale_policy: Any = None
    stream: Any = None

    def __post_init__(self) -> None:
        """Refuse values that can never work, before anything is read."""
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, int) and value < least:
                raise ExperimentError(f"{name} is {value}; expected a whole number of at least {least}")
            if isinstance(value, int) and value >= 2**63:
                raise ExperimentError(f"{name} is {value}; expected a whole number below 2^63")
        self._refuse_contradictions()
        empty = [name for name in ("partition", "init", "true_centers", "out") if getattr(self, name) == ""]
        if empty:
            raise ExperimentError(f"{empty[0]} is empty; leave it out, or give a value")
        self._refuse_bytes()
        self.draw_kinds()
        if self.quantize is None:
            object.__setattr__(self, "quantize", "none")
        for name, read in _VALUES.items():
            if isinstance(given := getattr(self, name), str):
                object.__setattr__(self, name, read(given))

    def _refuse_bytes(self) -> None:
        """Refuse names of files that config.toml cannot hold."""
        for name, value in vars(self).items():
            if not isinstance(value, str) or name == "out":
                continue
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ExperimentError(
                    f"{name} is {value!r}, which is no UTF-8, as config.toml must be; rename the file"
                ) from None

    def _refuse_contradictions(self) -> None:
        if self.k_max is not None and self.clusters != "auto":
            raise ExperimentError(
                f"k_max is {self.k_max}, but clusters is {self.clusters}; say --clusters auto (-k auto)"
            )
        if self.all_rounds and self.require_converged:
            raise ExperimentError(
                "all_rounds and require_converged are both given, but a run that plays all rounds does not end by "
                "convergence; leave one of them out"
            )

    @property
    def draft_k(self) -> int:
        """Return the number of clusters to check a method with while it is open: the largest possible, or 1."""
        return (self.k_max if self.clusters == "auto" else self.clusters) or 1

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any], where: str) -> "Experiment":
        """Build an experiment from TOML keys or options, each converted to its type.

        Raises
        ------
        ExperimentError
            If a key is unknown (the nearest is named), or a value has the wrong type or range.
        """
        kinds = get_type_hints(cls)
        values = {}
        for raw, value in given.items():
            name = raw.replace("-", "_")
            if name not in kinds:
                raise ExperimentError(f"unknown key {raw!r} in {where}. {suggest(name, kinds, value)}")
            if name.endswith("_column") and isinstance(value, int):
                value = str(value)  # a column may be named by its index
            kind = str if name in _VALUES else kinds[name]
            values[name] = convert(value, kind, f"{name} in {where}")
        return cls(**values)

    def name_columns(self) -> dict[str, Any]:
        """Return which columns of a file are what, for `p2pkm.data.sources.load`."""
        from p2pkm.data.readers.intake import Intake

        intake = Intake.of(self.columns, self.drop, self.encode, missing=self.missing, header=self.header)
        return {"label_column": self.label_column, "device_column": self.device_column, "intake": intake}

    def draw_kinds(self) -> Mapping[str, tuple[str, ...]]:
        """Return ``kinds`` for what draws figures, nothing if the usual ones are wanted."""
        if self.figures is None:
            return {}
        from p2pkm.viz.save_figure import read_kinds

        return {"kinds": read_kinds(self.figures)}

    def to_mapping(self) -> dict[str, Any]:
        """Return the fields that have a value, as TOML holds them; without `out`, so that a run can be repeated."""
        found = {name: value for name, value in vars(self).items() if value is not None and name != "out"}
        return {name: str(value) if name in _VALUES else value for name, value in found.items()}


class Prepared(NamedTuple):
    """A checked experiment on rank 0.

    Attributes
    ----------
    experiment : Experiment
        Its resolved fields.
    run : RunConfig
    shards : Shards or Sharded
    scores : OptionalMetrics
    notes : tuple of str
        What the user should know of the points.
    """

    experiment: Experiment
    run: Any
    shards: Any
    scores: Any
    notes: tuple[str, ...] = ()


def check_draft(experiment: Experiment, ranks: int) -> tuple[Any, Spec]:
    """Check what needs neither data nor graph; return the method (k = 1 if it is open) and the graph.

    Raises
    ------
    P2PKMError
        If something cannot work.
    """
    from p2pkm.engine.build_run import check_options

    draft = build(experiment, experiment.draft_k)
    graph = parse_graph(experiment, draft)
    check_options(draft, vars(experiment), ranks)
    return draft, graph


def prepare(experiment: Experiment, ranks: int | None) -> Prepared:
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
    options = vars(experiment) | {"k_max": k_max}
    method = build(experiment, clusters).for_images(None if stored else table.image)
    run = build_run(method, options, topology, shards, ranks=ranks or 1,
                    graph=read_attributes(experiment, graph))  # fmt: skip
    resolved = replace(
        experiment, graph=str(graph), data=str(source), partition=str(partition), devices=topology.clients,
        clusters="auto" if k_max else clusters, k_max=k_max, rounds=run.rounds, record_every=run.record_every,
    )  # fmt: skip
    features = None if stored else table.features
    centers = load_centers(experiment.true_centers, shards.d, features) if experiment.true_centers else None
    notes = () if stored else list_notes(partition, table, shards, topology)
    return Prepared(resolved, run, shards, OptionalMetrics(experiment.silhouette, centers, table.groups), notes)


def read_attributes(experiment: Experiment, graph: Spec) -> Any:
    """Return the graph of a file, whose attributes a link model reads; None: there are none, or nobody asks."""
    import topologies

    return topologies.read(graph.options["path"]) if experiment.link_model and graph.name == "file" else None


def parse_graph(experiment: Experiment, method: Any) -> Spec:
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


def build(experiment: Experiment, k: int) -> Any:
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


def record_defaults(experiment: Experiment, run: Any) -> Experiment:
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


def _value(module: str, kind: str) -> Callable[[str], Any]:
    """Return what reads the text of a value; its module is imported when it is needed."""

    def read(text: str) -> Any:
        return vars(import_module(module))[kind].of(text)

    return read


_VALUES = {  # fields that hold values
    "init": _value("p2pkm.methods.init.value", "Init"),
    "link_model": _value("p2pkm.network.link_model", "LinkModel"),
    "faults": _value("p2pkm.channel.sampled_faults", "Faults"),
    "stale_policy": _value("p2pkm.channel.stale_policy", "StalePolicy"),
    "byzantine": _value("p2pkm.channel.byzantine", "Byzantine"),
    "quantize": _value("p2pkm.channel.quantization", "Quantization"),
    "transforms": _value("p2pkm.channel.registry", "PluginTransforms"),
    "stream": _value("p2pkm.data.stream", "DataStream"),
}
_LEAST = {"devices": 1, "clusters": 1, "k_max": 1, "rounds": 0, "local_steps": 1, "seed": 0, "record_every": 1,
          "checkpoint_every": 0}  # fmt: skip
K_MAX = 25  # clusters that are considered by default where their number is open
_GRAPHS = 64  # that a study keeps
METHOD_FIELDS = ("init", "groups", "alpha", "coupling", "schedule", "relaxation", "local_steps", "tol", "robust",
                  "accept")  # fmt: skip
FIELDS = tuple(field.name for field in fields(Experiment))
