"""Deadline of a round: who is late, what becomes of late messages, and how long a round takes."""

import networkx as nx
import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.engine.virtual_time import Clock
from tests.support.run_cli import here, ranks, there

# Three clients with 2, 10 and 100 points of mean 0.5, 4.5 and 49.5 compute for 10, 50 and 500 s.
SHARDS = p2pkm.Shards.from_list([np.arange(float(size))[:, None] for size in (2, 10, 100)])
SLOW = "lan:latency=0,access=none,speed=1,server_speed=1e30"


def average(rounds, deadline, policy=None):
    return p2pkm.simulate(
        p2pkm.DWFKM(1), None, SHARDS, rounds=rounds, all_rounds=True, baselines=False, link_model=SLOW,
        deadline=deadline, stale_policy=policy,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "third"), [("drop", (2 * 0.5 + 10 * 4.5) / 12), (None, (2 * 0.5 + 10 * 4.5 + 100 * 49.5) / 112)]
)
def test_late_reports_by_hand(policy, third):
    """The slow client misses every round; its report of round 1 is used in round 3, or never."""
    expected = [(0.5 + 4.5) / 2, (2 * 0.5 + 10 * 4.5) / 12, third]
    for rounds in (1, 2, 3):
        result = average(rounds, 60, policy)
        np.testing.assert_allclose(result.centroids[:3].ravel(), expected[rounds - 1], rtol=1e-12)
        assert [record["virtual_seconds"] for record in result.rounds] == [60.0 * (t + 1) for t in range(rounds + 1)]
        assert result.summary["messages_late"] == rounds + 1
        assert result.summary["messages_lost"] == (rounds + 1 if policy else 0)
        assert result.summary["messages"] == 3 * (2 * rounds + 1)


def test_a_round_ends_before_the_deadline_if_all_are_in_time():
    result = average(3, 501)
    assert [record["virtual_seconds"] for record in result.rounds] == [500.0, 1000.0, 1500.0, 2000.0]
    assert result.summary["messages_late"] == 0 and result.summary["deadline"] == 501


def test_neighbors_wait_for_a_late_table_until_the_deadline():
    """The link 0 - 1 takes 100 s, the other 1 s."""
    graph = nx.Graph([(0, 1, {"latency": 100.0}), (1, 2, {"latency": 1.0})])
    points = p2pkm.Shards.from_list([np.random.default_rng(i).normal(size=(4, 2)) for i in range(3)])
    result = p2pkm.simulate(
        p2pkm.GTVMin(2, schedule="jacobi", coupling=1.0), graph, points,
        start=np.broadcast_to([[[0.0], [1.0]]], (3, 2, 2)), rounds=4, all_rounds=True, baselines=False, deadline=10,
        link_model="lan:bandwidth=none,access=none,speed=1e30",
    )  # fmt: skip
    assert [record["virtual_seconds"] for record in result.rounds] == [10.0, 20.0, 30.0, 40.0, 50.0]
    assert result.summary["messages_late"] == 2 * 5


