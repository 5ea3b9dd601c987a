"""Points whose clusters differ between devices: how they differ, test points, and runs on them."""

import networkx as nx
import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.data.sources import SOURCES
from p2pkm.data.synthetic_device_clusters import _diffuse, read_links
from tests.support.each import each
from tests.support.run_cli import here, solve

WORLD = "device-clusters:points=12,tests=20,amplitude=1"


def spread(made):
    """Return the differences of the centers from their means over the devices, float64[n, k d]."""
    return (made.centers - made.centers.mean(axis=0)).reshape(len(made.centers), -1)


@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("along", ["graph", "groups", "other-graph"])
def test_the_standard_deviation_of_a_center_is_the_amplitude(along, features):
    made = p2pkm.device_clusters(graph="torus", devices=36, along=along, amplitude=0.7, features=features, seed=3)
    np.testing.assert_allclose(spread(made).std(axis=0), 0.7 * np.sqrt(2 / features), rtol=1e-9)


def test_smoothing_is_that_of_the_laplacian():
    """Naive twin: powers of a dense matrix."""
    graph = nx.barabasi_albert_graph(30, 2, seed=3)
    values = np.random.default_rng(0).normal(size=(30, 4))
    laplacian = nx.laplacian_matrix(graph, nodelist=range(30)).toarray()
    bound = max(graph.degree(u) + graph.degree(v) for u, v in graph.edges)
    centered = (values - values.mean(axis=0)) / values.std(axis=0)
    smooth = np.linalg.matrix_power(np.eye(30) - 0.75 / bound * laplacian, 16) @ centered
    expected = (smooth - smooth.mean(axis=0)) / smooth.std(axis=0)
    np.testing.assert_allclose(_diffuse(values, *read_links(graph, None, 0)), expected, rtol=1e-9, atol=1e-12)


def test_neighbors_are_alike_along_the_graph_and_not_along_another_one():
    ends = np.array(list(nx.Graph(topologies.build("torus", 100)).edges))
    apart = {}
    for along in ("graph", "other-graph"):
        field = spread(p2pkm.device_clusters(graph="torus", devices=100, along=along))
        apart[along] = np.mean((field[ends[:, 0]] - field[ends[:, 1]]) ** 2)
    assert apart["graph"] < 0.5 < 1.5 < apart["other-graph"]  # 2 for independent numbers of variance 1


def test_groups_are_connected_and_share_their_centers():
    made = p2pkm.device_clusters(graph="grid", devices=49, along="groups", groups=4, seed=2)
    graph = topologies.build("grid", 49)
    nodes = topologies.sort_nodes(graph)
    for g in range(4):
        members = np.flatnonzero(made.groups == g)
        assert len(np.unique(made.centers[members], axis=0)) == 1
        assert nx.is_connected(graph.subgraph([nodes[i] for i in members]))
    assert len(np.unique(made.centers, axis=0)) == 4
    apart = nx.disjoint_union(nx.path_graph(3), nx.path_graph(2))
    assert p2pkm.device_clusters(graph=apart, along="groups", groups=1).groups.tolist() == [0] * 5


@pytest.mark.parametrize(("n", "odd"), [(6, 2), (40, 4), (1, 1)])
def test_few_devices_differ(n, odd):
    made = p2pkm.device_clusters(devices=n, along="few")
    _, kinds = np.unique(made.centers, axis=0, return_counts=True)
    assert sorted(kinds) == sorted([n - odd, *[1] * odd])[-len(kinds) :]
    same = p2pkm.device_clusters(devices=n, along="none", amplitude=5).centers
    assert len(np.unique(same, axis=0)) == 1


