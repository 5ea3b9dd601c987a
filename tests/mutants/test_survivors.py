"""What samples of mutants found no test for; RESULTS.md lists the mutants."""

import json
import math
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import p2pkm
from p2pkm.channel.byzantine import ByzantineMessages, _convert
from p2pkm.channel.fault_trace import LONGEST, parse_trace
from p2pkm.channel.faults import FaultInjector
from p2pkm.channel.pipeline import Channel
from p2pkm.channel.quantization import _count_bits
from p2pkm.channel.suppression import reach
from p2pkm.core import chunks
from p2pkm.core.adaptive_code import decision_bits, length_bits, log_factorials, tally
from p2pkm.core.brief import _tell
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.messages import Delivery, RaggedArray, SparseMessages, Tables
from p2pkm.core.mpi_environment import check_threads
from p2pkm.core.protocols import PointCount, RunOutline
from p2pkm.core.sorting import blocks, narrow
from p2pkm.core.spec import _convert_bool, parse
from p2pkm.core.states import optional
from p2pkm.core.traits import MessageContent
from p2pkm.core.validation import _first_text, bounded, finite, matrix, positive, whole
from p2pkm.deep.deep_table import DeepTable
from p2pkm.engine import build_run, event_driven
from p2pkm.engine.build_batch import _measure, label_pooled
from p2pkm.engine.loop import RunContext, Start, _check_termination
from p2pkm.engine.run_job import _count_work, _tell_division
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.state_tree import gather, rebuild, split
from p2pkm.kernels import pick
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.methods.building_blocks.quantization import count_bits
from p2pkm.methods.building_blocks.spanning_tree import grow
from p2pkm.methods.init import pipelines, registry
from p2pkm.methods.init.lean import Cells, pack_rows
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.init.total_variance import TotalVariance
from p2pkm.methods.init.tree_summaries import TreeSummaries
from p2pkm.methods.peer import private
from p2pkm.methods.tree.search import aside
from p2pkm.metrics import alignment, closing_rows, cost_ratio, monitor, replay_frames, stream_figures, summary
from p2pkm.metrics.clustering import distance, silhouettes
from p2pkm.metrics.milestones import never_reached, trace, write_rounds, write_share
from p2pkm.metrics.milestones import reach as reach_milestones
from p2pkm.metrics.registry import METRICS
from p2pkm.metrics.result import Exposure
from p2pkm.metrics.summary import _tell_reverted
from p2pkm.network import ledger, rank_partition
from p2pkm.network.graph import _LISTED, Topology
from p2pkm.network.halo import place
from p2pkm.network.link_model import PROFILES, LinkModel
from p2pkm.network.rank_partition import RankPartition
from p2pkm.storage import checksums, conclusion, latex_table, load, lock, run_folder, save
from p2pkm.storage.checkpoint import CheckpointWriter
from p2pkm.storage.checksums import NAME, _check, _read
from p2pkm.storage.lock import Lock
from p2pkm.storage.paired_tests import rank
from p2pkm.storage.study_table import Study, average, name_run, read_rows, tell_worse
from p2pkm.storage.toml import read_toml
from tests.methods.init.test_lean import draw
from tests.support.play_rounds import arrange
from topologies import CSRGraph, path, ring


def test_the_next_checkpoint_is_due_after_30_s_or_40_times_what_the_last_took(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Lock(tmp_path / "run") as held:
        writer = CheckpointWriter(held, None, dict, print)
        for took, pause in ((0.5, 30.0), (2.0, 80.0), (0.0, 30.0)):
            writer.begin()
            now[0] += took
            writer.put({}, {})
            ends = now[0]
            for later, due in ((0.0, False), (pause - 0.1, False), (pause + 0.1, True)):
                now[0] = ends + later
                assert writer.due(7) == due


@pytest.mark.parametrize(("large", "name"), [(2, "graph.npz"), (3, "graph.graphml")])
def test_a_graph_is_written_as_arrays_above_the_size_and_not_at_it(tmp_path, monkeypatch, large, name):
    X, _ = p2pkm.grid16(points=1, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 3, seed=0), devices=3)
    result = p2pkm.simulate(p2pkm.GTVMin(2), ring(3), shards, rounds=1, baselines=False)
    monkeypatch.setattr(save, "LARGE", large)
    save.save(result, tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").glob("graph.*")} == {name}


def test_an_axis_has_the_unit_unless_its_label_says_it():
    for one in METRICS:
        unit = f" ({one.unit})" if one.unit and one.unit not in one.label else ""
        assert one.axis == one.label + unit
    assert len({one.axis == one.label for one in METRICS}) == 2


def test_no_thread_at_all_is_refused(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "0")
    with pytest.raises(ExperimentError, match="NUMBA_NUM_THREADS is 0"):
        check_threads()
    monkeypatch.delenv("NUMBA_NUM_THREADS")
    check_threads()


def test_points_that_change_are_counted_once_a_round():
    assert _count_work(SimpleNamespace(stream=None, rounds=4), 7) == 7
    assert _count_work(SimpleNamespace(stream="drawn", rounds=4), 7) == 35


def test_spreads_of_lean_rows_may_be_many_steps():
    tables, boxes = draw(4, [5, 3])
    step = Cells.of(boxes).step[0]
    flat = tables.flat()
    flat[:, 5] = 3.0 * flat[:, 4] * (np.arange(100.0, 900.0, 100.0) * step / 4.0) ** 2
    packed = pack_rows(tables._replace(values=flat), boxes, 2.0, within=True).flat()
    assert_allclose(sorted(packed[:, 5] / packed[:, 4]), sorted(flat[:, 5] / flat[:, 4]), rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.01, 0.3, 20.0])
def test_integers_are_as_fine_for_a_strength_as_for_the_coupling_that_it_is(alpha):
    devices = arrange([np.ones((6, 2)), np.zeros((4, 2))], [(0, 1)]).devices
    coupling = alpha * 2 * devices.total / devices.total_weight
    assert _count_bits(p2pkm.GTVMin(2, alpha=alpha), devices) == count_bits(coupling)
    assert count_bits(0.01) < count_bits(20.0)


