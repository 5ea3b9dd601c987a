"""k-FED against a twin in plain loops, cases by hand, the ledger, and data that are hardly any."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import p2pkm
from p2pkm.core.batch import Stream
from p2pkm.core.errors import ExperimentError
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.server.kfed import KFED
from tests.support.each import each
from tests.support.sampling import thin
from tests.support.server import clients_of, serve


def paper(k, **options):
    """Return k-FED with the published options."""
    return KFED(k, **{"local_k": "sqrt", "seeding": "plain", "finish": "one"} | options)


def blobs(seed, sizes, d, groups=6, spread=0.3):
    rng = np.random.default_rng(seed)
    middles = rng.uniform(-10, 10, (groups, d))
    return [middles[rng.integers(groups, size=m)] + rng.normal(0, spread, (m, d)) for m in sizes]


def squared(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def seeds_of(points, k, key):
    """Plain k-means++: one draw, in proportion to the squared distance, per seed."""
    draws = uniforms(key, Stream.CLIENT, [0], k)[0]
    chosen = [int(draws[0] * len(points))]
    for draw in draws[1:]:
        closest = [min(squared(x, points[c]) for c in chosen) for x in points]
        target = draw * sum(closest)
        chosen.append(next(r for r in range(len(points)) if sum(closest[: r + 1]) > target))
    return points[chosen]


def lloyd(points, centroids, limit=1000):
    labels = None
    for _ in range(limit):
        before, labels = labels, [int(np.argmin([squared(x, w) for w in centroids])) for x in points]
        assert set(labels) == set(range(len(centroids))), "the twin knows no empty clusters"
        if labels == before:
            break
        groups = [[x for x, label in zip(points, labels, strict=True) if label == c] for c in range(len(centroids))]
        centroids = [np.mean(group, axis=0) for group in groups]
    return np.array(centroids)


def client(points, k, key):
    """Return what a client says, by Dennis et al., Algorithm 1."""
    if len(points) <= k:
        return points
    basis = np.linalg.svd(points)[2][:k] if k < points.shape[1] else np.eye(points.shape[1])
    projected = points @ basis.T
    seeds, means = seeds_of(projected, k, key), []
    for r in range(k):
        core = [
            x
            for x in projected
            if all(3 * np.sqrt(squared(x, seeds[r])) <= np.sqrt(squared(x, seeds[s])) for s in range(k) if s != r)
        ]
        means.append(np.mean(core, axis=0) @ basis)
    return lloyd(points, means)


def server(tables, k, first, limit):
    """Return the server's centroids, by Dennis et al., Algorithm 2; first: rows to start from."""
    rows, chosen = [x for table in tables for x in table], list(first)
    while len(chosen) < k:
        distances = [min(squared(x, w) for w in chosen) for x in rows]
        chosen.append(rows[int(np.argmax(distances))])
    return lloyd(rows, chosen, limit)


@pytest.mark.parametrize(
    ("d", "finish", "device"), thin(product([1, 2, 3, 6], ["one", "converge"], ["random", "first"]), 5)
)
@pytest.mark.sample(3)
def test_a_run_is_what_the_paper_says(d, finish, device):
    for seed in range(5):
        data = blobs(seed, [40, 3, 25, 2, 31], d)
        played = serve(paper(6, local_k=3, device=device, finish=finish), data, seed=seed)
        tables = [client(points, 3, key) for points, key in zip(data, played.devices.keys, strict=False)]
        for said, expected, local in zip(played.uplinks[0], tables, played.local, strict=True):
            assert_allclose(said, expected, atol=1e-9)
            assert_array_equal(said, local)
        drawn = int(uniforms(played.devices.shared_key, Stream.CHOICE, [0], 1)[0, 0] * 5)
        first = tables[drawn] if device == "random" else np.concatenate(tables)[:3]
        expected = server(tables, 6, first, 1 if finish == "one" else 1000)
        assert_allclose(played.model, expected, atol=1e-9)


TWO = [np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[10.0, 0.0], [12.0, 0.0]])]