def test_points_and_test_points_have_the_distribution_of_their_device():
    made = p2pkm.device_clusters(devices=3, points=6000, tests=6000, class_alpha=0.5, seed=1)
    for table in (made, made.tests):
        for i in range(3):
            own, labels = table.points[table.device == i], table.labels[table.device == i]
            for c in np.flatnonzero(np.bincount(labels, minlength=4) > 500):
                np.testing.assert_allclose(own[labels == c].mean(axis=0), made.centers[i, c], atol=0.2)
                np.testing.assert_allclose(own[labels == c].std(axis=0), 1.0, atol=0.1)
    shares = [np.bincount(t.labels[t.device == 0], minlength=4) / 6000 for t in (made, made.tests)]
    np.testing.assert_allclose(*shares, atol=0.04)
    assert max(shares[0]) > 0.3  # the shares differ
    even = p2pkm.device_clusters(devices=3, points=6000)
    np.testing.assert_allclose(np.bincount(even.labels) / 18000, 0.25, atol=0.02)


def test_sizes_and_tails():
    skewed = p2pkm.device_clusters(devices=30, points=20, size_alpha=0.3, tests=7)
    sizes = np.bincount(skewed.device)
    assert sizes.min() == 2 and sizes.max() > 60 and sizes.sum() == 600
    assert set(np.bincount(skewed.tests.device)) == {7}
    heavy = p2pkm.device_clusters(devices=2, points=40000, freedom=5, along="none", clusters=1)
    noise = heavy.points - heavy.centers[0]
    np.testing.assert_allclose(noise.std(), 1.0, atol=0.05)
    assert (noise**4).mean() > 5.0  # 3 for Gaussians, 9 here


def test_text_and_objects_name_the_same_graph():
    text = p2pkm.device_clusters(graph="small-world:degree=4;rewire=0.3;seed=5", devices=20)
    graph = topologies.small_world(20, degree=4, rewire=0.3, seed=5)
    for other in (graph, topologies.CSRGraph.from_networkx(graph)):
        np.testing.assert_array_equal(p2pkm.device_clusters(graph=other).points, text.points)
    assert len(p2pkm.device_clusters(graph="karate").centers) == 34
    assert len(p2pkm.device_clusters(graph="one-peer-exponential", devices=8).centers) == 8