def test_blocks_cover_all_rows_and_hold_so_many_numbers():
    assert [(one.start, one.stop) for one in blocks(5, 1 << 22)] == [(i, i + 1) for i in range(5)]
    assert [(one.start, one.stop) for one in blocks(3, 1 << 30)] == [(0, 1), (1, 2), (2, 3)]
    assert [(one.start, one.stop) for one in blocks(1 << 22, 2)] == [(0, 1 << 21), (1 << 21, 1 << 22)]
    assert [(one.start, one.stop) for one in blocks((1 << 22) + 1, 0)] == [(0, 1 << 22), (1 << 22, (1 << 22) + 1)]


def test_nothing_is_said_of_runs_that_got_no_worse():
    assert tell_worse([]) == tell_worse([{"ratio_mean": 1.0, "ratio_best": 1.0}]) == ""


def test_rows_are_read_from_a_folder_a_study_and_a_list(tmp_path):
    what = {"algorithm": "gtvmin", "graph": "ring"}
    rows = [what | {"seed": 1, "error": None, "ari": 0.5}, what | {"seed": 2, "error": "no"}]
    (tmp_path / "study.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for source in (tmp_path, str(tmp_path), Study.load(tmp_path), rows):
        assert read_rows(source) == rows[:1]
    lost = [what | {"seed": 1, "error": math.nan, "ari": math.nan}, what | {"seed": 2, "error": "no", "ari": None}]
    assert read_rows(lost) == [what | {"seed": 1, "error": None, "ari": None}]


def test_a_pipe_in_place_of_a_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "a")
    (tmp_path / "b").write_text("")
    found = _check(tmp_path, "a", "0"), _check(tmp_path, "c", "0")
    assert [one.what for one in found] == ["is no file any more", "is missing"]


def test_the_smallest_kind_that_holds_all_numbers():
    for bits, kind, wider in ((15, np.int16, np.int32), (31, np.int32, np.int64)):
        assert narrow(1 << bits) is kind and narrow((1 << bits) + 1) is wider


def test_pooled_labels_are_those_of_the_nearest_centroids():
    labels = label_pooled(np.array([[0.0, 1.0], [9.0, 8.0], [0.0, 0.0], [9.0, 9.0]]), 2, seed=0)
    assert labels[0] == labels[2] != labels[1] == labels[3]


@pytest.mark.parametrize(("large", "kept"), [(3, 1), (2, 0)])
def test_exchanges_of_sparse_messages_are_kept_up_to_the_size(monkeypatch, large, kept):
    monkeypatch.setattr(ledger, "LARGE", large)
    book = ledger.Ledger(np.arange(4))
    tables = Tables(np.zeros((1, 2, 2)), np.array([0]), np.array([2]))
    book.count_sparse(
        SparseMessages(np.array([1]), tables, np.array([0]), header=0), Delivery(np.array([1]), tables), (0, 0)
    )
    assert len(book.exchanges) == kept and book.totals[0] == 1


@pytest.mark.parametrize(
    ("events", "delays", "late"), [(None, False, False), (None, True, True), ("some", False, True)]
)
def test_messages_may_be_late_by_either_cause(events, delays, late):
    assert RunContext.late.fget(SimpleNamespace(events=events, channel=SimpleNamespace(delays=delays))) is late


def test_columns_of_deep_systems_are_under_their_titles():
    figures = dict(zip(("accuracy", "accuracy_few", "nmi", "ari", "purity"), (0.9, 0.8, 0.7, 0.6, 0.5), strict=True))
    row = {"name": "alone", "seed": 0, **figures, "bytes": 4000, "bytes_busiest": 3000}
    assert str(DeepTable((row,))).splitlines()[1].split() == ["alone", *"0.900 0.800 0.700 0.600 0.500 4 3".split()]


def test_remembered_costs_are_bounded(monkeypatch):
    monkeypatch.setattr(cost_ratio, "_REMEMBERED", 100)
    table = arrange([np.ones((3, 1)), np.zeros((2, 1))], [(0, 1)])
    prices = cost_ratio.CostEvaluator(table.devices, np.zeros(5), 0, table.network, np.zeros((1, 1)))
    for step in range(30):
        prices.of(np.full((2, 1, 1), float(step)), closing=False)
        assert len(prices._known) * 8 <= 100 + 8


def test_costs_of_many_points_are_over_a_sample_of_runs_of_them(monkeypatch):
    monkeypatch.setattr(cost_ratio, "_PRICED", 6)
    monkeypatch.setattr(cost_ratio, "_RUN", 2)
    table = arrange([np.arange(7.0)[:, None], 7.0 + np.arange(5.0)[:, None]], [(0, 1)])
    prices = cost_ratio.CostEvaluator(table.devices, np.arange(12), 12, table.network, None)
    points, _, offsets, classes = prices._pool
    assert len(points) == 6 and points[:, 0].tolist() == classes.tolist() and offsets[-1] == 6
    assert (points[0::2] + 1.0 == points[1::2]).all() and (points[0::2] % 2.0 == 0.0).all()
    assert (points[: offsets[1]] < 7.0).all() and (points[offsets[1] :] >= 7.0).all()


def test_ragged_rows_are_kept_and_come_back():
    table = arrange([np.zeros((1, 1))] * 3, [(0, 1), (1, 2)])
    held, arrays = RaggedArray(np.arange(8.0).reshape(4, 2), np.array([1, 0, 3])), {}
    outline = gather(held, table.network, arrays, "held")
    division = RankPartition.blocks(3, 1)
    back = rebuild(outline, split(outline, arrays, table.topology, division, 0))
    assert back.values.tolist() == held.values.tolist() and back.counts.tolist() == held.counts.tolist()


def test_the_bound_on_rounding_counts_a_devices_points_and_two_rows_per_neighbor_and_centroid():
    devices = arrange([np.full((4, 2), 3.0), np.zeros((1, 2)), np.zeros((2, 2))], [(0, 1), (1, 2)]).devices
    seen = SimpleNamespace(_devices=devices, _masses=np.array([4.0, 1.0, 2.0]), _extent=np.zeros((3, 2)))
    alpha = np.array([1.0, 2.0, 1.0])
    found = monitor.Monitor._measure_rounding(seen, np.full((3, 5, 2), 2.0), alpha, np.full(3, 0.5))
    terms = np.array([4 + 10 + 3, 1 + 20 + 3, 2 + 10 + 3])
    masses = 0.5 * np.array([4.0, 1.0, 2.0]) + 10.0 * alpha
    assert_allclose(found, np.column_stack((masses * (terms * monitor._ROUNDOFF) ** 2, np.full(3, 8.0))))


