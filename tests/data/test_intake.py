"""Untidy tables: all that is wrong is named at once, and every remedy that is named works."""

import re
from pathlib import Path

import numpy as np
import pandas
import pytest

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError
from tests.support.run_cli import here

HEAD = "patient,hospital,admitted,sex,smoker,age,bmi,note"
LINES = (
    "P1,Turku,1970-01-03,f,yes,70,22.5,ok", "P2,Bern,1970-01-11,m,no,31,NA,see file",
    "P3,Turku,1970-01-05,m,no,33,21.0,", "P4,Bern,1970-01-01,f,yes,68,27.1,x",
    "P5,Turku,1970-01-09,f,no,29,20.2,y", "P6,Turku,1970-01-11,m,yes,71,,z",
    "P7,Lund,1970-01-12,m,yes,72,25.5,q", "P8,Lund,1970-01-15,f,no,30,20.9,w",
)  # fmt: skip
KEPT = [0, 2, 3, 4, 6, 7]
TIDY = ("--drop", "patient,note", "--encode", "sex,admitted", "--missing", "drop")


@pytest.fixture
def untidy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("h.csv").write_text("\n".join((HEAD, *LINES)) + "\n")
    return "h.csv"


def read(path, **options):
    given = {"drop": ["patient", "note"], "encode": ["sex", "admitted"], "missing": "drop"} | options
    return p2pkm.read_table(path, device_column="hospital", **given)


def test_all_unusable_columns_are_named_at_once_with_their_remedies(untidy):
    said = here("--data", untidy, "--device-column", "hospital", "-k", 2, "--out", "run")
    assert said.code == 3 and not Path("run").exists()
    assert "5 of 7 columns" in said.err
    for name, remedy in (
        ("patient", "--drop patient"), ("admitted", "--encode admitted"), ("sex", "--encode sex"),
        ("note", "--drop note"), ("bmi", "2 of 8 rows; expected a value. Use --missing drop"),
    ):  # fmt: skip
        assert re.search(rf"line \d, column '{name}'.*{remedy}", said.err), name


@pytest.mark.parametrize(
    ("text", "features"),
    [
        (",a,b\n0,1,2\n1,3,4\n", ("a", "b")),  # of pandas
        (",0,1\n0,1,2\n1,3,4\n", ("0", "1")),
        ("Unnamed: 0,a,b\n0,1,2\n1,3,4\n", ("a", "b")),  # and of pandas once more
        ('"","a","b"\n"Mazda RX4",1,2\n"Datsun 710",3,4\n', ("a", "b")),  # of R
        ("a,,b\n1,9,2\n3,9,4\n", ("a", "1", "b")),
        (",7,8\n0,1,2\n1,3,4\n", ("0", "7", "8")),  # perhaps a point whose first value is missing
    ],
)
def test_row_numbers_that_other_programs_write_are_no_feature(tmp_path, text, features):
    (tmp_path / "t.csv").write_text(text)
    table = p2pkm.read_table(tmp_path / "t.csv")
    assert table.features == features
    assert table.points[:, -1].tolist() == [2, 4] and table.points.shape == (2, len(features))


