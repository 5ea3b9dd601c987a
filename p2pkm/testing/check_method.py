"""Conformance checks for methods: `check_method`, the counterpart of scikit-learn's ``check_estimator``."""

import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from p2pkm.channel.quantization import Quantization
from p2pkm.channel.sampled_faults import Faults
from p2pkm.core.batch import Floats
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import Spec
from p2pkm.core.traits import Condition, MessageContent
from p2pkm.data.shards import Shards
from p2pkm.data.size_estimate import Size
from p2pkm.engine.build_run import Run, build_run
from p2pkm.engine.conflicts import against_suppression
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.message_counts import StageTraffic, stage_traffic
from p2pkm.kernels.streams import shared_key
from p2pkm.methods.declaration import check_declaration
from p2pkm.methods.init.pipelines import Stage, needs_hub, number_stages, place_graph, stages
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology
from p2pkm.testing.laws import (
    BYTES_PER_NUMBER,
    compare_light_cones,
    find_dependent,
    find_difference,
    find_too_short,
    list_devices,
    resume_everywhere,
)
from p2pkm.testing.outer_variables import find_written, hash_outer
from p2pkm.testing.recording import PlayedRun
from p2pkm.testing.trial import (
    CHANGED,
    CLUSTERS,
    FEATURES,
    SIZES,
    CheckError,
    CheckpointsInMemory,
    CrashError,
    choose_checks,
    place_points,
    play_run,
    run_checks,
    trial_start,
)
from p2pkm.testing.watch_method import ContractChecker, Observer, PointReweigher, wrap_method
from p2pkm.testing.watch_values import HeaderChecker, PointChanger, ValueChecker

_SEED = 3
# Of the check "suppression": a row that stands for one point would equal it, and no cluster of the changed device is
# large enough.
_MIN_CLUSTER_SIZE, _LARGE_CLUSTER_SIZE = 2, SIZES[CHANGED] + 1
# Largest ratio of what a bound on the messages of a round allows to what is sent, in the round where it is smallest.
_LOOSE = 2
# Of the check "range": far from 0, so that a centroid at 0, or a mean with a row of zeros, is not near the points.
# A power of 2, so that sums of points on the grid stay exact.
_SHIFT = 1024.0
# Of the check "bytes": added to all points, so that numbers computed from them change in their last digits.
_BLUR = 1e-9
# Of the check "losses": faults of messages and of devices. Most messages are lost, so that information spreads slowly.
_LOST = Faults(loss=0.7, delay=0.2)
_ABSENT = Faults(dropout=0.2, straggler=0.1, server=0.2, dropout_length=2, straggler_length=2)
_FIRST = ("shapes", "finite", "runs", "repeatable")  # if one of these fails, later checks are not meaningful
_LAST = ("range", "losses", "options")  # they also fail by mistakes that other checks name, so only if these pass