@pytest.mark.parametrize("count", [1, 2])
def test_one_byzantine_device_disturbs(count):
    assert ByzantineMessages.disturbs({"spec": p2pkm.Byzantine(count)})


def test_a_rank_without_devices_has_no_links_that_are_shown():
    topology = Topology.from_graph(ring(4))
    division = RankPartition.by_owner("any", np.array([0, 0, 2, 2]), 3)
    recorders = [
        replay_frames._FrameRecorder(topology, SimpleNamespace(placement=place(topology, rank, 3, division)), 4)
        for rank in range(3)
    ]
    assert [len(one._edges) for one in recorders] == [4, 0, 4]


@pytest.mark.parametrize(("kept", "notes"), [([], 0), ([(0, None)], 2)])
def test_of_frames_that_were_not_kept_nothing_is_said(kept, notes):
    cast = SimpleNamespace(devices=[0], forward=[0], links=3)
    recorder = SimpleNamespace(_cast=cast, _kept=kept, _topology=SimpleNamespace(clients=5))
    assert len(replay_frames.Recorder.notes.fget(recorder)) == notes


def test_scores_without_baseline_are_given_at_the_end_alone():
    table = arrange([np.ones((3, 1)), np.zeros((2, 1))], [(0, 1)])
    prices = cost_ratio.CostEvaluator(table.devices, np.zeros(5), 0, table.network, None)
    assert prices.of(np.zeros((2, 1, 1)), closing=False) is None
    assert prices.of(np.zeros((2, 1, 1)), closing=True).costs.tolist() == [3.0, 3.0]


def test_points_on_two_equal_centroids_are_in_neither():
    assert silhouettes(np.zeros((4, 2)), np.zeros((2, 2))) == (None, 0.0)


def test_a_result_is_saved_below_folders_that_are_new(tmp_path):
    X, _ = p2pkm.grid16(points=1, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 3, seed=0), devices=3)
    result = p2pkm.simulate(p2pkm.GTVMin(2, alpha=0.0, init="local"), ring(3), shards, baselines=False)
    save.save(result, tmp_path / "one" / "run")
    again = p2pkm.load(tmp_path / "one" / "run")
    assert again.features is None is result.features
    assert result.summary["centroid_sets"] == 3


def test_devices_with_fewer_centroids_than_clusters_have_sets_of_them(tmp_path):
    shards = p2pkm.Shards.from_list([np.array([[0.0]]), np.array([[1.0]])])
    result = p2pkm.simulate(p2pkm.GTVMin(2, alpha=0.0, init="local"), path(2), shards, baselines=False)
    assert np.isinf(result.centroids).any() and result.summary["centroid_sets"] == 2


@pytest.mark.parametrize(("large", "said"), [(2, 1), (3, 0)])
def test_what_is_kept_of_a_large_run_is_said(monkeypatch, large, said):
    monkeypatch.setattr(summary, "LARGE", large)
    result = p2pkm.simulate(
        p2pkm.GTVMin(1, alpha=0.0, init="local"),
        path(3),
        p2pkm.Shards.from_list([np.zeros((1, 1))] * 3),
        baselines=False,
    )
    assert sum("the graph is kept as arrays" in note for note in result.notes) == said


def test_points_that_all_weigh_alike_but_not_1_have_weights():
    devices = arrange([np.ones((3, 1))], []).devices
    for weight, known in ((1.0, 0), (2.0, 3)):
        same = replace(devices, point_weights=np.broadcast_to(weight, 3))
        assert len(same.kernel_inputs[1]) == known


@pytest.mark.parametrize("rounds", [0, -1, 1.5])
def test_a_fault_that_lasts_no_round_is_refused(rounds):
    lines = ['{"kind":"trace","devices":3}', json.dumps({"kind": "asleep", "round": 1, "device": 0, "rounds": rounds})]
    with pytest.raises(ExperimentError, match="rounds"):
        parse_trace(lines, Topology.from_graph(ring(3)), "faults")


def test_metis_is_taken_where_it_is(monkeypatch):
    monkeypatch.setattr(rank_partition, "_has_metis", lambda: True)
    rank_partition.check_rank_partition("metis", 2)
    monkeypatch.setattr(rank_partition, "_has_metis", lambda: False)
    rank_partition.check_rank_partition("metis", 1)
    with pytest.raises(ExperimentError, match="pymetis"):
        rank_partition.check_rank_partition("metis", 2)


def test_the_worst_of_some_runs_is_told():
    run = {"ratio_best_round": 3, "ratio_best_stage": "gtvmin"}
    one = run | {"ratio_mean": 1.5, "ratio_best": 1.0}
    zero = run | {"ratio_mean": 0.5, "ratio_best": 0.0}
    assert tell_worse([one]) == "from ratio 1.0000 in round 3 of gtvmin to 1.5000 at the end"
    assert tell_worse([one, zero]).startswith("in 2 of 2 runs, most from ratio 0.0000")


def test_configurations_without_a_common_seed_are_not_tested():
    runs = {
        "a": {0: {"ratio_mean": 1.0}, 1: {"ratio_mean": 1.1}},
        "b": {2: {"ratio_mean": 2.0}, 3: {"ratio_mean": 2.1}},
    }
    first, second = rank(runs, "ratio_mean")
    assert (first.name, second.name, second.gap) == ("a", "b", None)


def test_a_record_says_whether_the_points_changed():
    shards = p2pkm.Shards.from_list([np.arange(12.0).reshape(6, 2) + i for i in range(3)])
    result = p2pkm.simulate(
        p2pkm.GTVMin(2, tol=0.0), ring(3), shards, rounds=4, stream="drawn:kind=jump,at=2,share=0.5"
    )
    assert any(record["break"] for record in result.rounds) and not result.rounds[0]["break"]


def test_stages_that_pass_tables_on_reach_as_far_as_their_hops():
    def stage(content, hops, *, floods=False):
        return SimpleNamespace(traits=SimpleNamespace(message_content=content, hops=hops, floods=floods))

    near, far = stage(MessageContent.CENTROIDS, None), stage(MessageContent.SUMMARIES, 4)
    assert reach([near]) == 1 and reach([near, far]) == 4
    assert reach([stage(MessageContent.SUMMARIES, None)]) is None
    assert reach([stage(MessageContent.CENTROIDS, 3, floods=True)]) == 3


def test_times_of_a_manifest_are_times():
    assert datetime.fromisoformat(run_folder._now()).tzinfo is not None