EDGE = "edge:speed=3e5"
FAULTS = "loss=0.1,delay=0.2,dropout=0.05,dropout_length=2,straggler=0.05,stages=all"
X, Y = p2pkm.blobs(clusters=3, points=20, box=30, seed=0)
SKEWED = p2pkm.Shards.deal(X, p2pkm.partition.dirichlet(Y, 6, alpha=0.3, seed=1), devices=6, labels=Y)
WORLDS = {
    "server": (p2pkm.FKM(3), None, {"deadline": 0.073}),
    "asked": (p2pkm.DWFKM(3), None, {"deadline": 0.0725, "client_share": "0.5:by=size", "faults": FAULTS}),
    "scaled": (p2pkm.FFCM(3), None, {"deadline": 0.08, "faults": FAULTS, "stale_policy": "drop"}),
    "peers": (p2pkm.GTVMin(3, schedule="jacobi", coupling=5.0), topologies.ring(6), {"deadline": 0.0366}),
    "turns": (p2pkm.ConsensusLloyd(3, gossips=3), topologies.ring(6), {"deadline": 0.09, "faults": FAULTS}),
    "changing": (p2pkm.PushSumLloyd(3), topologies.one_peer_exponential(6), {"deadline": 0.0366, "faults": FAULTS}),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_run_and_the_ledger_find_the_same_messages_late(name, monkeypatch):
    """The clock of the run and that of the ledger, which starts after other stages, agree in every exchange."""
    method, graph, options = WORLDS[name]
    found = []
    advance = Clock.advance_turn

    def observe(clock, turn):
        arrivals = advance(clock, turn)
        if clock.deadline is not None:
            found.append((clock.overdue.copy(), clock.ready.copy(), clock.received.copy()))
        return arrivals

    monkeypatch.setattr(Clock, "advance_turn", observe)
    result = p2pkm.simulate(method, graph, SKEWED, rounds=9, all_rounds=True, link_model=EDGE, **options)
    half = len(found) // 2
    assert half >= 10 and len(found) == 2 * half
    for of_run, of_ledger in zip(found[:half], found[half:], strict=True):
        for one, other in zip(of_run, of_ledger, strict=True):
            np.testing.assert_array_equal(one, other)
    seconds = [record["virtual_seconds"] for record in result.rounds if record["stage"] == method.name]
    assert (np.diff(seconds) <= options["deadline"] * (1 + 1e-9)).all()
    # Some messages are late, others in time.
    assert 0 < result.summary["messages_late"] < result.summary["messages"]
    assert np.count_nonzero([overdue.any() for overdue, _, _ in found]) > 2


def test_a_deadline_that_nobody_misses_changes_nothing_but_waits():
    """The results are those of the method that tolerates faults."""
    for method, graph in ((p2pkm.FKM(3), None), (p2pkm.GTVMin(3, schedule="jacobi", coupling=5.0), topologies.ring(6))):
        patient, plain = (
            p2pkm.simulate(method, graph, SKEWED, rounds=6, link_model=EDGE, **options).summary
            for options in ({"deadline": 1e6}, {"faults": "dropout=1e-300,loss=1e-300"})
        )
        assert patient["chain_sha256"] == plain["chain_sha256"] and patient["messages_late"] == 0
        assert patient["virtual_seconds"] == pytest.approx(plain["virtual_seconds"])


def test_what_cannot_have_a_deadline_is_refused():
    run = {"link_model": "wan", "deadline": 1.0}
    for method, graph, options, message in (
        (p2pkm.GTVMin(3), topologies.ring(6), run, "deadline=1 cannot be combined with gtvmin: .*the schedule colored"),
        (p2pkm.TreeLloyd(3), topologies.ring(6), run, "deadline=1 cannot be combined with treelloyd"),
        (p2pkm.FKM(3), None, {"deadline": 1.0}, "deadline 1 requires a link model"),
        (p2pkm.FKM(3), None, run | {"deadline": 0.0}, r"deadline is 0.0; expected a finite number above 0"),
        (p2pkm.FKM(3), None, run | {"quantize": "rice"}, "cannot be combined with deadline=1"),
    ):
        with pytest.raises(ExperimentError, match=message):
            p2pkm.simulate(method, graph, SKEWED, **options)


@pytest.mark.mpi
def test_three_ranks_find_the_same_messages_late():
    common = "--algorithm fkm --devices 9 --data grid16:points=9 -k 4 --rounds 8 --out none -q --format json".split()
    common += ["--faults", "loss=0.1,delay=0.1", "--link-model", EDGE, "--deadline", "0.075", "--client-share", "0.7"]
    alone, together = here(*common).summary, there(*ranks(3), "-m", "p2pkm", *common).summary
    assert together["ranks"] == 3 and alone["messages_late"] > 0
    for name in ("chain_sha256", "virtual_seconds", "messages_late", "messages_lost", "wire_bytes"):
        assert alone[name] == together[name]
