"""Construction and validation of a run from method, options, graph and points.

The checks have a fixed order, the cheap ones first:

1. The options, and the method with them: `check_options`, before anything is read or built.
2. The method on this graph, with this number of points and features: `check_fit`.
3. The points on the graph: number of devices, at least k points, a connected graph.
4. Everything that is bound to the graph: link model, events, transforms of the channel.
5. The coordinates of the points.

`simulate`, the command line and `plan` build their runs here.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from p2pkm.channel.pipeline import ChannelPlan, plan_channel, reads_late
from p2pkm.channel.registry import find as find_transform
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.protocols import PointCount, RunOutline
from p2pkm.core.spec import suggest
from p2pkm.core.validation import check_limits, check_magnitude, check_scalar, find_limits
from p2pkm.data.identifiers import ANSWERS, FILLING
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import label_pooled
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.run_secret import require_repeatable
from p2pkm.methods.following import check_following, follow
from p2pkm.methods.init.pipelines import check_groups_fit, check_init, check_links, needs_hub, resolve
from p2pkm.metrics.monitor import usual_every
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import check_rank_partition
from p2pkm.network.transport import World

if TYPE_CHECKING:
    from p2pkm.data.stream import PointStream
    from p2pkm.network.link_model import LinkModel, LinkParameters

SCALES = ("none", "standard", "minmax")
# Keys of the arrays that rank 0 sends to the other ranks; _NET is a prefix for those of the link model.
_NET = "net_"
_FEATURES, _IMAGE = "feature_names", "image_shape"
# Features that the summary names before it abbreviates the list.
_LISTED_FEATURES = 20
# Array elements that are hashed at a time, so that no large temporary copy is made.
_HASH_BLOCK = 1 << 17


@dataclass(frozen=True)
class RunConfig:
    """Configuration of a run, identical on all ranks.

    Attributes
    ----------
    algorithm : Algorithm or ServerMethod
    topology : Topology
    rounds : int
        Maximum number of rounds of the method's stage.
    seed, record_every : int
    baselines : bool
        Whether to compute central k-means for comparison.
    scale : {"none", "standard", "minmax"}
        Scaling of the features before the method.
    missing : {"refuse", "drop", "mean", "median"}
        Treatment of missing values (NaN). With "mean" and "median" a stage before all others fills them in by
        messages. With "refuse" and "drop" all points are complete.
    link_model : LinkParameters or None
        Speed, bandwidth and latency of all devices and links, for the simulated time.
    k_max : int or None
        The devices choose a number of clusters from 1 to `k_max`, which replaces k of the method.
    channel : ChannelPlan
        Transforms of the messages.
    all_rounds : bool
        Whether every stage runs all of its rounds, even after convergence.
    stream : PointStream or None
        Changes of the points while the method runs.
    features : tuple of str
        Names of the features; empty if they are unnamed.
    outline : RunOutline or None
        Facts of the run for `p2pkm.core.protocols.MethodBase.configure`; None if the run was not built by `build_run`.
    """

    algorithm: Any
    topology: Topology
    rounds: int = 150
    seed: int = 0
    record_every: int = 1
    baselines: bool = True
    scale: str = "none"
    link_model: "LinkParameters | None" = None
    k_max: int | None = None
    channel: ChannelPlan = field(default_factory=lambda: plan_channel({}, None))
    all_rounds: bool = False
    stream: "PointStream | None" = None
    features: tuple[str, ...] = ()
    missing: str = "refuse"
    outline: RunOutline | None = None

    def configure(self, points: int) -> Any:
        """Fill in the parameters of the method that depend on the run; `points`: their number in the system.

        Called once the number of clusters is final.
        """
        outline = self.outline or RunOutline(self.topology, disturbed="a run that was not checked")
        return self.algorithm.configure(outline._replace(points=points))

    def to_arrays(self) -> dict[str, Any]:
        """Collect the arrays that other ranks need for `build_run`, in addition to options and topology."""
        net = {} if self.link_model is None else self.link_model._asdict()
        description = {_FEATURES: np.frombuffer(json.dumps(self.features).encode(), np.uint8)}
        description[_IMAGE] = np.array((self.outline and self.outline.image) or (), np.int64)
        files = self.channel.to_arrays() | self._pack_stream()
        return files | description | {_NET + name: part for name, part in net.items()}

    def _pack_stream(self) -> dict[str, Any]:
        if self.stream is None:
            return {}
        from p2pkm.data.stream import pack_stream

        return pack_stream(self.stream)

    def list_features(self) -> str | None:
        """Join the names of the features, at most the first 20 of them; None if they are unnamed."""
        names = self.features
        more = f", ... ({len(names)} in all)" if len(names) > _LISTED_FEATURES else ""
        return ", ".join(names[:_LISTED_FEATURES]) + more or None

    def digests(self) -> dict[str, bytes]:
        """Compute the SHA-256 of each field, except the outline, and of the files that the run reads.

        The names are the same on all ranks, and in a correct run the digests, too.
        """
        files = {"faults": self.channel.to_arrays(), "stream": (str(self.stream), self._pack_stream()),
                 "topology": replace(self.topology, file_summary="")}  # fmt: skip
        return {name: _digest(value) for name, value in (vars(self) | files).items() if name != "outline"}


class HasShape(Protocol):
    """Points, or only their numbers."""

    @property
    def n(self) -> int:
        """Number of devices, including a server."""

    @property
    def m(self) -> int:
        """Number of points."""

    @property
    def d(self) -> int:
        """Number of features."""


def check_options(algorithm: Any, options: RunOptions, ranks: int = 1) -> ChannelPlan:
    """Validate the options, also together with the method, and plan the channel.

    Parameters
    ----------
    algorithm : Algorithm or ServerMethod
    options : RunOptions
    ranks : int

    Returns
    -------
    ChannelPlan
        Transforms that the options select.

    Raises
    ------
    ExperimentError
        If an option is out of range or cannot be combined with the method or another option.
    """
    _check_parameters(algorithm)
    if options.k_max is not None:
        _check_choice(algorithm, options)
    _check_scale(algorithm, options.scale)
    _check_missing(algorithm, options)
    check_rank_partition(options.rank_partition, ranks)
    _check_checkpoints(algorithm, options)
    if options.start is not None:
        _check_start(algorithm)
    check_init(algorithm.traits.init, algorithm.k)
    if options.stream is not None:
        check_following(algorithm, timed=options.link_model is not None)
    model: LinkModel | None = options.link_model
    if model is not None and options.devices is not None:
        model.check_devices(options.devices)
    return plan_channel(vars(options), algorithm)


def _check_checkpoints(algorithm: Any, options: RunOptions) -> None:
    """Reject explicit checkpoint options for a method whose state contains a secret."""
    for name in ("checkpoint", "checkpoint_every"):
        if value := getattr(options, name):
            require_repeatable(algorithm, f"{name} {value}")


def _check_scale(algorithm: Any, scale: str) -> None:
    """Validate the option `scale`; some methods forbid measurements of the points."""
    if check_scalar(scale, "scale") not in SCALES:
        raise ExperimentError(f"scale is {scale!r}. {suggest(str(scale), SCALES)}")
    if scale != "none" and algorithm.traits.no_measuring:
        raise ExperimentError(
            f"scale {scale!r} cannot be combined with {algorithm.name}: the method {algorithm.traits.no_measuring}. "
            "Use --scale none"
        )


def _check_missing(algorithm: Any, options: RunOptions) -> None:
    """Validate the option `missing`; filling in needs points that may be measured and do not change."""
    missing = options.missing
    if check_scalar(missing, "missing") not in ANSWERS:
        raise ExperimentError(f"missing is {missing!r}. {suggest(str(missing), ANSWERS)}")
    if missing in FILLING and algorithm.traits.no_measuring:
        raise ExperimentError(
            f"missing {missing!r} cannot be combined with {algorithm.name}: the method "
            f"{algorithm.traits.no_measuring}. Use --missing drop"
        )
    if missing in FILLING and options.stream is not None:
        raise ExperimentError(
            f"missing {missing!r} cannot be combined with a stream: points that arrive must be complete. "
            "Use --missing drop or remove --stream"
        )


def _check_parameters(algorithm: Any) -> None:
    """Validate that the parameters without a default are set."""
    names = algorithm.traits.needs_parameters
    if not names:
        return
    values = {
        f.name: value for f in fields(algorithm) if f.name != "k" and (value := getattr(algorithm, f.name)) != f.default
    }
    example = ",".join(f"{name}={value}" for name, value in (values | dict.fromkeys(names.split(" and "), 1)).items())
    raise ExperimentError(
        f"method {algorithm.name!r} requires {names}. Use --algorithm {algorithm.name}:{example}, with values for your "
        "points"
    )


def _check_start(algorithm: Any) -> None:
    """Validate that the method can begin with initial centroids from the user."""
    if algorithm.traits.init is None:
        raise ExperimentError(
            f"start cannot be combined with {algorithm.name}: the method begins with a computation on the local "
            "points. Remove start"
        )
    if algorithm.traits.needs_agreed_start:
        raise ExperimentError(
            "start cannot be combined with coupling=rehearsal or accept=true: they require an initialization that all "
            "devices agree on by messages. Use --coupling auto and --no-accept, or remove start"
        )
    if algorithm.traits.groups:
        raise ExperimentError(
            "start cannot be combined with groups: groups bring their own start, one for each group. Remove start, or "
            "use groups=false"
        )


def _check_choice(algorithm: Any, options: RunOptions) -> None:
    """Validate that the devices can choose the number of clusters."""
    if algorithm.traits.no_measuring:
        raise ExperimentError(
            f"k_max {options.k_max} cannot be combined with {algorithm.name}: the method "
            f"{algorithm.traits.no_measuring}. Set the number of clusters with -k"
        )
    if options.start is not None:
        raise ExperimentError(
            "start and k_max cannot be combined: start fixes the number of clusters. Remove one of them"
        )
    if algorithm.traits.groups:
        raise ExperimentError(
            "-k auto (k_max) cannot be combined with --groups: the number of clusters is chosen from the points of all "
            "devices, but each group has separate clusters. Use a number, such as -k 8, or remove --groups"
        )


def check_fit(algorithm: Any, run: RunOutline, points: HasShape) -> None:
    """Validate the method on this graph with these points.

    Raises
    ------
    DataError
        If the points have weights that the method cannot use.
    ExperimentError, TopologyError
        If the method cannot run on this graph, or not with this number of points.
    """
    if not needs_hub(algorithm):
        check_links(algorithm, run.topology)
        check_groups_fit(algorithm.traits.groups, run.topology)
    if algorithm.traits.no_weights and isinstance(points, Shards) and points.weights.strides != (0,):
        raise DataError(
            f"point weights cannot be combined with {algorithm.name}: the method {algorithm.traits.no_weights}. "
            "Remove the weights"
        )
    algorithm.check(run, PointCount(points.n, points.m, points.d))


def _resolve_defaults(
    algorithm: Any, options: RunOptions, outline: RunOutline, d: int, channel: ChannelPlan
) -> tuple[Any, RunOutline, ChannelPlan]:
    """Resolve the defaults of method, outline and channel that depend on the run; the only place that does."""
    late = reads_late(vars(options), algorithm)
    reasons = {"changing links": outline.topology.varying is not None, "late messages": late}
    reasons |= {kind.name: kind.disturbs(settings) for kind, settings in channel.parts}
    disturbed = next((name for name, holds in reasons.items() if holds), "")
    algorithm, outline = resolve(algorithm, outline._replace(disturbed=disturbed), d)
    integers = options.quantize.choose(preferred=algorithm.prefers_integers)
    if integers is not None:
        # If integers cannot be combined with the method or another option, messages stay real.
        with suppress(ExperimentError):
            with_integers = replace(options, quantize=integers)
            channel = plan_channel(vars(with_integers), algorithm).place(outline.topology, options.seed)
    return algorithm, outline, channel


def build_run(  # noqa: PLR0913 - the parts of a run
    algorithm: Any,
    options: RunOptions,
    topology: Topology,
    points: HasShape | None,
    *,
    ranks: int = 1,
    graph: Any = None,
    arrays: Mapping[str, Any] | None = None,
    image: tuple[int, ...] | None = None,
) -> RunConfig:
    """Validate a run in the order of the module docstring, and build its configuration.

    Parameters
    ----------
    algorithm, options, ranks
        As in `check_options`.
    topology : Topology
    points : Shards, DiskShards, PointCount or None
        Including an empty device for a server. None on other ranks, once rank 0 has validated the points.
    ranks : int, default=1
    graph : networkx.Graph, optional
        Its attributes are read by the link model.
    arrays : mapping, optional
        Result of `RunConfig.to_arrays` on rank 0. Other ranks may lack access to the files.
    image : tuple of int, optional
        Shape of points that are images.

    Returns
    -------
    RunConfig

    Raises
    ------
    ExperimentError, TopologyError, DataError
        If an option is invalid, or method, graph and points do not fit together.
    """
    channel = check_options(algorithm, options, ranks)
    seed = options.seed
    if options.stream is not None:
        algorithm = follow(algorithm)
    rounds = algorithm.default_rounds if options.rounds is None else options.rounds
    outline = RunOutline(
        topology, "", options.start is not None, options.min_cluster_size <= 1, options.stream is not None, rounds,
        image if arrays is None else tuple(arrays[_IMAGE].tolist()) or None,
    )  # fmt: skip
    if points is not None:
        check_fit(algorithm, outline, points)
        _check_points(algorithm, options, topology, points, ranks)
    net = None if options.link_model is None else _place_link_model(algorithm, options, topology, graph, arrays)
    channel = channel.place(topology, seed, arrays)
    faults = channel.find("faults")
    # The first check knew only the path of a fault trace; now its events are known.
    if faults is not None:
        find_transform("faults").check(faults, algorithm)
    # Points on disk are validated by the rank that reads them.
    if isinstance(points, Shards):
        check_magnitude(points.points, "the points", missing=options.missing in FILLING)
        check_limits(find_limits(points.points), "the points", points.points.dtype, each=options.scale != "none")
    # Other ranks do not need the number of features: rank 0 has resolved the initialization.
    d = 0 if points is None else points.d
    algorithm, outline, channel = _resolve_defaults(algorithm, options, outline, d, channel)
    record_every = options.record_every
    stream = None
    if options.stream is not None:
        stream = _bind_stream(algorithm, options, points, arrays, topology.clients, rounds)
    return RunConfig(
        algorithm, topology, rounds, seed,
        usual_every(topology.n) if record_every is None else record_every, options.baselines,
        options.scale, net, options.k_max, channel,
        options.all_rounds, stream, _name_features(points, arrays),
        options.missing, outline,
    )  # fmt: skip


def _place_link_model(
    algorithm: Any, options: RunOptions, topology: Topology, graph: Any, arrays: Mapping[str, Any] | None
) -> "LinkParameters":
    """Bind the link model to the graph, or unpack the parameters of rank 0; validate the event-driven execution."""
    from p2pkm.engine.event_driven import schedule_events
    from p2pkm.network.link_model import LinkParameters

    if arrays is None:
        net: LinkParameters = options.link_model.place(topology, graph)
    else:
        net = LinkParameters(*(arrays[_NET + name] for name in LinkParameters._fields))
    if schedule_events(algorithm, net, topology) is not None and options.all_rounds:
        raise ExperimentError(
            "--all-rounds cannot be combined with --schedule async and --link-model: devices act when messages arrive, "
            "so the run ends when no message is in transit. Remove one of the three"
        )
    return net


def _name_features(points: HasShape | None, arrays: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of the features; rank 0 sends them to the others."""
    if arrays is not None:
        return tuple(json.loads(arrays[_FEATURES].tobytes()))
    if points is None or isinstance(points, Shards | PointCount):
        return points.features or () if isinstance(points, Shards) else ()
    from p2pkm.data.out_of_core.shards import DiskShards

    return points.features or () if isinstance(points, DiskShards) else ()


