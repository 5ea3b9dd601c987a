"""Stages one after another: which end a run, which play all of their rounds, and what is found before the first."""

import json
import time
import weakref
from signal import SIGINT, SIGTERM
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.channel.pipeline import Channel
from p2pkm.channel.transform import Transform
from p2pkm.core.messages import RaggedArray
from p2pkm.data.stream import DataStream
from p2pkm.engine import preliminaries
from p2pkm.engine.build_run import Rank, build_run
from p2pkm.engine.loop import StageResult, Start, _check_termination
from p2pkm.engine.preliminaries import choose, explain
from p2pkm.engine.run_job import Observers, report
from p2pkm.engine.run_job import play as play_rank
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.state_tree import rebuild, split
from p2pkm.methods.building_blocks.gtv_objective import GTVObjective
from p2pkm.methods.building_blocks.number_of_clusters import COLUMNS
from p2pkm.methods.init.coupling_estimate import CouplingEstimate
from p2pkm.metrics.monitor import Monitor
from p2pkm.network.graph import Topology
from p2pkm.network.local import LocalNetwork, LocalWorld
from p2pkm.network.rank_partition import RankPartition
from tests.support.build import build_context
from tests.support.each import each
from tests.support.play_rounds import arrange

RING = Topology.from_graph(topologies.ring(4))
PAIR = arrange([np.ones((3, 1)), np.zeros((2, 1))], [(0, 1)])


class Sink:
    """Checkpoints in memory; is_due: one after every round."""

    def __init__(self, *, is_enabled, is_due=False):
        self.is_enabled, self.kept, self._is_due = is_enabled, [], is_due

    def is_due(self, t):
        return self._is_due

    def start_timer(self):
        """Take no time."""

    def put(self, outline, arrays):
        self.kept.append((json.loads(json.dumps(outline)), {name: array.copy() for name, array in arrays.items()}))


class State(NamedTuple):
    """Of some devices."""

    converged: np.ndarray
    oscillating: np.ndarray


def play(init, interrupted=lambda: 0, sink=None, saved=None, method=None, **options):
    shards = p2pkm.Shards.from_list(list(np.random.default_rng(0).normal(size=(4, 6, 2))))
    method = method or p2pkm.GTVMin(2, coupling="strong", init=init, tol=1.0)
    config = build_run(method, RunOptions(**{"baselines": False} | options), RING, shards)
    rank = Rank(config, LocalWorld(), shards, saved=saved, interrupted=interrupted)
    return report(play_rank(rank, Observers(checkpoints=sink)))


def rounds(result):
    return [(record["stage"], record["round"]) for record in result.rounds]


@pytest.mark.parametrize("unit", [1, 4])
def test_points_that_arrive_are_scaled_like_those_of_the_start(unit):
    """Division by a power of two rounds nothing."""
    options = {"rounds": 4, "stream": DataStream(share=0.5)}
    plain = play("leader", **options)
    scaled = play("leader", scale=f"ranges:-{unit}..{unit}", **options)
    assert_array_equal(unit * scaled.centroids, plain.centroids)
    assert not np.array_equal(plain.centroids, play("leader", rounds=4, all_rounds=True).centroids)


@pytest.mark.parametrize(("number", "word"), [(SIGINT, "interrupted"), (SIGTERM, "terminated")])
def test_a_run_that_is_asked_to_stop_ends_with_the_stage_and_keeps_one_round_if_it_keeps_any(number, word):
    for sink, passed in ((None, 0), (Sink(is_enabled=False), 0), (Sink(is_enabled=True), 1)):
        result = play("leader", lambda: number, sink)
        assert rounds(result) == [("leader", t) for t in range(1 + passed)]
        assert result.summary["termination"] == word
        assert sink is None or len(sink.kept) == passed


@pytest.mark.parametrize(
    "options",
    [
        {"scale": "minmax", "clusters": "auto", "k_max": 3},
        {"scale": "standard", "stream": DataStream(share=0.2)},
        {"scale": "ranges:-9..30", "stream": DataStream(share=0.2)},
    ],
)
def test_a_run_that_is_asked_to_stop_at_any_moment_goes_on_to_the_same_bits(options):
    asked = []
    whole = play("leader", lambda: asked.append(0) or 0, Sink(is_enabled=True), rounds=4, **options)
    for moment in range(0, len(asked), 5):
        sink, left = Sink(is_enabled=True), iter([0] * moment)
        part = play("leader", lambda left=left: next(left, SIGINT), sink, rounds=4, **options)
        ((outline, arrays),) = sink.kept
        saved = rebuild(outline, split(outline, arrays, RING, RankPartition.blocks(4, 1), 0))
        again = play("leader", saved=saved, rounds=4, **options)
        assert len(part.rounds) < len(again.rounds) and again.rounds == whole.rounds
        assert again.summary["chain_sha256"] == whole.summary["chain_sha256"]


@each(("t", "signals", "moving", "found"), [
    (0, 0, 0, ("", "")), (2, 0, 0, ("converged", "")), (2, 0, 1, ("oscillating", "")), (2, 0, 2, ("", "")),
    (0, SIGINT, 2, ("", "interrupted")), (2, SIGTERM, 2, ("", "terminated")),
])  # fmt: skip
def test_why_a_stage_ends_where_nothing_is_kept(t, signals, moving, found):
    """Of two devices, so many have not converged; one alone oscillates."""
    context = build_context(PAIR, interrupted=lambda: signals)
    state = State(converged=np.arange(2) >= moving, oscillating=np.full(2, moving == 1))
    stop, request = _check_termination(context, state, any_sent=True, t=t)
    assert (stop, request.stop, request.save) == (*found, False)


