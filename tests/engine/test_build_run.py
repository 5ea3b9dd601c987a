"""A run is checked in one order, and all ranks are given the same one."""

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.channel.quantization import Quantization
from p2pkm.channel.stale_policy import StalePolicy
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.protocols import PointCount
from p2pkm.core.spec import Spec
from p2pkm.core.traits import Condition
from p2pkm.data.out_of_core.formats import Header
from p2pkm.data.out_of_core.index import FileIndex
from p2pkm.data.out_of_core.shards import DiskShards
from p2pkm.data.stream import DataStream
from p2pkm.engine.build_batch import label_pooled
from p2pkm.engine.build_run import (
    Run,
    build_run,
    check_options,
    require_same_run,
)
from p2pkm.engine.run_job import Observers, _count_work, _tell_rank_partition
from p2pkm.engine.run_options import RunOptions
from p2pkm.network.graph import Topology
from tests.contract.test_determinism import start
from tests.support.programs import different_runs, result_of_root

RING = Topology.from_graph(topologies.ring(4))
FEW = PointCount(4, 20, 2)


def asked(**options):
    return RunOptions(clusters="auto" if options.get("k_max") else None, **options)


def build(method=None, topology=RING, points=FEW, **options):
    return build_run(method or p2pkm.GTVMin(3), asked(**options), topology, points)


def test_cheap_checks_come_first():
    apart = Topology.from_links(5, np.array([(0, 1, 1.0)]))
    wrong = [
        ({"rounds": -1}, "rounds is -1"),
        ({"record_every": 0}, "record_every is 0"),
        ({"scale": "standart"}, "scale is 'standart'"),
        ({"rank_partition": "best"}, "rank_partition is 'best'"),
        ({"stale_policy": p2pkm.StalePolicy.drop()}, "stale policy drop requires faults"),
        ({"points": FEW}, "has 5 nodes"),
        ({"points": PointCount(5, 2, 2)}, "3 clusters of 2 points"),
        ({"points": PointCount(5, 20, 2)}, "disconnected"),
    ]
    options = {}
    for given, _ in reversed(wrong):
        options = given | options
    given = {name: value for name, value in options.items() if name != "points"}
    for one, told in wrong:
        points = one.get("points", FEW)
        with pytest.raises((ExperimentError, TopologyError, p2pkm.DataError), match=told):
            build(topology=apart, points=points, **given)
        given = {name: value for name, value in given.items() if name not in one}


def test_a_method_must_fit_the_graph_and_the_number_of_points():
    changing = Topology.from_graph(topologies.one_peer_exponential(4))
    with pytest.raises(ExperimentError, match="change from round to round"):
        build(p2pkm.GTVMin(3, groups=True), topology=changing)
    assert build(topology=changing).topology is changing


@pytest.mark.parametrize(
    ("kind", "example"), [(p2pkm.Init, "'global'"), (p2pkm.LinkModel, "'lan'"), (StalePolicy, "'keep'")]
)
def test_what_is_neither_a_value_nor_text_is_refused(kind, example):
    with pytest.raises(ExperimentError, match=f"is 3; expected a p2pkm.{kind.__name__}, or text such as {example}"):
        kind.of(3)


def test_options_are_checked_without_a_graph():
    with pytest.raises(ExperimentError, match=r"start cannot be combined with mufc: .* Remove start"):
        check_options(p2pkm.MUFC(2), asked(start=[[0.0]]))
    check_options(p2pkm.GTVMin(2), asked(start=[[0.0]]))


@pytest.mark.parametrize(
    ("options", "word"), [({"scale": "minmax"}, "minmax"), ({"k_max": 5}, "auto"), ({"missing": "mean"}, "mean")]
)
def test_a_method_for_which_nothing_may_be_measured_refuses_all_that_measures(options, word):
    method = p2pkm.Private(3, epsilon=1.0, radius=2.0)
    with pytest.raises(ExperimentError, match=f"'{word}' cannot be combined with private"):
        check_options(method, asked(**options))
    check_options(method, asked(missing="drop"))
    assert build(**options).scale == options.get("scale", "none")


