"""Description of tables: the options that it suggests read the table."""

import csv
import json
import re
import shlex
from collections import Counter

import numpy as np
import pytest

import p2pkm
from p2pkm.data.readers.intake import split_list
from tests.support.run_cli import here
from tests.support.sampling import thin

UNTIDY = """Klinik;Patient;Größe;Geschlecht;Aufnahme;Kosten;CRP;leer;fest
Köln;p-1;170,5;m;2024-01-11;3.324;1,5;;1
Köln;p-2;161,5;w;2024-02-11;980;2,5;;1
Aarau;p-3;180,0;m;2024-03-11;7.400;-99;;1
Aarau;p-4;175,0;w;2024-04-11;1.250;4,5;;1
Düren;p-5;168,5;w;;2.000;3,5;;1
"""


@pytest.fixture
def untidy(tmp_path):
    path = tmp_path / "untidy.csv"
    path.write_text(UNTIDY, encoding="cp1252")
    return path


def test_every_column_has_a_kind_and_a_use(untidy):
    described = p2pkm.describe_table(untidy)
    assert {column.name: (column.kind, column.use) for column in described.columns} == {
        "Klinik": ("category", "device"),
        "Patient": ("text", "ID, copied"),
        "Größe": ("number", "feature"),
        "Geschlecht": ("category", "feature, 0 or 1"),
        "Aufnahme": ("date", "feature, in days"),
        "Kosten": ("number", "feature"),
        "CRP": ("number", "feature"),
        "leer": ("empty", "left out: empty"),
        "fest": ("number", "left out: constant"),
    }
    assert described.devices == {"Aarau": 2, "Düren": 1, "Köln": 2}
    assert any("device 'Düren' has only 1 row:" in note for note in described.notes)
    assert described.columns[4].missing == pytest.approx(0.2) and described.columns[5].range == "980 to 7400"
    assert described.options == {
        "device_column": "Klinik", "drop": "leer,fest", "encode": "Geschlecht,Aufnahme", "keep": "Patient",
        "missing": "drop", "na": "-99", "decimal": ",", "thousands": ".",
    }  # fmt: skip
    table = p2pkm.read_table(untidy, **described.options)
    assert table.points.shape == (3, 5)


def test_the_command_reads_the_table(untidy, monkeypatch):
    monkeypatch.chdir(untidy.parent)
    said = here("data", "untidy.csv")
    assert said.code == 0 and "Klinik" in said.out and "3 devices: Aarau 2, Düren 1, Köln 2" in said.out
    content = json.loads(here("data", "untidy.csv", "--format", "json").out)
    words = content["command"].split(" ")[1:]
    assert here(*words, "--out", "none", "--no-baselines", "-q").code == 0
    assert here("data", "none.csv").code == 3


@pytest.mark.parametrize("seed", thin(range(8), 2))
@pytest.mark.sample(3)
def test_suggested_options_read_any_mixture_of_columns(tmp_path, seed):
    rng = np.random.default_rng(seed)
    m = 40
    kinds = {
        "comma": [f"{value:.2f}".replace(".", ",") for value in rng.normal(size=m)],
        "word": [f"w{i}" for i in range(m)],
        "class": rng.choice(["a", "b", "NA", ""], m).tolist(),
        "day": [f"2024-01-{day:02}" for day in rng.integers(1, 28, m)],
        "integer": rng.integers(0, 9, m).tolist(),
        "wrong day": [f"{day}.1.24" for day in rng.integers(1, 28, m)],
        "flag": rng.choice(["yes", "no"], m).tolist(),
        "code": rng.choice([1, 2, 3, 999], m).tolist(),
    }
    chosen = ["integer", *rng.permutation([name for name in kinds if name != "integer"])[:4]]
    lines = [";".join(chosen), *(";".join(str(kinds[name][i]) for name in chosen) for i in range(m))]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    assert len(p2pkm.read_table(path, **p2pkm.describe_table(path).options).points)


def test_skewed_columns_and_identifiers_are_named():
    rng = np.random.default_rng(0)
    described = p2pkm.describe_table({
        "nr": range(50),
        "cost": np.exp(3 * rng.normal(size=50)),
        "x": rng.normal(size=50),
    })
    assert described.columns[0].use == "ID, copied" and described.options == {"keep": "nr"}
    assert "consider its logarithm" in described.columns[1].suspicions[0] and not described.columns[2].suspicions


def test_files_of_a_folder_are_devices(tmp_path):
    for name in ("Bonn", "Aachen"):
        (tmp_path / f"{name}.csv").write_text("x\n1.5\n2\n")
    assert p2pkm.describe_table(tmp_path).devices == {"Aachen": 2, "Bonn": 2}


