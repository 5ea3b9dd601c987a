"""A run from Python: `simulate`."""

import json
import signal
import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from p2pkm.channel.byzantine import Byzantine
from p2pkm.channel.quantization import Quantization
from p2pkm.channel.sampled_faults import Faults
from p2pkm.channel.stale_policy import StalePolicy
from p2pkm.core.batch import Floats
from p2pkm.core.cache import digest
from p2pkm.core.errors import DataError, ExperimentError, P2PKMError
from p2pkm.core.termination import STOPPED
from p2pkm.core.validation import bounded, check_near, numeric, path_of, single, whole
from p2pkm.core.version import __version__
from p2pkm.data.shards import Shards
from p2pkm.data.stream import DataStream
from p2pkm.engine.build_run import RunConfig, build_run, check_options
from p2pkm.engine.receive_shard import receive_part
from p2pkm.engine.run_job import RankPart, RootHooks, run_job
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import asked_to_stop
from p2pkm.engine.state_tree import split
from p2pkm.experiments.progress_line import ProgressLine
from p2pkm.methods.declaration import check_declaration
from p2pkm.methods.init.given import check_start
from p2pkm.methods.init.pipelines import place_graph
from p2pkm.metrics.result import Result
from p2pkm.metrics.summary import OptionalMetrics
from p2pkm.network.graph import Topology
from p2pkm.network.link_model import LinkModel
from p2pkm.network.rank_partition import RankPartition, choose
from p2pkm.network.transport import World
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import Checkpoint, CheckpointWriter, newest
from p2pkm.storage.lock import Lock

if TYPE_CHECKING:
    import networkx as nx

    from topologies import CSRGraph, TimeVaryingGraph


