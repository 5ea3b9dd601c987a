"""Python interface to a single run: `simulate`."""

import json
import signal
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
from p2pkm.core.validation import as_floats, as_path, check_integer, check_magnitude, check_near, check_scalar
from p2pkm.core.version import __version__
from p2pkm.data.identifiers import FILLING
from p2pkm.data.shards import Shards
from p2pkm.data.stream import DataStream
from p2pkm.engine.build_run import RunConfig, build_run, check_options
from p2pkm.engine.receive_shard import receive_part
from p2pkm.engine.run_job import RankPart, RootHooks, run_job
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import asked_to_stop
from p2pkm.engine.state_tree import split
from p2pkm.experiments.console import print_note
from p2pkm.experiments.progress_line import ProgressLine
from p2pkm.methods.declaration import check_declaration
from p2pkm.methods.init.given import check_start
from p2pkm.methods.init.pipelines import place_graph
from p2pkm.metrics.result import Result
from p2pkm.metrics.summary import OptionalMetrics
from p2pkm.network.graph import Topology, convert_foreign
from p2pkm.network.link_model import LinkModel
from p2pkm.network.rank_partition import RankPartition, choose
from p2pkm.network.transport import World
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import Checkpoint, CheckpointWriter, load_newest
from p2pkm.storage.lock import Lock

if TYPE_CHECKING:
    import networkx as nx

    from topologies import CSRGraph, TimeVaryingGraph


