"""Tables as integers: what is read can be decoded from what was counted, bits in bits; and what is refused."""

import json

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.channel import quantization
from p2pkm.channel.quantization import Quantization
from p2pkm.core.errors import ExperimentError
from p2pkm.core.wire_format import decode, encode
from p2pkm.engine.loop import Start
from p2pkm.methods.building_blocks.spanning_tree import grow
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.init.total_variance import TotalVariance
from tests.support.methods import METHODS, build
from tests.support.play_rounds import arrange
from tests.support.run_cli import SMALL, here, solve, there
from tests.support.run_cli import ranks as launch

REFUSED = {"coreset", "mufc", "local", "private", "treelloyd"}
RNG = np.random.default_rng(4)
SHARDS = p2pkm.Shards.from_list([RNG.normal(5.0 * RNG.integers(0, 3, (9, 1)), 1.0, (9, 2)) for _ in range(6)])
GRAPH = topologies.ring(6)


def run(name="gtvmin", k=3, shards=SHARDS, graph=GRAPH, rounds=12, **options):
    method = build(name, k) if isinstance(name, str) else name
    quantize = options.pop("quantize", "rice")
    graph = None if needs_hub(method) else graph
    return p2pkm.simulate(method, graph, shards, rounds=rounds, baselines=False, quantize=quantize, **options)


def stage_of(result, name, key="wire_bytes"):
    """Return what a stage added to a count."""
    places = [place for place, record in enumerate(result.rounds) if record["stage"] == name]
    return result.rounds[places[-1]][key] - ([0] + [record[key] for record in result.rounds])[places[0]]


@pytest.mark.parametrize("code", ["rice", "int8"])
def test_what_neighbors_hold_is_decoded_from_the_counted_bits(monkeypatch, code):
    """A receiver that knows the last table, the step and the bits of a message has the state of its sender."""
    checked, usual = [], quantization.Quantizer._count_moves

    def count(self, messages, context):
        before = self._last
        found = usual(self, messages, context)
        if before is not None:
            step = self._step(context.devices)
            for i in np.flatnonzero(found.rows >= 0):
                rows = found.rows[i]
                moves = np.rint((messages.values[i, :rows] - before[i, :rows]) / step[i]).astype(np.int64)
                bits = encode(moves, rice=code == "rice")
                assert -(-len(bits) // 8) == found.wire[i]
                received = before[i, :rows] + step[i] * decode(bits, *moves.shape)
                assert_array_equal(received, context.state.centroids[i])
                checked.append(i)
            silent = found.rows < 0
            assert_array_equal(before[silent], context.state.centroids[silent])
        return found

    monkeypatch.setattr(quantization.Quantizer, "_count_moves", count)
    run(quantize=f"{code}:threshold=1")
    assert len(checked) > 20


@pytest.mark.parametrize("name", ["admm", "gossip", "tracking", "fkm", "kfed"])
def test_rows_that_are_read_are_decoded_from_the_counted_bits(monkeypatch, name):
    checked, usual = [], quantization.Quantizer._round

    def check(self, values, reference, steps, real, devices):
        found, bits = usual(self, values, reference, steps, real, devices)
        rounds = values.shape[2] if name == "tracking" else 2
        for i, rows in enumerate(real[:, :, 0].sum(axis=1)):
            length, pieces = 1, [(slice(0, rounds), True), *((slice(c, c + 1), False) for c in range(rounds, 3))]
            for columns, always in pieces[: 1 + values.shape[2] - rounds]:
                one = found[i, :rows, columns]
                way = np.rint((one - reference[i, :rows, columns]) / steps[i, columns])
                whole = always or (way == values[i, :rows, columns]).all()
                coded = encode(way.astype(np.int64)) if whole else ""
                length += len(coded) if whole else 64 * rows
                length += not always
                read = decode(coded, rows, one.shape[1]) if whole else None
                assert_array_equal(one, reference[i, :rows, columns] + steps[i, columns] * read if whole else one)
                checked.append(np.abs(way).max(initial=0.0) > 0.0)
            assert length == bits[i]
        return found, bits

    monkeypatch.setattr(quantization.Quantizer, "_round", check)
    run(name, rounds=3)
    assert any(checked)


def test_neighbors_know_the_first_table_unless_each_device_starts_by_itself():
    shared, own = run(rounds=0), run(p2pkm.GTVMin(3, init="local"), rounds=0)
    assert stage_of(shared, "gtvmin") == 0
    assert stage_of(shared, "gtvmin", "bytes") == stage_of(own, "gtvmin") == 12 * 3 * 2 * 8


@pytest.mark.parametrize("name", sorted(set(METHODS) - REFUSED))
def test_every_other_method_sends_fewer_bytes(name):
    found = run(name, rounds=3)
    assert found.summary["wire_bytes"] < found.summary["bytes"]
    assert found.summary["quantize"] == "rice"
    assert found.ledger.wire_bytes.sum() == found.summary["wire_bytes"] == found.rounds[-1]["wire_bytes"]
    exact = run(name, rounds=3, quantize=None)
    assert exact.summary["wire_bytes"] == exact.summary["bytes"]
    assert (exact.ledger.wire_bytes == exact.ledger.bytes).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METHODS) - REFUSED))
