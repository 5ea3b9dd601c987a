"""Faults by hand: who hears whom when a message, a link or a device fails, and what becomes of the methods."""

import json
from contextlib import nullcontext
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import p2pkm
import topologies
from p2pkm.channel.fault_model import (
    TraceFaults,
    build_fault_model,
    build_trace_model,
    find_sorted,
    rebuild_fault_model,
    record_faults,
)
from p2pkm.channel.fault_trace import AWAY, KIND, LONGEST, LOSS, ROUND, ROUNDS, TURN, A, parse_trace, write_trace
from p2pkm.channel.faults import FaultInjector
from p2pkm.channel.sampled_faults import Faults
from p2pkm.channel.stale_policy import StalePolicy
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages
from p2pkm.engine.build_run import check_options
from p2pkm.engine.loop import Start
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.schedules import make
from p2pkm.network.delay_model import SentTables
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from tests.support.play_rounds import arrange
from tests.support.run_cli import here, ranks, there
from tests.support.sampling import thin

PATH = Topology.from_links(3, np.array([[0, 1, 1.0], [1, 2, 1.0]]))  # edges: 0 hears 1; 1 hears 0; 1 hears 2; 2 hears 1
RING = Topology.from_links(4, np.array([[0, 1, 1.0], [1, 2, 1.0], [2, 3, 1.0], [0, 3, 1.0]]))


class Counting(NamedTuple):
    """State of a method that counts its own turns and says the count."""

    centroids: np.ndarray
    converged: np.ndarray
    turns: np.ndarray


class Counter:
    schedule = "jacobi"

    def __init__(self, rounds=99):
        self.rounds = rounds

    def initial_state(self, devices, start):
        n = len(devices)
        return Counting(np.zeros((n, 1, 1)), np.zeros(n, bool), np.zeros(n, np.int64))

    def message(self, state, devices):
        return DenseMessages(state.turns[:, None, None].astype(float), np.where(state.turns < self.rounds, 1, -1))

    def update(self, state, inbox, devices):
        return state._replace(turns=state.turns + 1)  # everybody, whoever is awake


def events(*lines):
    return [json.dumps(line) for line in lines]


def away(t, device, rounds=1):
    return {"kind": "away", "round": t, "device": device, "rounds": rounds}


def loss(t, src, dst, **more):
    return {"kind": "loss", "round": t, "src": src, "dst": dst, **more}


def delay(t, src, dst, rounds):
    return {"kind": "delay", "round": t, "src": src, "dst": dst, "rounds": rounds}


class Heard(NamedTuple):
    """What was heard after each round: the count said over each edge (None: as never heard), and whether it is new."""

    counts: list
    fresh: list
    turns: list
    injector: FaultInjector


def follow(topology, lines, rounds, *, stale="keep", schedule="jacobi", kept_after=None):
    """Return what everybody heard in the opening and after every turn; other faults take over after a round."""
    table = arrange([np.zeros((1, 1))] * topology.n, list(zip(topology.sources, topology.indices, strict=True)), d=1)
    network = LocalNetwork(place(topology, 0, 1))
    faults = TraceFaults(parse_trace(events(*lines), topology, "trace"), topology.n)
    injector = FaultInjector(faults, StalePolicy.of(stale), topology, network.placement)
    method, schedule = injector.wrap(Counter(), make(schedule, table.devices, topology.colors), network)
    network.open(injector)
    state, heard = method.initial_state(table.devices, None), Heard([], [], [], injector)

    def speak(devices):
        inbox = network.exchange(method.message(state, devices))
        heard.counts.append([None if s < 0 else int(inbox.tables[s, 0, 0]) for s in inbox.slots])
        heard.fresh.append(inbox.fresh.tolist())
        heard.turns.append(state.turns.tolist())
        return inbox

    inbox = speak(table.devices.at_stage_start(schedule.opening))
    for t in range(1, rounds + 1):
        for turn, awake in enumerate(schedule.turns(t)):
            now = table.devices.at_turn(t, turn, awake)
            state = method.update(state, inbox, now)
            inbox = speak(now)
        if t == kept_after:
            other = FaultInjector(faults, StalePolicy.of(stale), topology, network.placement)
            other.wrap(Counter(), make("jacobi", table.devices, topology.colors), network)
            other.restore(injector.snapshot())
            injector.__dict__ = other.__dict__
    return heard


# --- who hears whom, and when ---


def test_one_message_is_lost():
    heard = follow(PATH, [loss(2, 0, 1)], 3)
    assert heard.counts == [[0] * 4, [1] * 4, [2, 1, 2, 2], [3] * 4]
    assert [row[1] for row in heard.fresh] == [True, True, False, True]
    assert heard.injector.lost == 1