def simulate(  # noqa: PLR0913 - the public signature
    algorithm: Any, graph: "nx.Graph | CSRGraph | TimeVaryingGraph | Topology | None", shards: Any, *,
    partition: Any = None, rounds: int | None = None, all_rounds: bool = False, seed: int = 0, start: Any = None,
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
    """Run a method on a communication graph; every rank returns the same result.

    Under ``mpirun`` the devices are distributed over the ranks; otherwise one process hosts all of them. Results are
    bit-identical.

    Parameters
    ----------
    algorithm : Algorithm or ServerMethod
        For example ``p2pkm.GTVMin(16)`` or ``p2pkm.FKM(16)``.
    graph : networkx.Graph, igraph.Graph, sparse or dense matrix, CSRGraph, TimeVaryingGraph, Topology or None
        Undirected communication graph; device i is its i-th node in sorted order. Of a matrix, values other than 0 are
        the weights of links. None: the star of a server method, whose hub is an additional device without points.
    shards : Shards, DataFrame of pandas or polars, pyarrow.Table, Table, or array_like of shape (m, d)
        Points of each device; a table has a column device or client, see `p2pkm.Shards.deal`, unless `partition` is
        given.
    partition : array_like of int or str, shape (m,), optional
        Device of each row of `shards`, such as ``p2pkm.partition.iid(m, 4)``: numbers from 0, of which some may be
        without points, or names.
    rounds : int, optional
        Maximum number of rounds of the method; None: the default of the method (150 for GTVMin).
    all_rounds : bool, default=False
        Run all rounds of every stage even after convergence, so that the length of the run depends only on graph and
        options and reveals nothing about the points. Initialization stages then run the largest number of rounds that
        the graph can require.
    seed : int, default=0
        Seed of all random draws, from 0 to 2^63 - 1.
    start : array_like of shape (n_devices, n_clusters, n_features), optional
        Initial centroids, +inf for absent rows; replaces the initialization stages.
    record_every : int, optional
        Number of rounds between two records; the last round of a stage is always recorded. None: 1, or 1000 above
        100,000 devices.
    baselines : bool, default=True
        Also compute central k-means and the local-only baseline.
    allow_disconnected : bool, default=False
        Accept a graph with several connected components.
    rank_partition : {"auto", "blocks", "metis"}, default="auto"
        Assignment of devices to MPI ranks; the result does not depend on it.

        * "blocks": contiguous blocks of devices.
        * "metis": graph partition by METIS (extra ``metis``).
        * "auto": whichever of the two cuts fewer links.
    link_model : LinkModel or str, optional
        Speed of devices and links, such as ``"wan:latency=0.05"``; the result then contains the simulated time. Edge
        attributes `latency` and `bandwidth` and node attributes `access` and `speed` override the profile.
    faults : Faults or str, optional
        Random faults, such as ``"loss=0.1,dropout=0.02"``, or the path of a fault trace; see docs/howto/faults.md.
    stale_policy : StalePolicy or str, optional
        Use of tables that faults keep from being replaced: ``"keep:age=8"``, the default, keeps them for 8 rounds;
        ``"drop"`` discards them.
    byzantine : Byzantine, str or int, optional
        Number and behavior of devices that send wrong tables, such as ``"2:kind=flip,place=central"``; see
        `p2pkm.channel.byzantine.Byzantine`.
    min_cluster_size : int, default=0
        Suppression threshold: rows that stand for fewer local points are not sent. Not a privacy guarantee.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise added to every centroid row sent, in standard deviations of the points
        (root mean square over features); see `p2pkm.channel.noise`. Not a privacy guarantee.
    quantize : Quantization, str or None, default="auto"
        Integer encoding of message tables; see `p2pkm.channel.quantization`.

        * "rice", "int8": differences in multiples of a step size, optionally with the bits of the step and the smallest
          number of steps for which a row is sent, such as ``"rice:bits=12,threshold=1"``.
        * "none" or None: 8 bytes per value.
        * "auto": "rice" for GTVMin with default options, otherwise "none".
    transforms : str, optional
        Message transforms of installed plug-ins: comma-separated specs such as ``"rounding:digits=3"``.
    scale : {"none", "standard", "minmax"}, default="none"
        Feature scaling, which the devices compute by messages before the first stage; `Result.scaling` has shift and
        span.
    missing : {"refuse", "drop", "mean", "median"}, default="refuse"
        Treatment of missing values (NaN) in points from ``Shards.deal(..., missing=True)``.

        * "mean", "median": the devices compute this statistic of each feature by messages and fill it in.
        * "refuse", "drop": missing values are an error; rows are dropped only when a file is read.
    silhouette : bool, default=False
        Also compute silhouette coefficients.
    true_centers : array_like of shape (n_centers, n_features), optional
        Known centers, in the units of the points; the result contains the distance to them.
    checkpoint : str or Path, optional
        Folder of checkpoints. If it contains one, the run continues from the last: a call with the same arguments, on
        any number of ranks, ends bit-identical to an uninterrupted run. Ctrl-C and SIGTERM end the run after the
        current round, write a checkpoint, and then take effect as usual.
    checkpoint_every : int, optional
        Rounds between two checkpoints; None: about every 30 s.
    k_max : int, optional
        If given, the devices first choose a number of clusters from 1 to `k_max` by messages
        (`p2pkm.methods.init.choose_k`). It replaces the k of the method: ``simulate(p2pkm.GTVMin(1), ..., k_max=25)``.
    stream : DataStream or str, optional
        Arrival, departure and movement of points during the method, such as ``"drawn:kind=slow,share=0.1"``, or the
        path of a data trace; see docs/howto/streams.md. The run then takes all its rounds.
    progress : bool, default=True
        Show a progress line after half a second, on a terminal (standard error) or in a notebook.

    Returns
    -------
    Result

    Raises
    ------
    TopologyError
        If the graph is invalid, its number of nodes differs from the number of devices, or the method is a server
        method, which builds its own star.
    DataError
        If there are fewer points than clusters, the known centers and the points have different features, the
        checkpoint belongs to another run (arguments, graph, points, version of p2pkm), or its folder cannot be used.
    ExperimentError
        If an option is out of range, the ranks call with different arguments, or another run uses the checkpoint
        folder.

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
    _check_algorithm(algorithm)
    graph = convert_foreign(graph)
    shards = _read_shards(shards, missing, partition, graph)
    seed = check_integer(seed, 0, "seed")
    _check_flags(
        all_rounds=all_rounds,
        baselines=baselines,
        silhouette=silhouette,
        progress=progress,
        allow_disconnected=allow_disconnected,
    )
    folder = None if checkpoint is None else as_path(checkpoint, "checkpoint")
    if checkpoint_every is not None:
        check_integer(checkpoint_every, 1, "checkpoint_every")
        if checkpoint is None:
            raise ExperimentError("checkpoint_every requires checkpoint, the folder. Set both, or remove it")
    if k_max is not None:
        algorithm = algorithm.with_k(check_integer(k_max, 1, "k_max"))
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
    shards = shards.place(topology, shards.names)
    config = build_run(algorithm, options, topology, shards, ranks=world.size, graph=graph)
    start_centroids = None if start is None else _read_start(start, algorithm, shards, topology, scale)
    centers = None if true_centers is None else check_centers(true_centers, shards.d)
    hooks = RootHooks(scores=OptionalMetrics(silhouette, centers), names=_name_inputs(options))
    with ExitStack() as stack:
        if progress and world.rank == 0:
            line = stack.enter_context(closing(ProgressLine(algorithm.name, config.rounds)))
            hooks = replace(hooks, on_record=line)
        writer, saved, refusal = None, None, None
        if folder is not None and world.rank == 0:
            writer, saved, refusal = _open(folder, checkpoint_every, _identify(config, start_centroids), stack)
        part = _deal(config, shards, start_centroids, rank_partition, world, saved, refusal)
        if checkpoint is not None:
            part = replace(part, interrupted=stack.enter_context(asked_to_stop()))
        result = run_job(config, part, world, replace(hooks, checkpoints=writer))
    schema = None if shards.schema is None else shards.schema.fill_in(shards.points, shards.weights, missing)
    result = replace(result, schema=schema, copied=shards.copied)
    stopped = part.interrupted() or STOPPED.get(result.summary["termination"], 128) - 128
    if stopped:
        # The run has only postponed the signal; now it takes its usual effect.
        signal.raise_signal(stopped)
    return result


def _name_inputs(options: RunOptions) -> dict[str, str | None]:
    """Spell the inputs that the summary names."""
    names: dict[str, str | None] = {}
    for name in ("stream", "link_model", "faults"):
        value = getattr(options, name)
        names[name] = None if value is None else str(value)
    names["stale_policy"] = None if options.faults is None else str(options.stale_policy or StalePolicy.keep())
    return names


def _check_flags(**flags: Any) -> None:
    """Reject arrays and lists where True or False is expected."""
    for name, value in flags.items():
        check_scalar(value, name)


def _check_algorithm(algorithm: Any) -> None:
    """Reject the name or the class of a method, and an incomplete declaration."""
    if isinstance(algorithm, (str, type)):
        raise ExperimentError(f"algorithm is {algorithm!r}; expected a method, such as p2pkm.GTVMin(16)")
    check_declaration(type(algorithm), type(algorithm).__name__)


def _read_shards(points: Any, missing: str, partition: Any, graph: Any) -> Shards:
    """Return shards, or deal a table by its column of devices or by an array.

    Raises
    ------
    ExperimentError
        If the points do not have devices, or have them twice.
    """
    from p2pkm.data.readers.any_format import read_table
    from p2pkm.data.readers.frame import is_frame
    from p2pkm.data.table import Table

    if isinstance(partition, str):
        raise ExperimentError(
            f"partition is {partition!r}; expected an array, the device of each row. Use a function of "
            "p2pkm.partition, such as p2pkm.partition.iid(len(X), 4), or for a column of a table "
            f"p2pkm.Shards.deal(table, device={partition!r})"
        )
    if is_frame(points) or (isinstance(points, np.ndarray) and partition is not None):
        points = read_table(points, missing=missing)
        for note in points.notes or ():
            print_note(note)
    if isinstance(points, Shards) or (isinstance(points, Table) and points.device is not None):
        if partition is not None:
            raise ExperimentError(
                "partition cannot be combined with p2pkm.Shards or a column of devices, to which the points belong "
                "already. Remove partition, or drop the column"
            )
        return points if isinstance(points, Shards) else Shards.deal(points, missing=missing in FILLING)
    if not isinstance(points, Table):
        raise ExperimentError(
            f"shards are of type {type(points).__name__}; expected p2pkm.Shards or a table with a column device. Build "
            "shards, p2pkm.Shards.deal(points, device), or use an array with partition=, the device of each row"
        )
    devices = None if partition is None or graph is None else Topology.from_graph(graph).clients
    return Shards.deal(points, partition, devices=devices, missing=missing in FILLING)


def _identify(config: RunConfig, start: Floats | None) -> dict[str, Any]:
    """Digest what a run and its continuation must share, except the points, which each rank compares."""
    return {"version": __version__, "start": None if start is None else digest(start).hex()} | {
        name: value.hex() for name, value in config.digests().items()
    }


def _open(
    folder: Path, every: int | None, facts: dict[str, Any], stack: ExitStack
) -> tuple[CheckpointWriter | None, Checkpoint | None, P2PKMError | None]:
    """Lock a checkpoint folder; return its writer and last checkpoint, or the error that makes it unusable.

    The error is returned, not raised: the other ranks wait for a broadcast and must receive it, too.
    """
    try:
        lock = stack.enter_context(Lock(folder))
        saved = load_newest(folder, print_note)
        original = facts if saved is None else saved.facts
        changed = sorted(name for name in {*facts, *original} if facts.get(name) != original.get(name))
        if changed:
            raise DataError(
                f"it belongs to a run with different {', '.join(changed)}. Use the arguments of that run, or another "
                "folder"
            )
    except ExperimentError as error:
        # Another run has locked the folder; the message of the lock is complete.
        return None, None, error
    except (P2PKMError, OSError) as error:
        return None, None, DataError(f"checkpoint {folder} cannot be used: {error}")
    return CheckpointWriter(lock, every, lambda: facts, print_note), saved, None


def _deal(  # noqa: PLR0913 - one argument for each distributed item
    config: RunConfig, shards: Shards, start: Floats | None, partition: str, world: World, saved: Checkpoint | None,
    refusal: P2PKMError | None,
) -> RankPart:  # fmt: skip
    """Return this rank's points, initial centroids and checkpoint; raise the error of rank 0 on every rank.

    `partition` is the requested rank partition. All ranks hold all points already, so only the partition is broadcast.
    """
    topology, order = config.topology, None
    if world.rank == 0:
        order = choose(topology, shards.sizes, world.size, partition).to_arrays()
        if refusal is not None:
            order |= {"refusal": _encode(str(refusal)), "code": np.array(refusal.code)}
        if saved is not None:
            order["saved"] = _encode(json.dumps(saved.outline))
    order = world.broadcast(order)
    if "refusal" in order:
        kind = ExperimentError if order["code"] == ExperimentError.code else DataError
        raise kind(order["refusal"].tobytes().decode())
    division = RankPartition.from_arrays(order)
    ids = division.of(world.rank)
    # Ranks that call with different graphs would index out of range here; `run_job` compares digests and reports it.
    ids = ids[ids < topology.n]
    part = shards.take(ids).to_arrays() | ({} if start is None else {"start": start[ids]})
    if "saved" in order:
        split_state = None if saved is None else partial(split, saved.outline, saved.arrays, topology, division)
        part |= world.scatter(None if split_state is None else map(split_state, range(world.size)))
    own_part = receive_part(world, order, part)
    if world.size == 1:
        return own_part
    digests = {"points": digest(*shards.to_arrays().values()), "start": digest(*([] if start is None else [start]))}
    return replace(own_part, input_digests=digests)


def _encode(text: str) -> Any:
    """Encode text as an array of bytes, which can be broadcast."""
    return np.frombuffer(text.encode(), np.uint8)


def _read_start(start: Any, algorithm: Any, shards: Shards, topology: Topology, scale: str) -> Floats:
    """Check initial centroids, float64[n, k, d], and, unless points are scaled, their distance to the points.

    A server starts from the centroids of device 0.
    """
    shared = algorithm.traits.needs_shared_start
    centroids = check_start(start, topology.clients, algorithm.k, shards.d, shared=shared)
    if topology.hub >= 0:
        centroids = np.concatenate((centroids, centroids[:1]))
    if scale == "none":
        check_near(shards.points, centroids[centroids[:, :, 0] < np.inf], "the points and start")
    return centroids


def check_centers(centers: Any, d: int) -> Floats:
    """Convert known centers to float64[c, d] and check them.

    Raises
    ------
    DataError
        If the shape is wrong or a number is out of range.
    """
    array: Floats = as_floats(centers, "true_centers")
    check_magnitude(array, "true_centers")
    if array.ndim != 2 or array.shape[1] != d:
        raise DataError(f"true_centers has shape {array.shape}; expected (number of centers, {d})")
    return array