def check_method(
    method: Any,
    graph: Any = None,
    *,
    only: str | Collection[str] = (),
    skip: str | Collection[str] = (),
    rounds: int = 6,
) -> tuple[str, ...]:
    """Check that a method satisfies the contract of all methods.

    The method runs several times on 8 devices with 64 points in two dimensions, which takes a second or two. One device
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
        - ``"finite"``: each centroid is finite or absent (+inf in all columns), also if some are absent at the start,
          in which case a run ends without an exception, too; devices with points have at least one centroid, and
          messages are finite unless `p2pkm.core.traits.MessageContent` is ``OTHER``.
        - ``"runs"``: a run ends without an exception.
        - ``"repeatable"``: two runs with the same seed are bit-identical, whatever the state of NumPy's global
          generator.
        - ``"inputs"``: functions write neither into their arguments nor into lists, dicts, sets and arrays of their
          module or class.
        - ``"parts"``: results for a batch and for its parts are bit-identical; one part is a single device, one is
          empty.
        - ``"ledger"``: receivers read only rows that were sent, which the ledger counts.
        - ``"bytes"``: all that is sent is counted: columns of the header contain only ids of devices of which the
          sender has heard, and encoded bytes suffice for numbers of a table that follow every small change of points.
        - ``"resume"``: a run resumed from a checkpoint is bit-identical to an uninterrupted run.
        - ``"light-cone"``: messages of a device depend only on its local points and on received messages.
        - ``"plan"``: messages match `expected_messages`, or are fewer where rows may be absent, by half at most in one
          round.
        - ``"weights"``: point weights change the result if points do, unless the traits exclude
          ``Condition.POINT_WEIGHTS``, and if and only if they do not have ``ignores_weights``; link weights change it
          if and only if the trait ``link_weights`` is set.
        - ``"claims"``: what the traits ``common_centroids``, ``guarantees_descent`` and ``follows_points`` promise
          holds in the run.
        - ``"suppression"``: with ``min_cluster_size`` no point is sent unchanged, and messages do not depend on the
          points of a device that has fewer, unless the traits exclude ``"suppression"``.
        - ``"range"``: with points far from 0, centroids are near the points, also those of clusters that have no points
          on a device, and those that are sent.
        - ``"losses"``: a run in which messages are lost and delayed, one in which devices are absent, and one on links
          that change end without an exception, with centroids near the points, and devices read only messages that
          arrived; unless the traits exclude such runs by ``Condition.LOSSY_LINKS`` and ``Condition.CHANGING_LINKS``.
        - ``"options"``: runs with integers in messages, with compressed tables and with scaled features end without an
          exception, with centroids near the points, unless the traits exclude them.
    rounds : int, default=6
        Maximum number of rounds of the method.

    Returns
    -------
    tuple of str
        Names of the checks that were run.

    Raises
    ------
    CheckError
        If a check fails. This AssertionError has one line for each failed check: the violation, the rule, and a way to
        fix it. If shapes are wrong, a run raises an exception or is not repeatable, later checks are not run; "range",
        "losses" and "options" only if no other one fails.
    ExperimentError
        If a check is unknown, or the run cannot be set up.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.check_method(p2pkm.ConsensusLloyd, only=("shapes", "plan"))
    ('shapes', 'plan')
    """
    kind = method if isinstance(method, type) else type(method)
    names = choose_checks(CHECKS, only, skip)
    try:
        check_declaration(kind, kind.__name__)
    except ExperimentError as error:
        raise CheckError(kind.__name__, {"declaration": str(error)}) from None
    outer = hash_outer(kind)
    trial = _Trial(_seed_noise(kind(CLUSTERS) if isinstance(method, type) else method), graph, rounds, outer)
    return run_checks(kind.__name__, CHECKS, names, trial, _FIRST, _LAST)


def _seed_noise(method: Any) -> Any:
    """Seed the noise of a method that would draw it from the operating system, so that runs can be compared."""
    return method.replaced(noise_seed=_SEED) if method.traits.is_secret else method


