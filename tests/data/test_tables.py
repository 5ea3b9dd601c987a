"""Tables of other programs: pandas, polars, Arrow, Excel, LibreOffice, R and Weka."""

import bz2
import gzip
import lzma

import numpy as np
import pytest

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError

pd = pytest.importorskip("pandas")
FRAME = pd.DataFrame({"age": [34.5, 71.25, 69.0], "sex": ["f", "m", "f"], "hospital": ["Köln", "Aarau", "Köln"]})
POINTS = [[34.5, 0.0], [71.25, 1.0], [69.0, 0.0]]
ROLES = {"device_column": "hospital", "encode": "sex"}


def read(path, **options):
    table = p2pkm.read_table(path, **(ROLES | options))
    assert table.features == ("age", "sex=m")
    np.testing.assert_array_equal(table.points, POINTS)
    assert table.device.tolist() == ["Köln", "Aarau", "Köln"]
    return table.notes or ()


@pytest.mark.parametrize(("encoding", "note"), [("utf-8", 0), ("utf-8-sig", 0), ("utf-16", 0), ("cp1252", 1)])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_encodings_and_separators_are_found(tmp_path, encoding, note, separator):
    FRAME.to_csv(tmp_path / "a.csv", encoding=encoding, sep=separator, index=False)
    notes = read(tmp_path / "a.csv")
    assert sum("Windows-1252" in text for text in notes) == note
    if encoding != "utf-8-sig":
        assert not any("Windows" in text for text in read(tmp_path / "a.csv", encoding=encoding, separator=separator))


@pytest.mark.parametrize("thousands", ["", "."])
def test_numbers_with_a_decimal_comma(tmp_path, thousands):
    frame = pd.DataFrame({"a": [1234.5, 0.25, -3.0], "b": [1e6, 12.0, 2.0]})
    fields = frame.map(lambda value: f"{value:,}".translate({ord("."): ",", ord(","): thousands or None}))
    fields.to_csv(tmp_path / "a.csv", sep=";", index=False)
    table = p2pkm.read_table(tmp_path / "a.csv", decimal=",", thousands=thousands)
    np.testing.assert_array_equal(table.points, frame)


def test_a_point_is_no_decimal_sign_beside_commas(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n7.4;1\n8,5;2\n")
    with pytest.raises(DataError, match="line 2, column 'a'"):
        p2pkm.read_table(tmp_path / "a.csv", decimal=",")
    (tmp_path / "a.csv").write_text("a;b\n7.4;1\n1.234;2\n")
    with pytest.raises(DataError, match="line 2, column 'a'"):
        p2pkm.read_table(tmp_path / "a.csv", decimal=",", thousands=".")


def test_numbers_of_another_decimal_sign_are_shown_as_written(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n7.4;1\n8;2\n")
    with pytest.raises(DataError, match=r"column 'a' is '7\.4'; expected a number with .*\. Use decimal='\.', or use"):
        p2pkm.read_table(tmp_path / "a.csv", decimal=",")
    (tmp_path / "a.csv").write_text("a;b\n7.4;1\n8,5;2\n")
    with pytest.raises(DataError, match=r"Correct the fields \(1 have another decimal separator\)"):
        p2pkm.read_table(tmp_path / "a.csv", decimal=",")


def test_numbers_of_a_spreadsheet_have_no_decimal_sign(tmp_path):
    pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"a": [1.5, 2, 1234.25], "b": ["0,5", "1.000,5", "7"]})
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    table = p2pkm.read_table(tmp_path / "a.xlsx", decimal=",", thousands=".")
    assert table.points.tolist() == [[1.5, 0.5], [2, 1000.5], [1234.25, 7]]


def test_the_separator_line_and_quoted_headers_of_excel(tmp_path):
    (tmp_path / "a.csv").write_text('sep=;\r\n"age; years";"b,c"\r\n1;2\r\n3;x\r\n')
    with pytest.raises(DataError, match="line 4, column 'b,c' is 'x'"):
        p2pkm.read_table(tmp_path / "a.csv")
    assert p2pkm.read_table(tmp_path / "a.csv", drop=["b,c"]).features == ("age; years",)


def test_row_names_of_r(tmp_path):
    (tmp_path / "a.txt").write_text('"age" "name"\n"1" 34.5 "a b"\n"2" 71 "c"\n')
    table = p2pkm.read_table(tmp_path / "a.txt", drop="name")
    assert table.features == ("age",) and table.points.tolist() == [[34.5], [71.0]]


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_compressed_text(tmp_path, suffix):
    if suffix == "zst":
        pytest.importorskip("zstandard")
    FRAME.to_csv(tmp_path / f"a.csv.{suffix}", index=False)
    read(tmp_path / f"a.csv.{suffix}")
    content = (tmp_path / f"a.csv.{suffix}").read_bytes()
    (tmp_path / f"b.csv.{suffix}").write_bytes(content[:-9])
    with pytest.raises(DataError, match=r"b\.csv"):
        p2pkm.read_table(tmp_path / f"b.csv.{suffix}")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch, pack):
    monkeypatch.setattr("p2pkm.data.readers.npy._USUAL", 1000)
    suffix = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz"}[pack]
    (tmp_path / f"a.csv.{suffix}").write_bytes(pack(b"1,2\n" * 100_000))
    with pytest.raises(DataError, match="decompresses to"):
        p2pkm.read_table(tmp_path / f"a.csv.{suffix}")


