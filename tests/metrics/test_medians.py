"""Medians of the clusters, and the table of clusters in units of the data."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import silhouette_samples

import p2pkm
import topologies
from p2pkm.core.errors import DataError
from p2pkm.metrics import medians
from p2pkm.metrics.medians import find_medians
from p2pkm.metrics.registry import find
from tests.support.run_cli import here

SITES = ("Bern", "Turku", "Åbo & Co")
FEATURES = ("age", "smoker")


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-5, 5), st.integers(1, 4)), max_size=30))
def test_weighted_medians_are_those_of_repeated_values(rows):
    cells, values, weights = np.array(rows, np.int64).reshape(-1, 3).T
    repeated = np.repeat(values, weights)
    expected = [np.median(part) if len(part) else np.nan
                for part in (repeated[np.repeat(cells, weights) == c] for c in range(4))]  # fmt: skip
    for unit in (1.0, 0.1):
        actual = find_medians(values.astype(float)[None], weights * unit, cells, 4)
        np.testing.assert_array_equal(actual, [expected])
    several = np.array([repeated, -repeated]).astype(float)
    actual = find_medians(several, None, np.repeat(cells, weights), 4)
    np.testing.assert_array_equal(actual, [expected, np.negative(expected)])


def test_medians_of_large_cells_are_those_of_numpy():
    sizes = [1, 2 * medians._MIN_SELECTED, 2 * medians._MIN_SELECTED - 1, 0, 3 * medians._MIN_SELECTED]
    values = np.random.default_rng(0).standard_normal((2, sum(sizes)))
    cells = np.repeat(range(len(sizes)), sizes)
    expected = [[np.median(row[cells == c]) if size else np.nan for c, size in enumerate(sizes)] for row in values]
    np.testing.assert_array_equal(find_medians(values, None, cells, len(sizes)), expected)


def table_of(site, kind):
    """Return ages and truth values of patients, whose kind is visible in the age."""
    draw = np.random.default_rng(len(site))
    age = np.array([30.0, 60.0, 90.0])[kind] + draw.integers(-4, 5, len(kind))
    return np.column_stack((age, draw.integers(0, 2, len(kind))))


@pytest.fixture(scope="module", params=["none", "standard"])
def hospitals(request, tmp_path_factory):
    """Run on three sites, of which the last one has no patients of kind 2."""
    folder = tmp_path_factory.mktemp("hospitals")
    draw = np.random.default_rng(3)
    site = draw.integers(0, 3, 120)
    kind = np.where(site == 2, draw.integers(0, 2, 120), draw.integers(0, 3, 120))
    points = table_of(site, kind)
    with open(folder / "h.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerow(["site", *FEATURES])
        csv.writer(file).writerows([SITES[i], *x] for i, x in zip(site, points.tolist(), strict=True))
    words = ("--data", folder / "h.csv", "--device-column", "site", "-k", 3, "--no-plot", "-q", "--silhouette")
    assert here(*words, "--scale", request.param, "--out", folder / "run").code == 0
    return folder / "run", points, site


def test_table_has_means_medians_and_shares_of_the_points(hospitals):
    folder, points, site = hospitals
    result = p2pkm.load(folder)
    table, labels = result.clusters.table(), result.labels
    assert [*zip(table["cluster"], table["device"], strict=True)] == [
        (c, device) for c in range(3) for device in ("all", *SITES)
    ]
    assert not {"smoker mean", "smoker sd", "smoker median"} & set(table)
    for row in table.to_dict("records"):
        of_device = np.ones(len(site), np.bool_) if row["device"] == "all" else site == SITES.index(row["device"])
        members = points[of_device & (labels == row["cluster"])]
        assert row["points"] == len(members)
        assert row["share"] == len(members) / of_device.sum()
        values = [row[name] for name in ("age mean", "age sd", "age median", "smoker share")]
        expected = (
            [members[:, 0].mean(), members[:, 0].std(), np.median(members[:, 0]), members[:, 1].mean()]
            if len(members)
            else [np.nan] * 4
        )
        np.testing.assert_allclose(values, expected, atol=1e-9)


def test_devices_without_points_in_a_cluster_have_a_line(hospitals):
    folder, points, _ = hospitals
    result = p2pkm.load(folder)
    oldest = result.labels[points[:, 0].argmax()]
    with open(folder / "clusters.csv", encoding="utf-8", newline="") as file:
        rows = {(int(row["cluster"]), row["device"]): row for row in csv.DictReader(file)}
    unused = {"next": "", "distance": "", "device silhouette": ""}
    assert rows[oldest, SITES[2]] | unused == dict.fromkeys(rows[oldest, SITES[2]], "") | {
        "cluster": str(oldest), "device": SITES[2], "points": "0", "share": "0",
    }  # fmt: skip
    assert all(float(rows[key]["age median"]) == value for key, value in zip(
        rows, result.clusters.table()["age median"], strict=True) if value == value)  # fmt: skip


def test_distance_is_that_of_the_nearest_other_centroid_in_units_of_the_run(hospitals):
    folder, *_ = hospitals
    result = p2pkm.load(folder)
    table = result.clusters.table().set_index(["device", "cluster"])
    for i, site in enumerate(SITES):
        for c in range(3):
            order = np.argsort(result.clusters.number[i])
            gaps = np.sqrt(((result.centroids[i][order] - result.centroids[i][order[c]]) ** 2).sum(axis=1))
            gaps[c] = np.inf
            assert table.loc[(site, c), "next"] == gaps.argmin()
            assert table.loc[(site, c), "distance"] == pytest.approx(gaps.min(), rel=1e-9)


def test_silhouettes_of_clusters_and_devices_average_to_that_of_the_run(hospitals):
    folder, points, site = hospitals
    result = p2pkm.load(folder)
    table = result.clusters.table()
    scaled = points if result.scaling is None else (points - result.scaling[0][0]) / result.scaling[1][0]
    values = silhouette_samples(scaled, result.labels)
    for row in table.to_dict("records"):
        members = (result.labels == row["cluster"]) & (row["device"] == "all" or site == SITES.index(row["device"]))
        np.testing.assert_allclose(row["silhouette"], values[members].mean() if members.any() else np.nan, rtol=1e-6)
        of_device = np.ones(len(site), np.bool_) if row["device"] == "all" else site == SITES.index(row["device"])
        assert row["device silhouette"] == pytest.approx(values[of_device].mean(), rel=1e-6)
    means = [values[site == i].mean() for i in range(len(SITES))]
    np.testing.assert_allclose(result.devices["silhouette_worst"], means, rtol=1e-6)
    assert result.summary["silhouette_worst"] == pytest.approx(min(means), rel=1e-6)
    assert result.summary["silhouette_worst_device"] == SITES[int(np.argmin(means))]
    table_row = find("silhouette_worst").write_row(result.summary)
    assert f"of a device, {SITES[int(np.argmin(means))]}; clusters.csv has all devices" in table_row[2]
    pooled = table[table["device"] == "all"]
    mean = (pooled["points"] * pooled["silhouette"]).sum() / pooled["points"].sum()
    assert mean == pytest.approx(result.summary["silhouette"])


def test_latex_has_a_row_per_feature_and_a_column_per_cluster(hospitals):
    folder, *_ = hospitals
    result = p2pkm.load(folder)
    text = (folder / "clusters.tex").read_text("utf-8")
    assert text == result.clusters.to_latex()
    lines = [line.split(" & ") for line in text.splitlines() if " & " in line]
    assert [line[0].strip() for line in lines] == ["", "Points", "Silhouette", "age", "smoker"]
    assert {len(line) for line in lines} == {4}
    text_of_site = result.clusters.to_latex(device="Åbo & Co", caption="Sites", label="t")
    assert "--" in text_of_site and r"\begin{table}" in text_of_site and r"\caption{Sites}" in text_of_site
    with pytest.raises(DataError, match="device is 'Abo'"):
        result.clusters.to_latex(device="Abo")


def test_means_and_medians_are_weighted():
    points = np.array([[0.0], [1.0], [2.0], [50.0], [51.0], [52.0]])
    shards = p2pkm.Shards.deal(points, [0, 0, 1, 1, 1, 0], weights=[1, 1, 8, 1, 1, 3])
    result = p2pkm.simulate(p2pkm.ConsensusLloyd(2), topologies.path(2), shards)
    table = result.clusters.table()
    table = table[table["device"] == "all"].sort_values("feature 0 mean")
    np.testing.assert_allclose(table["feature 0 mean"], [1.7, 51.4])
    assert table["feature 0 median"].tolist() == [2.0, 52.0]


def test_large_runs_and_earlier_folders_say_that_medians_are_missing(tmp_path, monkeypatch):
    points = np.arange(12.0).reshape(6, 2)
    shards = p2pkm.Shards.deal(points, [0, 0, 0, 1, 1, 1])
    run = lambda: p2pkm.simulate(p2pkm.ConsensusLloyd(2), topologies.path(2), shards, rounds=2)  # noqa: E731
    complete = run()
    monkeypatch.setattr(medians, "_MAX_COORDINATES", 11)
    large = run()
    assert [note for note in large.notes if note.startswith("clusters.csv is not written")]
    lean = complete.census._replace(cluster_medians=None, pooled_medians=None, is_share=None, cluster_weights=None)
    earlier = p2pkm.load(replace(complete, census=lean).save(tmp_path / "run"))
    assert not (tmp_path / "run" / "clusters.csv").exists()
    for result in (large, earlier):
        np.testing.assert_allclose(result.clusters.means, complete.clusters.means)
        with pytest.raises(DataError, match="does not contain medians"):
            result.clusters.table()


def test_filled_in_categories_are_shares(tmp_path):
    rows = ["site,age,sex", *(f"{'AB'[i % 2]},{30 + 40 * (i % 3 == 0) + i},{['f', 'm', ''][i % 3]}" for i in range(18))]
    (tmp_path / "h.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    words = ("--data", tmp_path / "h.csv", "--device-column", "site", "--encode", "sex", "--missing", "mean")
    assert here(*words, "-k", 2, "--no-plot", "-q", "--out", tmp_path / "run").code == 0
    assert p2pkm.load(tmp_path / "run").clusters.is_share.tolist() == [False, True]


def test_features_of_one_name_keep_their_columns():
    shards = replace(p2pkm.Shards.deal(np.arange(12.0).reshape(6, 2), [0, 0, 0, 1, 1, 1]), features=("a", "a"))
    clusters = p2pkm.simulate(p2pkm.ConsensusLloyd(2), topologies.path(2), shards, rounds=2).clusters
    assert {"a [0] mean", "a [1] mean"} <= {*clusters.to_columns()}
    assert "a [1]" in clusters.to_latex()
