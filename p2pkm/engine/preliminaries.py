"""Preliminary stages, before initialization and method: imputation, scaling and choice of the number of clusters.

Each of them ends with a result that all devices share. It is stored in the checkpointer, so that a resumed run does not
repeat the stage.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.channel.transform import CHOOSING
from p2pkm.core.batch import Devices, Floats
from p2pkm.core.chunks import rescale
from p2pkm.data.identifiers import FILLING
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch
from p2pkm.engine.build_run import RunConfig
from p2pkm.engine.checkpointing import Checkpointer
from p2pkm.engine.loop import RunContext, run_stage
from p2pkm.methods.init.pipelines import Stage, choosing_stage, imputing_stage, scaling_stage
from p2pkm.methods.init.registry import InitContext

if TYPE_CHECKING:
    from p2pkm.methods.building_blocks.number_of_clusters import Decision

Choice = dict[str, Any]
# Shift and span of each device of the system, float64[N, d] each.
Scaling = tuple[Floats, Floats]
_DOCS = "docs/howto/choose-k.md"


def list_preliminaries(config: RunConfig, setting: InitContext) -> tuple[Stage, ...]:
    """List the preliminary stages of a run, in their order."""
    filling = (imputing_stage(config.missing, setting),) if config.missing in FILLING else ()
    scaling = () if config.scale == "none" else (scaling_stage(config.scale, setting),)
    choosing = () if config.k_max is None else (choosing_stage(config.algorithm, setting),)
    return (*filling, *scaling, *choosing)


def run_preliminaries(
    config: RunConfig,
    shards: Shards,
    stages: tuple[Stage, ...],
    context: RunContext,
    checkpointer: Checkpointer,
) -> tuple[RunConfig, Devices, Shards, Scaling | None, Choice | None]:
    """Run the preliminary stages.

    Parameters
    ----------
    config : RunConfig
    shards : Shards
        Local points.
    stages : tuple of Stage
        Result of `list_preliminaries`.
    context : RunContext
    checkpointer : Checkpointer

    Returns
    -------
    config : RunConfig
        With the number of clusters that the devices chose.
    devices : Devices
    shards : Shards
        Local points without missing values, scaled.
    scaling : tuple or None
        Shift and span of each device; None without scaling.
    choice : dict or None
        Result of `choose`; None if k was set by the user.
    """
    devices, scaling, choice = context.devices, None, None
    if config.missing in FILLING:
        devices, shards = _impute(config, shards, stages[0], context, checkpointer)
        stages, context = stages[1:], context._replace(devices=devices)
    if config.scale != "none":
        devices, shards, scaling = _scale(config, shards, stages[0], context, checkpointer)
    if config.k_max is not None:
        config, choice = _choose(config, stages[-1], context._replace(devices=devices), checkpointer)
    return config, devices, shards, scaling, choice


def _choose(
    config: RunConfig, stage: Stage, context: RunContext, checkpointer: Checkpointer
) -> tuple[RunConfig, Choice]:
    """Run the stage that chooses the number of clusters; return the run with this number, and the choice."""
    context.monitor.attach(context.devices, None)
    context.channel.start((stage,), context.devices, context.monitor.network)
    choice = choose(stage, context, checkpointer)
    return replace(config, algorithm=config.algorithm.with_k(choice["k"])), choice


def _impute(
    config: RunConfig, shards: Shards, stage: Stage, context: RunContext, checkpointer: Checkpointer
) -> tuple[Devices, Shards]:
    """Run the stage that computes mean or median of each feature, and fill in the missing values."""
    context.monitor.attach(context.devices, None)
    context.channel.start((stage,), context.devices, context.monitor.network)
    return _rebuild(config, fill(shards, impute(stage, context, checkpointer)), context)


def _rebuild(config: RunConfig, shards: Shards, context: RunContext) -> tuple[Devices, Shards]:
    """Rebuild the batch with other points; return it and the points."""
    batch = build_batch(config.topology, shards, context.monitor.network, config.seed, context.devices.kernels)
    # The secret of a run is drawn once. Its keys are taken from the old batch.
    return context.channel.equip(replace(batch, secrets=context.devices.secrets)), shards


def _scale(
    config: RunConfig, shards: Shards, stage: Stage, context: RunContext, checkpointer: Checkpointer
) -> tuple[Devices, Shards, Scaling]:
    """Run the stage that computes shift and span of each feature, and scale the points."""
    context.monitor.attach(context.devices, None)
    context.channel.start((stage,), context.devices, context.monitor.network)
    units = scale(stage, context, checkpointer)
    network = context.monitor.network
    scaling = network.allgather_by_device(units[0]), network.allgather_by_device(units[1])
    return *_rebuild(config, apply(shards, units), context), scaling


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
    """Replace the missing values (NaN) of each local device by its row of `filling`, float64[n, d]."""
    is_missing = np.isnan(shards.points)
    device = np.repeat(np.arange(shards.n), shards.sizes)
    points = np.where(is_missing, filling[device], shards.points)
    return replace(shards, points=points.astype(shards.points.dtype, copy=False))


def apply(shards: Shards, units: tuple[Floats, Floats]) -> Shards:
    """Scale the points of each local device by its shift and span."""
    return replace(shards, points=rescale(shards.points, shards.offsets, *units))


def choose(stage: Stage, context: RunContext, checkpointer: Any) -> Choice:
    """Run the stage that chooses the number of clusters, or take the choice from the checkpoint.

    Returns
    -------
    dict
        * ``k``: number of clusters; 1 if the run was stopped before the choice.
        * ``verdict``: name of a `Verdict` in lower case; None if the run was stopped before.
        * ``groups``: number of groups that are separated by gaps.
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
        root = verdict[counts > 0][0]
        checkpointer.choice = _describe(Decision(k, Verdict(int(root[0])), int(root[1])), table)
    return checkpointer.choice