def test_a_column_without_a_name_is_called_by_its_number(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,\n1,2,\n3,4,\n")
    with pytest.raises(
        DataError, match=r"column '2' is empty, in 2 of 2 rows; expected a value. Use drop=2 to remove the column$"
    ):
        p2pkm.read_table(tmp_path / "t.csv")
    assert p2pkm.read_table(tmp_path / "t.csv", drop=["2"]).features == ("a", "b")


@pytest.mark.parametrize(("first", "second"), [("2026-01-31", "icu"), ("icu", "2026-01-31")])
def test_a_column_of_dates_in_one_file_and_of_something_else_in_another_is_named(tmp_path, first, second):
    for name, field in (("a", first), ("b", second)):
        (tmp_path / f"{name}.csv").write_text(f"x,when\n1,{field}\n2,{field}\n")
    dates, others = ("a", "b") if first[0] == "2" else ("b", "a")
    with pytest.raises(DataError, match=rf"'when' contains dates in \S+/{dates}\.csv, but not in \S+/{others}\.csv"):
        p2pkm.read_table(tmp_path, encode=["when"], missing="mean")


@pytest.mark.parametrize("option", ["columns", "drop", "encode"])
def test_a_name_that_two_columns_have_is_refused(tmp_path, option):
    (tmp_path / "t.csv").write_text("a,a,b\n1,2,3\n3,4,5\n")
    remedy = f"several columns 'a'; expected one. Use the number of the column, counted from 0, in {option}$"
    with pytest.raises(DataError, match=remedy):
        p2pkm.read_table(tmp_path / "t.csv", **{option: ["a"]})
    assert p2pkm.read_table(tmp_path / "t.csv", drop=["1"]).points.tolist() == [[1, 3], [3, 5]]


@pytest.mark.parametrize(
    ("fields", "features"),
    [
        (["2026-01-31", "2026-02-01 10:30"], {"when": [20484, 20485.4375]}),
        (["2026-01-31T00:00:00", "2026-01-31"], {"when": [20484, 20484]}),
        (["2026-01-31A", "2026-01-31B"], {"when=2026-01-31B": [0, 1]}),
        (["20260131", "20260201"], {"when": [20484, 20485]}),
        (["20260131", "20261301"], {"when=20261301": [0, 1]}),
    ],
)
def test_days_are_counted_of_columns_of_dates_and_all_else_are_categories(tmp_path, fields, features):
    (tmp_path / "t.csv").write_text("a,when\n" + "".join(f"0,{field}\n" for field in fields))
    table = p2pkm.read_table(tmp_path / "t.csv", encode=["when"])
    assert dict(zip(table.features[1:], table.points.T[1:].tolist(), strict=True)) == features


MOMENTS = {  # texts, and the days since 1970-01-01
    "times of a day": (["2026-01-31T00:00:00", "2026-01-31T18:00:00", "2026-01-31"], [20484, 20484.75, 20484]),
    "zones": (["2026-01-31T18:00:00+05:00", "2026-01-31 13:00Z", "2026-01-31 13:00:00 UTC", "2026-01-31 14:00 +0100"],
              [20484 + 13 / 24] * 4),
    "before 1970": (["1969-12-31T18:00", "1969-12-31", "0001-01-01"], [-0.25, -1, -719162]),
    "past midnight of UTC": (["2026-01-31T23:00-05:00", "2026-01-31T23:00+00:00"], [20485 + 4 / 24, 20484 + 23 / 24]),
    "seconds and less": (["1970-01-01 00:00:01.5", "1970-01-01 00:00:00.000001", "1970-01-01 00:00:00.000001999"],
                         [1.5 / 86400, 1e-6 / 86400, 1e-6 / 86400]),
}  # fmt: skip


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_times_are_fractions_of_days_and_their_zones_count(tmp_path, name, suffix):
    texts, days = MOMENTS[name]
    frame = pandas.DataFrame({"when": texts, "y": 1.0})
    path = tmp_path / f"t{suffix}"
    frame.to_parquet(path) if suffix == ".parquet" else frame.to_csv(
        path, index=False, sep="\t" if "t" in suffix else ","
    )
    table = p2pkm.read_table(path, encode=["when"])
    np.testing.assert_allclose(table.points[:, 0], days, rtol=1e-15)
    assert table.features == ("when", "y")


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Helsinki", "Asia/Kathmandu"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.sample(5)
def test_times_of_arrow_are_those_of_text(tmp_path, zone, unit):
    moments = pandas.to_datetime(["2026-01-31 18:00:00", "1969-06-01 06:30:15"]).tz_localize(zone).as_unit(unit)
    frame = pandas.DataFrame({"when": moments, "y": 1.0})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    one, other = (p2pkm.read_table(tmp_path / f"t.{kind}", encode=["when"]).points for kind in ("parquet", "csv"))
    np.testing.assert_array_equal(one, other)
    utc = moments if zone is None else moments.tz_convert("UTC").tz_localize(None)
    np.testing.assert_allclose(one[:, 0], [stamp.timestamp() / 86400 for stamp in utc], rtol=1e-15)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["2026-01-31 18:00", "2026-01-31 18:00+05:00"], r"line 3, .*with a time zone, unlike '2026-01-31 18:00'"),
        (["2026-01-31 18:00Z", "2026-01-31"], "line 3, .*without a time zone, unlike '2026-01-31 18:00Z'"),
        (["2026-01-31 18:00", "2026-01-31 25:00"], "line 3, .*'2026-01-31 25:00', a time that cannot be read"),
        (["2026-01-31 18:00 CET", "2026-01-31 18:00 CET"], "line 2, .*a time that cannot be read"),
        (["2026-01-31 6 pm", "2026-01-31 7 pm"], "line 2, .*a time that cannot be read"),
    ],
)
def test_times_that_are_not_clear_are_refused(tmp_path, fields, said):
    (tmp_path / "t.csv").write_text("when,y\n" + "".join(f"{field},0\n" for field in fields))
    with pytest.raises(DataError, match=rf"{said}.*expected.* times such as 2026-01-31 18:00:00.*drop='when'"):
        p2pkm.read_table(tmp_path / "t.csv", encode=["when"])


