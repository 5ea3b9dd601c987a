"""Scores of each device on its test points, and cluster numbers that neighbors share."""

import json
import subprocess
from dataclasses import replace
from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import p2pkm
import topologies
from p2pkm.analysis.study_table import describe_quality_loss
from p2pkm.metrics.closing_rows import list_warnings
from p2pkm.metrics.closing_table import list_summary_rows
from p2pkm.metrics.clusters import number_along_links
from p2pkm.metrics.personal import PersonalScores
from p2pkm.metrics.registry import METRICS
from tests.support.methods import METHODS, build
from tests.support.run_cli import environment, here, ranks, solve
from tests.support.sampling import thin

OWN = {metric.key for metric in METRICS if metric.key.startswith("test_")}
SECONDS = {"wall_seconds", "compile_seconds"}


def draw(n=6, k=3, d=2, seed=0, sizes=None):
    """Return points and test points of devices whose clusters drift along a path, with classes and weights."""
    rng = np.random.default_rng(seed)
    corners = 8.0 * np.eye(k, d)
    parts = []
    for counts in (sizes or [12 + i for i in range(n)], [7 if i != 2 else 0 for i in range(n)]):
        labels = [rng.integers(0, k, count) for count in counts]
        points = [corners[y] + 0.4 * i + rng.normal(size=(len(y), d)) for i, y in enumerate(labels)]
        weights = [rng.uniform(0.5, 2.0, len(y)) for y in labels]
        parts.append(p2pkm.Shards.from_list(points, labels, weights))
    return parts[0].with_tests(parts[1])


def test_a_case_by_hand():
    """One cluster: device 0 has 0 and 2, device 1 has 10; the common centroid is 4."""
    tests = p2pkm.Shards.from_list([[[1.0], [3.0]], [[10.0]]], weights=[[1.0, 3.0], [1.0]])
    shards = p2pkm.Shards.from_list([[[0.0], [2.0]], [[10.0]]]).with_tests(tests)
    result = p2pkm.simulate(p2pkm.LocalOnly(1), None, shards)
    assert result.devices["test_cost"].tolist() == [3.0, 0.0]  # (0 + 3 * 4) / 4
    assert result.devices["test_cost_alone"].tolist() == [3.0, 0.0]
    assert result.devices["test_cost_common"].tolist() == [3.0, 36.0]  # (9 + 3 * 1) / 4
    summary = result.summary
    assert (summary["test_cost"], summary["test_points"], summary["test_devices"]) == (1.5, 3, 2)
    assert (summary["test_ratio_alone"], summary["test_ratio_common"]) == (1.0, 3.0 / 39.0)
    assert (summary["test_ratio_worst"], summary["test_better"]) == (1.0, 0.0)
    assert (summary["test_ari"], summary["test_ari_all"], summary["test_cost_centers"]) == (None, None, None)
    assert result.rounds[-1]["test_ratio_common"] == 3.0 / 39.0


def test_records_have_the_ratio_of_every_round():
    """The ends of a path move from the common centroid 4 half way to their points 0 and 8, the middle stays."""
    tests = p2pkm.Shards.from_list([[[0.0]], np.zeros((0, 1)), [[8.0]]])
    shards = p2pkm.Shards.from_list([[[0.0]], [[4.0]], [[8.0]]]).with_tests(tests)
    method = p2pkm.GTVMin(1, alpha=0.5, init="global", schedule="jacobi", relaxation=1.0)
    result = p2pkm.simulate(method, topologies.path(3), shards, rounds=2)
    found = [record["test_ratio_common"] for record in result.rounds if record["stage"] == "gtvmin"]
    assert found == [1.0, 0.25, 0.25]  # (2^2 + 2^2) / (4^2 + 4^2)


def mean_cost(points, weights, centroids):
    """Compute the weighted mean squared distance to the nearest centroid, point by point."""
    least = [min(sum((x - w) ** 2) for w in centroids if np.isfinite(w[0])) for x in points]
    return sum(np.multiply(weights, least)) / sum(weights)


