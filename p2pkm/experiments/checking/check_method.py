"""Conformance checks for methods: `check_method`, the counterpart of scikit-learn's ``check_estimator``."""

import json
import random
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.quantization import Quantization
from p2pkm.channel.suppression import check_min_cluster_size
from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, SparseMessages
from p2pkm.core.spec import Spec, suggest
from p2pkm.core.traits import MessageContent
from p2pkm.data.shards import Shards
from p2pkm.data.size_estimate import Size
from p2pkm.engine.build_run import RunConfig, build_run
from p2pkm.engine.run_job import RankPart, RootHooks, run_job
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.state_tree import rebuild, split
from p2pkm.experiments.checking.watch_method import ContractChecker, Observer, PointReweigher, wrap_method
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.message_counts import StageTraffic, stage_traffic
from p2pkm.kernels.streams import shared_key
from p2pkm.methods.declaration import check_declaration
from p2pkm.methods.init.pipelines import needs_hub, place_graph, stages
from p2pkm.methods.init.registry import InitContext
from p2pkm.metrics.monitor import Record
from p2pkm.metrics.result import Result
from p2pkm.network.graph import Topology
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.local import LocalNetwork, LocalWorld
from p2pkm.network.rank_partition import RankPartition

_K, _D = 3, 2  # clusters and features of the test data
_SEED = 3
# Points of each device. 64 in total, a power of 2, so that the mean of grid points is exact; device 2 is empty.
_SIZES = (8, 7, 0, 9, 8, 1, 8, 23)
_CHANGED = 0  # device whose points differ in the second run
_UNSENT = 12345.0  # written into rows that are not sent, which no receiver may read
_MOST = 5  # devices listed in a message
_MIN_CLUSTER_SIZE = 2  # of the check "suppression": a row that stands for one point would equal it
_FIRST = ("shapes", "finite", "runs", "repeatable")  # if one of these fails, later checks are not meaningful


class Exchange(NamedTuple):
    """Messages of one exchange.

    Attributes
    ----------
    sent : list of bytes or tuple or None
        Table of each device, in a form that can be compared; None: nothing was sent.
    edges : int64[e, 2]
        Receiver and sender of each edge over which a table arrived.
    """

    sent: list[Any]
    edges: Integers


class MethodCheckError(AssertionError):
    """Failure of a method in one or more checks.

    Attributes
    ----------
    failed : dict of str to str
        Violation found by each failed check, by the name of the check.
    """

    def __init__(self, method: str, failed: Mapping[str, str]) -> None:
        super().__init__("\n".join(f"{method} fails the check {name!r}: {text}" for name, text in failed.items()))
        self.failed = dict(failed)


