"""New rows, read with the schema of a run."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError
from tests.support.run_cli import here

pd = pytest.importorskip("pandas")
HEAD = "hospital,patient,age,sex,admitted,bmi"


def write(path, seed=0, m=45):
    rng = np.random.default_rng(seed)
    lines = [
        f"{('Aachen', 'Bonn', 'Essen')[i % 3]},p{i:03},{30 + 40 * (i % 2) + rng.normal():.2f},{'fm'[i % 2]},"
        f"2024-0{1 + i % 9}-01,{'' if i % 11 == 1 else f'{22 + 6 * (i % 2) + rng.normal():.2f}'}"
        for i in range(m)
    ]
    path.write_text("\n".join([HEAD, *lines]) + "\n")


@pytest.fixture(scope="module", params=["drop", "mean", "median"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write(folder / "a.csv")
    said = here(
        "--data", str(folder / "a.csv"), "--device-column", "hospital", "--keep", "patient", "--encode", "sex,admitted",
        "--missing", request.param, "-k", "2", "--scale", "standard", "--out", str(folder / "run"), "--no-plot", "-q",
        "--no-baselines",
    )  # fmt: skip
    assert said.code == 0, said.err
    return folder


@pytest.mark.sample(3)
def test_the_table_of_the_run_gets_its_own_labels(run):
    labels = pd.read_csv(run / "run" / "labels.csv")
    assert labels.columns.tolist() == ["row", "patient", "device", "cluster"]
    said = here("predict", str(run / "run"), str(run / "a.csv"), "--out", str(run / "new.csv"))
    assert said.code == 0 and "45 rows" in said.out
    predicted = pd.read_csv(run / "new.csv").set_index("row").loc[labels["row"]].reset_index()
    pd.testing.assert_frame_equal(predicted.astype({"cluster": int}), labels)


def test_a_result_reads_data_frames(run):
    result = p2pkm.load(run / "run")
    frame = pd.read_csv(run / "a.csv").dropna()
    for device in ("Aachen", "Bonn"):
        own = frame[frame["hospital"] == device]
        expected = pd.read_csv(run / "run" / "labels.csv").query("device == @device").set_index("row").loc[own.index]
        found = result.predict(own[["bmi", "sex", "admitted", "age"]], device=device)
        number = result.number_alike(np.full(len(found), result.find_device(device)), found)
        np.testing.assert_array_equal(number, expected["cluster"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop(columns="age"), "is without the columns 'age'"),
        (lambda frame: frame.assign(sex="x"), "column 'sex' is 'x', a new category; expected one of 'f', 'm'"),
        (lambda frame: frame.assign(age=frame["age"] * 12), "column 'age' has the median"),
        (lambda frame: frame.assign(hospital="Ulm"), "has the device 'Ulm', which is not in the run"),
        (lambda frame: frame.assign(admitted="soon"), "column 'admitted' contains text such as 'soon'"),
    ],
)
@pytest.mark.sample(5)
def test_another_table_is_refused_before_anything_is_written(run, change, said, tmp_path):
    change(pd.read_csv(run / "a.csv")).to_csv(tmp_path / "b.csv", index=False)
    ending = here("predict", str(run / "run"), str(tmp_path / "b.csv"), "--out", str(tmp_path / "c.csv"))
    assert ending.code == 3 and said in ending.err and not (tmp_path / "c.csv").exists()
    if "median" in said:
        assert here("predict", str(run / "run"), str(tmp_path / "b.csv"), "--any-range").code == 0
    if "Ulm" in said:
        assert here("predict", str(run / "run"), str(tmp_path / "b.csv"), "--common").code == 0


def test_the_schema_is_stored(run):
    schema = json.loads((run / "run" / "schema.json").read_text())
    assert [column["name"] for column in schema["columns"]] == ["age", "admitted", "bmi", "sex"]
    assert schema["devices"] == ["Aachen", "Bonn", "Essen"] and schema["device_column"] == "hospital"
    assert len(schema["scaling"]["shift"]) == 4 and schema["features"][-1:] == ["sex=m"]
    result = p2pkm.load(run / "run")
    again = p2pkm.load(result.save(Path(run, "again", schema["missing"])))
    assert again.schema == result.schema


def test_points_without_a_table(tmp_path):
    folder = tmp_path / "run"
    assert here("--data", "grid16", "-k", "2", "--out", str(folder), "--no-plot", "-q", "--no-baselines").code == 0
    assert not (folder / "schema.json").exists()
    np.save(tmp_path / "a.npy", np.eye(3))
    ending = here("predict", str(folder), str(tmp_path / "a.npy"))
    assert ending.code == 3 and "is without the columns 'feature 0', 'feature 1'" in ending.err
    with pytest.raises(DataError, match="X has shape"):
        p2pkm.load(folder).predict(np.eye(3))


def write_other_export(source, path, **changes):
    """Write the rows of a table of a German Excel: decimal commas, semicolons, cp1252, other missing texts."""
    frame = pd.read_csv(source).assign(**changes)
    for name in ("age", "bmi"):
        frame[name] = ["k.A." if pd.isna(value) else f"{value:.2f}".replace(".", ",") for value in frame[name].tolist()]
    frame.to_csv(path, index=False, sep=";", encoding="cp1252")


@pytest.mark.parametrize("run", ["drop", "mean"], indirect=True)
def test_new_rows_of_another_program_are_read_with_their_own_signs(run, tmp_path):
    write_other_export(run / "a.csv", tmp_path / "b.csv", note="größer")
    arguments = ("predict", str(run / "run"), str(tmp_path / "b.csv"))
    ending = here(*arguments)
    assert ending.code == 3 and "Use --decimal ','" in ending.err
    ending = here(*arguments, "--decimal", ",", "--na", "k.A.", "--encoding", "cp1252", "--separator", ";")
    assert ending.code == 0 and ending.out == here("predict", str(run / "run"), str(run / "a.csv")).out
    result = p2pkm.load(run / "run")
    expected = result.predict(run / "a.csv")
    np.testing.assert_array_equal(result.predict(tmp_path / "b.csv", decimal=",", na=["k.A."]), expected)
    np.testing.assert_array_equal(result.predict(pd.read_csv(run / "a.csv")), expected)
    text = pd.read_csv(tmp_path / "b.csv", sep=";", encoding="cp1252", dtype=str)
    np.testing.assert_array_equal(result.predict(text, decimal=",", na="k.A."), expected)
    # Without fill values, rows with missing values are without cluster.
    incomplete = pd.read_csv(run / "a.csv")["bmi"].isna().sum()
    assert incomplete > 0 and (expected == -1).sum() == (incomplete if result.schema.missing == "drop" else 0)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--sheet", "1"], 3, "--sheet cannot be combined with .csv files"),
        (["--decimal", ";"], 2, "decimal is ';'"),
        (["--thousands", "."], 2, "thousands and decimal are both '.'"),
        (["--separator", "ab"], 2, "separator is 'ab'"),
        (["--encoding", "klingon"], 2, "encoding is 'klingon'"),
    ],
)
@pytest.mark.parametrize("run", ["mean"], indirect=True)
@pytest.mark.sample(3)
def test_options_that_cannot_describe_the_file_are_refused(run, options, code, said, tmp_path):
    ending = here("predict", str(run / "run"), str(run / "a.csv"), *options, "--out", str(tmp_path / "c.csv"))
    assert ending.code == code and said in ending.err and not (tmp_path / "c.csv").exists()
    with pytest.raises(ValueError, match=r"unknown option 'decimals' of new rows\. Did you mean 'decimal'"):
        p2pkm.load(run / "run").predict(run / "a.csv", decimals=",")


@pytest.mark.parametrize("run", ["drop"], indirect=True)
def test_columns_that_were_copied_are_loaded(run):
    result = p2pkm.load(run / "run")
    labels = pd.read_csv(run / "run" / "labels.csv")
    assert result.copied["patient"].tolist() == labels["patient"].tolist()
    loaded = p2pkm.load(result.save(run / "copied" / result.schema.missing))
    assert list(loaded.copied) == ["patient"] and loaded.copied["patient"].tolist() == labels["patient"].tolist()


@pytest.mark.parametrize(
    "options",
    [
        ["--test-share", "0.3"],
        ["--test-share", "0.3", "--missing", "mean"],
        ["--min-cluster-size", "3"],
        ["--partition", "iid", "--devices", "4", "--test-share", "0.2"],
    ],
    ids=" ".join,
)
@pytest.mark.sample(2)
def test_copied_columns_belong_to_their_rows(options, tmp_path):
    write(tmp_path / "a.csv")
    column = [] if "--partition" in options else ["--device-column", "hospital"]
    missing = [] if "--missing" in options else ["--missing", "drop"]
    said = here(
        "--data", str(tmp_path / "a.csv"), *column, "--columns", "age,bmi", "--keep", "patient", *missing, "-k", "2",
        "--out", str(tmp_path / "run"), "--no-plot", "-q", "--no-baselines", *options,
    )  # fmt: skip
    assert said.code == 0, said.err
    labels = pd.read_csv(tmp_path / "run" / "labels.csv")
    assert len(labels) and labels["patient"].tolist() == [f"p{row:03}" for row in labels["row"]]
    result = p2pkm.load(tmp_path / "run")
    assert result.copied["patient"].tolist() == labels["patient"].tolist() and len(result.labels) == len(labels)


def test_copied_columns_survive_any_text(tmp_path):
    frame = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.1], "device": [0, 1, 0, 1], "number": [4, -1, 2**62, 0],
                          "a/b": ["", None, "ß\x00\n,", "z" * 300]})  # fmt: skip
    table = p2pkm.read_table(frame, keep=["number", "a/b"])
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), table, rounds=2, baselines=False)
    loaded = p2pkm.load(result.save(tmp_path / "run")).copied
    assert loaded.keys() == result.copied.keys() == {"number", "a/b"}
    for name, column in loaded.items():
        assert column.tolist() == result.copied[name].tolist() and column.dtype.kind == result.copied[name].dtype.kind
    assert loaded["number"].tolist() == frame["number"].tolist()
    assert loaded["a/b"].tolist()[1:] == [None, *frame["a/b"][2:]]


@pytest.mark.sample(3)
def test_a_simulation_of_a_frame_reads_new_frames(run):
    on_disk = p2pkm.load(run / "run")
    missing = on_disk.schema.missing
    frame = pd.read_csv(run / "a.csv").rename(columns={"hospital": "device"})
    table = p2pkm.read_table(frame, encode=["sex", "admitted"], missing=missing, keep="patient")
    points = p2pkm.Shards.deal(table, missing=True) if missing == "median" else table
    filling = "refuse" if missing == "drop" else missing
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.ring(3), points, missing=filling, scale="standard",
                            baselines=False)  # fmt: skip
    assert result.schema.columns == on_disk.schema.columns
    np.testing.assert_array_equal(result.predict(frame), on_disk.predict(run / "a.csv"))
    assert result.copied["patient"].tolist() == table.copied["patient"].tolist()
    with pytest.raises(DataError, match="column 'sex' is 'x', a new category"):
        result.predict(frame.assign(sex="x"))


def test_fill_values_are_those_of_the_run_with_its_weights():
    frame = pd.DataFrame({"x": [0.0, 4.0, np.nan, 10.0], "device": [0, 0, 1, 1], "w": [1.0, 1.0, 1.0, 6.0]})
    shards = p2pkm.Shards.deal(frame, weights="w", missing=True)
    weighted = p2pkm.read_table(frame, weight_column="w", missing="mean")
    assert p2pkm.Shards.deal(weighted, missing=True).weights.tolist() == frame["w"].tolist()
    for missing, fill in (("mean", 8.0), ("median", 10.0)):
        for points in (shards, weighted):
            result = p2pkm.simulate(p2pkm.GTVMin(1), topologies.path(2), points, missing=missing, rounds=2)
            assert [column.fill for column in result.schema.columns] == [fill]


@pytest.mark.parametrize("form", [
    "text", "npz", "disk", "h5ad", *(pytest.param(form, marks=pytest.mark.slow) for form in ("npy", "parquet", "leaf"))
])  # fmt: skip
@pytest.mark.sample(3)
def test_every_format_reads_its_new_rows(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    owner = np.arange(40) % 2
    X = np.where(rng.random((40, 1)) < 0.5, 0.0, 9.0) + rng.normal(size=(40, 3))
    options, suffix = [], {"text": "csv", "disk": "parquet", "leaf": "json"}.get(form, form)
    table = np.insert(X, 1, owner, axis=1)
    paths = {"run": f"run.{suffix}", "new": f"new.{suffix}"}
    for path in paths.values():
        if form == "text":
            np.savetxt(path, table, delimiter=",")
            options = ["--header", "no", "--device-column", "1"]
        elif form == "npy":
            np.save(path, table)
            options = ["--device-column", "1"]
        elif form == "npz":
            np.savez(path, X=X, client=owner)
        elif suffix == "parquet":
            names = ["age", "device" if form == "disk" else "site", "bmi", "crp"]
            frame = pd.DataFrame(table, columns=names).astype({names[1]: "int64" if form == "disk" else "str"})
            pytest.importorskip("pyarrow")
            frame.to_parquet(path, index=False)
            options = [] if form == "disk" else ["--device-column", "site"]
        elif form == "leaf":
            data = {f"u{i}": {"x": X[owner == i].tolist()} for i in range(2)}
            Path(path).write_text(json.dumps({"users": list(data), "user_data": data}))
        else:
            anndata = pytest.importorskip("anndata")
            obs = pd.DataFrame({"donor": [f"d{i}" for i in owner]}, index=[f"c{i}" for i in range(40)])
            anndata.AnnData(X, obs=obs).write_h5ad(path)
            options = ["--device-column", "donor"]
    said = here("--data", paths["run"], *options, "-k", "2", "--out", "run", "--no-plot", "-q", "--no-baselines")
    assert said.code == 0, said.err
    said = here("predict", "run", paths["new"], "--out", "new-labels.csv")
    assert said.code == 0 and "without" not in said.err, said.err
    pd.testing.assert_frame_equal(pd.read_csv("new-labels.csv"), pd.read_csv("run/labels.csv"))
    if form == "disk":
        assert p2pkm.load("run").feature_names == ("age", "bmi", "crp")
        assert Path("run/centroids.csv").read_text().startswith("cluster,device,points,age,bmi,crp\n")


@pytest.mark.parametrize("run", ["drop"], indirect=True)
def test_rows_without_devices_are_mentioned(run, tmp_path):
    pd.read_csv(run / "a.csv").drop(columns="hospital").to_csv(tmp_path / "b.csv", index=False)
    ending = here("predict", str(run / "run"), str(tmp_path / "b.csv"))
    assert ending.code == 0 and "without a column 'hospital' of devices: all rows get the centroids of" in ending.err


def test_signs_of_the_run_are_used_unless_the_new_file_has_others(tmp_path):
    rows = [(f"{1000 * (1 + 8 * (i % 2)) + i},5", i % 2) for i in range(20)]
    signs = "cost;device\n" + "".join(f"{cost[0]}.{cost[1:]};{device}\n" for cost, device in rows)
    (tmp_path / "a.csv").write_text(signs)
    (tmp_path / "b.csv").write_text("cost,device\n" + "".join(f"{c.replace(',', '.')},{d}\n" for c, d in rows))
    said = here("--data", str(tmp_path / "a.csv"), "--decimal", ",", "--thousands", ".", "-k", "2", "--out",
                str(tmp_path / "run"), "--no-plot", "-q", "--no-baselines")  # fmt: skip
    assert said.code == 0, said.err
    same = here("predict", str(tmp_path / "run"), str(tmp_path / "a.csv"))
    assert same.code == 0 and len(set(pd.read_csv(tmp_path / "run" / "labels.csv")["cluster"])) == 2
    assert same.out == here("predict", str(tmp_path / "run"), str(tmp_path / "b.csv"), "--decimal", ".").out
    frame = pd.read_csv(tmp_path / "b.csv")
    assert (
        p2pkm.load(tmp_path / "run").predict(frame).tolist()
        == p2pkm.load(tmp_path / "run").predict(tmp_path / "a.csv").tolist()
    )


@pytest.mark.sample(3)
def test_a_device_that_was_not_in_the_run_gets_centroids_of_its_own(run, tmp_path):
    frame = pd.read_csv(run / "a.csv")
    frame.loc[frame["hospital"] == "Essen", ["hospital", "age"]] = ["Ulm", 55.0]
    frame.to_csv(tmp_path / "b.csv", index=False)
    refused = here("predict", str(run / "run"), str(tmp_path / "b.csv"))
    assert refused.code == 3 and "such as --neighbors Aachen,Bonn" in refused.err
    said = here("predict", str(run / "run"), str(tmp_path / "b.csv"), "--neighbors", "Aachen,Bonn", "--keep", "patient")
    assert said.code == 0, said.err
    found = pd.read_csv(io.StringIO(said.out))
    assert found["device"].tolist() == frame["hospital"].tolist()
    known = here("predict", str(run / "run"), str(run / "a.csv"))
    old = pd.read_csv(io.StringIO(known.out))
    was_there = frame["hospital"] != "Ulm"
    pd.testing.assert_series_equal(found["cluster"][was_there], old["cluster"][was_there])
    result = p2pkm.load(run / "run")
    labels = result.predict(frame[~was_there], neighbors=["Bonn", "Aachen"])
    np.testing.assert_array_equal(found["cluster"][~was_there].fillna(-1), labels)
    alone = frame[~was_there].drop(columns="hospital")
    alone.to_csv(tmp_path / "c.csv", index=False)
    said = here("predict", str(run / "run"), str(tmp_path / "c.csv"), "--neighbors", "Aachen,Bonn")
    np.testing.assert_array_equal(pd.read_csv(io.StringIO(said.out))["cluster"].fillna(-1), labels)
    complete = alone.dropna()[["age", "sex", "admitted", "bmi"]]
    centroids = result.adapt(complete, neighbors=["Aachen", "Bonn"])
    assert centroids.shape == result.clusters.centroids[0].shape and 20 < centroids[:, 0].min() < 80


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--neighbors", "Rome"], 3, "neighbor is 'Rome'; expected 0 to 2, or one of 'Aachen', 'Bonn', 'Essen'"),
        (["--neighbors", ","], 2, "--neighbors is ','; expected names or numbers of devices of the run"),
        (["--neighbors", "Aachen", "--common"], 2, "--common cannot be combined with --neighbors"),
        (["--neighbors", "Aachen", "--device", "Bonn"], 2, "--device cannot be combined with --neighbors"),
    ],
)
def test_neighbors_that_do_not_fit_are_refused(run, options, code, said, tmp_path):
    pd.read_csv(run / "a.csv").assign(hospital="Ulm").to_csv(tmp_path / "b.csv", index=False)
    ending = here("predict", str(run / "run"), str(tmp_path / "b.csv"), *options)
    assert ending.code == code and said in ending.err


def test_a_row_without_a_device_is_of_no_new_device(run, tmp_path):
    frame = pd.read_csv(run / "a.csv")
    frame.loc[4, "hospital"] = None
    frame.to_csv(tmp_path / "b.csv", index=False)
    ending = here("predict", str(run / "run"), str(tmp_path / "b.csv"), "--neighbors", "Aachen")
    assert ending.code == 3 and "row 4 is without a device" in ending.err
    ending = here("predict", str(run / "run"), str(run / "a.csv"), "--neighbors", "Aachen")
    assert ending.code == 0 and "--neighbors is not used" in ending.err
