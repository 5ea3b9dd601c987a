"""New rows, read with the schema of a run."""

import json
from pathlib import Path

import numpy as np
import pytest

import p2pkm
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
    assert len(schema["scaling"]["shift"]) == 5 and schema["features"][-2:] == ["sex=f", "sex=m"]
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
