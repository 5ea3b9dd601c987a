"""Lloyd steps at a server: a case by hand, a naive twin on the pooled points, and tree Lloyd on other graphs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

import p2pkm
import topologies


def draw(n=6, m=20, k=4, d=2, seed=0):
    """Draw points of n clients around k centers; client 1 has no points, client 2 has equal points."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0, 15, (k, d))
    data = [centers[rng.integers(0, k, m)] + rng.normal(size=(m, d)) for _ in range(n)]
    data[1], data[2] = np.zeros((0, d)), np.repeat(data[2][:1], 5, axis=0)
    return data, centers + rng.normal(size=(k, d))


def shorten(number):
    """Round to 21 binary digits."""
    mantissa, exponent = np.frexp(number)
    return np.ldexp(np.rint(mantissa * 2**21), exponent - 21)


def square(points, rows):
    return ((points[:, None] - rows) ** 2).sum(axis=2)


def integer_lloyd(data, start, tol):
    """Take Lloyd steps on a grid; return the accepted centroids and the number of steps that were tried."""
    pooled = np.concatenate(data)
    m, (k, d) = len(pooled), start.shape
    cost = square(pooled, start).min(axis=1).sum()
    touched = sum(len(set(square(points, start).argmin(axis=1))) for points in data if len(points))
    ideal = max(0.3 * np.sqrt(k / m), 2.0**-6)
    step = shorten(ideal * np.sqrt(cost / m / d))
    grain = shorten(np.floor(max(m / np.sqrt(k * touched) + 1e-9, 1.0)))
    table = accepted = np.zeros_like(start)
    before, steps = np.inf, 0
    while True:
        steps += 1
        rows = start + step * table
        cost = square(pooled, rows).min(axis=1).sum()
        if cost >= before:
            return start + step * accepted, steps
        accepted = table
        if before - cost < tol * before:
            return start + step * accepted, steps
        if step / 2 >= ideal * np.sqrt(cost / m / d):
            halvings = int(np.floor(np.log2(step / (ideal * np.sqrt(cost / m / d)))))
            table, accepted, step, before = table * 2**halvings, accepted * 2**halvings, step / 2**halvings, np.inf
            continue
        sums, counts = np.zeros((k, d)), np.zeros(k)
        for points in data:
            nearest = square(points, rows).argmin(axis=1)
            for c in range(k):
                sums[c] += np.rint((points[nearest == c] - start[c]).sum(axis=0) / (grain * step))
                counts[c] += (nearest == c).sum()
        means = np.rint(grain * sums / np.maximum(counts, 1)[:, None])
        moved = np.where(counts[:, None] > 0, means, table)
        if (moved == table).all():
            return start + step * accepted, steps
        table, before = moved, cost


def run(data, start, tol=1e-5, **options):
    shards = p2pkm.Shards.from_list(data)
    method = p2pkm.FedLloyd(len(start), tol=tol)
    return p2pkm.simulate(method, None, shards, start=np.array([start] * len(data)), **options)


def test_two_clients_by_hand():
    """The step is 0.3 sqrt(2 / 4) sqrt(8 / 4) = 0.3, the grain 4 / sqrt(2 * 2) = 2; the means 1 and 11 are rounded."""
    result = run([np.array([[0.0], [2.0]]), np.array([[10.0], [12.0]])], np.array([[0.0], [10.0]]))
    assert_allclose(result.centroids, [[[0.9], [10.9]]] * 2, rtol=1e-6)
    assert_allclose(result.summary["objective"], 2 * (0.81 + 1.21), rtol=1e-6)
    # Round 1: 4 numbers up and 3 down. Rounds 2 and 3: 2 rows (S, n) and a cost up, 2 moves and a command down.
    assert result.summary["rounds"] == 3
    assert result.summary["messages"] == 2 * 2 * 3
    assert result.summary["bytes"] == 2 * 8 * (4 + 3 + 2 * (3 * 2 + 3 * 1))


@pytest.mark.parametrize("tol", [0.0, 1e-2])
def test_the_twin_finds_the_same_centroids(tol):
    for seed in range(3):
        data, start = draw(seed=seed)
        rows, steps = integer_lloyd(data, start, tol)
        result = run(data, start, tol)
        assert_array_equal(result.centroids, np.array([rows] * len(data)))
        assert_array_equal(result.server_centroids, rows)
        # Round 1 chooses the step.
        assert result.summary["rounds"] == steps + 1
        assert result.summary["termination"] == "converged" and result.summary["descent"] == "certified"


def test_the_cost_is_that_of_scikit_learn_up_to_the_grid():
    data, start = draw(seed=5)
    pooled = np.concatenate(data)
    reference = KMeans(len(start), init=start, n_init=1, tol=0.0).fit(pooled)
    cost = run(data, start, tol=0.0).summary["objective"]
    assert_allclose(cost, reference.inertia_, rtol=0.05 * len(start) / len(pooled))


def test_a_graph_without_a_server_gives_the_same_centroids_in_as_many_rounds():
    data, start = draw(seed=1)
    server, shards = run(data, start), p2pkm.Shards.from_list(data)
    for graph in (topologies.ring(6), topologies.path(6), topologies.complete(6)):
        result = p2pkm.simulate(p2pkm.TreeLloyd(4), graph, shards, start=np.array([start] * 6))
        assert_array_equal(result.centroids, server.centroids)
        assert result.summary["rounds"] == server.summary["rounds"]


@pytest.mark.parametrize("clients", [1, 2, 5])
def test_the_server_is_the_root_of_the_initialization_and_of_the_sums(clients):
    X, _ = p2pkm.blobs(clusters=3, points=20, box=30, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(60, clients))
    result = p2pkm.simulate(p2pkm.FedLloyd(3), None, shards)
    # Both passes of the initialization, its two passes for the box, and two messages per round: each over every link.
    assert result.summary["messages"] == clients * (4 + 2 * result.summary["rounds"])
    assert result.summary["ratio_mean"] < 1.01


def test_groups_are_not_a_parameter():
    with pytest.raises(TypeError, match="groups"):
        p2pkm.FedLloyd(3, groups=2)


@pytest.mark.parametrize(("options", "graph", "message"), [
    ({"faults": "loss=0.1"}, None, "adds up sums along a tree"),
    ({"faults": "dropout=0.1"}, None, "adds up sums along a tree"),
    ({"min_cluster_size": 3}, None, "may be a single point"),
    ({"stream": "drawn:kind=slow"}, None, "cannot follow a stream"),
    ({}, topologies.ring(6), "it uses a server, and its star graph is built automatically"),
])  # fmt: skip
def test_options_that_the_server_cannot_have_are_rejected(options, graph, message):
    shards = p2pkm.Shards.from_list(draw()[0])
    with pytest.raises((p2pkm.ExperimentError, p2pkm.TopologyError), match=message):
        p2pkm.simulate(p2pkm.FedLloyd(3), graph, shards, **options)