def test_a_number_of_clusters_is_chosen_where_all_can_agree():
    assert build(k_max=5).k_max == 5
    apart = Topology.from_links(4, np.array([(0, 1, 1.0), (2, 3, 1.0)]))
    with pytest.raises(TopologyError, match="cannot agree on a number of clusters"):
        build(topology=apart, k_max=5, allow_disconnected=True)
    for method, options, words in (
        (
            p2pkm.GTVMin(3, groups=True),
            {},
            r"clusters='auto' cannot be combined with groups: .* remove groups",
        ),
        (p2pkm.GTVMin(3), {"start": [[0.0]]}, "start and clusters='auto' cannot be combined"),
    ):
        with pytest.raises(ExperimentError, match=words):
            build(method, k_max=5, **options)


def test_the_integers_that_were_asked_for_are_those_that_travel():
    for asked, found in (("auto", "rice"), ("int8", "int8"), ("rice:threshold=1", "rice:threshold=1")):
        method = p2pkm.GTVMin(3, coupling="strong")
        plans = [build(method, quantize=Quantization.of(text)).channel for text in (asked, found)]
        assert plans[0].find("quantization") == plans[1].find("quantization") is not None


@pytest.mark.parametrize(("count", "more"), [(0, None), (2, ""), (20, ""), (21, ", ... (21 in all)")])
def test_of_many_features_the_first_20_are_named(count, more):
    names = tuple(f"f{i}" for i in range(count))
    told = Run(p2pkm.GTVMin(2), RING, features=names).list_features()
    assert told == (None if more is None else ", ".join(names[:20]) + more)


def test_points_that_arrive_are_of_the_classes_that_are_known_else_of_clusters():
    points = np.random.default_rng(0).normal(size=(20, 2))
    shards = p2pkm.Shards.deal(points, np.arange(20) % 4, devices=4, labels=np.arange(20) % 2)
    for labels, count in ((shards.labels, 2), (None, 3)):
        run = build(points=replace(shards, labels=labels), stream=DataStream(share=0.5), seed=3)
        assert run.stream.means.shape == (count, 2) and run.stream.shares.shape == (4, count)
        options = asked(stream=DataStream(share=0.5), seed=3)
        there = build_run(p2pkm.GTVMin(3), options, RING, None, arrays=run.to_arrays())  # on another rank
        assert there.digests()["stream"] == run.digests()["stream"]


def test_a_tape_is_checked_where_points_are_not_at_hand_and_needs_no_classes(tmp_path, monkeypatch):
    monkeypatch.setattr("p2pkm.engine.build_run.label_pooled", None)
    stream = DataStream(tape=str(tmp_path / "t.jsonl"))
    for device in (3, 4):
        (tmp_path / "t.jsonl").write_text(f'{{"kind": "leave", "round": 2, "device": {device}, "number": 0}}')
        for points in (FEW, p2pkm.Shards.from_list([np.arange(10.0).reshape(5, 2)] * 4)):
            if device < 4:
                assert (build(points=points, stream=stream).stream is None) == (points is FEW)
                continue
            with pytest.raises(ExperimentError, match="device is 4; expected a whole number from 0 to 3"):
                build(points=points, stream=stream)


def test_digests_tell_runs_apart_and_nothing_else():
    def digests(**changes):
        return replace(build(faults=p2pkm.Faults(loss=0.1)), **changes).digests()

    assert digests() == digests(topology=Topology.from_arrays(RING.to_arrays()), seed=np.int64(0))
    one, weights = digests(), replace(RING, weights=np.full(8, 2.0))
    for field, value in (("seed", 1), ("algorithm", p2pkm.GTVMin(3, tol=0.5)), ("topology", weights),
                         ("channel", build(faults=p2pkm.Faults(loss=0.2)).channel)):  # fmt: skip
        other = digests(**{field: value})
        assert [name for name in one if one[name] != other[name]] == [field]
    same: np.ndarray = np.broadcast_to(1.0, 8)  # one number that stands for all, as rank 0 may have it
    assert digests(topology=replace(RING, weights=same)) == digests(topology=replace(RING, weights=np.ones(8)))


@pytest.mark.slow
def test_digests_are_the_same_in_another_process():
    program = (
        "import p2pkm, topologies\n"
        "from p2pkm.core.protocols import PointCount\n"
        "from p2pkm.engine.build_run import build_run\n"
        "from p2pkm.engine.run_options import RunOptions\n"
        "run = build_run(p2pkm.GTVMin(3), RunOptions(byzantine=1, faults=p2pkm.Faults(loss=0.1)),"
        " p2pkm.Topology.from_graph(topologies.ring(4)), PointCount(4, 20, 2))\n"
        "print([digest.hex() for digest in run.digests().values()])"
    )
    ran = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
           for _ in range(2)]  # fmt: skip
    assert ran[0] == ran[1] and len(ran[0]) > 64 * 5


