"""What a run keeps for replay: exact contents, bounds, the same file after save and load; ranks: test_same_bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import p2pkm
import topologies
from p2pkm.metrics import replay_frames as frames
from p2pkm.metrics.replay_frames import Frames, Recorder
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from p2pkm.network.rank_partition import RankPartition
from tests.support.play_rounds import arrange
from tests.support.run_cli import SMALL, here

FIELDS = {
    "record": "int64", "device": "int64", "centroids": "float32", "cost": "float32", "disagreement": "float32",
    "edge_a": "int64", "edge_b": "int64", "gtv": "float32", "bytes": "int64",
}  # fmt: skip
POINTS = [np.array([[0.0], [2.0]]), np.array([[4.0]]), np.array([[8.0], [10.0]])]


def solve(graph, shards, algorithm=None, **options):
    return p2pkm.simulate(algorithm or p2pkm.GTVMin(2), graph, shards, **{"rounds": 5, "baselines": False} | options)


def deal(n, points=3, d=2, seed=0):
    return p2pkm.Shards.from_list(list(np.random.default_rng(seed).normal(size=(n, points, d))))


# ------------------------------------------------------------------------------------------------------ contents


def test_three_devices_on_a_path_by_hand():
    """One centroid each; theta 1, one pass: c_i = (sum of own points + 3 alpha sum of neighbors) / (size + ...)."""
    alone = p2pkm.GTVMin(1, alpha=0.0, schedule="jacobi", init="local")
    start = np.array([[[5.0]], [[1.0]], [[9.0]]])
    found = solve(topologies.path(3), p2pkm.Shards.from_list(POINTS), alone, start=start, rounds=2).frames
    assert {name: str(part.dtype) for name, part in found._asdict().items()} == FIELDS
    assert found.device.tolist() == [0, 1, 2]
    assert (found.edge_a.tolist(), found.edge_b.tolist()) == ([0, 1], [1, 2])
    assert found.record.tolist() == [0, 1, 2]
    assert found.centroids[:, :, 0, 0].tolist() == [[5, 1, 9], [1, 4, 9], [1, 4, 9]]
    assert found.cost.tolist() == [[25 + 9, 9, 2], [2, 0, 2], [2, 0, 2]]
    assert found.gtv.tolist() == [[32, 128], [18, 50], [18, 50]]  # (4) counts both ways: 2 (c_i - c_j)^2
    assert found.disagreement.tolist() == [[32, 160, 128], [18, 68, 50], [18, 68, 50]]
    # a table of one number each way: 16 bytes in the opening, and in every round in which anybody still speaks
    assert found.bytes[0].tolist() == [16, 16]


def test_the_frames_agree_with_the_records_and_the_result():
    result = solve(topologies.small_world(12, degree=4, rewire=0.2, seed=1), deal(12), rounds=30)
    found, rounds = result.frames, [result.rounds[i] for i in result.frames.record]
    assert found.record[0] == 0 and found.record[-1] == len(result.rounds) - 1
    np.testing.assert_array_equal(found.centroids[-1], result.centroids.astype(np.float32))
    np.testing.assert_array_equal(found.cost[-1], result.losses.astype(np.float32))
    np.testing.assert_allclose(found.gtv.sum(axis=1), [one["gtv"] or 0.0 for one in rounds], rtol=1e-5)
    np.testing.assert_allclose(found.disagreement.sum(axis=1), 2 * found.gtv.sum(axis=1), rtol=1e-5)
    assert found.bytes.sum(axis=1).tolist() == [one["bytes"] for one in rounds]
    links = {(int(a), int(b)) for a, b in zip(found.edge_a, found.edge_b, strict=True)}
    assert links == {tuple(sorted(edge)) for edge in result.graph.edges}
    ledger = result.ledger
    for a, b, volume in zip(found.edge_a, found.edge_b, found.bytes[-1], strict=True):
        over = ((ledger.src == a) & (ledger.dst == b)) | ((ledger.src == b) & (ledger.dst == a))
        assert volume == ledger.bytes[over].sum()


def test_of_a_star_the_links_to_the_hub_are_shown_but_not_the_hub():
    result = solve(None, deal(5), p2pkm.FKM(2))
    found = result.frames
    assert found.device.tolist() == [0, 1, 2, 3, 4]
    assert found.centroids.shape[1:] == (5, 2, 2)
    assert (found.edge_a.tolist(), found.edge_b.tolist()) == ([0, 1, 2, 3, 4], [5] * 5)
    assert found.bytes[-1].sum() == result.summary["bytes"]


@pytest.mark.filterwarnings("ignore:.*ended without centroids")
def test_a_device_without_centroids_has_no_cost_and_one_without_points_costs_nothing():
    start = np.full((3, 1, 1), np.inf)
    start[0] = 1.0
    alone = p2pkm.GTVMin(1, alpha=0.0, init="local")
    shards = p2pkm.Shards.from_list([POINTS[0], POINTS[1], np.zeros((0, 1))])
    found = solve(topologies.path(3), shards, alone, start=start, rounds=0).frames
    np.testing.assert_array_equal(found.cost, [[2, np.nan, 0]])
    assert np.isposinf(found.centroids[0, 1:]).all()


def test_one_device_has_no_links():
    found = solve(topologies.ring(1), deal(1), rounds=1).frames
    assert found.gtv.shape[1] == found.bytes.shape[1] == 0
    assert not found.disagreement.any()


def test_large_coordinates_stay_finite_and_absent_ones_absent():
    start = np.array([[[1e100], [np.inf]], [[-1e100], [0.0]]])
    shards = p2pkm.Shards.from_list([np.array([[1e100]]), np.array([[0.0], [-1e100]])])
    found = solve(topologies.path(2), shards, p2pkm.GTVMin(2, init="local"), start=start, rounds=0).frames
    assert found.centroids[0, 0, 0, 0] == np.finfo(np.float32).max == -found.centroids[0, 1, 0, 0]
    assert np.isposinf(found.centroids[0, 0, 1, 0])


def test_what_is_seen_before_the_points_are_scaled_is_left_out(tmp_path):
    here(*SMALL, "--scale", "minmax", "--out", str(tmp_path / "run"), "--format", "json")
    result = p2pkm.load(tmp_path / "run")
    before = sum(one["stage"] == "min-max-scaling" for one in result.rounds)
    assert before > 0
    assert result.frames.record[0] == before
    assert result.frames.record[-1] == len(result.rounds) - 1


# -------------------------------------------------------------------------------------------------------- bounds


def record(count, shapes, *, devices=3, ends=(), stop=None):
    """Let a recorder look at so many made-up records of tables of these shapes; stop: where another goes on."""
    table = arrange([np.zeros((1, 1))] * devices, [(i, i + 1) for i in range(devices - 1)])
    recorder = Recorder(table.topology, table.network)
    own, e = table.devices, len(table.topology.indices)
    for number in range(count):
        if number == stop:
            kept, recorder = recorder.snapshot(), Recorder(table.topology, table.network)
            recorder.restore(kept)
        tables = np.full((devices, *shapes[number % len(shapes)]), float(number))
        last = number == count - 1 or number in ends
        recorder.record(own, tables, np.zeros(e), np.zeros(devices), last=last)
    return recorder


@given(
    count=st.integers(1, 700), numbers=st.integers(1, 900), ends=st.sets(st.integers(0, 699), max_size=4),
    shapes=st.lists(st.sampled_from([(1, 1), (2, 1), (4, 1)]), min_size=1, max_size=3),
)  # fmt: skip
def test_frames_stay_within_their_bounds_evenly_spread_with_first_and_last(count, numbers, ends, shapes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_NUMBERS", numbers)
        found = record(count, shapes, ends=ends).build_frames()
    if not found:
        return
    found = Frames(**found)
    assert found.centroids.size <= numbers
    assert len(found.record) <= frames.MOST
    assert found.record[0] == 0 and found.record[-1] == count - 1
    steps = np.diff(found.record)
    assert len(set(steps[:-1])) <= 1
    assert (steps > 0).all() and (len(steps) < 2 or steps[-1] <= steps[0])
    for number, tables in zip(found.record, found.centroids, strict=True):
        rows = shapes[number % len(shapes)][0]
        assert (tables[:, :rows] == number).all()
        assert np.isposinf(tables[:, rows:]).all()


def test_every_record_is_kept_while_there_are_few():
    assert record(60, [(2, 1)]).build_frames()["record"].tolist() == list(range(60))
    assert record(61, [(2, 1)]).build_frames()["record"].tolist() == list(range(0, 61, 2))
    assert record(123, [(2, 1)]).build_frames()["record"].tolist() == [*range(0, 123, 4), 122]


@pytest.mark.parametrize("stop", [0, 1, 59, 60, 61, 64, 69])
@pytest.mark.parametrize("ends", [(), (63,)])
def test_a_run_that_goes_on_has_the_frames_of_one_that_was_not_interrupted(stop, ends):
    found, wanted = (record(70, [(2, 1), (1, 1)], ends=ends, stop=one).build_frames() for one in (stop, None))
    for name, part in wanted.items():
        np.testing.assert_array_equal(found[name], part)


def test_tables_that_are_too_large_are_not_kept(monkeypatch):
    monkeypatch.setattr(frames, "_NUMBERS", 10)
    assert record(3, [(2, 3)]).build_frames() == {}
    assert solve(topologies.ring(3), deal(3, d=6)).frames is None


def test_of_many_devices_and_links_a_sample_is_shown_and_the_notes_say_so(monkeypatch):
    monkeypatch.setattr(frames, "_DEVICES", 5)
    monkeypatch.setattr(frames, "_LINKS", 4)
    whole = solve(topologies.complete(10), deal(10))
    found = whole.frames
    assert found.device.tolist() == [0, 2, 4, 6, 8]
    assert len(found.edge_a) == 4
    assert {*found.edge_a, *found.edge_b} <= set(found.device)
    np.testing.assert_array_equal(found.centroids[-1], whole.centroids[found.device].astype(np.float32))
    disagreement = np.bincount(whole.topology.sources, whole.gtv)
    np.testing.assert_allclose(found.disagreement[-1], disagreement[found.device], rtol=1e-5)
    gtv = {(i, j): x for i, j, x in zip(whole.topology.sources, whole.topology.indices, whole.gtv, strict=True)}
    shown = [gtv[pair] for pair in zip(found.edge_a, found.edge_b, strict=True)]
    np.testing.assert_allclose(found.gtv[-1], shown, rtol=1e-5, atol=1e-12)
    assert "frames for replay are of a sample of 5 of 10 devices" in whole.notes
    assert "frames for replay are of a sample of 4 of 10 links" in whole.notes


def test_very_large_tables_are_those_of_fewer_devices_not_of_fewer_frames():
    cast = Recorder(Topology.from_graph(topologies.ring(400)), LocalNetwork(place(ring(400), 0, 1)))
    table = arrange([np.zeros((1, 1))] * 400, [(i, (i + 1) % 400) for i in range(400)])
    cast.record(table.devices, np.zeros((400, 10, 64)), np.zeros(800), np.zeros(400), last=True)
    found = cast.build_frames()
    assert 8 * found["centroids"].size <= 1_500_000 < 8 * found["centroids"].size * 1.01
    assert len(found["device"]) == 292


def ring(n):
    return Topology.from_graph(topologies.ring(n))


# ------------------------------------------------------------------------------------------------------- on disk


def test_saved_and_loaded_frames_are_the_same(tmp_path):
    result = solve(topologies.ring(4), deal(4))
    result.save(tmp_path / "run")
    again = p2pkm.load(tmp_path / "run").frames
    for name, part in result.frames._asdict().items():
        np.testing.assert_array_equal(getattr(again, name), part)
        assert getattr(again, name).dtype == part.dtype


def test_a_folder_without_frames_is_read_all_the_same(tmp_path):
    solve(topologies.ring(4), deal(4)).save(tmp_path / "run")
    (tmp_path / "run" / "frames.npz").unlink()
    assert p2pkm.load(tmp_path / "run").frames is None


@pytest.mark.parametrize(("fitting", "kept"), [(1, 0), (2, 2), (3, 3)])
@pytest.mark.sample(3)
def test_two_frames_are_kept_where_two_fit(monkeypatch, fitting, kept):
    monkeypatch.setattr(Recorder, "_capacity", property(lambda self: fitting))
    frames = solve(topologies.ring(3), deal(3), p2pkm.GTVMin(2, tol=0.0)).frames
    assert (0 if frames is None else len(frames.record)) == kept


def test_a_rank_without_devices_records_no_links():
    topology = Topology.from_graph(topologies.ring(4))
    division = RankPartition.by_owner("any", np.array([0, 0, 2, 2]), 3)
    recorders = [
        frames._FrameSelection(topology, LocalNetwork(place(topology, rank, 3, division)), 4) for rank in range(3)
    ]
    assert [len(one._edges) for one in recorders] == [4, 0, 4]


@pytest.mark.parametrize(
    ("fitting", "devices", "links", "notes"),
    [
        (1, 3, 1, []),
        (3, 3, 1, ["3 of 5 devices", "1 of 3 links"]),
        (3, 3, 3, ["3 of 5 devices"]),
        (3, 5, 9, ["9 of 10 links"]),
        (3, 5, 10, []),
    ],
)
@pytest.mark.sample(3)
def test_notes_describe_what_the_frames_that_were_kept_leave_out(monkeypatch, fitting, devices, links, notes):
    monkeypatch.setattr(Recorder, "_capacity", property(lambda self: fitting))
    monkeypatch.setattr(frames, "_DEVICES", devices)
    monkeypatch.setattr(frames, "_LINKS", links)
    result = solve(topologies.complete(5), deal(5), p2pkm.GTVMin(2, tol=0.0))
    assert [note for note in result.notes if "frames" in note] == [
        f"frames for replay are of a sample of {part}" for part in notes
    ]