def check_method(
    method: Any,
    graph: Any = None,
    *,
    only: str | Collection[str] = (),
    skip: str | Collection[str] = (),
    rounds: int = 6,
) -> tuple[str, ...]:
    """Check that a method satisfies the contract of all methods.

    The method runs several times on 8 devices with 64 points in two dimensions, which takes about a second. One device
    is empty and one has a single point. In a test: ``def test_it(): p2pkm.check_method(MyMethod)``.

    Parameters
    ----------
    method : type or Algorithm or ServerMethod
        A class, which is instantiated with 3 clusters, ``MyMethod(3)``, or an instance.
    graph : networkx.Graph, optional
        Graph of 8 nodes; None: a ring. Server methods use their star.
    only, skip : str or collection of str, optional
        Names of the checks to run (default: all) and to omit:

        - ``"declaration"``: base class, traits, name, schedule and functions are present.
        - ``"shapes"``: states and messages have the shapes and types of `p2pkm.core.protocols.State` and
          `p2pkm.core.messages`, tables have at least the declared number of rows, and only active devices send.
        - ``"finite"``: each centroid is finite or absent (+inf in all columns), devices with points have at least one
          centroid, and messages are finite unless `p2pkm.core.traits.MessageContent` is ``OTHER``.
        - ``"runs"``: a run ends without an exception.
        - ``"repeatable"``: two runs with the same seed are bit-identical, whatever the state of NumPy's global
          generator.
        - ``"inputs"``: functions do not write into their arguments.
        - ``"parts"``: results for a batch and for its parts are bit-identical; one part is a single device, one is
          empty.
        - ``"ledger"``: receivers read only rows that were sent, which the ledger counts.
        - ``"resume"``: a run resumed from a checkpoint is bit-identical to an uninterrupted run.
        - ``"light-cone"``: messages of a device depend only on its local points and on received messages.
        - ``"plan"``: messages match `expected_messages`, or are fewer where rows may be absent.
        - ``"weights"``: point weights change the result if points do, unless the trait ``no_weights`` or
          ``ignores_weights`` is set; link weights change it if and only if the trait ``link_weights`` is set.
        - ``"suppression"``: with ``min_cluster_size`` no point is sent unchanged, unless the trait ``no_suppression``
          is set.
    rounds : int, default=6
        Maximum number of rounds of the method.

    Returns
    -------
    tuple of str
        Names of the checks that were run.

    Raises
    ------
    MethodCheckError
        If a check fails. This AssertionError has one line for each failed check: the violation, the rule, and a way to
        fix it. If shapes are wrong, a run raises an exception or is not repeatable, later checks are not run.
    ExperimentError
        If a check is unknown, or the run cannot be set up.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.check_method(p2pkm.ConsensusLloyd, only=("shapes", "plan"))
    ('shapes', 'plan')
    """
    kind = method if isinstance(method, type) else type(method)
    names = _choose(only, skip)
    try:
        check_declaration(kind, kind.__name__)
    except ExperimentError as error:
        raise MethodCheckError(kind.__name__, {"declaration": str(error)}) from None
    trial = _Trial(_seed_noise(kind(_K) if isinstance(method, type) else method), graph, rounds)
    failed = dict[str, str]()
    for name in names:
        failed[name] = trial.apply(name)
        if failed[name] and name in _FIRST:
            break
    if any(failed.values()):
        raise MethodCheckError(kind.__name__, {name: text for name, text in failed.items() if text})
    return names


def _seed_noise(method: Any) -> Any:
    """Seed the noise of a method that would draw it from the operating system, so that runs can be compared."""
    return method.replaced(noise_seed=_SEED) if method.traits.is_secret else method


def _choose(only: str | Collection[str], skip: str | Collection[str]) -> tuple[str, ...]:
    """Return the names of the checks to run, in their order."""
    included, excluded = ({names} if isinstance(names, str) else set(names) for names in (only, skip))
    for name in (*included, *excluded):
        if name not in CHECKS:
            raise ExperimentError(f"check {name!r} does not exist. {suggest(str(name), CHECKS)}")
    return tuple(name for name in CHECKS if name not in excluded and (not included or name in included))


class _TrialResult(NamedTuple):
    """Result of a trial run, its messages and its records."""

    result: Result
    exchanges: list[Exchange]
    records: list[Record]

    @property
    def bits(self) -> dict[str, Any]:
        """Values that must be equal in two runs with the same seed."""
        names = ("chain_sha256", "messages", "bytes", "wire_bytes", "rounds", "termination")
        summary = self.result.summary
        return {"centroids": self.result.centroids.tobytes()} | {name: summary[name] for name in names}


class _CrashError(Exception):
    """Exception of the method during a trial run."""


