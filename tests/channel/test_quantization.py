"""Tables as integers: what is read can be decoded from what was counted, bits in bits; and what is refused."""

import json
from dataclasses import replace
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.channel import quantization
from p2pkm.channel.quantization import Quantization, step_bits
from p2pkm.channel.transform import Context
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages
from p2pkm.core.traits import MessageContent
from p2pkm.core.wire_format import decode, encode, integer_bits
from p2pkm.engine.loop import Start
from p2pkm.methods.building_blocks.quantization import count_bits
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.init.pipelines import Stage, needs_hub
from p2pkm.methods.init.total_variance import TotalVariance
from p2pkm.methods.schedules import make
from p2pkm.methods.server.star import Star, StarState
from tests.support.build import build_method
from tests.support.each import each
from tests.support.methods import METHODS, build
from tests.support.play_rounds import arrange
from tests.support.run_cli import SMALL, here, solve, there
from tests.support.run_cli import ranks as launch
from tests.support.sampling import thin
from tests.support.server import clients_of

REFUSED = {"coreset", "mufc", "local", "private", "feddp", "treelloyd", "fedlloyd", "ditto"}
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
    checked, usual = [], quantization.Quantizer.outgoing

    def count(self, messages, context):
        before = self._references.tables
        found = usual(self, messages, context)
        if before is not None:
            step = self.grid(context.devices, context.state).step
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

    monkeypatch.setattr(quantization.Quantizer, "outgoing", count)
    run(quantize=f"{code}:threshold=1")
    assert len(checked) > 20


@pytest.mark.parametrize("name", ["admm", "gossip", "tracking", "fkm", "kfed"])
@pytest.mark.sample(3)
def test_rows_that_are_read_are_decoded_from_the_counted_bits(monkeypatch, name):
    checked, usual = [], quantization.StepCoder.round

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

    monkeypatch.setattr(quantization.StepCoder, "round", check)
    run(name, rounds=3)
    assert any(checked)


def test_neighbors_know_the_first_table_unless_each_device_starts_by_itself():
    shared, own = run(rounds=0), run(p2pkm.GTVMin(3, init="local"), rounds=0)
    assert stage_of(shared, "gtvmin") == 0
    assert stage_of(shared, "gtvmin", "bytes") == stage_of(own, "gtvmin") == 12 * 3 * 2 * 8


@pytest.mark.parametrize("name", thin(sorted(set(METHODS) - REFUSED), 3))
@pytest.mark.sample(3)
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
    # With rice codes, which cannot be combined with its choice, gtvmin would take another coupling.
    spec = "gtvmin:coupling=strong" if name == "gtvmin" else name
    exact, found = (p2pkm.simulate(spec, graph, SHARDS, clusters=3, rounds=30, quantize=one) for one in (None, "rice"))
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


@each("name", sorted(REFUSED))
def test_methods_without_rows_are_refused(name):
    with pytest.raises(ExperimentError, match=f"{name}: the method (does not send rows|sends integers)"):
        run(name)