def test_names_of_nodes_and_devices_must_be_the_same():
    named = replace(Topology.from_graph(path(3)), names=("a", "b", "c"))
    assert named.call(("c", "b", "a")).names == ("c", "b", "a")
    with pytest.raises(TopologyError, match="different names"):
        named.call(("a", "b", "d"))


def test_a_graph_whose_arrays_do_not_fit_is_refused():
    with pytest.raises(TopologyError):
        Topology.from_graph(CSRGraph(np.array([0, 1, 2]), np.array([1, 7])))


def test_long_sequences_are_told_by_their_size():
    assert [_tell(one) for one in ((1, 2, 3), (1, 2, 3, 4), [1], {})] == [
        "(1, 2, 3)", "<tuple of 4>", "<list of 1>", "<dict of 0>",
    ]  # fmt: skip


@pytest.mark.parametrize("place", [3, 15_000])
def test_the_array_of_an_archive_that_is_damaged_is_named(tmp_path, monkeypatch, place):
    monkeypatch.setattr(checksums, "_CHUNK", 64)
    np.savez(tmp_path / "a.npz", good=np.arange(50), bad=np.arange(2000))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(np.arange(2000).tobytes()) + place] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    assert _check(tmp_path, "a.npz", "0").what == "is changed: its array 'bad' is damaged"
    (tmp_path / "a.npz").write_bytes(data[:-1])
    assert _check(tmp_path, "a.npz", "0").what == "is changed: it is no whole archive any more"


@pytest.mark.parametrize(
    ("frame", "wanted"),
    [
        ("none", [[0.0, 5.0], [4.0, 10.0], [1.0, 7.0]]),
        ("coordinate", [[0.0, 0.0], [1.0, 1.0], [0.25, 0.4]]),
        ("entries", [[0.0, 0.5], [0.4, 1.0], [0.1, 0.7]]),
    ],
)
def test_boxes_in_the_units_of_a_server_method(frame, wanted):
    assert_allclose(_convert(np.array([[0.0, 5.0], [4.0, 10.0], [1.0, 7.0]]), frame), wanted)


def test_new_rows_are_put_at_least_one_step_aside():
    assert aside(0.0, 3.0) == aside(5.0, 0.0) == 1.0 < aside(1e4, 1.0)


def test_the_note_on_devices_that_took_their_start_back():
    assert [len(_tell_reverted(count, 9)) for count in (0, 1, 9)] == [0, 1, 1]


def test_the_share_of_runs_is_told_unless_all_came_near():
    runs = [{"reached_central": reached, "seeds": 3} for reached in (None, 3, 0)]  # None: not compared
    assert [write_share(one) for one in ({}, *runs)] == ["", "", "", " 0/3"]


@pytest.mark.parametrize(("promises", "altered", "count"), [(False, False, 0), (True, True, 0), (True, False, 2)])
def test_descent_is_claimed_only_where_it_is_promised_and_messages_are_as_sent(promises, altered, count):
    method = SimpleNamespace(traits=SimpleNamespace(guarantees_descent=promises))
    devices = SimpleNamespace(min_count=count, has_stale_or_varying_links=False)
    seen = SimpleNamespace(altered=altered, _devices=devices)
    assert monitor.Monitor._certify(seen, method, 1.0, 0) == "not claimed"


def test_links_to_a_server_weigh_1():
    assert Topology.star(3).weights.tolist() == [1.0] * 6


def test_an_empty_list_of_checksums_is_cut_off(tmp_path):
    (tmp_path / NAME).write_bytes(b"")
    assert "cut off" in _read(tmp_path).what


@pytest.mark.parametrize(
    "text", ["[3]", "3", "null", "{}", '{"process": "3"}', '{"process": 0}', '{"process": 99999999999}']
)
def test_a_lock_that_names_no_process_is_of_nobody_known(tmp_path, text):
    (tmp_path / lock.NAME).write_text(text)
    assert lock._read(tmp_path) == {}


def test_rounds_of_a_trace_go_on_from_stage_to_stage_and_from_run_to_run():
    records = [{"stage": stage, "round": t, "bytes": 0, "ratio_mean": None} for stage, t in
               (("a", 0), ("a", 2), ("b", 0), ("b", 1), ("b", 0), ("b", 3))]  # fmt: skip
    assert [one[0] for one in trace(records)] == [0, 2, 2, 3, 3, 6]


@pytest.mark.parametrize("text", ["gtvmin:alpha", "gtvmin:alpha=1,alpha=2"])
def test_a_key_without_value_and_one_given_twice_are_refused(text):
    with pytest.raises(ExperimentError, match="give alpha once"):
        parse(text, {"gtvmin": p2pkm.GTVMin}, "algorithm")


def test_bits_of_lengths_are_those_of_one_decision_per_length():
    histogram = np.zeros(64, np.int64)
    histogram[[0, 1, 4]] = 3, 2, 1
    wanted = sum(decision_bits(np.array([a]), np.array([b]))[0] for a, b in ((3, 3), (2, 1), (0, 1), (0, 1), (1, 0)))
    assert length_bits(histogram) == pytest.approx(wanted)


def test_text_that_is_a_number_is_not_named():
    assert _first_text(np.array([["1", "2.5"]])) == _first_text(np.ones((1, 2))) == ""
    assert "'x' at row 0, column 1" in _first_text(np.array([["1", "x"]]))


def test_figures_of_a_stream_are_over_the_rounds_of_the_method():
    rounds = [{"stage": "start", "round": 0, "wire_bytes": 3, "ratio_mean": 9.0}]
    for t, ratio in enumerate((8.0, 1.25, 1.75, None, 1.5)):
        rounds.append({"stage": "m", "round": t, "wire_bytes": 10 * t + 7, "ratio_mean": ratio})
    figures = stream_figures.worst_excess, stream_figures.mean_excess, stream_figures.bytes_per_round
    for stream, count, wanted in (("drawn", 6, (0.75, 0.5, 10.0)), ("drawn", 2, (None,) * 3), (None, 6, (None,) * 3)):
        result = SimpleNamespace(rounds=rounds[:count], summary={"algorithm": "m", "stream": stream})
        assert tuple(figure(result) for figure in figures) == wanted


