"""Files written at once or not at all, by several processes, and after some that died."""

import io
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.metrics.result import Exposure
from p2pkm.storage import save
from p2pkm.storage.checkpoint import Checkpoint, CheckpointWriter, load_newest, write
from p2pkm.storage.lock import Lock, process_identity
from p2pkm.storage.save import pack_arrays, staging_folder, write_bytes
from topologies import ring

ROOT = Path(__file__).parents[2]
OTHER = "import sys, pathlib; from p2pkm.storage.save import write_bytes as w; w(pathlib.Path(sys.argv[1]), 'a', {})"


def test_two_processes_may_write_the_same_file(tmp_path):
    def put(file):
        file.write(b"one ")
        code = OTHER.format("lambda file: file.write(b'other')")
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True)
        assert (tmp_path / "a").read_bytes() == b"other"
        file.write(b"whole")

    write_bytes(tmp_path, "a", put)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"one whole")]


def test_two_that_draft_the_same_file_do_not_meet(tmp_path):
    folder = tmp_path / "new"
    with staging_folder(folder) as one:
        (one / "film.gif").write_bytes(b"one")
        with staging_folder(folder) as other:
            (other / "film.gif").write_bytes(b"other")
        assert (folder / "film.gif").read_bytes() == b"other"
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("film.gif", b"one")]


def test_drafts_that_were_not_finished_leave_nothing(tmp_path):
    with suppress(OSError), staging_folder(tmp_path) as place:
        (place / "film.gif").write_bytes(b"half")
        raise OSError(28, "No space left on device")
    assert not place.exists() and not [*tmp_path.iterdir()]


def test_only_what_a_dead_process_of_this_host_left_over_is_removed(tmp_path):
    own, host, gone = process_identity(), platform.node(), 999_999_999  # no system gives so large a number to a process
    left = [f".a.{gone}-1@{host}.partial", f".b c.json.{own['process']}-1@{host}.partial"]
    kept = [f".a.{own['process']}-{own['process_began']}@{host}.partial", f".a.{gone}-1@{host}.else.partial",
            ".a.partial", f"a.{gone}-1@{host}.partial", ".mine.1-x@.partial"]  # fmt: skip
    for name in left + kept:
        (tmp_path / name).write_bytes(b"half")
    write_bytes(tmp_path, "new", lambda file: file.write(b""))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "new"])


def test_where_a_system_does_not_say_when_processes_began_their_numbers_tell_them_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("p2pkm.storage.lock.process_start", lambda process: None)
    for number in (os.getpid(), 999_999_999):
        (tmp_path / f".a.{number}-@{platform.node()}.partial").write_bytes(b"half")
    write_bytes(tmp_path, "new", lambda file: file.write(b""))
    assert {path.name for path in tmp_path.iterdir()} == {f".a.{os.getpid()}-@{platform.node()}.partial", "new"}


def test_a_file_is_on_the_disk_before_it_has_its_name_and_a_checkpoint_has_its_name_there_too(tmp_path, monkeypatch):
    seen, sync = [], os.fsync

    def watch(number):
        place = Path(os.readlink(f"/proc/self/fd/{number}"))
        seen.append((place.name, os.fstat(number).st_size if place.is_file() else sorted(os.listdir(place))))
        sync(number)

    monkeypatch.setattr(os, "fsync", watch)
    write(tmp_path, "00000001.bin", Checkpoint({}, {}, {"a": np.arange(9)}))
    (first, size), (folder, names) = seen
    assert first.startswith(".00000001.bin.") and size == (tmp_path / "00000001.bin").stat().st_size
    assert (folder, names) == (tmp_path.name, ["00000001.bin"])


def test_a_file_that_cannot_be_made_is_said_to_be_so(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(PermissionError):
        write_bytes(tmp_path, "a", lambda file: file.write(b""))


def test_of_a_checkpoint_every_byte_counts_and_other_files_do_not(tmp_path):
    with Lock(tmp_path / "run") as held:
        told: list[str] = []
        writer = CheckpointWriter(held, 1, dict, told.append)
        writer.put({"turn": 1}, {})
        (held.folder / "checkpoint" / "more.bin").write_bytes(b"of somebody else")
        writer.put({"turn": 2}, {"a": np.arange(3)})
        assert load_newest(held.folder, told.append).outline == {"turn": 2} and not told
        last = held.folder / "checkpoint" / "00000002.bin"
        whole = last.read_bytes()
        places = range(0, len(whole), 11)
        for place in places:
            last.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            assert load_newest(held.folder, told.append).outline == {"turn": 1}
        assert len(told) == len(places)
        writer._remove([last, last])  # another process has been faster
        assert len(told) == len(places) and not last.exists()
        shutil.rmtree(held.folder / "checkpoint")


@pytest.mark.parametrize(("values", "long", "packed"), [(3, False, True), (32, False, True), (32, True, False),
                                                        (256, False, False), (256, True, False)])  # fmt: skip
def test_arrays_are_packed_where_that_is_worth_it(monkeypatch, values, long, packed):
    """Of 8 bits 5 say which of 32 values a number has: a good third less, which is too little for long arrays."""
    monkeypatch.setattr("p2pkm.storage.save._LONG", 10**4 - long)
    array, file = np.random.default_rng(0).integers(values, size=10**4).astype(np.uint8), io.BytesIO()
    pack_arrays(file, {"a": array})
    with zipfile.ZipFile(file) as archive:
        assert archive.getinfo("a.npy").compress_type == (zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED)
    assert np.array_equal(np.load(file)["a"], array)


def test_a_checkpoint_that_cannot_be_removed_is_another_thing_than_one_that_cannot_be_written(tmp_path, monkeypatch):
    told = []

    def refuse(path, **_):
        raise OSError(5, "Input/output error")

    with Lock(tmp_path / "run") as held:
        writer = CheckpointWriter(held, 1, dict, told.append)
        writer.put({}, {})
        writer.put({}, {})
        assert told == []
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refuse)
            writer.put({}, {})
        (line,) = told
        assert "00000001.bin could not be removed: Input/output error" in line and "written" not in line
        writer.put({}, {})
        assert len(told) == 1
        assert sorted(path.name for path in held.folder.glob("checkpoint/*")) == ["00000003.bin", "00000004.bin"]