def number_naively(result):
    """Number the rows of each device by the best permutation for its neighbors that have numbers, hop by hop."""
    n, k, _ = result.centroids.shape
    numbers, turn = {result.best: list(range(k))}, [result.best]
    while turn:
        known = dict(numbers)
        turn = sorted({j for i in turn for j in result.graph[i]} - known.keys())
        for j in turn:
            near = [i for i in result.graph[j] if i in known]

            def price(order, j=j, near=near, known=known):
                return sum(
                    ((result.centroids[j, r] - result.centroids[i, known[i].index(c)]) ** 2).sum()
                    for i in near
                    for r, c in enumerate(order)
                )

            numbers[j] = list(min(permutations(range(k)), key=price))
    return np.array([numbers[i] for i in range(n)])


@pytest.mark.parametrize(("scale", "init"), [("none", "global"), ("standard", "global"), ("none", "local")])
@pytest.mark.sample(3)
def test_every_value_is_that_of_a_naive_twin(scale, init):
    """With local initial centroids, a cluster has other rows at other devices."""
    shards = draw()
    result = p2pkm.simulate(p2pkm.GTVMin(3, coupling=0.3, init=init), topologies.ring(6), shards, scale=scale)
    tests, centroids = shards.tests, result.centroids
    shift, span = (0.0, 1.0) if result.scaling is None else (part[0] for part in result.scaling)
    points, common = (tests.points - shift) / span, result.central
    numbers = number_naively(result)
    assert (numbers == np.arange(3)).all() == (init == "global")
    np.testing.assert_array_equal(result.cluster_numbers, numbers)
    costs, commons, scores, found = [], [], [], []
    for i in [0, 1, 3, 4, 5]:
        own = slice(tests.offsets[i], tests.offsets[i + 1])
        costs.append(mean_cost(points[own], tests.weights[own], centroids[i]))
        commons.append(mean_cost(points[own], tests.weights[own], common))
        rows = ((points[own, None] - centroids[i]) ** 2).sum(axis=2).argmin(axis=1)
        scores.append(adjusted_rand_score(tests.labels[own], rows))
        found += numbers[i][rows].tolist()
    alone = p2pkm.simulate(p2pkm.LocalOnly(3, n_init=10), None, shards, scale=scale).devices["test_cost"]
    among = [0, 1, 3, 4, 5]
    np.testing.assert_allclose(result.devices["test_cost"][among], costs, rtol=1e-12)
    np.testing.assert_allclose(result.devices["test_cost_common"][among], commons, rtol=1e-12)
    np.testing.assert_allclose(result.devices["test_cost_alone"], alone, rtol=1e-12)
    np.testing.assert_allclose(result.devices["test_ari"][among], scores, rtol=1e-12)
    assert all(np.isnan(values[2]) for key, values in result.devices.items() if key.startswith("test_"))
    best = np.minimum(commons, alone[among])
    expected = {
        "test_points": 35, "test_devices": 5, "test_cost": np.mean(costs), "test_ari": np.mean(scores),
        "test_ratio_common": sum(costs) / sum(commons), "test_ratio_alone": sum(costs) / sum(alone[among]),
        "test_ratio_worst": max(costs / best), "test_better": np.mean(costs < best),
        "test_ari_all": adjusted_rand_score(tests.labels, found),
    }  # fmt: skip
    assert {key: result.summary[key] for key in expected} == pytest.approx(expected, rel=1e-12)
    assert "left out of test cost and test ARI: 1 of 6 devices without test points" in result.notes


def test_known_centers_are_compared_in_the_units_of_the_run():
    shards, centers = draw(), 8.0 * np.eye(3, 2)
    shards = replace(shards, centers=np.array([centers + 0.4 * i for i in range(6)]))
    for options in ({}, {"scale": "minmax"}):
        result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), shards, **options)
        span = 1.0 if result.scaling is None else result.scaling[1][0]
        for i in (0, 5):
            own = slice(shards.tests.offsets[i], shards.tests.offsets[i + 1])
            twin = mean_cost(shards.tests.points[own] / span, shards.tests.weights[own], shards.centers[i] / span)
            assert result.devices["test_cost_centers"][i] == pytest.approx(twin, rel=1e-12)
        known = ~np.isnan(result.devices["test_cost"])
        summed = result.devices["test_cost"][known].sum() / result.devices["test_cost_centers"][known].sum()
        assert result.summary["test_ratio_centers"] == pytest.approx(summed, rel=1e-12)
    common = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), draw(), true_centers=centers)
    assert common.summary["test_ratio_centers"] < result.summary["test_ratio_centers"]