@each(
    ("options", "message"),
    [
        ({"graph": "karate", "devices": 5}, r"34|5"),
        ({"graph": topologies.ring(4), "devices": 5}, r"devices is 5, but the graph of device-clusters has 4 nodes"),
        ({"graph": "rnig"}, r"Did you mean 'ring'"),
        ({"along": "tree"}, r"along is 'tree'"),
        ({"freedom": 2.0}, r"freedom is 2; expected a number above 2"),
        ({"groups": 17, "along": "groups"}, r"at most 16"),
        ({"clusters": 0}, r"clusters is 0"),
        ({"class_alpha": 0.0}, r"class_alpha is 0"),
        ({"amplitude": -1.0}, r"amplitude is -1"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        p2pkm.device_clusters(**options)


@pytest.mark.slow
def test_a_run_knows_test_points_and_true_centers():
    summary = solve("--data", WORLD, "--graph", "torus", "--devices", 9, "--test-share", 0.5)
    assert summary["test_points"] == 9 * 20 and summary["test_ratio_centers"] > 1.0 and summary["clusters"] == 4
    made = p2pkm.device_clusters(graph="torus", devices=9, points=12, tests=20)
    result = p2pkm.simulate("gtvmin", "torus", made.shards, rounds=20)
    again = p2pkm.simulate("gtvmin", "torus", WORLD, devices=9, rounds=20)
    for run in (result, again):
        assert run.summary["centroids_sha256"] == summary["centroids_sha256"]
        assert {run.summary[key] for key in ("test_cost_centers",)} == {summary["test_cost_centers"]}
    # The text in the folder names everything.
    text = summary["data"]
    assert "graph=torus" in text and "devices=9" in text
    assert solve("--data", text, "--graph", "torus", "--devices", 9)["test_cost"] == summary["test_cost"]


def test_the_graph_of_a_run_is_its_own():
    """Karate has 34 devices; the seed of a random graph is that of the run."""
    quick = ("--rounds", 1, "--out", "none", "--format", "json")
    assert here("--data", "device-clusters:points=3,tests=2", "--graph", "karate", *quick).summary["devices"] == 34
    found = here("--data", WORLD, "--graph", "small-world:degree=2", "--devices", 8, "--seed", 3, "--out", "none",
                 "--dry-run", "--format", "json").summary  # fmt: skip
    assert "graph=small-world:degree=2;rewire=0.1;seed=3" in found["data"]
    done = here("--data", "device-clusters:devices=5", "--devices", 4, "--out", "none")
    assert done.code == 2 and "devices is 4, but data device-clusters has 5 devices" in done.err
    mixed = here("--data", WORLD, "--partition", "iid", "--devices", 4, "--out", "none", "--test-share", "0.25")
    assert "are not used: partition iid mixes the devices" in mixed.out and "test cost" in mixed.out


@pytest.mark.slow
def test_compared_methods_share_points():
    options = {"data": WORLD, "devices": 9, "seeds": [0, 1], "rounds": 2, "progress": False}
    rows = p2pkm.compare(["gtvmin", "fkm"], "torus", **options).rows
    rows += p2pkm.study(grid={"algorithm": ["gtvmin", "fkm"]}, graph="torus", **options).rows
    for seed in (0, 1):
        same = {(row["points_sha256"], row["test_cost_alone"]) for row in rows if row["seed"] == seed}
        assert len(same) == 1
    with pytest.raises(p2pkm.ExperimentError, match=r"graphs are ring, torus; .*device-clusters:graph=torus"):
        p2pkm.compare(["gtvmin", "fkm"], "ring,torus", **options)
    named = options | {"data": WORLD + ",graph=torus", "seeds": [0]}
    rows = p2pkm.compare(["gtvmin", "fkm"], "ring,torus", **named).rows
    assert len(rows) == 3 and len({row["test_cost_alone"] for row in rows}) == 1


@pytest.mark.slow
def test_a_benchmark_ranks_on_them(tmp_path):
    (tmp_path / "s.toml").write_text(f"""version = 1
seeds = "0"
[[tasks]]
name = "world"
data = "{WORLD}"
clusters = 4
devices = 9
graphs = ["torus"]
""")
    found = p2pkm.bench("mavg,treelloyd", suite=str(tmp_path / "s.toml"), progress=False, out=tmp_path / "out")
    assert found.failed == [] and all(row["test_ari_all"] > 0.3 for row in found.rows)
    assert "test_ratio_common" in (tmp_path / "out" / "study.csv").read_text().partition("\n")[0]
    (tmp_path / "s.toml").write_text((tmp_path / "s.toml").read_text() + "test_share = 0.5\n")
    with pytest.raises(p2pkm.ExperimentError, match=r"task world has test_share 0.5"):
        p2pkm.bench("mavg", suite=str(tmp_path / "s.toml"), progress=False)


@pytest.mark.parametrize("second", ["fresh", "same"])
def test_communities_supply_their_test_points_too(second):
    """The ratio to the true centers is that of `Communities.score`, but of summed costs."""
    made = p2pkm.communities(devices=6, points=30, second=second, seed=4)
    text = f"communities:devices=6,points=30,second={second},seed=4"
    result = p2pkm.simulate("gtvmin:coupling=1", "ring", text, rounds=5)
    np.testing.assert_allclose(
        result.devices["test_cost"] / result.devices["test_cost_centers"], made.score(result.centroids), rtol=1e-12
    )
    assert result.summary["test_points"] == 2400
    labels = SOURCES["communities"](devices=6, second=second).tests.labels
    assert np.bincount(labels).tolist() == ([300] * 8 if second == "fresh" else [600] * 4)


@pytest.mark.slow
def test_plan_counts_the_points():
    done = here("plan", "--data", WORLD, "--devices", 6, "--format", "json")
    assert done.code == 0 and '"points": 72' in done.out.replace("\n", " ")


def test_the_spec_takes_every_key():
    table = SOURCES["device-clusters"](along="few", class_alpha=0.5, size_alpha=1.0, freedom=4.0, seed=2)
    assert table.tests.labels.max() < 4 and table.centers.shape == (16, 4, 2)


@pytest.mark.slow
def test_many_devices():
    made = p2pkm.device_clusters(graph="torus", devices=100_000, points=2, tests=1)
    np.testing.assert_allclose(spread(made).std(axis=0), 1.0, rtol=1e-6)
