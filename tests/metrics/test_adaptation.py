"""A device that joins after a run: GTVMin's update for it alone, the common clustering of other methods, and errors."""

from dataclasses import replace

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError
from tests.support.sampling import thin

CENTERS = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])
NAMES = tuple("abcdefgh")


def draw(n=8, seed=3):
    """Points of devices whose three clusters are well separated, and differ between devices."""
    rng = np.random.default_rng(seed)
    return [
        np.concatenate([
            c + rng.normal(0, 0.6, 2) + rng.normal(0, 1, (5 + (i + j) % 4, 2)) for j, c in enumerate(CENTERS)
        ])
        for i in range(n)
    ]


def solve(method, graph, points=None, **options):
    shards = p2pkm.Shards.from_list(draw() if points is None else points)
    return p2pkm.simulate(method, graph, shards, **{"rounds": 3000, "quantize": None, "baselines": False} | options)


def neighbors_of(result, i):
    return result.topology.indices[result.topology.indptr[i] : result.topology.indptr[i + 1]]


def iterate(points, tables, alpha, start):
    """Naive twin: Lloyd's step with the pulls 2 alpha of matched centroids, with loops, until nothing moves."""
    w = np.array(start)
    for _ in range(500):
        labels = [int(np.argmin([((x - c) ** 2).sum() for c in w])) for x in points]
        new = np.empty_like(w)
        for c in range(len(w)):
            total, weight = np.zeros(w.shape[1]), 0.0
            for x, label in zip(points, labels, strict=True):
                if label == c:
                    total, weight = total + x, weight + 1.0
            for table, a in zip(tables, alpha, strict=True):
                # Each pair of nearest rows pulls once for either side.
                for row in table:
                    if int(np.argmin(((w - row) ** 2).sum(1))) == c:
                        total, weight = total + a * row, weight + a
                total, weight = total + a * table[int(np.argmin(((table - w[c]) ** 2).sum(1)))], weight + a
            new[c] = total / weight if weight else w[c]
        if np.array_equal(new, w):
            break
        w = new
    return w


@pytest.mark.parametrize("graph", thin([topologies.ring(8), topologies.star(8)], 2), ids=["ring", "star"])
@pytest.mark.parametrize(
    "options",
    [
        {"coupling": 1.0},
        {"coupling": 0.0},
        {"alpha": 2.0},
        {"coupling": "strong"},
        {"coupling": "bayes"},
        {"coupling": "bayes", "shares": True},
        {"coupling": 1.0, "shares": True},
        {"coupling": 0.3, "local_steps": 3},
    ],
    ids=str,
)
@pytest.mark.sample(3)
def test_a_device_of_the_run_gets_its_own_centroids_back(options, graph):
    result = solve(p2pkm.GTVMin(3, tol=1e-12, **options), graph)
    assert result.summary["termination"] == "converged"
    for i, points in enumerate(draw()):
        found = result.adapt(points, neighbors_of(result, i).tolist())
        np.testing.assert_allclose(found, result.clusters.centroids[i], rtol=0, atol=1e-9)


def test_rows_of_neighbors_are_matched_by_cluster_number():
    start = np.array([CENTERS[np.random.default_rng(i).permutation(3)] for i in range(8)])
    result = solve(p2pkm.GTVMin(3, coupling=1.0, tol=1e-12), topologies.ring(8), start=start)
    assert len({tuple(number) for number in result.cluster_numbers.tolist()}) > 1
    for i, points in enumerate(draw()):
        found = result.adapt(points, neighbors_of(result, i).tolist())
        np.testing.assert_allclose(found, result.clusters.centroids[i], rtol=0, atol=1e-9)


def test_scaling_weights_and_link_weights_are_those_of_the_run():
    graph = topologies.ring(8)
    for number, (i, j) in enumerate(graph.edges):
        graph.edges[i, j]["weight"] = 0.5 + number
    points = [x * [1.0, 40.0] + [5.0, 0.0] for x in draw()]
    weights = [np.linspace(1.0, 30.0, len(x)) for x in points]
    shards = p2pkm.Shards.from_list(points, weights=weights)
    method = p2pkm.GTVMin(3, tol=1e-12, coupling=0.5)
    result = p2pkm.simulate(method, graph, shards, rounds=3000, quantize=None, scale="standard")
    for i, x in enumerate(points):
        links = {int(j): graph.edges[i, int(j)]["weight"] for j in neighbors_of(result, i)}
        found = result.adapt(x, links, weights=weights[i])
        np.testing.assert_allclose(found, result.clusters.centroids[i], rtol=1e-9)
        number = result.cluster_numbers[i][result.predict(x, i)]
        np.testing.assert_array_equal(result.predict(x, neighbors=links), number)


