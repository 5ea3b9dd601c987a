"""Tables in memory: frames of pandas, polars and Arrow instead of files."""

import shlex

import numpy as np
import pandas as pd
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.data.readers.frame import is_frame, list_columns, list_content
from p2pkm.data.readers.intake import join_names, split_list
from p2pkm.experiments.estimators.table import read_table as read_features
from tests.support.each import each

polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")

PATIENTS = pd.DataFrame({
    "age": pd.array([61, None, 48, 55], dtype="Int64"),
    "dose": np.array([1.5, 2.0, 2.5, 3.0], np.float32),
    "smoker": pd.array([True, False, None, True], dtype="boolean"),
    "sex": pd.Categorical(["f", "m", "f", None]),
    "seen": pd.to_datetime(["2026-01-01", "2026-01-02 12:00", None, "2026-01-04"], format="ISO8601"),
    "ward": ["Turku", "Oulu", "Turku", "Oulu"],
    "class": [2, 1, 2, 1],
})
KINDS = {
    "pandas": lambda frame: frame,
    "pandas with Arrow": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": polars.from_pandas,
    "arrow": lambda frame: arrow.Table.from_pandas(frame, preserve_index=False),
}
X = np.array([[0.0, 0.0], [5.0, 5.0], [0.5, 0.0], [5.0, 5.5], [0.0, 0.5], [5.5, 5.0]])
DEVICE, LABELS = np.array([1, 0, 1, 0, 0, 1]), np.array(["a", "b", "a", "b", "a", "b"])
FRAME = pd.DataFrame(X, columns=["x", "y"]).assign(device=DEVICE, label=LABELS)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def test_all_kinds_of_columns_are_read_alike(kind):
    table = p2pkm.read_table(kind(PATIENTS), "class", "ward", encode="sex, seen", missing="mean")
    nan = np.nan
    expected = [[61, 1.5, 1, 20454, 0], [nan, 2, 0, 20455.5, 1], [48, 2.5, nan, nan, 0],
                [55, 3, 1, 20457, nan]]  # fmt: skip
    np.testing.assert_array_equal(table.points, expected)
    assert table.features == ("age", "dose", "smoker", "seen", "sex=m")
    assert table.labels.tolist() == [1, 0, 1, 0] and table.device.tolist() == ["Turku", "Oulu", "Turku", "Oulu"]
    dropped = p2pkm.read_table(kind(PATIENTS), "class", "ward", columns=["age", "dose"], missing="drop")
    assert dropped.rows.tolist() == [0, 2, 3] and dropped.points.tolist() == [[61, 1.5], [48, 2.5], [55, 3]]


def test_the_estimator_reads_the_values_of_the_reader(kind):
    frame = kind(PATIENTS.drop(columns="ward"))
    points, columns = read_features(frame)
    table = p2pkm.read_table(frame, encode="sex,seen", missing="mean")
    names = [name for column in columns for name in column.features]
    assert sorted(names) == sorted(table.features)
    np.testing.assert_array_equal(points[:, [names.index(name) for name in table.features]], table.points)
    assert [column.kind for column in columns] == ["number", "number", "number", "category", "time", "number"]


def test_a_frame_is_read_like_its_file(kind, tmp_path):
    PATIENTS.to_csv(tmp_path / "patients.csv", index=False)
    arguments = {"label_column": "class", "device_column": "ward", "drop": ["sex", "seen"], "missing": "mean"}
    of_file, of_frame = (p2pkm.read_table(what, **arguments) for what in (tmp_path / "patients.csv", kind(PATIENTS)))
    for name in ("points", "labels", "device"):
        np.testing.assert_array_equal(getattr(of_file, name), getattr(of_frame, name))
    assert of_file[4:] == of_frame[4:]


def test_what_a_frame_has_wrong_is_named_before_anything_is_read(kind):
    with pytest.raises(DataError) as refusal:
        p2pkm.read_table(kind(PATIENTS))
    for words in ("column 'age'", "'sex' is 'f'", "'ward' is 'Turku'", "'seen' is '2026-01-01"):
        assert words in str(refusal.value)


@pytest.mark.parametrize("call", [
    lambda kind: p2pkm.Shards.deal(kind(FRAME)),
    lambda kind: p2pkm.Shards.deal(kind(FRAME.rename(columns={"device": "d", "label": "l"})), "d", labels="l"),
    lambda kind: p2pkm.Shards.deal(kind(FRAME.drop(columns=["device", "label"])), DEVICE, labels=LABELS),
    lambda kind: p2pkm.Shards.deal(kind(FRAME.assign(w=1.0)), weights="w"),
    lambda kind: p2pkm.Shards.deal(p2pkm.read_table(kind(FRAME))),
])  # fmt: skip
def test_frames_are_dealt_like_arrays(call, kind):
    table, expected = call(kind), p2pkm.Shards.deal(X, DEVICE, labels=LABELS)
    for name in ("points", "offsets", "labels", "rows", "weights"):
        np.testing.assert_array_equal(getattr(table, name), getattr(expected, name))
    assert table.features == ("x", "y") and table.names is None