@pytest.mark.parametrize(("suffix", "content"), [("xlsx", "xlsx"), ("ods", "ods"), ("ods", "xlsx"), ("xlsx", "ods")])
def test_spreadsheets(tmp_path, suffix, content):
    pytest.importorskip("python_calamine")
    pytest.importorskip(engine := {"xlsx": "openpyxl", "ods": "odf"}[content])
    path = tmp_path / f"a.{suffix}"
    # Of a Path, pandas would write .xlsx with any suffix, and users have such files.
    with path.open("wb") as file, pd.ExcelWriter(file, engine=engine) as book:
        FRAME.to_excel(book, sheet_name="patients", index=False)
        FRAME.rename(columns={"age": "years"}).to_excel(book, sheet_name="other", index=False)
    assert read(path)[0] == "sheet 'patients' is read, the first of 2; use --sheet to choose another ('other')"
    assert not any("sheet" in note for note in read(path, sheet="patients"))
    assert p2pkm.read_table(path, sheet=1, **ROLES).features[0] == "years"
    with pytest.raises(DataError, match="no sheet 'third'; expected one of 'patients', 'other'"):
        p2pkm.read_table(path, sheet="third")


def frames():
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    yield FRAME
    yield FRAME.convert_dtypes()
    yield FRAME.convert_dtypes(dtype_backend="pyarrow")
    yield FRAME.astype({"sex": "category"})
    yield pl.from_pandas(FRAME)
    yield pl.from_pandas(FRAME).lazy()
    yield pa.Table.from_pandas(FRAME)
    yield {name: FRAME[name].tolist() for name in FRAME}


def test_every_kind_of_frame_gives_the_same_table():
    for frame in frames():
        read(frame)


def test_missing_values_of_frames():
    frame = pd.DataFrame({"a": pd.array([1, None, -99], "Int64"), "b": [True, False, True], "id": [7, 8, 9]})
    table = p2pkm.read_table(frame, missing="mean", na=["-99"], keep="id")
    np.testing.assert_array_equal(table.points, [[1, 1], [np.nan, 0], [np.nan, 1]])
    assert p2pkm.read_table(frame, missing="drop", keep="id").copied["id"].tolist() == [7, 9]
    indexed = p2pkm.read_table(frame.set_index("id"), missing="drop", keep=["id"])
    assert indexed.copied["id"].tolist() == [7, 9] and indexed.features == ("a", "b")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_texts_for_missing_values(tmp_path, suffix):
    frame = pd.DataFrame({"x": ["1", "?", "3"], "region": ["NA", "none", "EU"], "label": ["none", "a", "b"]})
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    getattr(frame, f"to_{suffix}")(tmp_path / f"a.{suffix}", index=False)
    path = tmp_path / f"a.{suffix}"
    table = p2pkm.read_table(path, encode="region", na="=?", missing="mean")
    assert table.features == ("x", "region=EU", "region=NA", "region=none") and table.classes == 3
    assert np.isnan(table.points[:, 0]).tolist() == [False, True, False]
    table = p2pkm.read_table(path, columns="x", na="?", missing="drop")
    assert table.points.tolist() == [[3.0]]


def test_weights_and_columns_to_copy(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,x,w\n007,1,2.5\n008,2,\n009,,1\n010,4,1\n")
    table = p2pkm.read_table(path, weight_column="w", keep="id", missing="drop")
    assert table.features == ("x",) and table.weights.tolist() == [2.5, 1.0]
    assert table.copied["id"].tolist() == ["007", "010"]
    with pytest.raises(DataError, match="line 3, column 'w' is empty or missing; expected a weight above 0"):
        p2pkm.read_table(path, weight_column="w", drop="id", missing="mean")
    path.write_text("x,w\n1,0\n")
    with pytest.raises(DataError, match="line 2, column 'w' is 0"):
        p2pkm.read_table(path, weight_column="w")


def test_folders_name_devices(tmp_path):
    for site, value in (("B", 1), ("A", 2)):
        (tmp_path / f"site={site}").mkdir()
        (tmp_path / f"site={site}" / "part-0.csv").write_text(f"x\n{value}\n{value}.5\n")
    table = p2pkm.read_table(tmp_path)
    assert table.points[:, 0].tolist() == [2, 2.5, 1, 1.5] and table.device.tolist() == ["A", "A", "B", "B"]
    assert p2pkm.read_table(tmp_path, label_column="site").labels.tolist() == [0, 0, 1, 1]


def test_weka(tmp_path):
    path = tmp_path / "a.arff"
    path.write_text("@relation r\n@attribute x real\n@attribute c {a,b}\n@data\n1.5,a\n?,b\n2,?\n")
    table = p2pkm.read_table(path, encode="c", missing="mean")
    np.testing.assert_array_equal(table.points, [[1.5, 0], [np.nan, 1], [2, np.nan]])


@pytest.mark.parametrize("option", [{"decimal": ";"}, {"thousands": "x"}, {"separator": "::"}, {"encoding": "x"}])
def test_options_that_do_not_exist(option):
    with pytest.raises(ExperimentError, match=next(iter(option))):
        p2pkm.read_table({"x": [1, 2]}, **option)


def test_the_representation_of_a_table_contains_no_rows():
    table = p2pkm.read_table({"hospital": ["Bonn", "Essen"] * 500, "age": range(1000)}, device_column="hospital")
    text = repr(table)
    assert len(text.splitlines()) <= 5 and "points=float64[1000, 1]" in text and "Bonn" not in text
