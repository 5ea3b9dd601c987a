"""A stage before all others but scaling: the devices choose the number of clusters."""

from typing import Any

import numpy as np

from p2pkm.channel.transform import CHOOSING
from p2pkm.core.batch import Floats
from p2pkm.engine.loop import RunContext, run_stage
from p2pkm.methods.building_blocks.number_of_clusters import COLUMNS, prefer
from p2pkm.methods.init.pipelines import Stage

Choice = dict[str, Any]


def choose(stage: Stage, context: RunContext, keeper: Any) -> Choice:
    """Return what the devices have chosen, by messages; a run that is resumed may know it.

    Returns
    -------
    dict
        ``k``, the ``indices``, by name a list for k = 1, 2, ... (None: not defined), and what each of them ``prefers``.
    """
    if keeper.choice is None:
        state, network = run_stage(stage, None, context, CHOOSING).state, context.monitor.network
        counts = network.allgather_by_device(state.table.counts)
        table = network.allgather_by_device(state.table.values, counts)
        k = int(network.allgather_by_device(state.chosen)[0])
        if k == 0:  # the run was asked to stop
            return _describe(1, table)
        keeper.choice = _describe(k, table)
    return keeper.choice


def _describe(k: int, table: Floats) -> Choice:
    """Return the choice as it is kept and shown."""
    columns = {
        name: [float(one) if np.isfinite(one) else None for one in values]
        for name, values in zip(COLUMNS, table.T, strict=True)
    }
    return {"k": k, "indices": columns, "prefers": prefer(table) if len(table) else {}}
