"""A stage before all others but scaling: the devices choose the number of clusters."""

from typing import Any

import numpy as np

from p2pkm.channel.transform import CHOOSING
from p2pkm.core.batch import Floats
from p2pkm.engine.loop import RunContext, run_stage
from p2pkm.methods.building_blocks.number_of_clusters import COLUMNS, Decision, Verdict, prefer
from p2pkm.methods.init.pipelines import Stage

Choice = dict[str, Any]
_DOCS = "docs/methods.md, How many clusters"


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