@pytest.mark.parametrize(
    "options",
    thin(
        [
            {"scale": "standard"},
            {"missing": "mean"},
            {"clusters": "auto", "k_max": 4},
            {"min_cluster_size": 2, "quantize": "none"},
            {"algorithm": "treelloyd"},
            {"algorithm": "fkm"},
        ],
        2,
    ),
    ids=lambda options: next(iter(options)),
)
@pytest.mark.sample(3)
def test_they_influence_nothing_else(options):
    """With other test points, all other values of the run keep their bits."""
    shards = draw()
    if "missing" in options:
        points = shards.points.copy()
        points[3, 0] = np.nan
        shards = replace(shards, points=points)
    name, options = options.get("algorithm", "gtvmin"), {k: v for k, v in options.items() if k != "algorithm"}
    graph = None if name == "fkm" else topologies.ring(6)
    moved = replace(shards.tests, points=1e3 + 50.0 * shards.tests.points[::-1])
    runs = [
        p2pkm.simulate(build(name, 3), graph, variant, rounds=5, silhouette=True, **options)
        for variant in (shards, shards.with_tests(moved), replace(shards, tests=None))
    ]
    first, *others = ({key: value for key, value in run.summary.items() if key not in OWN | SECONDS} for run in runs)
    assert all(json.dumps(other) == json.dumps(first) for other in others)
    for run in runs[1:]:
        np.testing.assert_array_equal(run.labels, runs[0].labels)
        others = [
            [{key: record[key] for key in record.keys() - OWN} for record in one.rounds] for one in (run, runs[0])
        ]
        assert others[0] == others[1]
    assert runs[0].summary["test_cost"] != runs[1].summary["test_cost"] and runs[2].summary["test_cost"] is None


@pytest.mark.parametrize("statistic", ["mean", "median"])
@pytest.mark.sample(2)
def test_missing_values_are_filled_in_as_those_of_other_points(statistic):
    shards = draw()
    points = shards.tests.points.copy()
    points[4, 1] = np.nan
    filled = points.copy()
    # Weights count.
    order = np.argsort(shards.points[:, 1])
    weight = np.cumsum(shards.weights[order]) / shards.weights.sum()
    median = shards.points[order, 1][np.searchsorted(weight, 0.5)]
    filled[4, 1] = np.average(shards.points[:, 1], weights=shards.weights) if statistic == "mean" else median
    runs = [
        p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), shards.with_tests(replace(shards.tests, points=part)),
                       rounds=3, missing=statistic)
        for part in (points, filled)
    ]  # fmt: skip
    np.testing.assert_allclose(runs[0].devices["test_cost"], runs[1].devices["test_cost"], rtol=1e-12)
    with pytest.raises(p2pkm.DataError, match="missing values"):
        p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), shards.with_tests(replace(shards.tests, points=points)))


def test_components_have_no_common_cluster_numbers():
    graph = nx.disjoint_union(topologies.ring(3), topologies.ring(3))
    result = p2pkm.simulate(p2pkm.GTVMin(3), graph, draw(), rounds=3, allow_disconnected=True)
    assert result.summary["test_ari_all"] is None and result.summary["test_ari"] > 0
    rows = {label: meaning for label, _, meaning in list_summary_rows({**result.summary, "out": None}, [])}
    assert "none over all, because the method clusters each component of the graph alone" in rows["test ARI"]


