"""Clusters under one numbering, in the units of the data, and the tables and figures that show them."""

import csv
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import p2pkm
import topologies
from p2pkm.metrics.clusters import Clusters, arrange, number_clusters
from p2pkm.viz.color_by import read_points
from p2pkm.viz.figures.profile import standardize
from p2pkm.viz.report.findings import describe
from p2pkm.viz.svg import draw_inline
from tests.support.run_cli import here

SITES = ("Bern", "Turku", 'Åbo, "North"')
FEATURES = ("age", "bmi", "sbp")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """Write points of three sites, whose clusters are far apart, and run on them."""
    folder = tmp_path_factory.mktemp("hospitals")
    draw = np.random.default_rng(1)
    kind, site = draw.integers(0, 3, 90), draw.integers(0, 3, 90)
    points = np.array([[30.0, 22, 115], [55, 40, 140], [75, 24, 190]])[kind] + draw.normal(size=(90, 3))
    with open(folder / "h.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["site", *FEATURES])
        writer.writerows([SITES[i], *x] for i, x in zip(site, points.tolist(), strict=True))
    words = ("--data", folder / "h.csv", "--device-column", "site", "-k", 3, "--no-plot", "-q")
    for name, more in (("run", ()), ("scaled", ("--scale", "standard"))):
        assert here(*words, *more, "--out", folder / name).code == 0
    return folder, points, kind, site


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["run", "scaled"])
def test_labels_csv_assigns_each_row_of_the_file(hospitals, name):
    folder, points, kind, site = hospitals
    rows = read(folder / name / "labels.csv")
    assert [int(row["row"]) for row in rows] == list(range(90))
    assert [row["device"] for row in rows] == [SITES[i] for i in site]
    found = np.array([int(row["cluster"]) for row in rows])
    assert len({*zip(kind, found, strict=True)}) == 3  # the same clusters, named otherwise
    result = p2pkm.load(folder / name)
    assert np.array_equal(result.labels, found)
    assert np.array_equal(result.predict(points), found)


@pytest.mark.parametrize("name", ["run", "scaled"])
def test_centroids_csv_is_in_the_units_of_the_data(hospitals, name):
    folder, points, _, site = hospitals
    found = p2pkm.load(folder / name).labels
    rows = {(int(row["cluster"]), row["device"]): row for row in read(folder / name / "centroids.csv")}
    assert set(rows) == {(c, who) for c in range(3) for who in ("all", *SITES)}
    for (c, who), row in rows.items():
        own = (found == c) & ((site == SITES.index(who)) if who in SITES else True)
        assert int(row["points"]) == own.sum()
        near = np.array([float(row[name]) for name in FEATURES])
        np.testing.assert_allclose(near, points[found == c].mean(axis=0), atol=1.5)
    result = p2pkm.load(folder / name)
    assert result.features == result.feature_names == FEATURES


@pytest.mark.parametrize("name", ["run", "scaled"])
def test_moments_are_those_of_the_points(hospitals, name):
    folder, points, _, site = hospitals
    clusters, found = p2pkm.load(folder / name).clusters, p2pkm.load(folder / name).labels
    for i in range(3):
        for c in range(3):
            own = points[(site == i) & (found == c)]
            np.testing.assert_allclose(clusters.means[i, c], own.mean(axis=0))
            np.testing.assert_allclose(clusters.deviations[i, c], own.std(axis=0))


def test_a_cluster_without_points_lies_in_the_middle_of_the_devices_that_have_it():
    centroids = np.array([[[0.0], [2.0], [np.inf]], [[4.0], [6.0], [np.inf]], [[8.0], [np.inf], [np.inf]]])
    points = np.array([[1, 0, 0], [3, 0, 0], [0, 0, 0]])
    pooled = Clusters(np.tile(np.arange(3), (3, 1)), centroids, points, None, None).pool()
    assert pooled.ravel().tolist() == [3.0, 4.0, np.inf]


