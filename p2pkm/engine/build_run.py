"""From a method, options, a graph and points to a run, checked in one order, cheap checks first.

1. The options by themselves, and the method with them: `check_options`, before anything is read or built.
2. The method on this graph, with so many points of so many features: `check_fit`.
3. The points on the graph: as many devices, at least k points, a connected graph.
4. What is placed on the graph: the link model, the clocks of events, the transforms of the channel.
5. The coordinates of the points.

`simulate`, the command line and `plan` build their runs here.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import sha256
from typing import Any, Protocol

import numpy as np

from p2pkm.channel.faults import FaultInjector
from p2pkm.channel.pipeline import ChannelPlan, plan_channel, reads_late
from p2pkm.channel.quantization import Quantization
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.protocols import PointCount, RunOutline
from p2pkm.core.spec import suggest
from p2pkm.core.validation import check_limits, check_magnitude, check_scalar, find_limits
from p2pkm.data.readers.intake import ANSWERS, FILLING
from p2pkm.data.shards import Shards
from p2pkm.data.stream import PointStream, build_stream, pack_stream, rebuild_stream
from p2pkm.data.stream_tape import Limits, check_tape
from p2pkm.engine.build_batch import label_pooled
from p2pkm.engine.event_driven import schedule_events
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.run_secret import require_repeatable
from p2pkm.methods.following import check_following, follow
from p2pkm.methods.init.pipelines import check_groups_fit, check_init, check_links, needs_hub, resolve
from p2pkm.metrics.monitor import usual_every
from p2pkm.network.graph import Topology
from p2pkm.network.link_model import LinkModel, LinkParameters
from p2pkm.network.rank_partition import check_rank_partition
from p2pkm.network.transport import World

SCALES = ("none", "standard", "minmax")
_NET = "net_"  # what the arrays of a link model are called on their way to other ranks
_FEATURES, _IMAGE = "feature_names", "image_shape"
_TOLD = 20  # features in a line about all
_PIECE = 1 << 17  # numbers that are hashed at once


@dataclass(frozen=True)
class RunConfig:
    """What is run, the same on every rank.

    Attributes
    ----------
    algorithm : Algorithm or ServerMethod
    topology : Topology
    rounds : int
        Most rounds of the last stage.
    seed, record_every : int
    baselines : bool
        Whether there is to be a central baseline.
    scale : {"none", "standard", "minmax"}
        How to scale the points first.
    missing : {"refuse", "drop", "mean", "median"}
        What becomes of missing values, NaN among the points: "mean", "median": they are filled in by messages,
        first of all; otherwise there are none.
    link_model : LinkParameters or None
        Figures of all devices and links, for virtual time.
    k_max : int or None
        The devices choose a number of clusters from 1 to this, which the method then has in the place of its own k.
    channel : ChannelPlan
        The transforms that messages pass.
    all_rounds : bool
        Whether every stage plays all of its rounds, whatever has converged.
    stream : PointStream or None
        How the points change while the method runs; None: they stay.
    features : tuple of str
        Names of the features, empty if they have none.
    outline : RunOutline or None
        What the method was configured with; None: it was not.
    """

    algorithm: Any
    topology: Topology
    rounds: int = 150
    seed: int = 0
    record_every: int = 1
    baselines: bool = True
    scale: str = "none"
    link_model: LinkParameters | None = None
    k_max: int | None = None
    channel: ChannelPlan = field(default_factory=lambda: plan_channel({}, None))
    all_rounds: bool = False
    stream: PointStream | None = None
    features: tuple[str, ...] = ()
    missing: str = "refuse"
    outline: RunOutline | None = None

    def configure(self, points: int) -> Any:
        """Return the method with all that is left to the run filled in, when the number of clusters is final."""
        outline = self.outline or RunOutline(self.topology, disturbed="a run that was not checked")
        return self.algorithm.configure(outline._replace(points=points))

    def to_arrays(self) -> dict[str, Any]:
        """Return what other ranks need beside options and topology, for `build_run`."""
        net = {} if self.link_model is None else self.link_model._asdict()
        called = {_FEATURES: np.frombuffer(json.dumps(self.features).encode(), np.uint8)}
        called[_IMAGE] = np.array((self.outline and self.outline.image) or (), np.int64)
        files = self.channel.to_arrays() | pack_stream(self.stream)
        return files | called | {_NET + name: part for name, part in net.items()}

    def list_features(self) -> str | None:
        """Return the names of the features in a line, of many the first; None if they have none."""
        names = self.features
        more = f", ... ({len(names)} in all)" if len(names) > _TOLD else ""
        return ", ".join(names[:_TOLD]) + more or None

    def digests(self) -> dict[str, bytes]:
        """Return the SHA-256 of all fields but the outline, and of the arrays of the channel, the same on all ranks."""
        files = {"faults": self.channel.to_arrays(), "stream": (str(self.stream), pack_stream(self.stream)),
                 "topology": replace(self.topology, file_summary="")}  # fmt: skip
        return {name: _digest(value) for name, value in (vars(self) | files).items() if name != "outline"}


class Counted(Protocol):
    """Points, or their number."""

    @property
    def n(self) -> int:
        """Return the number of devices, a hub among them."""

    @property
    def m(self) -> int:
        """Return the number of points."""

    @property
    def d(self) -> int:
        """Return the number of features."""


def check_options(algorithm: Any, options: RunOptions, ranks: int = 1) -> ChannelPlan:
    """Refuse options that are out of range or that the method cannot be run with; return the channel they ask for.

    Parameters
    ----------
    algorithm : Algorithm or ServerMethod
    options : RunOptions
    ranks : int

    Raises
    ------
    ExperimentError
        If so.
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
    if not needs_hub(algorithm):
        check_init(algorithm.traits.init, algorithm.k)
    if options.stream is not None:
        check_following(algorithm, timed=options.link_model is not None)
    model: LinkModel | None = options.link_model
    if model is not None and options.devices is not None:
        model.check_devices(options.devices)
    return plan_channel(vars(options), algorithm)