def summarize(choice: Choice | None) -> dict[str, Any]:
    """Select the metrics of the choice for the summary; empty if k was set by the user."""
    if choice is None:
        return {}
    keys = {"k_chosen": "k", "k_verdict": "verdict", "k_preferred": "prefers", "k_indices": "indices"}
    return {key: choice[name] for key, name in keys.items()}


def explain(choice: Choice | None) -> list[str]:
    """Write a note if the data lack clear clusters, if k is unclear, or if Calinski-Harabasz prefers another k."""
    if choice is None or choice["verdict"] is None:
        return []
    k, groups, best = choice["k"], choice["groups"], choice["prefers"]
    ch, bic, silhouette = (best.get(name) for name in ("ch", "bic", "silhouette"))
    if choice["verdict"] == "none":
        if ch is None:
            return ["no clear clusters: k is 1; too few distinct points to compare numbers of clusters"]
        return [
            f"no clear clusters: k is 1; the {ch} clusters that Calinski-Harabasz prefers are not further apart than "
            f"parts of one cluster ({_DOCS}). To use them nevertheless, set -k {ch}"
        ]
    if choice["verdict"] == "unclear":
        gaps = f"; gaps separate only {groups} group{'s' * (groups != 1)} of them" if 0 < groups < k else ""
        return [
            f"the number of clusters is unclear: k is {k}; Calinski-Harabasz prefers {ch}, BIC {bic}, the silhouette "
            f"{silhouette}{gaps} ({_DOCS}). Compare runs with other values of -k"
        ]
    if k == ch:
        return []
    return [
        f"k is {k}; Calinski-Harabasz prefers {ch}, which would split clusters that are elongated or much larger than "
        f"others. k-means with {k} clusters may split them, too; --scale standard may help ({_DOCS})"
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
        "groups": decision.groups,
        "indices": indices,
        "prefers": prefer(table) if len(table) else {},
    }