def _bind_stream(
    algorithm: Any,
    options: RunOptions,
    points: HasShape | None,
    arrays: Mapping[str, Any] | None,
    clients: int,
    rounds: int,
) -> "PointStream | None":
    """Bind the data stream to points and run; None if only the number of points is known."""
    from p2pkm.data.stream import build_stream, rebuild_stream
    from p2pkm.data.stream_tape import Limits, check_data_trace

    stream, seed = options.stream, options.seed
    limits = Limits(clients, rounds, algorithm.k)
    if isinstance(points, PointCount):
        if stream.tape is not None:
            check_data_trace(stream.tape, points.m, points.d, limits)
        return None
    if points is None:
        return rebuild_stream(stream, arrays or {}, seed)
    if not isinstance(points, Shards):
        raise DataError(
            "--stream cannot be combined with points on disk: it changes points in memory. Load them with "
            "p2pkm.read_table, or remove --stream"
        )
    classes = points.labels
    # Points that arrive are drawn from the classes. Without labels the clusters of central k-means replace them.
    if classes is None and stream.tape is None:
        classes = label_pooled(points.points.astype(np.float64), algorithm.k, seed)
    known_classes = np.zeros(0, np.int64) if classes is None else classes.astype(np.int64)
    return build_stream(stream, points, known_classes, seed, limits)