def _check_checkpoints(algorithm: Any, options: RunOptions) -> None:
    """Reject checkpoints that are asked for where they would hold a secret."""
    for name in ("checkpoint", "checkpoint_every"):
        if given := getattr(options, name):
            require_repeatable(algorithm, f"{name} {given}")


def _check_scale(algorithm: Any, scale: str) -> None:
    """Refuse a scale that there is not, and any where the points must not be measured."""
    if check_scalar(scale, "scale") not in SCALES:
        raise ExperimentError(f"scale is {scale!r}. {suggest(str(scale), SCALES)}")
    if scale != "none" and algorithm.traits.no_measuring:
        raise ExperimentError(f"scale is {scale!r}, but {algorithm.name} {algorithm.traits.no_measuring}; leave it out")


def _check_missing(algorithm: Any, options: RunOptions) -> None:
    """Refuse to fill in values where the points must not be measured, or change."""
    missing = options.missing
    if check_scalar(missing, "missing") not in ANSWERS:
        raise ExperimentError(f"missing is {missing!r}. {suggest(str(missing), ANSWERS)}")
    if missing in FILLING and algorithm.traits.no_measuring:
        raise ExperimentError(
            f"missing is {missing!r}, but {algorithm.name} {algorithm.traits.no_measuring}; take 'drop'"
        )
    if missing in FILLING and options.stream is not None:
        raise ExperimentError(f"missing is {missing!r} with a stream, whose points have to be complete; take 'drop'")


def _check_parameters(algorithm: Any) -> None:
    """Refuse a method that lacks parameters without a default."""
    names = algorithm.traits.needs_parameters
    if not names:
        return
    example = ",".join(f"{name}=..." for name in names.split(" and "))
    raise ExperimentError(
        f"{algorithm.name} needs {names}; add {example} to what stands after --algorithm {algorithm.name}:"
    )


def _check_start(algorithm: Any) -> None:
    """Refuse a given start where the method has none, or needs one that the devices have agreed on."""
    if algorithm.traits.init is None:
        raise ExperimentError(f"{algorithm.name} starts from what the devices find in their points; leave start out")
    if algorithm.traits.needs_agreed_start:
        raise ExperimentError(
            "accept and coupling rehearsal need a start that devices agree on; leave them out, or start"
        )
    if algorithm.traits.groups:
        raise ExperimentError("groups bring their own start, but one was given; leave out one of them")


def _check_choice(algorithm: Any, options: RunOptions) -> None:
    """Refuse what fixes the number of clusters where the devices are to choose it."""
    if algorithm.traits.no_measuring:
        raise ExperimentError(
            f"the devices are to choose the number of clusters, but {algorithm.name} {algorithm.traits.no_measuring}; "
            "give the number"
        )
    if options.start is not None:
        raise ExperimentError("start is given, which fixes the number of clusters, and k_max; leave one of them out")
    if algorithm.traits.groups:
        raise ExperimentError(
            "the number of clusters is chosen from the points of all devices, but with groups each group has clusters "
            "of its own; give the number, or leave groups out"
        )


