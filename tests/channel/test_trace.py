"""Traces of faults: every line that is wrong is named, and what is written reads back the same."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from p2pkm.channel.fault_trace import MOST, FaultTrace, parse_trace, read_trace, write_trace
from p2pkm.core.errors import ExperimentError
from p2pkm.network.graph import Topology
from tests.support.run_cli import here
from topologies import ring

RING = Topology.from_links(4, np.array([[0, 1, 1.0], [1, 2, 1.0], [2, 3, 1.0], [0, 3, 1.0]]))
GOOD = '{"kind": "away", "round": 3, "device": 0, "rounds": 2}'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("1" * 5000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        ("[1]", "not an object"),
        ("null", "not an object"),
        ("{}", "kind is None; expected one of asleep, away, delay"),
        ('{"kind": "gone"}', "kind is 'gone'"),
        ('{"kind": ["away"]}', "kind is ['away']"),
        ('{"kind": "away", "round": 1}', "away has no device"),
        ('{"kind": "loss", "round": 1, "src": 0}', "loss has no dst; expected src, dst, round"),
        ('{"kind": "away", "device": 1}', "away has no round"),
        ('{"kind": "away", "round": 1, "device": 1, "until": 3}', "unknown key 'until' of away; expected device, kind"),
        ('{"kind": "away", "round": -1, "device": 1}', "round is -1; expected a whole number from 0"),
        ('{"kind": "away", "round": 1.5, "device": 1}', "round is 1.5"),
        ('{"kind": "away", "round": true, "device": 1}', "round is True"),
        ('{"kind": "away", "round": NaN, "device": 1}', "round is nan"),
        ('{"kind": "away", "round": 1, "device": "x"}', "device is 'x'"),
        ('{"kind": "away", "round": 1, "device": 5}', "device is 5; expected a whole number from 0 to 4"),
        ('{"kind": "away", "round": 1, "device": 1, "rounds": 0}', "rounds is 0; expected a whole number from 1"),
        ('{"kind": "delay", "round": 1, "src": 0, "dst": 1, "rounds": 65}', "rounds is 65"),
        ('{"kind": "loss", "round": 1, "src": 0, "dst": 1, "turn": -1}', "turn is -1"),
        ('{"kind": "loss", "round": 1, "src": 2, "dst": 2}', "src and dst are both 2"),
        ('{"kind": "partition", "round": 1, "devices": 3}', "devices is 3; expected a list"),
        ('{"kind": "partition", "round": 1, "devices": [9]}', "devices is 9"),
        ('{"kind": "trace", "devices": 5}', "the fault trace is for 5 devices; expected 4"),
        ('{"kind": "trace", "stages": "some"}', "stages is 'some'; expected method or all"),
        ('{"kind": "trace", "version": 2}', "unknown key 'version' of trace"),
    ],
)
def test_a_wrong_line_is_named(line, said, tmp_path):
    text = line if isinstance(line, bytes) else line.encode()
    (tmp_path / "t.jsonl").write_bytes(GOOD.encode() + b"\n\n" + text + b"\n")
    with pytest.raises(ExperimentError) as caught:
        read_trace(str(tmp_path / "t.jsonl"), RING)
    assert said in str(caught.value) and "t.jsonl, line 3:" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_long_lines_long_files_and_folders_are_refused(tmp_path, monkeypatch):
    (tmp_path / "long.jsonl").write_text(" " * 1_000_001)
    with pytest.raises(ExperimentError, match="line 1: longer than 1,000,000 bytes"):
        read_trace(str(tmp_path / "long.jsonl"), RING)
    with pytest.raises(ExperimentError, match="cannot be read: Is a directory"):
        read_trace(str(tmp_path), RING)
    assert MOST == 2_000_000
    monkeypatch.setattr("p2pkm.channel.fault_trace.MOST", 3)
    with pytest.raises(ExperimentError, match="line 4: more than 3 events"):
        parse_trace([GOOD] * 4, RING, "trace")
    with pytest.raises(ExperimentError, match="line 3: more than 3 events"):  # a partition cuts two links of the ring
        parse_trace(['{"kind": "partition", "round": 1}', "", '{"kind": "partition", "round": 2}'], RING, "trace")


def test_what_the_graph_does_not_have_is_left_out_and_counted():
    lines = [GOOD, '{"kind": "link", "round": 1, "src": 0, "dst": 2}', '{"kind": "away", "round": 1, "device": 4}']
    trace = parse_trace(lines, RING, "trace")
    assert trace.ignored_events == 2
    assert_array_equal(trace.events, [[0, 3, 0, -1, 2, -1]])
    to_server = ['{"kind": "loss", "round": 1, "src": 0, "dst": 4}']  # which is no device of a ring of 4
    assert parse_trace(to_server, RING, "trace").ignored_events == 1
    star = Topology.star(4)
    assert parse_trace(to_server, star, "trace").ignored_events == 0
    assert parse_trace(lines, star, "trace").ignored_events == 1  # the server is device 4 there
    pair = Topology.from_links(4, np.array([[0, 1, 1.0]]))
    beyond = ['{"kind": "link", "round": 1, "src": 3, "dst": 2}']  # all links of the graph come before this one
    assert parse_trace(beyond, pair, "trace").ignored_events == 1
    across = ['{"kind": "link", "round": 1, "src": 2, "dst": 0}']  # device 0 is an end like others
    assert parse_trace(across, RING, "trace").ignored_events == 1
    cut = ['{"kind": "partition", "round": 1, "devices": [0, 4]}']
    assert_array_equal(parse_trace(cut, RING, "trace").events[:, 2:4], [[0, 1], [0, 3]])
    assert parse_trace(['{"kind": "loss", "round": 1, "src": 0, "dst": 1, "turn": 0}'], RING, "t").events[0, 5] == 0
    alone = Topology.from_links(1, np.zeros((0, 3)))
    assert parse_trace(['{"kind": "loss", "round": 1, "src": 0, "dst": 1}'], alone, "trace").ignored_events == 1


def test_events_are_played_in_the_order_of_their_rounds():
    lines = [json.dumps({"kind": "away", "round": t, "device": t}) for t in (3, 0, 2)]
    assert_array_equal(parse_trace(lines, RING, "trace").events[:, 1], [0, 2, 3])


def test_a_partition_may_be_there_from_the_opening_on_and_lasts_a_round_unless_told_otherwise():
    lines = [{"kind": "partition", "round": 0}, {"kind": "partition", "round": 2, "rounds": 3}]
    events = parse_trace(map(json.dumps, lines), RING, "trace").events
    assert events[:, [1, 2, 3, 4]].tolist() == [[0, 0, 3, 1], [0, 1, 2, 1], [2, 0, 3, 3], [2, 1, 2, 3]]


rounds, edges = st.integers(0, 50), st.integers(0, 7)
rows = st.one_of(
    st.tuples(st.sampled_from([0, 1]), rounds, st.integers(0, 3), st.just(-1), st.integers(1, 9), st.just(-1)),
    st.tuples(st.sampled_from([2, 3, 4]), rounds, edges, st.integers(1, 9), st.integers(-1, 3)).map(
        lambda r: (r[0], r[1], int(RING.sources[r[2]]), int(RING.indices[r[2]]), 1 if r[0] == 3 else r[3],
                   -1 if r[0] == 2 else r[4])
    ),
)  # fmt: skip


@given(st.lists(rows, max_size=20), st.sampled_from(["method", "all"]))
def test_what_is_written_reads_back_the_same(events, stages):
    table = np.array(sorted(events, key=lambda row: row[1]), np.int64).reshape(-1, 6)
    trace = parse_trace(list(write_trace(FaultTrace(table, stages), 4)), RING, "trace")
    assert_array_equal(trace.events, table)
    assert trace.stages == stages and trace.ignored_events == 0


words = st.sampled_from(["kind", "round", "device", "src", "dst", "rounds", "turn", "devices", "stages"])
values = st.one_of(
    st.sampled_from(["trace", "away", "asleep", "link", "loss", "delay", "partition", "all"]), st.none(),
    st.integers(-2, 6), st.floats(), st.booleans(), st.lists(st.integers(-1, 5), max_size=3),
)  # fmt: skip


@given(st.lists(st.one_of(st.text(), st.binary(), st.dictionaries(words, values).map(json.dumps)), max_size=4))
def test_whatever_the_lines_it_is_a_trace_or_an_error(lines):
    try:
        parse_trace(lines, RING, "trace")
    except ExperimentError as error:
        assert str(error).startswith("trace, line ")


def test_the_command_writes_what_it_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--graph ring --devices 6 --rounds 9".split()
    spec = "loss=0.2,dropout=0.2,link_failure=0.1,partition=2-3,stages=all"
    said = here("faults", spec, *words)
    head, *rest = [json.loads(line) for line in said.out.splitlines()]
    counts = [(word, sum(event["kind"] == word for event in rest)) for word in ("away", "link", "loss")]
    assert (said.code, said.err) == (0, f"rounds 0 to 9: {', '.join(f'{count} {word}' for word, count in counts)}\n")
    assert here("faults", "loss=0", *words).err == "rounds 0 to 9: no events\n"
    assert head == {"kind": "trace", "devices": 6, "stages": "all"}
    assert {event["kind"] for event in rest} == {"loss", "away", "link"} and max(e["round"] for e in rest) <= 9
    assert here("faults", spec, *words, "--out", "t.jsonl").code == 0
    assert (tmp_path / "t.jsonl").read_text() == said.out
    assert here("faults", "t.jsonl", *words).out == said.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("loss=2", 2, "faults loss is 2.0"),
        ("loss=.1 --graph rng", 2, "Did you mean 'ring'"),
        ("loss=.1 --out nowhere/t.jsonl", 4, "cannot be written"),
        ("loss=1 --devices 1000 --rounds 2000", 2, "Reduce --rounds"),
        ("t.jsonl", 2, "t.jsonl cannot be read"),
    ],
)
@pytest.mark.sample(3)
def test_the_command_says_what_is_wrong(words, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ending = here("faults", *words.split())
    assert ending.code == code and said in ending.err and not ending.out


def test_with_a_server_there_is_one_device_more():
    out = here("faults", "server=1,dropout_length=1", "--server", "--devices", "3", "--rounds", "1").out
    assert [json.loads(line).get("device") for line in out.splitlines()] == [None, 3, 3]


@pytest.mark.parametrize("rounds", [0, -1, 1.5])
def test_a_fault_shorter_than_one_round_is_refused(rounds):
    lines = ['{"kind":"trace","devices":3}', json.dumps({"kind": "asleep", "round": 1, "device": 0, "rounds": rounds})]
    with pytest.raises(ExperimentError, match="rounds"):
        parse_trace(lines, Topology.from_graph(ring(3)), "faults")


def test_a_partition_shorter_than_one_round_is_refused():
    lines = ['{"kind":"trace","devices":3}', json.dumps({"kind": "partition", "round": 1, "rounds": 0})]
    with pytest.raises(ExperimentError, match="rounds"):
        parse_trace(lines, Topology.from_graph(ring(3)), "faults")