def _check_points(algorithm: Any, options: RunOptions, topology: Topology, points: HasShape, ranks: int) -> None:
    """Validate that points, graph and options fit together."""
    if topology.n != points.n:
        raise TopologyError(
            f"the graph has {topology.n} nodes, but the points are distributed over {points.n} devices; expected equal "
            "numbers. Change the graph or the partition"
        )
    if (most := options.k_max) is not None and most > points.m:
        raise DataError(f"k_max is {most}, but there are {points.m} points; expected at most as many. Reduce k_max")
    if algorithm.k > points.m:
        raise DataError(
            f"{algorithm.k} clusters of {points.m} points; expected at most as many clusters as points. Reduce k"
        )
    if options.rank_partition == "metis" and ranks > 1:
        from p2pkm.data.out_of_core.shards import DiskShards

        if isinstance(points, DiskShards):
            raise ExperimentError(
                "--rank-partition metis cannot be combined with points on disk: each rank reads one range of devices. "
                "Use --rank-partition blocks"
            )
    count = int(topology.components.max()) + 1
    if count > 1 and options.k_max is not None:
        raise TopologyError(
            f"the graph is disconnected: it has {count} components, which cannot agree on a number of "
            "clusters. Add links, or set the number of clusters with -k"
        )
    if count > 1 and not options.allow_disconnected:
        raise TopologyError(
            f"the graph is disconnected: it has {count} components; expected 1. Add links, or pass "
            "--allow-disconnected (allow_disconnected=True in scripts) to cluster each component separately"
        )