def test_estimated_weights_of_links_are_those_that_are_given():
    result = solve(p2pkm.GTVMin(3, coupling="links", tol=1e-12), topologies.star(8))
    for i, points in enumerate(draw()):
        spans = [slice(*result.topology.indptr[j : j + 2]) for j in neighbors_of(result, i)]
        mine = result.link_weights[slice(*result.topology.indptr[i : i + 2])]
        usual = [result.link_weights[span].mean() for span in spans]
        links = dict(zip(neighbors_of(result, i).tolist(), (mine / usual).tolist(), strict=True))
        np.testing.assert_allclose(result.adapt(points, links), result.clusters.centroids[i], rtol=0, atol=1e-9)


@pytest.mark.parametrize("coupling", [0.1, 3.0, 200.0])
def test_the_centroids_are_those_of_a_naive_twin(coupling):
    """On a star the strength of a new link is base / sqrt(number of new links x degree of the neighbor)."""
    result = solve(p2pkm.GTVMin(3, coupling=coupling), topologies.star(8), rounds=40)
    points = np.random.default_rng(0).normal(0, 5, (40, 2))
    total = sum(map(len, draw()))
    base = coupling * total / 8 / 3
    tables = [result.clusters.centroids[i] for i in (0, 5)]
    alpha = [base / np.sqrt(2 * degree) for degree in (7, 1)]
    twin = iterate(points, tables, alpha, np.mean(tables, axis=0))
    np.testing.assert_allclose(result.adapt(points, [0, 5]), twin, rtol=0, atol=1e-10)