@dataclass(frozen=True)
class _Trial:
    """Trial runs of a method, each of which is made at most once and used by several checks."""

    method: Any
    graph: Any
    rounds: int

    def apply(self, name: str) -> str:
        """Run a check and return its violation, "" if there is none."""
        try:
            return CHECKS[name](self)
        except _CrashError as error:
            return str(error)

    @cached_property
    def topology(self) -> Topology:
        """Graph of the run; the star for a server method."""
        from topologies import ring

        on_star = needs_hub(self.method)
        graph = self.graph if self.graph is not None or on_star else ring(len(_SIZES))
        return place_graph(self.method, None if on_star else graph, len(_SIZES))

    @property
    def start(self) -> Floats | None:
        """Common initial centroids of all devices; None if the method does not accept initial centroids."""
        traits = self.method.traits
        if needs_hub(self.method) or traits.init is None or traits.needs_agreed_start or traits.groups:
            return None
        centroids: Floats = 6.0 * np.random.default_rng(1).normal(size=(1, self.method.k, _D))
        return centroids.repeat(self.topology.n, axis=0)

    @property
    def on_weighted_links(self) -> "_Trial":
        """Trial on the same graph with other link weights."""
        from topologies import CSRGraph

        topology = self.topology
        # A function of the sum of both ids, so that both directions of a link have the same weight.
        weights = topology.weights * (1.0 + (topology.sources + topology.indices) % 3)
        return replace(self, graph=CSRGraph(topology.indptr, topology.indices, weights))

    def configure(self, method: Any, shards: Shards, min_cluster_size: int = 0) -> RunConfig:
        """Check and assemble a run of the method."""
        options = RunOptions(
            rounds=self.rounds,
            seed=_SEED,
            baselines=False,
            quantize="none",
            start=self.start,
            min_cluster_size=min_cluster_size,
        )
        return build_run(method, options, self.topology, shards)

    def play(
        self,
        *,
        changed: bool = False,
        overwrite_unsent: bool = False,
        checkpoints: "_CheckpointsInMemory | None" = None,
        saved: Any = None,
        observer: Observer | None = None,
        min_cluster_size: int = 0,
    ) -> _TrialResult:
        """Run a copy of the method, so that nothing it stores in its attributes affects another run.

        Parameters
        ----------
        changed : bool
            Use other points on one device.
        overwrite_unsent : bool
            Overwrite rows of message tables that are not sent.
        checkpoints : _CheckpointsInMemory, optional
            Receives a checkpoint after every round.
        saved : optional
            Checkpoint from which the run continues.
        observer : ContractChecker or PointReweigher, optional
            Receives every call of the method.
        min_cluster_size : int
            Suppression threshold.
        """
        shards = trial_points(changed=changed)
        shards = shards if self.topology.hub < 0 else shards.with_hub()
        method = deepcopy(self.method)
        method = method if observer is None else wrap_method(method, observer)
        config = self.configure(method, shards, min_cluster_size)
        world, records = RecordingWorld(overwrite_unsent=overwrite_unsent), list[Record]()
        division = RankPartition("blocks", np.array([0, self.topology.n]))
        part = RankPart(shards, self.start, division, saved)
        try:
            with warnings.catch_warnings():
                # Of divisions by zero and the like, whose results the check "finite" reports.
                warnings.simplefilter("ignore", RuntimeWarning)
                result = run_job(config, part, world, RootHooks(on_record=records.append, checkpoints=checkpoints))
        except Exception as error:
            if "read-only" in str(error):
                advice = "Arguments are read-only: work on a copy"
            else:
                advice = "Run the method with p2pkm.simulate to see the traceback"
            raise _CrashError(
                f"the run failed with {type(error).__name__}: {error}; expected {config.rounds} rounds without an "
                f"exception, also for devices without points. {advice}"
            ) from error
        return _TrialResult(result, world.exchanges, records)

    @cached_property
    def plain(self) -> _TrialResult:
        """Run with the original points."""
        return self.play()

    @cached_property
    def changed(self) -> _TrialResult:
        """Run with other points on one device."""
        return self.play(changed=True)

    @cached_property
    def findings(self) -> Mapping[str, str]:
        """Violations found in the calls of the method, by the name of the check."""
        is_numeric = self.method.traits.message_content is not MessageContent.OTHER
        checker = ContractChecker(self.method.k, _D, numbers=is_numeric)
        # An exception is reported by the check "runs", a wrong shape by the findings themselves.
        with suppress(_CrashError):
            self.play(observer=checker)
        return checker.findings


class _CheckpointsInMemory:
    """Checkpoints after every round, kept in memory; implements `p2pkm.engine.checkpointing.CheckpointSink`."""

    is_enabled = True

    def __init__(self) -> None:
        self.saved: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.reason = ""  # why no checkpoint can be written

    def is_due(self, t: int) -> bool:
        return True

    def start_timer(self) -> None:
        pass

    def report_unavailable(self, reason: str) -> None:
        self.reason = reason

    def put(self, outline: dict[str, Any], arrays: dict[str, Any]) -> None:
        copies = {name: np.array(array) for name, array in arrays.items()}
        self.saved.append((json.loads(json.dumps(outline)), copies))