def test_texts_among_numbers_are_missing_values(tmp_path):
    rng = np.random.default_rng(2)
    m = 60
    comma = [f"{value:.1f}".replace(".", ",") for value in rng.normal(60, 9, m)]
    columns = {
        "age": ["k.A." if i % 9 == 2 else comma[i] for i in range(m)],
        "dose": ["<5" if i % 9 == 2 else comma[i] for i in range(m)],
        "stage": [("I", "II", "k.A.")[i % 3] for i in range(m)],
        "cost": [f"{int(value):,}".replace(",", ".") for value in rng.normal(15000, 900, m)],
        "unit": ["mg/l"] * m,
    }
    path = tmp_path / "a.csv"
    path.write_text("\n".join(";".join(row) for row in zip(*([k, *v] for k, v in columns.items()), strict=True)))
    described = p2pkm.describe_table(path)
    assert [(column.kind, column.use) for column in described.columns] == [
        ("number", "feature"), ("text", "left out: text"), ("category", "feature, 0 or 1"),
        ("number", "feature"), ("category", "left out: constant"),
    ]  # fmt: skip
    assert described.options == {"drop": "dose,unit", "encode": "stage", "missing": "drop", "na": "k.A.",
                                 "decimal": ",", "thousands": "."}  # fmt: skip
    assert "missing values are also written as k.A.: check that they are not values" in described.notes
    assert described.command.endswith("--scale standard -k auto")
    table = p2pkm.read_table(path, **described.options)
    assert table.features == ("age", "cost", "stage=II") and table.points[:, 1].min() > 10_000
    described = p2pkm.describe_table(path, na="=II", decimal=",")
    assert described.options["na"] == "=II,k.A."


def test_features_of_one_scale_need_no_other():
    rng = np.random.default_rng(0)
    frame = {"a": rng.normal(size=30), "b": 3 * rng.normal(size=30), "c": rng.choice(["x", "y"], 30)}
    assert "--scale" not in p2pkm.describe_table(frame).command
    assert p2pkm.describe_table(frame | {"b": 300 * rng.normal(size=30)}).command.endswith("--scale standard -k auto")


def test_a_command_that_sends_single_points_of_small_devices_is_said_to_do_so():
    def note(sizes, **columns):
        frame = {"hospital": np.repeat(["Bonn", "Essen"], sizes).tolist()} | columns
        return [text for text in p2pkm.describe_table(frame).notes if text.startswith("-k auto sends")]

    x = np.random.default_rng(0).normal(size=2_000).tolist()
    (said,) = note((1_000, 999), x=x[:1_999])
    assert "single points" in said and said.endswith("consider adding --min-cluster-size 3")
    assert not note((1_000, 1_000), x=x)
    assert not note((2, 2), fixed=[7] * 4)  # no command
    assert not [text for text in p2pkm.describe_table({"x": x[:30]}).notes if "-k auto" in text]  # no devices


def test_the_options_of_a_frame_read_it():
    frame = {"device": ["a", "b", "b"], "bmi": ["22,1", "27,9", ""], "n": ["1.200", "3.400", "900"]}
    table = p2pkm.read_table(frame, **p2pkm.describe_table(frame).options)
    assert table.points.tolist() == [[22.1, 1200], [27.9, 3400]]