def test_shares_are_those_of_a_naive_twin():
    rng = np.random.default_rng(0)
    # Devices with different shares of the clusters: otherwise the prior makes all shares nearly equal.
    skewed = [
        np.concatenate([rng.normal(c, 1.0, (12 if j == i % 3 else 3, 2)) for j, c in enumerate(CENTERS)])
        for i in range(8)
    ]
    result = solve(p2pkm.GTVMin(3, coupling=1.0, shares=True), topologies.ring(8), skewed, rounds=40)
    # Many points of one cluster, and points all the way to another.
    points = np.concatenate([rng.normal(0.0, 1.0, (300, 2)), rng.uniform((0.0, -1.0), (12.0, 1.0), (600, 2))])
    tables = result.clusters.centroids[[2, 3]]
    noise, prior = result.new_links.noise[2], result.new_links.prior[2]
    alpha = 18 / 3 / np.sqrt(2 * 2)
    w, shares = tables.mean(axis=0), np.full(3, 1 / 3)
    for _ in range(100):
        squared = ((points[:, None] - w) ** 2).sum(axis=2)
        labels = (squared - 2 * noise * np.log(shares)).argmin(axis=1)
        counts = np.bincount(labels, minlength=3)
        shares = (counts + prior) / (len(points) + 3 * prior)
        sums = np.array([points[labels == c].sum(axis=0) for c in range(3)])
        w = (sums + 2 * alpha * tables.sum(axis=0)) / (counts + 4 * alpha)[:, None]
    assert (labels != squared.argmin(axis=1)).any()
    np.testing.assert_allclose(result.adapt(points, [3, 2]), w, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(result.predict(points, neighbors=[2, 3]), labels)


def test_without_pull_it_is_kmeans_from_the_start_and_with_a_strong_one_the_mean_of_the_neighbors():
    sklearn = pytest.importorskip("sklearn.cluster")
    points = np.random.default_rng(0).normal(0, 5, (60, 2))
    free = solve(p2pkm.GTVMin(3, coupling=0.0), topologies.ring(8))
    start = free.clusters.centroids[[1, 4]].mean(axis=0)
    kmeans = sklearn.KMeans(3, init=start, n_init=1, tol=0, max_iter=1000).fit(points)
    np.testing.assert_allclose(free.adapt(points, [4, 1]), kmeans.cluster_centers_, rtol=0, atol=1e-10)
    bound = solve(p2pkm.GTVMin(3, coupling=1e9), topologies.ring(8), rounds=5, start=np.array(
        [CENTERS + np.random.default_rng(i).normal(size=(3, 2)) for i in range(8)]
    ))  # fmt: skip
    mean = bound.clusters.centroids[[1, 4]].mean(axis=0)
    np.testing.assert_allclose(bound.adapt(points, [1, 4]), mean, rtol=0, atol=1e-5)


def test_an_absent_centroid_is_not_averaged():
    start = np.array([[[0.0], [9.0]], [[2.0], [np.inf]], [[np.inf], [np.inf]]])
    points = [np.array([[0.0], [9.0]]), np.array([[1.0]]), np.array([[5.0]])]
    with pytest.warns(UserWarning, match="ended without centroids"):
        result = solve(p2pkm.GTVMin(2, alpha=0.0), topologies.path(3), points, start=start, rounds=0)
    assert result.adapt([[1.0], [3.0], [10.0]], [0, 1]).tolist() == [[2.0], [10.0]]
    assert result.adapt([[1.0], [3.0]], [1]).tolist() == [[2.0], [np.inf]]
    with pytest.raises(DataError, match=r"neighbor 2 has 0 centroids; expected at least one\. Choose another neighbor"):
        result.adapt([[1.0]], [0, 2])


@pytest.mark.parametrize(
    ("method", "graph"),
    [(p2pkm.TreeLloyd(3), topologies.ring(8)), (p2pkm.FKM(3), None), (p2pkm.FedLloyd(3), None)],
    ids=["tree", "fkm", "fedlloyd"],
)
def test_one_clustering_for_all_is_that_of_a_new_device(method, graph):
    result = solve(method, graph, scale="standard")
    for neighbors in (None, [3]):
        found = result.adapt([[1.0, 2.0]], neighbors)
        np.testing.assert_array_equal(found, result.clusters.centroids[result.best])
    assert result.predict(CENTERS, neighbors=[3]).tolist() == result.cluster_numbers[3][
        result.predict(CENTERS, 3)
    ].tolist()  # fmt: skip


def test_a_result_from_disk_gives_the_same_centroids(tmp_path):
    for options in ({"coupling": 1.0}, {"coupling": "bayes", "shares": True}):
        result = solve(p2pkm.GTVMin(3, **options), topologies.ring(8))
        again = p2pkm.load(result.save(tmp_path / str(len(options))))
        points = np.random.default_rng(0).normal(0, 5, (40, 2))
        np.testing.assert_array_equal(again.adapt(points, [2, 3]), result.adapt(points, [3, 2]))


@pytest.mark.parametrize(
    ("points", "neighbors", "options", "words"),
    [
        ([[1.0, 2.0]], ["z"], {}, "neighbor is 'z'; expected 0 to 7, or one of 'a', 'b'"),
        ([[1.0, 2.0]], [8], {}, "neighbor is 8; expected 0 to 7"),
        ([[1.0, 2.0]], ["a", 0], {}, "contain a device twice"),
        ([[1.0, 2.0]], None, {}, "depend on those of the neighbors; expected at least one device"),
        ([[1.0, 2.0]], [], {}, "depend on those of the neighbors; expected at least one device"),
        ([[1.0, 2.0]], {"a": -1.0}, {}, "weights of the links are .*; expected one positive number"),
        ([[1.0, 2.0]], {"a": np.nan}, {}, "weights of the links are .*; expected one positive number"),
        ([[1.0]], ["a"], {}, r"X has shape \(1, 1\); expected \(m, 2\)"),
        (np.zeros((0, 2)), ["a"], {}, "X has 0 points; expected at least one"),
        ([[1.0, np.nan]], ["a"], {}, "X is nan at row 0, column 1"),
        ([[1.0, 2.0]], ["a"], {"weights": [1.0, 2.0]}, r"weights have shape \(2,\); expected \(1,\)"),
        ([[1.0, 2.0]], ["a"], {"weights": [-1.0]}, "finite numbers of at least 0"),
    ],
)
@pytest.mark.sample(5)
def test_what_cannot_join_is_refused(points, neighbors, options, words):
    shards = replace(p2pkm.Shards.from_list(draw()), names=NAMES)
    result = p2pkm.simulate(p2pkm.GTVMin(3, coupling=1.0), topologies.ring(8), shards, rounds=5, baselines=False)
    with pytest.raises(DataError, match=words):
        result.adapt(points, neighbors, **options)


@pytest.mark.parametrize(
    "method",
    [
        p2pkm.GTVMin(3, coupling=1.0, matching="optimal"),
        p2pkm.GTVMin(3, coupling=1.0, normalize_losses=True),
        p2pkm.GTVMin(3, coupling=1.0, robust="clip"),
        p2pkm.GTVMin(3, coupling=1.0, update="as-printed"),
        p2pkm.GTVMin(3, coupling=1.0, star_term=False),
        p2pkm.ConsensusLloyd(3),
        "local",
    ],
    ids=str,
)
@pytest.mark.sample(3)
def test_a_method_without_an_update_for_a_new_device_says_what_to_use(method):
    graph, clusters = (None, 3) if method == "local" else (topologies.ring(8), None)
    result = solve(method, graph, rounds=5, clusters=clusters)
    with pytest.raises(DataError, match=r"different centroids.*algorithm='gtvmin', or with algorithm='treelloyd'"):
        result.adapt([[1.0, 2.0]], [1])


def test_device_and_neighbors_exclude_each_other():
    result = solve(p2pkm.GTVMin(3, coupling=1.0), topologies.ring(8), rounds=5)
    with pytest.raises(DataError, match="device=0 and neighbors cannot be combined"):
        result.predict([[1.0, 2.0]], 0, neighbors=[1])
    assert result.predict(np.zeros((0, 2)), neighbors=[1]).tolist() == []
    assert result.adapt([[1.0, 2.0]], 1).tolist() == result.adapt([[1.0, 2.0]], [1]).tolist()
