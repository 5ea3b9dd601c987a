"""Preliminary stages, before initialization and method: imputation, scaling and choice of the number of clusters.

Each of them ends with a result that all devices share. It is stored in the checkpointer, so that a resumed run does not
repeat the stage.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.channel.transform import CHOOSING
from p2pkm.core.batch import Floats
from p2pkm.core.chunks import rescale
from p2pkm.data.identifiers import FILLING
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch
from p2pkm.engine.build_run import Choice, Rank, Run
from p2pkm.engine.checkpointing import Checkpointer
from p2pkm.engine.loop import RunContext, run_stage
from p2pkm.methods.init.pipelines import Stage, choosing_stage, imputing_stage, scaling_stage
from p2pkm.methods.init.registry import InitContext

if TYPE_CHECKING:
    from p2pkm.methods.building_blocks.number_of_clusters import Decision

# Runs a stage, and returns rank and context with what the devices learned from it.
Absorb = Callable[[Rank, RunContext, Stage, Checkpointer], tuple[Rank, RunContext]]
_HELP = "see p2pkm help clusters"


def list_preliminaries(run: Run, setting: InitContext) -> list[tuple[Stage, Absorb]]:
    """List the preliminary stages of a run, in their order, each with the function that runs it."""
    preliminaries: list[tuple[Stage, Absorb]] = []
    if run.missing in FILLING:
        preliminaries.append((imputing_stage(run.missing, setting), _impute))
    if run.scale in ("standard", "minmax"):
        preliminaries.append((scaling_stage(run.scale, setting), _scale))
    if run.k_max is not None:
        preliminaries.append((choosing_stage(run.algorithm, setting), _choose))
    return preliminaries


def _impute(rank: Rank, context: RunContext, stage: Stage, checkpointer: Checkpointer) -> tuple[Rank, RunContext]:
    """Run the stage that computes mean or median of each feature, and fill in the missing values."""
    _start(stage, context)
    return _with_points(rank, context, fill(rank.shards, impute(stage, context, checkpointer)))


def _scale(rank: Rank, context: RunContext, stage: Stage, checkpointer: Checkpointer) -> tuple[Rank, RunContext]:
    """Run the stage that computes shift and span of each feature, and scale the points."""
    _start(stage, context)
    units, network = scale(stage, context, checkpointer), context.monitor.network
    rank = replace(rank, scaling=(network.allgather_by_device(units[0]), network.allgather_by_device(units[1])))
    return _with_points(rank, context, apply(rank.shards, units))


def scale_by_ranges(rank: Rank, context: RunContext) -> tuple[Rank, RunContext]:
    """Scale the points by ranges that are public, which needs no stage; all other scalings are left to theirs."""
    run, local = rank.run, rank.shards
    if isinstance(run.scale, str):
        return rank, context
    shift, span = run.scale.find_units(run.features, local.d)
    rank = replace(rank, scaling=(np.tile(shift, (run.topology.n, 1)), np.tile(span, (run.topology.n, 1))))
    units = np.tile(shift, (local.n, 1)), np.tile(span, (local.n, 1))
    return _with_points(rank, context, apply(local, units))


def _choose(rank: Rank, context: RunContext, stage: Stage, checkpointer: Checkpointer) -> tuple[Rank, RunContext]:
    """Run the stage that chooses the number of clusters, and give it to the method."""
    _start(stage, context)
    choice = choose(stage, context, checkpointer)
    run = replace(rank.run, algorithm=rank.run.algorithm.with_k(choice["k"]))
    return replace(rank, run=run, choice=choice), context


def _start(stage: Stage, context: RunContext) -> None:
    """Prepare monitor and channel for a stage."""
    context.monitor.attach(context.devices, None)
    context.channel.start((stage,), context.devices, context.monitor.network)


def _with_points(rank: Rank, context: RunContext, shards: Shards) -> tuple[Rank, RunContext]:
    """Return rank and context with other points, for which the batch is built again."""
    old, run = context.devices, rank.run
    batch = build_batch(run.topology, shards, context.monitor.network, run.seed, old.kernels)
    # The secret of a run is drawn once. Its keys are taken from the old batch.
    devices = context.channel.equip(replace(batch, secrets=old.secrets))
    return replace(rank, shards=shards), context._replace(devices=devices)


def scale(stage: Stage, context: RunContext, checkpointer: Any) -> tuple[Floats, Floats]:
    """Compute shift and span of each feature by messages, or take them from the checkpoint.

    Returns
    -------
    shift, span : float64[n, d]
        Of each local device. The span of a constant feature is 1.
    """
    if checkpointer.scaling is None:
        shift, span = run_stage(stage, None, context).state.scaling
        checkpointer.scaling = shift, np.where(span > 0, span, 1.0)
    return checkpointer.scaling


def impute(stage: Stage, context: RunContext, checkpointer: Any) -> Floats:
    """Compute the replacement of missing values of each local device, float64[n, d], or take it from the checkpoint."""
    if checkpointer.filling is None:
        checkpointer.filling = run_stage(stage, None, context).state.filling
    filling: Floats = checkpointer.filling
    return filling


def fill(shards: Shards, filling: Floats) -> Shards:
    """Replace the missing values (NaN) of each local device, also of test points, by its row of `filling`[n, d]."""
    is_missing = np.isnan(shards.points)
    device = np.repeat(np.arange(shards.n), shards.sizes)
    points = np.where(is_missing, filling[device], shards.points)
    tests = None if shards.tests is None else fill(shards.tests, filling)
    return replace(shards, points=points.astype(shards.points.dtype, copy=False), tests=tests)


def apply(shards: Shards, units: tuple[Floats, Floats]) -> Shards:
    """Scale the points of each local device, its test points and its known centers by its shift and span."""
    shift, span = (np.expand_dims(part, 1) for part in units)
    return replace(
        shards,
        points=rescale(shards.points, shards.offsets, *units),
        tests=None if shards.tests is None else apply(shards.tests, units),
        centers=None if shards.centers is None else (shards.centers - shift) / span,
    )


def choose(stage: Stage, context: RunContext, checkpointer: Any) -> Choice:
    """Run the stage that chooses the number of clusters, or take the choice from the checkpoint.

    Returns
    -------
    dict
        * ``k``: number of clusters; 1 if the run was stopped before the choice.
        * ``verdict``: name of a `Verdict` in lower case; None if the run was stopped before.
        * ``indices``: by name of the index, its values for k = 1, 2, ...; None where it is undefined.
        * ``prefers``: by name of the index, its preferred k.
    """
    from p2pkm.methods.building_blocks.number_of_clusters import Decision, Verdict

    if checkpointer.choice is None:
        state, network = run_stage(stage, None, context, CHOOSING).state, context.monitor.network
        counts = network.allgather_by_device(state.table.counts)
        table = network.allgather_by_device(state.table.values, counts)
        k = int(network.allgather_by_device(state.chosen)[0])
        verdict = network.allgather_by_device(state.verdict)
        # The run was stopped before the choice, which must therefore not be stored.
        if k == 0:
            return _describe(Decision(1, Verdict.NONE), table) | {"verdict": None}
        # Only the root of the tree has the table of indices and the verdict.
        root = int(np.flatnonzero(counts)[0])
        checkpointer.choice = _describe(Decision(k, Verdict(int(verdict[root]))), table)
    return checkpointer.choice


def summarize(choice: Choice | None) -> dict[str, Any]:
    """Select the metrics of the choice for the summary; empty if k was set by the user."""
    if choice is None:
        return {}
    keys = {"k_chosen": "k", "k_verdict": "verdict", "k_preferred": "prefers", "k_indices": "indices"}
    return {key: choice[name] for key, name in keys.items()}


def explain(choice: Choice | None, *, scaled: bool) -> list[str]:
    """Write a note if the data lack clear clusters, if k is unclear, or if Calinski-Harabasz prefers another k.

    `scaled` tells whether the features are scaled already; then no note suggests a scale.
    """
    if choice is None or choice["verdict"] is None:
        return []
    k, best = choice["k"], choice["prefers"]
    ch, bic, silhouette = (best.get(name) for name in ("ch", "bic", "silhouette"))
    if choice["verdict"] == "none":
        if ch is None:
            return ["no clear clusters: k is 1; too few distinct points to compare numbers of clusters"]
        return [
            f"no clear clusters: k is 1; the {ch} clusters that Calinski-Harabasz prefers are not further apart than "
            f"parts of one cluster ({_HELP}). To use them nevertheless, set -k {ch}"
        ]
    if choice["verdict"] == "unclear":
        return [
            f"the number of clusters is unclear: k is {k}; Calinski-Harabasz prefers {ch}, BIC {bic}, the silhouette "
            f"{silhouette} ({_HELP}). Compare runs with other values of -k"
        ]
    if k == ch:
        return []
    return [
        f"k is {k}; Calinski-Harabasz prefers {ch}, because clusters are elongated or of different size. k-means may "
        f"cut a long or large cluster and merge others{'' if scaled else '; --scale standard may help'}. Compare with "
        f"a run with -k {ch}"
    ]


def _describe(decision: "Decision", table: Floats) -> Choice:
    """Convert the choice to plain values for checkpoints and the summary."""
    from p2pkm.methods.building_blocks.number_of_clusters import COLUMNS, prefer

    indices = {
        name: [float(value) if np.isfinite(value) else None for value in values]
        for name, values in zip(COLUMNS, table.T, strict=True)
    }
    return {
        "k": decision.k,
        "verdict": decision.verdict.name.lower(),
        "indices": indices,
        "prefers": prefer(table) if len(table) else {},
    }
