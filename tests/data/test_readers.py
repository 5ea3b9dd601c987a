"""LEAF, AnnData, Arrow, and folders of one file per device: what is read is what was written."""

import json
import sys
from itertools import product
from pathlib import Path

import networkx as nx
import numpy as np
import pandas
import pytest

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.data.partition import column
from p2pkm.data.readers import anndata as annotated
from p2pkm.data.readers import any_format as files
from p2pkm.data.readers.any_format import read_table
from p2pkm.data.size_estimate import has_header, measure
from p2pkm.data.sources import parse_source
from p2pkm.engine.run_options import RunOptions
from tests.support.prepare import prepare
from tests.support.run_cli import here, solve
from tests.support.sampling import thin

POINTS = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0], [8.0, 9.5]])


def _leaf(path, users, **more):
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    known = {"users": list(users), "num_samples": [len(x) for x, _ in users.values()], "user_data": data}
    path.write_text(json.dumps(known | more))
    return path


# LEAF


def test_a_user_of_leaf_is_a_device(tmp_path):
    path = _leaf(
        tmp_path / "all.json", {"f_b": ([[0, 1], [2, 3]], [7, 3]), "f_a": ([[4.0, 5.5]], [7]), "f_c": ([], [])}
    )
    table = read_table(path)
    np.testing.assert_array_equal(table.points, [[0, 1], [2, 3], [4, 5.5]])
    np.testing.assert_array_equal(table.labels, [1, 0, 1])
    np.testing.assert_array_equal(column(table.device), [1, 1, 0])
    assert table.classes == 2


@pytest.mark.parametrize("empty", ["a", "b", "c"])
@pytest.mark.sample(3)
def test_a_user_of_leaf_without_samples_is_a_device(tmp_path, monkeypatch, empty):
    monkeypatch.chdir(tmp_path)
    samples = {user: ([[i, j] for j in range(4)], [0, 1, 0, 1]) for i, user in enumerate("abc")}
    path = _leaf(tmp_path / "all.json", samples | {empty: ([], [])})
    table = read_table(path)
    assert table.owners.tolist() == list("abc")
    shards = p2pkm.Shards.deal(table.points, table.device, devices=table.owners, labels=table.labels)
    assert shards.names == ("a", "b", "c")
    assert shards.sizes.tolist() == [4 * (user != empty) for user in "abc"]
    assert measure(parse_source(str(path)), whole_file=True).devices == 3
    nx.write_edgelist(nx.path_graph(["b", "a", "c"]), "g.edges", data=False)
    said = here("--data", "all.json", "--graph", "file:g.edges", "-k", "2", "--out", "run", "--no-plot")
    assert said.code == 0 and f"1 of 3 devices are without points: {empty}" in said.out
    result = p2pkm.load("run")
    assert result.topology.names == ("a", "b", "c") and result.census.sizes.tolist() == shards.sizes.tolist()
    assert here("verify", "run").code == 0


def test_users_of_leaf_without_samples_in_other_files_and_alone(tmp_path):
    _leaf(tmp_path / "part-1.json", {"u": ([], []), "v": ([[1.0]], ["a"])})
    _leaf(tmp_path / "part-2.json", {"w": ([], [])})
    _leaf(tmp_path / "part-3.json", {"v": ([[2.0]], ["b"])})
    table = read_table(tmp_path)
    assert (table.device.tolist(), table.owners.tolist(), table.labels.tolist()) == (
        ["v", "v"],
        ["u", "v", "w"],
        [0, 1],
    )
    with pytest.raises(DataError, match=r"part-2\.json has 0 points"):
        read_table(tmp_path / "part-2.json")


def test_nested_points_are_laid_end_to_end_and_labels_may_be_absent(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"user_data": {"u": {"x": [[[1, 2], [3, 4]]]}, "v": {"x": [[[5, 6], [7, 8]]]}}}))
    table = read_table(path)
    np.testing.assert_array_equal(table.points, [[1, 2, 3, 4], [5, 6, 7, 8]])
    assert table.labels is None