def test_a_frame_names_devices_and_keeps_rows_and_weights():
    frame = FRAME.assign(device=["b", "a", "b", "a", "a", "b"], w=np.arange(1.0, 7.0))
    table = p2pkm.Shards.deal(frame, weights="w")
    assert table.names == ("a", "b") and table.rows.tolist() == [1, 3, 4, 0, 2, 5]
    assert table.weights.tolist() == [2, 4, 5, 1, 3, 6] and table.features == ("x", "y")
    table = p2pkm.read_table(FRAME.assign(x=[0, None, 0.5, 5, 0, 5.5]), missing="drop")
    assert p2pkm.Shards.deal(table).rows.tolist() == [3, 4, 0, 2, 5]
    alone = p2pkm.read_table(FRAME.assign(device=[0, 1, 0, 0, 0, 0], x=[0, None, 0.5, 5, 0, 5.5]), missing="drop")
    assert p2pkm.Shards.deal(alone).sizes.tolist() == [5, 0]


def test_missing_values_of_a_frame_are_filled_in_by_the_run():
    frame = FRAME.assign(x=[0, None, 0.5, 5, 0, 5.5])
    assert np.isnan(p2pkm.Shards.deal(frame, missing=True).points).sum() == 1
    with pytest.raises(DataError, match="column 'x' is empty, in 1 of 6 rows"):
        p2pkm.Shards.deal(frame)
    runs = [p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), points, missing="mean", rounds=2, baselines=False)
            for points in (frame, p2pkm.Shards.deal(frame, missing=True))]  # fmt: skip
    assert runs[0].summary["centroids_sha256"] == runs[1].summary["centroids_sha256"]


@pytest.mark.sample(3)
def test_simulate_takes_frames_and_tables(kind):
    expected = p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), p2pkm.Shards.deal(X, DEVICE, labels=LABELS),
                              rounds=2, baselines=False)  # fmt: skip
    for points in (kind(FRAME), p2pkm.read_table(kind(FRAME))):
        table = p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), points, rounds=2, baselines=False)
        assert table.summary["centroids_sha256"] == expected.summary["centroids_sha256"]


@each(
    ("call", "words"),
    [
        (lambda: p2pkm.read_table(5), "path is of type int; expected a path, a DataFrame"),
        (lambda: p2pkm.read_table(FRAME, header="yes"), "the data frame: header cannot be combined with data frame"),
        (lambda: p2pkm.read_table(X, columns="x"), "has no named columns"),
        (lambda: p2pkm.read_table(pd.DataFrame()), "has 0 columns"),
        (lambda: p2pkm.read_table(FRAME.iloc[:0].astype({"x": float})), "expected one point per row"),
        (lambda: p2pkm.read_table(FRAME.assign(x=[1, np.inf, 0, 0, 0, 0])), "row 1, column 0"),
        (lambda: p2pkm.read_table(FRAME.rename(columns={"y": "client"})), "could all be the device"),
        (lambda: p2pkm.Shards.deal(FRAME, DEVICE), "X has a column 'device', but device is an array"),
        (lambda: p2pkm.Shards.deal(FRAME, labels=LABELS), "X has a column 'label', but labels is an array"),
        (lambda: p2pkm.Shards.deal(FRAME, "ward"), "'ward'"),
        (lambda: p2pkm.Shards.deal(FRAME, weights="w"), "X has no column 'w' for weights"),
        (lambda: p2pkm.Shards.deal(FRAME[["x", "y"]]), "X has no column device or client, and device is None"),
        (lambda: p2pkm.Shards.deal(X), "device is None; expected the device of each row of X"),
        (lambda: p2pkm.Shards.deal(X, "ward"), "device is 'ward', a name, but X has no columns"),
        (lambda: p2pkm.Shards.deal(p2pkm.read_table(FRAME), "ward"), "Name the column in read_table"),
        (lambda: p2pkm.Shards.deal(p2pkm.read_table(FRAME[["x", "y"]])), "X has no column device or client"),
    ],
)
def test_mistakes_name_the_column(call, words):
    with pytest.raises(DataError) as refusal:
        call()
    assert words in str(refusal.value)


def test_simulate_says_what_it_takes():
    with pytest.raises(ExperimentError, match="or a table with a column device"):
        p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), X)


def test_simulate_deals_rows_by_an_array():
    def run(points, **options):
        return p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), points, rounds=2, baselines=False, **options)

    expected = run(p2pkm.Shards.deal(X, DEVICE))
    plain = FRAME[["x", "y"]]
    named = np.array(["a", "b"])[DEVICE]
    for points, partition in ((X, DEVICE), (polars.from_pandas(plain), DEVICE.tolist()), (p2pkm.read_table(X), named)):
        result = run(points, partition=partition)
        assert result.summary["centroids_sha256"] == expected.summary["centroids_sha256"]
    assert result.topology.names == ("a", "b")
    server = p2pkm.simulate(p2pkm.FKM(2), None, X, partition=DEVICE, rounds=2, baselines=False)
    assert server.census.sizes.tolist() == [3, 3]
    empty = p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(4), X, partition=DEVICE, rounds=2, baselines=False)
    assert empty.census.sizes.tolist() == [3, 3, 0, 0]
    missing = plain.assign(x=[0, None, 0.5, 5, 0, 5.5])
    assert run(missing, partition=DEVICE, missing="drop").census.sizes.tolist() == [2, 3]


