"""Points on disk: each rank reads its own rows, and the bits are those of the same points in one array."""

import contextlib
import json
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from p2pkm.core.errors import DataError, P2PKMError
from p2pkm.core.spec import Spec
from p2pkm.data.describe_table import describe_table
from p2pkm.data.out_of_core.formats import Header
from p2pkm.data.out_of_core.index import FileIndex, index_files
from p2pkm.data.out_of_core.shards import DiskShards
from p2pkm.data.partition import PARTITIONS
from p2pkm.data.readers.any_format import read_table
from p2pkm.data.readers.folder import match_pattern
from p2pkm.data.shards import Shards
from p2pkm.data.table import Table
from p2pkm.engine.run_options import RunOptions
from tests.support.prepare import prepare
from tests.support.run_cli import here, ranks, solve, there
from tests.support.sampling import thin

FEW = ("--rounds", "4", "-k", "3", "--no-plot", "--out", "none", "--format", "json", "-q")


def write(folder, sizes, *, labeled=True, dtype=np.float64):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(sum(sizes), 2)).astype(dtype), rng.choice([2, 5, 7], sum(sizes))
    ends = np.cumsum(sizes)[:-1]
    for i, (part, labels) in enumerate(zip(np.split(X, ends), np.split(y, ends), strict=True)):
        np.save(folder / f"part-{i}.npy", part)
        if labeled:
            np.save(folder / f"part-{i}.labels.npy", labels)
    return X, y, np.repeat(np.arange(len(sizes)), sizes)


def opened(path, partition, n, dtype="float64") -> DiskShards:
    stored = index_files(str(path), partition, None, None)
    assert stored is not None
    return DiskShards.deal(stored, partition, n, dtype)


def same(one: Shards, other: Shards) -> None:
    assert one.points.dtype == other.points.dtype
    for name in ("points", "offsets", "weights", "rows"):
        assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.labels is None) == (other.labels is None)
    if one.labels is not None:
        assert_array_equal(one.labels, other.labels)


@pytest.mark.parametrize(
    ("name", "minimum"), thin(product(["blocks", "column", "iid", "quantity", "dirichlet", "by-label"], [0, 1]), 3)
)
@pytest.mark.sample(3)
def test_a_part_is_what_dealing_the_whole_gives_these_devices(tmp_path, monkeypatch, name, minimum):
    monkeypatch.setattr("p2pkm.core.sorting._BLOCK", 14)  # several pieces per file
    sizes = [9, 4, 20, 1, 13, 7, 6, 8, 5, 3, 11, 2]
    X, y, file = write(tmp_path, sizes)
    n = len(sizes) if name == "column" else 5
    owner = PARTITIONS[name](Table(X, y, 3, file), n, minimum=minimum, seed=4)
    whole = Shards.deal(X, owner, devices=n, labels=y)
    dealt = opened(tmp_path / "part-*.npy", Spec(name, {"minimum": minimum, "seed": 4}), n)
    assert (dealt.n, dealt.m, dealt.d, dealt.stored.classes) == (n, len(X), 2, 3)
    for first, last in ((0, n), (0, 2), (2, 3), (3, n), (2, 2)):
        same(dealt.part(first, last), whole.take(np.arange(first, last)) if last > first else whole.take([]))
    again = DiskShards.from_mapping(json.loads(json.dumps(dealt.with_hub().to_mapping())))
    assert again.n == n + 1
    same(again.part(1, n + 1), whole.with_hub().part(1, n + 1))


def test_files_are_sorted_as_people_count_and_companions_are_no_points(tmp_path):
    write(tmp_path, [1] * 12)
    names = [path.rsplit("-", 1)[1] for path in match_pattern(str(tmp_path / "part-*.npy"))]
    assert names == [f"{i}.npy" for i in range(12)]


def test_a_file_without_rows_is_a_device_without_points(tmp_path):
    X, _, _ = write(tmp_path, [3, 0, 2], labeled=False)
    part = opened(tmp_path / "part-*.npy", Spec("column", {}), 3).part(0, 3)
    assert_array_equal(part.sizes, [3, 0, 2])
    assert_array_equal(part.points, X)
    assert part.labels is None


