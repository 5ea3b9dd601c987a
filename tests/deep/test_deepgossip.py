"""The serverless twin of DeepFeCA."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.messages import Inbox
from p2pkm.core.protocols import Work
from p2pkm.deep.method import DeepState, flatten
from p2pkm.network.graph import Topology
from p2pkm.testing.check_method import CHECKS, check_method
from tests.support.images import deal
from tests.support.play_rounds import arrange
from topologies.time_varying.graph import Exchange, record

SMALL = {"network": "mlp", "epochs": 1}


def run(graph, shards, *, rounds=2, link_model=None, apart=False, **options):
    method = p2pkm.DeepGossip(5, **SMALL | options)
    return p2pkm.simulate(method, graph, shards, rounds=rounds, seed=0, link_model=link_model, allow_disconnected=apart)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["feca", "kfed", "central", "fkm"])
def test_on_a_complete_graph_it_is_the_form_with_a_server(jax, server):
    shards = deal([30, 20, 40, 10])
    one = p2pkm.simulate(p2pkm.DeepFeCA(5, server=server, **SMALL), None, shards, rounds=2, seed=0)
    twin = run(topologies.complete(4), shards, server=server, gossips=1)
    assert_allclose(twin.learned.theta, one.learned.theta[:4], atol=1e-5)
    assert_array_equal(twin.learned.labels[0], one.learned.labels[0])
    assert (twin.learned.labels == one.learned.labels).mean() > 0.99
    assert_allclose(twin.centroids, one.centroids, atol=1e-3)


def test_many_gossips_agree_on_the_mean_and_few_do_not(n_parameters):
    shards = deal([30, 20, 40, 0, 10])
    one = p2pkm.simulate(p2pkm.DeepFeCA(5, **SMALL), None, shards, rounds=1, seed=0).learned.theta[:5]
    apart = [np.abs(run(topologies.ring(5), shards, rounds=1, gossips=g).learned.theta - one).max() for g in (1, 40)]
    assert apart[0] > 1e-3 and apart[1] < 1e-5


def test_all_devices_of_a_tree_have_the_same_centroids(n_parameters):
    result = run(topologies.path(6), deal([20] * 6), gossips=2)
    assert (result.centroids == result.centroids[0]).all() and result.summary["termination"] == "round-limit"
    assert result.learned.labels.shape == (3, 120) and (result.learned.labels >= 0).all()


@pytest.mark.parametrize(("server", "graph"), [("feca", topologies.ring(5)), ("fkm", topologies.path(5))])
def test_along_a_tree_it_is_the_form_with_a_server(n_parameters, server, graph):
    """The sums are those of the hub in another order: float64 of float32, so theta hardly ever differs at all."""
    shards = deal([30, 20, 40, 0, 10])
    one = p2pkm.simulate(p2pkm.DeepFeCA(5, server=server, **SMALL), None, shards, rounds=2, seed=0)
    twin = run(graph, shards, server=server)
    assert_array_equal(twin.learned.theta, np.tile(twin.learned.theta[0], (5, 1)))
    assert_allclose(twin.learned.theta, one.learned.theta[:5], atol=1e-6)
    assert_array_equal(twin.learned.labels, one.learned.labels)
    assert_allclose(twin.centroids, one.centroids, atol=1e-6)


def test_every_component_has_the_weighted_mean_of_its_own_devices(n_parameters, monkeypatch):
    graph, sizes, trained = topologies.path(7), np.array([20, 30, 0, 0, 10, 0, 0]), []
    graph.remove_edges_from([(1, 2), (4, 5)])  # {0, 1}; {2, 3, 4}, whose root is 3; {5, 6}, without an image
    train = p2pkm.DeepGossip.train

    def spy(self, learned, centroids, devices):
        trained.append(train(self, learned, centroids, devices).theta)
        return learned._replace(theta=trained[-1])

    monkeypatch.setattr(p2pkm.DeepGossip, "train", spy)
    result = run(graph, deal(sizes.tolist()), rounds=2, apart=True)
    for part in ([0, 1], [2, 3, 4]):
        mean = np.average(trained[-1][part].astype(np.float64), axis=0, weights=sizes[part])
        assert (trained[-1][part] != mean).any() and (trained[-1][part[0]] != trained[-1][part[-1]]).any()
        assert_allclose(result.learned.theta[part], np.tile(mean, (len(part), 1)), atol=1e-7)
    assert_array_equal(result.learned.theta[5:], trained[0][5:])  # as all began
    assert (result.learned.theta[1] != result.learned.theta[2]).any()
    assert result.summary["messages"] == 2 * 4 * (2 + 3)  # up and down 4 links: 2 of parameters, 3 of reports


def test_a_mean_over_one_image_is_taken_over_and_one_over_none_is_not():
    table = arrange([np.ones((1, 64)), np.zeros((0, 64))], [])
    method, theta = p2pkm.DeepGossip(5, **SMALL).on(table.topology), np.arange(20.0).reshape(2, 10)
    sums = flatten(np.column_stack(([1.0, 0.0], theta)), 4)
    learned = SimpleNamespace(theta=np.full((2, 10), -1.0), _replace=SimpleNamespace)
    state = DeepState(np.zeros((2, 5, 4)), np.zeros(2, bool), learned, sums, np.full(2, 3))
    nothing = Inbox(sums, np.full(2, 3), np.zeros(0, int), np.zeros(0, int))
    found = method._average(state, nothing, table.devices.at_turn(2, 1, np.ones(2, bool)))
    assert_array_equal(found.derived.theta, [theta[0], np.full(10, -1.0)])


@pytest.mark.parametrize("gossips", [None, 3])
def test_messages_and_bytes_by_hand(n_parameters, gossips):
    """Path of 3: the middle is the root; up one row table of each end, down one; 4 directed edges of gossip."""
    rounds, k, width = 2, 5, 32
    result = run(topologies.path(3), deal([20] * 3), rounds=rounds, gossips=gossips, server="mavg")
    up, down = (8 * width * -(-numbers // width) for numbers in (n_parameters + 1, n_parameters))
    tables = [up] * 4 * gossips if gossips else [up] * 2 + [down] * 2
    assert result.summary["messages"] == (rounds + 1) * 4 + rounds * len(tables)
    total = (rounds + 1) * 4 * 8 * k * width + rounds * sum(tables)
    assert result.summary["bytes"] == result.summary["bytes_busiest"] == total  # every link ends at the root


@pytest.mark.parametrize(("gossips", "turns"), [(None, 2 + 2 + 1), (3, 3 + 2 + 1)])
def test_every_turn_takes_the_same_part_of_the_training(n_parameters, gossips, turns):
    method = p2pkm.DeepGossip(5, gossips=gossips, **SMALL)
    found = method.on(Topology.from_graph(topologies.path(3))).flops(Work(np.array([10, 0, 1]), None, None, 64))
    assert_array_equal(found, np.array([10, 0, 1]) * method.learner(64).flops * (6 + 1) // turns)


@pytest.mark.slow
@pytest.mark.parametrize("gossips", [None, 2])
def test_it_passes_every_check(jax, gossips):
    options = {"network": "linear", "shape": "1x2", "views": False, "epochs": 1}
    assert check_method(p2pkm.DeepGossip(3, gossips=gossips, **options), rounds=2) == tuple(CHECKS)


@pytest.mark.parametrize("gossips", [None, 1])
def test_graphs_without_one_tree_are_refused(jax, gossips):
    method, shards, apart = p2pkm.DeepGossip(3, gossips=gossips), deal([10] * 4), topologies.path(4)
    apart.remove_edge(1, 2)
    changing = record(4, [Exchange(np.array([0, 1]), np.array([1, 2])), Exchange(np.array([2]), np.array([3]))], "two")
    with pytest.raises(TopologyError, match="2 components"):
        p2pkm.simulate(method, apart, shards)
    with pytest.raises(ExperimentError, match="over the same links"):
        p2pkm.simulate(method, changing, shards)


def test_the_busiest_device_of_a_ring_has_less_to_carry_than_a_hub(n_parameters):
    shards = deal([10] * 8)
    hub = p2pkm.simulate(p2pkm.DeepFeCA(5, **SMALL), None, shards, rounds=1, seed=0)
    for gossips in (None, 1):  # parameters over two links where the hub has eight
        ring = run(topologies.ring(8), shards, rounds=1, gossips=gossips)
        assert ring.summary["bytes_busiest"] < 0.4 * hub.summary["bytes_busiest"]


def test_a_device_alone_and_components_apart(n_parameters):
    alone = run(topologies.complete(2).subgraph([0]).copy(), deal([30]), rounds=1)
    assert (alone.learned.labels >= 0).all()
    graph = topologies.path(4)
    graph.remove_edge(1, 2)
    result = run(graph, deal([20] * 4), rounds=1, apart=True)
    assert result.summary["centroid_sets"] == 2
    assert_array_equal(result.learned.theta[0], result.learned.theta[1])