class RecordingWorld(LocalWorld):
    """Single process whose network records all messages.

    Parameters
    ----------
    overwrite_unsent : bool
        Overwrite rows of message tables that are not sent; no receiver may read them.
    """

    def __init__(self, *, overwrite_unsent: bool = False) -> None:
        self.exchanges: list[Exchange] = []
        self._overwrite_unsent = overwrite_unsent

    def network(self, placement: LocalSubgraph) -> LocalNetwork:
        """Create a recording network."""
        return _RecordingNetwork(placement, self.exchanges, overwrite_unsent=self._overwrite_unsent)


class _RecordingNetwork(LocalNetwork):
    def __init__(self, placement: LocalSubgraph, exchanges: list[Exchange], *, overwrite_unsent: bool) -> None:
        super().__init__(placement)
        self._exchanges = exchanges
        self._overwrite_unsent = overwrite_unsent

    def exchange(self, messages: DenseMessages) -> Inbox:
        if self._overwrite_unsent:
            values = messages.values.copy()
            values[np.arange(values.shape[1]) >= messages.rows[:, None]] = _UNSENT
            messages = messages._replace(values=values)
        inbox = super().exchange(messages)
        arrived = np.flatnonzero(inbox.fresh & (inbox.slots >= 0))
        self._exchanges.append(Exchange(_pack_dense(messages), self._ends(arrived)))
        return inbox

    def deliver(self, sparse: SparseMessages) -> Any:
        delivery = super().deliver(sparse)
        self._exchanges.append(Exchange(self._pack_sparse(sparse), self._ends(delivery.edges)))
        return delivery

    def _ends(self, edges: Integers) -> Integers:
        """Return receiver and sender of each edge, int64[e, 2]."""
        owners = np.repeat(self.placement.ids, np.diff(self.placement.indptr))
        return np.column_stack((owners[edges], self.placement.indices[edges]))

    def _pack_sparse(self, messages: SparseMessages) -> list[Any]:
        """Pack the table of each device, with the edges over which it is sent."""
        packed: list[Any] = [None] * len(self.placement.ids)
        for number, v in enumerate(messages.senders):
            table = messages.tables.take(np.array([number])).flat()
            first, last = self.placement.indptr[v : v + 2]
            edges = messages.edges[(messages.edges >= first) & (messages.edges < last)] - first
            packed[v] = (table.shape, table.tobytes(), edges.tobytes())
        return packed


def _pack_dense(messages: DenseMessages) -> list[Any]:
    """Pack the table of each device, with its encoded length."""
    packed: list[Any] = []
    for v, rows in enumerate(messages.rows):
        wire = None if messages.wire is None else int(messages.wire[v])
        packed.append(None if rows < 0 else (int(rows), messages.values[v, :rows].tobytes(), wire))
    return packed


def trial_points(*, changed: bool = False) -> Shards:
    """Generate the points of the trial runs, on a grid of 1/16.

    If `changed`, the points of one device are reflected about their mean. This changes neither their mean nor the total
    variance, which all devices know from the start. Sums of grid points are exact, so both are bit-identical.
    """
    rng = np.random.default_rng(0)
    corners = 6.0 * rng.normal(size=(_K, _D))
    points = [np.round(16.0 * (corners[rng.integers(_K, size=m)] + rng.normal(size=(m, _D)))) / 16.0 for m in _SIZES]
    if changed:
        mean = points[_CHANGED].mean(axis=0)
        points[_CHANGED] = mean + (points[_CHANGED] - mean)[:, ::-1] * (-1.0, 1.0)
    return Shards.from_list(points)


def compare_light_cones(
    runs: tuple[list[Exchange], list[Exchange]], *, changed: int = 0, spread: bool = True
) -> tuple[int, list[tuple[int, int]]]:
    """Compare messages that cannot depend on changed points: those of devices that are not tainted.

    The changed device is tainted. A device becomes tainted when it receives a message from a tainted device.

    Parameters
    ----------
    runs : pair of list of Exchange
        Exchanges of two runs that differ in the points of one device, not in their number. Exchanges after the end of
        the shorter run are ignored.
    changed : int
        The device with different points.
    spread : bool
        False: other devices never become tainted, so messages differ as soon as information is passed on.

    Returns
    -------
    messages : int
        Number of messages compared.
    differing : list of (int, int)
        Exchange and device of messages that differ.
    """
    tainted, messages, differing = {changed}, 0, []
    for number, (first, second) in enumerate(zip(*runs, strict=False)):
        for v, (a, b) in enumerate(zip(first.sent, second.sent, strict=True)):
            if v not in tainted:
                messages += a is not None
                differing += [(number, v)] if a != b else []
        if spread:
            for run in (first, second):
                tainted |= {receiver for receiver, sender in run.edges.tolist() if sender in tainted}
    return messages, differing