def test_float32_files_stay_float32_and_are_widened_exactly(tmp_path):
    X, _, _ = write(tmp_path, [5, 6], dtype=np.float32)
    for dtype in ("float32", "float64"):
        points = opened(tmp_path / "part-*.npy", Spec("column", {}), 2, dtype).part(0, 2).points
        assert points.dtype == dtype
        assert_array_equal(points, X)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: np.where(np.arange(10).reshape(5, 2) == 7, np.nan, x), "is nan at row 3, column 1"),
        (lambda x: np.where(np.arange(10).reshape(5, 2) == 0, -np.inf, x), "is -inf at row 0, column 0"),
        (lambda x: x[:, :1], "has 1 features, labels and no column of devices, but .* has 2 features"),
        (lambda x: x[:, 0], r"has shape \(5,\); expected"),
        (lambda x: x.astype(object), "without pickles"),
        (lambda x: x.astype("U3"), "has dtype <U3; expected real numbers"),
        (lambda x: x[:4], r"labels.npy has shape \(5,\) .* expected \(4,\) and integers"),
        (lambda x: x * 1e200, "reach .*e[+]200, whose squares overflow"),
    ],
)
def test_a_wrong_shard_is_named(tmp_path, spoil, message):
    X, _, _ = write(tmp_path, [5, 5, 5])
    np.save(tmp_path / "part-1.npy", spoil(X[5:10]))
    with pytest.raises(DataError, match=f"part-1.*{message}"):
        opened(tmp_path / "part-*.npy", Spec("column", {}), 3).part(0, 3)


def test_what_float32_cannot_hold_is_named_with_its_row(tmp_path):
    X, _, _ = write(tmp_path, [5, 5])
    X[8, 0] = 1e60
    np.save(tmp_path / "part-1.npy", X[5:])
    for partition in (Spec("column", {}), Spec("iid", {"seed": 1})):
        with pytest.raises(DataError, match=r"part-1.npy is 1e\+60 at row 3, column 0 .* float32 cannot hold"):
            opened(tmp_path / "part-*.npy", partition, 2, "float32").part(0, 2)


def test_a_cut_file_or_none_and_partitions_that_look_at_points(tmp_path):
    write(tmp_path, [50, 50])
    with pytest.raises(DataError, match="partition='beta' cannot be combined with points that stay on disk"):
        opened(tmp_path / "part-*.npy", Spec("beta", {}), 2)
    with pytest.raises(DataError, match="the files name 2 devices; expected 3"):
        opened(tmp_path / "part-*.npy", Spec("column", {}), 3)
    with open(tmp_path / "part-1.npy", "r+b") as file:
        file.truncate(300)
    with pytest.raises(DataError, match=r"part-1.npy cannot be read"):
        index_files(str(tmp_path / "part-*.npy"), None, None, None)
    with pytest.raises(DataError, match=r"no file matches .*part-\*\.npz"):
        match_pattern(str(tmp_path / "part-*.npz"))


def test_one_file_in_blocks_is_the_same_as_read_as_a_whole(tmp_path):
    X, _, _ = write(tmp_path, [23, 20], labeled=False)
    np.save(tmp_path / "all.npy", X)
    dealt = opened(tmp_path / "all.npy", Spec("blocks", {}), 4)
    same(dealt.part(0, 4), Shards.deal(X, PARTITIONS["blocks"](Table(X), 4), devices=4))
    assert index_files(str(tmp_path / "all.npy"), Spec("iid", {}), None, None) is None
    assert index_files(str(tmp_path / "all.csv"), None, None, None) is None


@pytest.mark.parametrize("count", [1, 3])
def test_points_of_other_row_groups_stay_unread(tmp_path, monkeypatch, count):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from p2pkm.data.out_of_core import formats

    rng = np.random.default_rng(0)
    X, y, owner = rng.normal(size=(60, 2)), rng.integers(0, 3, 60), np.sort(rng.permutation(np.arange(60) % 6))
    owner[[10, 19]] = owner[[19, 10]]
    for i, rows in enumerate(np.array_split(np.arange(60), count)):
        columns = {"x": X[rows, 0], "device": owner[rows], "label": y[rows], "y": X[rows, 1]}
        parquet.write_table(arrow.table(columns), tmp_path / f"{i}.parquet", 10)
    path = tmp_path / ("0.parquet" if count == 1 else "*.parquet")
    dealt, whole = opened(path, Spec("column", {}), 6), Shards.deal(X, owner, labels=y)
    groups = []
    columns = formats._columns

    def note(file, group, wanted):
        if wanted != [1]:  # the devices
            groups.append(group)
        return columns(file, group, wanted)

    monkeypatch.setattr(formats, "_columns", note)
    for first, last in ((0, 6), (0, 1), (4, 6)):
        groups.clear()
        same(dealt.part(first, last), whole.part(first, last))
        if count == 1 and last == 1:
            assert groups and set(groups) <= {0, 1}