@dataclass(frozen=True)
class _Trial:
    """Trial runs of a method, each of which is made at most once and used by several checks."""

    method: Any
    graph: Any
    rounds: int
    outer: dict[str, str]
    starts_local: bool = False
    lacks_row: bool = False
    shift: float = 0.0
    blur: float = 0.0

    @cached_property
    def topology(self) -> Topology:
        """Graph of the run; the star for a server method."""
        from topologies import ring

        on_star = needs_hub(self.method)
        graph = self.graph if self.graph is not None or on_star else ring(len(SIZES))
        return place_graph(self.method, None if on_star else graph, len(SIZES))

    @property
    def start(self) -> Floats | None:
        """Common initial centroids of all devices; None if the method does not accept initial centroids."""
        start = None if self.starts_local else trial_start(self.method, self.topology)
        if start is not None and self.lacks_row:
            start[:, -1] = np.inf
        if start is not None and self.blur:
            start += self.blur * np.random.default_rng(2).normal(size=start.shape[1:])
        return None if start is None else start + self.shift

    def points(self, *, changed: bool = False) -> Shards:
        """Generate the points of the run."""
        shards = place_points(self.topology, changed=changed)
        if not self.shift and not self.blur:
            return shards
        noise = self.blur * np.random.default_rng(3).normal(size=shards.points.shape)
        return replace(shards, points=shards.points + self.shift + noise)

    @cached_property
    def on_absent_rows(self) -> "_Trial | None":
        """Trial that starts with absent rows; None if none can be absent.

        Absent are rows of devices with fewer points than clusters or, if all devices must start from the same
        centroids, the last row of all of them, as with fewer distinct points than clusters.
        """
        if self.start is None or not hasattr(self.method, "init"):
            return None
        if self.method.traits.needs_shared_start:
            return replace(self, lacks_row=True)
        return replace(self, method=self.method.replaced(init=Init.of("local")), starts_local=True)

    @property
    def on_weighted_links(self) -> "_Trial":
        """Trial on the same graph with other link weights."""
        from topologies import CSRGraph

        topology = self.topology
        # A function of the sum of both ids, so that both directions of a link have the same weight.
        weights = topology.weights * (1.0 + (topology.sources + topology.indices) % 3)
        return replace(self, graph=CSRGraph(topology.indptr, topology.indices, weights))

    @property
    def far_away(self) -> "_Trial | None":
        """Trial with points far from 0; None if centroids need not be near the points."""
        traits = self.method.traits
        # Of a privacy guarantee, noise and clipping move centroids; learned features and points that a server scales
        # are in another space, with 0 among them.
        is_elsewhere = traits.derives_features or traits.normalization != "none"
        return None if traits.guarantee or is_elsewhere else replace(self, shift=_SHIFT)

    def watch_values(self) -> ValueChecker:
        """Create an observer of the values of centroids."""
        points, start = self.points().points, self.start
        known = points if start is None else np.concatenate((points, start[0]))
        is_sent = self.method.traits.message_content is MessageContent.CENTROIDS
        return ValueChecker(known.min(axis=0), known.max(axis=0), sends_centroids=is_sent)

    def configure(self, method: Any, shards: Shards, given: Mapping[str, Any] = MappingProxyType({})) -> Run:
        """Check and assemble a run of the method; `given`: further options of the run."""
        options = RunOptions(
            rounds=self.rounds,
            seed=_SEED,
            baselines=False,
            start=self.start,
            # With lost messages devices may seem to be converged before they have heard of others.
            all_rounds="faults" in given,
            **{"quantize": "none", **given},
        )
        return build_run(method, options, self.topology, shards)

    def play(
        self,
        *,
        changed: bool = False,
        overwrite_unsent: bool = False,
        checkpoints: "CheckpointsInMemory | None" = None,
        saved: Any = None,
        observer: Observer | None = None,
        **given: Any,
    ) -> PlayedRun:
        """Run a copy of the method, so that nothing it stores in its attributes affects another run.

        Parameters
        ----------
        changed : bool
            Use other points on one device.
        overwrite_unsent : bool
            Overwrite rows of message tables that are not sent.
        checkpoints : CheckpointsInMemory, optional
            Receives a checkpoint after every round.
        saved : optional
            Checkpoint from which the run continues.
        observer : Observer, optional
            Receives every call of the method.
        **given
            Further options of the run.
        """
        shards = self.points(changed=changed)
        method = deepcopy(self.method)
        method = method if observer is None else wrap_method(method, observer)
        return play_run(
            self.configure(method, shards, given),
            shards,
            self.start,
            advice="Run the method with p2pkm.simulate to see the traceback",
            read_only="Arguments are read-only: work on a copy",
            checkpoints=checkpoints,
            saved=saved,
            overwrite_unsent=overwrite_unsent,
        )

    @cached_property
    def plain(self) -> PlayedRun:
        """Run with the original points."""
        return self.play()

    @cached_property
    def changed(self) -> PlayedRun:
        """Run with other points on one device."""
        return self.play(changed=True)

    @cached_property
    def findings(self) -> Mapping[str, str]:
        """Violations found in the calls of the method, by the name of the check."""
        is_numeric = self.method.traits.message_content is not MessageContent.OTHER
        absent = self.starts_local or self.lacks_row
        checker = ContractChecker(self.method.k, FEATURES, numbers=is_numeric, absent=absent)
        try:
            self.play(observer=checker)
        except CrashError as error:
            # Of a run with absent rows, this is the only trace of an exception.
            checker.findings.setdefault("runs", str(error))
        return checker.findings


