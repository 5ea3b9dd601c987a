"""Python interface to a single run: `simulate`."""

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from p2pkm.channel.byzantine import Byzantine
from p2pkm.channel.compression import Compression
from p2pkm.channel.quantization import Quantization
from p2pkm.channel.sampled_faults import Faults
from p2pkm.channel.stale_policy import StalePolicy
from p2pkm.core.batch import Floats
from p2pkm.core.digest import digest
from p2pkm.core.errors import DataError, ExperimentError, P2PKMError, name_arguments
from p2pkm.core.keywords import show_call, suggest_keywords
from p2pkm.core.termination import STOPPED
from p2pkm.core.validation import as_path, check_integer, check_near, check_scalar
from p2pkm.core.version import __version__
from p2pkm.data.held_out import hold_out
from p2pkm.data.shards import Shards
from p2pkm.data.stream import DataStream
from p2pkm.engine.build_run import Run, build_run, check_options
from p2pkm.engine.run_job import Observers, play, report
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import asked_to_stop
from p2pkm.experiments.config import check_centers
from p2pkm.experiments.console import print_note
from p2pkm.experiments.deal import take_part
from p2pkm.experiments.object_content import wrap_function
from p2pkm.experiments.progress_line import ProgressLine
from p2pkm.experiments.read_values import check_order, count_clusters, read_graph, read_method, read_points
from p2pkm.experiments.warn_once import warn
from p2pkm.kernels.compile_time import announce_compilation
from p2pkm.methods.init.given import check_start
from p2pkm.methods.init.pipelines import place_graph
from p2pkm.metrics.registry import read_metrics, request
from p2pkm.metrics.result import Result
from p2pkm.metrics.summary import OptionalMetrics
from p2pkm.network.client_share import ClientShare
from p2pkm.network.graph import Topology, convert_foreign
from p2pkm.network.link_model import LinkModel
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import Checkpoint, CheckpointWriter, load_newest
from p2pkm.storage.lock import Lock

if TYPE_CHECKING:
    import networkx as nx

    from topologies import CSRGraph, TimeVaryingGraph