def test_a_user_in_two_files_of_leaf_is_one_device(tmp_path):
    _leaf(tmp_path / "part-2.json", {"u": ([[3.0]], ["b"])})
    _leaf(tmp_path / "part-10.json", {"u": ([[4.0]], ["c"]), "t": ([[5.0]], ["b"])})
    _leaf(tmp_path / "part-1.json", {"v": ([[1.0], [2.0]], ["a", "b"])})
    table = read_table(tmp_path)
    np.testing.assert_array_equal(table.points[:, 0], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(table.labels, [0, 1, 1, 2, 1])
    np.testing.assert_array_equal(column(table.device), [2, 2, 1, 1, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is not LEAF's JSON; expected"),
        ('{"user_data": []}', "is not LEAF's JSON; expected"),
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"users": ["a"], "user_data": {}}', "expected user 'a' once in users and once in user_data"),
        ('{"users": [], "user_data": {"a": {}}}', "expected user 'a' once"),
        ('{"users": ["a", "a", "b"], "user_data": {"a": {}, "b": {}}}', "expected user 'a' once"),
        ('{"users": [1], "user_data": {"1": {}}}', "users is not a list of names"),
        ('{"users": ["a"], "num_samples": [], "user_data": {"a": {}}}', "num_samples is not a list of 1 numbers"),
        ('{"num_samples": [2], "user_data": {"a": {"x": [[1]]}}}', "user 'a': num_samples is 2; expected 1"),
        ('{"user_data": {"a": 3}}', "user 'a': x is missing or not a list"),
        ('{"user_data": {"a": {"x": []}}}', "has 0 points"),
        ('{"user_data": {"a": {"x": [[1], [2]], "y": [0]}}}', "user 'a': y is not a list of 2 labels"),
        (
            '{"user_data": {"a": {"x": [[1, 2], [3]]}}}',
            "row 1 of x (counted from 0) has shape (1,); expected (2,), as the first row",
        ),
        (
            '{"user_data": {"a": {"x": [[1], ["red"]]}}}',
            "row 1 of x (counted from 0) is ['red']; expected a list of finite numbers",
        ),
        (
            '{"user_data": {"a": {"x": [[1], [NaN]]}}}',
            "(counted from 0) is [nan]; expected a list of finite numbers",
        ),
        ('{"user_data": {"a": {"x": ["img.png"]}}}', "is 'img.png'; expected a list of finite numbers"),
        ('{"user_data": {"a": {"x": [[1]], "y": [[1]]}}}', "y is [[1]]; expected only numbers or only names"),
        ('{"user_data": {"a": {"x": [[1], [2]], "y": [1, "b"]}}}', "y is [1, 'b']"),
        ('{"user_data": {"a": {"x": [[1]]}, "b": {"x": [[1, 2]]}}}', "user 'b' has 2 features, but"),
        ('{"user_data": {"a": {"x": [[1]], "y": [0]}, "b": {"x": [[1]]}}}', "user 'b' has nothing as label"),
        ('{"user_data": {"a": {"x": [[1]], "y": [0]}, "b": {"x": [[1]], "y": ["c"]}}}', "has text as label"),
    ],
)
def test_other_forms_of_json(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


def test_leaf_has_no_columns_to_name_and_a_limit(tmp_path, monkeypatch):
    path = _leaf(tmp_path / "a.json", {"u": ([[3.0]], [0])})
    with pytest.raises(DataError, match="cannot be combined with LEAF's JSON"):
        read_table(path, device_column="u")
    monkeypatch.setattr("p2pkm.data.readers.leaf.LARGEST", 10)
    with pytest.raises(DataError, match=r"bytes; expected at most 10\. Divide it into several files"):
        read_table(path)


# AnnData


@pytest.fixture
def cells(tmp_path):
    """Return a writer of five cells, with X as it is given."""
    anndata = pytest.importorskip("anndata")

    def make(matrix, name="cells.h5ad", **more):
        obs = pandas.DataFrame(
            {"site": pandas.Categorical(list("bbaca")), "cell_type": list("TBTTB"), "batch": [0, 0, 1, 2, 1]},
            index=[f"cell{i}" for i in range(5)],
        )
        data = anndata.AnnData(X=matrix, obs=obs, **more)
        data.write_h5ad(tmp_path / name)
        return str(tmp_path / name)

    return make


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["array", "csr_matrix", "csc_matrix"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.sample(3)
def test_cells_by_site(cells, form, dtype):
    from scipy import sparse

    matrix = np.array([[0, 1, 0], [2, 0, 0], [0, 0, 3], [0, 0, 0], [4, 5, 6]], dtype)
    path = cells(matrix if form == "array" else getattr(sparse, form)(matrix))
    table = read_table(path, label_column="cell_type", device_column="site")
    np.testing.assert_array_equal(table.points, matrix)
    assert table.points.dtype == (np.float32 if dtype == "float32" else np.float64)
    np.testing.assert_array_equal(table.labels, [1, 0, 1, 1, 0])
    np.testing.assert_array_equal(column(table.device), [1, 1, 0, 2, 0])
    assert read_table(path).device is None
    np.testing.assert_array_equal(read_table(path, device_column=2).device, [0, 0, 1, 2, 1])


@pytest.mark.filterwarnings("ignore")
def test_other_matrices_of_the_cells(cells):
    path = cells(np.zeros((5, 3)), obsm={"X_pca": POINTS}, layers={"counts": np.ones((5, 3))})
    np.testing.assert_array_equal(read_table(f"{path}:obsm:X_pca").points, POINTS)
    np.testing.assert_array_equal(read_table(f"{path}:layers:counts").points, np.ones((5, 3)))
    with pytest.raises(
        DataError,
        match=r"cells.h5ad: matrix 'obsm:X_umap' does not exist; expected one of 'X', 'layers:counts', 'obsm:X_pca'",
    ):
        read_table(f"{path}:obsm:X_umap")
    with pytest.raises(DataError, match="matrix 'obs:site' does not exist"):
        read_table(f"{path}:obs:site")
    with pytest.raises(DataError, match="obs: device_column is 'place'; expected one of the columns 'site'"):
        read_table(path, device_column="place")
    with pytest.raises(DataError, match="column 'site' is both label and device"):
        read_table(path, device_column="site", label_column="site")
    found = solve("--data", f"{path}:obsm:X_pca", "--device-column", "site", "--devices", "3", "-k", "2")
    assert (found["devices"], found["data"]) == (3, f"file:{path}:obsm:X_pca")


@pytest.mark.filterwarnings("ignore")
def test_what_a_sparse_matrix_says_twice_is_added_up_and_its_columns_need_no_names(cells):
    from scipy import sparse

    twice = sparse.csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 3, 3, 3, 3])), (5, 2))
    path = cells(twice, obsm={"X_pca": sparse.csr_matrix(POINTS), "X_umap": POINTS})
    np.testing.assert_array_equal(read_table(path).points, [[0, 3], [4, 0], [0, 0], [0, 0], [0, 0]])
    parts = ("", ":obsm:X_pca", ":obsm:X_umap")
    found = [annotated.read_annotated(Path(f"{path}{part}"), None, None) for part in parts]
    assert [one.names for one in found] == [("0", "1"), (), ()]
    for one in found[1:]:
        np.testing.assert_array_equal(one.points, POINTS)


