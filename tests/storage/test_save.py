"""Files written at once or not at all, by several processes, and after some that died."""

import platform
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.storage.checkpoint import CheckpointWriter
from p2pkm.storage.lock import Lock, sign
from p2pkm.storage.save import drafts, write_bytes

ROOT = Path(__file__).parents[2]
OTHER = "import sys, pathlib; from p2pkm.storage.save import write_bytes as w; w(pathlib.Path(sys.argv[1]), 'a', {})"


def test_two_processes_may_write_the_same_file(tmp_path):
    def write(file):
        file.write(b"one ")
        code = OTHER.format("lambda file: file.write(b'other')")
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True)
        assert (tmp_path / "a").read_bytes() == b"other"
        file.write(b"whole")

    write_bytes(tmp_path, "a", write)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"one whole")]


def test_two_that_draft_the_same_file_do_not_meet(tmp_path):
    folder = tmp_path / "new"
    with drafts(folder) as one:
        (one / "film.gif").write_bytes(b"one")
        with drafts(folder) as other:
            (other / "film.gif").write_bytes(b"other")
        assert (folder / "film.gif").read_bytes() == b"other"
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("film.gif", b"one")]


def test_drafts_that_were_not_finished_leave_nothing(tmp_path):
    with suppress(OSError), drafts(tmp_path) as place:
        (place / "film.gif").write_bytes(b"half")
        raise OSError(28, "No space left on device")
    assert not place.exists() and not [*tmp_path.iterdir()]


def test_only_what_a_dead_process_of_this_host_left_over_is_removed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    own, host = sign(), platform.node()
    left = [f".a.{process.pid}-1@{host}.partial", f".b c.json.{own['process']}-1@{host}.partial"]
    kept = [f".a.{own['process']}-{own['process_began']}@{host}.partial", f".a.{process.pid}-1@{host}.else.partial",
            ".a.partial", f"a.{process.pid}-1@{host}.partial", ".mine.1-x@.partial"]  # fmt: skip
    for name in left + kept:
        (tmp_path / name).write_bytes(b"half")
    write_bytes(tmp_path, "new", lambda file: file.write(b""))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "new"])


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
    names = ("a<b>&\"c'", "Åbo", "2", "server")[: result.topology.n]
    result = replace(result, topology=replace(result.topology, names=names))
    result.losses[1] = np.inf
    result.save(tmp_path / "run")
    written, told = nx.read_graphml(tmp_path / "run" / "graph.graphml", node_type=int), result.to_networkx()
    del told.nodes[1]["loss"]
    assert list(written.nodes(data=True)) == list(told.nodes(data=True))
    assert list(written.edges(data=True)) == list(told.edges(data=True))
    assert written.nodes[0]["name"] == names[0] and {"messages", "bytes", "gtv", "weight"} <= set(
        written.edges[0, 2 + server]
    )
    assert not server or written.nodes[3]["server"] is True