def _check_repeatable(trial: _Trial) -> str:
    # Different states of the global generators, which a method must not read.
    np.random.seed(1)
    random.seed(1)
    first = trial.plain
    np.random.seed(2)
    random.seed(2)
    difference = find_difference(first, trial.play())
    return difference and (
        f"{difference} when the run was repeated; runs with the same seed must be bit-identical. Draw random numbers "
        "from devices.keys or devices.shared_key (p2pkm.kernels.reference.philox), and store nothing in global "
        "variables"
    )


def _check_finite(trial: _Trial) -> str:
    absent = trial.on_absent_rows
    if absent is not None and not trial.findings.keys() & {"finite", "runs"}:
        found = absent.findings.get("finite") or absent.findings.get("runs")
        if found:
            where = (
                "on all devices, as with fewer distinct points than clusters"
                if absent.lacks_row
                else "as init='local' has them on devices with fewer points than clusters"
            )
            return (
                f"with absent centroids (+inf) at the start, {where}: {found}. Compute with present rows only "
                "(np.isfinite): inf - inf is NaN"
            )
    try:
        centroids = trial.plain.result.centroids
    except CrashError:
        # The check "runs" reports the exception, unless it is a consequence of NaN.
        return trial.findings.get("finite", "")
    without = [i for i, size in enumerate(SIZES) if size and not np.isfinite(centroids[i]).any()]
    if not without:
        return trial.findings.get("finite", "")
    return trial.findings.get(
        "finite",
        f"{list_devices(without)} ended without centroids; expected at least one finite row for a device with points. "
        "Leave a centroid unchanged when it loses its points",
    )


def _check_range(trial: _Trial) -> str:
    far = trial.far_away
    if far is None:
        return ""
    observer = far.watch_values()
    far.play(observer=observer)
    return observer.finding and (
        f"with points and initial centroids at {_SHIFT:g}, {observer.finding}; expected a centroid near the points, or "
        "+inf in every column if it is absent. Divide a sum of points and tables by all of their weights, which then "
        "add up to 1, and add only tables that are there. Leave a centroid unchanged when it has no points on a "
        "device: a sum of no points is 0, and 0 / 0 must not become 0 by np.nan_to_num, np.maximum(counts, 1) or a "
        "small number that is added"
    )


def _check_losses(trial: _Trial) -> str:
    on_changing_links = replace(trial, graph=_draw_changing_links())
    runs: tuple[tuple[str, str, _Trial, dict[str, Any]], ...] = (
        ("messages are lost and late", _EXCLUDES.format("LOSSY_LINKS"), trial, {"faults": _LOST}),
        (
            "devices are absent",
            f"{_EXCLUDES.format('LOSSY_LINKS')}, without tolerates_absence",
            trial,
            {"faults": _ABSENT},
        ),
        ("links change", _EXCLUDES.format("CHANGING_LINKS"), on_changing_links, {}),
    )
    for condition, way, setting, given in runs:
        if setting is on_changing_links and needs_hub(trial.method):
            continue
        # Refused by the traits, or by the method, such as on a graph with these links.
        with suppress(ExperimentError):
            found = _find_loss(setting, given)
            if found:
                return (
                    f"in a run in which {condition}, {found}. Compute with the messages that arrived only "
                    "(inbox.fresh, inbox.received, inbox.rows_of, which is -1 before the first), or declare in the "
                    f"traits {way}"
                )
    return ""