@pytest.mark.filterwarnings("ignore")
def test_several_files_of_cells_must_have_the_same_genes(cells, tmp_path):
    genes = [pandas.DataFrame(index=list(names)) for names in ("xyz", "xyz", "xzy")]
    for number in (0, 1):
        cells(np.full((5, 3), float(number)), f"site-{number}.h5ad", var=genes[number])
    table = read_table(tmp_path, label_column="cell_type")
    np.testing.assert_array_equal(table.device, [0] * 5 + [1] * 5)
    assert len(table.labels) == 10
    cells(np.zeros((5, 3)), "site-2.h5ad", var=genes[2])
    with pytest.raises(DataError, match="expected the same features in the same order"):
        read_table(tmp_path)


@pytest.mark.parametrize(("role", "names"), [("y", "label"), ("device", "device")])
def test_a_label_or_device_that_is_missing_is_sought_in_one_of_many_files(tmp_path, role, names):
    for i, last in enumerate((1.0, 1.0, np.nan)):
        np.savez(tmp_path / f"{i}.npz", X=POINTS[:2], **{role: np.array([0.0, last])})
    with pytest.raises(DataError, match=rf"2\.npz, row 1, the {names} is empty or missing"):
        read_table(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_sparse_cells_that_are_too_many_or_damaged(cells, monkeypatch):
    from scipy import sparse

    h5py = pytest.importorskip("h5py")
    path = cells(sparse.csr_matrix(np.eye(5, 6)), obsm={"X_pca": POINTS})
    monkeypatch.setattr(annotated, "DENSE", 239)
    with pytest.raises(DataError, match=r"5 x 6, and its dense form has 240 bytes; .* at most 239.*obsm:X_pca"):
        read_table(path)
    monkeypatch.undo()
    for name, at, wrong in (
        ("indices", 2, 6), ("indices", 0, -1), ("indptr", 0, 1), ("indptr", 1, 4), ("indptr", 5, 4)
    ):  # fmt: skip
        with h5py.File(path, "r+") as file:
            right = file["X"][name][at]
            file["X"][name][at] = wrong
        with pytest.raises(DataError, match=r"sparse and damaged: its indices do not fit the shape \(5, 6\)"):
            read_table(path)
        with h5py.File(path, "r+") as file:
            file["X"][name][at] = right
    with h5py.File(path, "r+") as file:
        file["X"].attrs["shape"] = [10**9, 10**9]
    with pytest.raises(DataError, match="its dense form has"):
        read_table(path)
    with h5py.File(path, "r+") as file:
        del file["X"]
    with pytest.raises(DataError, match="matrix 'X' does not exist; expected one of 'obsm:X_pca'"):
        read_table(path)


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_cells_that_is_cut_short(cells, tmp_path):
    content = Path(cells(POINTS)).read_bytes()
    for share in (0.1, 0.5, 0.9):
        (tmp_path / "cut.h5ad").write_bytes(content[: int(share * len(content))])
        with pytest.raises(DataError, match=r"cut\.h5ad cannot be read as AnnData"):
            read_table(tmp_path / "cut.h5ad")


def test_what_is_no_anndata(tmp_path, monkeypatch):
    pytest.importorskip("anndata")
    path = tmp_path / "a.h5ad"
    path.write_text("nothing")
    with pytest.raises(DataError, match=r"a\.h5ad contains text; .* Rename"):
        read_table(path)
    with pytest.raises(DataError, match=r"data file .*b.h5ad does not exist"):
        read_table(f"{tmp_path}/b.h5ad:obsm:X_pca")
    path.write_bytes(b"\x89HDF")
    monkeypatch.setitem(sys.modules, "anndata", None)
    monkeypatch.setitem(sys.modules, "anndata.io", None)
    with pytest.raises(
        DataError, match=r"requires anndata, which is not installed. Run pip install 'p2pkm\[anndata\]'"
    ):
        read_table(path)


# Arrow


def _write_arrow(path, kind, table):
    import pyarrow
    from pyarrow import feather, ipc, parquet

    if kind == "feather":
        feather.write_feather(table, path, compression="zstd")
    elif kind == "parquet":
        parquet.write_table(table, path)
    else:
        new = ipc.new_file if kind == "file" else ipc.new_stream
        with pyarrow.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)