@pytest.mark.parametrize("name", thin(METHODS, 3))
@pytest.mark.sample(3)
def test_every_method_answers_both_questions(name):
    shards = draw(sizes=[0, 1, 9, 20, 20, 20])
    graph = topologies.ring(6) if build(name, 3).traits.needs_hub is False else None
    result = p2pkm.simulate(build(name, 3), graph, replace(shards, weights=np.broadcast_to(1.0, shards.m)), rounds=5)
    summary = result.summary
    assert {summary[key] is not None for key in ("test_cost", "test_ratio_common", "test_ari", "ratio_mean")} == {True}
    assert result.rounds[-1]["test_ratio_common"] == summary["test_ratio_common"]
    assert (summary["test_ari_all"] is None) == (name == "local") == (summary["no_correspondence"] is not None)
    rows = {label: meaning for label, _, meaning in list_summary_rows({**summary, "out": None}, [])}
    for label in ("cost ratio", "ARI"):
        assert rows[label].startswith("one clustering for all: ")
    for label in ("relative test cost", "test ARI"):
        assert rows[label].startswith("a clustering for each device: ")
    if name == "local":
        assert "none over all, because the method clusters the points of each device alone" in rows["test ARI"]


def test_alone_is_the_best_of_ten():
    X, _ = p2pkm.blobs(clusters=12, points=20, features=2, seed=3)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 3, seed=1))
    best, one = (p2pkm.simulate(p2pkm.LocalOnly(9, n_init=n_init), None, shards, test_share=0.3) for n_init in (10, 1))
    assert best.devices["test_cost"].tolist() == best.devices["test_cost_alone"].tolist()
    assert one.devices["test_cost"].tolist() != one.devices["test_cost_alone"].tolist()


@pytest.mark.slow
def test_byzantine_devices_are_left_out():
    result = p2pkm.simulate("gtvmin:coupling=1", topologies.ring(6), draw(), clusters=3, byzantine=1)
    (bad,) = result.byzantine
    assert np.isnan([values[bad] for key, values in result.devices.items() if key.startswith("test_")]).all()
    assert bad != 2 and result.summary["test_devices"] == 4  # device 2 has no test points
    assert result.rounds[-1]["test_ratio_common"] == result.summary["test_ratio_common"]


def test_without_baselines_there_is_the_cost_alone():
    result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), draw(), baselines=False, rounds=3)
    summary = result.summary
    assert summary["test_cost"] > 0.0 and summary["test_ari_all"] > 0.0
    assert {summary[key] for key in ("test_cost_common", "test_ratio_alone", "test_better")} == {None}
    assert not any("test_ratio_common" in record for record in result.rounds)


@pytest.mark.parametrize(
    "words", [("--graph", "path"), ("--algorithm", "kfed"), ("--partition", "dirichlet:alpha=0.05")]
)
def test_devices_with_few_points_run(words):
    """Devices without points or with one have no test points: they are counted and left out."""
    summary = solve("--test-share", "0.3", "--devices", 12, *words)
    assert summary["test_points"] > 0 and 1 <= summary["test_devices"] <= 12


def test_a_folder_and_a_study_have_the_values(tmp_path):
    words = ("--test-share", "0.25", "--out", tmp_path / "run", "--format", "json")
    summary = here("--data", "grid16:points=5", "--devices", 4, "--rounds", 5, "--no-plot", *words).summary
    loaded = p2pkm.load(tmp_path / "run")
    assert loaded.summary["test_ari_all"] == summary["test_ari_all"] is not None
    assert len(loaded.devices["test_cost"]) == 4 and np.nanmean(loaded.devices["test_cost"]) == summary["test_cost"]
    study = p2pkm.study(
        grid={"test_share": [0.0, 0.25]}, seeds=[0], data="grid16:points=5", devices=4, rounds=5, progress=False
    )
    assert [row["test_cost"] for row in study.rows] == [None, summary["test_cost"]]
    compared = p2pkm.compare(
        ["gtvmin", "fkm"], seeds=[0], data="grid16:points=5", devices=4, rounds=5, test_share=0.25, progress=False
    )
    assert compared.rows[0]["test_ratio_common"] == summary["test_ratio_common"]
    assert len({row["test_cost_alone"] for row in compared.rows}) == 1  # the same points for all methods


def test_the_estimator_fits_nothing_on_test_rows():
    X, _ = p2pkm.blobs(clusters=3, points=40, seed=0)
    model = p2pkm.P2PKMeans(3, test_share=0.25, missing="mean", random_state=0)
    rows = model.fit(X).result_.census.row
    assert len(rows) + model.result_.summary["test_points"] == len(X) == len(model.labels_)
    moved = X.copy()
    moved[np.setdiff1d(np.arange(len(X)), rows)] += 1e3
    again = p2pkm.P2PKMeans(3, test_share=0.25, missing="mean", random_state=0).fit(moved)
    np.testing.assert_array_equal(again.device_centers_, model.device_centers_)
    assert (again.inertia_, again.fill_values_.tolist()) == (model.inertia_, model.fill_values_.tolist())
    assert again.result_.summary["test_cost"] > model.result_.summary["test_cost"]