def check_fit(algorithm: Any, run: RunOutline, points: Counted) -> None:
    """Refuse a method that cannot work on this graph, or whose arithmetic with these points would take too long."""
    if not needs_hub(algorithm):
        check_links(algorithm, run.topology)
        check_groups_fit(algorithm.traits.groups, run.topology)
    if algorithm.traits.no_weights and isinstance(points, Shards) and points.weights.strides != (0,):
        raise DataError(f"the points have weights, but {algorithm.name} {algorithm.traits.no_weights}; give none")
    algorithm.check(run, PointCount(points.n, points.m, points.d))


def _resolve_defaults(
    algorithm: Any, options: RunOptions, outline: RunOutline, d: int, channel: ChannelPlan
) -> tuple[Any, RunOutline, ChannelPlan]:
    """Return method, outline and channel of the run: what was left open is decided here, and nowhere else."""
    late = reads_late(vars(options), algorithm)
    reasons = {"changing links": outline.topology.varying is not None, "late messages": late}
    reasons |= {kind.name: kind.disturbs(settings) for kind, settings in channel.parts}
    disturbed = next((name for name, holds in reasons.items() if holds), "")
    algorithm, outline = resolve(algorithm, outline._replace(disturbed=disturbed), d)
    if algorithm.prefers_integers and options.quantize.is_open:
        with suppress(ExperimentError):  # where integers could not be asked for, real numbers travel
            asked = replace(options, quantize=Quantization("rice"))
            channel = plan_channel(vars(asked), algorithm).place(outline.topology, options.seed)
    return algorithm, outline, channel


def build_run(  # noqa: PLR0913 - what a run is made of
    algorithm: Any,
    options: RunOptions,
    topology: Topology,
    points: Counted | None,
    *,
    ranks: int = 1,
    graph: Any = None,
    arrays: Mapping[str, Any] | None = None,
    image: tuple[int, ...] | None = None,
) -> RunConfig:
    """Check a run in the order above, and return it.

    Parameters
    ----------
    algorithm, options, ranks
        As in `check_options`.
    topology : Topology
    points : Shards, Sharded, PointCount or None
        A hub among the devices. None: rank 0 has checked them.
    graph : networkx.Graph, optional
        Whose attributes the link model reads.
    arrays : mapping, optional
        What `RunConfig.to_arrays` returned on rank 0, which may be alone in reading a file.
    image : tuple of int, optional
        Shape of points that are images.

    Raises
    ------
    ExperimentError, TopologyError, DataError
        If something cannot work.
    """
    channel, seed = check_options(algorithm, options, ranks), options.seed
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
    net, model = None, options.link_model
    if model is not None:
        net = model.place(topology, graph) if arrays is None else LinkParameters(
            *(arrays[_NET + name] for name in LinkParameters._fields))  # fmt: skip
    if schedule_events(algorithm, net, topology) is not None and options.all_rounds:
        raise ExperimentError(
            "all_rounds with --schedule async and a link model: devices act when messages arrive, so the run is over "
            "when none are on their way. Leave one of them out"
        )
    channel = channel.place(topology, seed, arrays)
    faults = channel.find(FaultInjector)
    if faults is not None:  # a trace has been read now
        FaultInjector.check(faults, algorithm)
    if isinstance(points, Shards):  # what stays on disk is checked by the rank that reads it
        check_magnitude(points.points, "the points", missing=options.missing in FILLING)
        check_limits(find_limits(points.points), "the points", points.points.dtype, each=options.scale != "none")
    d = 0 if points is None else points.d  # of no use on other ranks, whose initialization rank 0 has resolved
    algorithm, outline, channel = _resolve_defaults(algorithm, options, outline, d, channel)
    record_every = options.record_every
    stream = _place_stream(algorithm, options, points, arrays, Limits(topology.clients, rounds, algorithm.k))
    return RunConfig(
        algorithm, topology, rounds, seed,
        usual_every(topology.n) if record_every is None else record_every, options.baselines,
        options.scale, net, options.k_max, channel,
        options.all_rounds, stream, _name_features(points, arrays),
        options.missing, outline,
    )  # fmt: skip