@pytest.mark.parametrize(
    ("total", "before", "inside"), [(None, 3, 0), (0, 3, 0), (1, 3, 1), (3, 3, 1), (4, 3, 0), (1, None, 0)]
)
def test_a_goal_may_be_reached_before_the_method(total, before, inside):
    said = closing_rows._place({"rounds_to_1pct": total, "rounds_before": before}, "")
    assert said == ("with initialization", f"in round {total} of the initialization")[inside]


@pytest.mark.parametrize(("t", "kept"), [(0, False), (1, True)])
def test_a_checkpoint_may_be_due_from_round_1_on(t, kept):
    context = SimpleNamespace(
        keeper=SimpleNamespace(due=lambda _: True, open=True), interrupted=lambda: 0, all_rounds=True,
        monitor=SimpleNamespace(network=SimpleNamespace(total=np.copy)),
    )  # fmt: skip
    state = Start(None, np.zeros(2, np.bool_))
    assert _check_termination(context, state, True, t) == ("", ("", kept))


def test_a_safeguard_halves_steps_only_where_there_are_several():
    for steps, wanted in ((1, 1.0), (2, 0.5)):
        method = p2pkm.GTVMin(2, schedule="jacobi", safeguard=True, local_steps=steps)
        assert method.effective_relaxation() == wanted
    assert [p2pkm.GTVMin(2, groups=groups).traits.follows_points for groups in (False, 2)] == [True, False]


def test_whether_tables_are_flooded_depends_on_clusters_and_coordinates(monkeypatch):
    asked = []
    monkeypatch.setattr(pipelines, "can_flood", lambda _, k, d: asked.append((k, d)) or True)
    shards = p2pkm.Shards.from_list([np.arange(20.0).reshape(10, 2) + i for i in range(4)])
    p2pkm.simulate(p2pkm.GTVMin(3), ring(4), shards, rounds=1, baselines=False, byzantine=p2pkm.Byzantine(1))
    assert asked == [(3, 2)]


def test_never_and_until_when_a_run_is_near_its_end_and_central():
    row = {"rounds_to_1pct_of_central": None, "ratio_mean": 1.5}
    assert never_reached(row, "bytes_to_1pct_of_central") and not never_reached(row, "bytes")
    assert not never_reached(row | {"ratio_mean": None}, "bytes_to_1pct_of_central")
    ratios = 2.0, 1.2, 1.006, 1.0
    found = reach_milestones([
        {"stage": "m", "round": t, "bytes": 10 * t, "ratio_mean": ratio} for t, ratio in enumerate(ratios)
    ])  # fmt: skip
    assert (found["rounds_to_1pct"], found["bytes_to_1pct"], found["rounds_to_1pct_of_central"]) == (2, 20, 2)


@pytest.mark.parametrize(("least", "wanted"), [(0, [1, 2, 3, 0]), (1, [1, 2, 3, 0]), (2, [0, 0, 3, 0])])
def test_devices_of_too_few_points_have_no_part_in_the_total_variance(least, wanted):
    table = arrange([np.ones((m, 1)) for m in (1, 2, 3)] + [[]], [(0, 1), (1, 2), (2, 3)])
    devices = replace(table.devices, min_count=least)
    state = TotalVariance(1, grow(table.topology)).initial_state(devices, None)
    assert state.moments[:, 0].tolist() == wanted


@pytest.mark.parametrize("name", ["delays", "exposes", "alters"])
def test_of_several_transforms_one_is_enough(name):
    one, other = (SimpleNamespace(**{name: value}) for value in (True, False))
    assert [getattr(Channel(some), name) for some in ([one, other], [other, other], [])] == [True, False, False]


@pytest.mark.parametrize("most", [4, 12])
def test_central_k_means_is_on_a_sample_of_very_many_points(monkeypatch, most):
    monkeypatch.setattr(cost_ratio, "_POOLED", 2 * most)
    shards = p2pkm.Shards.from_list([np.arange(16.0).reshape(8, 2), np.arange(8.0).reshape(4, 2)])
    network = arrange([np.zeros((1, 1))] * 2, [(0, 1)]).network
    pooled, note = cost_ratio.gather_points(shards, 7, network)
    assert len(pooled.points) == most and (note is None) == (most == 12)


def test_how_many_sets_are_priced_depends_on_their_numbers():
    table, asked = arrange([np.ones((3, 2)), np.zeros((2, 2))], [(0, 1)]), []
    prices = cost_ratio.CostEvaluator(table.devices, np.zeros(5), 0, table.network, None)
    prices._choose = lambda numbers, _: asked.append(numbers) or prices._scored
    prices.of(np.zeros((2, 3, 2)), closing=True)
    assert asked == [6]


def test_logarithms_of_products_are_sums_of_logarithms():
    whole, half = (part[:21] for part in log_factorials(20))
    assert_allclose(whole, [np.log2(np.arange(1.0, m + 1)).sum() for m in range(21)])
    assert_allclose(half, [np.log2(np.arange(1.0, m + 1) - 0.5).sum() for m in range(21)])


def test_words_for_true_and_false():
    for text, wanted in {"true": 1, "yes": 1, "1": 1, "Yes": 1, "false": 0, "no": 0, "0": 0, "NO": 0}.items():
        assert _convert_bool(text, "x") is bool(wanted)
    with pytest.raises(ExperimentError, match="true or false"):
        _convert_bool("on", "x")


@pytest.mark.parametrize("profile", PROFILES)
def test_figures_of_a_link_model_are_those_that_were_given(profile):
    names = "latency", "bandwidth", "access", "speed", "server_access", "server_speed"
    given = {name: 2.0 + i for i, name in enumerate(names)}
    assert {name: value for name, value in vars(PROFILES[profile](**given)).items() if name in given} == given


@pytest.mark.parametrize(("least", "refused"), [(0.0, False), (np.inf, True)])
def test_noise_below_the_units_is_refused(monkeypatch, least, refused):
    monkeypatch.setattr(private, "_LEAST_NOISE", least)
    with pytest.raises(ExperimentError, match="rounding takes it away") if refused else nullcontext():
        p2pkm.Private(2, epsilon=1.0, radius=30.0)._check_noise(4)


def test_absent_rows_are_not_compared():
    centroids = np.array([[[0.0, 0.0], [9.0, 0.0]], [[3.0, 4.0], [np.inf, np.inf]], [[np.inf] * 2] * 2])
    assert summary.measure_consensus(centroids, 0) == pytest.approx(np.sqrt((0.0 + 25.0) / 2))
    assert summary.measure_consensus(centroids, 2) is None