@pytest.mark.parametrize(
    ("local_k", "finish", "expected"),
    [
        (1, "one", [[0.5, 0.0], [11.0, 0.0]]),  # from 0 and 12, the farthest
        (2, "one", [[0.0, 0.0], [23.0 / 3.0, 0.0]]),  # from 0 and 1
        (2, "converge", [[0.5, 0.0], [11.0, 0.0]]),
    ],
)
def test_the_server_by_hand(local_k, finish, expected):
    hub, _ = clients_of(TWO)
    method = paper(2, local_k=local_k, device="first", finish=finish)
    assert_allclose(method.aggregate(hub, TWO, np.full((2, 2), np.inf)), expected)


def test_the_server_starts_from_a_random_client_that_said_something():
    tables, seen = [np.zeros((0, 2)), *TWO], set()
    for seed in range(20):
        hub, _ = clients_of(tables, seed=seed)
        seen.add(tuple(paper(2).aggregate(hub, tables, np.full((2, 2), np.inf))[:, 0]))
    assert seen == {(0.0, 23.0 / 3.0), (11.0 / 3.0, 12.0)}


def test_the_farthest_row_is_the_first_on_ties_and_a_client_with_many_rows_gives_its_first():
    tables = [np.array([[0.0]]), np.array([[-3.0], [3.0]])]
    hub, _ = clients_of(tables)
    method = paper(2, local_k=1, device="first")
    assert_allclose(method.aggregate(hub, tables, np.full((2, 1), np.inf)), [[1.5], [-3.0]])
    many = paper(2, local_k=4, device="first").aggregate(
        hub, [np.array([[5.0], [6.0], [0.0], [1.0]])], np.zeros((2, 1))
    )
    assert_allclose(many, [[2.0], [6.0]])


def induced(shards, tables, model):
    """Return the labels by way of the client's centroids, plainly."""
    labels = []
    for i, x in zip(shards.devices, shards.points, strict=True):
        own = min(tables[i], key=lambda w: squared(x, w))
        labels.append(int(np.argmin([squared(own, w) for w in model])))
    return labels


@pytest.mark.parametrize("labels", ["nearest", "induced"])
@pytest.mark.parametrize("sizes", [(40, 3, 25, 2, 31), (30, 0, 1, 50)])
def test_labels_by_way_of_the_clients_centroids_enter_the_scores_and_nothing_else(labels, sizes):
    data = [part.reshape(-1, 2) for part in blobs(8, sizes, 2, groups=9)]
    truth = np.random.default_rng(8).integers(0, 4, sum(sizes))
    shards = p2pkm.Shards.deal(np.concatenate(data), np.repeat(range(len(sizes)), sizes), labels=truth)
    result = p2pkm.simulate(paper(6, local_k=2, labels=labels), None, shards, seed=3)
    other = p2pkm.simulate(paper(6, local_k=2), None, shards, seed=3).summary
    summary, model = result.summary, result.server_centroids
    expected = [int(np.argmin([squared(x, w) for w in model])) for x in shards.points]
    if labels == "induced":
        nearest, expected = expected, induced(shards, serve(paper(6, local_k=2), data, seed=3).uplinks[0], model)
        assert expected != nearest and summary["ari"] != other["ari"]
    expected = np.array(expected)
    assert_array_equal(result.census.labels, expected)
    assert summary["ari"] == pytest.approx(adjusted_rand_score(truth, expected))
    assert summary["nmi"] == pytest.approx(normalized_mutual_info_score(truth, expected))
    majorities = [np.bincount(truth[expected == c]).max() for c in np.unique(expected)]
    assert summary["purity"] == pytest.approx(sum(majorities) / len(truth))
    clients = [shards.devices == i for i in range(len(sizes)) if sizes[i]]
    own = [adjusted_rand_score(truth[at], expected[at]) for at in clients]
    assert summary["ari_clients"] == pytest.approx(np.average(own, weights=[at.sum() for at in clients]))
    for name in ("ratio_mean", "loss_local", "loss_global", "centroids_sha256", "bytes"):
        assert summary[name] == other[name]


def test_induced_labels_by_hand():
    """Two clients of one centroid each: 0 and 9 at 4.5, 10 and 12 at 11; 9 is nearer to 11 than to 4.5."""
    shards = p2pkm.Shards.deal([[0.0], [9.0], [10.0], [12.0]], [0, 0, 1, 1], labels=[0, 0, 1, 1])
    for labels, expected in (("induced", 1.0), ("nearest", 0.0)):
        assert p2pkm.simulate(paper(2, local_k=1, labels=labels), None, shards).summary["ari"] == expected