def rotate(n, seed):
    """Return two centroids of each device that turn by half a circle along a path, and which are reversed."""
    angle = np.linspace(0.0, np.pi, n)
    first = np.column_stack((np.cos(angle), np.sin(angle)))
    order = np.random.default_rng(seed).integers(0, 2, n)
    order[0] = 0
    return np.where(order[:, None, None] == 0, np.stack((first, -first), 1), np.stack((-first, first), 1)), order


@pytest.mark.parametrize("seed", range(3))
def test_numbers_follow_the_links(seed):
    """At the other end of the path, each centroid is where the other one was at the first device."""
    centroids, order = rotate(9, seed)
    path = p2pkm.Topology.from_graph(topologies.path(9))
    numbers = number_along_links(centroids, 0, path.indptr, path.indices)
    assert numbers.tolist() == [[0, 1] if one == 0 else [1, 0] for one in order]


def test_numbers_of_absent_centroids_and_other_components():
    centroids, _ = rotate(6, 0)
    centroids[3, 0] = np.inf
    links = np.array([[0, 1, 1.0], [1, 2, 1.0], [2, 3, 1.0], [4, 5, 1.0]])
    graph = p2pkm.Topology.from_links(6, links)
    numbers = number_along_links(centroids, 1, graph.indptr, graph.indices)
    assert all(sorted(row) == [0, 1] for row in numbers.tolist()) and numbers[1].tolist() == [0, 1]
    near = ((centroids[4][:, None] - centroids[1]) ** 2).sum(axis=2).argmin(axis=1)
    assert numbers[4].tolist() == near.tolist()
    present = centroids[3, 1]
    assert numbers[3, 1] == numbers[2][((centroids[2] - present) ** 2).sum(axis=1).argmin()]


@pytest.mark.mpi
def test_three_ranks_give_the_same_bits():
    words = ("-m", "p2pkm", "--devices", "7", "--data", "grid16:points=9", "--test-share", "0.3", "--scale", "standard",
             "--rounds", "5", "--out", "none", "--format", "json", "-q")  # fmt: skip
    done = subprocess.run(
        [*ranks(3), *words], capture_output=True, text=True, env=environment(), timeout=90, check=True
    )
    expected = here(*words[2:]).summary
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() >= OWN and expected["test_ari_all"] is not None
    assert {key: found[key] for key in OWN} == {key: expected[key] for key in OWN}


@pytest.mark.parametrize(
    ("ratio", "chosen", "sets", "warned"),
    [(None, None, 6, True), (None, "strong with shares", 6, True), (1.01, None, 6, True), (0.9, None, 6, False),
     (0.9, None, 1, True), (None, "links", 6, False), (None, "bayes with shares", 6, False)],
)  # fmt: skip
def test_centroids_that_suit_each_device_better_do_not_lose_quality(ratio, chosen, sets, warned):
    summary = {"stream": None, "ratio_mean": 1.3, "ratio_best": 1.0, "termination": "converged",
               "ratio_best_round": 0, "ratio_best_stage": "gtvmin", "test_points": None if ratio is None else 9,
               "test_ratio_common": ratio, "coupling_chosen": chosen, "centroid_sets": sets}  # fmt: skip
    assert bool(list_warnings(summary)) is bool(describe_quality_loss([summary])) is warned


def test_every_ratio_is_over_the_same_devices():
    """The second device has no points of its own to cluster alone, so that no ratio counts it."""
    one, two = np.array([1.0, 2.0]), np.array([4.0, 1.0])
    scores = PersonalScores(np.array([3, 3]), one, np.array([2.0, np.nan]), two, two, None, None)
    assert (scores.divide_by(scores.common), scores.divide_by(scores.alone)) == (1 / 4, 1 / 2)
    assert scores.divide_by(scores.centers) == 1 / 4