@pytest.mark.parametrize("kind", ["file", "stream", "feather", "parquet"])
@pytest.mark.sample(3)
def test_arrow_with_a_column_of_devices(tmp_path, kind):
    arrow = pytest.importorskip("pyarrow")
    suffix = {"file": ".arrow", "stream": ".ipc"}.get(kind, f".{kind}")
    path = tmp_path / f"a{suffix}"
    site = arrow.array(list("bbaca")).dictionary_encode()
    columns = {"x": POINTS[:, 0], "site": site, "y": POINTS[:, 1].astype("f4"), "label": [1, 0, 0, 2, 1]}
    _write_arrow(path, kind, arrow.table(columns | {"__index_level_0__": range(5)}))
    table = read_table(path, device_column="site")
    np.testing.assert_array_equal(table.points, POINTS)
    np.testing.assert_array_equal(table.labels, [1, 0, 0, 2, 1])
    np.testing.assert_array_equal(column(table.device), [1, 1, 0, 2, 0])
    found = solve("--data", path, "--device-column", "site", "--devices", "3", "-k", "2")
    assert (found["devices"], found["partition"]) == (3, "column:minimum=0,seed=0")


def test_arrow_that_cannot_be_used(tmp_path, monkeypatch):
    arrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.arrow"
    _write_arrow(path, "file", arrow.table({"x": [1.0, None]}))
    with pytest.raises(
        DataError, match=r"row 1, column 'x' is empty, in 1 of 2 rows; expected a value\. Use missing='drop'"
    ):
        read_table(path)
    _write_arrow(path, "file", arrow.table({"x": ["red"]}))
    with pytest.raises(DataError, match="row 0, column 'x' is 'red'; expected a number"):
        read_table(path)
    _write_arrow(path, "file", arrow.table({"x": arrow.array([], arrow.float64())}))
    with pytest.raises(DataError, match="has 0 rows"):
        read_table(path)
    for content in (b"", b"nonsense", b"ARROW1 and no more"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cannot be read as Arrow|has 0 rows|contains text; .* Rename"):
            read_table(path)
    _write_arrow(path, "file", arrow.table({"x": [1.0], "label": ["name"]}))
    for word in (b"label", b"name"):
        good = path.read_bytes()
        path.write_bytes(good.replace(word, b"\xc4" + word[1:]))
        with pytest.raises(DataError, match=r"cannot be read as Arrow: .*(UTF|utf)"):
            read_table(path)
        path.write_bytes(good)
    path.write_bytes(b"FEA1....")
    with pytest.raises(DataError, match="Feather file of version 1; expected version 2"):
        read_table(path)
    _write_arrow(path, "feather", arrow.table({"x": np.zeros(100_000)}))
    monkeypatch.setattr("p2pkm.data.readers.npy._USUAL", 10_000)
    with pytest.raises(DataError, match="decompresses to 524288 bytes; expected at most 200 times its size of"):
        read_table(path)
    monkeypatch.setattr("p2pkm.data.readers.npy._USUAL", 600_000)
    with pytest.raises(DataError, match="decompresses to 800000 bytes"):  # in two batches
        read_table(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.ipc", None)
    with pytest.raises(
        DataError, match=r"requires pyarrow, which is not installed. Run pip install 'p2pkm\[parquet\]'"
    ):
        read_table(path)


# Folders


def _write(path, points, labels=None):
    if path.suffix in {".csv", ".tsv"}:
        mark = {".csv": ",", ".tsv": "\t"}[path.suffix]
        head = ["x", "y"] + (["label"] if labels else [])
        rows = [[*map(str, point), *([labels[i]] if labels else [])] for i, point in enumerate(points.tolist())]
        path.write_text("\n".join(mark.join(row) for row in [head, *rows]) + "\n")
    elif path.suffix == ".npz":
        np.savez(path, X=points, **({"y": labels} if labels else {}))
    else:
        np.save(path, points)


@pytest.mark.parametrize(
    ("as_pattern", "labels", "suffix"), thin(product([False, True], [None, "abcab"], [".csv", ".tsv", ".npz"]), 5)
)
@pytest.mark.sample(3)
def test_each_file_of_a_folder_is_a_device(tmp_path, suffix, labels, as_pattern):
    for number, rows in ((10, slice(3, 5)), (2, slice(1, 3)), (1, slice(0, 1))):
        _write(tmp_path / f"site-{number}{suffix}", POINTS[rows], labels and list(labels[rows]))
    (tmp_path / "README.txt").write_text("what this is")
    (tmp_path / ".hidden.npy").write_text("")
    table = read_table(f"{tmp_path}/*{suffix}" if as_pattern else tmp_path)
    np.testing.assert_array_equal(table.points, POINTS)
    np.testing.assert_array_equal(table.device, [0, 1, 1, 2, 2])
    if labels:
        np.testing.assert_array_equal(table.labels, [0, 1, 2, 0, 1])
    else:
        assert table.labels is None
    found = solve("--data", f"{tmp_path}/", "--devices", "3", "-k", "2")
    assert (found["devices"], found["partition"]) == (3, "column:minimum=0,seed=0")
    spec = parse_source(f"{tmp_path}/")
    assert measure(spec).devices == 3 and not has_header(spec)


def _write_site(path, rows):
    frame = pandas.DataFrame({"x": np.arange(3.0) + 9, "y": np.arange(3.0) * 7 % 5, "label": list("aba")})[:rows]
    if path.suffix in {".csv", ".tsv"}:
        frame.to_csv(path, index=False, sep="," if path.suffix == ".csv" else "\t")
    elif path.suffix == ".feather":
        frame.to_feather(path)
    else:
        np.savez(path, X=frame[["x", "y"]].to_numpy(), y=frame["label"].to_numpy().astype("U1"))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npz", ".feather"])
@pytest.mark.parametrize("empty", [0, 1, 2])
@pytest.mark.sample(5)
def test_a_file_without_points_is_a_device(tmp_path, suffix, empty):
    for i, name in enumerate(("Bern", "Lund", "Oulu")):
        _write_site(tmp_path / f"{name}{suffix}", 0 if i == empty else 3)
    table = read_table(tmp_path)
    assert table.names == ("Bern", "Lund", "Oulu") and table.owners.tolist() == [0, 1, 2]
    prepared = prepare(RunOptions(data=f"{tmp_path}/", clusters=2), None)
    assert prepared.points.sizes.tolist() == [3 * (i != empty) for i in range(3)]
    assert prepared.topology.names == table.names
    assert f"1 of 3 devices are without points: {table.names[empty]}" in prepared.notes
    with pytest.raises(DataError, match=r"has a header and no points|has shape|has 0 rows"):
        read_table(tmp_path / f"{table.names[empty]}{suffix}")


@pytest.mark.parametrize("encode", [(), ("ward",)])
def test_a_file_without_points_must_have_the_same_columns(tmp_path, encode):
    (tmp_path / "a.csv").write_text("x,ward\n1,2026-01-31\n2,2026-02-01\n" if encode else "x,ward\n1,2\n3,4\n")
    (tmp_path / "b.csv").write_text("x,ward\n")
    assert read_table(tmp_path, encode=encode).owners.tolist() == [0, 1]
    (tmp_path / "b.csv").write_text("x,age\n")
    with pytest.raises(DataError, match=r"b\.csv has the features 'age', but|encode is 'ward'"):
        read_table(tmp_path, encode=encode)
    (tmp_path / "b.csv").write_text("")
    with pytest.raises(DataError, match=r"b\.csv is empty"):
        read_table(tmp_path, encode=encode)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".h5ad"])
