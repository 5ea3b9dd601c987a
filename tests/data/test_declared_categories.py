"""Declared categories whose names are numbers, ARFF files, and the index of data frames in files."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import p2pkm
from tests.support.sampling import thin

X = [1.0, 2.0, 4.0, 5.0]
CLASSES = {
    "whole numbers": [1, 2, 1, 2],
    "fractions": [1.5, 2.5, 1.5, 2.5],
    "texts": ["1", "2", "1", "2"],
    "truth values": [True, False, True, False],
    "words of truth": ["yes", "no", "no", "yes"],
    "one level": [7, 7, 7, 7],
    "ordered": pd.Categorical([1, 2, 1, 2], ordered=True),
    "missing level": pd.Categorical([1, 2, 1, None], categories=[1, 2, 3]),
}


def make_sources(name, folder):
    """Build one table with a column of categories in memory and in all formats that can declare them."""
    frame = pd.DataFrame({"x": X, "class": pd.Categorical(CLASSES[name])})
    frame.to_parquet(folder / "t.parquet")
    feather.write_feather(pa.Table.from_pandas(frame), str(folder / "t.feather"))
    with pa.OSFile(str(folder / "t.arrow"), "wb") as file, pa.ipc.new_file(file, pa.Schema.from_pandas(frame)) as out:
        out.write(pa.Table.from_pandas(frame))
    yield "frame", frame
    yield "arrow table", pa.Table.from_pandas(frame)
    yield from ((suffix, folder / f"t.{suffix}") for suffix in ("parquet", "feather", "arrow"))
    texts = [None if pd.isna(value) else str(value) for value in frame["class"]]
    levels = list(map(str, frame["class"].cat.categories))
    table = pl.DataFrame({"x": X, "class": pl.Series(texts, dtype=pl.Enum(levels))})
    yield "polars enum", table
    yield "polars", table.with_columns(pl.col("class").cast(pl.Categorical))
    table.write_parquet(folder / "polars.parquet")
    yield "polars parquet", folder / "polars.parquet"
    rows = "".join(f"{x},{'?' if text is None else text}\n" for x, text in zip(X, texts, strict=True))
    (folder / "t.arff").write_text(
        f"@relation r\n@attribute x real\n@attribute class {{{','.join(levels)}}}\n@data\n{rows}"
    )
    yield "arff", folder / "t.arff"


@pytest.mark.parametrize("name", thin(CLASSES, 2))
@pytest.mark.sample(3)
def test_declared_categories_are_no_numbers(name, tmp_path):
    for source, table in make_sources(name, tmp_path):
        with pytest.raises(p2pkm.DataError, match=r"column 'class' is '.*', a declared category; expected a number"):
            p2pkm.read_table(table)
        dropped = p2pkm.read_table(table, drop="class")
        assert dropped.features == ("x",), source
        encoded = p2pkm.read_table(table, encode="class", missing="drop")
        assert {feature.partition("=")[0] for feature in encoded.features} == {"x", "class"}, source
        assert set(encoded.points[:, 1:].ravel().tolist()) <= {0.0, 1.0}, source
        for role in ("label", "device"):
            given = p2pkm.read_table(table, **{f"{role}_column": "class"}, missing="drop")
            assert given.features == ("x",), source
            known = given.labels if role == "label" else given.device
            assert len(set(known.tolist())) == len(set(pd.Series(CLASSES[name]).dropna())), source
        described = p2pkm.describe_table(table)
        assert "class" not in p2pkm.read_table(table, **described.options).features, source
        assert [column.kind for column in described.columns] == ["number", "category"], source


def test_files_of_one_folder_keep_their_categories(tmp_path):
    for name in ("a", "b"):
        pd.DataFrame({"x": X, "class": pd.Categorical([1, 2, 1, 2])}).to_parquet(tmp_path / f"{name}.parquet")
    described = p2pkm.describe_table(str(tmp_path))
    assert described.options["encode"] == "class"
    with pytest.raises(p2pkm.DataError, match="declared category"):
        p2pkm.read_table(tmp_path)
    from p2pkm.data.out_of_core.index import index_files

    with pytest.raises(p2pkm.DataError, match="column 'class' has categories; expected numbers"):
        index_files(str(tmp_path), None, None, None)


HEAD = "@relation r\n@attribute x real\n@attribute 'a b' numeric\n@attribute class {1,'b c',3}\n@data\n"


def write(tmp_path, text):
    (tmp_path / "t.arff").write_text(text)
    return tmp_path / "t.arff"


@pytest.mark.parametrize(
    ("rows", "points", "labels", "weights"),
    [
        ("1,2,1\n% note\n\n3,4,'b c' % note\n", [[1, 2], [3, 4]], ["1", "b c"], None),
        ("1,2,1,{5}\n3,4,3\n", [[1, 2], [3, 4]], ["1", "3"], [5, 1]),
        ("1,2,1, {0.5}\n3,4,3,{2}\n", [[1, 2], [3, 4]], ["1", "3"], [0.5, 2]),
        ("{0 1, 2 3}\n{1 5}, {2}\n{}\n", [[1, 0], [0, 5], [0, 0]], ["3", "1", "1"], [1, 2, 1]),
        ('{0 1, 2 "b c"}\n', [[1, 0]], ["b c"], None),
        ("1\t2\t3\n", [[1, 2]], ["3"], None),
        ("1 2 'b c'\n", [[1, 2]], ["b c"], None),
        ("1,?,1\n3,4,3\n5,6,?\n", [[3, 4]], ["3"], None),
    ],
)
def test_rows_of_arff(tmp_path, rows, points, labels, weights):
    table = p2pkm.read_table(write(tmp_path, HEAD + rows), label_column="class", keep="class", missing="drop")
    assert table.features == ("x", "a b") and table.points.tolist() == points
    assert list(map(str, table.copied["class"].tolist())) == labels
    assert (table.weights is None) == (weights is None)
    if weights is not None:
        assert table.weights.tolist() == weights
        assert "the weights of the rows, in braces, are the weights of the points" in table.notes


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,2\n", "line 6: 2 fields; expected 3"),
        ("1,2,3,4\n", "line 6: 4 fields; expected 3"),
        ("1,2,4\n", "attribute 'class' is '4'; expected one of '1', 'b c', '3'"),
        ("1,b,3\n", "attribute 'a b' is 'b'; expected a number"),
        ("{0 1, 7 2}\n", "expected numbers of attributes from 0 to 2"),
        ("{0 1, 0 2}\n", "each once"),
        ("{0 1\n", "expected numbers of attributes"),
        ("1,2,3,{x}\n", "the weight is 'x'"),
        ("1,2,3,{0}\n", "the weight in braces is 0; expected a weight above 0"),
        ("1,2,3,{-1}\n", "the weight in braces is -1"),
    ],
)
def test_rows_of_arff_that_cannot_be_used(tmp_path, rows, message):
    with pytest.raises(p2pkm.DataError, match=message):
        p2pkm.read_table(write(tmp_path, HEAD + rows), label_column="class")


def test_weights_of_rows_and_a_column_of_weights_conflict(tmp_path):
    path = write(tmp_path, HEAD + "1,2,1,{5}\n")
    with pytest.raises(p2pkm.DataError, match="cannot be combined with weight_column='x'"):
        p2pkm.read_table(path, label_column="class", weight_column="x")


def test_weights_of_some_files_count_as_one_elsewhere(tmp_path):
    write(tmp_path, HEAD + "1,2,1,{5}\n").rename(tmp_path / "a.arff")
    write(tmp_path, HEAD + "3,4,1\n").rename(tmp_path / "b.arff")
    assert p2pkm.read_table(tmp_path, label_column="class").weights.tolist() == [5, 1]


@pytest.mark.parametrize(
    ("declared", "value", "days"),
    [
        ("date yyyy-MM-dd", "1970-01-03", 2),
        ('DATE "yyyy-MM-dd"', '"1970-01-03"', 2),
        ("date", "1970-01-02T12:00:00", 1.5),
        ("date 'dd.MM.yyyy HH:mm'", "'02.01.1970 06:00'", 1.25),
    ],
)
def test_dates_of_arff(tmp_path, declared, value, days):
    path = write(tmp_path, f"@relation r\n@attribute d {declared}\n@data\n{value}\n?\n")
    assert p2pkm.read_table(path, encode="d", missing="drop").points.tolist() == [[days]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@relation r\n@attribute bag relational\n@attribute x real\n@end bag\n@data\n'1'\n", "type 'relational'"),
        ("@relation r\n@attribute d date 'dd MMM yyyy'\n@data\n'1'\n", "contains 'MMM'"),
        ("@relation r\n@attribute d date\n@data\nx\n", "expected a date in the format"),
        ("@relation r\n@attribute c {a,a}\n@data\na\n", "expected different categories in braces"),
        ("@relation r\n@attribute x\n@data\n1\n", "has the type 'none'"),
        ("@relation r\n@data\n1\n", "has no @attribute before @data"),
        ("x,y\n1,2\n", "expected @relation, @attribute or @data"),
        ("@relation r\n@attribute x real\n", "it has no line @data"),
    ],
)
def test_headers_of_arff_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(p2pkm.DataError, match=message):
        p2pkm.read_table(write(tmp_path, text))


def test_weights_of_attributes_and_texts_of_arff(tmp_path):
    path = write(tmp_path, "@relation r\n@attribute x real {0.5}\n@attribute s string\n@data\n1,'it\\'s'\n2,b\n")
    table = p2pkm.read_table(path, keep="s")
    assert table.copied["s"].tolist() == ["it's", "b"]
    assert table.notes == ("weights of attributes are not used: 'x'",)


INDEXES = {
    "named": pd.Index([3, 3, 5, 6], name="visit"),
    "two levels": pd.MultiIndex.from_arrays([[1, 1, 2, 2], [1, 2, 1, 2]], names=["visit", "part"]),
    "unnamed": pd.Index([3, 3, 5, 6]),
    "range": None,
}


@pytest.mark.parametrize("name", INDEXES)
def test_the_index_of_a_frame_is_no_feature_of_its_file(name, tmp_path):
    frame = pd.DataFrame({"x": X}, index=INDEXES[name])
    frame.to_parquet(tmp_path / "t.parquet")
    feather.write_feather(pa.Table.from_pandas(frame), str(tmp_path / "t.feather"))
    tables = [p2pkm.read_table(source) for source in
              (frame, pa.Table.from_pandas(frame), tmp_path / "t.parquet", tmp_path / "t.feather")]  # fmt: skip
    assert [table.features for table in tables] == [("x",)] * 4
    assert len({table.notes for table in tables}) == 1
    if "visit" in frame.index.names:
        assert "(visit" in tables[0].notes[0]
        for source in (frame, tmp_path / "t.parquet", tmp_path / "t.feather"):
            assert set(p2pkm.read_table(source, columns="x,visit").features) == {"x", "visit"}
            table = p2pkm.read_table(source, device_column="visit")
            assert table.features == ("x",) and len(table.device) == 4
            described = p2pkm.describe_table(source, device_column="visit")
            assert [column.name for column in described.columns if column.use == "device"] == ["visit"]


def test_the_index_of_a_file_on_disk_is_no_feature(tmp_path):
    from p2pkm.data.out_of_core.index import index_files

    for name in ("a", "b"):
        pd.DataFrame({"x": X}, index=INDEXES["named"]).to_parquet(tmp_path / f"{name}.parquet")
    assert index_files(str(tmp_path), None, None, None).features == ("x",)
    assert index_files(str(tmp_path), None, None, "visit").device == 3


def test_an_index_with_the_name_of_a_role_keeps_it(tmp_path):
    frame = pd.DataFrame({"x": X}, index=pd.Index(["a", "a", "b", "b"], name="device"))
    frame.to_parquet(tmp_path / "t.parquet")
    assert p2pkm.read_table(frame).device.tolist() == p2pkm.read_table(tmp_path / "t.parquet").device.tolist()


def test_files_without_metadata_have_no_index(tmp_path):
    pl.DataFrame({"visit": [1, 1, 2], "x": [1.0, 2.0, 3.0]}).write_parquet(tmp_path / "t.parquet")
    assert p2pkm.read_table(tmp_path / "t.parquet").features == ("visit", "x")
    table = pa.table({"x": X}).replace_schema_metadata({b"pandas": b'["a"]'})
    parquet.write_table(table, tmp_path / "odd.parquet")
    assert p2pkm.read_table(tmp_path / "odd.parquet").features == ("x",)


def test_columns_that_pandas_calls_unnamed_are_row_numbers(tmp_path):
    pd.DataFrame({"a": X, "b": X}).to_csv(tmp_path / "t.csv")
    once = pd.read_csv(tmp_path / "t.csv")
    once.to_csv(tmp_path / "t.csv")
    assert p2pkm.read_table(tmp_path / "t.csv").features == p2pkm.read_table(once).features == ("a", "b")