@each(
    ("method", "options", "why"),
    [
        (p2pkm.GTVMin(3), {"faults": "loss=0.1"}, "late or lost"),
        (p2pkm.GTVMin(3), {"byzantine": "1"}, "that are not differences"),
        (p2pkm.GTVMin(3), {"noise": 0.1}, "not a multiple of the step size"),
        (p2pkm.GTVMin(3, swaps=True), {}, "gtvmin with swaps=true: the method moves"),
        (p2pkm.GTVMin(3, local_steps=2), {}, "local_steps=2"),
        (p2pkm.GTVMin(3, schedule="async"), {"link_model": "lan"}, "late or lost"),
        (p2pkm.GTVMin(3), {"graph": topologies.peer_sampler(6, degree=4, period=2, seed=2)}, "links change"),
        (p2pkm.GTVMin(3), {"quantize": "rice:bits=53"}, "from 1 to 52"),
        (p2pkm.GTVMin(3), {"quantize": "rice:threshold=0"}, "at least 1"),
        (p2pkm.GTVMin(3), {"quantize": "gamma"}, "unknown quantize 'gamma'"),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_work(method, options, why):
    with pytest.raises(ExperimentError, match=why):
        run(method, **options)


def test_the_text_of_the_value_reads_back():
    for text in ("rice", "int8", "rice:bits=12", "rice:bits=1", "int8:bits=9,threshold=1"):
        assert str(Quantization.of(text)) == text
    assert Quantization.of("rice:bits=9") == Quantization("rice", bits=9)


def wake(algorithm, agreed, devices, *, before=(), **options):
    """Return a quantizer at the beginning of the method's own stage, with what the devices have agreed on."""
    stages = [Stage("agree", None, 1), *before, Stage("own", algorithm, 1)]
    quantizer = quantization.Quantizer(spec=Quantization("rice", **options))
    quantizer.start([one._replace(algorithm=one.algorithm or algorithm) for one in stages], devices, None)
    quantizer = quantizer.begin(stages[-1], closing=True)
    quantizer._agreed = agreed
    return quantizer


def sender(content, **more):
    return build_method(message_content=content, **more)


class Moved(NamedTuple):
    """All that a quantizer asks of a state."""

    centroids: np.ndarray
    converged: np.ndarray = np.zeros(3, bool)
    coupling: np.ndarray = np.zeros(0)


def coded(steps):
    """Return the bits of a table of whole steps, among them the one that says that it is in steps."""
    return 1 + int(integer_bits(steps.astype(np.int64)[None])[0])


def count_rest(column):
    """Return the bits of a column that is no coordinate."""
    return coded(column) if (np.rint(column) == column).all() else 1 + 64 * len(column)


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize(
    ("content", "common"),
    [(MessageContent.CENTROIDS, False), (MessageContent.CENTROIDS, True), (MessageContent.SUMS, True)],
)
def test_tables_of_peers_are_in_steps_from_the_last_ones(content, common, d):
    """At first from the mean of all points, sums from 0, and what all start from where they have that in common."""
    rng, width, k = np.random.default_rng(d), d + 1, 9
    devices = arrange([rng.normal(size=(4, d))] * 3, [(0, 1), (1, 2)]).devices
    mean, variance = rng.normal(size=d), 2.0
    start = rng.normal(size=(3, k, d))
    start[1, 4:] = np.inf
    before = [Stage("start", sender(content, common_centroids=common), 1)]
    quantizer = wake(sender(content), np.tile([*mean, variance], (3, 1)), devices, before=before, bits=7)
    step, sums = np.sqrt(variance) * 2.0**-7, content is MessageContent.SUMS
    steps = np.full(width, step)
    if sums:
        steps[d] = step / np.sqrt(mean @ mean + variance)
        steps *= 12.0 / (3 * 3)  # the mean weight of a row: of 12 points on 3 devices in 3 clusters
    known = np.zeros((3, k, width))
    if not sums:
        known[:, :, :d] = np.where(common & np.isfinite(start), start, mean)
    context = Context(1, devices, Moved(start))
    for turn in range(3):
        values, rows = rng.normal(size=(3, k, width)), np.array([[k, 3, 0], [2, k, 0], [k, k, 4]][turn])
        values[:, :, d] = rng.integers(0, 99, (3, k)) if turn < 2 else values[:, :, d]
        found = quantizer.outgoing(DenseMessages(values, rows), context)
        assert_array_equal(found.rows, rows)
        for i, some in enumerate(rows):
            whole = width if sums else d
            way = np.rint((values[i, :some] - known[i, :some]) / steps)[:, :whole]
            wanted = known[i, :some, :whole] + steps[:whole] * way
            assert_allclose(found.values[i, :some, :whole], wanted, rtol=1e-12)
            assert_array_equal(found.values[i, :some, whole:], values[i, :some, whole:])
            rest = sum(count_rest(values[i, :some, column : column + 1]) for column in range(whole, width))
            assert found.wire[i] == -(-(coded(way) + rest) // 8)
            known[i, :some] = found.values[i, :some]


@pytest.mark.parametrize("d", [1, 3])
def test_reports_and_answers_are_in_steps_from_the_nearest_row_of_the_last_answer(d):
    """A client knows what the server sent it, the server what it sent; who knows nothing takes the mean of all."""
    rng, k = np.random.default_rng(d), 9
    devices, _ = clients_of([rng.normal(size=(4, d))] * 3)
    mean, hub = rng.normal(size=d), devices.ids == devices.server
    shift, span = np.full((4, d), 0.5), np.full((4, d), 3.0)
    model = np.full((4, k, d), np.inf)
    model[1, :6], model[2, :1] = rng.normal(size=(6, d)), rng.normal(size=(1, d))
    quantizer = wake(Star(p2pkm.FKM(k)), np.tile([*mean, 2.0], (4, 1)), devices, bits=7)
    state = StarState(model, np.zeros(4, bool), *[None] * 4, shift, span, None)
    step, sent = np.sqrt(2.0) * 2.0**-7, np.zeros((0, d))
    turns = [k, k, 1, -1], *([-1, -1, -1, count] for count in (k, 2, k, 0, k))
    for turn, rows in enumerate(turns):
        values = rng.normal(size=(4, max(rows), d + (turn == 0)))  # reports have a count, too
        values[:, :, d:] = rng.integers(0, 99, (4, max(rows), 1))
        found = quantizer.outgoing(DenseMessages(values, np.array(rows)), Context(1, devices, state))
        for i in np.flatnonzero(np.array(rows) > 0):
            origin, unit = (0.0, 1.0) if hub[i] else (0.5, 3.0)
            held = sent if hub[i] else model[i, np.isfinite(model[i, :, 0])]
            held = ((held if len(held) else mean[None]) - origin) / unit
            table, ways = values[i, : rows[i]], []
            for row, got in zip(table, found.values[i], strict=False):
                nearest = held[((row[:d] - held) ** 2).sum(axis=1).argmin()]
                ways.append(np.rint((row[:d] - nearest) * unit / step))
                assert_allclose(got[:d], nearest + step / unit * ways[-1], rtol=1e-12)
            bits = coded(np.array(ways)) + rows[i] * int(np.ceil(np.log2(len(held))))
            bits += sum(count_rest(table[:, column : column + 1]) for column in range(d, table.shape[1]))
            assert found.wire[i] == -(-bits // 8)
        sent = found.values[3, : rows[3]] if rows[3] >= 0 else sent


def test_where_all_points_are_equal_tables_of_them_are_of_zeros():
    devices = arrange([np.full((2, 2), 7.0)] * 3, [(0, 1), (1, 2)]).devices
    quantizer = wake(sender(MessageContent.CENTROIDS), np.tile([7.0, 7.0, 0.0], (3, 1)), devices)
    context = Context(1, devices, Moved(None))
    found = quantizer.outgoing(DenseMessages(np.full((3, 40, 2), 7.0), np.full(3, 40)), context)
    assert (found.wire == -(-coded(np.zeros((40, 2))) // 8)).all()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_an_opening_that_every_stage_before_made_common_is_not_sent(first, second):
    """And of a method on the grid those who have not moved are silent."""
    before = [Stage(name, sender(MessageContent.OTHER, common_centroids=common), 1)
              for name, common in (("one", first), ("other", second))]  # fmt: skip
    devices = arrange([np.ones((1, 1))] * 3, [(0, 1), (1, 2)]).devices
    quantizer = wake(sender(MessageContent.CENTROIDS, moves_on_grid=True), np.ones((3, 2)), devices, before=before,
                     bits=3)  # fmt: skip
    context = Context(1, devices, Moved(None))
    values = np.zeros((3, 2, 1))
    wire = quantizer.outgoing(DenseMessages(values, np.full(3, 2)), context).wire
    assert (wire is not None and (wire == 0).all()) == (first and second)
    values = np.where(np.arange(3) == 0, 1.0, values.T).T  # device 0 moves by 8 steps
    moved = quantizer.outgoing(DenseMessages(values, np.full(3, 2)), context)
    assert moved.rows.tolist() == [2, -1, -1]
    assert moved.wire[0] == -(-(coded(np.full((2, 1), 8.0)) - 1) // 8)


def test_on_the_grid_silence_is_the_end_only_once_every_device_has_converged():
    """Who moves by less than half a step is silent, and may move on; whatever else ends a run does so."""
    method, table = sender(MessageContent.CENTROIDS, moves_on_grid=True), arrange([np.ones((1, 1))] * 3, [(0, 1)])
    quantizer = wake(method, np.ones((3, 2)), table.devices, bits=3)
    schedule = quantizer.wrap(method, make("jacobi", table.devices, None), table.network)[1]
    for converged, ending in (([True, False, True], ""), ([True] * 3, "silent")):
        context = Context(1, table.devices, Moved(None, converged=np.array(converged)))
        quantizer.outgoing(DenseMessages(np.zeros((3, 2, 1)), np.full(3, 2)), context)
        found = [schedule.check_termination(stop) for stop in ("silent", "oscillating", "")]
        assert found == [ending, "oscillating", ""]


def test_the_grid_follows_what_was_agreed_on_the_estimated_coupling_and_the_weight_of_all_points():
    devices = arrange([np.ones((6, 2)), np.zeros((4, 2))], [(0, 1)]).devices

    usual, estimated = (wake(p2pkm.GTVMin(2, **coupling), np.full((2, 3), 4.0), devices)
                        for coupling in ({"alpha": 1.0}, {"coupling": "bayes"}))  # fmt: skip
    step = usual.grid(devices, None).step
    usual._agreed = np.full((2, 3), 9.0)  # a resumed run learns it once the stage has begun
    assert_array_equal(usual.grid(devices, None).step, 1.5 * step)
    assert (usual.grid(replace(devices, total_weight=0.1), None).step < 1.5 * step).all()
    weak, strong = (estimated.grid(devices, Moved(None, coupling=np.full(2, c))).step for c in (0.5, 50.0))
    assert_array_equal(weak, 64.0 * strong)
    fixed = wake(p2pkm.GTVMin(2), np.full((2, 3), 9.0), devices, bits=5, threshold=4)
    grid = fixed.grid(devices, None)
    assert (grid.step.tolist(), grid.threshold, grid.rice) == ([3.0 / 32.0] * 2, 4, True)


@pytest.mark.parametrize("name", thin(["gtvmin", "admm", "consensus", "gossip", "fkm"], 4))
@pytest.mark.parametrize(
    "points",
    [
        [1e99 * RNG.normal(size=(5, 2)) for _ in range(4)],
        [np.full((3, 2), 7.0)] * 4,
        [RNG.normal(size=(5, 2)) + 1e9 for _ in range(4)],
        [RNG.normal(size=(5, 2)), np.zeros((0, 2)), RNG.normal(size=(4, 2)), RNG.normal(size=(1, 2))],
    ],
    ids=["1e99", "no spread", "far", "no points"],
)
@pytest.mark.sample(3)
def test_extreme_data(name, points):
    found = run(name, k=2, shards=p2pkm.Shards.from_list(points), graph=nx.path_graph(4))
    assert np.isfinite(found.centroids[:, 0]).any()
    assert found.summary["descent"] in (None, "certified")


def test_the_total_variance_is_that_of_all_points():
    blocks = [3.0 + RNG.normal(size=(size, 3)) for size in (4, 0, 1, 6, 2)] + [1e6 + RNG.normal(size=(3, 3))]
    mass = RNG.uniform(0.5, 2.0, 16)
    table = arrange(blocks, [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5)], weights=mass)
    stage, devices, network = TotalVariance(2, build_spanning_tree(table.topology)), table.devices, table.network
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


@pytest.mark.parametrize("alpha", [0.01, 0.3, 20.0])
def test_alpha_and_the_equal_coupling_need_the_same_number_of_bits(alpha):
    devices = arrange([np.ones((6, 2)), np.zeros((4, 2))], [(0, 1)]).devices
    coupling = alpha * 2 * devices.total / devices.total_weight
    assert step_bits(p2pkm.GTVMin(2, alpha=alpha), devices) == count_bits(coupling, 2)
    assert count_bits(0.01) < count_bits(20.0)
    # 64 steps per standard deviation of a feature at coupling 0.
    assert [count_bits(0.0, d) for d in (1, 2, 4, 5, 64)] == [6, 7, 7, 8, 9]


@pytest.mark.parametrize(("least", "wanted"), [(0, [1, 2, 3, 0]), (1, [1, 2, 3, 0]), (2, [0, 0, 3, 0])])
def test_devices_of_too_few_points_are_left_out_of_the_total_variance(least, wanted):
    table = arrange([np.ones((m, 1)) for m in (1, 2, 3)] + [[]], [(0, 1), (1, 2), (2, 3)])
    devices = replace(table.devices, min_count=least)
    state = TotalVariance(1, build_spanning_tree(table.topology)).initial_state(devices, None)
    assert state.totals[:, 0].tolist() == wanted