def test_a_message_that_is_late_is_heard_then_unless_a_newer_one_has_come():
    heard = follow(PATH, [delay(1, 0, 1, 2), delay(2, 0, 1, 2), delay(3, 0, 1, 2), delay(2, 1, 0, 1)], 6)
    over = [row[1] for row in heard.counts]
    assert over == [0, 0, 0, 1, 4, 4 + 1, 6]  # that of round 2 comes in round 4, together with a newer one
    assert [row[1] for row in heard.fresh] == [True, False, False, True, True, True, True]
    assert [row[0] for row in heard.counts] == [0, 1, 1, 3, 4, 5, 6]
    assert heard.injector.lost == 0


def test_a_link_that_is_down_loses_what_is_said_both_ways():
    heard = follow(PATH, [{"kind": "link", "round": 3, "src": 1, "dst": 0, "rounds": 3}], 6)
    assert [row[0] for row in heard.counts] == [0, 1, 2, 2, 2, 2, 6]
    assert [row[1] for row in heard.counts] == [0, 1, 2, 2, 2, 2, 6]
    assert [row[2] for row in heard.counts] == list(range(7))
    assert heard.injector.lost == 6


def test_who_is_away_stays_as_it_was_says_nothing_and_hears_nothing():
    heard = follow(PATH, [away(2, 1, rounds=2)], 5)
    assert [row[1] for row in heard.turns] == [0, 1, 1, 1, 2, 3]
    assert [row[0] for row in heard.turns] == list(range(6))
    assert [row[0] for row in heard.counts] == [0, 1, 1, 1, 2, 3]  # 0 hears 1
    assert [row[1] for row in heard.counts] == [0, 1, 1, 1, 4, 5]  # 1 hears 0
    assert [row[0] for row in heard.fresh] == [True, True, False, False, True, True]
    assert heard.injector.lost == 4  # what 0 and 2 said to 1
    assert heard.injector.unavailable_total == 2 and heard.injector.rounds == 5


def test_who_is_asleep_hears_and_finds_it_new_when_it_wakes():
    heard = follow(PATH, [{"kind": "asleep", "round": 2, "device": 1, "rounds": 2}], 4)
    assert [row[1] for row in heard.turns] == [0, 1, 1, 1, 2]
    assert [row[1] for row in heard.counts] == [0, 1, 2, 3, 4]
    assert heard.injector.lost == 0 and heard.injector.unavailable_total == 0


def test_what_a_sleeper_was_told_stays_new_until_it_is_awake():
    sleeper = {"kind": "asleep", "round": 2, "device": 1, "rounds": 2}
    heard = follow(PATH, [sleeper, away(2, 0, rounds=9)], 4)  # 0 speaks last in round 1, when 1 is still awake
    assert [row[1] for row in heard.fresh] == [True, True, True, True, False]


def test_a_partition_cuts_the_links_between_the_halves():
    heard = follow(RING, [{"kind": "partition", "round": 1, "rounds": 2}], 3)
    ends = list(zip(RING.sources.tolist(), RING.indices.tolist(), strict=True))
    apart = [(i < 2) != (j < 2) for i, j in ends]
    assert heard.counts[2] == [0 if cut else 2 for cut in apart]
    assert heard.counts[3] == [3] * 8
    named = follow(RING, [{"kind": "partition", "round": 1, "rounds": 2, "devices": [0, 2]}], 2)
    assert named.counts[2] == [0] * 8


def test_old_tables_are_used_for_so_long_only():
    down = [{"kind": "link", "round": 2, "src": 0, "dst": 1, "rounds": 9}]
    assert [row[1] for row in follow(PATH, down, 5, stale="keep:age=2").counts] == [0, 1, 1, 1, None, None]
    assert [row[1] for row in follow(PATH, down, 5, stale="keep:age=1").counts] == [0, 1, 1, None, None, None]
    assert [row[1] for row in follow(PATH, down, 5, stale="drop").counts] == [0, 1, None, None, None, None]
    gone = [away(2, 0, rounds=3)]
    assert [row[1] for row in follow(PATH, gone, 5, stale="keep:age=2").counts] == [0, 1, 1, 1, None, 2]
    assert [row[1] for row in follow(PATH, gone, 5, stale="drop").counts] == [0, 1, None, None, None, 2]


def test_no_more_tables_are_kept_than_rounds_unless_delays_hold_them_up():
    down = [{"kind": "link", "round": 2, "src": 0, "dst": 1, "rounds": 9}]
    heard = follow(PATH, down, 3, stale="keep:age=2", schedule="jacobi*2")
    assert [row[1] for row in heard.counts] == [0, 1, 2, 2, 2, None, None]
    late = [delay(t, 0, 1, 3) for t in range(1, 6)]  # here everybody speaks in both turns of a round
    heard = follow(PATH, late, 5, stale="keep:age=1", schedule="colored")
    assert [row[1] for row in heard.counts] == [0, 0, 0, None, None, None, None, 1, 2, 3, 4]


def test_dropping_takes_what_is_late_as_lost():
    heard = follow(PATH, [delay(2, 0, 1, 1)], 4, stale="drop")
    assert [row[1] for row in heard.counts] == [0, 1, None, 3, 4]
    assert heard.injector.lost == 1