def test_points_are_not_suspected_where_thousands_are_declared(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("leuk,x\n7.400,1\n980,2\n1.250,3\n")
    for thousands, suspected in (("", True), (",", False)):  # in the second the points are those of decimals
        (leuk, _) = p2pkm.describe_table(path, thousands=thousands).columns
        assert any("mixes 7.400 and 980" in text for text in leuk.suspicions) == suspected


def test_identifiers_are_described_as_written(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,label,device\n1,008,0\n2,8,NA\n3,250.0,1\n5,8,0\n")
    described = p2pkm.describe_table(path)
    assert [(column.kind, column.range, column.use) for column in described.columns[1:]] == [
        ("category", "3: 008, 8, 250.0", "label"), ("category", "2: 0, 1", "device")]  # fmt: skip
    assert described.devices == {"0": 2, "1": 1} and described.columns[2].missing == 0.25
    assert len(p2pkm.read_table(path, **described.options).points) == 3


def test_a_table_without_features_has_no_command(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("when,y\n2026-01-31T00:00:00,1\n2026-01-31T18:00:00+05:00,1\n")
    described = p2pkm.describe_table(path)
    assert described.command == "" and "no column can be a feature" in described.notes[-1]
    assert here("data", path).code == 0


def test_a_site_column_with_a_few_missing_values_names_the_devices():
    site = ["Bonn"] * 150 + ["Essen"] * 149 + [""]
    frame = {
        "hospital": site,
        "sex": ["f", "m"] * 150,
        "age": range(300),
        "ward": [f"ward {i % 25}" for i in range(300)],
    }
    described = p2pkm.describe_table(frame)
    assert described.options["device_column"] == "hospital" and described.options["missing"] == "drop"
    assert described.devices == {"Bonn": 150, "Essen": 149}
    lines = str(described).splitlines()
    assert next(line for line in lines if line.startswith("hospital")).split()[2] == "<1%"
    assert any("ward 0, ward 1," in line and "...  " in line for line in lines)
    assert p2pkm.Shards.deal(p2pkm.read_table(frame, **described.options)).n == 2
    many = p2pkm.describe_table(frame | {"hospital": ["Bonn"] * 100 + ["Essen"] * 150 + [""] * 50})
    assert many.options["device_column"] == "ward"


M = 24
# Columns about which the description gives advice, one name each.
ADVISED = {
    "text identifier": {"patient": [f"p-{i}" for i in range(M)]},
    "numbered": {"nr": [3 * i for i in range(M)]},
    "name with a comma": {"code, internal": [f"c{i}" for i in range(M)]},
    "constant": {"fixed": [7] * M},
    "placeholder": {"crp": [-99 if i == 5 else round(1 + i / 7, 2) for i in range(M)]},
    "wide": {"cost": [5_000 * i % 7_919 for i in range(M)]},
    "names alike": {"site": ["Köln", "Koeln", "Bonn", "KÖLN", "Köln", "Bonn"] * 4},
    "names alike, with an equals sign": {"site": ["a=b", "A=b", "c"] * 8},
    "names alike, with a comma": {"site": ["Köln, West", "Koeln, West", "Bonn"] * 8},
    "a site of few rows": {"site": ["Bonn"] * 20 + ["Essen"] * 4},
}


def write(path, columns):
    """Write columns and two features to a CSV file."""
    rng = np.random.default_rng(2)
    both = {"x": rng.normal(size=M).round(3).tolist(), "y": rng.normal(size=M).round(3).tolist()} | columns
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([list(both), *zip(*both.values(), strict=True)])


@pytest.mark.parametrize("names", [[name] for name in ADVISED] + [["numbered", "placeholder", "wide", "names alike"]])
def test_the_command_has_the_options_of_the_advice(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", {key: value for name in names for key, value in ADVISED[name].items()})
    described = p2pkm.describe_table("t.csv")
    words = shlex.split(described.command)
    given = dict(zip(words[1::2], words[2::2], strict=True))
    advice = [*described.notes, *(text for column in described.columns for text in column.suspicions)]
    asserted = " ".join(text for text in advice if "consider" not in text)
    for flag, value in re.findall(r"(--[a-z-]+)(?: ('[^']*'|[^\s:.);,]+))?", asserted):
        assert flag in given
        if "=" in value or value.lstrip("-").isdigit():
            assert given[flag] == shlex.split(value)[0]
    for column in described.columns:  # each column has the option that its use says
        listed = {name: split_list(given.get(f"--{name}", "")) for name in ("keep", "drop", "encode")}
        uses = {"keep": "ID, copied", "drop": "left out: constant", "encode": "feature, one per category"}
        assert {name for name in listed if column.name in listed[name]} == {
            name for name, use in uses.items() if column.use == use
        }
    table = p2pkm.read_table("t.csv", **described.options)
    assert set(table.copied or ()) == {column.name for column in described.columns if column.use == "ID, copied"}
    if "site" in {column.name for column in described.columns}:
        left_out = M - len(table.device)  # rows with a missing value
        assert set(table.device.tolist()) == set(described.devices)
        assert sum(described.devices.values()) == len(table.device) + left_out * ("missing" in described.options)
    assert here(*words[1:], "--dry-run").code == 0


def test_files_whose_names_are_alike_are_read_as_one_device(tmp_path):
    for name in ("Bonn", "Köln", "Koeln"):
        write(tmp_path / f"{name}.csv", {})
    described = p2pkm.describe_table(tmp_path)
    assert described.options == {"rename": "Köln=Koeln"} and described.devices == {"Bonn": M, "Koeln": 2 * M}
    assert p2pkm.describe_table(tmp_path, rename="Koeln=Mainz").devices == {"Bonn": M, "Mainz": M, "Köln": M}
    assert Counter(p2pkm.read_table(tmp_path, **described.options).device.tolist()) == described.devices


def test_new_names_that_were_given_are_kept(tmp_path):
    write(tmp_path / "t.csv", {"site": ["Köln", "Koeln", "Cologne", "Bonn"] * 6})
    described = p2pkm.describe_table(tmp_path / "t.csv", rename="Cologne=Koeln")
    assert described.devices == {"Bonn": 6, "Koeln": 18}
    assert split_list(described.options["rename"]) == ("Cologne=Koeln", "Köln=Koeln")