def test_quality_hardly_changes(name):
    graph = None if needs_hub(build(name, 3)) else GRAPH
    exact, found = (p2pkm.simulate(build(name, 3), graph, SHARDS, rounds=30, quantize=one) for one in (None, "rice"))
    assert found.summary["ratio_mean"] == pytest.approx(exact.summary["ratio_mean"], rel=0.02)


def test_virtual_time_knows_the_lengths_on_the_wire():
    """On a link of 1 kB/s a run takes the bytes that it sends, and one that goes on from a checkpoint as long."""
    slow = {"link_model": "lan:bandwidth=1e3,access=1e3,latency=0", "rounds": 6}
    exact, found = (run(quantize=one, **slow).summary for one in (None, "rice"))
    assert found["virtual_seconds"] < exact["virtual_seconds"]
    seldom = run(p2pkm.GTVMin(3, init="local"), **slow)
    ends = {(one["stage"], one["round"]): one["virtual_seconds"] for one in seldom.rounds}
    least = stage_of(seldom, "gtvmin") / 12 / 1e3  # over each of the directed edges
    assert ends["gtvmin", seldom.summary["rounds"]] - ends["local", 0] > least


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_methods_without_rows_are_refused(name):
    with pytest.raises(ExperimentError, match=f"{name} (does not send rows|sends whole numbers)"):
        run(name)