def require_same_run(config: RunConfig, world: World, inputs: Mapping[str, bytes]) -> None:
    """Validate that all ranks have the same run; a collective call.

    Parameters
    ----------
    config : RunConfig
    world : World
    inputs : mapping of str to bytes
        SHA-256 of further inputs, under the same names on every rank.

    Raises
    ------
    ExperimentError
        On every rank, if one differs from rank 0; names the first such rank and its differing fields.
    """
    if world.size == 1:
        return
    digests = {**config.digests(), **inputs}
    gathered = world.gather(np.frombuffer(b"".join(digests.values()), np.uint8))
    text = "" if gathered is None else _describe_difference([part.tobytes() for part in gathered], list(digests))
    message = {"difference": np.frombuffer(text.encode(), np.uint8)} if world.rank == 0 else None
    difference = world.broadcast(message)["difference"].tobytes().decode()
    if difference:
        raise ExperimentError(
            f"the ranks were given different runs: {difference}. Call with the same arguments on every rank: set a "
            "seed for random inputs, and read the same files"
        )


def _describe_difference(rank_digests: list[bytes], names: Iterable[str]) -> str:
    """Name the first rank that differs from rank 0 and the fields in which it does; empty if all are equal."""
    # Each rank sends its SHA-256 digests, 32 bytes each, joined in the order of the names.
    slices = {name: slice(32 * i, 32 * i + 32) for i, name in enumerate(names)}
    for rank, joined in enumerate(rank_digests):
        differing = [name for name, part in slices.items() if joined[part] != rank_digests[0][part]]
        if differing:
            return f"rank {rank} differs from rank 0 in {', '.join(differing)}"
    return ""


