"""The end of a run: what is gathered, counted and noted."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core import sorting
from p2pkm.core.messages import RaggedArray
from p2pkm.engine.loop import Start
from p2pkm.metrics import summary
from p2pkm.metrics.gathering import Gathering
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork, LocalWorld
from tests.support.build import build_monitor
from tests.support.each import each
from tests.support.play_rounds import arrange, variation
from topologies import path


def test_methods_without_groups_have_none_and_a_device_alone_sends_nothing():
    shards = p2pkm.Shards.from_list([np.arange(12.0).reshape(6, 2)])
    result = p2pkm.simulate(p2pkm.ConsensusLloyd(2), topologies.ring(1), shards, rounds=1, baselines=False)
    assert result.groups is None is result.summary["groups"]
    assert result.summary["messages"] == result.summary["rows_max_per_device"] == 0


@pytest.mark.parametrize(
    ("truth", "figures"),
    [
        (None, {"groups": 2}),
        ([0, 0, 1], {"groups": 2}),  # not of these devices
        ([0, 0, 1, 1], {"groups": 2, "groups_ari": 1.0}),
        ([0, 1, 0, 1], {"groups": 2, "groups_ari": -0.5}),
    ],
)
def test_groups_are_scored_where_the_true_ones_are_known(truth, figures):
    found = summary._score_groups(np.array([1, 1, 0, 0]), None if truth is None else np.array(truth))
    assert found == pytest.approx(figures)
    assert summary._score_groups(None, None) == {}


def test_groups_that_are_the_parts_of_the_graph_need_no_note():
    table, facts = arrange([np.zeros((1, 1))] * 4, [(0, 1), (2, 3)]), {"wall_seconds": 1.0}
    monitor, parts = build_monitor(table), table.topology
    assert summary._note_groups_and_time(monitor, parts, parts.components, facts) == []
    (note,) = summary._note_groups_and_time(monitor, parts, np.arange(4), facts)
    assert note.startswith("4 groups: ")


@each(
    ("rounds", "every", "measuring", "wall", "saved"),
    [
        (11, 1, 2.0, 6.0, None),  # a third of the time, of a run of seconds
        (100, 1, 30.0, 60.0, 27),  # rounds 10, 20 ... 100 remain
        (100, 1, 30.0, 600.0, None),  # 5 % of the time
        (3, 1, 30.0, 40.0, 20),  # the last round remains
        (100, 10, 30.0, 60.0, None),  # already seldom
        (0, 1, 30.0, 60.0, None),
    ],
)
def test_fewer_records_are_recommended_only_where_they_save_much(rounds, every, measuring, wall, saved):
    table = arrange([np.zeros((1, 1))] * 2, [(0, 1)])
    trace = [{"stage": "gtvmin", "round": t} for t in range(1, rounds + 1)]
    monitor = SimpleNamespace(trace=trace, seconds=measuring, every=every)
    notes = summary._note_groups_and_time(monitor, table.topology, None, {"wall_seconds": wall})
    tip = f"--record-every 10 measures only every tenth round and would save about {saved} of {wall:.0f} s"
    assert notes == ([] if saved is None else [tip])


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("one", [1, 2, 4])
def test_what_is_left_out_of_large_runs_is_noted(monkeypatch, n, every, one):
    monkeypatch.setattr(summary, "LARGE", 3)
    monkeypatch.setattr(summary, "_COMPARED", n * 2 * 3 * 2 // one)  # each number is compared with those of 2 rows
    shards = p2pkm.Shards.from_list([np.array([[i, 1.0, 0.0], [9.0, i, 0.0]]) for i in range(n)])
    method = p2pkm.GTVMin(2, alpha=0.0, init="local")
    result = p2pkm.simulate(method, path(n), shards, baselines=False, record_every=every)
    arrays, rounds, consensus = (
        sum(words in note for note in result.notes)
        for words in (
            "above 3 devices, the graph is saved as arrays",
            f"one of {every} rounds and the last one of each stage are recorded",
            f"the distance to consensus is over one of {one} devices",
        )
    )
    assert (arrays, rounds, consensus) == (n > 3, n > 3 and every == 7, one > 1)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("large", [1, 9])
def test_the_ledger_keeps_what_32_bits_cannot_hold(monkeypatch, kind, large):
    monkeypatch.setattr(summary, "LARGE", large)
    table = arrange([np.zeros((1, 1))] * 2, [(0, 1)])
    edges = np.array([[3, 5, 2**33 if kind is np.int64 else 40, 40], [1, 2, 8, 8]], kind)
    ledger = SimpleNamespace(edges=edges, refused=np.zeros(2, np.int64), clear=lambda: None, exchanges=[
        SimpleNamespace(stage=0, turn=0, sent_rows=(np.array([0, 1]), np.array([5, 2])))])  # fmt: skip
    network = SimpleNamespace(ledger=ledger, placement=table.network.placement, total=table.network.total,
                              allgather_by_device=table.network.allgather_by_device)  # fmt: skip
    found = summary._gather_traffic(Gathering(network, LocalWorld(), everywhere=True), table.topology)
    assert_array_equal(np.column_stack((found.messages, found.edge_rows, found.bytes, found.wire_bytes)), edges)
    assert found.bytes.dtype == (np.int64 if large == 9 else kind)
    assert found.refused is None and (found.sender is None) == (large == 1)


class Derived(NamedTuple):
    theta: Any
    features: RaggedArray


class Deriving(NamedTuple):
    derived: Derived


def test_what_devices_derived_is_in_the_order_of_their_points():
    table = arrange([np.zeros((2, 1)), np.zeros((1, 1))], [(0, 1)])
    features = RaggedArray(np.arange(6.0).reshape(3, 2), np.array([2, 1]))
    state = Deriving(Derived(np.arange(2.0)[:, None], features))
    found = summary._collect_derived(table.devices, Gathering(table.network, LocalWorld(), everywhere=True), state)
    assert found["theta"].tolist() == [[0.0], [1.0]] and found["features"] is features.values
    none = Start(np.zeros((2, 1, 1)), np.ones(2, np.bool_))
    assert summary._collect_derived(table.devices, Gathering(table.network, LocalWorld(), everywhere=True), none) == {}


def test_devices_with_absent_centroids_count_as_centroid_sets(tmp_path):
    shards = p2pkm.Shards.from_list([np.array([[0.0]]), np.array([[1.0]])])
    result = p2pkm.simulate(p2pkm.GTVMin(2, alpha=0.0, init="local"), path(2), shards, baselines=False)
    assert np.isinf(result.centroids).any() and result.summary["centroid_sets"] == 2


def test_consensus_ignores_absent_rows():
    centroids = np.array([[[0.0, 0.0], [9.0, 0.0]], [[3.0, 4.0], [np.inf, np.inf]], [[np.inf] * 2] * 2])
    assert summary.measure_consensus(centroids, 0) == pytest.approx(np.sqrt((0.0 + 25.0) / 2))
    assert summary.measure_consensus(centroids, 2) is None


def test_the_variation_of_a_link_is_that_of_its_ends_in_both_directions():
    shards = p2pkm.Shards.from_list([np.array([[i, 1.0], [9.0 + i * i, i]]) for i in range(4)])
    graph = Topology.from_links(4, np.array([[0, 1, 1.0], [1, 2, 1.0], [2, 3, 1.0], [0, 3, 1.0]]))
    result = p2pkm.simulate(p2pkm.GTVMin(2, alpha=0.0, init="local"), topologies.ring(4), shards, baselines=False)
    ends = zip(graph.sources, graph.indices, strict=True)
    assert_allclose(result.gtv, [variation(result.centroids[i], result.centroids[j]) for i, j in ends])
    assert len(set(result.gtv.tolist())) == 4


@pytest.mark.parametrize("width", [summary._LINKS, sorting._BLOCK])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.0])
def test_new_links_have_the_mean_strength_of_the_links_in_use(monkeypatch, width, share):
    """Of a device without such links, that of all links; in blocks of all devices and of one."""
    monkeypatch.setattr(summary, "_LINKS", width)
    rng = np.random.default_rng(5)
    pairs = np.argwhere(np.triu(rng.random((9, 9)) < 0.4, 1))
    topology = Topology.from_links(10, np.column_stack((pairs, rng.uniform(0.5, 2.0, len(pairs)))))
    alpha = rng.uniform(1.0, 3.0, len(topology.indices)) * (rng.random(len(topology.indices)) < share)
    by_degree = rng.random(10) < 0.5
    gathering = Gathering(LocalNetwork(place(topology, 0, 1)), LocalWorld(), everywhere=True)
    links = summary.LinkStrengths(alpha, by_degree, None, 3.0, is_chosen=False)
    found = summary._describe_new_links(gathering, topology, links)
    rows = [list(range(*topology.indptr[i : i + 2])) for i in range(10)]
    used = [[e for e in row if alpha[e] > 0] for row in rows]
    strengths = {
        e: alpha[e] / topology.weights[e]
        * (np.sqrt(len(used[i]) * len(used[topology.indices[e]])) if by_degree[i] else 1.0)
        for i in range(10) for e in used[i]
    }  # fmt: skip
    everywhere = np.mean(list(strengths.values())) if strengths else 0.0
    expected = [np.mean([strengths[e] for e in own]) if own else everywhere for own in used]
    expected /= np.where(by_degree, np.sqrt([max(len(own), 1) for own in used]), 1.0)
    assert_allclose(found.strength, expected, rtol=1e-14)
    assert found.by_degree is by_degree and found.unit == 3.0