def test_the_remedies_work(untidy):
    table = read(untidy)
    assert table.features == ("admitted", "smoker", "age", "bmi", "sex=m")
    np.testing.assert_array_equal(table.rows, KEPT)
    assert table.total == 8
    lines = [LINES[i].split(",") for i in KEPT]
    np.testing.assert_array_equal(table.device, [line[1] for line in lines])
    wanted = [
        [float(line[2][-2:]) - 1, line[4] == "yes", float(line[5]), float(line[6]), line[3] == "m"] for line in lines
    ]
    np.testing.assert_array_equal(table.points, np.array(wanted, float))


@pytest.mark.slow
def test_labels_keep_the_rows_of_the_file(untidy):
    said = here("--data", untidy, "--device-column", "hospital", "-k", 2, *TIDY, "--out", "run", "--no-plot")
    assert said.code == 0
    assert "2 of 8 rows of the data have a missing value and are left out" in said.out
    rows = [line.split(",") for line in Path("run/labels.csv").read_text().splitlines()[1:]]
    assert [(int(row), site) for row, site, _ in rows] == [(i, LINES[i].split(",")[1]) for i in KEPT]
    again = here("--config", "run/config.toml", "--out", "again", "--no-plot", "-q")
    assert again.code == 0 and p2pkm.load("again").summary["chain_sha256"] == p2pkm.load("run").summary["chain_sha256"]
    assert here("verify", "run").code == 0


def test_a_folder_of_untidy_files_is_read_as_one(untidy):
    Path("sites").mkdir()
    for site in ("Turku", "Bern", "Lund"):  # all categories occur in no file alone
        own = [line for line in LINES if f",{site}," in line]
        Path("sites", f"{site}.csv").write_text("\n".join((HEAD, *own)) + "\n")
    files = sorted(Path("sites").iterdir())
    order = [i for file in files for i, line in enumerate(LINES) if line in file.read_text()]
    one, expand_path = read(untidy), read("sites/")
    at = [KEPT.index(i) for i in order if i in KEPT]
    np.testing.assert_array_equal(expand_path.points, one.points[at])
    assert expand_path.features == one.features
    np.testing.assert_array_equal([order[row] for row in expand_path.rows], np.array(KEPT)[at])


def test_arrow_is_read_as_text_is(untidy):
    pytest.importorskip("pyarrow")
    pandas.read_csv(untidy, parse_dates=["admitted"]).to_parquet("h.parquet")
    one, other = read(untidy), read("h.parquet")
    np.testing.assert_array_equal(other.points, one.points)
    assert other.features == one.features
    np.testing.assert_array_equal(other.rows, one.rows)
    with pytest.raises(DataError, match=r"(?s)5 of 7 columns.*row 0, column 'sex'.*encode='sex'"):
        read("h.parquet", drop=[], encode=[], missing="refuse")


def test_columns_choose_features(untidy):
    table = read(untidy, columns=["age", "5"], drop=[], encode=[], missing="refuse")
    assert table.features == ("age",) and len(table.points) == 8
    with pytest.raises(DataError, match=r"h\.csv: columns is 'bni'; expected one of the columns"):
        read(untidy, columns=["bni"], drop=[], encode=[])
    with pytest.raises(DataError, match="'sex' of encode is not a feature"):
        read(untidy, columns=["age"], drop=[], encode=["sex"])