def _check_options(trial: _Trial) -> str:
    far = trial.far_away or trial
    runs: tuple[tuple[str, str, _Trial, dict[str, Any]], ...] = (
        ("messages are integers", "'quantization'", far, {"quantize": "rice"}),
        ("only the largest numbers of a table are sent", "'compression'", far, {"compress": "topk:share=0.2"}),
        # In units of its own, with points around 0.
        ("features are scaled", "Condition.MEASURED_POINTS", trial, {"scale": "standard"}),
    )
    for condition, key, setting, given in runs:
        observer = None if setting.far_away is None or "scale" in given else setting.watch_values()
        with suppress(ExperimentError):
            try:
                setting.play(observer=observer, **given)
                found = observer.finding if observer else ""
            except CrashError as error:
                found = str(error)
            if found:
                return (
                    f"in a run in which {condition}, {found}. Declare in the traits incompatible_with={{{key}: reason}}"
                )
    return ""


_EXCLUDES = "incompatible_with={{Condition.{}: reason}}"


def _draw_changing_links() -> Any:
    """Draw a graph for the trial whose links change in every round."""
    from topologies import one_peer_exponential

    return one_peer_exponential(len(SIZES))


def _find_loss(trial: _Trial, given: dict[str, Any]) -> str:
    """Describe what is wrong in a run with faults or changing links, "" if nothing is."""
    setting = trial.far_away or trial
    observer = None if setting is trial else setting.watch_values()
    try:
        first = setting.play(observer=observer, **given)
        second = setting.play(changed=True, **given)
    except CrashError as error:
        return str(error)
    if observer is not None and observer.finding:
        return f"{observer.finding}, far from the points"
    differing = compare_light_cones((first.exchanges, second.exchanges), changed=CHANGED)[1]
    if not differing:
        return ""
    exchange, device = differing[0]
    return (
        f"device {device} sent a different table in exchange {exchange} when the points of device {CHANGED} were "
        "changed, although no message with information about them had arrived"
    )


def _check_bytes(trial: _Trial) -> str:
    # Reports of clients have no header, and no encoded bytes.
    if trial.method.traits.is_server_method:
        return ""
    observer = HeaderChecker()
    trial.play(observer=observer)
    if observer.finding:
        return (
            f"{observer.finding} of the header of a message; expected the id of a device of which a message has told "
            "it. Bytes of the header are not counted, so that everything else belongs into the other columns: lower "
            "header, or leave it out"
        )
    blurred = replace(trial, blur=_BLUR).play()
    for number, (first, second) in enumerate(zip(trial.plain.exchanges, blurred.exchanges, strict=False)):
        found = find_too_short(first, second)
        if found:
            return (
                f"{found} in exchange {number}, all of which follow changes of the points by {_BLUR:g}; expected at "
                f"least {BYTES_PER_NUMBER} bytes for each such number. Compute wire from the numbers that are sent, or "
                "leave it out"
            )
    return ""


def _check_claims(trial: _Trial) -> str:
    traits, centroids = trial.method.traits, trial.plain.result.centroids
    rising = [record["round"] for record in trial.plain.records if record.get("descent") == "violated"]
    if rising:
        return (
            f"the objective rose in round {rising[0]}, but the trait guarantees_descent says that it never does. "
            "Correct update or the objective, or remove the trait"
        )
    if traits.common_centroids and (centroids != centroids[:1]).any():
        differing = np.flatnonzero((centroids != centroids[:1]).any(axis=(1, 2)))
        return (
            f"{list_devices(differing)} ended with other centroids than device 0, but the trait common_centroids says "
            "that all are equal. Send the result to all devices, or remove the trait"
        )
    lasts = trial.plain.records[-1]["round"] > PointChanger.last_round
    if traits.follows_points and lasts and not find_difference(trial.plain, trial.play(observer=PointChanger())):
        return (
            f"messages and results were identical when all points moved after round {PointChanger.last_round}, but the "
            "trait follows_points says that each round reads the points. Compute statistics of the points in update, "
            "not in initial_state, or remove the trait"
        )
    return ""