def test_profile_is_standardized(hospitals):
    folder, points, _, _ = hospitals
    result = p2pkm.load(folder / "scaled")
    profile, found = standardize(result), result.labels
    z = (points - points.mean(axis=0)) / points.std(axis=0)
    for c in range(3):
        np.testing.assert_allclose(profile.pooled[c], z[found == c].mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(profile.widths[c], z[found == c].std(axis=0), atol=1e-9)
    words = draw_inline(lambda: p2pkm.viz.plot_profile(result), "one")
    assert not [word for word in (*FEATURES, *SITES[:2], "cluster 2:") if word not in words]
    sizes = np.bincount(found)
    words = f"Standardized means of {len(FEATURES)} features in 3 clusters, of {sizes.min()} to {sizes.max()} points."
    assert describe("profile", result) == words


def test_profile_has_means_in_units_of_the_data_and_shares():
    draw = np.random.default_rng(0)
    kind = draw.integers(0, 2, 200)
    points = np.column_stack((kind, 5e6 * (1 + kind) + draw.normal(size=200), 1e-3 * (1 + kind)))
    points[:, 0] = draw.random(200) < np.array([0.2, 0.7])[kind]
    shards = p2pkm.Shards.deal(points, np.arange(200) % 2)
    result = p2pkm.simulate(p2pkm.TreeLloyd(2), topologies.path(2), shards, scale="standard", rounds=5)
    (ax,) = p2pkm.viz.plot_profile(result).axes
    for c, panel in enumerate(ax.child_axes):
        share, large, small = points[result.labels == c].mean(axis=0)
        expected = [f"{100 * share:.0f} %", f"{large / 1e6:.2f}e6".replace("10.00e6", "1.00e7"), f"{small:.3g}"]
        assert [text.get_text() for text in panel.texts] == expected
        assert [text.xy[1] for text in panel.texts] == [0, 1, 2]


def test_points_without_true_labels_have_the_color_of_their_cluster(hospitals):
    folder, points, _, _ = hospitals
    result = p2pkm.load(folder / "run")
    colored = read_points(result)
    assert colored.label == "cluster"
    sample = result.census.sample
    row = [int(np.flatnonzero((points == x).all(axis=1))[0]) for x in sample]
    assert np.array_equal(colored.kinds, result.labels[row])
    assert "point, colored by cluster" in draw_inline(lambda: p2pkm.viz.plot_points(result), "one")


def test_names_of_features_stay(hospitals):
    folder, *_ = hospitals
    assert p2pkm.load(folder / "run").summary["feature_names"] == "age, bmi, sbp"
    assert '# feature names: "age, bmi, sbp"\n' in (folder / "run" / "config.toml").read_text("utf-8")


@pytest.mark.slow
def test_names_of_features_are_in_the_report(hospitals):
    folder, *_ = hospitals
    assert here("report", folder / "run").code == 0
    page = (folder / "run" / "report.html").read_text("utf-8")
    table = page[page.index("<caption>Centroids in the units of the data") :]
    assert not [name for name in FEATURES if f">{name}<" not in table]
    assert "<caption>Points per device and cluster" in page


@pytest.mark.parametrize("method", [p2pkm.ConsensusLloyd(3), p2pkm.FKM(3)], ids=str)
def test_categories_that_a_cluster_lacks_are_zero_after_scaling(method):
    draw = np.random.default_rng(0)
    kind = draw.integers(0, 3, 150)
    points = np.column_stack((draw.normal(size=150) + 60.0 * kind, np.eye(3)[kind]))
    served = method.traits.needs_hub
    result = p2pkm.simulate(
        method,
        None if served else topologies.ring(5),
        p2pkm.Shards.deal(points, np.arange(150) % 5),
        rounds=20,
        scale="standard",
    )
    found = [result.clusters.centroids, *([result.server_rows()] if served else [])]
    assert not [rows for rows in found if np.count_nonzero(rows[..., 1:] == 0.0) != rows[..., 1:].size * 2 // 3]


def test_server_has_its_row(hospitals, tmp_path):
    folder, *_ = hospitals
    words = ("--data", folder / "h.csv", "--device-column", "site", "-k", 3, "--no-plot", "-q", "--algorithm", "fkm")
    assert here(*words, "--scale", "minmax", "--out", tmp_path / "run").code == 0
    rows = read(tmp_path / "run" / "centroids.csv")
    for c in range(3):
        of = {row["device"]: [float(row[name]) for name in FEATURES] for row in rows if row["cluster"] == str(c)}
        assert set(of) == {"all", *SITES, "server"}
        np.testing.assert_allclose(of["server"], of["all"], rtol=0.05)


def test_scripts_give_names_by_their_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(12, 2)), columns=["x", "y"])
    shards = p2pkm.Shards.deal(frame, np.arange(12) % 3)
    assert p2pkm.simulate(p2pkm.GTVMin(2), topologies.ring(3), shards, rounds=2).features == ("x", "y")
    assert p2pkm.Shards.deal(frame.to_numpy(), np.arange(12) % 3).features is None


tables = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@given(tables, st.integers(1, 5), st.integers(0, 4), st.integers(0, 4))
def test_numbers_are_a_matching_of_least_cost(draw, k, absent, missing):
    sets, reference = draw.normal(size=(3, k, 2)), draw.normal(size=(k, 2))
    sets[0, draw.permutation(k)[: min(absent, k)]] = np.inf
    reference[draw.permutation(k)[: min(missing, k)]] = np.inf
    numbers = number_clusters(sets, reference)
    assert (np.sort(numbers, axis=1) == np.arange(k)).all()
    there = np.isfinite(sets[:, :, None] * reference).all(axis=3)
    costs = np.where(
        there, ((np.nan_to_num(sets, posinf=0)[:, :, None] - np.nan_to_num(reference, posinf=0)) ** 2).sum(axis=3), 1e6
    )
    for i, own in enumerate(numbers):
        least = min(costs[i, range(k), list(one)].sum() for one in permutations(range(k)))
        assert costs[i, range(k), own].sum() == pytest.approx(least)


def test_numbers_of_a_permuted_reference():
    reference = np.array([[0.0, 0], [5, 5], [9, 0]])
    sets = np.stack([reference[[2, 0, 1]], reference])
    numbers = number_clusters(sets, reference)
    assert numbers.tolist() == [[2, 0, 1], [0, 1, 2]]
    assert (arrange(sets, numbers) == reference).all()


def test_zero_devices_have_no_numbers():
    assert number_clusters(np.zeros((0, 3, 2)), np.zeros((3, 2))).shape == (0, 3)