def test_a_loss_may_be_of_one_turn():
    heard = follow(PATH, [loss(1, 0, 1, turn=1)], 2, schedule="jacobi*3")
    assert [row[1] for row in heard.counts] == [0, 1, 1, 3, 4, 5, 6]
    assert follow(PATH, [loss(1, 0, 1)], 1, schedule="jacobi*3").injector.lost == 3


def test_a_late_message_to_one_who_is_away_by_then_is_lost():
    heard = follow(PATH, [delay(1, 0, 1, 1), away(2, 1)], 3)
    assert [row[1] for row in heard.counts] == [0, 0, 0, 3]
    assert heard.injector.lost == 3
    assert heard.injector.snapshot()["losses"].tolist() == [0, 3, 0]  # kept by receiver, for any number of ranks


def test_an_empty_table_is_a_message_and_one_without_links_has_none():
    injector = follow(PATH, [loss(9, 0, 1)], 0).injector
    ages, fresh = injector.receive(SentTables(np.array([0, -1, 1]), 8, None))
    assert ages.tolist() == [0] * 4 and fresh.tolist() == [False, True, True, False]
    alone = follow(Topology.from_links(1, np.zeros((0, 3))), [away(1, 0)], 2)
    assert alone.turns == [[0], [0], [1]] and alone.injector.lost == 0
    at, here = find_sorted(np.zeros(0, np.int64), np.array([3, 4]))
    assert at.tolist() == [] and here.tolist() == [False, False]


def test_what_was_on_its_way_when_a_stage_ended_does_not_keep_the_next_one_from_ending():
    network = LocalNetwork(place(PATH, 0, 1))
    injector = follow(PATH, [delay(1, 0, 1, 9)], 1).injector
    injector.set_turn(0, np.ones(3, bool))
    assert injector.check_termination("silent") == ""
    injector.wrap(Counter(), make("jacobi", arrange([np.zeros((1, 1))] * 3, []).devices, PATH.colors), network)
    injector.set_turn(0, np.ones(3, bool))
    assert injector.check_termination("silent") == "silent"


def test_silence_is_no_end_while_somebody_is_away_or_a_message_on_its_way():
    heard = follow(PATH, [away(1, 0, 2), delay(3, 0, 1, 5)], 1)
    heard.injector.set_turn(0, np.array([False, True, True]))
    assert heard.injector.check_termination("silent") == ""  # 0 is away, and not converged
    assert heard.injector.check_termination("converged") == "converged"
    heard.injector.set_turn(0, np.ones(3, bool))
    assert heard.injector.check_termination("silent") == "silent"
    late = follow(PATH, [delay(1, 0, 1, 5)], 1)
    late.injector.set_turn(0, np.ones(3, bool))
    assert late.injector.check_termination("silent") == ""


lines = st.one_of(
    st.builds(loss, st.integers(0, 6), st.integers(0, 3), st.integers(0, 3)),
    st.builds(delay, st.integers(0, 6), st.integers(0, 3), st.integers(0, 3), st.integers(1, 4)),
    st.builds(away, st.integers(0, 6), st.integers(0, 3), st.integers(1, 4)),
    st.builds(
        lambda t, i, rounds: {"kind": "asleep", "round": t, "device": i, "rounds": rounds},
        st.integers(0, 6), st.integers(0, 3), st.integers(1, 4),
    ),
    st.builds(
        lambda t, i, rounds: {"kind": "link", "round": t, "src": i, "dst": (i + 1) % 4, "rounds": rounds},
        st.integers(0, 6), st.integers(0, 3), st.integers(1, 4),
    ),
).filter(lambda line: line.get("src") != line.get("dst") or "src" not in line)  # fmt: skip


def happens(lines, kind, t, *ends):
    """Return whether a line says that this holds in a round for these devices, in any order."""
    return any(
        line["kind"] == kind
        and line["round"] <= t < line["round"] + line["rounds"]
        and {line[key] for key in ("device", "src", "dst") if key in line} == set(ends)
        for line in lines
    )


def fate(lines, t, i, j):
    """Return what becomes of what j says to i in a round: None: lost, else how many rounds late it is."""
    mine = [line for line in lines if (line.get("src"), line.get("dst"), line["round"]) == (j, i, t)]
    lost = any(line["kind"] == "loss" for line in mine) or happens(lines, "link", t, i, j)
    late = max((line["rounds"] for line in mine if line["kind"] == "delay"), default=0)
    return None if lost or happens(lines, "away", t, i) else late