def test_while_points_change_the_method_plays_all_rounds_and_the_stages_before_it_do_not():
    before, change, all_rounds = (
        play("leader", rounds=5, **more) for more in ({}, {"stream": DataStream(share=0.0)}, {"all_rounds": True})
    )
    assert before.summary["termination"] == "converged" and before.summary["rounds"] < 5
    own = [("gtvmin", t) for t in range(6)]
    leader = [one for one in rounds(before) if one[0] == "leader"]
    assert rounds(change) == leader + own and change.summary["termination"] == "all-rounds"
    assert [one for one in rounds(all_rounds) if one[0] == "gtvmin"] == own
    assert len(rounds(all_rounds)) > len(rounds(change))


def test_the_ends_of_the_method_and_of_what_comes_after_it_are_measured_in_full(monkeypatch):
    record, found = Monitor.record, []

    def watch(self, now, *given, last, closing, final):
        found.append((now["stage"], last, closing, final))
        record(self, now, *given, last=last, closing=closing, final=final)

    monkeypatch.setattr(Monitor, "record", watch)
    result = play("tree-summaries", rounds=2, method=p2pkm.TreeLloyd(2, local_steps=2))
    assert [stage for stage, last, _, _ in found if last] == [*dict(rounds(result))]
    assert [stage for stage, _, closing, _ in found if closing] == ["treelloyd", "local-steps"]
    assert [stage for stage, *_, final in found if final] == ["local-steps"]


def test_a_run_closes_its_network_says_what_there_is_to_say_and_spent_its_seconds(monkeypatch):
    closed, began = [], time.perf_counter()
    monkeypatch.setattr(LocalNetwork, "close", lambda network: closed.append(network))
    result = play("local", rounds=1)
    assert all(result.notes) and len(closed) == 1
    spent = [result.summary[name] for name in ("wall_seconds", "compile_seconds")]
    assert min(spent) >= 0 and sum(spent) <= time.perf_counter() - began


def test_units_are_spans_except_of_features_that_are_equal_everywhere():
    low, high = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.25, 7.0])
    shards = p2pkm.Shards.from_list([np.array([low, high]), (low + high)[None] / 2, low[None]])
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(3), shards, scale="minmax", rounds=1, baselines=False)
    shift, span = result.scaling
    assert_array_equal(shift, np.tile(low, (3, 1)))
    assert_array_equal(span, np.tile([1.0, 0.25, 4.0], (3, 1)))


def test_a_scale_is_no_advice_where_the_features_are_scaled():
    choice = {"k": 2, "verdict": "clear", "prefers": {"ch": 5}}
    notes = [explain(choice, scaled=scaled)[0] for scaled in (False, True)]
    assert ["--scale" in note for note in notes] == [True, False]


@pytest.mark.parametrize("k", [0, 1, 2])
def test_a_choice_is_kept_once_it_is_made_and_is_1_where_the_run_was_asked_to_stop(monkeypatch, k):
    values = np.arange(2.0 * len(COLUMNS)).reshape(2, -1)
    values[0, 1] = np.nan
    table, verdict = RaggedArray(values, np.array([0, 2])), np.array([0, 2])
    state = SimpleNamespace(table=table, chosen=np.array([k, k]), verdict=verdict)
    monkeypatch.setattr(preliminaries, "run_stage", lambda *_: StageResult(state, "", 1))
    checkpointer = SimpleNamespace(choice=None)
    found = choose(None, build_context(PAIR), checkpointer)
    assert found["k"] == max(k, 1) and checkpointer.choice == (found if k else None)
    assert found["verdict"] == ("unclear" if k else None)
    assert len(explain(found, scaled=False)) == (k > 0)
    assert list(found["indices"]) == list(COLUMNS)
    assert_allclose(found["indices"][COLUMNS[0]], values[:, 0])
    assert found["indices"][COLUMNS[1]] == [None, values[1, 1]]


class Plain(Transform):
    """Messages stay as they are."""

    name = "plain"


class Delaying(Transform):
    """Messages may be late."""

    name = "delaying"
    delays = True


@pytest.mark.parametrize(
    ("events", "transforms", "late"),
    [(None, [Plain()], False), (None, [Plain(), Delaying()], True), ("some", [Plain()], True)],
)
def test_messages_are_late_through_events_or_delays(events, transforms, late):
    assert build_context(PAIR, events=events, channel=Channel(transforms)).has_stale_links is late


@pytest.mark.parametrize(("t", "kept"), [(0, False), (1, True)])
def test_a_checkpoint_is_due_from_round_1_on(t, kept):
    context = build_context(PAIR, checkpointer=Sink(is_enabled=True, is_due=True), all_rounds=True)
    state = Start(None, np.zeros(2, np.bool_))
    assert _check_termination(context, state, True, t) == ("", ("", kept))


def test_a_stage_does_not_hold_the_arrays_of_the_stage_before(monkeypatch):
    """Alpha of all links is part of the state of GTVMin, but not of the estimate after it."""
    alphas, held = [], []
    compute, update = GTVObjective.link_alpha, CouplingEstimate.update

    def compute_alpha(self, *given):
        alphas.append(weakref.ref(alpha := compute(self, *given)))
        return alpha

    def check(self, *given):
        held.extend(alpha() is not None for alpha in alphas)
        return update(self, *given)

    monkeypatch.setattr(GTVObjective, "link_alpha", compute_alpha)
    monkeypatch.setattr(CouplingEstimate, "update", check)
    shards = p2pkm.Shards.from_list(list(np.random.default_rng(0).normal(size=(4, 6, 2))))
    p2pkm.simulate(p2pkm.GTVMin(2, coupling="bayes"), RING, shards, rounds=2, baselines=False)
    assert held and not any(held)