@suggest_keywords
@show_call("p2pkm.simulate(p2pkm.GTVMin(3), 'ring', X, devices=16), with points X of shape (m, d)")
def simulate(
    algorithm: Any, graph: "str | nx.Graph | CSRGraph | TimeVaryingGraph | Topology | None", shards: Any, *,
    devices: Any = None, partition: Any = None, clusters: int | Literal["auto"] | None = None,
    rounds: int | None = None, all_rounds: bool = False, seed: int = 0, start: Any = None,
    record_every: int | None = None, baselines: bool = True, allow_disconnected: bool = False,
    rank_partition: Literal["auto", "blocks", "metis"] = "auto",
    link_model: LinkModel | str | Callable[..., Any] | None = None,
    faults: Faults | str | None = None, stale_policy: StalePolicy | str | Callable[..., Any] | None = None,
    deadline: float | None = None, client_share: ClientShare | str | float | None = None,
    byzantine: Byzantine | str | int | None = None, min_cluster_size: int = 0, noise: float = 0.0,
    quantize: Quantization | str | None = "auto", compress: Compression | str | None = None, transforms: Any = None,
    scale: str | Mapping[str, Sequence[float]] = "none",
    missing: Literal["refuse", "drop", "mean", "median"] = "refuse",
    test_share: float = 0.0, silhouette: bool = False, true_centers: Any = None,
    checkpoint: str | Path | None = None, checkpoint_every: int | None = None, k_max: int | None = None,
    stream: DataStream | str | None = None, metrics: Any = (), progress: bool = True,
    on_record: Callable[[dict[str, Any]], None] | None = None,
) -> Result:  # fmt: skip
    """Run a method on a communication graph; every rank returns the same result.

    Under ``mpirun`` the devices are distributed over the ranks; otherwise one process hosts all of them. Results are
    bit-identical.

    Parameters
    ----------
    algorithm : str, Algorithm or ServerMethod, or its class
        Text as on the command line, such as ``"gtvmin:coupling=30"``, a method such as ``p2pkm.GTVMin(16)``, or a class
        such as ``p2pkm.FKM``, which takes `clusters`.
    graph : str, networkx.Graph, igraph.Graph, matrix, CSRGraph, TimeVaryingGraph, Topology or None
        Text such as ``"small-world:degree=4"``, of which random graphs take `seed`, or an undirected communication
        graph; device i is its i-th node in sorted order. Of a sparse or dense matrix, values other than 0 are the
        weights of links. None: the star of a server method, whose hub is an additional device without points.
    shards : Shards, array of shape (m, d), pair of an array and its labels, DataFrame, pyarrow.Table, Table, or str
        Points. A table of pandas, polars or pyarrow may have a column device or client, see `p2pkm.Shards.deal`. Text
        is a generator or a file, such as ``"grid16:points=50"``.
    devices : int, or array_like of int or str of shape (m,), optional
        Device of each row of `shards`: numbers from 0, of which some may be without points, or names. An int is the
        number of devices, to which `partition` assigns the rows. None: the number of nodes of a graph that is an
        object, a file or of one size, else 16.
    partition : str, array_like of int or str of shape (m,), or callable, optional
        Text as on the command line, such as ``"dirichlet:alpha=0.3"``, or the device of each row, as `devices`, or a
        function of the rows, float64[m, d], and the number of devices that returns it. None:
        the column of devices; with a number of devices, "dirichlet" for points with labels, else "iid".
    clusters : int or "auto", optional
        Number of clusters of a method that is text or a class. None: the number of classes of the labels, else 8.
        "auto": the devices first choose a number from 1 to `k_max` by messages (`p2pkm.methods.init.choose_k`), also
        in place of the k of a method object.
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
    link_model : LinkModel, str or callable, optional
        Speed of devices and links, such as ``"wan:latency=0.05"``; the result then contains the simulated time. Edge
        attributes `latency` and `bandwidth` and node attributes `access` and `speed` override the profile. A function
        takes the `Topology` and returns a dict, see `p2pkm.network.link_model.LinkFunction`.
    faults : Faults or str, optional
        Random faults, such as ``"loss=0.1,dropout=0.02"``, or the path of a fault trace; see
        docs/howto/time-and-faults.md.
    stale_policy : StalePolicy, str or callable, optional
        Use of tables that faults keep from being replaced: ``"keep:age=8"``, the default, keeps them for 8 rounds;
        ``"drop"`` discards them. A function of ages, senders and receivers returns which are used, see `StalePolicy`.
    deadline : float, optional
        Longest time of a round of the method on the link model, in seconds. Messages that arrive later are used in the
        next round, or with ``stale_policy="drop"`` lost.
    client_share : ClientShare, str or float, optional
        Share of the clients that a server asks in each round, such as 0.1 or ``"0.1:by=size"``; the others neither
        compute nor send in this round.
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
    compress : Compression or str, optional
        Part of each table that is sent, such as ``"topk:share=0.1"`` or ``"randomk:share=0.1"``; what is not sent
        remains in the difference to the neighbors' tables, and is sent later. See `p2pkm.channel.compression`.
    transforms : str, Transform, or list of them, optional
        Message transforms: objects such as ``Rounding(digits=3)``, or comma-separated specs of installed plug-ins, such
        as ``"rounding:digits=3"``.
    scale : {"none", "standard", "minmax"} or dict, default="none"
        Feature scaling, which the devices compute by messages before the first stage; `Result.scaling` has shift and
        span. A dict such as ``{"age": (0, 100), "bmi": (10, 50)}`` has ranges of the features that are known without
        looking at the points; they become -1 to 1, and no message is sent. ``{"": (0, 100)}`` is the range of all
        features that have no other.
    missing : {"refuse", "drop", "mean", "median"}, default="refuse"
        Treatment of missing values (NaN) in points from ``Shards.deal(..., missing=True)``.

        * "mean", "median": the devices compute this statistic of each feature by messages and fill it in.
        * "refuse", "drop": missing values are an error; rows are dropped only when a file is read.
    test_share : float, default=0.0
        Share of the points of each device, from 0 to below 1, that no stage and no baseline sees, drawn by the seed.
        ``Result.devices`` has the scores of each device on these test points, and the summary compares them with one
        clustering for all devices and with each device alone. Labels and clusters of the result are those of the other
        points. Shards that have test points (`Shards.with_tests`) keep these.
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
        Largest number of clusters that ``clusters="auto"`` considers; None: 25, or the number of points.
    stream : DataStream or str, optional
        Arrival, departure and movement of points during the method, such as ``"drawn:kind=slow,share=0.1"``, or the
        path of a data trace; see docs/howto/streams.md. The run then takes all its rounds.
    metrics : callable, Metric, or list of them
        Functions of the `Result`, whose values ``Result.summary`` contains by their names. A `Metric` with `per_device`
        is also in ``Result.devices``.
    progress : bool, default=True
        Show a progress line after half a second, on a terminal (standard error) or in a notebook.
    on_record : callable, optional
        Called on the first rank with a copy of each record of ``Result.rounds`` when its round ends, to log elsewhere.

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

    Warns
    -----
    sklearn.exceptions.ConvergenceWarning
        If more than a tenth of the devices with points end without centroids. ``summary["failure"]`` has the text.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.path(3), shards, rounds=20, faults="loss=0.4")
    >>> round(result.summary["ratio_mean"], 2), result.summary["messages_lost"] > 0
    (1.01, True)

    The device of each row in one call:

    >>> sites = ["Bern", "Oslo", "Rome"] * 8
    >>> result = p2pkm.simulate("gtvmin", "complete", X, devices=sites, clusters=3, rounds=20)
    >>> result.topology.names
    ('Bern', 'Oslo', 'Rome')
    """
    check_order(algorithm, graph, shards)
    method = read_method(algorithm, clusters)
    graph = graph if isinstance(graph, str) else convert_foreign(graph)
    seed = check_integer(seed, 0, "seed")
    shards = read_points(
        shards,
        devices,
        partition,
        graph,
        missing=missing,
        seed=seed,
        k=method.k if clusters is None or isinstance(clusters, str) else clusters,
    )
    algorithm = method.build(count_clusters(method, clusters, shards.labels))
    _check_flags(
        all_rounds=all_rounds,
        baselines=baselines,
        silhouette=silhouette,
        progress=progress,
        allow_disconnected=allow_disconnected,
    )
    if on_record is not None and not callable(on_record):
        raise ExperimentError(f"on_record is {on_record!r}; expected a function of a record, such as on_record=print")
    folder = None if checkpoint is None else as_path(checkpoint, "checkpoint")
    if checkpoint_every is not None:
        check_integer(checkpoint_every, 1, "checkpoint_every")
        if checkpoint is None:
            raise ExperimentError("checkpoint_every requires checkpoint, the folder. Set both, or remove it")
    link_model, stale_policy = (
        wrap_function(name, value) for name, value in (("link_model", link_model), ("stale_policy", stale_policy))
    )
    options = RunOptions(
        rounds=rounds, all_rounds=all_rounds, seed=seed, start=start, record_every=record_every, baselines=baselines,
        allow_disconnected=allow_disconnected, rank_partition=rank_partition, link_model=link_model, faults=faults,
        stale_policy=stale_policy, deadline=deadline, client_share=client_share, byzantine=byzantine,
        min_cluster_size=min_cluster_size,
        noise=noise, quantize=quantize, compress=compress, transforms=transforms, scale=scale, missing=missing,
        stream=stream, k_max=k_max, clusters=clusters, checkpoint=checkpoint,
        checkpoint_every=checkpoint_every, test_share=test_share,
    )  # fmt: skip
    requested = read_metrics(metrics, "metrics")
    world = connect()
    channel = check_options(algorithm, options)
    graph, attributes = read_graph(graph, algorithm, shards, options)
    topology = place_graph(algorithm, graph, shards.n, shards.names)
    names = shards.names
    shards, notes = hold_out(shards, test_share, seed)
    shards = shards.place(topology, names)
    if clusters == "auto":
        # The devices choose k later; the run is checked for the largest one.
        options = options.replaced(k_max=options.find_k_max(shards.m))
        algorithm = algorithm.with_k(options.k_max)
    run = build_run(algorithm, options, topology, shards, graph=attributes, channel=channel)
    run = replace(
        run,
        options=options,
        points=shards,
        start=None if start is None else _read_start(start, algorithm, shards, topology, scale),
        scores=OptionalMetrics(silhouette, None if true_centers is None else check_centers(true_centers, shards.d)),
    )
    observers = Observers(names=_name_inputs(options))
    with ExitStack() as stack:
        stack.enter_context(request(requested))
        listeners: list[Callable[[dict[str, Any]], None]] = []
        if progress and world.rank == 0:
            announce_compilation(print_note)
            listeners.append(stack.enter_context(closing(ProgressLine(algorithm.name, run.rounds))))
        if on_record is not None and world.rank == 0:
            listeners.append(lambda record: on_record(dict(record)))
        observers = replace(observers, on_record=partial(_tell_all, listeners))
        writer, saved, refusal = None, None, None
        if folder is not None and world.rank == 0:
            writer, saved, refusal = _open(folder, checkpoint_every, _identify(run), stack)
        rank = take_part(run, world, saved, refusal)
        if checkpoint is not None:
            rank = replace(rank, interrupted=stack.enter_context(asked_to_stop()))
        result = report(play(rank, replace(observers, checkpoints=writer)))
    schema = None if shards.schema is None else shards.schema.fill_in(shards.points, shards.weights, missing)
    result = replace(result, schema=schema, copied=shards.copied, notes=[*result.notes, *run.notes, *notes])
    stopped = rank.interrupted() or STOPPED.get(result.summary["termination"], 128) - 128
    if stopped:
        # The run has only postponed the signal; now it takes its usual effect.
        signal.raise_signal(stopped)
    if world.rank == 0 and (failure := result.summary["failure"]):
        from sklearn.exceptions import ConvergenceWarning

        warn(name_arguments(failure), ConvergenceWarning, "centroids")
    return result