def naive(lines, rounds):
    """Return the counts that each edge of the ring has heard after each round, and the losses, message by message."""
    edges = list(zip(RING.sources.tolist(), RING.indices.tolist(), strict=True))
    turns, heard, coming, lost, found = [0] * 4, {}, [], 0, []
    for t in range(rounds + 1):
        gone = [happens(lines, "away", t, i) for i in range(4)]
        out = [gone[i] or happens(lines, "asleep", t, i) for i in range(4)]
        turns = [turns[i] + (t > 0 and not out[i]) for i in range(4)]
        message_delays = {(i, j): fate(lines, t, i, j) for i, j in edges if not out[j]}
        lost += sum(late is None for late in message_delays.values())
        coming += [(t + late, t, turns[j], i, j) for (i, j), late in message_delays.items() if late is not None]
        due = [message for message in coming if message[0] == t]
        lost += sum(gone[message[3]] for message in due)
        for _, said, count, i, j in due:
            if not gone[i]:
                heard[i, j] = max(heard.get((i, j), (-1, 0)), (said, count))
        found.append([heard[edge][1] if edge in heard else None for edge in edges])
    return found, lost


LATE = [(2, 3, 0, 4), (3, 0, 1, 3), (3, 2, 3, 3), (1, 1, 2, 3)]
LATE = [delay(*one) for one in LATE] + [loss(t, *one[1:3]) for one in LATE for t in range(one[0] + 1, 8)]


@given(st.lists(lines, max_size=12), st.integers(0, 7))
@example(LATE, 3)
def test_everybody_hears_what_a_look_at_every_message_says(trace, kept_after):
    heard, (counts, lost) = follow(RING, trace, 7, stale="keep:age=64", kept_after=kept_after), naive(trace, 7)
    assert heard.counts == counts
    assert heard.fresh == follow(RING, trace, 7, stale="keep:age=64").fresh
    assert heard.injector.lost == lost


# --- runs ---


POINTS = p2pkm.Shards.from_list([np.array([[x]]) for x in (0.0, 4.0, 8.0)])
START = np.array([2.0, 6.0, 10.0]).reshape(3, 1, 1)


def write(path, *lines):
    path.write_text("\n".join(events(*lines)) + "\n")
    return str(path)


def test_gtvmin_goes_on_with_what_it_has_heard(tmp_path):
    # one point x and one cluster: w = (x + alpha sum of what was heard) / (1 + alpha deg), at alpha 1/2
    trace = write(tmp_path / "t.jsonl", loss(1, 0, 1), away(2, 2))
    method = p2pkm.GTVMin(1, alpha=0.5, schedule="jacobi", tol=0.0)
    graph = PATH
    ends = [
        p2pkm.simulate(method, graph, POINTS, rounds=t, start=START, baselines=False, faults=trace).centroids[:, 0, 0]
        for t in (1, 2, 3)
    ]
    # E2 and E3 both pair the only centroids: two terms per link
    first = [(0 + 6) / 2, (4 + 2 + 10) / 3, (8 + 6) / 2]
    assert_allclose(ends[0], first)
    second = [(0 + first[1]) / 2, (4 + 2 + first[2]) / 3, first[2]]  # 1 has not heard 0's new one, 2 is away
    assert_allclose(ends[1], second)
    assert_allclose(ends[2], [(0 + second[1]) / 2, (4 + second[0] + first[2]) / 3, (8 + first[1]) / 2])


def test_the_share_away_is_that_of_the_clients(tmp_path):
    trace = write(tmp_path / "t.jsonl", away(2, 2), away(3, 3))  # 3 is the hub
    with pytest.warns(ConvergenceWarning, match="faults lost 4 messages and no centroid reached them"):
        result = p2pkm.simulate(p2pkm.FKM(1), None, POINTS, rounds=3, baselines=False, faults=trace)
    assert_allclose(result.summary["unavailable_fraction"], 1 / 9)


def test_sent_and_lost_are_counted_apart(tmp_path):
    trace = write(tmp_path / "t.jsonl", loss(1, 0, 1), away(2, 2))
    method = p2pkm.GTVMin(1, alpha=0.5, schedule="jacobi", tol=0.0)
    result = p2pkm.simulate(method, PATH, POINTS, rounds=3, start=START, baselines=False, faults=trace)
    assert_array_equal(result.ledger.messages, [4, 4, 4, 3])  # 2 says nothing in round 2
    assert result.summary["messages"] == 15 and result.summary["messages_lost"] == 2
    assert_allclose(result.summary["unavailable_fraction"], 1 / 9)
    assert result.summary["descent"] == "not claimed" and result.summary["faults"] == trace


def deal(n, seed=0, k=3):
    rng = np.random.default_rng(seed)
    return p2pkm.Shards.from_list([rng.normal(6.0 * rng.integers(0, k, (9, 1)), 1.0, (9, 2)) for _ in range(n)])