def test_what_stands_at_the_lower_end_of_a_link_is_copied_to_the_upper_end():
    table = arrange([np.zeros((1, 1))] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    topology = table.topology
    found = summary._both_ways(topology, np.arange(8.0), table.network)
    here = list(zip(topology.sources.tolist(), topology.indices.tolist(), strict=True))
    assert found.tolist() == [float(here.index((min(link), max(link)))) for link in here]


def test_words_and_truths_are_no_figures_of_a_table():
    rows = [{"seed": 1, "ari": 0.5, "whole": True, "name": "a"}]
    assert latex_table._choose(rows, "ari") == ["ari"]
    for name in ("whole", "name", "seed"):
        with pytest.raises(ExperimentError, match="as a number"):
            latex_table._choose(rows, [name])


def test_what_was_seen_is_saved(tmp_path):
    shards = p2pkm.Shards.from_list([np.arange(12.0).reshape(6, 2) + i for i in range(3)])
    result = p2pkm.simulate(p2pkm.GTVMin(2), ring(3), shards, rounds=1, baselines=False)
    seen = Exposure(np.array([2, 2, 2]), np.array([4, 5, 6]))
    save.save(replace(result, exposure=seen), tmp_path / "run")
    with np.load(tmp_path / "run" / "exposure.npz") as kept:
        assert {name: kept[name].tolist() for name in kept} == {"devices": [2, 2, 2], "rows": [4, 5, 6]}


def test_without_a_centroid_there_is_no_distance_to_centers():
    assert np.isnan(distance(np.zeros((0, 2)), np.zeros((3, 2))))


def test_of_points_with_gaps_the_known_values_are_bounded():
    nan = np.nan
    for points in ([[nan, nan]], [[nan, 1.0], [2.0, nan]]):
        assert bounded(np.array(points), "they", missing=True) is not None
        with pytest.raises(DataError, match="NaN"):
            bounded(np.array(points), "they")
    for value in (1e200, -1e200):
        with pytest.raises(DataError, match="squares overflow"):
            bounded(np.array([[nan, value]]), "they", missing=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_number_that_is_not_finite_is_named(bad):
    array = np.zeros((5, 3))
    array[[1, 3, 4], [2, 0, 1]] = bad
    for rows, row in ((slice(0, 5), 1), (np.array([7, 9, 11, 13, 15]), 9)):
        with pytest.raises(DataError, match=f"they is {bad} at row {row}, column 2 "):
            finite(array, "they", rows)


def test_means_over_runs_and_how_many_came_near_central():
    near, far = ({"ratio_mean": 1.0 + i, "rounds_to_1pct_of_central": came} for i, came in enumerate((3, None)))
    assert average([near, far, near], ["ratio_mean"])["reached_central"] == 2
    assert average([near, far | {"ratio_mean": None}], ["ratio_mean"]) == {"ratio_mean": None, "reached_central": None}
    assert average([], ["ratio_mean"])["reached_central"] is None


@given(st.lists(st.integers(0, 9), max_size=30))
def test_chunks_cover_all_devices_and_points_and_are_small(sizes):
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_POINTS", 12)
        found = list(chunks.iter_chunks(offsets))
    assert [i for own, _ in found for i in range(own.start, own.stop)] == list(range(len(sizes)))
    for own, rows in found:
        assert (rows.start, rows.stop) == (offsets[own.start], offsets[own.stop])
        assert rows.stop - rows.start + (own.stop - own.start) <= 12 + 10
    assert len(found) <= 1 + (sum(sizes) + len(sizes)) // 12 * (sum(sizes) + len(sizes) > 12)


@pytest.mark.parametrize(("lines", "names"), [(0, set()), (6, {"labels.csv", "centroids.csv"})])
def test_tables_for_spreadsheets_unless_they_are_too_long(tmp_path, monkeypatch, lines, names):
    shards = p2pkm.Shards.from_list([np.array([[float(i)], [10.0 + i]]) for i in range(3)])
    result = p2pkm.simulate(p2pkm.GTVMin(2), ring(3), shards, rounds=1, baselines=False)
    monkeypatch.setattr(save, "_LINES", lines)
    save.write_tables(result, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == names
    for name, head in (("labels.csv", "row,device,cluster"), ("centroids.csv", "cluster,device,points,")):
        assert name not in names or (tmp_path / name).read_text().startswith(head)


@pytest.mark.parametrize("most", [0, 100, 20_000, 40_000, 10**7])
def test_the_sample_of_sets_bounds_the_work_and_has_16_at_least(most):
    table = arrange([np.ones((2, 1))] * 40, [(i, i + 1) for i in range(39)])
    prices = cost_ratio.CostEvaluator(table.devices, np.zeros(80), 0, table.network, None)
    wanted = max(int(most / (80 * 6 + cost_ratio._VISIT * 40)), 16)
    found = prices._choose(6, most)
    assert len(found) == min(wanted, 40) and (np.diff(found) > 0).all()


def test_lengths_of_numbers_are_those_in_bits():
    numbers = [0, 1, -1, 2, 3, -4, 2**31, 2**61, -(2**62), 2**62 - 1, 2**63 - 1]
    histogram, fixed = tally(np.array(numbers)[:, None], np.zeros(len(numbers), np.int64), 1)
    lengths = [abs(number).bit_length() for number in numbers]
    assert histogram[0, 0].tolist() == [lengths.count(length) for length in range(64)]
    assert fixed.tolist() == [[sum(lengths)]]


@pytest.mark.parametrize("clients", [1, _LISTED, _LISTED + 1])
def test_of_many_names_the_first_are_listed(clients):
    topology = Topology.from_graph(path(clients))
    assert topology.list_names() is None
    words = replace(topology, names=tuple(f"n{i}" for i in range(clients))).list_names().split(", ")
    assert words[:_LISTED] == [f"n{i}" for i in range(min(clients, _LISTED))]
    assert words[_LISTED:] == ([f"... ({clients} in all)"] if clients > _LISTED else [])


def test_fields_that_no_state_has_are_no_optional_ones():
    assert optional(None, "held", 7) == 7
    with pytest.raises(ValueError, match="no optional field"):
        optional(None, "holds")


@pytest.mark.parametrize("every", [None, 5])
@pytest.mark.parametrize("method", [None, 3])
def test_rounds_to_a_goal_in_words(every, method):
    figures = {"rounds_to_1pct": every, "method_rounds_to_1pct": method, "ratio_mean": 1.0}
    assert write_rounds(figures) == ("3 (5)" if every and method else "-")
    central = {f"{name}_of_central" if name != "ratio_mean" else name: value for name, value in figures.items()}
    assert write_rounds(central, "_of_central") == ("3 (5)" if every and method else "never")
    assert write_rounds(central | {"ratio_mean": None}, "_of_central") == ("3 (5)" if every and method else "-")


@pytest.mark.parametrize(("most", "known"), [(2, False), (3, True)])
def test_devices_are_compared_with_central_k_means_up_to_a_number(monkeypatch, most, known):
    monkeypatch.setattr(alignment, "_SETS", most)
    result = SimpleNamespace(centroids=np.ones((3, 1, 1)), central=np.zeros((1, 1)), byzantine=None)
    assert np.isnan(alignment.deviate_from_central(result)).tolist() == [not known] * 3


@pytest.mark.parametrize("count", [0, 6, 7, 8, 21, 22])
def test_points_are_digested_piece_by_piece(count, monkeypatch):
    rows, whole, parts = np.arange(float(count)), sha256(), sha256()
    whole.update(f"<f8({count},)".encode() + rows.tobytes())
    monkeypatch.setattr(build_run, "_PIECE", 7)
    build_run._feed(parts, rows)
    assert parts.digest() == whole.digest()


def test_the_first_run_that_failed_is_told():
    rows = [{"seed": i, "error": f"no {i}", "algorithm": "a", "graph": "g"} for i in range(3)]
    said = repr(Study(rows))
    assert "failed first: no 0" in said and "no 1" not in said


@pytest.mark.parametrize(("relaxation", "refused"), [(None, False), (0.5, False), (1.0, False), (1.5, True)])
def test_methods_that_overshoot_are_refused_where_turns_are_events(relaxation, refused):
    topology = Topology.from_graph(ring(3))
    method = p2pkm.GTVMin(2, schedule="async", relaxation=relaxation)
    net = LinkModel.lan().place(topology)
    with pytest.raises(ExperimentError) if refused else nullcontext():
        event_driven.schedule_events(method, net, topology)


def test_runs_in_words_have_a_graph_unless_they_are_alone():
    named = ("local", None, "local"), ("local:a=1", "ring", "local:a=1"), ("gtvmin", "ring", "gtvmin on ring")
    for method, graph, words in named:
        assert name_run(method, graph) == words


def test_a_difference_is_not_rounded_to_nothing():
    for value in (0.0, 0.5):
        assert conclusion._write(value, "ari") == f"{value:{conclusion._form('ari')}}"
    assert conclusion._write(1e-9, "ari") == "1.0e-09"


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def fail(path):
        raise OSError(5, "broken disk")

    (tmp_path / "a").write_text("")
    monkeypatch.setattr(checksums, "_digest", fail)
    assert _check(tmp_path, "a", "0") == ("a", "cannot be read: broken disk")
    (tmp_path / NAME).mkdir()
    assert _read(tmp_path) == (NAME, "cannot be read: Is a directory")


def test_digests_of_all_records_are_kept_while_they_are_few(monkeypatch):
    monkeypatch.setattr(monitor, "_REMEMBERED", 128)
    seen = SimpleNamespace(_heads=[], _remembered=[], chain=b"")
    for kept in (1, 2, None, None):
        monitor.Monitor._chain_up(seen, np.zeros((2, 32), np.uint8))
        assert (seen._remembered if kept is None else len(seen._remembered)) == kept
    assert len(seen._heads) == 4


def test_one_candidate_of_each_device_that_has_some():
    values = np.arange(18.0).reshape(6, 3)
    some = Tables(values, np.array([2, 0, 4]), np.array([4, 0, 2]))
    found = TreeSummaries._sets(SimpleNamespace(k=2), some, np.array([1, 0, 0]))
    assert found.tolist() == [values[4:6].tolist(), [[np.inf] * 3] * 2, values[4:6].tolist()]
    found = TreeSummaries._sets(SimpleNamespace(k=2), some.take(np.array([0, 2])), np.array([0, 0]))
    assert found.tolist() == [values[2:4].tolist(), values[4:6].tolist()]


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0)])
def test_no_points_and_no_features_are_no_points(shape):
    with pytest.raises(DataError, match="at least one point and one feature"):
        matrix(np.zeros(shape), "points")


