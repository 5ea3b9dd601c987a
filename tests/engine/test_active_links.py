"""Runs on graphs that change from round to round, computed by hand, and what they share with graphs that do not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.engine.active_links import ActiveLinks
from p2pkm.methods.building_blocks.random_matching import match
from p2pkm.methods.peer.admm import ADMM
from p2pkm.methods.peer.consensus import ConsensusLloyd
from p2pkm.methods.peer.coreset import Coreset
from p2pkm.methods.peer.gossip import GossipMatching
from p2pkm.methods.peer.pushsum import PushSumLloyd
from p2pkm.methods.peer.tracking import TrackingLloyd
from p2pkm.network.graph import Topology
from tests.support.play_rounds import arrange
from tests.support.run_cli import SMALL, here, on_ranks, solve
from topologies.time_varying.graph import Exchange, record


def changing(n, *rounds):
    """Return the graph of these rounds, each a list of links."""
    ends = (np.array(links, np.int64).reshape(-1, 2).T for links in rounds)
    return record(n, [Exchange(u, v) for u, v in ends], "by-hand")


KEPT = ("graph", "chain_sha256", "messages", "bytes", "termination", "rounds")
ALTERNATING = changing(3, [(0, 1)], [(1, 2)])  # directed edges of the union in the order 01 10 12 21
POINTS = p2pkm.Shards.from_list([np.array([[x]]) for x in (0.0, 4.0, 8.0)])
START = np.array([2.0, 6.0, 10.0]).reshape(3, 1, 1)


def run(method, rounds, graph=ALTERNATING, shards=POINTS, start=START, **options):
    return p2pkm.simulate(method, graph, shards, rounds=rounds, start=start, baselines=False, **options)


def ends(method, rounds, **options):
    """Return the only coordinate of every device after so many rounds."""
    return run(method, rounds, **options).centroids[:, 0, 0]


def deal(n, seed=0, k=3):
    rng = np.random.default_rng(seed)
    return p2pkm.Shards.from_list([rng.normal(6.0 * rng.integers(0, k, (9, 1)), 1.0, (9, 2)) for _ in range(n)])


# --- who hears whom, and when ---


def test_gtvmin_in_step_acts_on_the_links_of_the_round_before():
    # alone: the own point x; at alpha 1/2 with one neighbor: (x + w) / 2
    method = p2pkm.GTVMin(1, alpha=0.5, schedule="jacobi", tol=0.0)
    assert_array_equal(ends(method, 1), [(0 + 6) / 2, (4 + 2) / 2, 8])
    assert_array_equal(ends(method, 2), [0, (4 + 8) / 2, (8 + 3) / 2])
    result = run(method, 2)
    assert_array_equal(result.ledger.messages, [2, 2, 1, 1])
    assert_array_equal(result.ledger.bytes, [16, 16, 8, 8])
    assert [entry["messages"] for entry in result.rounds] == [2, 4, 6]


def test_gtvmin_by_colors_keeps_the_links_for_a_round_and_then_all_speak():
    method = p2pkm.GTVMin(1, alpha=0.5, tol=0.0)  # colors 0, 1, 0
    assert_array_equal(ends(method, 1), [3, (4 + 3) / 2, 8])
    assert_array_equal(ends(method, 2), [0, (4 + 5.75) / 2, (8 + 3.5) / 2])
    result = run(method, 2)
    # opening: both ends of 01; 0 to 1; then both ends of 12; 2 to 1; then both ends of 01
    assert_array_equal(result.ledger.messages, [3, 2, 1, 2])
    assert result.summary["relaxation"] == 1.0


@pytest.mark.parametrize("schedule", ["jacobi", "colored"])
def test_the_strength_of_a_link_counts_the_links_in_use(schedule):
    # one point each, one cluster: alpha_ij = coupling / sqrt(deg_i deg_j), and both ends have one link in use
    by_coupling = p2pkm.GTVMin(1, coupling=0.5, schedule=schedule, tol=0.0)
    assert_array_equal(ends(by_coupling, 3), ends(p2pkm.GTVMin(1, alpha=0.5, schedule=schedule, tol=0.0), 3))


def test_metropolis_weights_count_the_links_in_use():
    assert_array_equal(ends(ConsensusLloyd(1, gossips=1, tol=0.0), 1), [2, 2, 8])
    assert_array_equal(ends(ConsensusLloyd(1, gossips=1, tol=0.0), 2), [0, 6, 6])
    assert_array_equal(ends(TrackingLloyd(1, gossips=1, tol=0.0), 2), [2, 5, 5])
    assert_array_equal(ends(TrackingLloyd(1, gossips=1, tol=0.0), 3), [3.5, 3.5, 5])


def test_mixing_matrices_are_those_of_the_weights_of_the_links_in_use():
    rng = np.random.default_rng(4)
    complete = topologies.complete(6)
    for u, v in complete.edges:
        complete[u][v]["weight"] = float(rng.integers(1, 20))
    links, chain = topologies.CSRGraph.from_networkx(complete), topologies.edge_markov(6, on=0.4, off=0.4, seed=1)
    graph = topologies.TimeVaryingGraph(links, None, chain.active)
    values, start = rng.normal(size=6), np.zeros((6, 1, 1))
    shards = p2pkm.Shards.from_list([np.array([[x]]) for x in values])
    source, w = np.repeat(np.arange(6), 5), np.zeros((6, 6))
    for t in (1, 2, 3):
        w[source, links.indices] = np.where(graph.active(t - 1), links.weights, 0.0)
        count = (w > 0).sum(axis=1)
        q = w / np.where(count > 0, w.sum(axis=1) * (1 + 1 / np.maximum(count, 1)), 1.0)[:, None]
        P = np.minimum(q, q.T) + np.diag(1 - np.minimum(q, q.T).sum(axis=1))
        A = q.T + np.diag(1 - q.sum(axis=1))
        found = run(ConsensusLloyd(1, gossips=1, tol=0.0), t, graph, shards, start).centroids[:, 0, 0]
        assert_allclose(found, P @ values, atol=1e-14)
        found = run(PushSumLloyd(1, gossips=1, tol=0.0), t, graph, shards, start).centroids[:, 0, 0]
        assert_allclose(found, (A @ values) / A.sum(axis=1), atol=1e-14)


def test_several_gossips_in_a_round_go_over_one_round_of_the_graph_each():
    assert_array_equal(ends(ConsensusLloyd(1, gossips=2, tol=0.0), 1), [2, 5, 5])
    assert_array_equal(ends(PushSumLloyd(1, gossips=2, tol=0.0), 1), [2, 5, 5])
    assert_array_equal(ends(PushSumLloyd(1, gossips=3, tol=0.0), 1), [3.5, 3.5, 5])
    # a round of three gossips later the links begin with the other one: 8 and 4 meet, then 0 and 6, then 3 and 6
    assert_array_equal(ends(PushSumLloyd(1, gossips=3, tol=0.0), 2), [3, 4.5, 4.5])
    assert_array_equal(run(ConsensusLloyd(1, gossips=2), 1).ledger.messages, [2, 2, 1, 1])


def test_gossip_meets_over_links_in_use_alone():
    result = run(GossipMatching(1, tol=0.0), 3)
    assert_array_equal(result.ledger.messages, [2, 2, 2, 2])
    assert_array_equal(result.ledger.turn, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])  # who has no link says it to nobody


def test_a_matching_takes_links_in_use_and_as_many_as_it_can():
    graph = topologies.peer_sampler(20, degree=4, period=5, seed=2)
    topology = Topology.from_graph(graph)
    for t in range(5):
        active = graph.active(t)
        partner = match(topology, 7, t, active)
        pairs = {(int(i), int(j)) for i, j in enumerate(partner) if j >= 0}
        linked = set(zip(topology.sources[active].tolist(), topology.indices[active].tolist(), strict=True))
        assert pairs <= linked and pairs == {(j, i) for i, j in pairs}
        assert not [(i, j) for i, j in linked if not (partner[i] >= 0 or partner[j] >= 0)]


@pytest.mark.parametrize("name", sorted(topologies.TIME_VARYING))
@pytest.mark.sample(3)
def test_every_message_goes_over_a_link_in_use(name):
    graph = topologies.build(name, 16)
    rng = np.random.default_rng(0)
    method = p2pkm.GTVMin(3, schedule="jacobi", tol=0.0)
    result = run(method, 7, graph, deal(16), rng.normal(size=(16, 3, 2)))
    assert_array_equal(result.ledger.messages, sum(graph.active(t).astype(int) for t in range(8)))


@pytest.mark.parametrize("method", [
    p2pkm.GTVMin(3, schedule="jacobi"), ConsensusLloyd(3, gossips=1), PushSumLloyd(3, gossips=1),
    TrackingLloyd(3, gossips=1), GossipMatching(3),
], ids=lambda method: method.name)  # fmt: skip
def test_after_a_round_only_those_linked_in_it_know(method):
    graph, shards = topologies.random_matchings(10, period=9, seed=1), deal(10)
    start = np.tile(np.random.default_rng(1).normal(3.0, 4.0, (3, 2)), (10, 1, 1))
    disturbed = start.copy()
    disturbed[4] += np.random.default_rng(2).normal(0.0, 4.0, (3, 2))
    one, other = (run(method, 1, graph, shards, given).centroids for given in (start, disturbed))
    partner = int(
        graph.indices[graph.indptr[4] : graph.indptr[5]][graph.active(0)[graph.indptr[4] : graph.indptr[5]]][0]
    )
    changed = np.flatnonzero((one != other).any(axis=(1, 2)))
    assert set(changed) <= {4, partner} and 4 in changed
    assert partner in changed


# --- what follows ---


@pytest.mark.parametrize("graph", [
    topologies.one_peer_exponential(8), topologies.simple_base(7), topologies.simple_base(11, peers=2),
    topologies.hyper_hypercube(12, peers=2),
], ids=lambda graph: f"{graph.name} {graph.n}")  # fmt: skip
def test_a_period_of_gossips_with_the_weights_of_the_paper_is_a_central_lloyd_step(graph):
    shards = deal(graph.n)
    start = np.tile(np.array([[0.0, 0.0], [6.0, 6.0], [12.0, 12.0]]), (graph.n, 1, 1))
    found = run(ConsensusLloyd(3, gossips=graph.period), 1, graph, shards, start).centroids
    nearest = ((shards.points[:, None] - start[0]) ** 2).sum(axis=2).argmin(axis=1)
    central = [shards.points[nearest == c].mean(axis=0) for c in range(3)]
    assert_allclose(found, np.tile(central, (graph.n, 1, 1)), atol=1e-10)
    fewer = run(ConsensusLloyd(3, gossips=graph.period - 1), 1, graph, shards, start).centroids
    assert np.abs(fewer - central).max() > 1e-3


def test_all_links_in_every_round_are_the_graph_that_does_not_change():
    links = [(i, (i + 1) % 6) for i in range(6)]
    always, shards = changing(6, links), deal(6)
    start = np.random.default_rng(3).normal(size=(6, 3, 2))
    for method in (p2pkm.GTVMin(3, schedule="jacobi", tol=0.0), GossipMatching(3), TrackingLloyd(3), ConsensusLloyd(3)):
        found = [run(method, 5, graph, shards, start) for graph in (always, topologies.ring(6))]
        assert_array_equal(found[0].centroids, found[1].centroids)
        assert_array_equal(found[0].ledger.messages, found[1].ledger.messages)
        assert [entry["objective"] for entry in found[0].rounds] == [entry["objective"] for entry in found[1].rounds]


def test_rest_counts_once_it_has_lasted_for_a_period():
    alone = p2pkm.GTVMin(1, alpha=0.0, schedule="jacobi")  # everybody takes the own mean in round 1, and rests
    for period in (1, 2, 5):
        graph = changing(3, [(0, 1), (1, 2)], *[[(0, 1)]] * (period - 1))
        result = run(alone, 20, graph)
        assert (result.summary["termination"], result.summary["rounds"]) == ("converged", 1 + period)
    assert run(alone, 20, topologies.path(3)).summary["rounds"] == 2


def test_a_round_without_any_link_is_not_the_end():
    graph = changing(3, [(0, 1), (1, 2)], [], [])
    result = run(GossipMatching(1, tol=0.0), 7, graph)
    assert (result.summary["termination"], result.summary["rounds"]) == ("round-limit", 7)
    assert result.summary["messages"] == 2 * 3  # one pair meets in rounds 0, 3 and 6 of the graph


def test_silence_is_no_end():
    table = arrange([[[0.0]]] * 3, [(0, 1), (1, 2)])
    links = ActiveLinks(table.devices, table.network, ALTERNATING)
    said = []
    for stop in ("silent", "converged", "converged", "silent", "oscillating"):
        links.advance(due=True)
        said.append(links.check_termination(stop))
    assert said == ["", "", "converged", "", ""]


def test_a_checkpoint_knows_how_long_there_has_been_rest():
    table = arrange([[[0.0]]] * 3, [(0, 1), (1, 2)])
    before, after = (ActiveLinks(table.devices, table.network, ALTERNATING) for _ in range(2))
    for stop in ("", "", "converged"):
        before.advance(due=True)
        assert before.check_termination(stop) == ""
    after.restore(before.snapshot())
    assert after.check_termination("converged") == ""
    after.advance(due=True)
    assert after.check_termination("converged") == "converged"


def test_seeding_speaks_over_all_links():
    graph = topologies.one_peer_exponential(8)
    shards, union = deal(8), graph.union
    method = p2pkm.GTVMin(3, init="flooded-summaries", coupling=30)
    found = [p2pkm.simulate(method, one, shards, rounds=0) for one in (graph, union)]
    assert_array_equal(found[0].centroids, found[1].centroids)
    before = [[entry["messages"] for entry in one.rounds if entry["stage"] != "gtvmin"] for one in found]
    assert before[0] == before[1]
    assert_array_equal(found[1].ledger.messages - found[0].ledger.messages, ~graph.active(0))


def test_no_descent_is_claimed_and_a_note_says_why():
    result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.one_peer_exponential(8), deal(8), rounds=5)
    assert {entry["descent"] for entry in result.rounds} == {"not claimed"}
    assert result.summary["descent"] == "not claimed"
    assert result.summary["groups"] == 1
    assert any("Descent is not certified" in note and "one-peer-exponential" in note for note in result.notes)


@pytest.mark.parametrize(("method", "piece"), [
    (p2pkm.GTVMin(3, groups=True), "removes links between groups"), (p2pkm.GTVMin(3, relaxation=1.5), "uses relaxation "
    "1.5"),
    (ADMM(3), "dual variables"), (Coreset(3), "must not change"),
    (p2pkm.TreeLloyd(3), "links must not change"),
], ids=["groups", "relaxation", "admm", "coreset", "treelloyd"])  # fmt: skip
def test_methods_that_need_links_to_last_are_refused(method, piece):
    with pytest.raises(ExperimentError, match=f"{piece}.* one-peer-exponential change from round to round"):
        p2pkm.simulate(method, topologies.one_peer_exponential(8), deal(8))


@pytest.mark.slow
def test_strong_links_do_not_blow_up_without_theta():
    for schedule in ("colored", "async", "jacobi"):
        method = p2pkm.GTVMin(3, coupling=30.0, schedule=schedule)
        result = p2pkm.simulate(method, topologies.random_matchings(12, seed=1), deal(12), rounds=100)
        assert result.summary["ratio_mean"] < 1.5


# --- from the command line ---


@pytest.mark.parametrize("graph", ["one-peer-exponential", "peer-sampler:degree=2", "edge-markov:over=ring,on=0.5"])
@pytest.mark.sample(3)
def test_the_command_line_takes_them(graph):
    summary = solve("--graph", graph, "--seed", "3")
    assert summary["graph"].startswith(graph)
    assert summary["descent"] == "not claimed"


@pytest.mark.mpi
def test_every_rank_builds_the_same_rounds():
    commands = [("run", *SMALL, "--devices", "8", "--graph", graph, "--seed", "2", "--out", "none", "--format", "json")
                for graph in ("random-waypoint", "edge-markov:over=ring,on=0.5")]  # fmt: skip
    for words, ending in zip(commands, on_ranks(3, commands), strict=True):
        apart, together = ending.summary, here(*words).summary
        assert apart["ranks"] == 3
        assert [apart[key] for key in KEPT] == [together[key] for key in KEPT], words


def test_a_run_of_the_gallery_is_verified_and_read_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = ("--data", "grid16:points=5", "--rounds", "6", "--no-plot", "--out", "run", "--format", "json")
    assert here("run", "--graph", "gallery:simple-base-25", "--devices", "25", *more).code == 0
    assert here("verify", "run").code == 0
    assert_array_equal(p2pkm.load("run").topology.indices, topologies.simple_base(25).indices)
