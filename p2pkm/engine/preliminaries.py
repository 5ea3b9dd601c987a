"""The stages before all others: devices agree on missing values, units of features and the number of clusters."""

from dataclasses import replace
from typing import Any

import numpy as np

from p2pkm.channel.transform import CHOOSING
from p2pkm.core.batch import Devices, Floats
from p2pkm.core.chunks import rescale
from p2pkm.data.readers.intake import FILLING
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch
from p2pkm.engine.build_run import RunConfig
from p2pkm.engine.checkpointing import Checkpointer
from p2pkm.engine.loop import RunContext, run_stage
from p2pkm.methods.building_blocks.number_of_clusters import COLUMNS, Decision, Verdict, prefer
from p2pkm.methods.init.pipelines import Stage, choosing_stage, imputing_stage, scaling_stage
from p2pkm.methods.init.registry import InitContext

Choice = dict[str, Any]
Scaling = tuple[Floats, Floats]  # shift and span that every device used, float64[n, d] each
_DOCS = "docs/methods.md, How many clusters"


def list_preliminaries(config: RunConfig, setting: InitContext) -> tuple[Stage, ...]:
    """Return the stages before all others, which decide about points and method."""
    filling = (imputing_stage(config.missing, setting),) if config.missing in FILLING else ()
    scaling = () if config.scale == "none" else (scaling_stage(config.scale, setting),)
    choosing = () if config.k_max is None else (choosing_stage(config.algorithm, setting),)
    return (*filling, *scaling, *choosing)


def run_preliminaries(
    config: RunConfig, own: Shards, before: tuple[Stage, ...], context: RunContext, keeper: Checkpointer
) -> tuple[RunConfig, Devices, Shards, Scaling | None, Choice | None]:
    """Run the stages before all others; return run, batch, points, shift and span, and the choice of k if open."""
    devices, scaling, choice = context.devices, None, None
    if config.missing in FILLING:
        devices, own = _impute(config, own, before[0], context, keeper)
        before, context = before[1:], context._replace(devices=devices)
    if config.scale != "none":
        devices, own, scaling = _scale(config, own, before[0], context, keeper)
    if config.k_max is not None:
        config, choice = _choose(config, before[-1], context._replace(devices=devices), keeper)
    return config, devices, own, scaling, choice


def _choose(config: RunConfig, stage: Stage, context: RunContext, keeper: Checkpointer) -> tuple[RunConfig, Choice]:
    """Let the devices choose the number of clusters by messages; return the run with it, and the choice."""
    context.monitor.attach(context.devices, None)
    context.channel.start((stage,), context.devices, context.monitor.network)
    choice = choose(stage, context, keeper)
    return replace(config, algorithm=config.algorithm.with_k(choice["k"])), choice


def _impute(
    config: RunConfig, own: Shards, stage: Stage, context: RunContext, keeper: Checkpointer
) -> tuple[Devices, Shards]:
    """Let the devices find mean or median of every feature by messages, and fill in what is missing."""
    context.monitor.attach(context.devices, None)
    context.channel.start((stage,), context.devices, context.monitor.network)
    return _rebuild(config, fill(own, impute(stage, context, keeper)), context)


def _rebuild(config: RunConfig, own: Shards, context: RunContext) -> tuple[Devices, Shards]:
    """Return the batch with other points, and these."""
    hosted = build_batch(config.topology, own, context.monitor.network, config.seed, context.devices.kernels)
    return context.channel.equip(replace(hosted, secrets=context.devices.secrets)), own


def _scale(
    config: RunConfig, own: Shards, stage: Stage, context: RunContext, keeper: Checkpointer
) -> tuple[Devices, Shards, Scaling]:
    """Let the devices agree on shift and span of every feature by messages, and scale their points by them."""
    context.monitor.attach(context.devices, None)
    context.channel.start((stage,), context.devices, context.monitor.network)
    units = scale(stage, context, keeper)
    network = context.monitor.network
    shared = network.allgather_by_device(units[0]), network.allgather_by_device(units[1])
    return *_rebuild(config, apply(own, units), context), shared


def scale(stage: Stage, context: RunContext, keeper: Any) -> tuple[Floats, Floats]:
    """Return shift and span of the own devices, float64[n, d] each, by messages; a run that is resumed may know them.

    A span of 0 counts as 1.
    """
    if keeper.scaling is None:
        shift, span = run_stage(stage, None, context).state.scaling
        keeper.scaling = shift, np.where(span > 0, span, 1.0)
    return keeper.scaling