KEPT = ("chain_sha256", "messages", "bytes", "termination", "rounds", "messages_lost", "unavailable_fraction")
SPEC = "loss=0.1,loss_length=2,delay=0.1,link_failure=0.05,dropout=0.05,late_join=0.2,straggler=0.1,partition=4-6"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "turns", "stages"),
    thin(
        [
            (p2pkm.GTVMin(3, schedule="jacobi"), 1, "method"),
            (p2pkm.GTVMin(3, schedule="jacobi"), 1, "all"),
            (p2pkm.PushSumLloyd(3, gossips=4), 4, "method"),
        ],
        2,
    ),
)
def test_a_trace_written_ahead_is_what_is_drawn(tmp_path, method, turns, stages):
    graph, spec = topologies.small_world(12, degree=4, rewire=0.2, seed=1), f"{SPEC},stages={stages}"
    topology = Topology.from_graph(graph)
    trace = record_faults(build_fault_model(Faults.of(spec), topology, 7), topology, 200, turns)
    (tmp_path / "t.jsonl").write_text("\n".join(write_trace(trace, 12)))
    drawn, written = (
        p2pkm.simulate(method, graph, deal(12), seed=7, faults=faults, baselines=False, rounds=12)
        for faults in (spec, str(tmp_path / "t.jsonl"))
    )
    assert {key: drawn.summary[key] for key in KEPT} == {key: written.summary[key] for key in KEPT}


def test_two_methods_meet_the_same_faults():
    graph, lost = topologies.small_world(12, degree=4, rewire=0.2, seed=1), []
    for method in (p2pkm.GTVMin(3, schedule="jacobi", tol=0.0), p2pkm.ADMM(3, tol=0.0)):
        summary = p2pkm.simulate(method, graph, deal(12), faults=SPEC, baselines=False, rounds=25).summary
        lost.append((summary["messages_lost"], summary["unavailable_fraction"], summary["rounds"]))
    assert lost[0] == lost[1] and lost[0][0] > 100


@pytest.mark.parametrize("faults", ["loss=0", "max_delay=3,dropout_length=2"])
@pytest.mark.sample(2)
def test_nothing_that_goes_wrong_is_no_faults(faults, tmp_path):
    graph = topologies.ring(6)
    plain, other = (p2pkm.simulate(p2pkm.GTVMin(3), graph, deal(6), faults=one) for one in (None, faults))
    assert plain.summary["chain_sha256"] == other.summary["chain_sha256"]
    assert other.summary["descent"] == "certified" and other.summary["messages_lost"] is None
    (tmp_path / "empty.jsonl").write_text("\n")
    plain, again = (
        p2pkm.simulate(p2pkm.GTVMin(3), graph, deal(6), faults=one, quantize="none")  # what is in a trace is read later
        for one in (None, str(tmp_path / "empty.jsonl"))
    )
    assert again.summary["chain_sha256"] == plain.summary["chain_sha256"]


def test_the_fate_of_a_message_depends_on_round_turn_and_ends_alone():
    ring = Topology.from_graph(topologies.ring(4))
    one, other = (build_fault_model(Faults(loss=0.5, delay=0.5, max_delay=3), ring, 1) for _ in range(2))
    source, target = ring.indices, ring.sources
    order = np.array([3, 1, 7, 0])
    assert_array_equal(
        one.message_delays(5, 2, source, target)[order], other.message_delays(5, 2, source[order], target[order])
    )
    for whens in ([(t, 0) for t in range(500)], [(0, turn) for turn in range(500)]):
        message_delays = np.concatenate([one.message_delays(*when, source, target) for when in whens])
        assert set(message_delays) == {-1, 0, 1, 2, 3}
        assert abs(np.mean(message_delays < 0) - 0.5) < 0.03 and abs(np.mean(message_delays > 0) - 0.25) < 0.03
    said = [("loss=0.5", 3), ("loss=0.5,seed=3", 1), ("loss=0.5", 1)]
    found = [
        [build_fault_model(Faults.of(spec), ring, seed).message_delays(t, 0, source, target).tolist() for t in range(9)]
        for spec, seed in said
    ]
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "length"), [(0.1, 5.0), (0.3, 20.0), (0.25, 4 / 3)])
def test_losses_in_bursts_are_a_chain_of_two_states(loss, length):
    """Gilbert: a link becomes bad with p and good with r; 1 / r is the mean stretch, p / (p + r) the share."""
    graph = Topology.from_graph(topologies.complete(20))
    model = build_fault_model(Faults(loss=loss, loss_length=length), graph, 3)
    bad = np.array([model.message_delays(t, 0, graph.indices, graph.sources) < 0 for t in range(300)])
    for turn in (1, 2):  # a link is bad for a whole round
        assert_array_equal(model.message_delays(250, turn, graph.indices, graph.sources) < 0, bad[250])
    before, after = bad[:-1].ravel(), bad[1:].ravel()
    recovers, fails = 1 / length, loss / (1 - loss) / length
    assert abs(np.mean(~after[before]) - recovers) < 4 * np.sqrt(recovers / before.sum())
    assert abs(np.mean(after[~before]) - fails) < 4 * np.sqrt(fails / (~before).sum())
    # The chain is in its stationary distribution from the first round on.
    assert abs(bad[0].mean() - loss) < 4 * np.sqrt(loss / len(bad[0]))
    # No memory beyond the round before: a stretch of two bad rounds ends as often as one of one.
    twice = bad[:-2] & bad[1:-1]
    assert abs(np.mean(~bad[2:][twice]) - recovers) < 4 * np.sqrt(recovers / twice.sum())
    # Links are independent, also the two directions of one.
    assert abs(np.corrcoef(bad[0], bad[0][graph.mirror])[0, 1]) < 4 / np.sqrt(len(bad[0]))