def test_label_and_device_of_several_parquet_files_are_the_columns_that_are_named(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for i in range(2):
        columns = {"x": [0.5, 1.5, 2.5], "one": [4 + i, 4, 5], "two": [0, 1, i]}
        parquet.write_table(arrow.table(columns), tmp_path / f"{i}.parquet")
    stored = index_files(str(tmp_path / "*.parquet"), None, "one", "two")
    assert (stored.device, stored.labels.tolist(), stored.files[0].features) == (2, [4, 5], 1)
    dealt = DiskShards.deal(stored, Spec("column", {}), 2, "float64")
    part = dealt.part(0, 2)
    assert part.points[:, 0].tolist() == [0.5, 2.5, 0.5, 1.5, 1.5, 2.5]
    assert (part.labels.tolist(), part.sizes.tolist()) == ([0, 1, 1, 0, 0, 1], [3, 3])
    without = index_files(str(tmp_path / "*.parquet"), None, "one", None)  # now a device is a file
    dealt = DiskShards.deal(without, Spec("column", {}), 2, "float64")
    assert dealt.d == 2
    again = DiskShards.from_mapping(json.loads(json.dumps(dealt.to_mapping())))
    same(again.part(0, 2), dealt.part(0, 2))


@pytest.mark.parametrize(
    ("partition", "work"),
    [
        (Spec("blocks", {"minimum": 0}), "0.30"),
        # whose each point is and their order for all points, and the own rows: 8 bytes * (2 * 600,000 + 300,000)
        (Spec("iid", {}), "0.31"),
        (Spec("blocks", {"minimum": 1}), "0.31"),
    ],
)
def test_memory_of_a_rank_is_told_for_what_it_has_to_look_at(partition, work):
    stored = FileIndex((Header("a.npy", 400_000, 2, False), Header("b.npy", 200_000, 2, False)), None, 2)
    said = DiskShards(stored, partition, 4, "float64").describe(2, 3, 8)
    assert "600,000 points stay on disk; each of 2 ranks" in said and f"work on them {work}," in said


@pytest.mark.parametrize("step", thin([8, 1], 2))
def test_a_parquet_file_whose_columns_lie_about_their_type_is_a_mistake(tmp_path, step):
    """In pyarrow's native code the same file ends the process of whoever asks a column for its statistics."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "0.parquet"
    parquet.write_table(arrow.table({"x": [0.0, 1.0], "device": [0, 1]}), path)
    content = path.read_bytes()
    for place in range(0, len(content), step):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with contextlib.suppress(P2PKMError):
            stored = index_files(str(path), Spec("column", {}), None, None)
            if stored is not None:  # else it has no column of devices any more
                DiskShards.deal(stored, Spec("column", {}), 2, "float64").part(0, 2)


def test_a_name_in_a_parquet_file_that_is_no_text_is_a_mistake(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"x": [0.0, 1.0], "device": [0, 1]}), path)
    path.write_bytes(path.read_bytes().replace(b"device", b"devic\xe5", 1))
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet"):
        opened(tmp_path / "*.parquet", Spec("column", {}), 2)


def test_numbers_with_gaps_in_the_column_of_a_parquet_file_are_names(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"x": [0.0, 1.0], "device": [0, 2]}), tmp_path / "a.parquet")
    named = opened(tmp_path / "a.parquet", Spec("column", {}), 2)
    assert named.stored.owners.tolist() == [0, 2] and named.part(1, 2).points.tolist() == [[1.0]]
    numbered = opened(tmp_path / "a.parquet", Spec("column", {}), 3)  # as --devices 3 says: device 1 has no points
    assert_array_equal(numbered.part(0, 3).sizes, [1, 0, 1])
    again = DiskShards.from_mapping(json.loads(json.dumps(numbered.to_mapping())))
    same(again.part(0, 3), numbered.part(0, 3))


def test_the_command_line_gives_the_bits_of_one_array(tmp_path):
    X, _, _ = write(tmp_path, [40, 30, 50], labeled=False)
    np.savez(tmp_path / "all.npz", X=X, device=np.repeat([0, 1, 2], [40, 30, 50]))
    shards = here(*FEW, "--data", tmp_path / "part-*.npy").summary
    whole = here(*FEW, "--data", tmp_path / "all.npz").summary
    for name in ("centroids_sha256", "chain_sha256", "ratio_mean", "partition", "messages"):
        assert shards[name] == whole[name], name
    assert shards["devices"] == 3
    said = here(*FEW[:-1], "--data", tmp_path / "part-*.npy", "--devices", "7").err
    assert "120 points stay on disk; each of 1 rank needs at most about" in said
    assert prepare(RunOptions(data=str(tmp_path / "part-*.npy"), devices=7), None).options.partition[:6] == "blocks"


@pytest.mark.mpi
def test_ranks_read_their_own_rows_with_the_same_bits_and_fail_together(tmp_path):
    X, y, _ = write(tmp_path, [40, 30, 50, 20])
    np.savez(tmp_path / "all.npz", X=X, y=y, device=np.repeat(np.arange(4), [40, 30, 50, 20]))
    whole = here(*FEW, "--data", tmp_path / "all.npz").summary
    program = [*ranks(3), "-m", "p2pkm"]
    out = [*FEW[:5], "--out", tmp_path / "run", "--format", "json", "-q"]
    shards = there(*program, *out, "--data", tmp_path / "part-*.npy").summary
    for name in ("centroids_sha256", "chain_sha256", "ratio_mean", "ari", "bytes"):
        assert shards[name] == whole[name], name
    assert here("verify", tmp_path / "run").code == 0
    X[125, 1] = np.nan
    np.save(tmp_path / "part-3.npy", X[120:])
    ended = there(*program, *FEW, "--data", tmp_path / "part-*.npy")
    assert ended.code == 3
    assert ended.err.count("part-3.npy is nan at row 5, column 1") == 1
    assert ended.err.count("\n") == 1


def test_float32_runs_are_those_of_the_rounded_points(tmp_path):
    X = np.random.default_rng(0).normal(size=(80, 2))
    np.save(tmp_path / "exact.npy", X)
    np.save(tmp_path / "rounded.npy", X.astype(np.float32).astype(np.float64))
    half = solve("--data", tmp_path / "exact.npy", "--dtype", "float32", "-k", "3", "--rounds", 5)
    for name in ("rounded", "exact"):
        whole = solve("--data", tmp_path / f"{name}.npy", "-k", "3", "--rounds", 5)
        assert (half["chain_sha256"] == whole["chain_sha256"]) == (name == "rounded")
        assert (half["ratio_mean"] == whole["ratio_mean"]) == (name == "rounded")


def test_a_parquet_file_without_rows_is_a_device_without_points(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for i, rows in enumerate(([0.0, 1.0], [], [2.0])):
        parquet.write_table(arrow.table({"x": arrow.array(rows, "float64")}), tmp_path / f"{i}.parquet")
    part = opened(tmp_path / "*.parquet", Spec("column", {}), 3).part(0, 3)
    assert_array_equal(part.sizes, [2, 0, 1])
    assert_array_equal(part.points[:, 0], [0, 1, 2])


def write_frame(frame, path):
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        import pyarrow
        from pyarrow import feather

        feather.write_feather(pyarrow.Table.from_pandas(frame), str(path), compression="uncompressed")


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow", ".ipc", ".csv"])
@pytest.mark.parametrize("several", [False, True], ids=["file", "folder"])
def test_what_is_not_read_is_noted_of_points_on_disk_as_in_memory(tmp_path, suffix, several):
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    index = pandas.MultiIndex.from_product([["north"], [f"p{i}" for i in range(6)]], names=["region", "patient"])
    columns = {"x": np.arange(6.0), "Unnamed: 0": list("abcdef")} | ({} if several else {"device": [0, 1, 3] * 2})
    frame = pandas.DataFrame(columns, index=index)
    for i in range(2 if several else 1):
        write_frame(frame, tmp_path / f"site-{i}{suffix}")
    (tmp_path / "old").mkdir()
    for name in ("README.md", ".hidden", "old/x.csv"):
        (tmp_path / name).write_text("x\n1\n")
    path = tmp_path if several else tmp_path / f"site-0{suffix}"
    run = prepare(RunOptions(data=str(path), clusters=1, devices=2 if several else 4, partition="column"), None)
    assert run.points.in_memory == (suffix != ".parquet")
    notes = [note for note in run.notes if "not read" in note or "not used" in note or "without points" in note]
    expected = ["column 'Unnamed: 0' is read as names of rows and not used"]
    if suffix != ".csv":
        expected.insert(0, "the index of the frame (region, patient) is not read; --keep region")
    last = f"not read in the folder {tmp_path}: README.md, old"
    expected.append(last if several else "1 of 4 devices are without points: 2")
    assert len(notes) == len(expected)
    for note, start in zip(notes, expected, strict=True):
        assert note.startswith(start)


def test_a_file_without_rows_is_noted_on_disk(tmp_path):
    write(tmp_path, [3, 0, 2])
    run = prepare(RunOptions(data=str(tmp_path), clusters=1), None)
    assert run.notes == ("1 of 3 devices are without points: part-1",)


def test_files_beside_the_folders_of_a_partitioned_table_are_named(tmp_path):
    (tmp_path / "site=A").mkdir()
    for name in ("site=A/x.csv", "site=A/x.sql", "late.csv", "_SUCCESS"):
        (tmp_path / name).write_text("x,y\n1,2\n3,4\n")
    for table in (read_table(tmp_path), describe_table(tmp_path)):
        assert [note for note in table.notes if "not read" in note] == [
            f"not read in the folder {tmp_path}: late.csv, site=A/x.sql"
        ]