def _name_features(points: Counted | None, arrays: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of the features, as rank 0 knows them; none of points on disk."""
    if arrays is not None:
        return tuple(json.loads(arrays[_FEATURES].tobytes()))
    return points.features or () if isinstance(points, Shards) else ()


def _place_stream(
    algorithm: Any, options: RunOptions, points: Counted | None, arrays: Mapping[str, Any] | None, limits: Limits
) -> PointStream | None:
    """Return how the points change, None: they stay, or are not at hand."""
    asked, seed = options.stream, options.seed
    if asked is None:
        return None
    if isinstance(points, PointCount):
        if asked.tape is not None:
            check_tape(asked.tape, points.m, points.d, limits)
        return None
    if points is None:
        return rebuild_stream(asked, arrays or {}, seed)
    if not isinstance(points, Shards):
        raise DataError("a stream changes points in memory, but these stay on disk; read them with read_table, or "
                        "leave --stream out")  # fmt: skip
    classes = points.labels
    if classes is None and asked.tape is None:
        classes = label_pooled(points.points.astype(np.float64), algorithm.k, seed)
    found = np.zeros(0, np.int64) if classes is None else classes.astype(np.int64)
    return build_stream(asked, points, found, seed, limits)


def _check_points(algorithm: Any, options: RunOptions, topology: Topology, points: Counted, ranks: int) -> None:
    if topology.n != points.n:
        raise TopologyError(
            f"the graph has {topology.n} nodes, but the points are dealt to {points.n} devices; make them equal"
        )
    if (most := options.k_max) is not None and most > points.m:
        raise DataError(f"k_max is {most}, but there are {points.m} points; expected at most as many, or none given")
    if algorithm.k > points.m:
        raise DataError(f"{algorithm.k} clusters of {points.m} points; expected at most as many clusters as points")
    if options.rank_partition == "metis" and ranks > 1:
        from p2pkm.data.out_of_core.shards import Sharded

        if isinstance(points, Sharded):
            raise ExperimentError(
                "rank_partition 'metis' with points on disk, of which every rank reads one range; take blocks"
            )
    count = int(topology.components.max()) + 1
    if count > 1 and options.k_max is not None:
        raise TopologyError(
            f"the graph is disconnected: it has {count} components, which cannot agree on a number of clusters. Add "
            "links, or give the number"
        )
    if count > 1 and not options.allow_disconnected:
        raise TopologyError(
            f"the graph is disconnected: it has {count} components, which can never agree. Add links, or say "
            "--allow-disconnected (allow_disconnected=True in scripts)"
        )


def require_same_run(config: RunConfig, world: World, given: Mapping[str, bytes]) -> None:
    """End all ranks if they were given different runs; every rank calls it.

    given: SHA-256, by name, of what else must be alike, the same names on every rank.

    Raises
    ------
    ExperimentError
        On every rank, with the fields in which the first rank that differs from rank 0 does.
    """
    if world.size == 1:
        return
    own = {**config.digests(), **given}
    found = world.gather(np.frombuffer(b"".join(own.values()), np.uint8))
    text = "" if found is None else _tell_difference([part.tobytes() for part in found], list(own))
    order = {"difference": np.frombuffer(text.encode(), np.uint8)} if world.rank == 0 else None
    difference = world.broadcast(order)["difference"].tobytes().decode()
    if difference:
        raise ExperimentError(
            f"the ranks were given different runs: {difference}. Every rank must call with the same arguments; seed "
            "what is drawn, and read the same files"
        )


def _tell_difference(found: list[bytes], names: Iterable[str]) -> str:
    """Return where the first rank that differs from rank 0 does, nothing if all are alike."""
    for rank, other in enumerate(found):
        differ = [name for i, name in enumerate(names) if other[32 * i : 32 * i + 32] != found[0][32 * i : 32 * i + 32]]
        if differ:
            return f"rank {rank} differs from rank 0 in {', '.join(differ)}"
    return ""


def _digest(value: Any) -> bytes:
    total = sha256()
    _feed(total, value)
    return total.digest()


def _feed(total: Any, value: Any) -> None:
    """Hash a value by what it holds; of objects that are no records, by their kind alone."""
    value = value.item() if isinstance(value, np.generic) else value
    kind = type(value)
    if isinstance(value, np.ndarray):
        total.update(f"{value.dtype.str}{value.shape}".encode())
        flat = value.reshape(-1)  # maybe one number that stands for all
        for first in range(0, len(flat), _PIECE):
            total.update(np.ascontiguousarray(flat[first : first + _PIECE]).view(np.uint8).data)
    elif value is None or isinstance(value, (bool, int, float, str)):
        total.update(f"{value!r};".encode())
    else:
        parts = list(_parts(value))
        total.update(f"{value if isinstance(value, type) else kind} {len(parts)};".encode())
        for part in parts:
            _feed(total, part)


def _parts(value: Any) -> Iterable[Any]:
    """Return what a record, a mapping or a sequence holds."""
    if isinstance(value, Mapping):
        return (part for name in sorted(value) for part in (name, value[name]))
    if isinstance(value, (tuple, list)):
        return value
    return [vars(value)[one.name] for one in fields(value)] if is_dataclass(type(value)) else ()