class _TwoRanks:
    """Rank 0 of two, of which the other sends these digests."""

    rank, size = 0, 2

    def __init__(self, other):
        self._other = other

    def gather(self, part):
        return [part, np.frombuffer(b"".join((self._other.digests() | {"points": bytes(32)}).values()), np.uint8)]

    def broadcast(self, arrays):
        return arrays


def test_a_rank_with_another_run_is_named():
    one = Run(p2pkm.GTVMin(2), RING)
    require_same_run(one, _TwoRanks(replace(one)), {"points": bytes(32)})
    with pytest.raises(ExperimentError, match="rank 1 differs from rank 0 in rounds, seed"):
        require_same_run(one, _TwoRanks(replace(one, seed=1, rounds=3)), {"points": bytes(32)})
    with pytest.raises(ExperimentError, match="rank 1 differs from rank 0 in points"):
        require_same_run(one, _TwoRanks(replace(one)), {"points": b"1" * 32})


@pytest.mark.mpi
def test_ranks_with_different_runs_all_end_and_scores_belong_to_rank_0():
    lines = start(2, "", Path(different_runs.__file__), 120)
    told = {(line["name"], line["rank"]): line["told"] for line in lines}
    for name, fields in (("seed", "seed"), ("algorithm", "algorithm"), ("topology", "topology"),
                         ("devices", "topology, points"), ("points", "points"), ("start", "start"),
                         ("channel", "baselines, channel")):  # fmt: skip
        for rank in range(2):
            assert f"rank 1 differs from rank 0 in {fields}." in told[name, rank]
    assert [told["scores on rank 0 alone", rank] for rank in range(2)] == [[True, True]] * 2


@pytest.mark.mpi
def test_rank_0_alone_receives_the_same_result():
    lines = start(3, "", Path(result_of_root.__file__), 120)
    outcomes = {(line["name"], line["rank"]): line["outcomes"] for line in lines}
    for name in result_of_root.CASES:
        assert [outcomes[name, rank] for rank in range(3)] == [["same"], ["none"], ["none"]]


def test_changing_points_are_counted_once_per_round():
    run = Run(p2pkm.GTVMin(3), RING, rounds=4)
    assert _count_work(run, 7) == 7
    assert _count_work(replace(run, stream=DataStream()), 7) == 35


def test_pooled_labels_belong_to_the_nearest_centroids():
    labels = label_pooled(np.array([[0.0, 1.0], [9.0, 8.0], [0.0, 0.0], [9.0, 9.0]]), 2, seed=0)
    assert labels[0] == labels[2] != labels[1] == labels[3]


@pytest.mark.parametrize("count", [0, 6, 7, 8, 21, 22])
def test_digests_do_not_depend_on_the_pieces(count, monkeypatch):
    rows = np.arange(float(count))
    at_once = Run(p2pkm.GTVMin(3), replace(RING, weights=rows)).digests()
    monkeypatch.setattr("p2pkm.core.digest._BLOCK", 7)
    assert Run(p2pkm.GTVMin(3), replace(RING, weights=rows)).digests() == at_once


@pytest.mark.parametrize("figures", [{}, {"load_imbalance": 1.25, "load_imbalance_devices": 1.0, "edge_cut": 1234,
                                          "halo_size": 5, "rank_partition": "blocks"}])  # fmt: skip
def test_the_rank_partition_is_described_if_it_is_known(figures):
    told = []
    _tell_rank_partition(Observers(tell=told.append), figures)
    words = "rank partition blocks: edge cut 1,234, halo 5; load imbalance 1.250 in points, 1.000 in devices"
    assert told == ([words] if figures else [])


def test_methods_without_weights_accept_points_on_disk():
    method = p2pkm.Private(2, epsilon=1.0, radius=1.0)
    assert Condition.POINT_WEIGHTS in method.traits.incompatible_with
    build(method)


@pytest.mark.parametrize(("wish", "refused"), [("metis", True), ("blocks", False), ("auto", False)])
def test_points_on_disk_are_partitioned_into_blocks(wish, refused):
    on_disk = DiskShards(FileIndex((Header("a.npy", 20, 2, False),), None, 4), Spec("blocks", {}), 4, "float64")
    with pytest.raises(ExperimentError, match="points on disk") if refused else nullcontext():
        build(points=on_disk, rank_partition=wish)
    build(rank_partition=wish)