@pytest.mark.filterwarnings("ignore")
def test_a_device_whose_rows_are_all_left_out_is_a_device(tmp_path, suffix):
    frame = pandas.DataFrame({"x": [1.0, np.nan, 3.0], "device": ["Turku", "Bern", "Oulu"]})
    path = tmp_path / f"t{suffix}"
    if suffix == ".h5ad":
        cells = pytest.importorskip("anndata").AnnData(X=frame[["x"]].to_numpy(), obs=frame[["device"]])
        cells.write_h5ad(path)
    else:
        frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    table = read_table(path, missing="drop")
    assert table.device.tolist() == ["Turku", "Oulu"] and table.owners.tolist() == ["Bern", "Oulu", "Turku"]
    prepared = prepare(RunOptions(data=str(path), missing="drop", clusters=1), None)
    assert prepared.points.sizes.tolist() == [0, 1, 1] and prepared.topology.names == ("Bern", "Oulu", "Turku")
    assert prepared.notes[-1] == "1 of 3 devices are without points: Bern"


def test_a_folder_of_arrays_stays_on_disk(tmp_path):
    for number in (2, 10, 1):
        np.save(tmp_path / f"part-{number}.npy", np.full((number, 2), float(number)))
    spec = parse_source(f"{tmp_path}/")
    assert measure(spec).stored and measure(spec).devices == 3 and has_header(spec)
    prepared = prepare(RunOptions(data=f"{tmp_path}/", clusters=2), None)
    np.testing.assert_array_equal(prepared.points.part(0, 3).sizes, [1, 2, 10])
    np.testing.assert_array_equal(prepared.points.part(1, 2).points, np.full((2, 2), 2.0))
    np.testing.assert_array_equal(read_table(tmp_path).device, np.repeat([0, 1, 2], [1, 2, 10]))


