"""Builders of what a run is made of, through public constructors: what the tests of single parts share."""

from p2pkm.engine.loop import RunContext
from p2pkm.metrics.monitor import Monitor
from tests.support.play_rounds import Table


def build_monitor(table: Table, *, every: int = 1, prices=None) -> Monitor:
    """Build a monitor that watches all devices of a table, see `arrange`."""
    monitor = Monitor(table.network, every, lambda record: None, table.topology)
    monitor.attach(table.devices, prices)
    return monitor


def build_context(table: Table, *, interrupted=lambda: 0, **more) -> RunContext:
    """Build the context in which stages run on all devices of a table; more: further fields."""
    return RunContext(table.devices, table.topology.colors, build_monitor(table), interrupted, **more)