def test_who_joins_late_comes_from_round_one_on_and_a_server_is_there():
    events = build_fault_model(Faults(late_join=1.0, join_by=3), Topology.star(300), 1).begin(0)
    assert_array_equal(events[:, [KIND, ROUND, A]], [[AWAY, 0, i] for i in range(300)])
    rounds, counts = np.unique(events[:, ROUNDS], return_counts=True)
    assert rounds.tolist() == [1, 2, 3] and (abs(counts - 100) < 40).all()


def test_a_hub_that_is_down_does_without_a_round(tmp_path):
    shards = deal(4)
    trace = write(tmp_path / "t.jsonl", away(2, 4), away(3, 0))  # the hub is device 4
    result = p2pkm.simulate(p2pkm.FKM(3), None, shards, rounds=4, faults=trace, baselines=False)
    sent = {(int(s), int(d)): int(m) for s, d, m in zip(*result.ledger[:3], strict=True)}
    # in round 2 the clients hear nothing and report again, to nobody; in round 3 the hub speaks to 0 in vain
    assert [sent[i, 4] for i in range(4)] == [4, 5, 5, 5]
    assert [sent[4, i] for i in range(4)] == [3, 3, 3, 3]
    assert result.summary["messages_lost"] == 5 and result.summary["rounds"] == 4


@pytest.mark.parametrize("kind", [p2pkm.FKM, p2pkm.FeCA])
def test_a_hub_that_misses_the_opening_is_told_again(tmp_path, kind):
    trace = write(tmp_path / "t.jsonl", away(0, 4, 2))  # back in round 2
    result = p2pkm.simulate(kind(3), None, deal(4), rounds=3, faults=trace, baselines=False)
    assert np.isfinite(result.centroids[:, 0]).all()
    assert result.summary["messages_lost"] == 8  # the reports of the opening and of round 1


# --- sums that must not be lost ---


def balance(method, lines, rounds):
    """Return what the masses and what is in between add up to, and what they should, after so many rounds."""
    rng = np.random.default_rng(3)
    links = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)]
    table = arrange([rng.normal(size=(i + 1, 2)) for i in range(5)], links)
    topology, devices, network = table
    trace = parse_trace(events(*lines), topology, "trace")
    injector = FaultInjector(TraceFaults(trace, 5), StalePolicy.keep(), topology, network.placement)
    schedule = make(method.schedule, devices, topology.colors)
    played, schedule = injector.wrap(method, schedule, network)
    network.open(injector)
    centroids = np.tile(rng.normal(size=(1, method.k, 2)), (5, 1, 1))
    state = played.initial_state(devices, Start(centroids, np.ones(5, bool)))
    inbox = network.exchange(played.message(state, devices.at_stage_start(schedule.opening)))
    for t in range(1, rounds + 1):
        for turn, awake in enumerate(schedule.turns(t)):
            now = devices.at_turn(t, turn, awake)
            state = played.update(state, inbox, now)
            inbox = network.exchange(played.message(state, now))
    return state, devices, topology


def losses(share, rounds, turns):
    """Return the lines of a trace that loses this share of the messages of five devices."""
    rng = np.random.default_rng(5)
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    return [
        loss(t, i, j, turn=u) for t in range(rounds) for u in range(turns) for i, j in pairs if rng.random() < share
    ]


@pytest.mark.parametrize("kind", [p2pkm.PushSumLloyd, p2pkm.TrackingLloyd])
def test_masses_and_what_is_in_between_add_up_to_all_points(kind):
    trace = [*losses(0.3, 12, 4), away(3, 1, 2), delay(5, 0, 2, 2), {"kind": "asleep", "round": 7, "device": 4}]
    for rounds in (1, 4, 6, 12):
        state, devices, topology = balance(kind(2, gossips=4, counters=True), trace, rounds)
        owed = state.totals.total[topology.indices] - state.totals.edge_received
        if kind is p2pkm.TrackingLloyd:
            degrees = topology.degrees
            owed = owed / (1 + np.maximum(degrees[topology.sources], degrees[topology.indices]))[:, None, None]
        assert_allclose(state.averages.sum(axis=0) + owed.sum(axis=0), state.local.sum(axis=0), atol=1e-9)
        assert_allclose(state.local[:, :, -1].sum(), devices.sizes.sum())


