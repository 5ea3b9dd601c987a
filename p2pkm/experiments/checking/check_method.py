"""What scikit-learn's ``check_estimator`` is for estimators, for methods: `check_method`."""

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
from p2pkm.experiments.checking.watch_method import Observer, PointReweigher, Watcher, watch
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.message_counts import stage_traffic
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

_K, _D, _SEED = 3, 2, 3
_SIZES = (8, 7, 0, 9, 8, 1, 8, 23)  # 64 points in all, so that means are exact; one device has none
_CHANGED = 0  # the device whose points are others in the second run
_LEFT_OVER = 12345.0  # in the place of rows that were not sent
_MOST = 5  # devices in a message
_LEAST = 2  # smallest cluster whose row may be sent where small clusters are suppressed: a row is no single point
_FIRST = ("shapes", "finite", "runs", "repeatable")  # without these no other says anything


class Exchange(NamedTuple):
    """What every device sent, as bytes (None: nothing), and the edges over which something came, (to, from)."""

    sent: list[Any]
    came: Integers


class MethodCheckError(AssertionError):
    """A method fails some of the checks.

    Attributes
    ----------
    failed : dict of str to str
        What was found, by the name of the check.
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
    """Check that a method, on a server or without one, keeps what every method promises.

    The method runs a few times on 8 devices with 64 points in two dimensions, one device without points and one with a
    single one, which takes about a second. In a test: ``def test_it(): p2pkm.check_method(MyMethod)``.

    Parameters
    ----------
    method : type or Algorithm or ServerMethod
        A class, which is made with 3 clusters, ``MyMethod(3)``, or a method with parameters of its own.
    graph : networkx.Graph, optional
        Of 8 devices; None: a ring. A method with a server has a star of its own.
    only, skip : str or collection of str, optional
        Names of the checks to make, all by default, and to leave out:

        - ``"declaration"``: base class, traits, name, schedule and functions are there;
        - ``"shapes"``: states and messages have the shapes and types of `p2pkm.core.protocols.State` and
          `p2pkm.core.messages`, tables have as many rows as they declare, and only active devices send;
        - ``"finite"``: centroids have no NaN, a row of them is whole or absent (+inf), devices with points have one,
          and what is sent is finite unless `p2pkm.core.traits.MessageContent` is ``OTHER``;
        - ``"runs"``: a run ends without an exception;
        - ``"repeatable"``: two runs with one seed have the same bits, however NumPy's global generator stands;
        - ``"inputs"``: no function writes into what it is given;
        - ``"parts"``: a batch has the same bits as its parts, one of a single device and one of none among them;
        - ``"ledger"``: nothing is read of a table but the rows that were sent, which the ledger counts;
        - ``"resume"``: a run that is taken up from a checkpoint ends with the bits of the whole run;
        - ``"light-cone"``: what a device sends depends on its own points and on what it has received, and nothing else;
        - ``"plan"``: what is sent is what `expected_messages` declares, or less where rows may be absent;
        - ``"weights"``: weights of points change the result if points do, unless the trait ``no_weights`` or
          ``ignores_weights`` is set, and weights of links if and only if the trait ``link_weights`` is;
        - ``"suppression"``: with ``min_cluster_size`` no point leaves its device unchanged, unless the trait
          ``no_suppression`` is set.
    rounds : int
        Most rounds of the method.

    Returns
    -------
    tuple of str
        The names of the checks that were made.

    Raises
    ------
    MethodCheckError
        An AssertionError: one line for each check that failed, with what was found, what is expected and what to do.
        Where shapes are wrong, a run ends with an exception or cannot be repeated, the other checks are not made.
    ExperimentError
        If there is no such check, or the run cannot be set up.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.check_method(p2pkm.ConsensusLloyd, only=("shapes", "plan"))
    ('shapes', 'plan')
    """
    kind, names = method if isinstance(method, type) else type(method), _choose(only, skip)
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
    """Return the method with seeded noise instead of a secret of the operating system, so that runs can be compared."""
    return method.replaced(noise_seed=_SEED) if method.traits.is_secret else method


def _choose(only: str | Collection[str], skip: str | Collection[str]) -> tuple[str, ...]:
    """Return the names of the checks to make, in their order."""
    wanted, left = ({one} if isinstance(one, str) else set(one) for one in (only, skip))
    for name in (*wanted, *left):
        if name not in CHECKS:
            raise ExperimentError(f"the check is {name!r}. {suggest(str(name), CHECKS)}")
    return tuple(name for name in CHECKS if name not in left and (not wanted or name in wanted))


class _Played(NamedTuple):
    """A run: its result, what passed the network, and its records."""

    result: Result
    exchanges: list[Exchange]
    records: list[Record]

    @property
    def bits(self) -> dict[str, Any]:
        """Return what must be the same in a run with the same seed."""
        names = ("chain_sha256", "messages", "bytes", "wire_bytes", "rounds", "termination")
        summary = self.result.summary
        return {"centroids": self.result.centroids.tobytes()} | {name: summary[name] for name in names}


class _CrashError(Exception):
    """A run that ended with an exception of the method."""


@dataclass(frozen=True)
class _Trial:
    """A method, and the runs of it that the checks look at; each is made once."""

    method: Any
    graph: Any
    rounds: int

    def apply(self, name: str) -> str:
        """Return what a check finds, nothing if all is well."""
        try:
            return CHECKS[name](self)
        except _CrashError as error:
            return str(error)

    @cached_property
    def topology(self) -> Topology:
        """Return the graph, or the star."""
        from topologies import ring

        hub = needs_hub(self.method)
        graph = self.graph if self.graph is not None or hub else ring(len(_SIZES))
        return place_graph(self.method, None if hub else graph, len(_SIZES))

    @property
    def start(self) -> Floats | None:
        """Return centroids that all devices start from, None if the method cannot start from given ones."""
        traits = self.method.traits
        if needs_hub(self.method) or traits.init is None or traits.needs_agreed_start or traits.groups:
            return None
        centroids: Floats = 6.0 * np.random.default_rng(1).normal(size=(1, self.method.k, _D))
        return centroids.repeat(self.topology.n, axis=0)

    @property
    def on_weighted_links(self) -> "_Trial":
        """Return the trial on the same graph with other weights of links."""
        from topologies import CSRGraph

        topology = self.topology
        weights = topology.weights * (1.0 + (topology.sources + topology.indices) % 3)  # alike at both ends
        return replace(self, graph=CSRGraph(topology.indptr, topology.indices, weights))

    def configure(self, method: Any, shards: Shards, least: int = 0) -> RunConfig:
        """Return the checked run of a method; least: its `min_cluster_size`."""
        asked = RunOptions(
            rounds=self.rounds, seed=_SEED, baselines=False, quantize="none", start=self.start, min_cluster_size=least
        )
        return build_run(method, asked, self.topology, shards)

    def play(
        self, *, changed: bool = False, scramble: bool = False, keep: "_Kept | None" = None, saved: Any = None,
        watcher: Observer | None = None, least: int = 0,
    ) -> _Played:  # fmt: skip
        """Run the method, always the same one: nothing that it keeps to itself outlives a run.

        Parameters
        ----------
        changed : bool
            Whether one device has other points.
        scramble : bool
            Whether what lies beyond the rows that are sent is changed on its way.
        keep, saved
            What keeps checkpoints; one of them, to go on from.
        watcher : Watcher or PointReweigher, optional
            What sees every call of the method.
        least : int
            The `min_cluster_size` of the run.
        """
        shards = deal(changed=changed)
        shards = shards if self.topology.hub < 0 else shards.with_hub()
        method = deepcopy(self.method)
        config = self.configure(method if watcher is None else watch(method, watcher), shards, least)
        world, records = RecordingWorld(scramble=scramble), list[Record]()
        division = RankPartition("blocks", np.array([0, self.topology.n]))
        part = RankPart(shards, self.start, division, saved)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of what "finite" reports
                result = run_job(config, part, world, RootHooks(sink=records.append, checkpoints=keep))
        except Exception as error:
            advice = "what is given may not be written to, work on a copy" if "read-only" in str(error) else (
                "p2pkm.simulate shows where it comes from"
            )  # fmt: skip
            raise _CrashError(
                f"the run ended with {type(error).__name__}: {error}. Expected {config.rounds} rounds without an "
                f"exception, also where a device has no points; {advice}"
            ) from error
        return _Played(result, world.exchanges, records)

    @cached_property
    def plain(self) -> _Played:
        """Return a run with the points as they are."""
        return self.play()

    @cached_property
    def changed(self) -> _Played:
        """Return a run in which one device has other points."""
        return self.play(changed=True)

    @cached_property
    def seen(self) -> Mapping[str, str]:
        """Return what a look at every call of the method finds, by the name of the check."""
        watcher = Watcher(self.method.k, _D, numbers=self.method.traits.message_content is not MessageContent.OTHER)
        with suppress(_CrashError):  # the check "runs" reports it, unless a shape is wrong
            self.play(watcher=watcher)
        return watcher.found


class _Kept:
    """Checkpoints in memory, one after every round; see `p2pkm.engine.checkpointing.CheckpointSink`."""

    open = True

    def __init__(self) -> None:
        self.found: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.reason = ""

    def due(self, t: int) -> bool:
        return True

    def begin(self) -> None:
        pass

    def excuse(self, reason: str) -> None:
        self.reason = reason

    def put(self, outline: dict[str, Any], arrays: dict[str, Any]) -> None:
        copies = {name: np.array(array) for name, array in arrays.items()}
        self.found.append((json.loads(json.dumps(outline)), copies))


class RecordingWorld(LocalWorld):
    """One process whose network notes what passes it.

    Parameters
    ----------
    scramble : bool
        Whether what lies beyond the rows that are sent, which no receiver may read, is changed on its way.
    """

    def __init__(self, *, scramble: bool = False) -> None:
        self.exchanges: list[Exchange] = []
        self._scramble = scramble

    def network(self, placement: LocalSubgraph) -> LocalNetwork:
        """Return a network over the placement."""
        return _RecordingNetwork(placement, self.exchanges, scramble=self._scramble)


class _RecordingNetwork(LocalNetwork):
    def __init__(self, placement: LocalSubgraph, exchanges: list[Exchange], *, scramble: bool) -> None:
        super().__init__(placement)
        self._noted, self._scramble = exchanges, scramble

    def exchange(self, messages: DenseMessages) -> Inbox:
        if self._scramble:
            values = messages.values.copy()
            values[np.arange(values.shape[1]) >= messages.rows[:, None]] = _LEFT_OVER
            messages = messages._replace(values=values)
        inbox = super().exchange(messages)
        came = np.flatnonzero(inbox.fresh & (inbox.slots >= 0))
        self._noted.append(Exchange(_pack_dense(messages), self._ends(came)))
        return inbox

    def deliver(self, sparse: SparseMessages) -> Any:
        delivery = super().deliver(sparse)
        self._noted.append(Exchange(self._pack_sparse(sparse), self._ends(delivery.edges)))
        return delivery

    def _ends(self, edges: Integers) -> Integers:
        """Return (to, from) of edges."""
        owners = np.repeat(self.placement.ids, np.diff(self.placement.indptr))
        return np.column_stack((owners[edges], self.placement.indices[edges]))

    def _pack_sparse(self, messages: SparseMessages) -> list[Any]:
        found: list[Any] = [None] * len(self.placement.ids)
        for number, v in enumerate(messages.who):
            table = messages.tables.take(np.array([number])).flat()
            first, last = self.placement.indptr[v : v + 2]
            over = messages.edges[(messages.edges >= first) & (messages.edges < last)] - first
            found[v] = (table.shape, table.tobytes(), over.tobytes())
        return found


def _pack_dense(messages: DenseMessages) -> list[Any]:
    """Return for each device the bytes of its table, and its length on the wire."""
    found: list[Any] = []
    for v, rows in enumerate(messages.rows):
        wire = None if messages.wire is None else int(messages.wire[v])
        found.append(None if rows < 0 else (int(rows), messages.values[v, :rows].tobytes(), wire))
    return found


def deal(*, changed: bool = False) -> Shards:
    """Return points on a fine grid; changed: those of one device turned around their mean, which changes no total.

    Sums of so many such numbers are exact, so the total variance, which all devices know from the start, stays the same
    to the bit.
    """
    rng = np.random.default_rng(0)
    corners = 6.0 * rng.normal(size=(_K, _D))
    own = [np.round(16.0 * (corners[rng.integers(_K, size=m)] + rng.normal(size=(m, _D)))) / 16.0 for m in _SIZES]
    if changed:
        mean = own[_CHANGED].mean(axis=0)
        own[_CHANGED] = mean + (own[_CHANGED] - mean)[:, ::-1] * (-1.0, 1.0)
    return Shards.from_list(own)


def compare_light_cones(
    runs: tuple[list[Exchange], list[Exchange]], *, changed: int = 0, spread: bool = True
) -> tuple[int, list[tuple[int, int]]]:
    """Return how many messages devices sent that nothing of the changed points had reached, and which of them differ.

    A device is tainted once it has received anything from a tainted one.

    Parameters
    ----------
    runs : pair of list of Exchange
        Of two runs that differ in the points of one device, not in their number; the shorter one counts.
    changed : int
        That device.
    spread : bool
        False: only the changed device is tainted, ever, so that messages must differ where anything is passed on.

    Returns
    -------
    messages : int
    differing : list of (int, int)
        Exchange and device.
    """
    tainted, messages, differing = {changed}, 0, []
    for number, (one, other) in enumerate(zip(*runs, strict=False)):
        for v, (sent, instead) in enumerate(zip(one.sent, other.sent, strict=True)):
            if v not in tainted:
                messages += sent is not None
                differing += [(number, v)] if sent != instead else []
        if spread:
            for run in (one, other):
                tainted |= {to for to, by in run.came.tolist() if by in tainted}
    return messages, differing


def _differ(one: _Played, other: _Played) -> str:
    """Return in what two runs differ that should not, nothing if they do not."""
    for number, (mine, theirs) in enumerate(zip(one.exchanges, other.exchanges, strict=False)):
        who = [v for v, (a, b) in enumerate(zip(mine.sent, theirs.sent, strict=True)) if a != b]
        if who:
            return f"in exchange {number} {_name(who)} sent something else"
    names = [name for name, value in one.bits.items() if value != other.bits[name]]
    return f"the runs end with other {', '.join(names)}" if names else ""


def _name(who: Collection[int]) -> str:
    """Return a few devices in words."""
    first = ", ".join(map(str, list(who)[:_MOST]))
    return f"device{'s' if len(who) > 1 else ''} {first}{', ...' if len(who) > _MOST else ''}"


def _check_repeatable(trial: _Trial) -> str:
    np.random.seed(1)  # what a method must not read
    random.seed(1)
    one = trial.plain
    np.random.seed(2)
    random.seed(2)
    differ = _differ(one, trial.play())
    return differ and (
        f"{differ} when the run was repeated. Expected the same bits from the same seed: draw from devices.keys or "
        "devices.shared_key (p2pkm.kernels.reference.philox), and keep nothing in globals"
    )


def _check_finite(trial: _Trial) -> str:
    try:
        centroids = trial.plain.result.centroids
    except _CrashError:  # the next check reports it, unless NaN led to it
        return trial.seen.get("finite", "")
    without = [i for i, size in enumerate(_SIZES) if size and not np.isfinite(centroids[i]).any()]
    told = (
        f"{_name(without)} ended without any centroid, although with points. Expected at least one row of finite "
        "numbers; keep a centroid that loses its points where it is"
    )
    return trial.seen.get("finite", told if without else "")


def _check_ledger(trial: _Trial) -> str:
    differ = _differ(trial.plain, trial.play(scramble=True))
    return differ and (
        f"{differ} when rows that were not sent had other values. Expected that only rows that are sent, which the "
        "ledger counts, are read: read inbox.tables[slot, :inbox.rows[slot]], or send more rows"
    )


def _check_resume(trial: _Trial) -> str:
    kept = _Kept()
    whole = trial.play(keep=kept)
    if kept.reason:
        return (
            f"no checkpoint could be written: {kept.reason}. Expected a state of arrays in registered NamedTuples; "
            "decorate its class with @p2pkm.core.states.register"
        )
    if not kept.found:
        return ""
    outline, arrays = kept.found[(len(kept.found) - 1) // 2]
    division = RankPartition("blocks", np.array([0, trial.topology.n]))
    rest = trial.play(saved=rebuild(outline, split(outline, arrays, trial.topology, division, 0)))
    names = [name for name, value in whole.bits.items() if value != rest.bits[name]]
    return (
        f"a run that was taken up from a checkpoint ended with other {', '.join(names)}. Expected the bits of the "
        "whole run: keep all that the next round needs in the state, nothing in the method itself, and name fields by "
        "their first axis (p2pkm.engine.state_tree)"
        if names
        else ""
    )


def _check_light_cone(trial: _Trial) -> str:
    runs = trial.plain.exchanges, trial.changed.exchanges
    differing = compare_light_cones(runs, changed=_CHANGED)[1]
    if not differing:
        return ""
    exchange, device = differing[0]
    return (
        f"in exchange {exchange} device {device} sent something else when the points of device {_CHANGED} were others, "
        "of which it had received nothing. Expected that what a device sends depends on its own points and on what it "
        "has received: let no row of one device depend on another's points or state"
    )


def _check_plan(trial: _Trial) -> str:
    shards = deal() if trial.topology.hub < 0 else deal().with_hub()
    config = trial.configure(deepcopy(trial.method), shards)
    method, sizes = config.configure(shards.m), shards.sizes
    at = InitContext(trial.topology, sizes, shared_key(_SEED), method.k, _D)
    played = stages(method, at, config.rounds, seeded=trial.start is not None)
    asked = RunOptions(seed=_SEED, quantize=Quantization.of("none"))
    plan = RunPlan(asked, method, trial.topology, Size(shards.m, _D), sizes, True, played, None, Spec("", {}), None)
    courses, at_stage, before = stage_traffic(plan), -1, (0, 0)
    for record in trial.plain.records:
        at_stage += record["round"] == 0
        now = record["messages"], record["bytes"]
        course, sent = courses[at_stage], (now[0] - before[0], now[1] - before[1])
        before = now
        if course.volume is None:
            continue
        volume = course.volume(record["round"])
        for word, planned, exact, real in zip(("messages", "bytes"), volume[:2], volume[2:4], sent, strict=True):
            if real != planned if exact else real > planned:
                return (
                    f"round {record['round']} of {course.name!r} sent {real} {word}, but expected_messages leads to "
                    f"{'' if exact else 'at most '}{planned}. Expected what is sent: return the pattern of "
                    "p2pkm.core.expected_messages that fits, or None if none does"
                )
    return ""


def _check_weights(trial: _Trial) -> str:
    traits = trial.method.traits
    ignored = traits.no_weights or traits.ignores_weights or not _differ(trial.plain, trial.changed)
    if not ignored and not _differ(trial.plain, trial.play(watcher=PointReweigher())):
        return (
            "the run sent and found the same with other weights of points. Expected that a point of weight 2 counts "
            "like two points: use devices.point_weights or functions that do, such as devices.refine, or declare "
            "no_weights or ignores_weights in the traits"
        )
    if needs_hub(trial.method) or trial.topology.varying is not None:
        return ""
    acts = bool(_differ(trial.plain, trial.on_weighted_links.play()))
    if acts == bool(traits.link_weights):
        return ""
    seen = (
        "the run sent or found something else with other weights of links, but the trait link_weights is empty"
        if acts
        else f"the run sent and found the same with other weights of links, but these {traits.link_weights}"
    )
    return (
        f"{seen}. Expected that devices.link_weights are used if and only if the trait link_weights says for what: use "
        "them, for example by building_blocks.averaging.mixing, or change the trait"
    )


def _check_suppression(trial: _Trial) -> str:
    try:
        check_min_cluster_size(_LEAST, trial.method)
    except ExperimentError:
        return ""
    count = trial.play(least=_LEAST).result.summary["raw_points_disclosed"]
    if not count:
        return ""
    return (
        f"{count} points left their devices unchanged with min_cluster_size={_LEAST}. Expected that no row is a single "
        "point: declare MessageContent.CENTROIDS if rows are centroids, so that the channel removes rows of small "
        "clusters; leave points of small clusters out (devices.min_count) and declare suppresses_small_clusters; or "
        "declare no_suppression"
    )


CHECKS: Mapping[str, Callable[[_Trial], str]] = {
    "declaration": lambda trial: "",  # without it there is no run
    "shapes": lambda trial: trial.seen.get("shapes", ""),
    "finite": _check_finite,
    "runs": lambda trial: trial.plain and "",
    "repeatable": _check_repeatable,
    "inputs": lambda trial: trial.seen.get("inputs", ""),
    "parts": lambda trial: trial.seen.get("parts", ""),
    "ledger": _check_ledger,
    "resume": _check_resume,
    "light-cone": _check_light_cone,
    "plan": _check_plan,
    "weights": _check_weights,
    "suppression": _check_suppression,
}