def _check_inputs(trial: _Trial) -> str:
    if "inputs" in trial.findings:
        return trial.findings["inputs"]
    with suppress(CrashError):
        _ = trial.plain
    written = find_written(type(trial.method), trial.outer)
    return written and (
        f"a run changed {written}, which is not a part of the state; a resumed run and other ranks lack it. Store "
        "it in the state, or use functools.cache for values that follow from arguments"
    )


def _check_ledger(trial: _Trial) -> str:
    difference = find_difference(trial.plain, trial.play(overwrite_unsent=True))
    return difference and (
        f"{difference} when rows that were not sent had other values; a method may read only rows that are sent, which "
        "the ledger counts. Read inbox.tables[slot, :inbox.rows[slot]], or send more rows"
    )


def _check_resume(trial: _Trial) -> str:
    resumed = resume_everywhere(trial.play, trial.topology, lambda saved: saved[(len(saved) - 1) // 2 :][:1])
    if resumed.obstacle:
        return (
            f"no checkpoint can be written: {resumed.obstacle}. A state must be a registered NamedTuple of arrays: "
            "decorate its class with @p2pkm.core.states.register"
        )
    return resumed.names and (
        f"{resumed.names} of a run resumed from a checkpoint differ from those of an uninterrupted run; both runs "
        "must be bit-identical. Store everything that the next round needs in the state, nothing in the method, and "
        "name fields by their first axis (p2pkm.engine.state_tree)"
    )


def _check_light_cone(trial: _Trial) -> str:
    runs = trial.plain.exchanges, trial.changed.exchanges
    differing = compare_light_cones(runs, changed=CHANGED)[1]
    if not differing:
        return ""
    exchange, device = differing[0]
    return (
        f"device {device} sent a different table in exchange {exchange} when the points of device {CHANGED} were "
        "changed, although no message had carried information about them; messages must depend only on local points "
        "and received messages. Compute the result of a device from its row of the batch, not from other rows"
    )


def _check_plan(trial: _Trial) -> str:
    (traffic, sequence), before = _plan_traffic(trial), (0, 0)
    # Smallest ratio of declared to sent messages and bytes over the rounds of each stage, with both numbers.
    nearest: dict[tuple[str, str], tuple[float, int, int]] = {}
    for record, stage in zip(trial.plain.records, number_stages(trial.plain.records, sequence), strict=True):
        # Records hold cumulative counts.
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
            if real:
                key = planned.name, unit
                nearest[key] = min(nearest.get(key, (np.inf, 0, 0)), (most / real, most, real))
    for (name, unit), (ratio, most, real) in nearest.items():
        if ratio > _LOOSE:
            return (
                f"expected_messages of {name!r} declares at most {most} {unit} in a round that sent {real}, and no "
                f"other round comes nearer; expected at most {_LOOSE} times as many. Declare the rows and columns that "
                "are sent"
            )
    return ""


def _plan_traffic(trial: _Trial) -> tuple[list[StageTraffic], tuple[Stage, ...]]:
    """Predict the messages of the run of a trial, and list its stages."""
    shards = place_points(trial.topology)
    config = trial.configure(deepcopy(trial.method), shards)
    method, sizes = config.configure(shards.m), shards.sizes
    setting = InitContext(trial.topology, sizes, shared_key(_SEED), method.k, FEATURES)
    sequence = stages(method, setting, config.rounds, seeded=trial.start is not None)
    options = RunOptions(seed=_SEED, quantize=Quantization.of("none"))
    size = Size(shards.m, FEATURES)
    plan = RunPlan(options, method, trial.topology, size, sizes, True, sequence, None, Spec("", {}), None)
    return stage_traffic(plan), sequence


def _check_weights(trial: _Trial) -> str:
    traits = trial.method.traits
    refused = traits.incompatible_with.get(Condition.POINT_WEIGHTS)
    ignored = refused or not find_difference(trial.plain, trial.changed)
    differs = not ignored and bool(find_difference(trial.plain, trial.play(observer=PointReweigher())))
    if differs and traits.ignores_weights:
        return (
            "messages or results differed with other point weights, but the trait ignores_weights says that every "
            "point counts once. Remove the trait, or do not use devices.point_weights"
        )
    if not ignored and not differs and not traits.ignores_weights:
        return (
            "messages and results were identical with other point weights; a point of weight 2 must count like two "
            "points. Use devices.point_weights or functions that do, such as devices.refine, or declare in the traits "
            "ignores_weights=True, or incompatible_with={Condition.POINT_WEIGHTS: reason}"
        )
    if needs_hub(trial.method) or trial.topology.varying is not None:
        return ""
    used = bool(find_difference(trial.plain, trial.on_weighted_links.play()))
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
    if against_suppression(trial.method):
        return ""
    count = trial.play(min_cluster_size=_MIN_CLUSTER_SIZE).result.summary["raw_points_disclosed"]
    if count:
        found = f"{count} points were sent unchanged with min_cluster_size={_MIN_CLUSTER_SIZE}; none may be"
    else:
        runs = [
            trial.play(changed=changed, min_cluster_size=_LARGE_CLUSTER_SIZE).exchanges for changed in (False, True)
        ]
        differing = find_dependent((runs[0], runs[1]))
        if not differing:
            return ""
        exchange, device = differing[0]
        found = (
            f"device {device} sent a different table in exchange {exchange} when the {SIZES[CHANGED]} points of "
            f"device {CHANGED} were changed, with min_cluster_size={_LARGE_CLUSTER_SIZE}; no message may depend on "
            "clusters with fewer points"
        )
    if trial.method.traits.suppresses_small_clusters:
        way = "The trait suppresses_small_clusters says that the method does it: omit"
    elif trial.method.traits.message_content is MessageContent.CENTROIDS:
        way = (
            "The channel removes rows with few nearest points, but a row that was computed from few points may have "
            "more of them nearest, or be passed on by others. Compute rows from local_sums of "
            "p2pkm.methods.building_blocks.averaging, which omits small clusters; or omit"
        )
    else:
        way = (
            "Declare MessageContent.CENTROIDS if rows are centroids, so that the channel removes rows of small "
            "clusters; or, with the trait suppresses_small_clusters, omit"
        )
    return (
        f"{found}. {way} points of small clusters (devices.min_count, and "
        "p2pkm.methods.building_blocks.small_clusters); or declare in the traits "
        "incompatible_with={'suppression': reason}"
    )


CHECKS: Mapping[str, Callable[[_Trial], str]] = {
    # Checked before the trial is set up, because a method without a declaration cannot run.
    "declaration": lambda trial: "",
    "shapes": lambda trial: trial.findings.get("shapes", ""),
    "finite": _check_finite,
    "runs": lambda trial: trial.plain and "",
    "repeatable": _check_repeatable,
    "inputs": _check_inputs,
    "parts": lambda trial: trial.findings.get("parts", ""),
    "ledger": _check_ledger,
    "bytes": _check_bytes,
    "resume": _check_resume,
    "light-cone": _check_light_cone,
    "plan": _check_plan,
    "weights": _check_weights,
    "claims": _check_claims,
    "suppression": _check_suppression,
    "range": _check_range,
    "losses": _check_losses,
    "options": _check_options,
}