def _digest(value: Any) -> bytes:
    total = sha256()
    _update_hash(total, value)
    return total.digest()


def _update_hash(total: Any, value: Any) -> None:
    """Update a hash by the contents of a value; objects that are not records count by their type only."""
    value = value.item() if isinstance(value, np.generic) else value
    kind = type(value)
    if isinstance(value, np.ndarray):
        total.update(f"{value.dtype.str}{value.shape}".encode())
        # The array may be a view of stride 0, so blocks of it are copied, never all of it.
        flat = value.reshape(-1)
        for first in range(0, len(flat), _HASH_BLOCK):
            total.update(np.ascontiguousarray(flat[first : first + _HASH_BLOCK]).view(np.uint8).data)
    elif value is None or isinstance(value, (bool, int, float, str)):
        total.update(f"{value!r};".encode())
    else:
        children = list(_children(value))
        total.update(f"{value if isinstance(value, type) else kind} {len(children)};".encode())
        for child in children:
            _update_hash(total, child)


def _children(value: Any) -> Iterable[Any]:
    """Return the parts of a record, a mapping or a sequence, in a fixed order."""
    if isinstance(value, Mapping):
        return (part for name in sorted(value) for part in (name, value[name]))
    if isinstance(value, (tuple, list)):
        return value
    return [vars(value)[item.name] for item in fields(value)] if is_dataclass(type(value)) else ()