def simulate(  # noqa: PLR0913 - the public signature
    algorithm: Any, graph: "nx.Graph | CSRGraph | TimeVaryingGraph | Topology | None", shards: Shards, *,
    rounds: int | None = None, all_rounds: bool = False, seed: int = 0, start: Any = None,
    record_every: int | None = None, baselines: bool = True, allow_disconnected: bool = False,
    rank_partition: Literal["auto", "blocks", "metis"] = "auto",
    link_model: LinkModel | str | None = None,
    faults: Faults | str | None = None, stale_policy: StalePolicy | str | None = None,
    byzantine: Byzantine | str | int | None = None, min_cluster_size: int = 0, noise: float = 0.0,
    quantize: Quantization | str | None = "auto", transforms: str | None = None,
    scale: Literal["none", "standard", "minmax"] = "none",
    missing: Literal["refuse", "drop", "mean", "median"] = "refuse",
    silhouette: bool = False, true_centers: Any = None,
    checkpoint: str | Path | None = None, checkpoint_every: int | None = None, k_max: int | None = None,
    stream: DataStream | str | None = None, progress: bool = True,
) -> Result:  # fmt: skip
    """Run a method on a communication graph and return the same result on every rank.

    Under ``mpirun`` the devices are dealt to the ranks; without it one process hosts all of them, with the same bits.

    Parameters
    ----------
    algorithm : Algorithm
        For example ``p2pkm.GTVMin(16)`` or ``p2pkm.FKM(16)``.
    graph : networkx.Graph, topologies.CSRGraph, topologies.TimeVaryingGraph, Topology or None
        Undirected; device i is its i-th node in sorted order. None: the star of a server method, whose hub is one more
        device, without points.
    shards : Shards
        The points of every device.
    rounds : int, optional
        Most rounds of the last stage; None: the method's default (150 for GTVMin).
    all_rounds : bool
        Whether every stage plays all of its rounds, also when all devices have converged: when stages and the run end
        then depends on the graph and the options alone, and tells nothing about the points. Stages before the method
        have as many rounds as the graph can take.
    seed : int
    start : array_like of float64[n, k, d], optional
        Starting centroids, +inf for absent rows; skips the seeding stages.
    record_every : int, optional
        Record every so many rounds; None: 1, above 100,000 devices 1000. The last one of a stage always.
    baselines : bool
        Whether to compare with central k-means and with every device alone.
    allow_disconnected : bool
        Whether the graph may fall into several components.
    rank_partition : {"auto", "blocks", "metis"}
        How the devices are dealt to MPI ranks: in contiguous blocks, as METIS divides the graph (extra ``metis``), or
        as cuts fewer links; the result is the same.
    link_model : LinkModel or str, optional
        How fast devices and links are, as ``"wan:latency=0.05"``: the result then says how long the run would take;
        attributes `latency` and `bandwidth` of edges, `access` and `speed` of nodes go before the profile's figures.
    faults : Faults or str, optional
        What goes wrong, as ``"loss=0.1,dropout=0.02"``, or the path of a trace; see docs/faults.md.
    stale_policy : StalePolicy or str, optional
        What becomes of tables that faults keep from being replaced: ``"keep:age=8"`` (rounds), the default, ``"drop"``.
    byzantine : Byzantine, str or int, optional
        How many devices send wrong tables, and how, as ``"2:kind=flip,place=central"``; see
        `p2pkm.channel.byzantine.Byzantine`.
    min_cluster_size : int
        Suppression: rows of fewer own points are left out of all messages. No privacy guarantee.
    noise : float
        Standard deviation of the Gaussian noise on every row of centroids that is sent, in units of the standard
        deviation of the points (root mean square over coordinates); see `p2pkm.channel.noise`. No privacy guarantee.
    quantize : Quantization, str or None
        Send tables as integers, differences in whole steps: ``"rice"`` or ``"int8"``, perhaps with the bits of the step
        and the least number of steps of a row, as ``"rice:bits=12,threshold=1"``; see `p2pkm.channel.quantization`.
        ``"none"`` or None: as real numbers. ``"auto"``: GTVMin by default as ``"rice"``, all else as real numbers.
    transforms : str, optional
        What other packages do to messages, a list of specs such as ``"rounding:digits=3"``.
    scale : {"none", "standard", "minmax"}
        How the devices scale their features first, by messages; `Result.scaling` has shift and span.
    missing : {"refuse", "drop", "mean", "median"}
        What becomes of missing values, NaN in points of ``Shards.deal(..., missing=True)``: "mean",
        "median": the devices fill in that of all known values of the feature, which they find first, by messages.
        Otherwise there must be none.
    silhouette : bool
        Whether to compute the silhouettes, too.
    true_centers : array_like of float64[c, d], optional
        Known centers to measure the distance to, in the units of the points.
    checkpoint : str or Path, optional
        Folder for checkpoints. If it has one, the run goes on from the last: a call with the same arguments, on any
        number of ranks, ends with the bits of a run without an interruption.
        Ctrl-C and SIGTERM let it end with its round and write a last one; then they take their usual course.
    checkpoint_every : int, optional
        Rounds between two checkpoints; None: about every 30 s.
    k_max : int, optional
        The devices first choose a number of clusters from 1 to this, by messages (`p2pkm.methods.init.choose_k`); the
        method has it in the place of its own k, which is not used: ``simulate(p2pkm.GTVMin(1), ..., k_max=25)``.
    stream : DataStream or str, optional
        How points arrive, leave and move while the method runs, as ``"drawn:kind=slow,share=0.1"``, or the path of a
        data tape; see docs/drift.md. The run then takes all its rounds.
    progress : bool
        Whether to show on a terminal (on standard error) or in a notebook how far a run is that takes longer than half
        a second; elsewhere nothing is shown anyway.

    Raises
    ------
    TopologyError
        If the graph cannot be used, has another number of nodes than there are devices, or is given to a server
        method.
    DataError
        If there are fewer points than clusters, known centers have other features than the points, or the checkpoint
        is of another run (arguments, graph, points, version of p2pkm), or its folder cannot be used.
    ExperimentError
        If an option is out of range, the ranks were given different runs, or another run writes checkpoints there.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.path(3), shards, rounds=20, faults="loss=0.4")
    >>> round(result.summary["ratio_mean"], 2), result.summary["messages_lost"] > 0
    (1.01, True)
    """
    _check_kinds(algorithm, shards)
    check_declaration(type(algorithm), type(algorithm).__name__)
    seed = whole(seed, 0, "seed")
    flags = {"all_rounds": all_rounds, "baselines": baselines, "silhouette": silhouette, "progress": progress,
             "allow_disconnected": allow_disconnected}  # fmt: skip
    _check_flags(flags)
    folder = None if checkpoint is None else path_of(checkpoint, "checkpoint")
    if checkpoint_every is not None:
        whole(checkpoint_every, 1, "checkpoint_every")
        if checkpoint is None:
            raise ExperimentError("checkpoint_every is given without checkpoint, the folder; give both")
    if k_max is not None:
        algorithm = algorithm.with_k(whole(k_max, 1, "k_max"))
    options = RunOptions(
        rounds=rounds, all_rounds=all_rounds, seed=seed, start=start, record_every=record_every, baselines=baselines,
        allow_disconnected=allow_disconnected, rank_partition=rank_partition, link_model=link_model, faults=faults,
        stale_policy=stale_policy, byzantine=byzantine, min_cluster_size=min_cluster_size, noise=noise,
        quantize=quantize, transforms=transforms, scale=scale, missing=missing, stream=stream, k_max=k_max,
        clusters=None if k_max is None else "auto", checkpoint=checkpoint, checkpoint_every=checkpoint_every,
    )  # fmt: skip
    world = connect()
    check_options(algorithm, options, world.size)
    topology = place_graph(algorithm, graph, shards.n, shards.names)
    shards = shards if topology.hub < 0 else shards.with_hub()
    config = build_run(algorithm, options, topology, shards, ranks=world.size, graph=graph)
    given = None if start is None else _read_start(start, algorithm, shards, scale)
    centers = None if true_centers is None else check_centers(true_centers, shards.d)
    names = {name: None if (one := getattr(options, name)) is None else str(one)
             for name in ("stream", "link_model", "faults")}  # fmt: skip
    names["stale_policy"] = None if options.faults is None else str(options.stale_policy or StalePolicy.keep())
    hooks = RootHooks(scores=OptionalMetrics(silhouette, centers), names=names)
    with ExitStack() as held:
        if progress and world.rank == 0:
            line = held.enter_context(closing(ProgressLine(algorithm.name, config.rounds)))
            hooks = replace(hooks, sink=line)
        writer, saved, refusal = None, None, None
        if folder is not None and world.rank == 0:
            writer, saved, refusal = _open(folder, checkpoint_every, _identify(config, given), held)
        part = _deal(config, shards, given, rank_partition, world, saved, refusal)
        if checkpoint is not None:
            part = replace(part, interrupted=held.enter_context(asked_to_stop()))
        result = run_job(config, part, world, replace(hooks, checkpoints=writer))
    stopped = part.interrupted() or STOPPED.get(result.summary["termination"], 128) - 128
    if stopped:
        signal.raise_signal(stopped)
    return result


