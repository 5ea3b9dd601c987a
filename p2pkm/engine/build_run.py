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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from p2pkm.channel.pipeline import ChannelPlan, plan_channel
from p2pkm.core.batch import Floats
from p2pkm.core.digest import digest
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.protocols import PointCount, RunOutline
from p2pkm.core.spec import show, suggest
from p2pkm.core.validation import check_limits, check_magnitude, check_scalar, find_limits
from p2pkm.data.identifiers import ANSWERS, FILLING
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import label_pooled
from p2pkm.engine.conflicts import (
    OF_EVENTS,
    OF_GRAPHS,
    OF_OPTIONS,
    OF_POINTS,
    OF_POINTS_ON_GRAPHS,
    OF_STREAMS,
    OF_TRANSFORMS,
    Combination,
    explain_refusal,
    reads_late,
    refuse,
    refuse_changing_links,
    refuse_transforms,
)
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.following import follow
from p2pkm.methods.init.pipelines import check_init, resolve
from p2pkm.metrics.monitor import usual_every
from p2pkm.metrics.summary import OptionalMetrics
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import RankPartition, check_rank_partition
from p2pkm.network.transport import World

if TYPE_CHECKING:
    from p2pkm.data.scale import FeatureRanges
    from p2pkm.data.stream import PointStream
    from p2pkm.network.link_model import LinkParameters

# Fields of a run that only some ranks have, or that follow from the others.
_OF_SOME_RANKS = ("outline", "options", "completed", "points", "start", "scores", "notes")
# Keys of the arrays that rank 0 sends to the other ranks; _NET is a prefix for those of the link model.
_NET = "net_"
# Radius, in the example of an error, of a ball around two features from -20 to 20: 20 sqrt(2), rounded up.
_RADIUS = 28.3
_FEATURES, _IMAGE = "feature_names", "image_shape"
# Features that the summary names before it abbreviates the list.
_LISTED_FEATURES = 20
# Shift and span of each device of the system, float64[N, d] each.
Scaling = tuple[Floats, Floats]
# Number of clusters that the devices chose, see `p2pkm.engine.preliminaries.choose`.
Choice = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """Checked run, identical on all ranks except for the inputs that only some of them have read.

    Attributes
    ----------
    algorithm : Algorithm or ServerMethod
    topology : Topology
    rounds : int
        Maximum number of rounds of the method's stage.
    seed, record_every : int
    baselines : bool
        Whether to compute central k-means for comparison.
    scale : {"none", "standard", "minmax"} or FeatureRanges
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
    options : RunOptions
        Options of the run; those of a command are resolved, as ``config.toml`` stores them.
    completed : RunOptions
        The same with the defaults that the run has chosen, for other ranks and the summary.
    points : Shards, DiskShards or None
        Points of all devices. This and the following attributes: only on ranks that have read them.
    start : float64[n, k, d] or None
        Initial centroids of all devices, which replace the initialization stages.
    scores : OptionalMetrics
        Metrics that are computed only on request.
    notes : tuple of str
        Remarks on defaults, and on the points and their partition, for the user.
    """

    algorithm: Any
    topology: Topology
    rounds: int = 150
    seed: int = 0
    record_every: int = 1
    baselines: bool = True
    scale: "str | FeatureRanges" = "none"
    link_model: "LinkParameters | None" = None
    k_max: int | None = None
    channel: ChannelPlan = field(default_factory=lambda: plan_channel({}))
    all_rounds: bool = False
    stream: "PointStream | None" = None
    features: tuple[str, ...] = ()
    missing: str = "refuse"
    outline: RunOutline | None = None
    options: RunOptions = field(default_factory=RunOptions)
    completed: RunOptions = field(default_factory=RunOptions)
    points: Any = None
    start: Floats | None = None
    scores: OptionalMetrics = OptionalMetrics()  # noqa: RUF009 - a tuple
    notes: tuple[str, ...] = ()

    def configure(self, points: int, on_root: Callable[[Callable[[], Floats]], Floats] | None = None) -> Any:
        """Fill in the parameters of the method that depend on the run.

        Called once the number of clusters is final; with `on_root`, see `RunOutline`, a collective call.
        """
        outline = self.outline or RunOutline(self.topology, disturbed="a run that was not checked")
        return self.algorithm.configure(outline._replace(points=points, on_root=on_root))

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
        """Compute the SHA-256 of each field that all ranks share, and of the files that the run reads.

        The names are the same on all ranks, and in a correct run the digests, too.
        """
        files = {"faults": self.channel.to_arrays(), "stream": (str(self.stream), self._pack_stream()),
                 "topology": replace(self.topology, file_summary="")}  # fmt: skip
        return {name: digest(value) for name, value in (vars(self) | files).items() if name not in _OF_SOME_RANKS}


