"""What holds for every method, and for every peer-to-peer method on every kind of graph."""

from itertools import product

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.methods.init.pipelines import needs_hub
from tests.support.methods import METHODS, build
from tests.support.sampling import thin

PEERS = [name for name in METHODS if not needs_hub(build(name, 2))]
GRAPHS = {
    "path": topologies.path(6),
    "ring": topologies.ring(6),
    "star": topologies.star(6),
    "tree": topologies.tree(7),
    "complete": topologies.complete(5),
    "one device": topologies.path(1),
    "two devices": topologies.path(2),
}
NAMES = pytest.mark.parametrize("name", PEERS)


def deal(n, seed=0, k=3):
    """Return points of n devices around k corners; from four devices on, one has none and one has a single point."""
    rng = np.random.default_rng(seed)
    corners = 8.0 * np.array([[0, 0], [1, 0], [0, 1]])[:k]
    y = [rng.integers(0, k, 0 if n > 3 and i == 2 else 1 if n > 3 and i == 1 else 20) for i in range(n)]
    return p2pkm.Shards.from_list([corners[part] + rng.normal(size=(len(part), 2)) for part in y], labels=y)


@pytest.mark.parametrize(("graph", "name"), thin(product(GRAPHS, PEERS), 5))
@pytest.mark.sample(5)
def test_it_runs_and_helps_on_every_graph(name, graph):
    n = len(GRAPHS[graph])
    result = p2pkm.simulate(build(name, 3), GRAPHS[graph], deal(n), rounds=10, seed=1)
    summary = result.summary
    assert summary["algorithm"] == name
    assert np.isfinite(result.centroids).any(axis=(1, 2)).all()
    assert 0.9 < summary["ratio_mean"] < 1.5
    assert summary["messages"] >= (0 if n == 1 else 2 * (n - 1))
    assert sum(summary[key] == 0 for key in ("messages", "bytes")) == (2 if n == 1 else 0)
    assert not next(one for one in result.rounds if one["stage"] == name)["converged"]  # before the first round


# private adds up over all devices, or not at all
@pytest.mark.parametrize("name", thin(sorted(set(PEERS) - {"private"}), 3))
def test_it_runs_on_two_components(name):
    graph = topologies.path(7)
    graph.remove_edge(3, 4)
    with pytest.raises(p2pkm.TopologyError, match="disconnected"):
        p2pkm.simulate(build(name, 3), graph, deal(7), rounds=5)
    result = p2pkm.simulate(build(name, 3), graph, deal(7), rounds=5, allow_disconnected=True)
    assert np.isfinite(result.centroids).any(axis=(1, 2)).all()


@NAMES
@pytest.mark.sample(5)
def test_it_does_not_depend_on_what_the_monitor_looks_at(name):
    """A method stops by its own rule, from what its devices know."""
    shards, graph = deal(6), GRAPHS["ring"]
    seen = p2pkm.simulate(build(name, 3), graph, shards, rounds=8)
    blind = p2pkm.simulate(build(name, 3), graph, shards, rounds=8, record_every=100, baselines=False)
    assert seen.summary["centroids_sha256"] == blind.summary["centroids_sha256"]
    for key in ("rounds", "termination"):
        assert seen.summary[key] == blind.summary[key]


@pytest.mark.parametrize("name", thin(sorted(set(PEERS) - {"private"}), 3))  # whose ball of the points is given
@pytest.mark.sample(3)
def test_points_far_from_the_origin_give_the_same_clusters(name):
    graph, shards = GRAPHS["ring"], deal(6)
    moved = p2pkm.Shards(shards.points + 1000.0, shards.offsets, shards.weights, shards.labels, shards.rows)
    one, other = (p2pkm.simulate(build(name, 3), graph, data, rounds=5, seed=2) for data in (shards, moved))
    np.testing.assert_allclose(one.centroids + 1000.0, other.centroids, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_points_that_single_precision_holds_give_the_same_bits_in_it(name):
    whole, method = deal(6), build(name, 3)
    rounded = [np.float32(part) for part in np.split(whole.points, whole.offsets[1:-1])]
    labels = np.split(whole.labels, whole.offsets[1:-1])
    graph = None if needs_hub(method) else GRAPHS["ring"]
    found = []
    for dtype in ("float64", "float32"):
        shards = p2pkm.Shards.from_list([np.float64(part) for part in rounded], labels=labels, dtype=dtype)
        assert shards.points.dtype == dtype
        found.append(p2pkm.simulate(method, graph, shards, rounds=4, seed=2).summary)
    for key in ("centroids_sha256", "chain_sha256", "messages", "bytes", "ratio_mean"):
        assert found[0][key] == found[1][key]
