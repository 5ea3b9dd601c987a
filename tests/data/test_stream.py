"""Data streams: every wrong line of a tape is named, and what is drawn is the same on every division."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
from p2pkm.core.batch import Stream
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.data import stream as data_stream
from p2pkm.data.stream import DataStream, build_stream, pack_stream, rebuild_stream
from p2pkm.data.stream_tape import Limits, parse_data_trace, read_data_trace, write_data_trace
from p2pkm.kernels.reference import uniforms
from p2pkm.kernels.streams import as_normal

SHARDS = p2pkm.Shards.from_list([np.arange(6.0).reshape(3, 2), np.ones((2, 2)), np.zeros((0, 2)), np.full((1, 2), 5.0)])
LIMITS = Limits(4, 9, 2)
GOOD = '{"kind": "arrive", "round": 3, "device": 2, "point": [0.5, 1.5]}'


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("{", ExperimentError, "not JSON"),
        ("[1]", ExperimentError, "not an object"),
        ('{"kind": "away"}', ExperimentError, "kind is 'away'; expected one of arrive, leave, move, stream"),
        ('{"kind": "arrive", "round": 1, "device": 0}', ExperimentError, "arrive has no point"),
        ('{"kind": "leave", "round": 1, "device": 0}', ExperimentError, "leave has no number"),
        ('{"kind": "leave", "round": 1, "device": 0, "number": 0, "x": 1}', ExperimentError, "unknown key 'x' of"),
        ('{"kind": "leave", "round": 0, "device": 0, "number": 0}', ExperimentError, "round is 0; expected a whole"),
        ('{"kind": "leave", "round": 10, "device": 0, "number": 0}', ExperimentError, "from 1 to 9"),
        ('{"kind": "leave", "round": 1, "device": 4, "number": 0}', ExperimentError, "device is 4"),
        (
            '{"kind": "leave", "round": 1, "device": 0, "number": 3}',
            DataError,
            "number is 3 for kind leave, but device 0 does not have",
        ),
        (
            '{"kind": "leave", "round": 1, "device": 2, "number": 0}',
            DataError,
            "device 2 does not have this point in round 1; expected a device with points",
        ),
        ('{"kind": "arrive", "round": 1, "device": 0, "point": [1]}', DataError, "1 coordinates; expected a list of 2"),
        ('{"kind": "arrive", "round": 1, "device": 0, "point": 1}', DataError, "point is 1; expected a list of 2"),
        ('{"kind": "arrive", "round": 1, "device": 0, "point": [1, NaN]}', DataError, "point has the coordinate nan"),
        (
            '{"kind": "move", "round": 1, "device": 0, "number": 0, "point": [1, 1e200]}',
            DataError,
            "point has the coordinate 1e+200",
        ),
        ('{"kind": "arrive", "round": 1, "device": 0, "point": [1, "a"]}', DataError, "point has the coordinate 'a'"),
        ('{"kind": "arrive", "round": 1, "device": 0, "point": [1, 2], "weight": 0}', DataError, "weight is 0"),
        ('{"kind": "stream", "devices": 5}', DataError, "for 5 devices, but the run has 4"),
        ('{"kind": "stream", "features": 3}', DataError, "for 3 features, but the run has 2"),
    ],
)
def test_a_wrong_line_is_named(line, kind, said, tmp_path):
    (tmp_path / "t.jsonl").write_text(f"{GOOD}\n\n{line}\n")
    with pytest.raises(kind) as caught:
        read_data_trace(str(tmp_path / "t.jsonl"), SHARDS, LIMITS)
    assert said in str(caught.value) and "t.jsonl, line 3:" in str(caught.value)


def test_a_tape_leaves_as_many_points_as_clusters():
    lines = [json.dumps({"kind": "leave", "round": 4, "device": 0, "number": i}) for i in range(3)]
    assert len(parse_data_trace(lines, SHARDS, LIMITS, "t").events) == 3
    with pytest.raises(DataError, match="t, line 3: after the events of round 4, 3 points remain for 4 clusters"):
        parse_data_trace(lines, SHARDS, LIMITS._replace(k=4), "t")
    back = [*lines, json.dumps({"kind": "arrive", "round": 4, "device": 1, "point": [0, 0]})]
    assert parse_data_trace(back, SHARDS, LIMITS._replace(k=4), "t").has_changes(4)


def play_naively(lines, shards, rounds):
    """Return the points of each device after every round, by lists alone."""
    held = [[(i, tuple(row)) for i, row in enumerate(shards.take([one]).points.tolist())] for one in range(shards.n)]
    ends, events = [len(part) for part in held], [json.loads(line) for line in lines]
    for t in range(1, rounds + 1):
        for event in events:
            if event.get("round") != t:
                continue
            own, number = held[event["device"]], event.get("number")
            if event["kind"] == "arrive":
                own.append((ends[event["device"]], tuple(event["point"])))
                ends[event["device"]] += 1
            elif event["kind"] == "leave":
                own[:] = [one for one in own if one[0] != number]
            else:
                own[:] = [(i, tuple(event["point"]) if i == number else point) for i, point in own]
        yield [[point for _, point in own] for own in held]


def draw_tape(seed, rounds=9):
    """Return lines of a tape that fits SHARDS."""
    rng, there, lines = np.random.default_rng(seed), [list(range(size)) for size in SHARDS.sizes], []
    ends = [len(part) for part in there]
    for t in sorted(rng.integers(1, rounds + 1, 30).tolist()):
        device = int(rng.integers(4))
        kind = str(rng.choice(["arrive", "leave", "move"])) if len(there[device]) > 1 else "arrive"
        event = {"kind": kind, "round": t, "device": device}
        if kind == "arrive":
            there[device].append(ends[device])
            ends[device] += 1
        else:
            event["number"] = int(rng.choice(there[device]))
        if kind == "leave":
            there[device].remove(event["number"])
        else:
            event["point"] = rng.normal(size=2).tolist()
        lines.append(json.dumps(event))
    return lines


@pytest.mark.parametrize("seed", range(20))
def test_a_tape_does_what_lists_do_on_every_division(seed):
    lines = draw_tape(seed)
    tape = parse_data_trace(lines, SHARDS, LIMITS, "t")
    parts = [np.arange(4), np.array([0, 2]), np.array([1, 3]), np.array([], np.int64)]
    own, sizes = [SHARDS.take(ids) for ids in parts], SHARDS.sizes
    for t, expected in enumerate(play_naively(lines, SHARDS, 9), 1):
        own = [tape.change(t, part, ids) for part, ids in zip(own, parts, strict=True)]
        sizes = sizes + tape.growth(t, 4)
        assert_array_equal(sizes, [len(part) for part in expected])
        for part, ids in zip(own, parts, strict=True):
            assert part.points.shape[1] == 2
            assert [part.take([i]).points.tolist() for i in range(len(ids))] == [
                [list(point) for point in expected[i]] for i in ids
            ]
    again = parse_data_trace(list(write_data_trace(tape, SHARDS.sizes)), SHARDS, LIMITS, "t")
    assert not [(one, other) for one, other in zip(tape, again, strict=True) if not (one == other).all()]


def test_weights_stay_with_their_points_and_equal_ones_take_no_memory():
    lines = [GOOD, '{"kind": "move", "round": 3, "device": 0, "number": 1, "point": [7, 8]}',
             '{"kind": "leave", "round": 3, "device": 1, "number": 0}']  # fmt: skip
    weighted = replace(SHARDS, weights=np.arange(1.0, 7.0) / 2)
    for own, line, expected in (
        (weighted, GOOD, [0.5, 1, 1.5, 2.5, 1, 3]),
        (weighted, GOOD[:-1] + ', "weight": 4}', [0.5, 1, 1.5, 2.5, 4, 3]),
        (SHARDS, GOOD[:-1] + ', "weight": 4}', [1, 1, 1, 1, 4, 1]),
        (SHARDS, GOOD, [1] * 6),
    ):
        found = parse_data_trace([line, *lines[1:]], own, LIMITS, "t").change(3, own, np.arange(4)).weights
        assert found.tolist() == expected
        assert any(found.strides) == (set(expected) != {1})


def deal(n=6, seed=0):
    x, y = p2pkm.blobs(clusters=4, points=60, seed=seed)
    return p2pkm.Shards.deal(x, p2pkm.partition.iid(len(x), n, seed=seed), devices=n, labels=y)


@pytest.mark.parametrize("kind", ["none", "slow", "jump", "birth", "turn"])
@pytest.mark.sample(3)
def test_what_is_drawn_is_the_same_on_every_division(kind):
    shards, asked = deal(), DataStream.of(f"drawn:kind={kind},share=.3,at=3")
    stream = build_stream(asked, shards, shards.labels.astype(np.int64), 5, Limits(6, 9, 4))
    other = rebuild_stream(asked, pack_stream(stream), 5)
    whole, ids = shards, np.array([1, 4])
    part = shards.take(ids)
    for t in range(1, 7):
        whole, part = stream.change(t, whole, np.arange(6)), other.change(t, part, ids)
        assert_array_equal(whole.take(ids).points, part.points)
    assert (whole.points != shards.points).any(axis=1).mean() > 0.5
    assert whole.m == shards.m and stream.has_changes(1) and not stream.growth(1, 6).any()


@pytest.mark.parametrize("kind", ["jump", "turn"])
@pytest.mark.parametrize("together", [1, 40, 1 << 18])
def test_points_are_those_of_single_devices(kind, together, monkeypatch):
    """Against a loop over devices and points, one of them empty, some larger than what is drawn together."""
    monkeypatch.setattr(data_stream, "_DRAWS", together)
    points = np.random.default_rng(0).normal(size=(31, 3))
    owner = np.repeat([0, 1, 3, 4], [1, 9, 20, 1])
    shards = p2pkm.Shards.deal(points, owner, devices=5, labels=np.arange(31) % 3)
    asked = DataStream(kind=kind, share=0.4, at=2, period=4)
    stream = build_stream(asked, shards, shards.labels.astype(np.int64), 5, Limits(5, 9, 1))
    for t in (1, 2, 7):
        found, expected = stream.change(t, shards, np.arange(5)), points.copy()
        for device in (0, 1, 3, 4):
            rows = np.flatnonzero(owner == device)
            draws = uniforms(stream.key, Stream.DRIFT, [(device << 32) + t], 5 * len(rows)).reshape(-1, 5)
            shares = stream.shares[device]
            if kind == "turn":
                whole, part = divmod(t, 4)
                shares = (1 - part / 4) * np.roll(shares, whole) + part / 4 * np.roll(shares, whole + 1)
            for row, draw in zip(rows, draws, strict=True):
                if draw[0] < 0.4:
                    c = np.searchsorted(np.cumsum(shares)[:-1], draw[1], side="right")
                    expected[row] = stream.move_means(t)[c] + stream.deviations * as_normal(draw[2:])
        assert_array_equal(found.points, expected)
        assert_array_equal(found.rows == -1, (expected != points).any(axis=1))


def test_the_kinds_do_what_they_are_called():
    shards = deal()
    built = {
        kind: build_stream(DataStream(kind=kind, at=5), shards, shards.labels.astype(np.int64), 0, Limits(6, 50, 4))
        for kind in ("none", "slow", "jump", "birth", "turn")
    }
    moved = {kind: (one.move_means(20) != one.means).any(axis=1).sum() for kind, one in built.items()}
    assert moved == {"none": 0, "slow": 4, "jump": 2, "birth": 1, "turn": 0}
    assert not [kind for kind in ("jump", "birth") if not (built[kind].move_means(4) == built[kind].means).all()]
    step = built["slow"].move_means(8) - built["slow"].move_means(7)
    assert np.allclose(np.linalg.norm(step, axis=1), 0.08 * built["slow"].scale)
    shift = built["birth"].move_means(5) - built["birth"].means
    assert np.isclose(np.linalg.norm(shift, axis=1).max(), 9.0 * built["birth"].scale)
    assert np.allclose(built["turn"].rotate_shares(10, [0])[0], np.roll(built["turn"].shares[0], 1))
    assert np.isclose(built["turn"].rotate_shares(13, [0]).sum(), 1.0)


@pytest.mark.parametrize("text", ["drawn:kind=slow", "drawn:kind=jump,share=0.2,at=7", "drawn:kind=none", "t.jsonl"])
def test_the_text_of_a_value_reads_back(text):
    assert str(DataStream.of(text)) == text and DataStream.of(str(DataStream.of(text))) == DataStream.of(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("drawn:kind=fast", "fast"),
        ("drawn:share=2", "stream share is 2.0"),
        ("drawn:at=0", "stream at is 0"),
        ("drawn:step=-1", "stream step is -1.0"),
        ("drown", "unknown stream 'drown'"),
    ],
)
def test_a_wrong_text_is_refused(text, said):
    with pytest.raises(ExperimentError, match=said):
        DataStream.of(text)
