"""Labels and devices: one definition of an identifier and of a missing one in every format and container."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas
import pytest

import p2pkm
from p2pkm.core.errors import DataError
from p2pkm.data.identifiers import MISSING, identify, locate, to_raw
from p2pkm.data.out_of_core.index import index_files
from p2pkm.data.out_of_core.shards import DiskShards
from p2pkm.data.partition.by_column import name_devices
from p2pkm.data.readers.any_format import read_table
from tests.support.each import each

polars = pytest.importorskip("polars")
arrow = pytest.importorskip("pyarrow")

CODES = {  # texts, and the distinct identifiers in order
    "decimals and zeros": (["250.00", "8", "250.0", "008"], ["008", "8", "250.0", "250.00"]),
    "19 digits": ([str(1577134800018164904 + i) for i in (2, 0, 1)], [1577134800018164904 + i for i in range(3)]),
    "exponents": (["100000", "1e5", "1E5", "1e05"], ["100000", "1E5", "1e05", "1e5"]),
    "leading zeros": (["0", "00", "1", "01"], ["0", "00", "01", "1"]),
    "above 2^53": (["9007199254740993", "9007199254740992"], [9007199254740992, 9007199254740993]),
    "above 2^63": (["9223372036854775808", "1"], ["1", "9223372036854775808"]),
    "far above": (["1" + "0" * 5000, "2"], ["2", "1" + "0" * 5000]),
    "signs": (["+1", "1", "-1", "-0"], ["-1", "-0", "+1", "1"]),
    "numbers": (["10", "9", "-3", "100"], [-3, 9, 10, 100]),
    "words": (["10", "nine", "9"], ["10", "9", "nine"]),
    "white space": ([" Turku", "Turku ", "\tOulu"], ["Oulu", "Turku"]),
    "truth": (["True", "false", "FALSE"], ["FALSE", "True", "false"]),
    "infinity": (["inf", "1", "2"], ["1", "2", "inf"]),
    "other digits": (["٣", "3", "1_0"], ["1_0", "3", "٣"]),
}


def values(found):
    return found.kinds.tolist(), [None if code < 0 else found.kinds[code] for code in found.codes]


@each("name", CODES)
def test_texts_are_text_unless_all_are_plain_integers_that_fit(name):
    texts, kinds = CODES[name]
    found, of_rows = values(identify(to_raw(texts, "ids")))
    assert found == kinds
    assert [str(one) for one in of_rows] == [text.strip() for text in texts]


TEXTS = ["b", "a", None, "b", "008"]
CONTAINERS = {
    "list": list,
    "object": lambda x: np.array(x, object),
    "series": pandas.Series,
    "string": lambda x: pandas.Series(x, dtype="string"),
    "pyarrow-backed": lambda x: pandas.Series(x, dtype="string[pyarrow]"),
    "categorical": lambda x: pandas.Categorical(x, categories=["z", "b", "unused", "a", "008"]),
    "index": pandas.Index,
    "polars": polars.Series,
    "polars categorical": lambda x: polars.Series(x, dtype=polars.Categorical),
    "arrow": arrow.array,
    "arrow large": lambda x: arrow.array(x, arrow.large_string()),
    "arrow view": lambda x: arrow.array(x, arrow.string_view()),
    "arrow dictionary": lambda x: arrow.array(x).dictionary_encode(),
    "arrow chunks": lambda x: arrow.chunked_array([x[:2], x[2:]]).dictionary_encode(),
    "arrow bytes": lambda x: arrow.array([one and one.encode() for one in x]),
    "bytes": lambda x: np.array([one and one.encode() for one in x], object),
    "masked": lambda x: np.ma.array([one or "?" for one in x], mask=[one is None for one in x]),
    "StringDType": lambda x: np.array([one or "" for one in x], np.dtypes.StringDType()),
}


@each("container", CONTAINERS)
def test_every_container_of_texts_gives_the_same(container):
    found = identify(to_raw(CONTAINERS[container](TEXTS), "ids"))
    assert values(found) == (["008", "a", "b"], ["b", "a", None, "b", "008"])


NUMBERS = [3, 0, None, 250, 3]
INTEGERS = {
    "list": list,
    "floats with NaN": lambda x: np.array([np.nan if one is None else one for one in x], np.float64),
    "float32 with NaN": lambda x: np.array([np.nan if one is None else one for one in x], np.float32),
    "objects and NaN": lambda x: np.array([np.nan if one is None else one for one in x], object),
    "an integer, floats and None": lambda x: [x[0], *(one if one is None else float(one) for one in x[1:])],
    "series": pandas.Series,
    **{kind: lambda x, kind=kind: pandas.Series(x, dtype=kind) for kind in ("Int16", "UInt64", "Float32", "category")},
    "polars": polars.Series,
    **{f"arrow {kind}": lambda x, kind=kind: arrow.array(x, kind) for kind in ("int16", "uint8", "uint64", "float64")},
    "arrow dictionary": lambda x: arrow.array(x).dictionary_encode(),
    "texts": lambda x: [one if one is None else str(one) for one in x],
}  # fmt: skip


@each("container", INTEGERS)
def test_every_container_of_whole_numbers_gives_the_same(container):
    found = identify(to_raw(INTEGERS[container](NUMBERS), "ids"))
    assert found.kinds.dtype == np.int64
    assert values(found) == ([0, 3, 250], [3, 0, None, 250, 3])


@each("kind", ["i1", "u1", ">i2", "<u4", "i8", "u8"])
def test_integers_of_any_width(kind):
    assert values(identify(to_raw(np.array([7, 100, 7], kind), "ids")))[0] == [7, 100]


def test_integers_above_those_of_64_bits_with_a_sign_are_text():
    kinds = identify(to_raw(np.array([2**63, 2**63 + 1], np.uint64), "ids")).kinds
    assert kinds.tolist() == ["9223372036854775808", "9223372036854775809"]


@each(
    ("column", "kinds"),
    [
        ([0.5, 2.0, 0.25], ["0.25", "0.5", "2.0"]),
        (np.array([0.1, 10], np.float32), ["0.1", "10.0"]),
        ([True, False, None], ["False", "True"]),
        (pandas.array([True, None], dtype="boolean"), ["True"]),
        (arrow.array([False, None, True]), ["False", "True"]),
        ([101, "A5", 205], ["101", "205", "A5"]),
        ([101, "101"], [101]),
        ([Decimal("1.50"), Decimal("1.5")], ["1.5", "1.50"]),
        ([datetime.date(2026, 1, 31), None], ["2026-01-31"]),
        (pandas.to_datetime(["2026-01-31", None, "1969-12-31"]), ["1969-12-31", "2026-01-31"]),
        (np.array(["2026-01-31", "NaT"], "M8[D]"), ["2026-01-31"]),
        (pandas.to_datetime(["2026-01-31 18:00"]), ["2026-01-31 18:00:00"]),
        (pandas.to_datetime(["2026-01-31 18:00"]).tz_localize("Asia/Tokyo"), ["2026-01-31 18:00:00+09:00"]),
        (np.array([b"T", b"O"]), ["O", "T"]),
        ([pandas.NA, pandas.NaT, np.nan, "x"], ["x"]),
        ([], []),
    ],
)
def test_other_values_are_their_text(column, kinds):
    assert identify(to_raw(column, "ids")).kinds.tolist() == kinds


@each("spelling", [*sorted(MISSING), "NA", " n/a ", "NaN", "None", "NULL", "<NA>"])
def test_what_is_missing(spelling):
    assert identify(to_raw(["a", spelling], "ids")).codes.tolist() == [0, -1]


@each(
    ("column", "said"),
    [
        ([[1], [2]], r"ids: shape is \(2, 1\)"),
        (np.array([1j]), "ids: dtype is complex128"),
        ([1577134800018164904.0, 3.0], r"row 0 \(counted from 0\) is 1.57.*at most 2\^53, above which floating-point"),
        ([1577134800018164904.0, None, 3.5, 2], None),
        ([{"a": 1}], "of type dict; expected integers or text"),
        (np.array([b"\xff", None], object), "which is not UTF-8"),
    ],
)
def test_what_cannot_be_an_identifier(column, said):
    if said is None:
        assert len(identify(to_raw(column, "ids")).kinds) == 3
        return
    with pytest.raises(DataError, match=said):
        to_raw(column, "ids")


def test_identifiers_are_found_again():
    kinds = identify(to_raw(["10", "9"], "ids")).kinds
    assert locate(to_raw([9, 11, 10], "ids"), kinds).tolist() == [0, -1, 1]
    assert locate(to_raw(["9", None], "ids"), kinds).tolist() == [0, -1]
    kinds = identify(to_raw(["7", "07"], "ids")).kinds
    assert locate(to_raw([7], "ids"), kinds).tolist() == [1]
    assert locate(to_raw([7], "ids"), np.empty(0, np.int64)).tolist() == [-1]


# Files

IDS = ["008", "8", "250.0", "8", None, "1e5"]
KNOWN = [i for i, one in enumerate(IDS) if one is not None]
FRAME = pandas.DataFrame({"x": np.arange(6.0), "id": IDS})


def _h5ad(path):
    anndata = pytest.importorskip("anndata")
    obs = FRAME[["id"]].set_index(FRAME.index.astype(str))
    anndata.AnnData(X=FRAME[["x"]].to_numpy(), obs=obs).write_h5ad(path)


WRITERS = {
    ".csv": lambda path: FRAME.to_csv(path, index=False),
    ".tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t", na_rep="NA"),
    ".parquet": lambda path: FRAME.to_parquet(path),
    ".feather": lambda path: FRAME.to_feather(path),
    ".arrow": lambda path: FRAME.assign(id=FRAME["id"].astype("category")).to_feather(path),
    ".h5ad": _h5ad,
    ".npz": lambda path: np.savez(path, X=FRAME[["x"]].to_numpy(), id=np.array([one or "" for one in IDS])),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("role", ["label_column", "device_column"])
@pytest.mark.sample(5)
def test_every_format_has_the_same_identifiers_and_the_same_missing_ones(tmp_path, suffix, role):
    WRITERS[suffix](path := tmp_path / f"t{suffix}")
    with pytest.raises(
        DataError, match=r"(row 4|line 6), (column 'id'|the (label|device)) is empty or missing, in 1 of 6"
    ):
        read_table(path, **{role: "id"})
    table = read_table(path, **{role: "id"}, missing="drop")
    assert table.points[:, 0].tolist() == table.rows.tolist() == KNOWN and table.total == 6
    if role == "label_column":
        assert table.labels.tolist() == [0, 1, 2, 1, 3] and table.classes == 4
    else:
        assert table.device.tolist() == [IDS[i] for i in KNOWN]
        assert name_devices(table.device) == ("008", "8", "250.0", "1e5")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_codes_of_a_folder_are_read_as_one_column(tmp_path, suffix):
    for i, codes in enumerate((["007", "101"], ["22", "101"])):
        frame = pandas.DataFrame({"x": [0.0, 1.0], "device": codes})
        frame.to_csv(tmp_path / f"{i}.csv", index=False) if suffix == ".csv" else frame.to_parquet(
            tmp_path / f"{i}.parquet"
        )
    table = read_table(tmp_path)
    assert table.device.tolist() == ["007", "101", "22", "101"]


def test_files_on_disk_have_the_same_identifiers(tmp_path):
    for i, codes in enumerate((["008", "8"], ["250.0", "8"])):
        frame = pandas.DataFrame({"x": [2.0 * i, 2 * i + 1], "site": codes, "label": ["b", None if i > 9 else "a"]})
        frame.to_parquet(tmp_path / f"{i}.parquet")
    stored = index_files(str(tmp_path), None, None, "site")
    assert (stored.owners.tolist(), stored.labels.tolist(), stored.device) == (["008", "8", "250.0"], ["a", "b"], 3)
    dealt = DiskShards.deal(stored, p2pkm.core.spec.Spec("column", {}), 3, "float64")
    for one in (dealt, DiskShards.from_mapping(json.loads(json.dumps(dealt.to_mapping())))):
        part = one.part(0, 3)
        assert part.points[:, 0].tolist() == [0, 1, 3, 2] and part.sizes.tolist() == [1, 2, 1]
        assert part.labels.tolist() == [1, 0, 0, 1]
    pandas.DataFrame({"x": [1.0], "site": ["NA"], "label": ["a"]}).to_parquet(tmp_path / "9.parquet")
    with pytest.raises(DataError, match=r"9\.parquet has a row without device"):
        index_files(str(tmp_path), None, None, "site")


def test_a_missing_value_is_the_same_in_features_and_in_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", X=[[1.0], [np.nan], [3.0]], y=[0, 1, 1])
    with pytest.raises(DataError, match="is nan at row 1, column 0"):
        read_table(tmp_path / "a.npz")
    table = read_table(tmp_path / "a.npz", missing="drop")
    assert table.points.tolist() == [[1], [3]] and table.rows.tolist() == [0, 2] and table.labels.tolist() == [0, 1]
    assert np.isnan(read_table(tmp_path / "a.npz", missing="mean").points[1, 0])


@pytest.mark.filterwarnings("ignore")
def test_a_nullable_truth_value_of_cells(tmp_path):
    anndata = pytest.importorskip("anndata")
    obs = pandas.DataFrame({"label": pandas.array([True, None, False], dtype="boolean")}, index=list("abc"))
    anndata.AnnData(np.eye(3), obs=obs).write_h5ad(tmp_path / "a.h5ad")
    with pytest.raises(DataError, match=r"a\.h5ad, row 1, column 'label' is empty or missing"):
        read_table(tmp_path / "a.h5ad")
    assert read_table(tmp_path / "a.h5ad", missing="drop").labels.tolist() == [1, 0]
