"""Numbers of more digits than float64 or a spreadsheet keeps: different ones do not become equal in silence."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import p2pkm
from p2pkm.core.spec import Spec
from p2pkm.data.out_of_core.index import index_files
from p2pkm.data.out_of_core.shards import DiskShards
from tests.support.each import each

LONG = [2**53 + 1, 2**53, 2**53 + 5]
ARRAY = np.array([LONG, [1, 2, 3]]).T
COLUMNS = {
    "int64": pd.Series(LONG),
    "uint64": pd.Series([value + 2**63 for value in LONG], dtype="uint64"),
    "nullable": pd.Series([*LONG, None], dtype="Int64"),
    "decimal": pd.Series([Decimal(value) for value in LONG]),
    "objects": pd.Series([value + 2**70 for value in LONG], dtype=object),
    "pandas of Arrow": pd.Series(LONG, dtype="int64[pyarrow]"),
    "Arrow": pa.array([*LONG, None]),
    "Arrow decimal": pa.array([Decimal(value) for value in LONG]),
    "polars": pl.Series(LONG),
    "polars with nulls": pl.Series([*LONG, None]),
    "polars decimal": pl.Series([Decimal(value) for value in LONG]),
    "polars 128 bits": pl.Series(LONG, dtype=pl.Int128),
    "list": LONG,
    "text": list(map(str, LONG)),
}
EQUAL = "which are equal as floating-point numbers"


@each("kind", COLUMNS)
def test_columns_of_frames(kind):
    with pytest.raises(p2pkm.DataError, match=f"column 'x' has .* and .*, {EQUAL}.*keep='x'"):
        p2pkm.read_table({"x": COLUMNS[kind]}, missing="drop")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("x,y\n9007199254740993,1\n9007199254740992,2\n", {}),
        ("x,y\n9007199254740993,1\n9007199254740992,\n", {"missing": "drop"}),
        ("x;y\n9.007.199.254.740.993;1\n9007199254740992;2\n", {"thousands": ".", "decimal": ","}),
        ("x,y\n12345678901234567890,1\n12345678901234567891,2\n", {}),
    ],
)
def test_columns_of_text_files(tmp_path, text, options):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(p2pkm.DataError, match=EQUAL):
        p2pkm.read_table(path, **options)
    assert p2pkm.read_table(path, drop="x", **options).notes is None
    assert len(set(p2pkm.read_table(path, keep="x", **options).copied["x"].tolist())) > 0
    described = p2pkm.describe_table(path, **options)
    assert described.columns[0].kind != "number" and not any("constant" in note for note in described.notes)


def test_large_numbers_that_stay_different_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n9007199254740992,1\n9007199254740994,2\n1e300,3\n1e300,4\n")
    assert p2pkm.read_table(path).points[:, 0].tolist() == [2.0**53, 2.0**53 + 2, 1e300, 1e300]
    nanoseconds = pd.DataFrame({"x": [1_700_000_000_000_000_000, 1_700_000_001_000_000_001]})
    assert len(p2pkm.read_table(nanoseconds).points) == 2


@pytest.mark.parametrize("form", [ARRAY, ARRAY.tolist(), ARRAY.astype(object), (ARRAY + 2**62).astype("uint64")])
@pytest.mark.parametrize(
    "entry",
    [
        lambda values: p2pkm.P2PKMeans(2, n_devices=1).fit(values),
        lambda values: p2pkm.P2PStandardScaler(n_devices=1).fit(values),
        lambda values: p2pkm.Shards.deal(values, [0, 0, 1]),
        lambda values: p2pkm.P2PKMeans(2, n_devices=1).fit(pd.DataFrame(np.asarray(values))),
    ],
)
def test_arrays(entry, form):
    with pytest.raises(p2pkm.DataError, match=EQUAL):
        entry(form)


def test_arrays_in_files(tmp_path):
    np.save(tmp_path / "a.npy", ARRAY)
    np.savez(tmp_path / "a.npz", X=ARRAY)
    (tmp_path / "a.json").write_text(json.dumps({"user_data": {"a": {"x": ARRAY.tolist()}}}))
    pd.DataFrame(ARRAY, columns=["x", "y"]).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.arff").write_text("@relation r\n@attribute x real\n@data\n" + "\n".join(map(str, LONG)))
    for suffix in ("npy", "npz", "json", "parquet", "arff"):
        with pytest.raises(p2pkm.DataError, match=EQUAL):
            p2pkm.read_table(tmp_path / f"a.{suffix}")


def test_files_on_disk(tmp_path):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", ARRAY)
        pd.DataFrame({"x": LONG, "y": [0.5, 1.5, 2.5]}).to_parquet(tmp_path / f"{name}.parquet")
    for suffix in ("npy", "parquet"):
        with pytest.raises(p2pkm.DataError, match=EQUAL):
            DiskShards.deal(
                index_files(f"{tmp_path}/*.{suffix}", None, None, None), Spec("column", {}), 2, "float64"
            ).part(0, 2)


def test_a_column_that_is_constant_as_float32():
    values = np.array([[1e9, 0.0], [1e9 + 1, 1.0]])
    assert p2pkm.Shards.deal(values, [0, 1]).d == 2
    with pytest.raises(p2pkm.DataError, match=r"different numbers in column 0 .* all equal as float32"):
        p2pkm.Shards.deal(values, [0, 1], dtype="float32")


@pytest.mark.parametrize("role", ["label", "device", "keep"])
@pytest.mark.sample(3)
def test_identifiers_in_cells_of_numbers(tmp_path, role):
    def write(identifiers):
        pd.DataFrame({"x": [1, 2, 3], "id": identifiers}).to_excel(tmp_path / "t.xlsx", index=False)
        return tmp_path / "t.xlsx"

    options = {"keep": "id"} if role == "keep" else {f"{role}_column": "id"}
    for identifiers in ([12345678901234567, 12345678901234569, 1], [1e20, 2.0, 3.0]):
        with pytest.raises(p2pkm.DataError, match=r"row 2, column 'id' is the number \d+; expected at most 15 digits"):
            p2pkm.read_table(write(identifiers), **options)
        assert "spreadsheets keep 15 digits" in p2pkm.describe_table(write(identifiers)).notes[0]
    table = p2pkm.read_table(write([1234567890123456, 1234567890123457, 3]), **options)
    assert any("spreadsheets keep 15 digits" in note for note in table.notes)
    for identifiers in ([123456789012345, 2, 3], ["12345678901234567", "12345678901234569", "1"]):
        table = p2pkm.read_table(write(identifiers), **options)
        assert not any("15 digits" in note for note in table.notes or ())


def test_features_in_cells_of_numbers(tmp_path):
    pd.DataFrame({"x": [12345678901234567, 12345678901234568], "y": [1, 2]}).to_excel(tmp_path / "t.xlsx", index=False)
    assert any("column 'x' is the number" in note for note in p2pkm.read_table(tmp_path / "t.xlsx").notes)
