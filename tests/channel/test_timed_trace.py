"""Traces in seconds: every line that is wrong is named, what is written reads back the same, and what holds when."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import p2pkm
from p2pkm.channel.fault_model import rebuild_fault_model
from p2pkm.channel.fault_trace import parse_trace, read_trace
from p2pkm.channel.sampled_faults import Faults
from p2pkm.channel.timed_faults import TimedFaults
from p2pkm.channel.timed_trace import NAMES, write_timed_trace
from p2pkm.core.errors import ExperimentError
from p2pkm.network.graph import Topology
from p2pkm.network.link_model import LinkModel
from tests.support.run_cli import here
from topologies import ring

RING = Topology.from_graph(ring(4))
GOOD = '{"kind": "device", "seconds": 3, "device": 0, "online": false}'


def device(seconds, number, **values):
    return json.dumps({"kind": "device", "seconds": seconds, "device": number, **values})


def link(seconds, src, dst, **values):
    return json.dumps({"kind": "link", "seconds": seconds, "src": src, "dst": dst, **values})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"kind": "device", "device": 1, "online": true}', "device has no seconds; expected device, seconds"),
        ('{"kind": "device", "seconds": 3, "online": true}', "device has no device"),
        ('{"kind": "link", "seconds": 3, "src": 1, "loss": 1}', "link has no dst; expected src, dst, seconds"),
        (device(3, 1), "device sets nothing; expected one or more of online, speed, access"),
        (link(3, 1, 2), "link sets nothing; expected one or more of latency, bandwidth, loss"),
        (device(3, 1, loss=0.5), "unknown key 'loss' of device; expected access, device, kind, online, seconds, speed"),
        (link(3, 1, 2, rounds=2), "unknown key 'rounds' of link"),
        (device(-1, 1, online=True), "seconds is -1; expected a number from 0"),
        (device(True, 1, online=True), "seconds is True"),
        (device("x", 1, online=True), "seconds is 'x'"),
        (device(float("nan"), 1, online=True), "seconds is nan"),
        (device(float("inf"), 1, online=True), "seconds is inf"),
        (device(1, 1, online=True), "seconds is 1 after a line with 3; expected lines in the order of their seconds"),
        (device(3, 5, online=True), "device is 5; expected a whole number from 0 to 4"),
        (device(3, 1.0, online=True), "device is 1.0"),
        (device(3, 1, online=1), "online is 1; expected true or false"),
        (device(3, 1, speed=0), "speed is 0; expected a number from 1e-30 to 1e+30"),
        (device(3, 1, speed=float("inf")), "speed is inf"),
        (device(3, 1, access=None), "access is None"),
        (link(3, 1, 2, latency=-0.1), "latency is -0.1; expected a number from 0 to 1e+30"),
        (link(3, 1, 2, bandwidth="5Mbit"), "bandwidth is '5Mbit'"),
        (link(3, 1, 2, loss=1.5), "loss is 1.5; expected a number from 0 to 1"),
        (link(3, 1, 2, loss=True), "loss is True"),
        (link(3, 2, 2, loss=0), "src and dst are both 2"),
        (device(3, 0, speed=1e9, online=True), "online of device 0 is set once more at 3 s; expected one line"),
        ('{"kind": "away", "round": 3, "device": 0}', "events by round or by seconds; this one has both"),
        ('{"kind": "away", "seconds": 3, "device": 0}', "away has no round"),
        ('{"kind": "partition", "round": 3}', "events by round or by seconds; this one has both"),
    ],
)
def test_a_wrong_line_is_named(line, said, tmp_path):
    (tmp_path / "t.jsonl").write_text(f"{GOOD}\n\n{line}\n")
    with pytest.raises(ExperimentError) as caught:
        read_trace(str(tmp_path / "t.jsonl"), RING)
    assert said in str(caught.value) and "t.jsonl, line 3:" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"kind": "trace", "stages": "all"}', GOOD], "seconds count from the start of the method"),
        (['{"kind": "trace", "every": -1}', GOOD], "every is -1; expected a number from 0"),
        (['{"kind": "trace", "every": 60}', '{"kind": "away", "round": 3, "device": 0}'], "no line has any"),
        ([GOOD, link(3, 0, 1, loss=0.5), link(3, 0, 1, loss=0.2)], "line 3: loss of link 0 to 1 is set once more"),
    ],
)
def test_a_wrong_trace_is_refused(lines, said):
    with pytest.raises(ExperimentError, match="trace") as caught:
        parse_trace(lines, RING, "trace")
    assert said in str(caught.value)


def test_what_the_graph_does_not_have_is_left_out_and_counted():
    lines = [GOOD, device(3, 4, online=False), link(3, 0, 2, loss=1, latency=2), link(4, 0, 4, loss=1)]
    trace = parse_trace(lines, RING, "trace")
    assert trace.ignored_events == 4 and trace.places.tolist() == [0]
    star = parse_trace(lines, Topology.star(4), "trace")  # the server is device 4
    assert star.ignored_events == 2 and star.places.tolist()[:2] == [0, 4]
    alone = Topology.from_links(1, np.zeros((0, 3)))
    assert parse_trace([device(0, 0, speed=2), link(3, 0, 1, loss=1)], alone, "trace").ignored_events == 1


def draw_lines(seed):
    """Draw the lines of a trace on the ring; most seconds are equal to others."""
    rng = np.random.default_rng(seed)
    lines = []
    for seconds in np.sort(rng.integers(0, 8, 12) / 2).tolist():
        i = int(rng.integers(4))
        j = (i + int(rng.choice([1, 3]))) % 4
        if rng.random() < 0.6:
            values = {"online": bool(rng.random() < 0.5), "speed": float(rng.random() + 1), "access": 5.0}
            line = {"kind": "device", "seconds": seconds, "device": i}
        else:
            values = {"latency": float(rng.random()), "bandwidth": 7.0, "loss": float(rng.choice([0, 0.5, 1]))}
            line = {"kind": "link", "seconds": seconds, "src": i, "dst": j}
        where = [value for key, value in line.items() if key != "kind"]
        if all(where != [value for key, value in other.items() if key in line and key != "kind"] for other in lines):
            kept = [name for name in values if rng.random() < 0.6] or list(values)[:1]
            lines.append(line | {name: values[name] for name in kept})
    return lines


@pytest.mark.parametrize("seed", range(30))
def test_what_is_written_reads_back_the_same(seed):
    lines = [{"kind": "trace", "devices": 4, "every": 2.5}, *draw_lines(seed)]
    trace = parse_trace(map(json.dumps, lines), RING, "trace")
    assert [json.loads(line) for line in write_timed_trace(trace, RING)] == lines


def test_devices_of_a_graph_without_links_are_written():
    alone = Topology.from_links(3, np.zeros((0, 3)))
    lines = [{"kind": "trace", "devices": 3}, json.loads(device(0, 2, online=False))]
    trace = parse_trace(map(json.dumps, lines), alone, "trace")
    assert [json.loads(line) for line in write_timed_trace(trace, alone)] == lines


@pytest.mark.parametrize("seed", range(30))
def test_a_round_has_the_values_of_the_last_lines_before_it(seed):
    """Against a search through all lines; rounds are asked for in any order, as the clocks of a run do."""
    lines = draw_lines(seed)
    trace = parse_trace(map(json.dumps, lines), RING, "trace")
    faults = TimedFaults(trace, RING, seed=0)
    other = rebuild_fault_model(Faults(trace="elsewhere"), faults.to_arrays(), RING, 0)
    net = LinkModel.lan().place(RING)
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, 10, 12) / 2
    for t in rng.permutation(12).tolist():

        def hold(name, usual, seconds=starts[t], **place):
            found = [line[name] for line in lines if name in line and line["seconds"] <= seconds
                     and all(line.get(key) == value for key, value in place.items())]  # fmt: skip
            return found[-1] if found else usual

        for model in (faults, other):
            model.move_to(float(starts[t]))
            offline = [i for i in range(4) if not hold("online", True, device=i)]
            assert_array_equal(model.begin(t), [[0, t, i, -1, 1, -1] for i in offline] or np.zeros((0, 6)))
            found = model.set_values(net)
            for name in ("speed", "access"):
                usual = getattr(net, name)[0]
                assert getattr(found, name).tolist() == [hold(name, usual, device=i) for i in range(4)]
            ends = list(zip(RING.sources.tolist(), RING.indices.tolist(), strict=True))
            for name in ("latency", "bandwidth"):
                usual = getattr(net, name)[0]
                assert getattr(found, name).tolist() == [hold(name, usual, src=i, dst=j) for i, j in ends]
            losses = [hold("loss", 0, src=i, dst=j) for i, j in ends]
            lost = [model.message_delays(t, turn, RING.sources, RING.indices) < 0 for turn in range(60)]
            share = np.mean(lost, axis=0)
            assert ((share == losses) | (np.isin(losses, 0.5) & (np.abs(share - 0.5) < 0.3))).all()
    assert faults.device_faults_only == (not any(line.get("loss") for line in lines))


def test_a_link_loses_its_share_of_the_messages():
    trace = parse_trace([link(0, 0, 1, loss=0.02), link(0, 1, 2, loss=0.3)], RING, "trace")
    lost = {}
    for seed in (0, 1):
        faults = TimedFaults(trace, RING, seed)
        lost[seed] = np.array([faults.message_delays(0, turn, RING.sources, RING.indices) < 0 for turn in range(5000)])
    for edge, (i, j) in enumerate(zip(RING.sources, RING.indices, strict=True)):
        share = {(0, 1): 0.02, (1, 2): 0.3}.get((int(i), int(j)), 0.0)
        assert abs(lost[0][:, edge].mean() - share) <= 4.5 * np.sqrt(share * (1 - share) / 5000)
    assert (lost[0] != lost[1]).any()


def test_a_round_begins_when_somebody_is_online():
    lines = [device(0, i, online=False) for i in range(4)] + [device(7.5, 2, online=True), device(9, 2, online=False)]
    faults = TimedFaults(parse_trace(lines, RING, "trace"), RING, 0)
    assert faults.find_start(1.0, 0.5) == 7.5 and faults.find_start(8.0, 0.5) == 8.5
    assert faults.find_start(8.0, 1.5) == 9.5  # nobody is ever online again
    paced = TimedFaults(parse_trace(['{"kind": "trace", "every": 2}', *lines], RING, "trace"), RING, 0)
    assert paced.find_start(1.0, 0.5) == 3.0 and paced.find_start(1.0, 3.5) == 4.5


words = st.sampled_from(["kind", "seconds", "device", "src", "dst", "online", "speed", "loss", "every", "round"])
values = st.one_of(
    st.sampled_from(["trace", "device", "link", "away"]), st.none(), st.integers(-2, 6), st.floats(), st.booleans()
)


@given(st.lists(st.dictionaries(words, values).map(json.dumps), max_size=4))
def test_whatever_the_lines_it_is_a_trace_or_an_error(lines):
    try:
        parse_trace(lines, RING, "trace")
    except ExperimentError as error:
        assert str(error).startswith("trace")


def test_the_command_writes_what_it_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(line) for line in draw_lines(0)))
    said = here("faults", "t.jsonl", "--devices", 4)
    assert said.code == 0 and said.err.startswith("0 to ") and "online" in said.err
    (tmp_path / "again.jsonl").write_text(said.out)
    assert here("faults", "again.jsonl", "--devices", 4).out == said.out
    assert len(NAMES) == 6


def test_what_has_no_clock_refuses_seconds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text(GOOD)
    shards = p2pkm.Shards.from_list([np.arange(8.0).reshape(4, 2) + i for i in range(4)])
    for options, said in (
        ({}, "trace in seconds, cannot be combined with a run without link_model: its seconds are those of"),
        ({"link_model": "wan", "schedule": "async"}, "devices then act at individual times"),
    ):
        schedule = options.pop("schedule", "colored")
        with pytest.raises(ExperimentError, match=said):
            p2pkm.simulate(p2pkm.GTVMin(2, schedule=schedule), ring(4), shards, faults="t.jsonl", **options)
    ending = here("topology", "leaks", "ring", "--devices", 4, "--faults", "t.jsonl")
    assert ending.code == 2 and "needs a fault trace by rounds" in ending.err