def test_a_file_whose_name_is_like_a_pattern_is_one_file(tmp_path):
    for name, value in (("a[1].csv", 5), ("a1.csv", 7)):
        (tmp_path / name).write_text(f"x\n{value}\n")
    table = read_table(tmp_path / "a[1].csv")
    assert (table.points.tolist(), table.device) == ([[5.0]], None)


def test_files_may_name_their_devices_themselves(tmp_path):
    (tmp_path / "monday.csv").write_text("x,client\n1,d1\n2,d0\n")
    (tmp_path / "tuesday.csv").write_text("x,client\n3,d1\n")
    np.testing.assert_array_equal(column(read_table(tmp_path).device), [1, 0, 1])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("b.csv", "x,y,label\n1,2,a\n", "b.csv has 2 features, but .*a.csv has 1"),
        ("b.csv", "y,label\n1,a\n", "b.csv has the features 'y', but .*a.csv has 'x'"),
        ("b.csv", "x\n1\n", "b.csv has nothing as label, but .*a.csv has text"),
        ("b.csv", "x,label\n1,3\n", "b.csv has numbers as label, but .*a.csv has text"),
        ("b.csv", "x,label,client\n1,a,0\n", "b.csv has numbers as device, but .*a.csv has nothing"),
        ("b.csv", "x,label\n1,a\nred,b\n", "b.csv, line 3, column 'x' is 'red'"),
        ("b.csv", "", "b.csv is empty"),
        ("b.tsv", "x\tlabel\n1\ta\n", r"files of several kinds: '.csv', '.tsv'; expected one kind. Use a pattern"),
    ],
)
def test_a_file_that_is_not_like_the_others(tmp_path, name, text, message):
    (tmp_path / "a.csv").write_text("x,label\n1,a\n2,b\n")
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path)