def _find_difference(first: _TrialResult, second: _TrialResult) -> str:
    """Describe the first difference between two runs, "" if they are equal."""
    for number, (a, b) in enumerate(zip(first.exchanges, second.exchanges, strict=False)):
        senders = [v for v, (table, other) in enumerate(zip(a.sent, b.sent, strict=True)) if table != other]
        if senders:
            return f"{_list_devices(senders)} sent different tables in exchange {number}"
    names = [name for name, value in first.bits.items() if value != second.bits[name]]
    return f"the results differ in {', '.join(names)}" if names else ""


def _list_devices(ids: Collection[int]) -> str:
    """List the first devices."""
    listed = ", ".join(map(str, list(ids)[:_MOST]))
    return f"device{'s' if len(ids) > 1 else ''} {listed}{', ...' if len(ids) > _MOST else ''}"


def _check_repeatable(trial: _Trial) -> str:
    # Different states of the global generators, which a method must not read.
    np.random.seed(1)
    random.seed(1)
    first = trial.plain
    np.random.seed(2)
    random.seed(2)
    difference = _find_difference(first, trial.play())
    return difference and (
        f"{difference} when the run was repeated; runs with the same seed must be bit-identical. Draw random numbers "
        "from devices.keys or devices.shared_key (p2pkm.kernels.reference.philox), and store nothing in global "
        "variables"
    )


def _check_finite(trial: _Trial) -> str:
    try:
        centroids = trial.plain.result.centroids
    except _CrashError:
        # The check "runs" reports the exception, unless it is a consequence of NaN.
        return trial.findings.get("finite", "")
    without = [i for i, size in enumerate(_SIZES) if size and not np.isfinite(centroids[i]).any()]
    if not without:
        return trial.findings.get("finite", "")
    return trial.findings.get(
        "finite",
        f"{_list_devices(without)} ended without centroids; expected at least one finite row for a device with points. "
        "Leave a centroid unchanged when it loses its points",
    )


def _check_ledger(trial: _Trial) -> str:
    difference = _find_difference(trial.plain, trial.play(overwrite_unsent=True))
    return difference and (
        f"{difference} when rows that were not sent had other values; a method may read only rows that are sent, which "
        "the ledger counts. Read inbox.tables[slot, :inbox.rows[slot]], or send more rows"
    )