@each(
    ("points", "partition", "words"),
    [
        (X, "idd", "unknown partition 'idd'. Did you mean 'iid'?"),
        (p2pkm.Shards.deal(X, DEVICE), DEVICE, "to which the points belong already"),
        (FRAME, DEVICE, "cannot be combined with p2pkm.Shards or a column of devices"),
        (X, DEVICE[:-1], "device has shape (5,); expected (6,), one device per row"),
        (X, np.arange(6) % 3, "a row belongs to device 2, counted from 0; expected at least 3"),
        (X, [None, *DEVICE[1:]], "the values of device are missing at row 0"),
    ],
)
def test_a_wrong_partition_is_refused(points, partition, words):
    with pytest.raises(ValueError) as refusal:
        p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), points, partition=partition)
    assert words in str(refusal.value)


def test_an_index_with_a_name_is_mentioned():
    indexed = FRAME.assign(patient=range(6)).set_index("patient")
    assert "the index of the frame (patient) is not read" in p2pkm.read_table(indexed).notes[0]
    assert p2pkm.read_table(FRAME).notes is None
    with pytest.warns(UserWarning, match="patient.* is not read") as warned:
        p2pkm.Shards.deal(indexed)
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="999"):
        p2pkm.Shards.deal(FRAME.assign(x=[0, 999, 0.5, 0.25, 999, 0.75]))


def test_columns_of_one_name_are_both_read():
    twice = pd.concat([FRAME, FRAME[["x"]] + 1], axis=1)
    table = p2pkm.read_table(twice)
    assert table.features == ("x", "y", "x") and table.points[0].tolist() == [0, 0, 1]
    with pytest.raises(DataError, match="has several columns 'x'"):
        p2pkm.read_table(twice, columns="x")


@pytest.mark.parametrize("names", [["a", "b"], ["weight, kg", "b"], ['say "a"', "b,c"], ["a"], ["größe <m>"]])
def test_names_in_text_are_those_of_the_list(names):
    assert split_list(join_names(names)) == split_list(names) == tuple(names)


def test_names_without_commas_are_written_as_before():
    assert split_list(" a, b ,,c") == ("a", "b", "c") and split_list("") == ()
    assert join_names(["a", "b c"]) == "a,b c"


def test_subclasses_are_frames_and_arrays_are_not():
    class Cohort(pd.DataFrame):
        pass

    assert is_frame(Cohort({"a": [1.0]})) and is_frame(polars.DataFrame()) and is_frame(arrow.table({"a": [1]}))
    assert not any(map(is_frame, (X, [1], "a", FRAME["x"], None, {"a": [1]})))
    assert list_columns(Cohort({1: [1.0]})).names == ["1"]
    assert p2pkm.read_table(Cohort({"a": [1.0, 2.0], "b": [0.5, 1.0]})).features == ("a", "b")


def test_the_content_of_a_frame_is_that_of_its_columns(kind):
    content = list_content(kind(PATIENTS[["dose", "ward"]]))
    assert content[0][0] == "dose" and content[0][1].tolist() == [1.5, 2.0, 2.5, 3.0]
    assert content[1][0] == "ward" and content[1][1][0] == "TurkuOuluTurkuOulu"
    assert content[1][1][1].tolist() == [5, 4, 5, 4]


def test_names_of_rows_that_are_not_used_are_noted():
    frame = pd.DataFrame({"Unnamed: 0": ["p", "q"], "a": [1.0, 2.0], "b": [3.0, 5.0]})
    table = p2pkm.read_table(frame)
    assert table.features == ("a", "b") and "'Unnamed: 0' is read as names of rows" in table.notes[0]
    assert p2pkm.read_table(frame, keep="Unnamed: 0").notes is None
    assert p2pkm.read_table(frame.assign(**{"Unnamed: 0": [0, 1]})).notes is None


@pytest.mark.parametrize("first", ["", "Unnamed: 0"])
def test_names_of_rows_in_a_text_file_are_noted_with_a_command_that_copies_them(tmp_path, first):
    path = tmp_path / "cars.csv"
    path.write_text(f"{first},x,y\nMazda RX4,1,2\nFiat 128,3,4\n")
    table = p2pkm.read_table(path)
    (note,) = table.notes
    assert table.features == ("x", "y") and "names of rows and not used" in note
    given = shlex.split(note.split("; ")[1])[1]
    (names,) = p2pkm.read_table(path, keep=given).copied.values()
    assert list(names) == ["Mazda RX4", "Fiat 128"]
    path.write_text(f"{first},x,y\n0,1,2\n1,3,4\n")
    assert p2pkm.read_table(path).notes is None
