"""Checkpoints between two rounds: their content, when none is written, and resuming from them."""

import time
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
from p2pkm.engine.checkpointing import Checkpointer
from p2pkm.engine.loop import StageState, Start
from p2pkm.engine.state_tree import rebuild, split
from p2pkm.storage.checkpoint import CheckpointWriter
from p2pkm.storage.lock import Lock
from tests.support.play_rounds import arrange


class Sink:
    """Checkpoints in memory."""

    is_enabled = True

    def __init__(self):
        self.kept, self.excuses = [], []
        self.report_unavailable = self.excuses.append

    def is_due(self, t):
        return True

    def start_timer(self):
        """Take no time."""

    def put(self, outline, arrays):
        self.kept.append((outline, arrays))


class Links:
    """Something that lasts as long as a run."""

    def __init__(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def restore(self, kept):
        self.state = kept


class Strange(NamedTuple):
    """A state class that is not registered."""

    centroids: np.ndarray


def build_checkpointer(table):
    """Return a function that builds a checkpointer of these devices, and its sink."""
    monitor = SimpleNamespace(network=table.network, snapshot=lambda: {"records": 7}, restore=lambda kept: None)
    own = p2pkm.Shards.from_list(list(table.devices.points.reshape(3, 1, 1)))
    sink = Sink()
    return lambda saved=None: Checkpointer(monitor, sink, own, table.devices.kernels, saved), sink


def begin(table, devices):
    """Return state and inbox after an opening."""
    method, all_awake = p2pkm.GTVMin(1, init="local"), np.ones(3, bool)
    state = method.initial_state(devices, Start(np.zeros((3, 1, 1)), all_awake))
    return state, table.network.exchange(method.message(state, devices.at_stage_start(all_awake)))


@pytest.mark.parametrize("cut", [False, True])
def test_a_stage_state_is_restored_with_its_links(cut):
    table = arrange([[[0.0]], [[1.0]], [[2.0]]], [(0, 1), (1, 2)])
    build, sink = build_checkpointer(table)
    active = np.array([True, True, not cut, not cut])
    devices = table.devices.with_active_edges(active, np.array([1, 1, 1, 1])) if cut else table.devices
    state, inbox = begin(table, devices)
    before = build()
    before.watch({"faults": Links({"round": 4}), "events": Links({})})
    before.save(StageState(state, inbox, "converged", 3, 2), devices, Links({"unrest": 5}), last=False)
    ((outline, arrays),) = sink.kept
    saved = rebuild(outline, split(outline, arrays, table.topology, table.network.placement.division, 0))
    after, links, faults = build(saved), Links(None), Links(None)
    after.watch({"faults": faults, "events": Links("as it was")})
    stage, found = after.resume(table.devices)
    assert stage == saved["network"]["stage"]
    assert_array_equal(found.active_edges, active)
    assert_array_equal(found.neighbor_degrees, devices.neighbor_degrees)
    restored = after.restore(links)
    assert (restored.stop, restored.round, restored.turn) == ("converged", 3, 2)
    assert_array_equal(restored.state.centroids, state.centroids)
    assert (links.state, faults.state) == ({"unrest": 5}, {"round": 4})
    assert after.restore(links) is after.resume(table.devices) is None


def test_nothing_is_saved_without_a_sink_after_the_last_checkpoint_or_of_unregistered_states():
    table = arrange([[[0.0]], [[1.0]], [[2.0]]], [(0, 1), (1, 2)])
    build, sink = build_checkpointer(table)
    state, inbox = begin(table, table.devices)
    for one, last in ((state, True), (Strange(np.zeros((3, 1, 1))), False)):
        checkpointer = build()
        for kept in (False, True):
            assert checkpointer.is_enabled == checkpointer.is_due(1) != kept
            checkpointer.save(StageState(one, inbox, ""), table.devices, Links({}), last=last)
    assert len(sink.kept) == len(sink.excuses) == 1 and "Strange is not registered" in sink.excuses[0]
    sink.is_enabled = False
    assert not build().is_enabled


def test_the_next_checkpoint_is_due_after_30_s_or_40_times_the_last_duration(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Lock(tmp_path / "run") as held:
        writer = CheckpointWriter(held, None, dict, print)
        for took, pause in ((0.5, 30.0), (2.0, 80.0), (0.0, 30.0)):
            writer.start_timer()
            now[0] += took
            writer.put({}, {})
            ends = now[0]
            for later, due in ((0.0, False), (pause - 0.1, False), (pause + 0.1, True)):
                now[0] = ends + later
                assert writer.is_due(7) == due