def _check_flags(flags: dict[str, Any]) -> None:
    """Reject arrays and lists where yes or no is expected."""
    for name, value in flags.items():
        single(value, name)


def _check_kinds(algorithm: Any, shards: Any) -> None:
    """Refuse the name or the class of a method, and bare rows."""
    if isinstance(algorithm, (str, type)):
        raise ExperimentError(f"algorithm is {algorithm!r}; expected a method, such as p2pkm.GTVMin(16)")
    if not isinstance(shards, Shards):
        raise ExperimentError(
            f"shards are of type {type(shards).__name__}; expected p2pkm.Shards; "
            "p2pkm.Shards.deal(points, device, devices=n) makes them of points and the device of each"
        )


def _identify(config: RunConfig, start: Floats | None) -> dict[str, Any]:
    """Return what a run must have in common with the one that goes on with it; points are compared by themselves."""
    return {"version": __version__, "start": None if start is None else digest(start).hex()} | {
        name: found.hex() for name, found in config.digests().items()
    }


def _open(
    folder: Path, every: int | None, facts: dict[str, Any], held: ExitStack
) -> tuple[CheckpointWriter | None, Checkpoint | None, P2PKMError | None]:
    """Hold a folder of checkpoints; return what writes them, the last one, and why the folder is refused."""
    try:
        lock = held.enter_context(Lock(folder))
        saved = newest(folder, _tell)
        found = facts if saved is None else saved.facts
        differ = sorted(name for name in {*facts, *found} if facts.get(name) != found.get(name))
        if differ:
            raise DataError(
                f"it is of a run with another {', '.join(differ)}; call with the arguments of that run, or choose a "
                "new folder"
            )
    except ExperimentError as error:  # the folder is in use
        return None, None, error
    except (P2PKMError, OSError) as error:
        return None, None, DataError(f"checkpoint {folder} cannot be used: {error}")
    return CheckpointWriter(lock, every, lambda: facts, _tell), saved, None


def _deal(  # noqa: PLR0913 - what is dealt
    config: RunConfig, shards: Shards, start: Floats | None, wish: str, world: World, saved: Checkpoint | None,
    refusal: P2PKMError | None,
) -> RankPart:  # fmt: skip
    """Return this rank's part of points, start and checkpoint; rank 0 may refuse, then all do."""
    topology, order = config.topology, None
    if world.rank == 0:
        order = choose(topology, shards.sizes, world.size, wish).to_arrays()
        order |= {} if refusal is None else {"refusal": _encode(str(refusal)), "code": np.array(refusal.code)}
        order |= {} if saved is None else {"saved": _encode(json.dumps(saved.outline))}
    order = world.broadcast(order)
    if "refusal" in order:
        kind = ExperimentError if order["code"] == ExperimentError.code else DataError
        raise kind(order["refusal"].tobytes().decode())
    division = RankPartition.from_arrays(order)
    ids = division.of(world.rank)
    ids = ids[ids < topology.n]  # all of them, unless the ranks were given different graphs, which `run_job` refuses
    part = shards.take(ids).to_arrays() | ({} if start is None else {"start": start[ids]})
    if "saved" in order:
        more = None if saved is None else partial(split, saved.outline, saved.arrays, topology, division)
        part |= world.scatter(None if more is None else map(more, range(world.size)))
    found = receive_part(world, order, part)
    if world.size == 1:
        return found
    digests = {"points": digest(*shards.to_arrays().values()), "start": digest(*([] if start is None else [start]))}
    return replace(found, given=digests)


def _encode(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


def _tell(note: str) -> None:
    print(f"p2pkm: {note}", file=sys.stderr, flush=True)


def _read_start(start: Any, algorithm: Any, shards: Shards, scale: str) -> Floats:
    """Return given centroids, one set for each device; unless points are scaled, near enough to the points."""
    found = check_start(start, shards.n, algorithm.k, shards.d, shared=algorithm.traits.needs_shared_start)
    if scale == "none":
        check_near(shards.points, found[found[:, :, 0] < np.inf], "the points and start")
    return found


def check_centers(centers: Any, d: int) -> Floats:
    """Return known centers as float64[c, d]."""
    found: Floats = numeric(centers, "true_centers")
    bounded(found, "true_centers")
    if found.ndim != 2 or found.shape[1] != d:
        raise DataError(f"true_centers have shape {found.shape}; expected (number of centers, {d}), as the points")
    return found