def test_folders_with_nothing_or_too_much(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="is a folder without data files; expected one file per device"):
        read_table(tmp_path)
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("x\n1\n2\n")
    monkeypatch.setattr(files, "LARGEST", 31)
    with pytest.raises(DataError, match=r"up to .*b.csv contain 32 bytes; expected at most 31"):
        read_table(tmp_path)


def test_a_path_is_known_by_its_separator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites").mkdir()
    assert parse_source("sites/") == ("file", {"path": "sites/"})
    assert parse_source("data/sites") == ("file", {"path": "data/sites"})
    assert parse_source("cells.h5ad:obsm:X_pca") == ("file", {"path": "cells.h5ad:obsm:X_pca"})
    with pytest.raises(
        ExperimentError, match=r"unknown data 'sites'.*To read the files in the folder 'sites', use data='sites/'"
    ):
        parse_source("sites")
    assert here("--data", "data/sites", "--no-plot").code == 3


def test_scripts_read_tables(tmp_path):
    (tmp_path / "a.csv").write_text("x,site,kind\n1,s,u\n2,t,v\n9,s,v\n")
    table = p2pkm.read_table(tmp_path / "a.csv", label_column="kind", device_column="site")
    shards = p2pkm.Shards.deal(table.points, p2pkm.partition.column(table.device), labels=table.labels)
    np.testing.assert_array_equal(shards.sizes, [2, 1])


def test_files_of_images_have_one_shape(tmp_path):
    for name, shape in {"a": (8, 6), "b": (8, 6), "c": (6, 8)}.items():
        np.savez(tmp_path / f"{name}.npz", images=np.ones((3, *shape)))
    assert read_table(tmp_path / "[ab].npz").image == (8, 6)
    with pytest.raises(DataError, match=r"c\.npz has images of shape 6x8, but .*b\.npz has shape 8x6"):
        read_table(tmp_path / "[bc].npz")


def test_images_in_an_archive_become_points(tmp_path):
    pixels = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    np.savez(tmp_path / "a.npz", images=pixels, labels=[[7], [5]])  # labels as a column, as Keras has them
    table = read_table(tmp_path / "a.npz")
    np.testing.assert_allclose(table.points, pixels.reshape(2, 36) / 255.0, rtol=1e-6)
    np.testing.assert_array_equal(table.labels, [1, 0])
    spec = parse_source(str(tmp_path / "a.npz"))
    assert measure(spec)[:2] == (2, 36) and measure(spec).labeled
    assert table.image == measure(spec).image == (3, 4, 3)
    cut = read_table(tmp_path / "a.npz", device_column="0")  # the first pixel: the rest is no image
    assert cut.points.shape == (2, 35) and cut.image is measure(spec, device_column="0").image is None
    np.savez(tmp_path / "b.npz", anything=np.full((4, 5, 5), 3.0))  # not of uint8: as they are
    np.testing.assert_array_equal(read_table(tmp_path / "b.npz").points, np.full((4, 25), 3.0))
    sizes = np.empty(2, object)
    sizes[:] = [np.zeros((2, 2)), np.zeros((3, 3))]
    np.savez(tmp_path / "c.npz", images=sizes)
    with pytest.raises(DataError, match="resize images to one size first"):
        read_table(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", one=np.zeros((2, 2)), two=np.zeros((3, 3)))
    with pytest.raises(DataError, match="images of one size"):
        read_table(tmp_path / "d.npz")
    np.savez(tmp_path / "e.npz", images=np.zeros((0, 2, 2)))
    with pytest.raises(DataError, match="at least one"):
        read_table(tmp_path / "e.npz")