@pytest.mark.parametrize("text", ["[a]\nb = 1", "a = [1, 2]"])
def test_a_file_of_options_has_one_level(tmp_path, text):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(ExperimentError, match="one level of keys"):
        read_toml(str(tmp_path / "run.toml"))


@pytest.mark.parametrize(("arrays", "said"), [({}, "there is none"), ({"centroids": np.zeros(3)}, r"shape \(3,\)")])
def test_arrays_that_a_run_folder_lacks_are_named(tmp_path, arrays, said):
    np.savez(tmp_path / "centroids.npz", **arrays)
    with pytest.raises(ValueError, match=f"'centroids' with 3 axes, but .*{said}"):
        load._read_arrays(tmp_path / "centroids.npz")


@pytest.mark.parametrize("figures", [{}, {"load_imbalance": 1.25, "load_imbalance_devices": 1.0, "edge_cut": 1234,
                                          "halo_size": 5, "rank_partition": "blocks"}])  # fmt: skip
def test_how_devices_lie_on_ranks_is_told(figures):
    told = []
    _tell_division(SimpleNamespace(tell=told.append), figures)
    words = "rank partition blocks: edge cut 1,234, halo 5; load imbalance 1.250 in points, 1.000 in devices"
    assert told == ([words] if figures else [])


def test_points_on_disk_have_no_weights_to_be_refused():
    method = private.Private(2, epsilon=1.0)
    assert method.traits.no_weights
    build_run.check_fit(method, RunOutline(Topology.from_graph(ring(3))), PointCount(3, 9, 2))


@pytest.mark.parametrize("failed", [0, 1])
def test_a_page_says_how_many_runs_failed(failed):
    rows = [{"seed": i, "algorithm": "a", "graph": "g", "error": "no" if i < failed else None} for i in range(3)]
    assert f"Study of 3 runs{', 1 failed' if failed else ''}</p>" in Study(rows)._repr_html_()
    assert f"Study of 1 run{', 1 failed' if failed else ''}</p>" in Study(rows[:1])._repr_html_()


