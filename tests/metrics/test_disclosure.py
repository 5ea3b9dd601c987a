"""Exposure of devices, and disclosed points with their receivers."""

import csv

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.channel import suppression
from p2pkm.metrics.disclosure import count_exposure
from p2pkm.network.graph import Topology
from p2pkm.network.ledger import Traffic
from tests.support.run_cli import here

LINKS = [(0, 1), (1, 2), (2, 3), (4, 5)]  # a path of four devices, and two that keep silent


@pytest.mark.parametrize(
    ("hops", "seen"),
    [
        (1, [0, 1, 1, 0, 0, 0]),  # from neighbors that sent rows
        (2, [2, 3, 3, 2, 1, 1]),  # at most
        (None, [0, 3, 3, 0, 0, 0]),  # who heard anything may have heard of all
    ],
)
def test_whose_rows_a_device_has_seen(hops, seen):
    topology = Topology.from_links(6, np.array([(*link, 1.0) for link in LINKS]))
    rows = np.where(topology.sources == 0, 3, 0)  # 0 sends to 1, which sends to 2; 3 sends an empty table
    rows[(topology.sources == 1) & (topology.indices == 2)] = 5
    sent = [topology.sources, topology.indices, np.sign(rows), 8 * rows, rows]
    exposure = count_exposure(Traffic(*sent, None, None, None, None, 6, 8 * rows), topology, hops)
    assert exposure.devices.tolist() == seen
    assert exposure.rows.tolist() == [0, 3, 5, 0, 0, 0]


def test_what_a_server_sends_is_of_no_device():
    topology = Topology.star(2)
    rows = np.full(4, 2)
    sent = [topology.sources, topology.indices, np.ones(4, np.int64), 8 * rows, rows]
    exposure = count_exposure(Traffic(*sent, None, None, None, None, 3, 8 * rows), topology, 1)
    assert (exposure.devices.tolist(), exposure.rows.tolist()) == ([0, 0, 2], [2, 2, 4])


def small_hospitals(**options):
    """Run on a path of a large device and two small ones, which send points as their clusters."""
    draw = np.random.default_rng(0)
    blocks = [draw.normal(0, 1, (40, 2)), [[30.0, 30.0]], draw.normal(0, 1, (3, 2))]
    method = p2pkm.ConsensusLloyd(2, init="local")
    return p2pkm.simulate(method, topologies.path(3), p2pkm.Shards.from_list(blocks), rounds=3, **options)


def test_a_note_names_the_devices_and_what_helps():
    result = small_hospitals()
    assert {*result.disclosed.device.tolist()} == {1, 2} and result.summary["raw_points_disclosed"] == 2
    (note,) = [note for note in result.notes if note.startswith("disclosed points")]
    assert note == (
        "disclosed points: 1 of 1 of device 1, 1 of 3 of device 2; disclosed.csv names all rows; "
        "--min-cluster-size 2 suppresses clusters of one point"
    )
    assert not small_hospitals(min_cluster_size=2).summary["raw_points_disclosed"]


def test_no_hint_where_it_cannot_help():
    shards = p2pkm.Shards.from_list([[[0.0], [1.0]], [[5.0]]])
    result = p2pkm.simulate(p2pkm.Central(2), None, shards)
    assert result.notes[-1] == (
        "disclosed points: 2 of 2 of device 0, 1 of 1 of device 1; disclosed.csv names all rows"
    )


def test_many_pairs_are_counted_and_not_recorded(monkeypatch, tmp_path):
    recorded = small_hospitals()
    monkeypatch.setattr(suppression, "_MAX_RECORDED_PAIRS", 40 + 2 + 3 - 1)
    result = small_hospitals()
    assert result.disclosed is None and result.summary["raw_points_disclosed"] == 2
    assert recorded.summary["chain_sha256"] == result.summary["chain_sha256"]
    assert [note for note in result.notes if note.startswith("disclosed.csv is not written")]
    loaded = p2pkm.load(result.save(tmp_path / "run"))
    assert loaded.disclosed is None and loaded.notes == result.notes
    assert not (tmp_path / "run" / "disclosed.csv").exists()


def test_disclosed_csv_names_device_row_receiver_and_exchange(tmp_path):
    (tmp_path / "h.csv").write_text("site,x\nBern,1\nBern,2\nTurku,40\nBern,3\n", encoding="utf-8")
    words = ("--data", tmp_path / "h.csv", "--device-column", "site", "-k", 2, "--no-plot", "--algorithm", "central")
    ending = here(*words, "--out", tmp_path / "run")
    assert ending.code == 0 and "3 of 3 of Bern, 1 of 1 of Turku; disclosed.csv" in ending.out
    with open(tmp_path / "run" / "disclosed.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["device", "row", "to", "stage", "round", "turn"]
    assert rows[1:] == [[site, row, "server", "central", "0", "0"]
                        for site, row in (("Bern", "0"), ("Bern", "1"), ("Bern", "3"), ("Turku", "2"))]  # fmt: skip
    result = p2pkm.load(tmp_path / "run")
    assert result.disclosed.table().astype(str).to_numpy().tolist() == rows[1:]


def test_lost_messages_and_links_count_as_sent():
    method = p2pkm.ConsensusLloyd(2, init="local")
    shards = p2pkm.Shards.from_list([[[0.0], [9.0]], [[0.1]]])
    plain, lossy = (p2pkm.simulate(method, topologies.path(2), shards, faults=faults) for faults in (None, "loss=1"))
    assert plain.disclosed.to_columns() == lossy.disclosed.to_columns()
    assert plain.disclosed.row.tolist() == [0, 1, 2]


def test_a_folder_without_disclosed_points_says_so(tmp_path):
    folder = small_hospitals().save(tmp_path / "run")
    (folder / "disclosed.npz").unlink()
    loaded = p2pkm.load(folder)
    assert loaded.disclosed is None and "disclosed.npz is missing" in loaded.notes[-1]
