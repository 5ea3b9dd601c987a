"""Notes of what looks wrong in a table: what is named, and what passes without a note."""

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_iris, load_wine

import p2pkm
from p2pkm.data.readers.any_format import read_table
from tests.support.run_cli import here

RNG = np.random.default_rng(3)
M = 60
CLEAN = pandas.DataFrame({
    "age": RNG.integers(20, 80, M), "bmi": RNG.normal(25, 3, M).round(2), "sex": np.arange(M) % 2,
})  # fmt: skip

LOST = [3, 9, 11, 20, 33, 41, 59]
FAR = (999 - CLEAN["age"].drop(LOST).mean()) / CLEAN["age"].drop(LOST).std(ddof=0)


def change(name, rows, value):
    """Return the clean table with a value in some rows of a column."""
    frame = CLEAN.astype({name: object})
    frame.loc[rows, name] = value
    return frame


def note(frame, path, **options):
    frame.to_csv(path, index=False)
    return read_table(path, **options).notes or ()


FAULTS = {
    "thousands": (CLEAN.assign(leuk=["7.400" if i % 3 else "980" for i in range(M)]),
                  "column 'leuk' mixes 7.400 and 980: if the points separate thousands"),
    "thousands and missing": (CLEAN.assign(leuk=["12.350", "NA", "77", "-1.250"] * (M // 4)), "mixes 12.350 and 77"),
    "thousands late": (CLEAN.assign(leuk=["980"] * (M - 1) + ["7.400"]), "column 'leuk' mixes 7.400 and 980"),
    "999": (change("age", LOST, 999),
            f"column 'age': 999 is {FAR:.0f} standard deviations from the rest, in 7 rows: if it means missing"),
    "999 once": (change("age", [3], 999), "'age': 999 is "),
    "-99": (change("age", [3, 5], -99), "'age': -99 is "),
    "99.9": (change("bmi", [3, 5], 99.9), "'bmi': 99.9 is "),
    "-1": (change("sex", [3], -1), "column 'sex': -1 is the only value below 0, in 1 row: if it means missing"),
    "two codes": (change("age", [3, 4, 7], [999, 999, 8888]), "'age': 8888 is "),
    "0": (change("bmi", [3, 5], 0), "'bmi': 0 is "),
    "a value that comes again": (change("bmi", [3, 5, 8], 123.4), "'bmi': 123.4 is "),
    "constant": (CLEAN.assign(site=3), "column 'site' is constant: consider --drop site"),
    "constants": (CLEAN.assign(a=3, b=0.5), "columns 'a', 'b' are constant"),
    "copied rows": (pandas.concat([CLEAN, CLEAN[:5]]), "5 of 65 rows repeat an earlier row: check for copies"),
    "numbers of patients": (CLEAN.assign(**{"Patient-ID": RNG.permutation(M) + 4000}),
                            "every row, as an identifier: consider --drop Patient-ID"),
    "numbers of rows": (CLEAN.assign(row=np.arange(M) * 7 + 3), "column 'row' has a different value in every row"),
    "shuffled numbers of rows": (CLEAN.assign(which=RNG.permutation(M)), "'which' has a different value"),
    "numbers from far apart": (CLEAN.assign(patientID=RNG.choice(10**7, M, replace=False)), "'patientID' has a diff"),
    "equal names": (CLEAN.assign(x=1).rename(columns={"x": "age"}), "2 columns have the name 'age'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_suspicion_is_a_note(tmp_path, name):
    frame, wanted = FAULTS[name]
    found = note(frame, tmp_path / "t.csv", missing="mean")
    assert any(wanted in one for one in found), found
    assert note(CLEAN, tmp_path / "u.csv") == ()


@pytest.mark.parametrize("name", ["999", "constant", "copied rows", "numbers of patients", "-1"])
def test_parquet_and_folders_are_looked_through_as_well(tmp_path, name):
    frame, wanted = FAULTS[name]
    frame = frame.astype(float)
    frame.to_parquet(tmp_path / "t.parquet")
    assert any(wanted in one for one in read_table(tmp_path / "t.parquet").notes or ())
    (tmp_path / "d").mkdir()
    for i in range(2):
        frame[i::2].to_csv(tmp_path / f"d/{i}.csv", index=False)
    assert any(wanted in one for one in read_table(tmp_path / "d").notes or ()) or name == "copied rows"  # of others


ORDINARY = {
    "measured to 3 digits": CLEAN.assign(x=[f"{x:.3f}" for x in RNG.normal(50, 9, M)]),
    "mixed digits": CLEAN.assign(x=["7.400", "7.5", "980", "12"] * (M // 4)),
    "counts": CLEAN.assign(x=RNG.choice(10**5, M, replace=False)),
    "years": CLEAN.assign(x=RNG.integers(1950, 2000, M)),
    "99 among percentages": CLEAN.assign(x=RNG.integers(40, 101, M)),
    "heavy tails": CLEAN.assign(x=RNG.standard_cauchy(M)),
    "binary": CLEAN[["sex"]].assign(y=RNG.integers(0, 2, M)),
    "below 0": CLEAN.assign(x=RNG.permutation(np.arange(M) % 7 - 3)),
    "one row": CLEAN[:1],
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_columns_pass(tmp_path, name):
    assert note(ORDINARY[name], tmp_path / "t.csv") == ()


def test_known_data_pass_except_for_what_is_true_of_them(tmp_path):
    assert note(load_wine(as_frame=True).data, tmp_path / "w.csv") == ()
    found = note(load_iris(as_frame=True).data, tmp_path / "i.csv")
    assert not [one for one in found if "repeat an earlier row" not in one]  # rows 101 and 142


def test_days_of_dates_and_columns_with_many_categories(tmp_path):
    dates = pandas.date_range("2026-01-01", periods=300, freq="D").strftime("%Y-%m-%d")
    frame = pandas.DataFrame({"x": RNG.normal(size=300), "when": dates, "code": [f"c{i % 110}" for i in range(300)]})
    assert note(frame.drop(columns="code"), tmp_path / "t.csv", encode=["when"]) == ()
    found = note(frame.drop(columns="when"), tmp_path / "u.csv", encode=["code"])
    assert found == (
        "column 'code' becomes 110 features of 300 rows: check that it contains categories; --drop code removes it, "
        "and --keep code copies it to labels.csv instead",
    )


def test_long_lists_are_cut(tmp_path):
    wide = CLEAN.assign(**{f"c{i}": 1 for i in range(9)}, **{f"d{i}": change("age", [1], 999)["age"] for i in range(9)})
    found = note(wide, tmp_path / "t.csv")
    assert "columns 'c0', 'c1', 'c2', 'c3', 'c4' and 4 more are constant" in found[0]
    assert len(found) == 7 and found[-1] == "4 more columns have values that may be missing"


def test_the_command_line_prints_the_notes_and_the_points_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame, wanted = FAULTS["999"]
    frame.assign(site=3).to_csv("t.csv", index=False)
    said = here("--data", "t.csv", "-k", 2, "--devices", 3, "--rounds", 1, "--no-plot", "--out", "run")
    shown = " ".join(said.out.split())
    assert said.code == 0 and wanted in shown and "column 'site' is constant" in shown
    assert p2pkm.load("run").clusters.points.sum() == M
    assert read_table("t.csv").points[3, 0] == 999