def test_a_partition_that_lasts_no_round_is_refused():
    lines = ['{"kind":"trace","devices":3}', json.dumps({"kind": "partition", "round": 1, "rounds": 0})]
    with pytest.raises(ExperimentError, match="rounds"):
        parse_trace(lines, Topology.from_graph(ring(3)), "faults")


def test_the_pause_after_a_checkpoint_knows_when_it_was_begun(tmp_path, monkeypatch):
    steps = []
    for name in ("begin", "put"):
        real = getattr(CheckpointWriter, name)
        monkeypatch.setattr(CheckpointWriter, name, lambda *a, name=name, real=real: steps.append(name) or real(*a))
    p2pkm.simulate(p2pkm.GTVMin(1, init="local", tol=0.0), path(2), p2pkm.Shards.from_list([np.zeros((1, 1))] * 2),
                   rounds=2, baselines=False, checkpoint=tmp_path / "run", checkpoint_every=1)  # fmt: skip
    assert steps == ["begin", "put"] * (len(steps) // 2) and steps


def test_a_message_may_be_as_late_as_a_trace_can_say():
    assert p2pkm.Faults(delay=0.1, max_delay=LONGEST).max_delay == LONGEST
    with pytest.raises(ExperimentError, match="at most 64 rounds"):
        p2pkm.Faults(delay=0.1, max_delay=LONGEST + 1)


@pytest.mark.parametrize(("memory", "rows", "possible"), [(1984, 96, True), (1983, 96, False), (1984, 95, False)])
def test_summaries_are_flooded_where_memory_and_rows_suffice(monkeypatch, memory, rows, possible):
    ring = Topology.from_links(4, np.array([[0, 1, 1.0], [1, 2, 1.0], [2, 3, 1.0], [0, 3, 1.0]]))
    monkeypatch.setattr(registry, "_MEMORY", memory)  # 4 n^2 + 24 n * 2 in a layer * k (d + 2)
    monkeypatch.setattr(registry, "_ROWS", rows)  # 8 directed edges * n * (k + 1)
    assert registry.can_flood(ring, 2, 3) == possible


def test_a_folder_whose_name_is_too_long_is_refused(tmp_path):
    with pytest.raises(ExperimentError, match="cannot be used: File name too long; choose another folder"):
        run_folder.check_target(tmp_path / ("a" * 300), force=False)


def test_a_number_that_is_too_large_is_told_the_most():
    with pytest.raises(ExperimentError, match=r"^a is 3.0; expected a finite number above 0 and at most 2$"):
        positive(3.0, "a", most=2.0)


def test_a_lock_that_was_released_holds_no_file(tmp_path):
    held = lock.Lock(tmp_path)
    file = held._file
    held.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)


@pytest.mark.parametrize(("wish", "ranks", "kept"), [("metis", 2, True), ("blocks", 2, False), ("metis", 1, False)])
def test_points_on_disk_are_divided_into_blocks(monkeypatch, wish, ranks, kept):
    monkeypatch.setattr(build_run, "Sharded", SimpleNamespace)
    pair, points = Topology.from_links(2, np.array([[0, 1, 1.0]])), SimpleNamespace(n=2, m=2)
    with pytest.raises(ExperimentError, match="points on disk") if kept else nullcontext():
        build_run._check_points(SimpleNamespace(k=1), RunOptions(rank_partition=wish), pair, points, ranks)
    in_memory = PointCount(2, 2, 1)
    build_run._check_points(SimpleNamespace(k=1), RunOptions(rank_partition=wish), pair, in_memory, ranks)


def test_a_private_run_that_was_cut_off_says_so():
    said = [closing_rows.tell_rounds({"epsilon": 1.0, "termination": stop, "rounds": 3})
            for stop in ("converged", "round-limit")]  # fmt: skip
    assert said[0] == ("3", "all sums have been taken; how many does not depend on the points")
    assert said[1] == closing_rows.tell_rounds({"epsilon": None, "termination": "round-limit", "rounds": 3})


def test_the_spread_of_all_points_is_around_their_mean():
    points = p2pkm.Shards.from_list([np.array([[3.0, 1.0]]), np.array([[5.0, 1.0], [7.0, 4.0]])])
    together = SimpleNamespace(allgather_by_device=lambda rows: rows)
    assert_allclose(_measure(points, together, pick(2, 2, 3)), (3.0, np.sqrt((8 + 6) / 3)))


def test_whole_numbers_have_63_bits():
    assert whole(2**63 - 1, 1, "a") == 2**63 - 1
    with pytest.raises(ExperimentError, match=r"below 2\^63"):
        whole(2**63, 1, "a")


@pytest.mark.parametrize(("least", "said"), [(None, False), (0, False), (1, False), (2, True)])
def test_clusters_are_suppressed_from_two_points_on(least, said):
    figure = closing_rows.tell_suppression({"min_cluster_size": least})[0]
    assert figure == (str(least) if said else closing_rows.NO_ROW[0])


def test_faults_are_said_to_spare_the_stages_that_need_all_messages():
    spared, struck, own, after = (Stage(name, None, 1, faults_apply=name == "struck", after=name == "after")
                                  for name in ("spared", "struck", "own", "after"))  # fmt: skip
    injector = object.__new__(FaultInjector)
    injector._faults = SimpleNamespace(ignored_events=0)
    rest = "stages=all affects that, too"
    for stages, injector.exposes, notes in (
        ((spared, struck, own), False, [f"faults affect own, not what comes before (spared); {rest}"]),
        ((struck, own, after), False, [f"faults affect own, not what comes before or after (after); {rest}"]),
        ((spared, own), True, ["faults do not affect spared: these need all messages, and get them"]),
        ((struck, own), True, []),
    ):
        assert injector.notes(stages) == notes


def test_moments_of_devices_do_not_depend_on_the_pieces(monkeypatch):
    devices = arrange([[[1.0], [5.0]], [[2.0]], [[7.0], [8.0], [9.0]]], [(0, 1), (1, 2)]).devices
    tables = np.tile([[1.0], [8.0]], (3, 1, 1))
    whole = tree_sums.measure(devices, tables)
    monkeypatch.setattr(chunks, "_POINTS", 3)
    assert whole[:, 0, :2].tolist() == [[2.0, 9.0], [1.0, 1.0], [3.0, 2.0]]
    assert np.array_equal(tree_sums.measure(devices, tables), whole)
