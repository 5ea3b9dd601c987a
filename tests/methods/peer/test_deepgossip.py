"""The serverless twin of DeepFeCA."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError, TopologyError
from tests.support.images import deal
from topologies.time_varying.graph import Exchange, record

SMALL = {"network": "mlp", "epochs": 1}


@pytest.fixture(autouse=True)
def _jax():
    pytest.importorskip("jax", reason="needs the extra deep")


def run(graph, shards, *, rounds=2, link_model=None, apart=False, **options):
    method = p2pkm.DeepGossip(5, **SMALL | options)
    return p2pkm.simulate(method, graph, shards, rounds=rounds, seed=0, link_model=link_model, allow_disconnected=apart)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["feca", "kfed", "central", "fkm"])
def test_on_a_complete_graph_it_is_the_form_with_a_server(server):
    shards = deal([30, 20, 40, 10])
    one = p2pkm.simulate(p2pkm.DeepFeCA(5, server=server, **SMALL), None, shards, rounds=2, seed=0)
    twin = run(topologies.complete(4), shards, server=server)
    assert_allclose(twin.learned.theta, one.learned.theta[:4], atol=1e-5)
    assert_array_equal(twin.learned.labels[0], one.learned.labels[0])
    assert (twin.learned.labels == one.learned.labels).mean() > 0.99
    assert_allclose(twin.centroids, one.centroids, atol=1e-3)


@pytest.mark.slow
def test_many_gossips_agree_on_the_mean_and_few_do_not():
    shards = deal([30, 20, 40, 0, 10])
    one = p2pkm.simulate(p2pkm.DeepFeCA(5, **SMALL), None, shards, rounds=1, seed=0).learned.theta[:5]
    apart = [np.abs(run(topologies.ring(5), shards, rounds=1, gossips=g).learned.theta - one).max() for g in (1, 40)]
    assert apart[0] > 1e-3 and apart[1] < 1e-5


@pytest.mark.slow
def test_all_devices_of_a_tree_have_the_same_centroids():
    result = run(topologies.path(6), deal([20] * 6), gossips=2)
    assert (result.centroids == result.centroids[0]).all() and result.summary["termination"] == "round-limit"
    assert result.learned.labels.shape == (3, 120) and (result.learned.labels >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("broadcast", [False, True])
def test_messages_and_bytes_by_hand(broadcast):
    """Path of 3: the middle is the root; up one row table of each end, down one, 4 directed edges of gossip."""
    rounds, gossips, k, width, count = 2, 3, 5, 32, 22816
    result = run(topologies.path(3), deal([20] * 3), rounds=rounds, gossips=gossips, server="mavg", broadcast=broadcast)
    down = 2 * rounds * broadcast
    assert result.summary["messages"] == (rounds + 1) * 4 + rounds * gossips * 4 + down
    table = 8 * width * -(-(count + 1) // width)  # one row more than the parameters alone, which fill 713
    total = (rounds + 1) * 4 * 8 * k * width + rounds * gossips * 4 * table + down * 8 * count
    assert result.summary["bytes"] == result.summary["bytes_busiest"] == total  # every link ends at the root


@pytest.mark.slow
def test_all_devices_report_with_the_parameters_of_the_root(monkeypatch):
    """Path of 5: the middle, without images, is the root; the first round trains alike with and without."""
    shards, reports = deal([30, 20, 0, 40, 10]), []
    aggregate = p2pkm.DeepGossip.aggregate

    def spy(self, tables, learned, devices):
        reports.append(tables)
        return aggregate(self, tables, learned, devices)

    monkeypatch.setattr(p2pkm.DeepGossip, "aggregate", spy)
    options = {"rounds": 1, "server": "central", "link_model": "edge"}
    plain, same = (run(topologies.path(5), shards, broadcast=on, **options) for on in (False, True))
    theta = plain.learned.theta[2]
    assert (plain.learned.theta != theta).any(axis=1).tolist() == [True, True, False, True, True]
    assert_array_equal(same.learned.theta, np.tile(theta, (5, 1)))
    learner = p2pkm.DeepGossip(5, **SMALL).learner(64)
    for i in (0, 1, 3, 4):
        _, features = learner.embed(theta, shards.points[shards.offsets[i] : shards.offsets[i + 1]])
        assert_array_equal(reports[-1][i][:, :-1], features)  # and weights
    assert_array_equal(same.learned.features, np.concatenate(reports[-1])[:, :-1])
    assert same.summary["virtual_seconds"] > plain.summary["virtual_seconds"]


@pytest.mark.slow
def test_every_component_takes_the_parameters_of_its_own_root():
    graph, shards = topologies.path(7), deal([20, 30, 10, 0, 0, 0, 20])
    graph.remove_edge(1, 2)  # the root of the second component, 4, is two links from all images: too far for one gossip
    options = {"rounds": 1, "apart": True}
    plain, same = (run(graph, shards, broadcast=on, **options) for on in (False, True))
    assert_array_equal(same.learned.theta[[0, 1]], np.tile(plain.learned.theta[0], (2, 1)))
    assert_array_equal(same.learned.theta[2:], plain.learned.theta[2:])
    assert same.summary["messages"] == plain.summary["messages"] + 1
    more = run(graph, shards, broadcast=True, gossips=2, **options)
    assert (more.learned.theta[2:] == more.learned.theta[2]).all()
    assert (more.learned.theta[2:] != more.learned.theta[0]).any()
    assert more.summary["messages"] == plain.summary["messages"] + 2 * 5 + 1 + 4


@pytest.mark.parametrize("broadcast", [False, True])
def test_graphs_without_one_tree_are_refused(broadcast):
    method, shards, apart = p2pkm.DeepGossip(3, broadcast=broadcast), deal([10] * 4), topologies.path(4)
    apart.remove_edge(1, 2)
    changing = record(4, [Exchange(np.array([0, 1]), np.array([1, 2])), Exchange(np.array([2]), np.array([3]))], "two")
    with pytest.raises(TopologyError, match="2 components"):
        p2pkm.simulate(method, apart, shards)
    with pytest.raises(ExperimentError, match="over the same links"):
        p2pkm.simulate(method, changing, shards)


@pytest.mark.slow
def test_the_busiest_device_of_a_ring_has_less_to_carry_than_a_hub():
    shards = deal([10] * 8)
    hub = p2pkm.simulate(p2pkm.DeepFeCA(5, **SMALL), None, shards, rounds=1, seed=0)
    assert run(topologies.ring(8), shards, rounds=1).summary["bytes_busiest"] < hub.summary["bytes_busiest"]


@pytest.mark.slow
def test_a_device_alone_and_components_apart():
    alone = run(topologies.complete(2).subgraph([0]).copy(), deal([30]), rounds=1)
    assert (alone.learned.labels >= 0).all()
    graph = topologies.path(4)
    graph.remove_edge(1, 2)
    result = run(graph, deal([20] * 4), rounds=1, apart=True)
    assert result.summary["centroid_sets"] == 2
    assert_array_equal(result.learned.theta[0], result.learned.theta[1])