@dataclass(frozen=True)
class Rank:
    """Run on one rank, with the points of its devices.

    Attributes
    ----------
    run : Run
        Equal on all ranks, without points and initial centroids of other ranks.
    world : World
    shards : Shards
        Points of the local devices.
    start : float64[n, k, d] or None
        Initial centroids of the local devices, which replace the initialization stages.
    division : RankPartition or None
        Assignment of devices to ranks; None for contiguous blocks.
    saved : dict or None
        This rank's part of the checkpoint to resume from.
    interrupted : callable
        Returns the signal that requested a stop, or 0. The run stops after the current round.
    input_digests : mapping of str to bytes
        SHA-256 of inputs that every rank has as a whole, points and initial centroids, to compare them between ranks.
        Empty if only rank 0 has them.
    scaling : tuple or None
        Shift and span of each device of the system, once the points are scaled.
    choice : dict or None
        Number of clusters that the devices chose, see `p2pkm.engine.preliminaries.choose`.
    """

    run: Run
    world: World
    shards: Shards
    start: Floats | None = None
    division: RankPartition | None = None
    saved: dict[str, Any] | None = None
    interrupted: Callable[[], int] = lambda: 0
    input_digests: Mapping[str, bytes] = field(default_factory=dict)
    scaling: Scaling | None = None
    choice: Choice | None = None


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