@pytest.mark.parametrize("kind", [p2pkm.PushSumLloyd, p2pkm.TrackingLloyd])
def test_with_counters_losses_do_not_move_the_mean(kind):
    """One cluster: every device must find the mean of all points."""
    trace = losses(0.3, 40, 4)
    means = {}
    for counters in (True, False):
        state, devices, _ = balance(kind(1, gossips=4, counters=counters), trace, 40)
        mean = devices.points.mean(axis=0)
        means[counters] = np.abs(state.centroids[:, 0] - mean).max()
    assert means[True] < 1e-6 < 1e-3 < means[False]


def test_counters_change_nothing_but_rounding_without_losses():
    graph = topologies.ring(6)
    one, other = (
        p2pkm.simulate(p2pkm.TrackingLloyd(3, counters=counters), graph, deal(6), baselines=False).centroids
        for counters in (None, True)
    )
    assert_allclose(one, other, rtol=1e-9)


# --- seeding under faults ---


@pytest.mark.parametrize(
    ("method", "faults"),
    thin(
        product(
            [p2pkm.GTVMin(3), p2pkm.ConsensusLloyd(3)],
            ["loss=0.2", "dropout=0.1", "delay=0.4,straggler=0.1,late_join=0.3"],
        ),
        2,
    ),
)
@pytest.mark.sample(3)
def test_all_devices_begin_with_the_same_centroids(method, faults):
    graph = topologies.random_regular(12, degree=4, seed=1)
    result = p2pkm.simulate(method, graph, deal(12), rounds=0, faults=f"{faults},stages=all", baselines=False)
    assert np.isfinite(result.centroids).all()
    assert result.summary["centroid_sets"] == 1
    assert result.summary["messages_lost"] > 0 or "delay" in faults