def test_numbers_are_read_as_before(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(20, 3))
    (tmp_path / "a.csv").write_text("x,y,z\n" + "".join(",".join(map(repr, row)) + "\n" for row in numbers.tolist()))
    np.testing.assert_array_equal(p2pkm.read_table(tmp_path / "a.csv").points, numbers)
    dropped = p2pkm.read_table(tmp_path / "a.csv", drop=["y"], missing="drop")
    np.testing.assert_array_equal(dropped.points, numbers[:, [0, 2]])
    assert dropped.rows is None


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("1,5;2,5;3,5;4,5", "expected a number with a decimal point.*Use decimal=',', or use drop='a'"),
        ("1;2;x;4", "line 4, column 'a' is 'x'; expected a number.*1 are not numbers"),
        ("31.01.26;1.2.26;2.2.26;3.2.26", "a date; expected a number. Use encode='a' with dates='dmy' for days"),
        ("inf;1;2;3", "is 'inf'; expected a finite number"),
        ("NA;;null;NaN", "is empty, in 4 of 4 rows; expected a value. Use drop='a' to remove the column$"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, column, said):
    path = tmp_path / "a.csv"
    path.write_text("a;b\n" + "".join(f"{field};1\n" for field in column.split(";")))
    with pytest.raises(DataError, match=said):
        p2pkm.read_table(path)


LATE = 1500  # rows, of which the first 1,000 decide how columns are read


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("2,b,c", f"line {LATE + 2}: 3 fields; expected 2"),
        ("2", f"line {LATE + 2}: 1 fields; expected 2"),
        ("n.d.,b", f"line {LATE + 2}, column 'x' is 'n.d.'; expected a number"),
        ("1_0,b", f"line {LATE + 2}, column 'x' is '1_0'; expected a number"),
        ("-inf,b", f"line {LATE + 2}, column 'x' is '-inf'; expected a finite number"),
        ("1e999,b", f"line {LATE + 2}, column 'x' is '1e999'; expected a finite number"),
        ("3,NaN", f"line {LATE + 2}, column 'label' is empty or missing, in 1 of {LATE + 1:,} rows"),
        ('3,"b', "EOF inside string"),
        ("3,b\0", f"line {LATE + 2}, column 'label' is 'b.x00'; expected text without zero bytes"),
    ],
)
def test_what_is_wrong_late_in_a_file_is_named_with_its_line(tmp_path, last, said):
    (tmp_path / "t.csv").write_text("x,label\n" + "1,a\n" * LATE + last + "\n")
    with pytest.raises(DataError, match=said):
        p2pkm.read_table(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("last", "value"), [("NA", np.nan), ("", np.nan), (" 2.5 ", 2.5), ('"2.5"', 2.5), ("+3.", 3.0)]
)
def test_numbers_and_missing_values_late_in_a_file(tmp_path, last, value):
    (tmp_path / "t.csv").write_text("x,label\n" + "1,a\n" * LATE + f"{last},b\n")
    table = p2pkm.read_table(tmp_path / "t.csv", missing="mean")
    np.testing.assert_array_equal(table.points[-1], [value])
    assert table.labels[-1] == 1 and len(table.points) == LATE + 1


def test_lines_that_are_too_short_are_not_taken_for_missing_values(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,label\n1,2,a\nNA,3\n4,5,c\n")
    with pytest.raises(DataError, match="line 3: 2 fields; expected 3"):
        p2pkm.read_table(tmp_path / "t.csv", missing="drop")


def test_numbers_beside_text_are_rounded_correctly(tmp_path):
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=500) * 10.0 ** draw.integers(-300, 300, 500)
    (tmp_path / "t.csv").write_text("x,site\n" + "".join(f"{x!r},a\n" for x in numbers.tolist()))
    np.testing.assert_array_equal(p2pkm.read_table(tmp_path / "t.csv", device_column="site").points[:, 0], numbers)


def test_spreadsheets_and_arrays_are_refused(untidy):
    Path("h.xlsx").write_bytes(b"PK")
    said = here("--data", "h.xlsx")
    assert said.code == 3 and "contains text; expected the format of its suffix" in said.err
    np.save("a.npy", np.eye(3))
    said = here("--data", "a.npy", "--drop", "0")
    assert said.code == 3 and "--drop cannot be combined with .npy files; expected a file of type" in said.err
    assert here("--missing", "drop").code == 2
    with pytest.raises(ExperimentError, match="missing is 'medien'"):
        p2pkm.read_table("h.csv", missing="medien")