def check_options(algorithm: Any, options: RunOptions, channel: ChannelPlan | None = None) -> ChannelPlan:
    """Validate the options, also together with the method, and plan the channel.

    The answer does not depend on the number of ranks: what is rejected on a cluster is rejected on a laptop.

    Parameters
    ----------
    algorithm : Algorithm or ServerMethod
    options : RunOptions
    channel : ChannelPlan, optional
        Result of an earlier call, which is only checked again: the method may have another number of clusters.

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
    if check_scalar(options.missing, "missing") not in ANSWERS:
        raise ExperimentError(f"missing is {options.missing!r}. {suggest(str(options.missing), ANSWERS)}")
    check_rank_partition(options.rank_partition)
    check_init(algorithm.traits.init, algorithm.k)
    combination = Combination(algorithm, vars(options))
    refuse(OF_OPTIONS, combination)
    if options.link_model is not None and options.devices is not None:
        from p2pkm.network.link_model import LinkModel

        model: Any = LinkModel.of(options.link_model)
        model.check_devices(options.devices)
    channel = plan_channel(vars(options)) if channel is None else channel
    refuse_transforms(combination._replace(channel=channel))
    return channel


def _check_parameters(algorithm: Any) -> None:
    """Validate that the parameters without a default are set."""
    names = algorithm.traits.needs_parameters
    if not names:
        return
    values = {
        f.name: value for f in fields(algorithm) if f.name != "k" and (value := getattr(algorithm, f.name)) != f.default
    }
    missing = {name: _RADIUS if name == "radius" else 1 for name in names.split(" and ")}
    example = ",".join(f"{name}={value}" for name, value in (values | missing).items())
    # A radius computed from the points would reveal the farthest one, so the example is for a public range.
    hint = (
        f": {_RADIUS} is the radius for two features with public ranges from -20 to 20, see "
        "docs/howto/private-clustering.md"
        if "radius" in missing
        else ", with values for your points"
    )
    raise ExperimentError(
        f"method {algorithm.name!r} requires {names}. Use --algorithm {algorithm.name}:{example}{hint}"
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
    combination = Combination(algorithm, topology=run.topology, points=points)
    refuse(OF_GRAPHS, combination)
    groups, n = algorithm.traits.groups, run.topology.clients
    if isinstance(groups, int) and groups > n:
        raise ExperimentError(f"groups is {groups}; expected at most {n}, the number of devices, or auto.")
    refuse(OF_POINTS, combination)
    algorithm.check(run, PointCount(points.n, points.m, points.d))


def _take_preferred(at: Combination) -> tuple[Any, str]:
    """Fill in the parameters that a method prefers; if the run would then be refused, only return the reason.

    The same table decides both: what is refused if asked for by name is not chosen as a default.
    """
    preferred = at.algorithm.preferred
    if not preferred:
        return at.algorithm, ""
    filled_in = at.algorithm.replaced(**preferred)
    reason = explain_refusal(at._replace(algorithm=filled_in))
    return (at.algorithm, reason) if reason else (filled_in, "")


def _note_substitutes(before: Any, after: Any, topology: Topology, reason: str) -> tuple[str, ...]:
    """List a note that says why preferred parameters are not used, and which are; before, after: defaults resolved."""
    if not reason:
        return ()
    names, instead = (
        ", ".join(f"{name}={show(value)}" for name, value in values.items())
        for values in (before.preferred, after.list_substitutes(topology))
    )
    return (f"{before.name} uses {instead}, not its default {names}: {reason}",)


def _resolve_defaults(
    algorithm: Any, options: RunOptions, outline: RunOutline, d: int, planned: ChannelPlan, placed: ChannelPlan
) -> tuple[Any, RunOutline, ChannelPlan]:
    """Resolve the defaults of method, outline and channel that depend on the run; the only place that does.

    `planned` is the channel before it was bound to the graph, `placed` the one after.
    """
    late = reads_late(vars(options), algorithm)
    reasons = {"changing links": outline.topology.varying is not None, "late messages": late}
    reasons |= {kind.name: kind.disturbs(settings) for kind, settings in placed.parts}
    disturbed = next((name for name, holds in reasons.items() if holds), "")
    algorithm, outline = resolve(algorithm, outline._replace(disturbed=disturbed), d)
    integers = options.quantize.choose(preferred=algorithm.prefers_integers)
    if integers is not None:
        wished = vars(options) | {"quantize": integers}
        addition = planned.plan_addition("quantization", wished)
        combination = Combination(algorithm, wished, planned.join(addition), outline.topology)
        # If integers cannot be combined with the method or another option, messages stay real.
        with suppress(ExperimentError):
            refuse_transforms(combination)
            refuse_changing_links(combination)
            placed = placed.join(addition.place(outline.topology, options.seed))
    return algorithm, outline, placed


def build_run(
    algorithm: Any,
    options: RunOptions,
    topology: Topology,
    points: HasShape | None,
    *,
    graph: Any = None,
    arrays: Mapping[str, Any] | None = None,
    image: tuple[int, ...] | None = None,
    channel: ChannelPlan | None = None,
) -> Run:
    """Validate a run in the order of the module docstring, and build its configuration.

    Parameters
    ----------
    algorithm, options
        As in `check_options`.
    topology : Topology
    points : Shards, DiskShards, PointCount or None
        Including an empty device for a server. None on other ranks, once rank 0 has validated the points.
    graph : networkx.Graph, optional
        Its attributes are read by the link model.
    arrays : mapping, optional
        Result of `Run.to_arrays` on rank 0. Other ranks may lack access to the files.
    image : tuple of int, optional
        Shape of points that are images.
    channel : ChannelPlan, optional
        Result of `check_options` for these options, which are not configured again.

    Returns
    -------
    Run

    Raises
    ------
    ExperimentError, TopologyError, DataError
        If an option is invalid, or method, graph and points do not fit together.
    """
    planned = check_options(algorithm, options, channel)
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
        _check_points(algorithm, options, topology, points)
    if options.client_share is not None:
        topology = options.client_share.apply(topology, seed)
        outline = outline._replace(topology=topology)
    combination = Combination(algorithm, vars(options), planned, topology)
    net = None if options.link_model is None else _place_link_model(combination, graph, arrays)
    refuse_changing_links(combination)
    placed = planned.place(topology, seed, arrays)
    # The first check knew only the path of a fault trace; now its events are known.
    refuse(OF_TRANSFORMS, Combination(algorithm, vars(options), placed, topology))
    # Points on disk are validated by the rank that reads them.
    if isinstance(points, Shards):
        for some in (points, points.tests):
            if some is not None:
                check_magnitude(some.points, "the points", missing=options.missing in FILLING)
        check_limits(find_limits(points.points), "the points", points.points.dtype, each=options.scale != "none")
    features = _name_features(points, arrays)
    # A plan knows only the number of points, not the names of the features.
    if not isinstance(options.scale, str) and points is not None and not isinstance(points, PointCount):
        options.scale.find_units(features, points.d)
    # Other ranks do not need the number of features: rank 0 has resolved the initialization.
    d = 0 if points is None else points.d
    wanted, reason = _take_preferred(Combination(algorithm, vars(options), placed, topology, points))
    algorithm, outline, placed = _resolve_defaults(wanted, options, outline, d, planned, placed)
    notes = _note_substitutes(wanted, algorithm, topology, reason)
    record_every = options.record_every
    stream = None
    if options.stream is not None:
        stream = _bind_stream(algorithm, options, points, arrays, topology.clients, rounds)
    return Run(
        algorithm, topology, rounds, seed,
        usual_every(topology.n) if record_every is None else record_every, options.baselines,
        options.scale, net, options.k_max, placed,
        options.all_rounds, stream, features,
        options.missing, outline, options, options, notes=notes,
    )  # fmt: skip


def _place_link_model(at: Combination, graph: Any, arrays: Mapping[str, Any] | None) -> "LinkParameters":
    """Bind the link model to the graph, or unpack the parameters of rank 0; validate the event-driven execution."""
    from p2pkm.engine.event_driven import schedule_events
    from p2pkm.network.link_model import LinkModel, LinkParameters

    if arrays is None:
        model: Any = LinkModel.of(at.options["link_model"])
        net: LinkParameters = model.place(at.topology, graph)
    else:
        net = LinkParameters(*(arrays[_NET + name] for name in LinkParameters._fields))
    assert at.topology is not None
    schedule_events(at.algorithm, net, at.topology)
    refuse(OF_EVENTS, at)
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
    refuse(OF_STREAMS, Combination(algorithm, vars(options), points=points))
    assert isinstance(points, Shards)
    classes = points.labels
    # Points that arrive are drawn from the classes. Without labels the clusters of central k-means replace them.
    if classes is None and stream.tape is None:
        classes = label_pooled(points.points.astype(np.float64), algorithm.k, seed)
    known_classes = np.zeros(0, np.int64) if classes is None else classes.astype(np.int64)
    return build_stream(stream, points, known_classes, seed, limits)


def _check_points(algorithm: Any, options: RunOptions, topology: Topology, points: HasShape) -> None:
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
    refuse(OF_POINTS_ON_GRAPHS, Combination(algorithm, vars(options), topology=topology, points=points))
    count = int(topology.components.max()) + 1
    if count > 1 and not options.allow_disconnected:
        raise TopologyError(
            f"the graph is disconnected: it has {count} components; expected 1. Add links, or pass "
            "--allow-disconnected (in Python allow_disconnected=True) to cluster each component separately"
        )


def require_same_run(config: Run, world: World, inputs: Mapping[str, bytes]) -> None:
    """Validate that all ranks have the same run; a collective call.

    Parameters
    ----------
    config : Run
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
