"""Conformance checks for methods: `check_method`, the counterpart of scikit-learn's ``check_estimator``."""

import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from p2pkm.channel.quantization import Quantization
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
    compare_light_cones,
    find_dependent,
    find_difference,
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

_SEED = 3
# Of the check "suppression": a row that stands for one point would equal it, and no cluster of the changed device is
# large enough.
_MIN_CLUSTER_SIZE, _LARGE_CLUSTER_SIZE = 2, SIZES[CHANGED] + 1
# Largest ratio of what a bound on the messages of a round allows to what is sent, in the round where it is smallest.
_LOOSE = 2
_FIRST = ("shapes", "finite", "runs", "repeatable")  # if one of these fails, later checks are not meaningful


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
        - ``"resume"``: a run resumed from a checkpoint is bit-identical to an uninterrupted run.
        - ``"light-cone"``: messages of a device depend only on its local points and on received messages.
        - ``"plan"``: messages match `expected_messages`, or are fewer where rows may be absent, by half at most in one
          round.
        - ``"weights"``: point weights change the result if points do, unless the traits exclude
          ``Condition.POINT_WEIGHTS`` or have ``ignores_weights``; link weights change it if and only if the trait
          ``link_weights`` is set.
        - ``"suppression"``: with ``min_cluster_size`` no point is sent unchanged, and messages do not depend on the
          points of a device that has fewer, unless the traits exclude ``"suppression"``.
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
    names = choose_checks(CHECKS, only, skip)
    try:
        check_declaration(kind, kind.__name__)
    except ExperimentError as error:
        raise CheckError(kind.__name__, {"declaration": str(error)}) from None
    outer = hash_outer(kind)
    trial = _Trial(_seed_noise(kind(CLUSTERS) if isinstance(method, type) else method), graph, rounds, outer)
    return run_checks(kind.__name__, CHECKS, names, trial, _FIRST)


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
        return start

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

    def configure(self, method: Any, shards: Shards, min_cluster_size: int = 0) -> Run:
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
        checkpoints: "CheckpointsInMemory | None" = None,
        saved: Any = None,
        observer: Observer | None = None,
        min_cluster_size: int = 0,
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
        observer : ContractChecker or PointReweigher, optional
            Receives every call of the method.
        min_cluster_size : int
            Suppression threshold.
        """
        shards = place_points(self.topology, changed=changed)
        method = deepcopy(self.method)
        method = method if observer is None else wrap_method(method, observer)
        return play_run(
            self.configure(method, shards, min_cluster_size),
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
    ignored = refused or traits.ignores_weights or not find_difference(trial.plain, trial.changed)
    if not ignored and not find_difference(trial.plain, trial.play(observer=PointReweigher())):
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
    "resume": _check_resume,
    "light-cone": _check_light_cone,
    "plan": _check_plan,
    "weights": _check_weights,
    "suppression": _check_suppression,
}