# --- what is refused, and what is said ---


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--faults los=1", "Did you mean 'loss'"),
        ("--faults churn=0.1", "It is called 'dropout' now. Known: "),
        ("--faults loss=2", "faults loss is 2.0"),
        ("--faults loss=nan", "expected a finite number"),
        ("--faults loss=.1,stages=some", "stages is 'some'. Known: all, method"),
        ("--faults loss=.2,loss_length=1", "expected at least 1 / (1 - loss)"),
        ("--faults loss=1,loss_length=9", "a loss below 1; loss is 1"),
        ("--faults loss=.2,loss_length=-3", "faults loss_length is -3"),
        ("--faults partition=5", "expected its first and last round, for example 10-20"),
        ("--faults max_delay=99,delay=.1", "expected at most 64 (rounds)"),
        ("--faults dropout_length=0,dropout=.1", "faults dropout_length is 0"),
        ("--faults nowhere.jsonl", "nowhere.jsonl cannot be read"),
        ("--faults .", "unknown key '.'"),
        ("--faults loss=.1 --link-model wan --schedule async", "faults count rounds, but devices then"),
        ("--faults loss=.1 --relaxation 1.5", "over-relaxation on old tables diverges"),
        ("--faults loss=.1 --algorithm mufc", "masks cancel only if the messages of all clients arrive"),
        ("--faults loss=.1 --algorithm coreset", "must arrive in the same turn"),
        ("--faults loss=.1 --algorithm treelloyd", "supports only faults of devices (dropout, late_join,"),
        ("--faults loss=.1 --stale-policy drp", "Did you mean 'drop'"),
        ("--faults loss=.1 --stale-policy keep:age=0", "stale policy keep:age is 0"),
        ("--faults loss=.1 --stale-policy keep:age=65", "expected at most 64 (rounds)"),
        ("--stale-policy drop", "stale policy drop requires faults"),
    ],
)
def test_what_cannot_be_is_refused(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ending = here("--out", "none", *words.split())
    assert ending.code == 2 and said in ending.err and not ending.out


def test_overshooting_is_refused_in_scripts_too():
    with pytest.raises(ExperimentError, match=r"relaxation is 1\.5; expected at most 1 with faults"):
        p2pkm.simulate(p2pkm.GTVMin(3, relaxation=1.5), topologies.ring(4), deal(4), faults="loss=0.1")


def test_notes_say_what_is_not_struck(tmp_path):
    def notes(faults, **options):
        method = p2pkm.GTVMin(3, **options)
        result = p2pkm.simulate(method, topologies.ring(4), deal(4), rounds=1, faults=faults, baselines=False)
        return " ".join(result.notes)

    assert "faults affect gtvmin, not the stages before it (flooded-summaries, select-candidate)" in notes("loss=0.1")
    assert "faults do not affect leader" in notes("loss=0.1,stages=all", init="leader")
    assert "not affect" not in notes("loss=0.1,stages=all")
    assert "2 events of the fault trace" in notes(write(tmp_path / "t.jsonl", loss(1, 0, 2), away(3, 4), away(1, 1)))


@pytest.mark.mpi
def test_ranks_read_a_trace_that_only_the_first_can_open(tmp_path):
    trace = write(tmp_path / "t.jsonl", loss(1, 0, 1), away(2, 2, 3), {"kind": "trace", "devices": 5, "stages": "all"})
    words = "--graph ring --devices 5 --data grid16:points=5 --format json --out none -q --faults".split()
    alone = here(*words, trace).summary
    three = there(*ranks(3), "-m", "p2pkm", *words, trace, cwd=tmp_path).summary
    assert not [key for key in KEPT if alone[key] != three[key]]


def test_an_empty_trace_is_none():
    assert build_trace_model(parse_trace([], PATH, "trace"), 3) is None


@pytest.mark.parametrize("stages", ["method", "all"])
def test_other_ranks_build_the_same_faults_from_what_the_first_has_read(tmp_path, stages):
    trace = write(tmp_path / "t.jsonl", {"kind": "trace", "stages": stages}, away(1, 2), loss(2, 0, 1), loss(3, 0, 2))
    for spec in (trace, f"loss=0.4,dropout=0.3,stages={stages}"):
        first = build_fault_model(Faults.of(spec), PATH, 5)
        other = rebuild_fault_model(Faults.of(spec), first.to_arrays(), PATH, 5)
        assert (first.stages, first.ignored_events) == (other.stages, other.ignored_events) == (stages, spec == trace)
        events, again = (record_faults(one, PATH, 9).events for one in (first, other))
        assert_array_equal(events, again)
        assert (events[:, KIND] == LOSS).sum() > 0 and set(events[:, TURN]) == {-1}  # one for all turns
    empty = write(tmp_path / "empty.jsonl")
    assert rebuild_fault_model(Faults.of(empty), {}, PATH, 5) is rebuild_fault_model(None, {}, PATH, 5) is None


def test_what_needs_every_message_runs_where_devices_alone_fail():
    for spec, absence in (("dropout=0.1,late_join=0.1,straggler=0.1", True), ("link_failure=0.1", False)):
        assert Faults.of(spec).device_faults_only is absence
        with nullcontext() if absence else pytest.raises(ExperimentError, match="supports only faults of devices"):
            check_options(p2pkm.TreeLloyd(2), RunOptions(faults=spec))


def test_no_faults_are_empty_and_have_a_text():
    assert Faults().empty and build_fault_model(Faults(), PATH, 0) is None and Faults.of(str(Faults())) == Faults()
    for name in ("loss", "delay", "link_failure", "dropout", "late_join", "straggler", "server"):
        assert not Faults(**{name: 0.1}).empty


def test_messages_are_lost_and_late_each_by_itself():
    topology = Topology.from_graph(topologies.complete(20))
    for shares, struck in (({"loss": 0.5}, -1), ({"delay": 0.5, "max_delay": 1}, 1)):
        late = build_fault_model(Faults(**shares), topology, 0).message_delays(1, 0, topology.indices, topology.sources)
        assert set(late) == {0, struck}
        for end in (topology.indices, topology.sources):  # neither all of a device nor none
            counts = np.bincount(end, late == struck)
            assert counts.min() > 0 and counts.max() < 19


def test_links_fail_each_by_itself():
    topology = Topology.from_graph(topologies.complete(30))
    model = build_fault_model(Faults(link_failure=0.5), topology, 0)
    rounds = [{tuple(row) for row in model.begin(t)[:, A : A + 2].tolist()} for t in range(2)]
    for device in range(20):  # neither all links to later devices nor to earlier ones nor none
        for down in rounds:
            assert 0 < sum(a == device for a, _ in down) < 29 - device
            assert 0 < sum(b == 29 - device for _, b in down) < 29 - device
    assert rounds[0] != rounds[1] and all(a < b for down in rounds for a, b in down)


def test_the_longest_delay_is_that_of_a_trace():
    assert p2pkm.Faults(delay=0.1, max_delay=LONGEST).max_delay == LONGEST
    with pytest.raises(ExperimentError, match=r"at most 64 \(rounds\)"):
        p2pkm.Faults(delay=0.1, max_delay=LONGEST + 1)


def test_notes_name_the_stages_without_faults():
    spared, struck, own, after = (Stage(name, None, 1, faults_apply=name == "struck", after=name == "after")
                                  for name in ("spared", "struck", "own", "after"))  # fmt: skip
    topology = Topology.from_graph(topologies.ring(3))
    rest = "stages=all affects them, too"
    for stages, all_stages, notes in (
        ((spared, struck, own), False, [f"faults affect own, not the stages before it (spared); {rest}"]),
        ((struck, own, after), False, [f"faults affect own, not the stages before or after it (after); {rest}"]),
        ((spared, own), True, ["faults do not affect spared: these stages require all messages, and receive them"]),
        ((struck, own), True, []),
    ):
        faults = build_fault_model(Faults(loss=0.5, stages="all" if all_stages else "method"), topology, 0)
        injector = FaultInjector(faults, StalePolicy.keep(), topology, place(topology, 0, 1))
        assert injector.notes(stages) == notes