def test_a_row_that_is_there_twice_is_one_start():
    tables = [np.array([[0.0], [0.0]]), np.array([[8.0], [9.0]])]
    hub, _ = clients_of(tables)
    found = paper(2, local_k=2, device="first").aggregate(hub, tables, np.full((2, 1), np.inf))
    assert_allclose(found, [[0.0], [8.5]])


def test_messages_by_hand():
    played = serve(paper(4, local_k=3), blobs(1, [0, 2, 5, 30], 2))
    rows = [len(table) for table in played.uplinks[0]]
    assert rows == [0, 2, 3, 3] and played.uplinks[0][3].shape[1] == 2
    assert played.ledger == (4 + 4, (8 + 4 * 4) * 2 * 8)


@pytest.mark.parametrize(("k", "n", "expected"), [(1, 1, 1), (9, 9, 3), (10, 10, 4), (16, 2, 8), (7, 2, 4)])
def test_clusters_of_a_client_unless_said_otherwise(k, n, expected):
    data = blobs(2, [30] * n, 2, groups=12)
    assert [len(table) for table in serve(KFED(k, local_k="sqrt"), data).uplinks[0]] == [expected] * n
    assert [len(table) for table in serve(KFED(k), data).uplinks[0]] == [k] * n


def test_directions_in_which_the_points_are_small_do_not_count():
    """k' = 2 in 3 dimensions: the third axis, of small values, is not looked at before the Lloyd steps."""
    points = np.array([[x, y, z] for x in (0.0, 50.0) for y in (0.0, 20.0) for z in (0.0, 1.0)])
    for seed in range(5):
        said = serve(paper(4, local_k=2), [points], seed=seed).uplinks[0][0]
        assert_allclose(said[:, 2], 0.5)


def test_hardly_any_points():
    for data in ([[[1.0, 2.0]], []], [[[1.0, 2.0]] * 9, [[1.0, 2.0]] * 2], [[[0.0, 0.0]] * 7, [[4.0, 4.0]]]):
        distinct = np.unique(np.array([x for part in data for x in part]).reshape(-1, 2), axis=0)
        for device in ("random", "first"):
            played = serve(paper(3, local_k=2, device=device), data)
            assert_array_equal(np.unique(played.model, axis=0), distinct)
            assert len(played.model) == len(distinct)


def test_a_weight_counts_like_so_many_points():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        points, weights = rng.normal(size=(25, 4)), rng.integers(1, 4, 25)
        light = serve(paper(4, local_k=3), [points], weights=weights.astype(float), seed=seed)
        heavy = serve(paper(4, local_k=3), [np.repeat(points, weights, axis=0)], seed=seed)
        assert_allclose(light.uplinks[0][0], heavy.uplinks[0][0], atol=1e-9)


def test_a_client_looks_at_its_own_points_only():
    data = blobs(5, [20, 30, 25], 4)
    one, other = (serve(paper(5, local_k=3), [data[0], second, data[2]]) for second in (data[1], data[1][:7] + 1))
    for i in (0, 2):
        assert_array_equal(one.uplinks[0][i], other.uplinks[0][i])


def test_both_forms_of_the_kernels_give_the_same_bits():
    data = blobs(6, [20, 0, 4, 25], 5)
    one, other = (serve(paper(5, local_k=3, seeding="greedy"), data, kernels=form) for form in (plain, compiled))
    assert_array_equal(one.model, other.model)
    assert_array_equal(np.concatenate(one.uplinks[0]), np.concatenate(other.uplinks[0]))


def test_greedy_seeds_are_better_than_plain_ones():
    data, costs = blobs(7, [60], 2, groups=8), {}
    for seeding in ("plain", "greedy"):
        tables = [serve(paper(8, local_k=8, seeding=seeding), data, seed=seed).uplinks[0][0] for seed in range(30)]
        costs[seeding] = sum(plain.losses(data[0], np.ones(60), np.array([0, 60]), t[None])[0][0] for t in tables)
    assert costs["greedy"] < costs["plain"]


@each(
    "options",
    [
        {"k": 0},
        {"local_k": 0},
        {"seeding": "best"},
        {"device": "last"},
        {"finish": "two"},
        {"labels": "own"},
        {"local_k": 1.5},
        {"local_k": "root"},
    ],
)
def test_options_out_of_range(options):
    with pytest.raises(ExperimentError):
        KFED(**{"k": 2, **options})
