"""The stage before all others: the devices agree on shift and span of every feature, and scale their points."""

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


def apply(own: Shards, units: tuple[Floats, Floats]) -> Shards:
    """Return the points of every device in its own units."""
    return replace(own, points=rescale(own.points, own.offsets, *units))