@pytest.mark.parametrize("server", [False, True])
def test_the_graph_that_is_written_has_all_figures_of_the_result(tmp_path, server):
    X, _ = p2pkm.grid16(points=2, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 3, seed=0), devices=3)
    method, graph = (p2pkm.FKM(2), None) if server else (p2pkm.GTVMin(2), topologies.ring(3))
    result = p2pkm.simulate(method, graph, shards, rounds=2)
    names = ("a<b>&\"c']]>", "Å\rbo", "2", "server")[: result.topology.n]
    result = replace(result, topology=replace(result.topology, names=names))
    result.losses[1], result.centroids[1, 0, 1] = np.inf, np.nan
    result.save(tmp_path / "run")
    written, told = nx.read_graphml(tmp_path / "run" / "graph.graphml", node_type=int), result.to_networkx()
    del told.nodes[1]["loss"]
    assert list(written.nodes(data=True)) == list(told.nodes(data=True))
    assert list(written.edges(data=True)) == list(told.edges(data=True))
    assert written.nodes[0]["name"] == names[0] and {"messages", "bytes", "gtv", "weight"} <= set(
        written.edges[0, 2 + server]
    )
    assert not server or written.nodes[3]["server"] is True
    with np.load(tmp_path / "run" / "labels.npz") as labels, np.load(tmp_path / "run" / "census.npz") as census:
        assert set(labels) == {"labels", "device", "row"} and set(labels).isdisjoint(census)
    assert "nan" not in (tmp_path / "run" / "centroids.csv").read_text()


def test_names_that_no_file_can_hold_are_written_in_escapes(tmp_path):
    shards = p2pkm.Shards.from_list([np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1))])
    graph = nx.path_graph(["a\x0bb", "c\ud800", "d\uffff\U0001f600"])
    (tmp_path / "run").mkdir()  # an empty folder may be there
    p2pkm.simulate(p2pkm.GTVMin(1, init="local"), graph, shards, rounds=1, baselines=False).save(tmp_path / "run")
    assert p2pkm.load(tmp_path / "run").topology.names == ("a\\x0bb", "c\\ud800", "d\\uffff\U0001f600")
    assert "c\\ud800" in (tmp_path / "run" / "labels.csv").read_text()


@pytest.mark.parametrize(("large", "name"), [(2, "graph.npz"), (3, "graph.graphml")])
def test_a_graph_is_written_as_arrays_above_the_size_limit_only(tmp_path, monkeypatch, large, name):
    X, _ = p2pkm.grid16(points=1, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 3, seed=0), devices=3)
    result = p2pkm.simulate(p2pkm.GTVMin(2), ring(3), shards, rounds=1, baselines=False)
    monkeypatch.setattr(save, "LARGE", large)
    save.save(result, tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").glob("graph.*")} == {name}


def test_a_result_is_saved_below_new_parent_folders(tmp_path):
    X, _ = p2pkm.grid16(points=1, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 3, seed=0), devices=3)
    result = p2pkm.simulate(p2pkm.GTVMin(2, alpha=0.0, init="local"), ring(3), shards, baselines=False)
    save.save(result, tmp_path / "one" / "run")
    again = p2pkm.load(tmp_path / "one" / "run")
    assert again.features is None is result.features
    assert result.summary["centroid_sets"] == 3


def test_the_exposure_is_saved(tmp_path):
    shards = p2pkm.Shards.from_list([np.arange(12.0).reshape(6, 2) + i for i in range(3)])
    result = p2pkm.simulate(p2pkm.GTVMin(2), ring(3), shards, rounds=1, baselines=False)
    seen = Exposure(np.array([2, 2, 2]), np.array([4, 5, 6]))
    save.save(replace(result, exposure=seen), tmp_path / "run")
    with np.load(tmp_path / "run" / "exposure.npz") as kept:
        assert {name: kept[name].tolist() for name in kept} == {"devices": [2, 2, 2], "rows": [4, 5, 6]}


@pytest.mark.parametrize(("lines", "names"), [(0, set()), (6, {"labels.csv", "centroids.csv"})])
def test_tables_for_spreadsheets_are_written_up_to_a_length(tmp_path, monkeypatch, lines, names):
    shards = p2pkm.Shards.from_list([np.array([[float(i)], [10.0 + i]]) for i in range(3)])
    result = p2pkm.simulate(p2pkm.GTVMin(2), ring(3), shards, rounds=1, baselines=False)
    monkeypatch.setattr(save, "_LINES", lines)
    save.write_tables(result, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == names | {"clusters.csv", "clusters.tex", "disclosed.csv"}
    for name, head in (("labels.csv", "row,device,cluster"), ("centroids.csv", "cluster,device,points,")):
        assert name not in names or (tmp_path / name).read_text().startswith(head)