def impute(stage: Stage, context: RunContext, keeper: Any) -> Floats:
    """Return what missing values of the own devices become, float64[n, d]; a run that is resumed may know them."""
    if keeper.filling is None:
        keeper.filling = run_stage(stage, None, context).state.filling
    found: Floats = keeper.filling
    return found


def fill(own: Shards, filling: Floats) -> Shards:
    """Return the points without NaN: in their place what each device has found."""
    lost = np.isnan(own.points)
    owner = np.repeat(np.arange(own.n), own.sizes)
    return replace(own, points=np.where(lost, filling[owner], own.points).astype(own.points.dtype, copy=False))


def apply(own: Shards, units: tuple[Floats, Floats]) -> Shards:
    """Return the points of every device in its own units."""
    return replace(own, points=rescale(own.points, own.offsets, *units))


def choose(stage: Stage, context: RunContext, keeper: Any) -> Choice:
    """Let the devices choose the number of clusters by messages; a run that is resumed may hold the choice.

    Returns
    -------
    dict
        ``k``, ``verdict`` (the name of a `Verdict` in lower case, None before it is made), ``groups`` (with gaps
        between them), the ``indices``, by name a list for k = 1, 2, ... (None: not defined), and the k that each of
        them ``prefers``.
    """
    if keeper.choice is None:
        state, network = run_stage(stage, None, context, CHOOSING).state, context.monitor.network
        counts = network.allgather_by_device(state.table.counts)
        table = network.allgather_by_device(state.table.values, counts)
        k = int(network.allgather_by_device(state.chosen)[0])
        verdict = network.allgather_by_device(state.verdict)
        if k == 0:  # the run was asked to stop
            return _describe(Decision(1, Verdict.NONE), table) | {"verdict": None}
        root = verdict[counts > 0][0]
        keeper.choice = _describe(Decision(k, Verdict(int(root[0])), int(root[1])), table)
    return keeper.choice


def summarize(choice: Choice | None) -> dict[str, Any]:
    """Return the entries of the summary."""
    if choice is None:
        return {}
    keys = {"k_chosen": "k", "k_verdict": "verdict", "k_preferred": "prefers", "k_indices": "indices"}
    return {key: choice[name] for key, name in keys.items()}


def explain(choice: Choice | None) -> list[str]:
    """Return a note if there are no clear clusters, if k is unclear, or if it is not that of Calinski-Harabasz."""
    if choice is None or choice["verdict"] is None:
        return []
    k, groups, best = choice["k"], choice["groups"], choice["prefers"]
    ch, bic, silhouette = (best.get(name) for name in ("ch", "bic", "silhouette"))
    if choice["verdict"] == "none":
        if ch is None:
            return ["no clear clusters: k is 1, too few distinct points to compare numbers of clusters"]
        return [f"no clear clusters: k is 1; the {ch} that Calinski-Harabasz prefers are not further apart than parts "
                f"of one cluster ({_DOCS}); give the number, -k {ch}, to use them all the same"]  # fmt: skip
    if choice["verdict"] == "unclear":
        gaps = f"; gaps divide them into {groups} group{'s' * (groups != 1)} only" if 0 < groups < k else ""
        return [f"the number of clusters is unclear: k is {k}; Calinski-Harabasz prefers {ch}, BIC {bic}, the "
                f"silhouette {silhouette}{gaps} ({_DOCS}); compare runs with other -k"]  # fmt: skip
    if k == ch:
        return []
    return [f"k is {k}, not the {ch} that Calinski-Harabasz prefers: these cut clusters that are long or much larger "
            f"than others, and so may k-means with {k}; --scale standard may help ({_DOCS})"]  # fmt: skip


def _describe(decision: Decision, table: Floats) -> Choice:
    """Return the choice as it is kept and shown."""
    columns = {
        name: [float(one) if np.isfinite(one) else None for one in values]
        for name, values in zip(COLUMNS, table.T, strict=True)
    }
    return {"k": decision.k, "verdict": decision.verdict.name.lower(), "groups": decision.groups, "indices": columns,
            "prefers": prefer(table) if len(table) else {}}  # fmt: skip
