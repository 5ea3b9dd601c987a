"""Points that change while a method runs: who follows them, what is claimed, counted and kept."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.engine.point_feed import PointFeed
from p2pkm.methods.following import follow
from p2pkm.methods.registry import METHODS, find
from tests.support.play_rounds import arrange
from tests.support.run_cli import here
from tests.support.sampling import thin
from topologies import ring

FOLLOWERS = (
    "treelloyd", "gtvmin", "consensus", "pushsum", "tracking", "admm", "gossip", "dgc", "gossip-sum", "epidemic", "fkm",
    "dwfkm",
)  # fmt: skip
SERVED = ("fkm", "dwfkm")
RING = topologies.ring(6)


def deal(n=6, seed=0):
    x, y = p2pkm.blobs(clusters=4, points=45, seed=seed)
    return p2pkm.Shards.deal(x, p2pkm.partition.iid(len(x), n, seed=seed), devices=n, labels=y)


def write(path, *events):
    path.write_text("\n".join(json.dumps(event) for event in events))
    return str(path)


def test_points_catch_up_with_all_rounds_that_have_passed():
    moving = SimpleNamespace(
        has_changes=lambda t: t != 2, change=lambda t, raw, ids: replace(raw, points=2 * raw.points + t)
    )
    for rounds, wanted in ((0, 0.0), (1, 1.0), (2, 1.0), (3, 5.0)):
        shards, devices = p2pkm.Shards.from_list([np.zeros((1, 1))]), arrange([np.zeros((1, 1))], []).devices
        for units, unscale in (
            (None, lambda x: x),
            ((np.full((1, 1), 3.0), np.full((1, 1), 4.0)), lambda x: 4 * x + 3),
        ):
            feed = PointFeed(moving, shards, units, devices)
            assert feed.replay_until(rounds) == (rounds > 0)
            assert unscale(feed.shards.points.item()) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLLOWERS)
def test_who_follows_ends_near_a_new_run_on_the_last_points(name, tmp_path):
    """All points move away by the same step in round 3: who stays behind pays for it."""
    shards = deal()
    events = [
        {"kind": "move", "round": 3, "device": i, "number": row, "point": (point + 1.2).tolist()}
        for i in range(6)
        for row, point in enumerate(shards.take([i]).points)
    ]
    rounds = 250 if name == "dgc" else 40  # of which each takes a gradient step
    options = {"rounds": rounds, "stream": write(tmp_path / "t.jsonl", *events), "seed": 1}
    method = find(name)(4)
    result = p2pkm.simulate(method, None if name in SERVED else RING, shards, **options)
    assert result.summary["rounds"] == rounds and result.summary["termination"] == "all-rounds"
    ratios = [record["ratio_mean"] for record in result.rounds if record["stage"] == name]
    assert ratios[3] > 1.5 * ratios[2] and ratios[-1] < 1.1 * max(ratios[2], 1.0)
    assert [record["round"] for record in result.rounds if record.get("break")] == [3]


@pytest.mark.parametrize("name", thin(FOLLOWERS, 3))
@pytest.mark.sample(3)
def test_a_stream_in_which_nothing_happens_changes_no_bit(name):
    if name == "treelloyd":
        pytest.skip("it tracks, with or without changes")
    graph, options = None if name in SERVED else RING, {"rounds": 5, "seed": 2}
    keys: dict[str, object] = {"tol": 0.0}
    if name == "gtvmin":  # whose default is another one without a stream
        keys |= {"coupling": 10}
    method = find(name)(4, **keys)
    plain = p2pkm.simulate(method, graph, deal(), **options)
    empty = p2pkm.simulate(method, graph, deal(), stream="drawn:share=0", **options)
    assert_array_equal(plain.centroids, empty.centroids)
    assert plain.summary["bytes"] == empty.summary["bytes"]


def test_scores_and_cost_are_of_the_points_at_the_end(tmp_path):
    shards = deal()
    tape = write(tmp_path / "t.jsonl", {"kind": "leave", "round": 1, "device": 2, "number": 0},
                 {"kind": "arrive", "round": 2, "device": 0, "point": [0.0, 0.0]},
                 {"kind": "arrive", "round": 2, "device": 0, "point": [1.0, 0.0]})  # fmt: skip
    result = p2pkm.simulate(p2pkm.GTVMin(4), RING, shards, rounds=4, stream=tape)
    sizes = shards.sizes + np.array([2, 0, -1, 0, 0, 0])
    assert_array_equal(result.census.sizes, sizes)
    assert len(result.census.labels) == shards.m + 1
    assert_array_equal(result.census.row[result.census.device == 0][-2:], [-1, -1])
    assert result.summary["ari"] is None


def test_descent_is_claimed_between_two_breaks(tmp_path):
    shards = deal()
    tape = write(tmp_path / "t.jsonl", {"kind": "arrive", "round": 3, "device": 0, "point": [90.0, 0.0]})
    result = p2pkm.simulate(p2pkm.GTVMin(4), RING, shards, rounds=6, stream=tape)
    own = [record for record in result.rounds if record["stage"] == "gtvmin"]
    assert [record["descent"] for record in own] == ["certified"] * 3 + ["not claimed"] + ["certified"] * 3
    assert own[3]["objective"] > own[2]["objective"] + 100.0


def test_tree_lloyd_tracks_with_a_step_every_second_round():
    result = p2pkm.simulate(p2pkm.TreeLloyd(4), RING, deal(), rounds=8, stream="drawn:share=.05")
    own = [record for record in result.rounds if record["stage"] == "treelloyd"]
    sent = np.diff([record["messages"] for record in own])
    assert (sent[2::2] == 0).all() and (sent[1::2] > 0).all() and (sent[1::2] % 10 == 0).all()
    assert len(np.unique(result.centroids, axis=0)) == 1
    assert {record["descent"] for record in own} == {"not claimed"}


@pytest.mark.slow
def test_tree_lloyd_finds_what_steps_alone_do_not(tmp_path, monkeypatch):
    """A cluster jumps to the far side of another one: steps alone leave a row without points, and one with two."""
    shards = deal()
    means = [shards.points[shards.labels == c].mean(axis=0) for c in range(4)]
    beyond = means[1] + 6.0 * (means[1] - np.mean(means, axis=0)) / np.linalg.norm(means[1] - np.mean(means, axis=0))
    events = [
        {"kind": "move", "round": 3, "device": int(device), "number": int(row - shards.offsets[device]),
         "point": (shards.points[row] - means[0] + beyond).tolist()}
        for row, device in enumerate(shards.devices) if shards.labels[row] == 0
    ]  # fmt: skip
    tape = write(tmp_path / "t.jsonl", *events)

    def play():
        result = p2pkm.simulate(p2pkm.TreeLloyd(4), RING, shards, rounds=30, stream=tape)
        return result.summary["ratio_mean"]

    assert play() < 1.001
    monkeypatch.setattr("p2pkm.methods.tree.tracking._RISE", np.inf)
    monkeypatch.setattr("p2pkm.methods.tree.tracking._TRIAL_INTERVAL", np.inf)
    assert play() > 1.2


def test_virtual_time_knows_how_many_points_there_are(tmp_path):
    many = [{"kind": "arrive", "round": 3, "device": 0, "point": [float(i), 0.0]} for i in range(2000)]
    tape = write(tmp_path / "t.jsonl", *many)
    model = "lan:speed=1e4"
    found = {}
    for name, stream in (("stays", None), ("grows", tape)):
        run = p2pkm.simulate(
            p2pkm.GTVMin(4, coupling=10, tol=0.0), RING, deal(), rounds=5, link_model=model, stream=stream
        )
        found[name] = [record["virtual_seconds"] for record in run.rounds if record["stage"] == "gtvmin"]
    assert found["stays"][2] == found["grows"][2] and found["grows"][3] > found["stays"][3] + 1.0


def test_the_refusals(tmp_path):
    tape = write(tmp_path / "t.jsonl", {"kind": "leave", "round": 7, "device": 0, "number": 0})
    for method, words in (
        (p2pkm.Coreset(4), "coreset cannot follow a stream"),
        (p2pkm.TreeLloyd(4, search="breathing"), "treelloyd cannot follow a stream: with these parameters"),
        (p2pkm.GTVMin(4, groups=True), "groups cannot be combined with stream"),
        (p2pkm.LocalOnly(4), "local cannot follow"),
    ):
        with pytest.raises(ExperimentError, match=words):
            p2pkm.simulate(method, RING, deal(), stream="drawn:kind=slow")
    with pytest.raises(ExperimentError, match="stream cannot be combined with schedule='async' and link_model"):
        p2pkm.simulate(p2pkm.GTVMin(4, schedule="async"), RING, deal(), stream=tape, link_model="lan")
    with pytest.raises(ExperimentError, match="round is 7; expected a whole number from 1 to 5"):
        p2pkm.simulate(p2pkm.GTVMin(4), RING, deal(), rounds=5, stream=tape)


def test_every_method_says_whether_it_follows():
    found = {name for name in METHODS if find(name)(3).traits.follows_points}
    assert found == set(FOLLOWERS)
    assert follow(p2pkm.GTVMin(3)) == p2pkm.GTVMin(3)
    assert follow(follow(p2pkm.TreeLloyd(3, tol=0.5))).tol == 0.5


@pytest.mark.parametrize(
    ("event", "code", "said"),
    [
        ({"kind": "leave", "round": 1, "device": 0, "number": 10**6}, 3, "number is 1000000 for kind leave"),
        ({"kind": "arrive", "round": 1, "device": 0, "point": [1]}, 3, "expected a list of 2 numbers"),
        ({"kind": "leave", "round": 99, "device": 0, "number": 0}, 2, "from 1 to 3"),
        ({"kind": "leave", "round": 1, "device": 9, "number": 0}, 2, "device is 9"),
        ({"kind": "fly"}, 2, "kind is 'fly'"),
    ],
)
def test_the_command_refuses_a_tape_that_does_not_fit(event, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.jsonl", event)
    ending = here("--data", "blobs", "--devices", "5", "--rounds", "3", "--stream", "t.jsonl", "--out", "r")
    assert (ending.code, ending.out) == (code, "") and said in ending.err and "t.jsonl, line 1" in ending.err
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_a_run_of_the_command_is_that_of_python(tmp_path):
    words = "--data blobs --devices 6 --rounds 4 --algorithm treelloyd --stream drawn:kind=slow --no-plot --seed 3"
    ending = here(*words.split(), "--out", str(tmp_path / "r"), "--format", "json")
    summary = json.loads(ending.out)
    assert summary["stream"] == "drawn:kind=slow"
    x, y = p2pkm.blobs(seed=3)
    shards = p2pkm.Shards.deal(x, p2pkm.partition.dirichlet(y, 6, seed=3), devices=6, labels=y)
    result = p2pkm.simulate(p2pkm.TreeLloyd(8), RING, shards, rounds=4, seed=3, stream="drawn:kind=slow")
    assert result.summary["chain_sha256"] == summary["chain_sha256"]
    assert here("verify", str(tmp_path / "r")).code == 0


def test_records_mark_the_rounds_in_which_points_changed():
    shards = p2pkm.Shards.from_list([np.arange(12.0).reshape(6, 2) + i for i in range(3)])
    result = p2pkm.simulate(
        p2pkm.GTVMin(2, tol=0.0), ring(3), shards, rounds=4, stream="drawn:kind=jump,at=2,share=0.5"
    )
    assert any(record["break"] for record in result.rounds) and not result.rounds[0]["break"]