def _check_resume(trial: _Trial) -> str:
    checkpoints = _CheckpointsInMemory()
    uninterrupted = trial.play(checkpoints=checkpoints)
    if checkpoints.reason:
        return (
            f"no checkpoint can be written: {checkpoints.reason}. A state must be a registered NamedTuple of arrays: "
            "decorate its class with @p2pkm.core.states.register"
        )
    if not checkpoints.saved:
        return ""
    outline, arrays = checkpoints.saved[(len(checkpoints.saved) - 1) // 2]
    division = RankPartition("blocks", np.array([0, trial.topology.n]))
    resumed = trial.play(saved=rebuild(outline, split(outline, arrays, trial.topology, division, 0)))
    names = [name for name, value in uninterrupted.bits.items() if value != resumed.bits[name]]
    if not names:
        return ""
    return (
        f"{', '.join(names)} of a run resumed from a checkpoint differ from those of an uninterrupted run; both runs "
        "must be bit-identical. Store everything that the next round needs in the state, nothing in the method, and "
        "name fields by their first axis (p2pkm.engine.state_tree)"
    )


def _check_light_cone(trial: _Trial) -> str:
    runs = trial.plain.exchanges, trial.changed.exchanges
    differing = compare_light_cones(runs, changed=_CHANGED)[1]
    if not differing:
        return ""
    exchange, device = differing[0]
    return (
        f"device {device} sent a different table in exchange {exchange} when the points of device {_CHANGED} were "
        "changed, although no message had carried information about them; messages must depend only on local points "
        "and received messages. Compute the result of a device from its row of the batch, not from other rows"
    )


def _check_plan(trial: _Trial) -> str:
    traffic, stage, before = _plan_traffic(trial), -1, (0, 0)
    for record in trial.plain.records:
        # Records hold cumulative counts. The initial exchange, round 0, is the first record of a stage.
        stage += record["round"] == 0
        total = record["messages"], record["bytes"]
        planned, sent = traffic[stage], (total[0] - before[0], total[1] - before[1])
        before = total
        if planned.volume is None:
            continue
        volume = planned.volume(record["round"])
        for unit, most, exact, real in zip(("messages", "bytes"), volume[:2], volume[2:4], sent, strict=True):
            if real != most if exact else real > most:
                return (
                    f"round {record['round']} of {planned.name!r} sent {real} {unit}; expected_messages declares "
                    f"{'' if exact else 'at most '}{most}. Return the pattern of p2pkm.core.expected_messages that "
                    "matches the messages, or None if none does"
                )
    return ""


def _plan_traffic(trial: _Trial) -> list[StageTraffic]:
    """Predict the messages of the run of a trial."""
    shards = trial_points() if trial.topology.hub < 0 else trial_points().with_hub()
    config = trial.configure(deepcopy(trial.method), shards)
    method, sizes = config.configure(shards.m), shards.sizes
    setting = InitContext(trial.topology, sizes, shared_key(_SEED), method.k, _D)
    sequence = stages(method, setting, config.rounds, seeded=trial.start is not None)
    options = RunOptions(seed=_SEED, quantize=Quantization.of("none"))
    size = Size(shards.m, _D)
    plan = RunPlan(options, method, trial.topology, size, sizes, True, sequence, None, Spec("", {}), None)
    return stage_traffic(plan)


def _check_weights(trial: _Trial) -> str:
    traits = trial.method.traits
    ignored = traits.no_weights or traits.ignores_weights or not _find_difference(trial.plain, trial.changed)
    if not ignored and not _find_difference(trial.plain, trial.play(observer=PointReweigher())):
        return (
            "messages and results were identical with other point weights; a point of weight 2 must count like two "
            "points. Use devices.point_weights or functions that do, such as devices.refine, or declare no_weights or "
            "ignores_weights in the traits"
        )
    if needs_hub(trial.method) or trial.topology.varying is not None:
        return ""
    used = bool(_find_difference(trial.plain, trial.on_weighted_links.play()))
    if used == bool(traits.link_weights):
        return ""
    if used:
        observed = "messages or results differed with other link weights, but the trait link_weights is empty"
    else:
        observed = (
            "messages and results were identical with other link weights, but the trait link_weights is "
            f"{traits.link_weights!r}"
        )
    return (
        f"{observed}; devices.link_weights must be used if and only if this trait describes their use. Use them, for "
        "example with building_blocks.averaging.mixing, or change the trait"
    )


def _check_suppression(trial: _Trial) -> str:
    try:
        check_min_cluster_size(_MIN_CLUSTER_SIZE, trial.method)
    except ExperimentError:
        return ""
    count = trial.play(min_cluster_size=_MIN_CLUSTER_SIZE).result.summary["raw_points_disclosed"]
    if not count:
        return ""
    return (
        f"{count} points were sent unchanged with min_cluster_size={_MIN_CLUSTER_SIZE}; no row may equal a single "
        "point. Declare MessageContent.CENTROIDS if rows are centroids, so that the channel removes rows of small "
        "clusters; or omit points of small clusters (devices.min_count) and declare suppresses_small_clusters; or "
        "declare no_suppression"
    )


CHECKS: Mapping[str, Callable[[_Trial], str]] = {
    # Checked before the trial is set up, because a method without a declaration cannot run.
    "declaration": lambda trial: "",
    "shapes": lambda trial: trial.findings.get("shapes", ""),
    "finite": _check_finite,
    "runs": lambda trial: trial.plain and "",
    "repeatable": _check_repeatable,
    "inputs": lambda trial: trial.findings.get("inputs", ""),
    "parts": lambda trial: trial.findings.get("parts", ""),
    "ledger": _check_ledger,
    "resume": _check_resume,
    "light-cone": _check_light_cone,
    "plan": _check_plan,
    "weights": _check_weights,
    "suppression": _check_suppression,
}