def _tell_all(listeners: list[Callable[[dict[str, Any]], None]], record: dict[str, Any]) -> None:
    for listener in listeners:
        listener(record)


def _name_inputs(options: RunOptions) -> dict[str, Any]:
    """Spell the inputs that the summary names."""
    names: dict[str, Any] = {"deadline": options.deadline}
    for name in ("stream", "link_model", "faults", "client_share"):
        value = getattr(options, name)
        names[name] = None if value is None else str(value)
    is_lossy = options.faults is not None or options.deadline is not None
    names["stale_policy"] = str(options.stale_policy or StalePolicy.keep()) if is_lossy else None
    return names


def _check_flags(**flags: Any) -> None:
    """Reject arrays and lists where True or False is expected."""
    for name, value in flags.items():
        check_scalar(value, name)


def _identify(run: Run) -> dict[str, Any]:
    """Digest what a run and its continuation must share, except the points, which each rank compares."""
    return {"version": __version__, "start": None if run.start is None else digest(run.start).hex()} | {
        name: value.hex() for name, value in run.digests().items()
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


def _read_start(start: Any, algorithm: Any, shards: Shards, topology: Topology, scale: Any) -> Floats:
    """Check initial centroids, float64[n, k, d], and, unless points are scaled, their distance to the points.

    A server starts from the centroids of device 0.
    """
    shared = algorithm.traits.needs_shared_start
    centroids = check_start(start, topology, algorithm.k, shards.d, shared=shared)
    if topology.hub >= 0:
        centroids = np.concatenate((centroids, centroids[:1]))
    if scale == "none":
        check_near(shards.points, centroids[centroids[:, :, 0] < np.inf], "the points and start")
    return centroids
