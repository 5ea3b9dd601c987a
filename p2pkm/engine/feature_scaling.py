"""The stages before all others: the devices agree on what missing values become, and on the units of every feature."""

from dataclasses import replace
from typing import Any

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.chunks import rescale
from p2pkm.data.shards import Shards
from p2pkm.engine.loop import RunContext, run_stage
from p2pkm.methods.init.pipelines import Stage


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