@pytest.mark.parametrize(
    ("method", "options", "why"),
    [
        (p2pkm.GTVMin(3), {"faults": "loss=0.1"}, "late or lost"),
        (p2pkm.GTVMin(3), {"byzantine": "1"}, "no differences"),
        (p2pkm.GTVMin(3), {"noise": 0.1}, "whole number of steps"),
        (p2pkm.GTVMin(3, swaps=True), {}, "with swaps"),
        (p2pkm.GTVMin(3, local_steps=2), {}, "local_steps=2"),
        (p2pkm.GTVMin(3, schedule="async"), {"link_model": "lan"}, "late messages"),
        (p2pkm.GTVMin(3), {"graph": topologies.peer_sampler(6, degree=4, period=2, seed=2)}, "links of .* change"),
        (p2pkm.GTVMin(3), {"quantize": "rice:bits=53"}, "from 1 to 52"),
        (p2pkm.GTVMin(3), {"quantize": "rice:threshold=0"}, "at least 1"),
        (p2pkm.GTVMin(3), {"quantize": "gamma"}, "unknown quantize 'gamma'"),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_work(method, options, why):
    with pytest.raises(ExperimentError, match=why):
        run(method, **options)


def test_the_text_of_the_value_reads_back():
    for text in ("rice", "int8", "rice:bits=12", "int8:bits=9,threshold=1"):
        assert str(Quantization.of(text)) == text
    assert Quantization.of("rice:bits=9") == Quantization("rice", bits=9)


@pytest.mark.parametrize("name", ["gtvmin", "admm", "consensus", "gossip", "fkm"])
@pytest.mark.parametrize(
    "points",
    [
        [1e99 * RNG.normal(size=(5, 2)) for _ in range(4)],
        [np.full((3, 2), 7.0)] * 4,
        [RNG.normal(size=(5, 2)) + 1e12 for _ in range(4)],
        [RNG.normal(size=(5, 2)), np.zeros((0, 2)), RNG.normal(size=(4, 2)), RNG.normal(size=(1, 2))],
    ],
    ids=["1e99", "no spread", "far", "no points"],
)
def test_extreme_data(name, points):
    found = run(name, k=2, shards=p2pkm.Shards.from_list(points), graph=nx.path_graph(4))
    assert np.isfinite(found.centroids[:, 0]).any()
    assert found.summary["descent"] in (None, "certified")


def test_the_total_variance_is_that_of_all_points():
    blocks = [3.0 + RNG.normal(size=(size, 3)) for size in (4, 0, 1, 6, 2)] + [1e6 + RNG.normal(size=(3, 3))]
    mass = RNG.uniform(0.5, 2.0, 16)
    table = arrange(blocks, [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5)], weights=mass)
    stage, devices, network = TotalVariance(2, grow(table.topology)), table.devices, table.network
    state = stage.initial_state(devices, Start(np.zeros((6, 2, 3)), np.ones(6, np.bool_)))
    heard = network.deliver(stage.message(state, devices.at_stage_start(np.ones(6, np.bool_))))
    for turn in range(int(stage.schedule.split("*")[1])):
        now = devices.at_turn(1, turn, np.ones(6, np.bool_))
        state = stage.update(state, heard, now)
        heard = network.deliver(stage.message(state, now))
    points = np.concatenate(blocks)
    mean = np.average(points, axis=0, weights=mass)
    variance = np.average(((points - mean) ** 2).sum(axis=1), weights=mass)
    assert_allclose(state.agreed, np.tile([*mean, variance], (6, 1)), rtol=1e-12)
    assert (state.agreed == state.agreed[0]).all()
    assert state.converged.all()
    assert network.ledger.totals == (10, 5 * 8 * (5 + 4))
    assert_array_equal(state.centroids, np.zeros((6, 2, 3)))  # given centroids pass


@pytest.mark.slow
def test_a_plan_counts_the_agreement_on_the_step():
    ended = here("plan", "--devices", 8, "--quantize", "rice", "--rounds", 3, "--format", "json")
    assert ended.code == 0, ended.err
    stages = {one["name"]: one["total"] for one in json.loads(ended.out)["stages"]}
    variance, method = stages["total-variance"], stages["gtvmin"]
    assert (variance["messages"], variance["bytes"]) == (14, 7 * 8 * (4 + 3))
    assert variance["exact_bytes"] and not method["exact_messages"]
    found = solve("--devices", 8, "--data", "grid16", "--quantize", "rice", "--rounds", 3)
    assert found["messages"] <= sum(one["messages"] for one in stages.values())
    assert here(*SMALL, "--quantize", "rice", "--faults", "loss=0.1").code == 2


@pytest.mark.mpi
def test_the_same_bits_and_bytes_on_three_ranks(tmp_path):
    for number, more in enumerate((["--algorithm", "gtvmin"], ["--algorithm", "tracking"], ["--algorithm", "fkm"])):
        words = ["-m", "p2pkm", *SMALL, *more, "--quantize", "rice", "--format", "json", "--out"]
        one = there(*launch(1), *words, tmp_path / f"one{number}", cwd=tmp_path)
        three = there(*launch(3), *words, tmp_path / f"three{number}", cwd=tmp_path)
        found = [json.loads(ended.out) for ended in (one, three)]
        for key in ("chain_sha256", "bytes", "wire_bytes"):
            assert found[0][key] == found[1][key]
