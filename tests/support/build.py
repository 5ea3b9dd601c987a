"""Builders of the parts of a run through public constructors, for tests of single parts."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

import p2pkm
import topologies
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.engine.loop import RunContext
from p2pkm.metrics.monitor import Monitor
from p2pkm.metrics.result import Result
from tests.support.play_rounds import Table


class BareMethod(NamedTuple):
    """Method with only traits and a number of clusters."""

    traits: MethodTraits
    k: int = 3


def build_method(**traits) -> BareMethod:
    """Build a method with these traits and no behavior."""
    return BareMethod(MethodTraits(**({"message_content": MessageContent.OTHER} | traits)))


def build_monitor(table: Table, *, every: int = 1, prices=None) -> Monitor:
    """Build a monitor of all devices of a table, see `arrange`."""
    monitor = Monitor(table.network, every, lambda record: None, table.topology)
    monitor.attach(table.devices, prices)
    return monitor


def build_context(table: Table, *, interrupted=lambda: 0, **more) -> RunContext:
    """Build the context of stages on all devices of a table; `more` sets further fields."""
    return RunContext(table.devices, table.topology.colors, build_monitor(table), interrupted, **more)


def build_result(**changes) -> Result:
    """Build the result of a run of GTVMin on a path of three devices, with other fields; summary: further entries."""
    result = _run()
    summary = dict(result.summary) | changes.pop("summary", {})
    return replace(result, summary=summary, **changes)


@cache
def _run() -> Result:
    shards = p2pkm.Shards.from_list([np.array([[float(i)], [i + 5.0]]) for i in range(3)])
    return p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(3), shards, rounds=2)
